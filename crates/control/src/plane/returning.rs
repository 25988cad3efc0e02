//! Return of listeners of an earlier daemon (docs/RESTART.md).
use super::ControlPlane;
use crate::bindings::Binding;
use crate::contexts::Holder;
use crate::outbox::Outbox;
use context::attach::Ticket;
use engine::ContextId;

/// A ticket that a process shows.
#[derive(Debug, Clone)]
pub struct ShownTicket {
    /// Its content.
    pub ticket: Ticket,
    /// A daemon of this host gave it.
    pub sealed: bool,
}

impl ControlPlane {
    /// The ticket of a listener that a context has, not sealed yet. `None` where it has no such listener.
    pub(crate) fn ticket(&mut self, out: &mut Outbox<'_>, id: ContextId, binding: u32) -> Option<Ticket> {
        let held = self.contexts.has_binding(id, binding);
        let found = self.bindings.get_mut(binding).filter(|found| held && found.listener.is_some())?;
        while found.number == 0 {
            found.number = out.random.next();
        }
        let Binding { local, uid, reuse_address, reuse_port, dual_stack, number: listener, .. } = *found;
        Some(Ticket { listener, local, reuse_address, reuse_port, dual_stack, uid, seal: 0 })
    }

    /// A context listens again with a ticket. The first of those that share a listener gets its address, others join
    /// it.
    ///
    /// # Errors
    /// A Linux error number, as `bind` and `listen` have them.
    pub(crate) fn listen_again(
        &mut self,
        out: &Outbox<'_>,
        id: ContextId,
        shown: &ShownTicket,
        backlog: u32,
    ) -> Result<u32, i32> {
        let &ShownTicket { ref ticket, sealed } = shown;
        let &Ticket { listener: number, local, reuse_address, reuse_port, dual_stack, uid, .. } = ticket;
        if number == 0 || local.port == 0 {
            return Err(libc::EINVAL);
        }
        let application = self.may_have(out, id, local.ip)?;
        if !sealed {
            (application.uid == uid).then_some(()).ok_or(libc::EACCES)?;
            self.may_use(out, id, local.port)?;
        }
        if let Some(binding) = self.bindings.numbered(number, local) {
            // The number alone is no right: a process that shows an unsealed ticket may have made it up.
            let same_user = self.bindings.get(binding).is_some_and(|found| found.uid == uid);
            (sealed || same_user).then_some(()).ok_or(libc::EACCES)?;
            self.bindings.join(&mut self.contexts, id, binding);
            return Ok(binding);
        }
        let holders = [Holder::Context(id)].into();
        let new = Binding { local, uid, reuse_address, reuse_port, dual_stack, number, holders, listener: None };
        let binding = self.bindings.bind(&mut self.contexts, id, new, false)?;
        self.bindings.listen(out, &self.contexts, binding, backlog).inspect_err(|_| {
            self.bindings.leave(&mut self.contexts, &mut self.flows, id, binding);
            self.bindings.give_up(binding, Holder::Context(id));
        })?;
        Ok(binding)
    }
}
