//! Half-open connections: from a request or a SYN to a flow that an engine runs.
use super::ControlPlane;
use super::fast_open::Syn;
use crate::half_open::Owner;
use crate::handshakes::{self, Answered, Cookie, EarlySyn, Listening, Start};
use crate::offers::Ecn;
use crate::outbox::Outbox;
use crate::traced;
use ::tcp::congestion::CongestionName;
use ::tcp::fast_open::Verdict;
use ::tcp::{DCTCP_ECN_TRIES, Handshake, Segment, reset_for};
use context::{EarlyData, Reply, Slot};
use engine::stream::FourTuple;
use engine::{ContextId, DropReason};
use port::Frame;
use trace::{NO_FLOW, Point};
use wire::{Mac, Seq};

/// A request for a connection, checked.
pub(crate) struct Connect {
    pub context: ContextId,
    pub tag: u32,
    pub slot: Slot,
    /// Binding of the local port, 0 for none: it stays where the attempt fails, and ends with a connection.
    pub binding: u32,
    pub tuple: FourTuple,
    pub congestion: CongestionName,
    /// `TCP_MAXSEG`; 0 for none.
    pub mss: u16,
    /// The least initial sequence number, where a connection in TIME-WAIT is reused.
    pub above: Option<Seq>,
    /// Its SYN is to carry data.
    pub early: EarlyData,
}

impl ControlPlane {
    /// There is room for one more connection in the engine, counting those being opened.
    pub(super) fn has_flow_room(&self, out: &Outbox<'_>) -> bool {
        self.handshakes.has_room_beside(out, self.flows.len())
    }

    /// Active open.
    pub(super) fn open(&mut self, out: &mut Outbox<'_>, connect: Connect) {
        let Connect { context, tag, slot, binding, tuple, congestion, mss, above, early } = connect;
        let mut offer = self.handshakes.offer(out, &tuple, congestion, mss);
        offer.ecn &= self.handshakes.offers().ecn == Ecn::On;
        if congestion.needs.exact_marks {
            offer.ecn_tries = DCTCP_ECN_TRIES;
        }
        let handshake = Handshake::connect(out.now, handshakes::isn(out, &tuple, above), offer);
        let owner = Owner::Connect { context, tag, slot, binding };
        let start = Start { tuple, handshake, owner, congestion, peer_mac: None };
        let early = self.handshakes.early_syn(out, &tuple, early, offer.mss);
        let Some(key) = self.handshakes.start(out, &mut self.connections, start) else { return };
        let Some(end) = self.contexts.get_mut(context.0) else { return };
        end.connects.insert(tag, key);
        let local = tuple.local();
        if let EarlySyn::Waits(cookie, room) = early {
            // The application writes into the slot's buffer, which another connection may have had before.
            let Ok((_, tx)) = end.slots.begin(slot.index, false, &end.end) else {
                return self.fail_half_open(out, key, libc::ENOMEM);
            };
            let room = tx.size().min(room.into()) as u16;
            self.handshakes.begin_early(key, EarlySyn::Waits(cookie, room));
            return self.contexts.reply(context, Reply::Connecting { tag, local, slot, room });
        }
        self.handshakes.begin_early(key, early);
        self.contexts.reply(context, Reply::Connecting { tag, local, slot, room: 0 });
        self.handshakes.send_syn(out, key);
    }

    /// An attempt sends its SYN again at most so often. `None` where there is no such attempt.
    pub(super) fn limit_tries(&mut self, id: ContextId, tag: u32, most: u8) -> Option<()> {
        let context = self.contexts.get(id.0)?;
        // One that has ended meanwhile needs no limit: its reply is on the way.
        context.connects.get(&tag).into_iter().for_each(|key| self.handshakes.limit_tries(*key, most));
        Some(())
    }

    /// No answer to a SYN or SYN-ACK.
    pub(super) fn half_open_due(&mut self, out: &mut Outbox<'_>, key: u32) {
        if let Some(errno) = self.handshakes.due(out, key) {
            self.fail_half_open(out, key, errno);
        }
    }

    /// The listener that a segment is for.
    fn listener_of(&self, out: &Outbox<'_>, segment: &Segment) -> Option<u32> {
        self.bindings.listener_of(&self.contexts, segment.tuple.local(), || out.random.spread(&segment.tuple))
    }

