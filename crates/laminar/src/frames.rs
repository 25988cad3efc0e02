//! Common steps for every frame, whatever the pipeline decides: checksums, captures, payload copies.
use crate::descriptor::Dma;
use engine::{DropReason, Frame, Nanos, Recorder};
use port::Checksum;
use port::capture::{Direction, Fate, Sight};
use shm::{ByteRing, Span};
use wire::checksum::Sum;
use wire::{EtherType, ethernet, ip, ipv4};

const IP_AT: usize = ethernet::HEADER_LEN;

/// The IP header of a frame without VLAN tags, and its length with options or extension headers.
pub(crate) fn ip_header(frame: &Frame) -> Option<Result<(ip::Header, usize), DropReason>> {
    let bytes = frame.bytes();
    let ethertype = ethernet::Header::parse(bytes).ok()?.ethertype;
    let is_ip = matches!(ethertype, EtherType::Ipv4 | EtherType::Ipv6);
    is_ip.then(|| ip::Header::parse(ethertype, &bytes[IP_AT..], frame.len() - IP_AT).map_err(|_| DropReason::Ip))
}

/// Fate of a frame, for a capture.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FrameVerdict {
    Accepted,
    Sent,
    Dropped(DropReason),
}

#[cold]
pub(crate) fn record(frame: &Frame, flow: Option<u32>, verdict: FrameVerdict, now: Nanos, recorder: &mut Recorder) {
    if frame.recorded {
        return;
    }
    let (direction, fate) = match verdict {
        FrameVerdict::Accepted => (Direction::In, Fate::Accepted),
        FrameVerdict::Sent => (Direction::Out, Fate::Sent),
        FrameVerdict::Dropped(reason) => (Direction::In, Fate::dropped(reason)),
    };
    recorder.record(now, frame, &Sight { direction, flow, module: "pipeline", fate });
}

/// Why a frame that is none of TCP's goes to the control plane. A wrong IPv4 header has its protocol at a fixed place.
/// What a wrong IPv6 header carries is unknown, and it is not the control plane's either.
pub(crate) fn is_tcp(frame: &Frame) -> bool {
    let bytes = frame.bytes();
    match ip_header(frame) {
        Some(Ok((ip, _))) => ip.protocol == ipv4::TCP,
        Some(Err(_)) if bytes[12] == 8 => bytes.len() >= IP_AT + ipv4::HEADER_LEN && bytes[IP_AT + 9] == ipv4::TCP,
        Some(Err(_)) => true,
        None => false,
    }
}

/// Verifies the TCP checksum where nobody has done so: the port's business, since a pipeline can't sum payload
/// (thesis 5.4).
#[inline]
pub(crate) fn verify(frame: &mut Frame) -> Result<(), DropReason> {
    if frame.checksum != Checksum::Complete { Ok(()) } else { verify_all(frame) }
}

// Meets RFC 9293: MUST-3.
fn verify_all(frame: &mut Frame) -> Result<(), DropReason> {
    let Some((ip, ip_len)) = ip_header(frame).filter(|_| is_tcp(frame)).transpose()? else { return Ok(()) };
    frame.flatten();
    if ip.is_fragment {
        return Err(DropReason::Fragment);
    }
    let segment = frame.bytes().get(IP_AT + ip_len..IP_AT + ip_len + ip.payload_len as usize).ok_or(DropReason::Ip)?;
    let mut sum = Sum::pseudo_header(ip.src, ip.dst, ipv4::TCP, ip.payload_len as u32);
    sum.add(segment);
    if sum.finish() != 0 {
        return Err(DropReason::TcpChecksum);
    }
    frame.checksum = Checksum::Verified;
    Ok(())
}

/// Copies a segment's payload to its place, but for what the host has already (`skip`): from the contiguous bytes,
/// from the referenced ones, or both.
#[inline(always)]
pub(crate) fn place(frame: &Frame, payload_at: usize, dma: &Dma, buffer: &ByteRing) {
    let bytes = frame.bytes();
    if let Some(span) = frame.payload().filter(|_| payload_at == bytes.len() && dma.skip == 0) {
        return buffer.write_part(dma.address, span, (0, dma.length.into()));
    }
    let (start, end) = (payload_at + dma.skip as usize, payload_at + dma.length as usize);
    let position = dma.address.wrapping_add(dma.skip);
    let contiguous = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]);
    if !contiguous.is_empty() {
        buffer.write(position, contiguous);
    }
    if let Some(span) = frame.payload().filter(|_| end > bytes.len()) {
        let skip = start.max(bytes.len()) - bytes.len();
        let part = (skip as u32, (end - bytes.len() - skip) as u32);
        buffer.write_part(position.wrapping_add(contiguous.len() as u32), span, part);
    }
}

/// Copies what is unread, out of order or unacknowledged, from position `from` on.
pub(crate) fn copy_buffer(old: &std::sync::Arc<ByteRing>, new: &ByteRing, from: u32, len: u32) {
    new.write_span(from, &Span::new(old, from, len.min(old.size()).min(new.size())));
}
