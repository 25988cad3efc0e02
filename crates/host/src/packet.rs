//! Packets to send, and reading the packets of received frames.
use crate::link::Link;
use engine::DropReason;
use port::{Frame, FramePool};
use wire::{EtherType, IpAddress, Mac, arp, ethernet, ipv4};

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
    body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Body {
    Short { len: u8, bytes: [u8; MOST_SHORT] },
    Long(Vec<u8>),
}

impl Packet {
    /// A packet with this body.
    pub fn new(dst: IpAddress, protocol: u8, body: Vec<u8>) -> Packet {
        Packet { dst, src: None, protocol, body: Body::Long(body) }
    }

    /// A packet whose body has `len` bytes, at most [`MOST_SHORT`], which `emit` writes.
    pub fn short(dst: IpAddress, protocol: u8, len: usize, emit: impl FnOnce(&mut [u8])) -> Packet {
        let mut bytes = [0; MOST_SHORT];
        emit(&mut bytes[..len]);
        Packet { dst, src: None, protocol, body: Body::Short { len: len as u8, bytes } }
    }

    /// The same packet from one of the host's addresses.
    pub fn with_source(self, src: IpAddress) -> Packet {
        Packet { src: Some(src), ..self }
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
/// No frame carries a packet between these addresses: they are not both IPv4.
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
            let Link { mac: src, address, .. } = links[port];
            let (from, to) =
                packet.src.unwrap_or(address).as_v4().zip(packet.dst.as_v4()).ok_or(DropReason::NoRoute)?;
            let ipv4 = ipv4::Header::new(packet.protocol, (from, to), packet.body().len() as u16);
            Ok(build_ipv4(&ethernet::Header { dst, src, ethertype: EtherType::Ipv4 }, &ipv4, packet.body(), pool))
        }
    }
}

/// Builds a frame of headers and body.
fn build_ipv4(ethernet: &ethernet::Header, ipv4: &ipv4::Header, body: &[u8], pool: &mut FramePool) -> Box<Frame> {
    let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut frame = pool.small();
    if start + body.len() > frame.capacity() {
        pool.put(frame);
        frame = pool.large();
    }
    frame.resize(start + body.len());
    let bytes = frame.bytes_mut();
    ethernet.emit(bytes);
    // Meets RFC 3168: 6.1.1-b.
    ipv4.emit(&mut bytes[ethernet::HEADER_LEN..]);
    bytes[start..].copy_from_slice(body);
    frame
}

/// A received frame's outermost packet.
pub(crate) enum Outermost {
    Arp(arp::Packet),
    Ip(Ip),
    /// For a group of stations, of a protocol that this host does not speak: it was never one of them.
    Foreign,
}

/// A received IPv4 packet for this host.
#[derive(Debug, Clone, Copy)]
pub struct Ip {
    /// Who sent the frame.
    pub src_mac: Mac,
    /// Its header.
    pub header: ipv4::Header,
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

/// Reads a frame down to its IPv4 header, and says why it is to be dropped.
// Meets RFC 9293: MUST-63, MUST-57.
pub(crate) fn read(frame: &Frame, links: &[Link]) -> Result<Outermost, DropReason> {
    let bytes = frame.bytes();
    let link_of = |mac: Mac| links.iter().find(|link| link.mac == mac);
    let own_mac = |mac: Mac| link_of(mac).is_some();
    let own = |ip: std::net::Ipv4Addr| links.iter().any(|link| link.address == ip);
    let eth = ethernet::Header::parse(bytes).map_err(|_| DropReason::Ethernet)?;
    if !own_mac(eth.dst) && !eth.dst.is_group() {
        return Err(DropReason::Ethernet);
    }
    let at = ethernet::HEADER_LEN;
    match eth.ethertype {
        EtherType::Arp => arp::Packet::parse(&bytes[at..]).map(Outermost::Arp).map_err(|_| DropReason::Ethernet),
        // The kernel's IPv6 on a TAP device looks for its neighbours all the time, for one.
        EtherType::Other(_) if eth.dst.is_group() => Ok(Outermost::Foreign),
        EtherType::Other(_) => Err(DropReason::Ethernet),
        EtherType::Ipv4 => {
            let (header, len) = ipv4::Header::parse(&bytes[at..], frame.len() - at).map_err(|_| DropReason::Ipv4)?;
            let (src, dst) = (header.src, header.dst);
            if src.is_broadcast() || src.is_multicast() || src.is_unspecified() {
                return Err(DropReason::Ipv4);
            }
            // Loopback addresses are those of the link to itself, and it has no others.
            let loopback = link_of(eth.dst).is_some_and(|link| link.address.is_loopback());
            if src.is_loopback() != loopback || dst.is_loopback() != loopback {
                return Err(DropReason::Ipv4);
            }
            // Nobody but this host itself sends from its address.
            if !(loopback || own(dst)) || (own(src) && !own_mac(eth.src)) {
                return Err(DropReason::NotOurs);
            }
            if header.is_fragment {
                return Err(DropReason::Fragment);
            }
            Ok(Outermost::Ip(Ip { src_mac: eth.src, header, at, body_at: at + len, unicast: !eth.dst.is_group() }))
        }
    }
}
