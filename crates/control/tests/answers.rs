//! What the control plane answers and remembers: timestamps on resets, challenges for each connection, path MTUs.
mod support;

use std::sync::atomic::Ordering::Relaxed;
use support::recording::{Recorded, Shared, connect_unarmed, header, parse, tcp_frame, two};
use support::unknown_peers::icmp_unreachable;
use support::*;
use wire::Seq;
use wire::tcp::{Flags, Header};

/// Headers of what a node sent since, with the port that they go to.
fn sent(net: &Net, node: usize, since: usize) -> Vec<Header> {
    let seen = net.seen[since..].iter().filter(|(from, _)| *from == node);
    seen.filter_map(|(_, bytes)| parse(bytes)).map(|(_, header, _)| header).collect()
}

/// A segment of a peer beside node 1, to node 0.
fn from_peer(port: u16, seq: u32, ack: u32, flags: Flags) -> Vec<u8> {
    tcp_frame((mac_of(1), ip_of(1)), (mac_of(0), ip_of(0)), &header(port, 80, Seq(seq), Seq(ack), flags), &[])
}

// Checks RFC 7323: 3.2-e.
#[test]
fn a_reset_carries_timestamps_where_they_were_agreed_on() {
    let (mut net, _) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    let slot = client.connected(tag).unwrap().unwrap();
    let opened = sent(&net, 0, 0).last().unwrap().options.timestamps.unwrap();
    let since = net.seen.len();
    net.now += 5 * MS;
    client.close(slot, 0, 0, true);
    net.settle();
    let reset = sent(&net, 0, since).remove(0);
    assert!(reset.flags.has(Flags::RST));
    let stamp = reset.options.timestamps.expect("timestamps");
    assert_eq!((stamp.value.wrapping_sub(opened.value), stamp.echo), (5, opened.echo));
}

/// A keepalive, also one with a byte (RFC 9293 section 3.8.4), of a peer whose connection waits to be accepted: Linux
/// answers as it does later.
#[test]
fn what_waits_to_be_accepted_is_alive() {
    let (mut net, _) = two();
    let (_client, _, _server, _) = connect_unarmed(&mut net);
    let last = *sent(&net, 0, 0).last().unwrap();
    for (seq, payload) in [(last.seq - 1, &[][..]), (last.seq - 1, &[0])] {
        let (since, probe) = (net.seen.len(), Header { seq, ..last });
        net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &probe, payload));
        net.settle();
        let answers = sent(&net, 1, since);
        assert_eq!(answers.iter().map(|it| (it.flags, it.ack)).collect::<Vec<_>>(), [(Flags::ACK, last.seq)]);
    }
}

/// An unknown peer that uses a limit up on a connection of its own learns nothing about others (CVE-2016-5696).
// Checks RFC 5961: 7-a, 10-a.
#[test]
fn challenges_are_limited_for_each_connection() {
    let (mut net, _) = two();
    let mut server = net.attach(0);
    server.serve(&mut net, 80);
    // The host on node 1 would reset what it did not open.
    net.filter = Box::new(|from, _| from != 0);
    for port in [5000, 6000] {
        net.inject(0, &from_peer(port, 100, 0, Flags::SYN));
    }
    net.settle();
    let answers = |net: &mut Net, port: u16, frame: Vec<u8>, count: usize| {
        let since = net.seen.len();
        (0..count).for_each(|_| net.inject(0, &frame));
        net.settle();
        sent(net, 0, since).iter().filter(|header| header.dst_port == port).count()
    };
    // A SYN again is answered with the SYN-ACK again, and a segment outside the window with an acknowledgement.
    let flood = answers(&mut net, 5000, from_peer(5000, 100, 0, Flags::SYN), 3000);
    assert!((5..=100).contains(&flood), "{flood} answers");
    let outside = from_peer(5000, 900_000, 1, Flags::ACK);
    assert_eq!(answers(&mut net, 5000, outside, 5), 0, "its limit is used up");
    assert_eq!(answers(&mut net, 6000, from_peer(6000, 900_000, 1, Flags::ACK), 1), 1, "the other's is not");
    net.now += 100 * MS;
    assert_eq!(answers(&mut net, 5000, from_peer(5000, 100, 0, Flags::SYN), 1), 1, "time gives it back");
    net.end_all(vec![server]);
}

/// RFC 1191 sections 6.2 and 6.3: what was learned of a path is the next connection's, for ten minutes.
#[test]
fn a_new_connection_begins_with_the_learned_path_mtu() {
    let (mut net, logs) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let connect = |net: &mut Net, client: &mut App, server: &mut App| {
        let tag = client.connect(ip_of(1), 80, 0);
        net.settle();
        server.accepted().unwrap();
        client.connected(tag).unwrap().unwrap()
    };
    let mss_of = |logs: &[Shared; 2], slot: context::Slot| {
        let log = logs[0].lock().unwrap();
        log.installed.values().find(|params| params.slot == slot).unwrap().agreed.mss
    };
    let first = connect(&mut net, &mut client, &mut server);
    assert_eq!(mss_of(&logs, first), 1448);
    let params = logs[0].lock().unwrap().installed.values().next().unwrap().clone();
    params.stats.snd_nxt.store((params.snd_nxt + 5000).0, Relaxed);
    let quoted = header(params.tuple.local_port, 80, params.snd_nxt + 100, params.rcv_nxt, Flags::ACK);
    let quoted = tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &quoted, &[0; 100]);
    net.inject(0, &icmp_unreachable(4, 1200, &quoted, 1));
    net.settle();
    let lowered = |recorded: &Recorded| matches!(recorded, Recorded::Mss(_, mss) if *mss == 1200 - 52);
    assert!(logs[0].lock().unwrap().commands.iter().any(lowered));
    params.stats.snd_nxt.store(params.snd_nxt.0, Relaxed);

    let since = net.seen.len();
    let second = connect(&mut net, &mut client, &mut server);
    assert_eq!(mss_of(&logs, second), 1200 - 52);
    assert_eq!(sent(&net, 0, since)[0].options.mss, Some(1460), "what this host takes is another matter");
    net.run_for(599 * SECOND);
    let third = connect(&mut net, &mut client, &mut server);
    assert_eq!(mss_of(&logs, third), 1200 - 52);
    net.run_for(2 * SECOND);
    let fourth = connect(&mut net, &mut client, &mut server);
    assert_eq!(mss_of(&logs, fourth), 1448, "larger is tried again");
}
