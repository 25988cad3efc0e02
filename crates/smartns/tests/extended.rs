//! Extended reliable connections (IBTA 1.3, annex A14): each message names the shared receive queue that it is for, and
//! all that a reliable connection does is done.
mod support;

use shm::{PipeConsumer, PipeProducer, Region, pipe_bytes};
use smartns::{NewSrq, Receives};
use std::sync::Arc;
use support::{Faults, Pair, SETTINGS, SRQ, Settings, Wire};
use verbs::control::XrcQueue;
use verbs::{
    AsyncEvent, CompletionOpcode, QpAttributes, QpKind, QpState, ReceivePiece, SendElement, SendOpcode, Status,
};

/// A side that sends, and one that receives.
fn pair(wire: Wire) -> Pair {
    let of = |kind| Settings { kind, ..SETTINGS };
    Pair::connected([of(QpKind::XrcSend), of(QpKind::XrcReceive)], wire)
}

/// A work request for the receiver's queue.
fn to_queue(element: SendElement) -> SendElement {
    SendElement { srq: SRQ, ..element }
}

/// Another shared receive queue of the receiver's, in this domain of XRCs, with a work request at byte `at`.
fn another_queue(pair: &mut Pair, number: u32, domain: u32, at: u64) {
    let region = Arc::new(Region::create("smartns", 4096 + pipe_bytes::<2>(16)).unwrap());
    let xrc = Some(XrcQueue { domain, cq: 3 });
    let pipe = PipeConsumer::new(&region, 4096, 16, 0);
    let queue = NewSrq { number, domain: memory::Domain(7), pipe, receives: 16, pieces: 1, xrc };
    pair.nodes[1].shard.add_srq(queue).unwrap();
    let piece = pair.nodes[1].piece(at, 1000);
    let mut program = PipeProducer::<2>::new(&region, 4096, 16, 0, 16);
    program.push(ReceivePiece { piece, more: false }.encode()).unwrap();
}

#[test]
fn all_operations_arrive_through_loss() {
    let faults = Faults { lost: 30, repeated: 20, delayed: 30, damaged: 10, ..Faults::default() };
    for (seed, inside) in [(1, 0), (2, 0), (3, 500)] {
        let mut wire = Wire::new(seed, faults);
        wire.inside = inside;
        let mut pair = pair(wire);
        let payload: Vec<u8> = (0..60_000u32).map(|at| (at * 7 / 3) as u8).collect();
        pair.nodes[0].write(0, &payload);
        pair.nodes[1].write(3 << 20, &payload[5000..9000]);
        let receive = pair.nodes[1].piece(1 << 20, 60_000);
        pair.nodes[1].post_receive(&[receive]);
        pair.nodes[1].post_receive(&[]);
        let [one, other] = &mut pair.nodes;
        let (all, some) = (one.piece(0, 60_000), one.piece(100_000, 4000));
        one.post(to_queue(one.work(SendOpcode::Send)), &[all]);
        let write = SendElement { immediate: 77, ..one.remote(SendOpcode::WriteImmediate, other, 2 << 20) };
        one.post(to_queue(write), &[all]);
        one.post(to_queue(one.remote(SendOpcode::Read, other, 3 << 20)), &[some]);
        let mut add = one.remote(SendOpcode::FetchAdd, other, 0);
        add.words[2] = 5;
        one.post(to_queue(add), &[one.piece(200_000, 8)]);
        assert!(pair.completed(6), "seed {seed}");
        let [one, other] = &pair.nodes;
        assert_eq!(one.ended(), (0..4).map(|number| (Status::Success, number)).collect::<Vec<_>>());
        let [received, written] = &other.completions[..] else { panic!("{:?}", other.completions) };
        // The completion has which queue's work request ended.
        assert_eq!((received.opcode, received.bytes, received.remote_qp), (CompletionOpcode::Receive, 60_000, SRQ));
        assert_eq!((written.immediate, written.number, written.remote_qp), (77, 1, SRQ));
        assert!(other.read(1 << 20, 60_000) == payload && other.read(2 << 20, 60_000) == payload);
        assert!(one.read(100_000, 4000) == payload[5000..9000]);
        assert_eq!(other.read(0, 8), 5u64.to_ne_bytes());
    }
}

