//! Fork: a child shares what its parent had. Until it attaches, the host holds its shares. What a process passes to
//! another one is held likewise, until that one adopts it (docs/PASSING.md).
use crate::bindings::Bindings;
use crate::contexts::{Contexts, Holder};
use crate::flow::{EngineState, Name, Spliced};
use crate::flows::Flows;
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use context::{Reply, Slot};
use engine::stream;
use engine::{ContextId, FlowId, Nanos};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// For whom something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HeldFor {
    /// A forked child, which attaches.
    Child,
    /// A process that gets it over a UNIX socket and adopts it.
    Receiver,
}

/// Shares of a process that forked, held until its child attaches; or what it passed, until another one adopts it.
pub(crate) struct Hold {
    pub held_for: HeldFor,
    /// `None` once its context is gone: the number may be another process' then.
    pub parent: Option<ContextId>,
    pub uid: u32,
    pub flows: Vec<FlowId>,
    pub bindings: Vec<u32>,
}

/// Children that have not attached yet, what is not adopted yet, and claims of those that have.
#[derive(Default)]
pub(crate) struct Forks {
    /// By the token that the child or the receiver shows.
    holds: BTreeMap<u64, Hold>,
    /// The number of the last claim of a shared connection; 0 before the first.
    claims: u32,
}

/// One thing that a process passes, or that the program gets which it runs.
pub(crate) enum Passed {
    Flow(FlowId),
    Binding(u32),
}

/// A child's claim: the completions of a connection that it inherited are to come to it.
pub(crate) struct Claim {
    pub child: ContextId,
    pub tag: u32,
    /// The connection's name in the parent.
    pub parent: ContextId,
    pub slot: Slot,
}

impl Forks {
    pub(crate) fn len(&self) -> usize {
        self.holds.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Hold)> {
        self.holds.iter().map(|(token, hold)| (*token, hold))
    }

    /// The number of the last claim.
    pub(crate) fn claims(&self) -> u32 {
        self.claims
    }

    /// Goes on after another host's last claim.
    pub(crate) fn go_on_after(&mut self, claims: u32) {
        self.claims = claims;
    }

    /// A token is that of a process of this user that forked lately.
    pub(crate) fn has(&self, token: u64, uid: u32) -> bool {
        self.holds.get(&token).is_some_and(|hold| hold.uid == uid && hold.held_for == HeldFor::Child)
    }

    /// Something that was passed is held under this token.
    pub(crate) fn is_passed(&self, token: u64) -> bool {
        self.holds.get(&token).is_some_and(|hold| hold.held_for == HeldFor::Receiver)
    }

    /// The process that passed what this token names, unless it is gone.
    pub(crate) fn sender(&self, token: u64) -> Option<ContextId> {
        self.holds.get(&token).filter(|hold| hold.held_for == HeldFor::Receiver)?.parent
    }

    /// What is held under this token is this process'.
    pub(crate) fn is_of(&self, token: u64, parent: ContextId) -> bool {
        self.holds.get(&token).is_some_and(|hold| hold.parent == Some(parent))
    }

    /// Holds shares for the process that shows the token, for a while.
    pub(crate) fn hold(&mut self, out: &mut Outbox<'_>, token: u64, hold: Hold) {
        let timers = &out.config.timers;
        let time = match hold.held_for {
            HeldFor::Child => timers.fork_hold_ms,
            HeldFor::Receiver => timers.pass_hold_ms,
        };
        self.holds.insert(token, hold);
        out.timers.set(Timer::Hold(token), out.now + Nanos::from(time) * MILLISECOND);
    }

    /// A process is gone. What it left for others stays held.
    pub(crate) fn orphan(&mut self, parent: ContextId) {
        for hold in self.holds.values_mut().filter(|hold| hold.parent == Some(parent)) {
            hold.parent = None;
        }
    }

    /// What is held for others of one process.
    fn pending(&self, parent: ContextId, held_for: HeldFor) -> usize {
        self.holds.values().filter(|hold| hold.parent == Some(parent) && hold.held_for == held_for).count()
    }

    /// Holds shares no more.
    pub(crate) fn take(&mut self, out: &mut Outbox<'_>, token: u64) -> Option<Hold> {
        out.timers.cancel(Timer::Hold(token));
        self.holds.remove(&token)
    }

