//! What applications have, share, leave and may not do, with an engine that carries no data.
mod support;

use context::{Congestion, EarlyData, Endpoint, OptionName, Reply, Request, Slot, Unaccelerated};
use control::{HostConfig, LimitConfig, PortRule};
use engine::stream;
use engine::{DropReason, Event, FlowId};
use std::net::Ipv4Addr;
use support::recording::{Recorded, Recording, Shared};
use support::*;

fn with(first: HostConfig) -> (Net, [Shared; 2]) {
    let mut logs = Vec::new();
    let net = Net::new(vec![first, config(1)], |_, _| {
        let (engine, log) = Recording::boxed();
        logs.push(log);
        engine
    });
    (net, logs.try_into().ok().unwrap())
}

/// Node 0 serves, node 1 is the client. Gives the server's and the client's slot.
fn connect(net: &mut Net, client: &mut App, server: &mut App, port: u16) -> (Slot, Slot) {
    let tag = client.connect(ip_of(0), port, 0);
    net.settle();
    (server.accepted().unwrap(), client.connected(tag).unwrap().unwrap())
}

/// A connection that waits to be accepted; gives its slot.
fn offer(net: &mut Net, client: &mut App, server: &mut App, port: u16) -> Slot {
    client.connect(ip_of(0), port, 0);
    net.settle();
    server.offered().unwrap()
}

fn recorded(log: &Shared) -> Vec<Recorded> {
    std::mem::take(&mut log.lock().unwrap().commands)
}

fn label(app: &mut App, slot: Slot) {
    app.ask(Request::Label { fd: 5, reason: Unaccelerated::No, slot: Some(slot), binding: 0 });
}

#[test]
fn a_forked_child_shares_connections_and_the_last_close_closes() {
    let (mut net, logs) = with(config(0));
    let (mut parent, mut client) = (net.attach(0), net.attach(1));
    parent.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut parent, 80);
    label(&mut parent, slot);
    let token = parent.fork(&mut net);
    let mut child = net.attach_as(0, 0, Some(token)).unwrap();
    recorded(&logs[0]);
    // The parent closes first: nothing happens to the connection, nor to the slot, where its buffers are.
    parent.close(slot, 0, 0, false);
    net.settle();
    let ends = |command: &Recorded| matches!(command, Recorded::Advance(.., true) | Recorded::Remove(_));
    assert!(!recorded(&logs[0]).iter().any(ends));
    assert_eq!(parent.freed(), None);
    let claimed = child.claim(&mut net, parent.id, slot).unwrap();
    assert!(recorded(&logs[0]).contains(&Recorded::Rename(FlowId(0), child.id, claimed)));
    child.close(claimed, 10, 0, false);
    net.settle();
    assert!(recorded(&logs[0]).contains(&Recorded::Advance(FlowId(0), 10, 0, true)));
    assert_eq!((parent.freed(), child.freed()), (Some(slot), Some(claimed)));
    net.end_all(vec![parent, child, client]);
}

#[test]
fn completions_go_back_when_the_child_closes() {
    let (mut net, logs) = with(config(0));
    let (mut parent, mut client) = (net.attach(0), net.attach(1));
    parent.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut parent, 80);
    label(&mut parent, slot);
    let token = parent.fork(&mut net);
    let mut child = net.attach_as(0, 0, Some(token)).unwrap();
    let claimed = child.claim(&mut net, parent.id, slot).unwrap();
    recorded(&logs[0]);
    child.close(claimed, 7, 0, false);
    net.settle();
    let last_words = Recorded::Advance(FlowId(0), 7, 0, false);
    assert_eq!(recorded(&logs[0]), [last_words, Recorded::Rename(FlowId(0), parent.id, slot)]);
    assert_eq!(child.freed(), Some(claimed), "its slot held only a name");
    net.end_all(vec![parent, child, client]);
}

