//! Tracepoints of the control plane. Most of it is read off the commands that it gives the engine, once a round, where
//! something is on.
use crate::contexts::Contexts;
use crate::flows::Flows;
use crate::timers::Timer;
use context::{Endpoint, Request};
use engine::stream::{self, FourTuple, Stream};
use engine::{Command, Event, Exception, FlowId, Nanos};
use trace::{NO_FLOW, Point, Tracer};

/// Reader of the commands to the engine.
pub(crate) struct Reader<'a> {
    pub tracer: &'a Tracer,
    pub contexts: &'a Contexts,
    pub flows: &'a Flows,
}

impl Reader<'_> {
    /// Reads off the commands what the control plane decided.
    #[inline]
    pub(crate) fn commands(&self, commands: &[Command<Stream>]) {
        if self.tracer.is_active() {
            commands.iter().for_each(|command| self.command(command));
        }
    }

    #[cold]
    fn command(&self, command: &Command<Stream>) {
        let tracer = self.tracer;
        let event = |point, flow: &FlowId, values| tracer.event(point, flow.0, values);
        match command {
            Command::Attach(context, _) => {
                let pid = self.contexts.get(context.0).map_or(0, |context| context.application.pid);
                tracer.event(Point::Attached, NO_FLOW, [context.0.into(), pid.into()]);
            }
            Command::Detach(context) => tracer.event(Point::Detached, NO_FLOW, [context.0.into(), 0]),
            Command::Install(params) => event(Point::FlowInstalled, &params.flow, ends(&params.tuple)),
            Command::Remove(flow) => event(Point::FlowRemoved, flow, [0; 2]),
            Command::Transport(stream::Command::Rename { flow, context, .. }) => {
                event(Point::FlowRenamed, flow, [context.0.into(), 0])
            }
            Command::Transport(stream::Command::Move { flow, context, .. }) => {
                event(Point::FlowMoved, flow, [context.0.into(), 0])
            }
            Command::Transport(stream::Command::Advance { flow, tx_head, fin: true, .. }) => {
                event(Point::FlowClosed, flow, [(*tx_head).into(), 0]);
            }
            Command::Transport(stream::Command::Window(flow, cwnd)) => {
                let ssthresh = self.flows.get(flow.0).map_or(0, |flow| flow.timers.policy.ssthresh());
                event(Point::CongestionWindow, flow, [(*cwnd).into(), ssthresh.into()]);
            }
            Command::Transport(stream::Command::Rate(flow, rate)) => event(Point::CongestionRate, flow, [*rate, 0]),
            Command::Transport(stream::Command::Mss(flow, mss)) => event(Point::FlowMss, flow, [(*mss).into(), 0]),
            Command::Transport(stream::Command::Retransmit(flow, _)) => {
                let timeout = self.flows.get(flow.0).map(|flow| &flow.timers.rtt);
                let values = timeout.map_or([0; 2], |rtt| [rtt.rto().nanos(), rtt.backoffs().into()]);
                event(Point::RetransmissionTimeout, flow, values);
            }
            Command::Transport(stream::Command::Probe(flow)) => event(Point::ProbeDue, flow, [0; 2]),
            Command::Transport(stream::Command::Untrack(flow)) => event(Point::FlowQuiet, flow, [0; 2]),
            _ => {}
        }
    }
}

/// An event of the engine.
#[inline]
pub(crate) fn event(tracer: &Tracer, event: &Event<Stream>) {
    if let Event::Transport(stream::Event::Active(flow)) = event {
        tracer.event(Point::FlowActive, flow.0, [0; 2]);
    }
}

/// A frame of the exception path.
#[inline]
pub(crate) fn exception(tracer: &Tracer, why: Exception, bytes: usize) {
    let word = match why {
        Exception::Foreign => 0,
        Exception::NoFlow => 1,
        Exception::Redirected => 2,
    };
    tracer.event(Point::Exception, NO_FLOW, [word, bytes as u64]);
}

/// A timer fired.
#[inline]
pub(crate) fn timer(tracer: &Tracer, timer: Timer, late: Nanos) {
    let (word, flow) = match timer {
        Timer::HalfOpen(_) => (0, NO_FLOW),
        Timer::Flow(flow) => (1, flow),
        Timer::TimeWait(_) => (2, NO_FLOW),
        Timer::Hold(_) => (4, NO_FLOW),
        Timer::Splice(_) => (5, NO_FLOW),
        Timer::Reassign(_) => (6, NO_FLOW),
        Timer::Survivors => (7, NO_FLOW),
        Timer::Early(flow) => (8, flow),
    };
    tracer.value(Point::TimerLate, flow, late);
    tracer.event(Point::TimerFired, flow, [word, 0]);
}

/// Both ends of a connection, as [`trace::Unit::Endpoint`].
pub(crate) fn ends(tuple: &FourTuple) -> [u64; 2] {
    [endpoint(tuple.local()), endpoint(tuple.remote())]
}

/// An IPv6 address does not fit: its last 48 bits stand for it.
fn endpoint(Endpoint { ip, port }: Endpoint) -> u64 {
    let bits = ip.as_v4().map_or(ip.to_bits() as u64, |ip| ip.to_bits().into());
    bits << 16 | u64::from(port)
}

/// A request by its word, in the order of [`trace::Unit::Request`].
pub(crate) fn word(request: &Request) -> u64 {
    match request {
        Request::Bind { .. } => 0,
        Request::Listen { .. } => 1,
        Request::Connect { .. } => 2,
        Request::Info { .. } => 3,
        Request::Claim { .. } => 4,
        Request::Fork { .. } => 5,
        Request::Arm { .. } => 6,
        Request::CancelConnect { .. } => 7,
        Request::Unbind { .. } => 8,
        Request::Close { .. } => 9,
        Request::Set { .. } => 10,
        Request::Label { .. } => 11,
        Request::Splice { .. } => 12,
        Request::Reclaim { .. } => 13,
        Request::OpenLog { .. } => 14,
        Request::JoinLog { .. } => 15,
        Request::Pass { .. } => 16,
        Request::Adopt { .. } => 17,
        Request::Withdraw { .. } => 18,
        Request::Take { .. } => 19,
        Request::Loopback { .. } => 20,
        Request::Exec { .. } => 21,
        Request::Carry { .. } => 22,
        Request::SynData { .. } => 23,
        Request::FastOpen { .. } => 24,
        Request::SynRetries { .. } => 25,
        Request::SegmentSize { .. } => 26,
    }
}
