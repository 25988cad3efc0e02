//! Datagrams, unreliable connections, and shared receive queues.
mod support;

use engine::DropReason;
use memory::Domain;
use smartns::{Event, NewHandle};
use support::{MS, Pair, SETTINGS, Settings, Wire};
use verbs::{AsyncEvent, CompletionFlags, Datagram, Mtu, QpKind, QpState, SendElement, SendOpcode, Status};
use wire::Ipv4Addr;
use wire::roce::{MULTICAST_QP, Path};

const QUEUE_KEY: u32 = 0x1111;

fn datagrams() -> Pair {
    Pair::connected([Settings { kind: QpKind::Ud, ..SETTINGS }; 2], Wire::perfect())
}

fn handle(number: u32, domain: u32, path: Option<Path>) -> NewHandle {
    NewHandle { number, domain: Domain(domain), path }
}

/// A datagram to the other side's queue pair by handle 1.
fn datagram(pair: &Pair, key: u32) -> SendElement {
    let mut element = pair.nodes[0].work(SendOpcode::SendImmediate);
    element.set_datagram(Datagram { handle: 1, qp: pair.nodes[1].qp, key });
    element.immediate = 9;
    element
}

// Checks IBTA: A17.4.5-a.
#[test]
fn a_datagram_comes_with_where_it_came_from() {
    let mut pair = datagrams();
    pair.nodes[0].shard.add_handle(handle(1, 7, Some(support::path(0)))).unwrap();
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 30), other.piece(1000, 100)]);
    let element = datagram(&pair, QUEUE_KEY);
    pair.nodes[0].post_inline(element, b"to whom it may concern");
    assert!(pair.completed(2));
    let other = &pair.nodes[1];
    let done = other.completions[0];
    assert_eq!((done.bytes, done.immediate, done.remote_qp, done.service_level & 3), (62, 9, pair.nodes[0].qp, 2));
    assert_eq!(done.flags, CompletionFlags::GRH | CompletionFlags::IMMEDIATE);
    let header = [other.read(20, 10), other.read(1000, 10)].concat();
    let (ip, _) = wire::ipv4::Header::parse(&header, 1000).unwrap();
    assert_eq!((ip.src, ip.dst), (support::path(0).local, support::path(0).remote));
    assert_eq!(other.read(1010, 23), b"to whom it may concern\0");
}

// Checks IBTA: 10.2.5-a.
#[test]
fn datagrams_that_do_not_fit_or_have_a_false_key_are_dropped() {
    let mut pair = datagrams();
    pair.nodes[0].shard.add_handle(handle(1, 7, Some(support::path(0)))).unwrap();
    let (right, wrong) = (datagram(&pair, QUEUE_KEY), datagram(&pair, QUEUE_KEY + 1));
    pair.nodes[0].post_inline(right, b"nobody is there");
    pair.idle(MS);
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 50)]);
    pair.nodes[0].post_inline(wrong, b"no");
    pair.nodes[0].post_inline(right, b"too long by one");
    // The highest bit asks for the sender's own key.
    pair.nodes[0].post_inline(SendElement { key: 1 << 31, ..right }, b"just fits.");
    assert!(pair.completed(5));
    assert_eq!(pair.nodes[0].ended(), (0..4).map(|number| (Status::Success, number)).collect::<Vec<_>>());
    let other = &pair.nodes[1];
    assert_eq!((other.ended(), other.read(40, 11)), (vec![(Status::Success, 0)], b"just fits.\0".to_vec()));
    let dropped = [DropReason::NoReceive, DropReason::QueueKey, DropReason::MessageIncomplete];
    assert_eq!(dropped.map(|reason| other.drops.get(reason)), [1; 3]);
}