#[test]
fn an_orphaned_child_keeps_connection_and_listener() {
    let (mut net, logs) = with(config(0));
    let (mut parent, mut client) = (net.attach(0), net.attach(1));
    let binding = parent.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut parent, 80);
    label(&mut parent, slot);
    let token = parent.fork(&mut net);
    net.settle();
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, parent.id));
    net.run_for(SECOND);
    let mut child = net.attach_as(0, 0, Some(token)).unwrap();
    assert_eq!(net.states(0), ["ESTABLISHED"]);
    child.claim(&mut net, parent.id, slot).unwrap();
    child.arm(&mut net, binding, 4);
    connect(&mut net, &mut client, &mut child, 80);
    assert_eq!(logs[0].lock().unwrap().installed.len(), 2);
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, child.id));
    net.run_for(200 * SECOND);
    assert!(logs[0].lock().unwrap().attached.is_empty(), "both contexts left the engine");
    net.end_all(vec![client]);
}

#[test]
fn nobody_comes_for_a_fork_and_what_was_held_is_let_go() {
    let (mut net, _) = with(config(0));
    let mut parent = net.attach(0);
    parent.serve(&mut net, 80);
    let token = parent.fork(&mut net);
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, parent.id));
    net.run_for(SECOND);
    assert_eq!(net.nodes[0].host.base().bindings().len(), 1);
    net.run_for(10 * SECOND);
    assert_eq!(net.nodes[0].host.base().bindings().len(), 0);
    assert!(net.attach_as(0, 0, Some(token)).is_err(), "too late");
    net.end_all(vec![]);
}

#[test]
fn a_token_is_for_the_same_user_and_for_once() {
    let (mut net, _) = with(config(0));
    let mut parent = net.attach(0);
    let token = parent.fork(&mut net);
    assert!(net.attach_as(0, 1, Some(token)).is_err());
    assert!(net.attach_as(0, 0, Some(token ^ 1)).is_err());
    let child = net.attach_as(0, 0, Some(token)).unwrap();
    assert!(net.attach_as(0, 0, Some(token)).is_err());
    net.end_all(vec![parent, child]);
}

#[test]
fn unaccepted_connections_of_a_leaving_worker_move() {
    let (mut net, logs) = with(config(0));
    let (mut first, mut client) = (net.attach(0), net.attach(1));
    let binding = first.serve(&mut net, 80);
    let token = first.fork(&mut net);
    let mut second = net.attach_as(0, 0, Some(token)).unwrap();
    let (taken, _) = connect(&mut net, &mut client, &mut first, 80);
    let waiting = offer(&mut net, &mut client, &mut first, 80);
    label(&mut first, taken);
    // Nobody else takes connections yet: the one that waits is kept.
    first.ask(Request::Unbind { binding });
    net.settle();
    assert_eq!(net.nodes[0].host.base().bindings()[0].waiting, 1);
    first.no_replies();
    recorded(&logs[0]);
    second.arm(&mut net, binding, 1);
    let slot = second.accepted().unwrap();
    assert_eq!(recorded(&logs[0]), [Recorded::Move(FlowId(1), second.id, slot)]);
    first.expect(|reply| (*reply == Reply::Unaccept { binding, slot: waiting }).then_some(()));
    assert!(logs[0].lock().unwrap().installed[&FlowId(0)].context == first.id, "the accepted one stays");
    net.end_all(vec![first, second, client]);
}

#[test]
fn a_killed_workers_connections_are_moved_or_closed() {
    let (mut net, logs) = with(config(0));
    let (mut first, mut client) = (net.attach(0), net.attach(1));
    let binding = first.serve(&mut net, 80);
    let token = first.fork(&mut net);
    let mut second = net.attach_as(0, 0, Some(token)).unwrap();
    let (taken, _) = connect(&mut net, &mut client, &mut first, 80);
    offer(&mut net, &mut client, &mut first, 80);
    label(&mut first, taken);
    second.arm(&mut net, binding, 5);
    net.settle();
    let others = net.attach(0);
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, first.id));
    net.settle();
    second.accepted().unwrap();
    assert!(second.accepted().is_none());
    assert!(recorded(&logs[0]).contains(&Recorded::Orphan(FlowId(0))), "the accepted one is closed");
    let contexts: Vec<u32> = net.nodes[0].host.base().contexts().iter().map(|context| context.context).collect();
    assert_eq!(contexts, [second.id.0, others.id.0], "the dead one is forgotten");
    net.end_all(vec![second, others, client]);
}

