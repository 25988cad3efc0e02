//! Random streams both ways over a wire that loses, reorders, duplicates and marks. The bytes that arrive are those
//! that were sent, whatever the options, sizes and windows.
mod common;

use common::{Config, Lab};
use flextoe::Mapping;

#[test]
fn a_clean_wire_needs_no_retransmission() {
    let mut lab = Lab::new(Config::clean(1));
    lab.finish(0);
    for side in &lab.sides {
        let figures = side.stats.read();
        assert_eq!((figures.retransmitted_segments, figures.duplicate_acks, figures.drops), (0, 0, 0));
        assert_eq!(figures.acked_bytes as usize, side.app.outgoing.len());
        assert_eq!(figures.rx_bytes as usize, side.app.expected.len());
        assert!(figures.rtt_samples > 0 && figures.rtt_ns >= 100_000);
        assert_eq!(side.drops, Default::default());
    }
}

#[test]
fn random_everything() {
    for seed in 0..150 {
        Lab::new(Config::random(seed)).finish(20);
    }
}

/// FlexTOE as published: go-back-N, one interval or none, each segment acknowledged.
#[test]
fn random_everything_as_published() {
    let mut counts = [0u64; 2];
    for seed in 0..100 {
        let config = Config { sack: false, delayed_acks: false, intervals: 1, ..Config::random(seed) };
        let intervals = (seed % 4 != 0) as u8;
        let mut lab = Lab::new(Config { intervals, ..config });
        lab.finish(20);
        let resent = lab.sides.iter().map(|side| u64::from(side.stats.read().fast_retransmits));
        counts[usize::from(intervals)] += resent.sum::<u64>();
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// Streams begin in small rings, and go on in larger ones on both sides, while what the peer is offered grows.
#[test]
fn rings_grow_in_the_middle_of_streams() {
    let mut large = 0;
    for seed in 0..200 {
        let config = Config::random(seed);
        let most = config.rx_bytes.max(config.tx_bytes) << (1 + seed % 3);
        let mut lab = Lab::new(Config { most, bytes: 20_000 + config.bytes, ..config });
        lab.finish(50);
        large += lab.sides.iter().filter(|side| side.app.rx.size() == most).count();
    }
    assert!(large > 40, "{large}");
}

// Checks RFC 7323: 2.3-b, 2.4-a.
#[test]
fn a_lazy_reader_closes_the_window_and_nothing_is_lost() {
    for seed in 0..20 {
        let config = Config { rx_bytes: 4096, bytes: 60_000, loss: 3, ..Config::clean(seed) };
        Lab::new(config).finish(97);
    }
}

#[test]
fn sequence_numbers_wrap() {
    for back in [0, 1, 2, 1449, 40_000] {
        let config = Config { iss: u32::MAX - back, loss: 5, reorder: 10, ..Config::clean(back as u64) };
        Lab::new(config).finish(0);
    }
}

/// Replicated modules on workers that run in random order give the same streams.
#[test]
fn replicated_modules_in_random_order() {
    let mapping = Mapping { threads: true, preprocess: 3, flow_groups: 2, postprocess: 2, dma: 3 };
    for seed in 0..60 {
        Lab::new(Config { mapping: mapping.clone(), ..Config::random(seed) }).finish(20);
    }
}
