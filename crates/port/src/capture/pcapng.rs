//! The capture format (draft-ietf-opsawg-pcapng): blocks are appended to a vector of bytes, and read back from a
//! stream. Little-endian, Ethernet, nanoseconds.
use super::Direction;
use crate::Nanos;
use std::io::{self, Read};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u16 = 1;
/// Bytes of a block besides its body: type, and the length in front and behind.
const FRAME: usize = 12;
/// Bytes of a packet block's body in front of the packet.
const PACKET_HEADER: usize = 20;
/// Longest block that is read: more than a packet block of the longest frame has.
const LONGEST: usize = 1 << 20;

// Options, by the section of the draft that defines them.
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const FILTER: u16 = 11;
const FLAGS: u16 = 2;
const RECEIVED: u16 = 4;
const LOST: u16 = 5;
const ACCEPTED: u16 = 6;

/// A frame, besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About<'a> {
    /// Number of its interface: the first that was described is 0.
    pub interface: u32,
    /// Unix time in nanoseconds.
    pub time: Nanos,
    /// Which way it went, where that is known.
    pub direction: Option<Direction>,
    /// Bytes that it had on its way, which may be more than are kept.
    pub len: u32,
    /// Its comment; none where it is empty.
    pub comment: &'a str,
}

/// Begins a capture.
pub fn section(into: &mut Vec<u8>) {
    block(into, SECTION, |body| {
        word(body, BYTE_ORDER);
        // Version 1.0, length of the section unknown.
        body.extend_from_slice(&[1, 0, 0, 0]);
        body.extend_from_slice(&[0xff; 8]);
        option(body, APPLICATION, concat!("OpenTOE ", env!("CARGO_PKG_VERSION")).as_bytes());
        end_of_options(body);
    });
}

/// Describes an interface; `filter` as somebody wrote it, where there is one.
pub fn interface(into: &mut Vec<u8>, name: &str, filter: &str, snaplen: u32) {
    block(into, INTERFACE, |body| {
        half(body, LINKTYPE_ETHERNET);
        half(body, 0);
        word(body, snaplen);
        option(body, NAME, name.as_bytes());
        // Ten to the power of -9 seconds.
        option(body, RESOLUTION, &[9]);
        if !filter.is_empty() {
            // Kind 0: in libpcap's language.
            option(body, FILTER, &[&[0], filter.as_bytes()].concat());
        }
        end_of_options(body);
    });
}

/// A frame; `write` appends the bytes that are kept.
#[inline]
pub fn packet(into: &mut Vec<u8>, about: &About<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.reserve(FRAME + PACKET_HEADER + about.len as usize + about.comment.len() + 32);
    // The block's length and the kept bytes' are filled in afterwards.
    let (high, low) = ((about.time >> 32) as u32, about.time as u32);
    words(into, [PACKET, 0, about.interface, high, low, 0, about.len]);
    let bytes = into.len();
    write(into);
    let captured = (into.len() - bytes) as u32;
    pad(into, bytes);
    match about.direction {
        Some(Direction::In) => words(into, [u32::from(FLAGS) | 4 << 16, 1]),
        Some(Direction::Out) => words(into, [u32::from(FLAGS) | 4 << 16, 2]),
        None => {}
    }
    if !about.comment.is_empty() {
        option(into, COMMENT, about.comment.as_bytes());
    }
    let len = (into.len() - start + 8) as u32;
    words(into, [u32::from(END_OF_OPTIONS), len]);
    into[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
    into[start + 20..start + 24].copy_from_slice(&captured.to_le_bytes());
}

/// Appends words, at once.
#[inline]
fn words<const N: usize>(into: &mut Vec<u8>, words: [u32; N]) {
    into.extend_from_slice(words.map(u32::to_le_bytes).as_flattened());
}

/// What was counted on an interface at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Frames that passed while the capture ran.
    pub seen: u64,
    /// Frames that were wanted.
    pub matched: u64,
    /// Frames that were wanted and could not be kept.
    pub lost: u64,
}

