//! Two connections of a proxy become one path: joining, passing on, and every way to end, in virtual time.
mod support;

use context::{Reply, Request, Slot, SpliceEnd};
use control::HostConfig;
use engine::{DropReason, Nanos};
use flextoe::Mapping;
use proptest::prelude::*;
use support::programs::Program;
use support::recording::{header, parse, tcp_frame};
use support::splice_lab::*;
use support::splicer::Table;
use support::*;
use wire::Seq;
use wire::tcp::Flags;

#[test]
fn bytes_pass_through_a_splice_and_both_ends_close() {
    let mut lab = Lab::new();
    // The proxy has read and written before: the numbers of the two connections differ.
    let [first, a, b, last] = lab.slots;
    lab.client.write(first, b"CONNECT\n");
    lab.net.settle();
    assert_eq!(lab.proxy.read(a), b"CONNECT\n");
    lab.proxy.write(b, b"hello, server");
    lab.proxy.write(a, b"OK\n");
    lab.net.run_for(MS);
    assert_eq!((lab.client.read(first), lab.server.read(last)), (b"OK\n".to_vec(), b"hello, server".to_vec()));
    lab.net.run_for(100 * MS);
    assert_eq!(lab.splice(), Ok(()));
    assert_eq!(lab.net.states(PROXY), ["SPLICED", "SPLICED"]);
    lab.exchange(500_000);
    assert!(lab.figure("bytes") >= 1_000_000 && lab.model.lock().unwrap().sent > 600);
    assert_eq!(lab.figure("passed_by_control_plane"), 0, "the control plane was not needed");
    lab.close_all();
    // The server's side was closed first by the proxy's host: it keeps TIME-WAIT there, and nowhere else.
    assert_eq!(lab.net.states(PROXY), ["CLOSED", "CLOSED", "TIME-WAIT"]);
    assert_eq!((lab.figure("made"), lab.figure("resets"), lab.splices()), (1, 0, 0));
    lab.net.run_for(11 * SECOND);
    assert_eq!(lab.net.states(PROXY), ["CLOSED", "CLOSED"], "only the application's names are left");
    lab.end();
}

#[test]
fn a_splice_survives_loss_and_the_loss_of_its_module() {
    for mapping in [Mapping::default(), Mapping { threads: true, preprocess: 2, ..Mapping::default() }] {
        let mut lab = Lab::with(mapping, |_, config| config);
        assert_eq!(lab.splice(), Ok(()));
        let mut state = 1u32;
        lab.net.filter = Box::new(move |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16 >= 65_536 / 20
        });
        lab.exchange(300_000);
        assert_eq!(lab.figure("passed_by_control_plane"), 0);
        lab.net.nodes[PROXY].host.base_mut().set_splice_table(None);
        assert!(lab.model.lock().unwrap().entries.is_empty());
        lab.exchange(100_000);
        assert!(lab.figure("passed_by_control_plane") > 100);
        let table = Table(lab.model.clone());
        lab.net.nodes[PROXY].host.base_mut().set_splice_table(Some(Box::new(table)));
        let before = lab.figure("passed_by_control_plane");
        lab.exchange(100_000);
        assert_eq!(lab.figure("passed_by_control_plane"), before);
        lab.close_all();
        assert!(lab.figure("bytes") >= 1_000_000);
        lab.end();
    }
}

/// Pairs go on in the next daemon, in the middle of transfers, with what each side has seen.
#[test]
fn a_splice_is_handed_over() {
    let mut lab = Lab::new();
    assert_eq!(lab.splice(), Ok(()));
    for has_module in [false, true, true, false] {
        lab.exchange(100_000);
        let before = (lab.figure("bytes"), lab.figure("passed_by_control_plane"));
        lab.hand_over(has_module);
        assert_eq!((lab.figure("bytes"), lab.figure("passed_by_control_plane")), before);
        assert_eq!(lab.net.states(PROXY), ["SPLICED", "SPLICED"]);
        lab.exchange(100_000);
        assert_eq!(lab.figure("passed_by_control_plane") == before.1, has_module);
    }
    lab.close_all();
    lab.hand_over(true);
    assert_eq!((lab.figure("made"), lab.figure("resets"), lab.splices()), (1, 0, 0));
    assert_eq!(lab.net.states(PROXY), ["CLOSED", "CLOSED", "TIME-WAIT"]);
    lab.end();
}

