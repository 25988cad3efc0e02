//! Hosts with the FlexTOE engine: bytes, closing in every order, death, loss, in virtual time.
mod support;

use context::Slot;
use flextoe::Mapping;
use support::programs::*;
use support::sockets::Sockets;
use support::*;

#[test]
fn bytes_go_both_ways() {
    let (mut net, mut a, first, mut b, second) = pair();
    assert_eq!(a.write(first, b"question"), 8);
    net.settle();
    assert_eq!(b.read(second), b"question");
    b.write(second, b"answer");
    net.settle();
    assert_eq!(a.read(first), b"answer");
    end(net, a, b);
}

#[test]
fn a_megabyte_survives_a_lossy_wire() {
    lossy_megabytes(pair());
}

#[test]
fn a_megabyte_survives_a_lossy_wire_with_modules_on_threads() {
    lossy_megabytes(pair_in(spread_net()));
}

#[test]
fn whichever_segment_of_the_opening_is_lost_bytes_arrive() {
    for lost in 0..7 {
        let mut net = flextoe_net();
        let mut count = 0;
        net.filter = Box::new(move |_, _| {
            count += 1;
            count - 1 != lost
        });
        let (mut net, mut a, first, mut b, second) = pair_in(net);
        transfer(&mut net, (&mut b, second), (&mut a, first), 10_000);
        transfer(&mut net, (&mut a, first), (&mut b, second), 10_000);
        end(net, a, b);
    }
}

fn lossy_megabytes((mut net, mut a, first, mut b, second): (Net, Program, Slot, Program, Slot)) {
    let mut random = 1u64;
    net.filter = Box::new(move |_, _| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        random >> 33 & 31 != 0
    });
    transfer(&mut net, (&mut a, first), (&mut b, second), 1 << 20);
    transfer(&mut net, (&mut b, second), (&mut a, first), 1 << 20);
    end(net, a, b);
}

#[test]
fn a_closed_window_opens_again() {
    let (mut net, mut a, first, mut b, second) = pair();
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 253) as u8).collect();
    let mut written = a.write(first, &bytes);
    net.run_for(100 * MS);
    written += a.write(first, &bytes[written..]);
    net.run_for(5 * SECOND);
    // A SYN advertises at most 65,535 bytes. The one byte more is too small a step to advertise (RFC 9293 section
    // 3.8.6.2.2). Later segments advertise an even number of bytes: their window has a scale of one.
    assert_eq!(written, 65_536 + 65_534, "a transmit buffer full, and all of the advertised window");
    // The update that opens the window is lost: only a probe can find out.
    net.filter = Box::new(|from, _| from != 1);
    let mut got = b.read(second);
    net.settle();
    net.filter = Box::new(|_, _| true);
    net.run_until(60 * SECOND, |_| {
        written += a.write(first, &bytes[written..]);
        got.extend(b.read(second));
        got.len() == bytes.len()
    });
    assert!(got == bytes);
    end(net, a, b);
}

/// What is offered is a number; the ring grows when bytes come that it does not hold.
#[test]
fn more_is_offered_and_lies_in_a_larger_ring() {
    let memory = control::MemoryConfig { most_bytes: 1 << 20, small_bytes: 2048, ..config(0).memory };
    let net = configured_net(Mapping::default(), control::HostConfig { memory, ..config(0) });
    let (mut net, mut a, first, mut b, second) = pair_in(net);
    let bytes: Vec<u8> = (0..900_000u32).map(|at| (at % 253) as u8).collect();
    let mut written = 0;
    let mut fill = |net: &mut Net, a: &mut Program| {
        for _ in 0..60 {
            written += b.write(second, &bytes[written..]);
            net.run_for(100 * MS);
        }
        a.sockets.drain(&mut a.app);
        (a.sockets.0[&first].rx_tail, a.sockets.0[&first].rx.size())
    };
    let (got, ring) = fill(&mut net, &mut a);
    assert!((65_000..=65_536).contains(&got) && ring == 65_536, "{got} bytes in {ring}");
    let offer = |a: &mut Program, value: u64| {
        let option = context::OptionName::ReceiveWindow;
        a.app.ask(context::Request::Set { slot: first, option, value });
    };
    offer(&mut a, 262_144);
    let (got, ring) = fill(&mut net, &mut a);
    assert!((262_000..=262_144).contains(&got) && ring == 1 << 20, "{got} bytes in {ring}");
    // Never fewer, and no more than the ring may have.
    for value in [4096, u64::MAX] {
        offer(&mut a, value);
    }
    let (got, ring) = fill(&mut net, &mut a);
    assert!(got == 900_000 && ring == 1 << 20, "{got} bytes in {ring}");
    assert!(a.read(first) == bytes);
    transfer(&mut net, (&mut a, first), (&mut b, second), 500_000);
    transfer(&mut net, (&mut b, second), (&mut a, first), 500_000);
    end(net, a, b);
}

