//! The control plane of a host: its tables, and what several of its parts need.
use crate::bindings::Bindings;
use crate::config::HostConfig;
use crate::contexts::Context;
use crate::cookies::Redeemed;
use crate::flow::Flow;
use crate::opening::Opening;
use crate::packet;
use crate::ports::{PeerPorts, PortSet, PortTurns};
use crate::random::Random;
use crate::shares::Hold;
use crate::splice::Splices;
use crate::timers::{Timer, Timers};
use crate::timing::FlowOptions;
use crate::tuples::TupleMap;
use ::host::{Arp, ArpTiming, Budget, Net, NetConfig, RouteTable, Slab};
use ::tcp::{Segment, Wait, reset_for};
use context::{Endpoint, Reply, Turns};
use engine::stream::{Carries, FlowEnd, FlowStats, FourTuple, Stream};
use engine::{Command, ContextId, DropCounts, DropReason, Exception, FlowId, Nanos};
use port::{Capabilities, Frame};
use shm::Pool;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use trace::Tracer;
use wire::{Mac, tcp};

/// One millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Who a connection's segments are for, where the engine does not process them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is being opened.
    Opening(u32),
    /// An engine runs it, or is about to.
    Flow(FlowId),
    /// It is joined with another one: which splice, and which side of it.
    Splice(u32, usize),
    /// It is closed and waits.
    Wait(u32),
}

/// All connections of the host, in every stage.
pub(crate) struct Connections {
    stages: TupleMap<Stage>,
    /// How many have each local port, and which ports are in use.
    counts: BTreeMap<u16, u32>,
    ports: PortSet,
    /// Those with a local port of the ephemeral range, by their remote end.
    peers: HashMap<Endpoint, PeerPorts>,
    ephemeral: RangeInclusive<u16>,
    /// Connections of the host with itself.
    own: u32,
}

impl Connections {
    pub fn new(ephemeral: RangeInclusive<u16>) -> Connections {
        Connections {
            stages: TupleMap::default(),
            counts: BTreeMap::new(),
            ports: PortSet::default(),
            peers: HashMap::new(),
            ephemeral,
            own: 0,
        }
    }

    pub fn get(&self, tuple: &FourTuple) -> Option<Stage> {
        self.stages.get(tuple).copied()
    }

    /// Adds a connection, or moves it to another stage.
    pub fn set(&mut self, tuple: FourTuple, stage: Stage) {
        let (port, remote) = (tuple.local_port, tuple.remote());
        let new = self.stages.insert(tuple, stage).is_none();
        if new {
            self.own += (tuple.local_ip == tuple.remote_ip) as u32;
            *self.counts.entry(port).or_default() += 1;
            self.ports.insert(port);
        }
        if new && self.ephemeral.contains(&port) {
            self.peers.entry(remote).or_default().insert(port);
        }
    }

    /// A connection in TIME-WAIT whose port may be used again at some time. `since_of` tells when one of the waiting came.
    pub fn offer_port(&mut self, tuple: &FourTuple, since: Nanos, since_of: impl Fn(u32) -> Option<Nanos>) {
        let Some(peer) = self.peers.get_mut(&tuple.remote()) else { return };
        peer.wait(since, tuple.local_port, |local_port| match self.stages.get(&FourTuple { local_port, ..*tuple }) {
            Some(Stage::Wait(key)) => since_of(*key),
            _ => None,
        });
    }

