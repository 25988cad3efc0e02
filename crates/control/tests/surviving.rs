//! A host is killed in the middle of everything, and the next one goes on with the connections of the programs that
//! come back. Not a byte is lost, in either direction (docs/RESTART.md).
mod support;

use context::{AppEnd, Request, Slot, begin_anew, daemon_ends};
use control::{Application, RecordsInMemory};
use engine::Limits;
use engine::stream::Stream;
use flextoe::{FlexToe, Mapping};
use laminar::{Extensions, Laminar};
use shm::Doorbell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use support::families::{listen, v6_config, v6_of};
use support::sockets::Sockets;
use support::*;
use wire::IpAddress;

/// Makes an engine for a host.
type Make = fn(&control::HostConfig) -> Box<dyn engine::Engine<Stream>>;

const ENGINES: [Make; 2] = [flextoe, laminar];

fn limits(config: &control::HostConfig) -> Limits {
    Limits { flows: config.max_flows, contexts: config.max_contexts }
}

fn flextoe(config: &control::HostConfig) -> Box<dyn engine::Engine<Stream>> {
    Box::new(FlexToe::new(limits(config), Mapping::default(), port::FramePool::new(64)))
}

fn laminar(config: &control::HostConfig) -> Box<dyn engine::Engine<Stream>> {
    Box::new(Laminar::new(limits(config), config.window_shift(), Extensions::default()).unwrap())
}

/// Two programs with a connection.
struct Two {
    net: Net,
    make: Make,
    memory: [RecordsInMemory; 2],
    apps: [App; 2],
    slots: [Slot; 2],
    sockets: [Sockets; 2],
}

/// Where the client on node 0 finds the server: another node, or its own loopback.
fn places() -> [(usize, IpAddress); 4] {
    let loopback_v6 = IpAddress::v6(Ipv6Addr::LOCALHOST, 0);
    [(0, Ipv4Addr::LOCALHOST.into()), (1, ip_of(1).into()), (0, loopback_v6), (1, v6_of(1))]
}

/// A client on node 0 and a server on node 1.
fn joined(make: Make) -> Two {
    joined_at(make, (1, ip_of(1).into()))
}

/// A client on node 0 and a server on a node, at an address.
fn joined_at(make: Make, (node, ip): (usize, IpAddress)) -> Two {
    let mut net = Net::new(vec![v6_config(0), v6_config(1)], |_, config| make(config));
    let memory = [0, 1].map(|_| RecordsInMemory::new(128));
    for (node, memory) in net.nodes.iter_mut().zip(&memory) {
        let left = node.host.use_base(net.now, |tcp, context| tcp.keep_records(context, Box::new(memory.clone())));
        assert_eq!(left, 0);
    }
    let (mut client, mut server) = (net.attach(0), net.attach(node));
    let binding = listen(&mut net, &mut server, true);
    server.ask(Request::Loopback { binding });
    net.settle();
    let tag = client.connect(ip, 80, 0);
    net.settle();
    let slots = [client.connected(tag).unwrap().unwrap(), server.accepted().unwrap()];
    let mut sockets = [Sockets::default(), Sockets::default()];
    sockets[0].open(&client, slots[0]);
    sockets[1].open(&server, slots[1]);
    Two { net, make, memory, apps: [client, server], slots, sockets }
}

/// Byte `at` of the stream that side `from` sends.
fn byte(from: usize, at: usize) -> u8 {
    (at * 31 + at / 251 + from * 7) as u8
}

#[derive(Default)]
struct Progress {
    written: [usize; 2],
    read: [usize; 2],
}

impl Two {
    /// Both sides write and read what they can.
    fn work(&mut self, progress: &mut Progress, most: usize) {
        for side in 0..2 {
            let left = (most - progress.written[side]).min(3000);
            let at = progress.written[side];
            let bytes: Vec<u8> = (at..at + left).map(|at| byte(side, at)).collect();
            let slot = self.slots[side];
            progress.written[side] += self.sockets[side].write(&mut self.apps[side], slot, &bytes);
            let got = self.sockets[side].read(&mut self.apps[side], slot);
            for value in got {
                assert_eq!(value, byte(1 - side, progress.read[side]), "byte {} to side {side}", progress.read[side]);
                progress.read[side] += 1;
            }
        }
    }

    /// The host of a node is gone, at whatever moment this is, and another one takes its place with nothing but what
    /// its records have.
    fn kill(&mut self, node: usize) {
        let config = v6_config(node);
        let engine = (self.make)(&config);
        let links = vec![config.link(mac_of(node), CAPS)];
        let mut new = control::host(config, links, engine, [99; 16]).unwrap();
        let memory = self.memory[node].clone();
        let left = new.use_base(self.net.now, |tcp, context| tcp.keep_records(context, Box::new(memory)));
        assert_eq!(left, self.memory[node].used());
        self.net.nodes[node].host = new;
        self.net.nodes[node].inbox.clear();
    }

