//! Messages of connections without a line (docs/ZERONIC.md, "More connections than lines"). The rules are those of the
//! placed path: the NIC's half keeps posts, marks and places of such a flow beside its table. Payload goes the
//! transport's way: frames have it with them, and it is copied between the transport's buffers and its places.
use crate::copy_path::gone;
use crate::copying::{Copying, PIECE};
use crate::frames::Segment;
use crate::marks::{self, MarkOption};
use crate::merge::Leave;
use crate::nic::{Arrival, Fetch, FlowId, Mark, Memory, Payload};
use crate::split::Round;
use crate::stack::Stack;
use crate::transport::{InOrder, Transport};
use crate::unit::{Deferred, MOST_DEFERRED, Unit};
use engine::DropReason;
use port::{Capabilities, Frame, Piece, Source, cut_headers};
use shm::Span;
use wire::Seq;
use wire::tcp::Flags;

/// A frame's payload, apart from its headers.
enum Body {
    Span(Span),
    Bytes(Vec<u8>),
}

impl Body {
    /// Takes it off a frame, which has its headers then.
    fn take(frame: &mut Frame, segment: &Segment) -> Body {
        let body = match frame.payload() {
            Some(span) => Body::Span(span.clone()),
            None => Body::Bytes(frame.bytes()[segment.payload_at..segment.payload_at + segment.payload_len].to_vec()),
        };
        frame.set_payload(None);
        frame.resize(segment.payload_at);
        body
    }

    /// Puts it behind the headers.
    fn put(self, frame: &mut Frame) {
        match self {
            Body::Span(span) => frame.set_payload(Some(span)),
            Body::Bytes(bytes) => frame.bytes_vec().extend_from_slice(&bytes),
        }
    }
}

/// A part of a body, from this byte on.
struct Part<'a> {
    body: &'a Body,
    from: usize,
    refers: bool,
}

impl Source for Part<'_> {
    fn next(&mut self, at: usize, most: usize) -> Piece {
        match self.body {
            Body::Span(span) if self.refers => Piece::Refer(span.slice((self.from + at) as u32, most as u32)),
            _ => Piece::Copy(most),
        }
    }

    fn fill(&mut self, at: usize, len: usize, into: &mut Vec<u8>) -> bool {
        let from = self.from + at;
        match self.body {
            Body::Span(span) => span.slice(from as u32, len as u32).append(into),
            Body::Bytes(bytes) => into.extend_from_slice(&bytes[from..from + len]),
        }
        true
    }
}

impl<M: Memory> Unit<M> {
    /// A received frame goes up with its payload, without its mark, which is kept.
    pub(crate) fn pass_marked(&mut self, flow: FlowId, mut frame: Box<Frame>, mut segment: Segment, round: &mut Round) {
        let found = marks::find(segment.header(&frame));
        let refused = match found {
            _ if !segment.is_sound(&frame) => Some(DropReason::TcpChecksum),
            _ if segment.has(Flags::SYN) => {
                self.begin(flow, &segment, found.is_some_and(|(_, found)| found == MarkOption::Offer));
                None
            }
            _ if segment.payload_len == 0 || segment.has(Flags::RST) => None,
            Some((_, MarkOption::Mark(mark))) => {
                match self.nic.note_mark(flow, segment.seq, mark, segment.payload_len as u32) {
                    Arrival::Placed { .. } | Arrival::Old => None,
                    // There are too many messages before it. The peer sends it again.
                    Arrival::Nowhere => Some(DropReason::NoPlace),
                    _ => Some(DropReason::MessageMark),
                }
            }
            _ => Some(DropReason::MessageMark),
        };
        self.touch(flow);
        if let Some(reason) = refused {
            self.drop_malformed(reason);
            return round.pool.put(frame);
        }
        if let Some((at, found)) = found {
            let body = Body::take(&mut frame, &segment);
            segment.hide(&mut frame, at);
            if found == MarkOption::Offer {
                segment.leave_room(&mut frame);
            }
            body.put(&mut frame);
        }
        round.up.push(frame);
    }

    /// A frame of the transport's leaves with the payload that it has: each part of a message with its mark.
    pub(crate) fn mark_whole(
        &mut self,
        flow: FlowId,
        wire: Capabilities,
        mut frame: Box<Frame>,
        mut segment: Segment,
        leave: &mut Leave,
    ) {
        self.learn(flow, &frame, &mut segment);
        let body = Body::take(&mut frame, &segment);
        if segment.has(Flags::SYN) {
            segment.append_option(&mut frame, MarkOption::Offer);
        }
        let una = self.nic.positions(flow).map_or(segment.seq, |positions| positions.una);
        let first = segment.seq;
        if segment.payload_len > 0 && first.before(una) {
            // Its messages are not known any more, as the peer has them.
            self.counters.acknowledged_already += 1;
            segment.skip(&mut frame, segment.payload_len.min((una - first) as usize));
        }
        let before = leave.out.len();
        if segment.payload_len == 0 {
            leave.out.push(frame);
        } else {
            let refers = wire.checksum;
            self.cut_messages(flow, frame, &segment, leave, |_, headers, part, Leave { pool, out }| {
                let from = (part.seq - first) as usize;
                let mut source = Part { body: &body, from, refers };
                let whole = cut_headers(headers, wire.super_segment as usize, pool, out, &mut source);
                if whole { part.payload_len } else { 0 }
            });
        }
        self.counters.frames_out += (leave.out.len() - before) as u64;
    }