/// While what a process left in its rings is still taken, nobody new is let in for it.
#[test]
fn a_process_that_has_ended_listens_no_more() {
    let (mut net, _) = with(config(0));
    let (mut first, mut second, mut client) = (net.attach(0), net.attach(0), net.attach(1));
    for app in [&mut first, &mut second] {
        let (binding, _) = app.bind(&mut net, 80, false, true).unwrap();
        app.listen(&mut net, binding, 64).unwrap();
        app.arm(&mut net, binding, 64);
    }
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, first.id));
    let tags: Vec<u32> = (0..32).map(|_| client.connect(ip_of(0), 80, 0)).collect();
    net.settle();
    assert!(tags.into_iter().all(|tag| client.connected(tag).unwrap().is_ok()));
    assert_eq!(std::iter::from_fn(|| second.accepted()).count(), 32);
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, second.id));
    let tag = client.connect(ip_of(0), 80, 0);
    net.settle();
    assert_eq!(client.connected(tag).unwrap().unwrap_err() as i32, libc::ECONNREFUSED);
    net.end_all(vec![client]);
}

#[test]
fn the_last_listener_resets_what_nobody_accepted() {
    let (mut net, _) = with(config(0));
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    let (binding, _) = server.bind(&mut net, 80, false, false).unwrap();
    server.listen(&mut net, binding, 8).unwrap();
    let first = client.connect(ip_of(0), 80, 0);
    net.settle();
    client.connected(first).unwrap().unwrap();
    server.arm(&mut net, binding, 1);
    let second = client.connect(ip_of(0), 80, 0);
    net.settle();
    client.connected(second).unwrap().unwrap();
    assert_eq!(net.states(0).len(), 2, "one waits in the context, one in the control plane");
    net.seen.clear();
    server.ask(Request::Unbind { binding });
    net.settle();
    let resets = net.seen.iter().filter_map(|(_, bytes)| support::recording::parse(bytes));
    assert_eq!(resets.filter(|(_, header, _)| header.flags.has(wire::tcp::Flags::RST)).count(), 2);
    assert!(net.states(0).is_empty());
    net.end_all(vec![server, client]);
}

#[test]
fn connections_are_spread_over_armed_contexts() {
    let (mut net, _) = with(config(0));
    let (mut first, mut client) = (net.attach(0), net.attach(1));
    let binding = first.serve(&mut net, 80);
    let token = first.fork(&mut net);
    let mut second = net.attach_as(0, 0, Some(token)).unwrap();
    second.arm(&mut net, binding, 16);
    for _ in 0..8 {
        client.connect(ip_of(0), 80, 0);
        net.settle();
    }
    let counts = [&mut first, &mut second].map(|app| std::iter::from_fn(|| app.accepted()).count());
    assert_eq!(counts, [4, 4]);
    net.end_all(vec![first, second, client]);
}

