//! Frames of Solar packets: Ethernet, IPv4, UDP.
use crate::packet::{BLOCK_LEN, HEADER_LEN};
use crate::storage::Payload;
use host::{Io, Received};
use port::{Checksum, Frame};
use shm::Span;
use std::net::Ipv4Addr;
use tcp::Nanos;
use wire::ip::Ends;
use wire::{EtherType, ethernet, ipv4, udp};

const UDP_LEN: usize = udp::HEADER_LEN;
/// Where a frame has its UDP header, and its packet.
const UDP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
const PACKET_AT: usize = UDP_AT + UDP_LEN;
/// Of the checksum, within the UDP header.
const CHECKSUM_AT: usize = UDP_AT + udp::CHECKSUM_AT;
/// Most bytes of an IP packet with a block.
pub const LEAST_MTU: u16 = (ipv4::HEADER_LEN + UDP_LEN + HEADER_LEN + BLOCK_LEN) as u16;

/// From which port to which, at which address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UdpPath {
    pub(crate) remote: Ipv4Addr,
    pub(crate) from: u16,
    pub(crate) to: u16,
}

/// Sends a packet. Where the next hop is not known, it is asked for, and the packet is lost: it will be sent again.
pub(crate) fn send(now: Nanos, way: UdpPath, header: &[u8; HEADER_LEN], payload: Payload<'_>, io: &mut Io<'_>) {
    let remote = way.remote.into();
    let next_hop = if io.net.is_own(remote) { Some(remote) } else { io.net.routes.next_hop(remote) };
    let Some(next_hop) = next_hop else { return io.drops.count(engine::DropReason::NoRoute) };
    let Some(dst) = io.net.resolve(now, next_hop) else { return };
    let link = *io.net.link_towards(remote);
    let Some(local) = io.net.source(remote).as_v4() else { return };
    let mut frame = io.pool.small();
    let (copied, referred) = match payload {
        Payload::Bytes(bytes) => (bytes, None),
        Payload::Shared(span) => (&[][..], Some(span)),
    };
    let len = PACKET_AT + HEADER_LEN + copied.len();
    if len > frame.capacity() {
        io.pool.put(frame);
        frame = io.pool.large();
    }
    frame.resize(len);
    let bytes = frame.bytes_mut();
    let udp_len = (len - UDP_AT + referred.map_or(0, Span::len)) as u16;
    ethernet::Header { dst, src: link.mac, ethertype: EtherType::Ipv4 }.emit(bytes);
    let ip = ipv4::Header { ecn: ipv4::Ecn::Ect0, ..ipv4::Header::new(ipv4::UDP, (local, way.remote), udp_len) };
    ip.emit(&mut bytes[ethernet::HEADER_LEN..]);
    let payload_len = udp_len - udp::HEADER_LEN as u16;
    let udp = udp::Header { src_port: way.from, dst_port: way.to, payload_len };
    udp.emit(Ends { src: local.into(), dst: remote }, &mut bytes[UDP_AT..]);
    bytes[PACKET_AT..PACKET_AT + HEADER_LEN].copy_from_slice(header);
    bytes[PACKET_AT + HEADER_LEN..].copy_from_slice(copied);
    frame.set_payload(referred.cloned());
    frame.checksum = Checksum::Partial { start: UDP_AT as u16, field: CHECKSUM_AT as u16 };
    io.tx.push(frame);
}

/// A received packet: the way back, whether it met congestion, and its bytes. Its own checksums cover the bytes, so
/// UDP's is not checked. `None` where the network layer has it, or the frame is malformed. A packet whose payload is
/// elsewhere is copied to `whole`, which stays in the cache from one packet to the next.
pub(crate) fn receive<'f>(
    now: Nanos,
    frame: &'f mut Box<Frame>,
    whole: &'f mut Vec<u8>,
    io: &mut Io<'_>,
) -> Option<(UdpPath, bool, &'f [u8])> {
    let Received::Packet(ip) = io.net.receive(now, frame, io.drops) else { return None };
    let datagram = frame.bytes().get(ip.body_at..)?;
    let half = |at: usize| Some(u16::from_be_bytes([*datagram.get(at)?, *datagram.get(at + 1)?]));
    let way = UdpPath { remote: ip.header.src.as_v4()?, from: half(2)?, to: half(0)? };
    let len = usize::from(half(4)?).min(ip.header.payload_len as usize);
    let marked = ip.header.ecn == ipv4::Ecn::Ce;
    let Some(span) = frame.payload() else { return Some((way, marked, datagram.get(UDP_LEN..len)?)) };
    whole.clear();
    whole.extend_from_slice(datagram.get(UDP_LEN..)?);
    span.append(whole);
    Some((way, marked, whole.get(..len.checked_sub(UDP_LEN)?)?))
}
