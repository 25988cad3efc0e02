//! The header of a Solar packet: one packet is one block, one request, or a list of acknowledgements.
//!
//! All numbers are big-endian. The layout is OpenTOE's own, because the paper publishes none (docs/SOLAR.md has it as a
//! table). A packet whose header checksum or block checksum is wrong is dropped, and so sent again.
use crc32c::crc32c;
use std::fmt::{self, Display, Formatter};

/// Bytes of a header.
pub const HEADER_LEN: usize = 56;
/// Bytes of a block.
pub const BLOCK_LEN: usize = 4096;
/// The UDP port of storage servers.
pub const PORT: u16 = 4797;
/// Most acknowledgements in one packet.
pub(crate) const MOST_ACKS: usize = 64;
/// Longest name of a volume, bytes.
pub const MOST_NAME: usize = 64;

const VERSION: u8 = 1;
const ACK_LEN: usize = 8;
/// Where the checksum of the header is: it covers all before it.
const CHECKED: usize = HEADER_LEN - 4;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Client: asks for a ticket; `op` is a nonce, `lba` names the client, the payload is the name of the volume.
    Open = 1,
    /// Server: the ticket is `session`; `lba` is its stamp, `op` the nonce.
    Ticket = 11,
    /// Client: begins a session by its ticket; `op` is the stamp, all else is as in [`Kind::Open`].
    Claim = 12,
    /// Server: the session begins, or is refused by `status`. `op` is the stamp, `lba` the blocks of the volume,
    /// `count` the most operations that may be outstanding, `sequence` how often the right to write has changed its
    /// owner.
    Opened = 2,
    /// Client: reads `count` blocks from `lba` on, as operations `op` and following.
    Read = 3,
    /// Server: the block of a read, or its failure.
    Data = 4,
    /// Client: writes the payload at `lba`.
    Write = 5,
    /// Server: a write is durable, or has failed.
    Done = 6,
    /// Both: acknowledges `count` packets, named in the payload.
    Acknowledge = 7,
    /// Both: asks for an acknowledgement, to find whether a path works.
    Probe = 8,
    /// Server: there is no such session (any more); `status` has the reason.
    Stale = 9,
    /// Client: ends the session.
    Close = 10,
}

/// How an operation or an opening ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Without an error.
    Ok = 0,
    /// No volume of this name, or it is not for this client.
    NoVolume = 1,
    /// A write to a volume or a session that may only read.
    ReadOnly = 2,
    /// A block beyond the end of the volume.
    OutOfRange = 3,
    /// The storage is full.
    NoSpace = 4,
    /// The storage failed.
    Failed = 5,
    /// The storage holds other bytes than were written: its checksum differs.
    Corrupt = 6,
    /// Another client may write to the volume.
    Busy = 7,
    /// The server has no such session: it was started again, or the client was silent for too long.
    NoSession = 8,
    /// Another client took the volume.
    Fenced = 9,
    /// Nothing came from the server for too long.
    TimedOut = 10,
}

impl Status {
    fn from_code(code: u8) -> Option<Status> {
        use Status::*;
        let all = [Ok, NoVolume, ReadOnly, OutOfRange, NoSpace, Failed, Corrupt, Busy, NoSession, Fenced, TimedOut];
        all.get(code as usize).copied()
    }
}

impl Display for Status {
    /// The meaning, as the end of a sentence.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Ok => "no error",
            Status::NoVolume => "it has no volume of this name for this client",
            Status::ReadOnly => "the volume is read-only, and the client asks to write",
            Status::OutOfRange => "a block lies beyond the end of the volume",
            Status::NoSpace => "its disk is full",
            Status::Failed => "its disk failed",
            Status::Corrupt => "a block has other bytes than were written",
            Status::Busy => "another client writes to the volume, or there are too many clients",
            Status::NoSession => "the session has ended",
            Status::Fenced => "another client took the volume over; only a new start of this daemon asks again",
            Status::TimedOut => "it did not answer in time",
        })
    }
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        use Kind::*;
        let all = [Open, Opened, Read, Data, Write, Done, Acknowledge, Probe, Stale, Close, Ticket, Claim];
        all.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The sender sends it until it is acknowledged.
    pub(crate) fn is_acknowledged(self) -> bool {
        matches!(self, Kind::Read | Kind::Data | Kind::Write | Kind::Done | Kind::Probe)
    }
}

/// What a client asks for when it begins a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Reads only.
    #[default]
    Read,
    /// Reads and writes; refused where another client may write.
    Write,
    /// Reads and writes; a client that may write loses its session.
    TakeOver,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the packet is.
    pub kind: Kind,
    /// How something ended.
    pub status: Status,
    /// Of [`Kind::Open`].
    pub access: Access,
    /// The path that the packet takes.
    pub path: u8,
    /// Numbers the packets of one sender on one path, those that are acknowledged.
    pub sequence: u32,
    /// CRC-32C of the payload; of a block, as its writer computed it.
    pub crc: u32,
    /// The session, chosen by the server.
    pub session: u64,
    /// The operation.
    pub op: u64,
    /// A block of the volume.
    pub lba: u64,
    /// The client has the results of all operations before this one.
    pub oldest: u64,
    /// Blocks of a read, acknowledgements, or operations.
    pub count: u16,
}