/// Ends an interface at Unix time `now` in nanoseconds.
pub fn statistics(into: &mut Vec<u8>, interface: u32, now: Nanos, counts: &Counts) {
    block(into, STATISTICS, |body| {
        word(body, interface);
        time(body, now);
        for (code, count) in [(RECEIVED, counts.seen), (LOST, counts.lost), (ACCEPTED, counts.matched)] {
            option(body, code, &count.to_le_bytes());
        }
        end_of_options(body);
    });
}

/// The first block of `bytes`, which was written by [`packet`]: its length and its time.
pub fn first_packet(bytes: &[u8]) -> Option<(usize, Nanos)> {
    let len = word_at(bytes, 4)? as usize;
    let (high, low) = (word_at(bytes, 12)?, word_at(bytes, 16)?);
    (len <= bytes.len()).then_some((len, Nanos::from(high) << 32 | Nanos::from(low)))
}

fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    word(into, kind);
    word(into, 0);
    body(into);
    let len = (into.len() - start + 4) as u32;
    word(into, len);
    into[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

fn word(into: &mut Vec<u8>, value: u32) {
    into.extend_from_slice(&value.to_le_bytes());
}

fn half(into: &mut Vec<u8>, value: u16) {
    into.extend_from_slice(&value.to_le_bytes());
}

fn time(into: &mut Vec<u8>, time: Nanos) {
    word(into, (time >> 32) as u32);
    word(into, time as u32);
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    // What is longer than its length field can hold is cut: only names and comments could be.
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    half(into, code);
    half(into, value.len() as u16);
    let start = into.len();
    into.extend_from_slice(value);
    pad(into, start);
}

fn end_of_options(into: &mut Vec<u8>) {
    half(into, END_OF_OPTIONS);
    half(into, 0);
}

/// To a multiple of four bytes from `start`.
fn pad(into: &mut Vec<u8>, start: usize) {
    let missing = (into.len() - start).wrapping_neg() % 4;
    into.extend_from_slice(&[0; 3][..missing]);
}

/// A block that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// A capture begins.
    Section,
    /// An interface with its name.
    Interface(String),
    /// A frame.
    Packet(Packet),
    /// The end of an interface, by its number.
    Statistics(u32, Counts),
    /// Of a kind that is not read.
    Other(u32),
}

/// A frame that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Number of its interface.
    pub interface: u32,
    /// Unix time in nanoseconds.
    pub time: Nanos,
    /// Which way it went, where that is known.
    pub direction: Option<Direction>,
    /// Bytes that it had on its way.
    pub len: u32,
    /// The bytes that were kept.
    pub bytes: Vec<u8>,
    /// Its comment; may be empty.
    pub comment: String,
}

/// Reads the next block; none at the end. An end inside a block is an error of kind `UnexpectedEof`, and anything that
/// this module does not write one of kind `InvalidData`.
pub fn read(from: &mut impl Read) -> io::Result<Option<Block>> {
    let mut block = Vec::new();
    if !read_bytes(from, &mut block)? {
        return Ok(None);
    }
    parse(&block).map(Some)
}

/// As [`read`], of the block's bytes as they are; false at the end.
pub fn read_bytes(from: &mut impl Read, into: &mut Vec<u8>) -> io::Result<bool> {
    into.resize(8, 0);
    if from.read(&mut into[..1])? == 0 {
        return Ok(false);
    }
    from.read_exact(&mut into[1..])?;
    let len = word_at(into, 4).unwrap_or(0) as usize;
    if !(FRAME..=LONGEST).contains(&len) || len % 4 != 0 {
        return Err(strange());
    }
    into.resize(len, 0);
    from.read_exact(&mut into[8..])?;
    match word_at(into, len - 4) {
        Some(again) if again as usize == len => Ok(true),
        _ => Err(strange()),
    }
}

/// Content of a block's bytes, as [`read_bytes`] gives them.
pub fn parse(block: &[u8]) -> io::Result<Block> {
    let kind = word_at(block, 0).unwrap_or(0);
    let body = block.get(8..block.len().max(FRAME) - 4).unwrap_or_default();
    parse_body(kind, body).ok_or_else(strange)
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no capture that OpenTOE wrote")
}

