//! Packets of the network layer: making those to send, reading those of received frames.
use crate::link::Link;
use engine::DropReason;
use port::{Frame, FramePool};
use std::net::Ipv6Addr;
use wire::{EtherType, IpAddress, Mac, arp, ethernet, ip, ipv6};

/// Bytes of the longest packet body that needs no memory of its own: a TCP header with all its options.
pub const MOST_SHORT: usize = 60;

/// A packet to send from this host's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Where to.
    pub dst: IpAddress,
    /// From which of the host's addresses; none for that of the port by which it leaves.
    pub src: Option<IpAddress>,
    /// IP protocol number.
    pub protocol: u8,
    hops: u8,
    body: Body,
}

/// Hops of a packet, by default.
const HOPS: u8 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Short { len: u8, bytes: [u8; MOST_SHORT] },
    Long(Vec<u8>),
}

impl Packet {
    /// A packet with this body.
    pub fn new(dst: IpAddress, protocol: u8, body: Vec<u8>) -> Packet {
        Packet { dst, src: None, protocol, hops: HOPS, body: Body::Long(body) }
    }

    /// A packet whose body has `len` bytes, at most [`MOST_SHORT`], which `emit` writes.
    pub fn short(dst: IpAddress, protocol: u8, len: usize, emit: impl FnOnce(&mut [u8])) -> Packet {
        let mut bytes = [0; MOST_SHORT];
        emit(&mut bytes[..len]);
        Packet { dst, src: None, protocol, hops: HOPS, body: Body::Short { len: len as u8, bytes } }
    }

    /// The same packet from one of the host's addresses.
    pub fn with_source(self, src: IpAddress) -> Packet {
        Packet { src: Some(src), ..self }
    }

    /// The same packet with so many hops.
    pub fn with_hops(self, hops: u8) -> Packet {
        Packet { hops, ..self }
    }

    /// What it carries.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Body::Short { len, bytes } => &bytes[..*len as usize],
            Body::Long(bytes) => bytes,
        }
    }
}

/// A packet with the hardware address that it goes to, and the port by which it leaves.
pub(crate) enum Outgoing {
    Arp {
        port: usize,
        dst: Mac,
        packet: arp::Packet,
    },
    Ip {
        port: usize,
        dst: Mac,
        packet: Packet,
    },
    /// A frame that is complete.
    Frame(Box<Frame>),
}

impl Outgoing {
    /// The station that it goes to; none for a frame, which always leaves.
    pub(crate) fn dst(&self) -> Option<Mac> {
        match self {
            Outgoing::Arp { dst, .. } | Outgoing::Ip { dst, .. } => Some(*dst),
            Outgoing::Frame(_) => None,
        }
    }
}

/// Builds a frame.
///
/// # Errors
/// No frame carries a packet between these addresses: they are not of one family.
pub(crate) fn build(links: &[Link], outgoing: Outgoing, pool: &mut FramePool) -> Result<Box<Frame>, DropReason> {
    match outgoing {
        Outgoing::Frame(frame) => Ok(frame),
        Outgoing::Arp { port, dst, packet } => {
            let mut frame = pool.small();
            frame.resize(ethernet::HEADER_LEN + arp::LEN);
            ethernet::Header { dst, src: links[port].mac, ethertype: EtherType::Arp }.emit(frame.bytes_mut());
            packet.emit(&mut frame.bytes_mut()[ethernet::HEADER_LEN..]);
            Ok(frame)
        }
        Outgoing::Ip { port, dst, packet } => {
            let from = packet.src.or_else(|| links[port].source(packet.dst)).ok_or(DropReason::NoRoute)?;
            let ethertype = if packet.dst.is_v4() { EtherType::Ipv4 } else { EtherType::Ipv6 };
            let link = ethernet::Header { dst, src: links[port].mac, ethertype };
            build_packet(&link, from, &packet, pool).ok_or(DropReason::NoRoute)
        }
    }
}

/// Builds a frame of headers and body; none where the addresses are not of one family.
fn build_packet(link: &ethernet::Header, from: IpAddress, packet: &Packet, pool: &mut FramePool) -> Option<Box<Frame>> {
    let (to, body) = (packet.dst, packet.body());
    let start = ethernet::HEADER_LEN + ip::header_len(to);
    let mut frame = pool.small();
    if start + body.len() > frame.capacity() {
        pool.put(frame);
        frame = pool.large();
    }
    frame.resize(start + body.len());
    let bytes = frame.bytes_mut();
    link.emit(bytes);
    bytes[start..].copy_from_slice(body);
    // Meets RFC 3168: 6.1.1-b.
    match ip::emit(packet.protocol, ip::Ends { src: from, dst: to }, packet.hops, &mut bytes[ethernet::HEADER_LEN..]) {
        Some(_) => Some(frame),
        None => {
            pool.put(frame);
            None
        }
    }
}

/// A received frame's outermost packet.
pub(crate) enum Outermost {
    Arp(arp::Packet),
    Ip(Ip),
    /// For a group of stations, of a protocol that this host does not have: it was never one of them.
    Foreign,
}