// Checks RFC 9293: MUST-13.
#[test]
fn the_client_closes_first() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.write(first, b"bye");
    a.close(&mut net, first);
    assert_eq!(a.app.freed(), Some(first), "its slot is free as soon as the peer has acknowledged");
    assert_eq!((net.states(0), net.states(1)), (vec!["FIN-WAIT-2"], vec!["CLOSE-WAIT"]));
    assert_eq!(b.read(second), b"bye");
    assert!(b.at_end(second));
    b.close(&mut net, second);
    assert_eq!(b.app.freed(), Some(second));
    assert_eq!((net.states(0), net.states(1)), (vec!["TIME-WAIT"], vec![]));
    net.run_for(11 * SECOND);
    assert!(net.states(0).is_empty());
    end(net, a, b);
}

#[test]
fn a_half_closed_connection_still_carries_bytes_back() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.write(first, b"ask");
    a.sockets.shut(&mut a.app, first);
    net.settle();
    assert_eq!((b.read(second), b.at_end(second)), (b"ask".to_vec(), true));
    assert_eq!((net.states(0), net.states(1)), (vec!["FIN-WAIT-2"], vec!["CLOSE-WAIT"]));
    transfer(&mut net, (&mut b, second), (&mut a, first), 300_000);
    b.close(&mut net, second);
    assert!(a.at_end(first));
    assert_eq!(net.states(0), ["TIME-WAIT"]);
    a.close(&mut net, first);
    assert_eq!((net.states(0), net.states(1)), (vec!["TIME-WAIT"], vec![]));
    end(net, a, b);
}

#[test]
fn both_close_at_once() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.app.close(first, 0, 0, false);
    b.app.close(second, 0, 0, false);
    net.settle();
    assert_eq!((net.states(0), net.states(1)), (vec!["TIME-WAIT"], vec!["TIME-WAIT"]));
    assert_eq!((a.app.freed(), b.app.freed()), (Some(first), Some(second)));
    end(net, a, b);
}

#[test]
fn closing_survives_the_loss_of_any_segment() {
    for lost in 0..8 {
        let (mut net, mut a, first, mut b, second) = pair();
        let mut count = 0;
        net.filter = Box::new(move |_, _| {
            count += 1;
            count - 1 != lost
        });
        a.write(first, b"x");
        a.close(&mut net, first);
        net.run_until(60 * SECOND, |_| {
            b.read(second);
            b.at_end(second)
        });
        b.close(&mut net, second);
        net.run_for(SECOND);
        assert_eq!((a.app.freed(), b.app.freed()), (Some(first), Some(second)), "lost {lost}");
        assert_eq!((a.app.error(), b.app.error()), (None, None), "lost {lost}");
        end(net, a, b);
    }
}

#[test]
fn data_for_a_closed_socket_is_answered_with_a_reset() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.close(&mut net, first);
    b.write(second, b"too late");
    net.settle();
    assert_eq!(b.app.error().map(|(slot, _)| slot), Some(second));
    assert!(net.states(0).is_empty());
    end(net, a, b);
}

#[test]
fn a_close_that_lies_about_its_position_does_not_stay() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.app.close(first, 1_000_000, 0, false);
    net.run_for(59 * SECOND);
    assert_eq!((net.states(0), a.app.freed()), (vec!["FIN-WAIT-1"], None));
    net.run_for(2 * SECOND);
    assert_eq!((net.states(0), a.app.freed()), (vec![], Some(first)));
    assert_eq!(b.app.error(), Some((second, libc::ECONNRESET as u16)));
    end(net, a, b);
}

