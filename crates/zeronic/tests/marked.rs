//! Connections of messages whose peers and transports lie: an option counts only as far as it fits those before it, and
//! transports never see it.
#[path = "support/script.rs"]
mod script;
mod support;

use memory::Key;
use script::{OURS, Scene, SentSegment, THEIRS};
use wire::Seq;
use wire::tcp::{Flags, Options, Timestamps};
use zeronic::{Carries, Event, InOrder, Segment, Shortage};

const ACK: Flags = Flags::ACK;
/// Kind 253, its length, and the experiment's number (docs/ZERONIC.md, "Messages").
const OFFER: [u8; 4] = [253, 4, 0x5a, 0x4e];

fn segment(region: u32, offset: u64, len: u64) -> Segment {
    Segment { key: Key(region), offset, len }
}

/// The option of a message that begins at byte `start` of a stream.
fn mark(stream: Seq, number: u32, start: u32, len: u32) -> Vec<u8> {
    let words = [number, (stream + start).0, len];
    [253, 16, 0x5a, 0x4e].into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes)).collect()
}

/// A part of a message of the peer's, from byte `at` of its stream on.
fn part(at: u32, payload: &[u8], (number, start, len): (u32, u32, u32)) -> SentSegment {
    SentSegment { experiment: mark(THEIRS, number, start, len), ..SentSegment::new(THEIRS + at, OURS, ACK, payload) }
}

fn scene(shortage: Shortage) -> Scene {
    agreed(Scene::begun(shortage, Carries::Messages))
}

/// Both sides carry messages.
fn agreed(mut scene: Scene) -> Scene {
    let syn = scene.line.sent.pop().unwrap();
    assert_eq!((&syn.experiment[..], syn.options.mss), (&OFFER[..], Some(1000)));
    scene.answered(&OFFER);
    let seen = scene.seen().pop().unwrap();
    assert_eq!((&seen.experiment[..], seen.options.mss), (&[][..], Some(1000 - 16)), "room for a mark");
    scene
}

fn in_order(scene: &mut Scene, bytes: u64) {
    scene.stack.transport().in_order = InOrder { bytes, ended: false };
}

fn bytes(scene: &Scene, region: usize, from: usize, len: usize) -> Vec<u8> {
    scene.stack.memory().0.borrow()[region][from..from + len].to_vec()
}

