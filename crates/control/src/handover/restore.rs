//! A fresh host becomes the one that was stopped.
use super::state::{BindingState, ContextState, FlowState, HoldState, HostState, ListenerState, OpeningState};
use crate::bindings::{Binding, Listener};
use crate::connections::Stage;
use crate::contexts::{Context, Life};
use crate::flow::{Flow, Place, Spliced};
use crate::holders::Hold;
use crate::openings::Opening;
use crate::outbox::Outbox;
use crate::plane::{MILLISECOND, Plane};
use crate::port_turns::PortTurns;
use crate::timers::Timer;
use crate::timing::Pace;
use context::{ControlEnd, EngineEnd, Reply};
use engine::stream::FlowStats;
use engine::{Command, ContextId, FlowId, Nanos};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tcp::congestion::{Decision, initial_window};
use tcp::{ChallengeLimit, RttEstimator};
use wire::Seq;

impl Plane {
    /// Takes over what another daemon's host was, with the ends of its contexts' rings. Fails with a sentence, and then
    /// this host is of no use.
    pub fn restore(
        &mut self,
        out: &mut Outbox<'_>,
        state: HostState,
        mut ends: HashMap<ContextId, (EngineEnd, ControlEnd)>,
    ) -> Result<(), String> {
        let HostState { secret, contexts, bindings, last_binding, openings, flows, mut waits, holds, claims, .. } =
            state;
        self.random.go_on(secret);
        self.port_turns = PortTurns::new(self.random.next());
        self.claims = claims;
        for context in contexts {
            let end = ends.remove(&ContextId(context.id)).ok_or("a context came without its descriptors")?;
            self.restore_context(out, context, end)?;
        }
        for binding in bindings {
            self.restore_binding(binding);
        }
        self.bindings.go_on_after(last_binding);
        for opening in openings {
            self.restore_opening(out, opening)?;
        }
        for flow in flows {
            self.restore_flow(out, flow)?;
        }
        waits.sort_by_key(|(_, wait)| wait.since);
        for (_, wait) in waits {
            self.waits.start(out, &mut self.connections, wait);
        }
        for HoldState { token, parent, uid, flows, bindings } in holds {
            self.holds.insert(token, Hold { parent, uid, flows, bindings });
            out.timers.set(Timer::Hold(token), out.now + self.config.timers.fork_hold_ms as Nanos * MILLISECOND);
        }
        self.place_all(out);
        Ok(())
    }

    fn restore_context(
        &mut self,
        out: &mut Outbox<'_>,
        state: ContextState,
        ends: (EngineEnd, ControlEnd),
    ) -> Result<(), String> {
        let (engine_end, control_end) = ends;
        let mut context = Context::new(state.application, control_end, self.config.memory.cached_buffers);
        context.life = if state.alive { Life::Alive } else { Life::Gone };
        context.released = state.released;
        context.slots.go_on(state.slots);
        context.flows = state.flows.into_iter().collect();
        context.bindings = state.bindings.into_iter().collect();
        context.connects = state.connects.into_iter().collect();
        for (fd, label) in state.labels {
            context.labels.set(fd, label);
        }
        state.replies.into_iter().filter_map(Reply::from_words).for_each(|reply| context.reply(reply));
        let room = self.contexts.insert_at(state.id, context);
        room.ok_or("max_contexts is smaller than what is attached")?;
        self.contexts.turns.add(state.id);
        self.contexts.reply_later(ContextId(state.id));
        out.commands.push(Command::Attach(ContextId(state.id), engine_end));
        Ok(())
    }

    fn restore_binding(&mut self, state: BindingState) {
        let listener = |state: ListenerState| Listener {
            backlog: state.backlog,
            half_open: state.half_open,
            cookie_sent: state.cookie_sent,
            ready: state.ready.into(),
            parked: state.parked.into(),
            armed: state.armed.into_iter().collect(),
            last: state.last,
        };
        let binding = Binding {
            local: state.local,
            uid: state.uid,
            reuse_address: state.reuse.0,
            reuse_port: state.reuse.1,
            holders: state.holders.into_iter().collect(),
            listener: state.listener.map(listener),
        };
        self.bindings.add_at(state.id, binding);
    }

    fn restore_opening(&mut self, out: &mut Outbox<'_>, state: OpeningState) -> Result<(), String> {
        let OpeningState { key, tuple, handshake, owner, congestion, rto, tries, unsent, soft_error, peer_mac, open } =
            state;
        let opening = Opening {
            tuple,
            handshake,
            owner,
            congestion,
            rto,
            tries,
            unsent,
            soft_error,
            peer_mac,
            open,
            challenges: ChallengeLimit::default(),
            held: Vec::new(),
        };
        let waits = open.is_none();
        self.openings.insert_at(key, opening).ok_or("limits.max_openings is smaller than it was")?;
        self.connections.set(tuple, Stage::Opening(key));
        if waits {
            out.timers.set(Timer::Opening(key), out.now + rto);
        }
        Ok(())
    }

    fn restore_flow(&mut self, out: &mut Outbox<'_>, state: FlowState) -> Result<(), String> {
        let mut rtt = RttEstimator::new(self.config.timers.rto_bounds());
        state.rtt.into_iter().for_each(|sample| rtt.sample(sample));
        let policy = state.congestion.start(state.agreed.mss as u32, out.now);
        let enforced = Decision { cwnd: initial_window(state.agreed.mss as u32), rate: 0 };
        let una = state.end.map_or(Seq(0), |end| end.snd_una);
        let stats = FlowStats::default();
        stats.rx_bytes.store(state.bytes.0, Relaxed);
        stats.tx_bytes.store(state.bytes.1, Relaxed);
        stats.last_rx_ns.store(out.now, Relaxed);
        if let Some(end) = &state.end {
            stats.snd_nxt.store(end.snd_nxt.0, Relaxed);
            stats.snd_una.store(end.snd_una.0, Relaxed);
            stats.rcv_nxt.store(end.rcv_nxt.0, Relaxed);
        }
        let flow = Flow {
            tuple: state.tuple.into(),
            remote_mac: state.remote_mac,
            agreed: state.agreed,
            iss: state.iss,
            stats: self.flows.stats.put(stats),
            names: state.names.try_into()?,
            current: state.current,
            holders: state.holders.into_iter().collect(),
            unaccepted: state.unaccepted,
            read: None,
            closing: state.closing,
            place: if state.end.is_some() { Place::Engine } else { Place::Gone },
            options: if state.options == *self.flows.options {
                Arc::clone(&self.flows.options)
            } else {
                Arc::new(state.options)
            },
            pace: Pace::new(out.now, policy, rtt, enforced, una),
            freezing: 0,
            resting: None,
            spliced: Spliced::No,
            logged: false,
        };
        self.flows.insert_at(state.id, flow).ok_or("max_flows is smaller than what is open")?;
        out.timers.set(Timer::Flow(state.id), out.now);
        if let Some(end) = state.end {
            self.connections.set(state.tuple, Stage::Flow(FlowId(state.id)));
            self.resume_flow(out, FlowId(state.id), &end).ok_or("the buffers of a connection cannot be mapped")?;
        }
        Ok(())
    }
}
