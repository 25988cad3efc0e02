//! A ZeroNIC host of the simulation: the product's own, on a port that shows each frame to an inspector.
use super::plan::SidePlan;
use crate::inspect::Inspector;
use crate::pair::Pair;
use crate::random::Random;
use control::{HostConfig, MemoryConfig, TimerConfig};
use engine::DropReason;
use engines::Mapping;
use memory::{Limits as MemoryLimits, MemoryTable};
use port::{Capabilities, Fabric, FabricPort, Frame, FramePool, Nanos, Port, PortCounters, PortDrop, PortDrops};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tcp::congestion::CongestionName;
use wire::Mac;
use zeronic::{EngineTcp, Limits, Programs, Stack};

/// The inspector of a talk, and what both sides of its connections did so far.
pub(super) struct Watch {
    pub(super) inspector: Inspector,
    pub(super) pairs: Vec<Pair>,
    /// What was wrong first.
    wrong: Option<String>,
}

/// The watch, shared by two ports and the judge.
#[derive(Clone)]
pub(super) struct SharedWatch(Arc<Mutex<Watch>>);

impl SharedWatch {
    pub(super) fn new(pairs: Vec<Pair>) -> SharedWatch {
        SharedWatch(Arc::new(Mutex::new(Watch { inspector: Inspector::default(), pairs, wrong: None })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port of the fabric that shows what passes.
struct Watched {
    port: FabricPort,
    watch: SharedWatch,
    start: Nanos,
}

impl Port for Watched {
    fn name(&self) -> String {
        self.port.name()
    }
    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }
    fn mac(&self) -> Mac {
        self.port.mac()
    }
    fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        let before = into.len();
        let count = self.port.receive(now, most, pool, into);
        let mut watch = self.watch.lock();
        into[before..].iter().for_each(|frame| watch.inspector.received(now - self.start, frame));
        count
    }
    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        let mtu = self.port.capabilities().mtu;
        let mut watch = self.watch.lock();
        let Watch { inspector, pairs, wrong } = &mut *watch;
        for frame in frames.iter() {
            if let (Err(what), None) = (inspector.sent(now - self.start, frame, mtu, pairs), &wrong) {
                *wrong = Some(what);
            }
        }
        drop(watch);
        self.port.send(now, frames, pool, drops);
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.wait_fd()
    }
    fn next_deadline(&self) -> Option<Nanos> {
        self.port.next_deadline()
    }
    fn has_work(&self, now: Nanos) -> bool {
        self.port.has_work(now)
    }
    fn counters(&self) -> PortCounters {
        self.port.counters()
    }
}

/// A host with its port.
pub(super) struct ZeroHost {
    pub(super) programs: Programs<EngineTcp, Arc<MemoryTable>>,
    pub(super) table: Arc<MemoryTable>,
    port: Watched,
    plan: SidePlan,
    free_at: Nanos,
    busy: bool,
    random: Random,
}

/// Where the ZeroNIC host of this number is, beside the other hosts of a scenario.
pub(super) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 101 + number as u8)
}

