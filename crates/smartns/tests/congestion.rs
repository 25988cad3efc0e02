//! DCQCN's packets: which may be marked, what answers marks, and what a flood of notifications can do.
mod support;

use engine::{DropReason, Frame};
use smartns::{Congestion, Recovery, Sender, ShardOutput};
use std::cell::RefCell;
use std::rc::Rc;
use support::{Faults, MS, Node, Pair, SETTINGS, Settings, Wire, path};
use verbs::{Mtu, QpKind, SendOpcode, Status};
use wire::Ipv4Addr;
use wire::ipv4::Ecn;
use wire::roce::{Bth, Headers, Opcode, Operation, Packet, Psn, Service, finish};

const LINE: u64 = 10_000_000_000;
const DCQCN: Congestion = Congestion::Dcqcn { line_rate: LINE };
const LIMITED: Settings = Settings { congestion: DCQCN, ..SETTINGS };
/// Bits a second of a sender that gets congestion notifications all the time.
const FLOOR: u64 = 10_000_000;

/// A notification for a side's queue pair.
fn notification(node: &Node, side: usize, from: Ipv4Addr, reserved: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let way = wire::roce::Path { local: from, ..path(1 - side) };
    way.emit(&Bth::new(Opcode::CNP, node.qp, Psn::new(0)), &Headers::NONE, reserved, &mut frame);
    frame.resize(frame.len() + reserved, 0);
    finish(&mut frame);
    frame
}

/// Gives a side a frame that did not come over the wire.
fn receive(pair: &mut Pair, side: usize, bytes: &[u8]) {
    let node = &mut pair.nodes[side];
    let mut frame: Box<Frame> = node.pool.large();
    frame.bytes_vec().extend_from_slice(bytes);
    let Node { shard, pool, drops, events, tx, .. } = node;
    shard.poll(pair.now, &mut vec![frame], &mut ShardOutput { tx, pool, drops, events });
    for frame in tx.drain(..) {
        pair.wire.send(1 - side, pair.now, frame, pool);
    }
    node.take_completions();
}

fn sender(pair: &Pair, side: usize) -> Option<Sender> {
    let node = &pair.nodes[side];
    node.shard.sender(node.qp, pair.now)
}

/// Posts a work request of this many bytes.
fn post(pair: &mut Pair, opcode: SendOpcode, len: u32) {
    let [one, other] = &mut pair.nodes;
    let element = one.remote(opcode, other, 0);
    one.post(element, &[one.piece(0, len)]);
}

/// Opcode, ECN bits and time of each packet that is sent to a side.
type Seen = Rc<RefCell<Vec<(usize, Opcode, Ecn)>>>;

fn watched(settings: Settings, marked: u64) -> (Pair, Seen) {
    let mut wire = Wire::new(1, Faults { marked, ..Faults::default() });
    let seen = Seen::default();
    let list = Rc::clone(&seen);
    wire.gate = Some(Box::new(move |to, bytes| {
        let packet = Packet::parse(bytes).expect("a packet");
        if packet.opcode() == Opcode::CNP {
            assert!(packet.bth.congestion.backward && !packet.bth.congestion.forward && packet.payload == [0; 16]);
            assert!(wire::roce::icrc_is_right(bytes));
        }
        list.borrow_mut().push((to, packet.opcode(), packet.ip.ecn));
        true
    }));
    (Pair::connected([settings; 2], wire), seen)
}

// Checks IBTA: A17.9.1-a.
#[test]
fn packets_with_payload_may_be_marked_and_no_others() {
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        let (mut pair, seen) = watched(LIMITED, 0);
        post(&mut pair, opcode, 20_000);
        assert!(pair.completed(1));
        let payload = |opcode: Opcode| matches!(opcode.operation(), Operation::Write | Operation::ReadResponse);
        for (_, opcode, ecn) in seen.borrow().iter() {
            assert_eq!(*ecn, if payload(*opcode) { Ecn::Ect0 } else { Ecn::NotEct }, "{opcode:?}");
        }
        assert!(seen.borrow().iter().filter(|(_, opcode, _)| payload(*opcode)).count() >= 20);
        assert_eq!(sender(&pair, 0), Some(Sender { rate: None, notified: 0, sent: 0 }));
    }
    // A host that answers nothing leaves the bits to the program.
    let (mut pair, seen) = watched(SETTINGS, 0);
    post(&mut pair, SendOpcode::Write, 20_000);
    assert!(pair.completed(1) && seen.borrow().iter().all(|(_, _, ecn)| *ecn == Ecn::Ect0));
    assert_eq!(sender(&pair, 0), None);
}

// Checks IBTA: A17.9.3-a.
#[test]
fn marks_are_answered_and_slow_the_side_that_sends_payload() {
    for (opcode, slow) in [(SendOpcode::Write, 0), (SendOpcode::Read, 1)] {
        let (mut pair, seen) = watched(LIMITED, 1000);
        post(&mut pair, opcode, 1_000_000);
        assert!(pair.completed(1));
        pair.idle(MS);
        assert_eq!(pair.nodes[0].completions[0].status, Status::Success);
        let count = seen.borrow().iter().filter(|(to, opcode, _)| (*to, *opcode) == (slow, Opcode::CNP)).count() as u64;
        let all = seen.borrow().iter().filter(|(_, opcode, _)| *opcode == Opcode::CNP).count() as u64;
        let [fast, slow] = [1 - slow, slow].map(|side| sender(&pair, side).unwrap());
        assert!(count == all && all > 10, "{opcode:?}: {count} of {all} notifications go to the sender of payload");
        assert!(slow.notified == all && slow.sent == 0 && slow.rate.is_some_and(|rate| rate < LINE / 4), "{slow:?}");
        assert_eq!(fast, Sender { rate: None, notified: 0, sent: all });
        let cnps = pair.nodes[0].shard.cnps();
        assert_eq!((cnps.sent + cnps.received, cnps.sent == 0), (all, opcode == SendOpcode::Write));
        assert!(all < (pair.now / 50_000), "one in 50 us at most");
    }
}

