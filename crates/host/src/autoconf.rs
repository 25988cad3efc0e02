//! Autoconfiguration of a host's IPv6 address, once, at the start (docs/IPV6.md, "From a router"). Its steps are
//! duplicate address detection (RFC 4862 section 5.4), router discovery (RFC 4861 section 6.3.7), and an address from a
//! router's prefix (RFC 4862 section 5.5). Sans-I/O: frames come in and go out, time is passed in.
use engine::Nanos;
use std::fmt::{self, Display, Formatter};
use std::net::Ipv6Addr;
use wire::icmpv6::{Message, NEIGHBOUR_HOPS};
use wire::ip::Ends;
use wire::mld::{self, Report};
use wire::router::{self, PrefixInformation, RouterAdvertisement};
use wire::{EtherType, IpAddress, Mac, ethernet, ip, ipv6};

pub(crate) const SECOND: Nanos = 1_000_000_000;
/// How long a probe of a free address stays without an answer: RetransTimer, with DupAddrDetectTransmits of 1 (RFC 4862
/// section 5.1).
const PROBE: Nanos = SECOND;
/// Questions for routers, and the time between them (RFC 4861 section 10).
const SOLICITATIONS: u8 = 3;
const SOLICIT_AGAIN: Nanos = 4 * SECOND;
/// How long after the last question a router may take (RFC 4861 section 6.3.7).
const LAST_WAIT: Nanos = SECOND;
/// Bits of a prefix that leaves room for an interface identifier (RFC 4862 section 5.5.3 d, RFC 4291 section 2.5.1).
pub(crate) const PREFIX_BITS: u8 = 64;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The host's address.
    pub address: IpAddress,
    /// Bits of the network that its neighbours are in: all, where the router has no prefix on the link.
    pub prefix_len: u8,
    /// The router, where one forwards packets: its link-local address, without a zone.
    pub router: Option<IpAddress>,
    /// For how many seconds it does.
    pub lifetime_s: u16,
    /// For how many seconds the address may be used.
    pub valid_s: u32,
    /// Most bytes of a packet on the link, where a router advertises it.
    pub mtu: Option<u32>,
}

/// Why nothing was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFound {
    /// Another station has the address.
    Duplicate(IpAddress),
    /// No router answers.
    NoRouter,
    /// One does, without a prefix that addresses can be made of.
    NoPrefix(IpAddress),
}

impl Display for NotFound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            NotFound::Duplicate(address) => write!(
                f,
                "another station has the address {address}, which this port's hardware address gives: give the port \
                 another `mac`, or the host an `ipv6.address`"
            ),
            NotFound::NoRouter => {
                f.write_str("no IPv6 router answers on its first port: start one, or give the host an `ipv6.address`")
            }
            NotFound::NoPrefix(router) => write!(
                f,
                "the IPv6 router {router} announces no prefix of 64 bits for addresses (RFC 4862): configure it to, or \
                 give the host an `ipv6.address`"
            ),
        }
    }
}

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The groups are joined, and the address is about to be asked for.
    Begin,
    /// Whether somebody has this address.
    Probe(IpAddress),
    /// So many questions for routers were sent.
    Solicit(u8),
    Over(Result<Found, NotFound>),
}

/// See the module's page.
#[derive(Debug)]
pub struct Autoconf {
    mac: Mac,
    step: Step,
    due: Nanos,
    /// What routers have advertised so far.
    router: Option<(IpAddress, u16)>,
    prefix: Option<PrefixInformation>,
    mtu: Option<u32>,
    /// A router that advertised no prefix.
    poor: Option<IpAddress>,
}

impl Autoconf {
    /// On a link where the host has this hardware address.
    pub fn new(now: Nanos, mac: Mac) -> Autoconf {
        Autoconf { mac, step: Step::Begin, due: now, router: None, prefix: None, mtu: None, poor: None }
    }

    /// The result, once there is one.
    pub fn result(&self) -> Option<Result<Found, NotFound>> {
        match self.step {
            Step::Over(result) => Some(result),
            _ => None,
        }
    }

