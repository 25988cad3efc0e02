//! Connections of a host with itself over 127.0.0.0/8 (docs/LOOPBACK.md), with the FlexTOE engine.
mod support;

use context::{Endpoint, Reply, Request, Slot};
use control::{Application, HostConfig};
use engine::DropReason;
use flextoe::Mapping;
use std::net::Ipv4Addr;
use support::programs::*;
use support::*;
use wire::{EtherType, ethernet, ipv4, tcp};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const UNREACHABLE: u16 = libc::ENETUNREACH as u16;

/// A listener of an application at port 80 of an address.
fn listen(net: &mut Net, app: &mut App, ip: Ipv4Addr) -> u32 {
    let binding = bind(net, app, ip, 80).unwrap();
    app.listen(net, binding, 16).unwrap();
    app.arm(net, binding, 16);
    binding
}

fn bind(net: &mut Net, app: &mut App, ip: Ipv4Addr, port: u16) -> Result<u32, u16> {
    let (tag, local) = (app.next_tag(), Endpoint::v4(ip, port));
    app.ask(Request::Bind { tag, local, reuse_address: false, reuse_port: false, dual_stack: false });
    net.settle();
    app.expect(|reply| match *reply {
        Reply::Bound { tag: of, binding, .. } if of == tag => Some(Ok(binding)),
        Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
        _ => None,
    })
}

fn serve(net: &mut Net, app: &mut App, binding: u32) {
    app.ask(Request::Loopback { binding });
    net.settle();
}

fn connect(net: &mut Net, app: &mut App, ip: Ipv4Addr, binding: u32) -> Result<Slot, u16> {
    let tag = app.connect(ip, 80, binding);
    net.settle();
    app.connected(tag).unwrap()
}

/// A program of another network namespace, which has another loopback.
fn other_application(net: &mut Net) -> App {
    let application = Application { pid: 7, uid: 0, gid: 0, command: "other".into(), loopback: false };
    net.attach_application(0, application, None).unwrap()
}

fn addresses(net: &Net) -> Vec<(String, String)> {
    let flows = net.nodes[0].host.base().flows();
    flows.iter().map(|flow| (flow.local.ip().to_string(), flow.remote.ip().to_string())).collect()
}

#[test]
fn bytes_go_both_ways_and_none_leaves_the_host() {
    for mapping in [Mapping::default(), Mapping { threads: true, dma: 2, ..Mapping::default() }] {
        let mut net = mapped_net(mapping);
        let (mut server, mut client) = (Program::new(&mut net, 0), Program::new(&mut net, 0));
        let binding = listen(&mut net, &mut server.app, Ipv4Addr::UNSPECIFIED);
        serve(&mut net, &mut server.app, binding);
        // Any address of the network is the host; it speaks from 127.0.0.1, as Linux does.
        for ip in [HERE, Ipv4Addr::new(127, 255, 3, 2)] {
            let first = connect(&mut net, &mut client.app, ip, 0).unwrap();
            let second = server.app.accepted().unwrap();
            assert!(addresses(&net).contains(&(HERE.to_string(), ip.to_string())), "{:?}", addresses(&net));
            let (first, second) = (client.sockets.open(&client.app, first), server.sockets.open(&server.app, second));
            transfer(&mut net, (&mut client, first), (&mut server, second), 300_000);
            transfer(&mut net, (&mut server, second), (&mut client, first), 300_000);
            client.close(&mut net, first);
            server.close(&mut net, second);
        }
        assert_eq!(net.seen, [], "no frame leaves the host");
        end(net, server, client);
    }
}

