//! The NIC's half beside a plain map of bytes: every short sequence of arrivals, posts and cursor moves, and long
//! random ones. Transports and control stacks that lie are among them: an `Advance` may name any byte.
mod support;

use proptest::prelude::*;
use support::{Pair, Step};
use wire::Seq;

/// A stream of `bytes` bytes: all arrivals of it, posts of these lengths, and all moves of the cursor up to one byte
/// beyond the stream.
fn steps(bytes: i64, posts: &[(usize, u8)]) -> Vec<Step> {
    let arrivals = (0..bytes).flat_map(|from| (from + 1..=bytes).map(move |to| Step::Arrive(from, to)));
    let moves = (1..=bytes + 1).map(Step::Advance);
    arrivals.chain(posts.iter().map(|(region, len)| Step::Post(*region, *len))).chain(moves).collect()
}

fn every_sequence(pair: &Pair, steps: &[Step], depth: usize) -> u64 {
    let mut checked = 0;
    for step in steps {
        let mut next = pair.clone();
        next.step(*step);
        checked += 1 + if depth > 1 { every_sequence(&next, steps, depth - 1) } else { 0 };
    }
    checked
}

#[test]
fn every_sequence_of_four_steps_on_five_bytes() {
    // The second one begins three bytes before sequence numbers wrap.
    for begin in [Seq(1000), Seq(u32::MAX - 2)] {
        let steps = steps(5, &[(0, 2), (1, 3), (0, 1)]);
        let checked = every_sequence(&Pair::new(begin), &steps, 4);
        assert!(checked > 300_000, "{checked} steps");
    }
}

#[test]
fn every_sequence_of_five_steps_with_memory_posted() {
    let mut pair = Pair::new(Seq(u32::MAX - 1));
    // Lengths that no border of an arrival agrees with, and a change of the region.
    [Step::Post(0, 1), Step::Post(1, 2)].into_iter().for_each(|step| pair.step(step));
    let checked = every_sequence(&pair, &steps(4, &[(1, 2)]), 5);
    assert!(checked > 1_000_000, "{checked} steps");
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0i64..120, 1i64..40).prop_map(|(from, len)| Step::Arrive(from, from + len)),
        3 => (0usize..support::REGIONS, 0u8..9).prop_map(|(region, len)| Step::Post(region, len)),
        3 => (0i64..160).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn long_sequences(begin in prop_oneof![Just(0u32), Just(u32::MAX - 30), Just((1 << 31) - 30), any::<u32>()],
                      steps in proptest::collection::vec(any_step(), 1..120)) {
        let mut pair = Pair::new(Seq(begin));
        steps.into_iter().for_each(|step| pair.step(step));
        // Whatever happened, all comes back.
        prop_assert!(pair.nic.remove(pair.id));
        prop_assert_eq!(pair.nic.free_entries(), support::small_limits().entries);
    }
}
