//! Errors end as hardware ends them: the right completion on each side, the error state, the flush, the event.
mod support;

use engine::DropReason;
use smartns::Event;
use support::{MEMORY, MS, Pair, SETTINGS, Settings, Wire};
use verbs::{AsyncEvent, Piece, QpAttributes, QpState, SendElement, SendOpcode, Status};

fn pair() -> Pair {
    Pair::connected([SETTINGS; 2], Wire::perfect())
}

fn state(pair: &Pair, side: usize) -> Option<QpState> {
    pair.nodes[side].shard.query_qp(pair.nodes[side].qp).unwrap().state
}

/// Posts `element` with a piece of `len` bytes, and another work request after it.
fn post_and_another(pair: &mut Pair, element: SendElement, len: u32) {
    let node = &mut pair.nodes[0];
    let piece = node.piece(0, len);
    node.post(element, &[piece]);
    let after = SendElement { opcode: SendOpcode::Send, ..element };
    node.post(after, &[]);
}

/// Statuses of a side's completions.
fn statuses(pair: &Pair, side: usize) -> Vec<Status> {
    pair.nodes[side].completions.iter().map(|done| done.status).collect()
}

/// A message that is posted to side 0, and a receive at side 1 for it; no round has passed.
fn posted() -> Pair {
    let mut pair = pair();
    pair.nodes[1].post_receive(&[]);
    let element = pair.nodes[0].remote(SendOpcode::Send, &pair.nodes[1], 0);
    pair.nodes[0].post(element, &[]);
    pair
}

/// libfabric's `rxm` reports its last message as sent once it is posted; its program then ends the connection.
#[test]
fn what_is_posted_before_the_error_state_is_sent() {
    let mut pair = posted();
    pair.nodes[1].post_receive(&[]);
    let to_error = QpAttributes { state: Some(QpState::Error), ..QpAttributes::default() };
    let node = &mut pair.nodes[0];
    node.shard.modify_qp(node.qp, &to_error).unwrap();
    assert_eq!(state(&pair, 0), Some(QpState::Error), "for the program it is there at once");
    let later = pair.nodes[0].remote(SendOpcode::Send, &pair.nodes[1], 0);
    pair.nodes[0].post(later, &[]);
    assert!(pair.completed(3));
    assert_eq!(statuses(&pair, 0), [Status::Flushed; 2]);
    assert_eq!(statuses(&pair, 1), [Status::Success]);
}

#[test]
fn what_is_posted_before_a_queue_pair_ends_is_sent() {
    let mut pair = posted();
    let qp = pair.nodes[0].qp;
    assert!(pair.nodes[0].shard.await_quantum(qp));
    pair.step();
    assert!(!pair.nodes[0].shard.awaits_quantum(qp));
    pair.nodes[0].shard.remove_qp(qp).unwrap();
    assert!(pair.completed(1));
    assert_eq!(statuses(&pair, 1), [Status::Success]);
    assert!(!pair.nodes[1].shard.await_quantum(pair.nodes[1].qp), "nothing waits there");
}

// Checks IBTA: 9.7.5-f.
#[test]
fn a_peer_refuses_what_its_memory_does_not_grant() {
    let beyond = |element: SendElement| SendElement { target: element.target + MEMORY - 100, ..element };
    let before = |element: SendElement| SendElement { target: element.target - 1, ..element };
    let forged = |element: SendElement| SendElement { key: element.key ^ 0x100, ..element };
    for change in [beyond, before, forged] {
        for opcode in [SendOpcode::Write, SendOpcode::Read] {
            let mut pair = pair();
            pair.nodes[1].post_receive(&[]);
            let [one, other] = &pair.nodes;
            let element = change(one.remote(opcode, other, 0));
            let untouched = other.read(0, MEMORY as usize);
            post_and_another(&mut pair, element, 4000);
            assert!(pair.completed(3));
            assert_eq!(statuses(&pair, 0), [Status::RemoteAccess, Status::Flushed]);
            assert_eq!(statuses(&pair, 1), [Status::Flushed]);
            let qp = pair.nodes[1].qp;
            assert_eq!(pair.nodes[1].events, [Event::Async(AsyncEvent::QpAccessError, qp)]);
            assert_eq!([state(&pair, 0), state(&pair, 1)], [Some(QpState::Error); 2]);
            assert!(pair.nodes[1].read(0, MEMORY as usize) == untouched);
        }
    }
}

