//! A host with the Laminar engine that keeps shared logs: what applications may ask for, and how connections that write
//! to one end.
mod support;

use context::{Bump, Completion, LOG_SLOT, LogRecord, LogShape, Reply, Request, Slot};
use control::HostConfig;
use engine::stream::Stream;
use engine::{Engine, Limits};
use laminar::{Extensions, Laminar};
use std::cell::RefCell;
use std::rc::Rc;
use support::sockets::Sockets;
use support::takeover::{restore, stop, take_over};
use support::*;

fn engine(config: &HostConfig) -> Box<dyn Engine<Stream>> {
    let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
    let extensions = Extensions { shared_log: config.memory.log_bytes > 0, ..Extensions::default() };
    Box::new(Laminar::new(limits, config.window_shift(), extensions).unwrap())
}

fn engine_without_logs(config: &HostConfig) -> Box<dyn Engine<Stream>> {
    let limits = Limits { flows: config.max_flows, contexts: config.max_contexts };
    Box::new(Laminar::new(limits, config.window_shift(), Extensions::default()).unwrap())
}

/// Node 0 writes, node 1 keeps logs where it has memory for them. A window is 64 KiB.
fn net(log_bytes: u32) -> Net {
    let mut reader = config(1);
    reader.memory.log_bytes = log_bytes;
    Net::new(vec![config(0), reader], |_, config| engine(config))
}

const SHAPE: LogShape = LogShape { record: 64, records: 4096 };

struct Reader {
    app: App,
    ready: u32,
}

impl Reader {
    fn new(net: &mut Net) -> Reader {
        let mut app = net.attach(1);
        app.serve(net, 80);
        Reader { app, ready: 0 }
    }

    fn ask(&mut self, net: &mut Net, make: impl FnOnce(u32) -> Request) -> Result<(), i32> {
        let tag = self.app.next_tag();
        self.app.ask(make(tag));
        net.settle();
        self.app.expect(|reply| match *reply {
            Reply::Done { tag: of } if of == tag => Some(Ok(())),
            Reply::Failed { tag: of, errno } if of == tag => Some(Err(errno as i32)),
            _ => None,
        })
    }

    fn open(&mut self, net: &mut Net, shape: LogShape) -> Result<(), i32> {
        self.ask(net, |tag| Request::OpenLog { tag, shape })
    }

    fn join(&mut self, net: &mut Net, slot: Slot, rx_head: u32) -> Result<(), i32> {
        let mark = slot.index as u64;
        self.ask(net, |tag| Request::JoinLog { tag, slot, rx_head, mark })
    }

    /// Records that can be read, and the connections whose end was reported.
    fn take_completions(&mut self) -> (u32, Vec<Slot>) {
        let mut ended = Vec::new();
        while let Some(words) = self.app.end.completions.pop().unwrap() {
            let completion = Completion::from_words(words);
            match completion.slot.index {
                LOG_SLOT => self.ready = completion.rx_tail,
                _ if completion.fin => ended.push(completion.slot),
                _ => assert_eq!(completion.rx_tail, 0, "a stream of records is not read"),
            }
        }
        (self.ready, ended)
    }

    fn record(&self, index: u32) -> (LogRecord, Vec<u8>) {
        let (region, geometry) = (&self.app.end.region, &self.app.end.geometry);
        let words = (0..8).map(|word| {
            let at = geometry.log_at() + (index % SHAPE.records * 64 + word * 8) as usize;
            region.u64_at(at).load(std::sync::atomic::Ordering::Relaxed).to_ne_bytes()
        });
        (SHAPE.read(region, geometry, index.into()), words.flatten().collect())
    }

    /// So many records, counted from the first one, are given back.
    fn give_back(&mut self, records: u32) {
        let slot = Slot { index: LOG_SLOT, generation: 0 };
        let bump = Bump { slot, tx_head: 0, rx_head: records, fin: false, ring: 0 };
        self.app.end.bumps.push(bump.to_words()).unwrap();
    }

    fn close(&mut self, net: &mut Net, slot: Slot) {
        self.app.ask(Request::Close { slot, tx_head: 0, rx_head: 0, abort: false });
        net.settle();
    }
}

/// A connection from node 0: its ends.
fn connect(net: &mut Net, writer: &mut (App, Sockets), reader: &mut Reader) -> (Slot, Slot) {
    let ip = net.nodes[1].ip;
    let tag = writer.0.connect(ip, 80, 0);
    let (mut first, mut second) = (None, None);
    net.run_until(20 * SECOND, |_| {
        first = first.or_else(|| writer.0.connected(tag));
        second = second.or_else(|| reader.app.accepted());
        first.is_some() && second.is_some()
    });
    let slot = second.unwrap();
    (writer.1.open(&writer.0, first.unwrap().unwrap()), slot)
}

