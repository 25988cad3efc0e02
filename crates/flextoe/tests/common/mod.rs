//! Two engines joined by a wire that loses, reorders, duplicates and marks, in virtual time. Each end has an
//! application and a small control plane.
#![allow(dead_code)]

pub(crate) mod contexts;
pub(crate) mod referred;
pub(crate) mod solo;

use context::{AppEnd, Bump, Completion};
use contexts::make_growing_context;
use engine::stream::{self, Agreed, FlowParams, FlowStats, FourTuple, Receiving, Stream};
use engine::{
    Burst, Command, ContextId, DropCounts, Engine, Event, Exception, FlowId, Frame, FramePool, Limits, LoadedModule,
    Slot, Worker,
};
use flextoe::{FlexToe, Mapping};
use referred::Referring;
use shm::{ByteRing, Pooled};
use std::sync::Arc;
use wire::{Endpoint, Mac, Seq};

pub(crate) struct Rng(pub u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent as u64
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub seed: u64,
    pub bytes: usize,
    pub rx_bytes: u32,
    pub tx_bytes: u32,
    /// Bytes to which streams grow, which then begin in small rings; 0: they are in their buffers.
    pub most: u32,
    pub mss: u16,
    pub super_segment: u32,
    pub sack: bool,
    pub timestamps: bool,
    pub ecn: bool,
    pub dctcp: bool,
    pub wscale: u8,
    /// Percent.
    pub loss: u32,
    pub duplicate: u32,
    pub reorder: u32,
    pub mark: u32,
    /// Payload stays by reference on the wire.
    pub by_reference: bool,
    pub rate: u64,
    /// First sequence numbers.
    pub iss: u32,
    pub mapping: Mapping,
    /// An extension, where an engine need not have it.
    pub delayed_acks: bool,
    /// Ranges beyond holes that a receiver keeps.
    pub intervals: u8,
    /// Over IPv6.
    pub v6: bool,
    /// The engine under test: this harness is for all of them.
    pub engine: MakeEngine,
}

pub(crate) type MakeEngine = fn(&Config, Limits, FramePool) -> Box<dyn Engine<Stream>>;

fn flextoe(config: &Config, limits: Limits, pool: FramePool) -> Box<dyn Engine<Stream>> {
    Box::new(FlexToe::new(limits, config.mapping.clone(), pool))
}

impl Config {
    pub(crate) fn clean(seed: u64) -> Config {
        Config {
            seed,
            bytes: 200_000,
            rx_bytes: 65536,
            tx_bytes: 65536,
            most: 0,
            mss: 1448,
            super_segment: 0,
            sack: true,
            timestamps: true,
            ecn: false,
            dctcp: false,
            wscale: 7,
            loss: 0,
            duplicate: 0,
            reorder: 0,
            mark: 0,
            by_reference: true,
            rate: 0,
            iss: 1000,
            mapping: Mapping::default(),
            delayed_acks: true,
            intervals: Receiving::INTERVALS,
            v6: false,
            engine: flextoe,
        }
    }

    /// Everything at random, from the seed.
    pub(crate) fn random(seed: u64) -> Config {
        let mut r = Rng(seed ^ 0x5eed);
        let ecn = r.chance(50);
        let super_segment = if r.chance(30) { 16384 } else { 0 };
        Config {
            bytes: 1 + r.below(120_000) as usize,
            rx_bytes: 4096 << r.below(5),
            tx_bytes: 4096 << r.below(5),
            mss: [100, 536, 1448, 1460, 8948][r.below(5) as usize],
            super_segment,
            sack: r.chance(60),
            timestamps: r.chance(60),
            ecn,
            dctcp: ecn && r.chance(50),
            wscale: r.below(9) as u8,
            loss: [0, 1, 5, 20][r.below(4) as usize],
            duplicate: [0, 2, 10][r.below(3) as usize],
            reorder: [0, 5, 30][r.below(3) as usize],
            mark: [0, 10, 50][r.below(3) as usize],
            by_reference: super_segment > 0 || r.chance(50),
            rate: if r.chance(20) { 20_000_000 } else { 0 },
            iss: if r.chance(50) { u32::MAX - r.below(100_000) as u32 } else { r.next() as u32 },
            ..Config::clean(seed)
        }
    }
}

