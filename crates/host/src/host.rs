//! A host: one IP stack. An object without I/O: frames, time and randomness are passed in.
use crate::autoconf::Found;
use crate::demux::{Claim, is_own};
use crate::net::{Neighbour, Net, Received};
use crate::transport::{Io, NetContext, NoBase, Report, Transport, Transports, of_control};
use engine::{DropCounts, Nanos, Recorder, Worker};
use port::capture::{Direction, Fate};
use port::{Frame, FramePool, TcpPorts};
use std::sync::Arc;
use trace::{NO_FLOW, Point, Tracer, Traces};
use wire::ethernet;

/// Timers of neighbours that fire in one round at most.
const TIMERS_PER_ROUND: usize = 64;

/// Frames that are the host's own on every host: IPv4 and IPv6 as a whole, ARP, ICMP.
const OWN_CLAIMS: [Claim; 5] = [
    Claim::EtherType(0x0800),
    Claim::EtherType(0x86dd),
    Claim::EtherType(0x0806),
    Claim::Protocol(1),
    Claim::Protocol(58),
];

/// Position of a neighbour's timer among those of [`trace::Unit::Timer`].
const NEIGHBOUR_TIMER: u64 = 3;

/// A host: its network layer, and transports that share it.
///
/// The *base* transport gets all frames that no other one claims, unread, and passes on what is not for it. A host with
/// no other transport reads no frame that its engine processes. The base has a type of its own, so that the owner of
/// the host reaches its interface ([`Host::base`]).
pub struct Host<B = NoBase> {
    base: B,
    others: Transports,
    common: Common,
}

/// What the transports of a host share.
struct Common {
    net: Net,
    drops: DropCounts,
    recorder: Recorder,
    tracer: Tracer,
    /// Frames that the host sends to itself.
    to_self: Vec<Box<Frame>>,
    /// Whose TCP ports are whose, where another stack has the host's addresses; and whether this one is the second.
    beside: Option<(Arc<TcpPorts>, bool)>,
    /// Frames that no transport processes. Empty between polls.
    unclaimed: Vec<Box<Frame>>,
}

impl Common {
    #[inline]
    fn io<'a>(&'a mut self, tx: &'a mut Vec<Box<Frame>>, pool: &'a mut FramePool) -> Io<'a> {
        let Common { net, drops, recorder, to_self, unclaimed, .. } = self;
        let recorder = Some(recorder).filter(|recorder| recorder.is_on());
        Io { net, tx, pool, drops, recorder, looped: 0, to_self, unclaimed }
    }
}

impl Host {
    /// A host with this network layer, and no transport yet.
    pub fn new(net: Net) -> Host {
        Host::with_base(net, NoBase)
    }
}

impl<B: Transport> Host<B> {
    /// A host with this network layer and base transport.
    pub fn with_base(net: Net, base: B) -> Host<B> {
        let common = Common {
            net,
            drops: DropCounts::default(),
            recorder: Recorder::default(),
            tracer: Tracer::off(),
            to_self: Vec::new(),
            beside: None,
            unclaimed: Vec::new(),
        };
        Host { base, others: Transports::default(), common }
    }

    /// Adds a transport: what it claims of the received frames is its own from now on.
    ///
    /// # Errors
    /// A sentence, where another one claims the same frames, or it claims what is the host's own.
    pub fn add(&mut self, transport: Box<dyn Transport>) -> Result<(), String> {
        let (claims, of_base) = (transport.claims(), self.base.claims());
        let name = transport.name();
        if let Some(claim) = claims.iter().find(|claim| OWN_CLAIMS.contains(claim)) {
            return Err(format!("transport {name} claims {claim}, which is the host's own"));
        }
        if let Some(claim) = claims.iter().find(|claim| of_base.contains(claim)) {
            return Err(format!("transport {name} claims {claim}, which {} has already", self.base.name()));
        }
        self.others.add(transport)
    }

    /// A transport beside the base has this very claim.
    pub fn is_claimed(&self, claim: Claim) -> bool {
        self.others.is_claimed(claim)
    }

    /// The views of its transports beside the base.
    pub fn reports(&self) -> Vec<Report> {
        self.others.iter().filter_map(Transport::report).collect()
    }

