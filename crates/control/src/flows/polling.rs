//! Polling of flow timers: each active flow is polled when it is due, and the engine gets the commands that follow.
use super::Flows;
use crate::contexts::Contexts;
use crate::flow::{EngineState, Flow, Name};
use crate::flow_timers::TimerActions;
use crate::memory_config::MemoryConfig;
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer, Timers};
use engine::stream;
use engine::{Command, FlowId, Nanos};
use trace::Point;

/// What one poll of a flow may cost at most, on average: with more flows, each is polled less often.
const POLL_COST: Nanos = 20_000;
/// Longest time between two polls of a flow that is timed.
const LONGEST_INTERVAL: Nanos = 250 * MILLISECOND;

/// So many flows are no longer in the caches when they are polled.
const MANY: usize = 2048;

/// Consequence of a poll of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// It goes on.
    GoesOn,
    /// Nobody answers: the connection has failed.
    Failed,
    /// No engine runs it.
    Left,
}

impl Flows {
    /// The least time between two polls of a flow.
    fn poll_interval(&self, out: &Outbox<'_>) -> Nanos {
        let configured = out.config.timers.congestion_interval_us as Nanos * 1000;
        configured.max((self.timed as Nanos * POLL_COST).min(LONGEST_INTERVAL))
    }

    /// The engine has something to time for a flow.
    pub(crate) fn active(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let interval = self.poll_interval(out);
        let Some(flow) = self.all.get_mut(id.0) else { return };
        if flow.engine != EngineState::Engine || flow.awaits_reset() {
            return;
        }
        self.timed += !flow.timers.tracked as u32;
        let figures = flow.stats.read();
        let due = flow.timers.start(out.now, &figures, flow.options.ack_delay, interval, flow.agreed.mss as u32);
        out.timers.set(Timer::Flow(id.0), due);
    }

    /// Congestion control of a flow is due.
    pub(crate) fn congested(&self, out: &mut Outbox<'_>, id: FlowId) {
        if self.get(id.0).is_some_and(|flow| flow.engine == EngineState::Engine && flow.timers.tracked) {
            out.timers.set(Timer::Flow(id.0), out.now);
        }
    }

    /// Prefetches the state of flows that are to be polled soon: with so many, no cache holds it.
    pub(crate) fn prefetch_ahead(&self, timers: &Timers, most: usize) {
        if self.len() < MANY {
            return;
        }
        let flows = || timers.flows_soon(most).filter_map(|flow| self.get_ahead(flow));
        flows().for_each(shm::prefetch);
        flows().filter_map(Option::as_ref).for_each(|flow| shm::prefetch(&*flow.stats));
    }

    /// It is time to poll a flow.
    pub(crate) fn due(&mut self, out: &mut Outbox<'_>, contexts: &Contexts, id: FlowId) -> Due {
        let interval = self.poll_interval(out);
        let Some(flow) = self.all.get_mut(id.0) else { return Due::GoesOn };
        if flow.engine != EngineState::Engine {
            return Due::Left;
        }
        let figures = flow.stats.read();
        let (orphan, mss) = (flow.closing.is_orphan(), flow.agreed.mss as u32);
        flow.timers.rack = self.rack && flow.agreed.sack;
        let before = flow.timers.enforced.cwnd;
        let actions = flow.timers.poll(out.now, &figures, &flow.options, orphan, interval, mss);
        let remote_ip = flow.tuple.get().remote_ip;
        out.tracer.value(Point::CongestionRtt, id.0, flow.timers.rtt.srtt().unwrap_or(0));
        actions.measured.into_iter().for_each(|time| out.counters.round_trips.record(time));
        self.timed -= actions.untrack as u32;
        if actions.failed {
            return Due::Failed;
        }
        let window = flow.timers.enforced.cwnd;
        if window > before && MemoryConfig::is_long(flow.timers.rtt.srtt()) {
            suggest_room(contexts, flow, window);
        }
        self.black_holes.watch(out, id, flow, &figures, &actions);
        command(out, id, &actions);
        if actions.suspect_path {
            // Nobody answers: perhaps the next hop has another hardware address now.
            let next_hop = out.net.next_hop(remote_ip);
            out.net.doubt(out.now, next_hop);
            out.net.resolve(out.now, next_hop);
        }
        if let Some(next) = actions.next {
            out.timers.set(Timer::Flow(id.0), next);
        }
        Due::GoesOn
    }
}

/// Over a long path, a program may have twice the congestion window written and not acknowledged, as in Linux
/// (`tcp_sndbuf_expand`). So much waits to be sent while as much is on its way.
fn suggest_room(contexts: &Contexts, flow: &Flow, window: u32) {
    let Name { context, slot, .. } = flow.names[0];
    let room = window.saturating_mul(2);
    if let Some(home) = contexts.get(context.0).filter(|home| room > home.end.geometry().tx_len(slot.index)) {
        home.end.suggest(slot.index, room);
    }
}

/// Reports to the engine what a poll came to.
fn command(out: &mut Outbox<'_>, id: FlowId, actions: &TimerActions) {
    let TimerActions {
        window,
        growth,
        rate,
        retransmit,
        recent,
        probe,
        overdue,
        tail,
        untrack,
        measured: _,
        failed: _,
        suspect_path: _,
        next: _,
    } = *actions;
    out.commands.extend(window.map(|bytes| Command::Transport(stream::Command::Window(id, bytes))));
    out.commands.extend(growth.map(|growth| Command::Transport(stream::Command::Growth(id, growth))));
    out.commands.extend(rate.map(|bytes| Command::Transport(stream::Command::Rate(id, bytes))));
    if retransmit {
        out.commands.push(stream::Command::Retransmit(id, recent).into());
    }
    if overdue {
        out.commands.push(stream::Command::Overdue(id).into());
    }
    if tail {
        out.counters.tail_probes += 1;
        out.commands.push(stream::Command::ProbeTail(id).into());
    }
    if probe {
        out.commands.push(stream::Command::Probe(id).into());
    }
    if untrack {
        out.commands.push(stream::Command::Untrack(id).into());
    }
}
