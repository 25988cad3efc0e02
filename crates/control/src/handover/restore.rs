//! Restoring the parts of a host from the state in which it stopped.
use super::state::{BindingState, ContextState, FlowState, HalfOpenState, ListenerState};
use crate::accept_queue::AcceptQueue;
use crate::bindings::{Binding, Bindings, Listener};
use crate::connections::{Connections, Lifecycle};
use crate::contexts::{Context, Contexts, Life};
use crate::flow::{EngineState, Flow, Marks, Name};
use crate::flow_timers::FlowTimers;
use crate::flows::Flows;
use crate::half_open::{HalfOpen, SynData};
use crate::handshakes::Handshakes;
use crate::journal::Record;
use crate::outbox::Outbox;
use crate::timers::Timer;
use context::{ControlEnd, EngineEnd, Reply};
use engine::stream::{self, FlowEnd, FlowStats, LogState};
use engine::{Command, ContextId, FlowId};
use std::sync::atomic::Ordering::Relaxed;
use tcp::congestion::{Decision, initial_window};
use tcp::{ChallengeLimit, Established, RttEstimator};
use wire::Seq;

/// An application goes on, with the ends of its rings. Fails with a sentence.
pub(crate) fn restore_context(
    out: &mut Outbox<'_>,
    contexts: &mut Contexts,
    state: ContextState,
    engine_end: EngineEnd,
    control_end: ControlEnd,
) -> Result<(), String> {
    let mut context = Context::new(state.application, control_end, out.config.memory.cached_buffers);
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
    let id = ContextId(state.id);
    contexts.add_at(id, context).ok_or("max_contexts is smaller than what is attached")?;
    out.commands.push(Command::Attach(id, engine_end));
    Ok(())
}

/// A local address stays reserved.
pub(crate) fn restore_binding(bindings: &mut Bindings, state: BindingState) {
    let listener = |state: ListenerState| Listener {
        loopback: state.loopback,
        backlog: state.backlog,
        mss: state.mss,
        half_open: state.half_open,
        cookie_sent: state.cookie_sent,
        early: state.early.into(),
        ready: state.ready.into(),
        parked: state.parked.into(),
        armed: state.armed.into_iter().map(|(id, credits)| (id, AcceptQueue::with_credits(credits))).collect(),
        timed: false,
        last: state.last,
    };
    let binding = Binding {
        local: state.local,
        uid: state.uid,
        reuse_address: state.reuse.0,
        reuse_port: state.reuse.1,
        dual_stack: state.dual_stack,
        number: state.number,
        holders: state.holders.into_iter().collect(),
        listener: state.listener.map(listener),
    };
    bindings.add_at(state.id, binding);
}

/// A handshake goes on.
pub(crate) fn restore_half_open(
    out: &mut Outbox<'_>,
    handshakes: &mut Handshakes,
    connections: &mut Connections,
    state: HalfOpenState,
) -> Result<(), String> {
    let HalfOpenState {
        key,
        tuple,
        handshake,
        owner,
        congestion,
        rto,
        tries,
        most_tries,
        unsent,
        soft_error,
        peer_mac,
        open,
    } = state;
    let half_open = HalfOpen {
        tuple,
        handshake,
        owner,
        congestion,
        rto,
        tries,
        most_tries,
        unsent,
        soft_error,
        peer_mac,
        open,
        challenges: ChallengeLimit::default(),
        early: SynData::No,
        held: Vec::new(),
    };
    let room = handshakes.go_on(out, connections, key, half_open);
    Ok(room.ok_or("limits.max_handshakes is smaller than it was")?)
}

