//! Attaching and leaving, fork, and listeners whose connections lose the context that was to accept them.
use crate::contexts::{Application, Context, Holder, Life};
use crate::flow::{Name, Place, Spliced};
use crate::holders::Hold;
use crate::openings::Owner;
use crate::outbox::Outbox;
use crate::plane::{MILLISECOND, Plane};
use crate::timers::Timer;
use context::{ControlEnd, Endpoint, EngineEnd, Reply, Slot};
use engine::stream;
use engine::{Command, ContextId, FlowId, Nanos};

impl Plane {
    /// An application attaches; with a token, as a forked child that shares what its parent had.
    pub fn attach(
        &mut self,
        out: &mut Outbox<'_>,
        application: Application,
        ends: (EngineEnd, ControlEnd),
        token: Option<u64>,
    ) -> Result<ContextId, String> {
        let uid = application.uid;
        if token.is_some_and(|token| self.holds.get(&token).is_none_or(|hold| hold.uid != uid)) {
            return Err("the token of the forking process is unknown or too old".into());
        }
        let most = self.config.limits.contexts_per_user as usize;
        let of_user = |(_, context): &(u32, &Context)| context.application.uid == uid && context.alive();
        if most > 0 && self.contexts.iter().filter(of_user).count() >= most {
            return Err(format!("{most} programs of user {uid} are attached already: the host's contexts_per_user"));
        }
        let (engine_end, control_end) = ends;
        let context = Context::new(application, control_end, self.config.memory.cached_buffers);
        let Some(key) = self.contexts.insert(context) else {
            let most = self.config.max_contexts;
            return Err(format!("{most} programs are attached already: raise max_contexts of the host"));
        };
        let id = ContextId(key);
        self.contexts.turns.add(key);
        out.commands.push(Command::Attach(id, engine_end));
        if let Some(hold) = token.and_then(|token| self.take_hold(out, token)) {
            self.inherit(id, hold, token);
        }
        Ok(id)
    }

    fn take_hold(&mut self, out: &mut Outbox<'_>, token: u64) -> Option<Hold> {
        out.timers.cancel(Timer::Hold(token));
        self.holds.remove(&token)
    }

    fn inherit(&mut self, child: ContextId, hold: Hold, token: Option<u64>) {
        let Some(context) = self.contexts.get_mut(child.0) else { return };
        let held = Holder::Hold(token.unwrap_or_default());
        for id in hold.flows {
            let flow = self.flows.get_mut(id.0);
            if let Some(flow) = flow.filter(|flow| flow.holders.contains(&held)) {
                flow.holders.remove(&held);
                flow.holders.insert(Holder::Context(child));
                context.flows.insert(id);
            }
        }
        for id in hold.bindings {
            let binding = self.bindings.get_mut(id);
            if let Some(binding) = binding.filter(|binding| binding.holders.contains(&held)) {
                binding.holders.remove(&held);
                binding.holders.insert(Holder::Context(child));
                context.bindings.insert(id);
            }
        }
    }

    /// A process is about to fork.
    pub fn fork(&mut self, out: &mut Outbox<'_>, parent: ContextId, tag: u32) -> Result<(), i32> {
        let token = self.random.next();
        let pending = self.holds.values().filter(|hold| hold.parent == parent).count();
        if pending >= self.config.limits.forks_per_application as usize {
            return Err(libc::EAGAIN);
        }
        let context = self.contexts.get(parent.0).ok_or(libc::EINVAL)?;
        let uid = context.application.uid;
        let bindings: Vec<u32> = context.bindings.iter().copied().collect();
        let mut flows: Vec<FlowId> = context.flows.iter().copied().collect();
        flows.retain(|id| self.flows.get(id.0).is_some_and(|flow| flow.unaccepted.is_none()));
        for id in &flows {
            if let Some(flow) = self.flows.get_mut(id.0) {
                flow.holders.insert(Holder::Hold(token));
            }
        }
        for id in &bindings {
            if let Some(binding) = self.bindings.get_mut(*id) {
                binding.holders.insert(Holder::Hold(token));
            }
        }
        self.holds.insert(token, Hold { parent, uid, flows, bindings });
        out.timers.set(Timer::Hold(token), out.now + self.config.timers.fork_hold_ms as Nanos * MILLISECOND);
        self.contexts.reply(parent, Reply::Forked { tag, token });
        Ok(())
    }

