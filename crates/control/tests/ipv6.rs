//! Connections over IPv6 with the FlexTOE and the Laminar engine. Also what a host sends to its neighbours (RFC 4861)
//! and to unknown peers (RFC 4443), seen from the wire.
mod support;

use context::{Request, Slot};
use control::{Application, HostConfig, Ipv6Config};
use engine::DropReason;
use flextoe::Mapping;
use host::autoconf::Found;
use laminar::{Extensions, Laminar};
use std::net::{Ipv4Addr, Ipv6Addr};
use support::families::*;
use support::programs::*;
use support::*;
use wire::checksum::Sum;
use wire::icmpv6::{self, Message, NEIGHBOUR_HOPS, NEIGHBOUR_LEN};
use wire::router::RouterAdvertisement;
use wire::{EtherType, IpAddress, Mac, ethernet, ip, ipv4, ipv6, mld, tcp};

const LOOPBACK: IpAddress = IpAddress::v6(Ipv6Addr::LOCALHOST, 0);

fn link_local_of(node: usize) -> IpAddress {
    IpAddress::link_local(mac_of(node), 0)
}

fn engine_of(config: &HostConfig, mapping: Mapping) -> Box<dyn engine::Engine<engine::stream::Stream>> {
    let limits = engine::Limits { flows: config.max_flows, contexts: config.max_contexts };
    Box::new(flextoe::FlexToe::new(limits, mapping, port::FramePool::new(64)))
}

/// Two hosts of both families.
fn v6_net(mapping: Mapping) -> Net {
    let engine = |_: usize, config: &HostConfig| engine_of(config, mapping.clone());
    after_reports(Net::new(vec![v6_config(0), v6_config(1)], engine))
}

/// The hosts have reported their groups.
fn after_reports(mut net: Net) -> Net {
    net.run_for(2 * SECOND);
    net.seen.clear();
    net
}

/// The same with the Laminar engine.
fn laminar_net() -> Net {
    let engine = |_: usize, config: &HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
        let limits = engine::Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(Laminar::new(limits, config.window_shift(), Extensions::default()).unwrap())
    };
    after_reports(Net::new(vec![v6_config(0), v6_config(1)], engine))
}

fn connect(net: &mut Net, app: &mut App, ip: IpAddress) -> Result<Slot, u16> {
    let tag = app.connect(ip, 80, 0);
    net.settle();
    app.connected(tag).unwrap()
}

/// A packet in a frame from node 1 to node 0.
fn packet(ends: (IpAddress, IpAddress), protocol: u8, hops: u8, body: &[u8]) -> Vec<u8> {
    let start = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
    let mut bytes = vec![0; start + body.len()];
    let dst = if ends.1.is_multicast() { ends.1.group_station() } else { mac_of(0) };
    ethernet::Header { dst, src: mac_of(1), ethertype: EtherType::Ipv6 }.emit(&mut bytes);
    ip::emit(protocol, ends, hops, &mut bytes[ethernet::HEADER_LEN..]).unwrap();
    bytes[start..].copy_from_slice(body);
    bytes
}

fn icmp(ends: (IpAddress, IpAddress), hops: u8, message: Message, data: &[u8]) -> Vec<u8> {
    let len = match message {
        Message::Solicitation { sender: None, .. } | Message::Advertisement { mac: None, .. } => NEIGHBOUR_LEN - 8,
        Message::Solicitation { .. } | Message::Advertisement { .. } => NEIGHBOUR_LEN,
        _ => icmpv6::HEADER_LEN,
    };
    let mut body = vec![0; len];
    body.extend_from_slice(data);
    message.emit(ends, &mut body);
    packet(ends, ipv6::ICMP, hops, &body)
}

/// The header of a frame's packet, and the message that it carries.
fn message_of(frame: &[u8]) -> (ip::Header, Message) {
    let bytes = &frame[ethernet::HEADER_LEN..];
    let (header, at) = ip::Header::parse(EtherType::Ipv6, bytes, bytes.len()).unwrap();
    assert_eq!(header.protocol, ipv6::ICMP);
    (header, Message::parse(&bytes[at..], (header.src, header.dst)).unwrap())
}

