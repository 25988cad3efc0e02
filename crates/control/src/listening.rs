//! Listeners: the right to bind and listen, the choice of an application for a connection, and what listeners lose.
use crate::bindings::{Binding, Bindings, Listener};
use crate::config::{HostConfig, PortRule};
use crate::contexts::{Application, Contexts, Holder};
use crate::flows::Flows;
use crate::outbox::Outbox;
use context::{Class, Endpoint};
use engine::{ContextId, FlowId};

impl Bindings {
    /// The listener for a connection. A process that has ended listens no more, although what it left is still cleaned
    /// up.
    pub(crate) fn listener_of(
        &self,
        contexts: &Contexts,
        local: Endpoint,
        spread: impl FnOnce() -> u64,
    ) -> Option<u32> {
        self.listener_for(local, spread, |holder| contexts.runs(holder))
    }

    /// An application reserves a local address. `in_use`: a connection has the port.
    // Meets RFC 9293: MUST-43.
    pub(crate) fn bind(
        &mut self,
        contexts: &mut Contexts,
        id: ContextId,
        binding: Binding,
        in_use: bool,
    ) -> Result<u32, i32> {
        let runs = |holder| contexts.runs(holder);
        // Connections that outlive their listener keep its port, unless the new one's options differ.
        let in_use = !binding.reuse_address && !self.is_held(binding.local.port, runs) && in_use;
        if in_use || self.is_others(binding.local.port) || self.conflicts(&binding, runs) {
            return Err(libc::EADDRINUSE);
        }
        let binding = self.add(binding);
        if let Some(context) = contexts.get_mut(id.0) {
            context.bindings.insert(binding);
        }
        Ok(binding)
    }

    /// An application listens on its binding.
    // Meets RFC 9293: MUST-41, MUST-42.
    pub(crate) fn listen(
        &mut self,
        out: &Outbox<'_>,
        contexts: &Contexts,
        binding: u32,
        backlog: u32,
    ) -> Result<(), i32> {
        if self.listener_conflicts(binding, |holder| contexts.runs(holder)) {
            return Err(libc::EADDRINUSE);
        }
        let most = out.config.limits.max_backlog.max(1);
        let entry = self.get_mut(binding).ok_or(libc::EINVAL)?;
        entry.listener.get_or_insert_with(Listener::default).backlog = backlog.clamp(1, most);
        Ok(())
    }

    /// `TCP_MAXSEG` of a listener; 0 where it is not set.
    pub(crate) fn segment_size(&self, binding: u32) -> u16 {
        self.get(binding).and_then(|binding| binding.listener.as_ref()).map_or(0, |listener| listener.mss)
    }

    /// So many connections of the listener wait for a context that no other one may.
    pub(crate) fn is_overrun(&self, binding: u32) -> bool {
        let listener = self.get(binding).and_then(|binding| binding.listener.as_ref());
        listener.is_some_and(|listener| listener.ready.len() as u32 >= listener.backlog)
    }

    /// Connections of a listener wait for a context that takes them.
    pub(crate) fn has_waiting(&self, binding: u32) -> bool {
        let listener = self.get(binding).and_then(|binding| binding.listener.as_ref());
        listener.is_some_and(|listener| !listener.ready.is_empty() || !listener.parked.is_empty())
    }

    /// The context that gets the next connection of a listener: of those with credits and room, the least loaded. Among
    /// equals, it is the next one after the last. Only those that have buffers no smaller than of that class.
    pub(crate) fn choose(
        &self,
        out: &Outbox<'_>,
        contexts: &Contexts,
        binding: u32,
        class: Class,
    ) -> Option<ContextId> {
        let listener = self.get(binding)?.listener.as_ref()?;
        if listener.ready.is_empty() && listener.parked.is_empty() {
            return None;
        }
        self.choose_among(out, contexts, binding, class, |_| true).map(|(id, _)| id)
    }

    /// The same among some contexts, for a connection that need not go anywhere; and whether it is a passive one.
    pub(crate) fn choose_among(
        &self,
        out: &Outbox<'_>,
        contexts: &Contexts,
        binding: u32,
        class: Class,
        may_have: impl Fn(ContextId) -> bool,
    ) -> Option<(ContextId, bool)> {
        let listener = self.get(binding)?.listener.as_ref()?;
        let last = listener.last;
        listener
            .armed
            .iter()
            .filter(|(id, accept_queue)| accept_queue.credits > 0 && may_have(**id))
            .filter_map(|(id, _)| {
                let context = contexts.get(id.0)?;
                let fits = !contexts.is_full(out, *id) && context.slots.has_free(class);
                let order = listener.order_of(*id, out.now);
                let rank = (order, context.flows.len(), last.is_some_and(|last| *id <= last), *id);
                (context.alive() && fits).then_some(rank)
            })
            .min()
            .map(|(order, _, _, id)| (id, order > 0))
    }

