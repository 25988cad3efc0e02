//! A host of the simulation: the product's own control plane and engine, polled in virtual time.
use crate::pair::GIVE_UP_MS;
use crate::plan::{Cut, HostPlan, Jump, Plan};
use crate::random::Random;
use crate::rdma::device::SharedDevice;
use crate::rdma::plan::LinkKind;
use crate::scene::Scene;
use crate::schedule::Takeovers;
use context::attach::SurvivingConnection;
use context::{AppEnd, ControlEnd, EngineEnd, Geometry, Slot};
use control::{Application, DropView, FlowView, Host, HostConfig, Ipv6Config, LimitConfig, MemoryConfig};
use control::{RecordsInMemory, TimerConfig};
use engine::{ContextId, DropReason, Runner, Worker};
use port::{Capabilities, Fabric, FabricPort, Frame, FramePool, Nanos, Port, PortDrop, PortDrops};
use shm::{Doorbell, Region};
use std::sync::Arc;
use tcp::congestion::CongestionName;
use trace::Traces;
use wire::Mac;

/// The host's ends of a context.
type Ends = (EngineEnd, ControlEnd);

/// Contexts that a host holds at once.
const CONTEXTS: u32 = 32;

/// A host with its port.
pub(crate) struct SimHost {
    /// The product's host.
    pub host: Host,
    port: FabricPort,
    pub(crate) pool: FramePool,
    rx: Vec<Box<Frame>>,
    pub(crate) tx: Vec<Box<Frame>>,
    pub(crate) workers: Vec<Box<dyn Worker>>,
    pub(crate) plan: HostPlan,
    mtu: u16,
    /// When it may be polled again.
    free_at: Nanos,
    /// The last round found something to do.
    busy: bool,
    /// Workers that found nothing in a row.
    idle_rounds: u32,
    random: Random,
    cuts: Vec<(Nanos, Nanos)>,
    /// When its clock leaps, and by how much.
    jumps: Vec<(Nanos, i64)>,
    pub(crate) takeovers: Takeovers,
    /// Its connections as they were when it changed hands, until its next round.
    pub(crate) before_takeover: Vec<FlowView>,
    /// Where its records lie, where it is to be killed.
    pub(crate) records: Option<RecordsInMemory>,
    /// It took the place of one that was killed.
    pub(crate) was_killed: bool,
    /// What its clock showed when it took the place of the one that was killed.
    pub(crate) replaced_at: Nanos,
    /// Its RDMA device, where programs use one.
    pub(crate) rdma: Option<SharedDevice>,
}

