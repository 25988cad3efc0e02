//! A NIC's half in front of a stream engine, behind the harness that FlexTOE and Laminar have: random streams, and
//! single segments, of which the test sees where their payload went.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;
#[path = "support/over.rs"]
mod over;

use common::solo::{ACK, FLOW, START, Seg, Solo, seg};
use common::{Config, Lab};
use engine::stream;
use engine::{Checksum, Command, ContextId, DropReason, Exception, Frame, Slot};
use over::{over_flextoe, over_laminar};
use wire::tcp::{self, Flags};

fn config() -> Config {
    Config { engine: over_flextoe, timestamps: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..Config::clean(1) }
}

/// One connection over IPv4, and one over IPv6.
fn solos() -> [Solo; 2] {
    [false, true].map(|v6| Solo::new(Config { v6, ..config() }))
}

/// How many bytes the NIC's half has placed, or fetched.
fn moved(solo: &Solo, counter: &str) -> u64 {
    let counted = solo.side.engine.module_stats();
    counted.iter().find(|(_, name, _)| *name == counter).expect("a counter").2
}

/// What lies in the application's buffer at a position of the stream.
fn lies_at(solo: &Solo, pos: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    solo.side.app.rx.read(pos, &mut bytes);
    bytes
}

fn stream(from: u32, len: u32) -> Vec<u8> {
    (from..from + len).map(Solo::byte).collect()
}

/// A frame whose checksum nobody has to verify, with these bytes in the place of its payload.
fn with_payload(solo: &mut Solo, s: &Seg, bytes: &[u8]) -> Box<Frame> {
    let mut frame = solo.frame(s);
    frame.bytes_mut()[solo.headers()..].copy_from_slice(bytes);
    frame.checksum = Checksum::Verified;
    frame
}

#[test]
fn random_streams_over_flextoe() {
    for seed in 0..200 {
        Lab::new(Config { engine: over_flextoe, v6: seed % 3 == 1, ..Config::random(seed) }).finish(20);
    }
}

#[test]
fn random_streams_over_laminar() {
    let configs = (0..40).map(|seed| Config { engine: over_laminar, v6: seed % 3 == 1, ..Config::random(seed) });
    let mut configs: Vec<Config> = configs.collect();
    // Those of one program follow each other: it is compiled once for them.
    configs.sort_by_key(|it| (it.wscale, it.sack, it.timestamps));
    configs.into_iter().for_each(|config| Lab::new(config).finish(20));
}

/// Streams begin in small rings, and go on in larger ones in both directions, while what the peer is offered grows.
#[test]
fn rings_grow_in_the_middle_of_streams() {
    let (mut received, mut sent) = (0, 0);
    for seed in 0..200 {
        let engine = if seed % 8 == 0 { over_laminar } else { over_flextoe };
        let config = Config { engine, v6: seed % 3 == 1, ..Config::random(seed) };
        let most = config.rx_bytes.max(config.tx_bytes) << (1 + seed % 3);
        let mut lab = Lab::new(Config { most, bytes: 20_000 + config.bytes, ..config });
        lab.finish(50);
        received += lab.sides.iter().filter(|side| side.app.rx.size() == most).count();
        sent += lab.sides.iter().filter(|side| side.app.tx.size() == most).count();
    }
    assert!(received > 40 && sent > 40, "{received} {sent}");
}

#[test]
fn payload_lies_in_its_place_ahead_of_a_hole() {
    for mut solo in solos() {
        let sent = solo.receive(&[seg(START + 100, START, ACK, 50)]);
        assert_eq!((sent.len(), sent[0].ack), (1, START), "the engine waits for what is missing");
        assert_eq!(solo.completion(), None, "and the application gets no completion");
        assert_eq!(lies_at(&solo, 100, 50), stream(100, 50));
        assert_eq!(lies_at(&solo, 0, 100), [0; 100]);
        solo.receive(&[seg(START, START, ACK, 100)]);
        assert_eq!(solo.completion(), Some((150, 0, false)));
        solo.read(150);
        assert_eq!(moved(&solo, "placed_bytes"), 150, "the engine has copied none of it");
    }
}