fn parse_body(kind: u32, body: &[u8]) -> Option<Block> {
    Some(match kind {
        SECTION if word_at(body, 0)? != BYTE_ORDER => return None,
        SECTION => Block::Section,
        INTERFACE => Block::Interface(text(body.get(8..)?, NAME)),
        PACKET => Block::Packet(parse_packet(body)?),
        STATISTICS => {
            let options = body.get(12..)?;
            let count = |code| {
                let value = Options(options).find(|(found, _)| *found == code).map(|(_, value)| value);
                value.and_then(|value| Some(u64::from_le_bytes(value.try_into().ok()?))).unwrap_or(0)
            };
            let counts = Counts { seen: count(RECEIVED), matched: count(ACCEPTED), lost: count(LOST) };
            Block::Statistics(word_at(body, 0)?, counts)
        }
        other => Block::Other(other),
    })
}

fn parse_packet(body: &[u8]) -> Option<Packet> {
    let captured = word_at(body, 12)? as usize;
    let bytes = body.get(PACKET_HEADER..PACKET_HEADER.checked_add(captured)?)?.to_vec();
    let options = body.get(PACKET_HEADER + captured.next_multiple_of(4)..)?;
    let flags = Options(options).find(|(code, _)| *code == FLAGS).and_then(|(_, value)| word_at(value, 0));
    let direction = match flags.map(|flags| flags & 3) {
        Some(1) => Some(Direction::In),
        Some(2) => Some(Direction::Out),
        _ => None,
    };
    Some(Packet {
        interface: word_at(body, 0)?,
        time: Nanos::from(word_at(body, 4)?) << 32 | Nanos::from(word_at(body, 8)?),
        direction,
        len: word_at(body, 16)?,
        bytes,
        comment: text(options, COMMENT),
    })
}

fn text(options: &[u8], wanted: u16) -> String {
    let found = Options(options).find(|(code, _)| *code == wanted);
    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned()).unwrap_or_default()
}

/// Codes and values of an options area.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let head = word_at(self.0, 0)?;
        let (code, len) = (head as u16, (head >> 16) as usize);
        let value = self.0.get(4..4 + len)?;
        self.0 = self.0.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
        (code != END_OF_OPTIONS).then_some((code, value))
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        section(&mut bytes);
        interface(&mut bytes, "a", "tcp port 80", 96);
        let about = About {
            interface: 0,
            time: 1 << 60 | 77,
            direction: Some(Direction::Out),
            len: 9,
            comment: "control: sent",
        };
        let start = bytes.len();
        packet(&mut bytes, &about, |into| into.extend_from_slice(b"12345"));
        assert_eq!(first_packet(&bytes[start..]), Some((bytes.len() - start, 1 << 60 | 77)));
        packet(&mut bytes, &About { direction: None, comment: "", ..about }, |_| {});
        let counts = Counts { seen: 10, matched: 3, lost: 1 };
        statistics(&mut bytes, 0, 5, &counts);
        let mut from = &bytes[..];
        let mut next = || read(&mut from).unwrap();
        assert_eq!((next(), next()), (Some(Block::Section), Some(Block::Interface("a".into()))));
        let first = Packet {
            interface: 0,
            time: 1 << 60 | 77,
            direction: Some(Direction::Out),
            len: 9,
            bytes: b"12345".to_vec(),
            comment: "control: sent".into(),
        };
        assert_eq!(next(), Some(Block::Packet(first.clone())));
        let empty = Packet { direction: None, comment: String::new(), bytes: Vec::new(), ..first };
        assert_eq!((next(), next()), (Some(Block::Packet(empty)), Some(Block::Statistics(0, counts))));
        assert_eq!(next(), None);
    }

    #[test]
    fn broken_bytes_are_an_error_and_no_panic() {
        let mut bytes = Vec::new();
        interface(&mut bytes, "a", "", 96);
        let about = About { interface: 0, time: 1, direction: None, len: 3, comment: "x" };
        packet(&mut bytes, &about, |into| into.extend_from_slice(b"123"));
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = bytes.clone();
                broken[at] = value;
                let mut from = &broken[..];
                while let Ok(Some(_)) = read(&mut from) {}
            }
            let mut from = &bytes[..at];
            let end = loop {
                match read(&mut from) {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(error) => break Some(error.kind()),
                }
            };
            assert!(matches!(end, None | Some(io::ErrorKind::UnexpectedEof)), "{at}: {end:?}");
        }
    }
}
