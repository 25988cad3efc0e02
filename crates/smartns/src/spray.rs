//! Packet spraying: packets with payload take several paths in turn, by their UDP source ports (docs/RDMA.md,
//! "Spraying"). So packets come out of order without a loss, and what shows one is a later packet of the same path.
use engine::Nanos;
use wire::roce::Psn;

/// For so long a path is left that carried nothing.
const LEFT_FOR: Nanos = 1_000_000_000;
/// Packets of a path that have to be missing before it is left.
const SHOWS_FAILURE: u32 = 2;

/// An answer to a read of more than this part of a window is long.
const LONG_PART: u32 = 8;

/// A read of so many packets is answered by one path. The peer keeps a window of what comes too early, and no window
/// bounds the answers of several reads.
pub(crate) fn is_long_read(packets: u32, window: u32) -> bool {
    packets > window / LONG_PART
}

/// Bits of the packets that take the same path as the packet before bit 0: every 2^`spray`-th.
fn same_path(spray: u8) -> u128 {
    let mut bits = 1u128 << ((1u32 << spray) - 1);
    let mut step = 1u32 << spray;
    while step < u128::BITS {
        bits |= bits << step;
        step *= 2;
    }
    bits
}

/// A packet is missing, and those of `later` behind it came: a bit each, the lowest for the next one. Whether that
/// shows a loss, where packets of one path stay in order.
pub(crate) fn shows_loss(later: u128, spray: u8) -> bool {
    later & same_path(spray) != 0
}

/// The paths of a queue pair's packets.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Paths {
    /// A bit for each path that is left, for it carried nothing.
    left: u128,
    until: Nanos,
}

impl Paths {
    /// All paths are used.
    pub(crate) fn are_whole(&self) -> bool {
        self.left == 0
    }

    /// The path's number for a packet: 2^`spray` paths in turn, those that are left out.
    pub(crate) fn of(&self, psn: Psn, spray: u8) -> Psn {
        let mut psn = psn;
        for _ in 0..1u32 << spray {
            if self.left >> (psn.bits() & ((1 << spray) - 1)) & 1 == 0 {
                break;
            }
            psn = psn.plus(1);
        }
        psn
    }

    /// Nothing was acknowledged for long. `missing` is the oldest packet that is not there, `came` has those behind it
    /// that are. Leaves paths of which several packets are missing and none came, unless that is all of them.
    pub(crate) fn find_failed(&mut self, missing: Psn, came: u128, spray: u8, now: Nanos) {
        let (paths, newest) = (1u32 << spray, u128::BITS - came.leading_zeros());
        let mut failed = self.left;
        for path in 0..paths {
            // From the missing packet on, which is number 0; bit `at - 1` is packet `at`.
            let of_path = |at: &u32| missing.plus(*at).bits() & (paths - 1) == path;
            let (mut gone, mut there) = (0, 0);
            for at in (0..=newest).filter(of_path) {
                let came = at > 0 && came >> (at - 1) & 1 == 1;
                (gone, there) = (gone + u32::from(!came), there + u32::from(came));
            }
            if gone >= SHOWS_FAILURE && there == 0 {
                failed |= 1 << path;
            }
        }
        if failed.count_ones() < paths {
            (self.left, self.until) = (failed, now + LEFT_FOR);
        }
    }

    /// Paths that were left are tried again after some time.
    pub(crate) fn try_again(&mut self, now: Nanos) {
        if self.left != 0 && self.until <= now {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_shows_by_a_later_packet_of_the_same_path() {
        assert!(shows_loss(1, 0) && shows_loss(0b100, 0) && !shows_loss(0, 0));
        assert!(!shows_loss(0b0111, 2) && shows_loss(0b1000, 2) && shows_loss(1 << 7, 2) && !shows_loss(1 << 8, 2));
        assert!(shows_loss(1 << 127, 3) && shows_loss(1 << 127, 7) && !shows_loss(u128::MAX >> 1, 7));
    }

    #[test]
    fn a_path_that_carries_nothing_is_left_for_a_while() {
        let (mut paths, missing) = (Paths::default(), Psn::new(5));
        // Of 5 to 12, over four paths: 5 and 9 are missing, which are path 1.
        paths.find_failed(missing, 0b111_0111, 2, 100);
        assert!(!paths.are_whole());
        let used = |paths: &Paths| (0..8).map(|at| paths.of(Psn::new(at), 2).bits() & 3).collect::<Vec<u32>>();
        assert_eq!(used(&paths), [0, 2, 2, 3, 0, 2, 2, 3]);
        paths.try_again(LEFT_FOR);
        assert!(!paths.are_whole());
        paths.try_again(LEFT_FOR + 100);
        assert_eq!(used(&paths), [0, 1, 2, 3, 0, 1, 2, 3]);
        // One packet may be lost, and where nothing comes at all, no path is better.
        paths.find_failed(missing, 0b111_1111, 2, 0);
        assert!(paths.are_whole());
        paths.find_failed(missing, 0, 2, 0);
        assert!(paths.are_whole());
    }
}
