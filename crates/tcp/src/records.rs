//! Ends of records that a program marks as it writes them (`MSG_EOR`). No segment goes on beyond one when it is sent
//! first. To TCP that is only a choice of how the stream is cut: a peer sees no records (RFC 9293 section 3.9.1.2).
use std::collections::VecDeque;
use wire::Seq;

/// Ends that are kept. Of more, the later ones are ends of writes like all others.
const MOST: usize = 256;

/// Ends of the records of a stream that are not acknowledged, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordEnds(VecDeque<Seq>);

impl RecordEnds {
    /// A record ends before `end`. Those behind an earlier end only.
    pub fn push(&mut self, end: Seq) {
        if self.0.len() < MOST && self.0.back().is_none_or(|last| last.before(end)) {
            self.0.push_back(end);
        }
    }

    /// Of a segment that begins at `seq`, as many of its `len` bytes as lie before the next end.
    pub fn bound(&self, seq: Seq, len: u32) -> u32 {
        let next = self.0.iter().find(|end| seq.before(**end));
        next.map_or(len, |end| len.min(*end - seq))
    }

    /// All before `una` is acknowledged. Whether there are ends still.
    pub fn pass(&mut self, una: Seq) -> bool {
        while self.0.front().is_some_and(|end| end.at_or_before(una)) {
            self.0.pop_front();
        }
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Seq = Seq(u32::MAX - 100);

    #[test]
    fn a_segment_goes_as_far_as_its_record() {
        let mut ends = RecordEnds::default();
        assert_eq!(ends.bound(BEGIN, 1000), 1000);
        [400, 300, 400, 900].into_iter().for_each(|end| ends.push(BEGIN + end));
        let bounds = [(0, 400), (399, 1), (400, 500), (900, 1000)];
        assert_eq!(bounds.map(|(at, _)| (at, ends.bound(BEGIN + at, 1000))), bounds, "300 came too late");
        assert_eq!(ends.bound(BEGIN, 10), 10);
        assert!(ends.pass(BEGIN + 400));
        assert_eq!(ends.bound(BEGIN, 1000), 900);
        assert!(!ends.pass(BEGIN + 900));
    }

    #[test]
    fn there_are_so_many_at_most() {
        let mut ends = RecordEnds::default();
        (1..=2 * MOST as u32).for_each(|end| ends.push(BEGIN + end));
        assert_eq!(ends.bound(BEGIN + MOST as u32 - 1, 1000), 1);
        assert_eq!(ends.bound(BEGIN + MOST as u32, 1000), 1000);
    }
}
