//! Elements of a completion pipe: 64 bytes each.
//!
//! | word | content |
//! |---|---|
//! | 0 | number of the work request in its queue (low half); bytes (high half) |
//! | 1 | immediate data or the invalidated key (low half); the remote queue pair (high half) |
//! | 2 | when it was added, in nanoseconds of the monotonic clock |
//! | 3 | service level (low byte) |
//! | 7 | queue pair (24 bits), status, opcode, flags, vendor error (8 bits each), valid bit |
use crate::send_element::halves;
use crate::{CompletionOpcode, QP_MASK, QpNumber, Status};
use std::ops::BitOr;

/// What else a completion reports (`enum ibv_wc_flags`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionFlags(pub u8);

impl CompletionFlags {
    /// The first 40 bytes of the memory are the GRH's.
    pub const GRH: CompletionFlags = CompletionFlags(1);
    /// It has immediate data.
    pub const IMMEDIATE: CompletionFlags = CompletionFlags(1 << 1);
    /// It has the key that the peer's message invalidated.
    pub const INVALIDATED: CompletionFlags = CompletionFlags(1 << 3);

    /// All of `other` are among them.
    pub const fn has(self, other: CompletionFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for CompletionFlags {
    type Output = CompletionFlags;
    fn bitor(self, other: CompletionFlags) -> CompletionFlags {
        CompletionFlags(self.0 | other.0)
    }
}

/// The end of a work request. Of a send queue, it reports as well that all earlier work requests have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The program's queue pair.
    pub qp: QpNumber,
    /// How it ended.
    pub status: Status,
    /// What it was. Where the status is an error, it is only whether it was a send or a receive work request.
    pub opcode: CompletionOpcode,
    /// What else it reports.
    pub flags: CompletionFlags,
    /// Detail of an error, for people.
    pub vendor_error: u8,
    /// The number of the work request: in its queue pair's send queue, in its receive queue, or in its SRQ.
    pub number: u32,
    /// Bytes received, or of a read or an atomic. Of a datagram with the GRH's 40.
    pub bytes: u32,
    /// Immediate data as they are on the wire, read as big endian; or the invalidated key.
    pub immediate: u32,
    /// Of datagrams: the sender. Of messages of an extended reliable connection: the SRQ that they came to.
    pub remote_qp: QpNumber,
    /// Service level.
    pub service_level: u8,
    /// When it was added, in nanoseconds of the monotonic clock.
    pub at: u64,
}

impl Completion {
    /// As words of the pipe.
    #[inline]
    pub fn encode(&self) -> [u64; 8] {
        let control = u64::from(self.qp & QP_MASK)
            | u64::from(self.status.code()) << 24
            | u64::from(self.opcode.code()) << 32
            | u64::from(self.flags.0) << 40
            | u64::from(self.vendor_error) << 48;
        let (first, second) = (halves(self.number, self.bytes), halves(self.immediate, self.remote_qp));
        [first, second, self.at, self.service_level.into(), 0, 0, 0, control]
    }

    /// Reads a completion. `None` where it is none, which no daemon of this version adds.
    #[inline]
    pub fn decode(words: &[u64; 8]) -> Option<Completion> {
        let [first, second, at, third, .., control] = *words;
        Some(Completion {
            qp: control as u32 & QP_MASK,
            status: Status::from_code((control >> 24) as u8)?,
            opcode: CompletionOpcode::from_code((control >> 32) as u8)?,
            flags: CompletionFlags((control >> 40) as u8),
            vendor_error: (control >> 48) as u8,
            number: first as u32,
            bytes: (first >> 32) as u32,
            immediate: second as u32,
            remote_qp: (second >> 32) as u32,
            service_level: third as u8,
            at,
        })
    }

    /// It is of a receive work request.
    pub fn is_receive(&self) -> bool {
        self.opcode.code() & CompletionOpcode::Receive.code() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_completion_comes_back(
            words in any::<[u64; 8]>(),
            status in 0..Status::ALL.len(),
            opcode in 0..CompletionOpcode::ALL.len(),
        ) {
            let sent = Completion {
                qp: words[0] as u32 & QP_MASK,
                status: Status::ALL[status],
                opcode: CompletionOpcode::ALL[opcode],
                flags: CompletionFlags(words[0] as u8),
                vendor_error: words[1] as u8,
                number: words[2] as u32,
                bytes: words[3] as u32,
                immediate: words[4] as u32,
                remote_qp: words[5] as u32 & QP_MASK,
                service_level: words[6] as u8,
                at: words[7],
            };
            prop_assert_eq!(Completion::decode(&sent.encode()), Some(sent));
            prop_assert_eq!(sent.encode()[7] >> 63, 0);
            prop_assert_eq!(sent.is_receive(), opcode >= 7);
            let _ = Completion::decode(&words);
        }
    }
}
