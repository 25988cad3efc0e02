//! TCP as a transport of a host: the control plane and an engine, as one object.
use crate::outbox::{Outbox, Queues};
use crate::plane::ControlPlane;
use crate::traced;
use ::host::{Claim, Io, Neighbour, NetContext, Transport, Unreachable, of_control, protocol_of};
use engine::stream::Stream;
use engine::{Burst, DropReason, Engine, Event, Exception, Nanos, Worker};
use port::Frame;
use port::capture::{Direction, Fate};
use shm::Doorbell;
use trace::{NO_FLOW, Point, Traces};
use wire::{ethernet, ipv4};

/// Timers that fire in one round at most.
const TIMERS_PER_ROUND: usize = 64;

/// How long to sleep at most while an application's ring has no room for its replies.
const REPLY_RETRY: Nanos = 200_000;

/// Frames for the engine: from the port, and from this host itself.
type Received<'a> = (&'a mut Vec<Box<Frame>>, &'a mut Vec<(Exception, Box<Frame>)>);

/// What one use of the engine has in common with others, made of fields that are borrowed one by one.
macro_rules! with_burst {
    ($tcp:ident, $received:expr, $io:expr, |$burst:ident| $use:expr) => {{
        let (rx, back) = $received;
        let $burst = &mut Burst {
            rx,
            back,
            tx: $io.tx,
            exceptions: &mut $tcp.exceptions,
            events: &mut $tcp.events,
            commands: &mut $tcp.queues.commands,
            pool: $io.pool,
            drops: $io.drops,
            recorder: $io.recorder.as_deref_mut(),
        };
        $use
    }};
}

/// TCP: the base transport of a host.
pub struct Tcp {
    pub(crate) plane: ControlPlane,
    pub(crate) engine: Box<dyn Engine<Stream>>,
    pub(crate) queues: Queues,
    /// Empty between polls.
    back: Vec<(Exception, Box<Frame>)>,
    exceptions: Vec<(Exception, Box<Frame>)>,
    events: Vec<Event<Stream>>,
    /// Frames that came while the host stood still.
    kept: Vec<(Exception, Box<Frame>)>,
    /// When it was polled last.
    polled: Nanos,
}

/// First octet of the loopback network.
const LOOPBACK: u8 = 127;
const LOOPBACK_V6: [u8; 16] = std::net::Ipv6Addr::LOCALHOST.octets();

