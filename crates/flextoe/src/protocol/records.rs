//! Records of a stream (`MSG_EOR`): what is sent first ends with its record. As long as an end is not acknowledged, a
//! flow takes the slow path. Few programs have records, so their ends are apart, as what is urgent is.
use super::state::ProtocolState;
use super::transmit::Cut;
use crate::message::Work;
use crate::observer::Observer;
use engine::{DropReason, Nanos};
use std::collections::BTreeMap;
use tcp::{Owner, RecordEnds};
use wire::tcp::Flags;

/// Ends of records, of the flows that have some ([`ProtocolState::has_records`]).
#[derive(Default)]
pub(super) struct RecordFlows(BTreeMap<u32, RecordEnds>);

impl RecordFlows {
    /// A flow is gone, or a new one has its number.
    pub(super) fn forget(&mut self, flow: u32) {
        self.0.remove(&flow);
    }
}

impl ProtocolState {
    /// The application ends a record before stream position `position`.
    pub(super) fn end_record<O: Observer>(
        &mut self,
        position: u32,
        work: &mut Work,
        flows: &mut RecordFlows,
        observer: O,
    ) {
        let Some(end) = self.written_end(position) else { return work.drop_for(DropReason::BumpRange, observer) };
        flows.0.entry(work.flow).or_default().push(end);
        self.has_records = true;
    }

    /// [`ProtocolState::transmit`] of a flow with records. What is lost is cut anew.
    #[cold]
    #[inline(never)]
    pub(super) fn transmit_record<O: Observer>(
        &mut self,
        work: &mut Work,
        most: u32,
        flows: &RecordFlows,
        now: Nanos,
        observer: O,
    ) {
        if self.life == Owner::Dead || (self.recovery.has_block() && self.send_lost(work, most, now, observer)) {
            return;
        }
        let (Some(cut), Some(ends)) = (self.cut(most), flows.0.get(&work.flow)) else { return };
        let (begin, len) = (self.nxt, ends.bound(self.nxt, cut.len));
        let is_bound = len < cut.len;
        self.send_cut(work, Cut { len, fin: cut.fin && !is_bound }, now, observer);
        if let Some(segment) = work.send.as_mut().filter(|_| is_bound || ends.bound(begin, len + 1) == len) {
            // A record is for the peer's program as it is.
            segment.fields.flags |= Flags::PSH;
        }
    }

    /// After a work of a flow with records.
    #[cold]
    pub(super) fn settle_records(&mut self, flow: u32, flows: &mut RecordFlows) {
        self.has_records = flows.0.get_mut(&flow).is_some_and(|ends| ends.pass(self.una));
        if !self.has_records {
            flows.forget(flow);
        }
    }
}
