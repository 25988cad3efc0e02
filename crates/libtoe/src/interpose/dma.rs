//! `toe_dma_*` of include/toe.h: for the server of a device's queue of copies (docs/REGISTERED-MEMORY.md).
use crate::system::errno::{Result, give, set};
use libc::{c_int, c_void, size_t};
use memory::{DmaCopy, DmaServer};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// `struct toe_dma_copy`.
#[repr(C)]
pub(super) struct Copy {
    id: u64,
    address: u64,
    len: size_t,
    staging: *mut c_void,
    into_device: c_int,
}

fn of(error: io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EPROTO)
}

/// `toe_dma_open`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_dma_open(queue: c_int) -> *mut DmaServer {
    if queue < 0 {
        set(libc::EBADF);
        return std::ptr::null_mut();
    }
    // SAFETY: the caller gives the descriptor away.
    match DmaServer::open(unsafe { OwnedFd::from_raw_fd(queue) }) {
        Ok(server) => Box::into_raw(Box::new(server)),
        Err(error) => {
            set(of(error));
            std::ptr::null_mut()
        }
    }
}

/// `toe_dma_close`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_dma_close(dma: *mut DmaServer) {
    if !dma.is_null() {
        // SAFETY: from toe_dma_open, and not used any more, as its description asks.
        drop(unsafe { Box::from_raw(dma) });
    }
}

/// `toe_dma_staging`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_dma_staging(dma: *mut DmaServer, len: *mut size_t) -> *mut c_void {
    // SAFETY: null, or from toe_dma_open; used by one thread at a time, as its description asks.
    let Some(dma) = (unsafe { dma.as_ref() }) else {
        set(libc::EINVAL);
        return std::ptr::null_mut();
    };
    let (at, bytes) = dma.staging();
    if !len.is_null() {
        // SAFETY: not null, and the caller's.
        unsafe { len.write(bytes) };
    }
    at.cast()
}

/// `toe_dma_take`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_dma_take(
    dma: *mut DmaServer,
    list: *mut Copy,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: null, or from toe_dma_open; used by one thread at a time, as its description asks.
    let Some(dma) = (unsafe { dma.as_mut() }) else { return give(Err(libc::EINVAL)) };
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0 && !list.is_null()) else {
        return give(Err(libc::EINVAL));
    };
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let deadline = limit.map(|limit| Instant::now() + limit);
    give(loop {
        let mut count = 0;
        while count < most {
            let Some(copy) = dma.take() else { break };
            // SAFETY: an array of the caller's with room for `most`.
            unsafe { list.add(count).write(shown(dma, copy)) };
            count += 1;
        }
        if count > 0 {
            break Ok(count as c_int);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            break Ok(0);
        }
        match wait(dma, left) {
            Ok(()) => {}
            Err(errno) => break Err(errno),
        }
    })
}

fn wait(dma: &mut DmaServer, most: Option<Duration>) -> Result<()> {
    if dma.wait(most).map_err(of)? { Ok(()) } else { Err(libc::ECONNRESET) }
}

fn shown(dma: &DmaServer, copy: DmaCopy) -> Copy {
    let DmaCopy { number, into_device, address, len, at } = copy;
    let staging = dma.staging().0.wrapping_add(at).cast();
    Copy { id: number, address, len, staging, into_device: into_device.into() }
}

/// `toe_dma_done`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_dma_done(dma: *mut DmaServer, id: u64, error: c_int) -> c_int {
    // SAFETY: null, or from toe_dma_open; used by one thread at a time, as its description asks.
    let Some(dma) = (unsafe { dma.as_mut() }) else { return give(Err(libc::EINVAL)) };
    dma.done(id, error);
    give(Ok(0))
}
