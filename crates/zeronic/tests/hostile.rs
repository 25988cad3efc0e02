//! Peers and transports that lie, and payload without a place: nothing outside posted memory is written, nothing is
//! reported before it is in order, and nothing leaves that was not posted.
#[path = "support/script.rs"]
mod script;
mod support;

use memory::Key;
use script::{HERE, OURS, Scene, SentSegment, THEIRS, THERE};
use std::net::SocketAddrV4;
use support::{DOMAIN, REGION_LEN};
use wire::Ipv4Tuple;
use wire::Seq;
use wire::tcp::{Flags, Options, Timestamps};
use zeronic::{Carries, Event, InOrder, Segment, Shortage, Socket};

const ACK: Flags = Flags::ACK;

fn segment(region: u32, offset: u64, len: u64) -> Segment {
    Segment { key: Key(region), offset, len }
}

/// Data of the peer's, from byte `at` of its stream on.
fn data(at: u32, payload: &[u8]) -> SentSegment {
    SentSegment::new(THEIRS + at, OURS, ACK, payload)
}

/// An acknowledgment of the transport's, up to byte `at` of the peer's stream.
fn ack(at: u32, window: u16) -> SentSegment {
    SentSegment { window, ..SentSegment::new(OURS, THEIRS + at, ACK, &[]) }
}

fn in_order(scene: &mut Scene, bytes: u64) {
    scene.stack.transport().in_order = InOrder { bytes, ended: false };
}

fn memory(scene: &Scene, region: usize) -> [u8; REGION_LEN] {
    scene.stack.memory().0.borrow()[region]
}

#[test]
fn payload_is_placed_and_the_transport_sees_headers() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 7, segment(0, 8, 6)).unwrap();
    in_order(&mut scene, 4);
    scene.peer_sends(&[data(0, &[1, 2, 3, 4])]);
    let seen = scene.seen();
    assert_eq!((seen.len(), seen[0].seq, &seen[0].payload[..]), (1, THEIRS, &[0; 4][..]), "dummy payload");
    assert_eq!(memory(&scene, 0)[7..15], [0, 1, 2, 3, 4, 0, 0, 0]);
    assert_eq!(scene.events(), [], "the receive is not full");
    in_order(&mut scene, 2);
    scene.peer_sends(&[SentSegment { flags: ACK | Flags::URG | Flags::PSH, ..data(4, &[5, 6]) }]);
    assert_eq!(scene.seen()[0].flags, ACK | Flags::PSH, "no urgent data");
    assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 7, bytes: 6 }]);
}

#[test]
fn without_a_line_the_transport_has_the_payload() {
    let mut scene = Scene::without_line();
    scene.peer_sends(&[data(0, &[1, 2, 3, 4])]);
    assert_eq!(scene.seen()[0].payload, [1, 2, 3, 4]);
    scene.transport_sends(&[SentSegment::new(OURS, THEIRS + 4u32, ACK, &[9; 5])]);
    assert_eq!(scene.line.sent.pop().unwrap().payload, [9; 5]);
    // Only what it reads goes to a receive, and no further.
    scene.stack.transport().to_read = vec![1, 2, 3, 4];
    scene.stack.post_receive(scene.connection, 7, segment(0, 8, 3)).unwrap();
    scene.poll();
    assert_eq!(memory(&scene, 0)[7..13], [0, 1, 2, 3, 0, 0]);
    assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 7, bytes: 3 }]);
    scene.stack.memory().unmap();
    scene.stack.post_receive(scene.connection, 8, segment(0, 20, 3)).unwrap();
    scene.poll();
    assert!(matches!(scene.events()[..], [Event::Failed { .. }]), "its memory is gone");
    assert_eq!(scene.stack.views(1).len(), 0);
}

#[test]
fn without_a_line_only_what_was_taken_can_be_acknowledged() {
    let mut scene = Scene::without_line();
    scene.stack.transport().acknowledged = 1000;
    scene.stack.post_send(scene.connection, 1, segment(0, 0, 8)).unwrap();
    scene.poll();
    assert_eq!((scene.stack.transport().written.len(), scene.events()), (8, vec![]));
    scene.stack.transport().acknowledged = 7;
    scene.stack.post_send(scene.connection, 2, segment(0, 8, 8)).unwrap();
    scene.poll();
    assert_eq!((scene.stack.transport().written.len(), scene.events()), (16, vec![]));
    scene.stack.transport().acknowledged = 15;
    scene.transport_sends(&[ack(0, 100)]);
    scene.poll();
    assert_eq!(scene.events(), [Event::Sent { connection: scene.connection, id: 1 }]);
}