    /// One bounded round. Drains `rx`, appends to `tx`. Returns how much was done; 0 means idle.
    pub fn poll(
        &mut self,
        now: Nanos,
        rx: &mut Vec<Box<Frame>>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> usize {
        self.common.tracer.refresh();
        if !self.common.to_self.is_empty() {
            self.leave_to_other(tx);
        }
        let from = tx.len();
        let mut done = self.expire(now, tx, pool);
        let looped = self.common.to_self.len();
        if looped > 0 {
            rx.splice(..0, self.common.to_self.drain(..));
        }
        if self.common.recorder.is_on() {
            // A mark may be another host's.
            rx.iter_mut().for_each(|frame| frame.recorded = false);
        }
        // A capture shows each frame once, with what its own transport did with it.
        let mut polled = self.common.recorder.is_on() || !self.others.are_dormant();
        let io = &mut self.common.io(tx, pool);
        io.looped = looped;
        if polled {
            done += self.others.poll(now, rx, io);
        }
        done += self.base.poll(now, rx, io);
        if !self.common.unclaimed.is_empty() {
            if !polled {
                done += self.poll_dormant(now, tx, pool);
                polled = true;
            }
            self.receive_unclaimed(now, tx, pool);
        }
        self.common.io(tx, pool).flush(now);
        if self.base.sends_to_self() || (polled && self.others.iter().any(|transport| transport.sends_to_self())) {
            self.loop_own(tx, from);
        }
        let io = &mut self.common.io(tx, pool);
        self.base.finish(now, from, io);
        if polled {
            self.others.iter_mut().for_each(|transport| transport.finish(now, from, io));
        }
        if self.common.recorder.is_on() {
            self.common.recorder.hand_over(done == 0);
        }
        done
    }

    /// What the base transport passed on may be for a transport that was dormant.
    #[cold]
    fn poll_dormant(&mut self, now: Nanos, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) -> usize {
        let mut frames = std::mem::take(&mut self.common.unclaimed);
        let done = self.others.poll(now, &mut frames, &mut self.common.io(tx, pool));
        self.common.unclaimed.splice(..0, frames);
        done
    }

    /// Timers of neighbours.
    fn expire(&mut self, now: Nanos, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) -> usize {
        let mut done = 0;
        while done < TIMERS_PER_ROUND {
            let Some(expired) = self.common.net.expire(now, &mut self.common.drops) else { break };
            done += 1;
            self.common.tracer.value(Point::TimerLate, NO_FLOW, now.saturating_sub(expired.due));
            self.common.tracer.event(Point::TimerFired, NO_FLOW, [NEIGHBOUR_TIMER, 0]);
            if let Some(router) = expired.router {
                self.notify(now, &router, tx, pool);
            }
            if expired.unreachable {
                self.notify(now, &Neighbour { ip: expired.ip, mac: None }, tx, pool);
            }
        }
        done
    }

    /// Notifies all transports of a neighbour.
    fn notify(&mut self, now: Nanos, neighbour: &Neighbour, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        let io = &mut self.common.io(tx, pool);
        self.base.on_neighbour(now, neighbour, io);
        self.others.iter_mut().for_each(|transport| transport.on_neighbour(now, neighbour, io));
    }

    /// What no transport processes: ARP and ICMP are the host's, the rest is refused.
    fn receive_unclaimed(&mut self, now: Nanos, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        let mut frames = std::mem::take(&mut self.common.unclaimed);
        for frame in frames.drain(..) {
            let record = self.common.recorder.is_on() && !frame.recorded;
            if record {
                self.common.recorder.keep(&frame);
            }
            let (traced, bytes) = (self.common.tracer.is_on(Point::ControlDropped), frame.len());
            let before = (record || traced).then(|| self.common.drops.clone());
            if let Some(mut frame) = self.offer(now, frame, tx, pool) {
                self.receive(now, &mut frame, tx, pool);
                pool.put(frame);
            }
            let Some(before) = before else { continue };
            let dropped = self.common.drops.since(&before);
            for reason in dropped.iter() {
                self.common.tracer.event(Point::ControlDropped, NO_FLOW, [reason as u64, bytes as u64]);
            }
            if record {
                self.common.recorder.record_kept(now, &of_control(Direction::In, Fate::of_received(dropped)));
            }
        }
        self.common.unclaimed = frames;
    }

    /// A caller may keep what no transport claims, where it is not the host's own.
    fn offer(
        &mut self,
        now: Nanos,
        frame: Box<Frame>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> Option<Box<Frame>> {
        if is_own(&frame) {
            return Some(frame);
        }
        let io = &mut self.common.io(tx, pool);
        self.others.iter_mut().try_fold(frame, |frame, transport| transport.offer(now, frame, io))
    }

    fn receive(&mut self, now: Nanos, frame: &mut Frame, tx: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        let Common { net, drops, .. } = &mut self.common;
        match net.receive(now, frame, drops) {
            Received::Done => {}
            Received::Packet(ip) => net.refuse(now, &ip, frame, drops),
            Received::Neighbour(neighbour) => self.notify(now, &neighbour, tx, pool),
            Received::Unreachable(error) => {
                let io = &mut self.common.io(tx, pool);
                let believed = self.base.on_unreachable(now, &error, io);
                let others = self
                    .others
                    .iter_mut()
                    .filter_map(|transport| transport.on_unreachable(now, &error, io).then_some(()));
                if others.count() == 0 && !believed {
                    self.common.drops.count(engine::DropReason::Icmp);
                }
            }
        }
    }

    /// Another stack has the same addresses, and reaches this one by its port: segments to the host's own address that
    /// are for a port of the other's go there. `second` is which of the two this is.
    pub fn share(&mut self, ports: Arc<TcpPorts>, second: bool) {
        self.common.beside = Some((ports, second));
    }

    /// What the host sends to its own address may be for the stack beside it.
    fn leave_to_other(&mut self, tx: &mut Vec<Box<Frame>>) {
        let Common { to_self, beside: Some((ports, second)), .. } = &mut self.common else { return };
        let crosses = |frame: &Frame| {
            let packet = frame.bytes().get(ethernet::HEADER_LEN..);
            packet.is_some_and(|packet| ports.crosses(packet, *second))
        };
        if to_self.iter().any(|frame| crosses(frame)) {
            let (theirs, own): (Vec<_>, Vec<_>) = to_self.drain(..).partition(|frame| crosses(frame));
            to_self.extend(own);
            tx.extend(theirs);
        }
    }

    /// Keeps frames that are for this host itself.
    fn loop_own(&mut self, tx: &mut Vec<Box<Frame>>, from: usize) {
        let Common { net, to_self, .. } = &mut self.common;
        let own = |frame: &Frame| ethernet::Header::parse(frame.bytes()).is_ok_and(|eth| net.is_own_mac(eth.dst));
        let Some(first) = tx[from..].iter().position(|frame| own(frame)) else { return };
        for frame in tx.split_off(from + first) {
            if own(&frame) {
                to_self.push(frame);
            } else {
                tx.push(frame);
            }
        }
    }

    /// There is something to do now. Checked before sleeping.
    pub fn has_work(&self, now: Nanos) -> bool {
        !self.common.to_self.is_empty()
            || self.common.net.has_outgoing()
            || self.common.net.next_due().is_some_and(|due| due <= now)
            || self.base.has_work(now)
            || self.others.iter().any(|transport| transport.has_work(now))
    }

    /// The next time at which something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        let others = self.others.iter().filter_map(|transport| transport.next_deadline()).min();
        [self.common.net.next_due(), self.base.next_deadline(), others].into_iter().flatten().min()
    }

    /// Announces to all applications that the caller is about to sleep. Afterwards, ask [`Host::has_work`] once more.
    pub fn prepare_to_sleep(&self) {
        self.base.prepare_to_sleep();
        self.others.iter().for_each(|transport| transport.prepare_to_sleep());
    }

    /// The caller polls again.
    pub fn awake(&self) {
        self.base.awake();
        self.others.iter().for_each(|transport| transport.awake());
    }

    /// Modules of all transports that need threads of their own. Called once.
    pub fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        let mut workers = self.base.workers();
        workers.extend(self.others.iter_mut().flat_map(|transport| transport.workers()));
        workers
    }

