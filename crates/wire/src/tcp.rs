//! TCP headers and options (RFC 9293 section 3.1; window scale and timestamps RFC 7323; SACK RFC 2018).
mod fast_open_cookie;
mod growth;
mod state;

pub use fast_open_cookie::Cookie;
pub use growth::Growth;
pub use state::State;

use crate::{Malformed, Seq, be16, be32};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the largest header that the data offset can express.
pub const MAX_HEADER_LEN: usize = 60;
/// Bytes that the timestamps option takes, with its two bytes of padding (RFC 7323 appendix A).
pub const TIMESTAMPS_LEN: usize = 12;
/// Where the checksum stands in the header.
pub const CHECKSUM_AT: usize = 16;
/// Byte of the header where the urgent pointer is.
const URGENT_AT: usize = 18;

/// The urgent pointer of a segment whose header begins with `segment`: it means something where URG is set.
pub fn urgent_pointer(segment: &[u8]) -> Option<u16> {
    (segment.len() >= HEADER_LEN).then(|| be16(segment, URGENT_AT))
}

/// Writes the urgent pointer of a segment whose header begins with `segment`; its checksum is for the caller.
pub fn set_urgent_pointer(segment: &mut [u8], pointer: u16) {
    if let Some(field) = segment.get_mut(URGENT_AT..HEADER_LEN) {
        field.copy_from_slice(&pointer.to_be_bytes());
    }
}
/// Where the window stands in the header.
pub const WINDOW_AT: usize = 14;
/// Byte whose upper half is the header's length in words.
pub const DATA_OFFSET_AT: usize = 12;
/// Byte of the flags.
pub const FLAGS_AT: usize = 13;

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement field is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// All bits of `other` are set.
    pub fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// Any bit of `other` is set.
    pub fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set: Vec<&str> = (0..8).filter(|bit| self.0 >> bit & 1 == 1).map(|bit| names[bit]).collect();
        f.write_str(&set.join("|"))
    }
}

/// Why TCP's rules do not process a segment. The registry of drop reasons has an entry for each, under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unacceptable {
    /// The timestamp is older than the last one (PAWS, RFC 7323 section 5).
    Paws,
    /// The sequence number is outside the receive window (RFC 9293 section 3.4), or the acknowledgement outside what
    /// was sent.
    OutsideWindow,
    /// All of its payload was received before.
    Duplicate,
    /// It acknowledges what was never sent (RFC 5961 section 5).
    AckBeyondSent,
    /// Its acknowledgement is older than any window (RFC 5961 section 5).
    AckTooOld,
    /// It has no ACK where every valid segment has one.
    NoAck,
    /// RST inside the window, but not exact (RFC 5961 section 3).
    RstChallenged,
    /// SYN in a synchronised state (RFC 5961 section 4).
    SynChallenged,
}

/// What both ends of a connection agreed on with their SYNs, and what path MTU discovery made of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Agreed {
    /// Most payload bytes of a segment on the wire, options taken off (RFC 9293 section 3.7.1). Path MTU discovery
    /// lowers it (RFC 1191).
    pub mss: u16,
    /// Shift of the windows that the peer sends (RFC 7323 section 2).
    pub snd_shift: u8,
    /// Shift of the windows that this host sends.
    pub rcv_shift: u8,
    /// Every segment carries timestamps (RFC 7323 section 3): what to add to this host's clock, milliseconds.
    pub ts_offset: Option<u32>,
    /// Out-of-order data is acknowledged selectively (RFC 2018).
    pub sack: bool,
    /// Data may carry ECN marks (RFC 3168).
    pub ecn: bool,
}

impl Agreed {
    /// The state of the timestamps option with the peer's last clock value, where timestamps were agreed on.
    #[inline]
    pub fn timestamps(&self, recent: u32) -> Option<TimestampState> {
        self.ts_offset.map(|offset| TimestampState { recent, offset })
    }
}

/// A connection's state of the timestamps option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TimestampState {
    /// The peer's clock as last seen: to echo, and for PAWS.
    pub recent: u32,
    /// Added to this host's millisecond clock (`now / 1_000_000`) to give TSval.
    pub offset: u32,
}

