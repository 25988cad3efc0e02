//! Fast Open (RFC 7413): connections that a listener takes with the data of their SYN.
use super::ControlPlane;
use super::placement::record_of;
use crate::connections::Lifecycle;
use crate::fast_open::{Due, EarlyFlow};
use crate::flow::{After, EngineState};
use crate::half_open::Owner;
use crate::handshakes::{self, Start};
use crate::outbox::Outbox;
use crate::packet;
use crate::timers::MILLISECOND;
use ::tcp::fast_open::{Verdict, judge};
use ::tcp::{Handshake, Segment};
use context::{Class, FastOpenKeys};
use engine::{ContextId, FlowId, Nanos};
use port::Frame;
use wire::tcp::Cookie;
use wire::{Mac, Seq};

/// A SYN for a listener.
pub(super) struct Syn<'a> {
    pub segment: &'a Segment,
    pub station: Mac,
    /// The least initial sequence number, where a connection in TIME-WAIT is reused.
    pub above: Option<Seq>,
}

impl ControlPlane {
    /// A listener takes connections with the data of their SYN. `None` where the application has no such listener.
    pub(super) fn set_fast_open(
        &mut self,
        id: ContextId,
        binding: u32,
        most: u32,
        keys: FastOpenKeys,
        no_cookie: bool,
    ) -> Option<()> {
        let held = self.contexts.has_binding(id, binding);
        let listener = self.bindings.listener(binding).filter(|_| held)?;
        // No more than may wait to be accepted, as on Linux.
        listener.early.set(most.min(listener.backlog), keys, no_cookie);
        Some(())
    }

    /// Connections of a listener have segments of at most so many bytes. `None` where the application has none such.
    pub(super) fn set_segment_size(&mut self, id: ContextId, binding: u32, mss: u16) -> Option<()> {
        let held = self.contexts.has_binding(id, binding);
        self.bindings.listener(binding).filter(|_| held)?.mss = mss;
        Some(())
    }

    /// What a listener does about the Fast Open option of a SYN.
    pub(super) fn judge_early(&mut self, out: &mut Outbox<'_>, binding: u32, syn: &Segment) -> Verdict {
        if !self.handshakes.offers().fast_open_server {
            return Verdict::Ordinary;
        }
        let Some(listener) = self.bindings.listener(binding).filter(|it| it.early.queue.most > 0) else {
            return Verdict::Ordinary;
        };
        let option = syn.header.options.fast_open;
        let verdict = match option {
            _ if listener.early.no_cookie && syn.payload > 0 => Verdict::Open(None),
            None => Verdict::Ordinary,
            Some(_) => judge(option, listener.early.cookies(out.random, &syn.tuple)),
        };
        match verdict {
            // Without room, the answer is that to a SYN without the option (RFC 7413 section 5.1).
            Verdict::Open(_) | Verdict::Offer(_) if !self.has_early_room(out, binding) => Verdict::Ordinary,
            verdict => verdict,
        }
    }

    /// The listener has room for one more connection whose handshake has not ended.
    fn has_early_room(&mut self, out: &mut Outbox<'_>, binding: u32) -> bool {
        let Some(listener) = self.bindings.listener(binding) else { return false };
        if listener.early.queue.has_room(out.now) {
            return true;
        }
        if !listener.early.is_to_be_swept(out.now) {
            return false;
        }
        for id in self.early.of_listener(binding) {
            self.check_early(out, id);
        }
        self.bindings.listener(binding).is_some_and(|listener| listener.early.queue.has_room(out.now))
    }

    /// Opens a connection with the data of its SYN. `None`, and nothing was done, where the ordinary handshake is to
    /// follow. So it is where no process takes connections at this moment: the peer sends the data again.
    // Meets RFC 7413: 4.2.2-b.
    pub(super) fn open_early(
        &mut self,
        out: &mut Outbox<'_>,
        binding: u32,
        syn: &Syn<'_>,
        cookie: Option<Cookie>,
        frame: &mut Frame,
    ) -> Option<()> {
        let &Syn { segment, station, above } = syn;
        let tuple = segment.tuple;
        let (congestion, owner) = (out.config.default_congestion(), Owner::Listener(binding));
        let offer = self.handshakes.offer(out, &tuple, congestion, self.bindings.segment_size(binding));
        let listener = self.bindings.listener(binding)?;
        let waited_for = !listener.ready.is_empty() || !listener.parked.is_empty();
        let fits = segment.payload <= offer.mss.min(offer.window).into();
        if waited_for || !fits || segment.fin() || self.handshakes.held_frames() >= out.config.limits.held_frames {
            return None;
        }
        self.taker_of(out, binding)?;
        let handshake = Handshake::listen(out.now, handshakes::isn(out, &tuple, above), offer, segment);
        let (handshake, open) = handshake.with_cookie(cookie).accept_early(segment, segment.payload);
        let data = match segment.payload {
            0 => None,
            _ => Some(packet::data_of_syn(out.now, frame, segment, &open)?),
        };
        let fed = u64::from(data.is_some());
        let start = Start { tuple, handshake: handshake.clone(), owner, congestion, peer_mac: Some(station) };
        let key = self.handshakes.start(out, &mut self.connections, start)?;
        if self.handshakes.accept_early(out, key, open, data).is_none() {
            self.connections.remove(&tuple);
            self.handshakes.finish(out, key);
            return None;
        }
        self.bindings.listener(binding)?.ready.push_back(key);
        self.place(out, binding);
        let Some(Lifecycle::Flow(id)) = self.connections.get(&tuple) else { return Some(()) };
        self.bindings.listener(binding)?.early.queue.begin();
        // The next daemon cannot go on with a handshake: there is a record of the connection when that has ended.
        let record = self.flows.get_mut(id.0).and_then(|flow| flow.record.take());
        out.journal.remove(record);
        let rto = Nanos::from(out.config.timers.syn_rto_ms) * MILLISECOND;
        let early = EarlyFlow { tuple, handshake, open, binding, station, due: 0, rto, tries: 0, fed };
        self.early.begin(out, id, early);
        Some(())
    }

