//! The queue pairs of one program: the rounds of the data-path.
use crate::cnp::{notified, on_mark};
use crate::config::{LowerLayer, ShardConfig};
use crate::ending::{enter_error, flush};
use crate::intake::{Intake, Next, post};
use crate::numbers::Numbers;
use crate::output::{Event, ShardOutput};
use crate::payload::{Packet, parse};
use crate::qp::{NextQuantum, Qp, Source, note_selective};
use crate::requester::{self, SendProgress, drained};
use crate::requester_recovery::timers;
use crate::requester_responses::{response, resume};
use crate::responder::request;
use crate::responder_output::answer;
use crate::selective::Keep;
use crate::shared::{Round, Shared};
use crate::stream::{datagrams, quantum};
use crate::unpack::requests;
use crate::{datagram, raw};
use engine::{Checksum, DropReason, Frame, Nanos, cut};
use host::{Slab, TimerQueue};
use shm::PipeConsumer;
use std::collections::{BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use verbs::{AsyncEvent, QpKind, QpNumber, QpState};
use wire::roce::{MULTICAST_QP, Packed, Psn, Service, icrc_is_right, is_packed};

/// Work requests taken out of the send pipe in a round.
const INTAKE: u32 = 256;
/// Most packets of a queue pair's quantum, and queue pairs in a round.
const PACKETS: u32 = 32;
const QPS_A_ROUND: usize = 256;
/// Elements that a send pipe may hold: taken at once where a queue pair is reset or removed.
const WHOLE_PIPE: u32 = 1 << 20;

/// The queue pairs of one program, and what they share. See the crate's page.
pub struct Shard {
    pub(crate) shared: Shared,
    intake: Intake,
    pub(crate) qps: Slab<Box<Qp>>,
    pub(crate) numbers: Numbers,
    /// Queue pairs that have something to send ("active SQ table", SmartNS section 3.2).
    pub(crate) active: VecDeque<u32>,
    pub(crate) timers: TimerQueue,
    /// Queue pairs whose receive queues are polled by themselves: in the error state, what comes in there is
    /// flushed; over a stream, a message may wait for it.
    pub(crate) watched: BTreeSet<u32>,
    /// Multicast groups and their members.
    pub(crate) groups: BTreeSet<(Ipv4Addr, u32)>,
    /// That the send pipe is corrupt was reported.
    corrupt_reported: bool,
    /// Work requests for no queue pair, or for one that takes none, that are not counted yet.
    refused: u32,
}

impl Shard {
    /// A shard without objects. `pipe` is the consumer's end of the program's send pipe for this shard.
    pub fn new(config: ShardConfig, pipe: PipeConsumer<8>) -> Shard {
        let qps = Slab::new(config.limits.qps);
        Shard {
            shared: Shared::new(config),
            intake: Intake::new(pipe),
            qps,
            numbers: Numbers::default(),
            active: VecDeque::new(),
            timers: TimerQueue::default(),
            watched: BTreeSet::new(),
            groups: BTreeSet::new(),
            corrupt_reported: false,
            refused: 0,
        }
    }

    /// One bounded round: received frames, which it drains and which are for queue pairs of this shard; the send pipe;
    /// timers. Returns how much was done; 0 means idle.
    pub fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, out: &mut ShardOutput<'_>) -> usize {
        let mut done = rx.len();
        for frame in rx.drain(..) {
            self.receive(now, frame, out);
        }
        done += self.take_posted(INTAKE) as usize;
        if self.intake.is_corrupt && !std::mem::replace(&mut self.corrupt_reported, true) {
            out.events.push(Event::SendPipeCorrupt);
            self.fail_all();
        }
        (0..std::mem::take(&mut self.refused)).for_each(|_| out.drops.count(DropReason::QpUnknown));
        done += self.fire(now, out);
        done += self.run_active(now, out);
        done += self.fail_overrun(out);
        self.shared.settle(out.events);
        done
    }

    /// There is something to do now. Checked before sleeping.
    pub fn has_work(&self, now: Nanos) -> bool {
        let posted = |slot: &u32| self.has_posted(*slot);
        let due = self.timers.first().is_some_and(|(at, _)| at <= now);
        due || !self.active.is_empty() || self.intake.has_any() || self.watched.iter().any(posted)
    }

    /// A message waits until the program posts receives, for which there is no notification.
    pub fn waits_for_receives(&self) -> bool {
        let waits = |slot: &u32| self.qps.get(*slot).is_some_and(|qp| qp.state != QpState::Error);
        self.watched.iter().any(waits)
    }

    /// When something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| at)
    }

    /// A queue pair may have something to send.
    pub(crate) fn wake(&mut self, slot: u32) {
        if let Some(qp) = self.qps.get_mut(slot) {
            if !std::mem::replace(&mut qp.is_active, true) {
                self.active.push_back(slot);
            }
        }
    }

    /// A frame came. One whose checksum was not computed never left the machine.
    #[inline]
    fn receive(&mut self, now: Nanos, mut frame: Box<Frame>, out: &mut ShardOutput<'_>) {
        let inside = frame.checksum == Checksum::Icrc;
        if !inside {
            out.pool.flatten(&mut frame);
        }
        let dropped = match parse(&frame) {
            Err(_) => DropReason::RoceHeader,
            Ok(packet) if packet.bth.qp == MULTICAST_QP => {
                self.receive_group(now, &packet, &frame, out);
                return out.pool.put(frame);
            }
            Ok(packet) => match self.numbers.find(packet.bth.qp) {
                None => DropReason::QpUnknown,
                Some(_) if !inside && !icrc_is_right(frame.bytes()) => DropReason::RoceIcrc,
                Some(slot) if packet.segment > 0 && is_packed(frame.bytes()) => {
                    return self.receive_packed(now, slot, frame, out);
                }
                Some(slot) if packet.segment > 0 && !self.takes_whole(slot, &packet) => {
                    return self.receive_cut(now, slot, None, frame, out);
                }
                Some(slot) => return self.receive_sound(now, slot, frame, out),
            },
        };
        out.drops.count(dropped);
        out.pool.put(frame);
    }

    /// A train is handled as a whole where its packets are those that come next, and as long as the queue pair's.
    fn takes_whole(&self, slot: u32, packet: &Packet<'_>) -> bool {
        let Some(qp) = self.qps.get(slot) else { return false };
        let next = match (qp.identity.kind.is_reliable(), packet.opcode().is_response()) {
            (true, true) => packet.bth.psn == qp.requester.unacked,
            (true, false) => packet.bth.psn == qp.responder.expected,
            (false, _) => qp.identity.kind == QpKind::Uc,
        };
        next && u32::from(packet.segment) == qp.settings.mtu
    }

    /// Short messages in one frame.
    fn receive_packed(&mut self, now: Nanos, slot: u32, frame: Box<Frame>, out: &mut ShardOutput<'_>) {
        let (Ok(packed), Some(qp)) = (Packed::parse(frame.bytes()), self.qps.get_mut(slot)) else {
            out.drops.count(DropReason::RoceHeader);
            return out.pool.put(frame);
        };
        let cut_at = requests(qp, packed, &mut Round { now, shared: &mut self.shared, out });
        let held = qp.take_held();
        match cut_at {
            Some(psn) => self.receive_cut(now, slot, Some(psn), frame, out),
            None => out.pool.put(frame),
        }
        match held {
            Some(held) => self.receive_sound(now, slot, held, out),
            None => self.wake(slot),
        }
    }

    /// Another train: its packets one by one, from this number on.
    #[cold]
    fn receive_cut(&mut self, now: Nanos, slot: u32, from: Option<Psn>, frame: Box<Frame>, out: &mut ShardOutput<'_>) {
        let mut packets = Vec::new();
        if let Err(frame) = cut(frame, out.pool, &mut packets) {
            out.drops.count(DropReason::RoceHeader);
            out.pool.put(frame);
        }
        let is_done = |psn: Psn| from.is_some_and(|from| psn.since(from) < 0);
        for packet in packets {
            match parse(&packet).map(|parsed| parsed.bth.psn) {
                Ok(psn) if is_done(psn) => out.pool.put(packet),
                _ => self.receive_sound(now, slot, packet, out),
            }
        }
    }

    /// A sound frame for a queue pair; then those that were kept and are next.
    #[inline]
    fn receive_sound(&mut self, now: Nanos, slot: u32, frame: Box<Frame>, out: &mut ShardOutput<'_>) {
        let mut next = Some(frame);
        while let Some(frame) = next {
            let Ok(packet) = parse(&frame) else { return out.pool.put(frame) };
            let (psn, keep) = (packet.bth.psn, self.deliver(now, slot, &packet, out));
            let Some(qp) = self.qps.get_mut(slot) else { return out.pool.put(frame) };
            let unused = match keep {
                Keep::No => Some(frame),
                Keep::Request => qp.responder.held.put(qp.responder.expected, psn, flat(frame, out)),
                Keep::Response => qp.requester.selective.held.put(qp.requester.unacked, psn, flat(frame, out)),
            };
            unused.into_iter().for_each(|frame| out.pool.put(frame));
            next = match keep {
                Keep::No => qp.take_held(),
                Keep::Request | Keep::Response => None,
            };
        }
        if let Some(qp) = self.qps.get_mut(slot) {
            resume(qp, &mut Round { now, shared: &mut self.shared, out });
        }
        self.wake(slot);
    }

    /// A frame, of contiguous bytes, for a queue pair of raw packets. The caller decides which those are.
    pub fn receive_raw(&mut self, now: Nanos, number: QpNumber, frame: &Frame, out: &mut ShardOutput<'_>) {
        let slot = self.numbers.get(number).unwrap_or(u32::MAX);
        match self.qps.get_mut(slot).filter(|qp| qp.identity.kind == QpKind::RawPacket) {
            Some(qp) => raw::receive(qp, frame.bytes(), &mut Round { now, shared: &mut self.shared, out }),
            None => out.drops.count(DropReason::QpUnknown),
        }
        // A queue pair that failed flushes with its quantum.
        self.wake(slot);
        self.shared.settle(out.events);
    }

    /// A datagram to a group: each member gets it.
    fn receive_group(&mut self, now: Nanos, packet: &Packet<'_>, frame: &Frame, out: &mut ShardOutput<'_>) {
        if frame.checksum != Checksum::Icrc && !icrc_is_right(frame.bytes()) {
            return out.drops.count(DropReason::RoceIcrc);
        }
        let (first, last) = ((packet.ip.dst, 0), (packet.ip.dst, u32::MAX));
        let members: Vec<u32> = self.groups.range(first..=last).map(|(_, slot)| *slot).collect();
        if members.is_empty() || packet.opcode().service() != Service::Ud {
            return out.drops.count(DropReason::QpUnknown);
        }
        for slot in members {
            self.deliver(now, slot, packet, out);
            self.wake(slot);
        }
    }

    /// A sound packet for a queue pair. Returns whether its frame is to be kept.
    #[inline]
    fn deliver(&mut self, now: Nanos, slot: u32, packet: &Packet<'_>, out: &mut ShardOutput<'_>) -> Keep {
        let Some(qp) = self.qps.get_mut(slot) else { return Keep::No };
        let round = &mut Round { now, shared: &mut self.shared, out };
        let from_peer = || qp.path.is_none_or(|path| path.remote == packet.ip.src);
        match (packet.opcode().service(), qp.identity.kind) {
            (Service::Ud, QpKind::Ud) => datagram::receive_packet(qp, packet, round),
            (Service::Rc, QpKind::Rc)
            | (Service::Uc, QpKind::Uc)
            | (Service::Xrc, QpKind::XrcSend | QpKind::XrcReceive)
                if !from_peer() =>
            {
                round.drop(DropReason::QpUnknown);
            }
            // Each half of an XRC has its own peer: what is for the other half is not for this one.
            (Service::Xrc, kind @ (QpKind::XrcSend | QpKind::XrcReceive)) => {
                on_mark(qp, packet.ip.ecn, round);
                match (kind, packet.opcode().is_response()) {
                    (QpKind::XrcSend, true) => return response(qp, packet, round),
                    (QpKind::XrcReceive, false) => return request(qp, packet, round),
                    _ => round.drop(DropReason::RoceHeader),
                }
            }
            (Service::Rc, QpKind::Rc) | (Service::Uc, QpKind::Uc) => {
                note_selective(qp, packet.bth.extension);
                on_mark(qp, packet.ip.ecn, round);
                let is_response = packet.opcode().is_response();
                return if is_response { response(qp, packet, round) } else { request(qp, packet, round) };
            }
            (Service::Congestion, _) => notified(qp, packet, round),
            _ => round.drop(DropReason::RoceHeader),
        }
        Keep::No
    }

    /// Takes work requests out of the send pipe, and returns how many.
    #[inline]
    fn take_posted(&mut self, most: u32) -> u32 {
        let message_bytes = self.shared.config.limits.message_bytes;
        for done in 0..most {
            let Next::Posted(posted) = self.intake.next() else { return done };
            let slot = self.numbers.find(posted.element.qp).unwrap_or(u32::MAX);
            let Some(qp) = self.qps.get_mut(slot).filter(|qp| qp.takes_work()) else {
                self.refused = self.refused.saturating_add(1);
                continue;
            };
            post(qp, &posted, message_bytes);
            if !std::mem::replace(&mut qp.is_active, true) {
                self.active.push_back(slot);
            }
        }
        most
    }

    /// Takes all that stands in the send pipe, so that nothing in it can come to mean another object.
    pub(crate) fn take_whole_pipe(&mut self) {
        self.take_posted(WHOLE_PIPE);
    }

    /// Fires timers that are due.
    fn fire(&mut self, now: Nanos, out: &mut ShardOutput<'_>) -> usize {
        let mut fired = 0;
        self.timers.advance(now);
        while let Some((_, slot)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.cancel(slot);
            fired += 1;
            if let Some(qp) = self.qps.get_mut(slot) {
                qp.timer = None;
                timers(qp, &mut Round { now, shared: &mut self.shared, out });
                self.wake(slot);
            }
        }
        fired
    }

    /// Gives queue pairs that may have something to send a quantum each.
    fn run_active(&mut self, now: Nanos, out: &mut ShardOutput<'_>) -> usize {
        let watched: Vec<u32> = self.watched.iter().copied().filter(|slot| self.has_posted(*slot)).collect();
        watched.into_iter().for_each(|slot| self.wake(slot));
        let count = self.active.len().min(QPS_A_ROUND);
        for _ in 0..count {
            let Some(slot) = self.active.pop_front() else { break };
            let Some(qp) = self.qps.get_mut(slot) else { continue };
            qp.is_active = false;
            let again = run_quantum(qp, &mut Round { now, shared: &mut self.shared, out });
            if qp.waits_for_receives() {
                self.watched.insert(slot);
            } else {
                self.watched.remove(&slot);
            }
            set_timer(&mut self.timers, slot, qp);
            if again {
                self.wake(slot);
            }
        }
        count
    }

    fn has_posted(&self, slot: u32) -> bool {
        self.qps.get(slot).is_some_and(|qp| match &qp.source {
            Source::Shared(srq) if qp.state != QpState::Error => {
                self.shared.srqs.get(*srq).is_some_and(|srq| srq.queue.has_any())
            }
            _ => qp.has_receives(),
        })
    }

    /// All queue pairs go to the error state with their next quantum.
    fn fail_all(&mut self) {
        let slots: Vec<u32> = self.qps.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(qp) = self.qps.get_mut(slot) {
                qp.next_quantum = if qp.state == QpState::Error { NextQuantum::Usual } else { NextQuantum::Fails };
            }
            self.wake(slot);
        }
    }

    /// A completion queue that overran takes its queue pairs with it (IBTA 1.3, 10.10.2.1 and 11.6.3.2).
    fn fail_overrun(&mut self, out: &mut ShardOutput<'_>) -> usize {
        let overrun = std::mem::take(&mut self.shared.overrun);
        for cq in &overrun {
            out.events.push(Event::Async(AsyncEvent::CompletionQueueError, *cq));
            let uses = |qp: &Qp| qp.identity.send_cq == *cq || qp.identity.receive_cq == *cq;
            let slots: Vec<u32> = self.qps.iter().filter(|(_, qp)| uses(qp)).map(|(slot, _)| slot).collect();
            for slot in slots {
                if let Some(qp) = self.qps.get_mut(slot).filter(|qp| qp.state != QpState::Error) {
                    qp.next_quantum = NextQuantum::Fails;
                    out.events.push(Event::Async(AsyncEvent::QpFatal, qp.identity.number));
                }
                self.wake(slot);
            }
        }
        overrun.len()
    }
}

