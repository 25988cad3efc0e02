//! The capture file of a port: what is in it, and that frames pass as they are.
mod common;

use common::*;
use port::capture::Direction;
use port::capture::pcapng::{self, Block, Packet};
use port::{Capture, Captured, Fabric, FabricConfig, Port};
use std::path::PathBuf;
use wire::Mac;

/// A file that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("toe-{name}-{}.pcapng", std::process::id())))
    }
}
impl std::ops::Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The interface's name and all packets.
fn packets(path: &PathBuf) -> (String, Vec<Packet>) {
    let bytes = std::fs::read(path).unwrap();
    let mut from = &bytes[..];
    assert_eq!(pcapng::read(&mut from).unwrap(), Some(Block::Section));
    let Some(Block::Interface(name)) = pcapng::read(&mut from).unwrap() else { panic!("no interface") };
    let mut packets = Vec::new();
    while let Some(block) = pcapng::read(&mut from).unwrap() {
        let Block::Packet(packet) = block else { panic!("{block:?}") };
        packets.push(packet);
    }
    (name, packets)
}

#[test]
fn both_ways_are_written_and_frames_pass_untouched() {
    let scratch = Scratch::new("both-ways");
    let caller = &mut Caller::new();
    let fabric = Fabric::new(FabricConfig::default());
    let epoch = 1_700_000_000_123_456_789;
    let capture = Capture::create(&scratch.0, "fabric a", epoch, 1 << 20).unwrap();
    let mut a = Captured::new(Box::new(fabric.join("a", A).unwrap()), capture.clone());
    let mut b = fabric.join("b", B).unwrap();
    let data = pattern(30_000);
    let frame = super_segment(&mut caller.pool, &data);
    a.send(5, &mut vec![frame], &mut caller.pool, &mut caller.drops);
    let mut got = Vec::new();
    b.receive(5, 9, &mut caller.pool, &mut got);
    assert_eq!(got[0].payload().map(shm::Span::len), Some(30_000), "still by reference");
    let back = tcp_frame(&mut caller.pool, A, B, 9, b"back");
    b.send(6, &mut vec![back], &mut caller.pool, &mut caller.drops);
    assert_eq!(a.receive(1_000_000_000, 9, &mut caller.pool, &mut got), 1);
    assert_eq!(a.receive(1_000_000_000, 9, &mut caller.pool, &mut got), 0);
    a.prepare_to_sleep();
    let (name, packets) = packets(&scratch.0);
    assert_eq!(name, "fabric a");
    let seen: Vec<_> = packets.iter().map(|packet| (packet.time, packet.direction)).collect();
    assert_eq!(seen, [(epoch + 5, Some(Direction::Out)), (epoch + 1_000_000_000, Some(Direction::In))]);
    assert_eq!(check_tcp(&packets[0].bytes).unwrap().2, data);
    assert_eq!(check_tcp(&packets[1].bytes).unwrap().2, b"back");
    assert_eq!(capture.figures().bytes, std::fs::metadata(&scratch.0).unwrap().len());
    assert_eq!((a.name(), a.mac(), a.counters().tx_frames), ("fabric a".into(), A, 1));
}

#[test]
fn the_file_stops_at_its_limit() {
    let scratch = Scratch::new("limit");
    let caller = &mut Caller::new();
    let capture = Capture::create(&scratch.0, "x", 0, 1000).unwrap();
    let before = capture.figures().bytes;
    for i in 0..100 {
        let frame = tcp_frame(&mut caller.pool, Mac::BROADCAST, A, i, b"12345678");
        capture.write(i.into(), Direction::Out, [&*frame]);
    }
    capture.flush();
    let figures = capture.figures();
    assert_eq!(figures.frames + figures.missed, 100);
    assert_eq!(packets(&scratch.0).1.len() as u64, figures.frames);
    // Block, frame padded to words, flags, end of options.
    let each = 32 + (14 + 20 + 32 + 8u64).next_multiple_of(4) + 8 + 4;
    assert_eq!(figures.frames, (1000 - before) / each);
    assert_eq!(figures.bytes, before + figures.frames * each);
}

#[test]
fn a_file_that_cannot_be_is_a_sentence() {
    let sentence = Capture::create(&PathBuf::from("/no/such/folder/x.pcapng"), "x", 0, 1).err().unwrap();
    assert!(sentence.contains("/no/such/folder/x.pcapng"), "{sentence}");
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_traffic() {
    if !std::path::Path::new("/dev/full").exists() {
        return println!("SKIPPED a_full_disk: there is no /dev/full");
    }
    assert!(Capture::create(&PathBuf::from("/dev/full"), "x", 0, 1 << 30).is_err());
}
