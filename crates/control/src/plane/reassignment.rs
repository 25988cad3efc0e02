//! Reassignment of waiting connections: what one process lets wait goes to another one (docs/LISTENERS.md).
use super::ControlPlane;
use crate::accept_queue::Overdue;
use crate::contexts::Holder;
use crate::flow::EngineState;
use crate::listening::take_back;
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use context::Reply;
use engine::ContextId;

/// Connections of a listener that move at one time.
const MOST_MOVED: usize = 32;

impl ControlPlane {
    /// Sets the timer for the next offer that expires, where it is not set.
    pub(super) fn time_reassignment(&mut self, out: &mut Outbox<'_>, binding: u32) {
        let now = out.now;
        let Some(listener) = self.bindings.listener(binding).filter(|listener| !listener.timed) else { return };
        if let Some(due) = listener.next_reassignment() {
            listener.timed = true;
            // Those that found no other place are tried again, and more than fit into one time soon.
            out.timers.set(Timer::Reassign(binding), due.max(now + MILLISECOND));
        }
    }

    /// An offer may have expired.
    pub(super) fn reassignment_due(&mut self, out: &mut Outbox<'_>, binding: u32) {
        if let Some(listener) = self.bindings.listener(binding) {
            listener.timed = false;
        }
        self.pass_on(out, binding, None, MOST_MOVED);
        self.time_reassignment(out, binding);
    }

    /// A process that takes connections comes: those that wait for one that does not are its own.
    pub(super) fn taker_came(&mut self, out: &mut Outbox<'_>, binding: u32) {
        self.pass_on(out, binding, None, MOST_MOVED);
        self.time_reassignment(out, binding);
    }

    /// A process that accepts found no connection.
    pub(super) fn take(
        &mut self,
        out: &mut Outbox<'_>,
        id: ContextId,
        tag: u32,
        binding: u32,
        credits: u32,
    ) -> Result<(), i32> {
        self.arm(out, id, binding, credits).ok_or(libc::EINVAL)?;
        if let Some(accept_queue) = self.bindings.listener(binding).and_then(|listener| listener.armed.get_mut(&id)) {
            accept_queue.has_accepted();
        }
        if self.bindings.is_empty_at(binding, id) {
            self.pass_on(out, binding, Some(id), 1);
        }
        self.time_reassignment(out, binding);
        self.contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    fn pass_on(&mut self, out: &mut Outbox<'_>, binding: u32, to: Option<ContextId>, most: usize) {
        if self.standstill.is_on() {
            return;
        }
        self.bindings.settle(&self.flows, binding);
        for overdue in self.bindings.overdue(binding, out.now, to, most) {
            self.pass_one_on(out, binding, overdue, to);
        }
    }

    /// One connection goes to another process, where there is one that should have it.
    fn pass_one_on(&mut self, out: &mut Outbox<'_>, binding: u32, overdue: Overdue, to: Option<ContextId>) {
        let Overdue { flow: id, at, anywhere } = overdue;
        let Some(flow) = self.flows.get(id.0) else { return };
        let (name, works) = (flow.names[0], flow.engine == EngineState::Engine);
        let class = out.config.memory.geometry().class(name.slot.index);
        let may_have = |other| other != at && to.is_none_or(|to| to == other);
        let chosen = self.bindings.choose_among(out, &self.contexts, binding, class, may_have);
        let Some((chosen, _)) = chosen.filter(|(_, passive)| anywhere || !passive) else { return };
        if !take_back(&mut self.contexts, &mut self.flows, id, at, binding) {
            return self.bindings.accepted(binding, at, id);
        }
        let offers = self.bindings.withdraw_offer(binding, at, id, out.now);
        if works && self.move_flow(out, id, binding, chosen, offers).is_some() {
            return;
        }
        // It has ended, or there is no memory for it: no process would get more than an error.
        self.contexts.reply(at, Reply::Unaccept { binding, slot: name.slot });
        self.give_up_share(out, id, Holder::Listener(binding), None, true);
    }
}
