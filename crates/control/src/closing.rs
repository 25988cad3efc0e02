//! Closing flows: shares of connections, errors, and what becomes of a connection when its flow leaves the engine.
use crate::bindings::Listener;
use crate::contexts::{Holder, Life};
use crate::flow::{After, Place};
use crate::outbox::Outbox;
use crate::plane::{MILLISECOND, Plane};
use crate::timers::Timer;
use context::{Reply, Slot};
use engine::stream::{self, FlowEnd, Stream};
use engine::{Command, ContextId, Event, FlowId};
use tcp::{ChallengeLimit, ClosingEvent, State, Wait};
use trace::Point;

/// Where an application that closes a connection has come in its buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Positions {
    pub tx_head: u32,
    pub rx_head: u32,
}

impl Plane {
    /// Gives up a share of a flow; the last one closes the connection. Without `positions` (the process is gone) the
    /// engine's own knowledge of what was written counts.
    pub fn give_up_share(
        &mut self,
        out: &mut Outbox<'_>,
        id: FlowId,
        holder: Holder,
        positions: Option<Positions>,
        abort: bool,
    ) {
        self.leave_joining(out, id);
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if !flow.holders.remove(&holder) {
            return;
        }
        let last = flow.holders.is_empty();
        if let Holder::Context(context) = holder {
            if let Some(at) = flow.name_in(context) {
                flow.names[at].open = false;
            }
            if let Some(context) = self.contexts.get_mut(context.0) {
                context.flows.remove(&id);
            }
        }
        if last {
            self.close_flow(out, id, positions, abort);
        } else {
            if let Some(Positions { tx_head, rx_head }) = positions {
                flow.note_read(rx_head);
                // What it wrote last may be said nowhere else; whoever still has a share goes on after it.
                out.commands.push(stream::Command::Advance { flow: id, tx_head, rx_head, fin: false }.into());
            }
            self.leave_name(out, id);
        }
    }

    /// The name that notices go to was closed, but others share the flow: another open name takes its place. A
    /// closed slot that holds neither the notices nor the buffers is free.
    fn leave_name(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if !flow.name().open {
            if let Some(other) = flow.names.iter().position(|name| name.open) {
                flow.current = other;
                let name = flow.name();
                if flow.place == Place::Engine {
                    out.commands
                        .push(stream::Command::Rename { flow: id, context: name.context, slot: name.slot }.into());
                }
            }
        }
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        let current = flow.current;
        let mut freed = Vec::new();
        for (at, name) in flow.names.iter_mut().enumerate() {
            if at != 0 && at != current && !name.open && name.taken {
                name.taken = false;
                freed.push(*name);
            }
        }
        for name in freed {
            self.contexts.reply(name.context, Reply::Freed { slot: name.slot });
            self.free_slot(out, name.context, name.slot);
        }
    }

