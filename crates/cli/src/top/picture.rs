//! Difference of two samples: rates, and present states.
use super::sample::{Flow, Host, Sample, Thread};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// All that the live view shows. Rates are per second.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Picture {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// Seconds between the two moments.
    pub seconds: f64,
    /// Sentences about networks that are gone for good.
    pub failures: Vec<String>,
    /// Data-path threads.
    pub threads: Vec<ThreadRow>,
    /// Hosts.
    pub hosts: Vec<HostRow>,
    /// Modules of all hosts' engines.
    pub modules: Vec<ModuleRow>,
    /// Drop reasons of all hosts.
    pub drops: Vec<DropRow>,
    /// Connections of all hosts, without those in TIME-WAIT.
    pub flows: Vec<FlowRow>,
}

/// A data-path thread; shares of 1.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ThreadRow {
    pub thread: u32,
    /// Of the time.
    pub cpu: f64,
    /// Of the time: in the kernel, with devices and doorbells; none where that is not known.
    pub system: Option<f64>,
    /// Of the time: in rounds in which nothing was to be done.
    pub polling: f64,
    /// Of the time.
    pub asleep: f64,
    pub rounds: f64,
    /// Of the rounds: something was done.
    pub busy: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct HostRow {
    pub name: String,
    pub address: String,
    pub engine: String,
    pub flows: usize,
    pub time_wait: usize,
    pub rx_frames: f64,
    pub rx_bits: f64,
    pub tx_frames: f64,
    pub tx_bits: f64,
    pub drops: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct ModuleRow {
    pub host: String,
    pub name: String,
    pub works: f64,
    pub batches: f64,
    /// Of the time, a share of 1; none where nobody measures it.
    pub load: Option<f64>,
    /// Works in its queue now; none where it has no queue of its own.
    pub waiting: Option<u64>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct DropRow {
    pub host: String,
    pub reason: String,
    pub rate: f64,
    pub total: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct FlowRow {
    pub host: String,
    pub flow: Option<u32>,
    pub local: String,
    pub remote: String,
    pub state: String,
    pub pid: Option<u32>,
    pub program: String,
    pub rx_bits: f64,
    pub tx_bits: f64,
    /// Segments sent again, per second and in total.
    pub again: f64,
    pub again_total: u64,
    pub fast_total: u64,
    pub out_of_order_total: u64,
    pub drops_total: u64,
    pub last_drop: Option<String>,
    pub rtt_us: u64,
    pub rttvar_us: u64,
    pub rto_us: u64,
    pub congestion: String,
    pub ecn: bool,
    pub cwnd: u64,
    pub ssthresh: Option<u64>,
    /// Bytes a second; 0 for no limit.
    pub rate: u64,
    /// The peer's receive window.
    pub window: u64,
    pub outstanding: u64,
    pub unsent: u64,
    /// What keeps it from sending more.
    pub limit: &'static str,
}

impl Picture {
    /// From one moment to the next; `before` is the same as `now` where there is none, and rates are 0 then.
    pub(super) fn between(before: &Sample, now: &Sample) -> Picture {
        let mut picture = Picture {
            version: now.version.clone(),
            pid: now.pid,
            failures: now.failures.clone(),
            ..Picture::default()
        };
        let clock = |sample: &Sample| sample.threads.first().map_or(0, |thread| thread.now_ns);
        picture.uptime_s = clock(now) as f64 / 1e9;
        picture.seconds = clock(now).saturating_sub(clock(before)) as f64 / 1e9;
        // A daemon that was started anew has counted from 0 again.
        let before = if before.pid == now.pid { before } else { now };
        for thread in &now.threads {
            let earlier = before.threads.iter().find(|earlier| earlier.thread == thread.thread);
            picture.threads.push(thread_row(earlier.unwrap_or(thread), thread));
        }
        let nothing = Host::default();
        for host in &now.hosts {
            let earlier = before.hosts.iter().find(|earlier| earlier.name == host.name);
            picture.add(earlier.unwrap_or(&nothing), host);
        }
        picture
    }

    /// A difference of counters, per second.
    fn per_second(&self, before: u64, now: u64) -> f64 {
        if self.seconds > 0.0 { now.saturating_sub(before) as f64 / self.seconds } else { 0.0 }
    }

    fn add(&mut self, before: &Host, host: &Host) {
        let name = || host.name.clone();
        let drops = |host: &Host| host.drops.values().sum();
        let time_wait = host.states.get("TIME-WAIT").copied().unwrap_or(0);
        self.hosts.push(HostRow {
            name: name(),
            address: host.address.clone(),
            engine: host.engine.clone(),
            flows: host.states.values().sum::<usize>() - time_wait,
            time_wait,
            rx_frames: self.per_second(before.port.rx_frames, host.port.rx_frames),
            rx_bits: 8.0 * self.per_second(before.port.rx_bytes, host.port.rx_bytes),
            tx_frames: self.per_second(before.port.tx_frames, host.port.tx_frames),
            tx_bits: 8.0 * self.per_second(before.port.tx_bytes, host.port.tx_bytes),
            drops: self.per_second(drops(before), drops(host)),
        });
        for (module, counters) in &host.modules {
            let count = |of: &Host, counter: &str| of.modules.get(module).and_then(|it| it.get(counter)).copied();
            let rate = |counter| {
                let now = count(host, counter).unwrap_or(0);
                self.per_second(count(before, counter).unwrap_or(now), now)
            };
            let (works, batches) = (rate("works"), rate("batches"));
            let load = counters.contains_key("busy_ns").then(|| rate("busy_ns") / 1e9);
            let waiting = counters.get("waiting").copied();
            self.modules.push(ModuleRow { host: name(), name: module.clone(), works, batches, load, waiting });
        }
        for (reason, total) in &host.drops {
            let rate = self.per_second(before.drops.get(reason).copied().unwrap_or(0), *total);
            self.drops.push(DropRow { host: name(), reason: reason.clone(), rate, total: *total });
        }
        let earlier: HashMap<_, _> = before.flows.iter().map(|flow| (key(flow), flow)).collect();
        for flow in host.flows.iter().filter(|flow| flow.state != "TIME-WAIT") {
            let row = self.flow_row(earlier.get(&key(flow)).copied(), flow, host);
            self.flows.push(row);
        }
    }

    fn flow_row(&self, before: Option<&Flow>, flow: &Flow, host: &Host) -> FlowRow {
        // A connection that was not there has counted from 0.
        let rate = |name: &str| self.per_second(before.map_or(0, |flow| flow.figure(name)), flow.figure(name));
        FlowRow {
            host: host.name.clone(),
            flow: flow.flow,
            local: flow.local.clone(),
            remote: flow.remote.clone(),
            state: flow.state.clone(),
            pid: flow.pid,
            program: flow.pid.and_then(|pid| host.programs.get(&pid).cloned()).unwrap_or_else(|| "-".into()),
            rx_bits: 8.0 * rate("rx_bytes"),
            tx_bits: 8.0 * rate("tx_bytes"),
            again: rate("retransmitted_segments"),
            again_total: flow.figure("retransmitted_segments"),
            fast_total: flow.figure("fast_retransmits"),
            out_of_order_total: flow.figure("out_of_order"),
            drops_total: flow.figure("drops"),
            last_drop: flow.last_drop.clone(),
            rtt_us: flow.rtt_us,
            rttvar_us: flow.rttvar_us,
            rto_us: flow.rto_us,
            congestion: flow.congestion.clone().unwrap_or_else(|| "-".into()),
            ecn: flow.ecn,
            cwnd: flow.cwnd,
            ssthresh: flow.ssthresh,
            rate: flow.rate,
            window: flow.figure("snd_wnd"),
            outstanding: flow.figure("outstanding"),
            unsent: flow.figure("unsent"),
            limit: limit(flow),
        }
    }

    /// Modules of the hosts that `wanted` names, those of one name added up, in the order of the pipeline.
    pub(super) fn modules_of(&self, wanted: impl Fn(&str) -> bool) -> Vec<ModuleRow> {
        let mut sums: Vec<ModuleRow> = Vec::new();
        for row in self.modules.iter().filter(|row| wanted(&row.host)) {
            match sums.iter_mut().find(|sum| sum.name == row.name) {
                Some(sum) => {
                    sum.works += row.works;
                    sum.batches += row.batches;
                    sum.load = sum.load.zip(row.load).map(|(a, b)| a + b);
                    sum.waiting = sum.waiting.zip(row.waiting).map(|(a, b)| a + b);
                }
                None => sums.push(row.clone()),
            }
        }
        sums.sort_by_key(|row| (place(&row.name), row.name.clone()));
        sums
    }

    /// Drop reasons of the hosts that `wanted` names, added up, the busiest first.
    pub(super) fn drops_of(&self, wanted: impl Fn(&str) -> bool) -> Vec<DropRow> {
        let mut sums: BTreeMap<&str, DropRow> = BTreeMap::new();
        for row in self.drops.iter().filter(|row| wanted(&row.host)) {
            let sum =
                sums.entry(&row.reason).or_insert_with(|| DropRow { reason: row.reason.clone(), ..DropRow::default() });
            sum.rate += row.rate;
            sum.total += row.total;
        }
        let mut rows: Vec<DropRow> = sums.into_values().collect();
        rows.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.total.cmp(&a.total)));
        rows
    }
}

/// What makes a connection the same at both moments.
fn key(flow: &Flow) -> (Option<u32>, &str, &str) {
    (flow.flow, &flow.local, &flow.remote)
}

fn thread_row(before: &Thread, now: &Thread) -> ThreadRow {
    let share = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
    let time = now.now_ns.saturating_sub(before.now_ns);
    let rounds = now.rounds.saturating_sub(before.rounds);
    let cpu = now.cpu_ns.saturating_sub(before.cpu_ns);
    let system = now.system_ns.zip(before.system_ns).map(|(now, before)| now.saturating_sub(before));
    ThreadRow {
        thread: now.thread,
        cpu: share(cpu, time),
        system: system.map(|system| share(system, time)),
        polling: share(cpu.saturating_sub(now.busy_ns.saturating_sub(before.busy_ns)), time),
        asleep: share(now.asleep_ns.saturating_sub(before.asleep_ns), time),
        rounds: share(rounds, time) * 1e9,
        busy: share(now.busy_rounds.saturating_sub(before.busy_rounds), rounds),
    }
}

/// What keeps a connection from sending more: the application, the peer's window, the congestion window, the rate.
fn limit(flow: &Flow) -> &'static str {
    let (outstanding, unsent) = (flow.figure("outstanding"), flow.figure("unsent"));
    let window = flow.figure("snd_wnd");
    match (outstanding, unsent) {
        _ if flow.state != "ESTABLISHED" && flow.state != "CLOSE-WAIT" => "-",
        (0, 0) => "idle",
        (_, 0) => "app",
        // Less than a segment is not sent on its own while something is on its way.
        _ if outstanding + flow.mss > window => "peer",
        _ if outstanding + flow.mss > flow.cwnd => "cwnd",
        _ if flow.rate > 0 => "rate",
        _ => "turn",
    }
}

/// A module's place in the pipeline: by the name in front of the replica's number, or by the stage of an operator's.
fn place(name: &str) -> usize {
    const ORDER: [&str; 11] = [
        "sequencer",
        "ingress",
        "preprocess",
        "flow",
        "protocol",
        "postprocess",
        "dma",
        "netif",
        "egress",
        "context_queue",
        "scheduler",
    ];
    let name = name.split(['.', '/']).next().unwrap_or(name);
    ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len())
}
