//! More connections than the flow table has lines: the engine inside copies the payload of those without one, and the
//! peer sees no difference.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::solo::{ACK, FLOW, START, Solo, seg};
use common::{Config, Lab, MakeEngine, Side};
use context::SendWords;
use engine::stream::{self, Stream};
use engine::{Command, Engine, Event, FlowId, FramePool, Limits};
use flextoe::FlexToe;
use laminar::{Extensions, Laminar};
use zeronic::SocketEngine;

fn with_lines(lines: u32, config: &Config, inner: Box<dyn Engine<Stream>>) -> Box<dyn Engine<Stream>> {
    let most = config.rx_bytes.max(config.tx_bytes).max(config.most);
    Box::new(SocketEngine::new("zeronic", inner, most).expect("a few pages").with_lines(lines))
}

fn no_lines_over_flextoe(config: &Config, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    with_lines(0, config, Box::new(FlexToe::new(limits, config.mapping.clone(), pool)))
}

fn no_lines_over_laminar(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    let extensions = Extensions { sack: config.sack, timely: config.timestamps, ..Extensions::default() };
    with_lines(0, config, Box::new(Laminar::new(limits, config.wscale, extensions).expect("the limits are small")))
}

fn one_line(config: &Config, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    with_lines(1, config, Box::new(FlexToe::new(limits, config.mapping.clone(), pool)))
}

fn counter(side: &Side, counter: &str) -> u64 {
    side.engine.module_stats().iter().find(|(_, name, _)| *name == counter).expect("a counter").2
}

/// Random streams through loss, reordering and duplication, in small rings that grow, with and without programs that
/// would send by reference.
#[test]
fn streams_without_lines_are_the_engines() {
    for seed in 0..200 {
        let engine: MakeEngine = if seed % 5 == 0 { no_lines_over_laminar } else { no_lines_over_flextoe };
        let config = Config { engine, v6: seed % 3 == 1, ..Config::random(seed) };
        let most = if seed % 2 == 0 { config.most } else { config.rx_bytes.max(config.tx_bytes) << (1 + seed % 3) };
        let mut lab = Lab::new(Config { most, ..config });
        if seed % 2 == 0 {
            lab.sides.iter_mut().for_each(|side| side.app.refer());
        }
        lab.finish(20);
        for side in &lab.sides {
            let placed = ["placed_bytes", "fetched_bytes", "referred_bytes"].map(|name| counter(side, name));
            assert_eq!((placed, counter(side, "connections_without_line")), ([0; 3], 1));
            assert!(side.seen.iter().any(|event| matches!(event, Event::Transport(stream::Event::NoLine(FLOW)))));
        }
    }
}

/// Installs a connection with this number, of this use of the slot; true where it has a line.
fn has_line(solo: &mut Solo, number: u32, generation: u32) -> bool {
    let mut params = solo.side.params.clone();
    params.slot.generation = generation as _;
    params.flow = FlowId(number);
    params.tuple.local_port += number as u16;
    solo.command(Command::Install(Box::new(params)));
    let refused =
        |event: &Event<Stream>| matches!(event, Event::Transport(stream::Event::NoLine(id)) if id.0 == number);
    !solo.events().iter().any(refused)
}

#[test]
fn a_line_is_free_again_when_its_connection_has_ended() {
    let config = Config { engine: one_line, timestamps: false, mss: 1000, rx_bytes: 8192, ..Config::clean(1) };
    let mut solo = Solo::new(config);
    assert!(!has_line(&mut solo, 6, 6) && !has_line(&mut solo, 7, 7));
    solo.command(Command::Remove(FlowId(7)));
    assert!(!has_line(&mut solo, 8, 8), "what had none leaves none");
    // The first one has it until it has ended.
    solo.receive(&[seg(START, START, ACK, 50)]);
    assert_eq!(counter(&solo.side, "placed_bytes"), 50);
    solo.command(Command::Remove(FLOW));
    assert!(has_line(&mut solo, 9, 9) && !has_line(&mut solo, 10, 10));
}

/// A program whose connection had a line in an earlier daemon posts without asking again.
#[test]
fn who_sends_by_reference_already_has_a_line() {
    let mut solo = Solo::new(Config { engine: one_line, timestamps: false, ..Config::clean(1) });
    let (end, slot) = (&solo.side.app.end, solo.side.app.slot);
    let words = SendWords::new(&end.region, &end.geometry, slot.index).expect("a heap");
    assert!(words.may_post(slot.mark()), "its connection has the only line");
    let generation = slot.generation.into();
    assert!(has_line(&mut solo, 6, generation));
    words.accept(0);
    assert!(!has_line(&mut solo, 7, generation));
}