    /// No child came.
    pub fn hold_due(&mut self, out: &mut Outbox<'_>, token: u64) {
        let Some(hold) = self.take_hold(out, token) else { return };
        for id in hold.flows {
            self.give_up_share(out, id, Holder::Hold(token), None, false);
        }
        for id in hold.bindings {
            self.give_up_binding(out, id, Holder::Hold(token));
        }
    }

    /// A child takes over the notices of a connection that it inherited.
    pub fn claim(
        &mut self,
        out: &mut Outbox<'_>,
        child: ContextId,
        tag: u32,
        parent: ContextId,
        slot: Slot,
    ) -> Result<(), i32> {
        let context = self.contexts.get_mut(child.0).ok_or(libc::EINVAL)?;
        let flows = &self.flows;
        let called = |id: &&FlowId| flows.get(id.0).is_some_and(|flow| flow.is_called(parent, slot));
        let id = *context.flows.iter().find(called).ok_or(libc::EBADF)?;
        let flow = self.flows.get_mut(id.0).ok_or(libc::EBADF)?;
        let at = match flow.name_in(child) {
            Some(at) => at,
            None => {
                let slot = context.slots.take().ok_or(libc::ENOBUFS)?;
                context.slots.assign(slot, id);
                flow.names.push(Name { context: child, slot, open: true, taken: true })
            }
        };
        flow.current = at;
        let (slot, alive, spliced) = (flow.names[at].slot, flow.place == Place::Engine, flow.spliced);
        self.claims = self.claims.checked_add(1).unwrap_or(1);
        self.contexts.reply(child, Reply::Claimed { tag, slot, claim: self.claims });
        if alive {
            out.commands.push(stream::Command::Rename { flow: id, context: child, slot }.into());
        } else {
            match spliced {
                Spliced::No => self.contexts.reply(child, self.end_reply(id, slot)),
                Spliced::In(_) => {}
                Spliced::Over(errno) => self.contexts.reply(child, Reply::SpliceOver { slot, errno }),
            }
        }
        Ok(())
    }

    /// What becomes known late of a connection that has ended. Where both sides had said all, that is its end like any
    /// other, and whoever reads finds the last bytes.
    fn end_reply(&self, id: FlowId, slot: Slot) -> Reply {
        let flow = self.flows.get(id.0).filter(|flow| flow.closing.ends.are_over());
        let Some(flow) = flow else { return Reply::Error { slot, errno: libc::ECONNRESET as u16 } };
        let figures = flow.stats.read();
        // SYN and FIN are acknowledged too.
        let tx_tail = figures.snd_una.wrapping_sub(flow.iss.0).wrapping_sub(2);
        Reply::Ended { slot, rx_tail: figures.rx_bytes as u32, tx_tail }
    }