impl SimHost {
    /// Host number `index` of the plan, joined to the fabric; it writes to the tracepoints, where there are any.
    pub(crate) fn new(
        plan: &Plan,
        index: usize,
        start: Nanos,
        fabric: &Fabric,
        (traces, random): (Option<&Traces>, &mut Random),
    ) -> Result<SimHost, String> {
        let host_plan = plan.hosts[index].clone();
        let mac = Plan::mac(index);
        let name = format!("h{index}");
        let port = fabric.join(&name, mac).map_err(|error| format!("cannot join the fabric: {error}"))?;
        let config = host_config(plan, index, &host_plan)?;
        let pool = FramePool::new(4096);
        let host_mtu = host_plan.mtu;
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&random.bits().to_le_bytes());
        let capabilities = port.capabilities();
        let mut host = fresh_host(&host_plan, config, capabilities, mac, &pool, secret)?;
        let killed = plan.kills.iter().any(|kill| kill.host == index);
        let records = killed.then(|| RecordsInMemory::new(2 * host_plan.flows + 64));
        if let Some(records) = records.clone() {
            host.use_base(start, |tcp, context| tcp.keep_records(context, Box::new(records)));
        }
        // Workers take their tracers along.
        if let Some(traces) = traces {
            host.trace(traces);
        }
        let workers = host.workers();
        let of_host = |cut: &&Cut| cut.host == index;
        let times = |cut: &Cut| (start + cut.from_us * 1000, start + cut.until_us * 1000);
        let leap = |jump: &Jump| (start + jump.at_us * 1000, jump.by_ms * 1_000_000);
        let takeovers = Takeovers::new(plan, index, start);
        Ok(SimHost {
            host,
            port,
            pool,
            rx: Vec::new(),
            tx: Vec::new(),
            workers,
            plan: host_plan,
            mtu: if host_mtu > 0 { host_mtu } else { capabilities.mtu },
            free_at: start,
            busy: true,
            idle_rounds: 0,
            random: Random::new(random.bits()),
            cuts: plan.cuts.iter().filter(of_host).map(times).collect(),
            jumps: plan.jumps.iter().filter(|jump| jump.host == index).map(leap).collect(),
            takeovers,
            before_takeover: Vec::new(),
            records,
            was_killed: false,
            replaced_at: 0,
            rdma: None,
        })
    }

    /// It has this RDMA device from now on.
    pub(crate) fn add_rdma(&mut self, device: SharedDevice) -> Result<(), String> {
        self.host.add(device.transport())?;
        self.rdma = Some(device);
        Ok(())
    }

    /// It was asked something between two rounds.
    pub(crate) fn nudge(&mut self) {
        self.busy = true;
    }

    /// Attaches an application, as the daemon does.
    pub(crate) fn attach(&mut self, now: Nanos, pid: u32, token: Option<u64>) -> Result<(ContextId, AppEnd), String> {
        let geometry = self.host.base().geometry();
        let made = geometry.create_region("sim").and_then(|region| Self::ends(Arc::new(region), geometry));
        let (ends, app) = made.map_err(|error| format!("cannot make a region: {error}"))?;
        Ok((self.attach_with(now, pid, token, ends)?, app))
    }

    fn attach_with(&mut self, now: Nanos, pid: u32, token: Option<u64>, ends: Ends) -> Result<ContextId, String> {
        let application = Application { pid, uid: 1000, gid: 1000, command: format!("app {pid}"), loopback: true };
        self.busy = true;
        self.host.use_base(self.clock(now), |tcp, context| tcp.attach(context, application, ends, token))
    }

    fn ends(region: Arc<Region>, geometry: Geometry) -> std::io::Result<(Ends, AppEnd)> {
        let (app, daemon) = (Doorbell::eventfd()?, Doorbell::eventfd()?);
        let (app_too, daemon_too) = (app.try_clone()?, daemon.try_clone()?);
        let ends = context::daemon_ends(&region, geometry, app, daemon);
        Ok((ends, AppEnd::new(region, geometry, app_too, daemon_too)?))
    }

    /// Attaches an application whose host was killed, and this one took its place. Returns which of its connections go
    /// on as well.
    pub(crate) fn attach_again(
        &mut self,
        now: Nanos,
        pid: u32,
        old: &AppEnd,
        survivors: &[SurvivingConnection],
    ) -> Result<(ContextId, AppEnd, Vec<Slot>), String> {
        if !self.host.base().has_survivors_in(old.region.number()) {
            return self.attach(now, pid, None).map(|(context, end)| (context, end, Vec::new()));
        }
        let (region, geometry) = (Arc::clone(&old.region), old.geometry);
        let made = |error: std::io::Error| format!("cannot go on with a region: {error}");
        context::begin_anew(&region, &geometry).map_err(made)?;
        let (ends, app) = Self::ends(region, geometry).map_err(made)?;
        let context = self.attach_with(now, pid, None, ends)?;
        let on = self.host.use_base(self.clock(now), |tcp, net| tcp.go_on_with(net, context, survivors));
        Ok((context, app, on))
    }

    /// A process is gone.
    pub(crate) fn detach(&mut self, now: Nanos, context: ContextId) {
        self.host.use_base(self.clock(now), |tcp, net| tcp.detach(net, context));
        self.busy = true;
    }

    /// What its own clock shows.
    pub(crate) fn clock(&self, now: Nanos) -> Nanos {
        now.saturating_add_signed(self.jumps.iter().filter(|(at, _)| *at <= now).map(|(_, by)| by).sum())
    }

    /// What the host can do with frames.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    /// When it is next to be polled.
    pub(crate) fn next(&self, now: Nanos) -> Nanos {
        let clock = self.clock(now);
        if self.busy || self.port.has_work(now) || self.host.has_work(clock) {
            return self.free_at.max(now);
        }
        let own = self.host.next_deadline().map(|due| now + due.saturating_sub(clock));
        let leap = self.jumps.iter().map(|(at, _)| *at).filter(|at| *at > now).min();
        let due = [self.port.next_deadline(), own, leap, self.takeovers.next(now)].into_iter().flatten().min();
        due.map_or(Nanos::MAX, |due| due.max(self.free_at).max(now))
    }

    /// One round of the data-path thread and of the workers.
    pub(crate) fn poll(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        let mut drops = PortDrops::default();
        let cut = self.cuts.iter().any(|(from, until)| (*from..*until).contains(&now));
        let mut done = self.port.receive(now, self.plan.burst, &mut self.pool, &mut self.rx);
        if cut {
            self.rx.drain(..).for_each(|frame| self.pool.put(frame));
        }
        self.rx.iter().for_each(|frame| scene.inspector.received(now - scene.start, frame));
        let clock = self.clock(now);
        scene.figures.takeovers += u64::from(self.change_hands(now, scene)?);
        done += self.host.poll(clock, &mut self.rx, &mut self.tx, &mut self.pool);
        done += self.poll_workers(clock);
        for frame in &self.tx {
            scene.inspector.sent(now - scene.start, frame, self.mtu, &scene.pairs)?;
        }
        if cut {
            self.tx.drain(..).for_each(|frame| self.pool.put(frame));
        }
        self.port.send(now, &mut self.tx, &mut self.pool, &mut drops);
        self.idle_rounds = if done > 0 { 0 } else { self.idle_rounds + 1 };
        if self.workers.is_empty() || self.idle_rounds > 3 {
            self.check_takeover()?;
        }
        self.check_windows(scene)?;
        // A worker may be skipped in a round, so one round without work does not mean that there is none.
        self.busy = done > 0 || !self.workers.is_empty() && self.idle_rounds < 4;
        let late = if self.random.chance(self.plan.stall) { self.random.up_to(self.plan.stall_ns) } else { 0 };
        self.free_at = now + self.plan.poll_ns.max(1) + late;
        check_drops(&drops)
    }

    /// For so long its link is cut.
    pub(crate) fn lose_frames(&mut self, now: Nanos, lost_us: u64) {
        self.cuts.push((now, now + lost_us * 1000));
    }

    /// A sender begins with the window that was advertised to it.
    fn check_windows(&self, scene: &mut Scene) -> Result<(), String> {
        let begun = std::mem::take(&mut scene.inspector.begun);
        // Modules on threads of their own may have older ones. After a kill, the peer advertises it again.
        if begun.is_empty() || !self.workers.is_empty() || self.was_killed {
            return Ok(());
        }
        let flows = self.host.base().flows();
        begun.into_iter().try_for_each(|ends| {
            // One that was reset may still be there, as long as frames refer to its bytes.
            let open = |flow: &&FlowView| flow.flow.is_some() && flow.state != "CLOSED";
            let is_it = |flow: &&FlowView| open(flow) && ends.is_of(flow.local, flow.remote);
            flows.iter().find(is_it).map_or(Ok(()), |flow| scene.inspector.check_known_window(ends, flow))
        })
    }

    /// The workers, in an order that follows from the seed; some run more often than others.
    pub(crate) fn poll_workers(&mut self, now: Nanos) -> usize {
        let mut done = 0;
        for _ in 0..self.workers.len() * 2 {
            let index = self.random.up_to(self.workers.len() as u64 - 1) as usize;
            done += self.workers[index].poll(now);
        }
        if self.idle_rounds > 0 {
            done += self.workers.iter_mut().map(|worker| worker.poll(now)).sum::<usize>();
        }
        done
    }

    /// Nothing was dropped for a reason that the scenario does not give.
    fn check_counts(&self, plan: &Plan) -> Result<(), String> {
        let corrupt = if plan.fabric.corrupt > 0.0 { &[][..] } else { &CORRUPT[..] };
        // A device reads a packet's destination before its ICRC, and a damaged port is nobody's.
        let damaged = [DropReason::NotOurs, DropReason::Protocol];
        let misread = |reason: &DropReason| self.rdma.is_some() && damaged.contains(reason) && corrupt.is_empty();
        // Raw packets whose rule is gone are refused, and their sender gets an error.
        let raw = plan.links.iter().any(|link| link.kind == LinkKind::Raw);
        let refused = [DropReason::Protocol, DropReason::Icmp];
        // No checksum of its own covers the addresses in an IPv6 header.
        let speaks_v6 = (0..plan.hosts.len()).any(|host| plan.speaks_v6(host));
        let readdressed = corrupt.is_empty() && speaks_v6;
        let readdressed = |reason: &DropReason| readdressed && *reason == DropReason::NotOurs;
        let excused = |reason: &DropReason| misread(reason) || readdressed(reason) || raw && refused.contains(reason);
        let never = NEVER.iter().chain(corrupt).filter(|reason| !excused(reason));
        let unexpected = |label: &str| never.clone().any(|reason| reason.label() == label);
        match DropView::all(self.host.drops()).iter().find(|drop| unexpected(drop.reason)) {
            Some(drop) => {
                let times = console::several(drop.count, "time");
                Err(format!("host {}: {times}, {}", self.host.base().config().name, drop.sentence))
            }
            None => Ok(()),
        }
    }

    /// SYNs that it answered with cookies.
    pub(crate) fn cookies(&self) -> u64 {
        self.host.drops().get(DropReason::SynCookie)
    }

    /// What is left over: a sentence about the first thing that should be gone.
    pub(crate) fn leftover(&self, now: Nanos, plan: &Plan) -> Result<(), String> {
        let name = &self.host.base().config().name;
        let nothing = |what: &str, left: String, none: bool| {
            if none { Ok(()) } else { Err(format!("host {name}: {what} left over: {left}")) }
        };
        let (flows, contexts, bindings) =
            (self.host.base().flows(), self.host.base().contexts(), self.host.base().bindings());
        nothing("flows", format!("{flows:?}"), flows.is_empty())?;
        nothing("contexts", format!("{contexts:?}"), contexts.is_empty())?;
        nothing("bindings", format!("{bindings:?}"), bindings.is_empty())?;
        let programs = self.rdma.as_ref().map_or(0, |rdma| rdma.device().views(now, usize::MAX).len());
        nothing("RDMA programs", programs.to_string(), programs == 0)?;
        self.check_counts(plan)?;
        nothing("work", "has_work() is true".into(), !self.host.has_work(self.clock(now)))
    }
}