fn ask(target: IpAddress, from: IpAddress, to: IpAddress) -> Vec<u8> {
    let sender = (!from.is_unspecified()).then_some(mac_of(1));
    let target = target.to_bits().into();
    icmp((from, to), NEIGHBOUR_HOPS, Message::Solicitation { target, sender }, &[])
}

// Checks RFC 8200: 8.3-a.
// Checks RFC 4861: 7.2.2-b.
#[test]
fn bytes_go_both_ways_through_loss_and_all_of_it_is_ipv6() {
    let threads = Mapping { threads: true, dma: 2, flow_groups: 2, ..Mapping::default() };
    for mut net in [v6_net(Mapping::default()), v6_net(threads), laminar_net()] {
        let (mut server, mut client) = (Program::new(&mut net, 1), Program::new(&mut net, 0));
        listen(&mut net, &mut server.app, false);
        let first = connect(&mut net, &mut client.app, v6_of(1)).unwrap();
        let second = server.app.accepted().unwrap();
        let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
        let mut count = 0;
        net.filter = Box::new(move |_, _| {
            count += 1;
            count % 13 != 0
        });
        transfer(&mut net, (&mut client, first), (&mut server, second), 300_000);
        transfer(&mut net, (&mut server, second), (&mut client, first), 300_000);
        let longest = net.seen.iter().map(|(_, frame)| frame.len()).max();
        assert_eq!(longest, Some(ethernet::HEADER_LEN + 1500), "full segments fill a packet");
        assert!(net.seen.iter().all(|(_, frame)| frame[12..14] == [0x86, 0xdd]));
        let flows = net.nodes[0].host.base().flows();
        assert_eq!((flows[0].local.ip(), flows[0].remote.ip()), (v6_of(0).ip(), v6_of(1).ip()));
        client.close(&mut net, first);
        server.close(&mut net, second);
        end(net, server, client);
    }
}

#[test]
fn a_listener_of_any_address_takes_its_families() {
    let refused = Err(libc::ECONNREFUSED as u16);
    for dual_stack in [false, true] {
        let mut net = v6_net(Mapping::default());
        let (mut server, mut client) = (net.attach(1), net.attach(0));
        listen(&mut net, &mut server, dual_stack);
        assert!(connect(&mut net, &mut client, v6_of(1)).is_ok());
        let over_v4 = connect(&mut net, &mut client, ip_of(1).into());
        assert_eq!(over_v4.is_ok(), dual_stack, "{over_v4:?}");
        assert!(dual_stack || over_v4 == refused);
        net.end_all(vec![server, client]);
    }
    // One of IPv4 takes no IPv6.
    let mut net = v6_net(Mapping::default());
    let (mut server, mut client) = (net.attach(1), net.attach(0));
    server.serve(&mut net, 80);
    assert_eq!(connect(&mut net, &mut client, v6_of(1)), refused);
    net.end_all(vec![server, client]);
}

