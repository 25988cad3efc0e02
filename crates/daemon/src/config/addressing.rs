//! That the addresses of a host can be used together: its own, those of its ports, its gateways.
use super::{Config, HostSection, PortKind, PortSection};
use std::collections::HashSet;
use wire::{IpAddress, Prefix};

/// Bits of a network that has neither a network address nor a broadcast address (RFC 3021), at least.
const POINT_TO_POINT: u8 = 31;

/// A sentence about the first address of a host that cannot work.
pub(super) fn check(host: &HostSection) -> Result<(), String> {
    let networks: Vec<(IpAddress, Prefix)> = host.ports.iter().map(|port| of_port(host, port)).collect();
    networks.iter().try_for_each(|(address, network)| is_of_a_host(*address, *network))?;
    for port in &host.ports {
        let (own, network) = of_port(host, port);
        kernel_side(port, own, network)?;
    }
    let stack = &host.stack;
    let gateways = stack.gateway.iter().chain(stack.routes.iter().filter_map(|route| route.gateway.as_ref()));
    for gateway in gateways {
        if !networks.iter().any(|(_, network)| network.contains(*gateway)) {
            let networks: Vec<String> = networks.iter().map(|(_, network)| network.to_string()).collect();
            return Err(format!(
                "no port reaches the gateway {gateway}: a gateway must be in a network of the host's, {}",
                networks.join(" or ")
            ));
        }
    }
    Ok(())
}

/// The host's address on a port, and the network there.
fn of_port(host: &HostSection, port: &PortSection) -> (IpAddress, Prefix) {
    let (address, bits) = port.network().unwrap_or((host.stack.address, host.stack.prefix_len));
    (address, Prefix::new(address, bits))
}

/// RFC 1122 section 3.2.1.3: neither the network's own number nor its broadcast address is a host.
fn is_of_a_host(address: IpAddress, network: Prefix) -> Result<(), String> {
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
fn kernel_side(port: &PortSection, own: IpAddress, network: Prefix) -> Result<(), String> {
    let Some((kernel, bits)) = port.kernel_address()? else { return Ok(()) };
    let kernel = IpAddress::from(kernel);
    if kernel == own {
        return Err(format!("kernel_address is {kernel}, the host's own address: the kernel's side needs another one"));
    }
    if !network.contains(kernel) {
        return Err(format!("kernel_address is {kernel}, which is outside the host's network {network}"));
    }
    is_of_a_host(kernel, Prefix::new(kernel, bits))
}

/// Two hosts of one fabric cannot have one address.
pub(super) fn unique(config: &Config) -> Result<(), String> {
    let mut seen = HashSet::new();
    for host in &config.hosts {
        for port in host.ports.iter().filter(|port| port.kind == PortKind::Fabric) {
            let fabric = port.fabric.as_deref().or(config.fabrics.first().map(|fabric| fabric.name.as_str()));
            let address = port.address.unwrap_or(host.stack.address);
            if !seen.insert((fabric, address)) {
                let name = &host.stack.name;
                return Err(format!("host {name}: another member of its fabric has the address {address}"));
            }
        }
    }
    Ok(())
}
