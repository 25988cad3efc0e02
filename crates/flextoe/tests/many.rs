//! Many flows at once, over several contexts and flow groups, that come and go while others carry data.
mod common;

use common::contexts::make_large_context;
use common::{Config, RTO, Rng, Wire, mac, tuple};
use context::{AppEnd, Bump, Completion, ControlEnd};
use engine::stream::{self, Agreed, FlowParams, FlowStats, FourTuple, Stream};
use engine::{
    Burst, Command, ContextId, DropCounts, Engine, Event, Exception, FlowId, Frame, FramePool, Limits, Slot, Worker,
};
use flextoe::{FlexToe, Mapping};
use shm::{ByteRing, Pooled};
use std::sync::Arc;
use wire::Seq;

const FLOWS: u32 = 24;
const CONTEXTS: u32 = 3;
const BUFFER: u32 = 8192;

/// Byte `at` of what a flow's one end sends in one life of the flow.
fn byte(flow: u32, life: u32, first: bool, at: u32) -> u8 {
    Rng((flow as u64) << 40 | (life as u64) << 33 | (first as u64) << 32 | at as u64).next() as u8
}

/// Bytes that it sends in all.
fn total(flow: u32, life: u32, first: bool) -> u32 {
    (Rng((flow * 1000 + life * 2 + first as u32) as u64).below(40_000)) as u32
}

/// One end of a flow.
struct Conn {
    life: u32,
    stats: Pooled<FlowStats>,
    buffers: (ByteRing, ByteRing),
    written: u32,
    freed: u32,
    read: u32,
    available: u32,
    fin: bool,
    peer_fin: bool,
    fin_acked: bool,
    /// The last acknowledgement seen, and when.
    progress: (u32, u64),
}

struct Host {
    first: bool,
    engine: FlexToe,
    workers: Vec<Box<dyn Worker>>,
    pool: FramePool,
    contexts: Vec<(AppEnd, ControlEnd)>,
    conns: Vec<Option<Conn>>,
    commands: Vec<Command<Stream>>,
    events: Vec<Event<Stream>>,
    exceptions: Vec<(Exception, Box<Frame>)>,
    rx: Vec<Box<Frame>>,
    tx: Vec<Box<Frame>>,
    removed: Vec<u32>,
}

impl Host {
    fn new(first: bool, mapping: &Mapping) -> Host {
        let pool = FramePool::new(4096);
        let limits = Limits { flows: FLOWS, contexts: CONTEXTS };
        let mut engine = FlexToe::new(limits, mapping.clone(), pool.clone());
        let workers = engine.workers();
        let (mut contexts, mut commands) = (Vec::new(), Vec::new());
        for id in 0..CONTEXTS {
            let (app, engine_end, control) = make_large_context(FLOWS.next_power_of_two(), BUFFER, BUFFER);
            commands.push(Command::Attach(ContextId(id), engine_end));
            contexts.push((app, control));
        }
        Host {
            first,
            engine,
            workers,
            pool,
            contexts,
            conns: (0..FLOWS).map(|_| None).collect(),
            commands,
            events: Vec::new(),
            exceptions: Vec::new(),
            rx: Vec::new(),
            tx: Vec::new(),
            removed: Vec::new(),
        }
    }

