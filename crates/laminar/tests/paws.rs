//! Protection against wrapped sequence numbers (RFC 7323 section 5) in Laminar with `TIMELY`: what the pipeline
//! decides, and what it leaves to the switch's processor.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::Config;
use common::solo::{ACK, FLOW, START, Seg, Solo, acks, seg};
use engine::stream::{self, Stream};
use engine::{DropReason, Engine, Event, FramePool, Limits};
use laminar::{Extensions, Laminar};
use wire::ipv4::Ecn;
use wire::tcp::{Flags, Timestamps};

const S: u32 = START;
const DAY: u64 = 24 * 3600 * 1_000_000_000;

fn make(config: &Config, limits: Limits, extensions: Extensions) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, extensions).unwrap())
}

fn timely(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    make(config, limits, Extensions { timely: true, ..Extensions::NONE })
}

fn all(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    make(config, limits, Extensions { sack: true, delayed_acks: true, timely: true, shared_log: false })
}

fn solo() -> Solo {
    Solo::new(Config { engine: timely, timestamps: true, sack: false, mss: 1000, wscale: 0, ..Config::clean(1) })
}

fn delaying() -> Solo {
    Solo::new(Config { engine: all, timestamps: true, sack: true, mss: 1000, wscale: 0, ..Config::clean(1) })
}

fn stamped(seq: u32, ack: u32, len: u32, value: u32) -> Seg {
    Seg { timestamps: Some(Timestamps { value, echo: 1 }), ..seg(seq, ack, ACK, len) }
}

fn echoes(sent: &[Seg]) -> Vec<u32> {
    sent.iter().map(|s| s.timestamps.unwrap().echo).collect()
}

// Checks RFC 7323: 3.2-c, 5.3-a, 5.3-b.
#[test]
fn old_timestamps_are_refused_and_new_ones_echoed() {
    let mut s = solo();
    assert_eq!(echoes(&s.receive(&[stamped(S, S, 1000, 50)])), [50]);
    let sent = s.receive(&[stamped(S + 1000, S, 10, 49)]);
    assert_eq!((acks(&sent), echoes(&sent)), (vec![S + 1000], vec![50]), "answered");
    assert_eq!(
        (s.drops(DropReason::Paws), s.completion().map(|completion| completion.0)),
        (1, Some(1000)),
        "and dropped"
    );
    // Out of order: acknowledged at once, but its timestamp is not the one to echo.
    assert_eq!(echoes(&s.receive(&[stamped(S + 1500, S, 10, 60)])), [50]);
    assert_eq!(echoes(&s.receive(&[stamped(S + 1000, S, 500, 50)])), [50], "the same millisecond is not older");
    assert!(s.receive(&[seg(S + 1510, S, ACK, 10)]).is_empty(), "no timestamp at all");
    assert_eq!((s.drops(DropReason::Paws), s.completion().map(|completion| completion.0)), (2, Some(1510)));
    s.read(1510);
    s.receive(&[seg(S + 1510, S, Flags::RST, 0)]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::Reset(FLOW))], "RST is not subject to it");
}

#[test]
fn an_old_segment_changes_nothing() {
    let mut s = solo();
    assert_eq!(s.write(2000, false).len(), 2);
    s.receive(&[Seg { window: 9000, ..stamped(S, S, 100, 50) }]);
    let before = s.side.stats.read();
    let echoing = ACK | Flags::ECE;
    let old = Seg { window: 20_000, flags: echoing, ecn: Ecn::Ce, ..stamped(S + 100, S + 1000, 100, 40) };
    assert_eq!(acks(&s.receive(&[old])), [S + 100]);
    let after = s.side.stats.read();
    let figures = |f: &stream::FlowFigures| (f.snd_una, f.snd_wnd, f.rcv_nxt, f.acked_bytes, f.ecn_bytes);
    assert_eq!(figures(&after), figures(&before));
    // The same byte with a timestamp of its own time.
    assert_eq!(acks(&s.receive(&[Seg { window: 9000, ..stamped(S + 100, S + 1000, 100, 51) }])), [S + 200]);
}

/// A stray acknowledgement is answered, as all that is not acceptable, but not without end.
#[test]
fn empty_old_segments_are_answered_within_the_limit() {
    let mut s = solo();
    s.receive(&[stamped(S, S, 100, 50)]);
    let answered: usize = (0..150).map(|_| s.receive(&[stamped(S + 100, S, 0, 49)]).len()).sum();
    assert_eq!((answered, s.drops(DropReason::ChallengeLimit), s.drops(DropReason::Paws)), (10, 140, 150));
}

#[test]
fn clocks_wrap() {
    let mut s = solo();
    let top = u32::MAX - 1;
    // Not older than what the connection began with: half the range is ahead.
    s.receive(&[stamped(S, S, 100, 1 << 31), stamped(S + 100, S, 100, top)]);
    assert_eq!(s.drops(DropReason::Paws), 0);
    assert_eq!(echoes(&s.receive(&[stamped(S + 200, S, 100, 3)])), [3]);
    s.receive(&[stamped(S + 300, S, 100, top)]);
    assert_eq!(s.drops(DropReason::Paws), 1);
}