    pub fn remove(&mut self, tuple: &FourTuple) {
        if self.stages.remove(tuple).is_none() {
            return;
        }
        self.own -= (tuple.local_ip == tuple.remote_ip) as u32;
        let port = tuple.local_port;
        if let Some(count) = self.counts.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&port);
                self.ports.remove(port);
            }
        }
        let remote = tuple.remote();
        if self.ephemeral.contains(&port) && self.peers.get_mut(&remote).is_some_and(|peer| peer.remove(port)) {
            self.peers.remove(&remote);
        }
    }

    /// Local ports that connections use.
    pub fn ports(&self) -> &PortSet {
        &self.ports
    }

    /// Local ports of the connections to a remote end, of the ephemeral range.
    pub fn towards(&self, remote: Endpoint) -> Option<&PeerPorts> {
        self.peers.get(&remote)
    }

    /// The connection to a remote end that came into TIME-WAIT first is looked at no more.
    pub fn pop_wait(&mut self, remote: Endpoint) {
        if let Some(peer) = self.peers.get_mut(&remote) {
            peer.pop_wait();
        }
    }

    /// A connection uses the local port.
    pub fn uses_port(&self, port: u16) -> bool {
        self.ports.contains(port)
    }

    /// The host is connected with itself: some of its frames are for itself.
    pub fn to_self(&self) -> bool {
        self.own > 0
    }

    /// Connections in any stage.
    pub fn len(&self) -> usize {
        self.stages.len()
    }
}

/// The control plane.
pub(crate) struct Plane {
    pub config: HostConfig,
    pub caps: Capabilities,
    pub random: Random,
    pub port_turns: PortTurns,
    pub net: Net,
    pub contexts: Slab<Context>,
    /// Whose requests are taken in a round.
    pub turns: Turns,
    /// Who was told something in this round: their bells are rung at its end.
    pub told: Vec<ContextId>,
    /// How much the engine did in the last round.
    pub engine_work: usize,
    pub bindings: Bindings,
    pub openings: Slab<Opening>,
    pub redeemed: Redeemed,
    pub flows: Slab<Flow>,
    /// Where their counters lie.
    pub stats: Pool<FlowStats>,
    pub waits: Slab<Wait>,
    /// Keys of waits in the order in which they came, some of them over.
    pub wait_order: VecDeque<(Nanos, u32)>,
    pub connections: Connections,
    pub splices: Splices,
    pub holds: BTreeMap<u64, Hold>,
    /// The number of the last claim of a shared connection; 0 before the first.
    pub claims: u32,
    pub timers: Timers,
    /// For the engine.
    pub commands: Vec<Command<Stream>>,
    /// Frames of flows that the engine learns of only now, or that a module sent here; and why they came.
    pub refeed: Vec<(Exception, Box<Frame>)>,
    /// Frames that were kept and are of no use any more.
    pub spent: Vec<Box<Frame>>,
    pub drops: DropCounts,
    pub resets: Budget,
    /// Flows that are timed now.
    pub tracked: u32,
    /// Frames kept for connections that nobody has accepted yet.
    pub held: u32,
    pub tracer: Tracer,
    /// The host is being handed over, or was: where the engine left its flows.
    pub stopped: Option<BTreeMap<FlowId, FlowEnd>>,
    /// Of flows of which nothing was asked: they share them.
    pub flow_options: Arc<FlowOptions>,
    /// TCP options that the engine carries.
    pub carries: Carries,
    /// The engine keeps shared logs.
    pub keeps_logs: bool,
    /// Flows that the engine was told to let join a log, in order: who asked, and with which tag.
    pub log_joins: VecDeque<(FlowId, ContextId, u32)>,
}

impl Plane {
    pub fn new(config: HostConfig, caps: Capabilities, mac: Mac, carries: Carries, secret: [u8; 16]) -> Plane {
        let net = Net::new(net_config(&config, caps, mac));
        let mut random = Random::new(secret);
        Plane {
            port_turns: PortTurns::new(random.next()),
            random,
            net,
            contexts: Slab::new(config.max_contexts),
            turns: Turns::default(),
            told: Vec::new(),
            engine_work: 0,
            bindings: Bindings::default(),
            openings: Slab::new(config.limits.max_openings),
            redeemed: Redeemed::default(),
            flows: Slab::new(config.max_flows),
            stats: Pool::default(),
            waits: Slab::new(config.limits.max_time_wait.max(1)),
            wait_order: VecDeque::new(),
            connections: Connections::new(config.ephemeral_first..=config.ephemeral_last),
            splices: Splices::new(config.limits.max_splices),
            holds: BTreeMap::new(),
            claims: 0,
            timers: Timers::default(),
            commands: Vec::new(),
            refeed: Vec::new(),
            spent: Vec::new(),
            drops: DropCounts::default(),
            resets: Budget::new(config.limits.resets_per_s),
            tracked: 0,
            held: 0,
            tracer: Tracer::off(),
            stopped: None,
            flow_options: Arc::new(FlowOptions::of(&config.timers)),
            carries,
            keeps_logs: false,
            log_joins: VecDeque::new(),
            caps,
            config,
        }
    }

