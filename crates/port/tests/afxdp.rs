//! The AF_XDP port on a veth pair between two namespaces made here; the kernel's own stack is the peer.
mod common;

use common::*;
use port::{AfXdp, AfXdpConfig, Checksum, Frame, Handover, Interface, Netns, Port, PortDrop};
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use wire::{EtherType, IpAddress, Mac, arp, ethernet, icmpv4, ipv4};

const KERNEL: Ipv4Addr = IP_B;
const HOST: Ipv4Addr = IP_A;

/// Two namespaces joined by a veth pair: `nic` for the port, `peer` with the kernel's stack.
struct Lab {
    port_side: Netns,
    peer_side: Netns,
    config: AfXdpConfig,
}

fn lab(test: &str) -> Option<Lab> {
    let (port_side, peer_side) = (netns_or_skip(test)?, netns_or_skip(test)?);
    let made = port_side
        .run(|| Interface::create_veth("nic", "peer", Some(peer_side.as_fd()))?.set_up())
        .and_then(|made| made)
        .and_then(|()| {
            peer_side.run(|| {
                let peer = Interface::named("peer")?;
                peer.set_address(KERNEL, 24)?;
                peer.set_up()
            })?
        })
        .and_then(|()| {
            let advice = AfXdp::advice_for_peer("peer", Some(&peer_side.path()))?;
            assert!(advice.is_some_and(|advice| advice.contains("ethtool -K peer")));
            Ok(())
        })
        .and_then(|()| AfXdp::prepare_peer("peer", Some(&peer_side.path())));
    if let Err(sentence) = made {
        assert!(is_privilege(&sentence), "{sentence}");
        println!("SKIPPED {test}: {sentence}");
        return None;
    }
    assert_eq!(AfXdp::advice_for_peer("peer", Some(&peer_side.path())), Ok(None));
    let config =
        AfXdpConfig { interface: "nic".into(), netns: Some(port_side.path()), frames: 512, ..AfXdpConfig::default() };
    Some(Lab { port_side, peer_side, config })
}

fn is_privilege(sentence: &str) -> bool {
    sentence.contains("not permitted") || sentence.contains("not supported")
}

fn open(lab: &Lab, test: &str) -> Option<AfXdp> {
    match AfXdp::open(&lab.config) {
        Ok(port) => Some(port),
        Err(sentence) if is_privilege(&sentence) => {
            println!("SKIPPED {test}: {sentence}");
            None
        }
        Err(sentence) => panic!("{sentence}"),
    }
}

fn ethertype(frame: &Frame) -> EtherType {
    ethernet::Header::parse(frame.bytes()).unwrap().ethertype
}

fn await_frame(port: &mut AfXdp, caller: &mut Caller, wanted: impl Fn(&Frame) -> bool) -> Box<Frame> {
    until("the kernel's answer", || {
        let mut frames = Vec::new();
        port.receive(0, 64, &mut caller.pool, &mut frames);
        frames.into_iter().find(|frame| wanted(frame))
    })
}

fn introduce(port: &mut AfXdp, caller: &mut Caller) -> Mac {
    let mut polls = 0;
    let reply = until("the answer to ARP", || {
        // Asked again every 100 ms: a port whose queue is full drops a question.
        if polls % 100 == 0 {
            let request = frame_of(&mut caller.pool, &arp_request(port.mac(), HOST, KERNEL));
            port.send(0, &mut vec![request], &mut caller.pool, &mut caller.drops);
        }
        polls += 1;
        let mut frames = Vec::new();
        port.receive(0, 64, &mut caller.pool, &mut frames);
        frames.into_iter().find(|frame| ethertype(frame) == EtherType::Arp)
    });
    arp::Packet::parse(&reply.bytes()[ethernet::HEADER_LEN..]).unwrap().sender_mac
}

/// Sequence numbers of the echo replies among the frames.
fn replies(frames: &[Box<Frame>], data: &[u8]) -> Vec<u16> {
    let sequence = |frame: &Frame| {
        let packet = &frame.bytes()[ethernet::HEADER_LEN..];
        let (ip, at) = ipv4::Header::parse(packet, packet.len()).ok()?;
        assert_eq!(packet[at + icmpv4::HEADER_LEN..at + ip.payload_len as usize], *data);
        match icmpv4::Message::parse(&packet[at..at + ip.payload_len as usize]) {
            Ok(icmpv4::Message::EchoReply(_, seq)) => Some(seq),
            other => panic!("{other:?}"),
        }
    };
    frames.iter().filter(|frame| ethertype(frame) == EtherType::Ipv4).filter_map(|frame| sequence(frame)).collect()
}

