//! Output of the pipeline: payload to its place, completions to the application, frames to the network.
use crate::descriptor::{ACK_DELAYED, CHALLENGE, DMA_GRANT, DMA_LEN, DMA_RX, DUP_ACK, Dma, FAST_RETRANSMIT, LogPlace};
use crate::flow::{Change, Flow};
use crate::frames::{self, FrameVerdict, place};
use crate::switch::{Carried, Outcome, SHORT};
use crate::{Laminar, slow};
use ::tcp::window::ACK_DELAY;
use ::tcp::{Owner, Rejected, Unacceptable};
use engine::stream::{self, Stream};
use engine::{Burst, DropReason, Exception, FlowId, Frame, Nanos};
use port::Checksum;
use wire::checksum::Sum;
use wire::tcp::Flags;
use wire::{ethernet, ipv4, ipv6, tcp};

impl Laminar {
    pub(crate) fn record(&self, frame: &Frame, flow: Option<u32>, place: FrameVerdict, burst: &mut Burst<'_, Stream>) {
        if let Some(recorder) = burst.recorder.as_deref_mut() {
            frames::record(frame, flow, place, self.now, recorder);
        }
    }

    /// A frame through the pipeline, and what it caused.
    #[inline]
    pub(crate) fn frame(&mut self, port: u16, frame: Box<Frame>, burst: &mut Burst<'_, Stream>) {
        let outcome = self.switch.frame(port, frame);
        self.take(outcome, burst);
        self.take_pseudo(burst);
    }

    /// A descriptor likewise. For segments: all in one piece, without the descriptor's fields in memory.
    #[inline(always)]
    pub(crate) fn entry(&mut self, port: u16, dma: &Dma, carried: Carried, burst: &mut Burst<'_, Stream>) {
        let bytes = dma.bytes();
        let outcome = self.switch.entry(port, &bytes.as_flattened()[..DMA_LEN], carried, burst.pool);
        self.take(outcome, burst);
        self.take_pseudo(burst);
    }

    /// A descriptor of which there are few: without payload.
    #[inline(never)]
    pub(crate) fn inject(&mut self, port: u16, dma: &Dma, burst: &mut Burst<'_, Stream>) {
        self.entry(port, dma, Carried::Nothing, burst);
    }

    #[inline]
    fn take_pseudo(&mut self, burst: &mut Burst<'_, Stream>) {
        if !self.switch.is_drained() {
            self.take_queued(burst);
        }
    }

    fn take_queued(&mut self, burst: &mut Burst<'_, Stream>) {
        while let Some(outcome) = self.switch.pseudo(burst.pool) {
            self.take(outcome, burst);
        }
        for _ in 0..std::mem::take(&mut self.switch.overflowed) {
            burst.drops.count(DropReason::PortQueue);
        }
    }

    /// Behind a round's frames: the ends of streams that were waited for.
    pub(crate) fn settle(&mut self, burst: &mut Burst<'_, Stream>) {
        while let Some(flow) = self.fins.pop() {
            self.take_fin(flow, burst);
        }
    }

    #[inline(always)]
    fn take(&mut self, outcome: Outcome, burst: &mut Burst<'_, Stream>) {
        match outcome {
            Outcome::Host(Carried::Received(frame, payload_at)) => self.host(Some((frame, payload_at)), burst),
            Outcome::Host(_) => self.host(None, burst),
            Outcome::Network(frame, carried) => self.transmit(frame, carried, burst),
            other => self.take_other(other, burst),
        }
    }

    fn take_other(&mut self, outcome: Outcome, burst: &mut Burst<'_, Stream>) {
        match outcome {
            Outcome::Host(_) | Outcome::Network(..) => {}
            Outcome::Forward(frame) => {
                self.record(&frame, None, FrameVerdict::Sent, burst);
                burst.tx.push(frame);
            }
            Outcome::Cpu(frame) => self.exception(frame, burst),
            Outcome::Refused(Carried::Received(frame, _)) => {
                let reason = if frames::is_tcp(&frame) { DropReason::TcpHeader } else { DropReason::Ip };
                self.refuse(frame, reason, None, burst);
            }
            Outcome::Refused(_) => {}
            Outcome::Spent(answered, carried) => self.spent(answered, carried, burst),
        }
    }

