//! Handover of a host to another daemon, in three steps. It stops: its engine gives up every flow and every ring, at
//! one moment. Its state is taken. Then either another host goes on from that, or this one goes on as if nothing had
//! been. docs/TAKEOVER.md is the page.
use super::ControlPlane;
use crate::contexts::{Context, Life};
use crate::counters::Counters;
use crate::flow::{EngineState, Flow};
use crate::forks::Hold;
use crate::handover::{self, HoldState, HostState, Left};
use crate::outbox::{Outbox, Queues};
use ::host::Net;
use context::{ControlEnd, EngineEnd};
use engine::stream::{self, Carries, FlowFigures, Stream};
use engine::{Command, ContextId, FlowId, Nanos};
use std::collections::HashMap;
use std::net::Ipv6Addr;
use wire::IpAddress;

impl ControlPlane {
    /// Nothing is in the middle of something that takes several rounds.
    pub(crate) fn is_settled(&self) -> bool {
        let leaving = |context: &Context| context.life == Life::Draining;
        let stopping = |flow: &Flow| flow.freezing > 0 || flow.reclaim.is_some();
        !self.contexts.iter().any(|(_, context)| leaving(context)) && !self.flows.iter().any(|(_, flow)| stopping(flow))
    }

    /// The engine gives everything up. First the logs, as long as their flows are there, then the flows, then the
    /// rings. So nothing is taken from a ring for a flow that is gone. What the applications wrote meanwhile waits for
    /// the host that goes on.
    pub(crate) fn stop(&mut self, commands: &mut Vec<Command<Stream>>) {
        let flows = self.flows.iter().filter(|(_, flow)| flow.engine == EngineState::Engine).map(|(id, _)| FlowId(id));
        let contexts = self.contexts.iter().map(|(id, _)| ContextId(id));
        let with_logs = self.contexts.iter().filter(|(_, context)| context.has_log);
        commands.extend(with_logs.map(|(id, _)| stream::Command::GiveUpLog(ContextId(id)).into()));
        commands.extend(flows.map(Command::Remove));
        commands.extend(contexts.map(Command::Detach));
        self.standstill.begin();
    }

    /// The host stands still, or is about to.
    pub(crate) fn is_stopping(&self) -> bool {
        self.standstill.is_on()
    }

    /// The engine has given everything up.
    pub(crate) fn is_stopped(&self) -> bool {
        self.standstill.is_complete(&self.contexts, &self.flows)
    }

    /// A host that was stopped goes on by itself: no daemon took it over.
    pub(crate) fn go_on(&mut self, out: &mut Outbox<'_>) {
        let Left { flows, logs } = self.standstill.finish();
        for (id, context) in self.contexts.iter() {
            out.commands.push(Command::Attach(ContextId(id), context.end.engine_end()));
        }
        for (id, end) in flows {
            handover::resume_flow(out, &mut self.contexts, &self.flows, id, &end);
        }
        for (id, log) in logs.into_iter().filter_map(|(id, log)| Some((id, log?))) {
            handover::resume_log(out, &mut self.contexts, id, log);
        }
        self.place_all(out);
    }

    /// Slots may have come free while the host stood still.
    fn place_all(&mut self, out: &mut Outbox<'_>) {
        let listening: Vec<u32> =
            self.bindings.iter().filter(|(_, binding)| binding.listener.is_some()).map(|(id, _)| id).collect();
        listening.into_iter().for_each(|binding| self.place(out, binding));
    }

    /// Everything that another daemon needs. The host has stopped.
    pub(crate) fn state(&self, now: Nanos, net: &Net, queues: &Queues, engine: (String, Carries)) -> HostState {
        HostState {
            name: queues.config.name.clone(),
            links: handover::own_addresses(net),
            stopped: now,
            engine,
            geometry: queues.config.memory.geometry(),
            secret: queues.random.state(),
            contexts: handover::context_states(&self.standstill, &self.contexts),
            bindings: handover::binding_states(&self.bindings),
            last_binding: self.bindings.last(),
            handshakes: handover::half_open_states(&self.handshakes),
            claims: self.forks.claims(),
            flows: self.flows.iter().map(|(id, flow)| handover::flow_state(&self.standstill, id, flow)).collect(),
            early: self.early.states(),
            time_waits: self.time_waits.iter().map(|(key, wait)| (key, *wait)).collect(),
            holds: handover::hold_states(&self.forks),
            splices: self.splices.state(),
            counters: self.counters(queues),
        }
    }

    /// For the daemon that goes on with the connections. Their received and sent bytes go with them, and the rest of
    /// what they counted is in the sums.
    fn counters(&self, queues: &Queues) -> Counters {
        let mut counters = queues.counters.clone();
        for (_, flow) in self.flows.iter() {
            counters.add(&FlowFigures { rx_bytes: 0, tx_bytes: 0, ..flow.stats.read() });
        }
        counters
    }

    /// Takes over what another daemon's host was, with the ends of its contexts' rings. Fails with a sentence, and then
    /// this host is of no use.
    pub(crate) fn restore(
        &mut self,
        out: &mut Outbox<'_>,
        state: HostState,
        mut ends: HashMap<ContextId, (EngineEnd, ControlEnd)>,
    ) -> Result<(), String> {
        let HostState {
            secret,
            contexts,
            bindings,
            last_binding,
            handshakes,
            flows,
            early,
            mut time_waits,
            holds,
            splices,
            claims,
            counters,
            ..
        } = state;
        *out.counters = counters;
        out.random.go_on(secret);
        if out.net.has_loopback() {
            // Connections over it, and their frames, bear the address that the other daemon's host had.
            let v6 = out.net.is_own(IpAddress::v6(Ipv6Addr::LOCALHOST, 0));
            out.net.set_loopback(out.random.loopback_mac(), v6);
        }
        self.ports.begin_anew(out.random.next());
        self.forks.go_on_after(claims);
        let mut logs = Vec::new();
        for mut context in contexts {
            logs.extend(context.log.take().map(|log| (ContextId(context.id), Box::new(log))));
            let end = ends.remove(&ContextId(context.id)).ok_or("a context came without its descriptors")?;
            handover::restore_context(out, &mut self.contexts, context, end.0, end.1)?;
        }
        for binding in bindings {
            handover::restore_binding(&mut self.bindings, binding);
        }
        self.bindings.go_on_after(last_binding);
        for half_open in handshakes {
            handover::restore_half_open(out, &mut self.handshakes, &mut self.connections, half_open)?;
        }
        for flow in flows {
            handover::restore_flow(out, &mut self.contexts, &mut self.flows, &mut self.connections, flow)?;
        }
        for (id, flow) in early {
            self.early.go_on(out, id, flow);
        }
        if !logs.is_empty() && !self.logs.are_offered() {
            return Err("a program of it has a shared log, and this configuration's engine keeps none".into());
        }
        for (id, log) in logs {
            let resumed = handover::resume_log(out, &mut self.contexts, id, log);
            resumed.ok_or("the log of a program cannot be mapped")?;
        }
        self.splices.restore(out, &mut self.connections, splices)?;
        time_waits.sort_by_key(|(_, wait)| wait.since);
        for (_, wait) in time_waits {
            self.time_waits.start(out, &mut self.connections, wait);
        }
        for hold in holds {
            let HoldState { token, held_for, parent, uid, flows, bindings } = hold;
            self.forks.hold(out, token, Hold { held_for, parent, uid, flows, bindings });
        }
        self.bindings.offer_again(&self.flows, out.now);
        self.place_all(out);
        Ok(())
    }
}
