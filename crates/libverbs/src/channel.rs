//! Completion channels, and events that wait for their acknowledgement.
use crate::abi::{IbvCompChannel, IbvContext};
use crate::context::Context;
use crate::errno::{self, Result};
use libc::c_int;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, PoisonError};
use verbs::Number;
use verbs::control::Request;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    public: IbvCompChannel,
    pub(crate) number: Number,
    _fd: OwnedFd,
}

/// Events of an object that the program got and has not acknowledged yet: the object is not destroyed before.
#[derive(Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u32>,
    none: Condvar,
}

impl Unacknowledged {
    /// The program got one.
    pub(crate) fn got(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// And acknowledges so many.
    pub(crate) fn acknowledge(&self, events: u32) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(events);
        self.none.notify_all();
    }

    /// Waits until all are acknowledged.
    pub(crate) fn wait(&self) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.none.wait_while(count, |count| *count > 0));
    }
}

/// Reads one message of a pipe: waits for it, or not, as the program has set the descriptor.
pub(crate) fn read_message<const N: usize>(fd: RawFd) -> Result<[u8; N]> {
    let mut bytes = [0u8; N];
    // SAFETY: reads into a local array. Messages are written whole, so they are read whole.
    match unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), N) } {
        -1 => Err(errno::get()),
        got if got == N as isize => Ok(bytes),
        // The daemon has gone.
        _ => Err(libc::EIO),
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut IbvContext) -> *mut IbvCompChannel {
    // SAFETY: an open context.
    let of = unsafe { Context::of(context) };
    errno::pointer(of.attachment.number(&Request::OpenChannel).and_then(|(number, fd)| {
        let fd = fd.ok_or(libc::EIO)?;
        let public = IbvCompChannel { context, fd: fd.as_raw_fd(), refcnt: 0 };
        Ok(Box::into_raw(Box::new(Channel { public, number, _fd: fd })).cast())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut IbvCompChannel) -> c_int {
    let channel = channel.cast::<Channel>();
    // SAFETY: `ibv_create_comp_channel` gave it.
    let (context, number) = unsafe { (Context::of((*channel).public.context), (*channel).number) };
    errno::number(context.attachment.done(&Request::CloseChannel(number)).map(|()| {
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(channel) });
    }))
}
