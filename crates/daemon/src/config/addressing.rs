//! Checks of a host's addresses, which must go together: its own, those of its ports, its gateways.
use super::{Config, HostSection, PortKind, PortSection};
use std::collections::{BTreeSet, HashSet};
use wire::{IpAddress, Prefix};

/// Bits of a network that has neither a network address nor a broadcast address (RFC 3021), at least.
const POINT_TO_POINT: u8 = 31;
/// The same of IPv6 (RFC 6164).
const POINT_TO_POINT_V6: u8 = 127;

/// A sentence about the first address of a host that cannot work.
pub(super) fn check(host: &HostSection) -> Result<(), String> {
    from_router(host)?;
    let networks: Vec<(IpAddress, Prefix)> = host.ports.iter().flat_map(|port| of_port(host, port)).collect();
    networks.iter().try_for_each(|(address, network)| is_of_a_host(*address, *network))?;
    for port in &host.ports {
        kernel_side(port, &of_port(host, port), host.stack.ipv6.auto)?;
    }
    let stack = &host.stack;
    let of_routes = stack.routes.iter().filter_map(|route| route.gateway.as_ref());
    let mut near = stack.ipv6.gateway.iter().chain(of_routes.clone()).filter(|gateway| gateway.is_link_local());
    let shares =
        |port: &PortSection| port.kind == PortKind::Afxdp && port.mac.is_none() && port.exclusive != Some(true);
    if let Some(gateway) = near.next().filter(|_| host.ports.iter().any(shares)) {
        return Err(format!(
            "the gateway {gateway} answers to the link-local address, which the host has in common with the kernel on \
             an AF_XDP port: give the port a `mac` of its own, or `exclusive = true`"
        ));
    }
    // A link-local gateway is a neighbour on its port.
    let gateways = stack.gateway.iter().chain(&stack.ipv6.gateway).chain(of_routes).filter(|ip| !ip.is_link_local());
    for gateway in gateways {
        if !networks.iter().any(|(_, network)| network.contains(*gateway)) {
            let of_family = networks.iter().filter(|(address, _)| address.is_v4() == gateway.is_v4());
            let networks: Vec<String> = of_family.map(|(_, network)| network.to_string()).collect();
            return Err(format!(
                "no port reaches the gateway {gateway}: a gateway must be in a network of the host's, {}",
                networks.join(" or ")
            ));
        }
    }
    Ok(())
}

/// The address comes from a router, and so nowhere else; the host receives router advertisements on its first port.
fn from_router(host: &HostSection) -> Result<(), String> {
    let ipv6 = &host.stack.ipv6;
    if !ipv6.auto {
        return Ok(());
    }
    if ipv6.address.is_some() || ipv6.gateway.is_some() {
        return Err("ipv6.auto takes address and gateway from a router: leave ipv6.address and ipv6.gateway out".into());
    }
    match host.ports.first() {
        Some(port) if port.kind == PortKind::Tap => Ok(()),
        Some(port) if port.kind == PortKind::Afxdp && port.exclusive == Some(true) => Ok(()),
        _ => Err("ipv6.auto needs a first port that routers reach: of kind tap, or afxdp with exclusive = true".into()),
    }
}

/// The host's addresses on all its ports, each once.
pub(crate) fn addresses(host: &HostSection) -> Vec<IpAddress> {
    let all: BTreeSet<IpAddress> = host.ports.iter().flat_map(|port| of_port(host, port)).map(|(own, _)| own).collect();
    all.into_iter().collect()
}

/// The host's addresses on a port, and the networks there.
fn of_port(host: &HostSection, port: &PortSection) -> Vec<(IpAddress, Prefix)> {
    let stack = &host.stack;
    let v4 = port.network().unwrap_or((stack.address, stack.prefix_len));
    let v6 = port.network6().or(stack.ipv6.address.map(|address| (address, stack.ipv6.prefix_len)));
    [v4].into_iter().chain(v6).map(|(address, bits)| (address, Prefix::new(address, bits))).collect()
}

/// RFC 1122 section 3.2.1.3: neither the network's own number nor its broadcast address is a host. With IPv6, the
/// number is that of all its routers (RFC 4291 section 2.6.1), and there is no broadcast.
fn is_of_a_host(address: IpAddress, network: Prefix) -> Result<(), String> {
    if !address.is_v4() {
        let is_number = address == network.network() && network.bits() < POINT_TO_POINT_V6;
        return match is_number {
            true => Err(format!("{address} is the number of the network {network}, no address of a host")),
            false => Ok(()),
        };
    }
    if network.bits() >= POINT_TO_POINT {
        return Ok(());
    }
    let hosts = (1u128 << (address.width() - network.bits())) - 1;
    match address.to_bits() & hosts {
        0 => Err(format!("{address} is the number of the network {network}, no address of a host")),
        part if part == hosts => Err(format!("{address} is the broadcast address of {network}, no address of a host")),
        _ => Ok(()),
    }
}

/// The kernel's side of a TAP device is another host of the same network.
fn kernel_side(port: &PortSection, own: &[(IpAddress, Prefix)], auto: bool) -> Result<(), String> {
    for (kernel, bits) in port.kernel_addresses()? {
        let key = if kernel.is_v4() { "kernel_address" } else { "kernel_address6" };
        if auto && !kernel.is_v4() {
            continue;
        }
        let Some((address, network)) = own.iter().find(|(address, _)| address.is_v4() == kernel.is_v4()) else {
            return Err(format!("{key} is {kernel}, and the host has no address of IPv6: give it an `ipv6.address`"));
        };
        if kernel == *address {
            return Err(format!("{key} is {kernel}, the host's own address: the kernel's side needs another one"));
        }
        if !network.contains(kernel) {
            return Err(format!("{key} is {kernel}, which is outside the host's network {network}"));
        }
        is_of_a_host(kernel, Prefix::new(kernel, bits))?;
    }
    Ok(())
}

/// Two hosts of one fabric cannot have one address, nor one of them and the kernel at an uplink.
pub(super) fn unique(config: &Config) -> Result<(), String> {
    let mut seen = HashSet::new();
    for host in &config.hosts {
        for port in host.ports.iter().filter(|port| port.kind == PortKind::Fabric) {
            let fabric = port.fabric.as_deref().or(config.fabrics.first().map(|fabric| fabric.name.as_str()));
            let v6 = port.ipv6.map(|ipv6| ipv6.address).or(host.stack.ipv6.address);
            for address in [port.address.unwrap_or(host.stack.address)].into_iter().chain(v6) {
                if !seen.insert((fabric, address)) {
                    let name = &host.stack.name;
                    return Err(format!("host {name}: another member of its fabric has the address {address}"));
                }
            }
        }
    }
    for fabric in &config.fabrics {
        for uplink in &fabric.uplinks {
            let mut kernel = uplink.kernel_addresses()?.into_iter().map(|(address, _)| address);
            if let Some(address) = kernel.find(|address| seen.contains(&(Some(fabric.name.as_str()), *address))) {
                return Err(format!(
                    "fabric {}: uplink: the kernel's side is {address}, which is a host's: it needs another one",
                    fabric.name
                ));
            }
        }
    }
    Ok(())
}