/// More frames than there are chunks, so each chunk goes round many times; every echo comes back intact, whatever the
/// completion ring has.
#[test]
fn thousands_of_pings_go_round_the_rings() {
    let Some(lab) = lab("thousands_of_pings") else { return };
    let Some(mut port) = open(&lab, "thousands_of_pings") else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut port, caller);
    let data = pattern(1400);
    let mut seen = vec![false; 4000];
    for first in (0..4000u16).step_by(20) {
        let now = u64::from(first) * 1_000_000;
        let mut frames: Vec<_> = (first..first + 20)
            .map(|seq| frame_of(&mut caller.pool, &echo_request(kernel, port.mac(), HOST, KERNEL, seq, &data)))
            .collect();
        port.send(now, &mut frames, &mut caller.pool, &mut caller.drops);
        until("every echo", || {
            let mut frames = Vec::new();
            port.receive(now, 64, &mut caller.pool, &mut frames);
            replies(&frames, &data).into_iter().for_each(|seq| seen[seq as usize] = true);
            frames.into_iter().for_each(|frame| caller.pool.put(frame));
            seen[first as usize..first as usize + 20].iter().all(|seen| *seen).then_some(())
        });
    }
    println!("{} {:?}: {:?}", port.mode(), port.figures(), caller.drops);
    assert_eq!(caller.drops.iter().count(), 0);
    assert_eq!(port.figures().bogus_receptions, 0);
}

/// As one daemon after another does (docs/TAKEOVER.md): with questions on the way, and answers that wait in the ring.
#[test]
fn another_process_goes_on_with_the_queue() {
    let Some(mut lab) = lab("another_process") else { return };
    lab.config.mac = Some(A);
    let Some(mut port) = open(&lab, "another_process") else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut port, caller);
    let (data, mut seen) = (pattern(1000), [false; 600]);
    for first in (0..600u16).step_by(60) {
        let mut frames: Vec<_> = (first..first + 60)
            .map(|seq| frame_of(&mut caller.pool, &echo_request(kernel, port.mac(), HOST, KERNEL, seq, &data)))
            .collect();
        let mut answers = Vec::new();
        let mut later = frames.split_off(30);
        port.send(0, &mut frames, &mut caller.pool, &mut caller.drops);
        port.receive(0, 10, &mut caller.pool, &mut answers);
        let Handover { device, descriptors } = port.handover().unwrap();
        assert_eq!((device.as_str(), descriptors.len()), ("nic queue 0", 4));
        let descriptors = descriptors.iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect();
        let new = AfXdp::adopt(descriptors, &lab.config, port.mac()).unwrap();
        assert_eq!((new.mode(), new.mac(), new.capabilities()), (port.mode(), port.mac(), port.capabilities()));
        // The old one goes on until it is sure.
        port.send(0, &mut later, &mut caller.pool, &mut caller.drops);
        port.receive(0, 10, &mut caller.pool, &mut answers);
        drop(std::mem::replace(&mut port, new));
        until("every echo", || {
            port.receive(0, 64, &mut caller.pool, &mut answers);
            replies(&answers, &data).into_iter().for_each(|seq| seen[usize::from(seq)] = true);
            answers.drain(..).for_each(|frame| caller.pool.put(frame));
            seen[..usize::from(first) + 60].iter().all(|seen| *seen).then_some(())
        });
    }
    assert_eq!((caller.drops.iter().count(), port.figures().bogus_receptions), (0, 0));
    let some = AfXdp::adopt(Vec::new(), &lab.config, A).err().unwrap();
    assert!(some.contains("nic queue 0"), "{some}");
}

#[test]
fn large_bursts_are_bounded_and_the_port_recovers() {
    let Some(lab) = lab("bursts") else { return };
    let Some(mut port) = open(&lab, "bursts") else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut port, caller);
    for round in 0..20 {
        let mut frames: Vec<_> =
            (0..2000).map(|seq| tcp_frame(&mut caller.pool, kernel, port.mac(), seq, &pattern(64))).collect();
        port.send(round * 2_000_000_000, &mut frames, &mut caller.pool, &mut caller.drops);
        assert!(frames.is_empty());
        while port.receive(0, 64, &mut caller.pool, &mut Vec::new()) > 0 {}
    }
    println!("{:?} {:?}", port.figures(), caller.drops);
    assert!(port.counters().tx_frames + caller.drops.get(PortDrop::PortQueue) == 40_001);
    // Frames of the bursts may still come: the answer to this one is known by its kind.
    introduce(&mut port, caller);
}