// Checks RFC 9293: MUST-43.
#[test]
fn bind_has_the_rules_of_the_kernel() {
    let rule = PortRule { first: 7000, last: 7009, uids: vec![7], commands: vec![] };
    let limits = LimitConfig { bindings_per_application: 4, ..LimitConfig::default() };
    let (mut net, _) = with(HostConfig { port_rules: vec![rule], limits, ..config(0) });
    let (mut a, mut b) = (net.attach_as(0, 5, None).unwrap(), net.attach_as(0, 5, None).unwrap());
    let errno = |result: Result<(u32, Endpoint), u16>| result.unwrap_err() as i32;
    assert_eq!(errno(a.bind(&mut net, 80, false, false)), libc::EACCES);
    assert_eq!(errno(a.bind(&mut net, 7001, false, false)), libc::EACCES);
    let (first, _) = a.bind(&mut net, 8080, true, false).unwrap();
    assert_eq!(errno(b.bind(&mut net, 8080, false, false)), libc::EADDRINUSE);
    let (second, _) = b.bind(&mut net, 8080, true, false).unwrap();
    a.listen(&mut net, first, 1).unwrap();
    assert_eq!(b.listen(&mut net, second, 1).unwrap_err() as i32, libc::EADDRINUSE);
    assert_eq!(b.listen(&mut net, first, 1).unwrap_err() as i32, libc::EINVAL, "not its own");
    let (_, local) = a.bind(&mut net, 0, false, false).unwrap();
    assert!((32_768..=60_999).contains(&local.port));
    a.bind(&mut net, 9000, false, true).unwrap();
    b.bind(&mut net, 9000, false, true).unwrap();
    a.bind(&mut net, 9001, false, false).unwrap();
    assert_eq!(errno(a.bind(&mut net, 9002, false, false)), libc::ENOBUFS);
    let tag = a.next_tag();
    let local = Endpoint::v4(ip_of(1), 1234);
    a.ask(Request::Bind { tag, local, reuse_address: false, reuse_port: false, dual_stack: false });
    net.settle();
    let failed = Reply::Failed { tag, errno: libc::EADDRNOTAVAIL as u16 };
    a.expect(|reply| (*reply == failed).then_some(()));
    net.end_all(vec![a, b]);
}

#[test]
fn unknown_ipv6_addresses_are_refused() {
    let (mut net, _) = with(HostConfig { loopback: false, ..config(0) });
    let mut app = net.attach(0);
    let failures = ["::", "::1", "2001:db8::1", "fe80::1%2", "ff02::1%2"].map(|text| {
        let endpoint = Endpoint::new(text.parse().unwrap(), 4000);
        let tags = [app.next_tag(), app.next_tag()];
        app.ask(Request::Bind {
            tag: tags[0],
            local: endpoint,
            reuse_address: false,
            reuse_port: false,
            dual_stack: false,
        });
        let congestion = Congestion::DEFAULT;
        let (tag, remote, early) = (tags[1], endpoint, EarlyData::No);
        app.ask(Request::Connect { tag, binding: 0, remote, congestion, mss: 0, early });
        net.settle();
        tags.map(|tag| {
            app.expect(|reply| match *reply {
                Reply::Failed { tag: of, errno } if of == tag => Some(i32::from(errno)),
                _ => None,
            })
        })
    });
    assert_eq!(failures, [[libc::EADDRNOTAVAIL, libc::ENETUNREACH]; 5]);
    net.end_all(vec![app]);
}

#[test]
fn an_address_is_free_as_soon_as_its_program_is_gone() {
    let (mut net, _) = with(config(0));
    let mut first = net.attach(0);
    first.serve(&mut net, 80);
    first.bind(&mut net, 81, false, false).unwrap();
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, first.id));
    // Not one round has passed.
    let (mut second, mut client) = (net.attach(0), net.attach(1));
    let tags = [80, 81].map(|port| {
        let (tag, local) = (second.next_tag(), Endpoint::v4(Ipv4Addr::UNSPECIFIED, port));
        second.ask(Request::Bind { tag, local, reuse_address: true, reuse_port: false, dual_stack: false });
        tag
    });
    net.settle();
    let bound = tags.map(|tag| {
        second.expect(|reply| match *reply {
            Reply::Bound { tag: of, binding, .. } if of == tag => Some(Ok(binding)),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno)),
            _ => None,
        })
    });
    let binding = bound[0].unwrap();
    bound[1].unwrap();
    second.listen(&mut net, binding, 4).unwrap();
    second.arm(&mut net, binding, 4);
    connect(&mut net, &mut client, &mut second, 80);
    net.end_all(vec![second, client]);
}

