//! Queue pairs over a stream: messages that a peer makes up. Nothing panics, and nothing outside what is granted is
//! written.
mod support;

use engine::DropReason;
use memory::Domain;
use smartns::{Arrived, Content, Event, HEADER_LEN, Header, LowerLayer, MOST_DATAGRAM, MessageKind, NewHandle};
use smartns::{ShardOutput, Steer};
use support::{ADDRESS, MEMORY, Node, Random, SETTINGS, Settings, path};
use verbs::{Datagram, QpKind, QpState, SendOpcode, Status};

const RECEIVE: u32 = 3000;
/// Where receives are, and what is read.
const RECEIVES: u64 = 1 << 20;
const READS: u64 = 2 << 20;

fn node() -> Node {
    of_kind(QpKind::Rc)
}

/// A queue pair of this kind, with its connection.
fn of_kind(kind: QpKind) -> Node {
    let mut node = Node::new(Settings { lower_layer: LowerLayer::Stream, kind, ..SETTINGS });
    node.connect(0x99, [0, 0], path(0));
    node.shard.link(node.qp);
    node
}

fn with<T>(node: &mut Node, act: impl FnOnce(&mut smartns::Shard, &mut ShardOutput<'_>) -> T) -> T {
    let Node { shard, pool, drops, events, tx, .. } = node;
    act(shard, &mut ShardOutput { tx, pool, drops, events })
}

fn round(node: &mut Node) {
    with(node, |shard, out| shard.poll(1, &mut Vec::new(), out));
    node.take_completions();
}

/// Any header, often with what could be: numbers that are next, the region's key, addresses in or near it.
fn made_up(random: &mut Random, node: &Node, next: u32) -> Header {
    let kind = loop {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = random.below(20) as u8;
        if let Some(header) = Header::parse(&bytes) {
            break header.kind;
        }
    };
    let word = |random: &mut Random| match random.below(3) {
        0 => next,
        1 => random.below(8) as u32,
        _ => random.below(1 << 32) as u32,
    };
    Header {
        kind,
        solicited: random.chance(500),
        code: random.below(5) as u8,
        carried_out: word(random),
        number: word(random),
        receive: word(random),
        key: if random.chance(700) { node.key.0 } else { word(random) },
        detail: random.below(9000) as u32,
        address: match random.below(4) {
            0 => random.below(9000),
            1 => ADDRESS + MEMORY - random.below(5000),
            2 => u64::MAX - random.below(5000),
            _ => ADDRESS + random.below(MEMORY),
        },
    }
}

/// What a message of this kind may write: the whole memory for WRITEs, the posted receives, what READs asked for.
fn allowed(header: &Header, len: u64) -> std::ops::Range<u64> {
    match header.kind {
        MessageKind::Write | MessageKind::WriteImmediate => {
            let at = header.address.wrapping_sub(ADDRESS);
            at..at.saturating_add(len)
        }
        MessageKind::Send | MessageKind::SendImmediate | MessageKind::SendInvalidate => {
            RECEIVES..RECEIVES + 64 * u64::from(RECEIVE)
        }
        MessageKind::Response => READS..READS + 8 * 4000,
        _ => 0..0,
    }
}

#[test]
fn made_up_messages_go_nowhere_else() {
    let (mut placed, mut refused, mut failed) = (0, 0, 0);
    for seed in 0..300 {
        let (mut random, mut node) = (Random::new(seed), node());
        for at in 0..32 {
            let piece = node.piece(RECEIVES + at * u64::from(RECEIVE), RECEIVE);
            node.post_receive(&[piece]);
        }
        for at in 0..4 {
            let (element, piece) = (node.work(SendOpcode::Read), node.piece(READS + at * 4000, 4000));
            node.post(element, &[piece]);
        }
        round(&mut node);
        let qp = node.qp;
        while with(&mut node, |shard, out| shard.next_message(1, qp, out)).is_some() {}
        for next in 0..40 {
            let header = made_up(&mut random, &node, next);
            let len = [0, 1, 100, RECEIVE, RECEIVE + 1, 8000][random.below(6) as usize];
            let steer = with(&mut node, |shard, out| shard.steer(1, qp, &header, len + HEADER_LEN as u32, out));
            let (kept, denied) = match steer {
                Steer::Places(_, places) => {
                    let bytes: u64 = places.iter().map(|place| place.len).sum();
                    assert_eq!(bytes, u64::from(len), "seed {seed}: {header:?}");
                    let allowed = allowed(&header, len.into());
                    for place in &places {
                        let end = place.offset + place.len;
                        let fits = place.key == node.key && allowed.start <= place.offset && end <= allowed.end;
                        assert!(fits && end <= MEMORY, "seed {seed}: {header:?}: {place:?}");
                    }
                    placed += 1;
                    (None, None)
                }
                Steer::Keep => (Some(vec![0xaa; len as usize]), None),
                Steer::Nowhere(denied) => {
                    refused += 1;
                    (None, Some(denied))
                }
                Steer::Later => continue,
            };
            let arrived = Arrived { header, len, kept, denied };
            with(&mut node, |shard, out| shard.arrived(1, qp, arrived, out));
            round(&mut node);
            with(&mut node, |shard, out| shard.next_message(1, qp, out));
        }
        round(&mut node);
        failed += u32::from(node.shard.query_qp(qp).unwrap().state == Some(QpState::Error));
        let ends = node.completions.iter().filter(|end| !end.is_receive()).count();
        assert!(ends <= 4, "seed {seed}: no work request ends twice");
    }
    assert!(placed > 100 && refused > 100 && failed > 100, "{placed} placed, {refused} refused, {failed} failed");
}

#[test]
fn a_queue_pair_serves_again_after_its_peer_broke_the_rules() {
    let mut node = node();
    let qp = node.qp;
    let refusal = Header { number: 77, code: 2, ..Header::new(MessageKind::Refusal) };
    let (element, piece) = (node.work(SendOpcode::Send), node.piece(0, 10));
    node.post(element, &[piece]);
    round(&mut node);
    assert!(with(&mut node, |shard, out| shard.next_message(1, qp, out)).is_some());
    let arrived = Arrived { header: refusal, len: 0, kept: None, denied: None };
    with(&mut node, |shard, out| shard.arrived(1, qp, arrived, out));
    round(&mut node);
    assert_eq!(node.ended(), [(Status::BadResponse, 0)], "it names no request of this queue pair");
    node.go(QpState::Reset);
    node.connect(0x99, [0, 0], path(0));
    node.shard.link(qp);
    node.post(element, &[piece]);
    round(&mut node);
    let sent = with(&mut node, |shard, out| shard.next_message(1, qp, out)).unwrap();
    assert_eq!((sent.header.kind, sent.header.number), (MessageKind::Send, 0));
    let header = Header { carried_out: 1, ..Header::new(MessageKind::Acknowledge) };
    with(&mut node, |shard, out| shard.arrived(1, qp, Arrived { header, len: 0, kept: None, denied: None }, out));
    round(&mut node);
    assert_eq!(node.ended().last(), Some(&(Status::Success, 1)));
}

#[test]
fn a_lost_connection_shows_when_the_retries_are_over() {
    let mut node = node();
    let (qp, element, piece) = (node.qp, node.work(SendOpcode::Send), node.piece(0, 10));
    node.post(element, &[piece]);
    round(&mut node);
    assert!(with(&mut node, |shard, out| shard.next_message(1, qp, out)).is_some());
    with(&mut node, |shard, out| shard.lost(1, qp, out));
    round(&mut node);
    // 4.096 us * 2^8, once and seven times more.
    let until = 1 + (4096 << SETTINGS.timeout) * 8;
    assert_eq!((node.ended(), node.shard.next_deadline()), (vec![], Some(until)));
    for (now, ended) in [(until - 1, vec![]), (until, vec![(Status::RetryExceeded, 0)])] {
        with(&mut node, |shard, out| shard.poll(now, &mut Vec::new(), out));
        node.take_completions();
        assert_eq!(node.ended(), ended, "at {now}");
    }
}

#[test]
fn what_was_carried_out_is_sent_when_the_queue_pair_goes() {
    let mut node = node();
    let (qp, receive) = (node.qp, node.piece(0, 100));
    node.post_receive(&[receive]);
    let header = Header::new(MessageKind::Send);
    let arrived = Arrived { header, len: 0, kept: None, denied: None };
    with(&mut node, |shard, out| shard.steer(1, qp, &header, HEADER_LEN as u32, out));
    with(&mut node, |shard, out| shard.arrived(1, qp, arrived, out));
    round(&mut node);
    assert_eq!(node.ended(), [(Status::Success, 0)]);
    let last = node.shard.last_words(qp).unwrap();
    let message = last.message.unwrap();
    assert_eq!((message.kind, message.carried_out, last.acknowledged), (MessageKind::Acknowledge, 1, 0));
    assert!(with(&mut node, |shard, out| shard.next_message(1, qp, out)).is_some());
    assert_eq!(node.shard.last_words(qp).unwrap().message, None, "it was reported");
    node.go(QpState::Reset);
    assert_eq!(node.shard.last_words(qp), None);
}

/// Steers and delivers a SEND of so many bytes: the request of this number, and of those that take a receive.
fn send(node: &mut Node, [number, receive]: [u32; 2], len: u32) -> bool {
    let (qp, header) = (node.qp, Header { number, receive, ..Header::new(MessageKind::Send) });
    let steer = with(node, |shard, out| shard.steer(1, qp, &header, HEADER_LEN as u32 + len, out));
    let placed = matches!(steer, Steer::Places(..));
    let kept = (steer == Steer::Keep).then(|| vec![7; len as usize]);
    let denied = if let Steer::Nowhere(denied) = steer { Some(denied) } else { None };
    with(node, |shard, out| shard.arrived(1, qp, Arrived { header, len, kept, denied }, out));
    round(node);
    placed
}

/// A message that finds no receive work request, or is too long for it, is dropped; the next one is served.
#[test]
fn an_unreliable_message_that_cannot_be_is_dropped() {
    let mut node = of_kind(QpKind::Uc);
    assert!(!send(&mut node, [0, 0], 100));
    assert_eq!((node.ended(), node.drops.get(DropReason::NoReceive)), (vec![], 1));
    let piece = node.piece(0, 100);
    node.post_receive(&[piece]);
    assert!(!send(&mut node, [1, 1], 101), "too long");
    assert_eq!((node.ended(), node.drops.get(DropReason::MessageIncomplete)), (vec![], 1));
    assert!(send(&mut node, [2, 2], 100), "the work request was not used");
    assert_eq!(node.ended(), [(Status::Success, 0)]);
    let (qp, wrong) = (node.qp, Header { number: 3, key: 1, ..Header::new(MessageKind::Write) });
    let steer = with(&mut node, |shard, out| shard.steer(1, qp, &wrong, HEADER_LEN as u32 + 8, out));
    let Steer::Nowhere(denied) = steer else { panic!("{steer:?}") };
    let arrived = Arrived { header: wrong, len: 8, kept: None, denied: Some(denied) };
    with(&mut node, |shard, out| shard.arrived(1, qp, arrived, out));
    let read = Header { number: 4, key: node.key.0, address: ADDRESS, detail: 8, ..Header::new(MessageKind::Read) };
    with(&mut node, |shard, out| shard.steer(1, qp, &read, HEADER_LEN as u32, out));
    let arrived = Arrived { header: read, len: 0, kept: None, denied: None };
    with(&mut node, |shard, out| shard.arrived(1, qp, arrived, out));
    round(&mut node);
    assert_eq!(node.drops.get(DropReason::RequestRefused), 2, "no access, and no READ on such a connection");
    node.post_receive(&[piece]);
    assert!(send(&mut node, [5, 3], 10), "it serves on");
    assert_eq!(node.ended(), [(Status::Success, 0), (Status::Success, 1)]);
}

/// The sender gets no report that nobody is there.
#[test]
fn unreliable_messages_end_also_where_nobody_takes_them() {
    let mut node = of_kind(QpKind::Uc);
    let (qp, element, piece) = (node.qp, node.work(SendOpcode::Send), node.piece(0, 10));
    node.post(element, &[piece]);
    round(&mut node);
    assert!(with(&mut node, |shard, out| shard.next_message(1, qp, out)).is_some());
    node.post(element, &[piece]);
    with(&mut node, |shard, out| shard.lost(1, qp, out));
    let until = node.shard.next_deadline().unwrap_or(1);
    with(&mut node, |shard, out| shard.poll(until, &mut Vec::new(), out));
    node.take_completions();
    assert_eq!(node.ended(), [(Status::Success, 0), (Status::Success, 1)]);
    node.post(element, &[piece]);
    with(&mut node, |shard, out| shard.poll(until, &mut Vec::new(), out));
    node.take_completions();
    assert_eq!(node.ended().last(), Some(&(Status::Success, 2)));
}

fn of_datagrams() -> Node {
    let mut node = Node::new(Settings { lower_layer: LowerLayer::Stream, kind: QpKind::Ud, ..SETTINGS });
    node.connect(0, [0, 0], path(0));
    node.shard.add_handle(NewHandle { number: 1, domain: Domain(7), path: Some(path(0)) }).unwrap();
    node
}

#[test]
fn a_datagram_is_a_message_and_ends_when_it_leaves() {
    let mut node = of_datagrams();
    let qp = node.qp;
    let mut element = node.work(SendOpcode::SendImmediate);
    element.set_datagram(Datagram { handle: 1, qp: 0x77, key: 5 });
    element.immediate = 9;
    node.write(100, b"to whom it may concern");
    let piece = node.piece(100, 22);
    (0..2).for_each(|_| {
        node.post(element, &[piece]);
    });
    round(&mut node);
    assert!(node.events.contains(&Event::Ready(qp)));
    // Whoever carries them asks where to first, and may leave it at that.
    for _ in 0..3 {
        assert_eq!(with(&mut node, |shard, out| shard.datagram_to(1, qp, out)), Some(path(0).remote));
    }
    node.events.clear();
    round(&mut node);
    assert!(node.events.is_empty() && node.ended().is_empty(), "nothing is reported twice, nothing has ended");
    let sent = with(&mut node, |shard, out| shard.next_datagram(1, qp, out)).unwrap();
    let header = Header { number: qp, receive: 0x77, key: 5, detail: 9, ..Header::new(MessageKind::DatagramImmediate) };
    assert_eq!(sent, smartns::Message { header, content: Content::Bytes(b"to whom it may concern".to_vec()) });
    round(&mut node);
    assert_eq!(node.ended(), [(Status::Success, 0)]);
    assert_eq!(node.events, [Event::Ready(qp)], "there is another one");
    // Without its handle, the other one fails.
    node.shard.remove_handle(1).unwrap();
    assert_eq!(with(&mut node, |shard, out| shard.datagram_to(1, qp, out)), None);
    round(&mut node);
    assert_eq!(node.ended().last(), Some(&(Status::LocalQpOperation, 1)));
    assert_eq!(node.shard.query_qp(qp).unwrap().state, Some(QpState::Error));
}

#[test]
fn made_up_datagrams_have_no_effect() {
    let (mut node, from, to) = (of_datagrams(), path(0).remote, path(0).local);
    let good = Header { number: 0x55, receive: node.qp, key: 0x1111, ..Header::new(MessageKind::Datagram) };
    let arrives = |node: &mut Node, header: Header, payload: &[u8]| {
        with(node, |shard, out| shard.datagram(1, from, to, &header, payload, out));
        round(node);
    };
    arrives(&mut node, good, b"no receive");
    let receive = node.piece(0, 100);
    node.post_receive(&[receive]);
    arrives(&mut node, Header { key: 0x1112, ..good }, b"wrong key");
    arrives(&mut node, Header { receive: good.receive + 1, ..good }, b"nobody");
    arrives(&mut node, good, &[7; 61]);
    arrives(&mut node, good, &[7; MOST_DATAGRAM + 1]);
    let reasons = [(DropReason::NoReceive, 1), (DropReason::QueueKey, 1), (DropReason::QpUnknown, 1)];
    for (reason, count) in reasons.into_iter().chain([(DropReason::MessageIncomplete, 2)]) {
        assert_eq!(node.drops.get(reason), count, "{reason:?}");
    }
    assert!(node.completions.is_empty() && node.read(0, 100) == [0; 100]);
    // None is for a connection.
    let mut connected = self::node();
    let header = Header { receive: connected.qp, ..good };
    arrives(&mut connected, header, b"no");
    assert_eq!(connected.drops.get(DropReason::QpUnknown), 1);
    arrives(&mut node, good, &[7; 60]);
    assert_eq!((node.ended(), node.completions[0].bytes), (vec![(Status::Success, 0)], 100));
    let (ip, _) = wire::ipv4::Header::parse(&node.read(20, 20), 1000).unwrap();
    assert_eq!((ip.src, ip.dst), (from, to));
}
