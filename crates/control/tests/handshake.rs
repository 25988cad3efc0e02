//! Opening connections between two hosts, with an engine that carries no data.
mod support;

use context::{Reply, Request};
use engine::DropReason;
use std::collections::{BTreeMap, BTreeSet};
use support::recording::{connect_unarmed, header, parse, tcp_frame, two, with, with_features};
use support::*;
use wire::Seq;
use wire::tcp::Flags;

/// Resolves the addresses of nodes 0 and 1: one packet waits for each, the others would be lost.
fn resolve_addresses(net: &mut Net, client: &mut App) {
    let tag = client.connect(ip_of(1), 9, 0);
    net.settle();
    client.connected(tag).unwrap().unwrap_err();
}

/// A connection from the first host to the second one opens.
fn open(net: &mut Net) {
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(net, 80);
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    client.connected(tag).unwrap().unwrap();
    server.accepted().unwrap();
}

fn is_tcp(frame: &port::Frame) -> bool {
    parse(frame.bytes()).is_some()
}

// Checks RFC 9293: MUST-67, MUST-44, MUST-45.
#[test]
fn a_handshake_makes_both_engines_agree() {
    let (mut net, logs) = two();
    open(&mut net);
    let (a, b) = (logs[0].lock().unwrap(), logs[1].lock().unwrap());
    let (a, b) = (a.installed.values().next().unwrap(), b.installed.values().next().unwrap());
    assert_eq!((a.snd_nxt, a.rcv_nxt), (b.rcv_nxt, b.snd_nxt));
    let (mine, theirs) = (a.agreed, b.agreed);
    assert_eq!((mine.mss, theirs.mss), (1448, 1448));
    assert_eq!((mine.snd_shift, mine.rcv_shift), (theirs.rcv_shift, theirs.snd_shift));
    assert!(mine.sack && theirs.sack && mine.ts_offset.is_some() && theirs.ts_offset.is_some());
    assert_eq!((a.remote_mac, b.remote_mac), (mac_of(1), mac_of(0)));
    assert_eq!((a.snd_wnd, b.snd_wnd), (65_535, 65_535 >> theirs.snd_shift << theirs.snd_shift));
    assert!(!mine.ecn);
}

/// What one end leaves out, neither has. How an end receives is its own choice.
#[test]
fn a_host_leaves_options_out() {
    for (sack, timestamps) in [(false, true), (true, false), (false, false)] {
        for at in 0..2 {
            let tcp = control::TcpConfig { sack, timestamps, delayed_acks: false, intervals: 1, ..Default::default() };
            let (mut net, logs) = two();
            net.nodes[at].host.base_mut().set_tcp(tcp);
            open(&mut net);
            for (end, log) in logs.iter().enumerate() {
                let log = log.lock().unwrap();
                let flow = log.installed.values().next().unwrap();
                assert_eq!((flow.agreed.sack, flow.agreed.ts_offset.is_some()), (sack, timestamps));
                let receiving = if end == at { tcp.receiving() } else { Default::default() };
                assert_eq!(flow.receiving, receiving);
            }
        }
    }
}

// Checks RFC 9293: SHLD-8.
// Checks RFC 3168: 6.1.1-b.
#[test]
fn ecn_is_used_where_both_enable_it() {
    for (first, second) in [(true, true), (true, false), (false, true)] {
        let ecn = |at, ecn| control::HostConfig { ecn, ..config(at) };
        let (mut net, logs) = with(vec![ecn(0, first), ecn(1, second)]);
        let (mut client, mut server) = (net.attach(0), net.attach(1));
        server.serve(&mut net, 80);
        client.connect(ip_of(1), 80, 0);
        net.settle();
        for log in &logs {
            assert_eq!(log.lock().unwrap().installed.values().next().unwrap().agreed.ecn, first && second);
        }
    }
}

// Checks RFC 3168: 6.1.3-a.
#[test]
fn an_engine_that_echoes_each_mark_uses_ecn_for_dctcp_only() {
    let carries = engine::stream::Carries { echoes_until_cwr: false, ..Default::default() };
    let features = engine::stream::Features { carries, ..Default::default() };
    for (policy, uses) in [("cubic", false), ("dctcp", true)] {
        for connecting in [0, 1] {
            let congestion = Some(tcp::congestion::CongestionName::named(policy).unwrap());
            let configs = [0, 1].map(|at| control::HostConfig { ecn: true, congestion, ..config(at) });
            let (mut net, logs) = with_features(configs.into(), features);
            let (mut client, mut server) = (net.attach(connecting), net.attach(1 - connecting));
            server.serve(&mut net, 80);
            client.connect(ip_of(1 - connecting), 80, 0);
            net.settle();
            for log in &logs {
                assert_eq!(log.lock().unwrap().installed.values().next().unwrap().agreed.ecn, uses, "{policy}");
            }
        }
    }
}

