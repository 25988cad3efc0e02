//! Reading received frames and building frames to send.
use ::tcp::{Segment, Unacceptable};
use engine::DropReason;
use engine::stream::FourTuple;
use port::{Checksum, Frame, FramePool};
use std::net::Ipv4Addr;
use wire::checksum::Sum;
use wire::{EtherType, IpAddress, Mac, arp, ethernet, icmpv4, ipv4, tcp};

/// A packet to send from this host's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub dst: IpAddress,
    pub body: Body,
}

/// What it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// A segment without payload.
    Tcp(tcp::Header),
    /// A message with its data.
    Icmp(icmpv4::Message, Vec<u8>),
}

/// A packet with the hardware address that it goes to.
pub(super) enum Outgoing {
    Arp {
        dst: Mac,
        packet: arp::Packet,
    },
    Ip {
        dst: Mac,
        packet: Packet,
    },
    /// A frame that is complete.
    Frame(Box<Frame>),
}

impl Outgoing {
    /// The station that it goes to; none for a frame, which always leaves.
    pub fn dst(&self) -> Option<Mac> {
        match self {
            Outgoing::Arp { dst, .. } | Outgoing::Ip { dst, .. } => Some(*dst),
            Outgoing::Frame(_) => None,
        }
    }
}

/// Builds a frame. Control segments are few: their checksum is always complete.
///
/// # Errors
/// No frame carries a packet between these addresses: they are not both IPv4.
pub(super) fn build(
    src: Mac,
    src_ip: IpAddress,
    outgoing: Outgoing,
    pool: &mut FramePool,
) -> Result<Box<Frame>, DropReason> {
    match outgoing {
        Outgoing::Frame(frame) => Ok(frame),
        Outgoing::Arp { dst, packet } => {
            let mut frame = pool.small();
            frame.resize(ethernet::HEADER_LEN + arp::LEN);
            ethernet::Header { dst, src, ethertype: EtherType::Arp }.emit(frame.bytes_mut());
            packet.emit(&mut frame.bytes_mut()[ethernet::HEADER_LEN..]);
            Ok(frame)
        }
        Outgoing::Ip { dst, packet: Packet { dst: dst_ip, body } } => {
            let addresses = src_ip.as_v4().zip(dst_ip.as_v4()).ok_or(DropReason::NoRoute)?;
            Ok(build_ipv4((src, dst), addresses, body, pool))
        }
    }
}

/// Builds a frame from the first to the second station and address.
fn build_ipv4(stations: (Mac, Mac), addresses: (Ipv4Addr, Ipv4Addr), body: Body, pool: &mut FramePool) -> Box<Frame> {
    let (protocol, len) = match &body {
        Body::Tcp(header) => (ipv4::TCP, header.len()),
        Body::Icmp(_, data) => (ipv4::ICMP, icmpv4::HEADER_LEN + data.len()),
    };
    let start = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let mut frame = pool.small();
    if start + len > frame.capacity() {
        pool.put(frame);
        frame = pool.large();
    }
    frame.resize(start + len);
    let bytes = frame.bytes_mut();
    ethernet::Header { src: stations.0, dst: stations.1, ethertype: EtherType::Ipv4 }.emit(bytes);
    // Meets RFC 3168: 6.1.1-b.
    let header = ipv4::Header::new(protocol, addresses, len as u16);
    header.emit(&mut bytes[ethernet::HEADER_LEN..]);
    let space = &mut bytes[start..];
    match body {
        Body::Tcp(header) => emit_tcp(&header, addresses, space),
        Body::Icmp(message, data) => {
            space[icmpv4::HEADER_LEN..].copy_from_slice(&data);
            message.emit(space);
        }
    }
    frame
}

fn emit_tcp(header: &tcp::Header, (src, dst): (Ipv4Addr, Ipv4Addr), body: &mut [u8]) {
    header.emit(body);
    let mut sum = Sum::pseudo_header(src, dst, ipv4::TCP, body.len() as u32);
    sum.add(body);
    body[tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2].copy_from_slice(&sum.finish().to_be_bytes());
}

/// A received frame's outermost packet.
pub(crate) enum Received {
    Arp(arp::Packet),
    Ip(Ip),
}

