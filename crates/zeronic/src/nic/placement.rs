//! Placement of received payload (the paper's figure 8): into the segments of a stream, a message or a datagram, before
//! any transport has seen it. Also the cursor, which follows the transport.
use super::flow::{Aim, Case};
use super::out_of_order::OutOfOrder;
use super::payload::{Memory, Payload};
use super::{FlowId, Kind, Mark, Nic, find_mut, which};
use memory::{Fault, Transfer};
use std::sync::Arc;
use wire::Seq;

/// Fate of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Its bytes `[skip, skip + len)` are in memory; those before were there already, those behind have no segment.
    Placed {
        /// Bytes below the cursor.
        skip: u32,
        /// Bytes that were written.
        len: u32,
    },
    /// The same bytes are on their way into a device's memory. [`Nic::take_started`] has the copies;
    /// [`Nic::has_landed`] is to be notified when all of them have ended.
    Placing {
        /// Bytes below the cursor.
        skip: u32,
        /// Bytes that are being written.
        len: u32,
    },
    /// All of it lies below the cursor.
    Old,
    /// It has no segment.
    Nowhere,
    /// There are as many holes as can be remembered.
    Holes,
    /// The memory cannot be written.
    Fault(Fault),
    /// The message, or the datagram, is longer than its receive.
    TooLong,
    /// Its mark contradicts an earlier one of the message.
    Impossible,
    /// There is no such flow, or it is of another kind.
    NoFlow,
}

impl Nic {
    /// Places a part of a stream (figure 8), before any transport has seen it.
    pub fn place(&mut self, id: FlowId, seq: Seq, payload: &[u8], memory: &impl Memory) -> Arrival {
        self.place_payload(id, seq, Payload::Bytes(payload), memory)
    }

