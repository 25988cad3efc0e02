//! Urgent data (RFC 9293 section 3.8.5): segments with URG, made by hand, and those that the engine sends.
mod common;

use common::Config;
use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use engine::{DropReason, stream};
use wire::tcp::Flags;

fn urgent(seq: u32, len: u32, pointer: u16) -> Seg {
    Seg { flags: ACK | Flags::URG, urgent: pointer, ..seg(seq, START, ACK, len) }
}

/// Of each segment: its number, its bytes and its urgent pointer, where it has URG.
fn sent(all: &[Seg]) -> Vec<(u32, u32, Option<u16>)> {
    all.iter().map(|s| (s.seq, s.len, s.flags.has(Flags::URG).then_some(s.urgent))).collect()
}

// Checks RFC 9293: MUST-30, MUST-32, MUST-33, MUST-62.
#[test]
fn the_application_gets_the_place_of_the_urgent_byte() {
    for v6 in [false, true] {
        let config = Config { timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, v6, ..Config::clean(1) };
        let mut solo = Solo::new(config);
        solo.receive(&[seg(START, START, ACK, 10)]);
        assert_eq!(solo.urgent(), None);
        solo.receive(&[urgent(START + 10, 5, 5)]);
        assert_eq!(solo.urgent(), Some(14), "one before where the pointer points");
        // It is announced ahead of its byte, also out of order; an older announcement changes nothing.
        solo.receive(&[urgent(START + 115, 5, 300)]);
        assert_eq!(solo.urgent(), Some(414));
        solo.receive(&[urgent(START + 15, 5, 50)]);
        assert_eq!(solo.urgent(), Some(414));
        solo.receive(&[seg(START + 20, START, ACK, 95), seg(START + 120, START, ACK, 400)]);
        solo.read(520);
        // A byte that has come is not made urgent any more.
        solo.receive(&[urgent(START + 520, 0, 0), urgent(START + 400, 100, 90)]);
        assert_eq!(solo.urgent(), Some(520), "a pointer of 0 is taken as 1, as in Linux");
    }
}

// Checks RFC 9293: MUST-66.
#[test]
fn urgent_data_is_announced_while_the_window_is_closed() {
    let mut solo = Solo::plain();
    solo.receive(&[seg(START, START, ACK, 4000), seg(START + 4000, START, ACK, 4192)]);
    assert_eq!(solo.completion(), Some((8192, 0, false)));
    solo.receive(&[urgent(START + 8192, 0, 1)]);
    assert_eq!(solo.urgent(), Some(8192));
}

/// Pointers from a peer that lies move no position, and the stream goes on.
#[test]
fn a_pointer_far_ahead_or_of_a_refused_segment_stalls_nothing() {
    let mut solo = Solo::plain();
    solo.receive(&[urgent(START + 20_000, 10, 7)]);
    assert_eq!(solo.urgent(), None, "the segment lies outside the window");
    solo.receive(&[urgent(START, 10, u16::MAX)]);
    assert_eq!(solo.urgent(), Some(65_534));
    for step in 0..100 {
        let at = 10 + 1000 * step;
        solo.receive(&[seg(START + at, START, ACK, 1000)]);
        assert_eq!(solo.completion().map(|(received, ..)| received), Some(at + 1000));
        solo.read(at + 1000 - solo.side.app.read);
    }
    solo.receive(&[urgent(START + 100_010, 10, 10)]);
    assert_eq!(solo.urgent(), Some(100_019), "the old one is behind");
}

// Checks RFC 9293: MUST-30, MUST-31, MUST-62.
#[test]
fn segments_point_behind_the_urgent_byte_also_when_sent_again() {
    let mut solo = Solo::plain();
    solo.command(stream::Command::Window(FLOW, 100_000));
    solo.receive(&[Seg { window: 10_000, ..seg(START, START, ACK, 1) }]);
    solo.urge(2500);
    let mut first = solo.write(2500, false);
    first.extend(solo.round());
    let first = sent(&first);
    assert_eq!(first[0], (START, 1000, Some(2500)));
    assert_eq!(first[1..], [(START + 1000, 1000, Some(1500)), (START + 2000, 500, Some(500))]);
    assert_eq!(sent(&solo.write(700, false)), [(START + 2500, 700, None)], "not urgent");
    let ack = |at: u32| Seg { window: 10_000, ..seg(START + 1, START + at, ACK, 0) };
    solo.receive(&[ack(1000)]);
    let again = sent(&solo.command(stream::Command::Retransmit(FLOW, None)));
    assert_eq!(again[0], (START + 1000, 1000, Some(1500)));
    solo.receive(&[ack(3200)]);
    assert_eq!(sent(&solo.write(10, false)), [(START + 3200, 10, None)]);
}

// Checks RFC 9293: MUST-30.
#[test]
fn the_peer_is_notified_while_its_window_is_closed() {
    let mut solo = Solo::plain();
    solo.receive(&[Seg { window: 0, ..seg(START, START, ACK, 1) }]);
    solo.urge(10);
    assert_eq!(sent(&solo.write(10, false)), [(START, 0, Some(10))]);
    let probe = sent(&solo.command(stream::Command::Probe(FLOW)));
    assert_eq!(probe.last(), Some(&(START, 0, Some(10))), "{probe:?}");
    let open = solo.receive(&[Seg { window: 1000, ..seg(START + 1, START, ACK, 0) }]);
    assert_eq!(sent(&open), [(START, 10, Some(10))]);
}

/// An application makes bytes urgent that cannot be: it harms nobody.
#[test]
fn urgent_positions_that_cannot_be_are_refused() {
    let mut solo = Solo::plain();
    solo.write(100, false);
    for position in [0, 1 << 30, u32::MAX] {
        solo.urge(position);
    }
    assert_eq!(sent(&solo.write(100, false)), [(START + 100, 100, None)]);
    assert_eq!(solo.drops(DropReason::BumpRange), 3);
}