#[test]
fn whichever_segment_is_lost_the_connection_opens() {
    for lost in 0..6 {
        let (mut net, logs) = two();
        let (mut client, mut server) = (net.attach(0), net.attach(1));
        server.serve(&mut net, 80);
        let mut count = 0;
        net.filter = Box::new(move |_, _| {
            count += 1;
            count - 1 != lost
        });
        let tag = client.connect(ip_of(1), 80, 0);
        net.run_for(10 * SECOND);
        client.connected(tag).unwrap().unwrap();
        assert_eq!(logs[0].lock().unwrap().installed.len(), 1, "lost {lost}");
        // The last acknowledgement of the handshake is the engine's to repeat: this one does not.
        if server.accepted().is_none() {
            assert!(!logs[0].lock().unwrap().frames.is_empty(), "lost {lost}: the SYN-ACK reached the engine again");
        }
    }
}

#[test]
fn connections_to_a_new_neighbour_all_leave_at_its_answer() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let tags: Vec<u32> = (0..10).map(|_| client.connect(ip_of(1), 80, 0)).collect();
    net.settle();
    assert!(tags.iter().all(|tag| client.connected(*tag).unwrap().is_ok()));
    net.end_all(vec![client, server]);
}

// Checks RFC 9293: MUST-22.
#[test]
fn nobody_there_refused_unreachable_or_silent() {
    let (mut net, _) = two();
    let mut client = net.attach(0);
    let errno = |net: &mut Net, client: &mut App, ip, time| {
        let tag = client.connect(ip, 81, 0);
        net.run_for(time);
        client.connected(tag).unwrap().unwrap_err() as i32
    };
    assert_eq!(errno(&mut net, &mut client, ip_of(1), 0), libc::ECONNREFUSED);
    assert_eq!(errno(&mut net, &mut client, ip_of(9), 10 * SECOND), libc::EHOSTUNREACH);
    assert_eq!(errno(&mut net, &mut client, [8, 8, 8, 8].into(), 0), libc::ENETUNREACH);
    net.filter = Box::new(|_, frame| !is_tcp(frame));
    assert_eq!(errno(&mut net, &mut client, ip_of(1), 200 * SECOND), libc::ETIMEDOUT);
    let syns = net.seen.iter().filter(|(_, bytes)| parse(bytes).is_some_and(|(_, h, _)| h.flags.has(Flags::SYN)));
    assert_eq!(syns.count(), 1 + 1 + 6);
    net.end_all(vec![client]);
}

// Checks RFC 9293: MUST-10.
#[test]
fn a_simultaneous_open_makes_one_connection() {
    let (mut net, logs) = two();
    let (mut a, mut b) = (net.attach(0), net.attach(1));
    let (bind_a, _) = a.bind(&mut net, 1000, false, false).unwrap();
    let (bind_b, _) = b.bind(&mut net, 2000, false, false).unwrap();
    resolve_addresses(&mut net, &mut a);
    let (tag_a, tag_b) = (a.connect(ip_of(1), 2000, bind_a), b.connect(ip_of(0), 1000, bind_b));
    net.settle();
    a.connected(tag_a).unwrap().unwrap();
    b.connected(tag_b).unwrap().unwrap();
    let (first, second) = (logs[0].lock().unwrap(), logs[1].lock().unwrap());
    let (first, second) = (first.installed.values().next().unwrap(), second.installed.values().next().unwrap());
    assert_eq!((first.snd_nxt, first.rcv_nxt), (second.rcv_nxt, second.snd_nxt));
}

#[test]
fn an_old_duplicate_syn_does_not_hurt() {
    // RFC 9293 figure 9: the listener's answer to the old SYN is reset by the client, and the new SYN opens.
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let (binding, _) = client.bind(&mut net, 1000, false, false).unwrap();
    let old = header(1000, 80, Seq(90), Seq(0), Flags::SYN);
    net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &old, &[]));
    let tag = client.connect(ip_of(1), 80, binding);
    net.run_for(5 * SECOND);
    client.connected(tag).unwrap().unwrap();
    server.accepted().unwrap();
    assert!(server.accepted().is_none());
}