/// So do pairs of which one direction has ended, and pairs that nobody has a name for any more.
#[test]
fn half_a_splice_is_handed_over() {
    for closer in [CLIENT, SERVER] {
        let mut lab = Lab::new();
        assert_eq!(lab.splice(), Ok(()));
        let [_, a, b, _] = lab.slots;
        for slot in [a, b] {
            lab.proxy.app.close(slot, 0, 0, false);
        }
        lab.net.settle();
        lab.close_one(closer);
        lab.hand_over(true);
        lab.send_to(closer, 400_000);
        lab.hand_over(true);
        lab.close_one(CLIENT + SERVER - closer);
        lab.net.run_for(20 * SECOND);
        assert_eq!((lab.figure("made"), lab.figure("resets"), lab.splices()), (1, 0, 0));
        lab.end();
    }
}

#[test]
fn half_a_splice_goes_on_in_the_data_path() {
    for closer in [CLIENT, SERVER] {
        let mut lab = Lab::new();
        assert_eq!(lab.splice(), Ok(()));
        let [first, _, _, last] = lab.slots;
        lab.close_one(closer);
        lab.send_to(closer, 400_000);
        assert_eq!(lab.figure("passed_by_control_plane"), 1, "the FIN alone");
        lab.client.shut(first);
        lab.server.shut(last);
        lab.net.run_for(SECOND);
        assert_eq!(lab.splices(), 0);
        assert_eq!((lab.over().unwrap().1, lab.over().unwrap().1), (0, 0));
        lab.end();
    }
}

#[test]
fn what_is_not_quiet_is_not_spliced_and_goes_on() {
    let mut lab = Lab::new();
    let [first, a, b, last] = lab.slots;
    lab.client.write(first, b"unread");
    lab.net.settle();
    assert_eq!(lab.splice(), Err(libc::EAGAIN as u16));
    assert_eq!(lab.proxy.read(a), b"unread");
    lab.net.settle();
    // A byte that no bump reported is unsent.
    let socket = lab.proxy.sockets.0.get_mut(&b).unwrap();
    socket.tx.write(socket.tx_head, b"!");
    socket.tx_head += 1;
    lab.net.filter = Box::new(|from, _| from != SERVER);
    assert_eq!(lab.splice(), Err(libc::EAGAIN as u16), "not acknowledged");
    lab.net.filter = Box::new(|_, _| true);
    let Lab { net, server, .. } = &mut lab;
    net.run_until(10 * SECOND, |_| server.read(last) == b"!");
    // Both go on by themselves: neither is frozen.
    lab.proxy.write(a, b"to client");
    lab.proxy.write(b, b"to server");
    lab.net.run_for(SECOND);
    assert_eq!((lab.client.read(first), lab.server.read(last)), (b"to client".to_vec(), b"to server".to_vec()));
    assert_eq!(lab.splice(), Ok(()));
    lab.exchange(1000);
    lab.end();
}

#[test]
fn requests_that_cannot_be_are_refused() {
    let few = |node, config: HostConfig| match node {
        PROXY => HostConfig { limits: control::LimitConfig { max_splices: 1, ..config.limits }, ..config },
        _ => config,
    };
    let mut lab = Lab::with(Mapping::default(), few);
    let [_, a, b, _] = lab.slots;
    assert_eq!(lab.splice_slots(a, a), Err(libc::EINVAL as u16));
    assert_eq!(lab.splice_slots(a, Slot { generation: 9, ..b }), Err(libc::EBADF as u16));
    let token = lab.proxy.app.fork(&mut lab.net);
    assert_eq!(lab.splice(), Err(libc::EBUSY as u16), "a child may use them");
    let child = lab.net.attach_as(PROXY, 0, Some(token)).unwrap();
    lab.net.nodes[PROXY].host.use_base(lab.net.now, |tcp, context| tcp.detach(context, child.id));
    lab.net.run_for(SECOND);
    assert_eq!(lab.splice(), Ok(()));
    assert_eq!(lab.splice(), Err(libc::ENOTCONN as u16), "they are joined already");
    let Lab { net, client, proxy, server, .. } = &mut lab;
    let [_, c, d, _] = pair(net, client, proxy, server);
    assert_eq!(lab.splice_slots(c, d), Err(libc::ENOBUFS as u16));
    assert_eq!(lab.figure("refused"), 1);
    lab.net.nodes[PROXY].host.base_mut().set_splice_table(None);
    assert_eq!(lab.splice_slots(c, d), Err(libc::EOPNOTSUPP as u16));
    lab.end();
}

