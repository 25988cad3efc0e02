//! One Laminar engine, and segments over IPv6 made by hand: the pipeline's own, and those of the switch's processor.
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;

use common::Config;
use common::solo::{ACK, FLOW, START, Seg, Solo, acks, seg};
use engine::stream::{self, Stream};
use engine::{DropReason, Engine, Event, Exception, FramePool, Limits};
use laminar::{Extensions, Laminar};
use port::Checksum;
use wire::ipv4::Ecn;
use wire::tcp::{Flags, Timestamps};

fn plain(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(Laminar::new(limits, config.wscale, Extensions::NONE).unwrap())
}

fn extended(config: &Config, limits: Limits, _: FramePool) -> Box<dyn Engine<Stream>> {
    let extensions = Extensions { sack: true, timely: config.timestamps, delayed_acks: false, shared_log: false };
    Box::new(Laminar::new(limits, config.wscale, extensions).unwrap())
}

fn solo_config() -> Config {
    let clean = Config::clean(1);
    Config { engine: plain, timestamps: false, sack: false, mss: 1000, rx_bytes: 8192, wscale: 0, v6: true, ..clean }
}

fn solo() -> Solo {
    Solo::new(solo_config())
}

const S: u32 = START;

#[test]
fn bytes_in_order_and_out_of_order_go_to_their_place() {
    let mut s = solo();
    assert_eq!(acks(&s.receive(&[seg(S, S, ACK, 500)])), [S + 500]);
    assert_eq!(acks(&s.receive(&[seg(S + 1000, S, ACK, 500)])), [S + 500]);
    assert_eq!(acks(&s.receive(&[seg(S + 500, S, ACK, 500)])), [S + 1500]);
    assert_eq!(s.completion().unwrap().0, 1500);
    s.read(1500);
    assert_eq!(acks(&s.receive(&[seg(S, S, ACK, 500)])), [S + 1500]);
    assert_eq!(s.drops(DropReason::Duplicate), 1);
}

#[test]
fn what_is_lost_is_sent_again_and_short_segments_are_copied() {
    let mut s = solo();
    let lengths = |sent: &[Seg]| sent.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>();
    assert_eq!(lengths(&s.write(2030, false)), [(S, 1000), (S + 1000, 1000), (S + 2000, 30)]);
    let duplicate = Seg { window: 9000, ..seg(S, S, ACK, 0) };
    s.receive(&[duplicate]);
    assert_eq!(s.receive(&[duplicate; 3]).first().map(|s| (s.seq, s.len)), Some((S, 1000)));
    s.receive(&[Seg { window: 0, ..seg(S, S + 2030, ACK, 0) }]);
    assert_eq!((s.side.stats.read().outstanding, s.completion().unwrap().1), (0, 2030));
    let probe = s.command(stream::Command::Probe(FLOW));
    let probe = probe.iter().find(|s| s.len == 0).expect("an empty segment");
    assert_eq!((probe.seq, probe.ecn), (S + 2029, Ecn::NotEct));
}

#[test]
fn both_ends_of_the_stream() {
    let mut s = solo();
    let sent = s.receive(&[seg(S + 500, S, ACK | Flags::FIN, 300)]);
    assert_eq!(acks(&sent), [S], "its payload is out of order");
    assert_eq!(acks(&s.receive(&[seg(S, S, ACK, 500)])).last(), Some(&(S + 801)));
    assert_eq!(s.events(), [Event::Transport(stream::Event::PeerFin(FLOW))]);
    s.read(800);
    let sent = s.write(100, true);
    assert_eq!((sent.len(), sent[0].len, sent[0].flags.has(Flags::FIN)), (1, 100, true));
    s.events();
    s.receive(&[seg(S + 801, S + 101, ACK, 0)]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::FinAcked(FLOW))]);
}

#[test]
fn resets_and_options_go_to_the_switchs_processor() {
    let mut s = solo();
    let with_block = Seg { sack: Some((S + 5, S + 9)), ..seg(S, S, ACK, 500) };
    assert_eq!(acks(&s.receive(&[with_block])), [S + 500]);
    let urgent = Seg { flags: ACK | Flags::URG, ecn: Ecn::Ce, ..seg(S + 500, S, ACK, 500) };
    let sent = s.receive(&[urgent]);
    assert_eq!((acks(&sent), sent[0].flags.has(Flags::ECE)), (vec![S + 1000], true), "with its mark");
    s.read(1000);
    assert_eq!(acks(&s.receive(&[seg(S + 1010, S, Flags::RST | ACK, 0)])), [S + 1000], "challenged");
    s.receive(&[seg(S + 1000, S, Flags::RST | ACK, 0)]);
    assert_eq!(s.events(), [Event::Transport(stream::Event::Reset(FLOW))]);
    assert!(s.side.exceptions.is_empty());
}

