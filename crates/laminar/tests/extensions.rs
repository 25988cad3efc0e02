//! Extensions of the P4 program, segment by segment: one-block SACK, delayed acknowledgements, TIMELY's timestamps and
//! averages. On native code; `crates/rmt/tests/laminar/extensions.rs` has the interpreter.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use common::{Config, MakeEngine};
use engine::stream::{self, Stream};
use engine::{DropReason, Engine, FramePool, Limits};
use laminar::{Extensions, Laminar};
use wire::ipv4::Ecn;
use wire::tcp::Timestamps;

const S: u32 = START;

fn engine(config: &Config, limits: Limits, extensions: Extensions) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, extensions).unwrap())
}

fn sack(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    engine(config, limits, Extensions { sack: true, ..Extensions::NONE })
}

fn delayed(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    engine(config, limits, Extensions { delayed_acks: true, ..Extensions::NONE })
}

fn timely(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    engine(config, limits, Extensions { timely: true, ..Extensions::NONE })
}

fn all(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    engine(config, limits, Extensions { sack: true, delayed_acks: true, timely: true, shared_log: false })
}

fn solo(engine: MakeEngine, timestamps: bool, sack: bool) -> Solo {
    Solo::new(Config { engine, timestamps, sack, ecn: true, mss: 1000, rx_bytes: 65536, wscale: 0, ..Config::clean(1) })
}

// Checks RFC 2018: 4-a, 4-b, 4-c, 4-d.
#[test]
fn acknowledgements_report_the_interval() {
    let mut s = solo(sack, false, true);
    let acked = |sent: &[Seg]| sent.iter().map(|s| (s.ack, s.sack)).collect::<Vec<_>>();
    assert_eq!(acked(&s.receive(&[seg(S, S, ACK, 500)])), [(S + 500, None)]);
    let sent = s.receive(&[seg(S + 1000, S, ACK, 500), seg(S + 1500, S, ACK, 100)]);
    // Each pseudo segment passes behind the segment that it came of.
    let blocks = [S + 1500, S + 1600].map(|right| (S + 500, Some((S + 1000, right))));
    assert_eq!(acked(&sent), blocks);
    assert_eq!(
        acked(&s.receive(&[seg(S + 3000, S, ACK, 10)])),
        [(S + 500, Some((S + 1000, S + 1600)))],
        "one interval"
    );
    assert_eq!(acked(&s.receive(&[seg(S + 500, S, ACK, 200)])), [(S + 700, Some((S + 1000, S + 1600)))]);
    assert_eq!(acked(&s.receive(&[seg(S + 700, S, ACK, 300)])), [(S + 1600, None)]);
    s.read(1600);
}

// Checks RFC 2018: 3-a.
#[test]
fn no_blocks_for_a_peer_that_takes_none() {
    let mut s = solo(sack, false, false);
    let sent = s.receive(&[seg(S + 1000, S, ACK, 500)]);
    assert_eq!((sent[0].ack, sent[0].sack), (S, None));
}

// Checks RFC 2018: 5-a, 5-b.
// Checks RFC 5681: 4.3-a.
#[test]
fn only_the_hole_is_sent_again() {
    let mut s = solo(sack, false, true);
    let plain = |ack| Seg { window: 65535, ..seg(S, ack, ACK, 0) };
    let sacked = |ack, right| Seg { sack: Some((S + 2000, right)), ..plain(ack) };
    let sent = |sent: &[Seg]| sent.iter().map(|s| (s.seq - S, s.len)).collect::<Vec<_>>();
    assert_eq!(s.write(8000, false).len(), 8);
    let again = s.receive(&[sacked(S, S + 3000), sacked(S, S + 4000), sacked(S, S + 5000)]);
    assert_eq!(sent(&again), [(0, 1000), (1000, 1000)]);
    assert!(s.receive(&[sacked(S + 1000, S + 5000)]).is_empty(), "a part of the hole was acknowledged");
    assert_eq!(sent(&s.write(500, false)), [(8000, 500)], "new data goes on behind all that was sent");
    let again = s.receive(&[plain(S + 5000)]);
    assert_eq!(sent(&again), [(5000, 1000), (6000, 1000), (7000, 1000), (8000, 500)], "what lies beyond was lost too");
    s.receive(&[plain(S + 8500)]);
    assert_eq!(s.side.stats.read().fast_retransmits, 1);
}

