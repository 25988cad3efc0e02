//! ARP and ICMP, seen from the wire.
mod support;

use support::recording::Recording;
use support::unknown_peers::ip_frame;
use support::*;
use wire::{EtherType, Mac, arp, ethernet, icmpv4, ipv4};

fn one() -> Net {
    Net::new(vec![config(0)], |_, _| Recording::boxed().0)
}

fn arp_frame(packet: arp::Packet, dst: Mac) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    ethernet::Header { dst, src: packet.sender_mac, ethertype: EtherType::Arp }.emit(&mut bytes);
    packet.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes
}

fn from_peer(operation: arp::Operation, target: usize) -> arp::Packet {
    arp::Packet {
        operation,
        sender_mac: mac_of(1),
        sender_ip: ip_of(1),
        target_mac: Mac::default(),
        target_ip: ip_of(target),
    }
}

#[test]
fn requests_for_the_own_address_are_answered_and_learned_from() {
    let mut net = one();
    net.inject(0, &arp_frame(from_peer(arp::Operation::Request, 0), Mac::BROADCAST));
    net.settle();
    let (_, bytes) = net.seen.pop().unwrap();
    let reply = arp::Packet::parse(&bytes[14..]).unwrap();
    assert_eq!((reply.operation, reply.sender_mac, reply.target_mac), (arp::Operation::Reply, mac_of(0), mac_of(1)));
    assert_eq!(net.nodes[0].host.net().neighbours().len(), 1);
    net.inject(0, &arp_frame(from_peer(arp::Operation::Request, 7), Mac::BROADCAST));
    net.settle();
    assert!(net.seen.is_empty(), "only for the own address");
}

#[test]
fn nobody_takes_the_own_address_or_is_learned_unasked() {
    let mut net = one();
    let conflict = arp::Packet { sender_ip: ip_of(0), ..from_peer(arp::Operation::Reply, 0) };
    net.inject(0, &arp_frame(conflict, Mac::BROADCAST));
    net.inject(0, &arp_frame(from_peer(arp::Operation::Reply, 0), mac_of(0)));
    net.settle();
    assert!(net.nodes[0].host.net().neighbours().is_empty() && net.seen.is_empty());
}

#[test]
fn a_neighbour_that_moves_is_followed() {
    let logs = std::cell::RefCell::new(Vec::new());
    let mut net = Net::new(vec![config(0), config(1)], |_, _| {
        let (engine, log) = Recording::boxed();
        logs.borrow_mut().push(log);
        engine
    });
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    client.connect(ip_of(1), 80, 0);
    net.settle();
    let elsewhere = Mac([2, 9, 9, 9, 9, 9]);
    let moved = arp::Packet { sender_mac: elsewhere, ..from_peer(arp::Operation::Request, 1) };
    net.inject(0, &arp_frame(moved, Mac::BROADCAST));
    net.settle();
    let recorded = logs.borrow()[0].lock().unwrap().commands.last().copied();
    assert_eq!(recorded, Some(support::recording::Recorded::NextHop(engine::FlowId(0), elsewhere)));
}

#[test]
fn echo_is_answered_with_the_same_data() {
    let mut net = one();
    net.inject(0, &arp_frame(from_peer(arp::Operation::Request, 0), Mac::BROADCAST));
    let mut message = vec![0; 8];
    message.extend((0..100u8).collect::<Vec<u8>>());
    icmpv4::Message::EchoRequest(7, 9).emit(&mut message);
    net.inject(0, &ip_frame(1, ip_of(0), ipv4::ICMP, &message));
    net.settle();
    let (_, bytes) = net.seen.pop().unwrap();
    assert_eq!(icmpv4::Message::parse(&bytes[34..]), Ok(icmpv4::Message::EchoReply(7, 9)));
    assert_eq!(bytes[42..], message[8..]);
    message[20] ^= 1;
    net.inject(0, &ip_frame(1, ip_of(0), ipv4::ICMP, &message));
    net.settle();
    assert_eq!((net.seen.len(), net.drops(0, engine::DropReason::Icmp)), (1, 1), "a wrong checksum is not answered");
}

#[test]
fn other_protocols_get_an_icmp_error() {
    let mut net = one();
    net.inject(0, &arp_frame(from_peer(arp::Operation::Request, 0), Mac::BROADCAST));
    net.settle();
    for (protocol, code) in [(17, icmpv4::PORT_UNREACHABLE), (132, 2)] {
        net.inject(0, &ip_frame(1, ip_of(0), protocol, &[0; 20]));
        net.settle();
        let (_, bytes) = net.seen.pop().unwrap();
        assert_eq!(icmpv4::Message::parse(&bytes[34..]), Ok(icmpv4::Message::Unreachable { code, mtu: 0 }));
        assert_eq!(bytes[42..].len(), 28);
    }
    net.seen.clear();
    net.inject(0, &ip_frame(1, ip_of(5), 17, &[0; 20]));
    net.inject(0, &ip_frame(0, ip_of(0), 17, &[0; 20]));
    net.settle();
    assert!(net.seen.is_empty());
}
