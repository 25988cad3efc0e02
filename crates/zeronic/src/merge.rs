//! Headers from the transport. The frames that leave refer to their payload in registered memory, or it is fetched into
//! them (the paper's section 3.2, "Sending a packet").
use crate::counters::Counters;
use crate::frames::{FrameKind, Segment, kind};
use crate::marks::MarkOption;
use crate::nic::{Fetch, FlowId, Memory, Nic, Read};
use crate::unit::Unit;
use engine::{DropCounts, DropReason};
use port::{Capabilities, Frame, FramePool, Piece, Source, cut_headers};
use shm::Span;
use wire::tcp::Flags;
use wire::{Nanos, Seq, ethernet};

/// Pool of frames, and the list of those that leave.
pub(crate) struct Leave<'a> {
    pub(crate) pool: &'a mut FramePool,
    pub(crate) out: &'a mut Vec<Box<Frame>>,
}

impl<M: Memory> Unit<M> {
    /// Takes frames of the transport, of which only the headers were read. What is to leave is appended to `out`.
    pub(crate) fn outgoing(&mut self, now: Nanos, wire: Capabilities, frames: &mut Vec<Box<Frame>>, leave: &mut Leave) {
        // Made before these frames, with an older timestamp: behind them, the peer would drop it (RFC 7323
        // section 5.3).
        leave.out.append(&mut self.own);
        if !self.holding.is_empty() {
            self.release_outgoing(now, wire, leave);
        }
        let Leave { pool, out } = leave;
        for frame in frames.drain(..) {
            match kind(&frame, usize::MAX) {
                FrameKind::Segment(segment) => match segment.outgoing().and_then(|tuple| self.nic.find(&tuple)) {
                    Some(flow) => {
                        let Some(frame) = self.hold_outgoing(flow, &segment, frame, pool) else { continue };
                        let to = Onto { flow, wire, reads: &[] };
                        self.merge(now, to, frame, segment, &mut Leave { pool, out });
                    }
                    None if self.pass(&segment) => {
                        self.pass_whole(wire, frame, segment, &mut Leave { pool, out });
                    }
                    None if segment.payload_len == 0 => out.push(frame),
                    // Of a connection that was closed: its payload would be dummy bytes.
                    None => pool.put(frame),
                },
                FrameKind::Other => out.push(frame),
                FrameKind::Fragment | FrameKind::Malformed => {
                    self.drop_malformed(DropReason::TcpHeader);
                    pool.put(frame);
                }
            }
        }
        if !wire.checksum {
            out.iter_mut().filter(|frame| frame.segment_size == 0).for_each(|frame| frame.complete_checksum());
        }
    }

    /// The segment is of a connection without a line.
    fn pass(&mut self, segment: &Segment) -> bool {
        let Some(flow) = segment.outgoing().and_then(|tuple| self.copying.find(&tuple)) else { return false };
        self.touch(flow);
        if let Some(way) = self.header_state(flow).filter(|_| segment.has(Flags::SYN)) {
            way.outgoing = Some(segment.seq + 1);
        }
        true
    }

    /// A frame with the payload that the transport has of it leaves, cut where the wire takes no super-segments.
    fn pass_whole(&mut self, wire: Capabilities, frame: Box<Frame>, segment: Segment, leave: &mut Leave) {
        if frame.len() != segment.payload_at + segment.payload_len {
            // Only its headers were read.
            return leave.pool.put(frame);
        }
        let flow = segment.outgoing().and_then(|tuple| self.copying.find(&tuple));
        if let Some(flow) = flow.filter(|flow| self.has_marks(*flow)) {
            return self.mark_whole(flow, wire, frame, segment, leave);
        }
        let Leave { pool, out } = leave;
        let before = out.len();
        let is_super = frame.segment_size > 0 && segment.payload_len > usize::from(frame.segment_size);
        if is_super && segment.payload_len > wire.super_segment as usize {
            if let Err(frame) = port::cut(frame, pool, out) {
                pool.put(frame);
            }
        } else {
            out.push(frame);
        }
        self.counters.frames_out += (out.len() - before) as u64;
    }

    /// As [`Unit::outgoing`], of a frame that has waited until these bytes of its payload came out of devices' memory.
    pub(crate) fn merge_read(
        &mut self,
        now: Nanos,
        flow: FlowId,
        frame: Box<Frame>,
        reads: &[Read],
        wire: Capabilities,
        leave: &mut Leave,
    ) {
        let staged = reads.iter().filter_map(|read| Some((read.seq, read.transfer.span()?)));
        let staged: Vec<(Seq, Span)> = staged.collect();
        match kind(&frame, usize::MAX) {
            FrameKind::Segment(segment) => self.merge(now, Onto { flow, wire, reads: &staged }, frame, segment, leave),
            _ => leave.pool.put(frame),
        }
    }