    fn install(&mut self, flow: u32, life: u32) {
        let slot = Slot { index: flow, generation: life as u16 };
        let (app, control) = &self.contexts[(flow % CONTEXTS) as usize];
        let (rx, tx) = control.map_buffers(flow).unwrap();
        let stats = Pooled::new(FlowStats::default());
        let base = tuple(self.first);
        // Other ports in each life: frames of an earlier one may still be on their way.
        let port = 2000 + (life * FLOWS + flow) as u16;
        let params = FlowParams {
            flow: FlowId(flow),
            tuple: if self.first {
                FourTuple { local_port: port, ..base }
            } else {
                FourTuple { remote_port: port, ..base }
            },
            local_mac: mac(self.first),
            remote_mac: mac(!self.first),
            context: ContextId(flow % CONTEXTS),
            slot,
            rx: Arc::new(rx),
            tx: Arc::new(tx),
            snd_nxt: Seq(life),
            tx_pos: 0,
            rcv_nxt: Seq(life),
            rx_pos: 0,
            answered: 0,
            snd_wnd: BUFFER,
            agreed: Agreed { mss: 1000, snd_shift: 0, rcv_shift: 0, ts_offset: None, sack: flow % 2 == 0, ecn: false },
            receiving: Default::default(),
            ts_recent: 0,
            super_segment: 0,
            checksum_offload: true,
            rtt: 0,
            dctcp_echo: false,
            cwnd: 8000,
            growth: engine::stream::Growth::NONE,
            rate: if flow % 5 == 0 { 50_000_000 } else { 0 },
            stats: stats.clone(),
        };
        let buffers = app.map_buffers(slot).unwrap();
        self.commands.push(Command::Install(Box::new(params)));
        self.conns[flow as usize] = Some(Conn {
            life,
            stats,
            buffers,
            written: 0,
            freed: 0,
            read: 0,
            available: 0,
            fin: false,
            peer_fin: false,
            fin_acked: false,
            progress: (0, 0),
        });
    }

    fn poll(&mut self, now: u64, rng: &mut Rng) {
        for _ in 0..2 {
            let mut drops = DropCounts::default();
            let mut burst = Burst {
                rx: &mut self.rx,
                back: &mut Vec::new(),
                tx: &mut self.tx,
                exceptions: &mut self.exceptions,
                events: &mut self.events,
                commands: &mut self.commands,
                pool: &mut self.pool,
                drops: &mut drops,
                recorder: None,
            };
            self.engine.poll(now, &mut burst);
            for _ in 0..self.workers.len() * 2 {
                let at = rng.below(self.workers.len() as u64) as usize;
                self.workers[at].poll(now);
            }
        }
    }

    fn applications(&mut self, rng: &mut Rng) {
        for (app, _) in &mut self.contexts {
            while let Some(words) = app.completions.pop().unwrap() {
                let completion = Completion::from_words(words);
                // One of an earlier life of the slot is no longer of interest.
                let conn = self.conns[completion.slot.index as usize].as_mut();
                if let Some(conn) = conn.filter(|conn| conn.life as u16 == completion.slot.generation) {
                    (conn.available, conn.freed) = (completion.rx_tail, completion.tx_tail);
                    conn.peer_fin |= completion.fin;
                }
            }
        }
        for flow in 0..FLOWS {
            if let Some(conn) = self.conns[flow as usize].as_mut().filter(|_| rng.chance(50)) {
                let bump = conn.step(flow, self.first, rng);
                // A full ring is a matter of the next round: positions are absolute.
                let _ = self.contexts[(flow % CONTEXTS) as usize].0.bumps.push(bump.to_words());
            }
        }
    }

