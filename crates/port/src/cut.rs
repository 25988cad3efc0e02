//! Cutting a TCP super-segment into segments, as a NIC with segmentation offload (TSO) does.
use crate::{Checksum, Frame, FramePool};
use wire::checksum::Sum;
use wire::tcp::Flags;
use wire::{EtherType, ethernet, ipv4, tcp};

/// Cuts `frame` into frames of at most [`Frame::segment_size`] payload bytes, appended to `into`. Payload by
/// reference stays by reference; checksums come out partial. What is not a TCP super-segment comes back.
pub fn cut(frame: Box<Frame>, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> Result<(), Box<Frame>> {
    let Some(layout) = Layout::of(&frame) else { return Err(frame) };
    let mut at = 0;
    while at < layout.payload_len {
        let len = (layout.payload_len - at).min(usize::from(frame.segment_size));
        into.push(segment(&frame, &layout, at, len, pool));
        at += len;
    }
    pool.put(frame);
    Ok(())
}

/// Where the headers of a TCP segment end and what they say.
pub(crate) struct Layout {
    ip: ipv4::Header,
    /// First byte of the IPv4 header: VLAN tags may stand before it.
    ip_at: usize,
    pub(crate) tcp: tcp::Header,
    /// First byte of the TCP header.
    tcp_at: usize,
    /// First byte of payload.
    pub(crate) payload_at: usize,
    pub(crate) payload_len: usize,
}

impl Layout {
    /// That of a super-segment; none where the frame is none.
    pub(crate) fn of(frame: &Frame) -> Option<Layout> {
        let bytes = frame.bytes();
        let ip_at = ethernet::payload_at(bytes, EtherType::Ipv4)?;
        let packet = &bytes[ip_at..];
        let (ip, ip_len) = ipv4::Header::parse(packet, frame.len() - ip_at).ok()?;
        let (tcp, tcp_len) = tcp::Header::parse(&packet[ip_len..]).ok()?;
        let payload_len = usize::from(ip.payload_len).checked_sub(tcp_len)?;
        let tcp_at = ip_at + ip_len;
        let payload_at = tcp_at + tcp_len;
        let whole = frame.len() >= payload_at + payload_len;
        // The payload is in one place: after the headers, or all by reference.
        let in_one_place = frame.payload().is_none() || bytes.len() == payload_at;
        let is_tcp = ip.protocol == ipv4::TCP && !ip.is_fragment;
        let is_super = frame.segment_size > 0 && payload_len > 0;
        (whole && in_one_place && is_tcp && is_super).then_some(Layout {
            ip,
            ip_at,
            tcp,
            tcp_at,
            payload_at,
            payload_len,
        })
    }
}

/// The segment of `len` payload bytes from byte `at` of the payload.
fn segment(frame: &Frame, layout: &Layout, at: usize, len: usize, pool: &mut FramePool) -> Box<Frame> {
    let Layout { ip, ip_at, tcp, tcp_at, payload_at, payload_len } = layout;
    let mut part = pool.small();
    part.bytes_vec().extend_from_slice(&frame.bytes()[..*payload_at]);
    match frame.payload() {
        Some(span) => part.set_payload(Some(span.slice(at as u32, len as u32))),
        None => part.bytes_vec().extend_from_slice(&frame.bytes()[payload_at + at..payload_at + at + len]),
    }
    // Only the first says that the window was reduced (RFC 3168 section 6.1.2), only the last ends something.
    let mut flags = tcp.flags;
    if at > 0 {
        flags.0 &= !Flags::CWR.0;
    }
    if at + len < *payload_len {
        flags.0 &= !(Flags::FIN | Flags::PSH).0;
    }
    let tcp_len = payload_at - tcp_at + len;
    let index = at / usize::from(frame.segment_size);
    let packet_len = payload_at - ip_at + len;
    let bytes = part.bytes_mut();
    ipv4::set_len_and_id(&mut bytes[*ip_at..], packet_len as u16, ip.id.wrapping_add(index as u16));
    let pseudo = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, tcp_len as u32).partial();
    tcp::set_segment(&mut bytes[*tcp_at..], tcp.seq + at as u32, flags, pseudo);
    part.checksum = Checksum::Partial { start: *tcp_at as u16, field: (tcp_at + tcp::CHECKSUM_AT) as u16 };
    part
}