#[test]
fn peers_that_agreed_on_other_things_are_not_joined() {
    let other = |node, config: HostConfig| if node == SERVER { HostConfig { mtu: 1400, ..config } } else { config };
    let mut lab = Lab::with(Mapping::default(), other);
    assert_eq!(lab.splice(), Err(libc::EPROTONOSUPPORT as u16));
    lab.end();
}

#[test]
fn a_reset_ends_the_splice_for_everybody() {
    for closer in [CLIENT, SERVER] {
        let mut lab = Lab::new();
        assert_eq!(lab.splice(), Ok(()));
        lab.exchange(10_000);
        let [first, _, _, last] = lab.slots;
        if closer == CLIENT {
            lab.client.abort(first)
        } else {
            lab.server.abort(last)
        };
        lab.net.run_for(MS);
        let other = if closer == CLIENT { &mut lab.server } else { &mut lab.client };
        assert_eq!(other.app.error().unwrap().1, libc::ECONNRESET as u16);
        let reset = libc::ECONNRESET as u16;
        assert_eq!((lab.over().unwrap().1, lab.over().unwrap().1), (reset, reset));
        lab.net.run_for(3 * SECOND);
        assert_eq!((lab.splices(), lab.figure("resets")), (0, 1));
        lab.end();
    }
}

#[test]
fn the_proxys_death_does_not_end_its_splices() {
    let mut lab = Lab::new();
    assert_eq!(lab.splice(), Ok(()));
    lab.net.nodes[PROXY].host.use_base(lab.net.now, |tcp, context| tcp.detach(context, lab.proxy.app.id));
    lab.net.run_for(SECOND);
    let left: Vec<_> = lab.tables().into_iter().filter(|(name, _)| *name != "timers").collect();
    assert_eq!(left, [("connections", 2), ("splices", 1)], "nothing else is held");
    lab.exchange(200_000);
    lab.client.shut(lab.slots[0]);
    lab.server.shut(lab.slots[3]);
    lab.net.run_for(SECOND);
    assert_eq!(lab.splices(), 0);
    let Lab { mut net, client, server, .. } = lab;
    net.end_all(vec![client.app, server.app]);
}

#[test]
fn the_proxy_may_close_its_names_in_any_order() {
    let mut lab = Lab::new();
    let [_, a, b, _] = lab.slots;
    assert_eq!(lab.splice(), Ok(()));
    let Lab { net, proxy, .. } = &mut lab;
    proxy.sockets.close(net, &mut proxy.app, b);
    assert_eq!(proxy.app.freed(), Some(b));
    lab.exchange(10_000);
    lab.client.shut(lab.slots[0]);
    lab.server.shut(lab.slots[3]);
    lab.net.run_for(SECOND);
    assert_eq!((lab.over(), lab.over()), (Some((a, 0)), None));
    lab.end();
}

/// A close that comes while two connections are being joined wins, and nothing stays frozen.
#[test]
fn a_connection_that_closes_meanwhile_is_not_joined() {
    let mut lab = Lab::new();
    let [first, a, b, last] = lab.slots;
    let tag = lab.proxy.app.next_tag();
    let end = |slot| SpliceEnd { slot, tx_head: 0, rx_head: 0 };
    lab.proxy.app.ask(Request::Splice { tag, ends: [end(a), end(b)] });
    lab.proxy.app.close(a, 0, 0, false);
    lab.net.run_for(SECOND);
    let failed =
        lab.proxy.app.expect(|reply| if let Reply::Failed { errno, .. } = *reply { Some(errno) } else { None });
    assert_eq!(failed, libc::EAGAIN as u16);
    assert!(lab.client.at_end(first), "its FIN was sent");
    lab.proxy.write(b, b"still here");
    lab.net.run_for(SECOND);
    assert_eq!(lab.server.read(last), b"still here");
    lab.end();
}

