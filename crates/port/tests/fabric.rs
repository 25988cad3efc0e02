//! The fabric in virtual time.
mod common;

use common::*;
use port::{Capabilities, Checksum, Fabric, FabricConfig, FabricPort, Frame, FramePool, PortDrop, PortDrops};
use port::{Nanos, Port, PortCounters};
use proptest::prelude::*;
use shm::{ByteRing, PAGE, Region, Span};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use wire::tcp::Flags;
use wire::{Mac, ethernet, ipv4};

fn pair(config: FabricConfig) -> (Fabric, FabricPort, FabricPort, Caller) {
    let fabric = Fabric::new(config);
    let (a, b) = (fabric.join("a", A).unwrap(), fabric.join("b", B).unwrap());
    (fabric, a, b, Caller::new())
}

fn send(port: &mut FabricPort, now: Nanos, caller: &mut Caller, frame: Box<Frame>) {
    port.send(now, &mut vec![frame], &mut caller.pool, &mut caller.drops);
}

fn receive(port: &mut FabricPort, now: Nanos, caller: &mut Caller) -> Vec<Box<Frame>> {
    let mut frames = Vec::new();
    port.receive(now, usize::MAX, &mut caller.pool, &mut frames);
    frames
}

fn by_reference(caller: &mut Caller, data: &[u8], segment_size: u16) -> Box<Frame> {
    let region = Arc::new(Region::create("fabric-test", 32 * PAGE).unwrap());
    let byte_ring = Arc::new(ByteRing::map(&region, 0, 32 * PAGE).unwrap());
    byte_ring.write(PAGE as u32 - 7, data);
    let flags = Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR;
    let (bytes, headers) = tcp_segment(B, A, u32::MAX - 5000, flags, ipv4::Ecn::Ect0, data);
    let mut frame = frame_of(&mut caller.pool, &bytes[..headers]);
    frame.set_payload(Some(Span::new(&byte_ring, PAGE as u32 - 7, data.len() as u32)));
    frame.checksum = TCP_PARTIAL;
    frame.segment_size = segment_size;
    frame
}

/// The first payload bytes of each frame are its number.
fn number(frame: &Frame) -> u32 {
    let mut flat = frame_of(&mut FramePool::new(1), frame.bytes());
    flat.checksum = frame.checksum;
    flat.complete_checksum();
    let (_, _, data) = check_tcp(flat.bytes()).unwrap();
    u32::from_be_bytes(data[..4].try_into().unwrap())
}

fn numbered(caller: &mut Caller, number: u32, len: usize) -> Box<Frame> {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(len.max(4), number as u8);
    tcp_frame(&mut caller.pool, B, A, number, &data)
}

#[test]
fn a_perfect_link_hands_super_segments_over_untouched() {
    let (_fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    let offer = a.capabilities();
    assert!(offer.super_segment > 64_000 && offer.checksum && offer.mtu == 1500);
    let data = pattern(60_000);
    let frame = by_reference(&mut caller, &data, 1448);
    let (address, span) = (std::ptr::from_ref(frame.as_ref()), frame.payload().unwrap().pieces());
    assert!(!b.has_work(0));
    send(&mut a, 0, &mut caller, frame);
    assert!(b.has_work(0) && b.next_deadline() == Some(0));
    let got = receive(&mut b, 0, &mut caller).pop().unwrap();
    assert_eq!(std::ptr::from_ref(got.as_ref()), address, "the same frame, not a copy");
    assert_eq!(got.payload().unwrap().pieces(), span);
    assert_eq!((got.checksum, got.segment_size), (TCP_PARTIAL, 1448));
    assert!(!b.has_work(u64::MAX - 1) && b.next_deadline().is_none());
    assert_eq!((a.counters().tx_frames, b.counters().rx_bytes), (1, got.len() as u64));
}

#[test]
fn broadcasts_reach_all_others_as_flat_copies() {
    let (fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    let mut c = fabric.join("c", C).unwrap();
    let request = arp_request(A, IP_A, IP_B);
    let frame = frame_of(&mut caller.pool, &request);
    send(&mut a, 0, &mut caller, frame);
    for port in [&mut b, &mut c] {
        let frames = receive(port, 0, &mut caller);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0].bytes(), request);
    }
    assert!(receive(&mut a, 0, &mut caller).is_empty());
}