    /// The next time at which something is due.
    pub fn next_due(&self) -> Nanos {
        self.due
    }

    /// What is due now: frames to send.
    // Meets RFC 4862: 5.4.2-a.
    // Meets RFC 4861: 6.3.7-a, 5.4-a.
    pub fn fire(&mut self, now: Nanos) -> Vec<Vec<u8>> {
        if now < self.due {
            return Vec::new();
        }
        match self.step {
            Step::Begin => self.probe(now, self.link_local()),
            Step::Probe(address) if address == self.link_local() => {
                self.step = Step::Solicit(0);
                self.solicit(now, 1)
            }
            Step::Probe(address) => self.end(Ok(self.found(address))),
            // More than the questions: a router without a lifetime is better than none.
            Step::Solicit(SOLICITATIONS) => match self.prefix {
                Some(prefix) => self.probe(now, self.address(&prefix)),
                None => self.end(Err(self.poor.map_or(NotFound::NoRouter, NotFound::NoPrefix))),
            },
            Step::Solicit(sent) => self.solicit(now, sent + 1),
            Step::Over(_) => Vec::new(),
        }
    }

    /// A frame came.
    pub fn receive(&mut self, now: Nanos, frame: &[u8]) {
        let Some((header, body)) = read(frame, self.mac) else { return };
        // What a router forwarded is no neighbour's (RFC 4861 sections 6.1.2, 7.1.1 and 7.1.2).
        if header.hop_limit != NEIGHBOUR_HOPS {
            return;
        }
        let ends = Ends { src: header.src, dst: header.dst };
        match Message::parse(body, ends) {
            Ok(Message::Solicitation { target, .. }) => {
                // A station with the address asks as one; a probe has none. Frames of one's own may come back.
                let tries = header.src.is_unspecified() && source(frame) != self.mac;
                self.on_claim(target, tries);
            }
            Ok(Message::Advertisement { target, .. }) => self.on_claim(target, true),
            Ok(_) => {
                if let (Ok(Some(advertised)), true) =
                    (RouterAdvertisement::parse(body, ends), header.src.is_link_local())
                {
                    self.on_router(now, header.src, &advertised);
                }
            }
            Err(_) => {}
        }
    }

    /// Another station has an address, or tries it too.
    // Meets RFC 4862: 5.4.3-a, 5.4.4-a.
    fn on_claim(&mut self, target: Ipv6Addr, counts: bool) {
        let target = IpAddress::v6(target, 0);
        if counts && self.step == Step::Probe(target) {
            self.end(Err(NotFound::Duplicate(target)));
        }
    }

    /// A router's advertisement. It may come unsolicited.
    // Meets RFC 4861: 6.3.4-a.
    // Meets RFC 4862: 5.5.3-a.
    fn on_router(&mut self, now: Nanos, from: IpAddress, advertised: &RouterAdvertisement) {
        if !matches!(self.step, Step::Solicit(_)) {
            return;
        }
        if advertised.lifetime_s > 0 {
            self.router.get_or_insert((from, advertised.lifetime_s));
        }
        if let Some(mtu) = advertised.mtu.filter(|mtu| *mtu >= u32::from(ipv6::LEAST_MTU)) {
            self.mtu = Some(self.mtu.map_or(mtu, |known| known.min(mtu)));
        }
        match advertised.prefixes.iter().find(|prefix| gives_addresses(prefix)) {
            Some(prefix) => drop(self.prefix.get_or_insert(*prefix)),
            None => self.poor = Some(from),
        }
        if self.router.is_some() && self.prefix.is_some() {
            (self.step, self.due) = (Step::Solicit(SOLICITATIONS), now);
        }
    }

    fn end(&mut self, result: Result<Found, NotFound>) -> Vec<Vec<u8>> {
        (self.step, self.due) = (Step::Over(result), Nanos::MAX);
        Vec::new()
    }

    fn link_local(&self) -> IpAddress {
        IpAddress::link_local(self.mac, 0)
    }