#[test]
fn headers_of_a_burst_become_one() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 7, segment(0, 0, 30)).unwrap();
    scene.peer_sends(&[data(0, &[1; 4]), data(4, &[2; 4]), data(8, &[3; 3]), data(11, &[4; 3]), data(20, &[5; 2])]);
    let seen: Vec<_> = scene.seen().into_iter().map(|sent| (sent.seq - THEIRS, sent.payload.len())).collect();
    // A short one ends a super-segment.
    assert_eq!(seen, [(0, 11), (11, 3), (20, 2)]);
    assert_eq!(memory(&scene, 0)[..14], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
    assert_eq!(scene.stack.counters().merged, 2);
}

#[test]
fn without_a_place_drop() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.transport_sends(&[ack(0, 100)]);
    scene.peer_sends(&[data(0, &[1; 4])]);
    assert_eq!(scene.seen(), [], "as if it were lost");
    let answers = scene.line.sent.drain(..).filter(|sent| sent.payload.is_empty()).count();
    assert_eq!(answers, 2, "the transport's ACK, and an answer");
    scene.peer_sends(&[data(0, &[1; 4])]);
    assert_eq!(scene.line.sent.len(), 0, "not more often than every 10 ms");
    scene.stack.post_receive(scene.connection, 7, segment(0, 8, 3)).unwrap();
    scene.peer_sends(&[SentSegment { flags: ACK | Flags::FIN, ..data(0, &[1; 4]) }]);
    let seen = scene.seen();
    assert_eq!((seen[0].payload.len(), seen[0].flags), (3, ACK), "shortened to what has a place, without its FIN");
    assert_eq!(memory(&scene, 0)[7..13], [0, 1, 1, 1, 0, 0]);
}

#[test]
fn without_a_place_buffer() {
    let mut scene = Scene::new(Shortage::Buffer);
    scene.peer_sends(&[data(0, &[1, 2, 3, 4])]);
    assert_eq!(scene.seen(), []);
    scene.stack.post_receive(scene.connection, 7, segment(0, 8, 6)).unwrap();
    in_order(&mut scene, 4);
    scene.poll();
    assert_eq!(scene.seen()[0].payload.len(), 4, "when there is memory");
    assert_eq!(memory(&scene, 0)[7..13], [0, 1, 2, 3, 4, 0]);
    // What is kept is bounded.
    for at in 0..400u32 {
        scene.peer_sends(&[data(6 + 900 * at, &[9; 900])]);
    }
    let counters = scene.stack.counters();
    assert!(counters.not_kept > 50 && counters.without_place == 401, "{counters:?}");
}

#[test]
fn without_a_place_defer() {
    let mut scene = Scene::new(Shortage::Defer);
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 2)).unwrap();
    in_order(&mut scene, 6);
    scene.peer_sends(&[data(0, &[1, 2, 3, 4, 5, 6])]);
    scene.transport_sends(&[ack(6, 100)]);
    assert_eq!(scene.seen()[0].payload.len(), 6, "the transport sees it at once");
    assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 1, bytes: 2 }]);
    for (id, region) in [(2, 1), (3, 2)] {
        scene.stack.post_receive(scene.connection, id, segment(region, 5, 2)).unwrap();
        scene.poll();
        let bytes = [2 * id as u8 - 1, 2 * id as u8];
        assert_eq!(memory(&scene, region as usize)[4..8], [0, bytes[0], bytes[1], 0]);
        assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id, bytes: 2 }]);
    }
}

#[test]
fn a_transport_that_acknowledges_what_never_came() {
    let mut scene = Scene::new(Shortage::Drop);
    (0..3).for_each(|id| scene.stack.post_receive(scene.connection, id, segment(0, 4 * id, 4)).unwrap());
    in_order(&mut scene, 1_000_000);
    scene.transport_sends(&[ack(12, 100), ack(5000, 100)]);
    scene.peer_sends(&[data(4, &[2; 4])]);
    assert_eq!(scene.events(), [], "there is a hole");
    scene.peer_sends(&[data(0, &[1; 4])]);
    let done = |id| Event::Received { connection: scene.connection, id, bytes: 4 };
    let expected = [done(0), done(1)];
    assert_eq!(scene.events(), expected);
    assert_eq!(memory(&scene, 0)[..12], [1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0]);
}