impl Header {
    /// A header of a kind with nothing in it.
    pub fn new(kind: Kind) -> Header {
        Header {
            kind,
            status: Status::Ok,
            access: Access::Read,
            path: 0,
            sequence: 0,
            crc: 0,
            session: 0,
            op: 0,
            lba: 0,
            oldest: 0,
            count: 0,
        }
    }

    /// The bytes on the wire.
    pub fn write(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..5].copy_from_slice(&[VERSION, self.kind as u8, self.access as u8, self.status as u8, self.path]);
        bytes[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.crc.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.session.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.op.to_be_bytes());
        bytes[32..40].copy_from_slice(&self.lba.to_be_bytes());
        bytes[40..48].copy_from_slice(&self.oldest.to_be_bytes());
        bytes[48..50].copy_from_slice(&self.count.to_be_bytes());
        let crc = crc32c(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&crc.to_be_bytes());
        bytes
    }

    /// The path that a packet names, unchecked; 0 where it names none.
    pub(crate) fn path_of(packet: &[u8]) -> u8 {
        packet.get(4).copied().unwrap_or(0)
    }

    /// The header and the payload of a packet. `None` where it is none of ours, damaged, or too short for its kind.
    pub fn read(packet: &[u8]) -> Option<(Header, &[u8])> {
        let (bytes, payload) = packet.split_at_checked(HEADER_LEN)?;
        Header::read_parts(bytes, payload).map(|header| (header, payload))
    }

    /// The same, where the payload is elsewhere.
    pub(crate) fn read_parts(bytes: &[u8], payload: &[u8]) -> Option<Header> {
        if bytes[0] != VERSION || u32_at(bytes, CHECKED) != crc32c(&bytes[..CHECKED]) {
            return None;
        }
        let access = [Access::Read, Access::Write, Access::TakeOver];
        let header = Header {
            kind: Kind::from_code(bytes[1])?,
            status: Status::from_code(bytes[3])?,
            access: *access.get(bytes[2] as usize)?,
            path: bytes[4],
            sequence: u32_at(bytes, 8),
            crc: u32_at(bytes, 12),
            session: u64_at(bytes, 16),
            op: u64_at(bytes, 24),
            lba: u64_at(bytes, 32),
            oldest: u64_at(bytes, 40),
            count: u16::from_be_bytes([bytes[48], bytes[49]]),
        };
        header.check(payload).then_some(header)
    }

    /// The payload has the length of its kind, and the checksum that the header contains.
    fn check(&self, payload: &[u8]) -> bool {
        let fits = match self.kind {
            Kind::Write => payload.len() == BLOCK_LEN,
            Kind::Data if self.status == Status::Ok => payload.len() == BLOCK_LEN,
            Kind::Acknowledge => self.count <= MOST_ACKS as u16 && payload.len() == usize::from(self.count) * ACK_LEN,
            Kind::Open | Kind::Claim => (1..=MOST_NAME).contains(&payload.len()),
            _ => payload.is_empty(),
        };
        fits && (payload.is_empty() || crc32c(payload) == self.crc)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// One packet has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) path: u8,
    /// It met congestion (RFC 3168, CE).
    pub(crate) marked: bool,
    pub(crate) sequence: u32,
}

impl Ack {
    pub(crate) fn write(self) -> [u8; ACK_LEN] {
        let sequence = self.sequence.to_be_bytes();
        [self.path, self.marked.into(), 0, 0, sequence[0], sequence[1], sequence[2], sequence[3]]
    }

    /// Those of a payload.
    pub(crate) fn list(payload: &[u8]) -> impl Iterator<Item = Ack> + '_ {
        payload.chunks_exact(ACK_LEN).map(|ack| Ack { path: ack[0], marked: ack[1] != 0, sequence: u32_at(ack, 4) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(kind: u8, numbers: [u64; 4], small: [u32; 2]) -> Header {
        Header {
            kind: Kind::from_code(kind).unwrap(),
            path: small[0] as u8,
            sequence: small[0],
            crc: small[1],
            session: numbers[0],
            op: numbers[1],
            lba: numbers[2],
            oldest: numbers[3],
            count: small[1] as u16,
            ..Header::new(Kind::Open)
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(kind in prop::sample::select(vec![2u8, 3, 6, 8, 9, 10, 11]), numbers: [u64; 4], small: [u32; 2]) {
            let header = header(kind, numbers, small);
            let packet = header.write();
            prop_assert_eq!(Header::read(&packet), Some((header, &[][..])));
        }

        #[test]
        fn a_flipped_bit_is_seen(kind in 1u8..=12, numbers: [u64; 4], bit in 0..HEADER_LEN * 8) {
            let mut packet = header(kind, numbers, [1, 0]).write();
            packet[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::read(&packet), None);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Header::read(&bytes), None);
        }
    }

    #[test]
    fn a_block_has_its_length_and_its_checksum() {
        let block = vec![7; BLOCK_LEN];
        for kind in [Kind::Write, Kind::Data] {
            let header = Header { crc: crc32c(&block), ..Header::new(kind) };
            let packet = |block: &[u8]| [&header.write(), block].concat();
            assert!(Header::read(&packet(&block)).is_some());
            assert!(Header::read(&packet(&block[1..])).is_none());
            let mut flipped = block.clone();
            flipped[4095] ^= 0x80;
            assert!(Header::read(&packet(&flipped)).is_none());
        }
        let failed = Header { status: Status::Failed, ..Header::new(Kind::Data) };
        assert!(Header::read(&failed.write()).is_some(), "a failure has no block");
    }
}
