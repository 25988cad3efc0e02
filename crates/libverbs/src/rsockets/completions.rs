//! Completions of a socket: a completion queue, and its channel.
use crate::abi::{IbvCompChannel, IbvCq, IbvWc};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel, read_message};
use crate::cm::Service;
use crate::completion_queue::Cq;
use crate::cq_calls::{ibv_create_cq, ibv_destroy_cq, req_notify_cq};
use crate::errno::{self, Result};
use crate::poll::poll_cq;
use libc::c_int;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use verbs::ChannelMessage;

/// Completions that are taken at once.
const BATCH: usize = 16;

/// The queue and its channel. Queue pairs that use it end first.
pub(super) struct Completions {
    pub(super) cq: *mut IbvCq,
    channel: *mut IbvCompChannel,
}

impl Completions {
    /// For so many that wait.
    ///
    /// # Safety
    /// The service's context stays open as long as this.
    pub(super) unsafe fn new(service: &Service, entries: u32) -> Result<Completions> {
        // SAFETY: as the caller guarantees. What is made is given back by `drop`, also where this fails.
        unsafe {
            let mut completions = Completions { cq: null_mut(), channel: null_mut() };
            completions.channel = made(ibv_create_comp_channel(service.context))?;
            if libc::fcntl(completions.fd(), libc::F_SETFL, libc::O_NONBLOCK) != 0 {
                return Err(errno::get());
            }
            let queue = ibv_create_cq(service.context, entries as c_int, null_mut(), completions.channel, 0);
            completions.cq = made(queue)?;
            Ok(completions)
        }
    }

    /// The descriptor that is readable once something has completed after [`Completions::arm`].
    pub(super) fn fd(&self) -> RawFd {
        // SAFETY: the channel is there as long as this.
        unsafe { (*self.channel).fd }
    }

    /// Takes completions, and shows each; false where the daemon has gone.
    pub(super) fn poll(&self, mut each: impl FnMut(&IbvWc)) -> bool {
        loop {
            // SAFETY: zeros are valid completions, of which as many are read as were written.
            let mut found: [IbvWc; BATCH] = unsafe { std::mem::zeroed() };
            // SAFETY: the queue is there, and has room for so many.
            let count = unsafe { poll_cq(self.cq, BATCH as c_int, found.as_mut_ptr()) };
            let Ok(count) = usize::try_from(count) else { return false };
            found[..count].iter().for_each(&mut each);
            if count < BATCH {
                return true;
            }
        }
    }

    /// The descriptor becomes readable with the next completion. For one that is there already there is no event: poll
    /// again.
    pub(super) fn arm(&self) {
        // SAFETY: the queue is there.
        unsafe { req_notify_cq(self.cq, 0) };
    }

    /// Takes what the descriptor has.
    pub(super) fn drain(&self) {
        while read_message::<{ ChannelMessage::BYTES }>(self.fd()).is_ok() {}
    }

    /// The daemon is there.
    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: the queue is there.
        unsafe { Cq::of(self.cq) }.attachment.is_alive()
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: both were made by `new`, and are used no more.
        unsafe {
            if !self.cq.is_null() {
                ibv_destroy_cq(self.cq);
            }
            if !self.channel.is_null() {
                ibv_destroy_comp_channel(self.channel);
            }
        }
    }
}

/// What a call of verbs gave.
pub(super) fn made<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(errno::get()) } else { Ok(pointer) }
}

/// Whether a work request was posted: post calls return the error's number.
pub(super) fn posted(number: c_int) -> Result<()> {
    if number == 0 { Ok(()) } else { Err(number) }
}