    fn merge(&mut self, now: Nanos, to: Onto, mut frame: Box<Frame>, mut segment: Segment, leave: &mut Leave) {
        let flow = to.flow;
        self.counters.headers_out += 1;
        self.learn(flow, &frame, &mut segment);
        let posted = self.posted(flow);
        if let Some(way) = self.header_state(flow) {
            if let Some(scale) = segment.has(Flags::SYN).then(|| way.window.offer(&segment)).flatten() {
                segment.set_window_scale(&mut frame, scale);
            }
            let window = way.window.pass(now, &segment, posted);
            segment.set_window(&mut frame, window);
            if way.window.is_squeezed() {
                self.squeezed.push(flow);
            }
        }
        // Dummy payload, contiguous or by reference.
        frame.set_payload(None);
        frame.resize(segment.payload_at);
        let has_marks = self.has_marks(flow);
        if has_marks && segment.has(Flags::SYN) {
            segment.append_option(&mut frame, MarkOption::Offer);
        }
        let una = self.nic.positions(flow).map_or(segment.seq, |positions| positions.una);
        if segment.payload_len > 0 && segment.seq.before(una) {
            // A late retransmission: the application may have its memory back.
            self.counters.acknowledged_already += 1;
            segment.skip(&mut frame, segment.payload_len.min((una - segment.seq) as usize));
        }
        let before = leave.out.len();
        let payload = match has_marks {
            _ if segment.payload_len == 0 => {
                leave.out.push(frame);
                0
            }
            true => self.fetch_messages(to, frame, &segment, leave),
            false => {
                let payload = self.fetch(to, &frame, &segment, leave);
                leave.pool.put(frame);
                payload
            }
        };
        self.counters.frames_out += (leave.out.len() - before) as u64;
        let is_whole = payload == segment.payload_len;
        let control = [Flags::SYN, Flags::FIN].map(|flag| u32::from(is_whole && segment.has(flag))).iter().sum::<u32>();
        if let Some(way) = self.header_state(flow).filter(|_| payload > 0 || control > 0) {
            way.window.left(segment.seq + payload as u32 + control);
        }
    }

    /// Takes in a header: where the stream begins, what is acknowledged, by which way it leaves.
    pub(crate) fn learn(&mut self, flow: FlowId, frame: &Frame, segment: &mut Segment) {
        self.touch(flow);
        if segment.has(Flags::SYN) {
            self.nic.begin_sending(flow, segment.seq + 1);
        }
        let Some(way) = self.header_state(flow) else { return };
        if segment.has(Flags::SYN) {
            way.outgoing.get_or_insert(segment.seq + 1);
        }
        if segment.has(Flags::ACK) {
            way.acked = Some(way.acked.map_or(segment.ack, |before| before.max(segment.ack)));
        }
        if let Ok(header) = ethernet::Header::parse(frame.bytes()) {
            way.link = Some([header.src, header.dst]);
        }
    }

    /// The same of a connection that carries messages: a frame has bytes of one message, and its mark.
    fn fetch_messages(&mut self, to: Onto, frame: Box<Frame>, segment: &Segment, leave: &mut Leave) -> usize {
        let fetch =
            |unit: &mut Self, headers: &Frame, part: &Segment, leave: &mut Leave| unit.fetch(to, headers, part, leave);
        self.cut_messages(to.flow, frame, segment, leave, fetch)
    }

    /// Headers of each message's part of a segment, with its mark: `fetch` makes frames of them, and returns how many
    /// bytes they have.
    pub(crate) fn cut_messages(
        &mut self,
        flow: FlowId,
        frame: Box<Frame>,
        segment: &Segment,
        leave: &mut Leave,
        mut fetch: impl FnMut(&mut Self, &Frame, &Segment, &mut Leave) -> usize,
    ) -> usize {
        let mut at = 0;
        while at < segment.payload_len {
            let Some((mark, left)) = self.nic.message_at(flow, segment.seq + at as u32) else {
                self.counters.not_posted += 1;
                self.drops.count(DropReason::NotPosted);
                break;
            };
            let len = (segment.payload_len - at).min(left as usize);
            let mut headers = leave.pool.small();
            headers.bytes_vec().extend_from_slice(frame.bytes());
            headers.segment_size = frame.segment_size;
            let mut part = segment.part(at, len);
            part.append_option(&mut headers, MarkOption::Mark(mark));
            let fetched = fetch(self, &headers, &part, leave);
            leave.pool.put(headers);
            at += fetched;
            if fetched < len {
                break;
            }
        }
        leave.pool.put(frame);
        at
    }