#[test]
fn a_host_has_its_own_loopback_without_an_address_of_ipv6() {
    let mut net = flextoe_net();
    let (mut server, mut client) = (Program::new(&mut net, 0), Program::new(&mut net, 0));
    let binding = listen(&mut net, &mut server.app, true);
    server.app.ask(Request::Loopback { binding });
    net.settle();
    for ip in [LOOPBACK, Ipv4Addr::LOCALHOST.into()] {
        let first = connect(&mut net, &mut client.app, ip).unwrap();
        let second = server.app.accepted().unwrap();
        let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
        transfer(&mut net, (&mut client, first), (&mut server, second), 200_000);
        client.close(&mut net, first);
        server.close(&mut net, second);
    }
    assert_eq!(connect(&mut net, &mut client.app, v6_of(0)), Err(libc::ENETUNREACH as u16), "it has no other");
    assert_eq!(net.seen, [], "no frame leaves the host");
    // RFC 4291 section 2.5.3.
    let syn = tcp::Header {
        src_port: 5000,
        dst_port: 80,
        seq: wire::Seq(1),
        ack: wire::Seq(0),
        flags: tcp::Flags::SYN,
        window: 1000,
        options: tcp::Options::default(),
    };
    let mut body = vec![0; syn.len()];
    syn.emit(&mut body);
    let mut sum = wire::checksum::Sum::pseudo_header(LOOPBACK, LOOPBACK, ipv4::TCP, body.len() as u32);
    sum.add(&body);
    body[tcp::CHECKSUM_AT..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    let before = net.drops(0, DropReason::Ip);
    net.inject(0, &packet((LOOPBACK, LOOPBACK), ipv4::TCP, 64, &body));
    net.settle();
    assert_eq!((net.drops(0, DropReason::Ip), net.seen.len()), (before + 1, 0));
    end(net, server, client);
}

#[test]
fn programs_of_another_namespace_have_no_loopback_here() {
    let mut net = flextoe_net();
    let mut server = net.attach(0);
    let other = Application { pid: 7, uid: 0, gid: 0, command: "other".into(), loopback: false };
    let mut other = net.attach_application(0, other, None).unwrap();
    let binding = listen(&mut net, &mut server, true);
    server.ask(Request::Loopback { binding });
    net.settle();
    assert_eq!(connect(&mut net, &mut other, LOOPBACK), Err(libc::ENETUNREACH as u16));
    net.end_all(vec![server, other]);
}

/// RFC 4861 section 7.2.3.
// Checks RFC 4861: 7.2.3-a, 7.2.4-a.
#[test]
fn solicitations_for_own_addresses_are_answered() {
    for target in [v6_of(0), link_local_of(0)] {
        for (to, asks) in [(target.solicited_node(), v6_of(1)), (target, link_local_of(1))] {
            let mut net = v6_net(Mapping::default());
            net.inject(0, &ask(target, asks, to));
            net.settle();
            let (_, frame) = net.seen.pop().expect("an answer");
            assert_eq!(ethernet::Header::parse(&frame).unwrap().dst, mac_of(1));
            let (header, message) = message_of(&frame);
            assert_eq!((header.src, header.dst, header.hop_limit), (target, asks, NEIGHBOUR_HOPS));
            let (mac, solicited, replaces) = (Some(mac_of(0)), true, true);
            let target = target.to_bits().into();
            assert_eq!(message, Message::Advertisement { target, mac, solicited, replaces });
            let known = net.nodes[0].host.net().neighbours();
            assert_eq!(known, [(asks.in_zone(1), Some(mac_of(1)))]);
        }
    }
}

/// RFC 4862 section 5.4.
// Checks RFC 4861: 7.2.3-a, 7.2.4-a.
#[test]
fn an_address_that_somebody_tries_to_take_is_defended() {
    let mut net = v6_net(Mapping::default());
    net.inject(0, &ask(v6_of(0), ANY, v6_of(0).solicited_node()));
    net.settle();
    let (_, frame) = net.seen.pop().expect("an answer");
    let (header, message) = message_of(&frame);
    assert_eq!(header.dst, "ff02::1".parse::<IpAddress>().unwrap());
    assert!(matches!(message, Message::Advertisement { solicited: false, .. }));
    assert!(net.nodes[0].host.net().neighbours().is_empty());
}

// Checks RFC 4861: 7.1.1-a, 7.1.2-a, 7.2.5-a.
#[test]
fn what_is_no_neighbours_message_changes_nothing() {
    let mut net = v6_net(Mapping::default());
    let own = v6_of(0).solicited_node();
    let advertised = |target: IpAddress, mac| {
        let (target, solicited, replaces) = (target.to_bits().into(), true, true);
        Message::Advertisement { target, mac: Some(mac), solicited, replaces }
    };
    let asked = |target: IpAddress| Message::Solicitation { target: target.to_bits().into(), sender: Some(mac_of(1)) };
    for (frame, counted) in [
        // Forwarded by a router.
        (icmp((v6_of(1), own), 254, asked(v6_of(0)), &[]), true),
        // From this host's address, or with its hardware address.
        (icmp((v6_of(0), own), NEIGHBOUR_HOPS, asked(v6_of(0)), &[]), false),
        (icmp((v6_of(1), v6_of(0)), NEIGHBOUR_HOPS, advertised(v6_of(1), mac_of(0)), &[]), true),
        (icmp((v6_of(1), v6_of(0)), NEIGHBOUR_HOPS, advertised(v6_of(0), mac_of(1)), &[]), true),
        // Who has no address names no hardware address.
        (icmp((ANY, own), NEIGHBOUR_HOPS, asked(v6_of(0)), &[]), true),
        // For another host in the same group, and for a group that this host is not in.
        (icmp((v6_of(1), own), NEIGHBOUR_HOPS, asked("2001:db8:9::1".parse().unwrap()), &[]), false),
        (icmp((v6_of(1), v6_of(7).solicited_node()), NEIGHBOUR_HOPS, asked(v6_of(7)), &[]), false),
        // An answer to no question.
        (icmp((v6_of(1), v6_of(0)), NEIGHBOUR_HOPS, advertised(v6_of(1), mac_of(1)), &[]), false),
    ] {
        let before = net.drops(0, DropReason::Icmp);
        net.inject(0, &frame);
        net.settle();
        assert!(net.seen.is_empty(), "{}", wire::describe::frame(&frame, frame.len()));
        assert!(net.nodes[0].host.net().neighbours().is_empty());
        assert_eq!(net.drops(0, DropReason::Icmp) - before, counted as u64);
    }
}

/// RFC 4861 section 7.2.5.
// Checks RFC 4861: 7.2.5-a.
#[test]
fn a_neighbour_that_moves_is_followed_on_override() {
    let mut net = v6_net(Mapping::default());
    net.inject(0, &ask(v6_of(0), v6_of(1), v6_of(0).solicited_node()));
    net.settle();
    let elsewhere = wire::Mac([2, 9, 9, 9, 9, 9]);
    for (replaces, expected) in [(false, mac_of(1)), (true, elsewhere)] {
        let (target, mac, solicited) = (v6_of(1).to_bits().into(), Some(elsewhere), false);
        let advertised = Message::Advertisement { target, mac, solicited, replaces };
        net.inject(0, &icmp((v6_of(1), "ff02::1".parse().unwrap()), NEIGHBOUR_HOPS, advertised, &[]));
        net.settle();
        assert_eq!(net.nodes[0].host.net().neighbours(), [(v6_of(1), Some(expected))]);
    }
}

/// Groups in the reports that a host sent since the last time (RFC 3810), with the kind of their records. The kind is 0
/// where the report is one of the first version.
fn reported(net: &mut Net) -> Vec<(u8, IpAddress)> {
    let frames = std::mem::take(&mut net.seen).into_iter().map(|(_, frame)| frame);
    let reports = frames.flat_map(|frame| {
        let packet = &frame[ethernet::HEADER_LEN..];
        let (header, at) = ipv6::Header::parse(packet, packet.len()).unwrap();
        assert_eq!((packet[6], header.hop_limit), (ipv6::HOP_BY_HOP, mld::HOPS), "for every hop, and one hop");
        let src = IpAddress::v6(header.src, 0);
        assert!((0..2).any(|node| link_local_of(node) == src), "from the link-local address");
        let address = |bytes: &[u8]| IpAddress::from_bits(u128::from_be_bytes(bytes.try_into().unwrap()), 0);
        let (body, dst) = (&packet[at..], IpAddress::v6(header.dst, 0));
        match body[0] {
            131 => vec![(0, address(&body[8..24]))],
            143 => {
                assert_eq!(dst, IpAddress::v6(mld::ROUTERS, 0));
                body[8..].chunks(20).map(|record| (record[0], address(&record[4..]))).collect()
            }
            kind => panic!("a message of type {kind}"),
        }
    });
    let mut reports: Vec<_> = reports.collect();
    reports.sort();
    reports
}

/// RFC 3810 section 6.1: twice at the beginning. Section 6.2: when it is asked, in time, by a station of the link.
#[test]
fn a_host_reports_its_groups() {
    // That of the address is that of the link-local one, too, with these hardware addresses.
    let own = |node| v6_of(node).solicited_node();
    assert_eq!(own(0), link_local_of(0).solicited_node().in_zone(0));
    let both = |kind: u8| [(kind, own(0)), (kind, own(1))];
    let engine = |_: usize, config: &HostConfig| engine_of(config, Mapping::default());
    let mut net = Net::new(vec![v6_config(0), v6_config(1)], engine);
    net.settle();
    assert_eq!(reported(&mut net), both(4));
    net.run_for(SECOND);
    assert_eq!(reported(&mut net), both(4), "a report may be lost");
    net.run_for(10 * SECOND);
    assert_eq!(reported(&mut net), []);
    let query = |from: IpAddress, hops: u8, group: IpAddress, more: usize| {
        let mut body = vec![0; 24 + more];
        (body[0], body[4], body[5]) = (130, 0x03, 0xe8);
        body[8..24].copy_from_slice(&group.to_bits().to_be_bytes());
        let all = "ff02::1".parse().unwrap();
        let mut sum = Sum::pseudo_header(from, all, ipv6::ICMP, body.len() as u32);
        sum.add(&body);
        body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        packet((from, all), ipv6::ICMP, hops, &body)
    };
    for (frame, expected) in [
        (query(link_local_of(1), 1, ANY, 4), Some(2)),
        (query(link_local_of(1), 1, own(0), 4), Some(2)),
        (query(link_local_of(1), 1, v6_of(7).solicited_node(), 4), None),
        (query(v6_of(1), 1, ANY, 4), None),
        (query(link_local_of(1), 64, ANY, 4), None),
        // From now on in the first version.
        (query(link_local_of(1), 1, ANY, 0), Some(0)),
        (query(link_local_of(1), 1, ANY, 4), Some(0)),
    ] {
        net.inject(0, &frame);
        net.run_for(SECOND);
        let expected: Vec<_> = expected.map(|kind: u8| (kind, own(0))).into_iter().collect();
        assert_eq!(reported(&mut net), expected);
    }
}

/// RFC 4861 section 7.2.2: a few solicitations, and whoever waits gets an error.
// Checks RFC 4861: 7.2.2-a.
#[test]
fn nobody_answers_and_the_attempt_ends() {
    let mut net = v6_net(Mapping::default());
    let mut client = net.attach(0);
    let tag = client.connect(v6_of(7), 80, 0);
    let mut came = None;
    net.run_until(20 * SECOND, |_| {
        came = came.or_else(|| client.connected(tag));
        came.is_some()
    });
    assert_eq!(came, Some(Err(libc::EHOSTUNREACH as u16)));
    assert_eq!(net.seen.len(), config(0).timers.arp_tries as usize);
    for (_, frame) in std::mem::take(&mut net.seen) {
        let (header, message) = message_of(&frame);
        assert_eq!((header.src, header.dst, header.hop_limit), (v6_of(0), v6_of(7).solicited_node(), 255));
        let target = v6_of(7).to_bits().into();
        assert_eq!(message, Message::Solicitation { target, sender: Some(mac_of(0)) });
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 8]);
    }
    net.end_all(vec![client]);
}