/// A received IPv4 packet for this host.
pub(crate) struct Ip {
    /// Who sent the frame.
    pub src_mac: Mac,
    pub header: ipv4::Header,
    /// Byte of the frame where the IP header starts.
    pub at: usize,
    /// Byte of the frame where what it carries starts.
    pub body_at: usize,
    /// The frame was addressed to this station alone, not to all.
    pub unicast: bool,
}

/// Reads a frame down to its IPv4 header, and says why it is to be dropped.
// Meets RFC 9293: MUST-63, MUST-57.
pub(crate) fn read_ip(frame: &Frame, mac: Mac, address: IpAddress) -> Result<Received, DropReason> {
    let bytes = frame.bytes();
    let eth = ethernet::Header::parse(bytes).map_err(|_| DropReason::Ethernet)?;
    if eth.dst != mac && !eth.dst.is_group() {
        return Err(DropReason::Ethernet);
    }
    let at = ethernet::HEADER_LEN;
    match eth.ethertype {
        EtherType::Arp => arp::Packet::parse(&bytes[at..]).map(Received::Arp).map_err(|_| DropReason::Ethernet),
        EtherType::Other(_) => Err(DropReason::Ethernet),
        EtherType::Ipv4 => {
            let (header, len) = ipv4::Header::parse(&bytes[at..], frame.len() - at).map_err(|_| DropReason::Ipv4)?;
            let src = header.src;
            if src.is_broadcast() || src.is_multicast() || src.is_unspecified() || src.is_loopback() {
                return Err(DropReason::Ipv4);
            }
            // Nobody but this host itself speaks with its address.
            if address != header.dst || (address == src && eth.src != mac) {
                return Err(DropReason::NotOurs);
            }
            if header.is_fragment {
                return Err(DropReason::Fragment);
            }
            Ok(Received::Ip(Ip { src_mac: eth.src, header, at, body_at: at + len, unicast: !eth.dst.is_group() }))
        }
    }
}

/// The registry's entry for a segment that TCP's rules do not process.
pub(crate) fn drop_reason(unacceptable: Unacceptable) -> DropReason {
    match unacceptable {
        Unacceptable::Paws => DropReason::Paws,
        Unacceptable::OutsideWindow => DropReason::OutsideWindow,
        Unacceptable::Duplicate => DropReason::Duplicate,
        Unacceptable::AckBeyondSent => DropReason::AckBeyondSent,
        Unacceptable::AckTooOld => DropReason::AckTooOld,
        Unacceptable::NoAck => DropReason::NoAck,
        Unacceptable::RstChallenged => DropReason::RstChallenged,
        Unacceptable::SynChallenged => DropReason::SynChallenged,
    }
}

/// Reads the segment of a TCP packet, checksum included. Payload that stands elsewhere is copied into the frame
/// where the checksum needs it.
pub(crate) fn read_segment(frame: &mut Frame, ip: &Ip) -> Result<Segment, DropReason> {
    if frame.checksum == Checksum::Complete {
        frame.flatten();
        verify(frame, ip)?;
    }
    let end = (ip.body_at + ip.header.payload_len as usize).min(frame.bytes().len());
    let (header, len) = tcp::Header::parse(&frame.bytes()[ip.body_at..end]).map_err(|_| DropReason::TcpHeader)?;
    let payload = (ip.header.payload_len as usize).checked_sub(len).ok_or(DropReason::TcpHeader)? as u32;
    let tuple = FourTuple {
        local_ip: ip.header.dst.into(),
        remote_ip: ip.header.src.into(),
        local_port: header.dst_port,
        remote_port: header.src_port,
    };
    Ok(Segment { tuple, header, payload })
}

fn verify(frame: &Frame, ip: &Ip) -> Result<(), DropReason> {
    let len = ip.header.payload_len;
    let body = frame.bytes().get(ip.body_at..ip.body_at + len as usize).ok_or(DropReason::Ipv4)?;
    let mut sum = Sum::pseudo_header(ip.header.src, ip.header.dst, ipv4::TCP, len as u32);
    sum.add(body);
    if sum.finish() == 0 { Ok(()) } else { Err(DropReason::TcpChecksum) }
}