#[test]
fn a_flood_of_notifications_leaves_10_mbit_a_second() {
    const LEN: u32 = 100_000;
    for recovery in [Recovery::GoBackN, Recovery::SelectiveRepeat] {
        for opcode in [SendOpcode::Write, SendOpcode::Read] {
            // No retry is allowed: nothing is lost, so none is needed.
            let settings = Settings { mtu: Mtu::B4096, timeout: 11, retries: 0, recovery, ..LIMITED };
            let mut pair = Pair::connected([settings; 2], Wire::between_machines());
            let slow = usize::from(opcode == SendOpcode::Read);
            let forged = notification(&pair.nodes[slow], slow, path(slow).remote, 16);
            (0..100).for_each(|_| receive(&mut pair, slow, &forged));
            assert_eq!(sender(&pair, slow).unwrap().rate, Some(FLOOR));
            let begun = pair.now;
            (0..4).for_each(|_| post(&mut pair, opcode, LEN / 4));
            let mut next = pair.now;
            let ended = pair.run(1000 * MS, |pair| {
                if pair.now >= next {
                    next = pair.now + 5_000;
                    receive(pair, slow, &forged);
                }
                pair.nodes[0].completions.len() == 4
            });
            let took = pair.now - begun;
            assert!(ended, "{opcode:?}, {recovery:?}: {:?}", pair.nodes[0].completions);
            assert!(pair.nodes[0].completions.iter().all(|done| done.status == Status::Success));
            let slowest = u64::from(LEN) * 8 * 1_000_000_000 / FLOOR;
            assert!(took > slowest * 9 / 10 && took < slowest * 11 / 10, "{opcode:?}: {took} ns of {slowest}");
            assert!(sender(&pair, slow).unwrap().notified > 1000);
        }
    }
}

/// At the lowest rate, a packet of 4096 bytes is sent in 3.3 ms, and the time-out is 1 ms.
#[test]
fn a_lost_packet_that_waits_for_its_quantum_costs_one_retry() {
    for recovery in [Recovery::GoBackN, Recovery::SelectiveRepeat] {
        let settings = Settings { mtu: Mtu::B4096, timeout: 8, retries: 1, recovery, ..LIMITED };
        let mut pair = Pair::connected([settings; 2], Wire::between_machines());
        let mut left = 3;
        pair.wire.gate = Some(Box::new(move |_, bytes| {
            left -= i32::from(bytes.len() > 4096);
            left != 0
        }));
        let forged = notification(&pair.nodes[0], 0, path(0).remote, 16);
        post(&mut pair, SendOpcode::Write, 40_000);
        let ended = pair.run(1000 * MS, |pair| {
            receive(pair, 0, &forged);
            !pair.nodes[0].completions.is_empty()
        });
        assert!(ended && pair.wire.harmed == 1);
        assert_eq!(pair.nodes[0].completions[0].status, Status::Success, "{recovery:?}");
    }
}

// Checks IBTA: A17.9.3-b.
#[test]
fn notifications_that_do_not_count() {
    let mut pair = Pair::connected([LIMITED; 2], Wire::between_machines());
    let peer = path(0).remote;
    let drops = |pair: &Pair, reason| pair.nodes[0].drops.get(reason);
    let forged = notification(&pair.nodes[0], 0, Ipv4Addr::new(10, 0, 0, 9), 16);
    receive(&mut pair, 0, &forged);
    assert_eq!(drops(&pair, DropReason::QpUnknown), 1, "from another address");
    let short = notification(&pair.nodes[0], 0, peer, 12);
    receive(&mut pair, 0, &short);
    assert_eq!(drops(&pair, DropReason::RoceHeader), 1, "of another length");
    let mut damaged = notification(&pair.nodes[0], 0, peer, 16);
    damaged[60] ^= 1;
    receive(&mut pair, 0, &damaged);
    assert_eq!(drops(&pair, DropReason::RoceIcrc), 1, "with another checksum");
    assert_eq!(sender(&pair, 0), Some(Sender { rate: None, notified: 0, sent: 0 }));
    let right = notification(&pair.nodes[0], 0, peer, 16);
    receive(&mut pair, 0, &right);
    assert_eq!(sender(&pair, 0).map(|sender| (sender.rate, sender.notified)), Some((Some(LINE / 2), 1)));
    pair.nodes[0].go(verbs::QpState::Error);
    pair.idle(MS);
    receive(&mut pair, 0, &right);
    assert_eq!(drops(&pair, DropReason::CnpIgnored), 1, "in the error state");
    for settings in [SETTINGS, Settings { kind: QpKind::Ud, ..LIMITED }] {
        let mut pair = Pair::connected([settings; 2], Wire::between_machines());
        receive(&mut pair, 0, &right);
        assert_eq!(drops(&pair, DropReason::CnpIgnored), 1, "{:?} that limits no rate", settings.kind);
    }
    assert_eq!(Opcode::CNP.service(), Service::Congestion);
}
