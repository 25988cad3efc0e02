//! TCP segments as packets: building those of the control plane, reading those of the exception path.
use ::tcp::{Established, Segment};
use engine::stream::FourTuple;
use engine::{DropReason, Nanos};
use host::{Ip, Packet};
use port::{Checksum, Frame};
use wire::checksum::Sum;
use wire::{ethernet, ip, ipv4, tcp};

/// A segment without payload. Control segments are few: their checksum is always complete.
pub(crate) fn segment(tuple: &FourTuple, header: &tcp::Header) -> Packet {
    let (src, dst) = (tuple.local_ip, tuple.remote_ip);
    let packet = Packet::short(dst, ipv4::TCP, header.len(), |body| {
        header.emit(body);
        let mut sum = Sum::pseudo_header(src, dst, ipv4::TCP, body.len() as u32);
        sum.add(body);
        body[tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2].copy_from_slice(&sum.finish().to_be_bytes());
    });
    packet.with_source(src)
}

/// The same with payload, which is that of a SYN: the payload of all other segments is the engine's.
pub(crate) fn segment_with(tuple: &FourTuple, header: &tcp::Header, payload: &[u8]) -> Packet {
    if payload.is_empty() {
        return segment(tuple, header);
    }
    let mut body = vec![0; header.len()];
    header.emit(&mut body);
    body.extend_from_slice(payload);
    let mut sum = Sum::pseudo_header(tuple.local_ip, tuple.remote_ip, ipv4::TCP, body.len() as u32);
    sum.add(&body);
    body[tcp::CHECKSUM_AT..tcp::CHECKSUM_AT + 2].copy_from_slice(&sum.finish().to_be_bytes());
    Packet::new(tuple.remote_ip, ipv4::TCP, body).with_source(tuple.local_ip)
}

/// The payload of a SYN as the segment that an engine takes it from: it follows the SYN, and acknowledges `iss`. It is
/// a frame of its own, so a capture has the SYN as it came. `None` where the frame does not hold the payload.
pub(crate) fn data_of_syn(now: Nanos, frame: &mut Frame, syn: &Segment, open: &Established) -> Option<Box<Frame>> {
    frame.flatten();
    let (at, ethertype) = ip::packet_at(frame.bytes())?;
    let packet = frame.bytes().get(at..)?;
    let (_, ip_len) = ip::Header::parse(ethertype, packet, packet.len()).ok()?;
    let (_, tcp_len) = tcp::Header::parse(packet.get(ip_len..)?).ok()?;
    let payload = packet.get(ip_len + tcp_len..)?.get(..syn.payload as usize)?;
    // A SYN echoes nothing. As if it echoed this moment, no round trip is measured.
    let echo = |state: tcp::TimestampState| tcp::Timestamps { value: open.ts_recent, echo: state.stamp(now).value };
    let header = tcp::Header {
        seq: open.irs + 1,
        ack: open.iss + 1,
        flags: tcp::Flags::ACK | tcp::Flags::PSH,
        window: (open.snd_wnd >> open.agreed.snd_shift) as u16,
        options: tcp::Options { timestamps: open.timestamps().map(echo), ..tcp::Options::default() },
        ..syn.header
    };
    let begin = ethernet::HEADER_LEN + ip::header_len(syn.tuple.local_ip);
    let mut data = Box::new(Frame::default());
    data.resize(begin + header.len() + payload.len());
    let bytes = data.bytes_mut();
    let link = ethernet::Header::parse(frame.bytes()).ok()?;
    ethernet::Header { ethertype, ..link }.emit(bytes);
    header.emit(&mut bytes[begin..]);
    bytes[begin + header.len()..].copy_from_slice(payload);
    let ends = ip::Ends { src: syn.tuple.remote_ip, dst: syn.tuple.local_ip };
    ip::emit(ipv4::TCP, ends, 64, &mut bytes[ethernet::HEADER_LEN..])?;
    (data.checksum, data.port, data.recorded) = (Checksum::Verified, frame.port, true);
    Some(data)
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
        local_ip: ip.header.dst,
        remote_ip: ip.header.src,
        local_port: header.dst_port,
        remote_port: header.src_port,
    };
    Ok(Segment { tuple, header, payload })
}

fn verify(frame: &Frame, ip: &Ip) -> Result<(), DropReason> {
    let len = ip.header.payload_len;
    let body = frame.bytes().get(ip.body_at..ip.body_at + len as usize).ok_or(DropReason::Ip)?;
    let mut sum = Sum::pseudo_header(ip.header.src, ip.header.dst, ipv4::TCP, len as u32);
    sum.add(body);
    if sum.finish() == 0 { Ok(()) } else { Err(DropReason::TcpChecksum) }
}