#[test]
fn a_transport_that_sends_what_was_not_posted() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.memory().0.borrow_mut()[0][..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let out = |at: u32, len: usize| SentSegment::new(OURS + at, THEIRS, ACK, &vec![0xdd; len]);
    scene.transport_sends(&[out(0, 3)]);
    assert_eq!(scene.line.sent, [], "nothing was posted");
    scene.stack.post_send(scene.connection, 1, segment(0, 0, 6)).unwrap();
    scene.transport_sends(&[out(0, 4), out(2, 4), out(4, 4)]);
    let sent: Vec<_> = scene.line.sent.drain(..).map(|sent| sent.payload).collect();
    assert_eq!(sent, [vec![1, 2, 3, 4], vec![3, 4, 5, 6]], "the last one goes beyond");
    // A retransmission of what is acknowledged may meet memory that the application uses again.
    scene.stack.transport().acknowledged = 5;
    scene.peer_sends(&[SentSegment::new(THEIRS, OURS + 5, ACK, &[])]);
    scene.transport_sends(&[out(0, 4), out(3, 3)]);
    let sent: Vec<_> = scene.line.sent.drain(..).map(|sent| (sent.seq - OURS, sent.payload)).collect();
    assert_eq!(sent, [(4, vec![]), (5, vec![6])]);
    assert_eq!(scene.stack.transport().taken, 6);
}

#[test]
fn a_transport_that_acknowledges_more_than_was_sent() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_send(scene.connection, 1, segment(0, 0, 6)).unwrap();
    scene.stack.post_send(scene.connection, 2, segment(0, 6, 6)).unwrap();
    scene.stack.transport().acknowledged = u64::MAX / 2;
    scene.transport_sends(&[SentSegment::new(OURS, THEIRS, ACK, &[0; 6])]);
    scene.peer_sends(&[SentSegment::new(THEIRS, OURS + 12, ACK, &[])]);
    assert_eq!(scene.events().len(), 0, "so far from what was sent, it is behind");
    scene.stack.transport().acknowledged = 12;
    scene.peer_sends(&[SentSegment::new(THEIRS, OURS + 12, ACK, &[])]);
    assert_eq!(scene.events(), [Event::Sent { connection: scene.connection, id: 1 }]);
}

#[test]
fn a_transport_that_dies() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 8)).unwrap();
    scene.stack.transport().dies = Some("gone".into());
    scene.peer_sends(&[data(0, &[1; 4])]);
    assert_eq!(scene.events(), [Event::Failed { connection: scene.connection, why: "gone".into() }]);
    // From now on its memory is not touched.
    let before = memory(&scene, 0);
    scene.peer_sends(&[data(4, &[2; 4])]);
    scene.transport_sends(&[SentSegment::new(OURS, THEIRS, ACK, &[0xdd; 4])]);
    assert_eq!((memory(&scene, 0), scene.line.sent.len()), (before, 0), "nor does dummy payload leave");
    assert!(scene.stack.post_receive(scene.connection, 1, segment(0, 0, 8)).is_err());
}

#[test]
fn frames_that_are_damaged_or_cut_up() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 32)).unwrap();
    let good = data(0, &[1; 16]).frame(THERE, HERE);
    let mut frames: Vec<Vec<u8>> = (0..good.len()).map(|len| good[..len].to_vec()).collect();
    // Each bit of the payload and of the headers that the checksum covers, one after the other.
    frames.extend((34 * 8..good.len() * 8).map(|bit| {
        let mut frame = good.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        frame
    }));
    let mut fragment = good.clone();
    ipv4_fragment(&mut fragment);
    frames.push(fragment);
    for frame in frames {
        scene.line.to_receive = vec![frame];
        scene.poll();
    }
    assert_eq!(memory(&scene, 0), [0; REGION_LEN]);
    assert!(scene.stack.counters().malformed > 150, "{:?}", scene.stack.counters());
    scene.line.to_receive = vec![good];
    scene.poll();
    assert_eq!(memory(&scene, 0)[..17], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
}

/// Makes a frame the first of several fragments.
fn ipv4_fragment(frame: &mut [u8]) {
    frame[20] = 0x20;
    frame[24..26].fill(0);
    let mut sum = wire::checksum::Sum::new();
    sum.add(&frame[14..34]);
    let field = sum.finish().to_be_bytes();
    frame[24..26].copy_from_slice(&field);
}