    /// Sends a segment without payload.
    pub fn send_tcp(&mut self, now: Nanos, tuple: &FourTuple, header: tcp::Header) {
        let segment = packet::segment(self.net.address, tuple.remote_ip, &header);
        self.net.send(now, segment, &mut self.drops);
    }

    /// Answers a segment of a handshake, where ARP does not know the next hop to the station that it came from: what waited
    /// for ARP would leave after what the engine sends on the connection, and tell an older window.
    pub fn answer(&mut self, now: Nanos, tuple: &FourTuple, header: tcp::Header, station: Option<Mac>) {
        match station.filter(|_| !self.net.knows(tuple.remote_ip)) {
            Some(mac) => self.net.send_to(mac, packet::segment(self.net.address, tuple.remote_ip, &header)),
            None => self.send_tcp(now, tuple, header),
        }
    }

    /// Answers a segment that belongs to no connection.
    pub fn refuse(&mut self, now: Nanos, segment: &Segment) {
        self.drops.count(DropReason::NoFlow);
        if let Some(reset) = reset_for(segment) {
            if self.resets.take(now) {
                self.send_tcp(now, &segment.tuple, reset);
            }
        }
    }

    /// Tells an application something.
    pub fn reply(&mut self, id: ContextId, reply: Reply) {
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.reply(reply);
            if self.told.last() != Some(&id) {
                self.told.push(id);
            }
        }
    }

    /// Puts a kept frame aside: the pool gets it back.
    pub fn spend(&mut self, frames: Vec<Box<Frame>>) {
        self.held -= frames.len() as u32;
        self.spent.extend(frames);
    }

    /// When the next timer is due, of a neighbour or of a connection.
    pub fn next_timer(&self) -> Option<Nanos> {
        [self.net.next_due(), self.timers.next()].into_iter().flatten().min()
    }

    /// A timer is due.
    pub fn on_timer(&mut self, now: Nanos, timer: Timer) {
        match timer {
            Timer::Opening(key) => self.opening_due(now, key),
            Timer::Flow(flow) => self.flow_due(now, FlowId(flow)),
            Timer::Wait(key) => self.wait_due(now, key),
            Timer::Splice(key) => self.splice_due(now, key),
            Timer::Hold(token) => self.hold_due(now, token),
        }
    }

    /// The tuple of a connection from `local` to `remote`.
    pub fn tuple(&self, local_port: u16, remote: Endpoint) -> FourTuple {
        FourTuple { local_ip: self.net.address, remote_ip: remote.ip, local_port, remote_port: remote.port }
    }
}

/// The host's place in the network, as its configuration has it.
fn net_config(config: &HostConfig, caps: Capabilities, mac: Mac) -> NetConfig {
    NetConfig {
        mac,
        address: config.address,
        mtu: if config.mtu == 0 { caps.mtu } else { config.mtu.min(caps.mtu) },
        routes: Box::new(RouteTable::new(config.address, config.prefix_len, config.gateway, &config.routes)),
        neighbours: Box::new(Arp::new(
            config.limits.arp_entries,
            ArpTiming {
                reachable: config.timers.arp_reachable_ms as Nanos * MILLISECOND,
                retry: config.timers.arp_retry_ms as Nanos * MILLISECOND,
                tries: config.timers.arp_tries,
            },
        )),
        icmp_per_s: config.limits.icmp_per_s,
    }
}