    /// The address that a prefix and the hardware address give (RFC 4862 section 5.5.3 d).
    fn address(&self, prefix: &PrefixInformation) -> IpAddress {
        let identifier = self.link_local().to_bits() & u128::from(u64::MAX);
        IpAddress::v6(Ipv6Addr::from_bits(prefix.prefix.to_bits() & !u128::from(u64::MAX) | identifier), 0)
    }

    fn found(&self, address: IpAddress) -> Found {
        let on_link = self.prefix.is_some_and(|prefix| prefix.on_link);
        let (router, lifetime_s) = self.router.map_or((None, 0), |(router, lifetime)| (Some(router), lifetime));
        let (prefix_len, valid_s) =
            (if on_link { PREFIX_BITS } else { 128 }, self.prefix.map_or(0, |prefix| prefix.valid_s));
        Found { address, prefix_len, router, lifetime_s, valid_s, mtu: self.mtu }
    }

    /// Asks whether somebody has an address. Its group is joined before, so that switches pass answers on (RFC 4862
    /// section 5.4.2); the report's source is unspecified as long as no address is the host's (RFC 3810 5.2.13).
    fn probe(&mut self, now: Nanos, target: IpAddress) -> Vec<Vec<u8>> {
        (self.step, self.due) = (Step::Probe(target), now + PROBE);
        let (nobody, group) = (Ipv6Addr::UNSPECIFIED, target.solicited_node());
        let joined = mld::report(nobody, Report::Joined, &[Ipv6Addr::from_bits(group.to_bits())]);
        let ends = Ends { src: IpAddress::v6(nobody, 0), dst: group };
        let mut question = [0; 24];
        let target = Ipv6Addr::from_bits(target.to_bits());
        Message::Solicitation { target, sender: None }.emit(ends, &mut question);
        let all = Ends { dst: IpAddress::v6(mld::ROUTERS, 0), ..ends };
        vec![
            self.frame(ipv6::HOP_BY_HOP, all, mld::HOPS, &joined),
            self.frame(ipv6::ICMP, ends, NEIGHBOUR_HOPS, &question),
        ]
    }

    fn solicit(&mut self, now: Nanos, count: u8) -> Vec<Vec<u8>> {
        let last = count == SOLICITATIONS;
        (self.step, self.due) = (Step::Solicit(count), now + if last { LAST_WAIT } else { SOLICIT_AGAIN });
        let ends = Ends { src: self.link_local(), dst: IpAddress::v6(router::ROUTERS, 0) };
        vec![self.frame(ipv6::ICMP, ends, NEIGHBOUR_HOPS, &router::solicitation(ends, self.mac))]
    }

    /// A frame to a group.
    fn frame(&self, protocol: u8, ends: Ends, hops: u8, body: &[u8]) -> Vec<u8> {
        let at = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
        let mut frame = vec![0; at + body.len()];
        let dst = ends.dst.group_station();
        ethernet::Header { dst, src: self.mac, ethertype: EtherType::Ipv6 }.emit(&mut frame);
        ip::emit(protocol, ends, hops, &mut frame[ethernet::HEADER_LEN..]);
        frame[at..].copy_from_slice(body);
        frame
    }
}

/// A host may make its address of this prefix (RFC 4862 section 5.5.3).
fn gives_addresses(advertised: &PrefixInformation) -> bool {
    let is_global = !advertised.prefix.is_unicast_link_local() && !advertised.prefix.is_multicast();
    let lives = advertised.preferred_s > 0 && advertised.preferred_s <= advertised.valid_s;
    advertised.autonomous && advertised.len == PREFIX_BITS && is_global && lives
}

/// The header and the body of an ICMPv6 packet for this station or a group.
fn read(frame: &[u8], mac: Mac) -> Option<(ip::Header, &[u8])> {
    let eth = ethernet::Header::parse(frame).ok()?;
    if eth.ethertype != EtherType::Ipv6 || (eth.dst != mac && !eth.dst.is_group()) {
        return None;
    }
    let packet = &frame[ethernet::HEADER_LEN..];
    let (header, len) = ip::Header::parse(EtherType::Ipv6, packet, packet.len()).ok()?;
    let body = packet.get(len..len + usize::from(header.payload_len))?;
    (header.protocol == ipv6::ICMP && !header.is_fragment).then_some((header, body))
}

