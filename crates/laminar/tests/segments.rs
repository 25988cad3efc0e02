//! One Laminar engine, and segments made by hand: what the pipeline and the switch's processor do with each.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::Config;
use common::contexts::make_context;
use common::solo::{ACK, FLOW, START, Seg, Solo, acks, seg};
use context::Bump;
use engine::stream::{self, Stream};
use engine::{Command, ContextId, DropReason, Engine, Event, FramePool, Limits, Slot};
use laminar::{Extensions, Laminar};
use std::sync::Arc;
use wire::ipv4::Ecn;
use wire::tcp::Flags;

fn make(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, Extensions::NONE).unwrap())
}

fn solo_config() -> Config {
    Config { engine: make, timestamps: false, sack: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) }
}

fn solo() -> Solo {
    Solo::new(solo_config())
}

const S: u32 = START;

// Checks RFC 9293: SHLD-31.
// Checks RFC 5681: 3.2-a, 3.2-b.
#[test]
fn every_segment_is_acknowledged_one_by_one() {
    let mut s = solo();
    assert_eq!(acks(&s.receive(&[seg(S, S, ACK, 500)])), [S + 500]);
    let sent = s.receive(&[seg(S + 1000, S, ACK, 500), seg(S + 1500, S, ACK, 100)]);
    assert_eq!(acks(&sent), [S + 500, S + 500], "duplicates report the hole");
    assert_eq!(acks(&s.receive(&[seg(S + 500, S, ACK, 500)])), [S + 1600]);
    assert_eq!(s.completion().unwrap().0, 1600);
    s.read(1600);
    // What was there already is acknowledged again, and changes nothing.
    assert_eq!(acks(&s.receive(&[seg(S, S, ACK, 500)])), [S + 1600]);
    assert_eq!(s.drops(DropReason::Duplicate), 1);
}

/// The control plane offers ahead of `Resume`, which has what is unread: an ACK in between would promise too much.
#[test]
fn what_is_offered_the_peer_gets_with_the_next_read() {
    let mut s = Solo::new(Config { tx_bytes: 8192, most: 32768, ..solo_config() });
    assert_eq!(s.command(stream::Command::Offer(FLOW, 16384)), []);
    s.receive(&[seg(S, S, ACK, 100)]);
    let sent = s.read(100);
    assert_eq!(sent.last().map(|sent| (sent.ack, sent.window)), Some((S + 100, 16384)));
}

#[test]
fn the_peers_fin_waits_for_what_is_missing() {
    let mut s = solo();
    let fin = ACK | Flags::FIN;
    let sent = s.receive(&[seg(S + 500, S, fin, 300)]);
    assert_eq!(acks(&sent), [S], "its payload is out of order");
    assert!(s.events().is_empty());
    let sent = s.receive(&[seg(S, S, ACK, 500)]);
    assert_eq!(acks(&sent).last(), Some(&(S + 801)), "payload and FIN: {sent:?}");
    assert_eq!(s.events(), [Event::Transport(stream::Event::PeerFin(FLOW))]);
    assert_eq!(s.completion(), Some((800, 0, true)));
    s.read(800);
    // FIN again, and data behind it.
    assert_eq!(acks(&s.receive(&[seg(S + 800, S, fin, 0)])), [S + 801]);
    assert_eq!(acks(&s.receive(&[seg(S + 801, S, ACK, 10)])), [S + 801]);
    assert!(s.events().is_empty());
    assert_eq!(s.completion(), None, "nothing came after FIN");
}

#[test]
fn what_an_ended_process_left_counts() {
    assert_eq!(solo().leave(60), 60);
}

#[test]
fn an_empty_fin_and_our_own() {
    let mut s = solo();
    let sent = s.receive(&[seg(S, S, ACK | Flags::FIN, 0)]);
    assert_eq!(acks(&sent), [S + 1]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::PeerFin(FLOW))]);
    let sent = s.write(100, true);
    assert_eq!((sent.len(), sent[0].seq, sent[0].len, sent[0].ack), (1, S, 100, S + 1));
    assert!(sent[0].flags.has(Flags::FIN | Flags::PSH));
    assert_eq!(s.events(), [stream::Event::LocalFin(FLOW), stream::Event::Active(FLOW)].map(Event::Transport));
    s.receive(&[seg(S + 1, S + 101, ACK, 0)]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::FinAcked(FLOW))]);
    s.command(Command::Remove(FLOW));
    let [Event::Removed(_, end)] = s.events()[..] else { panic!("no answer") };
    assert_eq!((end.snd_nxt, end.unread), (end.snd_una, 0));
}