/// A connection goes on.
pub(crate) fn restore_flow(
    out: &mut Outbox<'_>,
    contexts: &mut Contexts,
    flows: &mut Flows,
    connections: &mut Connections,
    state: FlowState,
) -> Result<(), String> {
    let mut rtt = RttEstimator::new(out.config.timers.rto_bounds());
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
    let record = record_of(contexts, &state).and_then(|record| out.journal.add(record));
    let flow = Flow {
        tuple: state.tuple.into(),
        remote_mac: state.remote_mac,
        agreed: state.agreed,
        iss: state.iss,
        since: state.since,
        stats: flows.put_stats(stats),
        names: state.names.try_into()?,
        current: state.current,
        holders: state.holders.into_iter().collect(),
        unaccepted: state.unaccepted,
        read: None,
        closing: state.closing,
        engine: if state.end.is_some() { EngineState::Engine } else { EngineState::Gone },
        options: flows.share_options(state.options),
        timers: FlowTimers::new(out.now, policy, rtt, enforced, una),
        freezing: 0,
        reclaim: None,
        spliced: state.spliced,
        marks: Marks { logged: state.logged, with_data: state.with_data, ..Marks::default() },
        record,
    };
    flows.insert_at(state.id, flow).ok_or("max_flows is smaller than what is open")?;
    out.timers.set(Timer::Flow(state.id), out.now);
    if let Some(end) = state.end {
        connections.set(state.tuple, Lifecycle::Flow(FlowId(state.id)));
        let resumed = resume_flow(out, contexts, flows, FlowId(state.id), &end);
        resumed.ok_or("the buffers of a connection cannot be mapped")?;
    }
    Ok(())
}

/// What the next daemon needs of it. Nothing of one that several processes have, or whose records go to a log.
fn record_of(contexts: &Contexts, state: &FlowState) -> Option<Record> {
    let FlowState { remote_mac, agreed, iss, .. } = *state;
    let (end, tuple) = (state.end.filter(|_| !state.logged)?, state.tuple);
    let [Name { context, slot, .. }] = state.names[..] else { return None };
    let (region, irs) = (contexts.get(context.0)?.end.region_number(), end.rcv_nxt - end.resume?.rx_pos - 1);
    Some(Record { region, slot, tuple, remote_mac, agreed, iss, irs, ts_recent: end.ts_recent })
}

/// The engine runs a flow again, from where it was left.
pub(crate) fn resume_flow(
    out: &mut Outbox<'_>,
    contexts: &mut Contexts,
    flows: &Flows,
    id: FlowId,
    end: &FlowEnd,
) -> Option<()> {
    let resume = end.resume?;
    let flow = flows.get(id.0)?;
    let (home, name, orphan) = (flow.names[0], flow.name(), flow.closing.is_orphan());
    let (agreed, iss, ts_recent) = (flow.agreed, flow.iss, end.ts_recent);
    let context = contexts.get_mut(home.context.0)?;
    let (rx, tx) = context.slots.buffers(home.slot.index, &context.end).ok()?;
    let snd_wnd = resume.snd_wnd;
    let (irs, rtt, early, written, answered) = (Seq(0), None, 0, 0, 0);
    let (acknowledge, pass_on) = (false, false);
    let open =
        Established { agreed, iss, irs, snd_wnd, ts_recent, acknowledge, pass_on, rtt, early, written, answered };
    let mut params = flows.params(out, id, &open, rx, tx)?;
    (params.snd_nxt, params.tx_pos) = (end.snd_una, resume.tx_pos);
    (params.rcv_nxt, params.rx_pos) = (end.rcv_nxt, resume.rx_pos);
    (params.context, params.slot) = (name.context, name.slot);
    // What its peer was offered: it began with what the usual buffer holds.
    let (usual, offered) = (params.rx.usual(), resume.window.saturating_add(end.unread));
    out.commands.push(Command::Install(Box::new(params)));
    if offered > usual {
        out.commands.push(stream::Command::Offer(id, offered.checked_next_power_of_two().unwrap_or(offered)).into());
    }
    out.commands.push(stream::Command::Resume(id, *end).into());
    if flow.options.nagle {
        out.commands.push(stream::Command::Nagle(id, true).into());
    }
    if orphan {
        out.commands.push(stream::Command::Orphan(id).into());
    }
    out.commands.push(stream::Command::Untrack(id).into());
    Some(())
}

/// The engine keeps a context's log again, as it was when its flows, which have been resumed, were given up.
pub(crate) fn resume_log(
    out: &mut Outbox<'_>,
    contexts: &mut Contexts,
    id: ContextId,
    state: Box<LogState>,
) -> Option<()> {
    let context = contexts.get_mut(id.0)?;
    let end = context.end.open_log(state.shape).ok()?;
    context.has_log = true;
    out.commands.push(stream::Command::ResumeLog(id, Box::new(end), state).into());
    Some(())
}