impl ZeroHost {
    /// The ZeroNIC host of this number; of its connections there are at most so many.
    pub(super) fn new(
        plan: &SidePlan,
        number: usize,
        connections: usize,
        fabric: &Fabric,
        watch: SharedWatch,
        start: Nanos,
        random: &mut Random,
    ) -> Result<ZeroHost, String> {
        let mac = Mac([2, 0, 0, 0, 1, number as u8 + 1]);
        let name = format!("z{number}");
        let port = fabric.join(&name, mac).map_err(|error| format!("cannot join the fabric: {error}"))?;
        let pool = FramePool::new(4096);
        let config = config(plan, number)?;
        config.validate()?;
        let engine = plan.engine.make(&config, &Mapping::default(), &pool)?;
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&random.bits().to_le_bytes());
        let transport = EngineTcp::new(config, engine, mac, port.capabilities().mtu, pool.clone(), secret)?;
        let table = Arc::new(MemoryTable::with_secret(MemoryLimits { regions: 64, ..MemoryLimits::default() }, secret));
        let limits = Limits {
            flows: plan.lines.unwrap_or(4 * connections),
            entries: 16 * plan.entries,
            committed: plan.entries.min(128),
            peak: plan.entries,
            intervals: plan.holes * connections,
            intervals_per_flow: plan.holes,
        };
        let shortage = plan.shortage.of_zeronic();
        let stack = Stack::new(transport, Arc::clone(&table), limits, shortage, pool)
            .map_err(|error| format!("cannot make shared memory: {error}"))?;
        let (programs, port) = (Programs::new(stack), Watched { port, watch, start });
        let (plan, random) = (plan.clone(), Random::new(random.bits()));
        Ok(ZeroHost { programs, table, port, plan, free_at: start, busy: true, random })
    }

    /// It was asked something between two rounds.
    pub(super) fn nudge(&mut self) {
        self.busy = true;
    }

    /// When it is next to be polled.
    pub(super) fn next(&self, now: Nanos) -> Nanos {
        if self.busy || self.port.has_work(now) || self.programs.has_work() {
            return self.free_at.max(now);
        }
        let due = [self.port.next_deadline(), self.programs.next_deadline()].into_iter().flatten().min();
        due.map_or(Nanos::MAX, |due| due.max(self.free_at).max(now))
    }

    /// One round of the data-path thread.
    pub(super) fn poll(&mut self, now: Nanos) -> Result<(), String> {
        let mut drops = PortDrops::default();
        self.busy = self.programs.poll(now, &mut self.port, &mut drops) > 0;
        let late = if self.random.chance(self.plan.stall) { self.random.up_to(self.plan.stall_ns) } else { 0 };
        self.free_at = now + self.plan.poll_ns.max(1) + late;
        match drops.iter().find(|(reason, _)| matches!(reason, PortDrop::TooLong | PortDrop::Ethernet)) {
            Some((reason, _)) => Err(format!("the network refuses a frame: {}", reason.sentence())),
            None => self.port.watch.lock().wrong.take().map_or(Ok(()), Err),
        }
    }

    /// Nothing is left of its connections.
    pub(super) fn leftover(&mut self, damages: bool) -> Result<(), String> {
        let stack = self.programs.stack();
        let (views, flows) = (stack.views(64).len(), stack.transport().views(64));
        if views > 0 || !flows.is_empty() {
            return Err(format!("{views} connections are left over, of the transport: {flows:?}"));
        }
        if stack.nic().free_entries() != 16 * self.plan.entries / 8 * 8 {
            return Err(format!("{} entries are free of {}", stack.nic().free_entries(), 16 * self.plan.entries));
        }
        let drops = stack.drops();
        let never = [DropReason::RingCorrupt, DropReason::TooLong, DropReason::Fragment, DropReason::Protocol];
        let damage = [DropReason::Ip, DropReason::TcpHeader, DropReason::TcpChecksum];
        let named = never.iter().chain(if damages { &[][..] } else { &damage[..] });
        match named.into_iter().find(|reason| drops.get(**reason) > 0) {
            Some(reason) => Err(format!("{}, {}", console::several(drops.get(*reason), "time"), reason.sentence())),
            None => Ok(()),
        }
    }
}

fn config(plan: &SidePlan, number: usize) -> Result<HostConfig, String> {
    let congestion = match &plan.congestion[..] {
        "" => None,
        name => Some(CongestionName::named(name)?),
    };
    Ok(HostConfig {
        name: format!("z{number}"),
        address: address(number).into(),
        prefix_len: 24,
        max_flows: 64,
        max_contexts: 1,
        memory: MemoryConfig {
            slots: 16,
            rx_bytes: plan.buffer_bytes,
            tx_bytes: plan.buffer_bytes,
            long_path_bytes: 0,
            most_bytes: 0,
            context_bytes: 0,
            small_bytes: 0,
            ..MemoryConfig::default()
        },
        congestion,
        timers: TimerConfig {
            min_rto_ms: plan.min_rto_ms,
            max_rto_ms: plan.max_rto_ms,
            syn_rto_ms: 100,
            syn_retries: 100_000,
            syn_ack_retries: 100_000,
            give_up_ms: 3_600_000,
            time_wait_ms: 10_000,
            arp_retry_ms: 50,
            arp_tries: 100,
            ..TimerConfig::default()
        },
        ..HostConfig::default()
    })
}
