//! Flows of verbs: where their messages are in the stream, and the bytes of those that go out.
use super::flow::{Aim, Kind};
use super::messages::Mark;
use super::operations::{self, Finished, Guide, Operations, Outgoing, Part};
use super::payload::{Memory, Payload};
use super::sending::{LEAST_REFERRED, WORTH_REFERRING};
use super::{Arrival, Fetch, FlowId, Nic, Refused, find_mut};
use port::Piece;
use wire::Seq;

impl Nic {
    /// Places a part of a message of verbs: `guide` gets from its header where the rest goes.
    pub fn place_operation(
        &mut self,
        id: FlowId,
        seq: Seq,
        mark: Mark,
        payload: Payload<'_>,
        memory: &impl Memory,
        guide: Guide<'_>,
    ) -> Arrival {
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Operations) else {
            return Arrival::NoFlow;
        };
        let Some(aim) = flow.aim_part(seq, payload.len() as u32) else { return Arrival::Old };
        let (within, cursor, is_next) = (seq - mark.start, flow.cursor(), !flow.opens_a_hole(aim));
        let inside = u64::from(within) + payload.len() as u64 <= u64::from(mark.len);
        let fits = inside && operations::may_have(mark.len);
        let Some(messages) = self.messages.get(&id.line).filter(|_| fits) else {
            return Arrival::Impossible;
        };
        let Some(index) = messages.receive_of(mark, cursor) else { return Arrival::Impossible };
        if index >= operations::MOST {
            return Arrival::Nowhere;
        }
        let Some(held) = self.room_for(id, aim) else { return Arrival::Holes };
        let Some(operations) = self.operations.get_mut(&id.line) else { return Arrival::NoFlow };
        let (from, skip) = (within + aim.skip, aim.skip as usize);
        let part = Part { index, len: mark.len, from, skip, payload, is_next };
        let placed = operations.place(&part, memory, guide);
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.came(index, mark, cursor);
        }
        if placed { self.landed(id, aim, held) } else { Arrival::Nowhere }
    }

    /// A message of verbs goes out behind the others.
    pub fn post_operation(&mut self, id: FlowId, message: Outgoing) -> Result<(), Refused> {
        self.positions(id).ok_or(Refused::Flow)?;
        let (len, operations) = (message.len() as u32, self.operations.get_mut(&id.line).ok_or(Refused::Flow)?);
        if !operations.post(message) {
            return Err(Refused::Full);
        }
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.sends(len);
        }
        Ok(())
    }

    /// The next message of verbs that is behind the cursor, each once.
    pub fn take_operation(&mut self, id: FlowId) -> Option<Finished> {
        self.positions(id)?;
        self.operations.get_mut(&id.line)?.take()
    }

    /// Messages of verbs that the peer has not acknowledged.
    pub fn operations_out(&self, id: FlowId) -> usize {
        self.positions(id).and_then(|_| self.operations.get(&id.line)).map_or(0, Operations::unsent)
    }

    /// A queue pair goes: what can leave without its program's memory does not refer to that any more. The peer has
    /// carried out so many of its requests.
    pub fn release_operations(&mut self, id: FlowId, acknowledged: u32, memory: &impl Memory) {
        if self.positions(id).is_some() {
            self.operations.get_mut(&id.line).into_iter().for_each(|held| held.release(acknowledged, memory));
        }
    }

    /// No memory of a program is written any more for this flow. True where some would still have to be read.
    pub fn stop_operations(&mut self, id: FlowId) -> bool {
        self.positions(id).is_some() && self.operations.get_mut(&id.line).is_some_and(Operations::stop)
    }

    pub(super) fn fetch_operation(
        &mut self,
        id: FlowId,
        seq: Seq,
        len: u32,
        into: &mut Vec<u8>,
        memory: &impl Memory,
    ) -> Fetch {
        let (Some(flow), Some(messages), Some(operations)) =
            (find_mut(&mut self.lines, id), self.messages.get(&id.line), self.operations.get(&id.line))
        else {
            return Fetch::NoFlow;
        };
        let Some(aim) = flow.aim_among(messages.unacknowledged(), seq, len) else { return Fetch::NotPosted };
        let (before, first) = (into.len(), seq + aim.skip);
        let mut at = first;
        while at != first + aim.len {
            let Some((mark, left)) = messages.at(at, flow.una()) else { return Fetch::NotPosted };
            let count = left.min(first + aim.len - at);
            let appended = operations.append(messages.place_of(mark), at - mark.start, count, into, memory);
            if let Err(fault) = appended {
                into.truncate(before);
                return Fetch::Fault(fault);
            }
            at += count;
        }
        flow.fetched(aim);
        if aim.len == 0 { Fetch::Old } else { Fetch::Done { skip: aim.skip } }
    }

    /// The same as [`Nic::refer`], for a part of one message of verbs.
    pub(super) fn refer_operation(&mut self, id: FlowId, seq: Seq, len: u32, memory: &impl Memory) -> Option<Piece> {
        let flow = find_mut(&mut self.lines, id)?;
        let (messages, operations) = (self.messages.get(&id.line)?, self.operations.get(&id.line)?);
        let aim = flow.aim_among(messages.unacknowledged(), seq, len).filter(|aim| aim.skip == 0)?;
        let (mark, _) = messages.at(seq, flow.una())?;
        let (index, from) = (messages.place_of(mark), seq - mark.start);
        let header = (smartns::HEADER_LEN as u32).saturating_sub(from);
        let worth = |place: &smartns::RegionRange| place.len >= WORTH_REFERRING;
        if header > 0 {
            // The header, and behind it what is worth a frame of its own.
            let rest = len.checked_sub(header)?;
            let (_, place) = operations.place_at(index, from + header, rest)?;
            return worth(&place).then_some(Piece::Copy(header as usize));
        }
        let (domain, place) = operations.place_at(index, from, len)?;
        if !(worth(&place) || place.len == u64::from(len) && len >= LEAST_REFERRED) {
            return None;
        }
        match memory.refer(domain, place.key, place.offset, place.len as usize) {
            Ok(Some(span)) => {
                flow.fetched(Aim { len: place.len as u32, ..aim });
                Some(Piece::Refer(span))
            }
            _ => Some(Piece::Copy(place.len as usize)),
        }
    }
}
