//! A host is stopped in the middle of everything and another one goes on: not a byte is lost, in either direction.
mod support;

use context::{Request, Slot};
use control::ContextId;
use engine::Limits;
use flextoe::{FlexToe, Mapping};
use laminar::{Extensions, Laminar};
use std::net::Ipv4Addr;
use support::sockets::Sockets;
use support::takeover::{restore, stop, take_over};
use support::*;

/// Makes an engine for a host.
type Make = fn(&control::HostConfig) -> Box<dyn engine::Engine<engine::stream::Stream>>;

/// All engines whose flows can be handed over.
const ENGINES: [Make; 3] = [flextoe, laminar, laminar_with_timestamps];

fn limits(config: &control::HostConfig) -> Limits {
    Limits { flows: config.max_flows, contexts: config.max_contexts }
}

fn flextoe(config: &control::HostConfig) -> Box<dyn engine::Engine<engine::stream::Stream>> {
    Box::new(FlexToe::new(limits(config), Mapping::default(), port::FramePool::new(64)))
}

fn laminar(config: &control::HostConfig) -> Box<dyn engine::Engine<engine::stream::Stream>> {
    Box::new(Laminar::new(limits(config), config.window_shift(), Extensions::default()).unwrap())
}

fn laminar_with_timestamps(config: &control::HostConfig) -> Box<dyn engine::Engine<engine::stream::Stream>> {
    let extensions = Extensions { timely: true, ..Extensions::NONE };
    Box::new(Laminar::new(limits(config), config.window_shift(), extensions).unwrap())
}

/// Makes two programs with a connection.
type Join = fn(Make) -> Two;

struct Two {
    net: Net,
    apps: [App; 2],
    slots: [Slot; 2],
    sockets: [Sockets; 2],
}

/// A client on node 0 and a server on node 1.
fn connected(make: Make) -> Two {
    joined(make, 1, ip_of(1))
}

/// Both on node 0, over its loopback.
fn over_loopback(make: Make) -> Two {
    joined(make, 0, Ipv4Addr::LOCALHOST)
}

fn joined(make: Make, node: usize, ip: Ipv4Addr) -> Two {
    let mut net = Net::new(vec![config(0), config(1)], |_, config| make(config));
    let (mut client, mut server) = (net.attach(0), net.attach(node));
    let binding = server.serve(&mut net, 80);
    server.ask(Request::Loopback { binding });
    net.settle();
    let tag = client.connect(ip, 80, 0);
    net.settle();
    let slots = [client.connected(tag).unwrap().unwrap(), server.accepted().unwrap()];
    let mut sockets = [Sockets::default(), Sockets::default()];
    sockets[0].open(&client, slots[0]);
    sockets[1].open(&server, slots[1]);
    Two { net, apps: [client, server], slots, sockets }
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
}

/// Every so many rounds of a transfer in both directions a host is taken over, or stopped and let go on.
#[test]
fn a_transfer_goes_on_over_takeovers() {
    let how = [(7, true), (7, false), (23, true), (61, true)];
    let pairs = ENGINES.into_iter().flat_map(|make| [connected as Join, over_loopback].map(|join| (make, join)));
    for ((make, join), (every, really)) in pairs.flat_map(|pair| how.map(|how| (pair, how))) {
        let mut two = join(make);
        let (mut progress, most) = (Progress::default(), 800_000);
        let mut taken = 0;
        for round in 1..200_000 {
            two.work(&mut progress, most);
            two.net.round();
            if round % 50 == 0 {
                two.net.run_for(MS);
            }
            if round % every == 0 && taken < 200 {
                let node = two.apps[(round / every) % 2].node;
                if !two.net.nodes[node].host.base().is_settled() {
                    continue;
                }
                taken += 1;
                stop(&mut two.net, node);
                // What the applications do meanwhile waits in their rings.
                two.work(&mut progress, most);
                match really {
                    true => take_over(&mut two.net, node, make),
                    false => two.net.nodes[node].host.use_base(two.net.now, |tcp, context| tcp.go_on(context)),
                }
            }
            if progress.read == [most; 2] {
                break;
            }
        }
        assert_eq!(progress.read, [most; 2], "after {taken} takeovers");
        assert!(taken >= 3, "{taken}");
    }
}

