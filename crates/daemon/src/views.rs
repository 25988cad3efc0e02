//! Views of a daemon's state, for the management socket.
use crate::block::BlockPlaces;
use crate::build::HostPlace;
use crate::clock::Clock;
use crate::datapath::{DataPath, Handle, ThreadHost};
use crate::protocol::FLOWS;
use crate::zeronic::ZeronicPlace;
use ::rdma::{CnpCounts, ProgramView};
use control::{BindingView, ContextView, Counters, DropView, FlowPage, FlowTotals, Times};
use engine::FlowId;
use host::Link;
use port::{Port, PortCounters, PortDrops};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Map, Value, json};
use shm::reserve;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use verbs::functions::Report;
use wire::IpAddress;

/// Connections that a data-path thread reads between two rounds: it goes on within a fraction of a millisecond.
const AT_ONCE: usize = 128;

/// Queue pairs of a host in one answer: reading them takes a fraction of a millisecond.
const QPS: usize = 1000;

/// Asks the data-path threads. They return plain values; the caller makes JSON of them.
pub(crate) struct Observer {
    handles: Vec<Handle>,
    hosts: Vec<HostPlace>,
    zeronics: Vec<ZeronicPlace>,
    storage: BlockPlaces,
    socket: PathBuf,
    /// What was last reported of each host's connections.
    ledgers: Mutex<BTreeMap<String, Counters>>,
}

impl Observer {
    pub(crate) fn new(
        handles: Vec<Handle>,
        hosts: Vec<HostPlace>,
        zeronics: Vec<ZeronicPlace>,
        socket: PathBuf,
    ) -> Observer {
        let ledgers = Mutex::default();
        Observer { handles, hosts, zeronics, storage: BlockPlaces::default(), socket, ledgers }
    }

    /// It shows these volumes, too.
    pub(crate) fn with_storage(self, storage: BlockPlaces) -> Observer {
        Observer { storage, ..self }
    }

    /// The hosts in the order of the configuration.
    pub(crate) fn hosts(&self) -> &[HostPlace] {
        &self.hosts
    }

    /// The ZeroNIC hosts.
    pub(crate) fn zeronics(&self) -> &[ZeronicPlace] {
        &self.zeronics
    }

    /// The data-path threads.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// The daemon and its hosts.
    pub(crate) fn hello(&self) -> Value {
        let hosts = self.hosts.iter().map(|place| {
            let stack = &place.config.stack;
            let address = format!("{}/{}", stack.address, stack.prefix_len);
            let (engine, backend) = (place.config.engine.name(), place.config.backend());
            let heap = stack.memory.heap_bytes;
            json!({ "name": stack.name, "address": address, "engine": engine, "backend": backend, "heap_bytes": heap })
        });
        let zeronics = self.zeronics.iter().map(|place| {
            let section = &place.section;
            let address = format!("{}/{}", section.address, section.prefix_len);
            json!({ "name": section.name, "host": section.host, "address": address, "engine": section.transport.name() })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "attach_version": context::VERSION,
            "pid": std::process::id(),
            "socket": self.socket,
            "hosts": hosts.collect::<Vec<_>>(),
            "zeronics": zeronics.collect::<Vec<_>>(),
        })
    }

    /// Hosts with their contexts, flows and listeners; fabrics with their members.
    pub(crate) fn ls(&self) -> Result<Value, String> {
        let mut answer = self.hello();
        let mut hosts = Vec::new();
        for place in &self.hosts {
            let mut host = self.at(place, Inventory::of)?.json(place);
            host["states"] = json!(self.totals(place)?.states);
            add_page(&mut host, self.page(place, 0)?);
            hosts.push(host);
        }
        answer["hosts"] = Value::Array(hosts);
        let zeronics = self.zeronics.iter().map(|place| Ok(place.read()?.inventory(place)));
        answer["zeronics"] = Value::Array(zeronics.collect::<Result<_, String>>()?);
        answer["volumes"] = Value::Array(self.storage.volumes(None)?);
        answer["blocks"] = Value::Array(self.storage.blocks(None)?);
        let mut fabrics = Vec::new();
        for handle in &self.handles {
            let members = |path: &mut DataPath| -> Vec<_> {
                path.fabrics.iter().map(|seat| (seat.name.clone(), seat.fabric.members())).collect()
            };
            for (name, members) in handle.ask(members)? {
                fabrics.push(json!({ "name": name, "members": members }));
            }
        }
        answer["fabrics"] = Value::Array(fabrics);
        answer["failures"] = json!(self.failures()?);
        Ok(answer)
    }