/// A partial checksum and payload by reference come out as one flat, right frame: the kernel resets it.
#[test]
fn checksums_are_completed_for_the_wire() {
    let Some(lab) = lab("checksums") else { return };
    let Some(mut port) = open(&lab, "checksums") else { return };
    let caller = &mut Caller::new();
    let kernel = introduce(&mut port, caller);
    let frame = tcp_frame(&mut caller.pool, kernel, port.mac(), 5, b"odd");
    port.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
    let answer = await_frame(&mut port, caller, |frame| ethertype(frame) == EtherType::Ipv4);
    assert_eq!(answer.checksum, Checksum::Complete);
    let (_, tcp, _) = check_tcp(answer.bytes()).expect("the prepared peer computes its checksums");
    assert!(tcp.flags.has(wire::tcp::Flags::RST));
}

#[test]
fn too_long_frames_are_named() {
    let Some(lab) = lab("too_long") else { return };
    let Some(mut port) = open(&lab, "too_long") else { return };
    let caller = &mut Caller::new();
    let frame = tcp_frame(&mut caller.pool, B, A, 0, &pattern(1500));
    port.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
    assert_eq!(caller.drops.get(PortDrop::TooLong), 1);
    assert_eq!(port.capabilities().super_segment, 0);
}

#[test]
fn a_host_may_have_an_address_of_its_own_on_the_interface() {
    let Some(mut lab) = lab("own_address") else { return };
    lab.config.mac = Some(A);
    let Some(mut port) = open(&lab, "own_address") else { return };
    assert_eq!(port.mac(), A);
    introduce(&mut port, &mut Caller::new());
}

/// Frames to the host's addresses are the port's, and questions about them; the kernel's address on the same interface
/// stays the kernel's (thesis section 4.2: beside the kernel's stack).
#[test]
fn the_kernel_keeps_what_is_not_for_the_host() {
    let Some(mut lab) = lab("kernel_keeps") else { return };
    let (own, beside): (Ipv6Addr, _) = ("2001:db8::7".parse().unwrap(), Ipv4Addr::new(10, 9, 0, 9));
    lab.config.addresses = vec![HOST.into(), IpAddress::v6(own, 0)];
    let Some(mut port) = open(&lab, "kernel_keeps") else { return };
    let caller = &mut Caller::new();
    let kernel = |netns: &Netns, device: &str, ip: IpAddress, bits| {
        netns.run(|| Interface::named(device)?.set_address(ip, bits)).and_then(|done| done).unwrap();
    };
    kernel(&lab.port_side, "nic", beside.into(), 24);
    kernel(&lab.peer_side, "peer", "2001:db8::1".parse().unwrap(), 64);
    introduce(&mut port, caller);
    let (here, there) = (
        lab.port_side.run(|| UdpSocket::bind((beside, 0)).unwrap()).unwrap(),
        lab.peer_side.run(|| UdpSocket::bind("[::]:0").unwrap()).unwrap(),
    );
    here.set_read_timeout(Some(TIMEOUT)).unwrap();
    let to_kernel = lab.peer_side.run(|| UdpSocket::bind((KERNEL, 0)).unwrap()).unwrap();
    to_kernel.send_to(b"to the kernel", here.local_addr().unwrap()).unwrap();
    assert_eq!(here.recv(&mut [0; 64]).unwrap(), 13, "beside the open port");
    // A solicitation for the host's IPv6 address goes to a group; then a datagram to the host, and one with a VLAN tag.
    there.send_to(b"to the host", (own, 9)).unwrap();
    let question = await_frame(&mut port, caller, |frame| ethertype(frame) == EtherType::Ipv6);
    assert_eq!(question.bytes()[38..40], [0xff, 0x02], "to a group");
    let host_mac = port.mac();
    let tagged = |ip: Ipv4Addr, tags: usize| {
        let mut frame = [&host_mac.0[..], &[2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x81, 0, 0, 42].repeat(tags));
        frame.extend([8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 9, 17, 0, 0, 1, 2, 3, 4]);
        frame.extend(ip.octets());
        send_raw(&lab.peer_side, "peer", &frame);
        frame
    };
    let (tagged_host, plain) = (tagged(HOST, 1), tagged(HOST, 0));
    // The kernel's.
    [tagged(beside, 1), tagged(beside, 0), tagged(HOST, 2)].iter().for_each(|frame| assert!(frame.len() > 30));
    let last = tagged(HOST, 0);
    let mut seen = Vec::new();
    until("the last frame", || {
        let mut frames = Vec::new();
        port.receive(0, 64, &mut caller.pool, &mut frames);
        let own = frames.iter().filter(|frame| frame.bytes()[6..12] == [2, 0, 0, 0, 0, 1]);
        seen.extend(own.map(|frame| frame.bytes().to_vec()));
        (seen.len() >= 3).then_some(())
    });
    assert_eq!(seen, [tagged_host, plain, last]);
}

