//! The table of file descriptors: what a descriptor number is to this library.
//!
//! Looked up without a lock at the head of every interposed call: one bounds check and one load. Changed only under the
//! library's lock, after which callers repeat the lookup.
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Descriptors from this number on are never ours.
const CAPACITY: usize = 1 << 20;

/// One word per descriptor: kind in the two low bits, index above. In `.bss`, so pages cost memory when used.
static TABLE: [AtomicU32; CAPACITY] = [const { AtomicU32::new(0) }; CAPACITY];
/// One more than the highest descriptor that was ever entered.
static USED: AtomicU32 = AtomicU32::new(0);

/// The word of a netlink socket.
const NETLINK: u32 = 1 << 2 | 3;

/// The library's view of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Nothing: the kernel's alone.
    Kernel,
    /// A socket, by its index.
    Socket(usize),
    /// An epoll set, by its index.
    Set(usize),
    /// A descriptor of the library itself, which the program must not close.
    Internal,
    /// A netlink socket of the kernel's, to whose lists of interfaces something is added.
    Netlink,
}

impl Entry {
    fn to_word(self) -> u32 {
        match self {
            Entry::Kernel => 0,
            Entry::Socket(index) => (index as u32) << 2 | 1,
            Entry::Set(index) => (index as u32) << 2 | 2,
            Entry::Internal => 3,
            Entry::Netlink => NETLINK,
        }
    }
    fn from_word(word: u32) -> Entry {
        let index = (word >> 2) as usize;
        match word & 3 {
            0 => Entry::Kernel,
            1 => Entry::Socket(index),
            2 => Entry::Set(index),
            _ if word == NETLINK => Entry::Netlink,
            _ => Entry::Internal,
        }
    }
}

/// The words of all descriptors: 0 for those that are the kernel's alone.
pub(crate) fn words() -> &'static [AtomicU32] {
    &TABLE
}

/// True where the descriptor concerns the library.
#[inline]
pub(crate) fn is_ours(fd: RawFd) -> bool {
    (fd as usize) < CAPACITY && TABLE[fd as usize].load(Acquire) != 0
}

/// The entry of a descriptor.
#[inline]
pub(crate) fn get(fd: RawFd) -> Entry {
    if (fd as usize) < CAPACITY { Entry::from_word(TABLE[fd as usize].load(Acquire)) } else { Entry::Kernel }
}

/// Whether a descriptor that was looked up is still the same.
#[inline]
pub(crate) fn is_still(fd: RawFd, entry: Entry) -> bool {
    TABLE[fd as usize].load(Relaxed) == entry.to_word()
}

/// Enters a descriptor; `false` where its number is too high for the table.
pub(crate) fn set(fd: RawFd, entry: Entry) -> bool {
    if fd as usize >= CAPACITY {
        return false;
    }
    TABLE[fd as usize].store(entry.to_word(), Release);
    USED.fetch_max(fd as u32 + 1, Relaxed);
    true
}

/// Forgets a descriptor.
pub(crate) fn clear(fd: RawFd) {
    if (fd as usize) < CAPACITY {
        TABLE[fd as usize].store(0, Release);
    }
}

/// All descriptors in the table at this moment, from `first` on.
pub(crate) fn entries_from(first: RawFd) -> impl Iterator<Item = (RawFd, Entry)> {
    (first.max(0) as u32..USED.load(Relaxed))
        .map(|fd| (fd as RawFd, get(fd as RawFd)))
        .filter(|(_, e)| *e != Entry::Kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_kinds_and_forgets() {
        for entry in [Entry::Socket(0), Entry::Set(77), Entry::Internal, Entry::Netlink, Entry::Socket(1 << 19)] {
            assert!(set(900_000, entry));
            assert!(is_ours(900_000));
            assert_eq!(get(900_000), entry);
        }
        clear(900_000);
        assert!(!is_ours(900_000) && !is_ours(-1) && !set(CAPACITY as RawFd, Entry::Internal));
    }
}
