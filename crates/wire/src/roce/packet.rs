//! RoCEv2 packets, whole: frames that carry RoCEv2 over IPv4.
use super::icrc::{ICRC_LEN, IP_AT, icrc};
use super::{Aeth, AtomicEth, BTH_LEN, Bth, Deth, Opcode, Reth, UDP_PORT, XrcEth};
use crate::{EtherType, Mac, Malformed, be16, be32, ethernet, ipv4};
use std::net::Ipv4Addr;

/// Bytes of a UDP header.
pub(super) const UDP_LEN: usize = 8;
/// Byte of a frame that OpenTOE sends where the extended headers begin.
pub const HEADERS_AT: usize = IP_AT + ipv4::HEADER_LEN + UDP_LEN + BTH_LEN;
/// Bytes of extended headers at most: XRCETH and AtomicETH.
const MOST_EXTENDED: usize = 32;
/// Bytes of a frame beside its payload, at most: headers, padding and checksum.
pub const MOST_HEADERS: usize = HEADERS_AT + MOST_EXTENDED + 3 + ICRC_LEN;

/// Extended headers to send.
#[derive(Debug, Clone, Copy, Default)]
pub struct Headers {
    bytes: [u8; MOST_EXTENDED],
    len: usize,
}

impl Headers {
    /// None.
    pub const NONE: Headers = Headers { bytes: [0; MOST_EXTENDED], len: 0 };

    /// One.
    #[inline]
    #[must_use]
    pub fn of<const N: usize>(header: [u8; N]) -> Headers {
        Headers::NONE.with(header)
    }

    /// With another one after those before.
    ///
    /// # Panics
    /// More than any packet has: a programming error.
    #[inline]
    #[must_use]
    pub fn with<const N: usize>(mut self, header: [u8; N]) -> Headers {
        self.bytes[self.len..self.len + N].copy_from_slice(&header);
        self.len += N;
        self
    }

    /// Appends a base header and these.
    #[inline]
    pub(super) fn append(&self, bth: &Bth, frame: &mut Vec<u8>) {
        let mut bytes = [0; BTH_LEN + MOST_EXTENDED];
        bth.emit(&mut bytes);
        bytes[BTH_LEN..].copy_from_slice(&self.bytes);
        // A copy whose length is known is a few instructions; what is too much goes.
        let end = frame.len() + BTH_LEN + self.len;
        frame.extend_from_slice(&bytes);
        frame.truncate(end);
    }
}

/// A way to a peer, with everything that stands in front of the transport's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// The own hardware address.
    pub local_mac: Mac,
    /// The next hop's.
    pub remote_mac: Mac,
    /// The own address.
    pub local: Ipv4Addr,
    /// The peer's.
    pub remote: Ipv4Addr,
    /// Hops.
    pub hop_limit: u8,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// The UDP source port: spreads queue pairs over the ways of a network (IBTA A17.3.1.1).
    pub source_port: u16,
}

impl Path {
    /// Writes all headers of a packet into an empty frame; `payload` bytes of payload and then [`finish`] or [`pad`]
    /// follow. The padding is computed.
    #[inline]
    pub fn emit(&self, bth: &Bth, extended: &Headers, payload: usize, frame: &mut Vec<u8>) {
        let pad = payload.wrapping_neg() & 3;
        self.emit_network(BTH_LEN + extended.len + payload + pad + ICRC_LEN, frame);
        extended.append(&Bth { pad: pad as u8, ..*bth }, frame);
    }

