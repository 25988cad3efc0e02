//! Protocol between two rsockets ("rsocket Protocol and Design Guide", rdma-core). There are connection data in
//! the messages of connection management, 32-bit messages as immediate data, and tables that peers write.
use crate::errno::Result;

/// The version of the connection data.
const VERSION: u8 = 1;
/// The sender's memory is big-endian.
const BIG_ENDIAN: u8 = 1;
/// The sender states how many mappings it takes.
const MAPPINGS: u8 = 1 << 1;
/// A message's kind stands above these bits.
const KIND_SHIFT: u32 = 29;
const VALUE: u32 = (1 << KIND_SHIFT) - 1;
const DATA: u32 = 0;
const CREDITS: u32 = 4;
const MAPPING: u32 = 6;
const CONTROL: u32 = 7;
/// A scale of eight bits: larger values lose their low eight bits.
const SCALE_BIT: u32 = 1 << 7;

/// Bytes of the connection data.
pub(super) const CONNECTION_BYTES: usize = 40;
/// Entries of the table of receive buffers.
pub(super) const TARGETS: usize = 2;

/// Immediate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// So many bytes were written to the next receive buffer.
    Data(u32),
    /// Messages up to this number may be sent; a receive buffer may have been advertised.
    Credits(u16),
    /// A mapping of this index was advertised.
    Mapping(u32),
    /// Nothing is sent or received any more.
    Disconnect,
    /// The sender sends no more data.
    Shutdown,
    /// Something that changes nothing: a sign of life, or unknown.
    Other,
}

impl Message {
    /// As a number.
    pub(super) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Message::Data(bytes) => (DATA, bytes),
            Message::Credits(number) => (CREDITS, number.into()),
            Message::Mapping(index) => (MAPPING, index),
            Message::Disconnect => (CONTROL, 0),
            Message::Shutdown => (CONTROL, 2),
            Message::Other => (CONTROL, 1),
        };
        kind << KIND_SHIFT | value & VALUE
    }

    /// Of a number.
    pub(super) fn decode(number: u32) -> Message {
        let value = number & VALUE;
        match (number >> KIND_SHIFT, value) {
            (DATA, bytes) => Message::Data(bytes),
            // Numbers of messages have 16 bits.
            (CREDITS, number) => Message::Credits(number as u16),
            (MAPPING, index) => Message::Mapping(index),
            (CONTROL, 0) => Message::Disconnect,
            (CONTROL, 2) => Message::Shutdown,
            _ => Message::Other,
        }
    }
}

/// Memory of a peer: address, key, bytes (of a table: entries). In memory as the machine has numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(super) struct RemoteBuffer {
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) len: u32,
}

/// A buffer that a peer has mapped: where it begins for its users, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) place: RemoteBuffer,
}

/// What a peer sends when a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Connection {
    /// Messages that it can take.
    pub(super) credits: u16,
    /// Mappings that its table has room for; it stands behind the table of receive buffers.
    pub(super) mappings: u32,
    /// Its table of receive buffers.
    pub(super) table: RemoteBuffer,
    /// Its first receive buffer.
    pub(super) buffer: RemoteBuffer,
}

impl Connection {
    /// As private data.
    pub(super) fn encode(&self) -> [u8; CONNECTION_BYTES] {
        let mut bytes = [0; CONNECTION_BYTES];
        let order = if cfg!(target_endian = "big") { BIG_ENDIAN } else { 0 };
        (bytes[0], bytes[1]) = (VERSION, MAPPINGS | order);
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.mappings);
        for (at, place) in [(8, self.table), (24, self.buffer)] {
            bytes[at..at + 8].copy_from_slice(&place.address.to_be_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&place.key.to_be_bytes());
            bytes[at + 12..at + 16].copy_from_slice(&place.len.to_be_bytes());
        }
        bytes
    }

    /// Of private data; EPROTO where they are none of rsockets, or of a machine with the other byte order.
    pub(super) fn decode(data: &[u8]) -> Result<Connection> {
        let bytes: &[u8; CONNECTION_BYTES] = data.first_chunk().ok_or(libc::EPROTO)?;
        let order = bytes[1] & BIG_ENDIAN != 0;
        if bytes[0] != VERSION || order != cfg!(target_endian = "big") {
            return Err(libc::EPROTO);
        }
        let number = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let place = |at: usize| RemoteBuffer {
            address: u64::from(number(at)) << 32 | u64::from(number(at + 4)),
            key: number(at + 8),
            len: number(at + 12),
        };
        let mappings = if bytes[1] & MAPPINGS != 0 { of_scale(bytes[7]) } else { 0 };
        Ok(Connection {
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            mappings,
            table: place(8),
            buffer: place(24),
        })
    }
}

/// A count of mappings as it is sent: rounded up to what the scale has.
pub(super) fn rounded(mappings: u32) -> u32 {
    let most = (SCALE_BIT - 1) << 8;
    let mappings = mappings.min(most);
    if mappings < SCALE_BIT { mappings } else { mappings.next_multiple_of(1 << 8) }
}

fn to_scale(value: u32) -> u8 {
    (if value < SCALE_BIT { value } else { SCALE_BIT | value >> 8 }) as u8
}

fn of_scale(scale: u8) -> u32 {
    let scale = u32::from(scale);
    if scale < SCALE_BIT { scale } else { (scale & (SCALE_BIT - 1)) << 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_guides_bits() {
        let known = [
            (Message::Data(5), 5),
            (Message::Credits(384), 4 << 29 | 384),
            (Message::Mapping(3), 6 << 29 | 3),
            (Message::Disconnect, 7 << 29),
            (Message::Shutdown, 7 << 29 | 2),
        ];
        for (message, number) in known {
            assert_eq!((message.encode(), Message::decode(number)), (number, message));
        }
        assert_eq!(Message::decode(7 << 29 | 1), Message::Other, "a sign of life");
        assert_eq!(Message::decode(1 << 29), Message::Other);
    }

    #[test]
    fn connection_data_come_back_and_others_are_refused() {
        let place = |seed: u64| RemoteBuffer { address: seed << 40 | 7, key: seed as u32 * 3, len: seed as u32 };
        let connection = Connection { credits: 384, mappings: 100, table: place(2), buffer: place(65_536) };
        let mut bytes = connection.encode();
        assert_eq!((bytes[0], bytes[1], &bytes[2..4]), (1, 2, &[1, 128][..]));
        assert_eq!(Connection::decode(&bytes), Ok(connection));
        let padded = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Connection::decode(&padded), Ok(connection), "messages of connection management pad with zeros");
        assert_eq!(Connection::decode(&bytes[..39]), Err(libc::EPROTO));
        bytes[1] = 0;
        assert_eq!(Connection::decode(&bytes), Ok(Connection { mappings: 0, ..connection }));
        bytes[1] = BIG_ENDIAN;
        assert_eq!(Connection::decode(&bytes), Err(libc::EPROTO));
        (bytes[0], bytes[1]) = (2, 0);
        assert_eq!(Connection::decode(&bytes), Err(libc::EPROTO));
    }

    #[test]
    fn counts_of_mappings_are_sent_as_they_are_rounded() {
        for asked in [0, 1, 127, 128, 129, 255, 256, 257, 5000, u32::MAX] {
            let rounded = rounded(asked);
            assert_eq!(of_scale(to_scale(rounded)), rounded, "{asked}");
            assert!(rounded >= asked.min(127 << 8));
        }
        assert_eq!((size_of::<RemoteBuffer>(), size_of::<Mapping>()), (16, 24));
    }
}
