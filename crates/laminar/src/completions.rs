//! Completions to applications: their connections' positions.
use crate::Laminar;
use tcp::Owner;

impl Laminar {
    /// An application that has asked how far its bytes were sent gets the position, once that is far enough.
    #[cold]
    pub(crate) fn report_sent(&mut self, id: u32) {
        let flow = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut);
        // A push may have answered already.
        let Some(flow) = flow.filter(|flow| flow.asked) else { return };
        if let Some(position) = flow.take_sent() {
            self.contexts.report_sent(flow.params.context.0, flow.params.slot.index, position);
            self.notify(id);
        }
    }

    /// The flow's application is to be notified of its positions.
    pub(crate) fn notify(&mut self, id: u32) {
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        if flow.life != Owner::Orphan && !flow.completion_pending {
            flow.completion_pending = true;
            self.contexts.add_pending(id, flow.params.context.0);
        }
    }

    pub(crate) fn deliver(&mut self) {
        let flows = &mut self.flows;
        self.contexts.deliver(|id, context| {
            let flow = flows[id as usize].as_deref_mut().filter(|flow| flow.params.context.0 == context)?;
            flow.completion_pending = false;
            Some(flow.completion(flow.params.slot))
        });
    }
}