/// What never happens between honest parties.
const NEVER: [DropReason; 5] =
    [DropReason::RingCorrupt, DropReason::TooLong, DropReason::NotOurs, DropReason::Fragment, DropReason::Protocol];
/// What only happens where the network corrupts frames.
const CORRUPT: [DropReason; 6] = [
    DropReason::Ip,
    DropReason::TcpHeader,
    DropReason::TcpChecksum,
    DropReason::Icmp,
    DropReason::RoceHeader,
    DropReason::RoceIcrc,
];

/// What the network dropped for a host's own fault.
fn check_drops(drops: &PortDrops) -> Result<(), String> {
    match drops.iter().find(|(reason, _)| matches!(reason, PortDrop::TooLong | PortDrop::Ethernet)) {
        Some((reason, _)) => Err(format!("the network refuses a frame: {}", reason.sentence())),
        None => Ok(()),
    }
}

/// A host as the daemon makes it: nothing has happened yet.
pub(crate) fn fresh_host(
    plan: &HostPlan,
    config: HostConfig,
    capabilities: Capabilities,
    mac: Mac,
    pool: &FramePool,
    secret: [u8; 16],
) -> Result<Host, String> {
    let engine = plan.engine.make(&config, &plan.mapping, pool)?;
    let links = vec![config.link(mac, capabilities)];
    let mut host = control::host(config, links, engine, secret)?;
    host.base_mut().set_tcp(plan.tcp);
    Ok(host)
}

