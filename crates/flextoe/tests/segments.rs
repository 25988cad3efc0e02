//! Single segments against one engine: what each is answered with, what it changes, and what it is counted as.
mod common;

use common::Config;
use common::solo::{ACK, FLOW, Seg, Solo, seg};
use engine::stream;
use engine::{Checksum, DropReason, Event};
use wire::ipv4::Ecn;
use wire::tcp::{Flags, Timestamps};

fn acks(sent: &[Seg]) -> Vec<u32> {
    assert!(sent.iter().all(|s| s.len == 0 && s.flags.has(ACK)), "{sent:?}");
    sent.iter().map(|s| s.ack).collect()
}

/// One case: segments of one burst (sequence number, flags, length), and the acknowledgements that go out at once. Also
/// the drop counted, and how many bytes the application may read then.
type Case = (&'static str, &'static [(u32, Flags, u32)], &'static [u32], Option<DropReason>, u32);

const FIN: Flags = Flags(0x11);
const NOTHING: &[u32] = &[];
const CLOSED: &[u32] = &[1000, 1000, 1000, 1310];

/// The receive buffer has 8192 bytes, the MSS is 1000.
const CASES: &[Case] = &[
    ("in order, small: the acknowledgement waits", &[(1000, ACK, 100)], NOTHING, None, 100),
    ("two full segments", &[(1000, ACK, 1000), (2000, ACK, 1000)], &[3000], None, 2000),
    ("eight full segments, one acknowledgement", &[(1000, ACK, 4000), (5000, ACK, 4000)], &[9000], None, 8000),
    ("seen before", &[(1000, ACK, 100), (1000, ACK, 100)], &[1100], Some(DropReason::Duplicate), 100),
    ("partly seen before", &[(1000, ACK, 100), (1050, ACK, 2000)], &[3050], None, 2050),
    ("beyond the window", &[(9193, ACK, 10)], &[1000], Some(DropReason::OutsideWindow), 0),
    ("partly beyond the window", &[(1000, ACK, 9000)], &[9192], Some(DropReason::Trimmed), 8192),
    ("long before the window", &[(1000, ACK, 4000), (900, ACK, 50)], &[5000], Some(DropReason::Duplicate), 4000),
    ("a gap", &[(1100, ACK, 100)], &[1000], None, 0),
    ("a gap that closes", &[(1100, ACK, 100), (1000, ACK, 100)], &[1000, 1200], None, 200),
    ("it grows at the end", &[(1100, ACK, 100), (1200, ACK, 100), (1000, ACK, 100)], &[1000, 1000, 1300], None, 300),
    ("it grows at the front", &[(1200, ACK, 100), (1100, ACK, 100), (1000, ACK, 100)], &[1000, 1000, 1300], None, 300),
    ("overlap closes it", &[(1100, ACK, 100), (1000, ACK, 150)], &[1000, 1200], None, 200),
    ("swallowed whole", &[(1100, ACK, 10), (1000, ACK, 900)], &[1000, 1900], None, 900),
    ("a second gap", &[(1100, ACK, 100), (1300, ACK, 100)], &[1000, 1000], None, 0),
    ("and all are closed", &[(1100, ACK, 100), (1300, ACK, 10), (1200, ACK, 100), (1000, ACK, 100)], CLOSED, None, 310),
    ("FIN", &[(1000, FIN, 0)], &[1001], None, 0),
    ("FIN with data", &[(1000, FIN, 10)], &[1011], None, 10),
    ("FIN again", &[(1000, FIN, 10), (1000, FIN, 10)], &[1011], Some(DropReason::Duplicate), 10),
    ("FIN before its data", &[(1010, FIN, 0), (1000, ACK, 10)], &[1000, 1011], None, 10),
    ("FIN with data before other data", &[(1010, FIN, 5), (1000, ACK, 10)], &[1000, 1016], None, 15),
    ("FIN partly seen", &[(1000, ACK, 10), (1005, FIN, 10)], &[1016], None, 15),
    ("FIN cut off with what is beyond", &[(1000, FIN, 8193)], &[9192], Some(DropReason::Trimmed), 8192),
    ("FIN at the full window's edge", &[(1000, FIN, 8192)], &[9193], None, 8192),
    ("data after FIN", &[(1000, FIN, 10), (1011, ACK, 10)], &[1011], Some(DropReason::AfterClose), 10),
    ("no ACK", &[(1000, Flags(0), 10)], NOTHING, Some(DropReason::NoAck), 0),
    ("SYN", &[(1000, Flags::SYN, 0)], &[1000], Some(DropReason::SynChallenged), 0),
    ("SYN and ACK", &[(5000, Flags(0x12), 0)], &[1000], Some(DropReason::SynChallenged), 0),
    ("RST inside the window", &[(1001, Flags::RST, 0)], &[1000], Some(DropReason::RstChallenged), 0),
    ("RST outside", &[(999, Flags::RST, 0)], NOTHING, Some(DropReason::OutsideWindow), 0),
    ("keepalive", &[(999, ACK, 0)], &[1000], Some(DropReason::OutsideWindow), 0),
    ("keepalive with a byte", &[(999, ACK, 1)], &[1000], Some(DropReason::Duplicate), 0),
];

// Checks RFC 9293: SHLD-19, MUST-58, MUST-59, SHLD-31.
// Checks RFC 5681: 3.2-a, 3.2-b, 4.2-a.
// Checks RFC 5961: 3.2-a, 3.2-c, 4.2-a.
#[test]
fn received_segments() {
    for (name, segments, answers, reason, readable) in CASES {
        let mut solo = Solo::plain();
        let segments: Vec<Seg> = segments.iter().map(|(seq, flags, len)| seg(*seq, 1000, *flags, *len)).collect();
        let sent = solo.receive(&segments);
        assert_eq!(acks(&sent), *answers, "{name}");
        match reason {
            Some(reason) => assert_eq!(solo.drops(*reason), 1, "{name}: {:?}", solo.side.drops),
            None => assert_eq!(solo.side.drops, Default::default(), "{name}"),
        }
        let fin = segments.iter().any(|s| s.flags.has(Flags::FIN)) && solo.drops(DropReason::Trimmed) == 0;
        let reported = (*readable > 0 || fin).then_some((*readable, 0, fin));
        assert_eq!(solo.completion(), reported, "{name}");
        let expected = if fin { vec![Event::Transport(stream::Event::PeerFin(FLOW))] } else { vec![] };
        assert_eq!(solo.events(), expected, "{name}");
        solo.read(*readable);
        assert_eq!(solo.side.stats.read().drops as usize, reason.iter().count(), "{name}");
    }
}

// Checks RFC 9293: SHLD-18, MUST-40, MUST-60.
#[test]
fn the_delayed_acknowledgement_goes_out_in_time_or_with_data() {
    let mut solo = Solo::plain();
    assert!(solo.receive(&[seg(1000, 1000, ACK, 100)]).is_empty());
    let due = solo.side.engine.next_deadline().expect("a deadline");
    assert!(due > solo.now && due <= solo.now + 1_000_000);
    assert_eq!(acks(&solo.wait(due - solo.now)), [1100]);
    assert!(solo.wait(5_000_000).is_empty(), "once");

    solo.receive(&[seg(1100, 1000, ACK, 100)]);
    let sent = solo.write(10, false);
    assert_eq!((sent.len(), sent[0].ack, sent[0].len), (1, 1200, 10));
    assert!(solo.wait(5_000_000).is_empty(), "the data segment was the acknowledgement");
}

// Checks RFC 2018: 4-a, 4-b, 4-c, 4-d.
#[test]
fn selective_acknowledgement_of_the_interval() {
    let mut solo = Solo::plain();
    let sent = solo.receive(&[seg(1100, 1000, ACK, 100), seg(1200, 1000, ACK, 50)]);
    assert_eq!(sent[0].sack, Some((1100, 1200)));
    assert_eq!(sent[1].sack, Some((1100, 1250)));
    let sent = solo.receive(&[seg(1000, 1000, ACK, 100)]);
    assert_eq!((sent[0].ack, sent[0].sack), (1250, None));
}

// Checks RFC 5961: 3.2-b.
#[test]
fn an_exact_reset_ends_the_flow() {
    let mut solo = Solo::plain();
    assert!(solo.receive(&[seg(1000, 1000, Flags::RST, 0)]).is_empty());
    assert_eq!(solo.events(), [Event::Transport(stream::Event::Reset(FLOW))]);
    assert!(solo.write(100, true).is_empty() && solo.receive(&[seg(1000, 1000, ACK, 10)]).is_empty());
    assert_eq!(solo.events(), []);
}

// Checks RFC 5961: 7-a.
#[test]
fn challenges_are_limited() {
    let mut solo = Solo::plain();
    let many = vec![seg(1000, 1000, Flags::SYN, 0); 50];
    assert_eq!(solo.receive(&many).len(), 10);
    assert_eq!(solo.drops(DropReason::ChallengeLimit), 40);
    solo.wait(100_000_000);
    assert_eq!(solo.receive(&many[..1]).len(), 1);
}

// Checks RFC 5961: 5.2-a.
#[test]
fn acknowledgements_that_cannot_be_are_challenged() {
    let mut solo = Solo::plain();
    solo.write(100, false);
    assert_eq!(acks(&solo.receive(&[seg(1000, 1101, ACK, 0)])), [1000]);
    assert_eq!(solo.drops(DropReason::AckBeyondSent), 1);
    assert!(solo.receive(&[seg(1000, 1100, ACK, 0)]).is_empty());
    assert_eq!(solo.completion(), Some((0, 100, false)));
    // The largest window was 8192.
    assert!(solo.receive(&[seg(1000, 1000, ACK, 0)]).is_empty(), "old, but possible");
    let mut ancient = seg(1000, 1100, ACK, 0);
    ancient.ack = 1100u32.wrapping_sub(8193);
    assert_eq!(acks(&solo.receive(&[ancient])), [1000]);
    assert_eq!(solo.drops(DropReason::AckTooOld), 1);
}

// Checks RFC 7323: 3.2-b, 3.2-c, 4.3-a, 5.3-a, 5.3-b, 5.4-a.
#[test]
fn old_timestamps_are_refused_and_new_ones_echoed() {
    let mut solo = Solo::new(Config { mss: 1000, ..Config::clean(1) });
    let stamped = |seq, len, value| Seg { timestamps: Some(Timestamps { value, echo: 1 }), ..seg(seq, 1000, ACK, len) };
    let sent = solo.receive(&[stamped(1000, 2000, 50)]);
    assert_eq!(sent[0].timestamps.unwrap().echo, 50);
    assert_eq!(sent[0].timestamps.unwrap().value, (solo.now / 1_000_000) as u32 + 1);
    let sent = solo.receive(&[stamped(3000, 10, 49)]);
    assert_eq!((acks(&sent), solo.drops(DropReason::Paws)), (vec![3000], 1));
    // Out of order: acknowledged at once, but its timestamp is not the one to echo.
    let sent = solo.receive(&[stamped(3500, 10, 60)]);
    assert_eq!(sent[0].timestamps.unwrap().echo, 50);
    assert!(solo.receive(&[seg(3000, 1000, ACK, 10)]).is_empty(), "none at all");
    assert_eq!(solo.drops(DropReason::Paws), 2);
    solo.receive(&[Seg { timestamps: None, ..seg(3000, 1000, Flags::RST, 0) }]);
    assert_eq!(solo.events(), [Event::Transport(stream::Event::Reset(FLOW))], "RST is not subject to it");
}

// Checks RFC 9293: MUST-1, REC-1, SHLD-28.
// Checks RFC 7323: 4.1-a.
// Checks RFC 5681: 3.2-c.
// Checks RFC 6298: 3.
#[test]
fn three_duplicates_send_again_once() {
    let mut solo = Solo::new(Config { timestamps: false, sack: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    let windowed = |ack| Seg { window: 65535, ..seg(1000, ack, ACK, 0) };
    assert_eq!(solo.write(5000, false).len(), 5);
    assert!(solo.receive(&[windowed(1000), windowed(1000)]).is_empty());
    let sent = solo.receive(&[windowed(1000)]);
    assert_eq!(sent.iter().map(|s| s.seq).collect::<Vec<_>>(), [1000, 2000, 3000, 4000, 5000], "go-back-N");
    assert!(sent.iter().all(|s| s.len == 1000));
    assert!(solo.receive(&[windowed(1000), windowed(1000), windowed(1000)]).is_empty(), "once per loss");
    solo.receive(&[windowed(6000)]);
    assert!(solo.receive(&[windowed(6000), windowed(6000), windowed(6000)]).is_empty(), "nothing is outstanding");
    let figures = solo.side.stats.read();
    assert_eq!((figures.fast_retransmits, figures.retransmitted_segments, figures.duplicate_acks), (1, 5, 6));
    assert_eq!(figures.rtt_samples, 0, "Karn");
}

// Checks RFC 2018: 5-a, 5-b.
// Checks RFC 5681: 4.3-a.
#[test]
fn with_selective_acknowledgement_only_the_hole_is_sent_again() {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    let sacked = |ack, right| Seg { sack: Some((3000, right)), window: 65535, ..seg(1000, ack, ACK, 0) };
    assert_eq!(solo.write(8000, false).len(), 8);
    let sent = solo.receive(&[sacked(1000, 4000), sacked(1000, 5000), sacked(1000, 6000)]);
    assert_eq!(sent.iter().map(|s| s.seq).collect::<Vec<_>>(), [1000]);
    let sent = solo.receive(&[sacked(2000, 6000)]);
    assert_eq!(sent.iter().map(|s| s.seq).collect::<Vec<_>>(), [2000], "a part of the hole was acknowledged");
    for lost in [6000, 7000, 8000] {
        let sent = solo.receive(&[Seg { window: 65535, ..seg(1000, lost, ACK, 0) }]);
        assert_eq!(sent.iter().map(|s| s.seq).collect::<Vec<_>>(), [lost], "what lies beyond was lost, too");
    }
}

// Checks RFC 9293: MUST-34, MUST-36, SHLD-16, SHLD-15, MUST-61.
#[test]
fn a_timeout_goes_back_and_a_closed_window_is_probed() {
    let mut solo = Solo::plain();
    assert_eq!(solo.write(2000, true).iter().map(|s| s.len).sum::<u32>(), 2000);
    assert_eq!(solo.events(), [stream::Event::Active(FLOW), stream::Event::LocalFin(FLOW)].map(Event::Transport));
    let sent = solo.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>(), [(1000, 1000), (2000, 1000)]);
    assert!(sent[1].flags.has(Flags::FIN | Flags::PSH));
    let closed = Seg { window: 0, ..seg(1000, 2000, ACK, 0) };
    assert!(solo.receive(&[closed]).is_empty());
    assert_eq!(solo.command(stream::Command::Retransmit(FLOW, None))[0].seq, 1999, "a probe");
    assert_eq!(solo.command(stream::Command::Probe(FLOW))[0], solo.command(stream::Command::Probe(FLOW))[0]);
    let sent = solo.receive(&[Seg { window: 5000, ..closed }]);
    assert_eq!(sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>(), [(2000, 1000)]);
    solo.receive(&[seg(1000, 3001, ACK, 0)]);
    assert_eq!(solo.events(), [Event::Transport(stream::Event::FinAcked(FLOW))]);
    assert_eq!(solo.completion(), Some((0, 2000, false)));
}

// Checks RFC 9293: MUST-38, SHLD-27.
#[test]
fn a_window_smaller_than_a_segment_is_used_as_in_the_rfc() {
    // RFC 9293 section 3.8.6.2.1: not less than half of the largest window, unless it is all there is.
    let mut solo = Solo::plain();
    solo.receive(&[Seg { window: 100, ..seg(1000, 1000, ACK, 0) }]);
    assert!(solo.write(5000, false).is_empty(), "100 of 8192 is silly");
    let sent = solo.command(stream::Command::Probe(FLOW));
    assert_eq!(sent.last().map(|s| s.len), Some(100), "the persist timer overrides");
    let sent = solo.receive(&[Seg { window: 4096, ..seg(1000, 1100, ACK, 0) }]);
    assert_eq!(sent.iter().map(|s| s.len).collect::<Vec<_>>(), [1000; 4], "96 more would be silly");
}

// Checks RFC 9293: MUST-39, SHLD-14.
#[test]
fn a_window_that_opens_is_advertised() {
    let mut solo = Solo::plain();
    let sent = solo.receive(&[seg(1000, 1000, ACK, 8192)]);
    assert_eq!((sent[0].ack, sent[0].window), (9192, 0));
    assert!(solo.read(1000).is_empty(), "too little to advertise (RFC 9293 section 3.8.6.2.2)");
    let sent = solo.read(1048);
    assert_eq!((sent.len(), sent[0].ack, sent[0].window), (1, 9192, 2048));
}

// Checks RFC 3168: 6.1.2-b, 6.1.3-a, 6.1.5-a, 6.1.4-a, 6.1.6-a.
#[test]
fn congestion_is_echoed_until_the_peer_has_reduced() {
    let mut solo = Solo::new(Config { ecn: true, timestamps: false, mss: 1000, ..Config::clean(1) });
    let marked = |seq, flags, ecn| Seg { ecn, ..seg(seq, 1000, flags, 2000) };
    let echo = |sent: Vec<Seg>| sent.iter().map(|s| s.flags.has(Flags::ECE)).collect::<Vec<_>>();
    assert_eq!(echo(solo.receive(&[marked(1000, ACK, Ecn::Ect0)])), [false]);
    assert_eq!(echo(solo.receive(&[marked(3000, ACK, Ecn::Ce)])), [true]);
    assert_eq!(echo(solo.receive(&[marked(5000, ACK, Ecn::Ect0)])), [true]);
    assert_eq!(echo(solo.receive(&[marked(7000, ACK | Flags::CWR, Ecn::Ect0)])), [false]);
    // The sender's side.
    let sent = solo.write(1000, false);
    assert_eq!((sent[0].ecn, sent[0].flags.has(Flags::CWR)), (Ecn::Ect0, false));
    solo.receive(&[seg(9000, 2000, ACK | Flags::ECE, 0)]);
    assert_eq!(solo.side.stats.read().ecn_bytes, 1000);
    solo.command(stream::Command::Window(FLOW, 5000));
    assert!(solo.write(1000, false)[0].flags.has(Flags::CWR));
    assert_eq!(solo.command(stream::Command::Retransmit(FLOW, None))[0].ecn, Ecn::NotEct);
}

#[test]
fn dctcp_reports_every_change_at_once() {
    let config = Config { ecn: true, dctcp: true, timestamps: false, mss: 1000, ..Config::clean(1) };
    let mut solo = Solo::new(config);
    let marked = |seq, ecn| Seg { ecn, ..seg(seq, 1000, ACK, 100) };
    assert!(solo.receive(&[marked(1000, Ecn::Ect0)]).is_empty());
    let sent = solo.receive(&[marked(1100, Ecn::Ce)]);
    let echoed: Vec<_> = sent.iter().map(|s| (s.ack, s.flags.has(Flags::ECE))).collect();
    assert_eq!(echoed, [(1100, false), (1200, true)]);
    let sent = solo.receive(&[marked(1200, Ecn::Ce), marked(1300, Ecn::Ect0)]);
    let echoed: Vec<_> = sent.iter().map(|s| (s.ack, s.flags.has(Flags::ECE))).collect();
    assert_eq!(echoed, [(1300, true), (1400, false)]);
}

// Checks RFC 9293: MUST-3.
#[test]
fn damaged_frames_are_counted_and_others_handed_on() {
    let mut solo = Solo::plain();
    solo.receive(&[seg(1000, 1000, ACK, 100)]);
    assert_eq!(solo.completion(), Some((100, 0, false)));
    let empty = solo.side.pool.small();
    solo.side.rx.push(empty);
    solo.round();
    assert_eq!(solo.drops(DropReason::Ethernet), 1);
    for (at, reason) in [
        (14, DropReason::Ip),
        (30, DropReason::Ip),
        (60, DropReason::TcpChecksum),
        (46, DropReason::TcpHeader),
        (40, DropReason::TcpChecksum),
    ] {
        let before = solo.drops(reason);
        solo.receive_damaged(&seg(1100, 1000, ACK, 100), at);
        assert_eq!(solo.drops(reason), before + 1, "byte {at}");
    }
    assert!(solo.side.exceptions.is_empty() && solo.completion().is_none());
    solo.receive_damaged(&seg(1100, 1000, ACK, 100), 12);
    assert_eq!(solo.side.exceptions.len(), 1, "another EtherType");
}

// Checks RFC 7323: 5.5-a.
#[test]
fn an_idle_connections_timestamp_grows_old() {
    let mut solo = Solo::new(Config { mss: 1000, ..Config::clean(1) });
    let stamped = |seq, value| Seg { timestamps: Some(Timestamps { value, echo: 1 }), ..seg(seq, 1000, ACK, 2000) };
    assert_eq!(acks(&solo.receive(&[stamped(1000, 1 << 31)])), [3000]);
    // The peer's clock went round: after 24 days that is possible, before it is an old segment.
    solo.wait(23 * 24 * 3600 * 1_000_000_000);
    solo.receive(&[stamped(3000, 5)]);
    assert_eq!(solo.drops(DropReason::Paws), 1);
    solo.wait(2 * 24 * 3600 * 1_000_000_000);
    assert_eq!(acks(&solo.receive(&[stamped(3000, 5)])), [5000]);
}

// Checks RFC 2018: 3-a.
#[test]
fn no_blocks_without_permission() {
    let mut solo = Solo::new(Config { sack: false, timestamps: false, mss: 1000, ..Config::clean(1) });
    let sent = solo.receive(&[seg(1100, 1000, ACK, 100)]);
    assert_eq!((sent[0].ack, sent[0].sack), (1000, None));
}

// Checks RFC 2018: 8-a.
#[test]
fn a_timeout_forgets_what_was_acknowledged_selectively() {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    solo.write(4000, false);
    solo.receive(&[Seg { sack: Some((2000, 3000)), window: 65535, ..seg(1000, 1000, ACK, 0) }]);
    let sent = solo.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(sent.iter().map(|s| s.seq).collect::<Vec<_>>(), [1000, 2000, 3000, 4000]);
}

// Checks RFC 5681: 3.1-a.
#[test]
fn the_smaller_window_limits() {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    solo.receive(&[Seg { window: 5000, ..seg(1000, 1000, ACK, 0) }]);
    solo.command(stream::Command::Window(FLOW, 3000));
    assert_eq!(solo.write(9000, false).len(), 3, "the congestion window");
    assert_eq!(solo.command(stream::Command::Window(FLOW, 9000)).len(), 2, "the peer's window");
}

// Checks RFC 5681: 3.2-e, 3.2-f.
#[test]
fn limited_transmit_takes_new_selective_acknowledgements() {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    let sacked = |ack, right| Seg { sack: Some((2000, right)), window: 65535, ..seg(1000, ack, ACK, 0) };
    let numbers = |sent: Vec<Seg>| sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>();
    solo.command(stream::Command::Window(FLOW, 4000));
    assert_eq!(solo.write(9000, false).len(), 4);
    assert_eq!(numbers(solo.receive(&[sacked(1000, 3000)])), [(5000, 1000)]);
    assert_eq!(numbers(solo.receive(&[sacked(1000, 3000)])), [], "the same block again");
    // The window has not changed: what was sent beyond it is in flight when the hole is filled.
    assert_eq!(numbers(solo.receive(&[seg(1000, 5000, ACK, 0)])), []);
    solo.receive(&[Seg { window: 65535, ..seg(1000, 5000, ACK, 0) }]);
    assert_eq!(solo.side.stats.read().retransmitted_segments, 0);
}

// Checks RFC 5681: 3.2-e.
#[test]
fn limited_transmit_keeps_to_the_peers_window() {
    let mut solo = Solo::new(Config { timestamps: false, sack: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    let windowed = |ack, window| Seg { window, ..seg(1000, ack, ACK, 0) };
    solo.receive(&[windowed(1000, 4000)]);
    solo.command(stream::Command::Window(FLOW, 4000));
    assert_eq!(solo.write(9000, false).len(), 4);
    assert!(solo.receive(&[windowed(1000, 4000); 2]).is_empty());
    let sent = solo.receive(&[windowed(5000, 5500)]);
    assert_eq!(sent.len(), 4, "the congestion window again, and no more");
}

// Checks RFC 9293: MUST-38.
#[test]
fn the_congestion_window_makes_no_small_segments() {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, wscale: 0, ..Config::clean(1) });
    let windowed = |ack| Seg { window: 65535, ..seg(1000, ack, ACK, 0) };
    solo.receive(&[windowed(1000)]);
    solo.command(stream::Command::Window(FLOW, 2264));
    let lengths = |sent: Vec<Seg>| sent.iter().map(|s| s.len).collect::<Vec<_>>();
    assert_eq!(lengths(solo.write(9000, false)), [1000, 1000], "264 more would be silly");
    assert_eq!(lengths(solo.receive(&[windowed(2000)])), [1000]);
    solo.receive(&[windowed(4000)]);
    solo.command(stream::Command::Window(FLOW, 300));
    assert_eq!(lengths(solo.receive(&[windowed(6000)])), [300], "nothing is in flight that would open the window");
}

// Checks RFC 9293: MUST-66.
#[test]
fn a_closed_window_does_not_keep_a_reset_out() {
    let mut solo = Solo::plain();
    assert_eq!(solo.receive(&[seg(1000, 1000, ACK, 8192)])[0].window, 0);
    solo.receive(&[seg(9192, 1000, Flags::RST, 0)]);
    assert!(solo.events().contains(&Event::Transport(stream::Event::Reset(FLOW))));
}

#[test]
fn one_unusual_segment_takes_few_others_the_long_way() {
    let mut solo = Solo::plain();
    let burst = |solo: &mut Solo, segs: &[Seg]| {
        for s in segs {
            let mut frame = solo.frame(s);
            frame.checksum = Checksum::Verified;
            solo.side.rx.push(frame);
        }
        solo.round();
        let all = solo.side.engine.module_stats();
        let batches = all.into_iter().find(|(module, what, _)| module == "preprocess" && *what == "batches");
        batches.expect("a module").2
    };
    let before = burst(&mut solo, &[seg(1000, 1000, ACK, 100)]);
    let mut segs: Vec<Seg> = (0..50).map(|at| seg(1100 + 100 * at, 1000, ACK, 100)).collect();
    segs.insert(3, Seg { window: 2000, ..seg(1400, 1000, ACK, 0) });
    // Three before it at once, it and seven others as works, and the others at once again.
    assert_eq!(burst(&mut solo, &segs) - before, 3);
    assert_eq!(solo.completion(), Some((5100, 0, false)));
}

// Checks RFC 9293: SHLD-7, MUST-17.
#[test]
fn short_segments_wait_for_each_other_where_they_are_to() {
    let config = Config { timestamps: false, mss: 1000, wscale: 0, tx_bytes: 65536, ..Config::clean(1) };
    let mut solo = Solo::new(config);
    solo.receive(&[Seg { window: 65535, ..seg(1000, 1000, ACK, 0) }]);
    solo.command(stream::Command::Window(FLOW, 60_000));
    let lengths = |sent: Vec<Seg>| sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>();
    let ack = |ack| Seg { window: 65535, ..seg(1000, ack, ACK, 0) };
    assert_eq!(lengths(solo.write(100, false)), [(1000, 100)]);
    assert_eq!(lengths(solo.write(100, false)), [(1100, 100)], "it is off");
    solo.receive(&[ack(1200)]);
    solo.command(stream::Command::Nagle(FLOW, true));
    assert_eq!(lengths(solo.write(100, false)), [(1200, 100)], "the first short one");
    assert!(solo.write(100, false).is_empty());
    assert_eq!(lengths(solo.write(1000, false)), [(1300, 1000)], "a full one goes");
    assert_eq!(lengths(solo.receive(&[ack(1300)])), [(2300, 100)], "what is full is not waited for");
    assert!(solo.write(100, false).is_empty());
    assert_eq!(lengths(solo.command(stream::Command::Nagle(FLOW, false))), [(2400, 100)]);
    solo.command(stream::Command::Nagle(FLOW, true));
    assert!(solo.receive(&[ack(2500)]).is_empty());
    assert_eq!(lengths(solo.write(100, false)), [(2500, 100)]);
    assert!(solo.write(100, false).is_empty());
    let again = solo.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(lengths(again), [(2500, 100)], "what is sent again does not wait");
    let sent = lengths(solo.write(100, true));
    assert_eq!(sent, [(2600, 200)], "nor what the end follows");
}
