//! Taking the state of a host's parts at a standstill.
use super::standstill::Standstill;
use super::state::{BindingState, ContextState, FlowState, HalfOpenState, HoldState, ListenerState};
use crate::bindings::{Binding, Bindings, Listener};
use crate::contexts::{Context, Contexts};
use crate::flow::Flow;
use crate::forks::{Forks, Hold};
use crate::half_open::HalfOpen;
use crate::handshakes::Handshakes;
use engine::{ContextId, FlowId};
use std::sync::atomic::Ordering::Relaxed;

pub(crate) fn context_states(standstill: &Standstill, contexts: &Contexts) -> Vec<ContextState> {
    let state = |(id, context): (u32, &Context)| ContextState {
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
        log: standstill.log_of(ContextId(id)).cloned(),
    };
    contexts.iter().map(state).collect()
}

pub(crate) fn binding_states(bindings: &Bindings) -> Vec<BindingState> {
    let listener = |listener: &Listener| ListenerState {
        backlog: listener.backlog,
        mss: listener.mss,
        loopback: listener.loopback,
        half_open: listener.half_open,
        cookie_sent: listener.cookie_sent,
        early: listener.early.state(),
        ready: listener.ready.iter().copied().collect(),
        parked: listener.parked.iter().copied().collect(),
        armed: listener.armed.iter().map(|(id, accept_queue)| (*id, accept_queue.credits)).collect(),
        last: listener.last,
    };
    let state = |(id, binding): (u32, &Binding)| BindingState {
        id,
        local: binding.local,
        uid: binding.uid,
        reuse: (binding.reuse_address, binding.reuse_port),
        dual_stack: binding.dual_stack,
        number: binding.number,
        holders: binding.holders.iter().copied().collect(),
        listener: binding.listener.as_ref().map(listener),
    };
    bindings.iter().map(state).collect()
}

pub(crate) fn half_open_states(handshakes: &Handshakes) -> Vec<HalfOpenState> {
    let state = |(key, half_open): (u32, &HalfOpen)| HalfOpenState {
        key,
        tuple: half_open.tuple,
        handshake: half_open.handshake.clone(),
        owner: half_open.owner,
        congestion: half_open.congestion,
        rto: half_open.rto,
        tries: half_open.tries,
        most_tries: half_open.most_tries,
        unsent: half_open.unsent,
        soft_error: half_open.soft_error,
        peer_mac: half_open.peer_mac,
        open: half_open.open,
    };
    handshakes.iter().map(state).collect()
}

pub(crate) fn hold_states(forks: &Forks) -> Vec<HoldState> {
    let state = |(token, hold): (u64, &Hold)| HoldState {
        token,
        held_for: hold.held_for,
        parent: hold.parent,
        uid: hold.uid,
        flows: hold.flows.clone(),
        bindings: hold.bindings.clone(),
    };
    forks.iter().map(state).collect()
}

pub(crate) fn flow_state(standstill: &Standstill, id: u32, flow: &Flow) -> FlowState {
    FlowState {
        id,
        tuple: flow.tuple.get(),
        remote_mac: flow.remote_mac,
        agreed: flow.agreed,
        iss: flow.iss,
        since: flow.since,
        with_data: flow.marks.with_data,
        names: flow.names.iter().copied().collect(),
        current: flow.current,
        holders: flow.holders.iter().copied().collect(),
        unaccepted: flow.unaccepted,
        closing: flow.closing,
        options: *flow.options,
        congestion: flow.timers.policy.kind(),
        rtt: flow.timers.rtt.srtt(),
        bytes: (flow.stats.rx_bytes.load(Relaxed), flow.stats.tx_bytes.load(Relaxed)),
        spliced: flow.spliced,
        logged: flow.marks.logged,
        end: standstill.end_of(FlowId(id)),
    }
}