// Checks RFC 5961: 3.2-a, 3.2-b, 3.2-c, 4.2-a.
#[test]
fn resets_and_syns_as_in_rfc_5961() {
    let mut s = solo();
    let rst = Flags::RST | ACK;
    assert!(s.receive(&[seg(S + 9000, S, rst, 0)]).is_empty(), "outside the window");
    assert_eq!(acks(&s.receive(&[seg(S + 10, S, rst, 0)])), [S], "challenged");
    assert_eq!(acks(&s.receive(&[seg(S + 10, S, Flags::SYN, 0)])), [S], "challenged");
    assert_eq!((s.drops(DropReason::RstChallenged), s.drops(DropReason::SynChallenged)), (1, 1));
    assert!(s.events().is_empty());
    assert!(s.receive(&[seg(S, S, rst, 0)]).is_empty());
    assert_eq!(s.events(), [Event::Transport(stream::Event::Reset(FLOW))]);
    assert!(s.write(10, false).is_empty(), "nothing is sent any more");
    for _ in 0..200 {
        s.receive(&[seg(S + 10, S, Flags::SYN, 0)]);
    }
    assert_eq!(s.drops(DropReason::AfterClose), 200);
}

// Checks RFC 5961: 5.2-a.
#[test]
fn what_acknowledges_bytes_never_sent_is_answered_and_dropped() {
    let mut s = solo();
    assert_eq!(s.write(100, false).len(), 1);
    assert_eq!(acks(&s.receive(&[seg(S, S + 101, ACK, 500)])), [S], "RFC 5961 section 5.2");
    assert_eq!((s.completion(), s.drops(DropReason::AckBeyondSent)), (None, 1));
    assert_eq!(acks(&s.receive(&[seg(S, S + 100, ACK, 500)])), [S + 500]);
    assert_eq!(s.completion().map(|completion| completion.0), Some(500));
}

// Checks RFC 9293: 3.10.7.4-a.
#[test]
fn what_lies_outside_the_window_acknowledges_nothing() {
    let mut s = solo();
    s.receive(&[seg(S, S, ACK, 1000)]);
    s.read(1000);
    s.completion();
    assert_eq!(s.write(100, false).len(), 1);
    // Below the window, beyond it, below it with a FIN and with options that take the slow path.
    let sack = Seg { sack: Some((S + 5, S + 9)), ..seg(S + 100, S + 100, ACK, 100) };
    let fin = seg(S + 100, S + 100, ACK | Flags::FIN, 100);
    for old in [seg(S + 100, S + 100, ACK, 100), seg(S + 20_000, S + 100, ACK, 100), fin, sack] {
        assert_eq!(acks(&s.receive(&[old])), [S + 1000], "{old:?}");
        assert_eq!((s.completion(), s.side.stats.read().outstanding), (None, 100), "{old:?}");
    }
    s.receive(&[seg(S + 1000, S + 100, ACK, 0)]);
    assert_eq!(s.completion().map(|completion| completion.1), Some(100));
}

// Checks RFC 5961: 7-a.
#[test]
fn challenges_are_limited() {
    let mut s = solo();
    let answered: usize = (0..150).map(|_| s.receive(&[seg(S + 10, S, Flags::SYN, 0)]).len()).sum();
    assert_eq!((answered, s.drops(DropReason::ChallengeLimit)), (10, 140));
}

#[test]
fn options_unknown_to_the_parser_are_removed() {
    let mut s = solo();
    let with = |seq, len| Seg { sack: Some((S + 5, S + 9)), ..seg(seq, S, ACK, len) };
    assert_eq!(acks(&s.receive(&[with(S, 500)])), [S + 500]);
    let urgent = Seg { flags: ACK | Flags::URG, ..seg(S + 500, S, ACK, 500) };
    assert_eq!(acks(&s.receive(&[urgent])), [S + 1000]);
    s.read(1000);
    assert!(s.side.exceptions.is_empty());
}

