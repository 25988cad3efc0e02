//! Frame parsing of the split and merge unit, and changes of headers.
use crate::nic::Payload;
use port::{Checksum, Frame};
use wire::predicted::PredictedV6;
use wire::rewrite::Layers;
use wire::tcp::{self, Flags, Options};
use wire::{EtherType, Ipv4Tuple, Ipv6Tuple, Mac, Seq, ethernet, ip, ipv4, ipv6};

/// Kind of a frame.
pub(crate) enum FrameKind {
    /// A TCP segment.
    Segment(Segment),
    /// A part of a TCP segment: its connection cannot be found.
    Fragment,
    /// IPv4 with TCP, but not as it has to be.
    Malformed,
    /// Something else.
    Other,
}

/// Headers of a TCP segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    /// Its connection, where this host is the destination. None over IPv6: the addresses stay in the frame.
    pub(crate) incoming: Option<Ipv4Tuple>,
    ip_at: usize,
    tcp_at: usize,
    pub(crate) payload_at: usize,
    pub(crate) payload_len: usize,
    pub(crate) seq: Seq,
    pub(crate) ack: Seq,
    pub(crate) flags: Flags,
    /// As it stands in the header.
    pub(crate) window: u16,
    pub(crate) options: Options,
}

/// Classifies a frame: finds segments over IPv4. `have` is how many bytes the whole frame has: more than `frame` holds
/// where only its headers were read.
pub(crate) fn kind(frame: &Frame, have: usize) -> FrameKind {
    let bytes = frame.bytes();
    let Some(ip_at) = ethernet::payload_at(bytes, EtherType::Ipv4) else { return FrameKind::Other };
    let packet = &bytes[ip_at..];
    let (ip, ip_len) = match ipv4::Header::parse(packet, have - ip_at) {
        Ok(parsed) => parsed,
        Err(_) if packet.get(9) == Some(&ipv4::TCP) => return FrameKind::Malformed,
        Err(_) => return FrameKind::Other,
    };
    if ip.protocol != ipv4::TCP {
        return FrameKind::Other;
    }
    if ip.is_fragment {
        return FrameKind::Fragment;
    }
    let Some((header, mut segment)) = Segment::parse(bytes, ip_at, ip_at + ip_len, ip.payload_len) else {
        return FrameKind::Malformed;
    };
    segment.incoming = Some(Ipv4Tuple {
        local_ip: ip.dst,
        local_port: header.dst_port,
        remote_ip: ip.src,
        remote_port: header.src_port,
    });
    FrameKind::Segment(segment)
}

/// The segment of a frame, over either version of IP; none where it has none, or one that is not as it has to be.
pub(crate) fn segment(frame: &Frame, have: usize) -> Option<Segment> {
    match kind(frame, have) {
        FrameKind::Segment(segment) => Some(segment),
        FrameKind::Other => segment_v6(frame, have),
        FrameKind::Fragment | FrameKind::Malformed => None,
    }
}

/// The same over IPv6: nearly all have no extension headers, and are read with fixed offsets.
#[inline(never)]
fn segment_v6(frame: &Frame, have: usize) -> Option<Segment> {
    let bytes = frame.bytes();
    if let Some(plain) = PredictedV6::parse(bytes, have) {
        return Some(Segment::of(&plain));
    }
    let ip_at = ethernet::payload_at(bytes, EtherType::Ipv6)?;
    let (ip, ip_len) = ipv6::Header::parse(&bytes[ip_at..], have - ip_at).ok()?;
    if ip.protocol != ipv4::TCP || ip.is_fragment {
        return None;
    }
    Segment::parse(bytes, ip_at, ip_at + ip_len, ip.payload_len).map(|(_, segment)| segment)
}

impl Segment {
    /// That of a TCP header at `tcp_at`, which has `len` bytes with its payload. Whose it is is left open.
    #[inline(always)]
    fn parse(bytes: &[u8], ip_at: usize, tcp_at: usize, len: u16) -> Option<(tcp::Header, Segment)> {
        let (header, header_len) = tcp::Header::parse(&bytes[tcp_at..]).ok()?;
        let segment = Segment {
            incoming: None,
            ip_at,
            tcp_at,
            payload_at: tcp_at + header_len,
            payload_len: usize::from(len).checked_sub(header_len)?,
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options: header.options,
        };
        Some((header, segment))
    }

