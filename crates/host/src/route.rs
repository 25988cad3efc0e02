//! Routes: which next hop a destination is reached through.
use crate::link::Link;
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
    /// The host's port that it is reached by, counted from 0. Where it is not said: the port with the gateway's
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

/// Which next hop a destination is reached through.
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
    /// The routes of a host: the networks of its ports, those configured, the gateway for the rest.
    pub fn new(links: &[Link], gateway: Option<IpAddress>, more: &[RouteConfig]) -> RouteTable {
        let network = |link: &Link| Prefix::new(link.address, link.prefix_len);
        // Of ports that share an address, the first one leads to its network.
        let first = |(port, link): &(usize, &Link)| links[..*port].iter().all(|other| other.address != link.address);
        let networks = links.iter().enumerate().filter(first);
        let mut routes: Vec<Route> =
            networks.map(|(port, link)| Route { prefix: network(link), gateway: None, port }).collect();
        let behind = |gateway: IpAddress| links.iter().position(|link| network(link).contains(gateway));
        routes.extend(more.iter().map(|route| Route {
            prefix: Prefix::new(route.network, route.prefix_len),
            gateway: route.gateway,
            port: route.port.or_else(|| behind(route.gateway?)).unwrap_or(0),
        }));
        routes.extend(gateway.map(|ip| Route {
            prefix: Prefix::new(ip.any(), 0),
            gateway,
            port: behind(ip).unwrap_or(0),
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
        Link { mac: wire::Mac::default(), address: ip(address), prefix_len: 24, caps }
    }

    fn route(network: &str, gateway: Option<&str>, port: Option<usize>) -> RouteConfig {
        RouteConfig { network: ip(network), prefix_len: 16, gateway: gateway.map(ip), port }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let (gate, other) = (ip("10.0.0.1"), ip("10.0.0.9"));
        let more = [route("192.168.3.7", Some("10.0.0.9"), None)];
        let routes = RouteTable::new(&[link("10.0.0.2")], Some(gate), &more);
        let near = ip("10.0.0.77");
        assert_eq!(routes.next_hop(near), Some(near));
        assert_eq!(routes.next_hop(ip("192.168.200.1")), Some(other));
        assert_eq!(routes.next_hop(ip("8.8.8.8")), Some(gate));
        assert_eq!(routes.next_hop(ip("2001:db8::1")), None, "a gateway is one of its own family");
        let listed: Vec<String> = routes.list().iter().map(Prefix::to_string).collect();
        assert_eq!(listed, ["10.0.0.0/24", "192.168.0.0/16", "0.0.0.0/0"]);
        let alone = RouteTable::new(&[link("10.0.0.2")], None, &[]);
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
        let routes = RouteTable::new(&links, Some(ip("10.1.0.254")), &more);
        let port = |to: &str| routes.hop(ip(to)).expect("a route").port;
        assert_eq!(
            ["10.0.0.9", "10.1.0.9", "172.16.1.1", "172.17.1.1", "172.18.1.1", "8.8.8.8"].map(port),
            [0, 1, 1, 1, 0, 1]
        );
    }
}
