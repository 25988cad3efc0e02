//! An open connection as this process sees it: positions in the shared slot state, bytes in the shared buffers.
mod direct;
mod limit;
mod marks;
mod referred;
mod sharing;
mod surviving;
mod tuning;
mod urgent;

use crate::state::borrowed::Rare;
use crate::state::idle;
use crate::state::mapped_region::MappedRegion;
use crate::state::ring::{Direction, Limit, Ring};
use crate::state::slot_state::{LOW_MARK, RX_FIN, SHUT_WRITE, SlotState, UNSENT_MARK, URGENT};
use crate::system::copy_lock::CopyLock;
use crate::system::errno::Result;
use crate::system::user_memory;
use context::{Bump, CompactTuple, Completion, FourTuple, Slot};
use libc::iovec;
use shm::Level;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use tcp::window::worthwhile;

/// Changes of a connection that a completion may report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamChange {
    /// Bytes to read.
    pub bytes: bool,
    /// Room to write.
    pub room: bool,
    /// The peer's end.
    pub end: bool,
}

/// An open connection.
pub(crate) struct Stream {
    /// The region that holds buffers and state.
    pub home: Arc<MappedRegion>,
    /// The slot there.
    pub home_slot: Slot,
    /// Its name in this process's own data pair; `None` until an inherited connection is claimed.
    pub name: Option<Slot>,
    /// Context and slot to claim it by.
    pub claim_by: (u32, Slot),
    state: *const SlotState,
    /// The ring that holds what was received, and the one that holds what was written and not yet acknowledged. They
    /// are as large as this process has found them. Of a shared connection, [`Stream::follow_growth`] has more.
    rx: Cell<Ring>,
    tx: Cell<Ring>,
    /// Its addresses.
    pub ends: CompactTuple,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// Another process may hold it as well.
    pub shared: bool,
    /// Where what the peer sent ended, its FIN counted, when completions began to come here.
    seen_tail: u32,
    /// Its slot was taken back: there is nothing to close.
    pub gone: bool,
    /// The program waits for room.
    pub waits_for_room: bool,
    /// Not every byte that comes or goes wakes waiting threads ([`marks`]), or it sends by reference ([`referred`]). So
    /// its completions take the slow path. The fast path tests one byte for both.
    pub slow_completions: bool,
    /// A bump found the ring full and is still to be sent.
    pub pending: bool,
    /// Bytes were written that were not sent to the engine (`MSG_MORE`, `TCP_CORK`).
    pub bump_held: bool,
    /// About giving back the memory of its buffers.
    pub reclaim: idle::State,
    /// What the program took out of the receive buffer in place and has not freed; how much may be unsent.
    rare: Option<Box<Rare>>,
}

impl Stream {
    /// A connection that the control plane has just opened in `slot` of this process's own context.
    pub(crate) fn open(home: &Arc<MappedRegion>, slot: Slot, ends: FourTuple, mss: u16) -> Stream {
        let mut stream = Stream::at(home, slot, ends, mss);
        stream.name = Some(slot);
        let state = stream.state();
        let words = [&state.rx_tail, &state.tx_tail, &state.flags, &state.urgency, &state.lock];
        let heads = [&state.rx_head, &state.tx_head, &state.rx_reported];
        words.into_iter().chain(heads).for_each(|word| word.store(0, Relaxed));
        stream.begin_direct();
        stream.begin_referring();
        state.read_for.store(slot.mark(), Release);
        state.owner.store(u64::from(home.context()), Release);
        stream
    }

    /// A connection whose state and buffers lie in `slot` of `home`, going on from what is there.
    pub(crate) fn at(home: &Arc<MappedRegion>, slot: Slot, ends: FourTuple, mss: u16) -> Stream {
        let at = home.geometry.slot_state_at(slot.index);
        let state: *const SlotState = home.region.address(at, context::SLOT_STATE_BYTES).cast();
        // SAFETY: as in `Stream::state`.
        let (rx_level, tx_level) =
            unsafe { (Level::of((*state).rx_level.load(Acquire)), Level::of((*state).tx_level.load(Acquire))) };
        Stream {
            home: Arc::clone(home),
            home_slot: slot,
            name: None,
            claim_by: (home.context(), slot),
            state,
            rx: Cell::new(Ring::new(home, slot, Direction::In, rx_level)),
            tx: Cell::new(Ring::new(home, slot, Direction::Out, tx_level)),
            ends: ends.into(),
            mss,
            shared: false,
            seen_tail: 0,
            gone: false,
            waits_for_room: false,
            slow_completions: false,
            pending: false,
            bump_held: false,
            reclaim: idle::State::default(),
            rare: None,
        }
    }