/// The neighbour's address is known afterwards, so answers leave at once.
fn met() -> Net {
    let mut net = v6_net(Mapping::default());
    net.inject(0, &ask(v6_of(0), v6_of(1), v6_of(0).solicited_node()));
    net.settle();
    net.seen.clear();
    net
}

// Checks RFC 4443: 4.2-a.
#[test]
fn echo_is_answered_with_the_same_data() {
    let mut net = met();
    let data: Vec<u8> = (0..100).collect();
    let request = icmp((v6_of(1), v6_of(0)), 64, Message::EchoRequest(7, 9), &data);
    net.inject(0, &request);
    net.settle();
    let (_, frame) = net.seen.pop().expect("an answer");
    let (header, message) = message_of(&frame);
    assert_eq!((header.src, header.dst, message), (v6_of(0), v6_of(1), Message::EchoReply(7, 9)));
    assert_eq!(frame[14 + 40 + 8..], data);
    let mut wrong = request;
    wrong[70] ^= 1;
    net.inject(0, &wrong);
    net.settle();
    assert_eq!((net.seen.len(), net.drops(0, DropReason::Icmp)), (0, 1), "a wrong checksum is not answered");
}

/// RFC 4443 sections 3.1 and 3.4.
// Checks RFC 4443: 3.1-a, 3.4-a, 2.4-a, 2.4-c.
#[test]
fn other_protocols_get_an_icmp_error() {
    let mut net = met();
    let (port, protocol) = (
        Message::Unreachable { code: icmpv6::PORT_UNREACHABLE },
        Message::Problem { code: icmpv6::UNKNOWN_PROTOCOL, pointer: 6 },
    );
    for (number, expected) in [(ipv4::UDP, port), (132, protocol)] {
        let asked = packet((v6_of(1), v6_of(0)), number, 64, &[5; 20]);
        net.inject(0, &asked);
        net.settle();
        let (_, frame) = net.seen.pop().expect("an answer");
        assert_eq!(message_of(&frame).1, expected);
        assert_eq!(frame[14 + 40 + 8..], asked[14..], "with what it is about");
    }
    let others = [(v6_of(1), v6_of(5)), (v6_of(0), v6_of(0)), (v6_of(1), "ff02::1".parse().unwrap())];
    for ends in others {
        net.inject(0, &packet(ends, ipv4::UDP, 64, &[5; 20]));
        net.settle();
        assert!(net.seen.is_empty(), "{ends:?}");
    }
}

