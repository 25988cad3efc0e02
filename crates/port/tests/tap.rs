//! The TAP port against the kernel's own stack, in a namespace made here.
mod common;

use common::*;
use port::{Checksum, Fabric, FabricConfig, FabricPort, Frame, Interface, Netns, Port, Tap, TapConfig, local_mac};
use shm::{ByteRing, PAGE, Region, Span};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use wire::{EtherType, Mac, arp, ethernet, icmpv4, ipv4};

const KERNEL: Ipv4Addr = IP_B;
const HOST: Ipv4Addr = IP_A;

/// A TAP device in a namespace of its own. The namespace lives as long as the device.
fn open(test: &str, offload: bool) -> Option<(Netns, Tap)> {
    let netns = netns_or_skip(test)?;
    let config = TapConfig {
        name: "toe%d".into(),
        netns: Some(netns.path()),
        kernel_addresses: vec![(KERNEL.into(), 24)],
        offload,
        ..TapConfig::default()
    };
    match Tap::open(&config) {
        Ok(tap) => Some((netns, tap)),
        Err(sentence) => {
            println!("SKIPPED {test}: {sentence}");
            None
        }
    }
}

/// The first frame that `wanted` picks; others (IPv6 noise of the kernel) are passed over.
fn await_frame(tap: &mut Tap, caller: &mut Caller, wanted: impl Fn(&Frame) -> bool) -> Box<Frame> {
    until("the kernel's answer", || {
        let mut frames = Vec::new();
        while tap.receive(0, 1, &mut caller.pool, &mut frames) > 0 {
            let found = frames.pop().filter(|frame| wanted(frame));
            if found.is_some() {
                return found;
            }
        }
        None
    })
}

fn send(tap: &mut Tap, caller: &mut Caller, frame: Box<Frame>) {
    tap.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
}

fn ethertype(frame: &Frame) -> EtherType {
    ethernet::Header::parse(frame.bytes()).unwrap().ethertype
}

fn introduce(tap: &mut Tap, caller: &mut Caller) -> Mac {
    let request = frame_of(&mut caller.pool, &arp_request(tap.mac(), HOST, KERNEL));
    send(tap, caller, request);
    let reply = await_frame(tap, caller, |frame| ethertype(frame) == EtherType::Arp);
    let packet = arp::Packet::parse(&reply.bytes()[ethernet::HEADER_LEN..]).unwrap();
    assert_eq!((packet.operation, packet.sender_ip), (arp::Operation::Reply, KERNEL));
    packet.sender_mac
}

#[test]
fn the_kernel_answers_arp_and_ping() {
    let Some((_netns, mut tap)) = open("the_kernel_answers_arp_and_ping", true) else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut tap, caller);
    assert_ne!(kernel, tap.mac());
    assert_eq!(tap.mac().0[0] & 3, 2, "a locally administered address of one station");
    let data = pattern(1000);
    let ping = frame_of(&mut caller.pool, &echo_request(kernel, tap.mac(), HOST, KERNEL, 5, &data));
    send(&mut tap, caller, ping);
    let reply = await_frame(&mut tap, caller, |frame| ethertype(frame) == EtherType::Ipv4);
    let packet = &reply.bytes()[ethernet::HEADER_LEN..];
    let (ip, at) = ipv4::Header::parse(packet, packet.len()).unwrap();
    assert_eq!((ip.src, ip.dst), (KERNEL, HOST));
    assert_eq!(icmpv4::Message::parse(&packet[at..]), Ok(icmpv4::Message::EchoReply(7, 5)));
    assert_eq!(packet[at + icmpv4::HEADER_LEN..], data);
    assert_eq!((tap.counters().tx_frames, caller.drops.iter().count()), (2, 0));
}

