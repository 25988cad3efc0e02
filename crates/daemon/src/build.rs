//! Construction of a daemon's parts from its configuration: fabrics with uplinks, ports, hosts with engines, seats on
//! threads.
use crate::access::Access;
use crate::autoconf;
use crate::block::{self, BlockThreads};
use crate::clock::Clock;
use crate::config::{Config, HostSection, PortKind, PortSection};
use crate::datapath::{DataPath, Handle};
use crate::ports::PortPlan;
use crate::rdma::{RdmaMaker, RdmaPlace};
use crate::secret::secret;
use crate::takeover::{AllDevices, Device, Devices, Owner};
use crate::zeronic::{self, Shared, ZeronicPlace};
use context::attach::{Interface, Network};
use control::Host;
use host::{AddressV6, Link, Ports};
use port::{
    AfXdp, AfXdpConfig, Capture, Captured, Fabric, FramePool, Port, SharedPort, Tap, TapConfig, TcpPorts, local_mac,
    share,
};
use std::collections::HashMap;
use std::sync::Arc;
use trace::Traces;

/// Frames of each size that the threads share.
const POOL: usize = 8192;
/// Most MiB of a capture file by default.
const CAPTURE_MIB: u64 = 1024;

/// The threads' data-paths in the order of the configuration, and how to reach each.
pub(crate) struct Built {
    pub(crate) paths: Vec<DataPath>,
    pub(crate) handles: Vec<Handle>,
    /// What the attach and the management socket need of each host.
    pub(crate) hosts: Vec<HostPlace>,
    /// Its ZeroNIC hosts.
    pub(crate) zeronics: Vec<ZeronicPlace>,
    /// Of volumes that its hosts serve and use.
    pub(crate) blocks: BlockThreads,
    /// The threads' own tracepoints.
    pub(crate) traces: Vec<Arc<Traces>>,
}

/// Thread and place of a host.
#[derive(Clone)]
pub(crate) struct HostPlace {
    pub(crate) config: HostSection,
    /// Index of its data-path thread.
    pub(crate) thread: usize,
    /// Its index there.
    pub(crate) index: usize,
    /// Networks and prefix lengths that it reaches.
    pub(crate) routes: Vec<wire::Prefix>,
    /// It has IPv6.
    pub(crate) v6: bool,
    /// It sends urgent data.
    pub(crate) urgent: bool,
    /// Its ports over which it may have neighbours.
    pub(crate) interfaces: Vec<Interface>,
    /// Its tracepoints.
    pub(crate) traces: Arc<Traces>,
    /// Users who may attach to it.
    pub(crate) access: Access,
    /// Its RDMA device, where it has one.
    pub(crate) rdma: Option<RdmaPlace>,
}

