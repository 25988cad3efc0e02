//! Polling order of contexts: whose rings are polled in a round. Polling an empty ring costs little, but polling
//! hundreds of idle programs would cost more than the one that works. So of those that have been quiet for a while,
//! only some are polled in each round, in turn.

/// So few are polled in every round, whatever they do.
const FEW: usize = 16;
/// Of more, one that has left nothing in so many rounds counts as quiet.
const QUIET_ROUNDS: u32 = 256;
/// Quiet ones that are polled in a round.
const QUIET_POLLS: usize = 8;

/// Result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polled {
    /// Nothing.
    Nothing,
    /// Something, which was taken.
    Some,
    /// Something, and more than there is room for in this round: it is over, and the next round begins with the next
    /// one.
    Full,
    /// There is no such context any more: it is not polled again.
    Gone,
}

/// The contexts of a host, by their numbers, in the order in which they are polled.
#[derive(Debug, Default)]
pub struct PollList {
    /// Polled in every round, with the number of rounds in which each left nothing.
    lively: Vec<(u32, u32)>,
    quiet: std::collections::VecDeque<u32>,
    /// The first of the active ones in the next round.
    first: usize,
}

impl PollList {
    /// A context comes.
    pub fn add(&mut self, context: u32) {
        self.remove(context);
        self.lively.push((context, 0));
    }

    /// A context goes.
    pub fn remove(&mut self, context: u32) {
        self.lively.retain(|(other, _)| *other != context);
        self.quiet.retain(|other| *other != context);
    }

    /// All that there are.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.lively.iter().map(|(context, _)| *context).chain(self.quiet.iter().copied())
    }

    /// One round. `poll` takes what a context has left.
    #[inline]
    pub fn round(&mut self, mut poll: impl FnMut(u32) -> Polled) {
        if !self.quiet.is_empty() && self.poll_quiet(&mut poll) {
            return;
        }
        let (count, mut gone) = (self.lively.len(), false);
        for _ in 0..count {
            if self.first >= count {
                self.first = 0;
            }
            let (context, empty) = &mut self.lively[self.first];
            self.first += 1;
            match poll(*context) {
                Polled::Nothing => *empty += 1,
                Polled::Some => *empty = 0,
                Polled::Full => {
                    *empty = 0;
                    break;
                }
                Polled::Gone => (*context, gone) = (u32::MAX, true),
            }
        }
        if gone || count > FEW {
            self.sort_out();
        }
    }

    /// Some of the quiet ones are polled; true where the round is over.
    #[cold]
    fn poll_quiet(&mut self, poll: &mut impl FnMut(u32) -> Polled) -> bool {
        for _ in 0..self.quiet.len().min(QUIET_POLLS) {
            let Some(context) = self.quiet.pop_front() else { break };
            match poll(context) {
                Polled::Nothing => self.quiet.push_back(context),
                Polled::Some => self.lively.push((context, 0)),
                Polled::Full => {
                    self.lively.push((context, 0));
                    return true;
                }
                Polled::Gone => {}
            }
        }
        false
    }

    #[cold]
    fn sort_out(&mut self) {
        let (lively, quiet) = (&mut self.lively, &mut self.quiet);
        let many = lively.len() > FEW;
        lively.retain(|(context, empty)| {
            let leaves = many && *empty >= QUIET_ROUNDS && *context != u32::MAX;
            if leaves {
                quiet.push_back(*context);
            }
            !leaves && *context != u32::MAX
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Polls of each context in so many rounds; those of `busy` always have something.
    fn polls(poll_list: &mut PollList, rounds: u32, busy: impl Fn(u32) -> bool) -> BTreeMap<u32, u32> {
        let mut seen = BTreeMap::new();
        for _ in 0..rounds {
            poll_list.round(|context| {
                *seen.entry(context).or_default() += 1;
                if busy(context) { Polled::Some } else { Polled::Nothing }
            });
        }
        seen
    }

    #[test]
    fn a_few_are_polled_in_every_round() {
        let mut poll_list = PollList::default();
        (0..FEW as u32).for_each(|context| poll_list.add(context));
        assert!(polls(&mut poll_list, 1000, |_| false).values().all(|count| *count == 1000));
    }

    #[test]
    fn of_many_the_quiet_ones_cost_little_and_none_is_forgotten() {
        let mut poll_list = PollList::default();
        (0..256).for_each(|context| poll_list.add(context));
        polls(&mut poll_list, QUIET_ROUNDS + 1, |context| context == 7);
        let seen = polls(&mut poll_list, 1024, |context| context == 7);
        assert_eq!(seen[&7], 1024);
        assert!(seen.values().sum::<u32>() < 1024 * (FEW + QUIET_POLLS + 2) as u32);
        assert_eq!(seen.len(), 256);
        let most = (256 / QUIET_POLLS) as u32 + 1;
        let seen = polls(&mut poll_list, most, |_| false);
        assert_eq!(seen.len(), 256, "each is polled within {most} rounds");
        // One that wakes is lively at once.
        polls(&mut poll_list, most, |context| context == 99);
        assert_eq!(polls(&mut poll_list, 10, |context| context == 99)[&99], 10);
    }

    #[test]
    fn a_round_that_is_over_begins_with_the_next_one() {
        let mut poll_list = PollList::default();
        (0..4).for_each(|context| poll_list.add(context));
        let mut order = Vec::new();
        for _ in 0..8 {
            poll_list.round(|context| {
                order.push(context);
                Polled::Full
            });
        }
        assert_eq!(order, [0, 1, 2, 3, 0, 1, 2, 3]);
    }

    #[test]
    fn one_that_is_gone_is_not_polled_and_may_come_back() {
        let mut poll_list = PollList::default();
        (0..40).for_each(|context| poll_list.add(context));
        polls(&mut poll_list, 2 * QUIET_ROUNDS, |context| context < 3);
        poll_list.round(|context| if context == 2 { Polled::Gone } else { Polled::Nothing });
        poll_list.remove(1);
        poll_list.remove(30);
        assert!(!poll_list.iter().any(|context| [1, 2, 30].contains(&context)));
        poll_list.add(30);
        poll_list.add(30);
        assert_eq!(poll_list.iter().filter(|context| *context == 30).count(), 1);
        assert_eq!(poll_list.iter().count(), 38);
        assert_eq!(polls(&mut poll_list, 1, |_| true)[&30], 1);
    }
}
