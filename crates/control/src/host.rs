//! A host: the control plane and an engine, joined. An object without I/O: frames, time and randomness are passed in.
use crate::config::HostConfig;
use crate::contexts::Application;
use crate::flow_view::{FlowPage, FlowTotals, FlowView};
use crate::handover::HostState;
use crate::plane::Plane;
use crate::splice::SpliceTable;
use crate::view::{ArpView, BindingView, ContextView, DropView, LabelView};
use ::host::{Claim, Flushed, Io, Transport, Transports};
use context::{ControlEnd, EngineEnd, Geometry};
use engine::stream::{FourTuple, Stream};
use engine::{Burst, Command, ContextId, Engine, Event, Exception, FlowId, LoadedModule, Nanos, ProgramSource, Worker};
use port::capture::{Direction, Fate, Sight};
use port::{Capabilities, Frame, FramePool, Recorder};
use shm::Doorbell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use trace::{NO_FLOW, Point, Traces};
use wire::{Mac, Prefix, ethernet};

/// Timers that fire in one round at most.
const TIMERS_PER_ROUND: usize = 64;

/// How long to sleep at most while an application's ring has no room for its replies.
const REPLY_RETRY: Nanos = 200_000;

/// Frames that no transport beside TCP can claim: IPv4 as a whole, ARP, ICMP and TCP.
const OWN_CLAIMS: [Claim; 4] =
    [Claim::EtherType(0x0800), Claim::EtherType(0x0806), Claim::Protocol(1), Claim::Protocol(6)];

/// Frames for the engine: from the port, and from this host itself.
type Received<'a> = (&'a mut Vec<Box<Frame>>, &'a mut Vec<(Exception, Box<Frame>)>);

/// What one use of the engine has in common with others, made of fields that are borrowed one by one.
macro_rules! with_burst {
    ($host:ident, $received:expr, $tx:expr, $pool:expr, |$burst:ident| $use:expr) => {{
        let (rx, back) = $received;
        let $burst = &mut Burst {
            rx,
            back,
            tx: $tx,
            exceptions: &mut $host.exceptions,
            events: &mut $host.events,
            commands: &mut $host.plane.commands,
            pool: $pool,
            drops: &mut $host.plane.drops,
            recorder: Some(&mut $host.recorder).filter(|recorder| recorder.is_on()),
        };
        $use
    }};
}

/// One IP stack.
pub struct Host {
    plane: Plane,
    engine: Box<dyn Engine<Stream>>,
    /// Frames that the host sends to itself.
    looped: Vec<(Exception, Box<Frame>)>,
    /// Empty between polls.
    back: Vec<(Exception, Box<Frame>)>,
    exceptions: Vec<(Exception, Box<Frame>)>,
    events: Vec<Event<Stream>>,
    recorder: Recorder,
    /// Transports beside TCP, on the same address and port.
    others: Transports,
}

impl Host {
    /// A host on a port with these capabilities and this hardware address. The secret makes its numbers unguessable;
    /// a simulation passes a fixed one. Fails with a sentence where the configuration cannot be.
    pub fn new(
        config: HostConfig,
        caps: Capabilities,
        mac: Mac,
        engine: Box<dyn Engine<Stream>>,
        secret: [u8; 16],
    ) -> Result<Host, String> {
        config.validate()?;
        let mut config = config;
        let features = engine.features().transport;
        if !features.starts_small {
            config.memory.small_bytes = 0;
        }
        let mut plane = Plane::new(config, caps, mac, features.carries, secret);
        plane.keeps_logs = features.keeps_logs;
        let recorder = Recorder::default();
        let (looped, back) = (Vec::new(), Vec::new());
        let (exceptions, events) = (Vec::new(), Vec::new());
        let others = Transports::default();
        Ok(Host { plane, engine, looped, back, exceptions, events, recorder, others })
    }

    /// Adds a transport beside TCP: what it claims of the received frames is its own from now on. Without any, the
    /// engine gets all frames unread.
    ///
    /// # Errors
    /// A sentence, where another one claims the same frames, or it claims what TCP and the host itself live on.
    pub fn add_transport(&mut self, transport: Box<dyn Transport>) -> Result<(), String> {
        let own = |claim: &Claim| OWN_CLAIMS.contains(claim);
        if let Some(claim) = transport.claims().into_iter().find(own) {
            let (name, host) = (transport.name(), &self.plane.config.name);
            return Err(format!("host {host}: transport {name} claims {claim}, which is the host's own"));
        }
        self.others.add(transport).map_err(|sentence| format!("host {}: {sentence}", self.plane.config.name))
    }

