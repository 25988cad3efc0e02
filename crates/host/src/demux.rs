//! Demultiplexer of frames: transports claim an EtherType, an IP protocol or a UDP port.
use port::Frame;
use std::fmt;
use wire::ipv4::UDP;
use wire::{EtherType, ip, ipv4, ipv6};

/// Byte of a frame where its EtherType stands, and where the header after it begins.
const ETHERTYPE_AT: usize = 12;
const IP_AT: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;

/// Frames that a transport processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// All of this EtherType.
    EtherType(u16),
    /// All IPv4 packets of this protocol.
    Protocol(u8),
    /// UDP datagrams to this port.
    UdpPort(u16),
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::EtherType(number) => write!(f, "EtherType {number:#06x}"),
            Claim::Protocol(number) => write!(f, "IP protocol {number}"),
            Claim::UdpPort(number) => write!(f, "UDP port {number}"),
        }
    }
}

/// The protocol of an IP packet, where a frame is one.
pub fn protocol_of(frame: &Frame) -> Option<u8> {
    let bytes = frame.bytes();
    let (high, low) = (*bytes.get(ETHERTYPE_AT)?, *bytes.get(ETHERTYPE_AT + 1)?);
    match EtherType::from(u16::from_be_bytes([high, low])) {
        EtherType::Ipv4 => bytes.get(IP_AT + 9).copied(),
        // Behind extension headers.
        EtherType::Ipv6 => {
            let header = ip::Header::parse(EtherType::Ipv6, bytes.get(IP_AT..)?, frame.len() - IP_AT);
            header.ok().map(|(header, _)| header.protocol)
        }
        _ => None,
    }
}

/// Neighbours' messages and ICMP are the host's own.
pub(crate) fn is_own(frame: &Frame) -> bool {
    let ethertype = frame.bytes().get(ETHERTYPE_AT..ETHERTYPE_AT + 2);
    let is_v4 = ethertype == Some(&IPV4.to_be_bytes());
    let icmp = if is_v4 { ipv4::ICMP } else { ipv6::ICMP };
    ethertype == Some(&ARP.to_be_bytes()) || protocol_of(frame) == Some(icmp)
}

/// Claims, and whose they are: a few of them.
#[derive(Debug, Default)]
pub(crate) struct Claims(Vec<(Claim, usize)>);

impl Claims {
    /// Adds a claim, which no transport may have yet.
    pub(crate) fn add(&mut self, claim: Claim, owner: usize) {
        self.0.push((claim, owner));
    }

    /// The transport that claims a frame: the more exact claim goes first. Reads at most the EtherType, the IPv4
    /// header's protocol and the UDP header's port. Fragments beside the first have no ports.
    pub(crate) fn owner(&self, frame: &Frame) -> Option<usize> {
        let bytes = frame.bytes();
        let half = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let ethertype = half(ETHERTYPE_AT)?;
        if ethertype != IPV4 {
            return self.find(Claim::EtherType(ethertype));
        }
        let protocol = *bytes.get(IP_AT + 9)?;
        let header_len = (bytes[IP_AT] & 0x0f) as usize * 4;
        let first = half(IP_AT + 6)? & 0x1fff == 0;
        let by_port = || self.find(Claim::UdpPort(half(IP_AT + header_len + 2)?));
        let exact = if protocol == UDP && first { by_port() } else { None };
        exact.or_else(|| self.find(Claim::Protocol(protocol))).or_else(|| self.find(Claim::EtherType(ethertype)))
    }

    /// The holder of this very claim.
    pub(crate) fn find(&self, claim: Claim) -> Option<usize> {
        self.0.iter().find(|(other, _)| *other == claim).map(|(_, owner)| *owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use port::FramePool;

    fn frame(ethertype: u16, protocol: u8, fragment: u16, port: u16) -> Box<Frame> {
        let mut frame = FramePool::new(1).small();
        frame.resize(60);
        let bytes = frame.bytes_mut();
        bytes.fill(0);
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        (bytes[14], bytes[23]) = (0x45, protocol);
        bytes[20..22].copy_from_slice(&fragment.to_be_bytes());
        bytes[36..38].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn the_more_exact_claim_goes_first() {
        let mut claims = Claims::default();
        for (owner, claim) in
            [Claim::UdpPort(4791), Claim::Protocol(UDP), Claim::EtherType(0x8915)].into_iter().enumerate()
        {
            claims.add(claim, owner);
        }
        let cases = [
            (frame(IPV4, UDP, 0, 4791), Some(0)),
            (frame(IPV4, UDP, 0x4000, 4791), Some(0)),
            (frame(IPV4, UDP, 0, 53), Some(1)),
            (frame(IPV4, UDP, 100, 4791), Some(1)),
            (frame(IPV4, 6, 0, 4791), None),
            (frame(0x8915, 0, 0, 0), Some(2)),
            (frame(0x0806, 0, 0, 0), None),
        ];
        for (at, (frame, owner)) in cases.iter().enumerate() {
            assert_eq!(claims.owner(frame), *owner, "case {at}");
        }
    }

    #[test]
    fn a_frame_that_ends_early_is_nobodys() {
        let mut claims = Claims::default();
        claims.add(Claim::UdpPort(4791), 0);
        for len in 0..38 {
            let mut short = frame(IPV4, UDP, 0, 4791);
            short.resize(len);
            assert_eq!(claims.owner(&short), None, "{len} bytes");
        }
    }
}