#[test]
fn an_aborted_connection_is_reset_on_the_other_side() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.app.close(first, 0, 0, true);
    net.settle();
    assert_eq!(b.app.error(), Some((second, libc::ECONNRESET as u16)));
    assert_eq!((net.states(0), net.states(1)), (vec![], vec!["CLOSED"]));
    end(net, a, b);
}

/// A server that refuses a request answers, and closes with the rest of it unread.
#[test]
fn what_was_written_before_a_reset_is_sent_first() {
    for abort in [false, true] {
        let (mut net, mut a, first, mut b, second) = pair();
        a.write(first, b"a long request");
        net.settle();
        b.write(second, b"refused");
        b.app.close(second, 7, 0, abort);
        net.run_for(SECOND / 10);
        assert_eq!(a.read(first), b"refused");
        assert_eq!(a.app.error(), Some((first, libc::ECONNRESET as u16)));
        assert_eq!((net.states(0), net.states(1)), (vec!["CLOSED"], vec![]));
        end(net, a, b);
    }
}

#[test]
fn a_peer_that_vanished_is_given_up() {
    let (mut net, mut a, first, b, _) = pair();
    net.filter = Box::new(|_, _| false);
    a.write(first, b"anybody there?");
    net.run_for(110 * SECOND);
    assert_eq!(a.app.error(), None);
    net.run_for(20 * SECOND);
    assert_eq!(a.app.error(), Some((first, libc::ETIMEDOUT as u16)));
    net.filter = Box::new(|_, _| true);
    end(net, a, b);
}

// Checks RFC 9293: MUST-21, MUST-25.
#[test]
fn keepalive_is_off_by_default_and_user_timeout_is_kept() {
    let (mut net, mut a, first, b, _) = pair();
    net.filter = Box::new(|_, _| false);
    net.seen.clear();
    net.run_for(3 * 3600 * SECOND);
    let asked = net.seen.iter().any(|(_, bytes)| support::recording::parse(bytes).is_some());
    assert!(a.app.error().is_none() && !asked);
    a.app.ask(context::Request::Set { slot: first, option: context::OptionName::UserTimeout, value: 5000 });
    a.write(first, b"anybody there?");
    net.run_for(8 * SECOND);
    assert_eq!(a.app.error(), Some((first, libc::ETIMEDOUT as u16)));
    net.filter = Box::new(|_, _| true);
    end(net, a, b);
}

// Checks RFC 9293: SHLD-7, MUST-17.
#[test]
fn short_segments_are_collected_until_a_program_objects() {
    let mut collecting = config(0);
    collecting.limits.nagle = true;
    let (mut net, mut a, first, mut b, second) = pair_in(configured_net(Mapping::default(), collecting));
    // The peer holds its acknowledgements back for half a millisecond.
    let mut came = |net: &mut Net, a: &mut Program, time| {
        net.run_for(5 * MS);
        for bytes in [b"a", b"b", b"c"] {
            a.write(first, bytes);
            net.run_for(MS / 50);
        }
        net.run_for(time);
        b.read(second)
    };
    assert_eq!(came(&mut net, &mut a, MS / 5), b"a");
    assert_eq!(came(&mut net, &mut a, 5 * MS), b"bcabc");
    a.app.ask(context::Request::Set { slot: first, option: context::OptionName::NoDelay, value: 1 });
    assert_eq!(came(&mut net, &mut a, MS / 5), b"abc");
    a.app.ask(context::Request::Set { slot: first, option: context::OptionName::NoDelay, value: 0 });
    assert_eq!(came(&mut net, &mut a, MS / 5), b"a");
    net.run_for(5 * MS);
    assert_eq!(b.read(second), b"bc");
    end(net, a, b);
}

// Checks RFC 9293: MUST-24, SHLD-12.
#[test]
fn keepalive_finds_a_peer_that_vanished() {
    use context::{OptionName, Request};
    let (mut net, mut a, first, b, _) = pair();
    for (option, value) in [
        (OptionName::KeepaliveIdle, 10),
        (OptionName::KeepaliveInterval, 2),
        (OptionName::KeepaliveCount, 3),
        (OptionName::Keepalive, 1),
    ] {
        a.app.ask(Request::Set { slot: first, option, value });
    }
    net.run_for(100 * SECOND);
    assert_eq!(a.app.error(), None, "the peer answers probes");
    net.filter = Box::new(|_, _| false);
    net.run_for(30 * SECOND);
    assert_eq!(a.app.error(), Some((first, libc::ETIMEDOUT as u16)));
    net.filter = Box::new(|_, _| true);
    end(net, a, b);
}