/// RFC 8201: what a router reports of a packet that it could not pass on; never below what every link carries.
// Checks RFC 8201: 4-a, 4-b.
// Checks RFC 4443: 2.4-d.
#[test]
fn segments_become_as_long_as_the_path_carries() {
    [v6_net(Mapping::default()), laminar_net()].into_iter().for_each(longest_segments);
}

fn longest_segments(mut net: Net) {
    let (mut server, mut client) = (Program::new(&mut net, 1), Program::new(&mut net, 0));
    listen(&mut net, &mut server.app, false);
    let first = connect(&mut net, &mut client.app, v6_of(1)).unwrap();
    let second = server.app.accepted().unwrap();
    let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
    for (mtu, longest) in [(1400, 1400), (900, 1280)] {
        net.filter = Box::new(move |from, frame| from != 0 || frame.bytes().len() <= 14 + longest);
        client.write(first, &[1; 4000]);
        net.seen.clear();
        net.settle();
        let (_, frame) = net.seen.iter().find(|(from, frame)| *from == 0 && frame.len() > 14 + longest).unwrap();
        let about = frame[14..14 + 1232].to_vec();
        net.inject(0, &icmp((v6_of(9), v6_of(0)), 64, Message::TooBig { mtu }, &about));
        net.run_for(2 * SECOND);
        assert!(server.read(second) == [1; 4000], "it went with smaller segments");
        let sent = net.seen.iter().filter(|(from, _)| *from == 0).map(|(_, frame)| frame.len());
        assert!(sent.clone().any(|len| len == 14 + longest));
    }
    // An error whose sender cannot have seen the packet is dropped.
    let before = net.drops(0, DropReason::Icmp);
    let forged = packet((v6_of(0), v6_of(1)), ipv4::TCP, 64, &[9; 20]);
    net.inject(0, &icmp((v6_of(9), v6_of(0)), 64, Message::TooBig { mtu: 1280 }, &forged[14..]));
    net.settle();
    assert_eq!(net.drops(0, DropReason::Icmp), before + 1);
    client.close(&mut net, first);
    server.close(&mut net, second);
    end(net, server, client);
}