/// RFC 8985 section 6.2, step 5: what follows is too little to show a loss by itself.
#[test]
fn a_hole_that_had_its_time_is_sent_again() {
    let mut s = solo(sack, false, true);
    let sent = |sent: &[Seg]| sent.iter().map(|s| (s.seq - S, s.len)).collect::<Vec<_>>();
    let acked = |ack, sack| Seg { sack, window: 65535, ..seg(S, ack, ACK, 0) };
    assert_eq!(s.write(3000, false).len(), 3);
    assert!(s.command(stream::Command::Overdue(FLOW)).is_empty(), "the peer has nothing beyond a hole");
    assert!(s.receive(&[acked(S, Some((S + 1000, S + 2000)))]).is_empty());
    assert_eq!(s.side.stats.read().sacked, 1000);
    assert_eq!(sent(&s.command(stream::Command::Overdue(FLOW))), [(0, 1000)]);
    assert!(s.command(stream::Command::Overdue(FLOW)).is_empty(), "it is being made up for");
    s.receive(&[acked(S + 3000, None)]);
    let figures = s.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.sacked), (1, 0));
}

/// RFC 8985 section 7.
#[test]
fn a_tail_of_one_segment_is_probed() {
    let mut s = solo(sack, false, true);
    let sent = |sent: &[Seg]| sent.iter().map(|s| (s.seq - S, s.len)).collect::<Vec<_>>();
    let acked = |ack| Seg { window: 65535, ..seg(S, ack, ACK, 0) };
    assert_eq!(s.write(2000, false).len(), 2);
    assert!(s.command(stream::Command::ProbeTail(FLOW)).is_empty(), "two segments");
    assert!(s.receive(&[acked(S + 1000)]).is_empty());
    assert_eq!(sent(&s.command(stream::Command::ProbeTail(FLOW))), [(1000, 1000)]);
    assert!(s.command(stream::Command::ProbeTail(FLOW)).is_empty(), "it was sent again");
    assert!(s.receive(&[acked(S + 2000)]).is_empty());
    assert!(s.command(stream::Command::ProbeTail(FLOW)).is_empty(), "nothing is outstanding");
    assert_eq!(s.side.stats.read().fast_retransmits, 0, "no sign of congestion");
}

/// A segment whose only option is one block passes the pipeline once: nothing has to be taken off it before.
// Checks RFC 5681: 3.2-e, 3.2-f.
#[test]
fn limited_transmit_takes_new_selective_acknowledgements() {
    let mut s = solo(sack, false, true);
    let sacked = |right| Seg { sack: Some((S + 1000, S + right)), window: 65_535, ..seg(S, S, ACK, 0) };
    let numbers = |sent: Vec<Seg>| sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>();
    s.receive(&[Seg { window: 65_535, ..seg(S, S, ACK, 0) }]);
    s.command(stream::Command::Window(FLOW, 4000));
    assert_eq!(s.write(9000, false).len(), 4);
    assert_eq!(numbers(s.receive(&[sacked(2000)])), [(S + 4000, 1000)]);
    assert_eq!(numbers(s.receive(&[sacked(2000)])), [], "the same block again");
}

#[test]
fn blocks_take_the_fast_path() {
    let mut s = solo(sack, false, true);
    s.write(4000, false);
    let passes = |s: &Solo| {
        let stats = s.side.engine.module_stats();
        stats.iter().find(|(module, ..)| module == "ingress").map(|(_, _, packets)| *packets)
    };
    let before = passes(&s).unwrap();
    let sacked = |ack| Seg { sack: Some((S + 2000, S + 3000)), window: 65535, ..seg(S, ack, ACK, 0) };
    assert!(s.receive(&[sacked(S), sacked(S), sacked(S + 1000)]).is_empty());
    assert_eq!(passes(&s), Some(before + 3));
    assert_eq!(s.side.stats.read().snd_una, s.side.stats.read().snd_nxt - 3000);
}

/// Two holes, of which the peer reports one; then one of the segments that are sent again is lost.
#[test]
fn a_second_loss_within_recovery_needs_no_timeout() {
    let mut s = solo(sack, false, true);
    let plain = |ack| Seg { window: 65535, ..seg(S, ack, ACK, 0) };
    let sacked = |ack, block| Seg { sack: Some(block), ..plain(ack) };
    let sent = |sent: &[Seg]| sent.iter().map(|s| (s.seq - S, s.len)).collect::<Vec<_>>();
    assert_eq!(s.write(8000, false).len(), 8);
    assert_eq!(sent(&s.receive(&[sacked(S, (S + 1000, S + 4000)); 3])), [(0, 1000)]);
    let rest = [(4000, 1000), (5000, 1000), (6000, 1000), (7000, 1000)];
    assert_eq!(sent(&s.receive(&[plain(S + 4000)])), rest, "the second hole shows");
    assert!(s.receive(&[plain(S + 5000)]).is_empty());
    assert!(s.receive(&[sacked(S + 5000, (S + 6000, S + 7000))]).is_empty());
    let again = s.receive(&[sacked(S + 5000, (S + 6000, S + 8000)); 2]);
    assert_eq!(sent(&again), [(5000, 1000)]);
    assert!(s.receive(&[plain(S + 8000)]).is_empty());
    assert_eq!(s.side.stats.read().fast_retransmits, 1, "one time of congestion");
}

