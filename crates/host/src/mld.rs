//! Multicast Listener Discovery (RFC 3810): switches that pass groups on to their members only learn here in which
//! groups a host is. They are those in which its neighbours ask for its IPv6 addresses. Without them no neighbour would
//! find it behind such a switch.
use crate::net::Net;
use crate::packet::{Ip, Packet, zone_of};
use engine::Nanos;
use std::net::Ipv6Addr;
use wire::mld::{self, Query, Report};
use wire::{IpAddress, ipv6};

const MILLISECOND: Nanos = 1_000_000;

/// Stands for a port among the timers of neighbours.
fn timer(port: usize) -> IpAddress {
    IpAddress::v6(mld::ROUTERS, zone_of(port))
}

/// The groups of a port that are reported: all stations' is not (RFC 3810 section 6).
fn groups(net: &Net, port: usize) -> Vec<Ipv6Addr> {
    let (link, zone) = (net.link(port), net.zone(port));
    let addresses = link.v6.into_iter().flat_map(|v6| [v6.address, IpAddress::link_local(link.mac, zone)]);
    let mut groups: Vec<Ipv6Addr> = addresses.map(|address| bits(address.solicited_node())).collect();
    groups.dedup();
    groups
}

fn bits(address: IpAddress) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits())
}

impl Net {
    /// The host is a member of its groups from now on.
    pub(crate) fn join_groups(&mut self) {
        for port in 0..self.links().len() {
            if self.link(port).v6.is_some() {
                self.ask_report(0, port, 0);
            }
        }
    }

    /// A report of a port is to come within so long.
    fn ask_report(&mut self, now: Nanos, port: usize, span: Nanos) {
        let mac = self.link(port).mac;
        if let Some(due) = self.memberships[port].ask(now, mac, span) {
            self.timers.set(timer(port), due);
        }
    }

    /// A query for listeners (RFC 3810 section 6.2). Only a station of the link asks.
    pub(crate) fn on_membership_query(&mut self, now: Nanos, ip: &Ip, query: &Query) {
        let port = ip.port;
        let is_near = ip.header.hop_limit == mld::HOPS && ip.header.src.is_link_local();
        if !is_near || port >= self.memberships.len() || !self.may_answer(now) {
            return;
        }
        if query.is_v1 {
            self.memberships[port].on_v1_query(now);
        }
        if query.group.is_none_or(|group| groups(self, port).contains(&group)) {
            self.ask_report(now, port, Nanos::from(query.response_ms) * MILLISECOND);
        }
    }

    /// The timer fired: a report is due. False where it is another thing's.
    pub(crate) fn membership_due(&mut self, now: Nanos, key: IpAddress) -> bool {
        let port = (key.zone() as usize).wrapping_sub(1);
        if port >= self.memberships.len() || key != timer(port) {
            return false;
        }
        let mac = self.link(port).mac;
        let (is_change, next) = self.memberships[port].take(now, mac);
        next.into_iter().for_each(|due| self.timers.set(key, due));
        let is_v1 = self.memberships[port].is_v1(now);
        self.report(port, if is_change { Report::Joined } else { Report::Member }, is_v1);
        true
    }

    fn report(&mut self, port: usize, report: Report, is_v1: bool) {
        let (link, zone) = (self.link(port), self.zone(port));
        let src = IpAddress::link_local(link.mac, zone);
        let put = |net: &mut Net, dst: Ipv6Addr, body: Vec<u8>| {
            let dst = IpAddress::v6(dst, zone);
            let packet = Packet::new(dst, ipv6::HOP_BY_HOP, body).with_source(src).with_hops(mld::HOPS);
            net.put_packet(port, dst.group_station(), packet);
        };
        let groups = groups(self, port);
        match is_v1 {
            true => groups.into_iter().for_each(|group| put(self, group, mld::report_v1(bits(src), group))),
            false => put(self, mld::ROUTERS, mld::report(bits(src), report, &groups)),
        }
    }
}
