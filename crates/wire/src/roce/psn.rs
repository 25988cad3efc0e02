//! Packet sequence numbers: 24 bits, compared around the circle (IBTA 1.3, 9.7.2).

/// A packet sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Bits that count.
    pub const MASK: u32 = 0xff_ffff;

    /// The number of these low 24 bits.
    #[inline]
    pub const fn new(bits: u32) -> Psn {
        Psn(bits & Psn::MASK)
    }

    /// Its 24 bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// So many packets later.
    #[inline]
    pub const fn plus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_add(packets))
    }

    /// So many packets earlier.
    #[inline]
    pub const fn minus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(packets))
    }

    /// Packets from `earlier` to here; negative where that one is later: -2^23 to 2^23 - 1.
    // Meets IBTA: 9.7.2-a.
    #[inline]
    pub const fn since(self, earlier: Psn) -> i32 {
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks IBTA: 9.7.2-a.
    #[test]
    fn numbers_wrap_at_24_bits() {
        let last = Psn::new(0xff_ffff);
        assert_eq!((last.plus(1), Psn::new(0).minus(1)), (Psn::new(0), last));
        assert_eq!((Psn::new(1).since(last), last.since(Psn::new(1))), (2, -2));
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -(1 << 23));
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), (1 << 23) - 1);
        assert_eq!(Psn::new(u32::MAX), last);
    }
}
