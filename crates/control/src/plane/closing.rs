//! Closing of flows: shares of connections, errors, and the connection's state after its flow left the engine.
use super::ControlPlane;
use crate::contexts::Holder;
use crate::flow::{After, EngineState};
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use context::Reply;
use engine::stream::{self, FlowEnd, FlowFigures};
use engine::{ContextId, FlowId, Nanos};
use tcp::{ChallengeLimit, ClosingEvent, State, TimeWait};
use trace::Point;

/// How long the engine has for what was written before a reset.
const LAST_WORDS: Nanos = MILLISECOND;

/// Positions in its buffers of an application that closes a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppPositions {
    pub tx_head: u32,
    pub rx_head: u32,
}

impl ControlPlane {
    /// Gives up a share of a flow; the last one closes the connection. Without `positions` (the process is gone) the
    /// engine's own knowledge of what was written counts.
    pub(super) fn give_up_share(
        &mut self,
        out: &mut Outbox<'_>,
        id: FlowId,
        holder: Holder,
        positions: Option<AppPositions>,
        abort: bool,
    ) {
        self.leave_joining(out, id);
        match self.flows.take_share(&mut self.contexts, id, holder) {
            None => {}
            Some(false) => self.close_flow(out, id, positions, abort),
            Some(true) => {
                let flow = self.flows.get_mut(id.0);
                if let Some((flow, AppPositions { tx_head, rx_head })) = flow.zip(positions) {
                    flow.note_read(rx_head);
                    // What it wrote last may be noted nowhere else; a process that still has a share goes on after it.
                    out.commands.push(stream::Command::Advance { flow: id, tx_head, rx_head, fin: false }.into());
                }
                self.flows.leave_name(out, &mut self.contexts, id);
            }
        }
    }

