//! Payload of connections without a line: copies between the transport's buffers and the memory that is posted
//! (docs/ZERONIC.md, "More connections than lines").
use crate::copying::{Copying, PIECE, Way, piece, take};
use crate::nic::{FlowId, Kind, Memory, Refused, Segment};
use crate::stack::{Event, Post, Stack, finish};
use crate::transport::Transport;
use crate::unit::Unit;
use memory::Domain;
use wire::Ipv4Tuple;

impl<M: Memory> Unit<M> {
    /// A connection, with a line of the flow table or without.
    pub(crate) fn find(&self, tuple: &Ipv4Tuple) -> Option<FlowId> {
        self.nic.find(tuple).or_else(|| self.copying.find(tuple))
    }

    /// Adds a connection. Where it finds no line it is copied.
    pub(crate) fn add_flow(&mut self, tuple: Ipv4Tuple, domain: Domain, kind: Kind) -> Option<FlowId> {
        if self.find(&tuple).is_some() {
            return None;
        }
        let flow = self.nic.add(tuple, domain, kind).or_else(|| {
            let flow = self.copying.add(tuple, domain, kind)?;
            if kind.has_marks() {
                self.nic.add_beside(flow, tuple, domain, kind);
            }
            self.counters.without_line += 1;
            Some(flow)
        })?;
        self.add_header_state(flow, tuple, kind);
        Some(flow)
    }
}

impl<T: Transport, M: Memory> Stack<T, M> {
    /// The flow table has no line for the connection: its payload is copied, and no device's memory can be used.
    pub fn is_copied(&self, connection: FlowId) -> bool {
        self.unit.copying.has(connection)
    }

    pub(crate) fn post_copied_receive(&mut self, flow: FlowId, id: u64, segment: Segment) -> Result<(), Refused> {
        self.unit.copying.post(flow, Way::In, segment)?;
        let talk = self.talks.get_mut(&flow).ok_or(Refused::Flow)?;
        talk.receives.push_back(Post { id, bytes: segment.len, done: 0 });
        self.unit.touch(flow);
        Ok(())
    }

    pub(crate) fn post_copied_send(&mut self, flow: FlowId, id: u64, segment: Segment) -> Result<(), Refused> {
        self.unit.copying.post(flow, Way::Out, segment)?;
        let talk = self.talks.get_mut(&flow).ok_or(Refused::Flow)?;
        talk.sends.push_back(Post { id, bytes: segment.len, done: 0 });
        talk.unsent += segment.len;
        self.unit.touch(flow);
        Ok(())
    }

    /// As for other connections when something has come or left, within a round's bytes.
    pub(crate) fn poll_copied(&mut self, flow: FlowId) -> Result<(), String> {
        let budget = self.round_bytes();
        let left = self.copy_in(flow, budget)?;
        let is_connected = self.unit.header_state(flow).is_some_and(|way| way.outgoing.is_some());
        let left = if is_connected { self.copy_out(flow, left)? } else { left };
        if left == 0 {
            // Others have their turn.
            self.unit.touch(flow);
        }
        Ok(())
    }

    /// From the transport's buffer to receives. Returns what is left of the budget.
    fn copy_in(&mut self, flow: FlowId, mut budget: usize) -> Result<usize, String> {
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(budget) };
        let Unit { copying: Copying { flows, scratch, .. }, memory, header_states, .. } = &mut self.unit;
        let Some(copied) = flows.get_mut(&flow) else { return Ok(budget) };
        let mut moved = 0;
        loop {
            let most = piece(&copied.receives, budget);
            scratch.resize(PIECE.max(most), 0);
            // Also where there is nothing to copy to: whether the stream has ended, or failed.
            let came = self.transport.read(talk.socket, &mut scratch[..most])?;
            talk.ended |= came.ended;
            let Some(to) = copied.receives.front().filter(|_| came.bytes > 0 && most > 0) else { break };
            let count = usize::try_from(came.bytes).unwrap_or(most).min(most);
            memory.write(copied.domain, to.key, to.offset, &scratch[..count]).map_err(|_| gone())?;
            take(&mut copied.receives, count);
            (moved, budget) = (moved + count, budget - count);
        }
        talk.reported += moved as u64;
        if let Some(way) = header_states.get_mut(flow.line()).and_then(Option::as_deref_mut) {
            way.moved.copied_in += moved as u64;
        }
        let events = &mut self.events;
        let mut report = |id, bytes| events.push_back(Event::Received { connection: flow, id, bytes });
        finish(&mut talk.receives, moved as u64, &mut report);
        if talk.ended && !talk.end_reported {
            talk.end_reported = true;
            talk.receives.drain(..).for_each(|post| report(post.id, post.done));
            copied.receives.clear();
            events.push_back(Event::Ended { connection: flow });
        }
        Ok(budget)
    }

    /// From sends to the transport's buffer.
    fn copy_out(&mut self, flow: FlowId, mut budget: usize) -> Result<usize, String> {
        let Some(talk) = self.talks.get_mut(&flow) else { return Ok(budget) };
        let Unit { copying: Copying { flows, scratch, .. }, memory, header_states, .. } = &mut self.unit;
        let Some(copied) = flows.get_mut(&flow) else { return Ok(budget) };
        // A transport that acknowledges what it never took ends no send.
        let acknowledged = self.transport.acknowledged(talk.socket).min(copied.written);
        let moved = acknowledged.saturating_sub(copied.acknowledged);
        copied.acknowledged += moved;
        finish(&mut talk.sends, moved, |id, _| self.events.push_back(Event::Sent { connection: flow, id }));
        let mut written = 0;
        loop {
            let most = piece(&copied.sends, budget);
            let Some(from) = copied.sends.front().filter(|_| most > 0) else { break };
            scratch.clear();
            memory.append(copied.domain, from.key, from.offset, most, scratch).map_err(|_| gone())?;
            let count = self.transport.write(talk.socket, scratch)?.min(most);
            take(&mut copied.sends, count);
            copied.written += count as u64;
            (written, budget) = (written + count, budget - count);
            if count < most {
                break;
            }
        }
        talk.unsent -= written as u64;
        if let Some(way) = header_states.get_mut(flow.line()).and_then(Option::as_deref_mut) {
            (way.moved.fetched, way.moved.copied_out) =
                (way.moved.fetched + written as u64, way.moved.copied_out + written as u64);
        }
        if talk.ending && talk.unsent == 0 && !talk.end_sent {
            talk.end_sent = true;
            self.transport.end(talk.socket);
        }
        Ok(budget)
    }
}

pub(crate) fn gone() -> String {
    "memory that was posted is not registered any more".into()
}
