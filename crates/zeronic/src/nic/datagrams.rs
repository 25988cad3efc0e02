//! Unreliable datagrams: each lands in the next segment (the paper's section 3.2). They have no order, and no cursor.
use super::payload::{Memory, Started};
use super::{Arrival, FlowId, Kind, Nic, find_mut, which};
use memory::Fault;
use wire::Ipv4Tuple;

impl Nic {
    /// The flow of datagrams between these ends.
    pub fn find_datagrams(&self, tuple: &Ipv4Tuple) -> Option<FlowId> {
        let line = *self.datagrams.get(tuple)?;
        Some(FlowId { line, generation: self.lines[usize::from(line)].generation })
    }

    /// Places a datagram in the next segment. One that is longer stays out, and the segment stays.
    pub fn place_datagram(&mut self, id: FlowId, payload: &[u8], memory: &impl Memory) -> Arrival {
        self.started.clear();
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams) else {
            return Arrival::NoFlow;
        };
        let Some(segment) = flow.next_for_datagram(&self.stores[which(self.table, id)]) else {
            return Arrival::Nowhere;
        };
        if segment.len < payload.len() as u64 {
            return Arrival::TooLong;
        }
        match memory.start_write(flow.domain, segment.key, segment.offset, payload) {
            Ok(started) => self.started.extend(started),
            Err(fault) => return Arrival::Fault(fault),
        }
        flow.datagram_landed(&mut self.stores[which(self.table, id)]);
        let (skip, len) = (0, payload.len() as u32);
        if self.started.is_empty() { Arrival::Placed { skip, len } } else { Arrival::Placing { skip, len } }
    }

    /// Takes the next segment to send off the list, and appends its bytes to `into`. `None` where none is posted.
    pub fn fetch_datagram(
        &mut self,
        id: FlowId,
        into: &mut Vec<u8>,
        memory: &impl Memory,
    ) -> Option<Result<(), Fault>> {
        let flow = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams)?;
        let segment = flow.next_to_send(&mut self.stores[which(self.table, id)])?;
        let before = into.len();
        let read = memory.append(flow.domain, segment.key, segment.offset, segment.len as usize, into);
        if read.is_err() {
            into.truncate(before);
        }
        Some(read)
    }

    /// Starts to read the segment to send that has so many before it, where it is a device's. It stays on the list.
    ///
    /// # Errors
    /// The device's queue has no room, or the device is gone.
    pub fn start_datagram(&self, id: FlowId, index: usize, memory: &impl Memory) -> Result<Started, Fault> {
        let flow = self.lines.get(id.line()).filter(|line| line.generation == id.generation);
        let Some(flow) = flow.and_then(|line| line.flow.as_ref()) else { return Ok(None) };
        let Some(segment) = flow.send_at(&self.stores[which(self.table, id)], index) else { return Ok(None) };
        match memory.start_read(flow.domain, segment.key, segment.offset, segment.len as usize) {
            // What cannot be read for another reason is seen when it is fetched.
            Err(fault) if !matches!(fault, Fault::Busy | Fault::Lost) => Ok(None),
            started => started,
        }
    }

    /// Takes the next segment to send off the list, unread.
    pub fn skip_datagram(&mut self, id: FlowId) {
        if let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams) {
            flow.next_to_send(&mut self.stores[which(self.table, id)]);
        }
    }
}