/// What is far from the window cannot move the clock: else one forged segment would make all of the peer's old.
#[test]
fn a_forged_segment_does_not_set_the_clock_ahead() {
    let mut s = solo();
    s.receive(&[stamped(S, S, 1000, 50)]);
    for distance in [70_000, 1 << 20, 1 << 30, (1 << 31) - 2000] {
        s.receive(&[stamped(S.wrapping_sub(distance), S, 10, 1 << 30), stamped(S + distance, S, 10, 1 << 30)]);
    }
    assert_eq!(echoes(&s.receive(&[stamped(S + 1000, S, 10, 51)])), [51]);
    assert_eq!(s.drops(DropReason::Paws), 0);
}

// Checks RFC 7323: 4.3-a.
#[test]
fn the_echo_is_that_of_the_first_segment_that_waits() {
    let mut s = delaying();
    assert!(s.receive(&[stamped(S, S, 100, 40)]).is_empty(), "delayed");
    assert_eq!(echoes(&s.receive(&[stamped(S + 100, S, 100, 45)])), [40], "two segments: the earlier one's");
    assert!(s.receive(&[stamped(S + 200, S, 100, 50)]).is_empty());
    assert_eq!(echoes(&s.write(10, false)), [50], "what is sent acknowledges");
    assert!(s.receive(&[stamped(S + 300, S + 10, 100, 60)]).is_empty());
    assert_eq!(echoes(&s.wait(600_000)), [60], "the timer");
    assert!(s.receive(&[stamped(S + 400, S + 10, 100, 70)]).is_empty());
    assert_eq!(echoes(&s.receive(&[stamped(S + 700, S + 10, 100, 80)])), [70], "out of order");
}

/// FIN, urgent data and other options pass the switch's processor, which compares timestamps as the pipeline does.
// Checks RFC 7323: 5.3-a.
#[test]
fn the_slow_path_compares_too() {
    let mut s = delaying();
    s.receive(&[stamped(S, S, 1000, 50)]);
    let fin = Seg { flags: ACK | Flags::FIN, ..stamped(S + 1000, S, 10, 49) };
    let syn = Seg { flags: Flags::SYN, ..stamped(S + 1000, S, 0, 49) };
    let urgent = Seg { flags: ACK | Flags::URG, ..stamped(S + 1000, S, 10, 49) };
    let block = Seg { sack: Some((S, S + 1)), ..stamped(S + 1000, S, 10, 49) };
    for (count, old) in [fin, urgent, block, syn].into_iter().enumerate() {
        assert_eq!(acks(&s.receive(&[old])), [S + 1000], "{old:?}");
        assert_eq!(s.drops(DropReason::Paws), count as u64 + 1);
    }
    let fresh = |seg: Seg, value| Seg { timestamps: Some(Timestamps { value, echo: 1 }), ..seg };
    assert!(s.receive(&[fresh(block, 51)]).is_empty(), "taken, and its acknowledgement waits");
    assert_eq!(acks(&s.receive(&[Seg { seq: S + 1010, ..fresh(urgent, 52) }])), [S + 1020]);
    let last = s.receive(&[Seg { seq: S + 1020, ..fresh(fin, 53) }]);
    assert_eq!((acks(&last).last(), echoes(&last).last()), (Some(&(S + 1031)), Some(&53)));
    assert_eq!(s.events(), [Event::Transport(stream::Event::PeerFin(FLOW))]);
    assert_eq!(s.drops(DropReason::Paws), 4);
}

// Checks RFC 7323: 5.5-a.
#[test]
fn an_idle_connections_timestamp_grows_old() {
    let mut s = solo();
    s.receive(&[stamped(S, S, 1000, 1 << 31)]);
    // The peer's clock went round: after 24 days that is possible, before it is an old segment.
    s.wait(23 * DAY);
    s.receive(&[stamped(S + 1000, S, 1000, 5)]);
    assert_eq!(s.drops(DropReason::Paws), 1);
    s.wait(2 * DAY);
    // Only an acceptable segment renews it.
    s.receive(&[stamped(S + 100_000, S, 1000, 5), stamped(S + 1000, S + 9000, 1000, 5)]);
    assert_eq!((s.drops(DropReason::Paws), s.completion().map(|completion| completion.0)), (1, Some(1000)));
    assert_eq!(acks(&s.receive(&[stamped(S + 1000, S, 1000, 5)])), [S + 2000]);
    assert_eq!(echoes(&s.receive(&[stamped(S + 2000, S, 10, 6)])), [6]);
    s.receive(&[stamped(S + 2010, S, 10, 5)]);
    assert_eq!(s.drops(DropReason::Paws), 2, "it counts again");
}

/// Of a connection that is not idle, acknowledgements without payload renew the time.
#[test]
fn acknowledgements_keep_the_timestamp_young() {
    let mut s = solo();
    s.receive(&[stamped(S, S, 1000, 1 << 31)]);
    for day in [13, 26] {
        s.wait(13 * DAY);
        s.receive(&[stamped(S + 1000, S, 0, (1 << 31) + day)]);
    }
    s.wait(13 * DAY);
    s.receive(&[stamped(S + 1000, S, 10, 1 << 31)]);
    assert_eq!(s.drops(DropReason::Paws), 1);
}