/// RST answers a super-segment by reference to a port that nobody listens on: so the kernel took it as valid.
#[test]
fn the_kernel_completes_checksums_and_cuts_super_segments() {
    let Some((netns, mut tap)) = open("the_kernel_takes_super_segments", true) else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut tap, caller);
    let region = Arc::new(Region::create("tap-test", 32 * PAGE).unwrap());
    let byte_ring = Arc::new(ByteRing::map(&region, 0, 32 * PAGE).unwrap());
    let data = pattern(60_000);
    let pos = u32::MAX - 999;
    byte_ring.write(pos, &data);

    let flags = wire::tcp::Flags::ACK;
    let (bytes, headers) = tcp_segment(kernel, tap.mac(), 5000, flags, ipv4::Ecn::NotEct, &data);
    let mut frame = frame_of(&mut caller.pool, &bytes[..headers]);
    frame.set_payload(Some(Span::new(&byte_ring, pos, data.len() as u32)));
    frame.checksum = TCP_PARTIAL;
    frame.segment_size = 1448;
    send(&mut tap, caller, frame);
    let mut answer = await_frame(&mut tap, caller, |frame| ethertype(frame) == EtherType::Ipv4);
    answer.complete_checksum();
    let (_, tcp, _) = check_tcp(answer.bytes()).unwrap();
    assert!(tcp.flags.has(wire::tcp::Flags::RST), "nobody listens: {tcp:?}");
    assert_eq!(caller.drops.iter().count(), 0);
    drop(netns);
}

#[test]
fn complete_checksums_stay_and_the_kernel_refuses_wrong_ones() {
    let Some((_netns, mut tap)) = open("a_wrong_checksum", true) else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut tap, caller);
    let (mut bad, _) = tcp_segment(kernel, tap.mac(), 1, wire::tcp::Flags::SYN, ipv4::Ecn::NotEct, b"");
    bad[50] ^= 0x55;
    let frame = frame_of(&mut caller.pool, &bad);
    send(&mut tap, caller, frame);
    // The answer to a right one that comes later is the first TCP frame to be seen.
    let mut right = tcp_frame(&mut caller.pool, kernel, tap.mac(), 4242, b"");
    right.complete_checksum();
    send(&mut tap, caller, right);
    let is_tcp = |frame: &Frame| ethertype(frame) == EtherType::Ipv4;
    let mut answer = await_frame(&mut tap, caller, is_tcp);
    answer.complete_checksum();
    let (_, tcp, _) = check_tcp(answer.bytes()).unwrap();
    assert_eq!(tcp.seq.0, 77, "a reset in answer to an acknowledgement takes its number (RFC 9293 3.5.2)");
}

#[test]
fn the_kernel_leaves_checksums_to_the_port_which_marks_them() {
    let test = "the_kernel_leaves_checksums";
    for offload in [true, false] {
        let Some((netns, mut tap)) = open(test, offload) else { return };
        let caller = &mut Caller::new();
        introduce(&mut tap, caller);
        let socket = netns.run(|| UdpSocket::bind((KERNEL, 0)).unwrap()).unwrap();
        socket.send_to(b"hello", (HOST, 9)).unwrap();
        let mut frame = await_frame(&mut tap, caller, |frame| ethertype(frame) == EtherType::Ipv4);
        if offload {
            assert_eq!(frame.checksum, Checksum::Partial { start: 34, field: 40 });
        } else {
            assert_eq!(frame.checksum, Checksum::Complete);
        }
        frame.complete_checksum();
        let packet = &frame.bytes()[ethernet::HEADER_LEN..];
        let (ip, at) = ipv4::Header::parse(packet, packet.len()).unwrap();
        let mut sum = wire::checksum::Sum::pseudo_header(ip.src, ip.dst, ip.protocol, ip.payload_len.into());
        sum.add(&packet[at..at + ip.payload_len as usize]);
        assert_eq!(sum.finish(), 0);
        assert_eq!(tap.capabilities().super_segment > 0, offload);
    }
}

#[test]
fn a_deleted_device_is_a_sentence_and_not_a_loop() {
    let Some((netns, mut tap)) = open("a_deleted_device", true) else { return };
    let caller = &mut Caller::new();
    let name = tap.device().to_string();
    netns.run(|| Interface::named(&name).unwrap().delete().unwrap()).unwrap();
    let frame = tcp_frame(&mut caller.pool, B, A, 0, b"x");
    send(&mut tap, caller, frame);
    assert_eq!(caller.drops.get(port::PortDrop::PortQueue), 1);
    assert!(tap.failure().is_some_and(|sentence| sentence.contains("deleted")));
    assert_eq!(tap.receive(0, 64, &mut caller.pool, &mut Vec::new()), 0);
    assert!(tap.wait_fd().is_none() && !tap.has_work(0));
}

