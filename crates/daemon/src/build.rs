//! From configuration to running parts: fabrics with uplinks, ports, hosts with engines, seats on threads.
use crate::access::Access;
use crate::clock::Clock;
use crate::config::{Config, FabricSection, HostSection, PortKind, PortSection};
use crate::datapath::{DataPath, Handle};
use crate::ports::PortPlan;
use crate::takeover::OldTap;
use control::Host;
use port::{Capabilities, Capture, Captured, Fabric, FramePool, Port, Tap, TapConfig, local_mac};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use trace::Traces;

/// Frames of each size that the threads share.
const POOL: usize = 8192;
/// Most MiB of a capture file when nothing else is said.
const CAPTURE_MIB: u64 = 1024;

/// The threads' data-paths in the order of the configuration, and how to reach each.
pub(crate) struct Built {
    pub(crate) paths: Vec<DataPath>,
    pub(crate) handles: Vec<Handle>,
    /// What the attach and the management socket need to know of each host.
    pub(crate) hosts: Vec<HostPlace>,
    /// The threads' own tracepoints.
    pub(crate) traces: Vec<Arc<Traces>>,
}

/// Where a host is served.
#[derive(Clone)]
pub(crate) struct HostPlace {
    pub(crate) config: HostSection,
    /// Index of its data-path thread.
    pub(crate) thread: usize,
    /// Its index there.
    pub(crate) index: usize,
    /// Networks and prefix lengths that it reaches.
    pub(crate) routes: Vec<wire::Prefix>,
    /// Its tracepoints.
    pub(crate) traces: Arc<Traces>,
    /// Who may attach to it.
    pub(crate) access: Access,
}

/// Opens and makes everything. The error is a sentence.
///
/// TAP devices of a daemon that is taken over are used as they are.
pub(crate) fn build(config: &Config, clock: Clock, taps: &mut HashMap<String, OldTap>) -> Result<Built, String> {
    let pool = FramePool::new(POOL);
    let threads = config.service.thread.len().max(1);
    let (mut paths, mut handles, mut traces) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..threads {
        let own = Traces::new(Clock::ticks);
        let made = DataPath::new(clock, pool.clone(), config.service.polling, &own);
        traces.push(own);
        let (path, handle) = made.map_err(|e| format!("cannot make a data-path thread: {e}"))?;
        paths.push(path);
        handles.push(handle);
    }
    let fabrics = fabrics(config, clock)?;
    let mut hosts = Vec::new();
    for section in &config.hosts {
        let path = &mut paths[section.thread];
        let index = path.hosts.len();
        let traces = Traces::new(Clock::ticks);
        seat(path, section, (&fabrics, taps.remove(&section.stack.name)), &pool, &traces)
            .map_err(|e| format!("host {}: {e}", section.stack.name))?;
        let (routes, stack) = (path.hosts[index].host.routes(), path.hosts[index].host.config().clone());
        let access = Access::to_host(section).map_err(|e| format!("host {}: {e}", section.stack.name))?;
        let config = HostSection { stack, ..section.clone() };
        hosts.push(HostPlace { config, thread: section.thread, index, routes, traces, access });
    }
    for (name, fabric) in fabrics {
        // The thread of its first host serves its uplinks.
        let of_fabric = |host: &&HostSection| host.port.kind == PortKind::Fabric && on(host, config) == Some(&name);
        let thread = config.hosts.iter().find(of_fabric).map_or(0, |host| host.thread);
        paths[thread].add_fabric(&name, fabric).map_err(|e| format!("fabric {name}: {e}"))?;
    }
    Ok(Built { paths, handles, hosts, traces })
}

fn on<'a>(host: &'a HostSection, config: &'a Config) -> Option<&'a String> {
    host.port.fabric.as_ref().or(config.fabrics.first().map(|fabric| &fabric.name))
}

/// All fabrics, with their uplinks; hosts join afterwards, because what a fabric offers depends on its uplinks.
fn fabrics(config: &Config, clock: Clock) -> Result<Vec<(String, Fabric)>, String> {
    let mut fabrics = Vec::new();
    for section in &config.fabrics {
        let fabric = Fabric::new(section.config.clone());
        for uplink in &section.uplinks {
            add_uplink(&fabric, section, uplink, clock).map_err(|e| format!("fabric {}: {e}", section.name))?;
        }
        fabrics.push((section.name.clone(), fabric));
    }
    let default_wanted = config.hosts.iter().any(|host| host.port.kind == PortKind::Fabric);
    if fabrics.is_empty() && default_wanted {
        fabrics.push(("fabric".into(), Fabric::new(Default::default())));
    }
    Ok(fabrics)
}

fn add_uplink(fabric: &Fabric, section: &FabricSection, uplink: &PortSection, clock: Clock) -> Result<(), String> {
    let port = uplink.plan()?.open(&section.name)?;
    let name = port.name();
    fabric.uplink(&name, captured(port, uplink, clock)?).map_err(|e| e.to_string())
}

/// Opens a host's port, makes its engine and its stack, and gives it a seat.
fn seat(
    path: &mut DataPath,
    section: &HostSection,
    (fabrics, old): (&[(String, Fabric)], Option<OldTap>),
    pool: &FramePool,
    traces: &Traces,
) -> Result<(), String> {
    let name = &section.stack.name;
    let port: Box<dyn Port> = match (section.port.plan()?, old) {
        (PortPlan::Fabric { fabric: wanted, mac }, _) => {
            let found = fabrics.iter().find(|(fabric, _)| wanted.as_ref().is_none_or(|wanted| wanted == fabric));
            let (_, fabric) = found.ok_or("its fabric is not there")?;
            let mac = mac.unwrap_or_else(|| local_mac(&format!("{name} {}", section.stack.address)));
            Box::new(fabric.join(name, mac).map_err(|e| format!("cannot join the fabric: {e}"))?)
        }
        (PortPlan::Tap(config), Some((device, mac, fd))) => {
            Box::new(Tap::adopt(fd, &TapConfig { name: device, mac: Some(mac), ..config }))
        }
        (plan, _) => plan.open(name)?,
    };
    let port = captured(port, &section.port, path.clock)?;
    let host = host(section, port.capabilities(), port.mac(), pool)?;
    path.add_host(name, host, port, traces).map_err(|e| e.to_string())
}

fn host(section: &HostSection, caps: Capabilities, mac: wire::Mac, pool: &FramePool) -> Result<Host, String> {
    let engine = section.engine.make(&section.stack, &section.mapping, pool)?;
    Host::new(section.stack.clone(), caps, mac, engine, secret()?)
}

/// The port, and around it the capture where one is asked for.
fn captured(port: Box<dyn Port>, section: &PortSection, clock: Clock) -> Result<Box<dyn Port>, String> {
    let Some(path) = &section.capture else { return Ok(port) };
    let capture = Capture::create(path, &port.name(), clock.epoch(), section.capture_mib.unwrap_or(CAPTURE_MIB) << 20)?;
    Ok(Box::new(Captured::new(port, capture)))
}

/// What makes initial sequence numbers unguessable (RFC 6528).
fn secret() -> Result<[u8; 16], String> {
    let mut secret = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut secret));
    read.map(|()| secret).map_err(|e| format!("cannot read /dev/urandom: {e}"))
}