// Checks IBTA: 9.7.5-f.
#[test]
fn a_queue_pair_grants_what_its_rights_allow() {
    for (opcode, len) in [(SendOpcode::Write, 10), (SendOpcode::Read, 10), (SendOpcode::FetchAdd, 8)] {
        let mut pair = pair();
        let none = QpAttributes { rights: Some(memory::Rights::NONE), ..QpAttributes::default() };
        let other = &mut pair.nodes[1];
        other.shard.modify_qp(other.qp, &none).unwrap();
        let element = pair.nodes[0].remote(opcode, &pair.nodes[1], 0);
        post_and_another(&mut pair, element, len);
        assert!(pair.completed(2));
        assert_eq!(statuses(&pair, 0), [Status::RemoteAccess, Status::Flushed], "{opcode:?}");
    }
}

// Checks IBTA: 9.4.5-a.
#[test]
fn an_atomic_on_an_odd_address_is_an_invalid_request() {
    let mut pair = pair();
    let element = pair.nodes[0].remote(SendOpcode::CompareSwap, &pair.nodes[1], 4);
    post_and_another(&mut pair, element, 8);
    assert!(pair.completed(2));
    assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest, Status::Flushed]);
}

#[test]
fn a_message_that_does_not_fit_fails_on_both_sides() {
    let mut pair = pair();
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 1500)]);
    other.post_receive(&[other.piece(0, 1500)]);
    let element = pair.nodes[0].work(SendOpcode::Send);
    post_and_another(&mut pair, element, 2000);
    assert!(pair.completed(4));
    assert_eq!(statuses(&pair, 0), [Status::RemoteInvalidRequest, Status::Flushed]);
    assert_eq!(statuses(&pair, 1), [Status::LocalLength, Status::Flushed]);
}

#[test]
fn read_only_receive_memory_fails_on_both_sides() {
    let mut pair = pair();
    let other = &mut pair.nodes[1];
    other.post_receive(&[Piece { key: 12345, ..other.piece(0, 1500) }]);
    let element = pair.nodes[0].work(SendOpcode::Send);
    post_and_another(&mut pair, element, 20);
    assert!(pair.completed(3));
    assert_eq!(statuses(&pair, 0), [Status::RemoteOperation, Status::Flushed]);
    assert_eq!(statuses(&pair, 1), [Status::LocalProtection]);
}

#[test]
fn a_false_work_request_fails_after_those_before_it() {
    type Change = fn(&mut SendElement, &mut Piece);
    let wrong: [(Change, Status); 4] = [
        (|_, piece| piece.key ^= 1 << 31, Status::LocalProtection),
        (|_, piece| piece.address += MEMORY, Status::LocalProtection),
        (|element, _| element.opcode = SendOpcode::BindWindow, Status::LocalQpOperation),
        (|element, _| element.opcode = SendOpcode::FetchAdd, Status::LocalLength),
    ];
    for (change, status) in wrong {
        let mut pair = pair();
        let [one, other] = &mut pair.nodes;
        let element = one.remote(SendOpcode::Write, other, 0);
        let piece = one.piece(0, 3000);
        one.post(element, &[piece]);
        let (mut changed, mut wrong) = (element, piece);
        change(&mut changed, &mut wrong);
        one.post(changed, &[wrong]);
        one.post(element, &[piece]);
        assert!(pair.completed(3));
        assert_eq!(statuses(&pair, 0), [Status::Success, status, Status::Flushed]);
        assert_eq!((statuses(&pair, 1), state(&pair, 1)), (vec![], Some(QpState::ReadyToSend)));
    }
}