/// What an application has: a context with one connection.
pub(crate) struct App {
    pub end: AppEnd,
    pub rx: Arc<ByteRing>,
    pub tx: Arc<ByteRing>,
    pub slot: Slot,
    pub outgoing: Vec<u8>,
    pub expected: Vec<u8>,
    pub written: u32,
    pub freed: u32,
    pub read: u32,
    pub available: u32,
    pub fin: bool,
    pub peer_fin: bool,
    /// It sends some of its bytes by reference.
    pub referring: Option<Referring>,
}

impl App {
    /// Takes completions, reads and writes some.
    pub(crate) fn step(&mut self, rng: &mut Rng, lazy: u32) {
        while let Some(words) = self.end.completions.pop().expect("a sound ring") {
            let completion = Completion::from_words(words);
            assert_eq!(completion.slot, self.slot);
            assert!(completion.rx_tail.wrapping_sub(self.available) as i32 >= 0, "completions go forward");
            self.available = completion.rx_tail;
            self.freed = completion.tx_tail;
            self.peer_fin |= completion.fin;
            self.rx = self.rx.grown().filter(|_| completion.ring > 0).unwrap_or(Arc::clone(&self.rx));
        }
        if rng.chance(lazy) {
            return;
        }
        let before = (self.written, self.read, self.fin);
        self.read_some(rng);
        self.write_some(rng);
        if before != (self.written, self.read, self.fin) {
            self.bump();
        }
    }

    pub(crate) fn bump(&mut self) {
        let bump =
            Bump { slot: self.slot, tx_head: self.written, rx_head: self.read, fin: self.fin, ring: self.tx.number() };
        self.end.bumps.push(bump.to_words()).expect("room");
    }

    fn read_some(&mut self, rng: &mut Rng) {
        let have = self.available - self.read;
        let take = if rng.chance(60) { have } else { rng.below(have as u64 + 1) as u32 };
        let mut bytes = vec![0; take as usize];
        self.rx.read(self.read, &mut bytes);
        let at = self.read as usize;
        assert!(at + bytes.len() <= self.expected.len(), "more came than was sent");
        assert!(bytes == self.expected[at..at + bytes.len()], "other bytes than were sent, from {at}");
        self.read += take;
    }