#[test]
fn silence_ends_a_splice_after_a_long_time() {
    let mut lab = Lab::new();
    assert_eq!(lab.splice(), Ok(()));
    lab.net.run_for(7000 * SECOND);
    lab.exchange(10);
    lab.net.run_for(7000 * SECOND);
    assert_eq!(lab.splices(), 1, "it was used meanwhile");
    lab.net.run_for(300 * SECOND);
    assert_eq!(lab.splices(), 0);
    assert_eq!(lab.over().unwrap().1, libc::ETIMEDOUT as u16);
    for program in [&mut lab.client, &mut lab.server] {
        assert_eq!(program.app.error().unwrap().1, libc::ECONNRESET as u16, "the reset is exact");
    }
    lab.end();
}

/// The last segment from a node: addresses of the sender, headers.
fn last_from(net: &Net, node: usize) -> (wire::ipv4::Header, wire::tcp::Header) {
    let (ip, tcp, _) =
        net.seen.iter().rev().filter(|(from, _)| *from == node).find_map(|(_, frame)| parse(frame)).unwrap();
    (ip, tcp)
}

fn forge(lab: &mut Lab, seq: Seq, flags: Flags, wait: Nanos) {
    let (ip, tcp) = last_from(&lab.net, CLIENT);
    let forged = header(tcp.src_port, tcp.dst_port, seq, tcp.ack, flags);
    let frame = tcp_frame((mac_of(CLIENT), ip.src), (mac_of(PROXY), ip.dst), &forged, &[]);
    lab.net.inject(PROXY, &frame);
    lab.net.run_for(wait);
}

#[test]
fn unknown_peers_cannot_end_a_splice() {
    let mut lab = Lab::new();
    assert_eq!(lab.splice(), Ok(()));
    lab.exchange(10_000);
    let (_, tcp) = last_from(&lab.net, CLIENT);
    for (flags, far) in [(Flags::RST, 1 << 30), (Flags::FIN | Flags::ACK, 1 << 29), (Flags::RST | Flags::ACK, 1 << 31)]
    {
        forge(&mut lab, tcp.seq + far, flags, MS);
    }
    assert_eq!(lab.net.drops(PROXY, DropReason::SpliceRefused), 3);
    forge(&mut lab, tcp.seq + 5, Flags::SYN, MS);
    assert_eq!(lab.net.drops(PROXY, DropReason::SynChallenged), 1);
    lab.exchange(10_000);
    let handed = lab.figure("passed_by_control_plane");
    // Near enough to be passed on: the server does not accept it, and the client goes on.
    forge(&mut lab, tcp.seq + 10_000 + 2000, Flags::RST, MS);
    assert_eq!(lab.over().unwrap().1, libc::ECONNRESET as u16, "the proxy, which is not in the path, gets the error");
    lab.exchange(100_000);
    assert_eq!(lab.figure("passed_by_control_plane"), handed + 3, "forged, challenged, gone on");
    let (_, tcp) = last_from(&lab.net, CLIENT);
    forge(&mut lab, tcp.seq + 3000, Flags::FIN | Flags::ACK, MS);
    lab.exchange(100_000);
    assert_eq!(lab.splices(), 1);
    lab.client.shut(lab.slots[0]);
    lab.server.shut(lab.slots[3]);
    lab.net.run_for(SECOND);
    assert_eq!(lab.splices(), 0);
    lab.end();
}

#[test]
fn a_four_tuple_can_be_used_again_while_its_splice_lingers() {
    let mut lab = Lab::new();
    assert_eq!(lab.splice(), Ok(()));
    lab.exchange(10);
    lab.client.abort(lab.slots[0]);
    lab.net.run_for(MS);
    assert_eq!(lab.splices(), 1);
    let (_, tcp) = last_from(&lab.net, CLIENT);
    lab.net.filter = Box::new(|from, _| from != PROXY);
    forge(&mut lab, tcp.seq + 100_000, Flags::SYN, MS);
    assert_eq!(lab.splices(), 0);
    assert!(lab.net.states(PROXY).contains(&"SYN-RECEIVED"), "{:?}", lab.net.states(PROXY));
    lab.end();
}

