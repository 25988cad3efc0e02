//! Looking inside: what the management socket answers.
use crate::build::HostPlace;
use crate::datapath::{DataPath, Handle, HostSeat};
use control::{BindingView, ContextView, DropView, FlowView, LabelView};
use port::{Drop, DropCounts};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Asks the data-path threads. What they hand out are plain values; making JSON of them is done by who asks.
pub(crate) struct Observer {
    handles: Vec<Handle>,
    hosts: Vec<HostPlace>,
    socket: PathBuf,
}

impl Observer {
    pub(crate) fn new(handles: Vec<Handle>, hosts: Vec<HostPlace>, socket: PathBuf) -> Observer {
        Observer { handles, hosts, socket }
    }

    /// The hosts in the order of the configuration.
    pub(crate) fn hosts(&self) -> &[HostPlace] {
        &self.hosts
    }

    /// The data-path threads.
    pub(crate) fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Who is there.
    pub(crate) fn hello(&self) -> Value {
        let hosts = self.hosts.iter().map(|place| {
            let stack = &place.config.stack;
            let address = format!("{}/{}", stack.address, stack.prefix_len);
            json!({ "name": stack.name, "address": address, "engine": place.config.engine.name() })
        });
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "attach_version": context::VERSION,
            "pid": std::process::id(),
            "socket": self.socket,
            "hosts": hosts.collect::<Vec<_>>(),
        })
    }

    /// Hosts with their contexts, flows and listeners; fabrics with their members.
    pub(crate) fn ls(&self) -> Result<Value, String> {
        let mut answer = self.hello();
        let mut hosts = Vec::new();
        for place in &self.hosts {
            hosts.push(self.at(place, Inventory::of)?.json(place));
        }
        answer["hosts"] = Value::Array(hosts);
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
        Ok(answer)
    }

    /// Counters of all hosts, or of one; and of all their flows, or of one.
    pub(crate) fn stats(&self, host: Option<&str>, flow: Option<u32>) -> Result<Value, String> {
        let mut hosts = Vec::new();
        for place in self.hosts.iter().filter(|place| host.is_none_or(|name| name == place.config.stack.name)) {
            let figures = self.at(place, Figures::of)?;
            hosts.push(figures.json(place, flow));
        }
        if hosts.is_empty() {
            return Err(format!("this daemon has no host `{}`", host.unwrap_or_default()));
        }
        if flow.is_some() && hosts.iter().all(|host| host["flows"].as_array().is_none_or(Vec::is_empty)) {
            return Err("no such flow: toe ls shows all".into());
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
        Ok(json!({ "hosts": hosts, "fabrics": fabrics, "threads": threads }))
    }

    /// What was dropped, by reason, in all hosts and their ports.
    pub(crate) fn drops(&self) -> Result<Value, String> {
        let mut hosts = Vec::new();
        for place in &self.hosts {
            let drops = self.at(place, all_drops)?;
            hosts.push(json!({ "name": place.config.stack.name, "drops": drops }));
        }
        Ok(json!({ "hosts": hosts }))
    }

    /// Whether a descriptor is accelerated, and why.
    pub(crate) fn descriptor(&self, pid: i32, fd: u32) -> Result<Value, String> {
        let mut attached = false;
        for place in &self.hosts {
            let (labels, flows, contexts) =
                self.at(place, |seat| (seat.host.labels(), seat.host.flows(), seat.host.contexts()))?;
            attached |= contexts.iter().any(|context| context.alive && i64::from(context.pid) == i64::from(pid));
            let of_process = |label: &&LabelView| i64::from(label.pid) == i64::from(pid) && label.fd == fd;
            if let Some(label) = labels.iter().find(of_process) {
                let flow = flows.iter().find(|flow| label.flow.is_some() && flow.flow == label.flow);
                return Ok(json!({ "host": place.config.stack.name, "descriptor": label, "flow": flow }));
            }
        }
        Err(match attached {
            true => format!("process {pid} is attached, but its descriptor {fd} is no stream socket that libtoe saw"),
            false => format!(
                "process {pid} is not attached to this daemon: it was not started by toe run, or it has not opened a stream socket yet"
            ),
        })
    }

    /// Has a host's thread look at it.
    pub(crate) fn at<T: Send + 'static>(
        &self,
        place: &HostPlace,
        look: impl FnOnce(&mut HostSeat) -> T + Send + 'static,
    ) -> Result<T, String> {
        let index = place.index;
        self.handles[place.thread].ask(move |path| look(&mut path.hosts[index]))
    }
}