    /// There has been little to do for a while: all transports give back what busy times need.
    pub fn trim(&mut self) {
        self.base.trim();
        self.others.iter_mut().for_each(|transport| transport.trim());
    }

    /// The host and its transports write to these tracepoints from now on. To be called once, before anything else.
    pub fn trace(&mut self, traces: &Traces) {
        self.common.tracer = traces.tracer("host");
        self.base.trace(traces);
        self.others.iter_mut().for_each(|transport| transport.trace(traces));
    }

    /// Why this host cannot be handed over to another daemon, in a sentence.
    pub fn handover_obstacle(&self) -> Option<String> {
        let others = || self.others.iter().find_map(|transport| transport.handover_obstacle());
        self.base.handover_obstacle().or_else(others)
    }

    /// The base transport.
    pub fn base(&self) -> &B {
        &self.base
    }

    /// The base transport.
    pub fn base_mut(&mut self) -> &mut B {
        &mut self.base
    }

    /// Uses the base transport between two rounds, with what it needs of the host.
    pub fn use_base<R>(&mut self, now: Nanos, used: impl FnOnce(&mut B, NetContext<'_>) -> R) -> R {
        let Common { net, drops, .. } = &mut self.common;
        used(&mut self.base, NetContext { now, net, drops })
    }

    /// Its network layer.
    pub fn net(&self) -> &Net {
        &self.common.net
    }

    /// The host's address came from a router: what routers advertise from now on is followed.
    pub fn follow_routers(&mut self, now: Nanos, found: &Found) {
        self.common.net.follow_routers(now, found);
    }

    /// Its drops.
    pub fn drops(&self) -> &DropCounts {
        &self.common.drops
    }

    /// The recorder of its capture: frames as they leave a transport, with what became of them.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.common.recorder
    }
}