impl TimestampState {
    /// The option of a segment that is sent now (RFC 7323 section 5.4: milliseconds).
    #[inline]
    pub fn stamp(&self, now: crate::Nanos) -> Timestamps {
        Timestamps { value: ((now / 1_000_000) as u32).wrapping_add(self.offset), echo: self.recent }
    }
}

/// Timestamps option (RFC 7323 section 3): sender's clock and the echo of the receiver's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the last clock value that the sender got.
    pub echo: u32,
}

/// SACK blocks [left, right) of one header, the most recent first (RFC 2018 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); SackBlocks::ALONE],
    len: u8,
    /// The first one is a D-SACK: it reports what came twice (RFC 2883 section 4).
    dsack: bool,
}

impl SackBlocks {
    /// Blocks that have room in a header beside timestamps.
    pub const BESIDE_TIMESTAMPS: usize = 3;
    /// Blocks that have room in a header without timestamps: 34 of 40 bytes.
    pub const ALONE: usize = 4;

    /// Blocks that have room in a header, with timestamps or without (RFC 2018 section 3).
    pub fn room(timestamps: bool) -> usize {
        if timestamps { SackBlocks::BESIDE_TIMESTAMPS } else { SackBlocks::ALONE }
    }

    /// All blocks, in the order of the header.
    pub fn iter(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.blocks.iter().copied().take(self.len.into())
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The D-SACK block, where there is one.
    pub fn dsack(&self) -> Option<(Seq, Seq)> {
        self.dsack.then_some(self.blocks[0])
    }

    /// The blocks but for a D-SACK.
    pub fn kept(&self) -> impl Iterator<Item = (Seq, Seq)> + '_ {
        self.iter().skip(self.dsack.into())
    }

    /// The D-SACK block `dsack` before blocks of what is kept, as many as four hold.
    pub fn with_dsack(dsack: Option<(Seq, Seq)>, kept: impl IntoIterator<Item = (Seq, Seq)>) -> SackBlocks {
        SackBlocks { dsack: dsack.is_some(), ..dsack.into_iter().chain(kept).collect() }
    }
}

impl FromIterator<(Seq, Seq)> for SackBlocks {
    /// The first four.
    fn from_iter<I: IntoIterator<Item = (Seq, Seq)>>(all: I) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for (slot, block) in blocks.blocks.iter_mut().zip(all) {
            *slot = block;
            blocks.len += 1;
        }
        blocks
    }
}

/// The options that OpenTOE reads; others are skipped by their length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size, bytes of payload; on SYN only.
    pub mss: Option<u16>,
    /// Window scale shift; on SYN only. As received: a value over 14 is to be taken as 14 (RFC 7323 section 2.3).
    pub window_scale: Option<u8>,
    /// SACK permitted; on SYN only.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks [left, right), the most recent first (RFC 2018 section 3).
    pub sack: [Option<(Seq, Seq)>; 4],
    /// Fast Open, on SYN only (RFC 7413 section 4.1.1): a cookie, or an empty one that asks for one.
    pub fast_open: Option<Cookie>,
}

impl Options {
    /// Reads the options area of a header. An option of impossible length makes the whole area malformed
    /// (RFC 9293 section 3.1, MUST-7).
    #[inline]
    pub fn parse(area: &[u8]) -> Result<Options, Malformed> {
        // Nearly all segments of a connection have the timestamps as RFC 7323 appendix A lays them out, or nothing.
        match area {
            [] => Ok(Options::default()),
            [1, 1, 8, 10, stamps @ ..] if stamps.len() == 8 => {
                let timestamps = Some(Timestamps { value: be32(stamps, 0), echo: be32(stamps, 4) });
                Ok(Options { timestamps, ..Options::default() })
            }
            _ => Options::parse_each(area),
        }
    }