/// A received IP packet for this host.
#[derive(Debug, Clone, Copy)]
pub struct Ip {
    /// Sender of the frame.
    pub src_mac: Mac,
    /// Its header. Link-local addresses are in the zone of the port.
    pub header: ip::Header,
    /// The port that it came by; that of the link to itself for what the host sent to itself.
    pub port: usize,
    /// Byte of the frame where the IP header starts.
    pub at: usize,
    /// Byte of the frame where what it carries starts.
    pub body_at: usize,
    /// The frame was addressed to this station alone, not to all.
    pub unicast: bool,
}

impl Ip {
    /// What the packet carries, where the frame holds all of it in one piece.
    pub fn body<'f>(&self, frame: &'f Frame) -> Option<&'f [u8]> {
        frame.bytes().get(self.body_at..self.body_at + self.header.payload_len as usize)
    }
}

/// The zone of a port's link (RFC 4007 section 6).
pub(crate) fn zone_of(port: usize) -> u32 {
    port as u32 + 1
}

/// Reads a frame down to its IP header; returns why it is to be dropped.
// Meets RFC 9293: MUST-63, MUST-57.
pub(crate) fn read(frame: &Frame, links: &[Link]) -> Result<Outermost, DropReason> {
    let bytes = frame.bytes();
    let link_of = |mac: Mac| links.iter().position(|link| link.mac == mac);
    let own_mac = |mac: Mac| link_of(mac).is_some();
    let eth = ethernet::Header::parse(bytes).map_err(|_| DropReason::Ethernet)?;
    if !own_mac(eth.dst) && !eth.dst.is_group() {
        return Err(DropReason::Ethernet);
    }
    let (at, port) = (ethernet::HEADER_LEN, link_of(eth.dst).unwrap_or(usize::from(frame.port).min(links.len() - 1)));
    match eth.ethertype {
        EtherType::Arp => {
            return arp::Packet::parse(&bytes[at..]).map(Outermost::Arp).map_err(|_| DropReason::Ethernet);
        }
        EtherType::Other(_) if eth.dst.is_group() => return Ok(Outermost::Foreign),
        EtherType::Other(_) => return Err(DropReason::Ethernet),
        // The kernel's IPv6 on a TAP device solicits its neighbours all the time, for one.
        EtherType::Ipv6 if links[port].v6.is_none() => {
            return if eth.dst.is_group() { Ok(Outermost::Foreign) } else { Err(DropReason::Ethernet) };
        }
        EtherType::Ipv4 | EtherType::Ipv6 => {}
    }
    let (mut header, len) =
        ip::Header::parse(eth.ethertype, &bytes[at..], frame.len() - at).map_err(|_| DropReason::Ip)?;
    (header.src, header.dst) = (header.src.in_zone(zone_of(port)), header.dst.in_zone(zone_of(port)));
    let (src, dst) = (header.src, header.dst);
    let own = |ip: IpAddress| links.iter().zip(1..).any(|(link, zone)| link.has(ip, zone));
    let is_discovery = header.protocol == ipv6::ICMP && !src.is_v4();
    // A station without an IPv6 address probes whether another one has it (RFC 4862 section 5.4).
    if src.is_broadcast() || src.is_multicast() || (src.is_unspecified() && !is_discovery) {
        return Err(DropReason::Ip);
    }
    // Loopback addresses are those of the link to itself, and it has no others.
    let loopback = links[port].address.is_loopback();
    if src.is_loopback() != loopback || dst.is_loopback() != loopback {
        return Err(DropReason::Ip);
    }
    if dst.is_multicast() && !dst.is_v4() {
        // Only neighbours send to the groups that the host is a member of.
        let is_member = is_discovery && own_groups(&links[port], dst, zone_of(port));
        if !is_member {
            return Ok(Outermost::Foreign);
        }
    } else if !(loopback || own(dst)) {
        return Err(DropReason::NotOurs);
    }
    // Nobody but this host itself sends from its address.
    if own(src) && !own_mac(eth.src) {
        return Err(DropReason::NotOurs);
    }
    if header.is_fragment {
        return Err(DropReason::Fragment);
    }
    Ok(Outermost::Ip(Ip { src_mac: eth.src, header, port, at, body_at: at + len, unicast: !eth.dst.is_group() }))
}

/// All stations of the link, and those that may have one of the host's addresses there.
fn own_groups(link: &Link, group: IpAddress, zone: u32) -> bool {
    let addresses = link.addresses().map(|(address, _)| address).chain([IpAddress::link_local(link.mac, zone)]);
    let mut groups = addresses.filter(|address| !address.is_v4()).map(|address| address.solicited_node().in_zone(zone));
    group == ALL_NODES.in_zone(zone) || groups.any(|own| own == group)
}

/// All stations of a link (RFC 4291 section 2.7.1).
pub(crate) const ALL_NODES: IpAddress = IpAddress::v6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 0);