    /// An application attaches with the daemon's ends of its region. With the token of a fork, it shares what its
    /// parent had. Fails with a sentence.
    pub fn attach(
        &mut self,
        _now: Nanos,
        application: Application,
        ends: (EngineEnd, ControlEnd),
        token: Option<u64>,
    ) -> Result<ContextId, String> {
        self.plane.attach(application, ends, token)
    }

    /// The process of a context is gone: its sockets are closed as the kernel closes those of a process that ends.
    pub fn detach(&mut self, now: Nanos, context: ContextId) {
        self.plane.take_last_requests(now, context);
        self.plane.detach(context);
    }

    /// One bounded round: requests, timers, received frames, transmissions. Drains `rx`, appends to `tx`. Returns how
    /// much was done; 0 means idle.
    pub fn poll(
        &mut self,
        now: Nanos,
        rx: &mut Vec<Box<Frame>>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> usize {
        self.plane.tracer.refresh();
        if self.plane.stopped.is_some() {
            return self.poll_stopped(now, rx, tx, pool);
        }
        let mut done = self.plane.take_requests(now) + self.fire_timers(now);
        self.plane.engine_work = 0;
        let mut back = std::mem::take(&mut self.back);
        back.append(&mut self.looped);
        if self.recorder.is_on() {
            // A mark may be another host's.
            let looped = back.iter_mut().map(|(_, frame)| frame);
            rx.iter_mut().chain(looped).for_each(|frame| frame.recorded = false);
        }
        let sent_before = tx.len();
        if !self.others.is_empty() {
            done += self.poll_others(now, rx, tx, pool);
        }
        self.flush(now, tx, pool);
        done += self.round(now, (rx, &mut back), tx, pool);
        // Answers go out before what the engine sends on connections that were opened just now.
        self.flush(now, tx, pool);
        if !self.plane.commands.is_empty() || !self.plane.refeed.is_empty() {
            back.append(&mut self.plane.refeed);
            done += self.round(now, (rx, &mut back), tx, pool);
            self.flush(now, tx, pool);
        }
        self.loop_own(tx, sent_before);
        with_burst!(self, (rx, &mut back), tx, pool, |burst| self.engine.egress(now, sent_before, burst));
        self.back = back;
        self.finish(pool);
        if self.recorder.is_on() {
            self.recorder.hand_over(done == 0);
        }
        done
    }

    /// The round of the transports beside TCP.
    fn poll_others(
        &mut self,
        now: Nanos,
        rx: &mut Vec<Box<Frame>>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> usize {
        let Plane { net, drops, .. } = &mut self.plane;
        let recorder = Some(&mut self.recorder).filter(|recorder| recorder.is_on());
        self.others.poll(now, rx, &mut Io { net, tx, pool, drops, recorder })
    }

    /// While it is handed over, only the engine works, until it has given up everything.
    fn poll_stopped(
        &mut self,
        now: Nanos,
        rx: &mut Vec<Box<Frame>>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> usize {
        let (mut back, sent_before) = (std::mem::take(&mut self.back), tx.len());
        let done = self.round(now, (rx, &mut back), tx, pool);
        self.flush(now, tx, pool);
        with_burst!(self, (rx, &mut back), tx, pool, |burst| self.engine.egress(now, sent_before, burst));
        self.back = back;
        self.finish(pool);
        done
    }

    /// Why this host cannot be handed over to another daemon, in a sentence.
    pub fn handover_obstacle(&self) -> Option<String> {
        let (name, engine) = (&self.plane.config.name, self.engine.name());
        if !self.engine.features().hands_over {
            return Some(format!("host {name} runs {engine}, whose connections cannot be handed over"));
        }
        self.plane.handover_obstacle()
    }

    /// Nothing is in the middle of something that takes several rounds: it may be stopped.
    pub fn is_settled(&self) -> bool {
        self.plane.is_settled()
    }

    /// Stops: from now on nothing is received or taken from applications. [`Host::poll`] until [`Host::is_stopped`].
    pub fn stop(&mut self) {
        self.plane.stop();
    }

    /// The engine has given up everything.
    pub fn is_stopped(&self) -> bool {
        self.plane.is_stopped()
    }

    /// What another daemon needs to go on. The host has stopped.
    pub fn state(&self, now: Nanos) -> HostState {
        self.plane.state(now, self.geometry(), (self.engine.name().into(), self.engine.features().transport.carries))
    }

    /// The descriptors of a context: its region, this side's end of its doorbell, and this side's own doorbell.
    pub fn descriptors(&self, context: ContextId) -> Option<[BorrowedFd<'_>; 3]> {
        self.plane.contexts.get(context.0).map(|context| context.end.descriptors())
    }

    /// A stopped host goes on: nobody took it over.
    pub fn go_on(&mut self, now: Nanos) {
        self.plane.go_on(now);
    }

    /// A fresh host becomes one that another daemon stopped, with the ends of its contexts. The clock goes on from that
    /// daemon's. Fails with a sentence; then this host is of no use.
    pub fn restore(
        &mut self,
        now: Nanos,
        state: HostState,
        ends: HashMap<ContextId, (EngineEnd, ControlEnd)>,
    ) -> Result<(), String> {
        let (name, address) = (&self.plane.config.name, self.plane.config.address);
        if state.address != address || state.mac != self.mac() || state.geometry() != self.geometry() {
            return Err(format!(
                "host {name}: address, hardware address or memory are not those of the daemon that runs: they cannot change"
            ));
        }
        // A connection keeps the options that it began with, and the windows of a pipeline have one shift.
        if state.engine != (self.engine.name().to_string(), self.engine.features().transport.carries) {
            return Err(format!(
                "host {name}: it runs engine {} with other TCP options than this configuration's {}: the engine cannot change",
                state.engine.0,
                self.engine.name()
            ));
        }
        self.plane.restore(now, state, ends).map_err(|sentence| format!("host {}: {sentence}", self.plane.config.name))
    }

    fn fire_timers(&mut self, now: Nanos) -> usize {
        if self.plane.timers.next().is_some_and(|due| due <= now) {
            self.plane.look_ahead(TIMERS_PER_ROUND);
        }
        let due = |plane: &mut Plane| {
            let late = now.saturating_sub(plane.timers.next()?);
            let timer = plane.timers.pop(now)?;
            plane.trace_timer(timer, late);
            plane.on_timer(now, timer);
            Some(())
        };
        let neighbours = (0..TIMERS_PER_ROUND).map_while(|_| self.plane.neighbour_due(now)).count();
        neighbours + (0..TIMERS_PER_ROUND).map_while(|_| due(&mut self.plane)).count()
    }

    /// Runs the engine once, and the control plane on what it says.
    fn round(&mut self, now: Nanos, received: Received<'_>, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) -> usize {
        self.plane.trace_commands();
        let done = with_burst!(self, received, tx, pool, |burst| self.engine.poll(now, burst));
        self.plane.engine_work += done;
        let done = done + self.events.len() + self.exceptions.len();
        for event in self.events.drain(..) {
            self.plane.trace_event(&event);
            self.plane.on_event(now, event);
        }
        if self.plane.stopped.is_some() {
            // What was still on its way through the engine would begin new connections: it waits for whoever goes on.
            self.looped.append(&mut self.exceptions);
            return done;
        }
        let mut exceptions = std::mem::take(&mut self.exceptions);
        for (why, frame) in exceptions.drain(..) {
            let (bytes, tracer) = (frame.len(), &self.plane.tracer);
            let before = tracer.is_on(Point::ControlDropped).then(|| self.plane.drops.clone());
            self.plane.trace_exception(why, bytes);
            if self.recorder.is_on() && !frame.recorded {
                self.on_frame_recorded(now, why, frame, pool);
            } else {
                self.plane.on_frame(now, why, frame, pool);
            }
            for reason in before.iter().flat_map(|before| self.plane.drops.since(before).iter()) {
                self.plane.tracer.event(Point::ControlDropped, NO_FLOW, [reason as u64, bytes as u64]);
            }
        }
        self.exceptions = exceptions;
        done
    }

    /// A frame of the exception path while somebody captures: recorded with what the control plane made of it.
    #[cold]
    fn on_frame_recorded(&mut self, now: Nanos, why: Exception, mut frame: Box<Frame>, pool: &mut FramePool) {
        self.recorder.keep(&frame);
        // Where it is kept, it comes to the engine later: then it is known already.
        frame.recorded = true;
        let plane = &mut self.plane;
        let (drops, held, this) = (plane.drops.clone(), plane.held, std::ptr::from_ref(&*frame));
        plane.on_frame(now, why, frame, pool);
        if let Some((_, frame)) = plane.refeed.iter_mut().find(|(_, frame)| std::ptr::eq(&**frame, this)) {
            // It goes to the engine at once, which then knows more.
            frame.recorded = false;
            return;
        }
        let fate = match Fate::of_received(plane.drops.since(&drops)) {
            Fate::Accepted if plane.held > held => Fate::Held,
            fate => fate,
        };
        self.recorder.record_kept(now, &of_control(Direction::In, fate));
    }

    /// Builds the frames that the control plane sends.
    fn flush(&mut self, now: Nanos, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        let before = (tx.len(), self.looped.len());
        let out = &mut Flushed { tx, looped: &mut self.looped };
        self.plane.net.flush(pool, &mut self.plane.drops, out);
        if self.recorder.is_on() {
            let sight = of_control(Direction::Out, Fate::Sent);
            let looped = self.looped[before.1..].iter().map(|(_, frame)| frame);
            let frames = tx[before.0..].iter().chain(looped);
            frames.for_each(|frame| self.recorder.record(now, frame, &sight));
        }
    }

    /// Keeps frames that are for this host itself.
    fn loop_own(&mut self, tx: &mut Vec<Box<Frame>>, from: usize) {
        if !self.plane.connections.to_self() {
            return;
        }
        let mac = self.plane.net.mac;
        let own = |frame: &Frame| ethernet::Header::parse(frame.bytes()).is_ok_and(|eth| eth.dst == mac);
        for frame in tx.split_off(from) {
            if own(&frame) {
                self.looped.push((Exception::NoFlow, frame));
            } else {
                tx.push(frame);
            }
        }
    }

    fn finish(&mut self, pool: &mut FramePool) {
        for id in self.plane.told.drain(..) {
            let Some(context) = self.plane.contexts.get_mut(id.0) else { continue };
            context.push_replies();
            if context.ring() {
                self.plane.tracer.event(Point::ControlBell, NO_FLOW, [id.0.into(), 0]);
            }
        }
        self.plane.spent.drain(..).for_each(|frame| pool.put(frame));
    }

    /// There is something to do now. Looked at before sleeping.
    pub fn has_work(&self, now: Nanos) -> bool {
        let plane = &self.plane;
        !self.looped.is_empty()
            || !plane.commands.is_empty()
            || !plane.refeed.is_empty()
            || plane.net.has_outgoing()
            || plane.next_timer().is_some_and(|due| due <= now)
            || self.engine.has_work(now)
            || self.others.has_work(now)
            || plane.contexts.iter().any(|(_, context)| context.has_work())
    }

    /// When something is due by itself.
    pub fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        // Nobody rings when there is room in a ring of replies again.
        let waits = self.plane.contexts.iter().any(|(_, context)| context.alive() && context.is_backlogged());
        let retry = waits.then_some(now + REPLY_RETRY);
        [self.plane.next_timer(), self.engine.next_deadline(), self.others.next_deadline(), retry]
            .into_iter()
            .flatten()
            .min()
    }

    /// Announces to all applications that the daemon is about to sleep. Afterwards, ask [`Host::has_work`] once more.
    pub fn prepare_to_sleep(&self) {
        let alive = self.plane.contexts.iter().filter(|(_, context)| context.alive());
        let bells: Vec<&Doorbell> = alive.map(|(_, context)| &context.end.daemon_bell).collect();
        Doorbell::prepare_all(bells.iter().copied());
    }

    /// The daemon is awake again. Nobody reads the bells, which would wait where an application has made them block:
    /// they are watched edge-triggered.
    pub fn awake(&self) {
        for (_, context) in self.plane.contexts.iter() {
            context.end.daemon_bell.reset();
        }
    }

    /// What to sleep on for a context: its doorbell's descriptor.
    pub fn bell(&self, context: ContextId) -> Option<BorrowedFd<'_>> {
        self.plane.contexts.get(context.0).map(|context| context.end.daemon_bell.fd())
    }

    /// The splice module of the data-path was loaded, or unloaded: then what is spliced is passed on by the control
    /// plane, and nothing more is spliced.
    pub fn set_splice_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        self.plane.set_splice_table(table);
    }