#[test]
fn a_handle_whose_neighbour_is_not_known_holds_back() {
    let mut pair = datagrams();
    pair.nodes[0].shard.add_handle(handle(1, 7, None)).unwrap();
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 100)]);
    let element = datagram(&pair, QUEUE_KEY);
    pair.nodes[0].post_inline(element, b"later");
    pair.idle(MS);
    assert_eq!((pair.wire.count(), pair.nodes[0].completions.len()), (0, 0));
    pair.nodes[0].shard.set_handle_path(1, support::path(0)).unwrap();
    assert!(pair.completed(2));
}

// Checks IBTA: 9.8.4-a.
#[test]
fn what_a_datagram_cannot_be_ends_in_error() {
    let too_long = |pair: &mut Pair| {
        let piece = pair.nodes[0].piece(0, Mtu::B1024.bytes() as u32 + 1);
        let element = datagram(pair, QUEUE_KEY);
        pair.nodes[0].post(element, &[piece]);
        Status::LocalLength
    };
    let write = |pair: &mut Pair| {
        let element = SendElement { opcode: SendOpcode::Write, ..datagram(pair, QUEUE_KEY) };
        pair.nodes[0].post(element, &[]);
        Status::LocalQpOperation
    };
    let others_handle = |pair: &mut Pair| {
        let mut element = datagram(pair, QUEUE_KEY);
        element.set_datagram(Datagram { handle: 2, ..element.datagram() });
        pair.nodes[0].post(element, &[]);
        Status::LocalQpOperation
    };
    for case in [too_long as fn(&mut Pair) -> Status, write, others_handle] {
        let mut pair = datagrams();
        pair.nodes[0].shard.add_handle(handle(1, 7, Some(support::path(0)))).unwrap();
        pair.nodes[0].shard.add_handle(handle(2, 8, Some(support::path(0)))).unwrap();
        let status = case(&mut pair);
        assert!(pair.completed(1));
        assert_eq!(pair.nodes[0].ended(), [(status, 0)]);
        assert_eq!(pair.wire.count(), 0);
    }
}

#[test]
fn datagrams_that_are_posted_are_known_until_they_are_sent() {
    let mut pair = datagrams();
    pair.nodes[0].shard.add_handle(handle(1, 7, Some(support::path(0)))).unwrap();
    assert!(!pair.nodes[0].shard.has_datagrams());
    let element = datagram(&pair, QUEUE_KEY);
    pair.nodes[0].post_inline(element, b"posted");
    assert!(pair.nodes[0].shard.has_datagrams());
    pair.step();
    assert!(!pair.nodes[0].shard.has_datagrams());
    assert_eq!(pair.nodes[0].ended(), [(Status::Success, 0)]);
}

// Checks IBTA: 10.5-a.
#[test]
fn members_of_a_group_get_what_is_sent_to_it() {
    let mut pair = datagrams();
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let to_group = Path { remote: group, ..support::path(0) };
    pair.nodes[0].shard.add_handle(handle(1, 7, Some(to_group))).unwrap();
    let mut element = datagram(&pair, QUEUE_KEY);
    element.set_datagram(Datagram { qp: MULTICAST_QP, ..element.datagram() });
    let other = &mut pair.nodes[1];
    other.post_receive(&[other.piece(0, 100)]);
    pair.nodes[0].post_inline(element, b"before");
    pair.idle(MS);
    let other = &mut pair.nodes[1];
    assert!(other.shard.attach(other.qp, Ipv4Addr::new(10, 1, 2, 3)).is_err());
    other.shard.attach(other.qp, group).unwrap();
    pair.nodes[0].post_inline(element, b"member");
    assert!(pair.completed(3));
    assert_eq!(pair.nodes[1].read(40, 6), b"member");
    let other = &mut pair.nodes[1];
    other.shard.detach(other.qp, group).unwrap();
    assert!(other.shard.detach(other.qp, group).is_err());
}

/// Loses the packet of this number, counted from 0.
fn losing(number: u64) -> Wire {
    let mut wire = Wire::between_machines();
    let mut count = 0;
    wire.gate = Some(Box::new(move |_, _| {
        count += 1;
        count != number + 1
    }));
    wire
}

