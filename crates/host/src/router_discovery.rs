//! Router discovery after the start (docs/IPV6.md, "From a router"): advertisements, lifetimes that end, and a default
//! router that does not answer change the route to all that no other route covers.
use crate::autoconf::Found;
use crate::net::{Neighbour, Net, Received};
use crate::packet::{Ip, zone_of};
use crate::routers::{PORT, Routers};
use engine::Nanos;
use wire::IpAddress;
use wire::icmpv6::NEIGHBOUR_HOPS;
use wire::ip::Ends;
use wire::router::{self, RouterAdvertisement};

/// The key of the routers' timer: a group is no neighbour.
fn timer() -> IpAddress {
    IpAddress::v6(router::ROUTERS, zone_of(PORT))
}

impl Net {
    /// The host's address came from a router: what routers advertise from now on is followed.
    pub fn follow_routers(&mut self, now: Nanos, found: &Found) {
        self.routers = Some(Box::new(Routers::new(now, found)));
        self.set_router_timer();
    }

    /// The default router of IPv6 that is in use, of those that routers advertised.
    pub fn default_router(&self) -> Option<IpAddress> {
        self.routers.as_ref()?.default_router()
    }

    /// A router's advertisement. `None` where it is none of a neighbour's, or the host follows no routers.
    pub(crate) fn on_router_advertisement(&mut self, now: Nanos, ip: &Ip, body: &[u8]) -> Option<Received> {
        let (from, ends) = (ip.header.src, Ends { src: ip.header.src, dst: ip.header.dst });
        let is_sound = ip.port == PORT && ip.header.hop_limit == NEIGHBOUR_HOPS && from.is_link_local();
        if !is_sound || self.routers.is_none() || self.is_own(from) {
            return None;
        }
        let advertisement = RouterAdvertisement::parse(body, ends).ok()??;
        let before = self.default_router();
        let routers = self.routers.as_deref_mut()?;
        routers.on_router(now, from, advertisement.lifetime_s);
        routers.on_prefixes(now, &advertisement);
        self.set_router_timer();
        let mac = advertisement.source.filter(|mac| !mac.is_group() && !self.is_own_mac(*mac));
        // A router is a neighbour that answers, as soon as it names its hardware address (RFC 4861 section 6.3.4).
        let learned = mac.map_or(Received::Done, |mac| self.learn(now, PORT, from, mac, true));
        Some(self.rerouted(now, before).map_or(learned, Received::Neighbour))
    }

    /// The timer fired: lifetimes may be over. `None` where it is another thing's timer.
    pub(crate) fn routers_due(&mut self, now: Nanos, key: IpAddress) -> Option<Option<Neighbour>> {
        if key != timer() {
            return None;
        }
        let before = self.default_router();
        self.routers.as_deref_mut()?.expire(now);
        self.set_router_timer();
        Some(self.rerouted(now, before))
    }

    /// A neighbour does not answer, which may be the default router: another one takes its place.
    pub(crate) fn pass_over_router(&mut self, now: Nanos, ip: IpAddress) -> Option<Neighbour> {
        let passed = self.routers.as_deref_mut()?.pass_over(ip);
        if passed { self.rerouted(now, Some(ip)) } else { None }
    }

    /// Packets go through another router from now on, whose hardware address is asked for where it is not known.
    fn rerouted(&mut self, now: Nanos, before: Option<IpAddress>) -> Option<Neighbour> {
        let ip = self.default_router().filter(|ip| before != Some(*ip))?;
        self.resolve(now, ip).map(|mac| Neighbour { ip, mac: Some(mac) })
    }

