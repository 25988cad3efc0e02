//! Event routing: events of the engine and timers of its flows go to the part of the control plane that they concern.
use super::ControlPlane;
use crate::flow::{After, EngineState, Flow};
use crate::flows::Due;
use crate::outbox::Outbox;
use context::Reply;
use engine::stream::{self, FlowEnd, Stream};
use engine::{Event, FlowId};
use tcp::{ClosingEvent, State};

impl ControlPlane {
    /// An event of an engine.
    pub(crate) fn on_event(&mut self, out: &mut Outbox<'_>, event: Event<Stream>) {
        match event {
            Event::Removed(id, end) => self.flow_removed(out, id, &end),
            Event::Transport(event) => self.on_stream_event(out, event),
            Event::Drained(context) => self.context_drained(out, context),
            Event::RingCorrupt(context) => {
                out.drops.count(engine::DropReason::RingCorrupt);
                self.contexts.end(out, context);
            }
        }
    }

    fn on_stream_event(&mut self, out: &mut Outbox<'_>, event: stream::Event) {
        match event {
            stream::Event::Active(id) => self.flows.active(out, id),
            stream::Event::Congestion(id) => self.flows.congested(out, id),
            stream::Event::LocalFin(id) => self.advance_closing(out, id, ClosingEvent::LocalShutdown),
            stream::Event::PeerFin(id) => self.advance_closing(out, id, ClosingEvent::PeerFin),
            stream::Event::PeerFinToo(id) => self.advance_closing(out, id, ClosingEvent::PeerFinToo),
            stream::Event::FinAcked(id) => self.advance_closing(out, id, ClosingEvent::FinAcked),
            stream::Event::Reset(id) => {
                self.early_reset(out, id);
                self.flow_reset(out, id);
            }
            // RFC 9293 section 3.6.1: data without a reader resets the connection.
            stream::Event::OrphanData(id) => self.remove_flow(out, id, After::Reset),
            stream::Event::Frozen(id, end) => self.freeze_answered(out, id, Some(end)),
            stream::Event::Busy(id) => self.freeze_answered(out, id, None),
            stream::Event::NoLine(id) => {
                if let Some(flow) = self.flows.get_mut(id.0) {
                    flow.marks.no_line = true;
                }
            }
            stream::Event::LogJoined(id, result) => {
                self.logs.joined(out, &mut self.contexts, &mut self.flows, id, result);
            }
            stream::Event::LogGivenUp(context, log) => self.standstill.take_log(context, log),
        }
    }

    fn flow_reset(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        match flow.closing.state() {
            // It came at once with the acknowledgement of this host's FIN: there is nothing to wait for.
            State::FinWait2 if flow.engine == EngineState::Leaving(After::TimeWait) => {
                flow.engine = EngineState::Leaving(After::Nothing)
            }
            // Both sides have ended, and both ends are acknowledged: an end like any other (RFC 9293 section 3.10.7.4,
            // eighth).
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

    /// The engine has stopped a flow, or reports that it is not quiet.
    fn freeze_answered(&mut self, out: &mut Outbox<'_>, id: FlowId, end: Option<FlowEnd>) {
        if !self.flows.freeze_answered(id) || self.flows.reclaim_answered(out, &mut self.contexts, id, end.is_some()) {
            return;
        }
        let Some(joining) = self.splices.answered(id, end) else { return };
        let joined = self.splices.join(out, &mut self.flows, &mut self.connections, &joining);
        match joined {
            Some(()) => self.contexts.reply(joining.context, Reply::Done { tag: joining.tag }),
            None => self.give_up_joining(out, &joining),
        }
    }

    /// It is time to poll a flow.
    pub(super) fn flow_due(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        if self.flows.get(id.0).is_some_and(Flow::awaits_reset) {
            return self.remove_flow(out, id, After::Reset);
        }
        match self.flows.due(out, &self.contexts, id) {
            Due::GoesOn => {}
            Due::Failed => self.fail_flow(out, id, libc::ETIMEDOUT, After::Reset),
            Due::Left => self.settle(out, id),
        }
    }
}
