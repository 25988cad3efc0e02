//! Hosts on a shaped fabric in virtual time, as one data-path thread serves them: rounds that cost time, in which
//! every host that has something to do is polled.
use context::{AppEnd, Reply, Request, daemon_ends};
use control::{Application, Host, HostConfig, MemoryConfig};
use engines::{EngineKind, Mapping};
use port::{Fabric, FabricConfig, FabricPort, Frame, FramePool, Nanos, Port, PortDrops};
use shm::Doorbell;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tcp::congestion::CongestionName;
use wire::Mac;

pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1000 * MS;
/// What a round costs, and each thing that is done in it.
const ROUND: Nanos = 1_000;
const EACH: Nanos = 300;
/// Frames that a host takes in one round.
const BURST: usize = 64;

/// What the network and the hosts are to be.
#[derive(Clone)]
pub(crate) struct Plan {
    pub hosts: usize,
    pub network: FabricConfig,
    pub congestion: CongestionName,
    /// The engine of the host that receives, and of those that send.
    pub engines: [EngineKind; 2],
    /// Bytes of each connection's buffers.
    pub buffer: u32,
    /// Connections of one host at most.
    pub connections: u32,
    /// How long everything stands still, about each twenty milliseconds; 0 for never.
    pub stall: Nanos,
}

/// A host, and its one application's side of their context.
pub(crate) struct Station {
    pub host: Host,
    pub port: FabricPort,
    pub app: AppEnd,
    pub ip: Ipv4Addr,
    pool: FramePool,
    rx: Vec<Box<Frame>>,
    tx: Vec<Box<Frame>>,
    busy: bool,
}

/// All hosts, and the time.
pub(crate) struct Net {
    pub now: Nanos,
    pub fabric: Fabric,
    pub stations: Vec<Station>,
    stall: Nanos,
    stall_at: Nanos,
    random: u64,
}

fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, index as u8 + 1)
}

impl Station {
    fn new(plan: &Plan, index: usize, fabric: &Fabric) -> Station {
        let (ip, mac) = (address(index), Mac([2, 0, 0, 0, 0, index as u8 + 1]));
        let port = fabric.join(&format!("h{index}"), mac).unwrap();
        let slots = plan.connections.next_power_of_two();
        let memory = MemoryConfig {
            slots,
            data_entries: (4 * slots).max(256),
            control_entries: (4 * slots).max(256),
            rx_bytes: plan.buffer,
            tx_bytes: plan.buffer,
            long_path_bytes: 0,
            most_bytes: 0,
            context_bytes: 0,
            small_bytes: 0,
            log_bytes: 0,
            heap_bytes: 0,
            placed_connections: 0,
            cached_buffers: 4,
        };
        let config = HostConfig {
            name: format!("h{index}"),
            address: ip.into(),
            max_flows: 2 * slots,
            memory,
            ecn: plan.congestion.needs.exact_marks,
            congestion: Some(plan.congestion),
            ..HostConfig::default()
        };
        let pool = FramePool::new(65_536);
        let engine = plan.engines[index.min(1)].make(&config, &Mapping::default(), &pool).unwrap();
        let links = vec![config.link(mac, port.capabilities())];
        let mut host = control::host(config, links, engine, [index as u8; 16]).unwrap();
        let geometry = memory.geometry();
        let region = Arc::new(geometry.create_region("shares").unwrap());
        let [app_bell, daemon_bell] = [(); 2].map(|()| Doorbell::eventfd().unwrap());
        let [app_too, daemon_too] = [&app_bell, &daemon_bell].map(|bell| bell.try_clone().unwrap());
        let ends = daemon_ends(&region, geometry, app_bell, daemon_bell);
        let application = Application { pid: 100, uid: 0, gid: 0, command: "program".into(), loopback: true };
        host.use_base(0, |tcp, context| tcp.attach(context, application, ends, None)).unwrap();
        let app = AppEnd::new(region, geometry, app_too, daemon_too).unwrap();
        Station { host, port, app, ip, pool, rx: Vec::new(), tx: Vec::new(), busy: true }
    }

    fn poll(&mut self, now: Nanos) -> usize {
        let mut drops = PortDrops::default();
        let mut done = self.port.receive(now, BURST, &mut self.pool, &mut self.rx);
        done += self.host.poll(now, &mut self.rx, &mut self.tx, &mut self.pool);
        done += self.tx.len();
        self.port.send(now, &mut self.tx, &mut self.pool, &mut drops);
        self.busy = done > 0;
        done
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.busy || self.port.has_work(now) || self.host.has_work(now)
    }

    fn deadline(&self) -> Option<Nanos> {
        [self.port.next_deadline(), self.host.next_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn ask(&mut self, request: Request) {
        self.app.requests.push(request.to_words()).unwrap();
        self.busy = true;
    }

    pub(crate) fn reply(&mut self) -> Option<Reply> {
        self.app.replies.pop().unwrap().map(|words| Reply::from_words(words).unwrap())
    }

    /// The sum of a figure over its connections.
    pub(crate) fn sum(&self, figure: &str) -> u64 {
        self.host.base().flows().iter().map(|flow| flow.figures.get(figure).copied().unwrap_or(0)).sum()
    }
}

impl Net {
    pub(crate) fn new(plan: &Plan) -> Net {
        let fabric = Fabric::new(plan.network.clone());
        let stations = (0..plan.hosts).map(|index| Station::new(plan, index, &fabric)).collect();
        Net { now: SECOND, fabric, stations, stall: plan.stall, stall_at: 2 * SECOND, random: 1 }
    }

    /// A number from 0 to `most`.
    fn up_to(&mut self, most: Nanos) -> Nanos {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % (most + 1)
    }

    /// One round of the data-path thread at the next time at which there is something to do, and not after `end`.
    pub(crate) fn round(&mut self, end: Nanos) {
        let now = self.now;
        if !self.stations.iter().any(|station| station.has_work(now)) {
            let due = self.stations.iter().filter_map(|station| station.deadline()).min().unwrap_or(end);
            self.now = due.clamp(now, end);
        }
        let now = self.now;
        let due = |station: &&mut Station| station.has_work(now) || station.deadline().is_some_and(|due| due <= now);
        let done: usize = self.stations.iter_mut().filter(due).map(|station| station.poll(now)).sum();
        self.now += ROUND + EACH * done as Nanos;
        if self.stall > 0 && self.now >= self.stall_at {
            self.now += self.up_to(self.stall);
            self.stall_at = self.now + self.up_to(40 * MS);
        }
    }

    /// Bytes that a host has received.
    pub(crate) fn received(&self, station: usize) -> u64 {
        self.stations[station].port.counters().rx_bytes
    }

    /// Frames dropped on their way to a host.
    pub(crate) fn dropped(&self, station: usize) -> u64 {
        self.fabric.members()[station].drops.iter().map(|(_, count)| count).sum()
    }
}
