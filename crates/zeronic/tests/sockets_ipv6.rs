//! A NIC's half in front of a stream engine: what is IPv6's alone. All else is tested over both versions of IP
//! (`sockets.rs`).
#[path = "../../flextoe/tests/common/mod.rs"]
mod common;
#[path = "support/over.rs"]
mod over;

use common::solo::{ACK, START, Solo, seg};
use common::{Config, MakeEngine};
use engine::{Checksum, DropReason, Exception, Frame};
use over::{over_flextoe, over_laminar};
use wire::ethernet;
use wire::ipv4::TCP;

/// Where the IPv6 header has its next header, where its addresses begin, and where it ends.
const NEXT: usize = ethernet::HEADER_LEN + 6;
const ADDRESSES: usize = ethernet::HEADER_LEN + 8;
const END: usize = ethernet::HEADER_LEN + wire::ipv6::HEADER_LEN;

/// Numbers of extension headers (RFC 8200 section 4.1).
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

fn solo(engine: MakeEngine, v6: bool) -> Solo {
    let clean = Config::clean(1);
    Solo::new(Config { engine, v6, timestamps: false, sack: false, mss: 1000, rx_bytes: 8192, wscale: 0, ..clean })
}

fn solos() -> [Solo; 2] {
    [over_flextoe as MakeEngine, over_laminar].map(|engine| solo(engine, true))
}

/// The frame of 50 bytes from a place of the stream on, with this extension header, which is of that kind.
fn extended(solo: &mut Solo, from: u32, kind: u8, extension: [u8; 8]) -> Box<Frame> {
    let mut frame = solo.frame(&seg(START + from, START, ACK, 50));
    let bytes = frame.bytes_vec();
    bytes.splice(END..END, extension);
    bytes[NEXT] = kind;
    let len = (bytes.len() - END) as u16;
    bytes[NEXT - 2..NEXT].copy_from_slice(&len.to_be_bytes());
    frame
}

fn lies_at(solo: &Solo, pos: u32) -> [u8; 50] {
    let mut bytes = [0; 50];
    solo.side.app.rx.read(pos, &mut bytes);
    bytes
}

fn come(solo: &mut Solo, frame: Box<Frame>) {
    solo.side.rx.push(frame);
    solo.round();
}

/// Behind those that may be skipped (RFC 8200 section 4).
#[test]
fn payload_behind_extension_headers_has_its_place() {
    for mut solo in solos() {
        let options = [TCP, 0, 1, 4, 0, 0, 0, 0];
        let ahead = extended(&mut solo, 50, DESTINATION, options);
        come(&mut solo, ahead);
        assert_eq!(lies_at(&solo, 50), std::array::from_fn(|at| Solo::byte(50 + at as u32)));
        assert_eq!(solo.completion(), None);
        let first = extended(&mut solo, 0, DESTINATION, options);
        come(&mut solo, first);
        assert_eq!(solo.completion(), Some((100, 0, false)));
        solo.read(100);
        // Its checksum covers TCP's segment.
        let mut damaged = extended(&mut solo, 100, DESTINATION, options);
        *damaged.bytes_vec().last_mut().expect("a byte") ^= 1;
        come(&mut solo, damaged);
        assert_eq!((lies_at(&solo, 100), solo.drops(DropReason::TcpChecksum)), ([0; 50], 1));
    }
}

/// RFC 8200 section 4.5.
#[test]
fn of_parts_of_packets_no_byte_is_placed() {
    for mut solo in solos() {
        for place in [[0, 1], [0, 8]] {
            let part = extended(&mut solo, 0, FRAGMENT, [TCP, 0, place[0], place[1], 0, 0, 0, 7]);
            come(&mut solo, part);
        }
        assert_eq!((lies_at(&solo, 0), solo.drops(DropReason::Fragment)), ([0; 50], 2));
        // A fragment that is the whole packet is none (RFC 6946).
        let whole = extended(&mut solo, 0, FRAGMENT, [TCP, 0, 0, 0, 0, 0, 0, 7]);
        come(&mut solo, whole);
        assert_eq!(solo.completion(), Some((50, 0, false)));
    }
}

#[test]
fn each_byte_of_both_addresses_counts() {
    for mut solo in solos() {
        for at in ADDRESSES..END {
            let mut frame = solo.frame(&seg(START, START, ACK, 50));
            frame.bytes_mut()[at] ^= 1;
            frame.checksum = Checksum::Verified;
            come(&mut solo, frame);
            let (why, frame) = solo.side.exceptions.pop().expect("it is the control plane's");
            assert_eq!((why, frame.len()), (Exception::NoFlow, solo.headers() + 50), "byte {at}");
        }
        assert_eq!((lies_at(&solo, 0), solo.completion()), ([0; 50], None));
    }
}

/// An IPv4-mapped address in an IPv6 header is on no network, and least of all the IPv4 address.
#[test]
fn mapped_addresses_are_not_those_of_ipv4() {
    for engine in [over_flextoe as MakeEngine, over_laminar] {
        let (mut here, mut donor) = (solo(engine, false), solo(engine, true));
        let tuple = common::tuple(true);
        let mut frame = donor.frame(&seg(START, START, ACK, 50));
        for (at, ip) in [(ADDRESSES, tuple.remote_ip), (ADDRESSES + 16, tuple.local_ip)] {
            frame.bytes_mut()[at..at + 16].copy_from_slice(&ip.to_bits().to_be_bytes());
        }
        frame.checksum = Checksum::Verified;
        come(&mut here, frame);
        assert_eq!((lies_at(&here, 0), here.completion()), ([0; 50], None));
    }
}

/// Where the port computes no checksums, the NIC's half does.
#[test]
fn what_leaves_has_its_checksum() {
    for engine in [over_flextoe as MakeEngine, over_laminar] {
        for (v6, by_reference) in [(false, false), (true, false), (true, true)] {
            let config = Config { engine, v6, by_reference, timestamps: false, mss: 1000, ..Config::clean(1) };
            let mut solo = Solo::new(config);
            let app = &mut solo.side.app;
            app.tx.write(0, b"these bytes");
            app.written = 11;
            app.bump();
            solo.now += 1000;
            let now = solo.now;
            solo.side.poll(now);
            let mut frame = solo.side.tx.pop().expect("a segment");
            assert_eq!(frame.checksum == Checksum::Complete, !by_reference);
            frame.complete_checksum();
            let layers = wire::rewrite::Layers::of(frame.bytes()).expect("a segment");
            assert!(layers.tcp_is_sound(frame.bytes()));
            assert!(frame.bytes().ends_with(b"these bytes"));
        }
    }
}