#[test]
fn an_address_has_one_owner() {
    let (fabric, _a, b, _) = pair(FabricConfig::default());
    assert!(fabric.join("c", B).err().unwrap().to_string().contains("b has the hardware address"));
    drop(b);
    assert!(fabric.join("c", B).is_ok());
}

#[test]
fn a_member_that_left_is_unknown() {
    let (fabric, mut a, b, mut caller) = pair(FabricConfig::default());
    drop(b);
    let frame = tcp_frame(&mut caller.pool, B, A, 0, b"");
    send(&mut a, 0, &mut caller, frame);
    assert_eq!(caller.drops.get(PortDrop::FabricUnknown), 1);
    let figures = fabric.members();
    assert_eq!((figures.len(), figures[0].drops.clone()), (1, vec![("fabric_unknown", 1)]));
    // Its place and address are free again.
    let mut b = fabric.join("b", B).unwrap();
    let frame = tcp_frame(&mut caller.pool, B, A, 0, b"");
    send(&mut a, 0, &mut caller, frame);
    assert_eq!(receive(&mut b, 0, &mut caller).len(), 1);
}

#[test]
fn rate_and_delay_are_exact_and_waiting_frames_refer_to_nothing() {
    // 10 Gbit/s: 0.8 ns a byte.
    let config = FabricConfig { rate_bps: 10_000_000_000, delay_ns: 5_000, ..FabricConfig::default() };
    let (_fabric, mut a, mut b, mut caller) = pair(config);
    assert_eq!(a.capabilities(), Capabilities { mtu: 1500, super_segment: 0, checksum: false });
    let frame = by_reference(&mut caller, &pattern(1000), 0);
    let len = frame.len() as u64;
    for _ in 0..100 {
        let frame = by_reference(&mut caller, &pattern(1000), 0);
        send(&mut a, 1_000, &mut caller, frame);
    }
    for i in 1..=100u64 {
        let due = 1_000 + 5_000 + (i * len * 4).div_ceil(5);
        assert_eq!(b.next_deadline(), Some(due), "frame {i}");
        assert!(!b.has_work(due - 1) && b.has_work(due));
        assert!(receive(&mut b, due - 1, &mut caller).is_empty());
        let frames = receive(&mut b, due, &mut caller);
        assert_eq!(frames.len(), 1);
        assert!(frames[0].payload().is_none());
    }
}

/// A flow has one path and stays in order; flows of several paths have the rates of all of them together.
#[test]
fn paths_are_chosen_flow_by_flow() {
    const FLOWS: u16 = 32;
    let config = FabricConfig { rate_bps: 1_000_000_000, paths: 4, path_skew_ns: 50_000, ..FabricConfig::default() };
    let (_fabric, mut a, mut b, mut caller) = pair(config);
    let port_at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut len = 0;
    for number in 0..320u32 {
        let mut frame = numbered(&mut caller, number, 1000);
        let port = 40_000 + number as u16 % FLOWS;
        frame.bytes_mut()[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
        len = frame.len() as u64;
        send(&mut a, 0, &mut caller, frame);
    }
    let (mut last, mut order) = (0, vec![0; FLOWS.into()]);
    while let Some(due) = b.next_deadline().filter(|due| *due < 1 << 40) {
        last = due;
        for frame in receive(&mut b, due, &mut caller) {
            let flow = usize::from(u16::from_be_bytes([frame.bytes()[port_at], frame.bytes()[port_at + 1]]) - 40_000);
            let (.., data) = (0, &frame.bytes()[frame.len() - 1000..]);
            let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]) + 1;
            assert!(number > order[flow], "flow {flow}: {number} after {}", order[flow]);
            order[flow] = number;
        }
    }
    let on_one_path = 320 * len * 8;
    assert!(order.iter().all(|number| *number > 0) && last < on_one_path / 2, "{last} of {on_one_path} ns");
}