fn writer(net: &mut Net) -> (App, Sockets) {
    (net.attach(0), Sockets::default())
}

#[test]
fn what_cannot_be_a_log_is_refused() {
    let mut net = net(1 << 20);
    let mut reader = Reader::new(&mut net);
    let mut refused = |record, records| reader.open(&mut net, LogShape { record, records }).unwrap_err();
    // Sizes that cannot be; less than a window; more than the host has memory for.
    assert_eq!([refused(100, 4096), refused(64, 3000), refused(8, 1 << 16)], [libc::EINVAL; 3]);
    assert_eq!([refused(64, 512), refused(1 << 17, 1)], [libc::EINVAL; 2]);
    assert_eq!([refused(64, 1 << 14), refused(64, 1 << 20)], [libc::ENOMEM; 2]);
    let slot = Slot { index: 0, generation: 0 };
    assert_eq!(reader.join(&mut net, slot, 0), Err(libc::EBADF), "no such connection");
    assert_eq!(reader.open(&mut net, SHAPE), Ok(()));
    assert_eq!(reader.open(&mut net, SHAPE), Err(libc::EEXIST));
    net.end_all(vec![reader.app]);
}

#[test]
fn a_host_without_logs_refuses_them() {
    let mut net = net(0);
    let mut reader = Reader::new(&mut net);
    assert_eq!(reader.open(&mut net, SHAPE), Err(libc::EOPNOTSUPP));
    let mut from = writer(&mut net);
    let (_, slot) = connect(&mut net, &mut from, &mut reader);
    assert_eq!(reader.join(&mut net, slot, 0), Err(libc::EBADF), "there is no log");
    net.end_all(vec![reader.app, from.0]);
}

#[test]
fn as_many_logs_as_there_are_tails() {
    let mut net = net(1 << 20);
    let mut readers: Vec<App> = (0..65).map(|_| net.attach(1)).collect();
    let mut errors = Vec::new();
    for app in &mut readers {
        let tag = app.next_tag();
        app.ask(Request::OpenLog { tag, shape: SHAPE });
        net.settle();
        errors
            .extend(app.find(|reply| if let Reply::Failed { errno, .. } = reply { Some(*errno as i32) } else { None }));
    }
    assert_eq!(errors, [libc::ENOSPC]);
    net.end_all(readers);
}

#[test]
fn records_of_several_connections_and_no_more_than_have_room() {
    let mut net = net(1 << 20);
    let (mut reader, mut from) = (Reader::new(&mut net), writer(&mut net));
    reader.open(&mut net, SHAPE).unwrap();
    let pairs: Vec<_> = (0..5).map(|_| connect(&mut net, &mut from, &mut reader)).collect();
    for (_, slot) in &pairs[..4] {
        assert_eq!(reader.join(&mut net, *slot, 0), Ok(()));
    }
    // Four windows are all there is room for.
    assert_eq!(reader.join(&mut net, pairs[4].1, 0), Err(libc::ENOBUFS));
    assert_eq!(reader.join(&mut net, pairs[0].1, 0), Err(libc::EALREADY));
    for round in 0..10u8 {
        for (number, (slot, _)) in pairs[..4].iter().enumerate() {
            assert_eq!(from.1.write(&mut from.0, *slot, &[10 * number as u8 + round; 64]), 64);
            net.run_for(5 * MS);
        }
    }
    assert_eq!(reader.take_completions().0, 40);
    for index in 0..40 {
        let (written, bytes) = reader.record(index);
        let (number, round) = (index % 4, index / 4);
        let wanted = LogRecord { mark: pairs[number as usize].1.index as u64, number: round as u64, hole: false };
        assert_eq!((written, bytes), (wanted, vec![(10 * number + round) as u8; 64]), "record {index}");
    }
    // One leaves; when its records are given back, there is room for the fifth.
    reader.close(&mut net, pairs[1].1);
    assert_eq!(reader.join(&mut net, pairs[4].1, 0), Err(libc::ENOBUFS));
    reader.give_back(40);
    net.settle();
    assert_eq!(reader.join(&mut net, pairs[4].1, 0), Ok(()));
    net.end_all(vec![reader.app, from.0]);
}