// Checks IBTA: 9.7.6-a.
#[test]
fn a_peer_that_is_silent_is_given_up_after_all_retries() {
    let settings = Settings { retries: 3, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    pair.wire.gate = Some(Box::new(|_, _| false));
    let element = pair.nodes[0].remote(SendOpcode::Write, &pair.nodes[1], 0);
    post_and_another(&mut pair, element, 100);
    let begun = pair.now;
    assert!(pair.completed(2));
    assert_eq!(statuses(&pair, 0), [Status::RetryExceeded, Status::Flushed]);
    // A millisecond each, four times (IBTA 1.3, 9.7.6.1.3).
    assert!((4 * MS..17 * MS).contains(&(pair.now - begun)), "{} ns", pair.now - begun);
    assert_eq!(pair.wire.count(), 4, "both packets in one frame, four times");
}

/// Half a millisecond for each packet of a read, of which the third is lost. What is behind it takes longer than all
/// retries together, and comes before what is asked for again.
#[test]
fn a_peer_that_answers_slowly_is_not_given_up() {
    let mut pair = Pair::connected([SETTINGS; 2], Wire::between_machines());
    pair.wire.slower = 4000;
    let mut responses = 0;
    pair.wire.gate = Some(Box::new(move |to, bytes| {
        responses += u32::from(to == 0 && bytes.len() > 1000);
        responses != 3
    }));
    let element = pair.nodes[0].remote(SendOpcode::Read, &pair.nodes[1], 0);
    let piece = pair.nodes[0].piece(0, 60_000);
    pair.nodes[0].post(element, &[piece]);
    assert!(pair.completed(1));
    assert_eq!(statuses(&pair, 0), [Status::Success]);
}

// Checks IBTA: 9.7.5-g.
#[test]
fn a_peer_that_is_never_ready_is_given_up_after_all_rnr_retries() {
    let settings = Settings { rnr_retries: 2, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    let element = pair.nodes[0].work(SendOpcode::Send);
    post_and_another(&mut pair, element, 100);
    assert!(pair.completed(2));
    assert_eq!(statuses(&pair, 0), [Status::RnrRetryExceeded, Status::Flushed]);
    assert_eq!((statuses(&pair, 1), state(&pair, 1)), (vec![], Some(QpState::ReadyToSend)));
    assert!(pair.nodes[1].drops.get(DropReason::NoReceive) == 3);
}

// Checks IBTA: 9.7.5-g.
#[test]
fn an_rnr_nak_makes_the_message_wait_for_its_receive() {
    let mut pair = pair();
    let element = pair.nodes[0].work(SendOpcode::Send);
    pair.nodes[0].post_inline(element, b"late");
    pair.idle(2 * MS);
    assert_eq!(pair.nodes[0].completions, []);
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 10)]);
    assert!(pair.completed(2));
    assert_eq!(pair.nodes[1].read(0, 5), b"late\0");
}

// Checks IBTA: 10.10.2-a.
#[test]
fn an_overrun_of_a_completion_queue_ends_its_queue_pairs() {
    let settings = Settings { completions: 16, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    let [one, other] = &mut pair.nodes;
    let element = one.remote(SendOpcode::Write, other, 0);
    for _ in 0..40 {
        one.post(element, &[one.piece(0, 8)]);
    }
    one.takes_completions = false;
    pair.idle(MS);
    let one = &mut pair.nodes[0];
    one.takes_completions = true;
    let events = [Event::Async(AsyncEvent::CompletionQueueError, 3), Event::Async(AsyncEvent::QpFatal, one.qp)];
    assert_eq!(one.events, events);
    assert_eq!(state(&pair, 0), Some(QpState::Error));
    pair.idle(MS);
    assert_eq!(pair.nodes[0].ended(), (0..16).map(|number| (Status::Success, number)).collect::<Vec<_>>());
}

// Checks IBTA: 10.3.1-c.
#[test]
fn the_error_state_flushes_what_is_there_and_what_comes() {
    let mut pair = pair();
    let other = &mut pair.nodes[1];
    (0..3).for_each(|_| other.post_receive(&[other.piece(0, 10)]));
    let element = other.work(SendOpcode::Send);
    other.post(element, &[]);
    other.post(element, &[]);
    pair.idle(MS);
    pair.nodes[1].go(QpState::Error);
    assert_eq!(state(&pair, 1), Some(QpState::Error));
    assert!(pair.completed(5));
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 10)]);
    other.post(element, &[]);
    assert!(other.shard.has_work(0));
    assert!(pair.completed(7));
    assert_eq!(statuses(&pair, 1), [Status::Flushed; 7]);
    let numbers = |receives: bool| {
        let done = pair.nodes[1].completions.iter().filter(move |done| done.is_receive() == receives);
        done.map(|done| done.number).collect::<Vec<_>>()
    };
    assert_eq!((numbers(false), numbers(true)), (vec![0, 1, 2], vec![0, 1, 2, 3]));
}

#[test]
fn a_queue_pair_can_be_used_again_after_a_reset() {
    let mut pair = pair();
    pair.nodes[0].post_receive(&[pair.nodes[0].piece(0, 10)]);
    let element = pair.nodes[0].work(SendOpcode::Send);
    post_and_another(&mut pair, element, 10);
    pair.idle(MS / 10);
    post_and_another(&mut pair, element, 10);
    for side in 0..2 {
        pair.nodes[side].go(QpState::Reset);
        let remote = pair.nodes[1 - side].qp;
        pair.nodes[side].connect(remote, [100, 100], support::path(side));
    }
    pair.idle(2 * MS);
    assert_eq!([statuses(&pair, 0), statuses(&pair, 1)], [vec![], vec![]]);
    let [one, other] = &mut pair.nodes;
    let element = one.remote(SendOpcode::Write, other, 0);
    let number = one.post(element, &[one.piece(0, 100)]);
    assert!(pair.completed(1));
    assert_eq!(pair.nodes[0].ended(), [(Status::Success, number)]);
}

