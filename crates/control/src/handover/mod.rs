//! Handing a host over to another daemon, in three steps: it stops (its engine gives up every flow and every ring, at one
//! moment), its state is taken down, and either another host goes on from that, or this one does as if nothing had been.
//! docs/TAKEOVER.md is the page.
mod restore;
mod state;

pub use state::HostState;

use crate::bindings::Listener;
use crate::contexts::Life;
use crate::flow::{Flow, Place, Spliced};
use crate::outbox::Outbox;
use crate::plane::Plane;
use ::host::Net;
use context::Geometry;
use engine::stream::{self, Carries, FlowEnd, Stream};
use engine::{Command, ContextId, FlowId, Nanos};
use state::{BindingState, ContextState, FlowState, HoldState, ListenerState, OpeningState};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use tcp::Established;
use wire::Seq;

impl Plane {
    /// Why the host cannot be handed over, in a sentence.
    pub fn handover_obstacle(&self) -> Option<String> {
        let spliced = self.flows.iter().any(|(_, flow)| flow.spliced != Spliced::No);
        let logged = self.contexts.iter().any(|(_, context)| context.has_log);
        let what = match (spliced, logged) {
            (true, _) => "joined connections",
            (_, true) => "shared logs",
            _ => return None,
        };
        Some(format!("host {} has {what}, which cannot be handed over", self.config.name))
    }

    /// Nothing is in the middle of something that takes several rounds.
    pub fn is_settled(&self) -> bool {
        let leaving = |context: &crate::contexts::Context| context.life == Life::Draining;
        let stopping = |flow: &Flow| flow.freezing > 0 || flow.resting.is_some();
        !self.contexts.iter().any(|(_, context)| leaving(context)) && !self.flows.iter().any(|(_, flow)| stopping(flow))
    }

    /// The engine gives everything up. First the flows, then the rings: so nothing is taken from a ring for a flow that
    /// is gone, and what the applications wrote meanwhile waits for whoever goes on.
    pub fn stop(&mut self, commands: &mut Vec<Command<Stream>>) {
        let flows = self.flows.iter().filter(|(_, flow)| flow.place == Place::Engine).map(|(id, _)| FlowId(id));
        let contexts = self.contexts.iter().map(|(id, _)| ContextId(id));
        commands.extend(flows.map(Command::Remove));
        commands.extend(contexts.map(Command::Detach));
        self.stopped = Some(BTreeMap::new());
    }

    /// The engine has given everything up.
    pub fn is_stopped(&self) -> bool {
        let Some(ends) = &self.stopped else { return false };
        self.flows.iter().all(|(id, flow)| match flow.place {
            Place::Engine => ends.contains_key(&FlowId(id)),
            Place::Leaving(_) => false,
            Place::Gone => true,
        })
    }

    /// A flow that was removed only to be handed over. False where it was leaving anyway.
    pub fn take_end(&mut self, id: FlowId, end: &FlowEnd) -> bool {
        let stays = self.flows.get(id.0).is_some_and(|flow| flow.place == Place::Engine);
        match &mut self.stopped {
            Some(ends) if stays => {
                ends.insert(id, *end);
                true
            }
            _ => false,
        }
    }

    /// A host that was stopped goes on by itself: nobody took it over.
    pub fn go_on(&mut self, out: &mut Outbox<'_>) {
        let ends = self.stopped.take().unwrap_or_default();
        for (id, context) in self.contexts.iter() {
            out.commands.push(Command::Attach(ContextId(id), context.end.engine_end()));
        }
        for (id, end) in ends {
            self.resume_flow(out, id, &end);
        }
        self.place_all(out);
    }

    /// Slots may have come free while the host stood still.
    fn place_all(&mut self, out: &mut Outbox<'_>) {
        let listening: Vec<u32> =
            self.bindings.iter().filter(|(_, binding)| binding.listener.is_some()).map(|(id, _)| id).collect();
        listening.into_iter().for_each(|binding| self.place(out, binding));
    }