/// Requests of two programs come in any order: a parent may have reported where it stood before its child read on, and
/// be received last.
#[test]
fn reads_of_one_share_hold_when_the_last_one_closes() {
    let (mut net, mut a, first, mut b, second) = pair();
    let token = a.app.fork(&mut net);
    let mut child = net.attach_as(0, 0, Some(token)).unwrap();
    let claimed = child.claim(&mut net, a.app.id, first).unwrap();
    b.write(second, b"an answer");
    net.settle();
    child.close(claimed, 0, 9, false);
    net.settle();
    a.app.close(first, 0, 0, false);
    net.settle();
    assert_eq!((b.app.error(), b.at_end(second)), (None, true));
    b.close(&mut net, second);
    net.end_all(vec![a.app, child, b.app]);
}

#[test]
fn a_killed_program_has_sent_what_it_wrote_and_then_fin() {
    let (mut net, mut a, first, mut b, second) = pair();
    let bytes = vec![42; 60_000];
    assert_eq!(a.write(first, &bytes), 60_000);
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, a.app.id));
    let mut got = Vec::new();
    net.run_until(10 * SECOND, |_| {
        got.extend(b.read(second));
        b.at_end(second)
    });
    assert_eq!(got, bytes);
    b.close(&mut net, second);
    assert_eq!(b.app.error(), None);
    net.run_for(20 * SECOND);
    assert_eq!(net.nodes[0].host.base().contexts(), vec![]);
    net.end_all(vec![b.app]);
}

/// RFC 2525 section 2.17, where the program keeps word of how far it has read, as libtoe does.
#[test]
fn a_killed_program_resets_what_it_had_not_read() {
    for read in [0, 8, 9] {
        let (mut net, a, first, mut b, second) = pair();
        let state = a.app.end.geometry.slot_state_at(first.index);
        for (at, word) in [(context::READ_AT, read), (context::READ_FOR_AT, first.mark())] {
            a.app.end.region.u32_at(state + at).store(word, std::sync::atomic::Ordering::Release);
        }
        b.write(second, b"an answer");
        net.settle();
        net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, a.app.id));
        net.settle();
        let reset = (Some((second, libc::ECONNRESET as u16)), false);
        assert_eq!((b.app.error(), b.at_end(second)), if read == 9 { (None, true) } else { reset });
        b.close(&mut net, second);
        net.end_all(vec![b.app]);
    }
}

#[test]
fn a_killed_program_that_had_shut_down_ends_as_quietly() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.write(first, b"last words");
    a.sockets.shut(&mut a.app, first);
    net.settle();
    net.nodes[0].host.use_base(net.now, |tcp, context| tcp.detach(context, a.app.id));
    net.settle();
    assert_eq!((b.read(second), b.at_end(second)), (b"last words".to_vec(), true));
    b.close(&mut net, second);
    assert_eq!(b.app.error(), None);
    net.end_all(vec![b.app]);
}

#[test]
fn the_same_tuple_may_be_used_again_soon() {
    let (mut net, mut a, first, mut b, second) = pair();
    b.close(&mut net, second);
    a.close(&mut net, first);
    assert_eq!(net.states(1), ["TIME-WAIT"], "the server closed first");
    let local = net.seen.iter().find_map(|(_, bytes)| support::recording::parse(bytes)).unwrap().1.src_port;
    net.run_for(50 * MS);
    let (binding, _) = a.app.bind(&mut net, local, true, false).unwrap();
    let tag = a.app.connect(ip_of(1), 80, binding);
    net.settle();
    let slot = a.app.connected(tag).unwrap().unwrap();
    let (first, second) = (a.sockets.open(&a.app, slot), b.app.accepted().unwrap());
    let second = b.sockets.open(&b.app, second);
    transfer(&mut net, (&mut a, first), (&mut b, second), 100_000);
    end(net, a, b);
}

