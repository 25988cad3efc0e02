//! Sends by reference (docs/ZERONIC.md): what lies in the heap stays there until the peer has acknowledged it. Calls
//! with `MSG_ZEROCOPY` do so; what cannot is copied to the ring, as ever.
use super::Stream;
use crate::state::heap;
use crate::state::references::{Fit, Notification, References};
use crate::state::slot_state::{LOW_MARK, UNSENT_MARK};
use crate::system::errno::Result;
use crate::system::user_memory;
use context::{Post, SendWords, Sent};
use libc::iovec;
use std::sync::atomic::Ordering::Acquire;

/// Bytes of a buffer that is worth posting: below, a copy costs less than notifications and frames of its own.
const LEAST: usize = 16 << 10;

impl Stream {
    fn send_words(&self) -> Option<SendWords> {
        SendWords::new(&self.home.region, &self.home.geometry, self.home_slot.index)
    }

    fn references(&mut self) -> &mut References {
        self.reclaim.refers = true;
        self.slow_completions = true;
        self.rare.get_or_insert_default().references.get_or_insert_default()
    }

    fn existing_references(&mut self) -> Option<&mut References> {
        self.rare.as_deref_mut()?.references.as_deref_mut()
    }

    /// A new connection is in the slot.
    pub(super) fn begin_referring(&self) {
        if let Some(words) = self.send_words() {
            words.begin();
        }
    }

    /// A call with `MSG_ZEROCOPY` begins. ENOBUFS where too many wait for their notification, as on Linux.
    pub(crate) fn begin_referring_call(&mut self) -> Result<u64> {
        self.references().begin_call().ok_or(libc::ENOBUFS)
    }

    /// It has put its bytes. True where the program can be notified at once.
    pub(crate) fn end_referring_call(&mut self, copied_before: u64) -> bool {
        let end = self.tx_head();
        self.references().end_call(copied_before, end);
        self.settle_references()
    }

    /// As [`Stream::copy_in`], by reference where that can be. `is_own`: the region is the process' own.
    ///
    /// # Safety
    /// The buffers are valid, and do not change until the program is notified.
    pub(crate) unsafe fn refer(&mut self, from: &[iovec], mut skip: usize, is_own: bool) -> Result<usize> {
        let mut all = 0;
        for buffer in from {
            let cut = skip.min(buffer.iov_len);
            skip -= cut;
            let (left, room) = (buffer.iov_len - cut, self.room_to_write());
            if left == 0 {
                continue;
            }
            let iov_base = buffer.iov_base.cast::<u8>().wrapping_add(cut).cast();
            let part = iovec { iov_base, iov_len: left.min(room as usize) };
            let how = self.refer_one(part, buffer.iov_len, is_own);
            let put = match how {
                Sent::Referred => Ok(part.iov_len),
                // SAFETY: the caller's promise.
                _ => unsafe { self.copy_in(&[part], 0) },
            };
            match put {
                Ok(put) => self.count_put(how, put),
                Err(errno) if all == 0 => return Err(errno),
                // The next call finds what cannot be read.
                Err(_) => return Ok(all),
            }
            all += part.iov_len;
            if part.iov_len < left {
                break;
            }
        }
        Ok(all)
    }

    fn count_put(&mut self, how: Sent, put: usize) {
        if how != Sent::Referred {
            self.references().copied(put);
        }
        if let Some(words) = self.send_words() {
            words.count(how, put as u32);
        }
    }

