//! `splice` between a pipe and a socket. The bytes are copied, and none of them is lost where the call stops early.
//! Programs that empty one side first, as Go's `io.Copy` from a UNIX socket does, have them nowhere else.
use super::io::{recv, send_file};
use super::sockets::{ours, route};
use crate::system::errno::{self, Result};
use crate::system::real;
use libc::{c_int, c_uint, c_ulong, size_t, ssize_t};
use std::os::fd::RawFd;

/// What a pipe that is not full takes without waiting (pipe(7)).
const PIECE: usize = 4096;

/// `splice`. Without a pipe among the two it is an error, as on Linux.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn splice(
    input: c_int,
    input_offset: *mut i64,
    output: c_int,
    output_offset: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let is_ours = |fd| matches!(ours(fd), Ok(Some(_)));
    let other = match (is_ours(input), is_ours(output)) {
        // SAFETY: passed on.
        (false, false) => return unsafe { real::splice(input, input_offset, output, output_offset, len, flags) },
        (true, false) => output,
        (false, true) => input,
        (true, true) => return errno::give(Err(libc::EINVAL)),
    };
    if !is_pipe(other) {
        return errno::give(Err(libc::EINVAL));
    }
    if !input_offset.is_null() || !output_offset.is_null() {
        return errno::give(Err(libc::ESPIPE));
    }
    if len == 0 {
        return 0;
    }
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && !is_nonblocking(other);
    if other == output {
        return errno::give(to_pipe(input, output, len, waits));
    }
    match available(input, waits) {
        Ok(0) => 0,
        Ok(there) => {
            route!(
                output,
                |lib, key| send_file(lib, key, input, std::ptr::null_mut(), len.min(there)),
                real::splice(input, input_offset, output, output_offset, len, flags)
            )
        }
        Err(errno) => errno::give(Err(errno)),
    }
}

fn is_pipe(fd: RawFd) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a local, which is written where the call succeeds.
    unsafe { libc::fstat(fd, found.as_mut_ptr()) == 0 && found.assume_init().st_mode & libc::S_IFMT == libc::S_IFIFO }
}

fn is_nonblocking(fd: RawFd) -> bool {
    // SAFETY: a plain call.
    unsafe { real::fcntl(fd, libc::F_GETFL, 0) & libc::O_NONBLOCK != 0 }
}

/// Whether a pipe has bytes or room, or its other end is gone; waits for it where that is wanted.
fn is_ready(pipe: RawFd, events: i16, waits: bool) -> Result<bool> {
    let mut ask = libc::pollfd { fd: pipe, events, revents: 0 };
    // SAFETY: a local.
    errno::check(unsafe { real::poll(&mut ask, 1, if waits { -1 } else { 0 }) })?;
    Ok(ask.revents != 0)
}

/// Bytes in a pipe; 0 at its end.
fn available(pipe: RawFd, waits: bool) -> Result<usize> {
    if !is_ready(pipe, libc::POLLIN, waits)? {
        return Err(libc::EAGAIN);
    }
    let mut there: c_int = 0;
    // SAFETY: writes the local.
    errno::check(unsafe { real::ioctl(pipe, libc::FIONREAD, (&raw mut there).expose_provenance() as c_ulong) })?;
    Ok(there.max(0) as usize)
}

/// Receives no more than the pipe takes at once.
fn to_pipe(socket: RawFd, pipe: RawFd, len: usize, waits: bool) -> Result<ssize_t> {
    let mut done = 0;
    let mut piece = [0u8; PIECE];
    while done < len {
        if !is_ready(pipe, libc::POLLOUT, waits && done == 0)? {
            break;
        }
        let wait = if done > 0 { libc::MSG_DONTWAIT } else { 0 };
        // SAFETY: a local buffer.
        let got = unsafe { recv(socket, piece.as_mut_ptr().cast(), PIECE.min(len - done), wait) };
        match errno::check(got) {
            Ok(0) => return Ok(done as ssize_t),
            // SAFETY: what was written to the buffer.
            Ok(got) => errno::check(unsafe { real::write(pipe, piece.as_ptr().cast(), got as usize) })?,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => return Ok(done as ssize_t),
        };
        done += got as usize;
    }
    if done == 0 { Err(libc::EAGAIN) } else { Ok(done as ssize_t) }
}
