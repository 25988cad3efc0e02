//! Checks across keys: the parts of a configuration must fit together.
use super::{Config, FabricSection, HostSection, PortKind, addressing};
use control::TcpConfig;
use engines::Backend;
use std::collections::HashSet;

/// A sentence about the first thing that does not fit.
pub(super) fn check(config: &Config) -> Result<(), String> {
    config.service.mode()?;
    if config.hosts.is_empty() && config.zeronics.is_empty() {
        return Err("no host is configured: a [[host]] or [[zeronic]] section is needed".into());
    }
    let fabrics = unique("fabric", config.fabrics.iter().map(|fabric| fabric.name.as_str()))?;
    unique("host", config.hosts.iter().map(|host| host.stack.name.as_str()))?;
    config.fabrics.iter().try_for_each(fabric)?;
    let threads = config.service.thread.len().max(1);
    for host in &config.hosts {
        host_fits(host, &fabrics, threads).map_err(|sentence| format!("host {}: {sentence}", host.stack.name))?;
    }
    crate::block::check(config)?;
    crate::zeronic::check(config, threads)?;
    addressing::unique(config)
}

/// A fabric, with its uplinks.
fn fabric(fabric: &FabricSection) -> Result<(), String> {
    fabric.config.check().map_err(|sentence| format!("fabric {}: {sentence}", fabric.name))?;
    for uplink in &fabric.uplinks {
        let with_context = |sentence| format!("fabric {}: uplink: {sentence}", fabric.name);
        uplink.plan().map_err(with_context)?;
        if uplink.has_address() {
            return Err(with_context("`address` and `prefix_len` are for ports of hosts: an uplink has none".into()));
        }
        if uplink.kind == PortKind::Fabric {
            return Err(with_context("a fabric is no uplink of a fabric; use tap or afxdp".into()));
        }
    }
    Ok(())
}

/// A host: its engine, its ports, and what of the service it names.
fn host_fits(host: &HostSection, fabrics: &HashSet<&str>, threads: usize) -> Result<(), String> {
    host.stack.validate()?;
    modules(host)?;
    receives(host)?;
    backend(host)?;
    host.mapping.check().map_err(|sentence| format!("mapping: {sentence}"))?;
    ports(host)?;
    addressing::check(host)?;
    memory(host)?;
    lines(host)?;
    let mut fabrics_of = host.ports.iter().filter_map(|port| port.fabric.as_deref());
    if let Some(name) = fabrics_of.find(|name| !fabrics.contains(name)) {
        return Err(format!("no fabric is called `{name}`"));
    }
    if host.thread >= threads {
        return Err(format!("thread is {}, and there are {threads} (counted from 0)", host.thread));
    }
    Ok(())
}

/// The backend that runs a P4 program.
fn backend(host: &HostSection) -> Result<(), String> {
    let backend = &host.stack.backend;
    if !host.engine.has_program() && backend.kind != Backend::Native {
        let (backend, engine) = (backend.kind.name(), host.engine.name());
        return Err(format!(
            "backend \"{backend}\" runs P4 programs, and engine {engine} has none: engine = \"laminar\""
        ));
    }
    if backend.waveform.is_some() && backend.kind != Backend::Rtl {
        return Err("backend: only simulated RTL has a waveform: kind = \"rtl\"".into());
    }
    Ok(())
}

/// Tables and memory that the engine offers.
fn memory(host: &HostSection) -> Result<(), String> {
    if let Some(most) = host.engine.most_flows().filter(|most| host.stack.max_flows > *most) {
        let (engine, wanted) = (host.engine.name(), host.stack.max_flows);
        return Err(format!("max_flows is {wanted}, and the {engine} engine holds {most} connections at most"));
    }
    if host.stack.memory.log_bytes > 0 && !host.engine.keeps_logs() {
        return Err(
            "memory.log_bytes is for shared logs, which only the laminar engine keeps: engine = \"laminar\"".into()
        );
    }
    if host.stack.memory.heap_bytes > 0 && !host.engine.lands_directly() {
        return Err("memory.heap_bytes is for received bytes that land in programs' memory, which only zeronic and \
                    zeronic-laminar do: engine = \"zeronic\""
            .into());
    }
    Ok(())
}

/// A flow table with fewer lines than connections.
fn lines(host: &HostSection) -> Result<(), String> {
    let memory = &host.stack.memory;
    if memory.placed_connections == 0 {
        return Ok(());
    }
    if !host.engine.lands_directly() {
        return Err("memory.placed_connections is for engines that place payload: engine = \"zeronic\" or \
                    \"zeronic-laminar\""
            .into());
    }
    Ok(())
}

/// Where the engine's modules run.
fn modules(host: &HostSection) -> Result<(), String> {
    if !host.engine.has_mapping() && host.mapping != engines::Mapping::default() {
        let engine = host.engine.name();
        return Err(format!("mapping: engine {engine} has its modules on one thread: leave it out"));
    }
    if !host.cores.is_empty() && !host.mapping.threads {
        return Err("cores are those of its modules' threads, and it has none: mapping = { threads = true }".into());
    }
    Ok(())
}

/// How the engine receives.
fn receives(host: &HostSection) -> Result<(), String> {
    host.tcp.check()?;
    if !host.engine.receives_as_chosen() && host.tcp.receiving() != TcpConfig::default().receiving() {
        return Err("tcp.delayed_acks and tcp.intervals are choices of the flextoe engine: leave them out".into());
    }
    Ok(())
}

/// The ports of a host: their keys, their addresses, and the routes that name them.
fn ports(host: &HostSection) -> Result<(), String> {
    if host.ports.is_empty() {
        return Err("it has no port: a [[host.port]] section is needed".into());
    }
    for (at, port) in host.ports.iter().enumerate() {
        port.plan()?;
        if at == 0 && port.has_address() {
            return Err("the first port has the host's own address: write it as the host's `address`".into());
        }
        port.check_addresses(host.stack.ipv6.address.is_some()).map_err(|sentence| format!("port {at}: {sentence}"))?;
        if port.address.is_some_and(|address| host.ports[..at].iter().any(|other| other.address == Some(address))) {
            return Err(format!("port {at}: another port has its address; leave `address` out to share the host's"));
        }
    }
    match host.stack.routes.iter().find(|route| route.port.is_some_and(|port| port >= host.ports.len())) {
        Some(route) => Err(format!(
            "the route to {}/{} names a port that is not there: there are {}, counted from 0",
            route.network,
            route.prefix_len,
            host.ports.len()
        )),
        None => Ok(()),
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<HashSet<&'a str>, String> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err(format!("a {what} has no name"));
        }
        if !seen.insert(name) {
            return Err(format!("two {what}s are called `{name}`"));
        }
    }
    Ok(seen)
}
