//! Any bytes from the network and any words from an application: nothing panics, nobody else is harmed, nothing is
//! left.
mod support;

use context::Slot;
use engine::Limits;
use flextoe::{FlexToe, Mapping};
use proptest::prelude::*;
use support::recording::{header, parse, tcp_frame};
use support::sockets::Sockets;
use support::*;
use wire::Seq;
use wire::tcp::{Flags, Options, Timestamps};

fn net() -> Net {
    net_of(config(1))
}

fn net_of(server: control::HostConfig) -> Net {
    let engine = |_: usize, config: &control::HostConfig| -> Box<dyn engine::Engine<engine::stream::Stream>> {
        let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
        Box::new(FlexToe::new(limits, Mapping::default(), port::FramePool::new(64)))
    };
    Net::new(vec![config(0), server], engine)
}

/// A client on node 0 and a server on node 1 with one open connection; the server also listens.
struct Pair {
    net: Net,
    client: App,
    server: App,
    first: Slot,
    second: Slot,
    sockets: [Sockets; 2],
    /// The client's port.
    port: u16,
}

fn pair() -> Pair {
    pair_in(net())
}

/// A server that remembers few handshakes.
fn forgetful_pair() -> Pair {
    let limits = control::LimitConfig { syn_backlog: 16, ..control::LimitConfig::default() };
    pair_in(net_of(control::HostConfig { limits, ..config(1) }))
}

fn pair_in(mut net: Net) -> Pair {
    let (mut client, mut server) = (net.attach(0), net.attach(1));
    server.serve(&mut net, 80);
    let tag = client.connect(ip_of(1), 80, 0);
    net.settle();
    let (first, second) = (client.connected(tag).unwrap().unwrap(), server.accepted().unwrap());
    let mut sockets = [Sockets::default(), Sockets::default()];
    sockets[0].open(&client, first);
    sockets[1].open(&server, second);
    let port = net.nodes[0].host.base().flows()[0].local.port();
    Pair { net, client, server, first, second, sockets, port }
}

impl Pair {
    /// Bytes still get through.
    fn check(&mut self) {
        self.sockets[0].write(&mut self.client, self.first, b"still there");
        let mut got = Vec::new();
        let Pair { net, server, sockets, second, .. } = self;
        net.run_until(30 * SECOND, |_| {
            got.extend(sockets[1].read(server, *second));
            got.len() >= 11
        });
        assert_eq!(got, b"still there");
    }

    fn end(mut self) {
        self.net.end_all(vec![self.client, self.server]);
    }
}

/// Source, destination, sequence number and acknowledgement from what the server expects on, flags, bytes, timestamp.
type AnySegment = (u16, u16, u32, u32, u8, usize, Option<u32>);

/// Segments to the server of a pair, whose connection is open, in FIN-WAIT-2, or in TIME-WAIT.
fn inject_segments(segments: &[AnySegment], closed: usize) {
    let mut pair = pair();
    let flow = pair.net.nodes[1].host.base().flows()[0].clone();
    let (rcv_nxt, snd_nxt) = (flow.figures["rcv_nxt"] as u32, flow.figures["snd_nxt"] as u32);
    if closed > 0 {
        pair.server.close(pair.second, 0, 0, false);
        pair.net.settle();
    }
    if closed > 1 {
        pair.client.close(pair.first, 0, 0, false);
        pair.net.settle();
    }
    for &(src, dst, seq, ack, flags, len, stamp) in segments {
        let (src, dst) = ([pair.port, 4000, 4001][src as usize], [80, 81, 65_535][dst as usize]);
        let (seq, ack) = (Seq(rcv_nxt.wrapping_add(seq)), Seq(snd_nxt.wrapping_add(ack)));
        let mut segment = header(src, dst, seq, ack, Flags(flags));
        let timestamps = stamp.map(|value| Timestamps { value, echo: 1 });
        segment.options = Options { timestamps, ..Options::default() };
        let frame = tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &segment, &vec![1; len]);
        pair.net.inject(1, &frame);
    }
    pair.net.settle();
    pair.end();
}

/// A reset that is right ends the server's end; then somebody opens the same connection anew, and acknowledges what the
/// old one has sent. The client is still in CLOSE-WAIT: the two ends answer each other's acknowledgements, and stop.
#[test]
fn a_handshake_with_the_end_of_an_older_connection_ends() {
    let reset = (0, 0, 0, 0, 108, 0, None);
    let open = (0, 0, 0, 0, 130, 0, Some(3_106_190_322));
    let acknowledge = (0, 0, 2, 0, 88, 0, Some(0));
    inject_segments(&[reset, open, acknowledge], 1);
}

