//! Frames from the wire: payload to its place, headers to the transport (the paper's sections 3.1 and 3.2).
use crate::frames::{FrameKind, Segment, kind};
use crate::held::{In, Open};
use crate::marks::{self, MarkOption};
use crate::nic::{Arrival, FlowId, Kind, Mark, Memory, Payload};
use crate::unit::{Deferred, Shortage, Unit};
use context::comm::Carries;
use engine::DropReason;
use memory::Fault;
use port::{Checksum, Frame, FramePool};
use wire::tcp::Flags;
use wire::{Nanos, Seq};

/// Most payload of merged headers: with them it is within an IPv4 packet.
const MOST_MERGED: usize = 65_000;

/// What is left of a frame for the transport.
enum Left {
    /// Its headers, which speak of so much payload.
    Headers(usize),
    /// Nothing.
    Nothing,
}

impl<M: Memory> Unit<M> {
    /// Takes a burst of frames in. What the transport is to see is appended to `up`.
    pub(crate) fn incoming(
        &mut self,
        now: Nanos,
        frames: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
        up: &mut Vec<Box<Frame>>,
    ) {
        let mut open = None;
        for frame in frames.drain(..) {
            self.take_in(now, frame, &mut Round { pool, up, open: &mut open });
        }
        self.finish(open, up);
    }

    /// Takes a frame in.
    pub(crate) fn take_in(&mut self, now: Nanos, mut frame: Box<Frame>, round: &mut Round) {
        // What is referred to never left the machine: there is no checksum of it to be verified.
        if frame.checksum == Checksum::Complete {
            round.pool.flatten(&mut frame);
        }
        match kind(&frame, frame.len()) {
            FrameKind::Segment(segment) => match segment.incoming.and_then(|tuple| self.nic.find(&tuple)) {
                Some(flow) => self.split(now, flow, frame, segment, round),
                None => {
                    // It may be that of a connection without a line: the transport gets it whole.
                    let copied = segment.incoming.and_then(|tuple| self.copying.find(&tuple));
                    match copied.filter(|flow| self.has_marks(*flow)) {
                        Some(flow) => self.pass_marked(flow, frame, segment, round),
                        None => {
                            copied.into_iter().for_each(|flow| self.touch(flow));
                            round.up.push(frame);
                        }
                    }
                }
            },
            FrameKind::Other => round.up.extend(self.take_datagram(frame, round.pool)),
            FrameKind::Fragment => {
                self.drop_malformed(DropReason::Fragment);
                round.pool.put(frame);
            }
            FrameKind::Malformed => {
                self.drop_malformed(DropReason::TcpHeader);
                round.pool.put(frame);
            }
        }
    }

    /// Counts a frame whose headers say nothing.
    pub(crate) fn drop_malformed(&mut self, reason: DropReason) {
        self.counters.malformed += 1;
        self.drops.count(reason);
    }

    fn split(&mut self, now: Nanos, flow: FlowId, mut frame: Box<Frame>, mut segment: Segment, round: &mut Round) {
        if !segment.is_sound(&frame) {
            self.drop_malformed(DropReason::TcpChecksum);
            return round.pool.put(frame);
        }
        self.touch(flow);
        if self.header_state(flow).is_some_and(|way| way.held.is_full()) {
            self.drop_for_device();
            return round.pool.put(frame);
        }
        if frame.bytes().len() > segment.payload_at {
            // Bytes of the payload follow the headers: then all of them shall.
            round.pool.flatten(&mut frame);
        }
        // Segments of streams say nothing of messages, but for SYNs.
        let may_advertise = segment.has(Flags::SYN) || self.has_marks(flow);
        let found = if may_advertise { marks::find(segment.header(&frame)) } else { None };
        let mark = match found {
            Some((_, MarkOption::Mark(mark))) => Some(mark),
            _ => None,
        };
        let mut on_its_way = None;
        let left = if segment.has(Flags::SYN) {
            self.begin(flow, &segment, found.is_some_and(|(_, found)| found == MarkOption::Offer));
            Left::Headers(0)
        } else if segment.payload_len == 0 || segment.has(Flags::RST) {
            Left::Headers(0)
        } else {
            let arrival = self.place(flow, segment.seq, mark, segment.payload(&frame));
            on_its_way = self.on_its_way(segment.seq, segment.payload_len, arrival);
            self.consider(now, flow, arrival, Came { segment: &segment, mark, frame: &frame }, round.pool)
        };
        match left {
            Left::Headers(len) => {
                let step = usize::from(frame.segment_size);
                segment.strip(&mut frame, len);
                if let Some((at, found)) = found {
                    segment.hide(&mut frame, at);
                    if found == MarkOption::Offer && self.has_marks(flow) {
                        segment.leave_room(&mut frame);
                    }
                }
                self.counters.headers_in += 1;
                let step = if step > 0 { step } else { len };
                let header = Open { frame, segment, flow, step };
                let waits = on_its_way.is_some() || self.header_state(flow).is_some_and(|way| way.held.is_incoming());
                if waits {
                    let held = on_its_way.unwrap_or_else(In::header_only);
                    self.hold(flow, In { header: Some(header), ..held });
                } else {
                    self.up(header, round);
                }
            }
            Left::Nothing => {
                round.pool.put(frame);
                on_its_way.into_iter().for_each(|held| self.hold(flow, held));
            }
        }
    }

