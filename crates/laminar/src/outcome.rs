//! What becomes of what leaves the pipeline: payload to its place, news to the application, frames to the network.
use crate::descriptor::{ACK_DELAYED, DMA_GRANT, DMA_RX, Dma, FAST_RETRANSMIT};
use crate::switch::{Carried, Outcome};
use crate::{ACK_DELAY, Laminar, slow};
use engine::{Burst, Drop, Event, Exception, FlowId, Frame, Nanos, Recorder};
use port::Checksum;
use port::capture::{Direction, Fate, Sight};
use shm::{Mirror, Span};
use std::sync::atomic::Ordering::Relaxed;
use wire::checksum::Sum;
use wire::{ethernet, ipv4, tcp};

const TCP_AT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN;

/// What became of a frame, for a capture.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Accepted,
    Sent,
    Dropped(Drop),
}

#[cold]
pub(crate) fn record(frame: &Frame, flow: Option<u32>, place: Place, now: Nanos, recorder: &mut Recorder) {
    if frame.recorded {
        return;
    }
    let (direction, fate) = match place {
        Place::Accepted => (Direction::In, Fate::Accepted),
        Place::Sent => (Direction::Out, Fate::Sent),
        Place::Dropped(reason) => (Direction::In, Fate::Dropped(reason.into())),
    };
    recorder.record(now, frame, &Sight { direction, flow, module: "pipeline", fate });
}

impl Laminar {
    pub(crate) fn record(&self, frame: &Frame, flow: Option<u32>, place: Place, burst: &mut Burst<'_>) {
        if let Some(recorder) = burst.recorder.as_deref_mut() {
            record(frame, flow, place, self.now, recorder);
        }
    }

    /// Takes all results of the pipeline.
    pub(crate) fn settle(&mut self, burst: &mut Burst<'_>) {
        let mut outcomes = std::mem::take(&mut self.switch.outcomes);
        let mut aside = std::mem::take(&mut self.aside);
        for outcome in outcomes.drain(..) {
            match outcome {
                Outcome::Cpu(frame) => aside.push(frame),
                outcome => self.take(outcome, burst),
            }
        }
        self.switch.outcomes = outcomes;
        // Behind the others: the slow path may run the pipeline again, whose registers are ahead of what was not taken yet.
        for frame in aside.drain(..) {
            self.exception(frame, burst);
        }
        self.aside = aside;
        while let Some(flow) = self.fins.pop() {
            self.take_fin(flow, burst);
        }
    }

    fn take(&mut self, outcome: Outcome, burst: &mut Burst<'_>) {
        match outcome {
            Outcome::Host(dma, carried) => self.descriptor(&dma, carried, burst),
            Outcome::Log(dma, place, carried) => {
                if !self.place_in_log(&dma, &place, &carried) {
                    burst.events.push(Event::OrphanData(FlowId(dma.flow.into())));
                }
                self.descriptor(&dma, carried, burst);
            }
            Outcome::Network(frame, carried) => self.transmit(frame, carried, burst),
            Outcome::Forward(frame) => {
                self.record(&frame, None, Place::Sent, burst);
                burst.tx.push(frame);
            }
            Outcome::Cpu(frame) => self.aside.push(frame),
            Outcome::Refused(Carried::Received(frame, _)) => {
                let reason = if slow::is_tcp(&frame) { Drop::TcpHeader } else { Drop::Ipv4 };
                self.refuse(frame, reason, None, burst);
            }
            Outcome::Refused(_) => {}
            Outcome::Spent(flow, length, answered, carried) => {
                self.spent(flow.into(), length, answered, carried, burst)
            }
            Outcome::Overflow(carried) => {
                burst.drops.count(Drop::PortQueue);
                if let Carried::Received(frame, _) = carried {
                    burst.pool.put(frame);
                }
            }
        }
    }

    /// A segment that egress used up: an acknowledgement, or payload that is not wanted.
    fn spent(&mut self, id: u32, length: u16, answered: bool, carried: Carried, burst: &mut Burst<'_>) {
        let Carried::Received(frame, _) = carried else { return };
        self.heard(id);
        if answered && length > 0 {
            return self.refuse(frame, Drop::Duplicate, Some(id), burst);
        }
        self.record(&frame, Some(id), Place::Accepted, burst);
        burst.pool.put(frame);
    }

    fn heard(&mut self, id: u32) {
        let now = self.now;
        if let Some(flow) = self.flow(id) {
            flow.params.stats.rx_segments.fetch_add(1, Relaxed);
            flow.params.stats.last_rx_ns.store(now, Relaxed);
        }
    }