// Checks IBTA: 9.8.3-a.
#[test]
fn an_unreliable_connection_loses_whole_messages_and_no_others() {
    for lost in 0..4 {
        let settings = Settings { kind: QpKind::Uc, ..SETTINGS };
        let mut pair = Pair::connected([settings; 2], losing(lost));
        let [one, other] = &mut pair.nodes;
        (0..2).for_each(|at| other.post_receive(&[other.piece(10_000 * at, 5000)]));
        one.write(0, &[7; 4000]);
        one.post(one.work(SendOpcode::Send), &[one.piece(0, 3000)]);
        let mut element = one.remote(SendOpcode::WriteImmediate, other, 50_000);
        element.immediate = 3;
        one.post(element, &[one.piece(0, 4)]);
        one.post(one.work(SendOpcode::Send), &[one.piece(0, 2)]);
        pair.idle(MS);
        assert_eq!(pair.nodes[0].ended(), (0..3).map(|number| (Status::Success, number)).collect::<Vec<_>>());
        let bytes: Vec<u32> = pair.nodes[1].completions.iter().map(|done| done.bytes).collect();
        // Packets 0 to 2 are the first message, packet 3 the second one.
        assert_eq!(bytes, if lost == 3 { vec![3000, 2] } else { vec![4, 2] }, "packet {lost} is lost");
        assert_eq!(pair.nodes[1].shard.query_qp(0x1234).unwrap().state, Some(QpState::ReadyToSend));
    }
}

// Checks IBTA: 9.8.3-a.
#[test]
fn an_unreliable_connection_refuses_silently() {
    let settings = Settings { kind: QpKind::Uc, ..SETTINGS };
    let mut pair = Pair::connected([settings; 2], Wire::perfect());
    let [one, other] = &mut pair.nodes;
    let forged = SendElement { key: 5, ..one.remote(SendOpcode::Write, other, 0) };
    one.post(forged, &[one.piece(0, 100)]);
    one.post(one.work(SendOpcode::Send), &[]);
    one.post(one.work(SendOpcode::Read), &[]);
    assert!(pair.completed(3));
    pair.idle(MS);
    assert_eq!(pair.nodes[0].completions[2].status, Status::LocalQpOperation);
    assert_eq!((pair.wire.count(), pair.nodes[1].completions.len()), (2, 0));
    let dropped = [DropReason::RequestRefused, DropReason::NoReceive];
    assert_eq!(dropped.map(|reason| pair.nodes[1].drops.get(reason)), [1, 1]);
}

// Checks IBTA: 10.2.9-a.
#[test]
fn a_shared_queue_reports_that_it_runs_low() {
    let mut pair = Pair::connected([Settings { shared_receives: true, ..SETTINGS }; 2], Wire::perfect());
    let other = &mut pair.nodes[1];
    (0..4).for_each(|at| other.post_receive(&[other.piece(100 * at, 50), other.piece(100 * at + 50, 50)]));
    other.shard.limit_srq(5, 3).unwrap();
    assert!(other.shard.remove_srq(5).is_err() && other.shard.limit_srq(6, 1).is_err());
    let element = pair.nodes[0].work(SendOpcode::Send);
    let low = |pair: &Pair| pair.nodes[1].events == [Event::Async(AsyncEvent::SrqLimitReached, 5)];
    pair.nodes[0].post(element, &[]);
    assert!(pair.completed(2) && !low(&pair));
    pair.nodes[0].post(element, &[]);
    assert!(pair.completed(4) && low(&pair));
    pair.nodes[0].post(element, &[]);
    assert!(pair.completed(6) && low(&pair), "once");
    let numbers: Vec<u32> = pair.nodes[1].completions.iter().map(|done| done.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    pair.nodes[1].go(QpState::Error);
    pair.idle(MS);
    let qp = pair.nodes[1].qp;
    assert_eq!(pair.nodes[1].events[1..], [Event::Async(AsyncEvent::LastReceiveReached, qp)]);
    assert_eq!(pair.nodes[1].completions.len(), 3, "what is in a shared queue stays there");
}