#[test]
fn marks_both_ways() {
    let mut s = Solo::new(Config { ecn: true, ..solo_config() });
    let echoes = |sent: Vec<Seg>| sent.iter().map(|s| s.flags.has(Flags::ECE)).collect::<Vec<_>>();
    assert_eq!(echoes(s.receive(&[Seg { ecn: Ecn::Ce, ..seg(S, S, ACK, 500) }])), [true]);
    assert_eq!(echoes(s.receive(&[Seg { ecn: Ecn::Ect0, ..seg(S + 500, S, ACK, 500) }])), [false]);
    let marks = |sent: Vec<Seg>| sent.iter().map(|s| s.ecn).collect::<Vec<_>>();
    assert_eq!(marks(s.write(2000, false)), [Ecn::Ect0; 2]);
    assert_eq!(marks(s.command(stream::Command::Retransmit(FLOW, None))), [Ecn::NotEct; 2]);
    s.receive(&[Seg { flags: ACK | Flags::ECE, ..seg(S + 1000, S + 1000, ACK, 0) }]);
    assert_eq!(s.side.stats.read().ecn_bytes, 1000);
}

#[test]
fn blocks_and_timestamps_come_and_go() {
    let mut s = Solo::new(Config { engine: extended, sack: true, ..solo_config() });
    let sent = s.receive(&[seg(S + 1000, S, ACK, 500)]);
    assert_eq!(sent[0].sack, Some((S + 1000, S + 1500)));
    assert_eq!(s.write(4000, false).len(), 4);
    let duplicate = Seg { sack: Some((S + 1000, S + 4000)), window: 9000, ..seg(S, S, ACK, 0) };
    s.receive(&[duplicate]);
    let again = s.receive(&[duplicate; 3]);
    assert_eq!(again.iter().map(|s| (s.seq, s.len)).collect::<Vec<_>>(), [(S, 1000)], "the peer has the rest");

    let mut s = Solo::new(Config { engine: extended, sack: true, timestamps: true, ..solo_config() });
    let stamped = |seq, len| Seg { timestamps: Some(Timestamps { value: 9, echo: 0 }), ..seg_of(seq, len) };
    let sent = s.receive(&[stamped(S, 500)]);
    assert_eq!((acks(&sent), sent[0].timestamps.map(|stamps| stamps.echo)), (vec![S + 500], Some(9)));
    let sent = s.receive(&[stamped(S + 1000, 500)]);
    assert_eq!((sent[0].sack, sent[0].timestamps.is_some()), (Some((S + 1000, S + 1500)), true));
    s.read(500);
}

fn seg_of(seq: u32, len: u32) -> Seg {
    seg(seq, S, ACK, len)
}

#[test]
fn damaged_frames_are_counted_and_others_handed_on() {
    let mut s = solo();
    s.receive_damaged(&seg(S, S, ACK, 100), 100);
    assert_eq!(s.drops(DropReason::TcpChecksum), 1);
    s.receive_damaged(&seg(S, S, ACK, 100), 14);
    assert_eq!(s.drops(DropReason::Ip), 1);
    s.receive_damaged(&seg(S, S, ACK, 100), 13);
    assert_eq!(s.side.exceptions.len(), 1, "another kind of frame");
    // Another flow's, and another protocol's: as the port verified them.
    for (at, expected) in [(53, Exception::NoFlow), (20, Exception::Foreign)] {
        let mut frame = s.frame(&seg(S, S, ACK, 100));
        frame.bytes_mut()[at] ^= 0x80;
        frame.checksum = Checksum::Verified;
        s.side.exceptions.clear();
        s.side.rx.push(frame);
        assert!(s.round().is_empty());
        assert_eq!(s.side.exceptions.iter().map(|(why, _)| *why).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn extension_headers_are_taken_off_and_fragments_dropped() {
    let mut s = solo();
    let with = |s: &mut Solo, kind: u8, extension: [u8; 8], seq| {
        let frame = s.frame(&seg(seq, S, ACK, 100));
        let mut bytes = frame.bytes().to_vec();
        drop(bytes.splice(54..54, extension));
        (bytes[20], bytes[19]) = (kind, bytes[19] + 8);
        let mut longer = s.side.pool.large();
        longer.resize(bytes.len());
        longer.bytes_mut().copy_from_slice(&bytes);
        s.side.rx.push(longer);
        s.round()
    };
    assert_eq!(acks(&with(&mut s, 60, [6, 0, 1, 4, 0, 0, 0, 0], S)), [S + 100], "destination options");
    assert_eq!(acks(&with(&mut s, 44, [6, 0, 0, 0, 0, 0, 0, 1], S + 100)), [S + 200], "the whole packet");
    s.read(200);
    assert!(with(&mut s, 44, [6, 0, 0, 1, 0, 0, 0, 1], S + 200).is_empty());
    assert_eq!(s.drops(DropReason::Fragment), 1);
}