    /// Modules of the engine that need threads of their own. Called once.
    pub fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        self.engine.workers()
    }

    /// The host and its engine write to these tracepoints from now on. To be called once, before anything else.
    pub fn trace(&mut self, traces: &Traces) {
        self.plane.trace(traces);
        self.engine.trace(traces);
    }

    /// The addresses of a flow.
    pub fn tuple(&self, flow: FlowId) -> Option<FourTuple> {
        self.plane.flows.get(flow.0).map(|flow| flow.tuple.get())
    }

    /// Its configuration, as far as its engine goes along with it.
    pub fn config(&self) -> &HostConfig {
        &self.plane.config
    }

    /// Its hardware address.
    pub fn mac(&self) -> Mac {
        self.plane.net.mac
    }

    /// Sizes of the regions that applications get.
    pub fn geometry(&self) -> Geometry {
        self.plane.config.memory.geometry()
    }

    /// Destinations that it reaches.
    pub fn routes(&self) -> Vec<Prefix> {
        self.plane.net.routes.list()
    }

    /// `flextoe`, ...
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// All connections: for hosts with few of them. See [`Host::flow_page`].
    pub fn flows(&self) -> Vec<FlowView> {
        self.plane.flow_page(0, usize::MAX).flows
    }

    /// At most `most` connections from place `from` on; 0 is the first place, [`FlowPage::next`] names later ones.
    pub fn flow_page(&self, from: u64, most: usize) -> FlowPage {
        self.plane.flow_page(from, most)
    }

    /// Adds up at most `most` connections from place `from` on; returns where to go on, none after the last one.
    pub fn add_up(&self, totals: &mut FlowTotals, from: u64, most: usize) -> Option<u64> {
        self.plane.add_up(totals, from, most)
    }

    /// A connection that the engine runs, by its number there.
    pub fn flow(&self, flow: FlowId) -> Option<FlowView> {
        self.plane.flow_view(flow)
    }

    /// Connections that are installed in the engine or have a name in an application.
    pub fn flow_count(&self) -> usize {
        self.plane.flows.len()
    }

    /// All attached applications.
    pub fn contexts(&self) -> Vec<ContextView> {
        self.plane.context_views()
    }

    /// All reserved local addresses.
    pub fn bindings(&self) -> Vec<BindingView> {
        self.plane.binding_views()
    }

    /// What an application said of a descriptor; none where it said nothing.
    pub fn label(&self, pid: u32, fd: u32) -> Option<LabelView> {
        self.plane.label_view(pid, fd)
    }

    /// How much is in the control plane's tables.
    pub fn tables(&self) -> Vec<(&'static str, u64)> {
        self.plane.table_sizes()
    }

    /// Neighbours.
    pub fn neighbours(&self) -> Vec<ArpView> {
        self.plane.arp_views()
    }

    /// What was dropped, by reason.
    pub fn drops(&self) -> Vec<DropView> {
        self.plane.drop_views()
    }

    /// Where frames are captured: as they leave the engine, with what became of them.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.recorder
    }

    /// From now on the engine runs this program.
    ///
    /// # Errors
    /// As [`Engine::load`]: nothing has changed then.
    pub fn load_program(&mut self, program: &ProgramSource) -> Result<(), String> {
        self.engine.load(program)?;
        self.plane.keeps_logs = self.engine.features().transport.keeps_logs;
        Ok(())
    }

    /// From now on exactly these modules run in the engine, in this order. Fails with a sentence, and nothing changes,
    /// where the engine runs none in a stage that one of them is for.
    pub fn set_modules(&mut self, modules: Vec<LoadedModule>) -> Result<(), String> {
        let stages = self.engine.features().stages;
        if let Some(module) = modules.iter().find(|module| !stages.contains(&module.source.stage())) {
            let (name, stage) = (module.source.name(), module.source.stage().label());
            return Err(format!(
                "{name} is for the {stage} stage, where engine {} runs no modules",
                self.engine.name()
            ));
        }
        self.plane.commands.push(Command::Modules(modules));
        Ok(())
    }

    /// Figures of the engine's modules, and of what is spliced: module, counter, value.
    pub fn module_stats(&self) -> Vec<(String, &'static str, u64)> {
        let splices = self.plane.splices.figures().into_iter();
        let mut stats = self.engine.module_stats();
        stats.extend(splices.map(|(counter, value)| ("splice".into(), counter, value)));
        stats
    }
}

/// What a capture says of a frame of the control plane's.
fn of_control(direction: Direction, fate: Fate) -> Sight<'static> {
    Sight { direction, flow: None, module: "control", fate }
}