    /// The shared state.
    #[inline]
    pub(crate) fn state(&self) -> &SlotState {
        // SAFETY: points at 128 aligned bytes of the region, which `home` keeps mapped; all fields are atomics.
        unsafe { &*self.state }
    }

    /// Checks whether a stream has outgrown its ring: after positions were reported, and before bytes are
    /// touched.
    #[inline]
    pub(crate) fn follow_growth(&self) {
        let state = self.state();
        if !self.rx.get().is_last() {
            let level = Level::of(state.rx_level.load(Acquire));
            if level > self.rx.get().level() {
                self.follow(level);
            }
        }
        // Only programs write there.
        if self.shared || self.tx.get().is_small() {
            let level = Level::of(state.tx_level.load(Acquire));
            if level > self.tx.get().level() {
                self.tx.set(self.tx_ring(level));
            }
        }
    }

    /// The engine has let the received stream grow to this level.
    #[cold]
    fn follow(&self, level: Level) {
        self.rx.set(Ring::new(&self.home, self.home_slot, Direction::In, level));
    }

    /// Place of the next `len` bytes to send, for which there is room. The stream outgrows its small ring where they
    /// are too many for it.
    pub(crate) fn place(&self, len: u32) -> Ring {
        self.follow_growth();
        let (ring, in_flight) = (self.tx.get(), self.in_flight());
        if !ring.is_small() || len.saturating_add(in_flight) <= ring.most() {
            return ring;
        }
        self.grow(Level::Full)
    }

    /// The transmit stream goes on in the ring of this level, or stays where there is none.
    #[cold]
    fn grow(&self, level: Level) -> Ring {
        let (ring, state) = (self.tx.get(), self.state());
        let next = self.tx_ring(level);
        if next.level() <= ring.level() {
            return ring;
        }
        let head = state.tx_head.load(Relaxed);
        let held = self.in_flight().min(ring.size());
        next.take_over(&ring, head.wrapping_sub(held), held);
        state.tx_level.store(next.level() as u32, Release);
        self.tx.set(next);
        next
    }

    /// A program writes `len` bytes at once, and not all of it has found room. The stream outgrows its buffer where
    /// there is a larger ring and the buffer is too small. It is where it holds less than these, or than twice what its
    /// path can have under way ([`context::WANTED_AT`]). It does not where the program has set how much may wait
    /// (`SO_SNDBUF`). Linux lets buffers grow as well (`tcp_wmem`, `tcp_sndbuf_expand`), and programs that move what is
    /// left after each partial write rely on it.
    pub(crate) fn grow_for(&self, len: usize) {
        self.follow_growth();
        let ring = self.tx.get();
        let may = ring.level() < Level::Large
            && ring.limit == Limit::NONE
            && self.unsent_mark() == 0
            && !self.reclaim.reserved;
        if may && len.max(self.state().tx_wanted.load(Relaxed) as usize) > ring.full as usize {
            self.grow(Level::Large);
        }
    }

    /// Bytes that can be read.
    #[inline]
    pub(crate) fn readable(&self) -> u32 {
        let state = self.state();
        let ring = self.rx.get();
        state.rx_tail.load(Acquire).wrapping_sub(state.rx_head.load(Relaxed)).min(ring.full.max(ring.size()))
    }

    /// Bytes that can be written.
    #[inline]
    pub(crate) fn room(&self) -> u32 {
        let most = self.most_in_flight();
        most - self.in_flight().min(most)
    }

