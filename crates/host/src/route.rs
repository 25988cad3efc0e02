//! Routes: which next hop a destination is reached through.
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
}

/// Which next hop a destination is reached through.
pub trait Routes: Send {
    /// The next hop towards `to`, the destination itself where it is a neighbour; `None` where there is no route.
    fn next_hop(&self, to: IpAddress) -> Option<IpAddress>;
    /// Destinations that are reached.
    fn list(&self) -> Vec<Prefix>;
}

/// The routes of the configuration: longest prefix first.
pub struct RouteTable(Vec<(Prefix, Option<IpAddress>)>);

impl RouteTable {
    /// The routes of a host: its own network, those configured, the gateway for the rest.
    pub fn new(address: IpAddress, prefix_len: u8, gateway: Option<IpAddress>, more: &[RouteConfig]) -> RouteTable {
        let mut routes = vec![(Prefix::new(address, prefix_len), None)];
        routes.extend(more.iter().map(|route| (Prefix::new(route.network, route.prefix_len), route.gateway)));
        if gateway.is_some() {
            routes.push((Prefix::new(address.any(), 0), gateway));
        }
        routes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.bits()));
        RouteTable(routes)
    }
}

impl Routes for RouteTable {
    fn next_hop(&self, to: IpAddress) -> Option<IpAddress> {
        let (_, gateway) = self.0.iter().find(|(prefix, _)| prefix.contains(to))?;
        Some(gateway.unwrap_or(to))
    }

    fn list(&self) -> Vec<Prefix> {
        self.0.iter().map(|(prefix, _)| *prefix).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let ip = |text: &str| text.parse::<IpAddress>().expect("an address");
        let (gate, other) = (ip("10.0.0.1"), ip("10.0.0.9"));
        let more = [RouteConfig { network: ip("192.168.3.7"), prefix_len: 16, gateway: Some(other) }];
        let routes = RouteTable::new(ip("10.0.0.2"), 24, Some(gate), &more);
        let near = ip("10.0.0.77");
        assert_eq!(routes.next_hop(near), Some(near));
        assert_eq!(routes.next_hop(ip("192.168.200.1")), Some(other));
        assert_eq!(routes.next_hop(ip("8.8.8.8")), Some(gate));
        assert_eq!(routes.next_hop(ip("2001:db8::1")), None, "a gateway is one of its own family");
        let listed: Vec<String> = routes.list().iter().map(Prefix::to_string).collect();
        assert_eq!(listed, ["10.0.0.0/24", "192.168.0.0/16", "0.0.0.0/0"]);
        let alone = RouteTable::new(ip("10.0.0.2"), 24, None, &[]);
        assert_eq!(alone.next_hop(ip("8.8.8.8")), None);
    }
}