#[test]
fn an_unarmed_listener_keeps_connections_and_first_data() {
    let (mut net, logs) = two();
    let (_client, _, mut server, binding) = connect_unarmed(&mut net);
    assert!(server.accepted().is_none());
    let (tuple, seq, ack) = {
        let log = logs[0].lock().unwrap();
        let params = log.installed.values().next().unwrap();
        (params.tuple, params.snd_nxt, params.rcv_nxt)
    };
    for step in 0..6 {
        let data = header(tuple.local_port, 80, seq + step * 10, ack, Flags::ACK);
        net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &data, &[7; 10]));
    }
    net.settle();
    assert_eq!(net.drops(1, DropReason::NotAccepted), 2, "four frames are kept");
    server.arm(&mut net, binding, 1);
    server.accepted().unwrap();
    assert_eq!(logs[1].lock().unwrap().frames.iter().map(|(_, len)| *len).collect::<Vec<_>>(), [10; 4]);
}

#[test]
fn data_on_the_last_acknowledgement_reaches_the_engine() {
    let (mut net, logs) = two();
    let mut server = net.attach(1);
    server.serve(&mut net, 80);
    let (from, to) = ((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)));
    net.filter = Box::new(|_, frame| !is_tcp(frame));
    net.inject(1, &tcp_frame(from, to, &header(1000, 80, Seq(5), Seq(0), Flags::SYN), &[]));
    net.settle();
    let answer = net.seen.iter().rev().find_map(|(_, bytes)| parse(bytes)).unwrap().1;
    assert_eq!((answer.flags, answer.ack), (Flags::SYN | Flags::ACK, Seq(6)));
    let ack = header(1000, 80, Seq(6), answer.seq + 1, Flags::ACK | Flags::PSH);
    net.inject(1, &tcp_frame(from, to, &ack, b"hello"));
    let next = header(1000, 80, Seq(11), answer.seq + 1, Flags::ACK);
    net.inject(1, &tcp_frame(from, to, &next, b"world!"));
    net.round();
    let lens: Vec<usize> = logs[1].lock().unwrap().frames.iter().map(|(_, len)| *len).collect();
    assert_eq!(lens, [5, 6], "in the same round, in order");
    server.accepted().unwrap();
}

#[test]
fn the_backlog_is_a_limit() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(&mut net, 80, false, false).unwrap();
    server.listen(&mut net, binding, 2).unwrap();
    resolve_addresses(&mut net, &mut client);
    let mut tries = |net: &mut Net, count| {
        let tags: Vec<u32> = (0..count).map(|_| client.connect(ip_of(1), 80, 0)).collect();
        net.settle();
        tags.iter().filter(|tag| client.connected(**tag).is_some()).count()
    };
    assert_eq!((tries(&mut net, 2), tries(&mut net, 1)), (2, 0), "two are open, the third is not answered");
    assert_eq!(net.nodes[1].host.base().bindings()[0].waiting, 2);
    assert!(net.drops(1, DropReason::Backlog) > 0);
    server.arm(&mut net, binding, 9);
    net.run_for(5 * SECOND);
    assert_eq!(std::iter::from_fn(|| server.accepted()).count(), 3, "its SYN came again");
    net.end_all(vec![client, server]);
}

#[test]
fn handshakes_that_end_together_do_not_overrun_the_backlog() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(&mut net, 80, false, false).unwrap();
    server.listen(&mut net, binding, 2).unwrap();
    resolve_addresses(&mut net, &mut client);
    for _ in 0..5 {
        client.connect(ip_of(1), 80, 0);
    }
    net.settle();
    let view = &net.nodes[1].host.base().bindings()[0];
    assert_eq!((view.waiting, view.half_open), (2, 3));
    net.end_all(vec![client, server]);
}

/// A program has no slot left, and connections of two of its listeners wait. A slot that comes free goes to one, the
/// next one to the other, however many wait for the first.
#[test]
fn listeners_of_a_full_program_are_served_in_turn() {
    let small = |node| control::MemoryConfig { slots: if node == 1 { 2 } else { 64 }, ..config(node).memory };
    let host = |node| control::HostConfig { memory: small(node), ..config(node) };
    let (mut net, _) = with(vec![host(0), host(1)]);
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let bindings = [server.serve(&mut net, 80), server.serve(&mut net, 81)];
    resolve_addresses(&mut net, &mut client);
    for port in [80, 80, 80, 80, 80, 80, 80, 80, 81, 81] {
        client.connect(ip_of(1), port, 0);
        net.settle();
    }
    let accepted = |server: &mut App| {
        server.find(|reply| match *reply {
            Reply::Accept { binding, slot, .. } => Some((binding, slot)),
            _ => None,
        })
    };
    let mut order = Vec::new();
    while let Some((binding, slot)) = accepted(&mut server) {
        order.push(bindings.iter().position(|other| *other == binding).unwrap());
        server.close(slot, 0, 0, true);
        net.settle();
    }
    assert_eq!(order, [0, 0, 1, 0, 1, 0, 0, 0, 0, 0]);
    net.end_all(vec![client, server]);
}

