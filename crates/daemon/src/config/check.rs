//! What single keys cannot say: that the parts of a configuration fit together.
use super::{Config, PortKind};
use std::collections::HashSet;

/// A sentence about the first thing that does not fit.
pub(super) fn check(config: &Config) -> Result<(), String> {
    config.service.mode()?;
    if config.hosts.is_empty() {
        return Err("no host is configured: a [[host]] section is needed".into());
    }
    let fabrics = unique("fabric", config.fabrics.iter().map(|fabric| fabric.name.as_str()))?;
    unique("host", config.hosts.iter().map(|host| host.stack.name.as_str()))?;
    for fabric in &config.fabrics {
        fabric.config.check().map_err(|sentence| format!("fabric {}: {sentence}", fabric.name))?;
        for uplink in &fabric.uplinks {
            let said = |sentence| format!("fabric {}: uplink: {sentence}", fabric.name);
            uplink.plan().map_err(said)?;
            if uplink.kind == PortKind::Fabric {
                return Err(said("a fabric is no uplink of a fabric; use tap or afxdp".into()));
            }
        }
    }
    let threads = config.service.thread.len().max(1);
    for host in &config.hosts {
        let said = |sentence| format!("host {}: {sentence}", host.stack.name);
        host.stack.validate()?;
        host.mapping.check().map_err(|sentence| said(format!("mapping: {sentence}")))?;
        host.port.plan().map_err(said)?;
        if host.stack.memory.log_bytes > 0 && !host.engine.keeps_logs() {
            return Err(said(
                "memory.log_bytes is for shared logs, which only the laminar engine keeps: engine = \"laminar\"".into(),
            ));
        }
        if let Some(name) = host.port.fabric.as_deref().filter(|name| !fabrics.contains(name)) {
            return Err(said(format!("no fabric is called `{name}`")));
        }
        if host.thread >= threads {
            return Err(said(format!("thread is {}, and there are {threads} (counted from 0)", host.thread)));
        }
    }
    addresses(config)
}

/// Two hosts of one fabric cannot have one address.
fn addresses(config: &Config) -> Result<(), String> {
    let mut seen = HashSet::new();
    for host in config.hosts.iter().filter(|host| host.port.kind == PortKind::Fabric) {
        let fabric = host.port.fabric.as_deref().or(config.fabrics.first().map(|fabric| fabric.name.as_str()));
        if !seen.insert((fabric, host.stack.address)) {
            return Err(format!(
                "host {}: another host of its fabric has the address {}",
                host.stack.name, host.stack.address
            ));
        }
    }
    Ok(())
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
