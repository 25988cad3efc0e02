//! Shared logs of include/toe.h. As the zero-copy functions, they are the library's own.
use super::sockets::{fresh, ours};
use crate::calls::log::{self, Record};
use crate::daemon::attach;
use crate::state::slab;
use crate::system::errno::{Result, give};
use crate::{lock, table};
use libc::{c_int, size_t, ssize_t};

/// `toe_log_create`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_log_create(record: size_t, records: size_t, flags: c_int) -> c_int {
    give(create(record, records, flags))
}

fn create(record: usize, records: usize, flags: c_int) -> Result<c_int> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(libc::EINVAL);
    }
    if !attach::is_enabled() {
        return Err(libc::EOPNOTSUPP);
    }
    let fd = fresh(false, flags)?.ok_or(libc::EMFILE)?;
    let opened = ours(fd)?.ok_or(libc::EBADF).and_then(|(mut lib, key)| log::open(&mut lib, key, record, records));
    if let Err(errno) = opened {
        let mut lib = lock::lock()?;
        if let Some(key) = lib.socket_of(fd) {
            table::clear(fd);
            lib.drop_descriptor(key.index);
            // SAFETY: made above, and no other code has it.
            unsafe { crate::system::real::close(fd) };
        }
        return Err(errno);
    }
    Ok(fd)
}

/// `toe_log_add`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_log_add(log: c_int, fd: c_int, mark: u64) -> c_int {
    give(add(log, fd, mark).map(|()| 0))
}

fn add(log: c_int, fd: c_int, mark: u64) -> Result<()> {
    // SAFETY: a plain call, which only asks whether the descriptor is open.
    if unsafe { crate::system::real::fcntl(fd, libc::F_GETFD, 0) } < 0 {
        return Err(libc::EBADF);
    }
    let (mut lib, log) = ours(log)?.ok_or(libc::EBADF)?;
    let key = lib.socket_of(fd).ok_or(libc::EOPNOTSUPP)?;
    log::add(&mut lib, log, key, mark)
}

/// `toe_log_read`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_log_read(log: c_int, list: *mut Record, most: size_t, flags: c_int) -> ssize_t {
    if list.is_null() {
        return give(Err::<ssize_t, c_int>(libc::EFAULT));
    }
    // SAFETY: the caller's array of `most` records.
    let list = unsafe { std::slice::from_raw_parts_mut(list, most) };
    give(on_log(log, |lib, key| log::read(lib, key, list, flags)).map(|count| count as ssize_t))
}

/// `toe_log_trim`.
#[unsafe(no_mangle)]
pub(super) extern "C" fn toe_log_trim(log: c_int, count: size_t) -> c_int {
    give(on_log(log, |lib, key| log::trim(lib, key, count)).map(|()| 0))
}

fn on_log<T>(log: c_int, act: impl FnOnce(&mut lock::Guard, slab::Key) -> Result<T>) -> Result<T> {
    let (mut lib, key) = ours(log)?.ok_or(libc::EBADF)?;
    act(&mut lib, key)
}