/// Ordinary clients that come all at once end their handshakes, however short the backlog is. No cookies are needed for
/// them, and none of what cookies forget is lost.
#[test]
fn a_storm_of_ordinary_clients_needs_no_cookies() {
    let roomy = |node| {
        let memory = control::MemoryConfig { slots: 512, control_entries: 1024, ..config(node).memory };
        control::HostConfig { max_flows: 1024, memory, ..config(node) }
    };
    let (mut net, _) = with(vec![roomy(0), roomy(1)]);
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(&mut net, 80, false, false).unwrap();
    server.listen(&mut net, binding, 4).unwrap();
    resolve_addresses(&mut net, &mut client);
    server.arm(&mut net, binding, 400);
    let tags: Vec<u32> = (0..400).map(|_| client.connect(ip_of(1), 80, 0)).collect();
    net.settle();
    assert!(tags.into_iter().all(|tag| matches!(client.connected(tag), Some(Ok(_)))));
    assert_eq!((net.drops(1, DropReason::SynCookie), net.drops(1, DropReason::Backlog)), (0, 0));
    net.end_all(vec![client, server]);
}

/// The peer closes first and is in TIME-WAIT, where a SYN of the same millisecond is an old one. A port that was just
/// used would cost its connection a second (RFC 6056 section 2.3).
#[test]
fn a_port_that_was_just_used_is_not_used_again_soon() {
    let (mut net, _) = two();
    let mut client = net.attach(0);
    resolve_addresses(&mut net, &mut client);
    let mut ports = BTreeSet::new();
    for before in 0..2000 {
        let tag = client.connect(ip_of(1), 9, 0);
        net.settle();
        let connecting = |reply: &Reply| match *reply {
            Reply::Connecting { tag: of, local, .. } if of == tag => Some(local.port),
            _ => None,
        };
        let port = client.expect(connecting);
        assert!(ports.insert(port), "port {port} again, of {before} connections");
        client.connected(tag).unwrap().expect_err("nobody listens");
    }
    net.end_all(vec![client]);
}

/// All ports of the range towards one peer: each connection gets another one, then nobody gets any, and one that comes
/// free is found. What the search costs: `ports.rs`.
#[test]
fn every_port_of_the_range_is_found_and_no_other() {
    const PORTS: u16 = 2000;
    let full = |node| {
        let memory = control::MemoryConfig { slots: 4096, control_entries: 4096, ..config(node).memory };
        let (ephemeral_first, ephemeral_last) = (40_000, 40_000 + PORTS - 1);
        control::HostConfig { max_flows: 4096, memory, ephemeral_first, ephemeral_last, ..config(node) }
    };
    let (mut net, _) = with(vec![full(0), full(1)]);
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    let (bound, _) = client.bind(&mut net, 40_007, false, false).unwrap();
    server.serve(&mut net, 80);
    let binding = server.serve(&mut net, 81);
    server.arm(&mut net, binding, 4000);
    resolve_addresses(&mut net, &mut client);
    let mut open = BTreeMap::new();
    for _ in 0..PORTS - 1 {
        let tag = client.connect(ip_of(1), 81, 0);
        net.settle();
        let connected = |reply: &Reply| match *reply {
            Reply::Connected { tag: of, slot, local, .. } if of == tag => Some((local.port, slot)),
            _ => None,
        };
        let (port, slot) = client.expect(connected);
        assert_eq!(open.insert(port, slot), None);
        client.replies.clear();
    }
    assert!(open.keys().copied().eq((40_000..40_000 + PORTS).filter(|port| *port != 40_007)));
    let refused = |net: &mut Net, client: &mut App| {
        let tag = client.connect(ip_of(1), 81, 0);
        net.settle();
        client.connected(tag).unwrap().unwrap_err() as i32
    };
    assert_eq!(refused(&mut net, &mut client), libc::EADDRNOTAVAIL);
    assert_eq!(client.bind(&mut net, 0, false, false), Err(libc::EADDRINUSE as u16), "each has a connection");
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    client.connected(tag).unwrap().expect("another peer, the same ports");
    for port in [40_000, 41_234, 41_999] {
        client.close(open[&port], 0, 0, true);
        net.settle();
        let tag = client.connect(ip_of(1), 81, 0);
        net.settle();
        // The other side's engine keeps the old connection: nothing comes of the attempt, but it has its port.
        let local = |reply: &Reply| match *reply {
            Reply::Connecting { tag: of, local, .. } if of == tag => Some(local.port),
            _ => None,
        };
        assert_eq!(client.expect(local), port);
        assert_eq!(refused(&mut net, &mut client), libc::EADDRNOTAVAIL);
    }
    client.ask(Request::Unbind { binding: bound });
    net.settle();
    let tag = client.connect(ip_of(1), 81, 0);
    net.settle();
    client.connected(tag).unwrap().expect("what was bound is free");
    net.end_all(vec![client, server]);
}