    /// Writes the headers of Ethernet, IPv4 and UDP into an empty frame; `after` bytes follow.
    #[inline]
    pub(super) fn emit_network(&self, after: usize, frame: &mut Vec<u8>) {
        frame.clear();
        frame.resize(IP_AT + ipv4::HEADER_LEN + UDP_LEN, 0);
        let link = ethernet::Header { dst: self.remote_mac, src: self.local_mac, ethertype: EtherType::Ipv4 };
        link.emit(frame);
        let udp_len = (UDP_LEN + after) as u16;
        let ip = ipv4::Header {
            ttl: self.hop_limit,
            ecn: self.traffic_class.into(),
            dscp: self.traffic_class >> 2,
            ..ipv4::Header::new(ipv4::UDP, (self.local, self.remote), udp_len)
        };
        ip.emit(&mut frame[IP_AT..]);
        // The checksum stays zero, "not computed": the ICRC covers more (IBTA A17.3.1.1).
        let udp = &mut frame[IP_AT + ipv4::HEADER_LEN..];
        udp[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&UDP_PORT.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    }
}

/// Bytes of padding and checksum behind the payload of a packet with these headers.
pub fn behind_payload(headers: &[u8]) -> usize {
    let bth_at = ethernet::payload_at(headers, EtherType::Ipv4).map(|ip_at| ip_at + ipv4::HEADER_LEN + UDP_LEN);
    let flags = bth_at.and_then(|at| headers.get(at + 1));
    flags.map_or(0, |flags| usize::from(flags >> 4 & 3)) + ICRC_LEN
}

/// Ends a frame that has its payload: padding, and a place for the checksum ([`seal`]).
#[inline]
pub fn pad(frame: &mut Vec<u8>) {
    let pad = frame.get(IP_AT + ipv4::HEADER_LEN + UDP_LEN + 1).map_or(0, |flags| flags >> 4 & 3);
    frame.extend_from_slice(&[0; 3 + ICRC_LEN][..usize::from(pad) + ICRC_LEN]);
}

/// Ends a frame that has its payload: padding and checksum.
#[inline]
pub fn finish(frame: &mut Vec<u8>) {
    pad(frame);
    seal(frame);
}

/// Computes the ICRC of a packet that has a place for it.
pub fn seal(frame: &mut [u8]) {
    let Ok(Layout { ip_at, end, .. }) = layout(frame) else { return };
    let (covered, checksum) = frame[ip_at..end].split_at_mut(end - ip_at - ICRC_LEN);
    if let Some(right) = icrc(covered) {
        checksum.copy_from_slice(&right);
    }
}

/// Where the parts of a frame lie.
pub(super) struct Layout {
    pub(super) ip_at: usize,
    /// The base transport header.
    pub(super) bth_at: usize,
    /// One behind the ICRC.
    pub(super) end: usize,
    pub(super) ip: ipv4::Header,
}

/// Finds the parts of a frame, Ethernet and IPv4 headers checked. IPv4 options are refused: the ICRC is not defined
/// for them.
#[inline]
pub(super) fn layout(frame: &[u8]) -> Result<Layout, Malformed> {
    layout_with(frame, 0)
}

/// The same of a frame that has so many bytes more, behind all headers.
#[inline]
fn layout_with(frame: &[u8], more: usize) -> Result<Layout, Malformed> {
    let ip_at = ethernet::payload_at(frame, EtherType::Ipv4).ok_or(Malformed::Field)?;
    let packet = &frame[ip_at..];
    let (ip, ip_len) = ipv4::Header::parse(packet, packet.len() + more)?;
    let udp_at = ip_at + ip_len;
    let len = usize::from(ip.payload_len);
    if ip.protocol != ipv4::UDP || ip.is_fragment || ip_len != ipv4::HEADER_LEN {
        return Err(Malformed::Field);
    }
    if len < UDP_LEN + BTH_LEN + ICRC_LEN || frame.len() < udp_at + UDP_LEN + BTH_LEN {
        return Err(Malformed::Truncated);
    }
    if usize::from(be16(frame, udp_at + 4)) != len {
        return Err(Malformed::Truncated);
    }
    if be16(frame, udp_at + 2) != UDP_PORT {
        return Err(Malformed::Field);
    }
    Ok(Layout { ip_at, bth_at: udp_at + UDP_LEN, end: udp_at + len, ip })
}

/// The queue pair to which a frame goes, if it has the form of a RoCEv2 packet over IPv4; nothing of it is checked. For
/// code that shares frames out.
#[inline]
pub fn destination_qp(frame: &[u8]) -> Option<u32> {
    let ip_at = ethernet::payload_at(frame, EtherType::Ipv4)?;
    let udp_at = ip_at + usize::from(frame.get(ip_at)? & 0xf) * 4;
    let bth = frame.get(udp_at + UDP_LEN..udp_at + UDP_LEN + BTH_LEN)?;
    let is_ours = frame[ip_at + 9] == ipv4::UDP && be16(frame, udp_at + 2) == UDP_PORT;
    is_ours.then(|| be32(bth, 4) & 0xff_ffff)
}

/// The checksum of a frame that [`Packet::parse`] accepted is the right one.
// Meets IBTA: 7.8.1-a.
#[inline]
pub fn icrc_is_right(frame: &[u8]) -> bool {
    let Ok(Layout { ip_at, end, .. }) = layout(frame) else { return false };
    let (covered, checksum) = frame[ip_at..end].split_at(end - ip_at - ICRC_LEN);
    icrc(covered).is_some_and(|right| right == checksum)
}

/// A received packet, its headers checked. The ICRC is not: [`icrc_is_right`].
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a, P = &'a [u8]> {
    /// Its IPv4 header.
    pub ip: ipv4::Header,
    /// The IPv4 header as it came: receivers of datagrams get it.
    pub ip_bytes: &'a [u8],
    /// Its UDP source port.
    pub source_port: u16,
    /// Its hardware addresses: source, then destination.
    pub source_mac: Mac,
    /// The base transport header.
    pub bth: Bth,
    /// The extended headers, of the opcode's length.
    extended: &'a [u8],
    /// Payload, without padding.
    pub payload: P,
    /// Payload bytes of each of its packets but the last, where it is a train; 0 for one packet.
    pub segment: u16,
}