#[test]
fn a_damaged_frame_leaves_no_byte() {
    for mut solo in solos() {
        solo.receive_damaged(&seg(START, START, ACK, 50), solo.headers() + 20);
        assert_eq!(solo.drops(DropReason::TcpChecksum), 1);
        assert_eq!(lies_at(&solo, 0, 50), [0; 50]);
    }
}

#[test]
fn bytes_that_the_application_was_told_of_stay() {
    for mut solo in solos() {
        solo.receive(&[seg(START, START, ACK, 50)]);
        assert_eq!(solo.completion(), Some((50, 0, false)));
        // The same sequence numbers with other bytes, and more behind them.
        let again = with_payload(&mut solo, &seg(START, START, ACK, 80), &[0xee; 80]);
        solo.side.rx.push(again);
        solo.round();
        assert_eq!(lies_at(&solo, 0, 50), stream(0, 50));
        assert_eq!(lies_at(&solo, 50, 30), [0xee; 30], "what is new has its place");
    }
}

#[test]
fn nothing_is_written_beyond_the_promised_window() {
    for mut solo in solos() {
        // The buffer is full, and the application reads nothing.
        for at in 0..8 {
            solo.receive(&[seg(START + at * 1024, START, ACK, 1024)]);
        }
        let sent = solo.receive(&[seg(START + 8192, START, ACK, 1)]);
        assert_eq!(lies_at(&solo, 0, 8192), stream(0, 8192), "unread bytes lie where this one would have gone");
        let answer = sent.first().expect("a sender that asks is answered, or it gives up");
        assert_eq!((answer.ack, answer.window), (START + 8192, 0));
        // It reads: the window opens, and what comes then is taken.
        solo.read(8192);
        solo.receive(&[seg(START + 8192, START, ACK, 1000)]);
        solo.read(1000);
    }
}

#[test]
fn what_is_promised_in_part_is_taken_in_part() {
    for mut solo in solos() {
        let sent = solo.receive(&[seg(START, START, Flags(0x11), 8200)]);
        assert_eq!(sent.last().map(|s| s.ack), Some(START + 8192), "its FIN lies behind what was cut off");
        solo.read(8192);
    }
}

#[test]
fn a_frame_for_another_station_is_the_control_planes() {
    for mut solo in solos() {
        let mut frame = with_payload(&mut solo, &seg(START, START, ACK, 50), &[0xee; 50]);
        frame.bytes_mut()[5] ^= 0x40;
        solo.side.rx.push(frame);
        solo.round();
        assert_eq!(lies_at(&solo, 0, 50), [0; 50]);
        let (why, frame) = solo.side.exceptions.pop().expect("an exception");
        assert_eq!((why, &frame.bytes()[solo.headers()..]), (Exception::NoFlow, &[0xee; 50][..]));
    }
}

/// A segment that opens a connection and what follows it in the same burst: were their order another, the second would
/// be lost, and sent again after a second.
#[test]
fn segments_of_no_connection_keep_their_order() {
    for mut solo in solos() {
        let port_at = solo.headers() - tcp::HEADER_LEN;
        let other_port = |mut frame: Box<Frame>| {
            frame.bytes_mut()[port_at] ^= 0x40;
            frame
        };
        for (flags, len) in [(Flags(0x12), 0), (ACK, 50), (Flags(0x11), 0)] {
            let frame = with_payload(&mut solo, &seg(START, START, flags, len), &vec![1; len as usize]);
            solo.side.rx.push(other_port(frame));
        }
        solo.round();
        let lens: Vec<usize> = solo.side.exceptions.iter().map(|(_, frame)| frame.len() - solo.headers()).collect();
        assert_eq!(lens, [0, 50, 0]);
        assert!(solo.side.exceptions.iter().all(|(why, _)| *why == Exception::NoFlow));
    }
}