#[test]
fn the_backlog_is_bounded_and_marked_above_the_threshold() {
    let config = FabricConfig {
        rate_bps: 1_000_000_000,
        buffer_bytes: 100_000,
        ecn_threshold_bytes: 30_000,
        ..FabricConfig::default()
    };
    let (_fabric, mut a, mut b, mut caller) = pair(config);
    for i in 0..200 {
        let frame = numbered(&mut caller, i, 1000);
        send(&mut a, 0, &mut caller, frame);
    }
    let frames = receive(&mut b, 1_000_000_000, &mut caller);
    let len = frames[0].len();
    assert_eq!(frames.len(), 100_000 / len);
    assert_eq!(caller.drops.get(PortDrop::FabricQueue), 200 - frames.len() as u64);
    for (i, frame) in frames.iter().enumerate() {
        let (ip, _) = ipv4::Header::parse(&frame.bytes()[14..], frame.len() - 14).unwrap();
        let marked = if i * len > 30_000 { ipv4::Ecn::Ce } else { ipv4::Ecn::Ect0 };
        assert_eq!(ip.ecn, marked, "frame {i}");
    }
}

#[test]
fn a_receiver_that_never_polls_bounds_the_memory() {
    let (_fabric, mut a, mut b, mut caller) = pair(FabricConfig { buffer_bytes: 65_536, ..FabricConfig::default() });
    for i in 0..1000 {
        let frame = numbered(&mut caller, i, 1000);
        send(&mut a, 0, &mut caller, frame);
    }
    let bytes: usize = receive(&mut b, 0, &mut caller).iter().map(|frame| frame.len()).sum();
    assert!((64_000..=65_536).contains(&bytes), "{bytes}");
    assert!(caller.drops.get(PortDrop::FabricQueue) > 900);
}

#[test]
fn losses_come_alone_or_in_bursts() {
    let losses = |config: FabricConfig| {
        let (_fabric, mut a, mut b, mut caller) = pair(config);
        let mut arrived = Vec::new();
        for i in 0..20_000 {
            let frame = numbered(&mut caller, i, 4);
            send(&mut a, 0, &mut caller, frame);
            arrived.extend(receive(&mut b, 0, &mut caller).iter().map(|frame| number(frame)));
        }
        assert_eq!(arrived.len() as u64 + caller.drops.get(PortDrop::FabricLoss), 20_000);
        let bursts = arrived.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
        ((20_000 - arrived.len()) as f64, bursts as f64)
    };
    let (lost, bursts) = losses(FabricConfig { loss: 0.05, ..FabricConfig::default() });
    assert!((800.0..1200.0).contains(&lost), "{lost}");
    assert!(lost / bursts < 1.2);
    // Bursts of 5 frames that begin at one frame in 100.
    let (lost, bursts) = losses(FabricConfig { burst_begin: 0.01, burst_end: 0.2, ..FabricConfig::default() });
    assert!((600.0..1400.0).contains(&lost), "{lost}");
    assert!((3.5..6.5).contains(&(lost / bursts)), "{lost} in {bursts}");
}

#[test]
fn corruption_is_always_detectable() {
    let (_fabric, mut a, mut b, mut caller) = pair(FabricConfig { corrupt: 1.0, ..FabricConfig::default() });
    for i in 0..2000 {
        let frame = numbered(&mut caller, i, 4 + (i as usize * 7) % 900);
        send(&mut a, 0, &mut caller, frame);
        let got = receive(&mut b, 0, &mut caller).pop().unwrap();
        assert_eq!(got.checksum, Checksum::Complete);
        assert!(check_tcp(got.bytes()).is_err(), "frame {i} went unnoticed");
    }
    let frame = frame_of(&mut caller.pool, &arp_request(A, IP_A, IP_B));
    send(&mut a, 0, &mut caller, frame);
    assert!(receive(&mut b, 0, &mut caller).is_empty(), "ARP has no checksum: it is lost instead");
    assert_eq!(caller.drops.get(PortDrop::FabricLoss), 1);
}