    /// Nobody has a share of the flow any more.
    // Meets RFC 9293: SHLD-3.
    fn close_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, positions: Option<AppPositions>, abort: bool) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.engine != EngineState::Engine {
            return self.settle(out, id);
        }
        let figures = flow.stats.read();
        // A process that went has left word of it, where it is libtoe's. Records of a log are read there.
        let home = flow.names[0];
        let left = || self.contexts.get(home.context.0)?.end.read_of(home.slot);
        let read = positions.map(|at| at.rx_head).or_else(left).filter(|_| !flow.marks.logged);
        let unread = read.is_some_and(|read| flow.has_unread(figures.rx_bytes as u32, read));
        if abort || unread {
            // Data that will not be read: the peer must not take it for delivered (RFC 9293 section 3.6.1).
            return self.reset_flow(out, id, &figures, positions);
        }
        let fin_acked = flow.closing.ends.all_acknowledged();
        // A process that went did not report where it stopped writing. A position before all that is unacknowledged is
        // never new to the engine, also where its FIN is acknowledged at this moment. FIN goes after what it has.
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
        self.flows.active(out, id);
    }

    /// Resets a connection without a holder. What was written before goes out first, as far as the peer has room. A
    /// server that refuses a request answers and closes with the rest unread; its answer has to arrive.
    fn reset_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, figures: &FlowFigures, positions: Option<AppPositions>) {
        let Some(flow) = self.flows.get(id.0) else { return };
        let sent = figures.snd_nxt.wrapping_sub(flow.iss.0).wrapping_sub(1);
        let behind = |at: &AppPositions| at.tx_head.wrapping_sub(sent) as i32 > 0;
        let waits = figures.unsent > 0 || positions.as_ref().is_some_and(behind);
        if !waits || figures.outstanding >= figures.snd_wnd {
            return self.remove_flow(out, id, After::Reset);
        }
        if let Some(AppPositions { tx_head, rx_head }) = positions {
            out.commands.push(stream::Command::Advance { flow: id, tx_head, rx_head, fin: false }.into());
        }
        out.timers.set(Timer::Flow(id.0), out.now + LAST_WORDS);
    }

    /// The engine has no more use for the flow: what follows depends on the side that closed first.
    // Meets RFC 9293: MUST-13.
    pub(super) fn leave_engine(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id.0) else { return };
        let after = if flow.closing.state() == State::Closed { After::Nothing } else { After::TimeWait };
        self.remove_flow(out, id, after);
    }

    /// Takes a flow out of the engine.
    pub(super) fn remove_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, after: After) {
        self.leave_joining(out, id);
        self.flows.leave(out, id, after);
    }

    /// The connection has failed: its applications get the error, and it leaves the engine.
    // Meets RFC 9293: MUST-12, MUST-20.
    pub(super) fn fail_flow(&mut self, out: &mut Outbox<'_>, id: FlowId, errno: i32, after: After) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.engine != EngineState::Engine {
            return;
        }
        out.tracer.event(Point::FlowFailed, id.0, [errno as u64, 0]);
        flow.closing.life = tcp::Owner::Dead;
        flow.reply(&mut self.contexts, |slot| Reply::Error { slot, errno: errno as u16 });
        self.remove_flow(out, id, after);
    }

    pub(super) fn flow_removed(&mut self, out: &mut Outbox<'_>, id: FlowId, end: &FlowEnd) {
        if self.standstill.take(&self.flows, id, end) {
            return;
        }
        self.forget_early(out, id);
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        let EngineState::Leaving(after) = flow.engine else { return };
        flow.engine = EngineState::Gone;
        // Short connections end before they are polled.
        flow.timers.newest(&flow.stats.read()).into_iter().for_each(|time| out.counters.round_trips.record(time));
        if after != After::Splice {
            out.counters.closed += 1;
            out.counters.durations.record(out.now.saturating_sub(flow.since));
        }
        let (tuple, ends) = (flow.tuple.get(), flow.closing.ends);
        let timestamps = flow.agreed.timestamps(end.ts_recent);
        if after != After::Splice {
            self.connections.remove(&tuple);
        }
        match after {
            After::TimeWait => {
                let FlowEnd { snd_nxt, rcv_nxt, .. } = *end;
                let challenges = ChallengeLimit::default();
                let wait = TimeWait { tuple, snd_nxt, rcv_nxt, timestamps, ends, since: out.now, challenges };
                self.time_waits.start(out, &mut self.connections, wait);
            }
            After::Reset => {
                let stamp = timestamps.map(|state| state.stamp(out.now));
                out.reset(&tuple, end.snd_nxt, Some(end.rcv_nxt), stamp);
            }
            After::Splice | After::Nothing => {}
        }
        self.settle(out, id);
    }

    /// A flow that left the engine and has no holder is forgotten, and its slots are free.
    pub(super) fn settle(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get(id.0) else { return };
        if flow.engine != EngineState::Gone || !flow.holders.is_empty() {
            return;
        }
        // A frame on its way refers to the payload of a connection that was reset, not acknowledged. The bytes stay
        // until it has arrived, or the peer would read those of the slot's next connection.
        let home = flow.names[0];
        if self.contexts.get(home.context.0).is_some_and(|context| context.slots.is_referred_to(home.slot)) {
            return out.timers.set(Timer::Flow(id.0), out.now + MILLISECOND);
        }
        let Some(flow) = self.flows.remove(id.0) else { return };
        out.counters.add(&flow.stats.read());
        self.splices.forget_name(id, flow.spliced);
        for name in flow.names.iter().filter(|name| name.taken) {
            self.contexts.reply(name.context, Reply::Freed { slot: name.slot });
            self.contexts.free_slot(out, name.context, name.slot);
            self.place_for(out, name.context);
        }
    }

    /// A slot came free: connections may wait for room in this context. Its listeners are served in turn: one with many
    /// clients would keep those of the others out for ever.
    fn place_for(&mut self, out: &mut Outbox<'_>, context: ContextId) {
        let Some(context) = self.contexts.get(context.0) else { return };
        let (later, first) = (context.bindings.range(context.served + 1..), context.bindings.range(..=context.served));
        // Mostly there is none.
        let waiting = later.chain(first).copied().filter(|binding| self.bindings.has_waiting(*binding));
        for binding in waiting.collect::<Vec<u32>>() {
            self.place(out, binding);
        }
    }
}