    /// A program comes back with its region; whether its connection goes on.
    fn returns(&mut self, side: usize) -> bool {
        if !self.attaches_again(side) {
            return false;
        }
        let kept = [self.sockets[side].0[&self.slots[side]].kept()];
        let App { id, node, .. } = self.apps[side];
        let host = &mut self.net.nodes[node].host;
        let go_on = host.use_base(self.net.now, |tcp, context| tcp.go_on_with(context, id, &kept));
        go_on == [self.slots[side]]
    }

    /// A program attaches with its region; false where none of the host's connections is in there.
    fn attaches_again(&mut self, side: usize) -> bool {
        let app = &mut self.apps[side];
        self.sockets[side].drain(app);
        let (region, geometry, node) = (Arc::clone(&app.end.region), app.end.geometry, app.node);
        let host = &mut self.net.nodes[node].host;
        if !host.base().has_survivors_in(region.number()) {
            return false;
        }
        begin_anew(&region, &geometry).unwrap();
        let (app_bell, daemon_bell) = (Doorbell::eventfd().unwrap(), Doorbell::eventfd().unwrap());
        let (app_bell2, daemon_bell2) = (app_bell.try_clone().unwrap(), daemon_bell.try_clone().unwrap());
        let ends = daemon_ends(&region, geometry, app_bell, daemon_bell);
        let application = Application { pid: 7, uid: 0, gid: 0, command: "back".into(), loopback: true };
        app.id = host.use_base(self.net.now, |tcp, context| tcp.attach(context, application, ends, None)).unwrap();
        app.end = AppEnd::new(region, geometry, app_bell2, daemon_bell2).unwrap();
        app.replies.clear();
        true
    }

    /// The host of a node is killed, and after some rounds its programs come back to the next one.
    fn killed_and_back(&mut self, node: usize, rounds: usize) {
        self.kill(node);
        for _ in 0..rounds {
            self.net.round();
        }
        for side in 0..2 {
            assert!(self.apps[side].node != node || self.returns(side), "side {side} goes on");
        }
    }
}

/// In the middle of a transfer in both directions a host is killed, again and again.
#[test]
fn a_transfer_goes_on_over_kills() {
    for (make, place) in ENGINES.into_iter().flat_map(|make| places().map(|place| (make, place))) {
        for every in [7, 61] {
            let mut two = joined_at(make, place);
            let (mut progress, most, mut kills) = (Progress::default(), 40_000 * every, 0);
            for round in 1..200_000 {
                two.work(&mut progress, most);
                two.net.round();
                if round % 50 == 0 {
                    two.net.run_for(MS);
                }
                if round % every == 0 && kills < 40 {
                    kills += 1;
                    two.killed_and_back([0, place.0][kills % 2], kills % 3);
                    // What was on its way is lost, and its timer is as that of a new connection.
                    two.net.run_for(1200 * MS);
                }
                if progress.read == [most; 2] {
                    break;
                }
            }
            assert_eq!(progress.read, [most; 2], "after {kills} kills");
            assert!(kills >= 5, "{kills}");
        }
    }
}

/// Both directions are closed one after the other, with a kill at each step: ends come once, on either side.
#[test]
fn ends_of_streams_go_on_over_kills() {
    for (make, case) in ENGINES.into_iter().flat_map(|make| [0, 1, 2, 3].map(|case| (make, case))) {
        let (node, family) = (case % 2, case / 2);
        let mut two = joined_at(make, places()[2 * family + 1]);
        let sent = two.sockets[0].write(&mut two.apps[0], two.slots[0], &[5; 3000]);
        two.killed_and_back(node, 2);
        two.sockets[0].shut(&mut two.apps[0], two.slots[0]);
        two.net.round();
        two.killed_and_back(node, 1);
        two.net.run_for(3 * SECOND);
        assert_eq!(two.sockets[1].read(&mut two.apps[1], two.slots[1]), vec![5; sent]);
        assert!(two.sockets[1].at_end(&mut two.apps[1], two.slots[1]), "the end of the stream came");
        two.killed_and_back(node, 3);
        two.net.run_for(3 * SECOND);
        let answered = two.sockets[1].write(&mut two.apps[1], two.slots[1], &[6; 2000]);
        two.sockets[1].shut(&mut two.apps[1], two.slots[1]);
        two.killed_and_back(node, 0);
        two.net.run_for(3 * SECOND);
        assert_eq!(two.sockets[0].read(&mut two.apps[0], two.slots[0]), vec![6; answered]);
        assert!(two.sockets[0].at_end(&mut two.apps[0], two.slots[0]));
    }
}