// Checks RFC 2018: 8-a.
#[test]
fn a_timeout_forgets_what_was_acknowledged_selectively() {
    let mut s = solo(sack, false, true);
    assert_eq!(s.write(4000, false).len(), 4);
    s.receive(&[Seg { sack: Some((S + 1000, S + 2000)), window: 65535, ..seg(S, S, ACK, 0) }]);
    let again = s.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(again.iter().map(|s| s.seq - S).collect::<Vec<_>>(), [0, 1000, 2000, 3000]);
}

/// Blocks of things that were never sent, of old acknowledgements, below what is acknowledged, upside down.
#[test]
fn wrong_blocks_change_nothing() {
    let mut s = solo(sack, false, true);
    let block = |ack, block| Seg { sack: Some(block), window: 65535, ..seg(S, ack, ACK, 0) };
    assert_eq!(s.write(4000, false).len(), 4);
    s.receive(&[Seg { window: 65535, ..seg(S, S + 1000, ACK, 0) }]);
    s.receive(&[block(S, (S + 2000, S + 3000)), block(S + 1000, (S + 2000, S + 9000))]);
    s.receive(&[block(S + 1000, (S + 3000, S + 2000))]);
    let again = s.receive(&[block(S + 1000, (S + 500, S + 800))]);
    assert_eq!(
        again.iter().map(|s| s.seq - S).collect::<Vec<_>>(),
        [1000, 2000, 3000],
        "three duplicates and no block"
    );
}

// Checks RFC 9293: SHLD-18, MUST-40, SHLD-19.
// Checks RFC 5681: 4.2-a.
#[test]
fn every_second_segment_is_acknowledged() {
    let mut s = solo(delayed, false, false);
    assert!(s.receive(&[seg(S, S, ACK, 100)]).is_empty());
    assert_eq!(s.receive(&[seg(S + 100, S, ACK, 100)])[0].ack, S + 200);
    assert!(s.receive(&[seg(S + 200, S, ACK, 100)]).is_empty());
    assert_eq!(s.completion().unwrap().0, 300, "the application is notified at once");
    assert!(s.wait(400_000).is_empty());
    assert_eq!(s.wait(100_000)[0].ack, S + 300, "the timer");
    assert!(s.wait(2_000_000).is_empty(), "once");
}

#[test]
fn what_is_sent_acknowledges() {
    let mut s = solo(delayed, false, false);
    assert!(s.receive(&[seg(S, S, ACK, 100)]).is_empty());
    let sent = s.write(50, false);
    assert_eq!((sent.len(), sent[0].ack), (1, S + 100));
    assert!(s.wait(2_000_000).is_empty(), "nothing is left to acknowledge");
    assert!(s.receive(&[seg(S + 100, S + 50, ACK, 100)]).is_empty(), "counted anew");
}

#[test]
fn what_must_not_wait() {
    let mut s = solo(delayed, false, false);
    let acks = |sent: Vec<Seg>| sent.iter().map(|s| s.ack).collect::<Vec<_>>();
    assert_eq!(acks(s.receive(&[seg(S + 100, S, ACK, 100)])), [S], "out of order");
    assert_eq!(acks(s.receive(&[seg(S, S, ACK, 100)])), [S + 200], "closes the gap");
    assert_eq!(acks(s.receive(&[seg(S, S, ACK, 100)])), [S + 200], "a duplicate");
    assert_eq!(s.drops(DropReason::Duplicate), 1);
    let marked = Seg { ecn: Ecn::Ce, ..seg(S + 200, S, ACK, 100) };
    assert_eq!(acks(s.receive(&[marked])), [S + 300], "a mark");
    assert_eq!(acks(s.receive(&[seg(S + 300, S, ACK, 4000)])), [S + 4300], "merged from several");
    assert!(s.receive(&[seg(S + 4300, S, ACK, 100)]).is_empty());
    assert_eq!(acks(s.receive(&[seg(S + 4600, S, ACK, 100)])), [S + 4400]);
    assert_eq!(acks(s.receive(&[seg(S + 4400, S, ACK, 100)])), [S + 4500], "part of a gap");
}