    fn write_some(&mut self, rng: &mut Rng) {
        let room = self.tx.most() - (self.written - self.freed);
        let left = self.outgoing.len() - self.written as usize;
        let most = (room as usize).min(left);
        let len = if rng.chance(60) { most } else { rng.below(most as u64 + 1) as usize };
        let at = self.written as usize;
        self.tx = self.tx.holding(self.freed, self.written + len as u32);
        self.put(rng, at, len);
        self.written += len as u32;
        if self.written as usize == self.outgoing.len() && rng.chance(50) {
            self.fin = true;
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.fin && self.peer_fin && self.read as usize == self.expected.len()
    }
}

/// The least that a control plane does: timers and a window.
pub(crate) struct Timers {
    pub active: bool,
    since: u64,
    una: u32,
    backoff: u32,
    cwnd: u32,
    fast: u32,
}

pub(crate) struct Side {
    pub engine: Box<dyn Engine<Stream>>,
    pub workers: Vec<Box<dyn Worker>>,
    pub pool: FramePool,
    pub drops: DropCounts,
    pub commands: Vec<Command<Stream>>,
    pub events: Vec<Event<Stream>>,
    pub exceptions: Vec<(Exception, Box<Frame>)>,
    pub rx: Vec<Box<Frame>>,
    pub back: Vec<(Exception, Box<Frame>)>,
    pub tx: Vec<Box<Frame>>,
    pub app: App,
    pub stats: Pooled<FlowStats>,
    pub timers: Timers,
    pub seen: Vec<Event<Stream>>,
    /// What its flow was installed with.
    pub params: FlowParams,
    /// Bytes that it offers.
    pub offered: u32,
    mss: u16,
}

pub(crate) const RTO: u64 = 5_000_000;

pub(crate) fn tuple(first: bool) -> FourTuple {
    tuple_over(false, first)
}

pub(crate) fn tuple_over(v6: bool, first: bool) -> FourTuple {
    let texts = if v6 { ["2001:db8::1", "fe80::2%3"] } else { ["10.0.0.1", "10.0.0.2"] };
    let [a, b] = texts.map(|text| text.parse().unwrap());
    let (a, b) = (Endpoint::new(a, 1000), Endpoint::new(b, 80));
    if first { FourTuple::new(a, b) } else { FourTuple::new(b, a) }
}

pub(crate) fn mac(first: bool) -> Mac {
    Mac([2, 0, 0, 0, 0, if first { 1 } else { 2 }])
}

impl Side {
    pub(crate) fn new(config: &Config, first: bool, outgoing: Vec<u8>, expected: Vec<u8>) -> Side {
        let (end, engine_end, rx, tx) = make_growing_context(config.rx_bytes, config.tx_bytes, config.most);
        let pool = FramePool::new(4096);
        let limits = Limits { flows: 16, contexts: 4 };
        let mut engine = (config.engine)(config, limits, pool.clone());
        let workers = engine.workers();
        let slot = Slot { index: 0, generation: 3 };
        let (app_rx, app_tx) = end.map_buffers(slot).map(|(rx, tx)| (Arc::new(rx), Arc::new(tx))).unwrap();
        let stats = Pooled::new(FlowStats::default());
        let cwnd = 10 * config.mss as u32;
        let (own, other) = (config.iss.wrapping_add(if first { 0 } else { 77 }), config.iss);
        let other = other.wrapping_add(if first { 77 } else { 0 });
        let params = FlowParams {
            flow: FlowId(5),
            tuple: tuple_over(config.v6, first),
            local_mac: mac(first),
            remote_mac: mac(!first),
            context: ContextId(1),
            slot,
            rx,
            tx,
            snd_nxt: Seq(own) + 1,
            tx_pos: 0,
            rcv_nxt: Seq(other) + 1,
            rx_pos: 0,
            answered: 0,
            snd_wnd: config.rx_bytes.min(65535),
            agreed: Agreed {
                mss: config.mss,
                snd_shift: config.wscale,
                rcv_shift: config.wscale,
                ts_offset: config.timestamps.then_some(1),
                sack: config.sack,
                ecn: config.ecn,
            },
            receiving: Receiving { delayed_acks: config.delayed_acks, intervals: config.intervals },
            ts_recent: 1,
            super_segment: config.super_segment,
            checksum_offload: config.by_reference,
            rtt: 0,
            dctcp_echo: config.dctcp,
            cwnd,
            growth: engine::stream::Growth::NONE,
            rate: config.rate,
            stats: stats.clone(),
        };
        let commands = vec![Command::Attach(ContextId(1), engine_end), Command::Install(Box::new(params.clone()))];
        Side {
            engine,
            workers,
            pool,
            drops: DropCounts::default(),
            commands,
            events: Vec::new(),
            exceptions: Vec::new(),
            rx: Vec::new(),
            back: Vec::new(),
            tx: Vec::new(),
            app: App {
                end,
                rx: app_rx,
                tx: app_tx,
                slot,
                outgoing,
                expected,
                written: 0,
                freed: 0,
                read: 0,
                available: 0,
                fin: false,
                peer_fin: false,
                referring: None,
            },
            stats,
            timers: Timers { active: false, since: 0, una: 0, backoff: 0, cwnd, fast: 0 },
            seen: Vec::new(),
            offered: params.rx.usual(),
            params,
            mss: config.mss,
        }
    }

    /// One round of the engine.
    pub(crate) fn poll(&mut self, now: u64) -> usize {
        let before = self.tx.len();
        let mut burst = Burst {
            rx: &mut self.rx,
            back: &mut self.back,
            tx: &mut self.tx,
            exceptions: &mut self.exceptions,
            events: &mut self.events,
            commands: &mut self.commands,
            pool: &mut self.pool,
            drops: &mut self.drops,
            recorder: None,
        };
        let done = self.engine.poll(now, &mut burst);
        self.engine.egress(now, before, &mut burst);
        assert!(self.rx.is_empty() && self.commands.is_empty());
        done
    }