    /// Posts a part of a buffer of `whole` bytes, for which there is room; or returns why it cannot be posted.
    fn refer_one(&mut self, part: iovec, whole: usize, is_own: bool) -> Sent {
        let (heap, heap_bytes) = self.heap();
        let offset = part.iov_base.addr().wrapping_sub(heap);
        let len = part.iov_len as u32;
        if self.shared || !is_own || self.name != Some(self.home_slot) {
            return Sent::Barred;
        }
        let mark = self.home_slot.mark();
        let Some(words) = self.send_words().filter(|words| words.may_post(mark)) else { return Sent::Barred };
        if offset >= heap_bytes {
            return Sent::Outside;
        }
        let (pos, at) = (self.tx_head(), offset as u32);
        let post = Post { pos, at, len };
        let fit = self.references().fit(pos, at, len);
        match fit {
            _ if len == 0 => return Sent::Crowded,
            // What a partial write has left costs no post of its own.
            Fit::Extends(_) => {}
            _ if whole < LEAST => return Sent::Short,
            Fit::Post => {}
            Fit::Crowded => return Sent::Crowded,
        }
        if !heap::pin(part) {
            return Sent::Outside;
        }
        match fit {
            Fit::Extends(len) => words.extend(len),
            _ => words.post(mark, post),
        }
        self.references().posted(&fit, post, part.iov_base.addr());
        self.produced(len);
        Sent::Referred
    }

    /// Returns acknowledged memory to the program. True where it is to be notified.
    #[cold]
    pub(crate) fn settle_references(&mut self) -> bool {
        let tail = self.state().tx_tail.load(Acquire);
        self.existing_references().is_some_and(|references| references.settle(tail, heap::unpin))
    }

    /// The connection is over: all that was under way is the program's again.
    #[cold]
    fn finish_references(&mut self) {
        if let Some(references) = self.existing_references() {
            references.finish(heap::unpin);
        }
    }

    /// The program is to be notified of sends (`POLLERR`): of all of them where the connection is over.
    #[inline(always)]
    pub(crate) fn has_notifications(&self, is_over: bool) -> bool {
        self.reclaim.refers && self.has_notification(is_over)
    }

    #[cold]
    fn has_notification(&self, is_over: bool) -> bool {
        let references = self.rare.as_deref().and_then(|rare| rare.references.as_deref());
        references.is_some_and(|references| references.has_notifications(is_over))
    }

    /// The next notification of the error queue.
    pub(crate) fn take_notification(&mut self, is_over: bool) -> Option<Notification> {
        if is_over {
            self.finish_references();
        } else {
            self.settle_references();
        }
        self.existing_references()?.take_notification()
    }

    /// In a child of fork: what is under way, and its notifications, are the parent's.
    pub(crate) fn forget_references(&mut self) {
        self.reclaim.refers = false;
        // Conservatively: the flags are those of all processes that have it.
        self.slow_completions = self.flags() & (LOW_MARK | UNSENT_MARK) != 0;
        if let Some(rare) = self.rare.as_deref_mut() {
            rare.references = None;
        }
    }

    /// It is closed: takes the addresses of what is under way, for [`heap::unpin`].
    #[inline]
    pub(crate) fn take_pins(&mut self) -> Vec<usize> {
        if self.reclaim.refers { self.take_existing_pins() } else { Vec::new() }
    }

    #[cold]
    fn take_existing_pins(&mut self) -> Vec<usize> {
        self.existing_references().map_or_else(Vec::new, References::take_pins)
    }

    /// What lies in the heap is put to its place in the ring as well: another process may read it there. It stays where
    /// it is, too, for an engine that refers to it.
    #[cold]
    pub(crate) fn spill_references(&self) {
        let Some(references) = self.rare.as_deref().and_then(|rare| rare.references.as_deref()) else { return };
        self.follow_growth();
        let (ring, tail) = (self.tx.get(), self.state().tx_tail.load(Acquire));
        for Post { pos, at, len } in references.posts() {
            let behind = tail.wrapping_sub(pos) as i32;
            let done = (behind.max(0) as u32).min(len);
            let (first, left) = (pos.wrapping_add(done), (len - done).min(ring.size()));
            let from = self.heap().0 + at as usize + done as usize;
            // SAFETY: bytes of the heap, which the region has mapped. Their place in the ring is theirs alone: fewer
            // bytes are under way than it has.
            unsafe { ring.copy_in(first, std::ptr::with_exposed_provenance(from), left) };
            user_memory::faulted();
        }
    }
}