    /// What of a payload is on its way to a device's memory, also where the rest of it could not be written.
    fn on_its_way(&mut self, seq: Seq, len: usize, arrival: Arrival) -> Option<In> {
        let transfers = self.nic.take_started();
        if transfers.is_empty() {
            return None;
        }
        let (range, lands) = match arrival {
            Arrival::Placing { skip, len } => ((seq + skip, len), true),
            _ => ((seq, len as u32), false),
        };
        Some(In { transfers, range: Some(range), lands, header: None })
    }

    /// Places payload, which is a part of the stream, or of a message over it.
    pub(crate) fn place(&mut self, flow: FlowId, seq: Seq, mark: Option<Mark>, payload: Payload) -> Arrival {
        match (self.kind(flow), mark) {
            (Some(Kind::Stream), _) => self.nic.place_payload(flow, seq, payload, &self.memory),
            (Some(Kind::Messages), Some(mark)) => self.nic.place_part(flow, seq, mark, payload, &self.memory),
            (Some(Kind::Operations), Some(mark)) => {
                let (Some(verbs), drops) = (&mut self.verbs, &mut self.drops) else { return Arrival::NoFlow };
                let mut guide = |header: &_, len| verbs.steer(flow, header, len, drops);
                self.nic.place_operation(flow, seq, mark, payload, &self.memory, &mut guide)
            }
            // Each payload of a connection of messages is marked as a part of one.
            (Some(Kind::Messages | Kind::Operations), None) => Arrival::Impossible,
            (Some(Kind::Datagrams) | None, _) => Arrival::NoFlow,
        }
    }

    /// A SYN has the stream's first number. Data in it is left to be sent again (no TCP Fast Open).
    pub(crate) fn begin(&mut self, flow: FlowId, segment: &Segment, offers_messages: bool) {
        let begin = segment.seq + 1;
        let Some(way) = self.header_state(flow) else { return };
        // An answer to a SYN that was not sent, or a late SYN: the transport deals with them, and nothing moves.
        let answers = !segment.has(Flags::ACK) || way.outgoing == Some(segment.ack);
        if way.settled || !answers {
            return;
        }
        way.settled = segment.has(Flags::ACK);
        if way.kind.has_marks() && !offers_messages {
            way.broken =
                Some("the peer carries no messages on this port: it is another program, or listens for streams".into());
        }
        self.nic.begin_receiving(flow, begin);
        let cursor = self.nic.positions(flow).map(|positions| positions.cursor);
        if let Some(way) = self.header_state(flow).filter(|_| cursor == Some(begin)) {
            way.incoming = Some(begin);
            way.window.peer_offers(segment);
        }
    }