    /// A context has got a connection of a listener.
    pub(crate) fn take_credit(&mut self, contexts: &mut Contexts, binding: u32, context: ContextId) {
        if let Some(served) = contexts.get_mut(context.0).map(|context| &mut context.served) {
            *served = binding;
        }
        if let Some(listener) = self.listener(binding) {
            listener.last = Some(context);
            if let Some(accept_queue) = listener.armed.get_mut(&context) {
                accept_queue.credits -= 1;
            }
        }
    }

    /// A context gives up its share of a binding: connections that it was to accept wait for another one.
    pub(crate) fn leave(&mut self, contexts: &mut Contexts, flows: &mut Flows, id: ContextId, binding: u32) {
        let Some(context) = contexts.get_mut(id.0) else { return };
        context.bindings.remove(&binding);
        let accepted: Vec<FlowId> = context.flows.iter().copied().collect();
        if let Some(listener) = self.listener(binding) {
            listener.armed.remove(&id);
        }
        for flow in accepted {
            if take_back(contexts, flows, flow, id, binding) {
                self.listener(binding).into_iter().for_each(|listener| listener.parked.push_back(flow));
            }
        }
    }

    /// A context has a share of a binding from now on.
    pub(crate) fn join(&mut self, contexts: &mut Contexts, id: ContextId, binding: u32) {
        let (Some(found), Some(context)) = (self.get_mut(binding), contexts.get_mut(id.0)) else { return };
        found.holders.insert(Holder::Context(id));
        context.bindings.insert(binding);
    }

    /// Gives up a share of a binding; the last one frees the address. Gives back the listener that ended so.
    pub(crate) fn give_up(&mut self, id: u32, holder: Holder) -> Option<Listener> {
        let binding = self.get_mut(id)?;
        binding.holders.remove(&holder);
        if !binding.holders.is_empty() {
            return None;
        }
        self.remove(id)?.listener
    }
}

/// A connection that `context` was to accept is the listener's again. False where it was accepted.
pub(crate) fn take_back(
    contexts: &mut Contexts,
    flows: &mut Flows,
    id: FlowId,
    context: ContextId,
    binding: u32,
) -> bool {
    let Some(flow) = flows.get_mut(id.0) else { return false };
    // A process that has written to a connection has accepted it, whatever else it reported.
    let figures = flow.stats.read();
    let written = figures.tx_bytes > 0 || figures.unsent > 0;
    if flow.unaccepted != Some(binding) || written || !flow.holders.contains(&Holder::Context(context)) {
        return false;
    }
    let slot = flow.names[0].slot;
    if !contexts.get(context.0).is_some_and(|context| context.end.withdraw(slot)) {
        return false;
    }
    flow.holders.remove(&Holder::Context(context));
    flow.holders.insert(Holder::Listener(binding));
    flow.names.iter_mut().for_each(|name| name.open = false);
    if let Some(context) = contexts.get_mut(context.0) {
        context.flows.remove(&id);
    }
    true
}

impl HostConfig {
    /// An application may bind a port: port partitioning (FlexTOE appendix D), and privileged ports.
    pub fn may_bind(&self, application: &Application, port: u16) -> bool {
        let named = |rule: &&PortRule| (rule.first..=rule.last).contains(&port);
        let mut naming = self.port_rules.iter().filter(named).peekable();
        if naming.peek().is_none() {
            return port >= self.unprivileged_port_start || application.uid == 0;
        }
        let first = application.command.split_whitespace().next().unwrap_or_default();
        let program = first.rsplit('/').next().unwrap_or_default();
        naming.any(|rule| {
            let user = rule.uids.is_empty() || rule.uids.contains(&application.uid);
            user && (rule.commands.is_empty() || rule.commands.iter().any(|command| command == program))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_partitioned_by_user_and_program() {
        let application =
            |uid, command: &str| Application { pid: 1, uid, gid: uid, command: command.into(), loopback: true };
        let rule = |uids: &[u32], commands: &[&str]| PortRule {
            first: 6000,
            last: 6999,
            uids: uids.to_vec(),
            commands: commands.iter().map(|command| command.to_string()).collect(),
        };
        let port_rules = vec![rule(&[7], &[]), rule(&[], &["redis-server"])];
        let host = HostConfig { port_rules, unprivileged_port_start: 1024, ..HostConfig::default() };
        assert!(host.may_bind(&application(7, "anything"), 6379));
        assert!(host.may_bind(&application(8, "/usr/bin/redis-server *:6379"), 6379));
        assert!(!host.may_bind(&application(8, "memcached"), 6379));
        assert!(host.may_bind(&application(8, "memcached"), 11211));
        assert!(!host.may_bind(&application(8, "nginx"), 80));
        assert!(host.may_bind(&application(0, "nginx"), 80));
    }
}