    // Meets RFC 9293: MUST-4, MUST-5, MUST-6, MUST-7, MUST-64, MUST-68.
    fn parse_each(mut area: &[u8]) -> Result<Options, Malformed> {
        let mut options = Options::default();
        while let Some(&kind) = area.first() {
            match kind {
                0 => break,
                1 => area = &area[1..],
                _ => {
                    let len = *area.get(1).ok_or(Malformed::Truncated)? as usize;
                    if len < 2 {
                        return Err(Malformed::Field);
                    }
                    if len > area.len() {
                        return Err(Malformed::Truncated);
                    }
                    options.take(kind, &area[2..len])?;
                    area = &area[len..];
                }
            }
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, body: &[u8]) -> Result<(), Malformed> {
        match (kind, body.len()) {
            (2, 2) => self.mss = Some(be16(body, 0)),
            (3, 1) => self.window_scale = Some(body[0]),
            (4, 0) => self.sack_permitted = true,
            (5, 8 | 16 | 24 | 32) => {
                for (slot, block) in self.sack.iter_mut().zip(body.chunks_exact(8)) {
                    *slot = Some((Seq(be32(block, 0)), Seq(be32(block, 4))));
                }
            }
            (8, 8) => self.timestamps = Some(Timestamps { value: be32(body, 0), echo: be32(body, 4) }),
            (2..=5 | 8, _) => return Err(Malformed::Field),
            // One of another length is as if it were not there (RFC 7413 section 4.1.1).
            _ => self.fast_open = Cookie::parse(kind, body).or(self.fast_open),
        }
        Ok(())
    }

    /// Bytes that the options take in a header: a multiple of four.
    pub fn len(&self) -> usize {
        let blocks = self.sack.iter().flatten().count();
        let syn = if self.mss.is_some() { 4 } else { 0 }
            + if self.window_scale.is_some() { 4 } else { 0 }
            // In the place of padding, where there are timestamps.
            + if self.sack_permitted && self.timestamps.is_none() { 4 } else { 0 };
        let timestamps = if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        let fast_open = self.fast_open.map_or(0, |cookie| cookie.option_len());
        syn + timestamps + fast_open + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// The block nearest to the hole that begins at `ack`; what lies below `ack` reports duplicates (RFC 2883).
    pub fn lowest_block_above(&self, ack: Seq) -> Option<(Seq, Seq)> {
        let mut lowest: Option<(Seq, Seq)> = None;
        for (left, right) in self.sack.iter().flatten().copied() {
            let lower = lowest.is_none_or(|(least, _)| left.before(least));
            if ack.before(left) && left.before(right) && lower {
                lowest = Some((left, right));
            }
        }
        lowest
    }

    /// The blocks of a segment that acknowledges up to `ack`. The first one is a D-SACK where it begins below `ack`, or
    /// lies within the second one (RFC 2883 section 4). Of the others, those above `ack`.
    // Meets RFC 2883: 5-a.
    pub fn sack_blocks(&self, ack: Seq) -> SackBlocks {
        let whole = |(left, right): &(Seq, Seq)| left.before(*right);
        let first = self.sack[0].filter(whole);
        let within = |(left, right): (Seq, Seq)| {
            let second = self.sack[1].filter(whole);
            second.is_some_and(|(from, to)| from.at_or_before(left) && right.at_or_before(to))
        };
        let dsack = first.filter(|block| block.0.before(ack) || within(*block));
        let above = |block: &(Seq, Seq)| ack.before(block.0) && whole(block);
        let kept = self.sack.iter().skip(dsack.is_some().into()).flatten().copied().filter(above);
        SackBlocks::with_dsack(dsack, kept)
    }

    /// There is no option.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the options, padded to words, into `area`, which must have [`Options::len`] bytes. Their order is the one
    /// that most hosts of the Internet use on SYN: middleboxes expect it, and tests of whole packets expect it.
    // Meets RFC 9293: MUST-69.
    fn emit(&self, area: &mut [u8]) {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            area[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[2, 4]);
            put(&mss.to_be_bytes());
        }
        // SACK-permitted takes the place of the padding before timestamps, where there are some.
        match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => put(&[4, 2]),
            (true, None) => put(&[1, 1, 4, 2]),
            (false, Some(_)) => put(&[1, 1]),
            (false, None) => {}
        }
        if let Some(Timestamps { value, echo }) = self.timestamps {
            put(&[8, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[1, 3, 3, shift]);
        }
        if let Some(cookie) = &self.fast_open {
            cookie.emit(&mut put);
        }
        let blocks = self.sack.iter().flatten().count() as u8;
        if blocks > 0 {
            put(&[1, 1, 5, 2 + 8 * blocks]);
            for (left, right) in self.sack.iter().flatten() {
                put(&left.0.to_be_bytes());
                put(&right.0.to_be_bytes());
            }
        }
    }
}

/// A TCP header. The checksum is not part of the value: see [`crate::checksum`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte of payload, or of SYN or FIN.
    pub seq: Seq,
    /// Next sequence number expected; valid with [`Flags::ACK`].
    pub ack: Seq,
    /// Control bits.
    pub flags: Flags,
    /// Receive window as it stands in the header: not yet scaled.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Header {
    /// Reads a header; returns it with its length in bytes. The checksum is not checked here.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Header, usize), Malformed> {
        if bytes.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let header_len = (bytes[12] >> 4) as usize * 4;
        if header_len < HEADER_LEN {
            return Err(Malformed::Field);
        }
        if bytes.len() < header_len {
            return Err(Malformed::Truncated);
        }
        let header = Header {
            src_port: be16(bytes, 0),
            dst_port: be16(bytes, 2),
            seq: Seq(be32(bytes, 4)),
            ack: Seq(be32(bytes, 8)),
            flags: Flags(bytes[13]),
            window: be16(bytes, 14),
            options: Options::parse(&bytes[HEADER_LEN..header_len])?,
        };
        Ok((header, header_len))
    }

    /// Bytes that [`Header::emit`] writes.
    pub fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// A header is never empty; for symmetry with [`Header::len`].
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Writes the header with a zero checksum; returns its length in bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> usize {
        let len = self.len();
        debug_assert!(len <= MAX_HEADER_LEN);
        bytes[0..2].copy_from_slice(&self.src_port.to_be_bytes());
        bytes[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        bytes[12] = (len as u8 / 4) << 4;
        bytes[13] = self.flags.0;
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        bytes[16..20].copy_from_slice(&[0; 4]);
        self.options.emit(&mut bytes[HEADER_LEN..len]);
        len
    }
}