    /// The control plane: from now on these modules run.
    pub(crate) fn load(&mut self, modules: &[LoadedModule]) {
        self.commands.push(Command::Modules(modules.to_vec()));
    }

    /// Polls workers in random order, not all of them each time.
    pub(crate) fn poll_workers(&mut self, now: u64, rng: &mut Rng) {
        let count = self.workers.len() as u64;
        for _ in 0..count * 2 {
            let at = rng.below(count) as usize;
            self.workers[at].poll(now);
        }
    }

    /// The control plane's round.
    pub(crate) fn control(&mut self, now: u64) {
        for event in self.events.drain(..) {
            if let Event::Transport(stream::Event::Active(_)) = event {
                assert!(!self.timers.active, "Active is raised once");
                self.timers.active = true;
                self.timers.since = now;
            }
            self.seen.push(event);
        }
        let (figures, flow) = (self.stats.read(), FlowId(5));
        if self.offered < self.params.rx.most() && figures.rx_bytes > u64::from(self.offered) {
            self.offered *= 2;
            self.commands.push(stream::Command::Offer(flow, self.offered).into());
        }
        if !self.timers.active {
            return;
        }
        if figures.outstanding == 0 && figures.unsent == 0 {
            self.timers.active = false;
            self.commands.push(stream::Command::Untrack(flow).into());
        } else if figures.snd_una != self.timers.una {
            (self.timers.una, self.timers.since, self.timers.backoff) = (figures.snd_una, now, 0);
            self.timers.cwnd = (self.timers.cwnd + self.mss as u32).min(1 << 20);
            self.commands.push(stream::Command::Window(flow, self.timers.cwnd).into());
        } else if now - self.timers.since > RTO << self.timers.backoff.min(3) {
            self.timers.since = now;
            self.timers.backoff += 1;
            let timeout = figures.outstanding > 0;
            if timeout {
                self.timers.cwnd = self.mss as u32;
                self.commands.push(stream::Command::Window(flow, self.timers.cwnd).into());
            }
            self.commands.push(if timeout {
                Command::Transport(stream::Command::Retransmit(flow, None))
            } else {
                Command::Transport(stream::Command::Probe(flow))
            });
        }
        if figures.fast_retransmits != self.timers.fast {
            self.timers.fast = figures.fast_retransmits;
            self.timers.cwnd = (self.timers.cwnd / 2).max(2 * self.mss as u32);
            self.commands.push(stream::Command::Window(flow, self.timers.cwnd).into());
        }
    }
}

/// Copies a frame, as a wire that duplicates does.
pub(crate) fn copy(frame: &Frame, pool: &mut FramePool) -> Box<Frame> {
    let mut copy = pool.small();
    copy.bytes_vec().extend_from_slice(frame.bytes());
    copy.set_payload(frame.payload().cloned());
    (copy.checksum, copy.segment_size) = (frame.checksum, frame.segment_size);
    copy
}

/// One direction of the wire.
#[derive(Default)]
pub(crate) struct Wire {
    frames: Vec<(u64, u64, Box<Frame>)>,
    number: u64,
}

impl Wire {
    pub(crate) fn put(
        &mut self,
        config: &Config,
        rng: &mut Rng,
        now: u64,
        frames: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) {
        for mut frame in frames.drain(..) {
            if !config.by_reference {
                frame.complete_checksum();
            }
            if rng.chance(config.loss) {
                pool.put(frame);
                continue;
            }
            if rng.chance(config.mark) {
                wire::ip::mark_ce(&mut frame.bytes_mut()[wire::ethernet::HEADER_LEN..]);
            }
            if rng.chance(config.duplicate) {
                let twin = copy(&frame, pool);
                self.queue(config, rng, now, twin);
            }
            self.queue(config, rng, now, frame);
        }
    }