    /// Nobody has a share of the flow any more.
    // Meets RFC 9293: SHLD-3.
    fn close_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, positions: Option<Positions>, abort: bool) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.place != Place::Engine {
            return self.settle(out, id);
        }
        let figures = flow.stats.read();
        // A process that went has left word of it, where it is libtoe's. Records of a log are read there.
        let home = flow.names[0];
        let left = || self.contexts.get(home.context.0)?.end.read_of(home.slot);
        let read = positions.map(|at| at.rx_head).or_else(left).filter(|_| !flow.logged);
        let unread = read.is_some_and(|read| flow.has_unread(figures.rx_bytes as u32, read));
        if abort || unread {
            // Data that nobody will read: the peer must not believe that it arrived (RFC 9293 section 3.6.1).
            return self.remove_flow(out, id, After::Reset);
        }
        let fin_acked = flow.closing.ends.all_acknowledged();
        // A process that went did not say where it stopped writing. A position before all that is unacknowledged is never
        // news to the engine, also where its FIN is acknowledged at this moment: FIN goes after what it has.
        let behind = figures.snd_una.wrapping_sub(flow.iss.0).wrapping_sub(2);
        flow.closing.on(ClosingEvent::LocalClose);
        if flow.closing.leaves_engine() {
            return self.leave_engine(out, id);
        }
        if !fin_acked {
            let tx_head = positions.map_or(behind, |at| at.tx_head);
            let rx_head = positions.map_or(figures.rx_bytes as u32, |at| at.rx_head);
            out.commands.push(stream::Command::Advance { flow: id, tx_head, rx_head, fin: true }.into());
        }
        out.commands.push(stream::Command::Orphan(id).into());
        self.flow_active(out, id);
    }

    /// The engine has no more use for the flow: what follows depends on who closed first.
    // Meets RFC 9293: MUST-13.
    fn leave_engine(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id.0) else { return };
        let after = if flow.closing.state() == State::Closed { After::Nothing } else { After::Wait };
        self.remove_flow(out, id, after);
    }

    /// Takes a flow out of the engine.
    pub fn remove_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, after: After) {
        self.leave_joining(out, id);
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.place != Place::Engine {
            return;
        }
        flow.place = Place::Leaving(after);
        self.flows.timed -= std::mem::take(&mut flow.pace.tracked) as u32;
        out.timers.cancel(Timer::Flow(id.0));
        out.commands.push(Command::Remove(id));
    }

    /// The connection has failed: its applications are told, and it leaves the engine.
    // Meets RFC 9293: MUST-12, MUST-20.
    pub fn fail_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, errno: i32, after: After) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.place != Place::Engine {
            return;
        }
        self.tracer.event(Point::FlowFailed, id.0, [errno as u64, 0]);
        flow.closing.life = tcp::Life::Dead;
        let open: Vec<_> = flow.names.iter().filter(|name| name.open).copied().collect();
        for name in open {
            self.contexts.reply(name.context, Reply::Error { slot: name.slot, errno: errno as u16 });
        }
        self.remove_flow(out, id, after);
    }

    /// What an engine says.
    pub fn on_event(&mut self, out: &mut Outbox<'_>, event: Event<Stream>) {
        match event {
            Event::Removed(id, end) => self.flow_removed(out, id, &end),
            Event::Transport(event) => self.on_stream_event(out, event),
            Event::Drained(context) => self.context_drained(out, context),
            Event::RingCorrupt(context) => {
                out.drops.count(engine::DropReason::RingCorrupt);
                self.end_context(out, context);
            }
        }
    }

    fn on_stream_event(&mut self, out: &mut Outbox<'_>, event: stream::Event) {
        match event {
            stream::Event::Active(id) => self.flow_active(out, id),
            stream::Event::LocalFin(id) => self.advance_closing(out, id, ClosingEvent::LocalShutdown),
            stream::Event::PeerFin(id) => self.advance_closing(out, id, ClosingEvent::PeerFin),
            stream::Event::PeerFinToo(id) => self.advance_closing(out, id, ClosingEvent::PeerFinToo),
            stream::Event::FinAcked(id) => self.advance_closing(out, id, ClosingEvent::FinAcked),
            stream::Event::Reset(id) => self.flow_reset(out, id),
            // RFC 9293 section 3.6.1: data for nobody resets the connection.
            stream::Event::OrphanData(id) => self.remove_flow(out, id, After::Reset),
            stream::Event::Frozen(id, end) => self.freeze_answered(out, id, Some(end)),
            stream::Event::Busy(id) => self.freeze_answered(out, id, None),
            stream::Event::LogJoined(id, result) => self.log_joined(id, result),
        }
    }

    fn flow_reset(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        match flow.closing.state() {
            // It came at once with the acknowledgement of this host's FIN: there is nothing to wait for.
            State::FinWait2 if flow.place == Place::Leaving(After::Wait) => flow.place = Place::Leaving(After::Nothing),
            // Both sides have said all and know it: an end like any other (RFC 9293 section 3.10.7.4, eighth).
            State::TimeWait | State::Closed => self.remove_flow(out, id, After::Nothing),
            State::CloseWait => self.fail_flow(out, id, libc::EPIPE, After::Nothing),
            _ => self.fail_flow(out, id, libc::ECONNRESET, After::Nothing),
        }
    }

    fn advance_closing(&mut self, out: &mut Outbox<'_>, id: FlowId, event: ClosingEvent) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        flow.closing.on(event);
        if flow.closing.leaves_engine() {
            self.leave_engine(out, id);
        }
    }

    fn flow_removed(&mut self, out: &mut Outbox<'_>, id: FlowId, end: &FlowEnd) {
        if self.take_end(id, end) {
            return;
        }
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        let Place::Leaving(after) = flow.place else { return };
        flow.place = Place::Gone;
        let (tuple, ends) = (flow.tuple.get(), flow.closing.ends);
        let timestamps = flow.agreed.timestamps(end.ts_recent);
        if after != After::Splice {
            self.connections.remove(&tuple);
        }
        match after {
            After::Wait => {
                let FlowEnd { snd_nxt, rcv_nxt, .. } = *end;
                let challenges = ChallengeLimit::default();
                self.waits.start(
                    out,
                    &mut self.connections,
                    Wait { tuple, snd_nxt, rcv_nxt, timestamps, ends, since: out.now, challenges },
                );
            }
            After::Reset => {
                let stamp = timestamps.map(|state| state.stamp(out.now));
                out.reset(&tuple, end.snd_nxt, Some(end.rcv_nxt), stamp);
            }
            After::Splice | After::Nothing => {}
        }
        self.settle(out, id);
    }

    /// A flow that left the engine and that nobody has any more is forgotten, and its slots are free.
    pub fn settle(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id.0) else { return };
        if flow.place != Place::Gone || !flow.holders.is_empty() {
            return;
        }
        // A frame on its way refers to the payload of a connection that was reset, not acknowledged: the bytes stay
        // until it has arrived, or the peer would read those of the slot's next connection.
        let home = flow.names[0];
        if self.contexts.get(home.context.0).is_some_and(|context| context.slots.is_referred_to(home.slot)) {
            return out.timers.set(Timer::Flow(id.0), out.now + MILLISECOND);
        }
        let Some(flow) = self.flows.remove(id.0) else { return };
        self.forget_splice_name(id, flow.spliced);
        for name in flow.names.iter().filter(|name| name.taken) {
            self.contexts.reply(name.context, Reply::Freed { slot: name.slot });
            self.free_slot(out, name.context, name.slot);
            self.place_for(out, name.context);
        }
    }

    /// A slot came free: connections may wait for room in this context. Its listeners take turns: one with many clients would
    /// keep those of the others out for ever.
    fn place_for(&mut self, out: &mut Outbox<'_>, context: ContextId) {
        let Some(context) = self.contexts.get(context.0) else { return };
        let (later, first) = (context.bindings.range(context.served + 1..), context.bindings.range(..=context.served));
        let bindings: Vec<u32> = later.chain(first).copied().collect();
        for binding in bindings {
            let waits = |listener: &mut Listener| !listener.ready.is_empty() || !listener.parked.is_empty();
            if self.bindings.listener(binding).is_some_and(waits) {
                self.place(out, binding);
            }
        }
    }

    /// Gives a slot back; a context that is gone and has no slot in use any more is forgotten.
    pub fn free_slot(&mut self, out: &mut Outbox<'_>, id: ContextId, slot: Slot) {
        if let Some(context) = self.contexts.get_mut(id.0) {
            context.slots.free(slot, &context.end);
        }
        self.retire(out, id);
    }

    /// Forgets a context whose process is gone once no flow needs its name or its rings.
    pub fn retire(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        let Some(context) = self.contexts.get(id.0) else { return };
        if context.life == Life::Gone && context.released && context.slots.used() == 0 {
            self.contexts.remove(id.0);
            out.commands.push(Command::Detach(id));
        }
    }
}