#[test]
fn false_syns_move_nothing() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 8)).unwrap();
    let syn = |flags: Flags, ack: Seq| SentSegment::new(THEIRS + 1000, ack, flags, &[9; 4]);
    scene.peer_sends(&[syn(Flags::SYN, Seq(0)), syn(Flags::SYN | ACK, OURS), syn(Flags::SYN | ACK, OURS + 9)]);
    scene.peer_sends(&[data(0, &[1; 4])]);
    assert_eq!(memory(&scene, 0)[..5], [1, 1, 1, 1, 0]);
}

#[test]
fn windows_name_what_is_posted() {
    let mut scene = Scene::new(Shortage::Drop);
    // The transport offers 100 << 10 bytes each time.
    scene.transport_sends(&[ack(0, 100)]);
    assert_eq!(scene.line.sent.pop().unwrap().window, 0, "nothing is posted");
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 1 << 13)).unwrap();
    scene.poll();
    let update = scene.line.sent.pop().unwrap();
    assert_eq!((update.ack, update.seq, update.window), (THEIRS, OURS, (1 << 13) / 64), "units of 64 bytes");
    assert_eq!(scene.line.sent, []);
    scene.transport_sends(&[ack(0, 4)]);
    assert_eq!(scene.line.sent.pop().unwrap().window, (4 << 10) / 64, "the transport's own limit holds, too");
    // Less than a unit: closed at first, and opened by one unit later.
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 63)).unwrap();
    scene.transport_sends(&[ack(0, 100)]);
    assert_eq!(scene.line.sent.pop().unwrap().window, 0);
    scene.poll();
    assert_eq!(scene.line.sent, []);
    scene.now += 6_000_000;
    scene.poll();
    assert_eq!(scene.line.sent.pop().unwrap().window, 1);
}

/// RFC 9293 section 3.10.7.4: an ACK from beyond the peer's window is not taken. So the NIC's half counts what left.
#[test]
fn an_ack_of_the_nics_own_is_not_ahead_of_what_left() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.memory().0.borrow_mut()[0][..6].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    scene.stack.post_send(scene.connection, 1, segment(0, 0, 6)).unwrap();
    let out = |at: u32, len: usize, flags| SentSegment::new(OURS + at, THEIRS, ACK | flags, &vec![0xdd; len]);
    // The second one goes beyond what was posted, so it does not leave, nor does its FIN.
    scene.transport_sends(&[out(0, 4, Flags(0)), out(4, 9, Flags::FIN)]);
    assert_eq!(window_update(&mut scene, 2).seq, OURS + 4);
    scene.stack.post_send(scene.connection, 3, segment(0, 0, 7)).unwrap();
    scene.transport_sends(&[out(4, 9, Flags::FIN)]);
    assert_eq!(window_update(&mut scene, 4).seq, OURS + 14, "nine bytes and FIN");
}

/// The ACK of the NIC's own for a receive that is posted.
fn window_update(scene: &mut Scene, id: u64) -> SentSegment {
    scene.line.sent.clear();
    scene.stack.post_receive(scene.connection, id, segment(1, 0, 1 << 13)).unwrap();
    scene.poll();
    scene.line.sent.pop().unwrap()
}

/// RFC 7323 section 5.3: a peer drops what has an older timestamp than what came before it.
#[test]
fn a_window_update_leaves_before_what_the_transport_said_later() {
    let mut scene = Scene::new(Shortage::Drop);
    let stamped = |value| {
        let options = Options { timestamps: Some(Timestamps { value, echo: 9 }), ..Options::default() };
        SentSegment { options, ..ack(0, 8) }
    };
    scene.transport_sends(&[stamped(100)]);
    scene.line.sent.clear();
    scene.stack.post_receive(scene.connection, 7, segment(0, 0, 64)).unwrap();
    scene.transport_sends(&[stamped(101)]);
    let values = scene.line.sent.iter().map(|sent| sent.options.timestamps.unwrap().value);
    assert_eq!(values.collect::<Vec<_>>(), [100, 101]);
}