/// Sends a frame as it is.
fn send_raw(netns: &Netns, device: &str, frame: &[u8]) {
    let index = netns.run(|| Interface::named(device).and_then(|device| device.index())).unwrap().unwrap();
    // SAFETY: a plain system call.
    let socket = netns.run(|| unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) }).unwrap();
    // SAFETY: sockaddr_ll is plain data for which zero is valid.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, index as i32);
    let len = size_of_val(&to) as libc::socklen_t;
    // SAFETY: a whole frame and a whole sockaddr_ll with their lengths; the socket is closed once.
    let sent = unsafe {
        let sent = libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, (&raw const to).cast(), len);
        libc::close(socket);
        sent
    };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

#[test]
fn reopening_at_once_works_and_two_at_once_do_not() {
    let Some(lab) = lab("again") else { return };
    for _ in 0..5 {
        let Some(mut port) = open(&lab, "again") else { return };
        introduce(&mut port, &mut Caller::new());
    }
    let _first = open(&lab, "again").unwrap();
    let sentence = AfXdp::open(&lab.config).err().expect("a queue has one owner");
    assert!(sentence.contains("nic") && (sentence.contains("already") || sentence.contains("queue")), "{sentence}");
}

#[test]
fn a_closed_port_leaves_the_interface_to_the_kernel() {
    let Some(lab) = lab("closed") else { return };
    let Some(port) = open(&lab, "closed") else { return };
    drop(port);
    let nic = || Interface::named("nic").and_then(|nic| nic.set_address(HOST, 24));
    lab.port_side.run(nic).unwrap().unwrap();
    let (here, there) = (
        lab.port_side.run(|| UdpSocket::bind((HOST, 0)).unwrap()).unwrap(),
        lab.peer_side.run(|| UdpSocket::bind((KERNEL, 0)).unwrap()).unwrap(),
    );
    here.set_read_timeout(Some(TIMEOUT)).unwrap();
    there.send_to(b"through the kernel", here.local_addr().unwrap()).unwrap();
    let mut bytes = [0; 64];
    assert_eq!(here.recv(&mut bytes).unwrap(), 18);
}

#[test]
fn the_wait_descriptor_is_readable_when_a_frame_waits() {
    let Some(lab) = lab("wait_fd") else { return };
    let Some(mut port) = open(&lab, "wait_fd") else { return };
    let caller = &mut Caller::new();
    introduce(&mut port, caller);
    while port.receive(0, 64, &mut caller.pool, &mut Vec::new()) > 0 {}
    let socket = lab.peer_side.run(|| UdpSocket::bind((KERNEL, 0)).unwrap()).unwrap();
    socket.send_to(b"wake up", (HOST, 9)).unwrap();
    let mut poll = libc::pollfd { fd: port.wait_fd().unwrap().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd on the stack, with its count.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, TIMEOUT.as_millis() as i32) }, 1);
    assert!(port.has_work(0));
    await_frame(&mut port, caller, |frame| ethertype(frame) == EtherType::Ipv4);
}

#[test]
fn a_deleted_interface_is_a_sentence_and_not_a_loop() {
    let Some(lab) = lab("deleted") else { return };
    let Some(mut port) = open(&lab, "deleted") else { return };
    let caller = &mut Caller::new();
    lab.port_side.run(|| Interface::named("nic").unwrap().delete().unwrap()).unwrap();
    for _ in 0..10_000 {
        port.receive(0, 64, &mut caller.pool, &mut Vec::new());
    }
    assert!(port.failure().is_some_and(|sentence| sentence.contains("deleted")), "{:?}", port.failure());
    assert!(port.wait_fd().is_none());
    let frame = tcp_frame(&mut caller.pool, B, A, 0, b"x");
    port.send(0, &mut vec![frame], &mut caller.pool, &mut caller.drops);
    assert_eq!(caller.drops.get(PortDrop::PortQueue), 1);
}

#[test]
fn sentences_for_what_cannot_be() {
    let missing = AfXdpConfig { interface: "no-such-nic".into(), ..AfXdpConfig::default() };
    let sentence = AfXdp::open(&missing).err().expect("there is no such interface");
    assert!(sentence.contains("no-such-nic"), "{sentence}");
    let odd = AfXdpConfig { interface: "lo".into(), frames: 100, ..AfXdpConfig::default() };
    assert!(AfXdp::open(&odd).err().unwrap().contains("power of two"));
    let Some(lab) = lab("sentences") else { return };
    let far = AfXdpConfig { queue: 99, ..lab.config };
    assert!(AfXdp::open(&far).err().unwrap().contains("no such queue"));
}
