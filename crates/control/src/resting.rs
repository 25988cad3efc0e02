//! Connections that rest: the memory of their receive buffers goes back to the system (docs/MEMORY.md).
//!
//! The engine may write to a receive buffer at any moment, on whatever thread. So it is asked to stop the flow
//! ([`Command::Freeze`]), which it does only where nothing is unread or out of order; then nobody uses the buffer. What
//! comes meanwhile waits for the flow to go on, a round later.
use crate::flow::{Place, Spliced};
use crate::outbox::Outbox;
use crate::plane::Plane;
use context::{Reply, Slot};
use engine::stream;
use engine::{ContextId, DropReason, FlowId};

impl Plane {
    /// An application says that a connection is quiet and was read empty.
    pub fn rest(&mut self, out: &mut Outbox<'_>, id: ContextId, slot: Slot, tx_head: u32, rx_head: u32) {
        let Some(flow_id) = self.named(id, slot) else { return out.drops.count(DropReason::RequestInvalid) };
        let Some(flow) = self.flows.get_mut(flow_id.0) else { return };
        // One that several processes have may be read by one and written by another at this moment.
        let only_one = flow.holders.len() == 1;
        if !only_one || flow.freezing > 0 || flow.place != Place::Engine || flow.spliced != Spliced::No {
            return self.contexts.reply(id, Reply::Rested { slot, done: false });
        }
        flow.freezing += 1;
        flow.resting = Some((id, slot));
        out.commands.push(stream::Command::Freeze { flow: flow_id, tx_head, rx_head }.into());
    }

    /// The engine has answered for a flow that rests; `stands` says that it stands still. Says whether it was one.
    pub fn rest_answered(&mut self, out: &mut Outbox<'_>, id: FlowId, stands: bool) -> bool {
        let Some(flow) = self.flows.get_mut(id.0) else { return false };
        let Some((context, slot)) = flow.resting.take() else { return false };
        let home = flow.names[0];
        let mut done = false;
        if stands {
            let end = self.contexts.get_mut(home.context.0).map(|context| &mut context.end);
            done = end.is_some_and(|end| end.discard_received(home.slot.index).is_ok());
            out.commands.push(stream::Command::Thaw(id).into());
        }
        self.contexts.reply(context, Reply::Rested { slot, done });
        true
    }

    /// The flow is wanted at once: it goes on, whatever the engine is about to answer.
    pub fn leave_resting(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if let Some((context, slot)) = flow.resting.take() {
            out.commands.push(stream::Command::Thaw(id).into());
            self.contexts.reply(context, Reply::Rested { slot, done: false });
        }
    }
}
