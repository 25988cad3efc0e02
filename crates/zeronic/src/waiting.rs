//! Release of held headers, once the copies of devices' memory that they wait for have ended.
use crate::frames::Segment;
use crate::held::{In, MOST, Out};
use crate::merge::Leave;
use crate::nic::{FlowId, Memory};
use crate::split::Round;
use crate::unit::Unit;
use engine::DropReason;
use port::{Capabilities, Frame, FramePool};
use wire::Nanos;

impl<M: Memory> Unit<M> {
    /// Holds a received header until its copies, and all before it, are done.
    pub(crate) fn hold(&mut self, flow: FlowId, held: In) {
        if let Some(way) = self.header_state(flow) {
            way.held.incoming.push_back(held);
            self.is_holding(flow);
        }
    }

    fn is_holding(&mut self, flow: FlowId) {
        if !self.holding.contains(&flow) {
            self.holding.push(flow);
        }
    }

    /// Payload waits for room in a device's queue.
    pub(crate) fn wait_for_room(&mut self, flow: FlowId) {
        if !self.short.contains(&flow) {
            self.short.push(flow);
        }
    }

    /// The device of a connection's memory is too slow: the frame is as if it were lost.
    pub(crate) fn drop_for_device(&mut self) {
        self.counters.device_busy += 1;
        self.drops.count(DropReason::DeviceBusy);
    }

    /// Polls the devices: what has come to its place goes up. Returns how many copies have ended.
    pub(crate) fn poll_devices(&mut self, now: Nanos, pool: &mut FramePool, up: &mut Vec<Box<Frame>>) -> usize {
        let ended = self.memory.devices().map_or(0, |devices| devices.poll(now));
        if ended == 0 {
            return 0;
        }
        self.datagrams.settle_all();
        let mut open = None;
        for flow in self.holding.clone() {
            self.release_incoming(flow, &mut Round { pool: &mut *pool, up: &mut *up, open: &mut open });
        }
        self.finish(open, up);
        for flow in std::mem::take(&mut self.short) {
            self.retry(now, flow, pool, up);
        }
        ended
    }

    fn release_incoming(&mut self, flow: FlowId, round: &mut Round) {
        while let Some(way) = self.header_state(flow) {
            let Some(result) = way.held.incoming.front().and_then(In::result) else { break };
            let Some(held) = way.held.incoming.pop_front() else { break };
            match (result, held.range, held.header) {
                (Ok(()), range, header) => {
                    if let Some((seq, len)) = range.filter(|_| held.lands) {
                        self.nic.has_landed(flow, seq, len);
                    }
                    header.into_iter().for_each(|header| self.up(header, round));
                    self.touch(flow);
                }
                (Err(_), _, header) => {
                    header.into_iter().for_each(|header| round.pool.put(header.frame));
                    self.device_failed(flow);
                }
            }
        }
    }

    /// The connection ends: memory that it was to use is not there.
    pub(crate) fn device_failed(&mut self, flow: FlowId) {
        self.counters.faults += 1;
        self.drops.count(DropReason::PlaceFault);
        if let Some(way) = self.header_state(flow) {
            way.broken = Some("the device of its memory is gone, or did not do what it was to do".into());
            self.touch(flow);
        }
    }

    /// A header of the transport's: comes back where nothing of it is a device's, and nothing is before it.
    pub(crate) fn hold_outgoing(
        &mut self,
        flow: FlowId,
        segment: &Segment,
        frame: Box<Frame>,
        pool: &mut FramePool,
    ) -> Option<Box<Frame>> {
        let (seq, len) = (segment.seq, segment.payload_len as u32);
        let Some(way) = self.header_state(flow) else { return Some(frame) };
        let (waiting, from_device) = (way.held.outgoing.len(), way.from_device);
        if waiting == 0 && (!from_device || len == 0) {
            return Some(frame);
        }
        if waiting >= MOST {
            self.drop_for_device();
            pool.put(frame);
            return None;
        }
        let mut out = Out { frame, seq, len, reads: Vec::new(), known: 0 };
        self.start_reads(flow, &mut out);
        if waiting == 0 && out.known == len && out.reads.is_empty() {
            return Some(out.frame);
        }
        if let Some(way) = self.header_state(flow) {
            way.held.outgoing.push_back(out);
        }
        self.is_holding(flow);
        None
    }

    /// False where a device's queue has no room.
    fn start_reads(&mut self, flow: FlowId, out: &mut Out) -> bool {
        if out.known < out.len {
            let (from, left) = (out.seq + out.known, out.len - out.known);
            match self.nic.start_fetch(flow, from, left, &self.memory, &mut out.reads) {
                Ok(known) => out.known += known,
                Err(_) => {
                    out.known = out.len;
                    self.device_failed(flow);
                }
            }
        }
        out.known == out.len
    }

    /// Headers whose payload has come out of devices' memory leave.
    pub(crate) fn release_outgoing(&mut self, now: Nanos, wire: Capabilities, leave: &mut Leave) {
        for flow in std::mem::take(&mut self.holding) {
            self.release_of(now, flow, wire, leave);
            if self.header_state(flow).is_some_and(|way| !way.held.is_empty()) {
                self.holding.push(flow);
            }
        }
    }

    fn release_of(&mut self, now: Nanos, flow: FlowId, wire: Capabilities, leave: &mut Leave) {
        let Some(way) = self.header_state(flow) else { return };
        let mut waiting = std::mem::take(&mut way.held.outgoing);
        // In their order: none takes the room that one before it waits for.
        let _ = waiting.iter_mut().all(|out| self.start_reads(flow, out));
        while let Some(result) = waiting.front().and_then(Out::result) {
            let Some(Out { frame, reads, .. }) = waiting.pop_front() else { break };
            match result {
                Ok(()) => self.merge_read(now, flow, frame, &reads, wire, leave),
                Err(_) => {
                    leave.pool.put(frame);
                    self.device_failed(flow);
                }
            }
        }
        if let Some(way) = self.header_state(flow) {
            way.held.outgoing = waiting;
        }
    }
}