/// More deferred payload than may lie behind holes: what was refused for that has its place when holes are filled.
#[test]
fn deferred_payload_behind_a_hole_too_many_is_placed_later() {
    let mut scene = Scene::new(Shortage::Defer);
    (0..35).for_each(|at| scene.peer_sends(&[data(2 * at + 1, &[2])]));
    scene.stack.post_receive(scene.connection, 1, segment(0, 0, 64)).unwrap();
    scene.stack.post_receive(scene.connection, 2, segment(1, 0, 6)).unwrap();
    in_order(&mut scene, 70);
    (0..35).for_each(|at| scene.peer_sends(&[data(2 * at, &[1])]));
    (0..4).for_each(|_| scene.poll());
    let done = |id, bytes| Event::Received { connection: scene.connection, id, bytes };
    let expected = [done(1, 64), done(2, 6)];
    assert_eq!(scene.events(), expected);
    assert_eq!(memory(&scene, 0)[60..], [1, 2, 1, 2]);
    assert_eq!(memory(&scene, 1)[..7], [1, 2, 1, 2, 1, 2, 0]);
}

/// RFC 9293 section 3.8.6: a receiver does not shrink its window.
#[test]
fn room_for_deferred_payload_is_not_taken_back_once_it_was_told() {
    let mut scene = Scene::new(Shortage::Defer);
    scene.transport_sends(&[ack(0, 100)]);
    scene.peer_sends(&[data(0, &[1; 1400])]);
    scene.transport_sends(&[ack(1400, 100)]);
    let reported = scene.line.sent.pop().unwrap();
    scene.peer_sends(&[data(1400, &[2; 1400]), data(2800, &[3; 400])]);
    scene.transport_sends(&[ack(3200, 100)]);
    let later = scene.line.sent.pop().unwrap();
    let edge = |sent: &SentSegment| sent.ack + 64 * u32::from(sent.window);
    assert_eq!(edge(&reported) - THEIRS, 1400 + 45 * 64);
    // Within a unit.
    assert!(edge(&reported).before(edge(&later) + 64));
}

#[test]
fn a_receive_posted_after_the_end_is_done_at_once() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.transport().in_order = InOrder { bytes: 0, ended: true };
    scene.peer_sends(&[SentSegment::new(THEIRS, OURS, ACK | Flags::FIN, &[])]);
    assert_eq!(scene.events(), [Event::Ended { connection: scene.connection }]);
    scene.stack.post_receive(scene.connection, 5, segment(0, 0, 8)).unwrap();
    assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 5, bytes: 0 }]);
}

/// The transport still accepts on a port whose program is gone: such a connection is reset, so that nobody assumes
/// that its bytes arrived.
#[test]
fn who_connects_to_a_port_whose_program_is_gone_is_reset() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.listen(9000, DOMAIN, Carries::Stream).unwrap();
    scene.stack.unlisten(9000);
    let to = SocketAddrV4::new(*HERE.ip(), 9000);
    scene.line.to_receive = vec![SentSegment::new(THEIRS, Seq(0), Flags::SYN, &[]).frame(THERE, to)];
    scene.poll();
    let (local_ip, remote_ip) = (*to.ip(), *THERE.ip());
    let tuple = Ipv4Tuple { local_ip, local_port: to.port(), remote_ip, remote_port: THERE.port() };
    scene.stack.transport().accepts.push((Socket(5), tuple));
    scene.poll();
    assert_eq!((scene.stack.transport().closed.clone(), scene.events()), (vec![Socket(5)], vec![]));
}

/// The program ends its registration while the transport sends again, or while more comes: nothing is read or written
/// any more, nothing counts as placed, and the connection goes on for whoever closes it.
#[test]
fn memory_that_is_unmapped_under_a_retransmission() {
    let mut scene = Scene::new(Shortage::Drop);
    scene.stack.post_send(scene.connection, 1, segment(0, 0, 8)).unwrap();
    scene.stack.post_receive(scene.connection, 2, segment(1, 0, 8)).unwrap();
    let out = || SentSegment::new(OURS, THEIRS, ACK, &[0xdd; 8]);
    scene.transport_sends(&[out()]);
    assert_eq!(scene.line.sent.drain(..).count(), 1);
    scene.stack.memory().unmap();
    scene.transport_sends(&[out()]);
    in_order(&mut scene, 4);
    scene.peer_sends(&[data(0, &[1; 4])]);
    assert_eq!((scene.line.sent.len(), scene.seen(), scene.events()), (0, vec![], vec![]));
    assert_eq!(scene.stack.counters().faults, 2);
    assert_eq!(memory(&scene, 1), [0; REGION_LEN]);
}