    /// Sentences about networks and data-paths that are gone for good.
    fn failures(&self) -> Result<Vec<String>, String> {
        let of = |path: &mut DataPath| {
            let ports = path.hosts.iter().map(|seat| {
                let failures = seat.ports.iter().filter_map(|port| port.failure()).chain(seat.host.base().failure());
                (format!("host {}", seat.name), failures.collect::<Vec<_>>())
            });
            let fabrics = path.fabrics.iter().map(|seat| (format!("fabric {}", seat.name), seat.fabric.failures()));
            let sentences = |(of, failures): (String, Vec<String>)| {
                failures.into_iter().map(|failure| format!("{of}: {failure}")).collect::<Vec<_>>()
            };
            ports.chain(fabrics).flat_map(sentences).collect::<Vec<_>>()
        };
        let all = self.handles.iter().map(|handle| handle.ask(of)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Counters of all hosts, or of one; and of all their flows, or of one.
    pub(crate) fn stats(&self, host: Option<&str>, flow: Option<u32>) -> Result<Value, String> {
        let mut hosts = Vec::new();
        for place in self.hosts.iter().filter(|place| host.is_none_or(|name| name == place.config.stack.name)) {
            let mut answer = self.at(place, Figures::of)?.json(place);
            let page = match flow {
                Some(flow) => self.one(place, flow)?,
                None => self.page(place, 0)?,
            };
            add_page(&mut answer, page);
            let FlowTotals { states, totals } = self.totals(place)?;
            (answer["states"], answer["totals"]) = (json!(states), json!(totals));
            answer["connections"] = connections(&self.counters(place)?);
            answer["contexts"] = json!(self.at(place, |seat| seat.host.base().contexts())?);
            hosts.push(answer);
        }
        let wanted = |place: &&ZeronicPlace| flow.is_none() && host.is_none_or(|name| name == place.section.name);
        let zeronics = self.zeronics.iter().filter(wanted).map(|place| Ok(place.read()?.figures(place)));
        let zeronics = zeronics.collect::<Result<Vec<_>, String>>()?;
        if hosts.is_empty() && zeronics.is_empty() {
            return Err(format!("this daemon has no host `{}`", host.unwrap_or_default()));
        }
        if flow.is_some() && hosts.iter().all(|host| host["flows"].as_array().is_none_or(Vec::is_empty)) {
            return Err("no such flow: opentoe ls shows all".into());
        }
        let mut fabrics = Map::new();
        for handle in &self.handles {
            let drops = |path: &mut DataPath| -> Vec<_> {
                path.fabrics.iter().map(|seat| (seat.name.clone(), pairs(&seat.drops), seat.fabric.members())).collect()
            };
            for (name, drops, members) in handle.ask(drops)? {
                fabrics.insert(name, json!({ "uplink_drops": by_name(drops), "members": members }));
            }
        }
        let threads =
            self.handles.iter().enumerate().map(|(number, handle)| handle.ask(move |path| load(number, path)));
        let threads = threads.collect::<Result<Vec<_>, _>>()?;
        let (volumes, blocks) = match flow {
            None => (self.storage.volumes(host)?, self.storage.blocks(host)?),
            Some(_) => Default::default(),
        };
        Ok(json!({
            "hosts": hosts, "zeronics": zeronics, "volumes": volumes, "blocks": blocks, "fabrics": fabrics,
            "threads": threads, "failures": self.failures()?, "heap_bytes": reserve::allocated(),
        }))
    }

    /// Connections of a host from place `from` on.
    pub(crate) fn flows(&self, host: &str, from: u64) -> Result<Value, String> {
        let place = self.hosts.iter().find(|place| place.config.stack.name == host);
        let mut answer = json!({});
        add_page(&mut answer, self.page(place.ok_or(format!("this daemon has no host `{host}`"))?, from)?);
        Ok(answer)
    }

    /// At most [`FLOWS`] connections of a host, taken in several steps.
    fn page(&self, place: &HostPlace, from: u64) -> Result<FlowPage, String> {
        let mut page = FlowPage { flows: Vec::new(), next: Some(from) };
        while let Some(from) = page.next.filter(|_| page.flows.len() < FLOWS) {
            let most = AT_ONCE.min(FLOWS - page.flows.len());
            let more = self.at(place, move |seat| seat.host.base().flow_page(from, most))?;
            page.flows.extend(more.flows);
            page.next = more.next;
        }
        Ok(page)
    }

    /// One connection of a host, where it has it.
    fn one(&self, place: &HostPlace, flow: u32) -> Result<FlowPage, String> {
        let view = self.at(place, move |seat| seat.host.base().flow(FlowId(flow)))?;
        Ok(FlowPage { flows: view.into_iter().collect(), next: None })
    }

    /// All connections of a host, added up in several steps.
    fn totals(&self, place: &HostPlace) -> Result<FlowTotals, String> {
        let (mut totals, mut next) = (FlowTotals::default(), Some(0));
        while let Some(from) = next {
            (totals, next) = self.at(place, move |seat| {
                let next = seat.host.base().add_up(&mut totals, from, AT_ONCE);
                (totals, next)
            })?;
        }
        Ok(totals)
    }

    /// Sums over all connections that a host ever had, taken in several steps; none is less than what was reported
    /// before.
    fn counters(&self, place: &HostPlace) -> Result<Counters, String> {
        let mut counters = self.at(place, |seat| seat.host.base().counters().clone())?;
        let mut next = Some(0);
        while let Some(from) = next {
            (counters, next) = self.at(place, move |seat| {
                let next = seat.host.base().add_to_ledger(&mut counters, from, AT_ONCE);
                (counters, next)
            })?;
        }
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let reported = ledgers.entry(place.config.stack.name.clone()).or_default();
        counters.at_least(reported);
        *reported = counters.clone();
        Ok(counters)
    }

    /// What was dropped, by reason, in all hosts and their ports.
    pub(crate) fn drops(&self) -> Result<Value, String> {
        let mut hosts = Vec::new();
        let mut offload = Vec::new();
        for place in &self.hosts {
            let drops = self.at(place, all_drops)?;
            offload.extend(self.offload_troubles(place)?);
            hosts.push(json!({ "name": place.config.stack.name, "drops": drops }));
        }
        for place in &self.zeronics {
            hosts.push(json!({ "name": place.section.name, "drops": place.read()?.drops }));
        }
        let (storage, failures) = (self.storage.troubles()?, self.failures()?);
        Ok(json!({ "hosts": hosts, "storage": storage, "offload": offload, "failures": failures }))
    }

    /// Offload engines of a host whose functions ended their process.
    fn offload_troubles(&self, place: &HostPlace) -> Result<Vec<Value>, String> {
        let read = |seat: &mut ThreadHost| seat.rdma.as_ref().map_or_else(Vec::new, |rdma| rdma.device().reports());
        let reports = self.at(place, read)?;
        let trouble = |(pid, report): &(u32, Report)| {
            let why = report.last_end.as_deref().unwrap_or("for a reason that is not reported");
            let sentence =
                format!("its worker was started again (times: {}); the last one ended: {why}", report.restarts);
            json!({ "host": place.config.stack.name, "pid": pid, "sentence": sentence })
        };
        Ok(reports.iter().filter(|(_, report)| report.restarts > 0).map(trouble).collect())
    }

    /// What a process reported of its descriptors, or of one of them.
    pub(crate) fn descriptors(&self, pid: i32, fd: Option<u32>) -> Result<Value, String> {
        let process = u32::try_from(pid).unwrap_or(0);
        for place in &self.hosts {
            let read = move |seat: &mut ThreadHost| {
                let tcp = seat.host.base();
                let mut labels = tcp.labels(process)?;
                labels.retain(|label| fd.is_none_or(|fd| fd == label.fd));
                let context = tcp.contexts().into_iter().find(|context| context.alive && context.pid == process);
                let flows = labels.iter().filter_map(|label| label.flow).take(FLOWS);
                let flows: Vec<_> = flows.filter_map(|flow| tcp.flow(FlowId(flow))).collect();
                let named: BTreeSet<u32> = labels.iter().filter_map(|label| label.binding).collect();
                let mut bindings = tcp.bindings();
                bindings.retain(|binding| named.contains(&binding.binding));
                Some((labels, context, flows, bindings))
            };
            if let Some((labels, context, flows, bindings)) = self.at(place, read)? {
                return Ok(json!({
                    "host": place.config.stack.name,
                    "context": context,
                    "descriptors": labels,
                    "flows": flows,
                    "bindings": bindings,
                }));
            }
        }
        Err(format!("process {pid} has no context of this daemon"))
    }

    /// Runs `read` on a host's thread.
    pub(crate) fn at<T: Send + 'static>(
        &self,
        place: &HostPlace,
        read: impl FnOnce(&mut ThreadHost) -> T + Send + 'static,
    ) -> Result<T, String> {
        let index = place.index;
        self.handles[place.thread].ask(move |path| read(&mut path.hosts[index]))
    }
}

/// Puts a page of connections into a host's answer; only where there are more, where to go on.
fn add_page(answer: &mut Value, page: FlowPage) {
    answer["flows"] = json!(page.flows);
    if let Some(next) = page.next {
        answer["next"] = next.into();
    }
}

/// What is there on a host.
struct Inventory {
    ports: Vec<PortView>,
    contexts: Vec<ContextView>,
    bindings: Vec<BindingView>,
    rdma: Option<Vec<ProgramView>>,
    neighbours: Vec<control::ArpView>,
    /// The router of IPv6 in use, where routers advertise themselves.
    router: Option<IpAddress>,
}

impl Inventory {
    fn of(seat: &mut ThreadHost) -> Inventory {
        Inventory {
            ports: seat
                .ports
                .iter()
                .zip(seat.host.net().links())
                .map(|(port, link)| PortView::of(port, link))
                .collect(),
            contexts: seat.host.base().contexts(),
            bindings: seat.host.base().bindings(),
            rdma: seat.rdma.as_ref().map(|rdma| rdma.device().views(Clock::ticks(), QPS)),
            neighbours: control::ArpView::all(seat.host.net()),
            router: seat.host.net().default_router().map(|router| router.in_zone(0)),
        }
    }