    fn control(&mut self, now: u64) {
        for event in self.events.drain(..) {
            match event {
                Event::Transport(stream::Event::FinAcked(flow)) => {
                    if let Some(conn) = self.conns[flow.0 as usize].as_mut() {
                        conn.fin_acked = true;
                    }
                }
                Event::Removed(flow, end) => {
                    assert_eq!(end.snd_una, end.snd_nxt);
                    self.removed.push(flow.0);
                }
                Event::Transport(stream::Event::Active(_))
                | Event::Transport(stream::Event::Congestion(_))
                | Event::Transport(stream::Event::LocalFin(_))
                | Event::Transport(stream::Event::PeerFin(_))
                | Event::Transport(stream::Event::PeerFinToo(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        for (flow, conn) in self.conns.iter_mut().enumerate() {
            let Some(conn) = conn else { continue };
            let figures = conn.stats.read();
            if figures.snd_una != conn.progress.0 || figures.outstanding + figures.unsent == 0 {
                conn.progress = (figures.snd_una, now);
            } else if now - conn.progress.1 > RTO {
                conn.progress.1 = now;
                let flow = FlowId(flow as u32);
                let timeout = figures.outstanding > 0;
                self.commands.push(if timeout {
                    Command::Transport(stream::Command::Retransmit(flow, None))
                } else {
                    Command::Transport(stream::Command::Probe(flow))
                });
            }
        }
        self.exceptions.drain(..).for_each(|(_, frame)| self.pool.put(frame));
    }

    fn is_done(&self, flow: u32) -> bool {
        self.conns[flow as usize]
            .as_ref()
            .is_some_and(|conn| conn.fin_acked && conn.peer_fin && conn.read == total(flow, conn.life, !self.first))
    }
}

impl Conn {
    fn step(&mut self, flow: u32, first: bool, rng: &mut Rng) -> Bump {
        let mut bytes = vec![0; (self.available - self.read) as usize];
        self.buffers.0.read(self.read, &mut bytes);
        for (i, got) in bytes.iter().enumerate() {
            let at = self.read + i as u32;
            assert_eq!(*got, byte(flow, self.life, !first, at), "flow {flow}, life {}, byte {at}", self.life);
        }
        self.read = self.available;
        let left = total(flow, self.life, first) - self.written;
        let len = rng.below((BUFFER - (self.written - self.freed)).min(left) as u64 + 1) as u32;
        let bytes: Vec<u8> = (0..len).map(|i| byte(flow, self.life, first, self.written + i)).collect();
        self.buffers.1.write(self.written, &bytes);
        self.written += len;
        self.fin = len == left;
        let slot = Slot { index: flow, generation: self.life as u16 };
        Bump { slot, tx_head: self.written, rx_head: self.read, fin: self.fin, ring: 0 }
    }
}

/// What becomes of a flow.
#[derive(Clone, Copy)]
enum Life {
    Alive(u32),
    Leaving(u32),
    Over,
}

/// Removes a flow whose both ends are done, and when both engines have let it go, starts its next life.
fn advance(hosts: &mut [Host; 2], flow: u32, stage: Life, lives: u32) -> Life {
    match stage {
        Life::Alive(life) if hosts.iter().all(|host| host.is_done(flow)) => {
            for host in hosts {
                host.commands.push(Command::Remove(FlowId(flow)));
                host.conns[flow as usize] = None;
            }
            Life::Leaving(life)
        }
        Life::Leaving(life) if hosts.iter().all(|host| host.removed.contains(&flow)) => {
            hosts.iter_mut().for_each(|host| host.removed.retain(|removed| *removed != flow));
            if life + 1 == lives {
                return Life::Over;
            }
            hosts.iter_mut().for_each(|host| host.install(flow, life + 1));
            Life::Alive(life + 1)
        }
        stage => stage,
    }
}

/// Runs until every flow has had its lives.
fn run(mapping: &Mapping, seed: u64, lives: u32) {
    let config = Config { loss: 2, duplicate: 2, reorder: 5, ..Config::clean(seed) };
    let mut rng = Rng(seed);
    let mut hosts = [Host::new(true, mapping), Host::new(false, mapping)];
    let mut wires = [Wire::default(), Wire::default()];
    let mut stages = [Life::Alive(0); FLOWS as usize];
    let mut now = 3_000_000_000;
    for host in &mut hosts {
        (0..FLOWS).for_each(|flow| host.install(flow, 0));
    }
    for _ in 0..200_000 {
        now += 10_000;
        for at in 0..2 {
            wires[1 - at].take(now, &mut hosts[at].rx);
            let host = &mut hosts[at];
            host.applications(&mut rng);
            host.poll(now, &mut rng);
            host.control(now);
            wires[at].put(&config, &mut rng, now, &mut host.tx, &mut host.pool);
        }
        for flow in 0..FLOWS {
            stages[flow as usize] = advance(&mut hosts, flow, stages[flow as usize], lives);
        }
        if stages.iter().all(|stage| matches!(stage, Life::Over)) {
            return;
        }
    }
    panic!("stuck, seed {seed}");
}

#[test]
fn flows_come_and_go_on_one_thread() {
    for seed in 0..6 {
        run(&Mapping::default(), seed, 3);
        run(&Mapping { flow_groups: 3, ..Mapping::default() }, seed, 2);
    }
}

#[test]
fn flows_come_and_go_through_replicated_modules() {
    for seed in 0..6 {
        run(&Mapping { threads: true, preprocess: 2, flow_groups: 4, postprocess: 3, dma: 2 }, seed, 3);
    }
}