/// Drops what comes from a network with a loopback address (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5.3). An
/// engine that finds flows by addresses alone would take it for the host's own. Tagged frames do not bear the loopback
/// link's hardware address.
fn drop_martians(rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) {
    let is_martian = |frame: &Frame| {
        let packet = frame.bytes().get(ethernet::HEADER_LEN..).unwrap_or_default();
        match packet.first().map(|first| first >> 4) {
            Some(4) => packet.get(12) == Some(&LOOPBACK) || packet.get(16) == Some(&LOOPBACK),
            Some(6) => packet.get(8..40).is_some_and(|ends| ends.chunks(16).any(|end| end == LOOPBACK_V6)),
            _ => false,
        }
    };
    if !rx.iter().any(|frame| is_martian(frame)) {
        return;
    }
    let (martians, others): (Vec<_>, Vec<_>) = rx.drain(..).partition(|frame| is_martian(frame));
    rx.extend(others);
    for frame in martians {
        io.drops.count(DropReason::Ip);
        io.pool.put(frame);
    }
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::Protocol(ipv4::TCP)]
    }

    /// Requests, timers, received frames, transmissions.
    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        self.queues.tracer.refresh();
        self.polled = now;
        let mut back = std::mem::take(&mut self.back);
        if io.looped > 0 {
            back.extend(rx.drain(..io.looped).map(|frame| (Exception::NoFlow, frame)));
        }
        if self.plane.has_loopback() {
            drop_martians(rx, io);
        }
        if self.plane.is_stopping() {
            // Only the engine works, until it has given up everything.
            self.kept.append(&mut back);
            let done = self.round(now, (rx, &mut back), io);
            self.back = back;
            return done;
        }
        back.append(&mut self.kept);
        let out = &mut self.queues.outbox(io.context(now));
        let mut done = self.plane.take_requests(out) + fire_timers(&mut self.plane, out);
        self.plane.begin_round();
        io.flush(now);
        done += self.round(now, (rx, &mut back), io);
        // Answers go out before what the engine sends on connections that were opened just now.
        io.flush(now);
        if !self.queues.commands.is_empty() || !self.queues.frames.refeed.is_empty() {
            back.append(&mut self.queues.frames.refeed);
            done += self.round(now, (rx, &mut back), io);
            io.flush(now);
        }
        self.back = back;
        done
    }

    fn finish(&mut self, now: Nanos, from: usize, io: &mut Io<'_>) {
        let mut back = std::mem::take(&mut self.back);
        with_burst!(self, (&mut Vec::new(), &mut back), io, |burst| self.engine.egress(now, from, burst));
        self.back = back;
        self.plane.ring(&self.queues.tracer);
        self.queues.frames.spent.drain(..).for_each(|frame| io.pool.put(frame));
    }

    fn on_neighbour(&mut self, now: Nanos, neighbour: &Neighbour, io: &mut Io<'_>) {
        let out = &mut self.queues.outbox(io.context(now));
        match neighbour.mac {
            Some(mac) => self.plane.neighbour_learned(out, neighbour.ip, mac),
            None => self.plane.neighbour_unreachable(out, neighbour.ip),
        }
    }

    fn on_unreachable(&mut self, now: Nanos, error: &Unreachable, io: &mut Io<'_>) -> bool {
        self.plane.on_unreachable(&mut self.queues.outbox(io.context(now)), error)
    }

    fn sends_to_self(&self) -> bool {
        self.plane.sends_to_self()
    }

    fn handover_obstacle(&self) -> Option<String> {
        let (name, engine) = (&self.queues.config.name, self.engine.name());
        if !self.engine.features().hands_over {
            return Some(format!("host {name} runs {engine}, whose connections cannot be handed over"));
        }
        self.plane.has_survivors().then(|| {
            format!("connections of host {name} that a killed daemon left wait for their programs: try again in 5 s")
        })
    }

    fn has_work(&self, now: Nanos) -> bool {
        let plane = &self.plane;
        !self.kept.is_empty()
            || !self.queues.commands.is_empty()
            || !self.queues.frames.refeed.is_empty()
            || plane.contexts().have_pending_bells()
            || self.queues.timers.next().is_some_and(|due| due <= now)
            || self.engine.has_work(now)
            || plane.contexts().iter().any(|(_, context)| context.has_work())
    }

    fn next_deadline(&self) -> Option<Nanos> {
        // Nobody rings when there is room in a ring of replies again.
        let waits = self.plane.contexts().iter().any(|(_, context)| context.alive() && context.is_backlogged());
        let retry = waits.then_some(self.polled + REPLY_RETRY);
        [self.queues.timers.next(), self.engine.next_deadline(), retry].into_iter().flatten().min()
    }

    fn prepare_to_sleep(&self) {
        let alive = self.plane.contexts().iter().filter(|(_, context)| context.alive());
        let bells: Vec<&Doorbell> = alive.map(|(_, context)| &context.end.daemon_bell).collect();
        Doorbell::prepare_all(bells.iter().copied());
    }

    /// Nobody reads the bells, which would wait where an application has made them block: they are watched
    /// edge-triggered.
    fn awake(&self) {
        for (_, context) in self.plane.contexts().iter() {
            context.end.daemon_bell.reset();
        }
    }

    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.engine.workers()
    }

    fn trim(&mut self) {
        self.engine.trim();
    }

    fn trace(&mut self, traces: &Traces) {
        self.queues.tracer = traces.tracer("control");
        self.engine.trace(traces);
    }
}