#[test]
fn connections_end_as_others_do() {
    let mut net = net(1 << 20);
    let (mut reader, mut from) = (Reader::new(&mut net), writer(&mut net));
    reader.open(&mut net, SHAPE).unwrap();
    let (mine, slot) = connect(&mut net, &mut from, &mut reader);
    reader.join(&mut net, slot, 0).unwrap();
    from.1.write(&mut from.0, mine, &[1; 100]);
    net.run_for(10 * MS);
    // It is closed with records that were not given back: they were received, so this is no reset.
    reader.close(&mut net, slot);
    net.run_for(10 * MS);
    assert!(from.1.at_end(&mut from.0, mine));
    assert_eq!(reader.take_completions().0, 2, "a record and a hole");
    assert!(!reader.record(0).0.hole && reader.record(1).0.hole);
    let (mine, slot) = connect(&mut net, &mut from, &mut reader);
    reader.join(&mut net, slot, 0).unwrap();
    from.1.write(&mut from.0, mine, &[2; 64]);
    from.1.close(&mut net, &mut from.0, mine);
    net.run_for(10 * MS);
    assert_eq!(reader.take_completions(), (3, vec![slot]));
    net.end_all(vec![reader.app, from.0]);
}

/// Writers' streams to one log, over a network that loses and delays, and a reader that compares each record.
struct Streams {
    net: Net,
    reader: Reader,
    from: (App, Sockets),
    /// Both ends of each connection, and what was written.
    writers: Vec<(Slot, Slot, usize)>,
    /// Frames that are late.
    late: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Numbers of the next records, by writer.
    next: Vec<usize>,
    read: u32,
    /// For what is left to chance.
    dice: u64,
}

const WRITERS: usize = 4;
/// So many records of each: together, they are more than the log holds.
const EACH: usize = 5000;

fn roll(dice: &mut u64, most: u64) -> u64 {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*dice >> 33) % most
}

fn byte(writer: usize, at: usize) -> u8 {
    (at * 31 + at / 251 + writer * 7) as u8
}

impl Streams {
    fn new(seed: u64) -> Streams {
        let mut net = net(1 << 20);
        let (mut reader, mut from) = (Reader::new(&mut net), writer(&mut net));
        reader.open(&mut net, SHAPE).unwrap();
        let mut writers = Vec::new();
        for _ in 0..WRITERS {
            let (mine, slot) = connect(&mut net, &mut from, &mut reader);
            reader.join(&mut net, slot, 0).unwrap();
            writers.push((mine, slot, 0));
        }
        let late = Rc::new(RefCell::new(Vec::new()));
        let (kept, mut dice) = (Rc::clone(&late), seed);
        net.filter = Box::new(move |from, frame| {
            let fate = if from == 0 && frame.bytes().len() > 100 { roll(&mut dice, 20) } else { 20 };
            if fate == 1 {
                kept.borrow_mut().push(frame.bytes().to_vec());
            }
            fate > 1
        });
        Streams { net, reader, from, writers, late, next: vec![0; WRITERS], read: 0, dice: !seed }
    }

    /// Everybody writes and reads some.
    fn work(&mut self) {
        for (number, (mine, _, written)) in self.writers.iter_mut().enumerate() {
            let len = (EACH * 64 - *written).min(roll(&mut self.dice, 3000) as usize);
            let bytes: Vec<u8> = (*written..*written + len).map(|at| byte(number, at)).collect();
            *written += self.from.1.write(&mut self.from.0, *mine, &bytes);
        }
        let ready = self.reader.take_completions().0;
        for index in self.read..ready {
            let (written, bytes) = self.reader.record(index);
            let writer = self.writers.iter().position(|(_, slot, _)| u64::from(slot.index) == written.mark).unwrap();
            let number = self.next[writer];
            self.next[writer] += 1;
            assert_eq!((written.number, written.hole), (number as u64, false), "record {index} of {writer}");
            let wanted: Vec<u8> = (number * 64..number * 64 + 64).map(|at| byte(writer, at)).collect();
            assert_eq!(bytes, wanted, "record {index}, {number} of {writer}");
        }
        self.read = ready;
        if roll(&mut self.dice, 3) == 0 {
            self.reader.give_back(ready);
        }
    }

    /// A round of the network, and some of what is late.
    fn round(&mut self, number: usize) {
        if roll(&mut self.dice, 3) == 0 {
            let late = std::mem::take(&mut *self.late.borrow_mut());
            late.iter().for_each(|bytes| self.net.inject(1, bytes));
        }
        self.net.round();
        self.net.seen.clear();
        if number % 20 == 0 {
            self.net.run_for(50 * MS);
        }
    }