/// The payload of a packet, wherever it is.
pub trait Payload {
    /// Its bytes.
    fn bytes(&self) -> usize;
}

impl Payload for &[u8] {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// A packet of a packed train.
#[derive(Debug, Clone, Copy)]
pub struct Inner<'f> {
    /// Its base header.
    pub bth: Bth,
    /// Its extended headers, of the opcode's length.
    pub extended: &'f [u8],
    /// Its payload, without padding.
    pub payload: &'f [u8],
}

/// What a packet has of the network's headers.
pub(super) struct Network<'f> {
    pub(super) ip: ipv4::Header,
    pub(super) ip_bytes: &'f [u8],
    pub(super) source_port: u16,
    pub(super) source_mac: Mac,
}

/// What a datagram has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Queue key and source.
    pub deth: Deth,
    /// Immediate data.
    pub immediate: Option<u32>,
}

impl<'a> Packet<'a> {
    /// Reads a frame. All lengths are checked: extended headers are there, and so is the payload; opcodes without
    /// payload have none, but for acknowledgements of peers that send selective ones.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Packet<'a>, Malformed> {
        Packet::parse_with(frame, layout(frame)?, None)
    }

    /// The same of the headers of a packet whose payload of so many bytes is elsewhere, as is what follows it.
    #[inline]
    pub fn parse_front(headers: &'a [u8], payload: usize) -> Result<Packet<'a>, Malformed> {
        let layout = layout_with(headers, payload + behind_payload(headers))?;
        Packet::parse_with(headers, layout, Some(payload))
    }

    #[inline]
    fn parse_with(frame: &'a [u8], layout: Layout, elsewhere: Option<usize>) -> Result<Packet<'a>, Malformed> {
        let Layout { ip_at, bth_at, end, ip } = layout;
        let bth = Bth::parse(&frame[bth_at..])?;
        let extended_at = bth_at + BTH_LEN;
        let payload_at = extended_at + bth.opcode.extended_len();
        let payload_end = end - ICRC_LEN - usize::from(bth.pad);
        if payload_at > payload_end {
            return Err(Malformed::Truncated);
        }
        if !bth.opcode.has_payload() && payload_at != payload_end && !bth.extension.is_selective() {
            return Err(Malformed::Field);
        }
        let payload_end = match elsewhere {
            None => payload_end,
            Some(payload) if payload_at == frame.len() && payload_at + payload == payload_end => payload_at,
            Some(_) => return Err(Malformed::Truncated),
        };
        Ok(Packet {
            ip,
            ip_bytes: &frame[ip_at..ip_at + ipv4::HEADER_LEN],
            source_port: be16(frame, ip_at + ipv4::HEADER_LEN),
            source_mac: ethernet::Header::parse(frame)?.src,
            bth,
            extended: &frame[extended_at..payload_at],
            payload: &frame[payload_at..payload_end],
            segment: 0,
        })
    }

    /// A packet of a packed train.
    #[inline]
    pub(super) fn of_parts(network: Network<'a>, inner: Inner<'a>) -> Packet<'a> {
        let Network { ip, ip_bytes, source_port, source_mac } = network;
        let Inner { bth, extended, payload } = inner;
        Packet { ip, ip_bytes, source_port, source_mac, bth, extended, payload, segment: 0 }
    }
}

impl<P: Payload> Packet<'_, P> {
    /// Packets of it.
    #[inline]
    pub fn count(&self) -> u32 {
        match self.segment {
            0 => 1,
            segment => self.payload.bytes().div_ceil(segment.into()).max(1) as u32,
        }
    }
}

