//! Input of applications and the control plane to the engine: hostile descriptors, full rings, moved flows.
mod common;

use common::contexts::make_context;
use common::solo::{ACK, FLOW, Seg, Solo, acks, seg};
use common::{Config, Lab, Rng, tuple};
use context::{Bump, Completion};
use engine::stream::{self, Agreed, FlowParams, FlowStats, FourTuple};
use engine::{Command, ContextId, DropReason, Event, FlowId, Slot};
use flextoe::Mapping;
use proptest::prelude::*;
use shm::Pooled;
use std::sync::atomic::Ordering::Relaxed;
use wire::tcp::Flags;
use wire::{Mac, Seq};

fn push(solo: &mut Solo, slot: Slot, tx_head: u32, rx_head: u32, fin: bool) {
    solo.side.app.end.bumps.push(Bump { slot, tx_head, rx_head, fin, ring: 0 }.to_words()).expect("room");
}

#[test]
fn impossible_descriptors_are_counted_and_change_nothing() {
    let mut solo = Solo::plain();
    let slot = solo.side.app.slot;
    let tx_bytes = 65536;
    solo.receive(&[seg(1000, 1000, ACK, 100)]);
    for unknown in
        [Slot { index: 1, ..slot }, Slot { index: u32::MAX, ..slot }, Slot { generation: slot.generation + 1, ..slot }]
    {
        push(&mut solo, unknown, 10, 0, false);
    }
    assert!(solo.round().is_empty());
    assert_eq!(solo.drops(DropReason::BumpUnknown), 3);
    for (tx_head, rx_head) in [(tx_bytes + 1, 0), (0x7fff_ffff, 0), (0, 101), (10, 0x7fff_ffff)] {
        push(&mut solo, slot, tx_head, rx_head, false);
        assert!(solo.round().is_empty());
    }
    assert_eq!(solo.drops(DropReason::BumpRange), 4);
    // Repeated and older positions change nothing.
    push(&mut solo, slot, 10, 50, false);
    push(&mut solo, slot, 10, 50, false);
    push(&mut solo, slot, 5, 20, false);
    push(&mut solo, slot, 20, 50, true);
    assert_eq!(solo.round().iter().map(|s| (s.len, s.flags.has(Flags::FIN))).collect::<Vec<_>>(), [(20, true)]);
    assert_eq!(solo.drops(DropReason::BumpRange), 4);
    push(&mut solo, slot, 21, 50, true);
    assert!(solo.round().is_empty());
    assert_eq!(solo.drops(DropReason::BumpRange), 5, "nothing can be written after FIN");
    push(&mut solo, slot, 21, 50, false);
    assert!(solo.round().is_empty());
    assert_eq!(solo.drops(DropReason::BumpRange), 6);
}

/// Positions are absolute, so the last ones of several in a row count: what was written is one segment.
#[test]
fn messages_in_a_row_are_one_segment() {
    let mut solo = Solo::plain();
    let slot = solo.side.app.slot;
    solo.receive(&[seg(1000, 1000, ACK, 100)]);
    (1..=20).for_each(|message| push(&mut solo, slot, 10 * message, 4 * message, false));
    let sent = |segments: Vec<Seg>| segments.iter().map(|s| (s.seq, s.len, s.ack)).collect::<Vec<_>>();
    assert_eq!(sent(solo.round()), [(1000, 200, 1100)]);
    // One that was overtaken is not checked, and the last one is.
    push(&mut solo, slot, 0x7fff_ffff, 0, false);
    push(&mut solo, slot, 210, 80, false);
    assert_eq!(sent(solo.round()), [(1200, 10, 1100)]);
    assert_eq!(solo.drops(DropReason::BumpRange), 0);
    push(&mut solo, slot, 220, 80, false);
    push(&mut solo, slot, 230, 90, true);
    assert_eq!(solo.round().iter().map(|s| (s.len, s.flags.has(Flags::FIN))).collect::<Vec<_>>(), [(20, true)]);
}

