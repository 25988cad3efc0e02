//! Idle reclaim: the memory of quiet connections' receive buffers goes back to the system (docs/MEMORY.md).
mod support;

use context::Slot;
use support::programs::*;
use support::*;

/// Bytes of the application's region that are resident.
fn resident(app: &App) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::File::from(app.end.region.fd().try_clone_to_owned().unwrap()).metadata().unwrap().blocks() * 512
}

/// Reports that a connection is quiet, with the program's positions.
fn ask_to_reclaim(program: &mut Program, slot: Slot) {
    program.sockets.drain(&mut program.app);
    let socket = &program.sockets.0[&slot];
    let (tx_head, rx_head) = (socket.tx_head, socket.rx_head);
    program.app.ask(context::Request::Reclaim { slot, tx_head, rx_head });
}

fn has_rested(program: &mut Program, slot: Slot) -> bool {
    let done = program.app.expect(|reply| match *reply {
        context::Reply::Reclaimed { slot: of, done } if of == slot => Some(done),
        _ => None,
    });
    program.sockets.0[&slot].bump(&mut program.app);
    done
}

#[test]
fn a_quiet_connection_gives_its_receive_memory_back() {
    for net in [flextoe_net(), spread_net()] {
        let (mut net, mut a, first, mut b, second) = pair_in(net);
        for _ in 0..3 {
            transfer(&mut net, (&mut a, first), (&mut b, second), 200_000);
            net.settle();
            let before = resident(&b.app);
            ask_to_reclaim(&mut b, second);
            net.settle();
            assert!(has_rested(&mut b, second));
            let freed = before - resident(&b.app);
            assert_eq!(freed, b.sockets.0[&second].rx.size() as u64, "the whole receive buffer was used");
        }
        transfer(&mut net, (&mut b, second), (&mut a, first), 10_000);
        end(net, a, b);
    }
}

#[test]
fn only_a_drained_connection_is_reclaimed() {
    let (mut net, mut a, first, mut b, second) = pair();
    a.write(first, b"unread");
    net.settle();
    ask_to_reclaim(&mut b, second);
    net.settle();
    assert!(!has_rested(&mut b, second));
    assert_eq!(b.read(second), b"unread");
    net.filter = Box::new(|_, _| false);
    b.write(second, b"unacknowledged");
    net.run_for(MS);
    ask_to_reclaim(&mut b, second);
    net.run_for(MS);
    assert!(!has_rested(&mut b, second));
    net.filter = Box::new(|_, _| true);
    // The first of two segments is lost: the second waits out of order.
    let mut lose = true;
    net.run_until(60 * SECOND, |_| a.read(first) == b"unacknowledged");
    net.filter = Box::new(move |from, _| from != 0 || !std::mem::take(&mut lose));
    a.write(first, &[1; 3000]);
    net.run_for(MS);
    ask_to_reclaim(&mut b, second);
    net.run_for(MS);
    assert!(!has_rested(&mut b, second));
    let mut got = Vec::new();
    net.run_until(60 * SECOND, |_| {
        got.extend(b.read(second));
        got.len() == 3000
    });
    assert_eq!(got, [1; 3000]);
    end(net, a, b);
}

/// A request for reclaim, and at the same moment: bytes from the peer, a close, both.
#[test]
fn what_happens_while_a_connection_rests_is_not_lost() {
    for (bytes, close) in [(true, false), (false, true), (true, true)] {
        for net in [flextoe_net(), spread_net()] {
            let (mut net, mut a, first, mut b, second) = pair_in(net);
            transfer(&mut net, (&mut a, first), (&mut b, second), 5000);
            net.settle();
            ask_to_reclaim(&mut b, second);
            if bytes {
                a.write(first, b"meanwhile");
            }
            if close {
                a.app.end.daemon_bell.ring();
                b.close(&mut net, second);
                net.run_until(60 * SECOND, |_| a.app.error().is_some() || a.at_end(first));
            } else {
                net.settle();
                let _ = has_rested(&mut b, second);
                assert_eq!(b.read(second), b"meanwhile");
            }
            end(net, a, b);
        }
    }
}
