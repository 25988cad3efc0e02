//! Idle reclaim: the memory of a quiet connection's receive buffer goes back to the system (docs/MEMORY.md).
//!
//! The engine may write to a receive buffer at any moment, on whatever thread. So it is asked to stop the flow
//! ([`Command::Freeze`]), which it does only where nothing is unread or out of order. Then the buffer is not in use.
//! What comes meanwhile waits for the flow to go on, a round later.
use super::Flows;
use crate::contexts::Contexts;
use crate::flow::{EngineState, Spliced};
use crate::outbox::Outbox;
use context::{Reply, Slot};
use engine::stream;
use engine::{ContextId, FlowId};

/// A connection that is quiet and was read empty, as its application reports.
pub(crate) struct ReclaimRequest {
    pub context: ContextId,
    pub slot: Slot,
    pub flow: FlowId,
    pub tx_head: u32,
    pub rx_head: u32,
}

impl Flows {
    /// An application reports that a connection is quiet and was read empty.
    pub(crate) fn reclaim(&mut self, out: &mut Outbox<'_>, contexts: &mut Contexts, request: &ReclaimRequest) {
        let ReclaimRequest { context, slot, flow: id, tx_head, rx_head } = *request;
        let Some(flow) = self.get_mut(id.0) else { return };
        // One that several processes have may be read by one and written by another at this moment.
        let only_one = flow.holders.len() == 1;
        if !only_one || flow.freezing > 0 || flow.engine != EngineState::Engine || flow.spliced != Spliced::No {
            return contexts.reply(context, Reply::Reclaimed { slot, done: false });
        }
        flow.freezing += 1;
        flow.reclaim = Some((context, slot));
        out.commands.push(stream::Command::Freeze { flow: id, tx_head, rx_head }.into());
    }

    /// The engine has answered one `Freeze` of a flow. Returns whether that was the last one: an earlier one was
    /// withdrawn.
    pub(crate) fn freeze_answered(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.get_mut(id.0) else { return false };
        flow.freezing = flow.freezing.saturating_sub(1);
        flow.freezing == 0
    }

    /// The engine has answered for a flow under reclaim; `frozen`: it stopped. Returns whether it was one.
    pub(crate) fn reclaim_answered(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        id: FlowId,
        frozen: bool,
    ) -> bool {
        let Some(flow) = self.get_mut(id.0) else { return false };
        let Some((context, slot)) = flow.reclaim.take() else { return false };
        let home = flow.names[0];
        let mut done = false;
        if frozen {
            let end = contexts.get_mut(home.context.0).map(|context| &mut context.end);
            done = end.is_some_and(|end| end.discard_received(home.slot.index).is_ok());
            out.commands.push(stream::Command::Thaw(id).into());
        }
        contexts.reply(context, Reply::Reclaimed { slot, done });
        true
    }

    /// The flow is needed at once: it goes on, whatever the engine is about to answer.
    pub(crate) fn leave_reclaim(&mut self, out: &mut Outbox<'_>, contexts: &mut Contexts, id: FlowId) {
        let Some(flow) = self.get_mut(id.0) else { return };
        if let Some((context, slot)) = flow.reclaim.take() {
            out.commands.push(stream::Command::Thaw(id).into());
            contexts.reply(context, Reply::Reclaimed { slot, done: false });
        }
    }
}