#[test]
fn a_corrupt_ring_is_reported_once_and_left_alone() {
    let mut solo = Solo::plain();
    // The producer's position, which the application may write, is at the start of the ring.
    solo.side.app.end.region.u32_at(shm::PAGE).store(1 << 30, Relaxed);
    solo.round();
    assert_eq!(solo.events(), [Event::RingCorrupt(ContextId(1))]);
    assert_eq!(solo.drops(DropReason::RingCorrupt), 1);
    assert!(!solo.side.engine.has_work(solo.now));
    solo.round();
    assert_eq!(solo.events(), []);
    solo.command(Command::Remove(FLOW));
    assert!(matches!(solo.events()[..], [Event::Removed(FLOW, _)]));
    solo.command(Command::Detach(ContextId(1)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// An application that writes anything at all into its ring harms nobody. There is no panic (debug assertions
    /// hold), and what it sends stays within its buffer and the peer's window.
    #[test]
    fn any_descriptors(words in proptest::collection::vec((any::<u8>(), any::<u32>(), any::<u32>(), any::<bool>()), 1..300)) {
        let mut solo = Solo::plain();
        solo.receive(&[seg(1000, 1000, ACK, 3000)]);
        let slot = solo.side.app.slot;
        for (kind, tx_head, rx_head, fin) in words {
            let bump = match kind % 4 {
                0 => Bump { slot, tx_head, rx_head, fin, ring: 0 },
                1 => Bump { slot, tx_head: tx_head % 70_000, rx_head: rx_head % 4000, fin: fin && kind > 200, ring: 0 },
                2 => Bump { slot: Slot { index: tx_head % 5, generation: rx_head as u16 % 4 }, tx_head, rx_head, fin, ring: 0 },
                _ => Bump { slot, tx_head: tx_head % 3000, rx_head: 0, fin: false, ring: 0 },
            };
            let _ = solo.side.app.end.bumps.push(bump.to_words());
            let sent: u32 = solo.round().iter().map(|s| s.len).sum();
            let figures = solo.side.stats.read();
            prop_assert!(figures.outstanding <= 8193 && sent <= 8192);
            let ack = figures.snd_nxt.wrapping_sub(1001).wrapping_add(1000);
            solo.receive(&[Seg { window: 8192, ..seg(4000, ack, ACK, 0) }]);
        }
    }

    /// Any segment with any numbers and flags: no panic, and debug assertions hold.
    #[test]
    fn any_segments(list in proptest::collection::vec((0u32..12_000, 0u32..5000, any::<u8>(), 0u32..3000, any::<u16>()), 1..60)) {
        let mut solo = Solo::plain();
        solo.write(4000, false);
        for (seq, ack, flags, len, window) in list {
            let flags = if flags % 3 == 0 { Flags(flags) } else { Flags(flags & 0x19) };
            solo.receive(&[Seg { window, ..seg(seq, ack, flags, len) }]);
            let reported = solo.completion().map_or(0, |(received, ..)| received);
            if reported > solo.side.app.read {
                solo.read((reported - solo.side.app.read) / 2);
            }
        }
    }
}

/// Another flow of the same context, from another port of the peer.
fn second_flow(flow: u32, index: u32, port: u16, stats: &Pooled<FlowStats>) -> FlowParams {
    let (_, _, rx, tx) = make_context(4096, 4096);
    FlowParams {
        flow: FlowId(flow),
        tuple: FourTuple { remote_port: port, ..tuple(true) },
        local_mac: common::mac(true),
        remote_mac: common::mac(false),
        context: ContextId(1),
        slot: Slot { index, generation: 0 },
        rx,
        tx,
        snd_nxt: Seq(1),
        tx_pos: 0,
        rcv_nxt: Seq(1),
        rx_pos: 0,
        answered: 0,
        snd_wnd: 1000,
        agreed: Agreed { mss: 1000, snd_shift: 0, rcv_shift: 0, ts_offset: None, sack: false, ecn: false },
        receiving: Default::default(),
        ts_recent: 0,
        super_segment: 0,
        checksum_offload: true,
        rtt: 0,
        dctcp_echo: false,
        cwnd: 10_000,
        growth: engine::stream::Growth::NONE,
        rate: 0,
        stats: stats.clone(),
    }
}

/// More completions than the ring holds: those that do not fit come later, each flow's latest, and none is lost.
#[test]
fn a_full_ring_delays_completions_and_merges_them() {
    let mut solo = Solo::plain();
    let stats = Pooled::new(FlowStats::default());
    let other = second_flow(6, 1, 81, &stats);
    solo.command(Command::Install(Box::new(other)));
    // 64 entries: filled with one completion for each round.
    for i in 0..100 {
        solo.receive(&[seg(1000 + i, 1000, ACK, 1)]);
    }
    assert!(solo.side.engine.next_deadline().is_some_and(|due| due <= solo.now + 1_000_000), "it checks again");
    let mut reported = Vec::new();
    while let Some(words) = solo.side.app.end.completions.pop().unwrap() {
        reported.push(Completion::from_words(words).rx_tail);
    }
    assert_eq!(reported, (1..=64).collect::<Vec<u32>>());
    assert!(solo.side.engine.has_work(solo.now), "there is room again");
    solo.round();
    assert_eq!(solo.completion(), Some((100, 0, false)));
    assert!(!solo.side.engine.has_work(solo.now));
}

/// A completion that waits for room goes to whom the flow belongs when there is room.
#[test]
fn a_waiting_completion_follows_its_flow() {
    let mut solo = Solo::plain();
    for i in 0..100 {
        solo.receive(&[seg(1000 + i, 1000, ACK, 1)]);
    }
    let (mut app, engine_end, ..) = make_context(4096, 4096);
    let new = Slot { index: 3, generation: 1 };
    solo.side.commands.push(Command::Attach(ContextId(2), engine_end));
    solo.command(stream::Command::Rename { flow: FLOW, context: ContextId(2), slot: new });
    assert_eq!(solo.completion(), Some((64, 0, false)), "what was given before");
    solo.round();
    assert_eq!(solo.completion(), None);
    let completion = Completion::from_words(app.completions.pop().unwrap().expect("a completion"));
    assert_eq!((completion.slot, completion.rx_tail, app.completions.pop()), (new, 100, Ok(None)));
}

#[test]
fn a_renamed_flow_answers_to_its_new_name_only() {
    let mut solo = Solo::plain();
    solo.receive(&[seg(1000, 1000, ACK, 10)]);
    let (mut app, engine_end, ..) = make_context(4096, 4096);
    let new = Slot { index: 2, generation: 9 };
    solo.side.commands.push(Command::Attach(ContextId(2), engine_end));
    solo.command(stream::Command::Rename { flow: FLOW, context: ContextId(2), slot: new });
    let completion = Completion::from_words(app.completions.pop().unwrap().expect("a completion at once"));
    assert_eq!((completion.slot, completion.rx_tail), (new, 10));
    solo.write(10, false);
    assert_eq!(solo.drops(DropReason::BumpUnknown), 1, "the old name");
    app.bumps.push(Bump { slot: new, tx_head: 10, rx_head: 0, fin: false, ring: 0 }.to_words()).unwrap();
    assert_eq!(solo.round().len(), 1);
    solo.side.commands.push(Command::Detach(ContextId(2)));
    solo.receive(&[seg(1010, 1000, ACK, 10)]);
}

fn moved(mapping: Mapping) {
    let mut solo = Solo::new(Config { timestamps: false, mss: 1000, mapping, ..Config::clean(3) });
    let settle = |solo: &mut Solo| {
        let mut sent = Vec::new();
        for seed in 0..30 {
            let now = solo.now;
            if !solo.side.workers.is_empty() {
                solo.side.poll_workers(now, &mut Rng(seed));
            }
            sent.extend(solo.round());
        }
        sent
    };
    settle(&mut solo);
    solo.receive(&[seg(1000, 1000, ACK, 500), seg(2000, 1000, ACK, 300)]);
    solo.write(700, false);
    settle(&mut solo);
    let (mut app, engine_end, rx, tx) = make_context(65536, 65536);
    let new = Slot { index: 0, generation: 0 };
    solo.side.commands.push(Command::Attach(ContextId(2), engine_end));
    solo.side.commands.push(stream::Command::Move { flow: FLOW, context: ContextId(2), slot: new, rx, tx }.into());
    solo.receive(&[seg(1500, 1000, ACK, 500)]);
    settle(&mut solo);
    let mut last = None;
    while let Some(words) = app.completions.pop().unwrap() {
        last = Some(Completion::from_words(words));
    }
    assert_eq!(last.map(|n| (n.slot, n.rx_tail)), Some((new, 1300)));
    let (app_rx, app_tx) = app.map_buffers(new).unwrap();
    let (mut received, mut unacked) = (vec![0; 1300], vec![0; 700]);
    app_rx.read(0, &mut received);
    assert!(received.iter().enumerate().all(|(i, byte)| *byte == Solo::byte(i as u32)));
    app_tx.read(0, &mut unacked);
    assert_eq!(unacked, vec![7; 700]);
    solo.side.commands.push(stream::Command::Retransmit(FLOW, None).into());
    let sent = settle(&mut solo);
    assert!(sent.iter().any(|s| (s.seq, s.len) == (1000, 700)), "{sent:?}");
}

#[test]
fn a_moved_flow_takes_its_bytes_along() {
    moved(Mapping::default());
    moved(Mapping { threads: true, preprocess: 2, flow_groups: 3, postprocess: 2, dma: 2 });
}

#[test]
fn what_an_ended_process_left_counts() {
    let threads = Mapping { threads: true, preprocess: 1, flow_groups: 1, postprocess: 1, dma: 2 };
    for mapping in [Mapping::default(), threads] {
        let mut solo = Solo::new(Config { timestamps: false, mss: 1000, mapping, ..Config::clean(3) });
        assert_eq!(solo.leave(60), 60);
    }
    let mut corrupt = Solo::plain();
    corrupt.side.app.end.region.u32_at(shm::PAGE).store(1 << 30, Relaxed);
    corrupt.command(Command::Drain(ContextId(1)));
    corrupt.round();
    assert_eq!(corrupt.events(), [Event::RingCorrupt(ContextId(1)), Event::Drained(ContextId(1))]);
}

#[test]
fn an_orphan_reports_to_the_control_plane_only() {
    let mut solo = Solo::plain();
    solo.command(stream::Command::Orphan(FLOW));
    solo.command(stream::Command::Advance { flow: FLOW, tx_head: 0, rx_head: 0, fin: true });
    assert_eq!(solo.events(), [stream::Event::Active(FLOW), stream::Event::LocalFin(FLOW)].map(Event::Transport));
    assert!(solo.receive(&[seg(1000, 1001, ACK, 10)]).is_empty());
    assert_eq!(
        solo.events(),
        [Event::Transport(stream::Event::OrphanData(FLOW)), Event::Transport(stream::Event::FinAcked(FLOW))]
    );
    assert_eq!(acks(&solo.receive(&[seg(1000, 1001, Flags(0x11), 0)])), [1001], "FIN is taken");
    assert_eq!((solo.events(), solo.completion()), (vec![Event::Transport(stream::Event::PeerFinToo(FLOW))], None));
}

#[test]
fn the_control_plane_is_asked_to_time_a_flow_once() {
    let mut solo = Solo::plain();
    solo.write(10, false);
    assert_eq!(solo.events(), [Event::Transport(stream::Event::Active(FLOW))]);
    solo.write(10, false);
    assert_eq!(solo.events(), []);
    solo.command(stream::Command::Untrack(FLOW));
    assert_eq!(solo.events(), [Event::Transport(stream::Event::Active(FLOW))], "there is still something to time");
    solo.receive(&[seg(1000, 1020, ACK, 0)]);
    solo.command(stream::Command::Untrack(FLOW));
    assert_eq!(solo.events(), []);
    solo.write(10, false);
    assert_eq!(solo.events(), [Event::Transport(stream::Event::Active(FLOW))]);
}

#[test]
fn commands_for_a_flow_that_is_not_there_are_ignored() {
    let mut solo = Solo::plain();
    let gone = FlowId(7);
    let slot = Slot { index: 0, generation: 0 };
    solo.side.commands.extend([
        Command::Remove(gone),
        Command::Transport(stream::Command::Rename { flow: gone, context: ContextId(1), slot }),
        Command::Transport(stream::Command::Window(gone, 1)),
        Command::Transport(stream::Command::Rate(gone, 1)),
        Command::Transport(stream::Command::Retransmit(gone, None)),
        Command::Transport(stream::Command::Probe(FlowId(u32::MAX))),
        Command::NextHop(gone, Mac::BROADCAST),
        Command::Detach(ContextId(3)),
    ]);
    assert!(solo.round().is_empty());
    assert_eq!(solo.events(), []);
    assert_eq!(solo.write(10, false).len(), 1, "the other flow's name is as it was");
}

#[test]
fn a_flow_number_can_be_used_again_at_once() {
    let mut solo = Solo::plain();
    solo.write(5000, false);
    let stats = Pooled::new(FlowStats::default());
    let mut again = second_flow(FLOW.0, 1, 90, &stats);
    again.snd_wnd = 0;
    solo.side.commands.push(Command::Remove(FLOW));
    solo.command(Command::Install(Box::new(again)));
    let sent = solo.receive(&[seg(1000, 1000, ACK, 10)]);
    assert!(sent.is_empty() && solo.side.exceptions.len() == 1, "the old connection is unknown");
    assert!(solo.wait(20_000_000).is_empty());
    assert_eq!(stats.read().snd_nxt, 1);
}

/// A rate is kept, and a burst after a pause is no larger than one after none.
#[test]
fn a_rate_limits_what_goes_out() {
    let rate = 100_000_000;
    let mut lab = Lab::new(Config { rate, bytes: 1_000_000, rx_bytes: 1 << 20, tx_bytes: 1 << 20, ..Config::clean(9) });
    let start = lab.now;
    lab.finish(0);
    let least = 1_000_000 * 1_000_000_000 / rate;
    assert!(lab.now - start >= least * 95 / 100, "took {} ns, {least} at the rate", lab.now - start);
}

/// A flow stops only where nothing is under way in either direction (splicing): otherwise it goes on as it was.
#[test]
fn a_flow_freezes_only_when_it_is_quiet() {
    let freeze = |tx_head, rx_head| stream::Command::Freeze { flow: FLOW, tx_head, rx_head };
    let mut solo = Solo::plain();
    solo.write(100, false);
    solo.receive(&[seg(1000, 1000, ACK, 50)]);
    solo.events();
    let outcome = |solo: &mut Solo, command: stream::Command| {
        solo.command(command);
        solo.events()
    };
    assert_eq!(
        outcome(&mut solo, freeze(100, 49)),
        [Event::Transport(stream::Event::Busy(FLOW))],
        "100 bytes are not acknowledged"
    );
    solo.receive(&[seg(1050, 1100, ACK, 0)]);
    assert_eq!(outcome(&mut solo, freeze(100, 49)), [Event::Transport(stream::Event::Busy(FLOW))], "a byte is unread");
    solo.receive(&[seg(1060, 1100, ACK, 10)]);
    assert_eq!(
        outcome(&mut solo, freeze(100, 50)),
        [Event::Transport(stream::Event::Busy(FLOW))],
        "ten bytes are out of order"
    );
    solo.receive(&[seg(1050, 1100, ACK, 10)]);
    assert_eq!(outcome(&mut solo, freeze(101, 70)), [Event::Transport(stream::Event::Busy(FLOW))], "a byte is unsent");
    solo.receive(&[seg(1070, 1101, ACK, 0)]);
    let events = outcome(&mut solo, freeze(101, 70));
    let [Event::Transport(stream::Event::Frozen(FLOW, end))] = events[..] else { panic!("{events:?}") };
    assert_eq!((end.snd_una, end.unread), (end.snd_nxt, 0));
    // Nothing moves it now, and its segments are the control plane's.
    solo.side.exceptions.clear();
    assert!(solo.write(10, false).is_empty());
    assert!(solo.receive(&[seg(1070, 1101, ACK, 30)]).is_empty());
    assert_eq!(solo.side.exceptions.len(), 1);
    assert_eq!(outcome(&mut solo, freeze(101, 70)), [Event::Transport(stream::Event::Busy(FLOW))], "frozen already");
    solo.command(stream::Command::Thaw(FLOW));
    assert_eq!(solo.completion(), Some((70, 101, false)));
    let slot = solo.side.app.slot;
    push(&mut solo, slot, 110, 70, false);
    assert_eq!(solo.round().len(), 1, "it goes on where it stood");
    assert_eq!(solo.receive(&[seg(1070, 1110, ACK, 30)]).len(), 0);
    assert_eq!(solo.completion(), Some((100, 110, false)));
    let fin = Flags::FIN | ACK;
    solo.receive(&[seg(1100, 1110, fin, 0)]);
    solo.events();
    assert_eq!(
        outcome(&mut solo, freeze(110, 100)),
        [Event::Transport(stream::Event::Busy(FLOW))],
        "the peer has closed"
    );
}

#[test]
fn an_application_gets_how_far_its_bytes_were_sent() {
    Solo::plain().reports_how_far_it_has_sent();
}