impl<'a, P> Packet<'a, P> {
    /// The same packet with its payload as another type.
    #[inline]
    pub fn over<Q>(self, payload: Q) -> Packet<'a, Q> {
        let Packet { ip, ip_bytes, source_port, source_mac, bth, extended, segment, .. } = self;
        Packet { ip, ip_bytes, source_port, source_mac, bth, extended, payload, segment }
    }

    /// Its opcode.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        self.bth.opcode
    }

    /// Its RETH.
    #[inline]
    pub fn reth(&self) -> Option<Reth> {
        if self.opcode().has_reth() { self.after_xrc().first_chunk().map(Reth::parse) } else { None }
    }

    /// Its AETH; `None` also where the syndrome is reserved.
    #[inline]
    pub fn aeth(&self) -> Option<Aeth> {
        if self.opcode().has_aeth() { self.extended.first_chunk().and_then(Aeth::parse) } else { None }
    }

    /// Its AtomicETH.
    #[inline]
    pub fn atomic(&self) -> Option<AtomicEth> {
        if self.opcode().has_atomic() { self.after_xrc().first_chunk().map(AtomicEth::parse) } else { None }
    }

    /// The shared receive queue that a request of an extended reliable connection names.
    #[inline]
    pub fn shared_queue(&self) -> Option<u32> {
        let header = self.extended.first_chunk().filter(|_| self.opcode().has_xrc()).map(XrcEth::parse)?;
        Some(header.queue & 0xff_ffff)
    }

    /// The extended headers, without the one that comes before all others.
    #[inline]
    fn after_xrc(&self) -> &'a [u8] {
        let skip = if self.opcode().has_xrc() { XrcEth::LEN } else { 0 };
        self.extended.get(skip..).unwrap_or_default()
    }

    /// What the word held before an atomic operation.
    #[inline]
    pub fn atomic_result(&self) -> Option<u64> {
        let bytes = self.extended.last_chunk().filter(|_| self.opcode().has_atomic_ack())?;
        Some(u64::from_be_bytes(*bytes))
    }

    /// Its immediate data, read as big endian.
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        let bytes = self.extended.last_chunk().filter(|_| self.opcode().has_immediate())?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// The key that it invalidates.
    #[inline]
    pub fn invalidated(&self) -> Option<u32> {
        let bytes = self.extended.last_chunk().filter(|_| self.opcode().has_invalidate())?;
        Some(u32::from_be_bytes(*bytes))
    }

    /// All extended headers.
    pub(super) fn extended(&self) -> &'a [u8] {
        self.extended
    }

    /// Bytes of the immediate data or of the key to invalidate, which are the last of the extended headers.
    pub(super) fn tail_len(&self) -> usize {
        let has_tail = self.opcode().has_immediate() || self.opcode().has_invalidate();
        if has_tail { 4 } else { 0 }
    }

    /// What a datagram has.
    #[inline]
    pub fn datagram(&self) -> Option<Datagram> {
        let deth = self.extended.first_chunk().filter(|_| self.opcode().has_deth()).map(Deth::parse)?;
        Some(Datagram { deth, immediate: self.immediate() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Congestion, Psn, Syndrome};
    use super::*;

    /// Frames that scapy 2.7 (contrib.roce) built, checksums included.
    const ACK: &str = "02000000000202000000000108004500003000004000401126bb0a0000010a000002c12312b7001c0000\
        1100ffff0012345600fedcba1f000007c345a30a";
    const SEND: &str = "02000000000202000000000108004502003400004000401126b50a0000010a000002c12312b700200000\
        04f0ffff000000118000000168656c6c6f00000049e3bcb8";
    const WRITE: &str = "0200000000020200000000010800456b0104000040004011257c0a0000010a000002c12312b700f00000\
        0a40ffff00000011800000021122334455667788aabbccdd000000c8";
    const WRITE_ICRC: [u8; 4] = [0x41, 0xf4, 0x0f, 0x1e];
    const CNP: &str = "02000000000202000000000108004500003c00004000401126af0a0000010a000002c12312b700280000\
        8140ffff40000011000000000000000000000000000000000000000096243305";
    const UD6: &str = "6031234500281109fe800000000000000000000000000001fe800000000000000000000000000002\
        c12312b7002800006440ffff00000001000000038001000000000017646174616772616d412a7c19";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn path(traffic_class: u8) -> Path {
        Path {
            local_mac: Mac([2, 0, 0, 0, 0, 1]),
            remote_mac: Mac([2, 0, 0, 0, 0, 2]),
            local: Ipv4Addr::new(10, 0, 0, 1),
            remote: Ipv4Addr::new(10, 0, 0, 2),
            hop_limit: 64,
            traffic_class,
            source_port: 0xc123,
        }
    }

    /// A packet of ours, whole.
    fn built(traffic_class: u8, bth: &Bth, extended: &Headers, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![7; 3];
        path(traffic_class).emit(bth, extended, payload.len(), &mut frame);
        frame.extend_from_slice(payload);
        finish(&mut frame);
        frame
    }

    #[test]
    fn a_front_has_the_same_fields_as_the_whole_packet() {
        for len in [1, 2, 3, 4, 1000] {
            let bth = Bth::new(Opcode::from_number(10).unwrap(), 0x11, Psn::new(2));
            let reth = Reth { address: 7, key: 9, len: len as u32 };
            let (payload, headers) = (vec![5; len], Headers::NONE.with(reth.bytes()));
            let mut front = Vec::new();
            path(2).emit(&bth, &headers, len, &mut front);
            let whole = [&front[..], &payload, &vec![0; behind_payload(&front)]].concat();
            let (whole, parsed) = (Packet::parse(&whole).unwrap(), Packet::parse_front(&front, len).unwrap());
            assert_eq!((parsed.reth(), parsed.bth, parsed.ip), (whole.reth(), whole.bth, whole.ip));
            assert_eq!((whole.payload, parsed.payload), (&payload[..], &[][..]));
            assert!(Packet::parse_front(&front, len + 1).is_err() && Packet::parse_front(&front, len - 1).is_err());
            for cut in 0..front.len() {
                assert!(Packet::parse_front(&front[..cut], len).is_err(), "{cut} bytes of headers");
            }
        }
    }

    // Checks IBTA: A17.3.1-a.
    #[test]
    fn packets_are_those_that_scapy_builds() {
        let send =
            Bth { solicited: true, ack_request: true, ..Bth::new(Opcode::from_number(4).unwrap(), 0x11, Psn::new(1)) };
        assert_eq!(built(2, &send, &Headers::NONE, b"hello"), bytes(SEND));
        let write = Bth { ack_request: true, ..Bth::new(Opcode::from_number(10).unwrap(), 0x11, Psn::new(2)) };
        let reth = Reth { address: 0x1122_3344_5566_7788, key: 0xaabb_ccdd, len: 200 };
        let payload: Vec<u8> = (0..200).collect();
        let whole = [bytes(WRITE), payload.clone(), WRITE_ICRC.to_vec()].concat();
        assert_eq!(built(0x6b, &write, &Headers::NONE.with(reth.bytes()), &payload), whole);
        let congestion = Congestion { backward: true, forward: false };
        let cnp = Bth { congestion, ..Bth::new(Opcode::CNP, 0x11, Psn::new(0)) };
        assert_eq!(built(0, &cnp, &Headers::NONE, &[0; 16]), bytes(CNP));
    }

    #[test]
    fn what_scapy_builds_is_read() {
        let frame = bytes(ACK);
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!((packet.bth.qp, packet.bth.psn), (0x12_3456, Psn::new(0xfe_dcba)));
        assert_eq!(packet.aeth(), Some(Aeth { syndrome: Syndrome::Ack(31), messages: 7 }));
        assert!(icrc_is_right(&frame) && packet.payload.is_empty());
        assert_eq!(destination_qp(&frame), Some(0x12_3456));
        let frame = bytes(SEND);
        let packet = Packet::parse(&frame).unwrap();
        assert_eq!((packet.payload, packet.source_port, packet.bth.solicited), (&b"hello"[..], 0xc123, true));
        let datagram = bytes(UD6);
        let (covered, checksum) = datagram.split_at(datagram.len() - ICRC_LEN);
        assert_eq!(icrc(covered).unwrap(), checksum);
    }

    // Checks IBTA: 7.8.1-a.
    #[test]
    fn no_prefix_and_no_changed_bit_passes_unseen() {
        let frame = bytes(SEND);
        for len in 0..frame.len() {
            assert!(Packet::parse(&frame[..len]).is_err(), "{len} bytes");
        }
        // Ethernet pads short frames.
        let padded = [frame.clone(), vec![0; 9]].concat();
        assert!(Packet::parse(&padded).is_ok() && icrc_is_right(&padded));
        for at in IP_AT..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 4;
            let udp_checksum = at == 40 || at == 41;
            // The congestion bits and those beside them may change on the way; so may the UDP checksum.
            let passes = Packet::parse(&changed).is_ok() && icrc_is_right(&changed);
            assert_eq!(passes, udp_checksum || at == 46, "byte {at}");
        }
    }
}