#[test]
fn an_application_cannot_have_more_than_its_share() {
    let limits = LimitConfig { connections_per_application: 3, ..LimitConfig::default() };
    let (mut net, _) = with(HostConfig { limits, ..config(0) });
    let (mut app, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let mut results = Vec::new();
    for _ in 0..4 {
        let tag = app.connect(ip_of(1), 80, 0);
        net.settle();
        results.push(app.connected(tag).unwrap().map_err(i32::from));
    }
    assert!(results[..3].iter().all(|result| result.is_ok()));
    assert_eq!(results[3], Err(libc::ENOBUFS));
    net.end_all(vec![app, server]);
}

#[test]
fn requests_for_foreign_names_are_counted() {
    let (mut net, _) = with(config(0));
    let (mut server, mut client, mut thief) = (net.attach(0), net.attach(1), net.attach(0));
    let binding = server.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
    thief.ask(Request::Unbind { binding });
    thief.ask(Request::Arm { binding, credits: 9 });
    thief.close(slot, 0, 0, true);
    thief.close(Slot { index: u32::MAX, generation: 1 }, 0, 0, true);
    thief.ask(Request::Set { slot, option: OptionName::Keepalive, value: 1 });
    thief.ask(Request::Claim { tag: 1, context: server.id.0, slot });
    thief.ask(Request::Claim { tag: 2, context: u32::MAX, slot });
    thief.ask(Request::Info { tag: 3, slot });
    thief.ask(Request::CancelConnect { tag: 77 });
    thief.end.requests.push([u64::MAX; 8]).unwrap();
    net.settle();
    assert_eq!(net.drops(0, DropReason::RequestInvalid), 9);
    assert_eq!(net.states(0), ["ESTABLISHED"]);
    // A ring that lies about its position ends its context, and only that.
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, thief.id));
    net.end_all(vec![server, client]);
}

#[test]
fn a_passed_socket_is_adopted_once_by_its_token() {
    let (mut net, _) = with(config(0));
    let (mut sender, mut client) = (net.attach(0), net.attach(1));
    let binding = sender.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut sender, 80);
    let (connection, listener) = (sender.pass(&mut net, Some(slot), 0), sender.pass(&mut net, None, binding));
    let (mut receiver, mut other) = (net.attach(0), net.attach_as(0, 1234, None).unwrap());
    assert!(net.attach_as(0, 0, Some(connection.unwrap())).is_err(), "it is no fork's token");
    // The sender ends: what is under way stays.
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, sender.id));
    net.run_for(SECOND);
    assert_eq!(net.states(0), ["ESTABLISHED"]);
    let home = Some((sender.id.0, slot));
    let region = |net: &Net, asks: &App| net.nodes[0].host.base().region_for(asks.id, sender.id).is_ok();
    assert_eq!(other.adopt(&mut net, connection.unwrap()), Err(libc::EPERM as u16));
    assert!(!region(&net, &other) && !region(&net, &receiver), "nobody has a share of the connection");
    assert_eq!(receiver.adopt(&mut net, connection.unwrap()), Ok((home, 0)));
    assert_eq!(other.adopt(&mut net, listener.unwrap()), Ok((None, binding)));
    assert_eq!(receiver.adopt(&mut net, listener.unwrap()), Err(libc::EBADF as u16), "once");
    assert!(!region(&net, &other) && region(&net, &receiver), "a listener has no buffers");
    receiver.claim(&mut net, sender.id, slot).unwrap();
    other.arm(&mut net, binding, 4);
    connect(&mut net, &mut client, &mut other, 80);
    net.end_all(vec![receiver, other, client]);
}