#[test]
fn a_frame_for_a_flow_that_stands_still_keeps_its_payload() {
    for mut solo in solos() {
        let frame = solo.frame(&seg(START, START, ACK, 50));
        solo.side.rx.push(frame);
        solo.command(stream::Command::Freeze { flow: FLOW, tx_head: 0, rx_head: 0 });
        assert_eq!(lies_at(&solo, 0, 50), [0; 50], "its buffer may be given away");
        let (why, frame) = solo.side.exceptions.pop().expect("an exception");
        assert_eq!((why, &frame.bytes()[solo.headers()..]), (Exception::NoFlow, &stream(0, 50)[..]));
        solo.side.back.push((why, frame));
        solo.command(stream::Command::Thaw(FLOW));
        assert_eq!(solo.completion(), Some((50, 0, false)));
        solo.read(50);
    }
}

#[test]
fn a_freeze_that_fails_gives_back_what_came_meanwhile() {
    for mut solo in solos() {
        solo.receive(&[seg(START, START, ACK, 50)]);
        let frame = solo.frame(&seg(START + 50, START, ACK, 50));
        solo.side.rx.push(frame);
        // Fifty bytes are unread: it is busy.
        solo.command(stream::Command::Freeze { flow: FLOW, tx_head: 0, rx_head: 0 });
        assert!(solo.side.exceptions.is_empty());
        assert_eq!(solo.completion(), Some((100, 0, false)));
        solo.read(100);
    }
}

/// Segments of any sequence number, length and flags, as a peer that keeps to no rule sends them, but with the bytes of
/// its stream: what is reported to the application is that stream, in every order of them.
#[test]
fn whatever_comes_the_application_reads_the_stream() {
    for seed in 0..60 {
        let v6 = seed % 3 == 1;
        let (mut solo, mut rng, mut reported) = (Solo::new(Config { v6, ..config() }), common::Rng(seed), 0);
        for _ in 0..400 {
            // Around what is next, mostly; now and then anywhere.
            let near = reported as i64 + rng.below(12_000) as i64 - 3000;
            let at = if rng.chance(95) { near.max(0) as u32 } else { rng.next() as u32 % 100_000 };
            let most = if rng.chance(80) { 1500 } else { 9000 };
            let len = rng.below(most) as u32;
            let flags = if rng.chance(98) { ACK } else { Flags(rng.next() as u8 & 0x3a) };
            let s = seg(START + at, START, flags, len);
            if rng.chance(3) {
                solo.receive_damaged(&s, solo.headers() - 8);
            } else {
                solo.receive(&[s]);
            }
            if let Some((rx_tail, ..)) = solo.completion() {
                reported = rx_tail;
            }
            let unread = reported - solo.side.app.read;
            solo.read(rng.below(u64::from(unread) + 1) as u32);
        }
        assert!(reported > 10_000, "seed {seed}: the stream goes on");
    }
}

/// A connection that nobody has accepted moves to another program's context, whose buffers are larger.
#[test]
fn what_was_received_moves_along() {
    for mut solo in solos() {
        solo.receive(&[seg(START, START, ACK, 8000)]);
        solo.read(8000);
        // Around the ring's end, and behind a hole.
        solo.receive(&[seg(START + 8000, START, ACK, 1000), seg(START + 9500, START, ACK, 100)]);
        let (app, engine_end, rx, tx) = common::contexts::make_context(16384, 65536);
        let (context, slot) = (ContextId(2), Slot { index: 0, generation: 9 });
        solo.side.commands.push(Command::Attach(context, engine_end));
        solo.command(stream::Command::Move { flow: FLOW, context, slot, rx, tx });
        let (rx, _) = app.map_buffers(slot).expect("its buffers");
        solo.side.app.rx = std::sync::Arc::new(rx);
        solo.receive(&[seg(START + 9000, START, ACK, 500)]);
        assert_eq!(lies_at(&solo, 8000, 1600), stream(8000, 1600));
    }
}

#[test]
fn what_is_sent_refers_to_the_applications_bytes() {
    for mut solo in solos() {
        let app = &mut solo.side.app;
        app.tx.write(0, b"these bytes");
        (app.written, app.fin) = (11, false);
        app.bump();
        solo.now += 1000;
        let now = solo.now;
        solo.side.poll(now);
        let frame = solo.side.tx.pop().expect("a segment");
        let mut bytes = Vec::new();
        frame.payload().expect("by reference").append(&mut bytes);
        assert_eq!(bytes, b"these bytes");
        assert_eq!(moved(&solo, "fetched_bytes"), 11);
    }
}
