//! Direct receives (docs/ZERONIC.md): a call that waits for bytes posts its buffer, and what comes lands there. Before
//! the call returns, and before anything else reads the stream, the buffer is taken back. What landed there and was not
//! read then goes to the ring, where it would have been.
//!
//! A connection with a posted buffer has a flag in its slot, which every fast path reads anyway.
use super::Stream;
use crate::state::slot_state::{DIRECT, RX_FIN, SHUT_READ, SPLICED, URGENT};
use crate::system::errno::Result;
use crate::system::user_memory;
use context::{DirectWords, Post};
use libc::iovec;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Bytes of a buffer that is worth posting: a receive of fewer is over with one batch of frames.
const LEAST: usize = 16 << 10;

impl Stream {
    pub(in crate::state) fn direct_words(&self) -> Option<DirectWords> {
        DirectWords::new(&self.home.region, &self.home.geometry, self.home_slot.index)
    }

    /// The address of the heap, and its bytes.
    pub(super) fn heap(&self) -> (usize, usize) {
        let (at, bytes) = (self.home.geometry.heap_at(), self.home.geometry.heap_bytes as usize);
        (self.home.region.address(at, bytes).addr(), bytes)
    }

    /// A receive has posted its buffer.
    #[inline(always)]
    pub(crate) fn has_posted(&self) -> bool {
        self.flags() & DIRECT != 0
    }

    /// A new connection is in the slot.
    pub(super) fn begin_direct(&self) {
        if let Some(words) = self.direct_words() {
            words.begin();
        }
    }

    /// Posts a buffer for what is read next, where it lies in the heap. It does not for a stream that is over or
    /// shared, or with bytes that the program keeps in the ring.
    #[cold]
    pub(crate) fn post(&self, buffer: iovec) {
        let (heap, heap_bytes) = self.heap();
        let at = buffer.iov_base.addr().wrapping_sub(heap);
        let len = buffer.iov_len.min(heap_bytes.saturating_sub(at));
        let is_own = !self.shared && !self.gone && self.name == Some(self.home_slot);
        let is_over = self.flags() & (RX_FIN | SHUT_READ | SPLICED | URGENT | DIRECT) != 0;
        if at >= heap_bytes || len < LEAST || !is_own || is_over || self.keeps() {
            return;
        }
        let Some(words) = self.direct_words() else { return };
        let pos = self.state().rx_head.load(Relaxed);
        if words.post(Post { pos, at: at as u32, len: len as u32 }) {
            self.raise(DIRECT);
        }
    }

    /// The buffer that was posted is this one, for what is read next.
    fn is_posted_at(&self, words: &DirectWords, buffer: iovec) -> bool {
        let Post { pos, at, .. } = words.posted();
        let read = self.state().rx_head.load(Relaxed).wrapping_sub(pos);
        self.heap().0.wrapping_add(at as usize).wrapping_add(read as usize) == buffer.iov_base.addr()
    }

    /// The same, where any buffer is posted.
    #[cold]
    pub(crate) fn has_posted_at(&self, buffer: iovec) -> bool {
        self.direct_words().is_some_and(|words| self.is_posted_at(&words, buffer))
    }

    /// [`Stream::copy_out`] into the buffer that was posted: what landed there is there.
    ///
    /// # Safety
    /// The buffer is valid.
    #[cold]
    pub(crate) unsafe fn copy_out_rest(&self, buffer: iovec) -> Result<usize> {
        let head = self.state().rx_head.load(Relaxed);
        self.follow_growth();
        let (ring, to) = (self.rx.get(), buffer.iov_base.cast::<u8>());
        let all = self.readable().min(ring.size()).min(buffer.iov_len.min(u32::MAX as usize) as u32);
        let landed = self.direct_words().map_or(0..0, |words| words.landed(head, all));
        // SAFETY: `all` bytes fit the buffer, which the caller vouches for.
        unsafe {
            ring.copy_out(head, to, landed.start);
            ring.copy_out(head.wrapping_add(landed.end), to.wrapping_add(landed.end as usize), all - landed.end);
        }
        if user_memory::faulted() { Err(libc::EFAULT) } else { Ok(all as usize) }
    }

    /// All of the posted buffer was filled and read: nothing is written there any more, for it lies below the engine's
    /// cursor.
    pub(crate) fn forget_full_post(&self) -> bool {
        let Some(Post { pos, len, .. }) = self.direct_words().map(|words| words.posted()) else { return false };
        let is_full = self.state().rx_head.load(Relaxed).wrapping_sub(pos) >= len;
        if is_full {
            self.state().flags.fetch_and(!DIRECT, AcqRel);
        }
        is_full
    }

    /// The buffer is the program's again: what landed there and was not read goes to the ring.
    pub(in crate::state) fn settle(&self, words: &DirectWords) {
        let head = self.state().rx_head.load(Relaxed);
        self.follow_growth();
        let ring = self.rx.get();
        let landed = words.landed(head, ring.size());
        if !landed.is_empty() {
            let Post { pos, at, .. } = words.posted();
            let first = head.wrapping_add(landed.start);
            let from = self.heap().0 + at as usize + first.wrapping_sub(pos) as usize;
            // SAFETY: bytes of the heap, which the region has mapped; they lie below the engine's cursor, so nobody
            // else writes to their place in the ring.
            unsafe { ring.copy_in(first, std::ptr::with_exposed_provenance(from), landed.len() as u32) };
            user_memory::faulted();
        }
        self.state().flags.fetch_and(!DIRECT, AcqRel);
    }

    /// The daemon is gone: what may have landed is in the ring afterwards.
    pub(crate) fn abandon_post(&self) {
        let Some(words) = self.direct_words() else { return };
        words.abandon();
        if self.has_posted() {
            self.settle(&words);
        }
    }
}