/// Another engine, or other options, and the old host goes on.
#[test]
fn a_connection_keeps_its_engine_and_its_options() {
    for (from, to) in [(flextoe as Make, laminar as Make), (laminar, flextoe), (laminar_with_timestamps, laminar)] {
        let mut two = connected(from);
        stop(&mut two.net, 1);
        let sentence = restore(&mut two.net, 1, to).unwrap_err();
        assert!(sentence.contains("the engine cannot change"), "{sentence}");
        two.net.nodes[1].host.use_base(two.net.now, |tcp, context| tcp.go_on(context));
        let (mut progress, most) = (Progress::default(), 100_000);
        for _ in 0..100_000 {
            two.work(&mut progress, most);
            two.net.run_for(MS);
            if progress.read == [most; 2] {
                break;
            }
        }
        assert_eq!(progress.read, [most; 2]);
    }
}

/// Both directions closed one after the other, with a takeover at each step: ends come once, on either side.
#[test]
fn closes_go_on_over_takeovers() {
    for make in ENGINES {
        for node in [0, 1] {
            let mut two = connected(make);
            let change = |net: &mut Net| {
                stop(net, node);
                take_over(net, node, make);
            };
            let sent = two.sockets[0].write(&mut two.apps[0], two.slots[0], &[5; 3000]) as u32;
            change(&mut two.net);
            two.apps[0].close(two.slots[0], sent, 0, false);
            two.net.round();
            change(&mut two.net);
            two.net.run_for(3 * SECOND);
            assert_eq!(two.sockets[1].read(&mut two.apps[1], two.slots[1]), vec![5; sent as usize]);
            assert!(two.sockets[1].at_end(&mut two.apps[1], two.slots[1]), "the end of the stream came");
            change(&mut two.net);
            two.apps[1].close(two.slots[1], 0, sent, false);
            two.net.round();
            change(&mut two.net);
            two.net.run_for(3 * SECOND);
            let left = [two.net.states(0), two.net.states(1)].concat();
            assert!(left.iter().all(|state| *state == "TIME-WAIT"), "{left:?}");
        }
    }
}

#[test]
fn listeners_openings_and_closed_connections_go_on() {
    ENGINES.into_iter().for_each(everything_else_goes_on);
}

fn everything_else_goes_on(make: Make) {
    let mut two = connected(make);
    // One that is being opened while the server's host changes: its SYN-ACK came from the old one.
    let tag = two.apps[0].connect(ip_of(1), 80, 0);
    two.net.round();
    two.net.round();
    stop(&mut two.net, 1);
    take_over(&mut two.net, 1, make);
    two.net.run_for(3 * SECOND);
    let late = two.apps[0].connected(tag).unwrap().unwrap();
    let accepted = two.apps[1].accepted().unwrap();
    // One in FIN-WAIT-2 there, and closed by the other side after another takeover.
    two.apps[1].close(accepted, 0, 0, false);
    two.net.settle();
    stop(&mut two.net, 1);
    take_over(&mut two.net, 1, make);
    two.apps[0].close(late, 0, 0, false);
    two.net.settle();
    assert_eq!(two.net.states(1).iter().filter(|state| **state == "TIME-WAIT").count(), 1, "{:?}", two.net.states(1));
    // The listener takes new ones.
    let tag = two.apps[0].connect(ip_of(1), 80, 0);
    two.net.settle();
    two.apps[0].connected(tag).unwrap().unwrap();
    two.apps[1].accepted().unwrap();
    let Two { mut net, apps: [client, server], .. } = two;
    let ids: Vec<ContextId> =
        net.nodes[1].host.base().contexts().iter().map(|context| ContextId(context.context)).collect();
    assert_eq!(ids, [server.id]);
    net.end_all(vec![client, server]);
}
