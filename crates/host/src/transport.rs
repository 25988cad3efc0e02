//! Transports of a host: each is one object that owns its control plane and its engine.
use crate::demux::{Claim, Claims};
use crate::net::{Flushed, Neighbour, Net};
use crate::unreachable::Unreachable;
use engine::{DropCounts, Nanos, Recorder, Worker};
use port::capture::{Direction, Fate, Sight};
use port::{Frame, FramePool};
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trace::Traces;

/// The view of a transport: a value of a type of its own.
pub type Report = Box<dyn Any + Send>;

/// A transport of a host.
pub trait Transport: Send {
    /// For people and captures: `udp_echo`.
    fn name(&self) -> &'static str;
    /// The frames that it processes. Asked once, when it is added.
    fn claims(&self) -> Vec<Claim>;
    /// One bounded round on the frames that it claims, which it drains. Returns how much was done; 0 means idle.
    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize;
    /// A frame that no transport claims, and that is neither ARP nor ICMP: the host is about to refuse it. Whoever
    /// takes such frames by rules that come and go keeps it; others return it.
    fn offer(&mut self, _now: Nanos, frame: Box<Frame>, _io: &mut Io<'_>) -> Option<Box<Frame>> {
        Some(frame)
    }
    /// The round ends: the frames of `io.tx` from number `from` on, of all transports of the host, are about to leave.
    /// They pass its egress modules, where it has some. Called once a round, also where there are no frames.
    fn finish(&mut self, _now: Nanos, _from: usize, _io: &mut Io<'_>) {}
    /// A neighbour was found, has another hardware address, or does not answer.
    fn on_neighbour(&mut self, _now: Nanos, _neighbour: &Neighbour, _io: &mut Io<'_>) {}
    /// An ICMP error quotes a packet that this host sent. Returns whether it is one of this transport's and counts
    /// (RFC 5927 section 4.1); an error that no transport accepts is counted as dropped.
    fn on_unreachable(&mut self, _now: Nanos, _error: &Unreachable, _io: &mut Io<'_>) -> bool {
        false
    }
    /// Some of the frames that its data-path builds may be for this host itself: then the host searches for them.
    fn sends_to_self(&self) -> bool {
        true
    }
    /// Nobody uses it now, and nothing is due. While this is so of all transports beside the base, the base gets all
    /// frames unread. These are polled only where it passes on a frame that they claim. Asked each round.
    fn is_dormant(&self) -> bool {
        false
    }
    /// Why the host cannot be handed over to another daemon with this transport, in a sentence.
    fn handover_obstacle(&self) -> Option<String> {
        Some(format!("transport {} cannot be handed over", self.name()))
    }
    /// There is something to do now. Checked before sleeping.
    fn has_work(&self, now: Nanos) -> bool;
    /// When something is due by itself.
    fn next_deadline(&self) -> Option<Nanos>;
    /// The caller is about to sleep: applications must ring from now on. [`Transport::has_work`] is asked once more.
    fn prepare_to_sleep(&self) {}
    /// The caller polls again.
    fn awake(&self) {}
    /// Its view now. It is made between two rounds.
    fn report(&self) -> Option<Report> {
        None
    }
    /// Modules of its engine that need threads of their own. Called once.
    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        Vec::new()
    }
    /// There has been little to do for a while: gives back what busy times need.
    fn trim(&mut self) {}
    /// Writes to these tracepoints from now on. Called once, before anything else.
    fn trace(&mut self, _traces: &Traces) {}
}

/// A transport with two owners: its host's thread has it for a round, others ask it something between two rounds.
impl<T: Transport> Transport for Arc<Mutex<T>> {
    fn name(&self) -> &'static str {
        held(self).name()
    }
    fn claims(&self) -> Vec<Claim> {
        held(self).claims()
    }
    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        held(self).poll(now, rx, io)
    }
    fn offer(&mut self, now: Nanos, frame: Box<Frame>, io: &mut Io<'_>) -> Option<Box<Frame>> {
        held(self).offer(now, frame, io)
    }
    fn finish(&mut self, now: Nanos, from: usize, io: &mut Io<'_>) {
        held(self).finish(now, from, io);
    }
    fn on_neighbour(&mut self, now: Nanos, neighbour: &Neighbour, io: &mut Io<'_>) {
        held(self).on_neighbour(now, neighbour, io);
    }
    fn on_unreachable(&mut self, now: Nanos, error: &Unreachable, io: &mut Io<'_>) -> bool {
        held(self).on_unreachable(now, error, io)
    }
    fn sends_to_self(&self) -> bool {
        held(self).sends_to_self()
    }
    fn is_dormant(&self) -> bool {
        held(self).is_dormant()
    }
    fn handover_obstacle(&self) -> Option<String> {
        held(self).handover_obstacle()
    }
    fn has_work(&self, now: Nanos) -> bool {
        held(self).has_work(now)
    }
    fn next_deadline(&self) -> Option<Nanos> {
        held(self).next_deadline()
    }
    fn prepare_to_sleep(&self) {
        held(self).prepare_to_sleep();
    }
    fn awake(&self) {
        held(self).awake();
    }
    fn report(&self) -> Option<Report> {
        held(self).report()
    }
    fn workers(&mut self) -> Vec<Box<dyn Worker>> {
        held(self).workers()
    }
    fn trim(&mut self) {
        held(self).trim();
    }
    fn trace(&mut self, traces: &Traces) {
        held(self).trace(traces);
    }
}