/// What is there on a host.
struct Inventory {
    mac: String,
    port: String,
    failure: Option<String>,
    contexts: Vec<ContextView>,
    flows: Vec<FlowView>,
    bindings: Vec<BindingView>,
    neighbours: Vec<control::ArpView>,
}

impl Inventory {
    fn of(seat: &mut HostSeat) -> Inventory {
        Inventory {
            mac: seat.port.mac().to_string(),
            port: seat.port.name(),
            failure: seat.port.failure(),
            contexts: seat.host.contexts(),
            flows: seat.host.flows(),
            bindings: seat.host.bindings(),
            neighbours: seat.host.neighbours(),
        }
    }

    fn json(&self, place: &HostPlace) -> Value {
        let stack = &place.config.stack;
        let listeners = self.bindings.iter().filter(|binding| binding.listening).map(|binding| {
            let pids: Vec<_> = self.contexts.iter().filter(|of| binding.contexts.contains(&of.context)).collect();
            json!({
                "address": binding.local.ip(),
                "port": binding.local.port(),
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
            "mac": self.mac,
            "engine": place.config.engine.name(),
            "port": self.port,
            "failure": self.failure,
            "contexts": self.contexts,
            "flows": self.flows,
            "listeners": listeners.collect::<Vec<_>>(),
            "neighbours": self.neighbours,
        })
    }
}

/// What a host has counted.
struct Figures {
    port: port::PortCounters,
    drops: Vec<DropView>,
    modules: Vec<(String, &'static str, u64)>,
    tables: Vec<(&'static str, u64)>,
    flows: Vec<FlowView>,
}

impl Figures {
    fn of(seat: &mut HostSeat) -> Figures {
        Figures {
            port: seat.port.counters(),
            drops: all_drops(seat),
            modules: seat.host.module_stats(),
            tables: seat.host.tables(),
            flows: seat.host.flows(),
        }
    }

    fn json(self, place: &HostPlace, flow: Option<u32>) -> Value {
        let mut modules: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (module, counter, value) in self.modules {
            modules.entry(module).or_default().insert(counter.into(), value.into());
        }
        let drops = self.drops.iter().map(|drop| (drop.reason, drop.count)).collect();
        let flows: Vec<_> = self.flows.iter().filter(|of| flow.is_none() || of.flow == flow).collect();
        json!({
            "name": place.config.stack.name,
            "engine": place.config.engine.name(),
            "thread": place.thread,
            "port": {
                "rx_frames": self.port.rx_frames,
                "rx_bytes": self.port.rx_bytes,
                "tx_frames": self.port.tx_frames,
                "tx_bytes": self.port.tx_bytes,
            },
            "drops": by_name(drops),
            "modules": modules,
            "tables": by_name(self.tables),
            "flows": flows,
        })
    }
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
        "sleeps": path.figures.sleeps,
        "asleep_ns": path.figures.asleep,
    })
}

/// A host's drops and its port's, added up.
fn all_drops(seat: &mut HostSeat) -> Vec<DropView> {
    let mut drops = seat.host.drops();
    for (reason, count) in seat.port_drops.iter() {
        match drops.iter_mut().find(|drop| drop.reason == reason.label()) {
            Some(drop) => drop.count += count,
            None => drops.push(DropView { reason: reason.label(), sentence: reason.sentence(), count }),
        }
    }
    drops
}

fn pairs(drops: &DropCounts) -> Vec<(&'static str, u64)> {
    drops.iter().map(|(reason, count): (Drop, u64)| (reason.label(), count)).collect()
}

fn by_name(drops: Vec<(&'static str, u64)>) -> Map<String, Value> {
    drops.into_iter().map(|(reason, count)| (reason.into(), count.into())).collect()
}
