//! The functions of include/toe.h. They are the library's own: there is no next definition to pass a call on to.
use super::sockets::ours;
use crate::calls::zero_copy;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::system::errno::{Result, give};
use libc::{c_int, iovec, size_t, ssize_t};

/// `TOE_API_VERSION`.
const VERSION: c_int = 1;
/// `IOV_MAX`.
const MOST_PIECES: c_int = 1024;

fn on_ours<T>(fd: c_int, act: impl FnOnce(&mut Guard, Key) -> Result<T>) -> Result<T> {
    let (mut lib, key) = ours(fd)?.ok_or(libc::EOPNOTSUPP)?;
    act(&mut lib, key)
}

/// Writes two pieces to the caller's array and gives their length.
///
/// # Safety
/// `iov` is null or has two elements.
unsafe fn write_pieces(iov: *mut iovec, find: impl FnOnce() -> Result<[iovec; 2]>) -> Result<ssize_t> {
    if iov.is_null() {
        return Err(libc::EFAULT);
    }
    let pieces = find()?;
    let len = pieces[0].iov_len + pieces[1].iov_len;
    // SAFETY: the caller's array of two.
    unsafe { iov.cast::<[iovec; 2]>().write(pieces) };
    Ok(len as ssize_t)
}

/// `toe_api_version`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_api_version() -> c_int {
    VERSION
}

/// `toe_zc_reserve`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_zc_reserve(fd: c_int, iov: *mut iovec, least: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's array.
    give(unsafe { write_pieces(iov, || on_ours(fd, |lib, key| zero_copy::reserve(lib, key, least, flags))) })
}

/// `toe_zc_commit`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_zc_commit(fd: c_int, len: size_t, flags: c_int) -> c_int {
    give(on_ours(fd, |lib, key| zero_copy::commit(lib, key, len, flags)).map(|()| 0))
}

/// `toe_zc_peek`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_zc_peek(fd: c_int, iov: *mut iovec, least: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's array.
    give(unsafe { write_pieces(iov, || on_ours(fd, |lib, key| zero_copy::peek(lib, key, least, flags))) })
}

/// `toe_zc_release`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_zc_release(fd: c_int, len: size_t) -> c_int {
    give(on_ours(fd, |lib, key| zero_copy::release(lib, key, len)).map(|()| 0))
}

/// `toe_zc_take`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_zc_take(fd: c_int, iov: *mut iovec, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's array.
    give(unsafe { write_pieces(iov, || on_ours(fd, |lib, key| zero_copy::take(lib, key, len, flags))) })
}

/// `toe_zc_free`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_zc_free(fd: c_int, iov: *const iovec, count: c_int) -> c_int {
    give(match (iov.is_null(), count) {
        (true, _) => Err(libc::EFAULT),
        (false, 0..=MOST_PIECES) => {
            // SAFETY: the caller's array of `count`.
            let pieces = unsafe { std::slice::from_raw_parts(iov, count as usize) };
            on_ours(fd, |lib, key| zero_copy::free(lib, key, pieces)).map(|()| 0)
        }
        _ => Err(libc::EINVAL),
    })
}