    /// A segment that egress used up: an acknowledgement, or payload that is not accepted.
    fn spent(&mut self, answered: bool, carried: Carried, burst: &mut Burst<'_, Stream>) {
        let Carried::Received(frame, _) = carried else { return };
        let owner = self.owner(&frame);
        let length = owner.as_ref().map_or(0, |(_, parts)| parts.payload);
        let id = owner.as_ref().map(|(id, _)| *id);
        let now = self.now;
        if let Some((id, parts)) = owner {
            if let Some(flow) = self.flow(id) {
                flow.note_received(now);
                if !answered && flow.clock.is_some() {
                    flow.stamped_at = now;
                }
            }
            self.note_blocks(id, &parts, burst);
        }
        if answered && length > 0 {
            if let Some(id) = id {
                self.take_ack_alone(id, &frame, Rejected::Answered(Unacceptable::Duplicate), burst);
            }
            return self.refuse(frame, DropReason::Duplicate, id, burst);
        }
        self.record(&frame, id, FrameVerdict::Accepted, burst);
        burst.pool.put(frame);
    }

    /// A descriptor for the host, perhaps with a segment: its frame, and where its payload begins.
    fn host(&mut self, segment: Option<(Box<Frame>, usize)>, burst: &mut Burst<'_, Stream>) {
        let head = self.switch.head();
        let Some(dma) = Dma::parse(head) else {
            let carried = segment.map_or(Carried::Nothing, |(frame, at)| Carried::Received(frame, at));
            return self.take_other(Outcome::Refused(carried), burst);
        };
        if head.len() > DMA_LEN {
            self.for_log(segment.as_ref().map(|(frame, at)| (&**frame, *at)), burst);
        }
        let id = dma.flow as u32;
        let now = self.now;
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else {
            if let Some((frame, _)) = segment {
                burst.exceptions.push((Exception::NoFlow, frame));
            }
            return;
        };
        let length = dma.length as u32;
        let again = segment.as_ref().is_some_and(|(frame, payload_at)| arrived(flow, (frame, *payload_at), &dma, now));
        let edge = flow.edge;
        let change = flow.follow(&dma, now);
        let is_new = dma.op == DMA_GRANT || dma.flags & (FAST_RETRANSMIT | DUP_ACK) != 0;
        let moved = change.acked || edge != flow.edge || is_new || again;
        if change.wider {
            self.switch.program.set_largest_window(id, flow.max_wnd);
        }
        if change.acked {
            flow.measure(id, segment.as_ref().is_some_and(|(frame, _)| echoes(flow, frame)), &mut self.switch.program);
        }
        if dma.flags & ACK_DELAYED != 0 {
            flow.ack_due.get_or_insert(now + ACK_DELAY);
            if !flow.ack_listed {
                flow.ack_listed = true;
                self.delayed.push_back((now + ACK_DELAY, id));
            }
        } else if dma.op == DMA_RX && length > 0 {
            flow.ack_due = None;
        }
        flow.count_received(length > dma.skip, change.delivered);
        let logged = flow.member.is_some();
        if ((change.delivered > 0 && !logged) || change.acked) && flow.life != Owner::Orphan && !flow.completion_pending
        {
            flow.completion_pending = true;
            self.contexts.add_pending(id, flow.params.context.0);
        }
        if moved {
            flow.may_send(id, &mut self.ready, burst.events);
        }
        flow.publish_received();
        if logged || flow.life == Owner::Orphan || flow.fin_held.is_some() || change.fin_acked {
            self.unusual_change(id, length, &change, burst);
        }
        if let Some((frame, _)) = segment {
            if change.challenged {
                return self.challenge(id, frame, change.bad_ack, burst);
            }
            self.record(&frame, Some(id), FrameVerdict::Accepted, burst);
            burst.pool.put(frame);
        }
    }

    /// A descriptor that goes on with a place in a log.
    #[cold]
    fn for_log(&mut self, segment: Option<(&Frame, usize)>, burst: &mut Burst<'_, Stream>) {
        let (dma, place) = (Dma::parse(self.switch.head()), LogPlace::parse(self.switch.head()));
        let Some((dma, place)) = dma.zip(place) else { return };
        if !self.place_in_log(&dma, &place, segment) {
            burst.events.push(stream::Event::OrphanData(FlowId(dma.flow.into())).into());
        }
    }

    /// Changes that few descriptors report.
    #[cold]
    fn unusual_change(&mut self, id: u32, length: u32, change: &Change, burst: &mut Burst<'_, Stream>) {
        let Some(flow) = self.flow(id) else { return };
        let (orphan, logged, fin_waits) = (flow.life == Owner::Orphan, flow.member.is_some(), flow.fin_held.is_some());
        if orphan && length > 0 {
            // Nobody will read it: the connection is reset, and does not acknowledge it (RFC 9293 section 3.6.1).
            flow.rx_tail = flow.rx_tail.wrapping_sub(change.delivered);
            self.switch.forget_copies();
            burst.events.push(stream::Event::OrphanData(FlowId(id)).into());
        }
        if change.fin_acked {
            burst.events.push(stream::Event::FinAcked(FlowId(id)).into());
        }
        if logged && change.delivered > 0 {
            self.log_moved(id);
        }
        if fin_waits {
            self.fins.push(id);
        }
    }