#[test]
fn a_removed_queue_pair_adds_no_completion() {
    let mut pair = pair();
    let element = pair.nodes[0].remote(SendOpcode::Write, &pair.nodes[1], 0);
    post_and_another(&mut pair, element, 50_000);
    pair.step();
    let one = &mut pair.nodes[0];
    one.shard.remove_qp(one.qp).unwrap();
    pair.idle(3 * MS);
    assert_eq!(statuses(&pair, 0), []);
    assert!(pair.nodes[0].drops.get(DropReason::QpUnknown) > 0);
    assert!(pair.nodes[0].shard.remove_cq(3).is_ok());
    assert!(pair.nodes[1].shard.remove_cq(3).is_err(), "it is in use");
}

#[test]
fn memory_that_is_deregistered_under_a_read_ends_it() {
    let mut pair = pair();
    let element = pair.nodes[0].remote(SendOpcode::Read, &pair.nodes[1], 0);
    post_and_another(&mut pair, element, 1 << 20);
    assert!(pair.run(MS, |pair| pair.nodes[0].read((1 << 19) - 1, 1) == [0] && pair.wire.count() > 4));
    let (other, domain) = (&pair.nodes[1], memory::Domain(7));
    let key = other.key;
    other.table.revoke(domain, key).unwrap();
    // Packets under way refer to it.
    assert_eq!(other.table.finish(domain, key), Ok(false));
    assert!(pair.completed(2));
    assert_eq!(statuses(&pair, 0), [Status::RemoteAccess, Status::Flushed]);
    assert_eq!(pair.nodes[1].table.finish(domain, key), Ok(true));
}

#[test]
fn a_send_pipe_with_garbage_ends_all_queue_pairs_of_the_program() {
    let mut pair = pair();
    let element = pair.nodes[0].remote(SendOpcode::Write, &pair.nodes[1], 0);
    pair.nodes[0].post(element, &[]);
    pair.nodes[0].send.push([u64::MAX; 8]).unwrap();
    pair.nodes[0].post(element, &[]);
    pair.idle(MS);
    assert_eq!(pair.nodes[0].events, [Event::SendPipeCorrupt]);
    assert_eq!((statuses(&pair, 0).len(), state(&pair, 0)), (1, Some(QpState::Error)));
    assert_eq!(state(&pair, 1), Some(QpState::ReadyToSend));
}

// Checks IBTA: 10.3.1-b.
#[test]
fn a_send_queue_drains_and_goes_on() {
    let mut pair = pair();
    let element = pair.nodes[0].remote(SendOpcode::Write, &pair.nodes[1], 0);
    post_and_another(&mut pair, element, 30_000);
    pair.nodes[1].post_receive(&[]);
    pair.step();
    pair.nodes[0].go(QpState::SendQueueDrained);
    pair.nodes[0].post(element, &[]);
    let qp = pair.nodes[0].qp;
    assert!(pair.run(MS, |pair| !pair.nodes[0].events.is_empty()));
    assert_eq!(pair.nodes[0].events, [Event::Async(AsyncEvent::SendQueueDrained, qp)]);
    let begun = statuses(&pair, 0).len();
    assert!(begun < 3);
    pair.nodes[0].go(QpState::ReadyToSend);
    assert!(pair.completed(4));
    assert_eq!(statuses(&pair, 0), [Status::Success; 3]);
}

// Checks IBTA: 11.6.3-a.
#[test]
fn the_first_message_reports_that_the_connection_is_there() {
    let mut pair = Pair::connected([SETTINGS; 2], Wire::perfect());
    pair.nodes[1].go(QpState::Reset);
    let ready = pair.nodes[1].attributes(pair.nodes[0].qp, [0, SETTINGS.psn]);
    let other = &mut pair.nodes[1];
    ready[..2].iter().for_each(|attributes| other.shard.modify_qp(other.qp, attributes).unwrap());
    let element = pair.nodes[0].remote(SendOpcode::Write, &pair.nodes[1], 0);
    post_and_another(&mut pair, element, 100);
    pair.idle(MS / 2);
    assert_eq!(statuses(&pair, 0), [], "no way back is known");
    let qp = pair.nodes[1].qp;
    assert_eq!(pair.nodes[1].events, [Event::Async(AsyncEvent::CommunicationEstablished, qp)]);
    pair.nodes[1].shard.set_path(qp, support::path(1)).unwrap();
    pair.nodes[1].post_receive(&[]);
    assert!(pair.completed(3));
}