    /// One header becomes the frames that the wire takes (TSO), each with its payload. Returns how many bytes of it.
    fn fetch(&mut self, to: Onto, frame: &Frame, segment: &Segment, leave: &mut Leave) -> usize {
        let Onto { flow, wire, reads } = to;
        let Leave { pool, out } = leave;
        let first = out.len();
        let most = if wire.super_segment > 0 { wire.super_segment as usize } else { 0 };
        let (nic, memory, counters) = (&mut self.nic, &self.memory, &mut self.counters);
        // A checksum that has to be computed reads all of it: then a copy costs little.
        let refers = wire.checksum;
        let before = *counters;
        let mut posted =
            Posted { nic, memory, counters, drops: &mut self.drops, flow, seq: segment.seq, refers, reads };
        cut_headers(frame, most, pool, out, &mut posted);
        let after = self.counters;
        if let Some(way) = self.header_state(flow) {
            way.moved.fetched += after.fetched_bytes - before.fetched_bytes;
            way.moved.copied_out += after.copied_out_bytes - before.copied_out_bytes;
        }
        out[first..].iter().map(|frame| frame.len() - segment.payload_at).sum()
    }
}

/// What was posted to send, as payload.
struct Posted<'a, M: Memory> {
    nic: &'a mut Nic,
    memory: &'a M,
    counters: &'a mut Counters,
    drops: &'a mut DropCounts,
    flow: FlowId,
    seq: Seq,
    refers: bool,
    reads: &'a [(Seq, Span)],
}

/// Where a header is to go.
#[derive(Clone, Copy)]
struct Onto<'a> {
    flow: FlowId,
    wire: Capabilities,
    /// Parts of the stream that came out of devices' memory.
    reads: &'a [(Seq, Span)],
}

impl<M: Memory> Posted<'_, M> {
    /// What came out of a device's memory from a byte on. Where that byte did not, the number of those before the next
    /// one that did.
    fn staged(&self, seq: Seq) -> Result<Span, u32> {
        let mut before = u32::MAX;
        for (start, span) in self.reads {
            let len = span.len() as u32;
            if start.at_or_before(seq) && seq.before(*start + len) {
                return Ok(span.slice(seq - *start, len - (seq - *start)));
            }
            if seq.before(*start) {
                before = before.min(*start - seq);
            }
        }
        Err(before)
    }

    /// The first bytes of these, by reference to the staging area where the wire takes references.
    fn next_staged(&mut self, at: usize, span: Span, most: usize) -> Piece {
        let len = span.len().min(most);
        if !self.refers || !self.nic.fetched(self.flow, self.seq + at as u32, len as u32) {
            return Piece::Copy(len);
        }
        self.counters.fetched_bytes += len as u64;
        Piece::Refer(span.slice(0, len as u32))
    }
}

impl<M: Memory> Source for Posted<'_, M> {
    fn next(&mut self, at: usize, most: usize) -> Piece {
        let most = match self.staged(self.seq + at as u32) {
            Ok(span) => return self.next_staged(at, span, most),
            Err(before) => most.min(before as usize),
        };
        if !self.refers {
            return Piece::Copy(most);
        }
        let piece = self.nic.refer(self.flow, self.seq + at as u32, most as u32, self.memory);
        if let Piece::Refer(span) = &piece {
            self.counters.fetched_bytes += span.len() as u64;
        }
        piece
    }

    fn fill(&mut self, at: usize, len: usize, into: &mut Vec<u8>) -> bool {
        let seq = self.seq + at as u32;
        if let Some(span) = self.staged(seq).ok().filter(|span| span.len() >= len) {
            span.slice(0, len as u32).append(into);
            let posted = self.nic.fetched(self.flow, seq, len as u32);
            self.counters.fetched_bytes += len as u64;
            self.counters.copied_out_bytes += len as u64;
            return posted;
        }
        match self.nic.fetch(self.flow, seq, len as u32, into, self.memory) {
            Fetch::Done { skip: 0 } => {
                self.counters.fetched_bytes += len as u64;
                self.counters.copied_out_bytes += len as u64;
                return true;
            }
            Fetch::Fault(_) => {
                self.counters.faults += 1;
                self.drops.count(DropReason::PlaceFault);
            }
            _ => {
                self.counters.not_posted += 1;
                self.drops.count(DropReason::NotPosted);
            }
        }
        false
    }
}