    /// Answers a segment that belongs to no connection.
    fn refuse(&mut self, out: &mut Outbox<'_>, segment: &Segment) {
        out.drops.count(DropReason::NoFlow);
        out.counters.refused += u64::from(segment.syn() && !segment.ack() && !segment.rst());
        if let Some(reset) = reset_for(segment) {
            if self.resets.take(out.now) {
                out.send_tcp(&segment.tuple, reset);
            }
        }
    }

    /// A SYN for a listener (RFC 9293 section 3.10.7.2).
    pub(super) fn on_listen(&mut self, out: &mut Outbox<'_>, syn: Syn<'_>, frame: Option<&mut Frame>) {
        let segment = syn.segment;
        let Some(binding) = self.listener_of(out, segment) else {
            return self.refuse(out, segment);
        };
        if segment.rst() {
            return out.drops.count(DropReason::NoFlow);
        }
        if segment.ack() {
            // "Any acknowledgment is bad if it arrives on a connection still in the LISTEN state": reset.
            return self.refuse(out, segment);
        }
        if !segment.syn() {
            // "Any other control or data-bearing segment (not containing SYN)": drop.
            return out.drops.count(DropReason::NoAck);
        }
        self.on_syn(out, binding, syn, frame);
    }

    /// A SYN for a listener: it begins a handshake, within the limits of host and listener.
    fn on_syn(&mut self, out: &mut Outbox<'_>, binding: u32, syn: Syn<'_>, frame: Option<&mut Frame>) {
        let Syn { segment, station: src_mac, above } = syn;
        out.tracer.event(Point::SynReceived, NO_FLOW, traced::ends(&segment.tuple));
        if self.flows.len() >= out.config.max_flows as usize {
            return out.refuse(DropReason::FlowTable);
        }
        if shm::reserve::is_short() {
            return out.refuse(DropReason::NoMemory);
        }
        // Unknown peers leave room for connections that this host's own programs open.
        let crowded =
            !self.has_flow_room(out) || self.handshakes.len() >= out.config.limits.max_handshakes as usize / 4 * 3;
        // Apart from the backlog, which is for connections that wait to be accepted: as Linux's tcp_max_syn_backlog and
        // somaxconn are two figures. A storm of ordinary clients ends its handshakes, however short the backlog is, and
        // cookies are for what does not end.
        let most = out.config.limits.syn_backlog;
        let Some(listener) = self.bindings.listener(binding) else { return };
        if listener.ready.len() as u32 >= listener.backlog {
            return out.refuse(DropReason::Backlog);
        }
        if crowded || listener.half_open >= most {
            // A cookie cannot be kept above the last connection's sequence number: then the peer asks again.
            return match above {
                None if out.config.limits.syn_cookies => self.handshakes.send_cookie(out, listener, segment, src_mac),
                _ => out.refuse(DropReason::Backlog),
            };
        }
        let cookie = match self.judge_early(out, binding, segment) {
            Verdict::Ordinary => None,
            Verdict::Offer(cookie) => Some(cookie),
            Verdict::Open(cookie) => {
                if frame.and_then(|frame| self.open_early(out, binding, &syn, cookie, frame)).is_some() {
                    return;
                }
                cookie
            }
        };
        if let Some(listener) = self.bindings.listener(binding) {
            listener.half_open += 1;
        }
        let tuple = segment.tuple;
        let (congestion, owner) = (out.config.default_congestion(), Owner::Listener(binding));
        let mss = self.bindings.segment_size(binding);
        let (isn, offer) = (handshakes::isn(out, &tuple, above), self.handshakes.offer(out, &tuple, congestion, mss));
        let handshake = Handshake::listen(out.now, isn, offer, segment).with_cookie(cookie);
        let start = Start { tuple, handshake, owner, congestion, peer_mac: Some(src_mac) };
        if let Some(key) = self.handshakes.start(out, &mut self.connections, start) {
            self.handshakes.send_syn(out, key);
        }
    }