/// What may happen to a splice, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Write(usize, u16),
    Shut(usize),
    Abort(usize),
    /// The proxy closes one of its names, or goes.
    Close(bool),
    Leave,
    Module(bool),
    Forge(u8, u32),
    Lose(u8),
    TimeWait(u32),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2usize, 1..30_000u16).prop_map(|(side, len)| Step::Write(side, len)),
        2 => (0..2usize).prop_map(Step::Shut),
        1 => (0..2usize).prop_map(Step::Abort),
        1 => any::<bool>().prop_map(Step::Close),
        1 => Just(Step::Leave),
        2 => any::<bool>().prop_map(Step::Module),
        2 => (any::<u8>(), prop_oneof![0..100_000u32, any::<u32>()]).prop_map(|(flags, at)| Step::Forge(flags, at)),
        1 => (0..40u8).prop_map(Step::Lose),
        4 => (1..2000u32).prop_map(Step::TimeWait),
    ]
}

/// Does a step, as far as the programs still can.
fn take(lab: &mut Lab, step: Step, (ip, tcp): (wire::ipv4::Header, wire::tcp::Header), gone: &mut bool) {
    let slots = lab.slots;
    let program = |lab: &mut Lab, side: usize, act: &dyn Fn(&mut Program, Slot)| {
        let (program, slot) = if side == 0 { (&mut lab.client, slots[0]) } else { (&mut lab.server, slots[3]) };
        if program.sockets.0.contains_key(&slot) {
            act(program, slot);
        }
    };
    match step {
        Step::Write(side, len) => {
            program(lab, side, &|program, slot| {
                program.write(slot, &vec![7; len as usize]);
            });
        }
        Step::Shut(side) => program(lab, side, &Program::shut),
        Step::Abort(side) => program(lab, side, &Program::abort),
        Step::Close(first) if !*gone => {
            let slot = slots[if first { 1 } else { 2 }];
            let Lab { net, proxy, .. } = lab;
            if proxy.sockets.0.contains_key(&slot) {
                proxy.sockets.close(net, &mut proxy.app, slot);
            }
        }
        Step::Leave if !*gone => {
            *gone = true;
            lab.net.nodes[PROXY].host.use_base(lab.net.now, |tcp, context| tcp.detach(context, lab.proxy.app.id));
        }
        Step::Module(there) => {
            let table = there.then(|| Box::new(Table(lab.model.clone())) as Box<dyn control::SpliceTable>);
            lab.net.nodes[PROXY].host.base_mut().set_splice_table(table);
        }
        Step::Forge(flags, at) => {
            let forged = header(tcp.src_port, tcp.dst_port, tcp.seq + at, tcp.ack, Flags(flags));
            lab.net.inject(PROXY, &tcp_frame((mac_of(CLIENT), ip.src), (mac_of(PROXY), ip.dst), &forged, b"?"));
        }
        Step::Lose(percent) => {
            let mut state = percent as u32;
            lab.net.filter = Box::new(move |_, _| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 16 >= percent as u32 * 655
            });
        }
        Step::TimeWait(ms) => lab.net.run_for(ms as Nanos * MS),
        _ => {}
    }
}

proptest! {
    #![proptest_config(cases(200))]

    /// Whatever happens, in whatever order: nothing panics, and in the end nothing is left on any host or in the
    /// module.
    #[test]
    fn nothing_is_left_of_a_splice(steps in prop::collection::vec(any_step(), 1..40)) {
        let mut lab = Lab::new();
        prop_assert_eq!(lab.splice(), Ok(()));
        let (ip, tcp) = last_from(&lab.net, CLIENT);
        let mut gone = false;
        for step in steps {
            take(&mut lab, step, (ip, tcp), &mut gone);
            for (program, slot) in [(&mut lab.client, lab.slots[0]), (&mut lab.server, lab.slots[3])] {
                if program.sockets.0.contains_key(&slot) {
                    program.read(slot);
                }
            }
            lab.net.settle();
        }
        lab.net.filter = Box::new(|_, _| true);
        let Lab { mut net, client, proxy, server, model, .. } = lab;
        for app in [client.app, server.app] {
            net.nodes[app.node].host.use_base(net.now, |tcp, context| tcp.detach(context, app.id));
        }
        if !gone {
            net.nodes[PROXY].host.use_base(net.now, |tcp, context| tcp.detach(context, proxy.app.id));
        }
        net.run_for(10_000 * SECOND);
        net.assert_empty();
        let left: Vec<_> = net.nodes[PROXY].host.base().tables().into_iter().filter(|(_, size)| *size > 0).collect();
        prop_assert_eq!(left, []);
        prop_assert!(model.lock().unwrap().entries.is_empty());
    }
}