/// A panic in a round ends the daemon; until then the transport is as good as it was.
fn held<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts of its host that a transport uses.
pub struct Io<'a> {
    /// The network layer: packets of the control plane go through it.
    pub net: &'a mut Net,
    /// Frames to send, in order: those that the data-path built itself.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// Frames to use and to give back.
    pub pool: &'a mut FramePool,
    /// What was dropped, host-wide.
    pub drops: &'a mut DropCounts,
    /// While a capture runs: takes each frame, with what became of it.
    pub recorder: Option<&'a mut Recorder>,
    /// So many frames at the front of the base transport's `rx` the host has sent to itself: they come from no port.
    pub looped: usize,
    /// Frames that the host sends to itself.
    pub(crate) to_self: &'a mut Vec<Box<Frame>>,
    /// Frames of no transport.
    pub(crate) unclaimed: &'a mut Vec<Box<Frame>>,
}

impl Io<'_> {
    /// The host gets this frame itself, in its next round, beside those that have its own address.
    pub fn send_to_self(&mut self, frame: Box<Frame>) {
        self.to_self.push(frame);
    }
}

/// The parts of its host that a transport uses between two rounds.
pub struct NetContext<'a> {
    /// The time.
    pub now: Nanos,
    /// The network layer.
    pub net: &'a mut Net,
    /// What was dropped, host-wide.
    pub drops: &'a mut DropCounts,
}

impl Io<'_> {
    /// The part that leaves `tx`, `pool` and the recorder to others.
    pub fn context(&mut self, now: Nanos) -> NetContext<'_> {
        NetContext { now, net: self.net, drops: self.drops }
    }

    /// A frame of the base transport's that is not for it: ARP, ICMP, a protocol that no transport claims.
    pub fn pass_on(&mut self, frame: Box<Frame>) {
        self.unclaimed.push(frame);
    }

    /// Builds the frames of all packets that wait in the network layer, behind those of `tx`. The host does so at the
    /// end of a round; a transport does where its own frames must come later.
    #[inline]
    pub fn flush(&mut self, now: Nanos) {
        // Most rounds have none.
        if self.net.has_outgoing() {
            self.build(now);
        }
    }

    fn build(&mut self, now: Nanos) {
        let before = (self.tx.len(), self.to_self.len());
        self.net.flush(self.pool, self.drops, &mut Flushed { tx: self.tx, looped: self.to_self });
        let Some(recorder) = &mut self.recorder else { return };
        let frames = self.tx[before.0..].iter().chain(&self.to_self[before.1..]);
        frames.for_each(|frame| recorder.record(now, frame, &of_control(Direction::Out, Fate::Sent)));
    }
}

/// The capture's note for a frame of the control plane's.
pub fn of_control(direction: Direction, fate: Fate) -> Sight<'static> {
    Sight { direction, flow: None, module: "control", fate }
}

/// The base of a host that has none: all that no transport claims is the host's.
pub struct NoBase;

impl Transport for NoBase {
    fn name(&self) -> &'static str {
        "none"
    }
    fn claims(&self) -> Vec<Claim> {
        Vec::new()
    }
    fn poll(&mut self, _now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        let done = rx.len();
        rx.drain(..).for_each(|frame| io.pass_on(frame));
        done
    }
    fn has_work(&self, _now: Nanos) -> bool {
        false
    }
    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
    fn sends_to_self(&self) -> bool {
        false
    }
}

/// A transport, and the frames that it is to process; none between polls.
struct TransportSlot {
    transport: Box<dyn Transport>,
    frames: Vec<Box<Frame>>,
}

/// Transports with claims of their own. What none of them claims goes to the base transport.
#[derive(Default)]
pub(crate) struct Transports {
    list: Vec<TransportSlot>,
    claims: Claims,
    /// Empty between polls.
    received: Vec<Box<Frame>>,
}

impl Transports {
    /// There is none, or none is in use: no frame needs to be read for them.
    pub(crate) fn are_dormant(&self) -> bool {
        self.list.iter().all(|seat| seat.transport.is_dormant())
    }

    /// Somebody has this very claim.
    pub(crate) fn is_claimed(&self, claim: Claim) -> bool {
        self.claims.find(claim).is_some()
    }

    /// Adds a transport.
    ///
    /// # Errors
    /// A sentence, where another one claims the same frames; then this one is not added.
    pub(crate) fn add(&mut self, transport: Box<dyn Transport>) -> Result<(), String> {
        let claims = transport.claims();
        let taken = claims.iter().find_map(|claim| self.claims.find(*claim).map(|owner| (claim, owner)));
        if let Some((claim, owner)) = taken {
            let (name, other) = (transport.name(), self.list[owner].transport.name());
            return Err(format!("transport {name} claims {claim}, which {other} has already"));
        }
        claims.into_iter().for_each(|claim| self.claims.add(claim, self.list.len()));
        self.list.push(TransportSlot { transport, frames: Vec::new() });
        Ok(())
    }

    /// Takes out of `rx` what is claimed, and polls every transport once. Returns how much was done. What the host has
    /// sent to itself stays at the front.
    pub(crate) fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        std::mem::swap(rx, &mut self.received);
        let looped = std::mem::take(&mut io.looped);
        for (at, frame) in self.received.drain(..).enumerate() {
            match self.claims.owner(&frame) {
                Some(owner) => self.list[owner].frames.push(frame),
                None => {
                    io.looped += (at < looped) as usize;
                    rx.push(frame);
                }
            }
        }
        self.list.iter_mut().map(|seat| seat.transport.poll(now, &mut seat.frames, io)).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Transport> {
        self.list.iter().map(|seat| &*seat.transport)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (dyn Transport + 'static)> {
        self.list.iter_mut().map(|seat| &mut *seat.transport)
    }
}
