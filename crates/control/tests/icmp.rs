//! ICMP about connections: what ends one, what only reports, and path MTUs.
mod support;

use engine::DropReason;
use support::recording::{Recorded, Shared, header, parse, tcp_frame, two};
use support::unknown_peers::icmp_unreachable;
use support::*;
use wire::tcp::Flags;

// Checks RFC 9293: MUST-47, SHLD-25, MUST-54.
#[test]
fn a_silent_attempt_fails_with_the_icmp_error() {
    let (mut net, _) = two();
    let mut client = net.attach(0);
    net.filter = Box::new(|_, frame| parse(frame.bytes()).is_none());
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    let syn = net.seen.iter().find(|(_, bytes)| parse(bytes).is_some()).unwrap().1.clone();
    let lie = icmp_unreachable(1, 0, &syn, 1);
    net.inject(0, &lie);
    let mut wrong = syn.clone();
    wrong[14 + 20 + 4] ^= 1;
    net.inject(0, &icmp_unreachable(3, 0, &wrong, 1));
    net.settle();
    assert!(client.connected(tag).is_none(), "one is a soft error, the other quotes what was never sent");
    assert_eq!(net.drops(0, DropReason::Icmp), 1);
    net.run_for(200 * SECOND);
    assert_eq!(client.connected(tag).unwrap().unwrap_err() as i32, libc::EHOSTUNREACH);
}

// Checks RFC 8201: 4-c.
#[test]
fn path_mtu_discovery_accepts_only_what_is_in_flight() {
    let (mut net, logs) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    client.connect(ip_of(1), 80, 0);
    net.settle();
    let params = logs[0].lock().unwrap().installed.values().next().unwrap().clone();
    let quoted = |seq| {
        let header = header(params.tuple.local_port, 80, seq, params.rcv_nxt, Flags::ACK);
        tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &header, &[0; 100])
    };
    let stats = &params.stats;
    stats.snd_nxt.store((params.snd_nxt + 5000).0, std::sync::atomic::Ordering::Relaxed);
    let mss = |logs: &[Shared; 2]| {
        let log = logs[0].lock().unwrap();
        log.commands.iter().rev().find_map(|recorded| match recorded {
            Recorded::Mss(_, mss) => Some(*mss),
            _ => None,
        })
    };
    net.inject(0, &icmp_unreachable(4, 1000, &quoted(params.snd_nxt + 6000), 1));
    net.settle();
    assert_eq!((mss(&logs), net.drops(0, DropReason::Icmp)), (None, 1));
    net.inject(0, &icmp_unreachable(4, 1000, &quoted(params.snd_nxt + 100), 1));
    net.settle();
    assert_eq!(mss(&logs), Some(1000 - 52));
    net.inject(0, &icmp_unreachable(4, 68, &quoted(params.snd_nxt + 100), 1));
    net.settle();
    assert_eq!(mss(&logs), Some(576 - 52), "not below what every host takes");
    net.inject(0, &icmp_unreachable(4, 1400, &quoted(params.snd_nxt + 100), 1));
    net.settle();
    assert_eq!((mss(&logs), net.drops(0, DropReason::Icmp)), (Some(576 - 52), 2), "never larger again");
}

// Checks RFC 9293: MUST-55, MUST-56.
#[test]
fn icmp_about_an_open_connection_does_not_end_it() {
    let (mut net, logs) = two();
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    client.connect(ip_of(1), 80, 0);
    net.settle();
    let params = logs[0].lock().unwrap().installed.values().next().unwrap().clone();
    let header = header(params.tuple.local_port, 80, params.snd_nxt, params.rcv_nxt, Flags::ACK);
    let about = tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &header, &[]);
    for code in [0, 1, 2, 3, 5] {
        net.inject(0, &icmp_unreachable(code, 0, &about, 1));
    }
    // Source quench: type 4 in the place of type 3.
    let mut quench = icmp_unreachable(0, 0, &about, 1);
    quench[34] = 4;
    let sum = u16::from_be_bytes([quench[36], quench[37]]).wrapping_sub(0x0100);
    quench[36..38].copy_from_slice(&sum.to_be_bytes());
    net.inject(0, &quench);
    net.settle();
    assert_eq!((net.states(0), net.drops(0, DropReason::Icmp)), (vec!["ESTABLISHED"], 6));
    assert!(client.error().is_none());
}