/// Changes the window scale option of a whole header, where it has one.
pub fn set_window_scale(header: &mut [u8], scale: u8) {
    set_option(header, 3, &[scale]);
}

/// Changes the maximum segment size option of a whole header, where it has one.
pub fn set_mss(header: &mut [u8], mss: u16) {
    set_option(header, 2, &mss.to_be_bytes());
}

/// Changes an option's value, where the header has one of this length.
fn set_option(header: &mut [u8], kind: u8, value: &[u8]) {
    let end = header.get(DATA_OFFSET_AT).map_or(0, |offset| usize::from(offset >> 4) * 4).min(header.len());
    let mut at = HEADER_LEN;
    while at < end && header[at] != 0 {
        if header[at] == 1 {
            at += 1;
            continue;
        }
        let Some(len) = header[..end].get(at + 1).map(|len| usize::from(*len)).filter(|len| *len >= 2) else {
            return;
        };
        if header[at] == kind && len == 2 + value.len() && at + len <= end {
            header[at + 2..at + len].copy_from_slice(value);
        }
        at += len;
    }
}

/// Gives a header (at least [`HEADER_LEN`] bytes) another sequence number and other flags, options kept, and puts
/// `checksum` into its field: for cutting a super-segment.
pub fn set_segment(header: &mut [u8], seq: Seq, flags: Flags, checksum: u16) {
    header[4..8].copy_from_slice(&seq.0.to_be_bytes());
    header[13] = flags.0;
    header[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_option_that_is_named_changes() {
        let options = Options { mss: Some(1460), window_scale: Some(10), sack_permitted: true, ..Options::default() };
        let (seq, ack, flags, window) = (Seq(1), Seq(2), Flags::SYN, 3);
        let header = Header { src_port: 1, dst_port: 2, seq, ack, flags, window, options };
        let mut bytes = [0; MAX_HEADER_LEN];
        let len = header.emit(&mut bytes);
        set_window_scale(&mut bytes[..len], 6);
        let expected = Header { options: Options { window_scale: Some(6), ..options }, ..header };
        assert_eq!(Header::parse(&bytes[..len]), Ok((expected, len)));
        set_mss(&mut bytes[..len], 1444);
        let expected = Header { options: Options { mss: Some(1444), ..expected.options }, ..header };
        assert_eq!(Header::parse(&bytes[..len]), Ok((expected, len)));
        // Cut short, or of impossible lengths: nothing, and no panic.
        for cut in 0..len {
            set_window_scale(&mut bytes[..cut], 7);
            set_mss(&mut bytes[..cut], 7);
        }
        bytes[HEADER_LEN + 1] = 0;
        set_window_scale(&mut bytes[..len], 8);
    }

    // Checks RFC 9293: MUST-4, MUST-5, MUST-69.
    #[test]
    fn a_header_with_every_option_comes_back() {
        let header = Header {
            src_port: 1,
            dst_port: 65535,
            seq: Seq(7),
            ack: Seq(u32::MAX),
            flags: Flags::SYN | Flags::ACK | Flags::ECE,
            window: 4242,
            options: Options {
                mss: Some(1460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: Some(Timestamps { value: 5, echo: 6 }),
                sack: [Some((Seq(1), Seq(2))), None, None, None],
                fast_open: None,
            },
        };
        let mut bytes = [0u8; MAX_HEADER_LEN];
        let len = header.emit(&mut bytes);
        assert_eq!(Header::parse(&bytes[..len]), Ok((header, len)));
    }

    #[test]
    fn options_of_a_syn_stand_in_the_usual_order() {
        let timestamps = Some(Timestamps { value: 0x0102_0304, echo: 0 });
        let all = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps,
            sack: Default::default(),
            fast_open: None,
        };
        let bytes = |options: Options| {
            let mut area = vec![0; options.len()];
            options.emit(&mut area);
            assert_eq!(Options::parse(&area), Ok(options));
            area
        };
        let stamps = [8, 10, 1, 2, 3, 4, 0, 0, 0, 0];
        let (mss, shift) = ([2, 4, 5, 180], [1, 3, 3, 7]);
        assert_eq!(bytes(all), [&mss[..], &[4, 2], &stamps, &shift].concat());
        assert_eq!(bytes(Options { timestamps: None, ..all }), [&mss[..], &[1, 1, 4, 2], &shift].concat());
        assert_eq!(bytes(Options { sack_permitted: false, ..all }), [&mss[..], &[1, 1], &stamps, &shift].concat());
        let plain = Options { timestamps, ..Options::default() };
        assert_eq!(bytes(plain), [&[1, 1][..], &stamps].concat());
        let with = |cookie: &[u8]| bytes(Options { fast_open: Cookie::new(cookie), ..all });
        let before = [&mss[..], &[4, 2], &stamps, &shift].concat();
        assert_eq!(with(&[]), [&before[..], &[34, 2, 1, 1]].concat());
        assert_eq!(with(&[7; 8]), [&before[..], &[34, 10], &[7; 8], &[1, 1]].concat());
        assert_eq!(with(&[7; 6]), [&before[..], &[34, 8], &[7; 6]].concat());
        assert_eq!(HEADER_LEN + with(&[7; 16]).len(), MAX_HEADER_LEN, "the longest one just fits");
    }

    // Checks RFC 9293: MUST-6, MUST-7, MUST-68, MUST-64.
    #[test]
    fn impossible_option_lengths_are_malformed() {
        assert_eq!(Options::parse(&[8, 0, 0, 0]), Err(Malformed::Field));
        assert_eq!(Options::parse(&[8, 10, 0, 0]), Err(Malformed::Truncated));
        assert_eq!(Options::parse(&[2, 3, 0, 0]), Err(Malformed::Field));
        assert_eq!(Options::parse(&[1, 1, 1, 99]), Err(Malformed::Truncated));
        assert_eq!(Options::parse(&[99, 4, 0, 0]), Ok(Options::default()));
        // Checks RFC 7413: 4.1.1-a.
        for no_cookie in
            [&[34, 4, 0, 0][..], &[34, 5, 0, 0, 0], &[34, 7, 1, 2, 3, 4, 5], &[[34, 20].as_slice(), &[0; 18]].concat()]
        {
            assert_eq!(Options::parse(no_cookie), Ok(Options::default()), "{no_cookie:?}");
        }
    }
}