    /// A segment of no connection may bring back a cookie.
    pub(super) fn half_open_of_cookie(
        &mut self,
        out: &mut Outbox<'_>,
        segment: &Segment,
        src_mac: Mac,
    ) -> Option<Cookie> {
        if !handshakes::may_return(segment) {
            return None;
        }
        let (binding, room) = (self.listener_of(out, segment)?, self.has_flow_room(out));
        let ControlPlane { bindings, connections, .. } = self;
        self.handshakes.of_cookie(out, Listening { bindings, connections, binding }, segment, src_mac, room)
    }

    /// A segment for a connection being opened. Gives the frame back where it is not kept.
    pub(super) fn on_half_open_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        segment: &Segment,
        src_mac: Mac,
        frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        let overrun = match self.handshakes.get(key)?.owner {
            Owner::Listener(binding) => self.bindings.is_overrun(binding),
            Owner::Connect { .. } => false,
        };
        match self.handshakes.on_segment(out, key, segment, src_mac, frame, overrun) {
            Answered::Done(frame) => frame,
            Answered::Failed(errno, frame) => {
                self.fail_half_open(out, key, errno);
                Some(frame)
            }
            Answered::Opened(owner, frame) => {
                self.opened(out, key, owner);
                frame
            }
        }
    }

    /// The handshake is done.
    fn opened(&mut self, out: &mut Outbox<'_>, key: u32, owner: Owner) {
        match self.with_slot_for_path(out, key, owner) {
            Owner::Connect { context, tag, slot, binding } => match self.install(out, key, context, slot) {
                Some((_, mss)) => {
                    let Some(half_open) = self.handshakes.get(key) else { return };
                    let local = half_open.tuple.local();
                    let early = half_open.open.map_or(0, |open| open.early) as u16;
                    if let Some(context) = self.contexts.get_mut(context.0) {
                        context.connects.remove(&tag);
                    }
                    self.handshakes.finish(out, key);
                    if binding != 0 {
                        self.unbind(out, context, binding);
                    }
                    self.contexts.reply(context, Reply::Connected { tag, slot, local, mss, early });
                }
                None => self.fail_half_open(out, key, libc::ENOMEM),
            },
            Owner::Listener(binding) => {
                if let Some(listener) = self.bindings.listener(binding) {
                    listener.half_open -= 1;
                    listener.ready.push_back(key);
                }
                self.place(out, binding);
            }
        }
    }

    /// A connection attempt, or a connection that no application took, has failed.
    pub(super) fn fail_half_open(&mut self, out: &mut Outbox<'_>, key: u32, errno: i32) {
        let Some(half_open) = self.handshakes.report_failed(out, key, errno) else { return };
        let (tuple, owner, open) = (half_open.tuple, half_open.owner, half_open.open.is_some());
        match owner {
            _ if open => out.counters.closed += 1,
            Owner::Connect { .. } => out.counters.failed += 1,
            Owner::Listener(_) => {}
        }
        match owner {
            Owner::Connect { context, tag, slot, .. } => {
                self.forget_connect(out, context, tag, slot);
                self.contexts.reply(context, Reply::Failed { tag, errno: errno as u16 });
            }
            Owner::Listener(binding) => {
                if let Some(listener) = self.bindings.listener(binding) {
                    match open {
                        true => listener.ready.retain(|other| *other != key),
                        false => listener.half_open -= 1,
                    }
                }
            }
        }
        self.connections.remove(&tuple);
        self.handshakes.finish(out, key);
    }

    /// The application gave a connection attempt up.
    pub(super) fn cancel_connect(&mut self, out: &mut Outbox<'_>, context: ContextId, tag: u32) {
        let Some(key) = self.contexts.get(context.0).and_then(|context| context.connects.get(&tag).copied()) else {
            // It has been opened or has failed meanwhile: the reply is on its way.
            return;
        };
        let Some(half_open) = self.handshakes.report_cancelled(out, key) else { return };
        let (tuple, owner) = (half_open.tuple, half_open.owner);
        if let Owner::Connect { context, tag, slot, .. } = owner {
            self.forget_connect(out, context, tag, slot);
        }
        self.connections.remove(&tuple);
        self.handshakes.finish(out, key);
    }

    fn forget_connect(&mut self, out: &mut Outbox<'_>, context: ContextId, tag: u32, slot: Slot) {
        if let Some(context) = self.contexts.get_mut(context.0) {
            context.connects.remove(&tag);
        }
        self.contexts.free_slot(out, context, slot);
    }
}