fn failure(scene: &mut Scene) -> String {
    match &scene.events()[..] {
        [Event::Failed { why, .. }] => why.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_take_their_receives_also_out_of_order() {
    let mut scene = scene(Shortage::Drop);
    let connection = scene.connection;
    for (id, region) in [(1, 0), (2, 1), (3, 2)] {
        scene.stack.post_receive(connection, id, segment(region, 8, 10)).unwrap();
    }
    // The third one, then the end of the first.
    scene.peer_sends(&[part(7, &[7; 2], (2, 7, 2)), part(2, &[2, 3], (0, 0, 4))]);
    assert_eq!(scene.events(), []);
    assert_eq!((bytes(&scene, 2, 7, 4), bytes(&scene, 0, 7, 6)), (vec![0, 7, 7, 0], vec![0, 0, 0, 2, 3, 0]));
    let seen = scene.seen();
    assert!(seen.iter().all(|sent| sent.experiment.is_empty() && sent.payload.iter().all(|byte| *byte == 0)));
    in_order(&mut scene, 9);
    scene.peer_sends(&[part(0, &[0, 1, 2, 3], (0, 0, 4)), part(4, &[4, 5, 6], (1, 4, 3))]);
    assert_eq!(scene.seen().len(), 1, "headers of different messages become one");
    let received = |id, bytes| Event::Received { connection, id, bytes };
    assert_eq!(scene.events(), [received(1, 4), received(2, 3), received(3, 2)]);
    assert_eq!(bytes(&scene, 1, 7, 5), [0, 4, 5, 6, 0]);
}

#[test]
fn a_frame_that_leaves_has_bytes_of_one_message() {
    let mut scene = scene(Shortage::Drop);
    scene.stack.memory().0.borrow_mut()[0].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    for (id, offset, len) in [(1, 10, 3), (2, 20, 1), (3, 30, 4)] {
        scene.stack.post_send(scene.connection, id, segment(0, offset, len)).unwrap();
    }
    // More SACK blocks than there is room for beside a mark.
    let sack = [(40, 41), (30, 31), (20, 21)].map(|(from, to)| Some((THEIRS + from, THEIRS + to)));
    let sack = [sack[0], sack[1], sack[2], None];
    let options = Options { timestamps: Some(Timestamps { value: 1, echo: 2 }), sack, ..Options::default() };
    let flags = ACK | Flags::PSH | Flags::FIN;
    scene.transport_sends(&[SentSegment { options, ..SentSegment::new(OURS, THEIRS, flags, &[0xdd; 8]) }]);
    let sent: Vec<_> = scene.line.sent.drain(..).collect();
    let expected = [(0, 0, 3, vec![10, 11, 12]), (1, 3, 1, vec![20]), (2, 4, 4, vec![30, 31, 32, 33])];
    assert_eq!(sent.len(), expected.len());
    for (segment, (number, start, len, payload)) in sent.iter().zip(expected) {
        assert_eq!((segment.seq, &segment.payload), (OURS + start, &payload));
        assert_eq!(segment.experiment, mark(OURS, number, start, len));
        assert_eq!(segment.options.timestamps, options.timestamps);
        assert_eq!(segment.options.sack, [sack[0], None, None, None], "the newest one stays");
        assert_eq!(segment.flags, if number == 2 { flags } else { ACK });
    }
    // Sent again from the middle of the second frame on.
    scene.transport_sends(&[SentSegment::new(OURS + 2u32, THEIRS, ACK, &[0xdd; 3])]);
    let again: Vec<_> = scene.line.sent.drain(..).map(|sent| (sent.payload, sent.experiment)).collect();
    let marks = [(0, 0, 3), (1, 3, 1), (2, 4, 4)].map(|(number, start, len)| mark(OURS, number, start, len));
    assert_eq!(again, [vec![12], vec![20], vec![30]].into_iter().zip(marks).collect::<Vec<_>>());
}

#[test]
fn what_a_mark_cannot_say_is_dropped() {
    let mut scene = scene(Shortage::Drop);
    for (id, region) in [(1, 0), (2, 1)] {
        scene.stack.post_receive(scene.connection, id, segment(region, 8, 10)).unwrap();
    }
    scene.peer_sends(&[part(0, &[1, 2], (0, 0, 4))]);
    scene.seen();
    let before = bytes(&scene, 0, 0, 64);
    let forged = [
        SentSegment::new(THEIRS + 2u32, OURS, ACK, &[9, 9]),
        part(2, &[9, 9], (0, 0, 5)),
        part(2, &[9, 9], (0, 1, 4)),
        part(2, &[9, 9], (1, 2, 4)),
        part(4, &[9, 9], (1, 5, 4)),
        part(4, &[9, 9], (1, 4, 1)),
        part(2, &[9, 9, 9], (0, 0, 4)),
        part(2, &[9, 9], (u32::MAX, 0, 4)),
        part(2, &[9, 9], (0, 0, 0)),
    ];
    let count = forged.len() as u64;
    scene.peer_sends(&forged);
    assert_eq!((scene.seen(), scene.events()), (vec![], vec![]));
    assert_eq!((bytes(&scene, 0, 0, 64), bytes(&scene, 1, 0, 64)), (before, vec![0; 64]));
    assert_eq!(scene.stack.counters().malformed, count);
    in_order(&mut scene, 4);
    scene.peer_sends(&[part(2, &[3, 4], (0, 0, 4))]);
    assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 1, bytes: 4 }], "it goes on");
}

#[test]
fn a_message_longer_than_its_receive_ends_the_connection() {
    for shortage in [Shortage::Drop, Shortage::Buffer, Shortage::Defer] {
        let mut scene = scene(shortage);
        for id in [1, 2] {
            scene.stack.post_receive(scene.connection, id, segment(id as u32 - 1, 8, 4)).unwrap();
        }
        scene.peer_sends(&[part(2, &[9; 2], (1, 2, 5))]);
        assert_eq!(scene.events(), [], "it is not its turn");
        in_order(&mut scene, 2);
        scene.peer_sends(&[part(0, &[1; 2], (0, 0, 2))]);
        assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id: 1, bytes: 2 }]);
        scene.peer_sends(&[part(2, &[9; 2], (1, 2, 5))]);
        assert!(failure(&mut scene).contains("a message of 5 bytes"));
        assert_eq!(bytes(&scene, 1, 0, 64), [0; 64]);
    }
}

#[test]
fn messages_without_a_receive_wait_for_one() {
    let mut scene = scene(Shortage::Defer);
    in_order(&mut scene, 5);
    scene.peer_sends(&[part(0, &[1, 2], (0, 0, 2)), part(2, &[3, 4, 5], (1, 2, 3))]);
    scene.transport_sends(&[SentSegment::new(OURS, THEIRS + 5u32, ACK, &[])]);
    for (id, len) in [(1, 2), (2, 3)] {
        assert_eq!(scene.events(), []);
        scene.stack.post_receive(scene.connection, id, segment(0, 10 * id, 9)).unwrap();
        scene.poll();
        assert_eq!(scene.events(), [Event::Received { connection: scene.connection, id, bytes: len }]);
    }
    assert_eq!((bytes(&scene, 0, 9, 4), bytes(&scene, 0, 19, 5)), (vec![0, 1, 2, 0], vec![0, 3, 4, 5, 0]));
}

