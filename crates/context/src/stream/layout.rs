//! Layout of a context's region.
use crate::directory::{Area, AreaKind, Directory};
use serde::{Deserialize, Serialize};
use shm::{CACHE_LINE, PAGE, Region, ring_bytes};
use std::io;

/// Bytes per slot that belong to the application's side. libtoe keeps a socket's positions there, so that processes
/// which share a socket after fork share its state. The daemon reads none of them but those below.
pub const SLOT_STATE_BYTES: usize = 128;

/// The word with how far the application has read: for when it is gone, and can bump no more.
pub const READ_AT: usize = 8;

/// The word with the use of the slot for which it keeps that word ([`crate::Slot::mark`]); anything else where it does
/// not.
pub const READ_FOR_AT: usize = LEVEL_AT - 4;

/// The word with the owner of a connection that waits to be accepted, of both sides ([`crate::ControlEnd::offer`]).
pub const OFFERED_AT: usize = READ_FOR_AT - 4;

/// The word with how far the transmit stream was sent, written by the engine, where it was asked to
/// ([`crate::Bump::UNTIL_SENT`]): a stream position. Of the slot by which the connection is called.
pub const SENT_AT: usize = OFFERED_AT - 4;

/// The control plane's word with the bytes that the path of the slot's connection can have in flight. Where that is
/// more than the transmit buffer holds, the stream may outgrow it ([`crate::ControlEnd::suggest`]). Of the slot whose
/// buffers the connection has.
pub const WANTED_AT: usize = SENT_AT - 4;

/// The engine's word with the byte of the received stream that is urgent, the last one that it got
/// ([`crate::Completion::urgent`]): a stream position. Of the slot by which the connection is called.
pub const URGENT_AT: usize = WANTED_AT - 4;

/// The words about the stretch of the received stream that lands in the program's memory ([`crate::DirectWords`]).
pub const DIRECT_AT: usize = URGENT_AT - DIRECT_BYTES;

/// Bytes of those words.
pub(crate) const DIRECT_BYTES: usize = 36;

/// Bytes of a slot's words about sends by reference ([`crate::SendWords`]): 64 entries of 12 bytes follow 64 of others.
pub(crate) const SEND_BYTES: usize = 64 + 64 * 12;

/// The last words of a slot's state are of both sides: in which ring its receive and its transmit stream are
/// ([`shm::ByteRing::level`]). Each is written by the writer of that stream.
const LEVEL_AT: usize = SLOT_STATE_BYTES - 8;

/// Neither buffer of a connection is halved below this: ten segments, what a connection may send at first (RFC 6928).
pub const LEAST_BUFFER: u32 = 16 << 10;

/// Slots for connections over long paths: those whose round trip asks for more than the usual buffers. They are the
/// first ones of a context.
///
/// On engines on which streams grow they begin in buffers of the usual sizes, and grow to this one. On others their
/// buffers have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongPaths {
    /// How many there are; fewer than the context has slots.
    pub slots: u32,
    /// Bytes of each of a connection's two buffers there, a power of two; 0 where there are none.
    pub bytes: u32,
    /// Their streams begin in the usual buffers, and grow.
    pub grow: bool,
}

impl LongPaths {
    /// All connections have the usual buffers.
    pub const NONE: LongPaths = LongPaths { slots: 0, bytes: 0, grow: false };
}

/// Other slots whose streams may outgrow their buffers: the first ones after those for long paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growing {
    /// How many there are.
    pub slots: u32,
    /// Bytes of the ring in which each of both streams goes on, a power of two; 0 where there are none.
    pub bytes: u32,
}

impl Growing {
    /// Buffers stay as they are.
    pub const NONE: Growing = Growing { slots: 0, bytes: 0 };

    /// Bytes of the rings of all of them.
    fn len(self) -> usize {
        self.slots as usize * 2 * self.bytes as usize
    }
}