/// A frame that is kept has its payload: what it refers to may change once its sender has given up.
fn flat(mut frame: Box<Frame>, out: &mut ShardOutput<'_>) -> Box<Frame> {
    out.pool.flatten(&mut frame);
    frame
}

/// A queue pair's quantum: pending responses, then its requests, or the flush. True where it needs another one.
#[inline]
fn run_quantum(qp: &mut Qp, round: &mut Round<'_, '_>) -> bool {
    if qp.stream.is_some() {
        return quantum::run(qp, round, PACKETS);
    }
    let due = std::mem::take(&mut qp.next_quantum);
    if due == NextQuantum::Fails {
        enter_error(qp, round);
    }
    let mut budget = PACKETS;
    if qp.state == QpState::Error {
        return flush(qp, round, budget) == budget;
    }
    let again = exchange(qp, round, &mut budget);
    if due == NextQuantum::SendsAndFails {
        enter_error(qp, round);
    }
    again || qp.state == QpState::Error
}

/// What the responder owes, then requests. True where more can be sent at once.
#[inline]
fn exchange(qp: &mut Qp, round: &mut Round<'_, '_>, budget: &mut u32) -> bool {
    if answer(qp, round, budget) {
        return true;
    }
    let next = match qp.identity.kind {
        QpKind::Ud if round.shared.config.lower_layer == LowerLayer::Stream => datagrams::offer(qp, round),
        QpKind::Ud => datagram::send(qp, round, budget),
        QpKind::RawPacket => raw::send(qp, round, budget),
        _ => requester::send(qp, round, budget),
    };
    drained(qp, round);
    next == SendProgress::Again
}

/// Sets the queue pair's timer, unless it is set for a time before: then it checks again when that comes.
#[inline]
fn set_timer(timers: &mut TimerQueue, slot: u32, qp: &mut Qp) {
    match (qp.due(), qp.timer) {
        (Some(due), Some(set)) if set <= due => {}
        (Some(due), _) => {
            timers.set(slot, due);
            qp.timer = Some(due);
        }
        (None, _) => {}
    }
}
