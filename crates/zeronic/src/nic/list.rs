//! A flow's list of memory segments, in entries of 8 bytes (the paper's figure 7).
//!
//! An entry names a region for those behind it, or is a part of a segment: 36 bits of offset, 27 bits of length.
use super::store::{Account, BLOCK, NONE, Store};
use memory::Key;

const REGION: u64 = 1 << 63;
const LEN_BITS: u32 = 27;
/// Most bytes of a part.
pub(super) const MOST_OF_ENTRY: u64 = (1 << LEN_BITS) - 1;
/// Regions are addressed up to here.
const OFFSETS: u64 = 1 << 36;

/// A contiguous buffer of one send or receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The region that it is in.
    pub key: Key,
    /// Its first byte, as an offset in the region.
    pub offset: u64,
    /// Its bytes; more than none.
    pub len: u64,
}

/// Why a segment was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No flow has this number.
    Flow,
    /// It has no bytes, or reaches beyond 64 GiB of its region, or is for a message and longer than 128 MiB.
    Segment,
    /// A datagram of so many bytes does not fit in a frame of the port's.
    Long,
    /// The flow has as many entries as it may, or the store has no more for it: later, when some are done.
    Full,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::Flow => "there is no such flow: it has ended",
            Refused::Segment => "a segment needs a byte at least, within the first 64 GiB of its region",
            Refused::Long => "a datagram has at most the port's MTU less 28 bytes of headers",
            Refused::Full => "the flow's list of segments is full: post again when some are done",
        })
    }
}

impl std::error::Error for Refused {}

/// The list. Its blocks are in the [`Store`].
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    /// Block and place of the first entry.
    first_block: u32,
    first_at: u8,
    /// The place behind the last entry.
    last_at: u8,
    entries: u16,
    last_block: u32,
    /// The region of the first part, and of the last.
    first_key: Key,
    last_key: Key,
    /// Bytes of the first part that are done.
    skip: u32,
    /// Bytes of all parts, those done left out.
    bytes: u64,
}

impl List {
    pub(super) const EMPTY: List = List {
        first_block: NONE,
        first_at: 0,
        last_at: 0,
        entries: 0,
        last_block: NONE,
        first_key: Key(0),
        last_key: Key(0),
        skip: 0,
        bytes: 0,
    };