/// RFC 8200 section 4: extension headers before a segment are skipped, fragments are dropped by name.
#[test]
fn extension_headers_are_skipped_and_fragments_dropped() {
    [v6_net(Mapping::default()), laminar_net()].into_iter().for_each(extension_headers);
}

fn extension_headers(mut net: Net) {
    let (mut server, mut client) = (Program::new(&mut net, 1), Program::new(&mut net, 0));
    listen(&mut net, &mut server.app, false);
    let first = connect(&mut net, &mut client.app, v6_of(1)).unwrap();
    let second = server.app.accepted().unwrap();
    let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
    for (kind, extension, expected) in [
        (60, [6, 0, 1, 4, 0, 0, 0, 0], None),
        (44, [6, 0, 0, 0, 0, 0, 0, 1], None),
        (44, [6, 0, 0, 1, 0, 0, 0, 1], Some(DropReason::Fragment)),
        (60, [6, 0, 0x80, 4, 0, 0, 0, 0], Some(DropReason::Ip)),
    ] {
        net.filter = Box::new(|from, frame| from != 0 || frame.bytes().len() < 14 + 40 + 33);
        net.seen.clear();
        client.write(first, b"a segment");
        net.settle();
        let (_, frame) = net.seen.iter().find(|(from, _)| *from == 0).unwrap().clone();
        let mut longer = frame.clone();
        drop(longer.splice(54..54, extension));
        longer[14 + 6] = kind;
        let len = u16::from_be_bytes([longer[18], longer[19]]) + 8;
        longer[18..20].copy_from_slice(&len.to_be_bytes());
        let before = expected.map(|reason| net.drops(1, reason));
        net.inject(1, &longer);
        net.settle();
        match expected {
            None => assert_eq!(server.read(second), b"a segment"),
            Some(reason) => assert_eq!(net.drops(1, reason), before.unwrap() + 1),
        }
        net.filter = Box::new(|_, _| true);
        net.run_for(2 * SECOND);
        server.read(second);
    }
    client.close(&mut net, first);
    server.close(&mut net, second);
    end(net, server, client);
}

