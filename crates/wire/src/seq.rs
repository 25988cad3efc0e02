//! TCP sequence numbers (RFC 9293 section 3.4): 32 bits, compared modulo 2^32.
use std::ops::{Add, AddAssign, Sub};

/// A sequence number. Ordering is by the sign of the wrapped difference, so it is only meaningful for
/// numbers less than 2^31 apart; there is deliberately no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Seq(pub u32);

impl Seq {
    /// `self < other` in sequence space.
    #[inline]
    pub fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
    /// `self <= other` in sequence space.
    #[inline]
    pub fn at_or_before(self, other: Seq) -> bool {
        !other.before(self)
    }
    /// The later of the two.
    #[inline]
    pub fn max(self, other: Seq) -> Seq {
        if self.before(other) { other } else { self }
    }
    /// `start <= self < start + len`.
    #[inline]
    pub fn within(self, start: Seq, len: u32) -> bool {
        self - start < len
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }
}
impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}
impl Sub<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn sub(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_sub(bytes))
    }
}
impl Sub<Seq> for Seq {
    type Output = u32;
    /// Bytes from `other` up to `self`, modulo 2^32.
    #[inline]
    fn sub(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn order_survives_the_wrap() {
        let a = Seq(u32::MAX - 1);
        let b = a + 4;
        assert!(a.before(b) && !b.before(a) && a.at_or_before(a));
        assert_eq!(b - a, 4);
        assert_eq!(a.max(b), b);
        assert!(b.within(a, 5) && !b.within(a, 4) && !a.within(b, 5));
    }
}