    /// Bytes of a message that the transport has in order. Those without a place are kept: later ones may have one.
    fn place_copied(&mut self, flow: FlowId, seq: Seq, mark: Mark, bytes: &[u8]) -> Result<(), String> {
        match self.place(flow, seq, Some(mark), Payload::Bytes(bytes)) {
            Arrival::Placed { .. } | Arrival::Old => {}
            Arrival::Nowhere | Arrival::Holes => {
                let way = self.header_state(flow).ok_or_else(gone)?;
                let kept = Deferred::Bytes(seq, Some(mark), bytes.to_vec());
                way.keep(kept).map_err(|_| "more came than can be kept")?;
            }
            Arrival::TooLong => {
                self.drops.count(DropReason::MessageLength);
                return Err(format!("a message of {} bytes came for a shorter receive: post longer ones", mark.len));
            }
            Arrival::Placing { .. } | Arrival::Fault(_) => return Err(gone()),
            Arrival::Impossible | Arrival::NoFlow => return Err("the marks of messages contradict each other".into()),
        }
        if let Some(way) = self.header_state(flow) {
            way.moved.copied_in += bytes.len() as u64;
        }
        Ok(())
    }

    /// How many bytes of which message can be taken from the transport, the next of which is `seq`.
    fn next_copied(&mut self, flow: FlowId, seq: Seq) -> Option<(Mark, usize)> {
        let has_room = self.header_state(flow).is_some_and(|way| way.deferred_bytes() + PIECE <= MOST_DEFERRED);
        let (mark, left) = self.nic.message_with_place(flow, seq).filter(|_| has_room)?;
        Some((mark, PIECE.min(left as usize)))
    }
}

impl<T: Transport, M: Memory> Stack<T, M> {
    /// What the transport has in order goes to its places, within a round's bytes. Returns what was taken.
    pub(crate) fn copy_marked_in(&mut self, flow: FlowId) -> Result<InOrder, String> {
        let mut all = InOrder::default();
        let Some(talk) = self.talks.get(&flow) else { return Ok(all) };
        let (socket, before) = (talk.socket, talk.in_order);
        let begin = self.unit.header_state(flow).and_then(|way| way.incoming);
        let mut scratch = std::mem::take(&mut self.unit.copying.scratch);
        scratch.resize(PIECE, 0);
        let mut result = Ok(());
        while result.is_ok() {
            let seq = begin.map(|begin| begin + (before + all.bytes) as u32);
            let next = seq.and_then(|seq| Some((seq, self.unit.next_copied(flow, seq)?)));
            // Also where there is nothing to copy to: whether the stream has ended, or failed.
            let most = next.map_or(0, |(_, (_, most))| most);
            let came = match self.transport.read(socket, &mut scratch[..most]) {
                Ok(came) => came,
                Err(sentence) => {
                    result = Err(sentence);
                    break;
                }
            };
            all.ended |= came.ended;
            let Some((seq, (mark, _))) = next.filter(|_| came.bytes > 0) else { break };
            all.bytes += came.bytes;
            result = self.unit.place_copied(flow, seq, mark, &scratch[..came.bytes as usize]);
            if all.bytes >= self.round_bytes() as u64 {
                // Others have their turn.
                self.unit.touch(flow);
                break;
            }
        }
        self.unit.copying.scratch = scratch;
        result.map(|()| all)
    }

    /// What was posted to send goes to the transport's buffer. Returns how many bytes.
    pub(crate) fn copy_marked_out(&mut self, flow: FlowId, begin: Seq) -> Result<u64, String> {
        let Some((socket, unsent)) = self.talks.get(&flow).map(|talk| (talk.socket, talk.unsent)) else { return Ok(0) };
        let (most, mut taken) = (unsent.min(self.round_bytes() as u64), 0);
        while taken < most {
            let Unit { copying: Copying { flows, scratch, .. }, nic, memory, header_states, .. } = &mut self.unit;
            let Some(copied) = flows.get_mut(&flow) else { break };
            let len = (most - taken).min(PIECE as u64) as u32;
            scratch.clear();
            if nic.fetch(flow, begin + copied.written as u32, len, scratch, memory) != (Fetch::Done { skip: 0 }) {
                return Err(gone());
            }
            let count = self.transport.write(socket, scratch)?.min(len as usize);
            copied.written += count as u64;
            taken += count as u64;
            if let Some(way) = header_states.get_mut(flow.line()).and_then(Option::as_deref_mut) {
                way.moved.fetched += count as u64;
                way.moved.copied_out += count as u64;
            }
            if count < len as usize {
                return Ok(taken);
            }
        }
        if taken < unsent {
            self.unit.touch(flow);
        }
        Ok(taken)
    }
}