#[test]
fn a_device_that_is_switched_off_refuses_frames_and_recovers() {
    let Some((netns, mut tap)) = open("a_device_switched_off", true) else { return };
    let caller = &mut Caller::new();
    let interface = netns.run(|| Interface::named("toe0").unwrap()).unwrap();
    netns.run(|| interface.set_down().unwrap()).unwrap();
    let frame = tcp_frame(&mut caller.pool, B, A, 0, b"x");
    send(&mut tap, caller, frame);
    assert_eq!((caller.drops.get(port::PortDrop::PortQueue), tap.failure()), (1, None));
    netns.run(|| interface.set_up().unwrap()).unwrap();
    introduce(&mut tap, caller);
}

#[test]
fn too_long_frames_are_named() {
    let Some((_netns, mut tap)) = open("too_long", true) else { return };
    let caller = &mut Caller::new();
    let frame = tcp_frame(&mut caller.pool, B, A, 0, &pattern(1500));
    send(&mut tap, caller, frame);
    assert_eq!(caller.drops.get(port::PortDrop::TooLong), 1);
}

#[test]
fn the_device_is_configured_and_goes_with_the_port() {
    let Some(netns) = netns_or_skip("the_device_is_configured") else { return };
    let config = TapConfig { name: "wide".into(), mtu: 9000, netns: Some(netns.path()), ..TapConfig::default() };
    let tap = match Tap::open(&config) {
        Ok(tap) => tap,
        Err(sentence) => return println!("SKIPPED the_device_is_configured: {sentence}"),
    };
    assert_eq!((tap.name(), tap.capabilities().mtu), ("tap wide".to_string(), 9000));
    let seen = netns.run(|| Interface::named("wide").and_then(|i| Ok((i.mtu()?, i.is_up()?)))).unwrap();
    assert_eq!(seen, Ok((9000, true)));
    let again = Tap::open(&config).err().expect("a device has one owner");
    assert!(again.contains("in use"), "{again}");
    drop(tap);
    assert!(netns.run(|| Interface::named("wide")).unwrap().is_err());
}

#[test]
fn sentences_for_what_cannot_be() {
    let missing = TapConfig { netns: Some("no-such-namespace".into()), ..TapConfig::default() };
    let sentence = Tap::open(&missing).err().expect("there is no such namespace");
    assert!(sentence.contains("no-such-namespace"), "{sentence}");
    let long = TapConfig { name: "a-name-that-is-too-long".into(), ..TapConfig::default() };
    assert!(Tap::open(&long).is_err());
}

#[test]
fn derived_addresses_differ_and_are_stable() {
    assert_eq!(local_mac("a"), local_mac("a"));
    assert_ne!(local_mac("a"), local_mac("b"));
    assert_eq!(local_mac("x").0[0] & 3, 2);
}

#[test]
fn a_named_namespace_comes_and_goes() {
    let name = format!("toe-test-{}", std::process::id());
    let netns = match Netns::create_named(&name) {
        Ok(netns) => netns,
        Err(sentence) => return println!("SKIPPED a_named_namespace_comes_and_goes: {sentence}"),
    };
    assert!(Netns::create_named(&name).is_err());
    let again = Netns::open(&name).unwrap();
    assert_eq!(again.run(|| Interface::named("lo").unwrap().is_up().unwrap()), Ok(true));
    let mut command = std::process::Command::new("cat");
    command.arg("/proc/net/dev");
    netns.start_inside(&mut command).unwrap();
    let listed = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(listed.lines().filter(|line| line.contains(':')).count(), 1, "only the loopback: {listed}");
    Netns::remove(&name).unwrap();
    assert!(Netns::open(&name).is_err());
}

#[test]
fn a_veth_pair_is_made_moved_routed_and_deleted() {
    let (Some(a), Some(b)) = (netns_or_skip("veth"), netns_or_skip("veth")) else { return };
    a.run(|| {
        let veth = Interface::create_veth("left", "right", Some(b.as_fd())).unwrap();
        assert!(Interface::create_veth("left", "other", None).is_err());
        veth.set_address(IP_A, 24).unwrap();
        veth.set_up().unwrap();
        veth.add_route(Ipv4Addr::new(10, 50, 0, 0), 16, Some(IP_B)).unwrap();
        veth.set_offloads(port::Offloads::NONE).unwrap();
        assert_eq!(veth.offloads(), Ok(port::Offloads::NONE));
    })
    .unwrap();
    b.run(|| assert!(Interface::named("right").unwrap().offloads().unwrap().tso)).unwrap();
    a.run(|| Interface::named("left").unwrap().delete().unwrap()).unwrap();
    assert!(b.run(|| Interface::named("right")).unwrap().is_err());
}