/// The sizes from which the layout follows. All but the numbers of slots for long paths and of those that grow are
/// powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Connections that the context can hold at once.
    pub slots: u32,
    /// Those of them for long paths.
    pub long: LongPaths,
    /// Others whose streams may outgrow their buffers.
    pub growing: Growing,
    /// Entries of each data ring.
    pub data_entries: u32,
    /// Entries of each control ring.
    pub control_entries: u32,
    /// Bytes of a connection's receive buffer, where it is a full one; at least a page.
    pub rx_bytes: u32,
    /// Bytes of a connection's transmit buffer, where it is a full one; at least a page.
    pub tx_bytes: u32,
    /// Slots that have full buffers, the first ones after those for long paths. As many again have half of that, the
    /// next as many a quarter, and so on down to [`LEAST_BUFFER`], which all others have. So all together have no more
    /// than twice what the full ones have, and the least for each of the others.
    pub full_slots: u32,
    /// Bytes of each of the two rings in which a connection's streams begin (docs/MEMORY.md); 0 where they begin in the
    /// buffers.
    pub small_bytes: u32,
    /// Bytes for a shared log ([`crate::LogShape`]), at the region's end; 0 where there can be none.
    pub log_bytes: u32,
    /// Bytes of the program's memory in which received bytes may land directly ([`crate::DirectWords`]), at the end of
    /// the region; 0 where there is none.
    pub heap_bytes: u32,
}

impl Geometry {
    /// Whether the sizes are powers of two within their limits.
    pub fn is_valid(&self) -> bool {
        let Geometry { slots, long, data_entries, control_entries, rx_bytes, tx_bytes, .. } = *self;
        let Geometry { growing, full_slots, small_bytes, log_bytes, heap_bytes, .. } = *self;
        let ok = |value: u32, least: u32, most: u32| value.is_power_of_two() && (least..=most).contains(&value);
        ok(slots, 1, 1 << 20)
            && ok(data_entries, 64, 1 << 20)
            && ok(control_entries, 64, 1 << 20)
            && ok(rx_bytes, PAGE as u32, 1 << 30)
            && ok(tx_bytes, PAGE as u32, 1 << 30)
            && ok(full_slots, 1, 1 << 20)
            && (long.slots == 0
                || long.slots < slots
                    && (!long.grow || long.bytes > rx_bytes.max(tx_bytes))
                    && ok(long.bytes, PAGE as u32, 1 << 30))
            && (growing.slots == 0
                || growing.slots <= slots - long.slots
                    && growing.bytes > rx_bytes.max(tx_bytes)
                    && ok(growing.bytes, PAGE as u32, 1 << 30))
            // A pair of them is given back in whole pages.
            && (small_bytes == 0 || ok(small_bytes, PAGE as u32 / 2, rx_bytes.min(tx_bytes).min(LEAST_BUFFER) / 2))
            && (log_bytes == 0 || ok(log_bytes, PAGE as u32, 1 << 30))
            && (heap_bytes == 0 || ok(heap_bytes, PAGE as u32, 1 << 30))
    }

