//! Reassembly: the ranges that a receiver has beyond holes, and the SACK blocks that report them (RFC 2018).
use crate::few::Few;
use wire::Seq;
use wire::tcp::SackBlocks;

/// Ranges that there is room for.
const MOST: usize = 32;

/// Ranges of sequence numbers beyond the next one that is expected: apart from each other, and none empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reassembly {
    /// The one that changed last is first: the order in which they are reported (RFC 2018 section 4).
    ranges: Few<(Seq, Seq), MOST>,
}

impl Reassembly {
    /// Nothing is there.
    pub const fn new() -> Reassembly {
        Reassembly { ranges: Few::new() }
    }

    /// Nothing lies beyond a hole.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes from `left` on and before `right` came. False where that would be more than `most` ranges: then they count
    /// as lost.
    pub fn insert(&mut self, left: Seq, right: Seq, most: u8) -> bool {
        let apart = |&(from, to): &(Seq, Seq)| to.before(left) || right.before(from);
        if self.ranges.iter().filter(|range| apart(range)).count() >= MOST.min(most.into()) {
            return false;
        }
        let mut whole = (left, right);
        while let Some(at) = self.ranges.iter().position(|range| !apart(range)) {
            let range = self.ranges[at];
            let first = if range.0.before(whole.0) { range.0 } else { whole.0 };
            whole = (first, whole.1.max(range.1));
            self.ranges.remove(at, 1);
        }
        self.ranges.insert(0, whole);
        true
    }

    /// Of the bytes from `left` on and before `right`, the first in a row that are there already.
    pub fn overlap(&self, left: Seq, right: Seq) -> Option<(Seq, Seq)> {
        let least = |one: Seq, other: Seq| if one.before(other) { one } else { other };
        let parts = self.ranges.iter().map(|range| (range.0.max(left), least(range.1, right)));
        parts.filter(|(from, to)| from.before(*to)).reduce(|one, other| if other.0.before(one.0) { other } else { one })
    }

    /// Everything before `next` has come. Returns what is expected then: ranges that the hole before them
    /// kept apart are part of the stream now.
    pub fn advance(&mut self, mut next: Seq) -> Seq {
        while let Some(at) = self.ranges.iter().position(|range| range.0.at_or_before(next)) {
            next = next.max(self.ranges[at].1);
            self.ranges.remove(at, 1);
        }
        next
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        self.ranges.truncate(0);
    }

    /// After the last byte that is there.
    pub fn end(&self) -> Option<Seq> {
        self.ranges.iter().map(|range| range.1).reduce(Seq::max)
    }

    /// The SACK blocks of an acknowledgement that has room for `most`. The range that changed last is first, and as
    /// many others follow as have room. Before them all comes what the segment that is answered brought once more.
    // Meets RFC 2018: 4-a, 4-b, 4-c, 4-d.
    // Meets RFC 2883: 4-a, 4-b, 4-c.
    pub fn blocks(&self, dsack: Option<(Seq, Seq)>, most: usize) -> SackBlocks {
        let room = most.saturating_sub(dsack.is_some().into());
        SackBlocks::with_dsack(dsack, self.ranges.iter().copied().take(room))
    }

