//! The capture file: what is in it, and that frames pass as they are.
mod common;

use common::*;
use port::{Capture, Captured, Fabric, FabricConfig, Frame, Port};
use shm::{Mirror, PAGE, Region, Span};
use std::path::PathBuf;
use std::sync::Arc;
use wire::tcp::Flags;
use wire::{Mac, ipv4};

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("toe-{name}-{}.pcap", std::process::id())))
    }
}
impl std::ops::Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// (time in nanoseconds, bytes) of each record.
fn records(path: &PathBuf) -> Vec<(u64, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(20)), (0xa1b2_3c4d, 1));
    let (mut at, mut records) = (24, Vec::new());
    while at < bytes.len() {
        let len = word(at + 8) as usize;
        assert_eq!(word(at + 12) as usize, len);
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4));
        records.push((time, bytes[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    records
}

fn super_segment(hands: &mut Hands, data: &[u8]) -> Box<Frame> {
    let region = Arc::new(Region::create("pcap-test", 32 * PAGE).unwrap());
    let mirror = Arc::new(Mirror::map(&region, 0, 32 * PAGE).unwrap());
    mirror.write(9, data);
    let (bytes, headers) = tcp_segment(B, A, 7, Flags::ACK, ipv4::Ecn::NotEct, data);
    let mut frame = frame_of(&mut hands.pool, &bytes[..headers]);
    frame.set_payload(Some(Span::new(&mirror, 9, data.len() as u32)));
    (frame.checksum, frame.segment_size) = (TCP_PARTIAL, 1448);
    frame
}

#[test]
fn both_ways_are_written_and_frames_pass_untouched() {
    let scratch = Scratch::new("both-ways");
    let hands = &mut Hands::new();
    let fabric = Fabric::new(FabricConfig::default());
    let epoch = 1_700_000_000_123_456_789;
    let capture = Capture::create(&scratch.0, epoch, 1 << 20).unwrap();
    let mut a = Captured::new(Box::new(fabric.join("a", A).unwrap()), capture.clone());
    let mut b = fabric.join("b", B).unwrap();
    let data = pattern(30_000);
    let frame = super_segment(hands, &data);
    a.send(5, &mut vec![frame], &mut hands.pool, &mut hands.drops);
    let mut got = Vec::new();
    b.receive(5, 9, &mut hands.pool, &mut got);
    assert_eq!(got[0].payload().map(Span::len), Some(30_000), "still by reference");
    let back = tcp_frame(&mut hands.pool, A, B, 9, b"back");
    b.send(6, &mut vec![back], &mut hands.pool, &mut hands.drops);
    assert_eq!(a.receive(1_000_000_000, 9, &mut hands.pool, &mut got), 1);
    assert_eq!(a.receive(1_000_000_000, 9, &mut hands.pool, &mut got), 0);
    a.prepare_to_sleep();
    let records = records(&scratch.0);
    assert_eq!(records.iter().map(|record| record.0).collect::<Vec<_>>(), [epoch + 5, epoch + 1_000_000_000]);
    assert_eq!(check_tcp(&records[0].1).unwrap().2, data);
    assert_eq!(check_tcp(&records[1].1).unwrap().2, b"back");
    assert_eq!(capture.figures().bytes, std::fs::metadata(&scratch.0).unwrap().len());
    assert_eq!((a.name(), a.mac(), a.counters().tx_frames), ("fabric a".into(), A, 1));
}

#[test]
fn the_file_stops_at_its_limit() {
    let scratch = Scratch::new("limit");
    let hands = &mut Hands::new();
    let capture = Capture::create(&scratch.0, 0, 1000).unwrap();
    for i in 0..100 {
        let frame = tcp_frame(&mut hands.pool, Mac::BROADCAST, A, i, b"12345678");
        capture.write(i.into(), &[frame]);
    }
    capture.flush();
    let figures = capture.figures();
    assert_eq!(figures.frames + figures.missed, 100);
    assert_eq!(records(&scratch.0).len() as u64, figures.frames);
    assert!(figures.bytes <= 1000 && figures.frames == (1000 - 24) / (16 + 14 + 20 + 32 + 8));
}

#[test]
fn a_file_that_cannot_be_is_a_sentence() {
    let sentence = Capture::create(&PathBuf::from("/no/such/folder/x.pcap"), 0, 1).err().unwrap();
    assert!(sentence.contains("/no/such/folder/x.pcap"), "{sentence}");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    if !std::path::Path::new("/dev/full").exists() {
        return println!("SKIPPED a_full_disk: there is no /dev/full");
    }
    assert!(Capture::create(&PathBuf::from("/dev/full"), 0, 1 << 30).is_err());
}
