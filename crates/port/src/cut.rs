//! Cutting a TCP super-segment into segments, as a NIC with segmentation offload (TSO) does, and a train of RoCEv2
//! packets into packets.
use crate::{Checksum, Frame, FramePool, PortDrop, PortDrops};
use shm::Span;
use wire::checksum::Sum;
use wire::roce::Train;
use wire::tcp::Flags;
use wire::{EtherType, ip, ipv4, tcp};

/// Cuts `frame` into frames of at most [`Frame::segment_size`] payload bytes, appended to `into`. Payload of TCP by
/// reference stays by reference, and its checksums come out partial; those of RoCEv2 are complete. What is neither a
/// TCP super-segment nor a train comes back.
pub fn cut(frame: Box<Frame>, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> Result<(), Box<Frame>> {
    if frame.checksum == Checksum::Icrc {
        return cut_train(frame, pool, into);
    }
    let Some(layout) = Layout::of(&frame) else { return Err(frame) };
    let mut at = 0;
    while at < layout.payload_len {
        let len = (layout.payload_len - at).min(usize::from(frame.segment_size));
        let mut part = headers(&frame, &layout, at, len, pool.small());
        match frame.payload() {
            Some(span) => part.set_payload(Some(span.slice(at as u32, len as u32))),
            None => {
                let from = layout.payload_at + at;
                part.bytes_vec().extend_from_slice(&frame.bytes()[from..from + len]);
            }
        }
        into.push(part);
        at += len;
    }
    pool.put(frame);
    Ok(())
}

/// Where the payload of frames comes from that are made of headers ([`cut_headers`]).
pub trait Source {
    /// How the payload bytes from `at` on are had, at most `most` of them.
    fn next(&mut self, at: usize, most: usize) -> Piece;
    /// Appends the payload bytes `[at, at + len)`; false where that cannot be.
    fn fill(&mut self, at: usize, len: usize, into: &mut Vec<u8>) -> bool;
}

/// Payload of one frame.
pub enum Piece {
    /// These bytes, by reference.
    Refer(Span),
    /// So many are to be copied.
    Copy(usize),
}

/// Makes frames of a TCP segment's headers, whose payload is elsewhere. Frames have at most [`Frame::segment_size`]
/// bytes of payload where that is not 0, or `most` where that is not 0, and fewer where the source gives fewer. Where
/// it cannot fill one, no more frames are made, and neither is that one. False as well where the headers are not those
/// of a TCP segment with payload.
pub fn cut_headers(
    frame: &Frame,
    most: usize,
    pool: &mut FramePool,
    into: &mut Vec<Box<Frame>>,
    source: &mut impl Source,
) -> bool {
    let Some(layout) = Layout::parse(frame, usize::MAX).filter(|layout| layout.payload_len > 0) else { return false };
    let most = if most > 0 { most } else { usize::from(frame.segment_size) };
    let step = if most > 0 { most } else { layout.payload_len };
    let mut at = 0;
    while at < layout.payload_len {
        let most = (layout.payload_len - at).min(step);
        let (mut part, len) = match source.next(at, most) {
            Piece::Refer(span) => {
                let len = span.len();
                debug_assert!((1..=most).contains(&len));
                let mut part = headers(frame, &layout, at, len, pool.small());
                part.attach(span);
                (part, len)
            }
            Piece::Copy(len) => {
                let len = len.clamp(1, most);
                let room = if len > SMALL_PAYLOAD { pool.large() } else { pool.small() };
                let mut part = headers(frame, &layout, at, len, room);
                if !source.fill(at, len, part.bytes_vec()) {
                    pool.put(part);
                    return false;
                }
                (part, len)
            }
        };
        if len > usize::from(frame.segment_size) {
            part.segment_size = frame.segment_size;
        }
        into.push(part);
        at += len;
    }
    true
}

/// Payload that a small frame grows for; a longer one is put into a large frame.
const SMALL_PAYLOAD: usize = 9_000;

/// The same of a train of RoCEv2 packets, which are whole afterwards.
fn cut_train(mut frame: Box<Frame>, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> Result<(), Box<Frame>> {
    pool.flatten(&mut frame);
    let Some(mut train) = Train::of(frame.bytes(), frame.segment_size) else { return Err(frame) };
    let most = train.longest();
    for _ in 0..train.count() {
        let small = pool.small();
        let mut packet = if small.capacity() >= most { small } else { (pool.put(small), pool.large()).1 };
        train.write_next(packet.bytes_vec());
        into.push(packet);
    }
    pool.put(frame);
    Ok(())
}

/// RoCEv2 packets are about to leave the machine: makes packets of trains, and completes checksums. What is no packet
/// is dropped.
pub(crate) fn make_whole(frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
    if frames.iter().all(|frame| frame.checksum != Checksum::Icrc) {
        return;
    }
    for mut frame in std::mem::take(frames) {
        if frame.checksum == Checksum::Icrc && frame.segment_size > 0 {
            if let Err(frame) = cut_train(frame, pool, frames) {
                drops.count(PortDrop::TooLong);
                pool.put(frame);
            }
            continue;
        }
        if frame.checksum == Checksum::Icrc {
            frame.complete_checksum();
        }
        frames.push(frame);
    }
}

/// Where the headers of a TCP segment end, and their fields.
pub(crate) struct Layout {
    ip: ip::Header,
    pub(crate) ethertype: EtherType,
    /// First byte of the IP header: VLAN tags may stand before it.
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
        let layout = Layout::parse(frame, frame.len())?;
        // The payload is in one place: after the headers, or all by reference.
        let in_one_place = frame.payload().is_none() || frame.bytes().len() == layout.payload_at;
        let is_super = frame.segment_size > 0 && layout.payload_len > 0;
        (in_one_place && is_super).then_some(layout)
    }

    /// That of a TCP segment in a frame that has `have` bytes altogether, of which all headers are there.
    fn parse(frame: &Frame, have: usize) -> Option<Layout> {
        let bytes = frame.bytes();
        let (ip_at, ethertype) = ip::packet_at(bytes)?;
        let packet = &bytes[ip_at..];
        let (ip, ip_len) = ip::Header::parse(ethertype, packet, have - ip_at).ok()?;
        let (tcp, tcp_len) = tcp::Header::parse(&packet[ip_len..]).ok()?;
        let payload_len = usize::from(ip.payload_len).checked_sub(tcp_len)?;
        let tcp_at = ip_at + ip_len;
        let payload_at = tcp_at + tcp_len;
        let is_tcp = ip.protocol == ipv4::TCP && !ip.is_fragment;
        is_tcp.then_some(Layout { ip, ethertype, ip_at, tcp, tcp_at, payload_at, payload_len })
    }
}

/// The headers of the segment of `len` payload bytes from byte `at` of the payload, in an empty frame.
fn headers(frame: &Frame, layout: &Layout, at: usize, len: usize, mut part: Box<Frame>) -> Box<Frame> {
    let Layout { ip, ip_at, tcp, tcp_at, payload_at, payload_len, .. } = layout;
    part.bytes_vec().extend_from_slice(&frame.bytes()[..*payload_at]);
    // Only the first one has CWR set (RFC 3168 section 6.1.2), only the last ends something.
    let mut flags = tcp.flags;
    if at > 0 {
        flags.0 &= !Flags::CWR.0;
    }
    if at + len < *payload_len {
        flags.0 &= !(Flags::FIN | Flags::PSH).0;
    }
    let tcp_len = payload_at - tcp_at + len;
    let index = at / usize::from(frame.segment_size).max(1);
    let packet_len = payload_at - ip_at + len;
    let bytes = part.bytes_mut();
    ip::set_len(&mut bytes[*ip_at..], packet_len, index as u16);
    let pseudo = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, tcp_len as u32).partial();
    tcp::set_segment(&mut bytes[*tcp_at..], tcp.seq + at as u32, flags, pseudo);
    part.checksum = Checksum::Partial { start: *tcp_at as u16, field: (tcp_at + tcp::CHECKSUM_AT) as u16 };
    part
}