    /// What figure 8 makes of the headers.
    fn consider(&mut self, now: Nanos, flow: FlowId, arrival: Arrival, came: Came, pool: &mut FramePool) -> Left {
        let segment = came.segment;
        let placed = match arrival {
            Arrival::Placed { skip, len } | Arrival::Placing { skip, len } => self.count_placed(flow, skip, len),
            Arrival::Old => {
                self.counters.old += 1;
                segment.payload_len
            }
            Arrival::Nowhere => 0,
            Arrival::Holes => {
                self.counters.holes += 1;
                self.drops.count(DropReason::PlaceHoles);
                return Left::Nothing;
            }
            Arrival::Fault(Fault::Busy) => {
                self.drop_for_device();
                return Left::Nothing;
            }
            Arrival::Fault(Fault::Lost) => {
                self.device_failed(flow);
                return Left::Nothing;
            }
            Arrival::Fault(_) => {
                self.counters.faults += 1;
                self.drops.count(DropReason::PlaceFault);
                return Left::Nothing;
            }
            Arrival::TooLong => {
                self.too_long(flow, segment.seq, came.mark);
                return Left::Nothing;
            }
            Arrival::Impossible => {
                self.drop_malformed(DropReason::MessageMark);
                return Left::Nothing;
            }
            Arrival::NoFlow => return Left::Nothing,
        };
        if placed == segment.payload_len {
            return Left::Headers(placed);
        }
        self.counters.without_place += 1;
        let whole = self.keep(flow, placed, came, pool);
        match (whole, placed) {
            (true, _) => Left::Headers(segment.payload_len),
            (false, 0) => {
                // A sender whose window is closed asks with data; it gives up on who never answers (RFC 9293 3.8.6.1).
                let posted_end = self.posted(flow).end;
                if let Some((last, window)) = self.header_state(flow).and_then(|way| way.window.answer(now, posted_end))
                {
                    self.acknowledge(flow, last, window, pool);
                }
                Left::Nothing
            }
            (false, placed) => Left::Headers(placed),
        }
    }

    /// Keeps what has no place, from byte `placed` of the payload on. True where the transport may see all of it.
    fn keep(&mut self, flow: FlowId, placed: usize, came: Came, pool: &mut FramePool) -> bool {
        let Came { segment, mark, frame } = came;
        let missing = (segment.payload_len - placed) as u64;
        let Some(shortage) = self.kind(flow).map(|kind| self.shortage_of(kind)) else { return false };
        let kept = match shortage {
            Shortage::Drop => {
                self.drops.count(DropReason::NoPlace);
                return false;
            }
            Shortage::Buffer => {
                let mut copy = pool.large();
                copy.bytes_vec().extend_from_slice(frame.bytes());
                if let Some(span) = frame.payload() {
                    span.append(copy.bytes_vec());
                }
                (copy.checksum, copy.segment_size) = (frame.checksum, frame.segment_size);
                Deferred::Frame(copy)
            }
            Shortage::Defer => {
                Deferred::Bytes(segment.seq + placed as u32, mark, segment.payload(frame).copy_from(placed))
            }
        };
        let Some(way) = self.header_state(flow) else { return false };
        match way.keep(kept) {
            Ok(()) => {
                way.moved.deferred += missing;
                shortage == Shortage::Defer
            }
            Err(kept) => {
                if let Deferred::Frame(frame) = kept {
                    pool.put(frame);
                }
                self.counters.not_kept += 1;
                self.drops.count(DropReason::NoPlace);
                false
            }
        }
    }

    /// Memory was posted: what waited for it is tried again.
    pub(crate) fn retry(&mut self, now: Nanos, flow: FlowId, pool: &mut FramePool, up: &mut Vec<Box<Frame>>) {
        let Some(way) = self.header_state(flow).filter(|way| !way.kept.is_empty()) else { return };
        let (mut frames, mut parts) = (Vec::new(), Vec::new());
        for kept in way.take_deferred() {
            match kept {
                Deferred::Frame(frame) => frames.push(frame),
                Deferred::Bytes(seq, mark, bytes) => parts.push((seq, mark, bytes)),
            }
        }
        // In their order, so that none makes a hole that the next one fills.
        if let Some(positions) = self.nic.positions(flow) {
            parts.sort_by_key(|(seq, ..)| (*seq - positions.cursor) as i32);
        }
        parts.into_iter().for_each(|(seq, mark, bytes)| self.place_deferred(flow, seq, mark, bytes));
        self.incoming(now, &mut frames, pool, up);
        self.touch(flow);
    }

    /// Counts bytes that were written, or are being written. Returns how many of the payload are done with.
    fn count_placed(&mut self, flow: FlowId, skip: u32, len: u32) -> usize {
        self.counters.placed_bytes += u64::from(len);
        if let Some(way) = self.header_state(flow) {
            way.moved.placed += u64::from(len);
        }
        (skip + len) as usize
    }

