//! Shares of processes: attaching and leaving, fork, and listeners whose connections lose the context that was to
//! accept them.
use super::ControlPlane;
use crate::contexts::{Application, Context, Holder, Life};
use crate::forks::Passed;
use crate::outbox::Outbox;
use context::{ControlEnd, EngineEnd, Geometry, Reply, Slot};
use engine::{Command, ContextId, DropReason, FlowId};
use std::os::fd::OwnedFd;

impl ControlPlane {
    /// An application attaches; with a token, as a forked child that shares what its parent had.
    pub(crate) fn attach(
        &mut self,
        out: &mut Outbox<'_>,
        application: Application,
        engine_end: EngineEnd,
        control_end: ControlEnd,
        token: Option<u64>,
    ) -> Result<ContextId, String> {
        let uid = application.uid;
        if token.is_some_and(|token| !self.forks.has(token, uid)) {
            return Err("the token of the forking process is unknown or too old".into());
        }
        let most = out.config.limits.contexts_per_user as usize;
        if most > 0 && self.contexts.of_user(uid) >= most {
            return Err(format!(
                "user {uid} has as many programs attached as contexts_per_user of the host allows: {most}"
            ));
        }
        let context = Context::new(application, control_end, out.config.memory.cached_buffers);
        let Some(id) = self.contexts.add(context) else {
            let most = out.config.max_contexts;
            return Err(format!("as many programs are attached as max_contexts of the host allows: {most}; raise it"));
        };
        out.commands.push(Command::Attach(id, engine_end));
        if let Some(token) = token {
            let ControlPlane { contexts, flows, bindings, .. } = self;
            self.forks.inherit(out, contexts, flows, bindings, id, token);
        }
        Ok(id)
    }

    /// A process is about to fork.
    pub(super) fn fork(&mut self, out: &mut Outbox<'_>, parent: ContextId, tag: u32) -> Result<(), i32> {
        let ControlPlane { contexts, flows, bindings, .. } = self;
        let token = self.forks.fork(out, contexts, flows, bindings, parent)?;
        self.contexts.reply(parent, Reply::Forked { tag, token });
        Ok(())
    }

    /// A process is about to run another program.
    pub(super) fn exec(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32) -> Result<(), i32> {
        let token = self.forks.exec(out, &self.contexts, id)?;
        self.contexts.reply(id, Reply::Forked { tag, token });
        Ok(())
    }

    /// That program gets a connection, or otherwise a local address.
    pub(super) fn carry(
        &mut self,
        id: ContextId,
        tag: u32,
        token: u64,
        flow: Option<(u32, Slot)>,
        binding: u32,
    ) -> Result<(), i32> {
        let carried = match flow {
            // Found by its slot.
            Some((context, slot)) if context == id.0 => self.named(id, slot).map(Passed::Flow),
            Some((context, slot)) => {
                let own = self.contexts.get(id.0).ok_or(libc::EINVAL)?;
                self.flows.called(&own.flows, ContextId(context), slot).map(Passed::Flow)
            }
            None => self.contexts.has_binding(id, binding).then_some(Passed::Binding(binding)),
        };
        let carried = carried.ok_or(libc::EBADF)?;
        self.forks.carry(&mut self.flows, &mut self.bindings, id, token, carried)?;
        self.contexts.reply(id, Reply::Done { tag });
        Ok(())
    }

    /// A process is about to pass a connection, or otherwise a local address, to another one.
    pub(super) fn pass(
        &mut self,
        out: &mut Outbox<'_>,
        parent: ContextId,
        tag: u32,
        slot: Option<Slot>,
        binding: u32,
    ) -> Result<(), i32> {
        let passed = match slot {
            Some(slot) => Passed::Flow(self.named(parent, slot).ok_or(libc::EBADF)?),
            None => Passed::Binding(binding),
        };
        let ControlPlane { contexts, flows, bindings, .. } = self;
        let token = self.forks.pass(out, contexts, flows, bindings, parent, passed)?;
        self.contexts.reply(parent, Reply::Forked { tag, token });
        Ok(())
    }

    /// A process got what another one passed.
    pub(super) fn adopt(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, token: u64) -> Result<(), i32> {
        let ControlPlane { contexts, flows, bindings, .. } = self;
        let (home, binding) = self.forks.adopt(out, contexts, flows, bindings, id, token)?;
        let home = home.map(|name| (name.context.0, name.slot));
        self.contexts.reply(id, Reply::Adopted { tag, home, binding });
        Ok(())
    }