    /// The lowest range: what lies before it is missing.
    pub fn first(&self) -> Option<(Seq, Seq)> {
        self.ranges.iter().copied().reduce(|one, other| if one.0.before(other.0) { one } else { other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NEXT: Seq = Seq(u32::MAX - 20);
    const MANY: u8 = u8::MAX;

    fn at(off: u32) -> Seq {
        NEXT + off
    }

    // Checks RFC 2018: 4-a, 4-b, 4-c, 4-d.
    #[test]
    fn the_range_that_changed_last_is_reported_first() {
        let mut reassembly = Reassembly::new();
        for off in [10, 30, 50, 70] {
            assert!(reassembly.insert(at(off), at(off + 5), MANY));
        }
        assert!(reassembly.insert(at(35), at(40), MANY));
        let expected = [(at(30), at(40)), (at(70), at(75)), (at(50), at(55)), (at(10), at(15))];
        for most in [3, 4] {
            assert_eq!(reassembly.blocks(None, most).iter().collect::<Vec<_>>(), expected[..most]);
        }
        assert_eq!((reassembly.first(), reassembly.end()), (Some((at(10), at(15))), Some(at(75))));
    }

    // Checks RFC 2883: 4-a, 4-b, 4-c.
    #[test]
    fn what_came_twice_is_reported_before_all_else() {
        let mut reassembly = Reassembly::new();
        for off in [10, 30, 50, 70] {
            reassembly.insert(at(off), at(off + 5), MANY);
        }
        assert_eq!(reassembly.overlap(at(31), at(33)), Some((at(31), at(33))));
        assert_eq!(reassembly.overlap(at(8), at(40)), Some((at(10), at(15))), "the first of them");
        assert_eq!(reassembly.overlap(at(15), at(30)), None);
        let blocks = reassembly.blocks(Some((at(31), at(33))), 3);
        assert_eq!(blocks.dsack(), Some((at(31), at(33))));
        assert_eq!(blocks.iter().collect::<Vec<_>>(), [(at(31), at(33)), (at(70), at(75)), (at(50), at(55))]);
    }

    #[test]
    fn one_range_too_many_is_refused_and_one_that_touches_is_not() {
        let mut reassembly = Reassembly::new();
        for at_most in 0..MOST as u32 {
            assert!(reassembly.insert(at(10 * at_most + 10), at(10 * at_most + 15), MANY));
        }
        assert!(!reassembly.insert(at(1000), at(1001), MANY));
        assert!(reassembly.insert(at(15), at(20), MANY), "it joins two");
        assert!(reassembly.insert(at(1000), at(1001), MANY));
        assert_eq!(reassembly.advance(at(10)), at(25));
    }

    #[test]
    fn one_range_grows_at_both_ends_and_none_is_beside_it() {
        let mut reassembly = Reassembly::new();
        assert!(!reassembly.insert(at(10), at(20), 0), "what is out of order is dropped");
        assert!(reassembly.insert(at(10), at(20), 1));
        assert!(!reassembly.insert(at(30), at(40), 1) && !reassembly.insert(at(1), at(9), 1));
        assert!(reassembly.insert(at(20), at(25), 1) && reassembly.insert(at(5), at(10), 1));
        assert_eq!((reassembly.first(), reassembly.end()), (Some((at(5), at(25))), Some(at(25))));
    }

    proptest! {
        /// Beside a plain map of bytes.
        #[test]
        fn ranges_are_those_of_a_map_of_bytes(
            parts in prop::collection::vec((1..60u32, 1..8u32, any::<bool>()), 1..80),
        ) {
            let (mut reassembly, mut map, mut next) = (Reassembly::new(), [false; 80], 0u32);
            for (off, len, fills) in parts {
                let off = if fills { next } else { off.max(next + 1) };
                let end = (off + len).min(79);
                if off >= end {
                    continue;
                }
                if fills {
                    map[off as usize..end as usize].fill(true);
                    let after = map[next as usize..].iter().take_while(|byte| **byte).count() as u32;
                    prop_assert_eq!(reassembly.advance(at(end)), at(next + after));
                    next += after;
                } else if reassembly.insert(at(off), at(end), MANY) {
                    map[off as usize..end as usize].fill(true);
                    let (left, right) = reassembly.blocks(None, 3).iter().next().unwrap();
                    prop_assert!(left.at_or_before(at(off)) && at(end).at_or_before(right));
                }
                let mut held = [false; 80];
                held[..next as usize].fill(true);
                for (left, right) in reassembly.ranges.iter() {
                    held[(*left - NEXT) as usize..(*right - NEXT) as usize].fill(true);
                }
                prop_assert_eq!(held, map);
            }
        }
    }
}