/// Opens and makes everything. The error is a sentence.
///
/// TAP devices of a daemon that is taken over are used as they are.
pub(crate) fn build(config: &Config, clock: Clock, mut devices: AllDevices) -> Result<Built, String> {
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
    let fabrics = fabrics(config, clock, &mut devices)?;
    let mut rdma = RdmaMaker::default();
    let (mut hosts, mut shared) = (Vec::new(), HashMap::new());
    for section in &config.hosts {
        let path = &mut paths[section.thread];
        let index = path.hosts.len();
        let traces = Traces::new(Clock::ticks);
        let name = &section.stack.name;
        let own = devices.remove(&Owner::Host(name.clone())).unwrap_or_default();
        let shares = config.zeronics.iter().any(|zeronic| zeronic.host.as_ref() == Some(name));
        let part =
            seat(path, section, (&fabrics, own, shares), &pool, &traces).map_err(|e| format!("host {name}: {e}"))?;
        let host = &path.hosts[index].host;
        let (routes, stack) = (host.net().destinations(), host.base().config().clone());
        let (v6, urgent) = (host.base().speaks_v6(), host.base().has_urgent_data());
        let interfaces = interfaces(host.net().links(), section, config);
        let with_context = |e: String| format!("host {name}: {e}");
        let access = Access::to_host(section).map_err(with_context)?;
        if let Some((port, ports)) = part {
            let (stack, access) = (stack.clone(), access.clone());
            shared.insert(name.clone(), Shared { port, ports, stack, access });
        }
        let rdma = rdma.place(path, index, section, line_rate(section, config)).map_err(with_context)?;
        let config = HostSection { stack, ..section.clone() };
        let thread = section.thread;
        hosts.push(HostPlace { config, thread, index, routes, v6, urgent, interfaces, traces, access, rdma });
    }
    let seats: Vec<_> = hosts.iter().map(|host| (host.config.stack.name.clone(), host.thread, host.index)).collect();
    let blocks = block::assign(config, &seats, &mut paths, &handles)?;
    let mut zeronics = Vec::new();
    for section in &config.zeronics {
        let (path, handle) = (&mut paths[section.thread], &handles[section.thread]);
        let part = section.host.as_ref().and_then(|host| shared.remove(host));
        let made = zeronic::make(path, handle, section, &fabrics, &pool, part);
        zeronics.push(made.map_err(|e| format!("zeronic {}: {e}", section.name))?);
    }
    for (name, fabric) in fabrics {
        // The thread of its first host serves its uplinks.
        let is_it = |port: &PortSection| port.kind == PortKind::Fabric && on(port, config) == Some(&name);
        let of_fabric = |host: &&HostSection| host.ports.iter().any(is_it);
        let thread = config.hosts.iter().find(of_fabric).map_or(0, |host| host.thread);
        paths[thread].add_fabric(&name, fabric).map_err(|e| format!("fabric {name}: {e}"))?;
    }
    Ok(Built { paths, handles, hosts, zeronics, blocks, traces })
}

fn on<'a>(port: &'a PortSection, config: &'a Config) -> Option<&'a String> {
    port.fabric.as_ref().or(config.fabrics.first().map(|fabric| &fabric.name))
}

/// The ports over which a host may have neighbours: not those on a fabric without anybody else.
fn interfaces(links: &[Link], section: &HostSection, config: &Config) -> Vec<Interface> {
    let shown = |(link, port): (&Link, &PortSection)| {
        let Link { mac, address, prefix_len, v6, caps } = *link;
        let ipv6 = v6.map(|AddressV6 { address, prefix_len }| Network { address, prefix_len });
        has_others(port, config).then_some(Interface { address, prefix_len, ipv6, mac: mac.0, mtu: caps.mtu })
    };
    links.iter().zip(&section.ports).filter_map(shown).collect()
}

fn has_others(port: &PortSection, config: &Config) -> bool {
    if port.kind != PortKind::Fabric {
        return true;
    }
    let fabric = on(port, config);
    let has_uplink = config.fabrics.iter().any(|section| Some(&section.name) == fabric && !section.uplinks.is_empty());
    let is_there = |other: &&PortSection| other.kind == PortKind::Fabric && on(other, config) == fabric;
    let members = config.hosts.iter().flat_map(|host| &host.ports).filter(is_there).count();
    has_uplink || members > 1 || config.zeronics.iter().any(|zeronic| zeronic.host.is_none())
}

/// Bits a second of the fabric that a host's first port is on, where that has a limit.
fn line_rate(host: &HostSection, config: &Config) -> Option<u64> {
    let port = host.ports.first().filter(|port| port.kind == PortKind::Fabric)?;
    let name = on(port, config)?;
    let fabric = config.fabrics.iter().find(|fabric| fabric.name == *name)?;
    Some(fabric.config.rate_bps).filter(|rate| *rate > 0)
}