// Checks RFC 5681: 3.2-c.
#[test]
fn three_duplicates_send_again_once() {
    let mut s = solo();
    assert_eq!(s.write(5000, false).len(), 5);
    let duplicate = Seg { window: 9000, ..seg(S, S, ACK, 0) };
    assert!(s.receive(&[duplicate]).is_empty(), "another window: no duplicate");
    assert!(s.receive(&[duplicate; 2]).is_empty());
    let again = s.receive(&[duplicate]);
    assert_eq!(again.first().map(|s| (s.seq, s.len)), Some((S, 1000)), "go-back-N from the oldest");
    assert!(s.receive(&[duplicate; 4]).is_empty(), "once");
    assert_eq!(s.side.stats.read().fast_retransmits, 1);
}

#[test]
fn a_duplicate_segment_brings_its_acknowledgement_along() {
    let mut s = solo();
    s.receive(&[seg(S, S, ACK, 100)]);
    assert_eq!(s.write(1000, false).len(), 1);
    s.completion();
    assert_eq!(acks(&s.receive(&[seg(S, S + 1000, ACK, 100)])), [S + 100], "answered as a duplicate");
    assert_eq!(s.completion(), Some((100, 1000, false)), "and the application has its room back");
    assert_eq!(s.side.stats.read().outstanding, 0);
}

// Checks RFC 9293: SHLD-12.
// Checks RFC 3168: 6.1.6-a.
#[test]
fn a_timeout_goes_back_and_a_closed_window_is_probed() {
    let mut s = solo();
    assert_eq!(s.write(2000, false).len(), 2);
    let again = s.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(again.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>(), [(S, 1000), (S + 1000, 1000)]);
    s.receive(&[Seg { window: 0, ..seg(S, S + 2000, ACK, 0) }]);
    // The window that was advertised first reaches further, and a right edge never moves back.
    s.write(8000, false);
    let probe = s.command(stream::Command::Probe(FLOW));
    let probe = probe.iter().find(|s| s.len == 0).expect("an empty segment");
    assert_eq!((probe.seq, probe.ecn), (S + 1999, Ecn::NotEct));
}

// Checks RFC 3168: 6.1.2-b, 6.1.5-a.
#[test]
fn retransmissions_are_not_ecn_capable_and_cwr_is_sent() {
    let mut s = Solo::new(Config { ecn: true, ..solo_config() });
    let marks = |sent: Vec<Seg>| sent.iter().map(|s| (s.ecn, s.flags.has(Flags::CWR))).collect::<Vec<_>>();
    assert_eq!(marks(s.write(2000, false)), [(Ecn::Ect0, false); 2]);
    assert_eq!(marks(s.command(stream::Command::Retransmit(FLOW, None))), [(Ecn::NotEct, false); 2]);
    s.receive(&[Seg { window: 8192, ..seg(S, S + 2000, ACK, 0) }]);
    s.command(stream::Command::Window(FLOW, 3000));
    assert_eq!(marks(s.write(2000, false)), [(Ecn::Ect0, true), (Ecn::Ect0, false)]);
}

// Checks RFC 3168: 6.1.3-a.
#[test]
fn each_acknowledgement_echoes_the_mark_of_its_own_segment() {
    let mut s = Solo::new(Config { ecn: true, ..solo_config() });
    let echoes = |sent: Vec<Seg>| sent.iter().map(|s| s.flags.has(Flags::ECE)).collect::<Vec<_>>();
    assert_eq!(echoes(s.receive(&[Seg { ecn: Ecn::Ce, ..seg(S, S, ACK, 500) }])), [true]);
    assert_eq!(echoes(s.receive(&[seg(S + 500, S, ACK, 500)])), [false]);
}

// Checks RFC 9293: MUST-38, SHLD-28, SHLD-27.
#[test]
fn a_small_window_waits_for_the_persist_timer() {
    let mut s = solo();
    let sent: u32 = s.write(8000, false).iter().map(|s| s.len).sum();
    s.receive(&[Seg { window: 300, ..seg(S, S + sent, ACK, 0) }]);
    let window = s.side.stats.read().snd_wnd;
    assert!((1..1000).contains(&window), "less than a segment: {window}");
    assert!(s.write(5000, false).is_empty(), "{window} of 8192 is silly");
    let forced = s.command(stream::Command::Probe(FLOW));
    assert_eq!(forced.last().map(|s| s.len), Some(window), "the persist timer overrides");
}