    fn place_deferred(&mut self, flow: FlowId, seq: Seq, mark: Option<Mark>, bytes: Vec<u8>) {
        let arrival = self.place(flow, seq, mark, Payload::Bytes(&bytes));
        // The transport has seen its header.
        self.on_its_way(seq, bytes.len(), arrival).into_iter().for_each(|held| self.hold(flow, held));
        let placed = match arrival {
            Arrival::Placed { skip, len } | Arrival::Placing { skip, len } => self.count_placed(flow, skip, len),
            Arrival::Old => return,
            Arrival::Fault(Fault::Busy) => {
                self.wait_for_room(flow);
                0
            }
            Arrival::Fault(Fault::Lost) => return self.device_failed(flow),
            Arrival::Fault(_) => {
                self.counters.faults += 1;
                self.drops.count(DropReason::PlaceFault);
                return;
            }
            Arrival::TooLong => return self.too_long(flow, seq, mark),
            Arrival::Impossible => return self.drop_malformed(DropReason::MessageMark),
            // The transport has it already: it stays until there is room.
            Arrival::Nowhere | Arrival::Holes | Arrival::NoFlow => 0,
        };
        if let Some(way) = self.header_state(flow).filter(|_| placed < bytes.len()) {
            let rest = if placed == 0 { bytes } else { bytes[placed..].to_vec() };
            // What was taken out had room.
            let _ = way.keep(Deferred::Bytes(seq + placed as u32, mark, rest));
        }
    }

    /// A message is longer than its receive. The connection ends where it is next in order: others could say so, too.
    fn too_long(&mut self, flow: FlowId, seq: Seq, mark: Option<Mark>) {
        self.drops.count(DropReason::MessageLength);
        let is_next = self.nic.positions(flow).is_some_and(|positions| positions.cursor == seq);
        if let (Some(way), Some(mark), true) = (self.header_state(flow), mark, is_next) {
            way.broken = Some(format!("a message of {} bytes came for a shorter receive: post longer ones", mark.len));
            self.touch(flow);
        }
    }

    /// Merges a header into the open one, or closes that and opens this (GRO).
    pub(crate) fn up(&mut self, next: Open, round: &mut Round) {
        if let Some(open) = round.open {
            let room = open.segment.payload_len + next.segment.payload_len <= MOST_MERGED;
            let whole = open.step > 0 && open.segment.payload_len % open.step == 0;
            let fits = next.segment.payload_len > 0 && next.step <= open.step;
            // A super-segment whose frames are shorter would have short ones in its middle.
            let even = next.step == open.step || next.segment.payload_len == next.step;
            let same = open.flow == next.flow && room && whole && fits && even;
            if same && open.segment.continues_in(&next.segment, [&open.frame, &next.frame]) {
                open.segment.join(&next.segment, &mut open.frame);
                self.counters.merged += 1;
                return round.pool.put(next.frame);
            }
        }
        let before = round.open.replace(next);
        self.finish(before, round.up);
    }

    /// Gives a header entry its dummy payload.
    pub(crate) fn finish(&mut self, open: Option<Open>, up: &mut Vec<Box<Frame>>) {
        let Some(Open { mut frame, segment, step, .. }) = open else { return };
        frame.set_payload(Some(self.dummy(segment.payload_len)));
        frame.segment_size = if segment.payload_len > step { step as u16 } else { 0 };
        up.push(frame);
    }
}

/// A frame with payload that came in.
#[derive(Clone, Copy)]
struct Came<'a> {
    segment: &'a Segment,
    mark: Option<Mark>,
    frame: &'a Frame,
}

/// What a burst is worked on with.
pub(crate) struct Round<'a> {
    pub(crate) pool: &'a mut FramePool,
    pub(crate) up: &'a mut Vec<Box<Frame>>,
    pub(crate) open: &'a mut Option<Open>,
}

/// The connection that a frame begins: its SYN, and what the peer would have it carry.
pub(crate) fn begins(frame: &Frame) -> Option<(wire::Ipv4Tuple, Carries)> {
    match kind(frame, frame.len()) {
        FrameKind::Segment(segment) if segment.has(Flags::SYN) && !segment.has(Flags::ACK) => {
            let offer = marks::find(segment.header(frame)).filter(|(_, found)| *found == MarkOption::Offer);
            Some((segment.incoming?, if offer.is_some() { Carries::Messages } else { Carries::Stream }))
        }
        _ => None,
    }
}