/// All fabrics, with their uplinks; hosts join afterwards, because what a fabric offers depends on its uplinks.
fn fabrics(config: &Config, clock: Clock, devices: &mut AllDevices) -> Result<Vec<(String, Fabric)>, String> {
    let mut fabrics = Vec::new();
    for section in &config.fabrics {
        let fabric = Fabric::new(section.config.clone());
        let mut old = devices.remove(&Owner::Fabric(section.name.clone())).unwrap_or_default();
        for (at, uplink) in section.uplinks.iter().enumerate() {
            let failed = |e: String| format!("fabric {}: {e}", section.name);
            let port = open_device(uplink.plan().map_err(failed)?, &section.name, old.remove(&at)).map_err(failed)?;
            let name = port.name();
            fabric.uplink(&name, captured(port, uplink, clock)?).map_err(|e| failed(e.to_string()))?;
        }
        fabrics.push((section.name.clone(), fabric));
    }
    let default_wanted = config.hosts.iter().flat_map(|host| &host.ports).any(|port| port.kind == PortKind::Fabric);
    if fabrics.is_empty() && default_wanted {
        fabrics.push(("fabric".into(), Fabric::new(Default::default())));
    }
    Ok(fabrics)
}

/// Opens a device, or goes on with the one of a daemon that is taken over. One that was deleted is made again, with the
/// same hardware address.
fn open_device(plan: PortPlan, owner: &str, old: Option<Device>) -> Result<Box<dyn Port>, String> {
    let Some(Device { name, mac, descriptors }) = old else { return plan.open(owner) };
    let other = |new: &str| Err(format!("the daemon that runs has the device {name}, and this configuration {new}"));
    match plan {
        PortPlan::Fabric { .. } => other("a fabric"),
        PortPlan::Tap(config) if !config.name.contains('%') && config.name != name => other(&config.name),
        PortPlan::Afxdp(config) if config.device() != name => other(&config.device()),
        PortPlan::Tap(config) => {
            let config = TapConfig { name, mac: Some(mac), ..config };
            match descriptors.into_iter().next() {
                Some(fd) => Ok(Box::new(Tap::adopt(fd, &config))),
                None => PortPlan::Tap(config).open(owner),
            }
        }
        PortPlan::Afxdp(config) if descriptors.is_empty() => {
            PortPlan::Afxdp(AfXdpConfig { mac: Some(mac), ..config }).open(owner)
        }
        PortPlan::Afxdp(config) => Ok(Box::new(AfXdp::adopt(descriptors, &config, mac)?)),
    }
}

/// Opens a host's ports, makes its engine and its stack, and gives it a seat. Where a ZeroNIC host shares its port,
/// that one's part of it.
fn seat(
    path: &mut DataPath,
    section: &HostSection,
    (fabrics, mut old, shares): (&[(String, Fabric)], Devices, bool),
    pool: &FramePool,
    traces: &Traces,
) -> Result<Option<(SharedPort, Arc<TcpPorts>)>, String> {
    // The daemon that runs takes frames from the same device, and would answer.
    if section.stack.ipv6.auto && !old.is_empty() {
        return Err(
            "ipv6.auto: a host whose address comes from a router is not taken over: stop the daemon that runs, \
                    and start this one without --takeover"
                .into(),
        );
    }
    let mut ports = Vec::new();
    for (at, port) in section.ports.iter().enumerate() {
        let opened = open(section, at, fabrics, old.remove(&at))?;
        ports.push(captured(opened, port, path.clock)?);
    }
    let found = section.stack.ipv6.auto.then(|| autoconf::find(&section.stack.name, &mut *ports[0], path.clock, pool));
    let found = found.transpose()?;
    let section = &autoconf::with(section, found);
    let tcp_ports = shares.then(|| Arc::new(TcpPorts::new(zeronic::SHARED_PORTS)));
    let part = match &tcp_ports {
        Some(tcp_ports) => {
            let [first, second] = share(ports.remove(0), tcp_ports).map_err(|e| format!("no descriptor left: {e}"))?;
            ports.insert(0, Box::new(first));
            Some((second, Arc::clone(tcp_ports)))
        }
        None => None,
    };
    let ports = Ports::new(ports)?;
    let mut host = host(section, &ports, pool)?;
    if let Some(found) = found {
        host.follow_routers(path.clock.now(), &found);
    }
    if let Some(tcp_ports) = tcp_ports {
        host.share(Arc::clone(&tcp_ports), false);
        host.base_mut().share_ports(tcp_ports);
    }
    path.add_host(&section.stack.name, &section.cores, host, ports, traces).map_err(|e| e.to_string())?;
    Ok(part)
}