#[test]
fn what_is_passed_and_not_adopted_is_freed_and_reported() {
    let limits = LimitConfig { passes_per_application: 2, ..LimitConfig::default() };
    let (mut net, _) = with(HostConfig { limits, ..config(0) });
    let mut sender = net.attach(0);
    let binding = sender.serve(&mut net, 80);
    assert_eq!(sender.pass(&mut net, None, binding + 1), Err(libc::EINVAL as u16));
    assert_eq!(sender.pass(&mut net, Some(Slot { index: 0, generation: 1 }), 0), Err(libc::EBADF as u16));
    let kept = sender.pass(&mut net, None, binding).unwrap();
    let withdrawn = sender.pass(&mut net, None, binding).unwrap();
    assert_eq!(sender.pass(&mut net, None, binding), Err(libc::ETOOMANYREFS as u16));
    let mut thief = net.attach(0);
    thief.ask(Request::Withdraw { token: withdrawn });
    sender.ask(Request::Withdraw { token: withdrawn });
    net.settle();
    assert_eq!(net.drops(0, DropReason::RequestInvalid), 3, "the two that were refused, and the thief's");
    assert_eq!(thief.adopt(&mut net, withdrawn), Err(libc::EBADF as u16));
    net.run_for(61 * SECOND);
    assert_eq!(net.drops(0, DropReason::PassNotAdopted), 1);
    sender.expect(|reply| (*reply == Reply::NotAdopted).then_some(()));
    assert_eq!(thief.adopt(&mut net, kept), Err(libc::EBADF as u16));
    net.end_all(vec![sender, thief]);
}

#[test]
fn a_reused_number_inherits_nothing_that_was_passed() {
    let limits = LimitConfig { passes_per_application: 1, ..LimitConfig::default() };
    let (mut net, _) = with(HostConfig { limits, ..config(0) });
    let mut sender = net.attach(0);
    let binding = sender.serve(&mut net, 80);
    let token = sender.pass(&mut net, None, binding).unwrap();
    let number = sender.id;
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, number));
    net.run_for(SECOND);
    let mut next = net.attach(0);
    assert_eq!(next.id, number);
    next.ask(Request::Withdraw { token });
    net.settle();
    assert_eq!(net.drops(0, DropReason::RequestInvalid), 1, "it is not its own to withdraw");
    let own = next.serve(&mut net, 81);
    next.pass(&mut net, None, own).unwrap();
    next.no_replies();
    net.run_for(59 * SECOND + SECOND / 2);
    assert_eq!(net.drops(0, DropReason::PassNotAdopted), 1, "what the one before passed is let go");
    next.no_replies();
    net.end_all(vec![next]);
}

#[test]
fn forks_without_children_have_a_limit() {
    let limits = LimitConfig { forks_per_application: 3, ..LimitConfig::default() };
    let (mut net, _) = with(HostConfig { limits, ..config(0) });
    let mut app = net.attach(0);
    for _ in 0..3 {
        app.fork(&mut net);
    }
    app.ask(Request::Fork { tag: 99 });
    net.settle();
    app.expect(|reply| (*reply == Reply::Failed { tag: 99, errno: libc::EAGAIN as u16 }).then_some(()));
    net.run_for(6 * SECOND);
    app.fork(&mut net);
    net.end_all(vec![app]);
}

#[test]
fn the_oldest_in_time_wait_gives_way() {
    let limits = LimitConfig { max_time_wait: 3, ..LimitConfig::default() };
    let (mut net, logs) = with(HostConfig { limits, ..config(0) });
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let mut ports = Vec::new();
    for _ in 0..5 {
        let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
        ports.push(net.nodes[0].host.base().flows()[0].remote.port());
        server.close(slot, 0, 0, false);
        net.settle();
        net.run_for(MS);
    }
    let waiting: Vec<u16> = net.nodes[0].host.base().flows().iter().map(|flow| flow.remote.port()).collect();
    assert_eq!(waiting.len(), 3);
    assert!(ports[2..].iter().all(|port| waiting.contains(port)), "{ports:?} {waiting:?}");
    assert!(logs[0].lock().unwrap().installed.is_empty());
    net.end_all(vec![server, client]);
}

#[test]
fn replies_wait_for_a_slow_application() {
    let (mut net, _) = with(config(0));
    let mut app = net.attach(0);
    for round in 0..4 {
        for step in 0..255 {
            app.ask(Request::Info { tag: round * 1000 + step, slot: Slot::default() });
        }
        net.settle();
        if round > 0 {
            break;
        }
    }
    let mut failed = Vec::new();
    for _ in 0..10 {
        while let Some(tag) = app.find(|reply| if let Reply::Failed { tag, .. } = *reply { Some(tag) } else { None }) {
            failed.push(tag);
        }
        net.settle();
    }
    let expected: Vec<u32> = (0..255).chain(1000..1255).collect();
    assert_eq!(failed, expected);
    net.end_all(vec![app]);
}