#[test]
fn the_wait_descriptor_is_readable_when_a_frame_waits() {
    let Some((netns, mut tap)) = open("wait_fd", true) else { return };
    let caller = &mut Caller::new();
    introduce(&mut tap, caller);
    while tap.receive(0, 64, &mut caller.pool, &mut Vec::new()) > 0 {}
    let socket = netns.run(|| UdpSocket::bind((KERNEL, 0)).unwrap()).unwrap();
    socket.send_to(b"wake up", (HOST, 9)).unwrap();
    let mut poll = libc::pollfd { fd: tap.wait_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on the stack, with its count.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 5000) }, 1);
    await_frame(&mut tap, caller, |frame| ethertype(frame) == EtherType::Ipv4);
}

/// A packet socket on the device, with the virtio header that a TAP device has: it sees what the kernel's side sees.
fn packet_socket(netns: &Netns) -> OwnedFd {
    let protocol = 0x0003u16.to_be();
    netns
        .run(|| {
            let index = Interface::named("toe0").unwrap().index().unwrap();
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            // SAFETY: a plain system call; checked and owned at once.
            let socket = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, kind, protocol.into())) };
            // SAFETY: sockaddr_ll is plain data for which zero is valid.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (address.sll_family, address.sll_protocol) = (libc::AF_PACKET as u16, protocol);
            address.sll_ifindex = index as i32;
            let (on, vnet_hdr) = (1i32, 15);
            let timeout = libc::timeval { tv_sec: TIMEOUT.as_secs() as i64, tv_usec: 0 };
            // SAFETY: options and address are whole values of their types, with their sizes.
            unsafe {
                let (on, timeout) = ((&raw const on).cast(), (&raw const timeout).cast());
                assert_eq!(libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, vnet_hdr, on, 4), 0);
                assert_eq!(libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, timeout, 16), 0);
                let len = size_of_val(&address) as u32;
                assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len), 0);
            }
            socket
        })
        .unwrap()
}

#[test]
fn super_segments_cross_whole_and_intact_both_ways() {
    let Some((netns, mut tap)) = open("super_segments_cross", true) else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut tap, caller);
    let socket = packet_socket(&netns);
    let region = Arc::new(Region::create("tap-test", 32 * PAGE).unwrap());
    let byte_ring = Arc::new(ByteRing::map(&region, 0, 32 * PAGE).unwrap());
    let data = pattern(65_000);
    byte_ring.write(u32::MAX - 999, &data);
    let (bytes, headers) =
        tcp_segment(kernel, tap.mac(), 1, wire::tcp::Flags::ACK | wire::tcp::Flags::CWR, ipv4::Ecn::Ect0, &data);
    let mut frame = frame_of(&mut caller.pool, &bytes[..headers]);
    frame.set_payload(Some(Span::new(&byte_ring, u32::MAX - 999, data.len() as u32)));
    (frame.checksum, frame.segment_size) = (TCP_PARTIAL, 1448);
    send(&mut tap, caller, frame);

    let mut seen = vec![0u8; 70_000];
    let got = loop {
        // SAFETY: receives at most the buffer's length.
        let got = unsafe { libc::recv(socket.as_raw_fd(), seen.as_mut_ptr().cast(), seen.len(), 0) };
        assert!(got > 0, "the kernel did not see the super-segment: {}", std::io::Error::last_os_error());
        if got > 10_000 {
            break got as usize;
        }
    };
    // NEEDS_CSUM; TCPV4 with ECN; headers; segment size; checksum from the TCP header on, at byte 16 of it.
    let header: Vec<u16> = seen[2..10].chunks(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect();
    assert_eq!((seen[0] & 1, seen[1], &header[1..]), (1, 0x81, &[1448, 34, 16][..]));
    assert!(seen[10..got] == bytes, "not the bytes that were sent");

    // And back: what the kernel's side sends as one comes as one.
    let (bytes, headers) = tcp_segment(tap.mac(), kernel, 9, wire::tcp::Flags::ACK, ipv4::Ecn::NotEct, &data);
    let packet = with_gso(&bytes, headers, 1400);
    // SAFETY: sends from a buffer with its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) };
    assert_eq!(sent, packet.len() as isize, "{}", std::io::Error::last_os_error());
    let frame = await_frame(&mut tap, caller, |frame| frame.len() > 10_000);
    assert!(frame.bytes() == bytes, "not the bytes that were sent");
    assert_eq!((frame.checksum, frame.segment_size), (TCP_PARTIAL, 1400));
}