    /// A context takes connections of the listener now.
    fn taker_of(&self, out: &Outbox<'_>, binding: u32) -> Option<ContextId> {
        if self.standstill.is_on() {
            return None;
        }
        let (id, _) = self.bindings.choose_among(out, &self.contexts, binding, Class::Halved(u32::MAX), |_| true)?;
        Some(id)
    }

    /// It is time to check a connection whose SYN-ACK is not acknowledged.
    pub(super) fn early_due(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(figures) = self.flows.get(id.0).map(|flow| flow.stats.read()) else { return };
        match self.early.due(out, id, &figures) {
            Due::Waits => {}
            Due::Answered => self.early_ended(out, id),
            Due::Fails => {
                self.forget_early(out, id);
                self.fail_flow(out, id, libc::ETIMEDOUT, After::Reset);
            }
        }
    }

    /// The SYN-ACK of a connection may be acknowledged meanwhile.
    pub(super) fn check_early(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let answered = |figures| self.early.is_answered(id, &figures);
        if self.flows.get(id.0).map(|flow| flow.stats.read()).is_some_and(answered) {
            self.early_ended(out, id);
        }
    }

    /// The handshake of a connection has ended.
    fn early_ended(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        let Some(early) = self.forget_early(out, id) else { return };
        let Some(flow) = self.flows.get_mut(id.0).filter(|flow| flow.engine == EngineState::Engine) else { return };
        let home = flow.name();
        // Connections that several processes have are not recorded.
        let alone = flow.names.iter().count() == 1 && !flow.marks.logged;
        let Some(context) = self.contexts.get(home.context.0).filter(|_| alone) else { return };
        let record = record_of(flow, &early.open, context.end.region_number());
        flow.record = out.journal.add(record);
    }

    /// A connection is over, or its handshake: it counts no more among those of its listener.
    pub(super) fn forget_early(&mut self, out: &mut Outbox<'_>, id: FlowId) -> Option<EarlyFlow> {
        let early = self.early.end(out, id)?;
        if let Some(listener) = self.bindings.listener(early.binding) {
            listener.early.queue.end();
        }
        Some(early)
    }

    /// The peer resets a connection: where it has not acknowledged the SYN-ACK, that counts (RFC 7413 section 5.1).
    pub(super) fn early_reset(&mut self, out: &mut Outbox<'_>, id: FlowId) {
        if !self.early.has(id) {
            return;
        }
        // The reset itself is the last segment that was counted.
        self.early.expect_one_more(id);
        self.check_early(out, id);
        if let Some(early) = self.early.end(out, id) {
            if let Some(listener) = self.bindings.listener(early.binding) {
                listener.early.queue.reset(out.now);
            }
        }
    }

    /// A program has written the first bytes of an attempt whose SYN waits for them. `None` where none does.
    pub(super) fn syn_data(&mut self, out: &mut Outbox<'_>, id: ContextId, tag: u32, len: u32) -> Option<()> {
        let key = *self.contexts.get(id.0)?.connects.get(&tag)?;
        let room = self.handshakes.awaits(key)?;
        let Owner::Connect { slot, .. } = self.handshakes.get(key)?.owner else { return None };
        let context = self.contexts.get_mut(id.0)?;
        let Ok((_, tx)) = context.slots.begin(slot.index, false, &context.end) else {
            self.fail_half_open(out, key, libc::ENOMEM);
            return Some(());
        };
        let mut data = vec![0; len.min(room.into()) as usize];
        tx.read(0, &mut data);
        self.handshakes.give_data(key, data, len.min(tx.size()));
        self.handshakes.send_syn(out, key);
        Some(())
    }
}
