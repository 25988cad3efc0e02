//! Routes: which next hop a destination is reached through.
use crate::link::Link;
use crate::packet::zone_of;
use serde::{Deserialize, Serialize};
use wire::{IpAddress, Prefix};

/// A route of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Network.
    pub network: IpAddress,
    /// Bits of the network part.
    pub prefix_len: u8,
    /// Next hop; none where the network is on the link.
    #[serde(default)]
    pub gateway: Option<IpAddress>,
    /// The host's port that it is reached by, counted from 0. By default: the port with the gateway's
    /// network, or the first.
    #[serde(default)]
    pub port: Option<usize>,
}

/// A next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// Its address: the destination itself where that is a neighbour.
    pub ip: IpAddress,
    /// The host's port that leads there.
    pub port: usize,
}

/// Routing table: the next hop for a destination.
pub trait Routes: Send {
    /// The next hop towards `to`; `None` where there is no route.
    fn hop(&self, to: IpAddress) -> Option<Hop>;
    /// Its address.
    fn next_hop(&self, to: IpAddress) -> Option<IpAddress> {
        self.hop(to).map(|hop| hop.ip)
    }
    /// Destinations that are reached.
    fn list(&self) -> Vec<Prefix>;
}

/// The routes of the configuration: longest prefix first.
pub struct RouteTable(Vec<Route>);

struct Route {
    prefix: Prefix,
    /// None where the network is on the link.
    gateway: Option<IpAddress>,
    port: usize,
}

impl RouteTable {
    /// The routes of a host: the networks of its ports, those configured, the gateways of each family for the rest. A
    /// link-local gateway is a neighbour on the first port.
    pub fn new(links: &[Link], gateways: &[Option<IpAddress>], more: &[RouteConfig]) -> RouteTable {
        let networks =
            |link: &Link| link.addresses().map(|(address, prefix_len)| (address, Prefix::new(address, prefix_len)));
        let mut routes: Vec<Route> = Vec::new();
        for (port, (address, prefix)) in
            links.iter().enumerate().flat_map(|(port, link)| networks(link).map(move |network| (port, network)))
        {
            // Of ports that share an address, the first one leads to its network.
            let mut before = links[..port].iter().flat_map(|link| link.addresses());
            if before.all(|(other, _)| other != address) {
                routes.push(Route { prefix, gateway: None, port });
            }
        }
        let contains = |link: &Link, gateway| networks(link).any(|(_, network)| network.contains(gateway));
        let behind = |gateway: IpAddress| links.iter().position(|link| contains(link, gateway));
        routes.extend(more.iter().map(|route| Route {
            prefix: Prefix::new(route.network, route.prefix_len),
            gateway: route.gateway.map(|gateway| gateway.in_zone(zone_of(route.port.unwrap_or(0)))),
            port: route.port.or_else(|| behind(route.gateway?)).unwrap_or(0),
        }));
        routes.extend(gateways.iter().flatten().map(|ip| Route {
            prefix: Prefix::new(ip.any(), 0),
            gateway: Some(ip.in_zone(zone_of(0))),
            port: behind(*ip).unwrap_or(0),
        }));
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.bits()));
        RouteTable(routes)
    }
}

impl Routes for RouteTable {
    fn hop(&self, to: IpAddress) -> Option<Hop> {
        let route = self.0.iter().find(|route| route.prefix.contains(to))?;
        Some(Hop { ip: route.gateway.unwrap_or(to), port: route.port })
    }

    fn list(&self) -> Vec<Prefix> {
        self.0.iter().map(|route| route.prefix).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddress {
        text.parse().expect("an address")
    }

    fn link(address: &str) -> Link {
        let caps = port::Capabilities { mtu: 1500, super_segment: 0, checksum: false };
        Link { mac: wire::Mac::default(), address: ip(address), prefix_len: 24, v6: None, caps }
    }

    fn route(network: &str, gateway: Option<&str>, port: Option<usize>) -> RouteConfig {
        RouteConfig { network: ip(network), prefix_len: 16, gateway: gateway.map(ip), port }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let (gate, other) = (ip("10.0.0.1"), ip("10.0.0.9"));
        let more = [route("192.168.3.7", Some("10.0.0.9"), None)];
        let routes = RouteTable::new(&[link("10.0.0.2")], &[Some(gate)], &more);
        let near = ip("10.0.0.77");
        assert_eq!(routes.next_hop(near), Some(near));
        assert_eq!(routes.next_hop(ip("192.168.200.1")), Some(other));
        assert_eq!(routes.next_hop(ip("8.8.8.8")), Some(gate));
        assert_eq!(routes.next_hop(ip("2001:db8::1")), None, "a gateway is one of its own family");
        let listed: Vec<String> = routes.list().iter().map(Prefix::to_string).collect();
        assert_eq!(listed, ["10.0.0.0/24", "192.168.0.0/16", "0.0.0.0/0"]);
        let alone = RouteTable::new(&[link("10.0.0.2")], &[], &[]);
        assert_eq!(alone.next_hop(ip("8.8.8.8")), None);
    }

    #[test]
    fn a_route_leads_to_the_port_with_its_next_hop() {
        let links = [link("10.0.0.2"), link("10.1.0.2")];
        let more = [
            route("172.16.0.0", Some("10.1.0.1"), None),
            route("172.17.0.0", None, Some(1)),
            route("172.18.0.0", None, None),
        ];
        let routes = RouteTable::new(&links, &[Some(ip("10.1.0.254"))], &more);
        let port = |to: &str| routes.hop(ip(to)).expect("a route").port;
        assert_eq!(
            ["10.0.0.9", "10.1.0.9", "172.16.1.1", "172.17.1.1", "172.18.1.1", "8.8.8.8"].map(port),
            [0, 1, 1, 1, 0, 1]
        );
    }

    #[test]
    fn each_family_has_routes_of_its_own() {
        let v6 = |address: &str| Some(crate::AddressV6 { address: ip(address), prefix_len: 64 });
        let links =
            [Link { v6: v6("2001:db8::2"), ..link("10.0.0.2") }, Link { v6: v6("2001:db8:1::2"), ..link("10.1.0.2") }];
        let more = [route("2a01::", Some("2001:db8:1::1"), None), route("2a02::", Some("fe80::9"), Some(1))];
        let routes = RouteTable::new(&links, &[Some(ip("10.0.0.1")), Some(ip("fe80::1"))], &more);
        for (to, hop, port) in [
            ("2001:db8::77", "2001:db8::77", 0),
            ("2001:db8:1::77", "2001:db8:1::77", 1),
            ("2a01:1::1", "2001:db8:1::1", 1),
            ("2a02:1::1", "fe80::9%2", 1),
            ("2a00::1", "fe80::1%1", 0),
            ("10.1.0.7", "10.1.0.7", 1),
            ("8.8.8.8", "10.0.0.1", 0),
        ] {
            assert_eq!(routes.hop(ip(to)), Some(Hop { ip: ip(hop), port }), "{to}");
        }
    }
}
