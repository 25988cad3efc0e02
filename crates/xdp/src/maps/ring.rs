//! The ring buffer: records from replicas to one reader (kernel Documentation/bpf/ringbuf.rst).
//!
//! A record is a word of header and its data, in one piece. The header has its length, and whether it is still being
//! written or is to be skipped. Where the end of the memory is too near, the rest is skipped. Positions only grow.
use super::Words;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, PoisonError};

/// A header's marks, above the length.
const BUSY: u64 = 1 << 63;
const SKIP: u64 = 1 << 62;
const LENGTH: u64 = (1 << 32) - 1;

/// A ring buffer.
pub struct Ring {
    memory: Words,
    /// Bytes; a power of two.
    size: u64,
    produced: AtomicU64,
    consumed: AtomicU64,
    writer: Mutex<()>,
    reader: Mutex<()>,
    /// Records that found no room.
    lost: AtomicU64,
}

impl Ring {
    pub(crate) fn new(size: u32) -> Ring {
        Ring {
            memory: Words::new(size as usize / 8),
            size: size.into(),
            produced: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            writer: Mutex::new(()),
            reader: Mutex::new(()),
            lost: AtomicU64::new(0),
        }
    }

    fn header(&self, position: u64) -> &AtomicU64 {
        self.memory.word((position & (self.size - 1)) as usize / 8)
    }

    /// Room for a record: the address of its data; `None`: there is none. It is to be given to [`Ring::finish`].
    pub(crate) fn reserve(&self, bytes: u32) -> Option<usize> {
        let need = 8 + u64::from(bytes).next_multiple_of(8);
        let _one_at_a_time = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = self.produced.load(Relaxed);
        let to_end = self.size - (at & (self.size - 1));
        let skip = if need > to_end { to_end } else { 0 };
        if need > self.size || at + skip + need - self.consumed.load(Acquire) > self.size {
            self.lost.fetch_add(1, Relaxed);
            return None;
        }
        if skip > 0 {
            self.header(at).store((skip - 8) | SKIP, Relaxed);
            at += skip;
        }
        self.header(at).store(u64::from(bytes) | BUSY, Relaxed);
        self.produced.store(at + need, Release);
        Some(self.memory.address() + (at & (self.size - 1)) as usize + 8)
    }

    /// Ends a record whose data is at an address that [`Ring::reserve`] gave.
    pub(crate) fn finish(&self, address: usize, keep: bool) {
        let Some(offset) = address.checked_sub(self.memory.address() + 8) else { return };
        let header = self.memory.word(offset / 8);
        let length = header.load(Relaxed) & LENGTH;
        header.store(if keep { length } else { length | SKIP }, Release);
    }

    /// A whole record.
    pub(crate) fn output(&self, data: &[u8]) -> bool {
        let Some(address) = self.reserve(data.len() as u32) else { return false };
        self.memory.write((address - self.memory.address()) / 8, data);
        self.finish(address, true);
        true
    }

    /// Takes the oldest record out; `None`: there is none, or it is still being written.
    pub fn take(&self) -> Option<Vec<u8>> {
        let _one_at_a_time = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = self.consumed.load(Relaxed);
            if at == self.produced.load(Acquire) {
                return None;
            }
            let header = self.header(at).load(Acquire);
            if header & BUSY != 0 {
                return None;
            }
            // Bounded by what is left, whatever stands in the header.
            let left = self.size - (at & (self.size - 1)) - 8;
            let length = (header & LENGTH).min(left);
            let mut record = vec![0; length as usize];
            self.memory.read((at & (self.size - 1)) as usize / 8 + 1, &mut record);
            self.consumed.store(at + 8 + length.next_multiple_of(8), Release);
            if header & SKIP == 0 {
                return Some(record);
            }
        }
    }

    /// Bytes that wait to be read, headers included.
    pub fn waiting(&self) -> u32 {
        (self.produced.load(Acquire) - self.consumed.load(Acquire)) as u32
    }

    /// Records that found no room.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Where its memory is: start and bytes.
    pub(crate) fn memory(&self) -> (usize, usize) {
        (self.memory.address(), self.memory.bytes())
    }
}