fn source(frame: &[u8]) -> Mac {
    ethernet::Header::parse(frame).map_or(Mac::default(), |eth| eth.src)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
    const ROUTERS_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const ROUTER: &str = "fe80::1";

    fn ip(text: &str) -> IpAddress {
        text.parse().unwrap()
    }

    /// What a frame of the host asks.
    fn asked(frame: &[u8]) -> (IpAddress, IpAddress, Message) {
        let (header, body) = read(frame, MAC).expect("an ICMPv6 packet");
        (header.src, header.dst, Message::parse(body, (header.src, header.dst)).expect("a whole one"))
    }

    /// A message of a station.
    fn from(mac: Mac, src: &str, hops: u8, body: impl FnOnce(Ends) -> Vec<u8>) -> Vec<u8> {
        let ends = Ends { src: ip(src), dst: ip("ff02::1") };
        let station = Autoconf::new(0, mac);
        station.frame(ipv6::ICMP, ends, hops, &body(ends))
    }

    /// A router's advertisement, with one prefix.
    fn advertisement(lifetime_s: u16, prefix: &str, flags: u8, src: &str, hops: u8) -> Vec<u8> {
        from(ROUTERS_MAC, src, hops, |ends| {
            let (on_link, autonomous) = (flags & 0x80 != 0, flags & 0x40 != 0);
            let (prefix, len, valid_s, preferred_s) = (prefix.parse().unwrap(), PREFIX_BITS, 3600, 1800);
            let prefixes = vec![PrefixInformation { prefix, len, on_link, autonomous, valid_s, preferred_s }];
            RouterAdvertisement { lifetime_s, source: None, mtu: Some(1400), prefixes }.to_bytes(ends)
        })
    }

    /// Up to the first question for routers.
    fn soliciting() -> Autoconf {
        let mut auto = Autoconf::new(5, MAC);
        assert_eq!(auto.fire(5).len(), 2);
        assert_eq!(auto.fire(5 + PROBE).len(), 1);
        auto
    }

    // Checks RFC 4861: 6.3.7-a, 6.3.4-a, 5.4-a.
    // Checks RFC 4862: 5.4.2-a, 5.5.3-a.
    #[test]
    fn an_address_from_a_prefix_is_tried_before_use() {
        let mut auto = Autoconf::new(5, MAC);
        let frames = auto.fire(5);
        assert_eq!(frames[0][..6], Mac([0x33, 0x33, 0, 0, 0, 0x16]).0, "the report of the group");
        let (src, dst, message) = asked(&frames[1]);
        let target = "fe80::ff:fe00:7".parse().unwrap();
        assert_eq!((src, dst), (ip("::"), ip("ff02::1:ff00:7")));
        assert_eq!(message, Message::Solicitation { target, sender: None });
        assert!(auto.fire(4 + PROBE).is_empty(), "a second has not passed");
        let (src, dst, message) = asked(&auto.fire(5 + PROBE)[0]);
        assert_eq!((src, dst, message), (ip("fe80::ff:fe00:7"), ip("ff02::2"), Message::Other(133, 0)));
        let now = 6 + PROBE;
        auto.receive(now, &advertisement(1800, "2001:db8:7::", 0xc0, ROUTER, 255));
        let frames = auto.fire(now);
        let (.., message) = asked(&frames[1]);
        let target = "2001:db8:7::ff:fe00:7".parse().unwrap();
        assert_eq!(message, Message::Solicitation { target, sender: None });
        assert_eq!(auto.result(), None);
        assert!(auto.fire(now + PROBE).is_empty());
        let (router, mtu) = (Some(ip(ROUTER)), Some(1400));
        let found =
            Found { address: IpAddress::v6(target, 0), prefix_len: 64, router, lifetime_s: 1800, valid_s: 3600, mtu };
        assert_eq!(auto.result(), Some(Ok(found)));
        assert_eq!(auto.next_due(), Nanos::MAX);
    }

    // Checks RFC 4862: 5.4.3-a, 5.4.4-a.
    #[test]
    fn an_address_that_another_station_has_or_tries_is_not_used() {
        let target: Ipv6Addr = "fe80::ff:fe00:7".parse().unwrap();
        let tries = |mac: Mac, src: &str| {
            from(mac, src, 255, |ends| {
                let mut bytes = vec![0; 24];
                Message::Solicitation { target, sender: None }.emit(ends, &mut bytes);
                bytes
            })
        };
        let has = |target: Ipv6Addr, hops: u8| {
            from(ROUTERS_MAC, "fe80::9", hops, |ends| {
                let mut bytes = vec![0; 32];
                let mac = Some(ROUTERS_MAC);
                Message::Advertisement { target, mac, solicited: false, replaces: true }.emit(ends, &mut bytes);
                bytes
            })
        };
        let after = |frame: &[u8]| {
            let mut auto = Autoconf::new(5, MAC);
            auto.fire(5);
            auto.receive(6, frame);
            auto.result()
        };
        let duplicate = Some(Err(NotFound::Duplicate(IpAddress::v6(target, 0))));
        assert_eq!(after(&tries(ROUTERS_MAC, "::")), duplicate, "both try it");
        assert_eq!(after(&has(target, 255)), duplicate);
        assert_eq!(after(&tries(MAC, "::")), None, "an own frame that came back");
        assert_eq!(after(&tries(ROUTERS_MAC, "fe80::9")), None, "the station that asks has another address");
        assert_eq!(after(&has("fe80::8".parse().unwrap(), 255)), None, "another address");
        assert_eq!(after(&has(target, 254)), None, "forwarded");
    }

    // Checks RFC 4861: 6.1.2-a, 6.3.7-a.
    #[test]
    fn without_a_router_it_ends_after_three_questions() {
        let mut auto = soliciting();
        auto.receive(6, &advertisement(1800, "2001:db8:7::", 0xc0, ROUTER, 254));
        auto.receive(6, &advertisement(1800, "2001:db8:7::", 0xc0, "2001:db8::1", 255));
        let (mut questions, mut now) = (1, 5 + PROBE);
        while auto.result().is_none() {
            now = auto.next_due();
            questions += auto.fire(now).len();
        }
        assert_eq!((questions, auto.result()), (3, Some(Err(NotFound::NoRouter))));
        assert_eq!(now, 5 + PROBE + 2 * SOLICIT_AGAIN + LAST_WAIT);
    }

    // Checks RFC 4862: 5.5.3-a.
    #[test]
    fn only_prefixes_and_routers_that_may_be_used_are_used() {
        let ends = |frames: &[&Vec<u8>]| {
            let mut auto = soliciting();
            frames.iter().for_each(|frame| auto.receive(6 + PROBE, frame));
            while auto.result().is_none() {
                auto.fire(auto.next_due());
            }
            auto.result()
        };
        let not_autonomous = advertisement(1800, "2001:db8:7::", 0x80, ROUTER, 255);
        let link_local = advertisement(1800, "fe80::", 0xc0, ROUTER, 255);
        let poor = Some(Err(NotFound::NoPrefix(ip(ROUTER))));
        assert_eq!(ends(&[&not_autonomous]), poor);
        assert_eq!(ends(&[&link_local]), poor);
        let no_router = advertisement(0, "2001:db8:7::", 0x40, "fe80::2", 255);
        let Some(Ok(found)) = ends(&[&no_router]) else { panic!("an address without a router") };
        assert_eq!((found.router, found.prefix_len), (None, 128), "no neighbours are named");
        // One router has the way, another the prefix.
        let Some(Ok(found)) = ends(&[&no_router, &not_autonomous]) else { panic!("both") };
        assert_eq!((found.router, found.lifetime_s), (Some(ip(ROUTER)), 1800));
    }
}
