//! A program's connections share a budget of buffers: the first ones have full buffers, later ones smaller ones.
mod support;

use context::{Reply, Request, Slot};
use control::HostConfig;
use engine::FlowId;
use support::recording::{Recorded, Recording, Shared};
use support::*;
use wire::tcp::Flags;

const FULL: u64 = 2 * 65_536;

/// Node 0 has a budget.
fn with(context_bytes: u64) -> (Net, Shared) {
    let mut first = config(0);
    (first.memory.context_bytes, first.memory.slots) = (context_bytes, 8);
    net_of(first)
}

fn net_of(first: HostConfig) -> (Net, Shared) {
    let mut logs = Vec::new();
    let net = Net::new(vec![first, config(1)], |_, _: &HostConfig| {
        let (engine, log) = Recording::boxed();
        logs.push(log);
        engine
    });
    (net, logs.remove(0))
}

fn connect(net: &mut Net, client: &mut App, server: &mut App) -> Slot {
    begin(net, client);
    server.accepted().unwrap()
}

/// The client's side of a connection.
fn begin(net: &mut Net, client: &mut App) {
    let tag = client.connect(ip_of(0), 80, 0);
    net.settle();
    client.connected(tag).unwrap().unwrap();
}

/// KiB of the receive and the transmit buffer that the engine was given, of which the program sees the same.
fn sizes(log: &Shared, app: &App, slot: Slot) -> (u32, u32) {
    let log = log.lock().unwrap();
    let params = log.installed.values().find(|params| params.context == app.id && params.slot == slot).unwrap();
    let (rx, tx) = app.end.map_buffers(slot).unwrap();
    assert_eq!((params.rx.size(), params.tx.size()), (rx.size(), tx.size()));
    (rx.size() >> 10, tx.size() >> 10)
}

#[test]
fn later_connections_have_smaller_buffers_for_a_while() {
    let (mut net, log) = with(2 * FULL + 1000);
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let slots: Vec<Slot> = (0..6).map(|_| connect(&mut net, &mut client, &mut server)).collect();
    let kib: Vec<_> = slots.iter().map(|slot| sizes(&log, &server, *slot)).collect();
    assert_eq!(kib, [(64, 64), (64, 64), (32, 32), (32, 32), (16, 16), (16, 16)]);
    // What was promised before there was a slot is no more than the smallest buffer.
    let sent = net.seen.iter().filter(|(from, _)| *from == 0);
    let answers: Vec<u16> = sent
        .filter_map(|(_, bytes)| support::recording::parse(bytes))
        .filter(|(_, header, _)| header.flags.has(Flags::SYN))
        .map(|(_, header, _)| header.window)
        .collect();
    assert_eq!(answers, [16_384; 6]);
    for slot in [slots[1], slots[4], slots[2]] {
        server.close(slot, 0, 0, true);
        net.settle();
    }
    let again: Vec<_> = (0..4).map(|_| connect(&mut net, &mut client, &mut server)).collect();
    assert_eq!(again.iter().map(|slot| slot.index).collect::<Vec<_>>(), [1, 2, 4, 6], "the largest first");
    net.end_all(vec![server, client]);
}

#[test]
fn a_connection_moves_only_where_its_buffers_are_no_smaller() {
    let (mut net, log) = with(FULL);
    let (mut first, mut client) = (net.attach(0), net.attach(1));
    let binding = first.serve(&mut net, 80);
    client.serve(&mut net, 90);
    let token = first.fork(&mut net);
    let mut second = net.attach_as(0, 0, Some(token)).unwrap();
    let tag = second.connect(ip_of(1), 90, 0);
    net.settle();
    let own = second.connected(tag).unwrap().unwrap();
    begin(&mut net, &mut client);
    let waiting = first.offered().unwrap();
    assert_eq!((own.index, waiting.index), (0, 0), "each has the one full pair of its context");
    first.ask(Request::Unbind { binding });
    net.settle();
    second.arm(&mut net, binding, 2);
    net.settle();
    assert_eq!(net.nodes[0].host.base().bindings()[0].waiting, 1, "the other's next buffers are half as large");
    assert!(second.accepted().is_none());
    log.lock().unwrap().commands.clear();
    second.close(own, 0, 0, true);
    net.settle();
    let slot = second.accepted().unwrap();
    assert_eq!(slot.index, 0);
    assert!(log.lock().unwrap().commands.contains(&Recorded::Move(FlowId(1), second.id, slot)));
    first.expect(|reply| (*reply == Reply::Unaccept { binding, slot: waiting }).then_some(()));
    net.end_all(vec![first, second, client]);
}

