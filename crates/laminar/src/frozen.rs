//! Frozen flows: stopped where nothing is under way, until they leave or go on.
use crate::{Laminar, bare};
use context::{Bump, Slot};
use engine::stream::{self, Stream};
use engine::{Burst, FlowId};

impl Laminar {
    /// Stops a quiet flow: its segments find no entry any more, and go to the control plane.
    pub(crate) fn freeze(&mut self, id: FlowId, tx_head: u32, rx_head: u32, burst: &mut Burst<'_, Stream>) {
        if self.flow(id.0).is_none() {
            return;
        }
        self.bump(id.0, &Bump { slot: Slot::default(), tx_head, rx_head, fin: false, ring: u8::MAX }, burst);
        let Some(flow) = self.flows[id.0 as usize].as_deref_mut() else { return };
        if flow.frozen || flow.member.is_some() || !flow.is_quiet() || self.switch.program.has_interval(id.0) {
            return burst.events.push(stream::Event::Busy(id).into());
        }
        flow.frozen = true;
        let ack_pending = flow.ack_due.is_some();
        self.switch.program.hide(&flow.params);
        let tuple = flow.params.tuple;
        self.forget_tuple(&tuple);
        let Some(end) = self.flows[id.0 as usize].as_deref().map(|flow| self.flow_end(flow)) else { return };
        if ack_pending {
            self.acknowledge(id.0, burst);
        }
        if let Some(flow) = self.flows[id.0 as usize].as_deref_mut() {
            self.switch.program.disown(id.0, flow.params.context.0);
        }
        burst.events.push(stream::Event::Frozen(id, end).into());
    }

    /// A flow that stands still goes on.
    pub(crate) fn thaw(&mut self, id: u32) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        if std::mem::take(&mut flow.frozen) {
            self.switch.program.show(&flow.params, flow.rx_base);
            self.switch.program.own(&flow.params, flow.tx_base);
            self.tuples.insert(bare(&flow.params.tuple), id);
        }
    }
}