#[test]
fn survivors_without_a_program_are_reset() {
    for make in ENGINES {
        let mut two = joined(make);
        two.kill(1);
        two.sockets[0].write(&mut two.apps[0], two.slots[0], &[5; 3000]);
        two.net.run_for(2 * SECOND);
        assert_eq!((two.net.states(0), two.memory[1].used()), (vec!["ESTABLISHED"], 1), "nobody answers");
        two.net.run_for(6 * SECOND);
        assert_eq!((two.net.states(0), two.memory[1].used()), (vec!["CLOSED"], 0));
        assert!(!two.returns(1), "too late");
    }
}

/// A peer that waits for bytes, and has nothing to send, gets the reset, too.
#[test]
fn a_silent_peer_of_what_is_forgotten_is_reset() {
    for make in ENGINES {
        let mut two = joined(make);
        two.kill(1);
        two.net.run_for(4 * SECOND);
        assert_eq!(two.net.states(0), ["ESTABLISHED"]);
        two.net.run_for(2 * SECOND);
        assert_eq!(two.net.states(0), ["CLOSED"]);
    }
}

/// A slot is used again of which nobody has brought the connection back, and the host is killed once more. What is in
/// the slot goes on with its own peer, not with the one that was there before.
#[test]
fn a_slot_that_is_used_again_is_that_of_its_last_connection() {
    for make in ENGINES {
        let mut two = joined(make);
        two.kill(0);
        assert!(two.attaches_again(0));
        let old = two.slots[0];
        let tag = two.apps[0].connect(ip_of(1), 80, 0);
        two.net.settle();
        two.slots = [two.apps[0].connected(tag).unwrap().unwrap(), two.apps[1].accepted().unwrap()];
        assert_eq!((two.slots[0], two.memory[0].used()), (old, 1));
        for side in 0..2 {
            two.sockets[side].open(&two.apps[side], two.slots[side]);
        }
        two.killed_and_back(0, 1);
        two.sockets[0].write(&mut two.apps[0], two.slots[0], &[5; 3000]);
        two.net.run_for(2 * SECOND);
        assert_eq!(two.sockets[1].read(&mut two.apps[1], two.slots[1]), [5; 3000]);
    }
}

/// Whoever takes over a daemon whose programs are still to come back would not have their connections.
#[test]
fn nobody_takes_over_before_programs_are_back() {
    for make in ENGINES {
        let mut two = joined(make);
        two.kill(1);
        let obstacle = two.net.nodes[1].host.handover_obstacle().expect("an obstacle");
        assert!(obstacle.contains("wait for their programs"), "{obstacle}");
        assert!(two.returns(1));
        assert_eq!(two.net.nodes[1].host.handover_obstacle(), None);
    }
}

/// A daemon that ends in order reports it to its programs, which wait for no other one then.
#[test]
fn nobody_waits_for_more_after_an_end_in_order() {
    let mut two = joined(flextoe);
    assert!(two.apps[1].end.can_go_on());
    let (id, now) = (two.apps[1].id, two.net.now);
    two.net.nodes[1].host.use_base(now, |tcp, context| tcp.detach(context, id));
    assert!(!two.apps[1].end.can_go_on());
    two.net.settle();
    assert_eq!(two.memory[1].used(), 0);
    assert!(two.apps[0].end.can_go_on());
}

/// Nobody gets a connection without its region, or with positions that it cannot have.
#[test]
fn what_a_program_reports_is_checked() {
    let mut two = joined(flextoe);
    two.kill(1);
    let other = two.net.attach(1);
    let kept = two.sockets[1].0[&two.slots[1]].kept();
    let now = two.net.now;
    let host = &mut two.net.nodes[1].host;
    assert!(host.use_base(now, |tcp, context| tcp.go_on_with(context, other.id, &[kept])).is_empty());
    two.sockets[1].0.get_mut(&two.slots[1]).unwrap().tx_head += 1 << 20;
    assert!(!two.returns(1), "more than the buffer holds");
    two.sockets[1].0.get_mut(&two.slots[1]).unwrap().tx_head -= 1 << 20;
    assert!(two.returns(1), "it was not lost by that");
    assert!(!two.returns(1), "once");
}

/// A connection that is over leaves no record.
#[test]
fn closed_connections_leave_nothing() {
    let two = joined(flextoe);
    assert_eq!([two.memory[0].used(), two.memory[1].used()], [1, 1]);
    let Two { mut net, memory, apps: [mut client, mut server], slots, mut sockets, .. } = two;
    sockets[0].close(&mut net, &mut client, slots[0]);
    sockets[1].close(&mut net, &mut server, slots[1]);
    net.run_for(SECOND);
    assert_eq!([memory[0].used(), memory[1].used()], [0, 0]);
    net.end_all(vec![client, server]);
}