// Checks RFC 7323: 3.2-b, 4.3-a, 5.4-a.
#[test]
fn everything_carries_timestamps() {
    let mut s = solo(timely, true, false);
    let stamped =
        |seq, ack, len, value, echo| Seg { timestamps: Some(Timestamps { value, echo }), ..seg(seq, ack, ACK, len) };
    let echoes = |sent: &[Seg]| sent.iter().map(|s| s.timestamps.unwrap().echo).collect::<Vec<_>>();
    let first = s.receive(&[stamped(S, S, 100, 40, 1)]);
    assert_eq!(echoes(&first), [40]);
    // Out of order, and older: the echo stays (RFC 7323 section 4.3).
    assert_eq!(echoes(&s.receive(&[stamped(S + 200, S, 100, 50, 1)])), [40]);
    assert_eq!(echoes(&s.receive(&[stamped(S, S, 100, 30, 1)])), [40]);
    assert_eq!(echoes(&s.receive(&[stamped(S + 100, S, 100, 45, 1)])), [45]);
    let sent = s.write(10, false);
    assert_eq!(echoes(&sent), [45]);
    let begin = sent[0].timestamps.unwrap().value;
    let at = s.now;
    s.wait(4_096_000);
    let later = s.write(10, false)[0].timestamps.unwrap().value;
    assert_eq!(later.wrapping_sub(begin) as u64, s.now / 1_000_000 - at / 1_000_000, "milliseconds");
    let probe = s.command(stream::Command::Probe(FLOW));
    assert!(probe.iter().all(|s| s.timestamps.is_some()), "{probe:?}");
}

// Checks RFC 7323: 5.4-a.
#[test]
fn an_idle_flows_timestamps_do_not_seem_to_go_back() {
    // PAWS compares as signed differences (RFC 7323 section 5.2): a keepalive a day would do, and 24 days without one.
    let mut s = solo(timely, true, false);
    let mut before = s.write(10, false)[0].timestamps.unwrap().value;
    for hours in [1, 3, 10, 23 * 24] {
        s.wait(hours * 3_600_000_000_000);
        let now = s.write(10, false)[0].timestamps.unwrap().value;
        assert!(now.wrapping_sub(before) as i32 > 0, "{hours} h: {before}, then {now}");
        before = now;
    }
}

// Checks RFC 6298: 3.
#[test]
fn one_segment_of_each_round_trip_is_timed_in_the_data_path() {
    let mut s = solo(timely, true, false);
    let answer =
        |ack, value| Seg { timestamps: Some(Timestamps { value, echo: 1 }), window: 65_535, ..seg(S, S + ack, ACK, 0) };
    let figures = |s: &Solo| {
        let figures = s.side.stats.read();
        (figures.rtt_samples, figures.rtt_ns)
    };
    for (round, rtt) in [80_000u64, 160_000, 20_000_000].into_iter().enumerate() {
        let round = round as u32;
        s.write(100, false);
        let begin = s.now;
        s.write(100, false);
        s.wait(rtt);
        s.receive(&[answer(200 * round + 200, round + 2)]);
        let (samples, measured) = figures(&s);
        assert_eq!(
            (u32::from(samples), u64::from(measured).abs_diff(s.now - begin) <= 1),
            (round + 1, true),
            "{measured}"
        );
    }
    // Of the segments that were sent twice, no acknowledgement shows which it answers (Karn's algorithm).
    assert_eq!(s.write(100, false).len(), 1);
    assert_eq!(s.command(stream::Command::Retransmit(FLOW, None)).len(), 1);
    s.receive(&[answer(700, 9)]);
    assert_eq!(figures(&s).0, 3);
    s.write(100, false);
    s.receive(&[answer(800, 10)]);
    assert_eq!(figures(&s).0, 4);
}

#[test]
fn timestamps_and_a_block_fit_together() {
    let mut s = solo(all, true, true);
    let stamps = Some(Timestamps { value: 9, echo: 1 });
    let sent = s.receive(&[Seg { timestamps: stamps, ..seg(S + 1000, S, ACK, 500) }]);
    assert_eq!((sent[0].ack, sent[0].sack), (S, Some((S + 1000, S + 1500))));
    assert!(sent[0].timestamps.is_some());
}
