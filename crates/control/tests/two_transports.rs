//! Two transports on one host: TCP in an engine, and a toy of datagrams beside it, on the same address and port number.
mod support;
#[path = "../../host/tests/support/mod.rs"]
mod toy;

use control::{Claim, Io, Transport};
use engine::{DropReason, Limits, Nanos};
use flextoe::{FlexToe, Mapping};
use port::{Frame, FramePool};
use support::sockets::Sockets;
use support::*;
use toy::{Datagrams, Mailbox};

/// The port number of both transports on node 1.
const PORT: u16 = 4791;

/// Two hosts with FlexTOE; node 1 echoes datagrams beside it, node 0 asks.
fn net() -> (Net, Mailbox, Mailbox) {
    let engine = |_: usize, config: &control::HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, Mapping::default(), FramePool::new(64)))
    };
    let mut net = Net::new(vec![config(0), config(1)], engine);
    let (client, server) = (Mailbox::default(), Mailbox::default());
    let asker = Datagrams { port: 7000, echoes: false, mail: client.clone() };
    let echo = Datagrams { port: PORT, echoes: true, mail: server.clone() };
    net.nodes[0].host.add(Box::new(asker)).unwrap();
    net.nodes[1].host.add(Box::new(echo)).unwrap();
    (net, client, server)
}

#[test]
fn tcp_and_datagrams_share_an_address_and_a_port() {
    let (mut net, client, server) = net();
    let (mut a, mut b) = (net.attach(0), net.attach(1));
    let (mut of_a, mut of_b) = (Sockets::default(), Sockets::default());
    b.serve(&mut net, PORT);
    let tag = a.connect(ip_of(1), PORT, 0);
    client.send(ip_of(1), PORT, b"during the handshake");
    net.run_for(10 * MS);
    let first = a.connected(tag).expect("it is connected").expect("nobody refuses");
    let second = b.accepted().expect("it is accepted");
    let (first, second) = (of_a.open(&a, first), of_b.open(&b, second));
    for round in 0..10_u8 {
        client.send(ip_of(1), PORT, &[round; 900]);
        let bytes = [round; 3000];
        assert_eq!(of_a.write(&mut a, first, &bytes), 3000);
        net.run_for(10 * MS);
        assert_eq!(of_b.read(&mut b, second), bytes);
    }
    let answers = client.take();
    assert_eq!((answers.len(), server.take().len()), (11, 11));
    assert_eq!(answers[0].2, b"during the handshake");
    for (round, (from, port, payload)) in answers[1..].iter().enumerate() {
        assert_eq!((*from, *port, payload.as_slice()), (ip_of(1), PORT, [round as u8; 900].as_slice()));
    }
    assert_eq!(net.nodes[0].host.net().neighbours().len(), 1, "both use the answer to one request");
    assert_eq!((net.drops(1, DropReason::Protocol), net.drops(1, DropReason::NoFlow)), (0, 0));
}

#[test]
fn a_port_that_nobody_claims_is_refused_as_before() {
    let (mut net, client, server) = net();
    client.send(ip_of(1), PORT + 1, b"nobody");
    net.settle();
    assert!(client.take().is_empty() && server.take().is_empty());
    assert_eq!(net.drops(1, DropReason::Protocol), 1);
    assert!(net.seen.iter().any(|(from, bytes)| *from == 1 && bytes[23] == 1), "port unreachable");
}

#[test]
fn a_transport_with_something_to_do_keeps_the_host_awake() {
    let (mut net, client, _) = net();
    net.settle();
    assert!(!net.nodes[0].host.has_work(net.now));
    client.send(ip_of(1), PORT, b"now");
    assert!(net.nodes[0].host.has_work(net.now));
}

/// Claims what a test sets, and does nothing.
struct Greedy(Claim);

impl Transport for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }
    fn claims(&self) -> Vec<Claim> {
        vec![self.0]
    }
    fn poll(&mut self, _now: Nanos, _rx: &mut Vec<Box<Frame>>, _io: &mut Io<'_>) -> usize {
        0
    }
    fn has_work(&self, _now: Nanos) -> bool {
        false
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}

#[test]
fn claims_that_are_taken_are_refused_in_a_sentence() {
    let (mut net, ..) = net();
    let cases = [
        (Claim::Protocol(6), "transport greedy claims IP protocol 6, which tcp has already"),
        (Claim::EtherType(0x0800), "transport greedy claims EtherType 0x0800, which is the host's own"),
        (Claim::UdpPort(PORT), "transport greedy claims UDP port 4791, which echo has already"),
    ];
    for (claim, sentence) in cases {
        assert_eq!(net.nodes[1].host.add(Box::new(Greedy(claim))).unwrap_err(), sentence);
    }
    assert_eq!(net.nodes[1].host.add(Box::new(Greedy(Claim::Protocol(17)))), Ok(()));
}