    fn set_router_timer(&mut self) {
        match self.routers.as_ref().and_then(|routers| routers.next_due()) {
            Some(due) => self.timers.set(timer(), due),
            None => self.timers.cancel(timer()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autoconf::{PREFIX_BITS, SECOND};
    use crate::link::{AddressV6, Link};
    use crate::neighbours::{NeighbourTable, NeighbourTiming};
    use crate::net::{Flushed, NetConfig};
    use crate::packet::Packet;
    use crate::route::RouteTable;
    use crate::routers::{INFINITE_S, MOST_ROUTERS, TWO_HOURS};
    use engine::{DropCounts, DropReason};
    use port::{Capabilities, Frame, FramePool};
    use std::net::Ipv4Addr;
    use wire::router::PrefixInformation;
    use wire::{EtherType, Mac, ethernet, ip, ipv6};

    const MS: Nanos = 1_000_000;
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
    const PREFIX: &str = "2001:db8:7::";
    const FAR: &str = "2001:db8:99::1";

    fn address(text: &str) -> IpAddress {
        text.parse().unwrap()
    }

    /// Router number `at`.
    fn router(at: u8) -> (IpAddress, Mac) {
        (address(&format!("fe80::{at}")), Mac([2, 0, 0, 0, 1, at]))
    }

    /// What an advertisement has.
    #[derive(Clone, Copy)]
    struct Shape {
        lifetime_s: u16,
        valid_s: u32,
        hops: u8,
        src: &'static str,
    }

    const SOUND: Shape = Shape { lifetime_s: 1800, valid_s: INFINITE_S, hops: NEIGHBOUR_HOPS, src: "" };

    /// An advertisement of router `at`, with its hardware address and the prefix.
    fn advertisement(at: u8, shape: Shape) -> Frame {
        let Shape { lifetime_s, valid_s, hops, src } = shape;
        let (own, mac) = router(at);
        let ends = Ends { src: if src.is_empty() { own } else { address(src) }, dst: address("ff02::1") };
        let (prefix, len, preferred_s) = (PREFIX.parse().unwrap(), PREFIX_BITS, 0);
        let prefix = PrefixInformation { prefix, len, on_link: true, autonomous: true, valid_s, preferred_s };
        let advertised = RouterAdvertisement { lifetime_s, source: Some(mac), mtu: None, prefixes: vec![prefix] };
        let body = advertised.to_bytes(ends);
        let at = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
        let mut bytes = vec![0; at + body.len()];
        let dst = ends.dst.group_station();
        ethernet::Header { dst, src: mac, ethertype: EtherType::Ipv6 }.emit(&mut bytes);
        ip::emit(ipv6::ICMP, ends, hops, &mut bytes[ethernet::HEADER_LEN..]);
        bytes[at..].copy_from_slice(&body);
        let mut frame = Frame::default();
        frame.bytes_vec().extend(bytes);
        frame
    }

    /// The same, to this host's station alone. The packet's group is that of all nodes.
    fn to_this_host(mut frame: Frame) -> Frame {
        frame.bytes_vec()[..6].copy_from_slice(&MAC.0);
        frame
    }

    struct Network {
        net: Net,
        pool: FramePool,
    }

    impl Network {
        /// A host that begins with router 1, at time 0.
        fn new() -> Network {
            let own = address("2001:db8:7::ff:fe00:7");
            let v6 = Some(AddressV6 { address: own, prefix_len: PREFIX_BITS });
            let ip = Ipv4Addr::new(10, 0, 0, 2).into();
            let caps = Capabilities { mtu: 1500, super_segment: 0, checksum: false };
            let link = Link { mac: MAC, address: ip, prefix_len: 24, v6, caps };
            let mut net = Net::new(NetConfig {
                routes: Box::new(RouteTable::new(&[link], &[], &[])),
                links: vec![link],
                neighbours: Box::new(NeighbourTable::new(
                    16,
                    NeighbourTiming { reachable: 1000 * MS, retry: 100 * MS, tries: 3 },
                )),
                icmp_per_s: 100,
            });
            let (lifetime_s, valid_s) = (60, INFINITE_S);
            let router = Some(router(1).0);
            let found = Found { address: own, prefix_len: PREFIX_BITS, router, lifetime_s, valid_s, mtu: None };
            net.follow_routers(0, &found);
            Network { net, pool: FramePool::new(64) }
        }

        fn receive(&mut self, now: Nanos, at: u8, shape: Shape) -> Option<Neighbour> {
            match self.net.receive(now, &mut advertisement(at, shape), &mut DropCounts::default()) {
                Received::Neighbour(neighbour) => Some(neighbour),
                _ => None,
            }
        }

        /// How often a frame counts as dropped.
        fn dropped(&mut self, mut frame: Frame) -> u64 {
            let mut drops = DropCounts::default();
            self.net.receive(2 * MS, &mut frame, &mut drops);
            drops.iter().map(|(_, count)| count).sum()
        }

        /// Timers fire until `now`. Returns the last router that packets go through from then on.
        fn pass(&mut self, now: Nanos) -> Option<Neighbour> {
            let mut drops = DropCounts::default();
            let expired = std::iter::from_fn(|| self.net.expire(now, &mut drops));
            expired.filter_map(|expired| expired.router).last()
        }

        /// The station that a packet to somewhere far leaves for; why it does not leave.
        fn far(&mut self, now: Nanos) -> Result<Mac, Option<DropReason>> {
            let mut drops = DropCounts::default();
            self.flush();
            self.net.send(now, Packet::new(address(FAR), 17, vec![0; 8]), &mut drops);
            let sent = self.flush();
            let to_far = |frame: &&Frame| frame.bytes()[20] == 17;
            let dst = |frame: &Frame| ethernet::Header::parse(frame.bytes()).unwrap().dst;
            sent.iter().map(|frame| &**frame).find(to_far).map(dst).ok_or(drops.iter().next().map(|(reason, _)| reason))
        }

        fn flush(&mut self) -> Vec<Box<Frame>> {
            let (mut tx, mut looped) = (Vec::new(), Vec::new());
            let mut out = Flushed { tx: &mut tx, looped: &mut looped };
            self.net.flush(&mut self.pool, &mut DropCounts::default(), &mut out);
            tx
        }
    }

    // Checks RFC 4861: 6.3.4-b, 6.3.5-a.
    #[test]
    fn a_router_is_used_until_it_resigns_or_its_lifetime_ends() {
        let (one, two) = (router(1).1, router(2).1);
        let mut network = Network::new();
        assert_eq!(network.receive(MS, 1, SOUND), Some(Neighbour { ip: router(1).0.in_zone(1), mac: Some(one) }));
        assert_eq!(network.far(MS), Ok(one));
        network.receive(2 * MS, 2, Shape { lifetime_s: 100, ..SOUND });
        assert_eq!(network.far(2 * MS), Ok(one), "the first one stays");
        let instead = Some(Neighbour { ip: router(2).0.in_zone(1), mac: Some(two) });
        assert_eq!(network.receive(3 * MS, 1, Shape { lifetime_s: 0, ..SOUND }), instead, "flows change over");
        assert_eq!((network.far(3 * MS), network.net.default_router()), (Ok(two), Some(router(2).0.in_zone(1))));
        assert_eq!(network.pass(99 * SECOND), None);
        assert!(network.net.default_router().is_some());
        network.pass(101 * SECOND);
        assert_eq!(network.far(101 * SECOND), Err(Some(DropReason::NoRoute)));
        assert_eq!(network.receive(102 * SECOND, 1, SOUND).and_then(|neighbour| neighbour.mac), Some(one));
        assert_eq!(network.far(102 * SECOND), Ok(one), "it is back");
    }

    // Checks RFC 4861: 6.3.6-a.
    #[test]
    fn a_router_that_does_not_answer_makes_room_for_the_next_one() {
        let mut network = Network::new();
        network.receive(MS, 1, SOUND);
        network.receive(MS, 2, SOUND);
        // Both have not answered for a while, and router 1 is asked for.
        let mut now = 2 * SECOND;
        assert_eq!(network.far(now), Ok(router(1).1));
        network.receive(now, 2, SOUND);
        let mut rerouted = None;
        while rerouted.is_none() && now < 4 * SECOND {
            now += 100 * MS;
            rerouted = network.pass(now);
        }
        assert_eq!(rerouted.and_then(|neighbour| neighbour.mac), Some(router(2).1));
        assert_eq!(network.far(now), Ok(router(2).1));
    }

    // Checks RFC 4861: 6.1.2-a.
    #[test]
    fn what_is_no_advertisement_of_a_neighbour_changes_nothing() {
        let mut network = Network::new();
        network.receive(MS, 1, SOUND);
        let end = Shape { lifetime_s: 0, ..SOUND };
        for shape in [Shape { hops: 254, ..end }, Shape { src: "2001:db8:7::1", ..end }] {
            assert_eq!(network.receive(2 * MS, 1, shape), None);
            assert_eq!(network.dropped(advertisement(1, shape)), 0, "others of the link may take it");
            assert_eq!(network.dropped(to_this_host(advertisement(1, shape))), 1);
            assert_eq!(network.far(2 * MS), Ok(router(1).1));
        }
        network.net.routers = None;
        assert_eq!(network.receive(3 * MS, 2, SOUND), None, "a configured host has its gateway");
        assert_eq!(network.dropped(to_this_host(advertisement(2, SOUND))), 1);
        let most = (0..3 * MOST_ROUTERS as u8).map(|at| at + 10);
        let mut full = Network::new();
        for at in most {
            full.receive(MS, at, SOUND);
        }
        assert_eq!(full.net.routers.as_ref().unwrap().len(), MOST_ROUTERS);
    }

    // Checks RFC 4862: 5.5.3-b, 5.5.4-a.
    #[test]
    fn the_address_lives_as_long_as_its_prefix() {
        let mut network = Network::new();
        let valid_for = |valid_s| Shape { lifetime_s: u16::MAX, valid_s, ..SOUND };
        let until = |network: &Network| network.net.routers.as_ref().unwrap().valid_until();
        network.receive(MS, 1, valid_for(20_000));
        assert_eq!(until(&network), MS + 20_000 * SECOND);
        network.receive(MS, 1, valid_for(60));
        assert_eq!(until(&network), MS + TWO_HOURS, "nobody ends it at once");
        network.receive(SECOND, 1, valid_for(60));
        assert_eq!(until(&network), MS + TWO_HOURS);
        network.pass(MS + TWO_HOURS);
        let after = MS + TWO_HOURS;
        assert_eq!(
            (network.far(after), network.net.hop(address("2001:db8:7::9"))),
            (Err(Some(DropReason::NoRoute)), None)
        );
        assert_eq!(network.net.hop(Ipv4Addr::new(10, 0, 0, 9).into()), Some(Ipv4Addr::new(10, 0, 0, 9).into()));
        network.receive(after + SECOND, 1, valid_for(600));
        assert_eq!(network.far(after + SECOND), Ok(router(1).1), "the router has it again");
    }
}