    fn json(&self, place: &HostPlace) -> Value {
        let stack = &place.config.stack;
        let listeners = self.bindings.iter().filter(|binding| binding.listening).map(|binding| {
            let pids: Vec<_> = self.contexts.iter().filter(|of| binding.contexts.contains(&of.context)).collect();
            json!({
                "address": binding.local.ip(),
                "port": binding.local.port(),
                "loopback": binding.loopback,
                "dual_stack": binding.dual_stack,
                "backlog": binding.backlog,
                "half_open": binding.half_open,
                "waiting": binding.waiting,
                "pids": pids.iter().map(|context| context.pid).collect::<Vec<_>>(),
            })
        });
        json!({
            "name": stack.name,
            "address": stack.address,
            "prefix_len": stack.prefix_len,
            "gateway": stack.gateway,
            "address6": stack.ipv6.address,
            "prefix_len6": stack.ipv6.prefix_len,
            "gateway6": if stack.ipv6.auto { self.router } else { stack.ipv6.gateway },
            "mac": self.ports.first().map(|port| &port.mac),
            "engine": place.config.engine.name(),
            "backend": place.config.backend(),
            "port": self.ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>().join(", "),
            "ports": self.ports,
            "contexts": self.contexts,
            "listeners": listeners.collect::<Vec<_>>(),
            "rdma": self.rdma.as_ref().zip(place.rdma.as_ref()).map(|(programs, at)| at.json(programs)),
            "neighbours": self.neighbours,
        })
    }
}

/// A port of a host.
#[derive(Serialize)]
struct PortView {
    name: String,
    mac: String,
    /// The host's address on it, with the bits of its network part.
    address: String,
    /// The same of IPv6.
    address6: Option<String>,
    failure: Option<String>,
}

impl PortView {
    fn of(port: &dyn Port, link: &Link) -> PortView {
        let address = format!("{}/{}", link.address, link.prefix_len);
        let address6 = link.v6.map(|v6| format!("{}/{}", v6.address, v6.prefix_len));
        PortView { name: port.name(), mac: port.mac().to_string(), address, address6, failure: port.failure() }
    }
}

fn counters(port: &PortCounters) -> Value {
    json!({
        "rx_frames": port.rx_frames,
        "rx_bytes": port.rx_bytes,
        "tx_frames": port.tx_frames,
        "tx_bytes": port.tx_bytes,
    })
}

/// What a host's connections came to.
fn connections(counters: &Counters) -> Value {
    let times = |times: &Times| json!({ "count": times.count, "sum": times.sum, "at_most": times.cumulative() });
    json!({
        "opened": counters.opened,
        "accepted": counters.accepted,
        "refused": counters.refused,
        "failed": counters.failed,
        "closed": counters.closed,
        "sums": counters.sums().map(|(name, sum)| (name.into(), sum.into())).collect::<Map<_, _>>(),
        "round_trip_ns": times(&counters.round_trips),
        "duration_ns": times(&counters.durations),
    })
}

/// What a host has counted.
struct Figures {
    port: PortCounters,
    ports: Vec<(String, PortCounters)>,
    drops: Vec<DropView>,
    modules: Vec<(String, &'static str, u64)>,
    tables: Vec<(&'static str, u64)>,
    rdma: Option<(CnpCounts, Vec<(u32, Report)>)>,
}

impl Figures {
    fn of(seat: &mut ThreadHost) -> Figures {
        Figures {
            port: seat.ports.counters(),
            ports: seat.ports.iter().map(|port| (port.name(), port.counters())).collect(),
            drops: all_drops(seat),
            modules: seat.host.base().module_stats(),
            tables: seat.host.base().tables(),
            rdma: seat.rdma.as_ref().map(|rdma| {
                let device = rdma.device();
                (device.cnps(), device.reports())
            }),
        }
    }

    fn json(self, place: &HostPlace) -> Value {
        let mut modules: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (module, counter, value) in self.modules {
            modules.entry(module).or_default().insert(counter.into(), value.into());
        }
        let drops = self.drops.iter().map(|drop| (drop.reason, drop.count)).collect();
        json!({
            "name": place.config.stack.name,
            "engine": place.config.engine.name(),
            "backend": place.config.backend(),
            "thread": place.thread,
            "port": counters(&self.port),
            "ports": self.ports.iter().map(|(name, port)| (name.clone(), counters(port))).collect::<Map<_, _>>(),
            "drops": by_name(drops),
            "modules": modules,
            "tables": by_name(self.tables),
            "rdma": self.rdma.map(|(cnps, reports)| rdma(&cnps, &reports)),
        })
    }
}

/// What a host's RDMA programs came to.
fn rdma(cnps: &CnpCounts, reports: &[(u32, Report)]) -> Value {
    let engine = |(pid, report): &(u32, Report)| {
        let mut engine = json!(report);
        engine["pid"] = json!(pid);
        engine
    };
    let engines: Vec<Value> = reports.iter().map(engine).collect();
    json!({ "cnps_sent": cnps.sent, "cnps_received": cnps.received, "offload": engines })
}

/// What a data-path thread has done; runs on it.
fn load(number: usize, path: &mut DataPath) -> Value {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    json!({
        "thread": number,
        "now_ns": path.clock.now(),
        "cpu_ns": cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        "rounds": path.figures.rounds,
        "busy_rounds": path.figures.busy_rounds,
        "busy_ns": path.figures.busy,
        "system_ns": system_time(),
        "sleeps": path.figures.sleeps,
        "asleep_ns": path.figures.asleep,
    })
}

/// How long this thread was in the kernel, which is the time of its devices and doorbells; proc(5).
fn system_time() -> Option<u64> {
    /// Nanoseconds of the unit that the kernel shows to programs, USER_HZ.
    const TICK: u64 = 10_000_000;
    let text = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The name may have spaces and parentheses. After it come the third field and, as the fifteenth, stime.
    let ticks = text.rsplit_once(") ")?.1.split_whitespace().nth(12)?;
    ticks.parse::<u64>().ok().map(|ticks| ticks * TICK)
}

/// A host's drops and its ports', added up.
fn all_drops(seat: &mut ThreadHost) -> Vec<DropView> {
    let mut drops = DropView::all(seat.host.drops());
    for (reason, count) in seat.ports.drops().iter() {
        match drops.iter_mut().find(|drop| drop.reason == reason.label()) {
            Some(drop) => drop.count += count,
            None => drops.push(DropView { reason: reason.label(), sentence: reason.sentence(), count }),
        }
    }
    drops
}

fn pairs(drops: &PortDrops) -> Vec<(&'static str, u64)> {
    drops.iter().map(|(reason, count)| (reason.label(), count)).collect()
}

fn by_name(drops: Vec<(&'static str, u64)>) -> Map<String, Value> {
    drops.into_iter().map(|(reason, count)| (reason.into(), count.into())).collect()
}
