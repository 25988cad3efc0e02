//! Laminar in FlexTOE's test harness: random streams both ways over a wire that loses, reorders, duplicates and marks,
//! every third over IPv6. The bytes that arrive are those that were sent.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::{Config, Lab};
use engine::stream::Stream;
use engine::{Engine, FramePool, Limits};
use laminar::{Extensions, Laminar};

/// The program has the extensions that the control plane negotiated.
fn make(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    let extensions = Extensions {
        sack: config.sack,
        timely: config.timestamps,
        delayed_acks: config.delayed_acks,
        shared_log: config.seed % 2 == 0,
    };
    Box::new(Laminar::new(limits, config.wscale, extensions).unwrap())
}

/// The thesis' program alone: neither timestamps nor blocks are negotiated for it.
fn laminar(config: Config) -> Config {
    Config { engine: make, timestamps: false, sack: false, delayed_acks: false, v6: config.seed % 3 == 1, ..config }
}

fn extended(config: Config) -> Config {
    Config { engine: make, delayed_acks: config.seed % 4 != 0, v6: config.seed % 3 == 1, ..config }
}

/// Those of one program one after the other: it is compiled once for them, and compiling takes longer than a run.
fn run_all(configs: impl Iterator<Item = Config>) {
    let mut configs: Vec<Config> = configs.collect();
    configs.sort_by_key(|it| (it.wscale, it.sack, it.timestamps, it.delayed_acks, it.seed % 2));
    configs.into_iter().for_each(|config| Lab::new(config).finish(20));
}

#[test]
fn a_clean_wire_needs_no_retransmission() {
    for v6 in [false, true] {
        clean_wire(Config { v6, ..laminar(Config::clean(1)) });
    }
}

fn clean_wire(config: Config) {
    let mut lab = Lab::new(config);
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
    run_all((0..100).map(|seed| laminar(Config::random(seed))));
}

/// With and without each extension: blocks and timestamps by the seed, delayed acknowledgements mostly.
#[test]
fn random_everything_with_extensions() {
    run_all((0..150).map(|seed| extended(Config::random(seed))));
}

/// Streams begin in small rings, and go on in larger ones on both sides, while what the peer is offered grows.
#[test]
fn rings_grow_in_the_middle_of_streams() {
    run_all((0..100).map(|seed| {
        let config = Config::random(seed);
        let most = config.rx_bytes.max(config.tx_bytes) << (1 + seed % 3);
        laminar(Config { most, bytes: 20_000 + config.bytes, ..config })
    }));
}

#[test]
fn a_lazy_reader_closes_the_window_and_nothing_is_lost() {
    for seed in 0..20 {
        let config = Config { rx_bytes: 4096, bytes: 60_000, loss: 3, ..Config::clean(seed) };
        Lab::new(laminar(config)).finish(97);
    }
}

#[test]
fn sequence_numbers_wrap() {
    for back in [0, 1, 2, 1449, 40_000] {
        let config = Config { iss: u32::MAX - back, loss: 5, reorder: 10, ..Config::clean(back as u64) };
        Lab::new(laminar(config)).finish(0);
    }
}