#[test]
fn ephemeral_ports_come_back_after_a_second() {
    let two = control::HostConfig { ephemeral_first: 50_000, ephemeral_last: 50_001, ..config(0) };
    let (mut net, mut a, first, mut b, second) = pair_in(configured_net(Mapping::default(), two));
    a.close(&mut net, first);
    b.close(&mut net, second);
    let (first, second) = join(&mut net, &mut a, &mut b);
    a.close(&mut net, first);
    b.close(&mut net, second);
    assert_eq!(net.states(0), ["TIME-WAIT", "TIME-WAIT"]);
    let tag = a.app.connect(ip_of(1), 80, 0);
    net.settle();
    assert_eq!(a.app.connected(tag), Some(Err(libc::EADDRNOTAVAIL as u16)));
    net.run_for(SECOND);
    let (first, second) = join(&mut net, &mut a, &mut b);
    transfer(&mut net, (&mut a, first), (&mut b, second), 100_000);
    end(net, a, b);
}

#[test]
fn a_host_that_was_restarted_resets_the_old_connection() {
    // RFC 9293 figure 10: half-open discovery.
    let (mut net, mut a, first, b, _) = pair();
    let fresh = flextoe_net().nodes.remove(1);
    net.nodes[1] = fresh;
    drop(b);
    a.write(first, b"hello?");
    net.settle();
    assert_eq!(a.app.error(), Some((first, libc::ECONNRESET as u16)));
    net.end_all(vec![a.app]);
}

#[test]
fn a_program_talks_to_another_one_on_the_same_host() {
    let mut net = flextoe_net();
    let (mut a, mut b) = (Program::new(&mut net, 0), Program::new(&mut net, 0));
    b.app.serve(&mut net, 80);
    let (first, second) = join(&mut net, &mut a, &mut b);
    transfer(&mut net, (&mut a, first), (&mut b, second), 200_000);
    transfer(&mut net, (&mut b, second), (&mut a, first), 200_000);
    a.close(&mut net, first);
    assert!(b.at_end(second));
    b.close(&mut net, second);
    assert!(net.seen.is_empty());
    end(net, a, b);
}

#[test]
fn a_connection_that_was_moved_keeps_its_bytes() {
    let mut net = flextoe_net();
    let (mut a, mut b) = (Program::new(&mut net, 0), Program::new(&mut net, 1));
    let binding = b.app.serve(&mut net, 80);
    let token = b.app.fork(&mut net);
    let mut c = Program { app: net.attach_as(1, 0, Some(token)).unwrap(), sockets: Sockets::default() };
    let tag = a.app.connect(net.nodes[1].ip, 80, 0);
    net.settle();
    b.app.offered().unwrap();
    let first = a.app.connected(tag).unwrap().unwrap();
    let first = a.sockets.open(&a.app, first);
    a.write(first, b"a request that nobody has read yet");
    net.settle();
    net.nodes[1].host.use_base(net.now, |tcp, context| tcp.detach(context, b.app.id));
    net.settle();
    c.app.arm(&mut net, binding, 1);
    let slot = c.app.accepted().unwrap();
    c.sockets.open(&c.app, slot);
    net.settle();
    assert_eq!(c.read(slot), b"a request that nobody has read yet");
    transfer(&mut net, (&mut c, slot), (&mut a, first), 100_000);
    end(net, a, c);
}

// Checks RFC 9293: MUST-41, MUST-42.
#[test]
fn many_connections_come_and_go_and_nothing_is_left() {
    come_and_go(flextoe_net());
}

#[test]
fn many_connections_come_and_go_with_modules_on_threads() {
    come_and_go(spread_net());
}

fn come_and_go(mut net: Net) {
    let (mut a, mut b) = (Program::new(&mut net, 0), Program::new(&mut net, 1));
    let binding = b.app.serve(&mut net, 80);
    for round in 0..300u32 {
        b.app.arm(&mut net, binding, 8);
        let (first, second) = join(&mut net, &mut a, &mut b);
        a.write(first, &round.to_be_bytes());
        net.settle();
        assert_eq!(b.read(second), round.to_be_bytes());
        if round % 3 == 0 {
            b.close(&mut net, second);
            a.close(&mut net, first);
        } else {
            a.close(&mut net, first);
            b.close(&mut net, second);
        }
    }
    assert_eq!(net.nodes[0].host.base().contexts()[0].slots_used, 0);
    end(net, a, b);
}