fn host_config(plan: &Plan, index: usize, host: &HostPlan) -> Result<HostConfig, String> {
    let config = HostConfig {
        name: format!("h{index}"),
        address: Plan::address(index),
        prefix_len: 24,
        ipv6: Ipv6Config { address: plan.speaks_v6(index).then(|| Plan::ipv6(index)), ..Ipv6Config::default() },
        mtu: host.mtu,
        max_flows: host.flows,
        max_contexts: CONTEXTS,
        backend: Runner { kind: host.backend, waveform: None },
        memory: MemoryConfig {
            slots: host.slots,
            data_entries: host.data_entries,
            control_entries: host.control_entries,
            rx_bytes: host.rx_bytes,
            tx_bytes: host.tx_bytes,
            long_path_bytes: host.long_path_bytes,
            most_bytes: host.most_bytes,
            context_bytes: host.context_bytes,
            small_bytes: host.small_bytes,
            log_bytes: 0,
            heap_bytes: 0,
            placed_connections: host.lines,
            cached_buffers: 4,
        },
        ecn: host.ecn,
        congestion: congestion(&host.congestion)?,
        timers: timers(host),
        limits: LimitConfig {
            max_time_wait: host.max_time_wait,
            // A connection that exists for its client only may wait for ever, or be reset, without anybody's fault.
            syn_cookies: host.syn_backlog.is_some(),
            syn_backlog: host.syn_backlog.unwrap_or(LimitConfig::default().syn_backlog),
            nagle: host.nagle,
            resets_per_s: 1_000_000,
            challenge_acks_per_s: 1_000_000,
            ..LimitConfig::default()
        },
        ..HostConfig::default()
    };
    debug_assert!(index < plan.hosts.len());
    config.validate()?;
    Ok(config)
}

/// Patient enough that nothing fails for losses alone: connecting goes on, ARP goes on.
fn timers(host: &HostPlan) -> TimerConfig {
    TimerConfig {
        min_rto_ms: host.min_rto_ms,
        max_rto_ms: host.max_rto_ms,
        syn_rto_ms: 100,
        syn_retries: 100_000,
        syn_ack_retries: 100_000,
        give_up_ms: GIVE_UP_MS,
        time_wait_ms: host.time_wait_ms,
        arp_retry_ms: 50,
        arp_tries: 100,
        ..TimerConfig::default()
    }
}

fn congestion(name: &str) -> Result<Option<CongestionName>, String> {
    if name.is_empty() {
        return Ok(None);
    }
    CongestionName::named(name).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcp::congestion::KINDS;

    #[test]
    fn each_congestion_policy_is_taken() {
        for kind in KINDS {
            assert_eq!(congestion(kind.name).unwrap().unwrap().name, kind.name);
        }
        assert_eq!(congestion("").unwrap(), None);
        assert!(congestion("reno2").unwrap_err().contains(&CongestionName::list()));
    }
}