#[test]
fn a_reset_takes_a_waiting_connection_away() {
    let (mut net, _) = two();
    let (mut client, slot, mut server, binding) = connect_unarmed(&mut net);
    client.close(slot, 0, 0, true);
    net.settle();
    assert_eq!(client.freed(), Some(slot));
    server.arm(&mut net, binding, 1);
    server.no_replies();
    assert_eq!((net.states(0), net.states(1)), (vec![], vec![]));
}

#[test]
fn connecting_to_oneself_works_in_both_ways() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(0));
    server.serve(&mut net, 80);
    let tag = client.connect(ip_of(0), 80, 0);
    net.settle();
    client.connected(tag).unwrap().unwrap();
    server.accepted().unwrap();
    // A socket connected with itself is a simultaneous open with one side.
    let (binding, local) = client.bind(&mut net, 0, false, false).unwrap();
    let tag = client.connect(ip_of(0), local.port, binding);
    net.settle();
    client.connected(tag).unwrap().unwrap();
    assert!(net.seen.is_empty(), "nothing left the host");
    net.end_all(vec![client, server]);
}

#[test]
fn a_cancelled_attempt_leaves_nothing() {
    let (mut net, _) = two();
    let mut client = net.attach(0);
    let tag = client.connect(ip_of(9), 80, 0);
    net.settle();
    client.expect(|reply| matches!(reply, Reply::Connecting { .. }).then_some(()));
    client.ask(Request::CancelConnect { tag });
    net.run_for(30 * SECOND);
    client.no_replies();
    assert_eq!(net.states(0), Vec::<&str>::new());
    assert_eq!(net.nodes[0].host.base().contexts()[0].slots_used, 0);
    net.end_all(vec![client]);
}

// Checks RFC 9293: MUST-46, MUST-57, MUST-63.
#[test]
fn invalid_addresses_are_refused() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    for ip in [[255, 255, 255, 255], [224, 0, 0, 1]] {
        let tag = client.connect(std::net::Ipv4Addr::from(ip), 80, 0);
        net.settle();
        assert_eq!(client.connected(tag).unwrap().unwrap_err() as i32, libc::ENETUNREACH, "to {ip:?}");
    }
    net.seen.clear();
    let syn = header(1000, 80, Seq(90), Seq(0), Flags::SYN);
    let (here, group) = ((mac_of(1), ip_of(1)), wire::Mac([1, 0, 0x5e, 0, 0, 1]));
    for ip in [[255, 255, 255, 255], [224, 0, 0, 1], [0, 0, 0, 0], [127, 0, 0, 1]] {
        net.inject(1, &tcp_frame((mac_of(0), ip.into()), here, &syn, &[]));
    }
    net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (wire::Mac::BROADCAST, ip_of(1)), &syn, &[]));
    net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (group, [224, 0, 0, 1].into()), &syn, &[]));
    net.settle();
    assert!(net.seen.is_empty(), "silently");
    assert_eq!(
        net.drops(1, DropReason::Ip) + net.drops(1, DropReason::Ethernet) + net.drops(1, DropReason::NotOurs),
        6
    );
    net.end_all(vec![client, server]);
}

/// An IPv6 neighbour solicitation, which the kernel sends on a TAP device. The host is none of its group, and no
/// network card would have passed it on. The same frame to the host itself is dropped.
#[test]
fn frames_to_groups_of_another_protocol_are_no_drops() {
    let (mut net, _) = two();
    let solicitation = |to: wire::Mac| {
        let mut frame = [0; 86];
        frame[..6].copy_from_slice(&to.0);
        frame[6..12].copy_from_slice(&mac_of(0).0);
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame
    };
    net.inject(1, &solicitation(wire::Mac([0x33, 0x33, 0xff, 0, 0, 2])));
    net.settle();
    assert_eq!(net.drops(1, DropReason::Ethernet), 0);
    net.inject(1, &solicitation(mac_of(1)));
    net.settle();
    assert_eq!(net.drops(1, DropReason::Ethernet), 1);
}
