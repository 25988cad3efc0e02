//! Out-of-order intervals of the stream, placed ahead of a hole: in order, and apart from each other.
use wire::Seq;

/// Intervals `[start, end)` above the first hole. Few: each is a loss or a frame that was overtaken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OutOfOrder(Vec<(Seq, Seq)>);

impl OutOfOrder {
    /// Adds an interval; those that it touches become one with it.
    pub(super) fn add(&mut self, mut start: Seq, mut end: Seq) {
        let from = self.0.iter().position(|held| start.at_or_before(held.1)).unwrap_or(self.0.len());
        let mut to = from;
        while let Some(held) = self.0.get(to).filter(|held| held.0.at_or_before(end)) {
            start = if held.0.before(start) { held.0 } else { start };
            end = end.max(held.1);
            to += 1;
        }
        self.0.splice(from..to, [(start, end)]);
    }

    /// Everything up to `frontier` is placed: takes out what that reaches, and returns how far it goes on.
    pub(super) fn join(&mut self, mut frontier: Seq) -> Seq {
        let reached = self.0.iter().take_while(|held| {
            let joins = held.0.at_or_before(frontier);
            frontier = if joins { frontier.max(held.1) } else { frontier };
            joins
        });
        let count = reached.count();
        self.0.drain(..count);
        frontier
    }

    /// Intervals.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_join_also_around_the_wrap() {
        for base in [0, u32::MAX - 10] {
            let at = |n: u32| Seq(base) + n;
            let mut placed = OutOfOrder::default();
            for (start, end) in [(20, 22), (4, 6), (10, 12), (6, 8), (21, 25)] {
                placed.add(at(start), at(end));
            }
            assert_eq!(placed.0, [(at(4), at(8)), (at(10), at(12)), (at(20), at(25))]);
            assert_eq!(placed.join(at(3)), at(3));
            assert_eq!(placed.join(at(5)), at(8));
            placed.add(at(9), at(30));
            assert_eq!((placed.join(at(10)), placed.len()), (at(30), 0));
        }
    }
}
