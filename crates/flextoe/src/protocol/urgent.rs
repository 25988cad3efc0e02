//! Urgent data (RFC 9293 section 3.8.5). While something is urgent, a flow takes the slow path: until the urgent byte
//! has come, or was acknowledged. The frames that it sends meanwhile are single segments, for each has a pointer of its
//! own. Few connections ever have urgent data, so its state is apart.
use super::state::ProtocolState;
use crate::message::{Events, Work};
use crate::observer::Observer;
use crate::preprocess;
use engine::DropReason;
use std::collections::BTreeMap;
use tcp::{Owner, Urgent};
use wire::tcp::Flags;

/// What is urgent, of the flows on which something is ([`ProtocolState::urgent`]).
#[derive(Default)]
pub(super) struct UrgentFlows(BTreeMap<u32, Urgent>);

impl UrgentFlows {
    /// A flow is gone, or a new one has its number.
    pub(super) fn forget(&mut self, flow: u32) {
        self.0.remove(&flow);
    }

    /// Gives the segment that a work sends its urgent pointer, first transmission or not.
    // Meets RFC 9293: MUST-30, MUST-31, MUST-62.
    pub(super) fn urge(&self, work: &mut Work) {
        let (Some(urgent), Some(segment)) = (self.0.get(&work.flow), &mut work.send) else { return };
        if let Some(pointer) = urgent.pointer(segment.fields.seq) {
            debug_assert_eq!(segment.segment_size, 0, "urgent segments are single");
            segment.fields.flags |= Flags::URG;
            work.urgent.pointer = pointer;
        }
    }
}

impl ProtocolState {
    /// The urgent pointer of an acceptable segment, before its payload is taken in. The application gets the position
    /// of the urgent byte: a number, by which the engine reads and writes nothing.
    // Meets RFC 9293: MUST-30, MUST-32, MUST-33, MUST-62.
    #[cold]
    #[inline(never)]
    pub(super) fn take_urgent(&mut self, work: &mut Work, flows: &mut UrgentFlows) {
        if self.ends.peer_ended() || self.life != Owner::Owned {
            return;
        }
        let Some(pointer) = work.frame.as_deref().and_then(preprocess::urgent_pointer) else { return };
        let urgent = flows.0.entry(work.flow).or_default();
        self.urgent = true;
        if let Some(byte) = urgent.receive(work.summary.seq, pointer, self.rcv_nxt) {
            work.urgent.byte = byte - self.fixed.rx_base;
            work.events.add(Events::URGENT);
        }
    }

    /// The application has made the byte before stream position `position` urgent. Where the window is closed, the peer
    /// is notified at once all the same.
    // Meets RFC 9293: MUST-30.
    pub(super) fn write_urgent<O: Observer>(
        &mut self,
        position: u32,
        work: &mut Work,
        flows: &mut UrgentFlows,
        observer: O,
    ) {
        let Some(end) = self.written_end(position) else { return work.drop_for(DropReason::BumpRange, observer) };
        flows.0.entry(work.flow).or_default().write(end);
        self.urgent = true;
        self.set_nagle(self.has_nagle());
        self.ack_now |= self.usable() == 0 && !self.frozen;
    }

    /// After a work of a flow on which something is urgent, or was.
    #[cold]
    #[inline(never)]
    pub(super) fn settle_urgent(&mut self, work: &mut Work, flows: &mut UrgentFlows) {
        flows.urge(work);
        let Some(urgent) = flows.0.get_mut(&work.flow) else { return };
        self.urgent = urgent.pass(self.rcv_nxt, self.una);
        if !self.urgent {
            flows.forget(work.flow);
        }
        self.set_nagle(self.has_nagle());
    }
}