    pub(crate) fn bumps_at(&self) -> usize {
        PAGE
    }
    pub(crate) fn completions_at(&self) -> usize {
        self.bumps_at() + ring_bytes::<2>(self.data_entries)
    }
    pub(crate) fn requests_at(&self) -> usize {
        self.completions_at() + ring_bytes::<2>(self.data_entries)
    }
    pub(crate) fn replies_at(&self) -> usize {
        self.requests_at() + ring_bytes::<8>(self.control_entries)
    }
    /// Byte where the application's state of slot `index` starts.
    pub fn slot_state_at(&self, index: u32) -> usize {
        assert!(index < self.slots);
        self.replies_at() + ring_bytes::<8>(self.control_entries) + index as usize * SLOT_STATE_BYTES
    }
    /// Bytes of the words with how far the stream of slot `index` was read, and of which use of the slot that is
    /// true.
    pub(crate) fn read_at(&self, index: u32) -> [usize; 2] {
        [READ_AT, READ_FOR_AT].map(|at| self.slot_state_at(index) + at)
    }
    pub(crate) fn offered_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + OFFERED_AT
    }
    pub(crate) fn sent_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + SENT_AT
    }
    pub(crate) fn wanted_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + WANTED_AT
    }
    /// Byte of the words about slot `index`'s direct stretch.
    pub(crate) fn direct_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + DIRECT_AT
    }
    pub(crate) fn urgent_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + URGENT_AT
    }
    /// Byte of the word with the ring of slot `index`'s receive stream.
    pub fn rx_level_at(&self, index: u32) -> usize {
        self.slot_state_at(index) + LEVEL_AT
    }
    /// The same of its transmit stream.
    pub fn tx_level_at(&self, index: u32) -> usize {
        self.rx_level_at(index) + 4
    }
    /// Streams begin in small rings.
    pub fn has_small(&self) -> bool {
        self.small_bytes > 0
    }
    /// Bytes of both small rings of a slot.
    pub fn small_pair(&self) -> usize {
        2 * self.small_bytes as usize
    }
    /// Byte where the small ring of slot `index`'s receive stream starts. That of its transmit stream follows.
    pub fn small_at(&self, index: u32) -> usize {
        let states = self.replies_at() + ring_bytes::<8>(self.control_entries) + self.slots as usize * SLOT_STATE_BYTES;
        states.next_multiple_of(PAGE) + index as usize * self.small_pair()
    }
    fn buffers_at(&self) -> usize {
        self.small_at(self.slots).next_multiple_of(PAGE)
    }
    /// How slot `index` is made: for a long path, or how often its buffers are halved.
    pub fn class(&self, index: u32) -> Class {
        match index.checked_sub(self.long.slots) {
            None => Class::LongPath,
            Some(at) => Class::Halved((at / self.full_slots).min(self.most_halvings())),
        }
    }
    fn most_halvings(&self) -> u32 {
        self.rx_bytes.max(self.tx_bytes).div_ceil(LEAST_BUFFER).ilog2()
    }
    /// Bytes of slot `index`'s receive buffer.
    pub fn rx_len(&self, index: u32) -> u32 {
        self.len_of(self.rx_bytes, index)
    }
    /// Bytes of slot `index`'s transmit buffer.
    pub fn tx_len(&self, index: u32) -> u32 {
        self.len_of(self.tx_bytes, index)
    }
    fn len_of(&self, full: u32, index: u32) -> u32 {
        match self.class(index) {
            Class::LongPath if self.long.grow => full,
            Class::LongPath => self.long.bytes,
            Class::Halved(halvings) => halved(full, halvings),
        }
    }
    /// Bytes of slot `index`'s receive stream that may be under way at most.
    pub fn rx_most(&self, index: u32) -> u32 {
        self.rx_len(index).max(self.large_len(index))
    }
    /// The same of its transmit stream.
    pub fn tx_most(&self, index: u32) -> u32 {
        self.tx_len(index).max(self.large_len(index))
    }
    /// Slot `index`'s streams may outgrow their buffers.
    pub fn may_outgrow(&self, index: u32) -> bool {
        self.large_len(index) > 0
    }
    /// Bytes of each of the rings in which slot `index`'s streams go on when they have outgrown their buffers; 0 where
    /// there are none.
    pub fn large_len(&self, index: u32) -> u32 {
        match index.checked_sub(self.long.slots) {
            None if self.long.grow => self.long.bytes,
            Some(number) if number < self.growing.slots => self.growing.bytes,
            _ => 0,
        }
    }
    /// Byte where the ring starts in which slot `index`'s receive stream goes on when it has outgrown its buffer, if
    /// there is one. It has [`Geometry::large_len`].
    pub fn rx_large_at(&self, index: u32) -> Option<usize> {
        let pair = 2 * self.large_len(index) as usize;
        let before = match index.checked_sub(self.long.slots) {
            None => index as usize * pair,
            Some(number) => self.far_len() + number as usize * pair,
        };
        (pair > 0).then(|| self.larges_at() + before)
    }
    /// The same of its transmit stream.
    pub fn tx_large_at(&self, index: u32) -> Option<usize> {
        self.rx_large_at(index).map(|at| at + self.large_len(index) as usize)
    }
    fn larges_at(&self) -> usize {
        self.log_at() + self.log_bytes as usize
    }
    /// Bytes of the larger rings of slots for long paths.
    fn far_len(&self) -> usize {
        if self.long.grow { self.long.slots as usize * 2 * self.long.bytes as usize } else { 0 }
    }
    /// Bytes of the largest window that a connection may offer.
    pub fn most_rx(&self) -> u32 {
        [0, self.long.slots].into_iter().map(|index| self.rx_most(index)).fold(self.rx_bytes, u32::max)
    }
    /// Bytes of both buffers of slot `index`.
    pub fn pair_len(&self, index: u32) -> usize {
        self.rx_len(index) as usize + self.tx_len(index) as usize
    }
    /// Byte where the receive buffer of slot `index` starts.
    pub fn rx_at(&self, index: u32) -> usize {
        assert!(index < self.slots);
        self.buffers_at() + self.pairs_before(index)
    }
    /// Byte where the transmit buffer of slot `index` starts.
    pub fn tx_at(&self, index: u32) -> usize {
        self.rx_at(index) + self.rx_len(index) as usize
    }
    /// Where in its buffers slot `index`'s first byte lies, each from their beginning. Connections that do the same in
    /// turn would otherwise all come to their next pages at the same moment. All lines that they use would lie in the
    /// same few sets of each cache.
    pub fn first_at(&self, index: u32) -> u32 {
        index.wrapping_mul(CACHE_LINE as u32)
    }
    /// Bytes of the buffers of all slots below `index`.
    fn pairs_before(&self, index: u32) -> usize {
        let LongPaths { slots, bytes, grow } = self.long;
        let pair = if grow { self.rx_bytes as usize + self.tx_bytes as usize } else { 2 * bytes as usize };
        let mut sum = index.min(slots) as usize * pair;
        // The largest come first. The least ones are all the rest.
        let (mut left, most_halvings) = (index.saturating_sub(slots), self.most_halvings());
        for halvings in 0..=most_halvings {
            let some = if halvings == most_halvings { left } else { left.min(self.full_slots) };
            sum +=
                some as usize * (halved(self.rx_bytes, halvings) as usize + halved(self.tx_bytes, halvings) as usize);
            left -= some;
            if left == 0 {
                break;
            }
        }
        sum
    }
    /// Byte where the shared log starts.
    pub fn log_at(&self) -> usize {
        self.buffers_at() + self.pairs_before(self.slots)
    }
    /// The areas of a region of these sizes.
    pub fn directory(&self) -> Directory {
        let (states, slots) = (self.slot_state_at(0), self.slots);
        let (data, control) = (self.data_entries, self.control_entries);
        let mut directory = Directory::new();
        directory.add_at(Area {
            kind: AreaKind::Bumps,
            at: self.bumps_at(),
            len: ring_bytes::<2>(data),
            entries: data,
            entry_bytes: 16,
        });
        directory.add_at(Area {
            kind: AreaKind::Completions,
            at: self.completions_at(),
            len: ring_bytes::<2>(data),
            entries: data,
            entry_bytes: 16,
        });
        directory.add_at(Area {
            kind: AreaKind::Requests,
            at: self.requests_at(),
            len: ring_bytes::<8>(control),
            entries: control,
            entry_bytes: 64,
        });
        directory.add_at(Area {
            kind: AreaKind::Replies,
            at: self.replies_at(),
            len: ring_bytes::<8>(control),
            entries: control,
            entry_bytes: 64,
        });
        let state_bytes = slots as usize * SLOT_STATE_BYTES;
        directory.add_at(Area {
            kind: AreaKind::StreamStates,
            at: states,
            len: state_bytes,
            entries: slots,
            entry_bytes: SLOT_STATE_BYTES as u32,
        });
        if self.has_small() {
            let (kind, at, entry_bytes) = (AreaKind::SmallRings, self.small_at(0), self.small_pair() as u32);
            let len = slots as usize * self.small_pair();
            directory.add_at(Area { kind, at, len, entries: slots, entry_bytes });
        }
        directory.add_at(Area {
            kind: AreaKind::Buffers,
            at: self.rx_at(0),
            len: self.pairs_before(slots),
            entries: slots,
            entry_bytes: 0,
        });
        if self.log_bytes > 0 {
            directory.add_at(Area {
                kind: AreaKind::Log,
                at: self.log_at(),
                len: self.log_bytes as usize,
                entries: self.log_bytes,
                entry_bytes: 1,
            });
        }
        let far = if self.long.grow { 2 * self.long.slots } else { 0 };
        let near = 2 * self.growing.slots;
        let (far_at, near_at) = (self.larges_at(), self.larges_at() + self.far_len());
        for (at, entries, entry_bytes) in [(far_at, far, self.long.bytes), (near_at, near, self.growing.bytes)] {
            if entries > 0 {
                let len = entries as usize * entry_bytes as usize;
                directory.add_at(Area { kind: AreaKind::LargeRings, at, len, entries, entry_bytes });
            }
        }
        if self.heap_bytes > 0 {
            let (kind, at, len) = (AreaKind::Sends, self.sends_at(0), self.sends_len());
            directory.add_at(Area { kind, at, len, entries: slots, entry_bytes: SEND_BYTES as u32 });
            let (kind, at, len) = (AreaKind::Heap, self.heap_at(), self.heap_bytes as usize);
            directory.add_at(Area { kind, at, len, entries: self.heap_bytes, entry_bytes: 1 });
        }
        directory
    }

    /// A sealed region of these sizes, all zero, with its directory.
    ///
    /// # Errors
    /// The system has no memory or no descriptor for it.
    pub fn create_region(&self, name: &str) -> io::Result<Region> {
        self.directory().create(name)
    }

    /// Bytes of the whole region. Only what is written costs memory.
    pub fn region_len(&self) -> usize {
        self.heap_at() + self.heap_bytes as usize
    }

    /// Byte where the program's memory starts in which received bytes may land, and from which bytes are sent.
    pub fn heap_at(&self) -> usize {
        self.sends_begin() + self.sends_len().next_multiple_of(PAGE)
    }
    fn sends_begin(&self) -> usize {
        self.larges_at() + self.far_len() + self.growing.len()
    }
    /// Bytes of the words about sends by reference: those of all slots, where there is a heap.
    fn sends_len(&self) -> usize {
        if self.heap_bytes > 0 { self.slots as usize * SEND_BYTES } else { 0 }
    }
    /// Byte of the words about what slot `index` sends by reference ([`crate::SendWords`]).
    pub(crate) fn sends_at(&self, index: u32) -> usize {
        self.sends_begin() + index as usize * SEND_BYTES
    }
}