/// A segment of any kind to one of a few ports, with sequence numbers of any distance.
fn any_segment() -> impl Strategy<Value = AnySegment> {
    let near = prop_oneof![Just(0u32), 0..70_000u32, any::<u32>()];
    (0..3u16, 0..3u16, near.clone(), near, any::<u8>(), 0..40usize, any::<Option<u32>>())
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn bytes_from_the_network(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..40)) {
        let mut pair = pair();
        for frame in &frames {
            pair.net.inject(1, frame);
        }
        pair.net.settle();
        pair.check();
        pair.end();
    }

    #[test]
    fn real_frames_with_bytes_changed(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..80usize, any::<u8>()), 1..60),
        to in 0..2usize,
    ) {
        let mut pair = pair();
        pair.check();
        let corpus = pair.net.seen.clone();
        for (frame, at, value) in changes {
            let mut bytes = corpus[frame.index(corpus.len())].1.clone();
            let at = at % bytes.len();
            bytes[at] ^= value;
            pair.net.inject(to, &bytes);
        }
        pair.net.settle();
        pair.check();
        pair.end();
    }

    /// Segments with right checksums, from its own or the client's address, to the listener, the open connection, one
    /// that is being closed, or nobody. Blind ones may by chance be right and end the connection; they must not do
    /// more.
    #[test]
    fn segments_of_any_kind(segments in prop::collection::vec(any_segment(), 1..60), closed in 0..3usize) {
        inject_segments(&segments, closed);
    }

    #[test]
    fn words_from_an_application(
        requests in prop::collection::vec((1..14u32, prop::array::uniform8(0..6u64), any::<u64>()), 1..200),
        bumps in prop::collection::vec(prop::array::uniform2(any::<u64>()), 0..100),
    ) {
        let mut pair = pair();
        let mut hostile = pair.net.attach(1);
        for (at, (kind, mut words, wild)) in requests.into_iter().enumerate() {
            words[0] = kind as u64 | (at as u64 % 3) << 32;
            words[at % 7 + 1] ^= wild & if at % 2 == 0 { 0xff } else { u64::MAX };
            let _ = hostile.end.requests.push(words);
        }
        for bump in bumps {
            let _ = hostile.end.bumps.push(bump);
        }
        pair.net.settle();
        pair.check();
        pair.net.nodes[1].host.use_base(pair.net.now, |tcp, context| tcp.detach(context, hostile.id));
        pair.end();
    }
}

#[test]
fn a_ring_that_lies_ends_its_context_and_no_other() {
    let mut pair = pair();
    let hostile = pair.net.attach(1);
    // The positions of the rings stand at the start of lines of the region: all of them lie now.
    for line in (4096..hostile.end.geometry.slot_state_at(0)).step_by(64) {
        hostile.end.region.u32_at(line).store(0x7fff_ffff, std::sync::atomic::Ordering::Relaxed);
    }
    pair.net.settle();
    let view = pair.net.nodes[1].host.base().contexts();
    assert_eq!(view.iter().map(|context| context.alive).collect::<Vec<_>>(), [true, false]);
    pair.check();
    pair.net.nodes[1].host.use_base(pair.net.now, |tcp, context| tcp.detach(context, hostile.id));
    pair.end();
}

#[test]
fn a_directory_that_lies_later_hurts_nobody() {
    let mut pair = pair();
    let hostile = pair.net.attach(1);
    for (at, app) in [&hostile, &pair.client, &pair.server].into_iter().enumerate() {
        // The directory, in the first page, but for the doorbells: all ones, zeros, and the doorbells' own places.
        for word in (0..32).chain(64..512) {
            let value = [u64::MAX, 0, word as u64 * 8][at];
            app.end.region.u64_at(word * 8).store(value, std::sync::atomic::Ordering::Relaxed);
        }
    }
    pair.net.settle();
    pair.check();
    assert!(pair.net.nodes[1].host.base().contexts().iter().all(|context| context.alive));
    pair.net.nodes[1].host.use_base(pair.net.now, |tcp, context| tcp.detach(context, hostile.id));
    pair.end();
}

/// A flood from addresses that do not answer: little is remembered, and real clients are still served, whatever they
/// offer, with all of it.
#[test]
fn a_syn_flood_is_answered_with_cookies() {
    let mut pair = forgetful_pair();
    flood(&mut pair, 0..5000);
    pair.net.settle();
    assert!(pair.net.states(1).len() < 100);
    let neighbours = pair.net.nodes[1].host.net().neighbours();
    assert_eq!(neighbours.len(), 1, "nobody is asked for addresses that a flood makes up: {neighbours:?}");
    assert!(pair.net.drops(1, engine::DropReason::SynCookie) > 4800);
    pair.check();
    // The other side of a flood: one more client, while all remembered handshakes are the flood's.
    let tag = pair.client.connect(ip_of(1), 80, 0);
    pair.net.settle();
    let (first, second) = (pair.client.connected(tag).unwrap().unwrap(), pair.server.accepted().unwrap());
    pair.sockets[0].open(&pair.client, first);
    pair.sockets[1].open(&pair.server, second);
    let (before, now) = (pair.net.nodes[1].host.base().flows(), pair.first);
    assert_eq!(before.iter().filter(|flow| flow.state == "ESTABLISHED").count(), 2);
    (pair.first, pair.second) = (first, second);
    pair.check();
    let views: Vec<_> = pair.net.nodes[1].host.base().flows().into_iter().filter(|flow| flow.flow.is_some()).collect();
    assert_eq!(views[0].mss, views[1].mss, "timestamps and segment size are those of an ordinary handshake");
    pair.first = now;
    pair.end();
}

