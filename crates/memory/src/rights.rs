//! Access rights of a region, and what each access needs.
use serde::{Deserialize, Serialize};
use std::ops::BitOr;

/// What may be done with a region besides local reads, which are always allowed. The bits are those of
/// `enum ibv_access_flags`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(u8);

impl Rights {
    /// Local reads only.
    pub const NONE: Rights = Rights(0);
    /// The program's own operations may write: received messages, results of reads and atomics.
    pub const LOCAL_WRITE: Rights = Rights(1);
    /// A peer may write.
    pub const REMOTE_WRITE: Rights = Rights(1 << 1);
    /// A peer may read.
    pub const REMOTE_READ: Rights = Rights(1 << 2);
    /// A peer may compare and swap, or fetch and add.
    pub const REMOTE_ATOMIC: Rights = Rights(1 << 3);
    /// All of the above.
    pub const ALL: Rights = Rights(0b1111);
    /// The program may let a peer access a part of it by a window (`IBV_ACCESS_MW_BIND`).
    pub const WINDOWS: Rights = Rights(1 << 4);
    const KNOWN: Rights = Rights(0b1_1111);

    /// The rights with these bits; `None` where a bit is unknown.
    pub fn from_bits(bits: u32) -> Option<Rights> {
        let known = u8::try_from(bits).ok()?;
        (known & !Rights::KNOWN.0 == 0).then_some(Rights(known))
    }

    /// The bits of `enum ibv_access_flags`.
    pub fn bits(self) -> u32 {
        u32::from(self.0)
    }

    /// All of `other` are among them.
    #[inline]
    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Some access may change the memory.
    pub fn may_write(self) -> bool {
        let writing = Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC;
        self.0 & writing.0 != 0
    }

    /// No unknown bits, and no remote write or atomic without local write (InfiniBand Architecture 1.3, 10.6.3).
    pub fn are_consistent(self) -> bool {
        let remote = self.0 & (Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC).0 != 0;
        self.0 & !Rights::KNOWN.0 == 0 && (!remote || self.contains(Rights::LOCAL_WRITE))
    }
}

impl BitOr for Rights {
    type Output = Rights;
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

/// Why the data-path opens a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To send from it.
    LocalRead,
    /// To receive into it.
    LocalWrite,
    /// A peer reads it.
    RemoteRead,
    /// A peer writes it.
    RemoteWrite,
    /// A peer compares and swaps, or fetches and adds.
    RemoteAtomic,
    /// The same by a window, which has rights of its own.
    LocalAtomic,
    /// A part of it becomes a window: no byte is touched.
    Bind,
}

impl Access {
    /// The right that the access needs.
    #[inline]
    pub fn needs(self) -> Rights {
        match self {
            Access::LocalRead => Rights::NONE,
            Access::LocalWrite => Rights::LOCAL_WRITE,
            Access::RemoteRead => Rights::REMOTE_READ,
            Access::RemoteWrite => Rights::REMOTE_WRITE,
            Access::RemoteAtomic => Rights::REMOTE_ATOMIC,
            Access::LocalAtomic => Rights::LOCAL_WRITE,
            Access::Bind => Rights::WINDOWS,
        }
    }

    /// A peer's access, where the peer's rights are known to somebody else: it needs the program's only.
    pub fn by_the_program(self) -> Access {
        match self {
            Access::RemoteRead => Access::LocalRead,
            Access::RemoteWrite => Access::LocalWrite,
            Access::RemoteAtomic => Access::LocalAtomic,
            own => own,
        }
    }

    #[inline]
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Access::RemoteAtomic | Access::LocalAtomic)
    }

    #[inline]
    pub(crate) fn reads(self) -> bool {
        matches!(self, Access::LocalRead | Access::RemoteRead)
    }

    #[inline]
    pub(crate) fn writes(self) -> bool {
        matches!(self, Access::LocalWrite | Access::RemoteWrite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_writes_need_local_ones() {
        assert!(!Rights::REMOTE_WRITE.are_consistent() && !Rights::REMOTE_ATOMIC.are_consistent());
        assert!((Rights::REMOTE_WRITE | Rights::LOCAL_WRITE).are_consistent() && Rights::REMOTE_READ.are_consistent());
        assert!(Rights::NONE.are_consistent() && !Rights::NONE.may_write());
    }

    #[test]
    fn bits_are_those_of_verbs() {
        // /usr/include/infiniband/verbs.h: LOCAL_WRITE 1, REMOTE_WRITE 2, REMOTE_READ 4, REMOTE_ATOMIC 8, MW_BIND 16.
        assert_eq!(Rights::from_bits(7), Some(Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ));
        assert_eq!(Rights::from_bits(16), Some(Rights::WINDOWS));
        assert_eq!((Rights::from_bits(32), Rights::from_bits(1 << 20)), (None, None));
        assert_eq!(Rights::ALL.bits(), 15);
    }
}
