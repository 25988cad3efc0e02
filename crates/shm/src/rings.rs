//! The rings that a stream may go through, as numbers and places.

/// Bytes that should be under way at most in a small ring of so many bytes. A fuller one is always being read and
/// written around its end, and written where the other side has just read. A stream of many messages under way does
/// better in a full one.
pub fn ease(small: u32) -> u32 {
    small / 8
}

/// The rings of a stream, in the order in which it goes through them: numbers of the word that both sides read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The small ring in which a stream may begin.
    Small,
    /// The ring of the size that its direction usually has.
    Full,
    /// The ring for more than that.
    Large,
}

impl Level {
    /// Meaning of the word; nonsense is the last one.
    pub fn of(word: u32) -> Level {
        match word {
            0 => Level::Small,
            1 => Level::Full,
            _ => Level::Large,
        }
    }
}

/// The rings in a region that a stream may go through: the first byte and the size of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Where it begins, where it does not begin in the full one. A power of two of at least a line of the cache.
    pub small: Option<(usize, usize)>,
    /// As [`crate::ByteRing::map`] asks for.
    pub full: (usize, usize),
    /// Likewise, and larger than that one.
    pub large: Option<(usize, usize)>,
    /// The word with its ring ([`Level`]).
    pub word: usize,
}

/// A ring in which a stream may go on.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Its place in the region, in pages.
    pub page: u32,
    /// Bytes.
    pub size: u32,
}