/// A peer that acknowledges the FIN and resets at once: both in one batch of the engine.
#[test]
fn a_reset_that_acknowledges_the_fin_ends_all() {
    let (mut net, logs) = with(config(0));
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
    logs[0].lock().unwrap().after_fin.push(Event::Transport(stream::Event::Reset(FlowId(0))));
    server.close(slot, 0, 0, false);
    net.settle();
    assert_eq!((net.states(0), server.freed()), (vec![], Some(slot)));
    // In TIME-WAIT, it is nothing (RFC 1337).
    let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
    let flow = *logs[0].lock().unwrap().installed.keys().next().expect("it is there");
    logs[0]
        .lock()
        .unwrap()
        .after_fin
        .extend([Event::Transport(stream::Event::PeerFin(flow)), Event::Transport(stream::Event::Reset(flow))]);
    server.close(slot, 0, 0, false);
    net.settle();
    assert_eq!((net.states(0), server.freed()), (vec!["TIME-WAIT"], Some(slot)));
    net.end_all(vec![server, client]);
}

// Checks RFC 9293: MUST-12.
#[test]
fn a_reset_is_reported_and_the_slot_lives_until_closed() {
    let (mut net, logs) = with(config(0));
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
    logs[0].lock().unwrap().events.push(Event::Transport(stream::Event::Reset(FlowId(0))));
    net.settle();
    assert_eq!(server.error(), Some((slot, libc::ECONNRESET as u16)));
    assert_eq!((net.states(0), server.freed()), (vec!["CLOSED"], None));
    server.close(slot, 0, 0, false);
    net.settle();
    assert_eq!((server.freed(), net.states(0)), (Some(slot), vec![]));
    // The same slot, used again, has another generation: an old name is nothing.
    let (again, _) = connect(&mut net, &mut client, &mut server, 80);
    assert_eq!((again.index, again.generation), (slot.index, slot.generation + 1));
    server.close(slot, 0, 0, true);
    net.settle();
    assert_eq!(net.states(0), ["ESTABLISHED"]);
    net.end_all(vec![server, client]);
}

// Checks RFC 9293: SHLD-3.
#[test]
fn closing_with_unread_data_resets() {
    let (mut net, logs) = with(config(0));
    let (mut server, mut client) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let (slot, _) = connect(&mut net, &mut client, &mut server, 80);
    let stats = logs[0].lock().unwrap().installed[&FlowId(0)].stats.clone();
    stats.rx_bytes.store(100, std::sync::atomic::Ordering::Relaxed);
    recorded(&logs[0]);
    server.close(slot, 0, 99, false);
    net.settle();
    assert_eq!(recorded(&logs[0]), [Recorded::Remove(FlowId(0))]);
    assert_eq!(net.states(0), Vec::<&str>::new(), "no TIME-WAIT after a reset");
    net.end_all(vec![server, client]);
}

#[test]
fn what_a_descriptor_is_can_be_asked() {
    let (mut net, _) = with(config(0));
    let mut app = net.attach(0);
    app.ask(Request::Label { fd: 3, reason: Unaccelerated::Loopback, slot: None, binding: 0 });
    app.ask(Request::Label { fd: 4, reason: Unaccelerated::No, slot: None, binding: 1 });
    net.settle();
    let host = &net.nodes[0].host;
    let pid = host.base().contexts()[0].pid;
    let labels = host.base().labels(pid).unwrap();
    let [three, four] = [3, 4].map(|fd| labels.iter().find(|label| label.fd == fd).unwrap());
    assert!(!three.accelerated && three.reason.contains("loopback"));
    assert!(four.accelerated && four.binding == Some(1));
    assert_eq!((labels.len(), host.base().labels(pid + 1)), (2, None));
    net.end_all(vec![app]);
}