    /// The region of a context, for another one that has a share of a connection whose buffers are there.
    pub(crate) fn region_for(&self, asks: ContextId, of: ContextId) -> std::io::Result<(OwnedFd, Geometry)> {
        let is_there = |id: &FlowId| self.flows.get(id.0).is_some_and(|flow| flow.names[0].context == of);
        let shares = self.contexts.get(asks.0).is_some_and(|context| context.flows.iter().any(is_there));
        let home = self.contexts.get(of.0).filter(|_| shares).ok_or(std::io::ErrorKind::PermissionDenied)?;
        let [region, ..] = home.end.descriptors();
        Ok((region.try_clone_to_owned()?, home.end.geometry()))
    }

    /// What was to be passed or carried stays where it was; `None` where nothing of this process is held so.
    pub(super) fn withdraw(&mut self, out: &mut Outbox<'_>, id: ContextId, token: u64) -> Option<()> {
        self.forks.is_of(token, id).then(|| self.let_go(out, token))
    }

    /// No child came, or what was passed was not adopted.
    pub(super) fn hold_due(&mut self, out: &mut Outbox<'_>, token: u64) {
        if self.forks.is_passed(token) {
            out.drops.count(DropReason::PassNotAdopted);
        }
        if let Some(sender) = self.forks.sender(token) {
            self.contexts.reply(sender, Reply::NotAdopted);
        }
        self.let_go(out, token);
    }

    fn let_go(&mut self, out: &mut Outbox<'_>, token: u64) {
        let Some(hold) = self.forks.take(out, token) else { return };
        for id in hold.flows {
            self.give_up_share(out, id, Holder::Hold(token), None, false);
        }
        for id in hold.bindings {
            self.give_up_binding(out, id, Holder::Hold(token));
        }
    }

    /// The process of a context is gone.
    pub(crate) fn detach(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        if let Some(context) = self.contexts.get(id.0) {
            context.end.let_go();
        }
        self.take_last_requests(out, id);
        self.contexts.release(out, id);
    }

    /// The engine has taken all that a process left that is gone: its shares are given up.
    pub(super) fn context_drained(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        if self.contexts.get(id.0).is_none_or(|context| context.life != Life::Draining) {
            return;
        }
        self.give_up_all(out, id);
        // Only now: one that is gone is forgotten with its last slot, which may be given up before its bindings.
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.life = Life::Gone;
        }
        self.contexts.retire(out, id);
    }

    fn give_up_all(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        self.forks.orphan(id);
        let Some(context) = self.contexts.get(id.0) else { return };
        let bindings: Vec<u32> = context.bindings.iter().copied().collect();
        let tags: Vec<u32> = context.connects.keys().copied().collect();
        for tag in tags {
            self.cancel_connect(out, id, tag);
        }
        for binding in bindings {
            self.unbind(out, id, binding);
        }
        let Some(context) = self.contexts.get(id.0) else { return };
        let flows: Vec<FlowId> = context.flows.iter().copied().collect();
        for flow in flows {
            self.give_up_share(out, flow, Holder::Context(id), None, false);
        }
    }

    /// A context gives up its share of a binding; connections that it was to accept go to others.
    pub(super) fn unbind(&mut self, out: &mut Outbox<'_>, id: ContextId, binding: u32) {
        if self.contexts.get(id.0).is_none() {
            return;
        }
        self.bindings.leave(&mut self.contexts, &mut self.flows, id, binding);
        self.give_up_binding(out, binding, Holder::Context(id));
        self.place(out, binding);
    }

    /// Gives up a share of a binding; the last one frees the address and resets what is not accepted.
    fn give_up_binding(&mut self, out: &mut Outbox<'_>, id: u32, holder: Holder) {
        let Some(listener) = self.bindings.give_up(id, holder) else { return };
        for flow in listener.parked {
            self.give_up_share(out, flow, Holder::Listener(id), None, true);
        }
        for key in self.handshakes.of_listener(id) {
            // A handshake that is not complete is forgotten; its peer is reset when it answers.
            self.fail_half_open(out, key, libc::ECONNABORTED);
        }
    }
}
