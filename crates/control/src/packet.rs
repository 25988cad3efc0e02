//! TCP segments as packets: building those of the control plane, reading those of the exception path.
use ::tcp::Segment;
use engine::DropReason;
use engine::stream::FourTuple;
use host::{Ip, Packet};
use port::{Checksum, Frame};
use wire::checksum::Sum;
use wire::{ipv4, tcp};

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