/// A router's advertisement, with its hardware address.
fn advertised(router: IpAddress, mac: Mac, lifetime_s: u16) -> Vec<u8> {
    let ends = (router, "ff02::1".parse().unwrap());
    let advertised = RouterAdvertisement { lifetime_s, source: Some(mac), mtu: None, prefixes: Vec::new() };
    packet(ends, ipv6::ICMP, NEIGHBOUR_HOPS, &advertised.to_bytes(ends))
}

// Checks RFC 4861: 6.3.4-b, 6.3.5-a.
#[test]
fn open_connections_go_through_the_next_router() {
    let alone = |node| {
        let ipv6 = Ipv6Config { address: Some(v6_of(node)), prefix_len: 128, gateway: None, auto: node == 0 };
        HostConfig { ipv6, ..v6_config(node) }
    };
    let mut second = alone(1);
    second.ipv6.gateway = Some(link_local_of(0));
    let mut net = Net::new(vec![alone(0), second], |_, config| engine_of(config, Mapping::default()));
    let (router, address) = (Some(link_local_of(1)), v6_of(0));
    let found = Found { address, prefix_len: 128, router, lifetime_s: 1800, valid_s: u32::MAX, mtu: None };
    net.nodes[0].host.follow_routers(net.now, &found);
    let mut net = after_reports(net);
    let (mut server, mut client) = (Program::new(&mut net, 1), Program::new(&mut net, 0));
    listen(&mut net, &mut server.app, false);
    let first = connect(&mut net, &mut client.app, v6_of(1)).unwrap();
    let second = server.app.accepted().unwrap();
    let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
    let mut station = |net: &mut Net, data: &[u8]| {
        net.seen.clear();
        client.write(first, data);
        net.settle();
        let (_, frame) = net.seen.iter().find(|(from, frame)| *from == 0 && frame.ends_with(data)).unwrap();
        ethernet::Header::parse(frame).unwrap().dst
    };
    assert_eq!(station(&mut net, b"one"), mac_of(1));
    let (other, elsewhere) = ("fe80::99".parse().unwrap(), Mac([2, 9, 9, 9, 9, 9]));
    net.inject(0, &advertised(other, elsewhere, 1800));
    assert_eq!(station(&mut net, b"two"), mac_of(1), "the first one stays");
    net.inject(0, &advertised(link_local_of(1), mac_of(1), 0));
    net.settle();
    assert_eq!(station(&mut net, b"three"), elsewhere);
    net.inject(0, &advertised(link_local_of(1), mac_of(1), 1800));
    net.inject(0, &advertised(other, elsewhere, 0));
    net.settle();
    assert_eq!(station(&mut net, b"four"), mac_of(1));
    net.run_for(2 * SECOND);
    assert_eq!(server.read(second), b"onetwothreefour");
    client.close(&mut net, first);
    server.close(&mut net, second);
    net.run_for(2 * SECOND);
    // No lifetime is left to end.
    net.inject(0, &advertised(link_local_of(1), mac_of(1), 0));
    end(net, server, client);
}

// Checks RFC 8200: 5-a.
#[test]
fn engines_and_links_that_cannot_carry_it_are_refused() {
    let (engine, _) = support::recording::Recording::boxed();
    let links = vec![v6_config(0).link(mac_of(0), CAPS)];
    let refused = control::host(v6_config(0), links, engine, [0; 16]).err().expect("refused");
    assert!(refused.contains("does not carry IPv6"), "{refused}");
    // RFC 8200 section 5.
    let limits = engine::Limits { flows: 128, contexts: 8 };
    let engine = flextoe::FlexToe::new(limits, Mapping::default(), port::FramePool::new(64));
    let links = vec![v6_config(0).link(mac_of(0), port::Capabilities { mtu: 1279, ..CAPS })];
    let refused = control::host(v6_config(0), links, Box::new(engine), [0; 16]).err().expect("refused");
    assert!(refused.contains("1280"), "{refused}");
}