    /// The process of a context is gone.
    pub fn detach(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.released = true;
        }
        self.end_context(out, id);
        self.retire(out, id);
    }

    /// Nothing more is asked by a context or told to it. First the engine empties its ring: what the process wrote
    /// before its end is sent.
    pub fn end_context(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        let Some(context) = self.contexts.get_mut(id.0).filter(|context| context.alive()) else { return };
        context.life = Life::Draining;
        out.commands.push(Command::Drain(id));
    }

    /// The engine knows all that a process said that is gone: its shares are given up.
    pub fn context_drained(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        if self.contexts.get(id.0).is_none_or(|context| context.life != Life::Draining) {
            return;
        }
        self.give_up_all(out, id);
        // Only now: one that is gone is forgotten with its last slot, which may be given up before its bindings.
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.life = Life::Gone;
        }
        self.retire(out, id);
    }

    fn give_up_all(&mut self, out: &mut Outbox<'_>, id: ContextId) {
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
    pub fn unbind(&mut self, out: &mut Outbox<'_>, id: ContextId, binding: u32) {
        let Some(context) = self.contexts.get_mut(id.0) else { return };
        context.bindings.remove(&binding);
        let flows: Vec<FlowId> = context.flows.iter().copied().collect();
        if let Some(listener) = self.bindings.listener(binding) {
            listener.armed.remove(&id);
        }
        for flow in flows {
            self.take_back(flow, id, binding);
        }
        self.give_up_binding(out, binding, Holder::Context(id));
        self.place(out, binding);
    }

    /// A connection that `context` was to accept waits for another one.
    fn take_back(&mut self, id: FlowId, context: ContextId, binding: u32) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        // Who has written to a connection has accepted it, whatever else it said.
        let figures = flow.stats.read();
        let written = figures.tx_bytes > 0 || figures.unsent > 0;
        if flow.unaccepted != Some(binding) || written || !flow.holders.remove(&Holder::Context(context)) {
            return;
        }
        flow.holders.insert(Holder::Listener(binding));
        flow.names.iter_mut().for_each(|name| name.open = false);
        if let Some(context) = self.contexts.get_mut(context.0) {
            context.flows.remove(&id);
        }
        if let Some(listener) = self.bindings.listener(binding) {
            listener.parked.push_back(id);
        }
    }

    /// The listener for a connection. A process that has ended listens no more, although what it left is still looked at.
    pub fn listener_for(&self, local: Endpoint, spread: u64) -> Option<u32> {
        self.bindings.listener_for(local, spread, |holder| self.runs(holder))
    }

    /// A holder can still act: a process that has ended cannot.
    pub fn runs(&self, holder: Holder) -> bool {
        match holder {
            Holder::Context(id) => self.contexts.get(id.0).is_some_and(|context| context.alive()),
            Holder::Hold(_) | Holder::Listener(_) => true,
        }
    }

    /// Gives up a share of a binding; the last one frees the address and resets what nobody accepted.
    pub fn give_up_binding(&mut self, out: &mut Outbox<'_>, id: u32, holder: Holder) {
        let Some(binding) = self.bindings.get_mut(id) else { return };
        binding.holders.remove(&holder);
        if !binding.holders.is_empty() {
            return;
        }
        let Some(listener) = self.bindings.remove(id).and_then(|binding| binding.listener) else { return };
        for flow in listener.parked {
            self.give_up_share(out, flow, Holder::Listener(id), None, true);
        }
        let mine = Owner::Listener(id);
        let openings: Vec<u32> =
            self.openings.iter().filter(|(_, opening)| opening.owner == mine).map(|(key, _)| key).collect();
        for key in openings {
            // A handshake that is not complete is forgotten; its peer is told when it answers.
            self.fail_opening(out, key, libc::ECONNABORTED);
        }
    }

    /// Hands connections that lost their context to others that take some.
    pub fn place_parked(&mut self, out: &mut Outbox<'_>, binding: u32) {
        while let Some(id) = self.bindings.listener(binding).and_then(|listener| listener.parked.front().copied()) {
            // Its peer was promised what its buffers hold: it waits for others that are no smaller.
            let slot = self.flows.get(id.0).map_or(0, |flow| flow.name().slot.index);
            let halvings = self.config.memory.geometry().halvings(slot);
            let Some(context) = self.choose(binding, halvings) else { return };
            if let Some(listener) = self.bindings.listener(binding) {
                listener.parked.pop_front();
            }
            if self.move_flow(out, id, binding, context).is_none() {
                self.give_up_share(out, id, Holder::Listener(binding), None, true);
            }
        }
    }

    /// Moves a connection that nobody accepted, with its buffers. `None` where it or the new place has failed.
    fn move_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, binding: u32, to: ContextId) -> Option<()> {
        let flow = self.flows.get_mut(id.0).filter(|flow| flow.place == Place::Engine)?;
        let context = self.contexts.get_mut(to.0)?;
        let slot = context.slots.take()?;
        // What is there may be more than small rings hold.
        let Ok((rx, tx)) = context.slots.begin(slot.index, true, &context.end) else {
            self.free_slot(out, to, slot);
            return None;
        };
        context.slots.assign(slot, id);
        context.flows.insert(id);
        let old = std::mem::replace(&mut flow.names, Name { context: to, slot, open: true, taken: true }.into());
        flow.current = 0;
        flow.holders = Holder::Context(to).into();
        let tuple = flow.tuple.get();
        let (local, remote) = (tuple.local(), tuple.remote());
        let mss = flow.agreed.mss;
        out.commands.push(stream::Command::Move { flow: id, context: to, slot, rx, tx }.into());
        for name in old.iter().copied() {
            self.contexts.reply(name.context, Reply::Unaccept { binding, slot: name.slot });
            self.free_slot(out, name.context, name.slot);
        }
        self.take_credit(binding, to);
        self.contexts.reply(to, Reply::Accept { binding, slot, local, remote, mss });
        Some(())
    }
}
