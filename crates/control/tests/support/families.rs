//! Hosts of both families, and listeners of theirs.
use super::{App, Net, config};
use context::{Endpoint, Reply, Request};
use control::{HostConfig, Ipv6Config};
use std::net::Ipv6Addr;
use wire::IpAddress;

pub(crate) const ANY: IpAddress = IpAddress::v6(Ipv6Addr::UNSPECIFIED, 0);

pub(crate) fn v6_of(node: usize) -> IpAddress {
    format!("2001:db8::{}", node + 1).parse().unwrap()
}

pub(crate) fn v6_config(node: usize) -> HostConfig {
    HostConfig { ipv6: Ipv6Config { address: Some(v6_of(node)), ..Ipv6Config::default() }, ..config(node) }
}

/// A listener at port 80 of the unspecified IPv6 address.
pub(crate) fn listen(net: &mut Net, app: &mut App, dual_stack: bool) -> u32 {
    let (tag, local) = (app.next_tag(), Endpoint::new(ANY, 80));
    app.ask(Request::Bind { tag, local, reuse_address: true, reuse_port: false, dual_stack });
    net.settle();
    let binding = app.expect(|reply| match *reply {
        Reply::Bound { tag: of, binding, .. } if of == tag => Some(binding),
        _ => None,
    });
    app.listen(net, binding, 16).unwrap();
    app.arm(net, binding, 16);
    binding
}