    fn is_done(&self) -> bool {
        self.next == [EACH; WRITERS]
    }

    /// The log's members, of a host that stands still, of which a record behind a gap has its place.
    fn with_gaps(&self) -> usize {
        let host = &self.net.nodes[1].host;
        let state = serde_json::to_value(host.base().state(self.net.now, host.net())).unwrap();
        let members = state["contexts"][0]["log"]["members"].as_array().unwrap().clone();
        let incomplete = |member: &serde_json::Value| {
            (member["reserved"].as_u64().unwrap() as u32).wrapping_sub(member["done"].as_u64().unwrap() as u32)
        };
        members.iter().filter(|member| incomplete(member) > 64).count()
    }
}

/// Every so many rounds the reader's host is taken over, or stopped and let go on. Each record is in the log once,
/// whole, and in its writer's order.
#[test]
fn records_go_on_over_takeovers() {
    for (seed, (every, really)) in [(3, true), (3, false), (7, true), (17, true), (17, false)].into_iter().enumerate() {
        let mut streams = Streams::new(seed as u64);
        let (mut taken, mut gaps) = (0, 0);
        for round in 1..200_000 {
            streams.work();
            streams.round(round);
            if round % every == 0 && taken < 300 && streams.net.nodes[1].host.base().is_settled() {
                taken += 1;
                stop(&mut streams.net, 1);
                gaps += streams.with_gaps();
                // What the programs do meanwhile waits in their rings.
                streams.work();
                match really {
                    true => take_over(&mut streams.net, 1, engine),
                    false => streams.net.nodes[1].host.use_base(streams.net.now, |tcp, context| tcp.go_on(context)),
                }
            }
            if streams.is_done() {
                break;
            }
        }
        assert!(streams.is_done(), "{:?} after {taken} takeovers", streams.next);
        assert!(taken > 5 && gaps > 3, "{taken} takeovers, {gaps} with gaps");
        let Streams { mut net, reader, from, .. } = streams;
        net.filter = Box::new(|_, _| true);
        net.end_all(vec![reader.app, from.0]);
    }
}

/// What a connection had begun when it ended is a hole, as ever, and its room is the log's again.
#[test]
fn connections_end_after_a_takeover_as_others_do() {
    let mut net = net(1 << 20);
    let (mut reader, mut from) = (Reader::new(&mut net), writer(&mut net));
    reader.open(&mut net, SHAPE).unwrap();
    let pairs: Vec<_> = (0..5).map(|_| connect(&mut net, &mut from, &mut reader)).collect();
    for (mine, slot) in &pairs[..4] {
        reader.join(&mut net, *slot, 0).unwrap();
        from.1.write(&mut from.0, *mine, &[7; 100]);
        net.run_for(10 * MS);
    }
    // The second one's record is before the others' in the log, and one connection has left.
    reader.close(&mut net, pairs[0].1);
    let refused = {
        stop(&mut net, 1);
        let refused = restore(&mut net, 1, engine_without_logs).unwrap_err();
        net.nodes[1].host.use_base(net.now, |tcp, context| tcp.go_on(context));
        refused
    };
    assert!(refused.contains("shared log"), "{refused}");
    stop(&mut net, 1);
    take_over(&mut net, 1, engine);
    net.run_for(10 * MS);
    assert_eq!(reader.take_completions().0, 3, "a record, a hole, a record; half a one");
    assert_eq!(reader.join(&mut net, pairs[1].1, 0), Err(libc::EALREADY));
    assert_eq!(reader.open(&mut net, SHAPE), Err(libc::EEXIST));
    assert_eq!(reader.join(&mut net, pairs[4].1, 0), Err(libc::ENOBUFS), "two records of the first are in the log");
    reader.give_back(2);
    net.settle();
    assert_eq!(reader.join(&mut net, pairs[4].1, 0), Ok(()));
    // The rest of the second one's half record.
    from.1.write(&mut from.0, pairs[1].0, &[7; 28]);
    net.run_for(10 * MS);
    assert_eq!(reader.take_completions().0, 5);
    let holes: Vec<bool> = (0..5).map(|index| reader.record(index).0.hole).collect();
    assert_eq!(holes, [false, true, false, false, false]);
    from.1.close(&mut net, &mut from.0, pairs[2].0);
    net.run_for(10 * MS);
    assert_eq!(
        reader.take_completions(),
        (7, vec![pairs[2].1]),
        "its half record is a hole; the last one's half waits"
    );
    net.end_all(vec![reader.app, from.0]);
}