// Checks IBTA: A14-a.
#[test]
fn messages_of_one_connection_go_to_the_queues_that_they_name() {
    let mut pair = pair(Wire::perfect());
    another_queue(&mut pair, 6, 2, 500_000);
    let piece = pair.nodes[1].piece(0, 1000);
    (0..2).for_each(|_| pair.nodes[1].post_receive(&[piece]));
    for (srq, byte) in [(SRQ, 1), (6, 2), (SRQ, 3)] {
        let element = SendElement { srq, ..pair.nodes[0].work(SendOpcode::Send) };
        pair.nodes[0].post_inline(element, &[byte; 100]);
    }
    assert!(pair.completed(6));
    let queues: Vec<(u32, u32)> = pair.nodes[1].completions.iter().map(|done| (done.remote_qp, done.number)).collect();
    assert_eq!(queues, [(SRQ, 0), (6, 0), (SRQ, 1)]);
    assert_eq!((pair.nodes[1].read(0, 1), pair.nodes[1].read(500_000, 1)), (vec![3], vec![2]));
    // Nothing has begun for it, so it may go; what names it then is refused.
    let other = &mut pair.nodes[1];
    assert!(other.shard.remove_cq(3).is_err(), "a shared receive queue uses it");
    other.shard.remove_srq(6).unwrap();
    let element = SendElement { srq: 6, ..pair.nodes[0].work(SendOpcode::Send) };
    pair.nodes[0].post_inline(element, &[4; 100]);
    assert!(pair.completed(7));
    assert_eq!(pair.nodes[0].completions[3].status, Status::RemoteInvalidRequest);
}

// Checks IBTA: A14-a.
#[test]
fn a_queue_of_another_domain_is_refused_and_untouched() {
    for operation in [SendOpcode::Send, SendOpcode::Write, SendOpcode::Read, SendOpcode::FetchAdd] {
        let mut pair = pair(Wire::perfect());
        another_queue(&mut pair, 6, 3, 0);
        let before = pair.nodes[1].read(0, 1000);
        pair.nodes[0].write(0, &[9; 1000]);
        let element = SendElement { srq: 6, ..pair.nodes[0].remote(operation, &pair.nodes[1], 0) };
        pair.nodes[0].post(element, &[pair.nodes[0].piece(0, 8)]);
        assert!(pair.completed(1));
        assert_eq!(pair.nodes[0].completions[0].status, Status::RemoteInvalidRequest, "{operation:?}");
        assert!(pair.nodes[1].completions.is_empty() && pair.nodes[1].read(0, 1000) == before);
        let event = smartns::Event::Async(AsyncEvent::QpRequestError, pair.nodes[1].qp);
        assert_eq!(pair.nodes[1].events, [event]);
    }
}

#[test]
fn a_half_does_its_half_only() {
    let mut pair = pair(Wire::perfect());
    // The receiving half sends nothing, and the sending half binds no windows and has no XRC domain.
    let element = pair.nodes[1].work(SendOpcode::Send);
    pair.nodes[1].post_inline(element, &[1]);
    for opcode in [SendOpcode::BindWindow, SendOpcode::SendInvalidate] {
        let element = to_queue(pair.nodes[0].work(opcode));
        pair.nodes[0].post(element, &[]);
    }
    assert!(pair.completed(2));
    assert_eq!(pair.nodes[0].ended(), [(Status::LocalQpOperation, 0), (Status::Flushed, 1)]);
    assert!(pair.nodes[1].completions.is_empty());
    // As Linux has it, what the other half uses may be set, and changes nothing.
    let others = QpAttributes { initiator_depth: Some(3), retries: Some(1), ..QpAttributes::default() };
    let node = &mut pair.nodes[1];
    node.shard.modify_qp(node.qp, &others).unwrap();
    node.go(QpState::Reset);
    node.shard.remove_qp(node.qp).unwrap();
    node.shard.remove_srq(SRQ).unwrap();
    node.shard.remove_cq(3).unwrap();
}

#[test]
fn only_the_receiving_half_has_a_domain_of_xrcs() {
    let mut pair = pair(Wire::perfect());
    let new = |kind, receives| smartns::NewQp {
        number: 0x77,
        kind,
        domain: memory::Domain(7),
        send_cq: 3,
        receive_cq: 3,
        receives,
        capacities: verbs::Capacities::default(),
        signals_all: true,
    };
    let shard = &mut pair.nodes[1].shard;
    assert!(shard.add_qp(new(QpKind::Rc, Receives::Named(2))).is_err());
    assert!(shard.add_qp(new(QpKind::XrcReceive, Receives::Shared(SRQ))).is_err());
    assert!(shard.add_qp(new(QpKind::Rc, Receives::Shared(SRQ))).is_err(), "its messages would name none");
    assert!(shard.add_qp(new(QpKind::RawPacket, Receives::Named(2))).is_err());
}