    /// A process is about to fork.
    pub(crate) fn fork(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        flows: &mut Flows,
        bindings: &mut Bindings,
        parent: ContextId,
    ) -> Result<u64, i32> {
        let token = out.random.next();
        self.may_hold_for_child(out, parent)?;
        let context = contexts.get(parent.0).ok_or(libc::EINVAL)?;
        let uid = context.application.uid;
        let inherited: Vec<u32> = context.bindings.iter().copied().collect();
        let mut shared: Vec<FlowId> = context.flows.iter().copied().collect();
        shared.retain(|id| flows.get(id.0).is_some_and(|flow| flow.unaccepted.is_none()));
        let hold = Hold { held_for: HeldFor::Child, parent: Some(parent), uid, flows: shared, bindings: inherited };
        share(flows, bindings, token, &hold);
        self.hold(out, token, hold);
        Ok(token)
    }

    fn may_hold_for_child(&self, out: &Outbox<'_>, parent: ContextId) -> Result<(), i32> {
        let most = out.config.limits.forks_per_application as usize;
        if self.pending(parent, HeldFor::Child) < most { Ok(()) } else { Err(libc::EAGAIN) }
    }

    /// A process is about to run another program, for which nothing is held yet.
    pub(crate) fn exec(&mut self, out: &mut Outbox<'_>, contexts: &Contexts, parent: ContextId) -> Result<u64, i32> {
        self.may_hold_for_child(out, parent)?;
        let uid = contexts.get(parent.0).ok_or(libc::EINVAL)?.application.uid;
        let token = out.random.next();
        let (flows, bindings) = (Vec::new(), Vec::new());
        self.hold(out, token, Hold { held_for: HeldFor::Child, parent: Some(parent), uid, flows, bindings });
        Ok(token)
    }

    /// Holds one thing more for that program.
    pub(crate) fn carry(
        &mut self,
        flows: &mut Flows,
        bindings: &mut Bindings,
        parent: ContextId,
        token: u64,
        carried: Passed,
    ) -> Result<(), i32> {
        let for_child = |hold: &&mut Hold| hold.held_for == HeldFor::Child && hold.parent == Some(parent);
        let hold = self.holds.get_mut(&token).filter(for_child).ok_or(libc::EBADF)?;
        let holder = Holder::Hold(token);
        match carried {
            Passed::Flow(id) => {
                let flow = flows.get_mut(id.0).ok_or(libc::EBADF)?;
                if !flow.holders.contains(&holder) {
                    flow.holders.insert(holder);
                    hold.flows.push(id);
                }
            }
            Passed::Binding(id) => {
                if bindings.get_mut(id).ok_or(libc::EBADF)?.holders.insert(holder) {
                    hold.bindings.push(id);
                }
            }
        }
        Ok(())
    }

    /// A process is about to pass one thing that it has to another process.
    pub(crate) fn pass(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &Contexts,
        flows: &mut Flows,
        bindings: &mut Bindings,
        parent: ContextId,
        passed: Passed,
    ) -> Result<u64, i32> {
        if self.pending(parent, HeldFor::Receiver) >= out.config.limits.passes_per_application as usize {
            return Err(libc::ETOOMANYREFS);
        }
        let uid = contexts.get(parent.0).ok_or(libc::EINVAL)?.application.uid;
        let (passed_flows, passed_bindings) = match passed {
            Passed::Flow(id) => (vec![id], Vec::new()),
            Passed::Binding(id) if contexts.has_binding(parent, id) => (Vec::new(), vec![id]),
            Passed::Binding(_) => return Err(libc::EINVAL),
        };
        let token = out.random.next();
        let held_for = HeldFor::Receiver;
        let hold = Hold { held_for, parent: Some(parent), uid, flows: passed_flows, bindings: passed_bindings };
        share(flows, bindings, token, &hold);
        self.hold(out, token, hold);
        Ok(token)
    }