#[test]
fn a_peer_that_carries_no_messages_is_refused() {
    for answer in [&[][..], &[253, 4, 0x5a, 0x4f]] {
        let mut scene = Scene::begun(Shortage::Drop, Carries::Messages);
        scene.answered(answer);
        assert!(failure(&mut scene).contains("carries no messages"));
    }
}

/// The transport has payload, and no marks; the marks decide where it may go.
#[test]
fn without_a_line_messages_are_read_where_marks_are_known() {
    let mut scene = agreed(Scene::begun_without_line(Carries::Messages));
    let connection = scene.connection;
    let received = |id, bytes| Event::Received { connection, id, bytes };
    scene.peer_sends(&[part(0, &[1, 2], (0, 0, 4))]);
    let seen = scene.seen();
    assert_eq!((seen.len(), &seen[0].payload[..], &seen[0].experiment[..]), (1, &[1, 2][..], &[][..]));
    let forged = [
        SentSegment::new(THEIRS + 2u32, OURS, ACK, &[9, 9]),
        part(2, &[9, 9], (0, 0, 5)),
        part(2, &[9, 9], (1, 2, 4)),
        part(2, &[9, 9, 9], (0, 0, 4)),
        part(2, &[9, 9], (u32::MAX, 0, 4)),
        part(4, &[9; 2], (u32::MAX / 2, 400_000, 2)),
    ];
    scene.peer_sends(&forged);
    assert_eq!((scene.seen(), scene.stack.counters().malformed), (vec![], forged.len() as u64));
    // The byte behind the known message stays with the transport, and so do all before a receive is posted.
    scene.stack.transport().to_read = vec![1, 2, 3, 4, 5];
    scene.poll();
    assert_eq!((scene.stack.transport().to_read.len(), scene.events()), (5, vec![]));
    for (id, len) in [(1, 10), (2, 3)] {
        scene.stack.post_receive(connection, id, segment(id as u32 - 1, 8, len)).unwrap();
    }
    scene.poll();
    assert_eq!((scene.stack.transport().to_read.clone(), scene.events()), (vec![5], vec![received(1, 4)]));
    assert_eq!(bytes(&scene, 0, 7, 7), [0, 1, 2, 3, 4, 0, 0]);
    scene.peer_sends(&[part(4, &[5; 4], (1, 4, 4))]);
    assert!(failure(&mut scene).contains("a message of 4 bytes"), "its receive has three");
    assert_eq!(bytes(&scene, 1, 0, 64), [0; 64]);
}

#[test]
fn without_a_line_a_frame_that_leaves_has_bytes_of_one_message() {
    let mut scene = agreed(Scene::begun_without_line(Carries::Messages));
    scene.stack.memory().0.borrow_mut()[0].iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    // It acknowledges what it never took.
    scene.stack.transport().acknowledged = 3;
    for (id, offset, len) in [(1, 10, 3), (2, 20, 1), (3, 30, 4)] {
        scene.stack.post_send(scene.connection, id, segment(0, offset, len)).unwrap();
    }
    scene.poll();
    assert_eq!(
        (scene.stack.transport().written.clone(), scene.events()),
        (vec![10, 11, 12, 20, 30, 31, 32, 33], vec![])
    );
    let flags = ACK | Flags::PSH;
    scene.transport_sends(&[SentSegment::new(OURS, THEIRS, flags, &[10, 11, 12, 20, 30, 31, 32, 33, 99])]);
    let sent: Vec<_> = scene.line.sent.drain(..).map(|sent| (sent.payload, sent.experiment)).collect();
    let marks = [(0, 0, 3), (1, 3, 1), (2, 4, 4)].map(|(number, start, len)| mark(OURS, number, start, len));
    let expected = [vec![10, 11, 12], vec![20], vec![30, 31, 32, 33]].into_iter().zip(marks.clone());
    assert_eq!(sent, expected.collect::<Vec<_>>(), "and none that nobody has posted");
    assert_eq!(scene.stack.counters().not_posted, 1);
    let connection = scene.connection;
    scene.poll();
    assert_eq!(scene.events(), [Event::Sent { connection, id: 1 }]);
    // Sent again from the middle of the second message on.
    scene.transport_sends(&[SentSegment::new(OURS + 2u32, THEIRS, ACK, &[12, 20, 30])]);
    let again: Vec<_> = scene.line.sent.drain(..).map(|sent| (sent.payload, sent.experiment)).collect();
    assert_eq!(
        again,
        [vec![20], vec![30]].into_iter().zip(marks[1..].to_vec()).collect::<Vec<_>>(),
        "not what the peer has"
    );
}