#[test]
fn only_listeners_for_the_address_are_reached() {
    let mut net = flextoe_net();
    let (mut server, mut client) = (net.attach(0), net.attach(0));
    assert_eq!(connect(&mut net, &mut client, HERE, 0), Err(UNREACHABLE), "nobody listens");
    let binding = listen(&mut net, &mut server, Ipv4Addr::UNSPECIFIED);
    // The kernel may have another program there.
    assert_eq!(connect(&mut net, &mut client, HERE, 0), Err(UNREACHABLE), "the kernel's half does not listen");
    serve(&mut net, &mut server, binding);
    let slot = connect(&mut net, &mut client, HERE, 0).unwrap();
    client.close(slot, 0, 0, true);
    net.settle();
    server.ask(Request::Unbind { binding });
    net.settle();
    assert_eq!(connect(&mut net, &mut client, HERE, 0), Err(UNREACHABLE), "it listens no more");
    // One at an exact loopback address is not reached at another.
    let binding = listen(&mut net, &mut server, HERE);
    serve(&mut net, &mut server, binding);
    assert_eq!(connect(&mut net, &mut client, Ipv4Addr::new(127, 0, 0, 2), 0), Err(UNREACHABLE));
    assert!(connect(&mut net, &mut client, HERE, 0).is_ok());
    net.end_all(vec![server, client]);
}

/// The kernel listens, too, and takes more connections than a program has slots.
#[test]
fn connections_without_room_are_left_to_the_kernel() {
    let mut net = configured_net(Mapping::default(), HostConfig { max_flows: 512, ..config(0) });
    let [mut server, mut client, mut late] = [(); 3].map(|()| net.attach(0));
    let binding = listen(&mut net, &mut server, HERE);
    serve(&mut net, &mut server, binding);
    let slots = config(0).memory.slots;
    server.arm(&mut net, binding, slots);
    let first = connect(&mut net, &mut client, HERE, 0).unwrap();
    let accepted = server.accepted().unwrap();
    for _ in 1..slots {
        assert!(connect(&mut net, &mut client, HERE, 0).is_ok() && server.accepted().is_some());
    }
    assert_eq!(connect(&mut net, &mut client, HERE, 0), Err(libc::ENOBUFS as u16), "the client has no slot");
    assert_eq!(connect(&mut net, &mut late, HERE, 0), Err(UNREACHABLE), "the server has none");
    // One goes, and there is room again.
    client.close(first, 0, 0, true);
    server.close(accepted, 0, 0, true);
    server.arm(&mut net, binding, slots);
    assert!(connect(&mut net, &mut late, HERE, 0).is_ok() && server.accepted().is_some());
    net.end_all(vec![server, client, late]);
}

#[test]
fn addresses_of_both_ends_are_loopback_or_none_is() {
    let mut net = flextoe_net();
    let (mut server, mut client) = (net.attach(0), net.attach(0));
    let binding = listen(&mut net, &mut server, Ipv4Addr::UNSPECIFIED);
    serve(&mut net, &mut server, binding);
    let bound = bind(&mut net, &mut client, HERE, 4000).unwrap();
    let invalid = Err(libc::EINVAL as u16);
    assert_eq!(connect(&mut net, &mut client, ip_of(1), bound), invalid);
    assert_eq!(connect(&mut net, &mut client, ip_of(0), bound), invalid);
    let own = bind(&mut net, &mut client, ip_of(0), 4001).unwrap();
    assert_eq!(connect(&mut net, &mut client, HERE, own), invalid);
    assert!(connect(&mut net, &mut client, HERE, bound).is_ok());
    assert_eq!(bind(&mut net, &mut client, Ipv4Addr::UNSPECIFIED, 4000), Err(libc::EADDRINUSE as u16));
    assert_eq!(net.seen, []);
    net.end_all(vec![server, client]);
}

#[test]
fn a_program_of_another_network_namespace_has_no_part_in_it() {
    let mut net = flextoe_net();
    let (mut server, mut elsewhere) = (net.attach(0), other_application(&mut net));
    let binding = listen(&mut net, &mut server, Ipv4Addr::UNSPECIFIED);
    serve(&mut net, &mut server, binding);
    assert_eq!(connect(&mut net, &mut elsewhere, HERE, 0), Err(UNREACHABLE));
    assert!(connect(&mut net, &mut elsewhere, ip_of(0), 0).is_ok(), "the host's own address is everybody's");
    assert_eq!(bind(&mut net, &mut elsewhere, HERE, 90), Err(libc::EADDRNOTAVAIL as u16));
    server.ask(Request::Unbind { binding });
    net.settle();
    // Neither does it serve loopback, whatever it asks for.
    let binding = listen(&mut net, &mut elsewhere, Ipv4Addr::UNSPECIFIED);
    let before = net.drops(0, DropReason::RequestInvalid);
    serve(&mut net, &mut elsewhere, binding);
    assert_eq!(net.drops(0, DropReason::RequestInvalid), before + 1);
    assert_eq!(connect(&mut net, &mut server, HERE, 0), Err(UNREACHABLE));
    net.end_all(vec![server, elsewhere]);
}