    /// Bytes written and not yet acknowledged.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        let state = self.state();
        state.tx_head.load(Relaxed).wrapping_sub(state.tx_tail.load(Acquire))
    }

    /// Whether there is enough room to call the connection writable. That is a worthwhile part of the buffer, so that a
    /// program that waits for room does not write crumbs.
    #[inline]
    pub(crate) fn is_roomy(&self) -> bool {
        self.room() >= worthwhile(self.most_in_flight())
    }

    /// The flags, as [`RX_FIN`].
    #[inline]
    pub(crate) fn flags(&self) -> u32 {
        self.state().flags.load(Acquire)
    }

    /// Both streams have ended, and all was acknowledged.
    pub(crate) fn is_over(&self) -> bool {
        self.flags() & (RX_FIN | SHUT_WRITE) == RX_FIN | SHUT_WRITE && self.in_flight() == 0
    }

    /// Neither direction has ended, and both are the program's.
    pub(crate) fn is_whole(&self) -> bool {
        self.flags() & !(LOW_MARK | UNSENT_MARK) == 0
    }

    /// Sets flags; returns the earlier ones.
    pub(crate) fn raise(&self, flags: u32) -> u32 {
        self.state().flags.fetch_or(flags, AcqRel)
    }

    /// Bytes that the receive buffer holds before it grows, and those that the transmit buffer may.
    pub(crate) fn buffer_sizes(&self) -> (u32, u32) {
        (self.rx.get().full, self.most_in_flight())
    }

    /// Copies received bytes into the program's buffers, beginning `skip` bytes into the stream; returns how many.
    /// `EFAULT` where a buffer cannot be written.
    ///
    /// # Safety
    /// The buffers are valid.
    pub(crate) unsafe fn copy_out(&self, into: &[iovec], skip: u32, most: usize) -> Result<usize> {
        let mut pos = self.state().rx_head.load(Relaxed).wrapping_add(skip);
        let mut left = most.min((self.readable().saturating_sub(skip)) as usize) as u32;
        self.follow_growth();
        let ring = self.rx.get();
        left = left.min(ring.size());
        let all = left;
        for buffer in into {
            let len = left.min(buffer.iov_len.min(u32::MAX as usize) as u32);
            // SAFETY: `len` bytes fit the buffer, which the caller vouches for.
            unsafe { ring.copy_out(pos, buffer.iov_base.cast(), len) };
            pos = pos.wrapping_add(len);
            left -= len;
            if left == 0 {
                break;
            }
        }
        if user_memory::faulted() { Err(libc::EFAULT) } else { Ok((all - left) as usize) }
    }

    /// Pieces that can be read, from `skip` bytes on.
    pub(crate) fn unread(&self, skip: u32) -> [iovec; 2] {
        let from = self.state().rx_head.load(Relaxed).wrapping_add(skip);
        let len = self.readable().saturating_sub(skip);
        self.follow_growth();
        let ring = self.rx.get();
        let pieces = ring.pieces(from, len.min(ring.size()));
        pieces.map(|(base, len)| iovec { iov_base: base.cast(), iov_len: len })
    }

    /// The program has taken `len` bytes.
    #[inline]
    pub(crate) fn consume(&self, len: u32) {
        let head = self.state().rx_head.load(Relaxed);
        self.state().rx_head.store(head.wrapping_add(len), Release);
        if self.flags() & URGENT != 0 {
            self.pass_mark();
        }
    }

    /// Up to where the receive buffer may be written again: what was read, but for what is kept.
    #[inline]
    fn rx_free(&self) -> u32 {
        let borrowed = self.rare.as_deref().and_then(|rare| rare.borrowed.first());
        borrowed.unwrap_or_else(|| self.state().rx_head.load(Relaxed))
    }

    /// Whether the program has bytes of the receive buffer that it took in place.
    pub(crate) fn keeps(&self) -> bool {
        self.rare.as_deref().is_some_and(|rare| rare.borrowed.first().is_some())
    }

    /// Bytes of the receive buffer that are not free although they may have been read.
    pub(crate) fn occupied(&self) -> u32 {
        self.state().rx_head.load(Relaxed).wrapping_sub(self.rx_free())
    }

    /// Reads `len` bytes without giving their place back: where they lie.
    pub(crate) fn keep(&mut self, len: u32) -> [iovec; 2] {
        let head = self.state().rx_head.load(Relaxed);
        self.follow_growth();
        let ring = self.rx.get();
        let pieces =
            ring.pieces(head, len.min(ring.size())).map(|(base, len)| iovec { iov_base: base.cast(), iov_len: len });
        if len > 0 {
            self.rare.get_or_insert_default().borrowed.keep(head, len);
            self.consume(len);
        }
        pieces
    }

    /// Gives the place of kept bytes back; false where `piece` is not such a place.
    pub(crate) fn free(&mut self, piece: iovec) -> bool {
        if piece.iov_len == 0 {
            return true;
        }
        // All that is kept lies within the ring's size from the oldest on, so an address is one position. What was
        // taken before the stream grew lies in a ring before.
        let before = |level| Ring::new(&self.home, self.home_slot, Direction::In, level);
        let (from, rings) = (self.rx_free(), [self.rx.get(), before(Level::Full), before(Level::Small)]);
        let place = rings.iter().find_map(|ring| ring.position(piece.iov_base.cast(), from));
        let (Some((pos, behind)), Some(rare)) = (place, self.rare.as_deref_mut()) else { return false };
        if piece.iov_len > behind as usize {
            return false;
        }
        let freed = rare.borrowed.free(pos, piece.iov_len as u32);
        let others = rare.unsent_mark != 0 || rare.tuning.is_some() || rare.references.is_some();
        if rare.borrowed.first().is_none() && !others {
            self.rare = None;
        }
        freed
    }

    /// Drops unread data of a stream that became a log's.
    pub(crate) fn forget_unread(&self) {
        let state = self.state();
        state.rx_tail.store(state.rx_head.load(Relaxed), Release);
    }

    /// Appends bytes of the program's buffers, beginning `skip` bytes into them; returns how many fitted. `EFAULT`
    /// where a buffer cannot be read, and nothing was appended.
    ///
    /// # Safety
    /// The buffers are valid.
    pub(crate) unsafe fn copy_in(&self, from: &[iovec], mut skip: usize) -> Result<usize> {
        let start = self.state().tx_head.load(Relaxed);
        let (mut pos, mut room) = (start, self.room_to_write());
        let wanted = from.iter().fold(0usize, |all, buffer| all.saturating_add(buffer.iov_len)).saturating_sub(skip);
        let ring = self.place(room.min(wanted.min(u32::MAX as usize) as u32));
        for buffer in from {
            if skip >= buffer.iov_len {
                skip -= buffer.iov_len;
                continue;
            }
            let len = room.min((buffer.iov_len - skip).min(u32::MAX as usize) as u32);
            // SAFETY: `skip + len` is within the buffer, which the caller vouches for.
            unsafe { ring.copy_in(pos, buffer.iov_base.cast::<u8>().wrapping_add(skip), len) };
            pos = pos.wrapping_add(len);
            room -= len;
            skip = 0;
            if room == 0 {
                break;
            }
        }
        if user_memory::faulted() {
            return Err(libc::EFAULT);
        }
        self.state().tx_head.store(pos, Release);
        Ok(pos.wrapping_sub(start) as usize)
    }

    /// Copies received bytes into the program's buffers and counts them as read. It is the common case of
    /// [`Stream::copy_out`] and [`Stream::consume`], for a connection that is not shared. Returns how many; 0 where it
    /// is not the common case.
    ///
    /// # Safety
    /// The program gave the buffers.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, into: impl Iterator<Item = iovec>) -> u32 {
        let state = self.state();
        let head = state.rx_head.load(Relaxed);
        let ring = self.rx.get();
        let unread = state.rx_tail.load(Acquire).wrapping_sub(head);
        if unread > ring.size() {
            // They may lie in another ring.
            return 0;
        }
        let (mut pos, mut left) = (head, unread as usize);
        for buffer in into {
            let len = left.min(buffer.iov_len);
            left -= len;
            // SAFETY: `len` bytes fit the buffer, which the program gave, and are in the ring.
            unsafe { ring.copy_out(pos, buffer.iov_base.cast(), len as u32) };
            pos = pos.wrapping_add(len as u32);
            if left == 0 {
                break;
            }
        }
        if user_memory::faulted() {
            return 0;
        }
        state.rx_head.store(pos, Release);
        pos.wrapping_sub(head)
    }

    /// Appends all bytes of the program's buffers, where there are any and room for all of them, for a connection that
    /// is not shared. What was copied without being counted will be copied again.
    ///
    /// # Safety
    /// The program gave the buffers.
    #[inline(always)]
    pub(crate) unsafe fn put(&self, from: impl Iterator<Item = iovec>) -> Option<u32> {
        let state = self.state();
        let head = state.tx_head.load(Relaxed);
        let ring = self.tx.get();
        let in_flight = head.wrapping_sub(state.tx_tail.load(Acquire)).min(ring.most());
        let (mut pos, mut left) = (head, (ring.most() - in_flight) as usize);
        for buffer in from {
            if buffer.iov_len > left {
                return uncommon();
            }
            left -= buffer.iov_len;
            // SAFETY: there is room for the buffer, which the program gave.
            unsafe { ring.copy_in(pos, buffer.iov_base.cast(), buffer.iov_len as u32) };
            pos = pos.wrapping_add(buffer.iov_len as u32);
        }
        if pos == head {
            return uncommon();
        }
        if user_memory::faulted() {
            return None;
        }
        state.tx_head.store(pos, Release);
        Some(pos.wrapping_sub(head))
    }

    /// Stream position of the next byte to write.
    pub(crate) fn tx_head(&self) -> u32 {
        self.state().tx_head.load(Relaxed)
    }

    /// `len` bytes were put into the transmit ring by other means.
    pub(crate) fn produced(&self, len: u32) {
        self.state().tx_head.store(self.tx_head().wrapping_add(len), Release);
    }

    /// The bump for the engine with this connection's present state. Marks it as sent.
    ///
    /// Where this is not inlined, its result passes through memory, in other pieces than it is read in. The processor
    /// then waits until the store buffer is empty. The payload is in it, whose cache line the daemon's core had.
    #[inline(always)]
    pub(crate) fn bump(&self, slot: Slot, fin: bool) -> Bump {
        let state = self.state();
        let rx_head = self.rx_free();
        state.rx_reported.store(rx_head, Relaxed);
        Bump { slot, tx_head: state.tx_head.load(Relaxed), rx_head, fin, ring: self.tx.get().number() }
    }

    /// Final positions, for the request that closes.
    pub(crate) fn positions(&self) -> (u32, u32) {
        (self.tx_head(), self.state().rx_head.load(Relaxed))
    }

    /// Whether so much was read that the engine should get a bump, although nothing is to be sent. That is a worthwhile
    /// part of the buffer, or everything where the engine has less than half of it as free.
    #[inline(always)]
    pub(crate) fn window_update_is_due(&self) -> bool {
        let state = self.state();
        let unadvertised = state.rx_tail.load(Relaxed).wrapping_sub(state.rx_reported.load(Relaxed));
        // Whatever was read is among what came since the last report to the engine.
        unadvertised >= worthwhile(self.rx.get().full) && self.much_is_unadvertised()
    }

    fn much_is_unadvertised(&self) -> bool {
        let state = self.state();
        let unreported = self.unadvertised_window();
        if unreported >= worthwhile(self.rx.get().full) {
            return true;
        }
        let (head, tail) = (state.rx_head.load(Relaxed), state.rx_tail.load(Relaxed));
        let sees = tail.wrapping_sub(state.rx_reported.load(Relaxed));
        // Kept memory is not given back, so two segments are worth a report.
        let all = tail == head && (!self.keeps() || unreported >= 2 * u32::from(self.mss));
        unreported > 0 && all && sees > self.rx.get().full / 2
    }

    /// Bytes of the receive buffer that became free since the last report to the engine.
    #[inline]
    pub(crate) fn unadvertised_window(&self) -> u32 {
        self.rx_free().wrapping_sub(self.state().rx_reported.load(Relaxed))
    }

    /// Bytes that can be read, as far as the daemon's positions are valid: 0 exactly where there are none.
    #[inline(always)]
    pub(crate) fn unread_bytes(&self) -> u32 {
        let state = self.state();
        state.rx_tail.load(Acquire).wrapping_sub(state.rx_head.load(Relaxed))
    }

    /// Takes in a completion with positions only, while nobody waits for room; reports whether bytes came.
    #[inline(always)]
    pub(crate) fn advance(&self, completion: &Completion) -> bool {
        let state = self.state();
        let (tx_tail, rx_tail) = (state.tx_tail.load(Relaxed), state.rx_tail.load(Relaxed));
        if completion.tx_tail.wrapping_sub(tx_tail) as i32 > 0 {
            state.tx_tail.store(completion.tx_tail, Release);
        }
        let data = completion.rx_tail.wrapping_sub(rx_tail) as i32 > 0;
        if data {
            // The program is about to read what lies in the cache of the daemon's core.
            self.rx.get().prefetch(rx_tail);
            // It is going to answer where the daemon's core has read.
            self.tx.get().prefetch_to_write(state.tx_head.load(Relaxed));
            state.rx_tail.store(completion.rx_tail, Release);
        }
        data
    }

    /// Takes a completion in: positions only move forward. Returns what became new: received bytes, room, end of
    /// stream.
    #[inline]
    pub(crate) fn apply(&self, completion: &Completion) -> StreamChange {
        let state = self.state();
        self.follow_growth();
        let forward = |word: &AtomicU32, value: u32| {
            let is_new = value.wrapping_sub(word.load(Relaxed)) as i32 > 0;
            if is_new {
                word.store(value, Release);
            }
            is_new
        };
        let bytes = forward(&state.rx_tail, completion.rx_tail);
        // What was sent shows elsewhere.
        let room = forward(&state.tx_tail, completion.tx_tail) || self.unsent_mark() != 0;
        let end = completion.fin && self.raise(RX_FIN) & RX_FIN == 0;
        StreamChange { bytes, room, end }
    }

    /// Keeps other processes out while positions are read and moved. Costs nothing for a connection that no other
    /// process has.
    #[inline]
    pub(crate) fn exclusively(&self) -> Option<CopyLock> {
        self.shared.then(|| CopyLock::new(&self.state().lock))
    }
}

/// Nothing, more than there is room for, or more than the small ring holds. Whoever asks next is not to be notified of
/// this call's bad addresses.
#[cold]
fn uncommon() -> Option<u32> {
    user_memory::faulted();
    None
}