    fn queue(&mut self, config: &Config, rng: &mut Rng, now: u64, frame: Box<Frame>) {
        let late = if rng.chance(config.reorder) { rng.below(200_000) } else { 0 };
        self.frames.push((now + 50_000 + late, self.number, frame));
        self.number += 1;
    }

    pub(crate) fn take(&mut self, now: u64, into: &mut Vec<Box<Frame>>) {
        let (mut due, later): (Vec<_>, Vec<_>) = self.frames.drain(..).partition(|(at, ..)| *at <= now);
        self.frames = later;
        due.sort_by_key(|(at, number, _)| (*at, *number));
        into.extend(due.into_iter().map(|(.., frame)| frame));
    }
}

/// The whole laboratory.
pub(crate) struct Lab {
    pub config: Config,
    pub rng: Rng,
    pub sides: [Side; 2],
    pub wires: [Wire; 2],
    pub now: u64,
}

pub(crate) fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

impl Lab {
    pub(crate) fn new(config: Config) -> Lab {
        let mut rng = Rng(config.seed);
        let there = random_bytes(&mut rng, config.bytes);
        let back_len = rng.below(config.bytes as u64 + 1) as usize;
        let back = random_bytes(&mut rng, back_len);
        let sides = [Side::new(&config, true, there.clone(), back.clone()), Side::new(&config, false, back, there)];
        Lab { config, rng, sides, wires: Default::default(), now: 2_000_000_000 }
    }

    pub(crate) fn step(&mut self, lazy: u32) {
        self.now += 10_000 + self.rng.below(5_000);
        for at in 0..2 {
            self.wires[1 - at].take(self.now, &mut self.sides[at].rx);
            let side = &mut self.sides[at];
            side.app.step(&mut self.rng, lazy);
            side.poll(self.now);
            if !side.workers.is_empty() {
                side.poll_workers(self.now, &mut self.rng);
                side.poll(self.now);
            }
            side.control(self.now);
            self.wires[at].put(&self.config, &mut self.rng, self.now, &mut side.tx, &mut side.pool);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        let acked = |side: &Side| side.seen.contains(&Event::Transport(stream::Event::FinAcked(FlowId(5))));
        self.sides.iter().all(|side| side.app.is_done() && acked(side))
    }

    /// Runs until all has arrived and both directions are closed.
    pub(crate) fn finish(&mut self, lazy: u32) {
        self.finish_with(lazy, |_| {});
    }

    /// The same, with something to do between steps, which gets the time.
    pub(crate) fn finish_with(&mut self, lazy: u32, mut between: impl FnMut(u64)) {
        for _ in 0..2_000_000 {
            self.step(lazy);
            between(self.now);
            if self.is_done() {
                return self.check_end(between);
            }
        }
        for side in &self.sides {
            eprintln!("{:?} {:?} written {} read {}", side.stats.read(), side.drops, side.app.written, side.app.read);
        }
        panic!("stuck: {:?}", self.config);
    }

    fn check_end(&mut self, mut between: impl FnMut(u64)) {
        for side in &mut self.sides {
            let fins = side
                .seen
                .iter()
                .filter(|event| {
                    matches!(
                        event,
                        Event::Transport(stream::Event::PeerFin(_)) | Event::Transport(stream::Event::PeerFinToo(_))
                    )
                })
                .count();
            assert_eq!(fins, 1, "one FIN: {:?}", side.seen);
            assert!(!side.seen.iter().any(|event| matches!(event, Event::Transport(stream::Event::Reset(_)))));
            assert!(side.exceptions.is_empty());
            side.commands.push(Command::Remove(FlowId(5)));
            let mut removed = None;
            for _ in 0..10_000_000 {
                side.poll(self.now);
                between(self.now);
                if !side.workers.is_empty() {
                    side.poll_workers(self.now, &mut self.rng);
                }
                removed = side.events.iter().find_map(|event| match event {
                    Event::Removed(_, end) => Some(*end),
                    _ => None,
                });
                if removed.is_some() {
                    break;
                }
            }
            let end = removed.expect("an answer to Remove");
            assert_eq!((end.unread, end.snd_una), (0, end.snd_nxt));
        }
    }
}
