//! Two hosts, each with a transport on headers (Linux' own TCP, FlexTOE, Laminar), and registered memory at both sides:
//! every byte is compared.
#[path = "support/ends.rs"]
mod ends;

use ends::{Below, Habit, impaired, run};
use engines::EngineKind;
use port::FabricConfig;
use zeronic::{Carries, Shortage};

const MB: u64 = 1 << 20;

fn all() -> impl Iterator<Item = Below> {
    [Below::Linux].into_iter().chain(EngineKind::TRANSPORTS.iter().map(|kind| Below::Engine(*kind)))
}

#[test]
fn streams_both_ways() {
    all().for_each(both_ways);
}

fn both_ways(below: Below) {
    let habit = Habit { below, ..Habit::default() };
    let Some((took, ends)) = run("streams", FabricConfig::default(), habit, [32 * MB, 32 * MB]) else {
        return;
    };
    for end in &ends {
        let counters = end.stack.counters();
        assert!(counters.placed_bytes >= 32 * MB && counters.fetched_bytes >= 32 * MB, "{counters:?}");
        assert_eq!((counters.faults, counters.not_posted, counters.malformed), (0, 0, 0), "{counters:?}");
    }
    println!("{below:?} {took:?} {:?}", ends.map(|end| end.stack.counters()));
}

#[test]
fn streams_through_loss_reordering_and_duplication() {
    let config = impaired(4711);
    let shortages = [Shortage::Drop, Shortage::Buffer, Shortage::Defer];
    for (below, shortage) in all().flat_map(|below| shortages.map(|shortage| (below, shortage))) {
        let habit = Habit { below, shortage, ..Habit::default() };
        let Some((took, ends)) = run("loss", config.clone(), habit, [8 * MB, 8 * MB]) else { continue };
        let counters = ends.map(|end| end.stack.counters());
        assert!(counters.iter().all(|counters| counters.malformed > 0), "{counters:?}");
        println!("{below:?} {shortage:?} {took:?} {counters:?}");
    }
}

/// Where a flow table has no line, the transport has the payload, which is copied: at one end, or at both.
#[test]
fn streams_without_lines() {
    let (plain, faults) = (FabricConfig::default(), impaired(4711));
    for below in all() {
        for (config, lines, bytes) in
            [(&plain, [0, 1], 32 * MB), (&plain, [1, 0], 8 * MB), (&plain, [0, 0], 8 * MB), (&faults, [0, 0], 8 * MB)]
        {
            let habit = Habit { below, lines, ..Habit::default() };
            let Some((took, ends)) = run("without lines", config.clone(), habit, [bytes, bytes]) else { continue };
            println!("{below:?} {lines:?} {took:?} {:?}", ends.each_ref().map(|end| end.stack.counters()));
            for (mut end, lines) in ends.into_iter().zip(lines) {
                let counters = end.stack.counters();
                assert_eq!(counters.placed_bytes >= bytes, lines > 0, "{counters:?}");
                assert_eq!((counters.without_line, counters.refused), (1 - lines as u64, 0), "{counters:?}");
                let views = end.stack.views(2);
                assert!(views.iter().all(|view| view.has_line == (lines > 0)), "{views:?}");
            }
        }
    }
}

/// The same for messages, beside a peer that has a line, and where receives are longer than their messages.
#[test]
fn messages_without_lines() {
    let faults = impaired(4711);
    for below in all() {
        for (config, lines, most, bytes) in [
            (FabricConfig::default(), [0, 1], 300_000, 16 * MB),
            (FabricConfig::default(), [1, 0], 20_000, 4 * MB),
            (faults.clone(), [0, 0], 20_000, 4 * MB),
            (faults.clone(), [0, 1], 300, MB / 4),
        ] {
            let carries = Carries::Messages;
            let habit = Habit { below, shortage: Shortage::Defer, most, carries, lines, ..Habit::default() };
            let Some((took, ends)) = run("messages without lines", config, habit, [bytes, bytes]) else { continue };
            let [one, other] = &ends;
            let messages = |lengths: &[usize]| lengths.iter().copied().filter(|len| *len > 0).collect::<Vec<_>>();
            assert_eq!(messages(&other.lengths.1), one.lengths.0);
            assert_eq!(messages(&one.lengths.1), other.lengths.0);
            println!("{below:?} {lines:?} {most} {took:?} {:?}", ends.each_ref().map(|end| end.stack.counters()));
            for (end, lines) in ends.iter().zip(lines) {
                let counters = end.stack.counters();
                assert_eq!(counters.placed_bytes >= bytes, lines > 0, "{counters:?}");
                assert_eq!((counters.without_line, counters.refused), (1 - lines as u64, 0), "{counters:?}");
            }
        }
    }
}

#[test]
fn a_receiver_that_posts_little() {
    // Where nothing may be deferred, the peer's TCP waits for a window of a segment (RFC 9293 section 3.8.6.2.1).
    let habits = [(Shortage::Drop, 3000, 9000), (Shortage::Buffer, 3000, 9000), (Shortage::Defer, 1, 700)];
    for (below, (shortage, least, most)) in all().flat_map(|below| habits.map(|habit| (below, habit))) {
        let habit = Habit { below, least, most, receives: 3, shortage, ..Habit::default() };
        let Some((took, ends)) = run("little", FabricConfig::default(), habit, [MB, MB / 2]) else { continue };
        let counters = ends.map(|end| end.stack.counters());
        assert!(counters.iter().all(|counters| counters.window_updates > 0), "{counters:?}");
        println!("{below:?} {shortage:?} {took:?} {counters:?}");
    }
}

/// Each send is a receive of the peer's, also where frames are lost, overtake each other, or come twice.
#[test]
fn messages_keep_their_borders() {
    let faults = impaired(4711);
    let shortages = [Shortage::Drop, Shortage::Buffer, Shortage::Defer];
    for (below, shortage) in all().flat_map(|below| shortages.map(|shortage| (below, shortage))) {
        for (config, most, bytes) in [
            (FabricConfig::default(), 300_000, 32 * MB),
            (faults.clone(), 20_000, 4 * MB),
            (faults.clone(), 300, MB / 4),
        ] {
            let habit = Habit { below, shortage, most, carries: Carries::Messages, ..Habit::default() };
            let Some((took, ends)) = run("messages", config, habit, [bytes, bytes]) else { continue };
            let [one, other] = &ends;
            // Receives beyond the last message are done with no bytes.
            let messages = |lengths: &[usize]| lengths.iter().copied().filter(|len| *len > 0).collect::<Vec<_>>();
            assert_eq!(messages(&other.lengths.1), one.lengths.0);
            assert_eq!(messages(&one.lengths.1), other.lengths.0);
            println!("{below:?} {shortage:?} {most} {took:?} {:?}", ends.map(|end| end.stack.counters()));
        }
    }
}