/// Opens one port of a host.
fn open(
    section: &HostSection,
    at: usize,
    fabrics: &[(String, Fabric)],
    old: Option<Device>,
) -> Result<Box<dyn Port>, String> {
    let name = &section.stack.name;
    match section.ports[at].plan()? {
        PortPlan::Fabric { fabric: wanted, mac } => {
            let found = fabrics.iter().find(|(fabric, _)| wanted.as_ref().is_none_or(|wanted| wanted == fabric));
            let (_, fabric) = found.ok_or("its fabric is not there")?;
            // As fabrics name members, and addresses follow from names, each place of a host has one of its own.
            let (member, seed) = match at {
                0 => (name.clone(), format!("{name} {}", section.stack.address)),
                _ => (format!("{name}.{at}"), format!("{name}.{at} {}", section.stack.address)),
            };
            let mac = mac.unwrap_or_else(|| local_mac(&seed));
            Ok(Box::new(fabric.join(&member, mac).map_err(|e| format!("cannot join the fabric: {e}"))?))
        }
        PortPlan::Afxdp(config) => {
            let all = section.ports[at].exclusive.unwrap_or(false);
            let addresses = if all { Vec::new() } else { crate::config::addresses(section) };
            open_device(PortPlan::Afxdp(AfXdpConfig { addresses, ..config }), name, old)
        }
        plan => open_device(plan, name, old),
    }
}

fn host(section: &HostSection, ports: &Ports, pool: &FramePool) -> Result<Host, String> {
    let engine = section.engine.make(&section.stack, &section.mapping, pool)?;
    let link = |(port, section_of): (&dyn Port, &PortSection)| {
        section_of.link(section.stack.link(port.mac(), port.capabilities()))
    };
    let links = ports.iter().zip(&section.ports).map(link).collect();
    let mut host = control::host(section.stack.clone(), links, engine, secret()?)?;
    host.base_mut().set_tcp(section.tcp);
    Ok(host)
}

/// The port, and around it the capture where one is asked for.
fn captured(port: Box<dyn Port>, section: &PortSection, clock: Clock) -> Result<Box<dyn Port>, String> {
    let Some(path) = &section.capture else { return Ok(port) };
    let capture = Capture::create(path, &port.name(), clock.epoch(), section.capture_mib.unwrap_or(CAPTURE_MIB) << 20)?;
    Ok(Box::new(Captured::new(port, capture)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    #[test]
    fn ports_without_neighbours_are_not_shown() {
        let one = "[[host]]\nname = \"a\"\naddress = \"10.1.0.2\"\nprefix_len = 24\n";
        let two = "[[host]]\nname = \"b\"\naddress = \"10.1.0.3\"\nprefix_len = 24\n";
        let uplink = "[[fabric]]\nname = \"f\"\n[[fabric.uplink]]\nkind = \"tap\"\n";
        let other = "[[fabric]]\nname = \"f\"\n[[fabric]]\nname = \"g\"\n";
        let elsewhere = format!("{two}port = {{ kind = \"fabric\", fabric = \"g\" }}\n");
        let tap = format!("{one}port = {{ kind = \"tap\" }}\n");
        for (text, shown) in [
            (one.to_string(), false),
            ([one, two].concat(), true),
            ([uplink, one].concat(), true),
            ([other, one, &elsewhere].concat(), false),
            (tap, true),
        ] {
            let config = parse(&text, "a test").unwrap();
            assert_eq!(has_others(&config.hosts[0].ports[0], &config), shown, "{text}");
        }
    }
}