/// What decides about the size of a slot's buffers. Less is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// [`LongPaths`].
    LongPath,
    /// The full sizes, halved so often.
    Halved(u32),
}

/// A buffer's size after so many halvings.
fn halved(full: u32, halvings: u32) -> u32 {
    full.checked_shr(halvings).unwrap_or(0).max(full.min(LEAST_BUFFER))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Geometry = Geometry {
        slots: 64,
        long: LongPaths::NONE,
        growing: Growing::NONE,
        data_entries: 64,
        control_entries: 64,
        rx_bytes: 1 << 18,
        tx_bytes: 1 << 16,
        full_slots: 4,
        small_bytes: 2048,
        log_bytes: 4096,
        heap_bytes: 0,
    };

    #[test]
    fn parts_do_not_overlap_and_are_aligned() {
        let (rx_bytes, tx_bytes) = (8192, 4096);
        let g = Geometry { slots: 8, full_slots: 8, rx_bytes, tx_bytes, small_bytes: 0, log_bytes: 0, ..SIZES };
        assert!(g.is_valid());
        for at in [g.bumps_at(), g.completions_at(), g.requests_at(), g.replies_at(), g.slot_state_at(0)] {
            assert_eq!(at % CACHE_LINE, 0);
        }
        assert!(g.slot_state_at(7) + SLOT_STATE_BYTES <= g.rx_at(0));
        assert_eq!(g.rx_at(0) % PAGE, 0);
        assert_eq!((g.tx_at(7) + 4096, g.directory().end()), (g.region_len(), g.region_len()));
        assert!(!Geometry { slots: 3, ..g }.is_valid());
        let with_log = Geometry { log_bytes: 8192, ..g };
        assert_eq!((with_log.log_at(), with_log.region_len()), (g.region_len(), g.region_len() + 8192));
        assert!(with_log.is_valid() && !Geometry { log_bytes: 5000, ..g }.is_valid());
    }

    #[test]
    fn further_slots_have_smaller_buffers_within_a_bound() {
        let sizes = SIZES;
        let kib = |index| (sizes.rx_len(index) >> 10, sizes.tx_len(index) >> 10);
        assert_eq!([0, 3, 4, 7, 8, 11, 12, 15].map(|index| kib(index).0), [256, 256, 128, 128, 64, 64, 32, 32]);
        assert_eq!([kib(8), kib(16), kib(63)], [(64, 16), (16, 16), (16, 16)], "to no less than 16 KiB");
        let mut at = sizes.rx_at(0);
        for index in 0..64 {
            assert_eq!((sizes.rx_at(index), sizes.tx_at(index)), (at, at + sizes.rx_len(index) as usize));
            assert!(sizes.rx_len(index).is_power_of_two() && sizes.tx_at(index) % PAGE == 0);
            at += sizes.pair_len(index);
        }
        assert!(at - sizes.rx_at(0) <= 2 * 4 * sizes.pair_len(0) + 64 * 2 * LEAST_BUFFER as usize);
        assert_eq!((sizes.log_at(), sizes.region_len(), sizes.directory().end()), (at, at + 4096, at + 4096));
        let region = sizes.create_region("test").unwrap();
        assert_eq!(Directory::read(&region), Ok(sizes.directory()));
        assert_eq!((sizes.small_at(0) % PAGE, sizes.small_at(63) + 4096), (0, sizes.rx_at(0)));
        assert!(sizes.slot_state_at(63) + SLOT_STATE_BYTES <= sizes.small_at(0));
        assert_eq!(sizes.tx_level_at(0) + 4, sizes.slot_state_at(1));
        assert!(sizes.is_valid() && !Geometry { small_bytes: 1024, ..sizes }.is_valid());
        assert!(!Geometry { rx_bytes: 2048, ..sizes }.is_valid());
        let small = Geometry { rx_bytes: 4096, tx_bytes: 8192, ..sizes };
        assert_eq!((small.rx_len(63), small.tx_len(63)), (4096, 8192), "what is small already is not halved");
        assert!(!Geometry { full_slots: 3, ..sizes }.is_valid() && !Geometry { full_slots: 0, ..sizes }.is_valid());
    }

    #[test]
    fn the_first_slots_are_for_long_paths() {
        let sizes =
            Geometry { slots: 16, long: LongPaths { slots: 3, bytes: 1 << 20, grow: false }, log_bytes: 0, ..SIZES };
        assert!(sizes.is_valid());
        let kib = |index| (sizes.rx_len(index) >> 10, sizes.tx_len(index) >> 10);
        assert_eq!(
            [0, 2, 3, 6, 7, 15].map(kib),
            [(1024, 1024), (1024, 1024), (256, 64), (256, 64), (128, 32), (32, 16)]
        );
        let mut at = sizes.rx_at(0);
        for index in 0..16 {
            assert_eq!((sizes.rx_at(index), sizes.tx_at(index)), (at, at + sizes.rx_len(index) as usize));
            at += sizes.pair_len(index);
        }
        assert_eq!((sizes.region_len(), sizes.directory().end()), (at, at));
        assert_eq!([2, 3, 7].map(|at| sizes.class(at)), [Class::LongPath, Class::Halved(0), Class::Halved(1)]);
        assert!(Class::LongPath < Class::Halved(0));
        assert_eq!((sizes.most_rx(), Geometry { long: LongPaths::NONE, ..sizes }.most_rx()), (1 << 20, 1 << 18));
        for (slots, bytes) in [(16, 1 << 20), (1, 5000)] {
            let long = LongPaths { slots, bytes, grow: false };
            assert!(!Geometry { long, ..sizes }.is_valid());
        }
    }

    #[test]
    fn a_heap_has_whole_pages_and_words_for_each_slot_before_it() {
        let heap = Geometry { slots: 2, full_slots: 2, heap_bytes: 8192, ..SIZES };
        assert!(heap.is_valid());
        let end = heap.log_at() + 4096;
        assert_eq!([0, 1].map(|slot| heap.sends_at(slot)), [end, end + SEND_BYTES]);
        assert_eq!((heap.heap_at(), heap.region_len()), (end + PAGE, end + PAGE + 8192));
        assert_eq!(heap.directory().end(), heap.region_len());
    }

    #[test]
    fn large_rings_lie_at_the_end() {
        let half = 1 << 19;
        let (long, growing) =
            (LongPaths { slots: 3, bytes: 1 << 20, grow: false }, Growing { slots: 2, bytes: half as u32 });
        let sizes = Geometry { slots: 16, long, growing, ..SIZES };
        assert!(sizes.is_valid());
        let end = sizes.log_at() + 4096;
        assert_eq!([2, 3, 4, 5].map(|at| sizes.rx_large_at(at)), [None, Some(end), Some(end + 2 * half), None]);
        assert_eq!([2, 4].map(|at| sizes.tx_large_at(at)), [None, Some(end + 3 * half)]);
        assert_eq!((sizes.region_len(), sizes.directory().end()), (end + 4 * half, end + 4 * half));
        assert_eq!([2, 3, 5, 7].map(|at| sizes.tx_most(at) >> 10), [1024, 512, 64, 32]);
        assert_eq!([2, 3, 5, 7].map(|at| sizes.rx_most(at) >> 10), [1024, 512, 256, 128]);
        // Those for long paths begin as others do, where streams grow.
        let sizes = Geometry { long: LongPaths { grow: true, ..long }, ..sizes };
        assert!(sizes.is_valid());
        let kib = |index| [sizes.rx_len(index), sizes.tx_len(index), sizes.rx_most(index)].map(|bytes| bytes >> 10);
        assert_eq!([0, 2, 3].map(kib), [[256, 64, 1024], [256, 64, 1024], [256, 64, 512]]);
        let end = sizes.log_at() + 4096;
        assert_eq!([0, 2, 3].map(|at| sizes.rx_large_at(at)), [0, 8, 12].map(|halves| Some(end + halves * half)));
        assert_eq!((sizes.region_len(), sizes.directory().end()), (end + 16 * half, end + 16 * half));
        assert_eq!(sizes.most_rx(), 1 << 20);
        for growing in [Growing { slots: 14, bytes: 1 << 19 }, Growing { slots: 1, bytes: 1 << 16 }] {
            assert!(!Geometry { growing, ..sizes }.is_valid());
        }
    }
}