#[test]
fn a_host_without_loopback_has_no_such_addresses() {
    let mut net = configured_net(Mapping::default(), HostConfig { loopback: false, ..config(0) });
    let (mut server, mut client) = (net.attach(0), net.attach(0));
    let binding = listen(&mut net, &mut server, Ipv4Addr::UNSPECIFIED);
    serve(&mut net, &mut server, binding);
    assert_eq!(connect(&mut net, &mut client, HERE, 0), Err(UNREACHABLE));
    assert_eq!(bind(&mut net, &mut client, HERE, 90), Err(libc::EADDRNOTAVAIL as u16));
    net.end_all(vec![server, client]);
}

/// A segment of a network with loopback addresses, to the host's port.
fn martian(dst: Ipv4Addr, ports: (u16, u16), flags: tcp::Flags) -> Vec<u8> {
    let header = tcp::Header {
        src_port: ports.0,
        dst_port: ports.1,
        seq: wire::Seq(1),
        ack: wire::Seq(1),
        flags,
        window: 1000,
        options: tcp::Options::default(),
    };
    let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut bytes = vec![0; start + header.len()];
    ethernet::Header { dst: mac_of(0), src: mac_of(1), ethertype: EtherType::Ipv4 }.emit(&mut bytes);
    let ip = ipv4::Header::new(ipv4::TCP, (HERE, dst), header.len() as u16);
    ip.emit(&mut bytes[ethernet::HEADER_LEN..]);
    header.emit(&mut bytes[start..]);
    // All is right about it but its addresses.
    let mut sum = wire::checksum::Sum::pseudo_header(HERE, dst, ipv4::TCP, header.len() as u32);
    sum.add(&bytes[start..]);
    bytes[start + tcp::CHECKSUM_AT..][..2].copy_from_slice(&sum.finish().to_be_bytes());
    bytes
}

/// RFC 1122 section 3.2.1.3: loopback addresses do not appear outside a host.
#[test]
fn what_comes_from_a_network_with_a_loopback_address_is_dropped() {
    let mut net = flextoe_net();
    let (mut server, mut client) = (net.attach(0), net.attach(0));
    let binding = listen(&mut net, &mut server, HERE);
    serve(&mut net, &mut server, binding);
    let drops = |net: &Net| net.drops(0, DropReason::Ip);
    for dst in [HERE, ip_of(0)] {
        let before = drops(&net);
        net.inject(0, &martian(dst, (5000, 80), tcp::Flags::SYN));
        net.settle();
        assert_eq!(drops(&net), before + 1, "a SYN to {dst}");
    }
    let slot = connect(&mut net, &mut client, HERE, 0).unwrap();
    let tuple = net.nodes[0].host.base().flows()[0].clone();
    for ports in [(tuple.local.port(), tuple.remote.port()), (tuple.remote.port(), tuple.local.port())] {
        for flags in [tcp::Flags::ACK, tcp::Flags::RST, tcp::Flags::SYN] {
            let before = drops(&net);
            net.inject(0, &martian(HERE, ports, flags));
            net.settle();
            assert_eq!(drops(&net), before + 1, "{ports:?} {flags:?}");
        }
    }
    assert_eq!(net.nodes[0].host.base().flows().len(), 2, "the connection stands");
    assert_eq!(net.seen, [], "nobody is answered");
    client.close(slot, 0, 0, true);
    net.end_all(vec![server, client]);
}