    /// The engine runs a flow again, from where it was left.
    fn resume_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, end: &FlowEnd) -> Option<()> {
        let resume = end.resume?;
        let flow = self.flows.get(id.0)?;
        let (home, name, orphan) = (flow.names[0], flow.name(), flow.closing.is_orphan());
        let (agreed, iss, ts_recent) = (flow.agreed, flow.iss, end.ts_recent);
        let context = self.contexts.get_mut(home.context.0)?;
        let buffers = context.slots.buffers(home.slot.index, &context.end).ok()?;
        let snd_wnd = resume.snd_wnd;
        let (acknowledge, pass_on, rtt) = (false, false, None);
        let open = Established { agreed, iss, irs: Seq(0), snd_wnd, ts_recent, acknowledge, pass_on, rtt };
        let mut params = self.flow_params(out, id, &open, buffers)?;
        (params.snd_nxt, params.tx_pos) = (end.snd_una, resume.tx_pos);
        (params.rcv_nxt, params.rx_pos) = (end.rcv_nxt, resume.rx_pos);
        (params.context, params.slot) = (name.context, name.slot);
        out.commands.push(Command::Install(Box::new(params)));
        out.commands.push(stream::Command::Resume(id, *end).into());
        if orphan {
            out.commands.push(stream::Command::Orphan(id).into());
        }
        out.commands.push(stream::Command::Untrack(id).into());
        Some(())
    }

    /// Everything that another daemon needs. The host has stopped.
    pub fn state(&self, now: Nanos, net: &Net, geometry: Geometry, engine: (String, Carries)) -> HostState {
        HostState {
            name: self.config.name.clone(),
            links: net.links().iter().map(|link| (link.address, link.mac)).collect(),
            stopped: now,
            engine,
            geometry,
            secret: self.random.state(),
            contexts: self.context_states(),
            bindings: self.binding_states(),
            last_binding: self.bindings.last(),
            openings: self.opening_states(),
            claims: self.claims,
            flows: self.flows.iter().map(|(id, flow)| self.flow_state(id, flow)).collect(),
            waits: self.waits.iter().map(|(key, wait)| (key, *wait)).collect(),
            holds: self
                .holds
                .iter()
                .map(|(token, hold)| HoldState {
                    token: *token,
                    parent: hold.parent,
                    uid: hold.uid,
                    flows: hold.flows.clone(),
                    bindings: hold.bindings.clone(),
                })
                .collect(),
        }
    }

    fn context_states(&self) -> Vec<ContextState> {
        let state = |(id, context): (u32, &crate::contexts::Context)| ContextState {
            id,
            application: context.application.clone(),
            alive: context.alive(),
            released: context.released,
            slots: context.slots.state(),
            flows: context.flows.iter().copied().collect(),
            bindings: context.bindings.iter().copied().collect(),
            connects: context.connects.iter().map(|(tag, key)| (*tag, *key)).collect(),
            labels: context.labels.iter().collect(),
            replies: context.waiting_replies(),
        };
        self.contexts.iter().map(state).collect()
    }

    fn binding_states(&self) -> Vec<BindingState> {
        let listener = |listener: &Listener| ListenerState {
            backlog: listener.backlog,
            half_open: listener.half_open,
            cookie_sent: listener.cookie_sent,
            ready: listener.ready.iter().copied().collect(),
            parked: listener.parked.iter().copied().collect(),
            armed: listener.armed.iter().map(|(id, credits)| (*id, *credits)).collect(),
            last: listener.last,
        };
        let state = |(id, binding): (u32, &crate::bindings::Binding)| BindingState {
            id,
            local: binding.local,
            uid: binding.uid,
            reuse: (binding.reuse_address, binding.reuse_port),
            holders: binding.holders.iter().copied().collect(),
            listener: binding.listener.as_ref().map(listener),
        };
        self.bindings.iter().map(state).collect()
    }

    fn opening_states(&self) -> Vec<OpeningState> {
        let state = |(key, opening): (u32, &crate::openings::Opening)| OpeningState {
            key,
            tuple: opening.tuple,
            handshake: opening.handshake.clone(),
            owner: opening.owner,
            congestion: opening.congestion,
            rto: opening.rto,
            tries: opening.tries,
            unsent: opening.unsent,
            soft_error: opening.soft_error,
            peer_mac: opening.peer_mac,
            open: opening.open,
        };
        self.openings.iter().map(state).collect()
    }

    fn flow_state(&self, id: u32, flow: &Flow) -> FlowState {
        FlowState {
            id,
            tuple: flow.tuple.get(),
            remote_mac: flow.remote_mac,
            agreed: flow.agreed,
            iss: flow.iss,
            names: flow.names.iter().copied().collect(),
            current: flow.current,
            holders: flow.holders.iter().copied().collect(),
            unaccepted: flow.unaccepted,
            closing: flow.closing,
            options: *flow.options,
            congestion: flow.pace.policy.kind(),
            rtt: flow.pace.rtt.srtt(),
            bytes: (flow.stats.rx_bytes.load(Relaxed), flow.stats.tx_bytes.load(Relaxed)),
            end: self.stopped.as_ref().and_then(|ends| ends.get(&FlowId(id)).copied()),
        }
    }
}