    fn of(plain: &PredictedV6) -> Segment {
        Segment {
            incoming: None,
            ip_at: ethernet::HEADER_LEN,
            tcp_at: plain.tcp_at(),
            payload_at: plain.payload_at() as usize,
            payload_len: plain.payload_len() as usize,
            seq: plain.seq(),
            ack: plain.ack(),
            flags: plain.flags(),
            window: plain.window(),
            options: Options { timestamps: plain.timestamps(), ..Options::default() },
        }
    }

    /// Its connection over IPv4, where this host is the source.
    pub(crate) fn outgoing(&self) -> Option<Ipv4Tuple> {
        self.incoming.map(Ipv4Tuple::turned)
    }

    /// Its connection, where this host is the destination and it is over IPv6.
    pub(crate) fn incoming_v6(&self, frame: &Frame) -> Ipv6Tuple {
        Ipv6Tuple::of_received(&frame.bytes()[self.ip_at..], self.tcp_at - self.ip_at)
    }

    /// The TCP header, options included.
    pub(crate) fn header<'a>(&self, frame: &'a Frame) -> &'a [u8] {
        &frame.bytes()[self.tcp_at..self.payload_at]
    }

    pub(crate) fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    /// Its frame bears this hardware address, and no tag.
    pub(crate) fn is_for(&self, frame: &Frame, station: Mac) -> bool {
        self.ip_at == ethernet::HEADER_LEN && frame.bytes()[..6] == station.0
    }

    /// The sequence number behind its payload.
    pub(crate) fn payload_end(&self) -> Seq {
        self.seq + self.payload_len as u32
    }

    /// Its payload, which is in one place: behind the headers, or by reference.
    pub(crate) fn payload<'a>(&self, frame: &'a Frame) -> Payload<'a> {
        match frame.payload() {
            Some(span) => Payload::Span(span, self.payload_len),
            None => Payload::Bytes(&frame.bytes()[self.payload_at..self.payload_at + self.payload_len]),
        }
    }

    /// Its checksum is right, or nobody had to compute it.
    pub(crate) fn is_sound(&self, frame: &Frame) -> bool {
        match frame.checksum {
            Checksum::Verified | Checksum::Partial { .. } => true,
            // RoCEv2's.
            Checksum::Icrc => false,
            Checksum::Complete => Layers::of(frame.bytes()).is_some_and(|layers| layers.tcp_is_sound(frame.bytes())),
        }
    }

    /// Changes the window.
    pub(crate) fn set_window(&mut self, frame: &mut Frame, window: u16) {
        if self.window != window {
            self.window = window;
            self.change(frame, |header| {
                header[tcp::WINDOW_AT..tcp::WINDOW_AT + 2].copy_from_slice(&window.to_be_bytes())
            });
        }
    }

    /// Changes the window scale of a SYN that has one.
    pub(crate) fn set_window_scale(&mut self, frame: &mut Frame, scale: u8) {
        self.options.window_scale = Some(scale);
        self.change(frame, |header| tcp::set_window_scale(header, scale));
    }

    /// Changes the TCP header. A complete checksum stays as right as it was.
    pub(crate) fn change(&self, frame: &mut Frame, change: impl FnOnce(&mut [u8])) {
        let old = (frame.checksum == Checksum::Complete).then(|| frame.bytes().to_vec());
        change(&mut frame.bytes_mut()[self.tcp_at..self.payload_at]);
        let Some(old) = old else { return };
        if let (Some(was), Some(is)) = (Layers::of(&old), Layers::of(frame.bytes())) {
            wire::rewrite::carry_tcp((&was, &old), (&is, frame.bytes_mut()));
        }
    }

    /// Gives a frame of headers another TCP header, whose options may be longer or shorter. The checksum is left
    /// partial.
    pub(crate) fn set_header(&mut self, frame: &mut Frame, header: &[u8]) {
        frame.resize(self.tcp_at);
        frame.bytes_vec().extend_from_slice(header);
        self.payload_at = self.tcp_at + header.len();
        frame.bytes_mut()[self.tcp_at + tcp::DATA_OFFSET_AT] = (header.len() as u8 / 4) << 4;
        self.rewrite(frame);
    }

    /// The part of it that has the payload bytes `[from, from + len)`.
    pub(crate) fn part(&self, from: usize, len: usize) -> Segment {
        let mut flags = self.flags;
        // Only the first reports that the window was reduced (RFC 3168 section 6.1.2), only the last ends something.
        if from > 0 {
            flags.0 &= !Flags::CWR.0;
        }
        if from + len < self.payload_len {
            flags.0 &= !(Flags::FIN | Flags::PSH).0;
        }
        Segment { seq: self.seq + from as u32, payload_len: len, flags, ..*self }
    }

    /// Leaves out the first `count` bytes of payload. The frame holds headers only.
    pub(crate) fn skip(&mut self, frame: &mut Frame, count: usize) {
        self.seq += count as u32;
        self.payload_len -= count;
        self.rewrite(frame);
    }

    /// Leaves the frame with headers only, which speak of `payload_len` bytes of payload; the checksum is left partial.
    /// What comes after bytes that are cut off goes with them: FIN and PSH. There is no urgent data: its bytes stay in
    /// the stream (RFC 6093 section 6).
    pub(crate) fn strip(&mut self, frame: &mut Frame, payload_len: usize) {
        if payload_len < self.payload_len {
            self.flags.0 &= !(Flags::FIN | Flags::PSH).0;
        }
        self.flags.0 &= !Flags::URG.0;
        self.payload_len = payload_len;
        frame.set_payload(None);
        frame.resize(self.payload_at);
        self.rewrite(frame);
    }

    /// Leaves an empty segment at `seq` with what it acknowledges.
    pub(crate) fn ask(&mut self, frame: &mut Frame, seq: Seq) {
        self.seq = seq;
        self.strip(frame, 0);
    }

    /// Writes lengths, sequence number and flags, with a partial checksum.
    fn rewrite(&self, frame: &mut Frame) {
        let total = self.payload_at - self.ip_at + self.payload_len;
        let bytes = frame.bytes_mut();
        ip::set_len(&mut bytes[self.ip_at..], total, 0);
        tcp::set_segment(&mut bytes[self.tcp_at..], self.seq, self.flags, 0);
        if let Some(layers) = Layers::of(bytes) {
            layers.set_partial(bytes);
        }
        let field = self.tcp_at + tcp::CHECKSUM_AT;
        frame.checksum = Checksum::Partial { start: self.tcp_at as u16, field: field as u16 };
    }

    /// `next` goes on where this one ends, and is the same otherwise: both can be one (Linux' GRO merges such).
    pub(crate) fn continues_in(&self, next: &Segment, frames: [&Frame; 2]) -> bool {
        let plain = |segment: &Segment| segment.flags.0 & !(Flags::ACK | Flags::PSH).0 == 0;
        let places = (self.ip_at, self.tcp_at, self.payload_at) == (next.ip_at, next.tcp_at, next.payload_at);
        let same = self.ack == next.ack && self.window == next.window && self.flags.has(Flags::ACK);
        let goes_on = !self.flags.has(Flags::PSH) && self.payload_end() == next.seq;
        let [one, other] = frames.map(Frame::bytes);
        // Hardware addresses, the kind of IPv4 header and its ECN bits; and TCP's options.
        let equal = |from: usize, to: usize| one[from..to] == other[from..to];
        places
            && same
            && goes_on
            && plain(self)
            && plain(next)
            && equal(0, self.ip_at + 2)
            && equal(self.tcp_at + tcp::HEADER_LEN, self.payload_at)
    }

    /// Becomes one segment with the next one.
    pub(crate) fn join(&mut self, next: &Segment, frame: &mut Frame) {
        self.flags |= next.flags;
        self.payload_len += next.payload_len;
        self.rewrite(frame);
    }
}