// Checks RFC 9293: MUST-1, REC-1, MUST-39, SHLD-14.
// Checks RFC 7323: 2.3-b.
#[test]
fn a_window_that_opens_is_advertised() {
    let mut s = solo();
    for at in 0..4 {
        s.receive(&[seg(S + at * 2000, S, ACK, 2000)]);
    }
    let closed = s.receive(&[seg(S + 8000, S, ACK, 1000)]);
    assert_eq!(closed[0].ack, S + 8000, "beyond the window");
    let update = s.read(4000);
    assert_eq!((update.len(), update[0].ack, update[0].window), (1, S + 8000, 192 + 4000));
}

// Checks RFC 5681: 3.1-a.
#[test]
fn the_smaller_window_limits() {
    let mut s = solo();
    s.receive(&[Seg { window: 12_000, ..seg(S, S, ACK, 0) }]);
    s.command(stream::Command::Window(FLOW, 3000));
    assert_eq!(s.write(20_000, false).len(), 3, "the congestion window");
    assert_eq!(s.command(stream::Command::Window(FLOW, 30_000)).len(), 9, "the peer's window");
}

// Checks RFC 9293: MUST-38.
#[test]
fn the_congestion_window_makes_no_small_segments() {
    let mut s = solo();
    s.command(stream::Command::Window(FLOW, 2264));
    let lengths = |sent: Vec<Seg>| sent.iter().map(|s| s.len).collect::<Vec<_>>();
    assert_eq!(lengths(s.write(7000, false)), [1000, 1000], "264 more would be silly");
    assert_eq!(lengths(s.receive(&[Seg { window: 8192, ..seg(S, S + 1000, ACK, 0) }])), [1000]);
}

// Checks RFC 9293: MUST-3.
#[test]
fn damaged_frames_are_counted_and_others_handed_on() {
    let mut s = solo();
    s.receive_damaged(&seg(S, S, ACK, 100), 80);
    assert_eq!(s.drops(DropReason::TcpChecksum), 1);
    s.receive_damaged(&seg(S, S, ACK, 100), 24);
    assert_eq!(s.drops(DropReason::Ip), 1);
    s.receive_damaged(&seg(S, S, ACK, 100), 13);
    assert_eq!(s.side.exceptions.len(), 1, "another kind of frame");
}

#[test]
fn impossible_descriptors_change_nothing() {
    let mut s = solo();
    let slot = s.side.app.slot;
    let bump = |tx_head, rx_head| Bump { slot, tx_head, rx_head, fin: false, ring: 0 };
    for impossible in [bump(1 << 20, 0), bump(0, 5)] {
        s.side.app.end.bumps.push(impossible.to_words()).unwrap();
        assert!(s.round().is_empty());
    }
    assert_eq!(s.drops(DropReason::BumpRange), 2);
    let stale = Bump { slot: Slot { index: 0, generation: 9 }, ..bump(10, 0) };
    s.side.app.end.bumps.push(stale.to_words()).unwrap();
    assert!(s.round().is_empty());
    assert_eq!(s.drops(DropReason::BumpUnknown), 1);
}

#[test]
fn a_moved_flow_takes_its_bytes_along() {
    let mut s = solo();
    s.receive(&[seg(S, S, ACK, 600), seg(S + 1000, S, ACK, 100)]);
    assert_eq!(s.write(1500, false).len(), 2);
    let (end, engine_end, rx, tx) = make_context(8192, 65536);
    let slot = Slot { index: 0, generation: 7 };
    s.side.commands.push(Command::Attach(ContextId(2), engine_end));
    let moved = Command::Transport(stream::Command::Move {
        flow: FLOW,
        context: ContextId(2),
        slot,
        rx: Arc::clone(&rx),
        tx: Arc::clone(&tx),
    });
    s.command(moved);
    let old = std::mem::replace(&mut s.side.app.end, end);
    let (rx, tx) = s.side.app.end.map_buffers(slot).unwrap();
    (s.side.app.rx, s.side.app.tx) = (std::sync::Arc::new(rx), std::sync::Arc::new(tx));
    s.side.app.slot = slot;
    assert_eq!(s.completion(), Some((600, 0, false)));
    s.read(600);
    s.receive(&[seg(S + 600, S, ACK, 400)]);
    s.read(500);
    let again = s.command(stream::Command::Retransmit(FLOW, None));
    assert_eq!(again.iter().map(|s| s.len).sum::<u32>(), 1500, "with its bytes, or the checksum would be wrong");
    assert_eq!(s.write(10, false).len(), 1, "and the new context may send");
    drop(old);
}