    /// A descriptor for the host, perhaps with a segment.
    fn descriptor(&mut self, dma: &Dma, carried: Carried, burst: &mut Burst<'_>) {
        let id = dma.flow as u32;
        let now = self.now;
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else {
            if let Carried::Received(frame, _) = carried {
                burst.exceptions.push((Exception::NoFlow, frame));
            }
            return;
        };
        if let Carried::Received(frame, payload_at) = &carried {
            // A frame to another station is not this flow's (a port in promiscuous mode).
            let length = dma.length as u32;
            if dma.op == DMA_RX && dma.skip < length && !flow.orphan && flow.member.is_none() {
                place(frame, *payload_at, dma, &flow.params.rx);
            }
        }
        let edge = flow.edge;
        let change = flow.follow(dma, now);
        let moved = change.acked || edge != flow.edge || dma.op == DMA_GRANT || dma.flags & FAST_RETRANSMIT != 0;
        if change.acked && flow.params.ecn {
            let bytes = self.switch.program.ecn_bytes(id);
            flow.ecn(bytes);
        }
        if let Some(rtt) = flow.clock.filter(|_| change.acked).and_then(|_| self.switch.program.rtt(id)) {
            flow.took(rtt);
        }
        if dma.flags & ACK_DELAYED != 0 {
            flow.ack_due.get_or_insert(now + ACK_DELAY);
            if !flow.ack_listed {
                flow.ack_listed = true;
                self.delayed.push_back((now + ACK_DELAY, id));
            }
        } else if dma.op == DMA_RX && dma.length > 0 {
            flow.ack_due = None;
        }
        let stats = &flow.params.stats;
        stats.rx_bytes.fetch_add(change.delivered as u64, Relaxed);
        if dma.length as u32 > dma.skip && change.delivered == 0 {
            stats.out_of_order.fetch_add(1, Relaxed);
        }
        if flow.orphan && dma.length > 0 {
            burst.events.push(Event::OrphanData(FlowId(id)));
        }
        if change.fin_acked {
            burst.events.push(Event::FinAcked(FlowId(id)));
        }
        let (fin_waits, logged) = (flow.fin_held.is_some(), flow.member.is_some());
        if change.bad_ack {
            self.count_drop(Some(id), Drop::AckBeyondSent, burst);
        }
        if logged && change.delivered > 0 {
            self.log_moved(id);
        }
        if (change.delivered > 0 && !logged) || change.acked {
            self.notify(id);
        }
        if let Carried::Received(frame, _) = carried {
            self.heard(id);
            self.record(&frame, Some(id), Place::Accepted, burst);
            burst.pool.put(frame);
        }
        match moved {
            true => self.may_send(id, burst),
            false => self.publish(id),
        }
        if fin_waits {
            self.fins.push(id);
        }
    }

    fn publish(&mut self, id: u32) {
        if let Some(flow) = self.flow(id) {
            flow.publish();
        }
    }

    /// A segment for the network: its headers, and its payload by reference. The checksum is left to the port, which
    /// sums the payload where it moves it (the DMA engine's part in the paper).
    fn transmit(&mut self, mut frame: Box<Frame>, carried: Carried, burst: &mut Burst<'_>) {
        let mut sender = None;
        let mut payload = 0;
        if let Carried::Payload { flow, position, len } = carried {
            let Some(state) = self.flow(flow) else { return burst.pool.put(frame) };
            sender = Some(flow);
            state.ack_due = None;
            payload = len;
            if len > state.mss {
                frame.segment_size = state.mss as u16;
            }
            frame.set_payload((len > 0).then(|| Span::new(&state.params.tx, position, len)));
        }
        leave_checksum(&mut frame, payload);
        self.record(&frame, sender, Place::Sent, burst);
        burst.tx.push(frame);
    }
}

/// Puts the pseudo-header's sum in the place of the TCP checksum.
fn leave_checksum(frame: &mut Frame, payload: u32) {
    let Some((ip, tcp)) = frame.bytes().get(ethernet::HEADER_LEN..).and_then(|packet| packet.split_at_checked(20))
    else {
        return;
    };
    let mut sum = Sum::new();
    sum.add(&ip[12..20]);
    sum.add(&[0, ipv4::TCP]);
    sum.add(&((tcp.len() as u32 + payload) as u16).to_be_bytes());
    let partial = sum.partial();
    let field = TCP_AT + tcp::CHECKSUM_AT;
    frame.bytes_mut()[field..field + 2].copy_from_slice(&partial.to_be_bytes());
    frame.checksum = Checksum::Partial { start: TCP_AT as u16, field: field as u16 };
}

/// Copies a segment's payload to its place, but for what the host has already (`skip`): from the contiguous bytes,
/// from the referenced ones, or both.
pub(crate) fn place(frame: &Frame, payload_at: usize, dma: &Dma, buffer: &Mirror) {
    let bytes = frame.bytes();
    let (start, end) = (payload_at + dma.skip as usize, payload_at + dma.length as usize);
    let position = dma.address.wrapping_add(dma.skip);
    let contiguous = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]);
    buffer.write(position, contiguous);
    if let Some(span) = frame.payload().filter(|_| end > bytes.len()) {
        let skip = start.max(bytes.len()) - bytes.len();
        let part = (skip as u32, (end - bytes.len() - skip) as u32);
        buffer.write_part(position.wrapping_add(contiguous.len() as u32), span, part);
    }
}

/// Copies what is unread, out of order or unacknowledged, from position `from` on.
pub(crate) fn copy_buffer(old: &std::sync::Arc<Mirror>, new: &Mirror, from: u32, len: u32) {
    new.write_span(from, &Span::new(old, from, len.min(old.size()).min(new.size())));
}