/// Node 0 has two slots of eight with larger buffers for long paths.
fn with_long_paths() -> (Net, Shared) {
    let mut first = config(0);
    (first.memory.long_path_bytes, first.memory.slots) = (1 << 18, 8);
    net_of(first)
}

/// Everything takes a while, and a round trip twice as long.
fn take_time(net: &mut Net, way: u64) {
    for _ in 0..8 {
        net.round();
        net.now += way;
    }
    net.settle();
}

#[test]
fn long_paths_have_larger_buffers_on_both_sides() {
    let (mut net, log) = with_long_paths();
    let (mut first, mut other) = (net.attach(0), net.attach(1));
    first.serve(&mut net, 80);
    other.serve(&mut net, 90);
    let near = connect(&mut net, &mut other, &mut first);
    assert_eq!((near.index, sizes(&log, &first, near)), (2, (64, 64)));
    let tag = other.connect(ip_of(0), 80, 0);
    take_time(&mut net, 300_000);
    other.connected(tag).unwrap().unwrap();
    let accepted = first.accepted().unwrap();
    let tag = first.connect(ip_of(1), 90, 0);
    take_time(&mut net, 300_000);
    let opened = first.connected(tag).unwrap().unwrap();
    assert_eq!(
        [accepted, opened].map(|slot| (slot.index, sizes(&log, &first, slot))),
        [(0, (256, 256)), (1, (256, 256))]
    );
    // There are no more of them: the next has the usual ones, and so has one over a path that is not long enough.
    let tag = first.connect(ip_of(1), 90, 0);
    take_time(&mut net, 300_000);
    let third = first.connected(tag).unwrap().unwrap();
    first.close(accepted, 0, 0, true);
    net.settle();
    let tag = first.connect(ip_of(1), 90, 0);
    take_time(&mut net, 100_000);
    let shorter = first.connected(tag).unwrap().unwrap();
    assert_eq!([third, shorter].map(|slot| sizes(&log, &first, slot)), [(64, 64); 2]);
    // Where nothing else is left, any connection has them.
    let rest: Vec<_> = (0..4).map(|_| connect(&mut net, &mut other, &mut first)).collect();
    assert_eq!(rest.iter().map(|slot| slot.index).collect::<Vec<_>>(), [5, 6, 7, 0]);
    net.end_all(vec![first, other]);
}

#[test]
fn a_long_path_connection_moves_to_equal_buffers_only() {
    let (mut net, log) = with_long_paths();
    let (mut first, mut client) = (net.attach(0), net.attach(1));
    let binding = first.serve(&mut net, 80);
    client.serve(&mut net, 90);
    let token = first.fork(&mut net);
    let mut second = net.attach_as(0, 0, Some(token)).unwrap();
    let own: Vec<Slot> = (0..2)
        .map(|_| {
            let tag = second.connect(ip_of(1), 90, 0);
            take_time(&mut net, 300_000);
            second.connected(tag).unwrap().unwrap()
        })
        .collect();
    client.connect(ip_of(0), 80, 0);
    take_time(&mut net, 300_000);
    let waiting = first.offered().unwrap();
    assert_eq!((own[0].index, own[1].index, waiting.index), (0, 1, 0));
    first.ask(Request::Unbind { binding });
    net.settle();
    second.arm(&mut net, binding, 2);
    net.settle();
    assert!(second.accepted().is_none(), "its peer was promised more than the other's next buffers hold");
    log.lock().unwrap().commands.clear();
    second.close(own[1], 0, 0, true);
    net.settle();
    let slot = second.accepted().unwrap();
    assert_eq!(slot.index, 1);
    assert!(
        log.lock()
            .unwrap()
            .commands
            .iter()
            .any(|recorded| matches!(recorded, Recorded::Move(_, id, to) if (*id, *to) == (second.id, slot)))
    );
    net.end_all(vec![first, second, client]);
}