#[test]
fn flows_that_began_before_an_impairment_are_cut() {
    let (fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    fabric.configure(FabricConfig { loss: 1e-12, ..FabricConfig::default() });
    let data = pattern(10_000);
    let frame = by_reference(&mut caller, &data, 1448);
    send(&mut a, 0, &mut caller, frame);
    let frames = receive(&mut b, 0, &mut caller);
    assert_eq!(frames.len(), 7);
    let mut stream = Vec::new();
    for (i, mut frame) in frames.into_iter().enumerate() {
        assert!(frame.len() <= 1514 && frame.segment_size == 0);
        frame.complete_checksum();
        let (ip, tcp, part) = check_tcp(frame.bytes()).unwrap();
        assert_eq!(tcp.seq - wire::Seq(u32::MAX - 5000), stream.len() as u32);
        assert_eq!(ip.id as usize, 1 + i);
        assert_eq!(tcp.flags.has(Flags::CWR), i == 0, "only the first");
        assert_eq!(tcp.flags.any(Flags::FIN | Flags::PSH), i == 6, "only the last");
        assert!(tcp.flags.has(Flags::ACK) && tcp.options.timestamps.is_some());
        stream.extend_from_slice(&part);
    }
    assert_eq!(stream, data);
}

#[test]
fn frames_that_are_no_frames_are_named() {
    let (_fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    for (frame, reason) in [
        (vec![0; 13], PortDrop::Ethernet),
        (tcp_segment(B, A, 0, Flags::ACK, ipv4::Ecn::NotEct, &pattern(1449)).0, PortDrop::TooLong),
    ] {
        let frame = frame_of(&mut caller.pool, &frame);
        send(&mut a, 0, &mut caller, frame);
        assert_eq!(caller.drops.get(reason), 1);
    }
    let mut lie = frame_of(&mut caller.pool, &arp_request(A, IP_A, IP_B));
    lie.segment_size = 5;
    let (_impaired, mut c, _d, _) = pair(FabricConfig { loss: 1e-12, ..FabricConfig::default() });
    send(&mut c, 0, &mut caller, lie);
    assert_eq!(caller.drops.get(PortDrop::TooLong), 2);
    assert!(receive(&mut b, 0, &mut caller).is_empty());
}

#[test]
fn configurations_that_mean_nothing_are_refused_by_name() {
    let bad = [
        ("loss", FabricConfig { loss: 1.5, ..FabricConfig::default() }),
        ("corrupt", FabricConfig { corrupt: f64::NAN, ..FabricConfig::default() }),
        ("burst_end", FabricConfig { burst_begin: 0.1, burst_end: 0.0, ..FabricConfig::default() }),
        ("mtu", FabricConfig { mtu: 100, ..FabricConfig::default() }),
        ("buffer_bytes", FabricConfig { buffer_bytes: 1, ..FabricConfig::default() }),
    ];
    for (key, config) in bad {
        assert!(config.check().unwrap_err().contains(key));
    }
    assert_eq!(FabricConfig::default().check(), Ok(()));
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on the stack, with its count.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn a_sleeper_is_woken_and_one_that_is_awake_is_not() {
    let (_fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    let go = |a: &mut FabricPort, caller: &mut Caller| {
        let frame = tcp_frame(&mut caller.pool, B, A, 0, b"");
        send(a, 0, caller, frame);
    };
    go(&mut a, &mut caller);
    assert!(readable(b.wait_fd().unwrap()), "asleep until it announces otherwise");
    receive(&mut b, 0, &mut caller);
    assert!(!readable(b.wait_fd().unwrap()));
    b.awake();
    go(&mut a, &mut caller);
    assert!(!readable(b.wait_fd().unwrap()));
    b.prepare_to_sleep();
    assert!(b.has_work(0), "the second poll finds it");
    go(&mut a, &mut caller);
    assert!(readable(b.wait_fd().unwrap()));
    assert_eq!(receive(&mut b, 0, &mut caller).len(), 2);
}

/// Threads that send to each other as fast as they can and sleep on their descriptors lose no frame.
#[test]
fn no_wake_up_is_lost_between_threads() {
    const ROUNDS: u32 = 20_000;
    let (_fabric, mut a, mut b, _) = pair(FabricConfig::default());
    let await_one = |port: &mut FabricPort, caller: &mut Caller| {
        loop {
            if let Some(frame) = receive(port, 0, caller).pop() {
                return frame;
            }
            port.prepare_to_sleep();
            if !port.has_work(0) {
                let fd = port.wait_fd().unwrap().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one pollfd on the stack, with its count.
                assert_eq!(unsafe { libc::poll(&mut poll, 1, 60_000) }, 1, "nobody woke the sleeper");
            }
            port.awake();
        }
    };
    let peer = std::thread::spawn(move || {
        let mut caller = Caller::new();
        for i in 0..ROUNDS {
            assert_eq!(number(&await_one(&mut b, &mut caller)), i);
            let mut data = i.to_be_bytes().to_vec();
            data.push(0);
            let frame = tcp_frame(&mut caller.pool, A, B, 0, &data);
            send(&mut b, 0, &mut caller, frame);
        }
    });
    let mut caller = Caller::new();
    for i in 0..ROUNDS {
        let frame = numbered(&mut caller, i, 4);
        send(&mut a, 0, &mut caller, frame);
        assert_eq!(number(&await_one(&mut a, &mut caller)), i);
    }
    peer.join().unwrap();
    assert!(receive(&mut a, 0, &mut caller).is_empty());
    assert!(!readable(a.wait_fd().unwrap()), "a signal that nobody clears would keep an idle thread awake");
}

/// An outside port whose other side the test holds.
struct Outside {
    takes: Capabilities,
    inwards: Arc<Mutex<Vec<Box<Frame>>>>,
    outwards: Arc<Mutex<Vec<Box<Frame>>>>,
    event: std::os::fd::OwnedFd,
}

impl Port for Outside {
    fn name(&self) -> String {
        "outside".into()
    }
    fn capabilities(&self) -> Capabilities {
        self.takes
    }
    fn mac(&self) -> Mac {
        Mac::default()
    }
    fn receive(&mut self, _: Nanos, _: usize, _: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        let frames = std::mem::take(&mut *self.inwards.lock().unwrap());
        let count = frames.len();
        into.extend(frames);
        count
    }
    fn send(&mut self, _: Nanos, frames: &mut Vec<Box<Frame>>, _: &mut FramePool, _: &mut PortDrops) {
        self.outwards.lock().unwrap().append(frames);
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn has_work(&self, _: Nanos) -> bool {
        !self.inwards.lock().unwrap().is_empty()
    }
    fn counters(&self) -> PortCounters {
        PortCounters::default()
    }
}

#[test]
fn an_uplink_is_learned_served_and_adapted_to() {
    let (fabric, mut a, mut b, mut caller) = pair(FabricConfig::default());
    let (inwards, outwards) = (Arc::default(), Arc::default());
    let outside = Outside {
        takes: Capabilities { mtu: 1400, super_segment: 0, checksum: false },
        inwards: Arc::clone(&inwards),
        outwards: Arc::clone(&outwards),
        event: shm::Doorbell::eventfd().unwrap(),
    };
    fabric.uplink("out", Box::new(outside)).unwrap();
    assert_eq!(a.capabilities(), Capabilities { mtu: 1400, super_segment: 0, checksum: true });
    assert_eq!(fabric.wait_fds().unwrap().len(), 2);

    // Unknown stations are searched for outside, in segments with complete checksums.
    let data = pattern(5000);
    let mut frame = by_reference(&mut caller, &data, 1348);
    frame.bytes_mut()[..6].copy_from_slice(&C.0);
    send(&mut a, 0, &mut caller, frame);
    assert!(fabric.has_work(0));
    assert_eq!(fabric.poll(0, &mut caller.pool, &mut caller.drops), 1);
    let stream: Vec<u8> =
        outwards.lock().unwrap().drain(..).flat_map(|frame: Box<Frame>| check_tcp(frame.bytes()).unwrap().2).collect();
    assert_eq!(stream, data);
    assert!(receive(&mut b, 0, &mut caller).is_empty());

    // What comes from outside reaches its host, and only it; its sender is known from now on.
    let frame = tcp_frame(&mut caller.pool, A, C, 9, b"in");
    inwards.lock().unwrap().push(frame);
    assert_eq!(fabric.poll(0, &mut caller.pool, &mut caller.drops), 1);
    assert_eq!((receive(&mut a, 0, &mut caller).len(), receive(&mut b, 0, &mut caller).len()), (1, 0));
    // Nobody outside takes over the address of a host.
    let frame = tcp_frame(&mut caller.pool, A, B, 9, b"I am b");
    inwards.lock().unwrap().push(frame);
    fabric.poll(0, &mut caller.pool, &mut caller.drops);
    let frame = tcp_frame(&mut caller.pool, B, A, 9, b"to the real b");
    send(&mut a, 0, &mut caller, frame);
    assert_eq!(receive(&mut b, 0, &mut caller).len(), 1);
    assert_eq!(caller.drops, PortDrops::default());
}

#[test]
fn a_quiet_uplink_is_polled_rarely_until_a_sleep() {
    let (fabric, mut a, _b, mut caller) = pair(FabricConfig::default());
    let inwards: Arc<Mutex<Vec<Box<Frame>>>> = Arc::default();
    let outside = Outside {
        takes: a.capabilities(),
        inwards: Arc::clone(&inwards),
        outwards: Arc::default(),
        event: shm::Doorbell::eventfd().unwrap(),
    };
    fabric.uplink("out", Box::new(outside)).unwrap();
    let come = |caller: &mut Caller| inwards.lock().unwrap().push(tcp_frame(&mut caller.pool, A, C, 9, b"in"));
    let poll = |now: Nanos, caller: &mut Caller| fabric.poll(now, &mut caller.pool, &mut caller.drops);
    (0..1000).for_each(|now| assert_eq!(poll(now, &mut caller), 0));
    come(&mut caller);
    assert_eq!(poll(1000, &mut caller), 0, "it is quiet");
    assert_eq!(poll(3000, &mut caller), 1, "but not forgotten");
    (3000..4000).for_each(|now| assert_eq!(poll(now, &mut caller), 0));
    come(&mut caller);
    fabric.prepare_to_sleep();
    assert!(fabric.has_work(4000));
    fabric.awake();
    assert_eq!(poll(4000, &mut caller), 1);
    assert_eq!(receive(&mut a, 4000, &mut caller).len(), 2);
}

fn config() -> impl Strategy<Value = FabricConfig> {
    let chance = || prop_oneof![Just(0.0), 0.0..0.5f64];
    let network = (prop_oneof![Just(0), 1_000_000..100_000_000_000u64], 0..100_000u64, 0..50_000u64, any::<u64>());
    (network, chance(), chance(), chance(), chance()).prop_map(
        |((rate_bps, delay_ns, jitter_ns, seed), loss, reorder, duplicate, corrupt)| FabricConfig {
            rate_bps,
            delay_ns,
            jitter_ns,
            seed,
            loss,
            reorder,
            duplicate,
            corrupt,
            ..FabricConfig::default()
        },
    )
}

/// Sends frames at given gaps; what arrives, when: (time, bytes).
fn run(config: &FabricConfig, gaps: &[u64]) -> (Vec<(Nanos, Vec<u8>)>, PortDrops) {
    let (_fabric, mut a, mut b, mut caller) = pair(config.clone());
    let (mut now, mut arrived) = (0, Vec::new());
    let take = |now: Nanos, b: &mut FabricPort, caller: &mut Caller, arrived: &mut Vec<(Nanos, Vec<u8>)>| {
        while let Some(due) = b.next_deadline().filter(|due| *due <= now) {
            let frames = receive(b, due.max(arrived.last().map_or(0, |last| last.0)), caller);
            assert!(!frames.is_empty(), "a deadline with nothing due");
            arrived.extend(frames.into_iter().map(|mut frame| {
                frame.complete_checksum();
                (due, frame.bytes().to_vec())
            }));
        }
    };
    for (i, gap) in gaps.iter().enumerate() {
        now += gap;
        take(now, &mut b, &mut caller, &mut arrived);
        let frame = numbered(&mut caller, i as u32, 4 + (i * 13) % 1000);
        send(&mut a, now, &mut caller, frame);
    }
    take(u64::MAX - 1, &mut b, &mut caller, &mut arrived);
    (arrived, caller.drops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_gives_the_same_fates(config in config(), gaps in prop::collection::vec(0..20_000u64, 1..120)) {
        prop_assert_eq!(run(&config, &gaps), run(&config, &gaps));
    }

    #[test]
    fn no_bytes_and_no_configuration_panic(
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..40),
        fixed in any::<bool>(), segment_size in any::<u16>(), config in config(),
        (rate_bps, delay_ns, buffer_bytes, now) in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
    ) {
        let ecn_threshold_bytes = 1;
        let wild = FabricConfig { rate_bps, delay_ns, buffer_bytes, ecn_threshold_bytes, ..config.clone() };
        let (fabric, mut a, mut b, mut caller) = pair(config);
        for (i, mut bytes) in bytes.into_iter().enumerate() {
            if fixed && bytes.len() > 24 {
                bytes[..12].copy_from_slice(&[B.0, A.0].concat());
                bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                bytes[23] = 6;
            }
            let mut frame = frame_of(&mut caller.pool, &bytes);
            frame.segment_size = if i % 2 == 0 { segment_size } else { 0 };
            send(&mut a, now, &mut caller, frame);
            receive(&mut b, now, &mut caller);
            fabric.configure(wild.clone());
        }
        let figures = fabric.members();
        prop_assert_eq!(figures[1].waiting_bytes == 0, b.next_deadline().is_none());
    }

    #[test]
    fn every_frame_arrives_in_order_unless_something_was_asked_for(
        config in config(), gaps in prop::collection::vec(0..20_000u64, 1..120),
    ) {
        let calm = FabricConfig { loss: 0.0, reorder: 0.0, duplicate: 0.0, corrupt: 0.0, ..config };
        let (arrived, drops) = run(&calm, &gaps);
        prop_assert_eq!(drops, PortDrops::default());
        let numbers: Vec<u32> =
            arrived.iter().map(|(_, bytes)| u32::from_be_bytes(check_tcp(bytes).unwrap().2[..4].try_into().unwrap())).collect();
        prop_assert_eq!(numbers, (0..gaps.len() as u32).collect::<Vec<_>>());
        let mut sent = 0;
        for ((due, _), gap) in arrived.iter().zip(&gaps) {
            sent += gap;
            prop_assert!(calm.rate_bps == 0 || *due >= sent + calm.delay_ns);
        }
    }

    #[test]
    fn nothing_is_invented_and_nothing_disappears_unnamed(
        config in config(), gaps in prop::collection::vec(0..20_000u64, 1..120),
    ) {
        let whole = FabricConfig { corrupt: 0.0, ..config };
        let (arrived, drops) = run(&whole, &gaps);
        let mut seen = vec![0u64; gaps.len()];
        for (_, bytes) in &arrived {
            let (_, tcp, data) = check_tcp(bytes).unwrap();
            let number = u32::from_be_bytes(data[..4].try_into().unwrap());
            prop_assert_eq!(tcp.seq.0, number);
            prop_assert_eq!(data.len(), 4 + (number as usize * 13) % 1000);
            prop_assert!(data[4..].iter().all(|byte| *byte == number as u8));
            seen[number as usize] += 1;
        }
        let missing = seen.iter().filter(|times| **times == 0).count() as u64;
        prop_assert_eq!(missing, drops.get(PortDrop::FabricLoss));
        prop_assert!(seen.iter().all(|times| *times <= 1 + u64::from(whole.duplicate > 0.0)));
    }
}
