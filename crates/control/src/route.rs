//! Routes: which next hop a destination is reached through.
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// A route of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Network.
    pub network: Ipv4Addr,
    /// Bits of the network part.
    pub prefix_len: u8,
    /// Next hop; none where the network is on the link.
    #[serde(default)]
    pub gateway: Option<Ipv4Addr>,
}

/// The routing table: longest prefix first.
pub(crate) struct Routes(Vec<RouteConfig>);

impl Routes {
    /// The routes of a host: its own network, those configured, the gateway for the rest.
    pub fn new(address: Ipv4Addr, prefix_len: u8, gateway: Option<Ipv4Addr>, more: &[RouteConfig]) -> Routes {
        let mut routes = vec![RouteConfig { network: network(address, prefix_len), prefix_len, gateway: None }];
        routes.extend(
            more.iter().map(|route| RouteConfig { network: network(route.network, route.prefix_len), ..*route }),
        );
        if gateway.is_some() {
            routes.push(RouteConfig { network: Ipv4Addr::UNSPECIFIED, prefix_len: 0, gateway });
        }
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix_len));
        Routes(routes)
    }

    /// The next hop towards `to`; `None` where there is no route.
    pub fn next_hop(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let route = self.0.iter().find(|route| network(to, route.prefix_len) == route.network)?;
        Some(route.gateway.unwrap_or(to))
    }

    /// Networks and prefix lengths that are reached.
    pub fn list(&self) -> Vec<(Ipv4Addr, u8)> {
        self.0.iter().map(|route| (route.network, route.prefix_len)).collect()
    }
}

/// The network part of an address.
pub(crate) fn network(address: Ipv4Addr, prefix_len: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - prefix_len.min(32) as u32).unwrap_or(0);
    Ipv4Addr::from(u32::from(address) & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_wins() {
        let (gate, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 9));
        let more = [RouteConfig { network: Ipv4Addr::new(192, 168, 3, 7), prefix_len: 16, gateway: Some(other) }];
        let routes = Routes::new(Ipv4Addr::new(10, 0, 0, 2), 24, Some(gate), &more);
        let near = Ipv4Addr::new(10, 0, 0, 77);
        assert_eq!(routes.next_hop(near), Some(near));
        assert_eq!(routes.next_hop(Ipv4Addr::new(192, 168, 200, 1)), Some(other));
        assert_eq!(routes.next_hop(Ipv4Addr::new(8, 8, 8, 8)), Some(gate));
        let alone = Routes::new(Ipv4Addr::new(10, 0, 0, 2), 24, None, &[]);
        assert_eq!(alone.next_hop(Ipv4Addr::new(8, 8, 8, 8)), None);
    }
}
