//! Two hosts, each with Linux' own TCP on headers, and registered memory at both sides: every byte is compared.
#[path = "support/ends.rs"]
mod ends;

use ends::{Habit, run};
use port::FabricConfig;
use zeronic::Shortage;

const MB: u64 = 1 << 20;

#[test]
fn streams_both_ways() {
    let Some((took, ends)) = run("streams", FabricConfig::default(), Habit::default(), [64 * MB, 64 * MB]) else {
        return;
    };
    for end in &ends {
        let counters = end.stack.counters();
        assert!(counters.placed_bytes >= 64 * MB && counters.fetched_bytes >= 64 * MB, "{counters:?}");
        assert_eq!((counters.faults, counters.not_posted, counters.malformed), (0, 0, 0), "{counters:?}");
    }
    println!("{took:?} {:?}", ends.map(|end| end.stack.counters()));
}

#[test]
fn streams_through_loss_reordering_and_duplication() {
    let config = FabricConfig {
        loss: 0.01,
        reorder: 0.01,
        duplicate: 0.01,
        corrupt: 0.002,
        delay_ns: 20_000,
        seed: 4711,
        ..FabricConfig::default()
    };
    for shortage in [Shortage::Drop, Shortage::Buffer, Shortage::Defer] {
        let habit = Habit { shortage, ..Habit::default() };
        let Some((took, ends)) = run("loss", config.clone(), habit, [24 * MB, 24 * MB]) else { return };
        let counters = ends.map(|end| end.stack.counters());
        assert!(counters.iter().any(|counters| counters.old > 0 && counters.malformed > 0), "{counters:?}");
        println!("{shortage:?} {took:?} {counters:?}");
    }
}

#[test]
fn a_receiver_that_posts_little() {
    // Where nothing may be deferred, the peer's TCP waits for a window of a segment (RFC 9293 section 3.8.6.2.1).
    for (shortage, least, most) in
        [(Shortage::Drop, 3000, 9000), (Shortage::Buffer, 3000, 9000), (Shortage::Defer, 1, 700)]
    {
        let habit = Habit { least, most, receives: 3, shortage, ..Habit::default() };
        let Some((took, ends)) = run("little", FabricConfig::default(), habit, [MB, MB / 2]) else { return };
        let counters = ends.map(|end| end.stack.counters());
        assert!(counters.iter().all(|counters| counters.window_updates > 0), "{counters:?}");
        println!("{shortage:?} {took:?} {counters:?}");
    }
}