    /// Bytes that are still to be filled or sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn entries(&self) -> usize {
        usize::from(self.entries)
    }

    /// Appends a segment: all of it, or nothing.
    pub(super) fn push(
        &mut self,
        store: &mut Store,
        account: &mut Account,
        most: usize,
        segment: Segment,
    ) -> Result<(), Refused> {
        let Segment { key, offset, len } = segment;
        let end = offset.checked_add(len).filter(|end| *end <= OFFSETS);
        if len == 0 || end.is_none() {
            return Err(Refused::Segment);
        }
        let new_region = self.entries == 0 || key != self.last_key;
        let needed = len.div_ceil(MOST_OF_ENTRY) as usize + usize::from(new_region);
        let here = if self.last_block == NONE { 0 } else { BLOCK - usize::from(self.last_at) };
        let blocks = needed.saturating_sub(here).div_ceil(BLOCK);
        if usize::from(self.entries) + needed > most.min(usize::from(u16::MAX)) || store.room(*account) < blocks {
            return Err(Refused::Full);
        }
        if new_region {
            self.append(store, account, REGION | u64::from(key.0));
            self.last_key = key;
        }
        let mut done = 0;
        while done < len {
            let part = (len - done).min(MOST_OF_ENTRY);
            self.append(store, account, (offset + done) << LEN_BITS | part);
            done += part;
        }
        self.bytes += len;
        Ok(())
    }

    fn append(&mut self, store: &mut Store, account: &mut Account, entry: u64) {
        if self.last_block == NONE || usize::from(self.last_at) == BLOCK {
            let block = store.take(account).expect("room was checked");
            match self.last_block {
                NONE => (self.first_block, self.first_at) = (block, 0),
                before => store.link(before, block),
            }
            (self.last_block, self.last_at) = (block, 0);
        }
        *store.entry(self.last_block, self.last_at) = entry;
        self.last_at += 1;
        self.entries += 1;
    }

    /// Calls `show` with the parts as they were posted, in order, until it returns false.
    fn each(&self, store: &Store, mut show: impl FnMut(Segment) -> bool) {
        self.find(store, |part, _| !show(part));
    }

    /// Finds the first part for which `is_it` holds; it gets each with its block and place there.
    fn find(&self, store: &Store, mut is_it: impl FnMut(Segment, (u32, u8)) -> bool) -> Option<Segment> {
        let (mut block, mut at, mut key) = (self.first_block, self.first_at, self.first_key);
        for _ in 0..self.entries {
            if usize::from(at) == BLOCK {
                (block, at) = (store.after(block), 0);
            }
            let (entry, place) = (store.get(block, at), (block, at));
            at += 1;
            if entry & REGION != 0 {
                key = Key(entry as u32);
                continue;
            }
            let part = Segment { key, offset: entry >> LEN_BITS, len: entry & MOST_OF_ENTRY };
            if is_it(part, place) {
                return Some(part);
            }
        }
        None
    }

    /// The part that has so many before it.
    pub(super) fn nth(&self, store: &Store, index: usize) -> Option<Segment> {
        let mut before = 0;
        self.find(store, |_, _| {
            before += 1;
            before > index
        })
    }

    /// That part is to have `len` bytes, not more than it has; nothing of it is done.
    pub(super) fn shorten(&mut self, store: &mut Store, index: usize, len: u64) {
        let (mut before, mut place) = (0, (NONE, 0));
        let part = self.find(store, |_, at| {
            (before, place) = (before + 1, at);
            before > index
        });
        if let Some(part) = part.filter(|part| len < part.len) {
            *store.entry(place.0, place.1) = part.offset << LEN_BITS | len;
            self.bytes -= part.len - len;
        }
    }

    /// The parts of memory that hold `len` bytes from byte `from` of what is left. The caller has checked
    /// that there are so many.
    pub(super) fn walk(&self, store: &Store, from: u64, len: u64, mut show: impl FnMut(Segment)) {
        let (mut skip, mut left) = (from + u64::from(self.skip), len);
        self.each(store, |part| {
            if skip >= part.len {
                skip -= part.len;
                return true;
            }
            let count = (part.len - skip).min(left);
            show(Segment { offset: part.offset + skip, len: count, ..part });
            left -= count;
            skip = 0;
            left > 0
        });
        debug_assert_eq!(left, 0);
    }

    /// The first part as it was posted.
    pub(super) fn front(&self, store: &Store) -> Option<Segment> {
        self.nth(store, 0)
    }

    /// `count` bytes more are done, of those that are left: entries that are done altogether go.
    pub(super) fn retire(&mut self, store: &mut Store, account: &mut Account, count: u64) {
        debug_assert!(count <= self.bytes);
        self.bytes -= count;
        let mut done = count + u64::from(self.skip);
        while self.entries > 0 {
            if usize::from(self.first_at) == BLOCK {
                self.drop_first_block(store, account);
            }
            let entry = store.get(self.first_block, self.first_at);
            if entry & REGION != 0 {
                // The region of what is behind it, also where that comes later only.
                self.first_key = Key(entry as u32);
            } else {
                let part = entry & MOST_OF_ENTRY;
                if done < part {
                    break;
                }
                done -= part;
            }
            self.first_at += 1;
            self.entries -= 1;
        }
        self.skip = done as u32;
        if self.entries == 0 {
            debug_assert!(done == 0 && self.bytes == 0);
            self.clear(store, account);
        }
    }

    fn drop_first_block(&mut self, store: &mut Store, account: &mut Account) {
        let block = self.first_block;
        (self.first_block, self.first_at) = (store.after(block), 0);
        store.give(account, block);
    }

    /// Gives all blocks back.
    pub(super) fn clear(&mut self, store: &mut Store, account: &mut Account) {
        while self.first_block != NONE {
            self.drop_first_block(store, account);
        }
        *self = List::EMPTY;
    }
}