    /// A segment for the network: its headers, and its payload, by reference where it is not short. The checksum is
    /// left to the port, which sums the payload where it moves it (the DMA engine's part in the paper).
    #[inline(always)]
    fn transmit(&mut self, mut frame: Box<Frame>, carried: Carried, burst: &mut Burst<'_, Stream>) {
        let mut sender = None;
        let mut referenced = 0;
        if let Carried::Payload { flow, position, len } = carried {
            let Some(state) = self.flow(flow) else { return burst.pool.put(frame) };
            sender = Some(flow);
            state.ack_due = None;
            if len > state.mss {
                frame.segment_size = state.mss as u16;
            }
            if len > SHORT {
                referenced = len;
                frame.set_payload(Some(state.tx.span(position, len)));
            } else if len > 0 {
                let bytes = frame.bytes_mut();
                let headers = bytes.len().saturating_sub(len as usize);
                state.tx.read(position, &mut bytes[headers..]);
            }
        }
        leave_checksum(&mut frame, referenced);
        self.record(&frame, sender, FrameVerdict::Sent, burst);
        burst.tx.push(frame);
    }
}

/// A segment of a flow has come: its payload to its place, and what it reports beside its descriptor. True where that
/// shows that something has to be sent again.
#[inline(always)]
fn arrived(flow: &mut Flow, (frame, payload_at): (&Frame, usize), dma: &Dma, now: Nanos) -> bool {
    flow.note_received(now);
    let mut again = false;
    if payload_at > usize::from(flow.header_len) {
        // Where all segments have timestamps, these are all that the pipeline took off.
        match flow.clock {
            _ if dma.flags & CHALLENGE != 0 => {}
            None => again = slow::note_options(flow, frame),
            Some(_) => flow.stamped_at = now,
        }
    }
    // A frame to another station is not this flow's (a port in promiscuous mode).
    if dma.op == DMA_RX && dma.skip < dma.length as u32 && flow.life != Owner::Orphan && flow.member.is_none() {
        flow.receives(dma.address.wrapping_add(u32::from(dma.length) - 1));
        place(frame, payload_at, dma, &flow.rx);
    }
    again
}

/// The segment echoes ECN marks.
#[inline]
fn echoes(flow: &Flow, frame: &Frame) -> bool {
    frame.bytes().get(flow.tcp_at() + tcp::FLAGS_AT).is_some_and(|flags| flags & Flags::ECE.0 != 0)
}

/// Puts the pseudo-header's sum in the place of the TCP checksum. So many bytes of payload are by reference.
#[inline]
fn leave_checksum(frame: &mut Frame, referenced: u32) {
    const TCP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
    let Some(headers) = frame.bytes_mut().get_mut(ethernet::HEADER_LEN..) else { return };
    if headers.first().is_some_and(|first| *first >= 0x60) {
        return leave_checksum_v6(frame, referenced);
    }
    let length = headers.len().saturating_sub(ipv4::HEADER_LEN) as u32 + referenced;
    let Some(headers) = headers.first_chunk_mut::<{ ipv4::HEADER_LEN + tcp::HEADER_LEN }>() else { return };
    // Both addresses, a word each (RFC 1071 section 2: words of any even size add up to the same), protocol and length.
    let word =
        |at: usize| u64::from(u32::from_be_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]]));
    let sum = word(12) + word(16) + u64::from(ipv4::TCP) + u64::from(length as u16);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let partial = (sum & 0xffff) + (sum >> 16);
    let at = ipv4::HEADER_LEN + tcp::CHECKSUM_AT;
    headers[at..at + 2].copy_from_slice(&(partial as u16).to_be_bytes());
    let field = TCP_AT + tcp::CHECKSUM_AT;
    frame.checksum = Checksum::Partial { start: TCP_AT as u16, field: field as u16 };
}

/// The same over IPv6 (RFC 8200 section 8.1).
#[inline(never)]
fn leave_checksum_v6(frame: &mut Frame, referenced: u32) {
    const TCP_AT: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN;
    let length = frame.bytes().len().saturating_sub(TCP_AT) as u32 + referenced;
    let Some(headers) = frame.bytes_mut().first_chunk_mut::<{ TCP_AT + tcp::HEADER_LEN }>() else { return };
    let mut sum = Sum::new();
    sum.add(&headers[TCP_AT - 32..TCP_AT]);
    sum.add(&length.to_be_bytes());
    sum.add(&[0, ipv4::TCP]);
    let field = TCP_AT + tcp::CHECKSUM_AT;
    headers[field..field + 2].copy_from_slice(&sum.partial().to_be_bytes());
    frame.checksum = Checksum::Partial { start: TCP_AT as u16, field: field as u16 };
}