#[test]
fn without_offloads_the_kernel_cuts_super_segments_itself() {
    let Some((netns, mut tap)) = open("without_offloads", false) else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut tap, caller);
    let socket = packet_socket(&netns);
    let data = pattern(14_000);
    let (bytes, headers) = tcp_segment(tap.mac(), kernel, 9, wire::tcp::Flags::ACK, ipv4::Ecn::NotEct, &data);
    let packet = with_gso(&bytes, headers, 1400);
    // SAFETY: sends from a buffer with its length.
    assert!(unsafe { libc::send(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) } > 0);
    let mut stream = Vec::new();
    while stream.len() < data.len() {
        let frame = await_frame(&mut tap, caller, |frame| check_tcp(frame.bytes()).is_ok());
        assert_eq!((frame.checksum, frame.segment_size), (Checksum::Complete, 0));
        let (_, tcp, part) = check_tcp(frame.bytes()).unwrap();
        assert_eq!((tcp.seq - wire::Seq(9)) as usize, stream.len());
        stream.extend_from_slice(&part);
    }
    assert!(stream == data);
}

/// A host on a fabric reaches the kernel through a TAP uplink, and what the kernel sends whole is cut where single
/// frames matter.
#[test]
fn a_fabric_joins_the_kernel_through_an_uplink() {
    let Some((netns, tap)) = open("uplink", true) else { return };
    let socket = packet_socket(&netns);
    let caller = &mut Caller::new();
    let fabric = Fabric::new(FabricConfig::default());
    let mut host = fabric.join("host", A).unwrap();
    fabric.uplink("tap", Box::new(tap)).unwrap();
    assert!(host.capabilities().super_segment > 0);
    let await_one = |host: &mut FabricPort, caller: &mut Caller, wanted: &dyn Fn(&Frame) -> bool| {
        until("a frame through the uplink", || {
            fabric.poll(0, &mut caller.pool, &mut caller.drops);
            let mut frames = Vec::new();
            while host.receive(0, 1, &mut caller.pool, &mut frames) > 0 {
                let found = frames.pop().filter(|frame| wanted(frame));
                if found.is_some() {
                    return found;
                }
            }
            fabric.awake();
            None
        })
    };
    let request = frame_of(&mut caller.pool, &arp_request(A, HOST, KERNEL));
    host.send(0, &mut vec![request], &mut caller.pool, &mut caller.drops);
    let reply = await_one(&mut host, caller, &|frame| ethertype(frame) == EtherType::Arp);
    let kernel = arp::Packet::parse(&reply.bytes()[ethernet::HEADER_LEN..]).unwrap().sender_mac;

    fabric.configure(FabricConfig { duplicate: 1e-12, ..FabricConfig::default() });
    let data = pattern(14_000);
    let (bytes, headers) = tcp_segment(A, kernel, 9, wire::tcp::Flags::ACK, ipv4::Ecn::NotEct, &data);
    let packet = with_gso(&bytes, headers, 1400);
    // SAFETY: sends from a buffer with its length.
    assert!(unsafe { libc::send(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0) } > 0);
    let mut stream = Vec::new();
    while stream.len() < data.len() {
        let mut frame = await_one(&mut host, caller, &|frame| ethertype(frame) == EtherType::Ipv4);
        frame.complete_checksum();
        let (_, tcp, part) = check_tcp(frame.bytes()).unwrap();
        assert_eq!(((tcp.seq - wire::Seq(9)) as usize, part.len()), (stream.len(), 1400));
        stream.extend_from_slice(&part);
    }
    assert!(stream == data);
}

/// A super-segment with the virtio header that asks for it to be cut, for a packet socket.
fn with_gso(bytes: &[u8], headers: usize, segment_size: u16) -> Vec<u8> {
    let mut packet = vec![1, 1];
    for word in [headers as u16, segment_size, 34, 16] {
        packet.extend_from_slice(&word.to_ne_bytes());
    }
    packet.extend_from_slice(bytes);
    packet
}
