//! Unreliable datagrams: each lands in the next segment (the paper's section 3.2). They have no order, and no cursor.
use super::payload::Memory;
use super::{Arrival, FlowId, Kind, Nic, find_mut};
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
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams) else {
            return Arrival::NoFlow;
        };
        let Some(segment) = flow.next_for_datagram(&self.store) else { return Arrival::Nowhere };
        if segment.len < payload.len() as u64 {
            return Arrival::TooLong;
        }
        if let Err(fault) = memory.write(flow.domain, segment.key, segment.offset, payload) {
            return Arrival::Fault(fault);
        }
        flow.datagram_landed(&mut self.store);
        Arrival::Placed { skip: 0, len: payload.len() as u32 }
    }

    /// Takes the next segment to send off the list, and appends its bytes to `into`. `None` where none is posted.
    pub fn fetch_datagram(
        &mut self,
        id: FlowId,
        into: &mut Vec<u8>,
        memory: &impl Memory,
    ) -> Option<Result<(), Fault>> {
        let flow = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams)?;
        let segment = flow.next_to_send(&mut self.store)?;
        let before = into.len();
        let read = memory.append(flow.domain, segment.key, segment.offset, segment.len as usize, into);
        if read.is_err() {
            into.truncate(before);
        }
        Some(read)
    }

    /// Takes the next segment to send off the list, unread.
    pub fn skip_datagram(&mut self, id: FlowId) {
        if let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams) {
            flow.next_to_send(&mut self.store);
        }
    }
}