    /// The same wherever the payload lies: it is copied once.
    pub fn place_payload(&mut self, id: FlowId, seq: Seq, payload: Payload<'_>, memory: &impl Memory) -> Arrival {
        self.started.clear();
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Stream) else {
            return Arrival::NoFlow;
        };
        let aim = match flow.aim(seq, payload.len() as u32) {
            Case::Old => return Arrival::Old,
            Case::Nowhere => return Arrival::Nowhere,
            Case::Place(aim) => aim,
        };
        let Some(held) = self.room_for(id, aim) else { return Arrival::Holes };
        let flow = find_mut(&mut self.lines, id).expect("it was found");
        let (mut at, mut result) = (aim.skip as usize, Ok(()));
        flow.target(&self.stores[which(self.table, id)], aim, |part| {
            let range = at..at + part.len as usize;
            at = range.end;
            if result.is_ok() {
                let written = payload.write(flow.domain, part.key, part.offset, range, memory);
                result = written.map(|started| self.started.extend(started));
            }
        });
        match result {
            Ok(()) => self.written(id, aim, held),
            Err(fault) => Arrival::Fault(fault),
        }
    }

    /// Copies that the last placement has started, also where it then failed. Those of a [`Arrival::Placing`] are some.
    pub fn take_started(&mut self) -> Vec<Arc<Transfer>> {
        std::mem::take(&mut self.started)
    }

    /// The bytes `[seq, seq + len)` that were on their way ([`Arrival::Placing`]) are in memory.
    pub fn has_landed(&mut self, id: FlowId, seq: Seq, len: u32) {
        let Some(aim) = find_mut(&mut self.lines, id).and_then(|flow| flow.aim_part(seq, len)) else { return };
        let held = self.ahead.get(&id.line).map_or(0, OutOfOrder::len);
        self.landed(id, aim, held);
    }

    /// Bytes are written as they were aimed, or on their way.
    fn written(&mut self, id: FlowId, aim: Aim, held: usize) -> Arrival {
        if self.started.is_empty() {
            return self.landed(id, aim, held);
        }
        Arrival::Placing { skip: aim.skip, len: aim.len }
    }

    /// Places a part of a message, wherever its message's receive is (the paper's section 3.5).
    pub fn place_part(
        &mut self,
        id: FlowId,
        seq: Seq,
        mark: Mark,
        payload: Payload<'_>,
        memory: &impl Memory,
    ) -> Arrival {
        self.started.clear();
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Messages) else {
            return Arrival::NoFlow;
        };
        let Some(aim) = flow.aim_part(seq, payload.len() as u32) else { return Arrival::Old };
        let Some(messages) = self.messages.get(&id.line) else { return Arrival::NoFlow };
        let (within, cursor) = (u64::from(seq - mark.start), flow.cursor());
        let inside = within + payload.len() as u64 <= u64::from(mark.len);
        let Some(index) = messages.receive_of(mark, cursor).filter(|_| inside) else { return Arrival::Impossible };
        let Some(receive) = flow.receive(&self.stores[which(self.table, id)], index) else { return Arrival::Nowhere };
        // A receive of which something came has the message's length.
        if u64::from(mark.len) > receive.len {
            return Arrival::TooLong;
        }
        let Some(held) = self.room_for(id, aim) else { return Arrival::Holes };
        let flow = find_mut(&mut self.lines, id).expect("it was found");
        let (range, at) = (aim.skip as usize..payload.len(), receive.offset + within + u64::from(aim.skip));
        match payload.write(flow.domain, receive.key, at, range, memory) {
            Ok(started) => self.started.extend(started),
            Err(fault) => return Arrival::Fault(fault),
        }
        flow.shorten(&mut self.stores[which(self.table, id)], index, mark.len);
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.came(index, mark, cursor);
        }
        self.written(id, aim, held)
    }

    /// A part of a message came whose payload takes another way. Its mark is checked against those before, and kept.
    pub(crate) fn note_mark(&mut self, id: FlowId, seq: Seq, mark: Mark, len: u32) -> Arrival {
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind.has_marks()) else {
            return Arrival::NoFlow;
        };
        let Some(aim) = flow.aim_part(seq, len) else { return Arrival::Old };
        let (cursor, within) = (flow.cursor(), u64::from(seq - mark.start));
        let fits = within + u64::from(len) <= u64::from(mark.len)
            && (flow.kind == Kind::Messages || super::operations::may_have(mark.len));
        let Some(messages) = self.messages.get_mut(&id.line) else { return Arrival::NoFlow };
        let Some(index) = messages.receive_of(mark, cursor).filter(|_| fits) else { return Arrival::Impossible };
        if index >= super::operations::MOST {
            return Arrival::Nowhere;
        }
        messages.came(index, mark, cursor);
        Arrival::Placed { skip: aim.skip, len: aim.len }
    }

    /// The message that byte `seq` of the incoming stream is in, and how many of its bytes are left there, where it has
    /// a place: a receive, or one that its header names.
    pub(crate) fn message_with_place(&self, id: FlowId, seq: Seq) -> Option<(Mark, u32)> {
        let flow = self.lines.get(id.line()).filter(|line| line.generation == id.generation)?.flow.as_ref()?;
        let (mark, index, left) = self.messages.get(&id.line)?.incoming_at(seq, flow.cursor())?;
        let has_place =
            flow.kind == Kind::Operations || flow.receive(&self.stores[which(self.table, id)], index).is_some();
        has_place.then_some((mark, left))
    }

    /// How many intervals above holes a flow has; `None` where the aim needs one more than there may be.
    pub(super) fn room_for(&mut self, id: FlowId, aim: Aim) -> Option<usize> {
        let held = self.ahead.get(&id.line).map_or(0, OutOfOrder::len);
        let full = self.intervals >= self.limits.intervals || held >= self.limits.intervals_per_flow;
        let flow = find_mut(&mut self.lines, id)?;
        (!full || !flow.opens_a_hole(aim)).then_some(held)
    }

    /// Bytes were written as they were aimed; the flow had `held` intervals above holes.
    pub(super) fn landed(&mut self, id: FlowId, aim: Aim, held: usize) -> Arrival {
        let Some(flow) = find_mut(&mut self.lines, id) else { return Arrival::NoFlow };
        if held == 0 && !flow.opens_a_hole(aim) {
            flow.landed(aim, &mut OutOfOrder::default());
        } else {
            let ahead = self.ahead.entry(id.line).or_default();
            flow.landed(aim, ahead);
            self.intervals = self.intervals + ahead.len() - held;
            if ahead.len() == 0 {
                self.ahead.remove(&id.line);
            }
        }
        Arrival::Placed { skip: aim.skip, len: aim.len }
    }

    /// The transport has the stream in order up to `to`: moves the cursor, never past the first hole, and retires
    /// segments behind it. Returns by how many bytes.
    pub fn advance(&mut self, id: FlowId, to: Seq) -> u32 {
        let moved =
            find_mut(&mut self.lines, id).map_or(0, |flow| flow.advance(&mut self.stores[which(self.table, id)], to));
        if let Some(messages) = self.messages.get_mut(&id.line).filter(|_| moved > 0) {
            messages.advanced(moved);
            if let Some(operations) = self.operations.get_mut(&id.line) {
                while messages.take().is_some() {
                    operations.finish();
                }
            }
        }
        moved
    }

    /// The bytes of the next message that is behind the cursor, each once.
    pub fn take_message(&mut self, id: FlowId) -> Option<u32> {
        self.positions(id)?;
        self.messages.get_mut(&id.line)?.take()
    }
}