impl Tcp {
    pub(crate) fn of(plane: ControlPlane, queues: Queues, engine: Box<dyn Engine<Stream>>) -> Tcp {
        let (back, kept, exceptions, events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Tcp { plane, engine, queues, back, exceptions, events, kept, polled: 0 }
    }

    /// The control plane, and what it uses of the host.
    pub(crate) fn parts<'a>(&'a mut self, context: NetContext<'a>) -> (&'a mut ControlPlane, Outbox<'a>) {
        (&mut self.plane, self.queues.outbox(context))
    }

    /// Runs the engine once, and the control plane on its events and exceptions.
    fn round(&mut self, now: Nanos, received: Received<'_>, io: &mut Io<'_>) -> usize {
        self.plane.trace_reader(&self.queues.tracer).commands(&self.queues.commands);
        let done = with_burst!(self, received, io, |burst| self.engine.poll(now, burst));
        self.plane.note_engine_work(done);
        let done = done + self.events.len() + self.exceptions.len();
        let out = &mut self.queues.outbox(io.context(now));
        for event in self.events.drain(..) {
            traced::event(out.tracer, &event);
            self.plane.on_event(out, event);
        }
        if self.plane.is_stopping() {
            // What was still on its way through the engine would begin new connections: it waits for the host that goes
            // on.
            self.kept.append(&mut self.exceptions);
            return done;
        }
        let mut exceptions = std::mem::take(&mut self.exceptions);
        for (why, frame) in exceptions.drain(..) {
            self.on_exception(now, why, frame, io);
        }
        self.exceptions = exceptions;
        done
    }

    /// A frame that the engine does not process: the control plane's, or no one's.
    fn on_exception(&mut self, now: Nanos, why: Exception, mut frame: Box<Frame>, io: &mut Io<'_>) {
        let bytes = frame.len();
        traced::exception(&self.queues.tracer, why, bytes);
        if protocol_of(&frame) != Some(ipv4::TCP) {
            return io.pass_on(frame);
        }
        let traced = self.queues.tracer.is_on(Point::ControlDropped);
        let record = io.recorder.is_some() && !frame.recorded;
        let before = (traced || record).then(|| io.drops.clone());
        let (held, this) = (self.plane.held_frames(), std::ptr::from_ref(&*frame));
        if let Some(recorder) = io.recorder.as_deref_mut().filter(|_| record) {
            recorder.keep(&frame);
            // Where it is kept, it comes to the engine later: then the recorder has it already.
            frame.recorded = true;
        }
        let out = &mut self.queues.outbox(io.context(now));
        if let Some(frame) = self.plane.on_frame(out, why, frame) {
            io.pool.put(frame);
        }
        let Some(before) = before else { return };
        let dropped = io.drops.since(&before);
        for reason in dropped.iter() {
            self.queues.tracer.event(Point::ControlDropped, NO_FLOW, [reason as u64, bytes as u64]);
        }
        if let Some(recorder) = io.recorder.as_deref_mut().filter(|_| record) {
            if let Some((_, frame)) =
                self.queues.frames.refeed.iter_mut().find(|(_, frame)| std::ptr::eq(&**frame, this))
            {
                // It goes to the engine at once, which then has more state.
                frame.recorded = false;
                return;
            }
            let fate = match Fate::of_received(dropped) {
                Fate::Accepted if self.plane.held_frames() > held => Fate::Held,
                fate => fate,
            };
            recorder.record_kept(now, &of_control(Direction::In, fate));
        }
    }
}

fn fire_timers(plane: &mut ControlPlane, out: &mut Outbox<'_>) -> usize {
    if out.timers.are_quiet(out.now) {
        return 0;
    }
    if out.timers.next().is_some_and(|due| due <= out.now) {
        plane.prefetch_ahead(out.timers, TIMERS_PER_ROUND);
    }
    let mut due = || {
        let (at, timer) = out.timers.pop(out.now)?;
        traced::timer(out.tracer, timer, out.now.saturating_sub(at));
        plane.on_timer(out, timer);
        Some(())
    };
    (0..TIMERS_PER_ROUND).map_while(|_| due()).count()
}