    /// A process got what another one passed. The token is its right to it. A connection is for processes of the
    /// sender's user only, as its buffers are in the sender's region, with those of all its other connections. Answers
    /// the name of the connection's buffers, or the number of the local address.
    pub(crate) fn adopt(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        flows: &mut Flows,
        bindings: &mut Bindings,
        receiver: ContextId,
        token: u64,
    ) -> Result<(Option<Name>, u32), i32> {
        let hold = self.holds.get(&token).filter(|hold| hold.held_for == HeldFor::Receiver).ok_or(libc::EBADF)?;
        let context = contexts.get(receiver.0).ok_or(libc::EINVAL)?;
        if !hold.flows.is_empty() && hold.uid != context.application.uid {
            return Err(libc::EPERM);
        }
        let has_it = hold.bindings.iter().all(|binding| context.bindings.contains(binding));
        if !has_it && context.bindings.len() >= out.config.limits.bindings_per_application as usize {
            return Err(libc::ENOBUFS);
        }
        let binding = hold.bindings.first().copied().unwrap_or_default();
        // The first name is that of its buffers.
        let flow = hold.flows.first().and_then(|flow| flows.get(flow.0));
        let home = flow.and_then(|flow| flow.names.iter().next().copied());
        self.inherit(out, contexts, flows, bindings, receiver, token);
        Ok((home, binding))
    }

    /// A child has attached, or a receiver has come: what was held for it is its own.
    pub(crate) fn inherit(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        flows: &mut Flows,
        bindings: &mut Bindings,
        child: ContextId,
        token: u64,
    ) {
        let Some(hold) = self.take(out, token) else { return };
        let Some(context) = contexts.get_mut(child.0) else { return };
        let held = Holder::Hold(token);
        for id in hold.flows {
            let flow = flows.get_mut(id.0);
            if let Some(flow) = flow.filter(|flow| flow.holders.contains(&held)) {
                flow.holders.remove(&held);
                flow.holders.insert(Holder::Context(child));
                context.flows.insert(id);
            }
        }
        for id in hold.bindings {
            let binding = bindings.get_mut(id);
            if let Some(binding) = binding.filter(|binding| binding.holders.contains(&held)) {
                binding.holders.remove(&held);
                binding.holders.insert(Holder::Context(child));
                context.bindings.insert(id);
            }
        }
    }

    /// A child takes over the completions of a connection that it inherited.
    pub(crate) fn claim(
        &mut self,
        out: &mut Outbox<'_>,
        contexts: &mut Contexts,
        flows: &mut Flows,
        claim: &Claim,
    ) -> Result<(), i32> {
        let Claim { child, tag, parent, slot } = *claim;
        let context = contexts.get_mut(child.0).ok_or(libc::EINVAL)?;
        let id = flows.called(&context.flows, parent, slot).ok_or(libc::EBADF)?;
        let flow = flows.get_mut(id.0).ok_or(libc::EBADF)?;
        let at = match flow.name_in(child) {
            Some(at) => at,
            None => {
                let slot = context.slots.take(false).ok_or(libc::ENOBUFS)?;
                context.slots.assign(slot, id);
                flow.names.push(Name { context: child, slot, open: true, taken: true })
            }
        };
        flow.current = at;
        // What several processes have, no one of them can bring back.
        out.journal.remove(flow.record.take());
        let (slot, alive, spliced) = (flow.names[at].slot, flow.engine == EngineState::Engine, flow.spliced);
        self.claims = self.claims.checked_add(1).unwrap_or(1);
        contexts.reply(child, Reply::Claimed { tag, slot, claim: self.claims });
        if alive {
            out.commands.push(stream::Command::Rename { flow: id, context: child, slot }.into());
        } else {
            match spliced {
                Spliced::No => contexts.reply(child, flows.end_reply(id, slot)),
                Spliced::In(_) => {}
                Spliced::Over(errno) => contexts.reply(child, Reply::SpliceOver { slot, errno }),
            }
        }
        Ok(())
    }
}

/// What is held has one holder more.
fn share(flows: &mut Flows, bindings: &mut Bindings, token: u64, hold: &Hold) {
    for id in &hold.flows {
        if let Some(flow) = flows.get_mut(id.0) {
            flow.holders.insert(Holder::Hold(token));
        }
    }
    for id in &hold.bindings {
        if let Some(binding) = bindings.get_mut(*id) {
            binding.holders.insert(Holder::Hold(token));
        }
    }
}
