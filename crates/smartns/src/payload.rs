//! The payload of a packet that came: in its frame, or still in the memory of the program that sent it.
use engine::{Checksum, Frame};
use shm::Span;
use wire::Malformed;
use wire::roce;

/// A packet that came, its headers checked.
pub(crate) type Packet<'a> = roce::Packet<'a, Payload<'a>>;

/// Bytes of a payload.
#[derive(Clone, Copy)]
pub(crate) enum Payload<'a> {
    /// These.
    Here(&'a [u8]),
    /// `len` bytes after the first `skip` ones of a span: the sender's memory, which stays as it is until the packet
    /// is acknowledged ("header-only TX", SmartNS section 3.2).
    There { span: &'a Span, skip: usize, len: usize },
}

impl<'a> Payload<'a> {
    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Payload::Here(bytes) => bytes.len(),
            Payload::There { len, .. } => *len,
        }
    }

    /// `count` bytes from byte `at` on, which it has.
    #[inline]
    pub(crate) fn part(&self, at: usize, count: usize) -> Payload<'a> {
        match *self {
            Payload::Here(bytes) => Payload::Here(&bytes[at..at + count]),
            Payload::There { span, skip, .. } => Payload::There { span, skip: skip + at, len: count },
        }
    }

    /// Those in the frame; of short packets, all are there.
    #[inline]
    pub(crate) fn here(&self) -> &'a [u8] {
        match self {
            Payload::Here(bytes) => bytes,
            Payload::There { .. } => &[],
        }
    }
}

impl roce::Payload for Payload<'_> {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A packet whose payload is in its frame.
#[inline]
pub(crate) fn whole(packet: roce::Packet<'_>) -> Packet<'_> {
    packet.over(Payload::Here(packet.payload))
}

/// The packet of a frame, or its train.
#[inline]
pub(crate) fn parse(frame: &Frame) -> Result<Packet<'_>, Malformed> {
    let mut packet = match frame.payload() {
        None => whole(roce::Packet::parse(frame.bytes())?),
        Some(span) => {
            let payload = Payload::There { span, skip: 0, len: span.len() };
            roce::Packet::parse_front(frame.bytes(), span.len())?.over(payload)
        }
    };
    packet.segment = if frame.checksum == Checksum::Icrc { frame.segment_size } else { 0 };
    Ok(packet)
}