#[test]
fn an_orphan_reports_to_the_control_plane_only() {
    let mut s = solo();
    s.command(stream::Command::Orphan(FLOW));
    s.receive(&[seg(S, S, ACK, 100)]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::OrphanData(FLOW))]);
    assert_eq!(s.completion(), None);
}

#[test]
fn a_rate_is_kept_by_the_packet_generator() {
    let mut s = solo();
    s.command(stream::Command::Rate(FLOW, 10_000_000));
    s.command(stream::Command::Window(FLOW, 1 << 20));
    s.receive(&[Seg { window: 60_000, ..seg(S, S, ACK, 0) }]);
    let mut sent: u32 = s.write(60_000, false).iter().map(|s| s.len).sum();
    for _ in 0..20 {
        sent += s.wait(100_000).iter().map(|s| s.len).sum::<u32>();
    }
    // 2 ms at 10 MB/s, and what may pile up at the start.
    assert!((17_000..=24_000).contains(&sent), "{sent}");
}

#[test]
fn more_flows_than_the_tables_hold_are_refused() {
    let limits = Limits { flows: 65_536, contexts: 4 };
    let refused = Laminar::new(limits, 7, Extensions::NONE).err().expect("too many");
    assert!(refused.contains("32768 flows, not 65536"), "{refused}");
}

#[test]
fn a_quiet_flow_freezes_and_goes_on() {
    let mut s = solo();
    let freeze = |tx_head, rx_head| Command::Transport(stream::Command::Freeze { flow: FLOW, tx_head, rx_head });
    let outcome = |s: &mut Solo, command| {
        s.command(command);
        let events = s.events();
        events
            .into_iter()
            .filter(|e| {
                matches!(e, Event::Transport(stream::Event::Busy(_)) | Event::Transport(stream::Event::Frozen(..)))
            })
            .collect::<Vec<_>>()
    };
    s.write(100, false);
    s.receive(&[seg(S, S, ACK, 50)]);
    s.read(50);
    assert_eq!(
        outcome(&mut s, freeze(100, 50)),
        [Event::Transport(stream::Event::Busy(FLOW))],
        "100 bytes are not acknowledged"
    );
    s.receive(&[seg(S + 50, S + 100, ACK, 20), seg(S + 80, S + 100, ACK, 5)]);
    assert_eq!(outcome(&mut s, freeze(100, 60)), [Event::Transport(stream::Event::Busy(FLOW))], "ten bytes are unread");
    assert_eq!(
        outcome(&mut s, freeze(100, 70)),
        [Event::Transport(stream::Event::Busy(FLOW))],
        "five are out of order"
    );
    s.receive(&[seg(S + 70, S + 100, ACK, 10)]);
    let frozen = outcome(&mut s, freeze(100, 85));
    let [Event::Transport(stream::Event::Frozen(_, end))] = frozen[..] else { panic!("{frozen:?}") };
    assert_eq!((end.unread, end.snd_nxt), (0, end.snd_una));
    assert!(s.receive(&[seg(S + 85, S + 100, ACK, 5)]).is_empty());
    assert_eq!(s.side.exceptions.len(), 1, "its segments are the control plane's");
    assert!(s.write(10, false).is_empty(), "its descriptors are ignored");
    assert_eq!(outcome(&mut s, freeze(110, 85)), [Event::Transport(stream::Event::Busy(FLOW))], "frozen already");
    s.command(stream::Command::Thaw(FLOW));
    let sent = s.write(10, false);
    assert_eq!(
        sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>(),
        [(S + 100, 20)],
        "the application repeats itself"
    );
    assert_eq!(acks(&s.receive(&[seg(S + 85, S + 100, ACK, 5)])), [S + 90]);
    s.command(Command::Remove(FLOW));
    assert!(matches!(s.events()[..], [Event::Removed(..)]));
}

#[test]
fn an_application_gets_how_far_its_bytes_were_sent() {
    solo().reports_how_far_it_has_sent();
}
