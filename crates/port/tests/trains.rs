//! Trains of RoCEv2 packets: whole on a perfect fabric, packets wherever frames leave the machine or are captured.
mod common;

use common::*;
use port::capture::pcapng::{self, Block};
use port::capture::{Direction, Fate, Sight, Wanted};
use port::{
    Capabilities, Checksum, Fabric, FabricConfig, Frame, FramePool, Nanos, Port, PortCounters, PortDrops, Recorder,
};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use wire::Mac;
use wire::roce::{Bth, Headers, Opcode, Packet, Path, Position, Psn, Reth, Service, Tail, icrc_is_right, pad};

const SEGMENT: u16 = 1024;
const LEN: usize = 10_000;

/// A WRITE of ten packets in one frame.
fn train(pool: &mut FramePool, to: Mac) -> Box<Frame> {
    let path = Path {
        local_mac: A,
        remote_mac: to,
        local: IP_A,
        remote: IP_B,
        hop_limit: 64,
        traffic_class: 2,
        source_port: 0xc001,
    };
    let opcode = Opcode::write(Service::Rc, Position::Only, Tail::Nothing);
    let bth = Bth { ack_request: true, ..Bth::new(opcode, 0x77, Psn::new(5)) };
    let headers = Headers::NONE.with(Reth { address: 0x1000, key: 3, len: LEN as u32 }.bytes());
    let mut frame = pool.large();
    path.emit(&bth, &headers, LEN, frame.bytes_vec());
    frame.bytes_vec().extend_from_slice(&pattern(LEN));
    pad(frame.bytes_vec());
    (frame.checksum, frame.segment_size) = (Checksum::Icrc, SEGMENT);
    frame
}

/// What packets carry, each of them whole; they follow each other.
fn carried<'a>(packets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    for (at, bytes) in packets.enumerate() {
        let packet = Packet::parse(bytes).unwrap();
        assert!(icrc_is_right(bytes) && packet.payload.len() <= SEGMENT.into());
        assert_eq!(packet.bth.psn, Psn::new(5 + at as u32));
        assert_eq!(packet.bth.ack_request, at == LEN / usize::from(SEGMENT));
        payload.extend_from_slice(packet.payload);
    }
    payload
}

#[test]
fn a_train_is_whole_on_a_perfect_fabric_and_packets_on_another() {
    let caller = &mut Caller::new();
    for rate_bps in [0, 10_000_000_000] {
        let fabric = Fabric::new(FabricConfig { rate_bps, ..FabricConfig::default() });
        let (mut a, mut b) = (fabric.join("a", A).unwrap(), fabric.join("b", B).unwrap());
        let frame = train(&mut caller.pool, B);
        a.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
        let mut got = Vec::new();
        b.receive(1_000_000, 100, &mut caller.pool, &mut got);
        if rate_bps == 0 {
            assert_eq!((got.len(), got[0].checksum, got[0].segment_size), (1, Checksum::Icrc, SEGMENT));
        } else {
            assert!(got.iter().all(|frame| frame.checksum == Checksum::Complete && frame.segment_size == 0));
            assert!(carried(got.iter().map(|frame| frame.bytes())) == pattern(LEN));
        }
    }
    assert_eq!(caller.drops, PortDrops::default());
}

#[test]
fn a_capture_shows_its_packets() {
    let caller = &mut Caller::new();
    let mut recorder = Recorder::default();
    let queue = recorder.start(&Arc::new(Wanted::everything()), 0, 0);
    let sight = Sight { direction: Direction::In, flow: None, module: "rdma", fate: Fate::Accepted };
    let frame = train(&mut caller.pool, B);
    let shown = |recorder: &mut Recorder| {
        recorder.hand_over(true);
        let mut blocks = Vec::new();
        queue.take(&mut blocks);
        let mut packets = Vec::new();
        let mut remaining = &blocks[..];
        while let Some(block) = pcapng::read(&mut remaining).unwrap() {
            let Block::Packet(packet) = block else { panic!("{block:?}") };
            packets.push(packet.bytes);
        }
        carried(packets.iter().map(Vec::as_slice))
    };
    recorder.record(1, &frame, &sight);
    assert!(shown(&mut recorder) == pattern(LEN));
    recorder.keep(&frame);
    recorder.record_kept(2, &sight);
    assert!(shown(&mut recorder) == pattern(LEN));
}

/// A port to the outside, which keeps what is sent.
struct Outside(Arc<Mutex<Vec<Box<Frame>>>>, std::os::fd::OwnedFd);

impl Port for Outside {
    fn name(&self) -> String {
        "outside".into()
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { mtu: 1500, super_segment: 65_000, checksum: true }
    }
    fn mac(&self) -> Mac {
        Mac::default()
    }
    fn receive(&mut self, _: Nanos, _: usize, _: &mut FramePool, _: &mut Vec<Box<Frame>>) -> usize {
        0
    }
    fn send(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, _: &mut FramePool, _: &mut PortDrops) {
        self.0.lock().unwrap().append(frames);
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.1))
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn has_work(&self, _: Nanos) -> bool {
        false
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

#[test]
fn a_train_leaves_by_an_uplink_as_packets() {
    let caller = &mut Caller::new();
    let fabric = Fabric::new(FabricConfig::default());
    let mut a = fabric.join("a", A).unwrap();
    let sent = Arc::default();
    fabric.uplink("out", Box::new(Outside(Arc::clone(&sent), shm::Doorbell::eventfd().unwrap()))).unwrap();
    let frame = train(&mut caller.pool, C);
    a.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
    fabric.poll(0, &mut caller.pool, &mut caller.drops);
    let sent = sent.lock().unwrap();
    assert!(carried(sent.iter().map(|frame| frame.bytes())) == pattern(LEN));
    assert_eq!(caller.drops, PortDrops::default());
}
