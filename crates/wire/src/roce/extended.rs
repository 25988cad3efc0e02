//! Extended transport headers (IBTA 1.3, 9.3).
use crate::be32;

/// Reads and writes one header whose fields are big-endian numbers, one after the other.
macro_rules! header {
    ($(#[$meta:meta])* $name:ident, $len:literal { $($(#[$doc:meta])* $field:ident: $kind:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name {
            $($(#[$doc])* pub $field: $kind),+
        }

        impl $name {
            /// Bytes of the header.
            pub const LEN: usize = $len;

            /// Reads the header; any bytes are one.
            #[inline]
            pub fn parse(bytes: &[u8; $len]) -> $name {
                let remaining = &bytes[..];
                $(let (field, remaining) = remaining.split_first_chunk().expect("as long as its fields");
                let $field = <$kind>::from_be_bytes(*field);)+
                debug_assert!(remaining.is_empty());
                $name { $($field),+ }
            }

            /// Its bytes.
            #[inline]
            pub fn bytes(&self) -> [u8; $len] {
                let mut bytes = [0; $len];
                let remaining = &mut bytes[..];
                $(let (field, remaining) = remaining.split_first_chunk_mut().expect("as long as its fields");
                *field = self.$field.to_be_bytes();)+
                debug_assert!(remaining.is_empty());
                bytes
            }
        }
    };
}

header! {
    /// What a WRITE or a READ names of the responder's memory.
    Reth, 16 {
        /// First byte.
        address: u64,
        /// Key of the region.
        key: u32,
        /// Bytes of the whole message.
        len: u32,
    }
}

header! {
    /// What each request of an extended reliable connection names (IBTA 1.3, annex A14).
    XrcEth, 4 {
        /// The responder's shared receive queue: 24 bits.
        queue: u32,
    }
}

header! {
    /// An atomic operation.
    AtomicEth, 28 {
        /// The word.
        address: u64,
        /// Key of its region.
        key: u32,
        /// What is stored, or what is added.
        swap_or_add: u64,
        /// What the word is compared with.
        compare: u64,
    }
}

/// The header of datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deth {
    /// The queue key that the receiver checks.
    pub key: u32,
    /// The queue pair that sent it.
    pub source: u32,
}

impl Deth {
    /// Bytes of the header.
    pub const LEN: usize = 8;

    /// Reads the header; any bytes are one.
    #[inline]
    pub fn parse(bytes: &[u8; 8]) -> Deth {
        Deth { key: be32(bytes, 0), source: be32(bytes, 4) & 0xff_ffff }
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; 8] {
        (u64::from(self.key) << 32 | u64::from(self.source & 0xff_ffff)).to_be_bytes()
    }
}

/// Why a responder refuses (IBTA 1.3, table 46).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum NakCode {
    /// A packet is missing.
    Sequence = 0,
    /// The request makes no sense, or the queue pair does not serve it.
    InvalidRequest = 1,
    /// The memory may not be accessed so.
    RemoteAccess = 2,
    /// The responder failed.
    RemoteOperation = 3,
}

/// The first byte of an AETH (IBTA 1.3, 9.7.5.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syndrome {
    /// All packets so far were received. With a code for how many receive work requests are left; 31 stands for "not
    /// counted".
    Ack(u8),
    /// No receive work request is there: again after the time of this code ([`super::rnr_time`]).
    Rnr(u8),
    /// Refused.
    Nak(NakCode),
}

/// The header of acknowledgements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aeth {
    /// Its content.
    pub syndrome: Syndrome,
    /// Messages that the responder has completed, modulo 2^24.
    pub messages: u32,
}

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = 4;
    /// Receive work requests are not counted.
    pub const NOT_COUNTED: u8 = 31;

    /// Reads the header; `None` where the syndrome is a reserved one.
    #[inline]
    pub fn parse(bytes: &[u8; 4]) -> Option<Aeth> {
        let (kind, value) = (bytes[0] >> 5, bytes[0] & 0x1f);
        let syndrome = match (kind, value) {
            (0, credits) => Syndrome::Ack(credits),
            (1, timer) => Syndrome::Rnr(timer),
            (3, 0) => Syndrome::Nak(NakCode::Sequence),
            (3, 1) => Syndrome::Nak(NakCode::InvalidRequest),
            (3, 2) => Syndrome::Nak(NakCode::RemoteAccess),
            (3, 3) => Syndrome::Nak(NakCode::RemoteOperation),
            _ => return None,
        };
        Some(Aeth { syndrome, messages: be32(bytes, 0) & 0xff_ffff })
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; 4] {
        let first = match self.syndrome {
            Syndrome::Ack(credits) => credits & 0x1f,
            Syndrome::Rnr(timer) => 1 << 5 | timer & 0x1f,
            Syndrome::Nak(code) => 3 << 5 | code as u8,
        };
        (u32::from(first) << 24 | self.messages & 0xff_ffff).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back() {
        let reth = Reth { address: 0x0102_0304_0506_0708, key: 0x1112_1314, len: 0x2122_2324 };
        assert_eq!(Reth::parse(&reth.bytes()), reth);
        assert_eq!(reth.bytes()[6..13], [7, 8, 0x11, 0x12, 0x13, 0x14, 0x21]);
        let atomic = AtomicEth { address: 1, key: 2, swap_or_add: 3, compare: u64::MAX - 1 };
        assert_eq!(AtomicEth::parse(&atomic.bytes()), atomic);
        let deth = Deth { key: 0x8001_0000, source: 0xab_cdef };
        assert_eq!((Deth::parse(&deth.bytes()), deth.bytes()[4]), (deth, 0));
    }

    #[test]
    fn every_syndrome_comes_back_and_reserved_ones_are_refused() {
        let mut known = 0;
        for first in 0..=u8::MAX {
            if let Some(aeth) = Aeth::parse(&[first, 1, 2, 3]) {
                known += 1;
                assert_eq!((aeth.bytes(), aeth.messages), ([first, 1, 2, 3], 0x01_0203));
            }
        }
        assert_eq!(known, 32 + 32 + 4);
    }
}
