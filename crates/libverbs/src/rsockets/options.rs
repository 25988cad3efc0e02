//! `rsetsockopt`, `rgetsockopt` and `rfcntl`.
use super::settings::LEVEL_RDMA;
use super::table;
use crate::errno;
use libc::{c_int, c_void, socklen_t};

/// Sizes count for connections that are made later.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsetsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let words = len as usize / size_of::<c_int>();
        if words == 0 || value.is_null() {
            return Err(libc::EINVAL);
        }
        let from = value.cast::<c_int>();
        // SAFETY: the program passes so many bytes.
        let (first, second) = unsafe { (from.read_unaligned(), (words > 1).then(|| from.add(1).read_unaligned())) };
        socket.with(|state| match level == LEVEL_RDMA && state.is_fixed() {
            true => Err(libc::EINVAL),
            false => state.options().set([level, name], first, second),
        })
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    into: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    errno::minus_one(table::find(fd).and_then(|socket| {
        let (first, second) = socket.with(|state| match [level, name] {
            [libc::SOL_SOCKET, libc::SO_ERROR] => {
                state.progress();
                Ok((state.take_error(), None))
            }
            of => state.options().get(of),
        })?;
        let words = [first, second.unwrap_or(0)];
        let size = if second.is_some() { size_of_val(&words) } else { size_of::<c_int>() };
        // SAFETY: the program passes a place, and how long it is.
        unsafe {
            let room = (*len as usize).min(size);
            words.as_ptr().cast::<u8>().copy_to_nonoverlapping(into.cast(), room);
            *len = room as socklen_t;
        }
        Ok(())
    }))
}

/// `F_GETFL` and `F_SETFL`, of which `O_NONBLOCK` counts.
#[unsafe(no_mangle)]
extern "C" fn rfcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let asked = table::find(fd).and_then(|socket| {
        socket.with(|state| {
            let options = state.options();
            match command {
                libc::F_GETFL => Ok(libc::O_RDWR | if options.nonblocking { libc::O_NONBLOCK } else { 0 }),
                libc::F_SETFL => {
                    options.nonblocking = argument as c_int & libc::O_NONBLOCK != 0;
                    Ok(0)
                }
                libc::F_GETFD => Ok(libc::FD_CLOEXEC),
                // The descriptor does not outlive `exec`: neither would the socket.
                libc::F_SETFD => Ok(0),
                _ => Err(libc::ENOTSUP),
            }
        })
    });
    asked.unwrap_or_else(|number| {
        errno::set(number);
        -1
    })
}