/// SYNs from so many ports of an address that nobody has.
fn flood(pair: &mut Pair, ports: std::ops::Range<u16>) {
    for port in ports {
        let segment = header(1000 + port, 80, Seq(port as u32), Seq(0), Flags::SYN);
        let from = (mac_of(0), std::net::Ipv4Addr::new(10, 0, 0, 100));
        pair.net.inject(1, &tcp_frame(from, (mac_of(1), ip_of(1)), &segment, &[]));
    }
}

/// Cookies that nobody sent are refused as segments of no connection, also in the midst of a flood.
#[test]
fn made_up_cookies_open_nothing() {
    let mut pair = forgetful_pair();
    flood(&mut pair, 0..500);
    pair.net.settle();
    let open = pair.net.states(1).len();
    for guess in 0..3000u32 {
        let ack = Seq(guess.wrapping_mul(0x9e37_79b9));
        let segment = header(4000, 80, Seq(1), ack, Flags::ACK);
        pair.net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &segment, &[]));
    }
    pair.net.settle();
    assert_eq!(pair.net.states(1).len(), open);
    // One of thousands passes for a cookie of which the first segment is missing: it is not answered.
    let (refused, ignored) =
        (pair.net.drops(1, engine::DropReason::NoFlow), pair.net.drops(1, engine::DropReason::NotAccepted));
    assert_eq!(refused + ignored, 3000);
    assert!(ignored < 10, "{ignored}");
    pair.check();
    pair.end();
}

#[test]
fn answers_to_unknown_peers_have_a_budget() {
    let mut pair = pair();
    for port in 0..12_000u16 {
        let segment = header(1000 + port, 4444, Seq(1), Seq(1), Flags::ACK);
        pair.net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &segment, &[]));
    }
    pair.net.seen.clear();
    pair.net.settle();
    assert_eq!(pair.net.seen.len(), 10_000, "resets a second");
    assert_eq!(pair.net.drops(1, engine::DropReason::NoFlow), 12_000);
    pair.check();
    pair.end();
}

/// A client by hand, whose own host does not have its connection. Its SYN, number 99 from port 4000, comes in the midst
/// of a flood. Returns the cookie that it got.
fn cookie_for_a_client_by_hand(pair: &mut Pair) -> Seq {
    flood(pair, 0..500);
    pair.net.settle();
    pair.net.seen.clear();
    pair.net.filter = Box::new(|from, _| from != 1);
    let syn = header(4000, 80, Seq(99), Seq(0), Flags::SYN);
    pair.net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &syn, &[]));
    pair.net.round();
    let answers = pair.net.seen.iter().filter_map(|(_, bytes)| parse(bytes));
    answers.map(|(_, header, _)| header).find(|header| header.dst_port == 4000).expect("a cookie").seq
}

/// The client by hand sends a segment with number `seq`; returns how many resets it gets for that.
fn by_hand(pair: &mut Pair, seq: u32, cookie: Seq, flags: Flags, payload: &[u8]) -> usize {
    pair.net.seen.clear();
    let header = header(4000, 80, Seq(seq), cookie + 1, flags);
    pair.net.inject(1, &tcp_frame((mac_of(0), ip_of(0)), (mac_of(1), ip_of(1)), &header, payload));
    pair.net.round();
    pair.net.seen.iter().filter(|(_, bytes)| is_reset(bytes)).count()
}

/// In a flood, the first segment of a client whose handshake was a cookie is lost and a later one comes: it is not
/// reset.
#[test]
fn a_later_segment_of_a_cookie_waits_for_the_first() {
    let mut pair = forgetful_pair();
    let cookie = cookie_for_a_client_by_hand(&mut pair);
    assert_eq!(by_hand(&mut pair, 100 + 1448, cookie, Flags::ACK, &[2; 10]), 0);
    assert!(pair.server.accepted().is_none());
    by_hand(&mut pair, 100, cookie, Flags::ACK, &[1; 1448]);
    assert!(pair.server.accepted().is_some(), "the first one came again");
}

/// A segment that was on its way for longer than its connection was there does not begin it again.
#[test]
fn a_cookie_is_good_for_one_connection() {
    let mut pair = forgetful_pair();
    let cookie = cookie_for_a_client_by_hand(&mut pair);
    by_hand(&mut pair, 100, cookie, Flags::ACK, &[1; 100]);
    assert!(pair.server.accepted().is_some());
    by_hand(&mut pair, 200, cookie, Flags::RST, &[]);
    assert_eq!(by_hand(&mut pair, 100, cookie, Flags::ACK, &[1; 100]), 1);
    assert!(pair.server.accepted().is_none());
}

fn is_reset(bytes: &[u8]) -> bool {
    parse(bytes).is_some_and(|(_, header, _)| header.flags.has(Flags::RST))
}
