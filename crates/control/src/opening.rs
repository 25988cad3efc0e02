//! Opening connections: from a request or a SYN to a flow that an engine runs.
use crate::connections::Stage;
use crate::openings::{Opening, Owner};
use crate::outbox::Outbox;
use crate::plane::{MILLISECOND, Plane};
use crate::timers::Timer;
use crate::traced;
use ::tcp::congestion::CongestionName;
use ::tcp::{ChallengeLimit, DCTCP_ECN_TRIES, Disposition, Established, Handshake, Offer, Segment};
use context::{Reply, Slot};
use engine::stream::FourTuple;
use engine::{ContextId, DropReason, Nanos};
use port::Frame;
use trace::{NO_FLOW, Point};
use wire::tcp::Header;
use wire::{Mac, Seq, ipv4, tcp};

/// Frames kept for one connection that waits to be accepted.
const HELD_PER_CONNECTION: usize = 4;

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
}

impl Plane {
    // Meets RFC 9293: MUST-67.
    pub fn offer(&self, out: &mut Outbox<'_>, tuple: &FourTuple, mss: u16) -> Offer {
        let most = out.net.link_towards(tuple.remote_ip).caps.mtu - (ipv4::HEADER_LEN + tcp::HEADER_LEN) as u16;
        let shift = self.config.window_shift();
        // Which slot it will have is not known yet: the window is that of the smallest buffer.
        let geometry = self.config.memory.geometry();
        let rx_bytes = geometry.rx_len(geometry.slots - 1);
        // Where the peer does not scale, such an engine's windows are read smaller than they are. What the handshake told
        // must not be more, or the window's edge would move back (RFC 9293 section 3.8.6).
        let first = if self.carries.one_shift { rx_bytes >> shift } else { rx_bytes };
        Offer {
            mss: if mss == 0 { most } else { most.min(mss) },
            shift,
            window: first.min(u16::MAX as u32) as u16,
            ecn: self.config.ecn,
            ecn_tries: 1,
            timestamp_offset: self.random.timestamp_offset(tuple),
            timestamps: self.carries.timestamps,
            sack: self.carries.sack,
        }
    }

    /// An initial sequence number, above one that was used before where that is given.
    fn isn(&self, now: Nanos, tuple: &FourTuple, above: Option<Seq>) -> Seq {
        let isn = self.random.isn(tuple, now);
        above.map_or(isn, |least| isn.max(least))
    }

    /// There is room for one more connection in the engine, counting those being opened.
    pub fn has_flow_room(&self) -> bool {
        self.flows.len() + self.openings.len() < self.config.max_flows as usize && !self.openings.is_full()
    }

    /// Active open.
    pub fn open(&mut self, out: &mut Outbox<'_>, connect: Connect) {
        let Connect { context, tag, slot, binding, tuple, congestion, mss, above } = connect;
        let mut offer = self.offer(out, &tuple, mss);
        if congestion.needs.exact_marks {
            offer.ecn_tries = DCTCP_ECN_TRIES;
        }
        let handshake = Handshake::connect(out.now, self.isn(out.now, &tuple, above), offer);
        let owner = Owner::Connect { context, tag, slot, binding };
        if let Some(key) = self.start(tuple, handshake, owner, congestion, None) {
            if let Some(context) = self.contexts.get_mut(context.0) {
                context.connects.insert(tag, key);
            }
            self.send_syn(out, key);
        }
    }

    pub fn start(
        &mut self,
        tuple: FourTuple,
        handshake: Handshake,
        owner: Owner,
        congestion: CongestionName,
        peer_mac: Option<Mac>,
    ) -> Option<u32> {
        let opening = Opening {
            tuple,
            handshake,
            owner,
            congestion,
            rto: self.config.timers.syn_rto_ms as Nanos * MILLISECOND,
            tries: 0,
            unsent: false,
            soft_error: None,
            peer_mac,
            open: None,
            challenges: ChallengeLimit::default(),
            held: Vec::new(),
        };
        let key = self.openings.insert(opening)?;
        self.connections.set(tuple, Stage::Opening(key));
        Some(key)
    }

    /// Sends the SYN of the present state, and again later. Where the next hop does not answer ARP yet, the SYN is
    /// sent as soon as it does: of many at once, ARP would keep one.
    pub fn send_syn(&mut self, out: &mut Outbox<'_>, key: u32) {
        let Some(opening) = self.openings.get_mut(key) else { return };
        let tuple = opening.tuple;
        out.timers.set(Timer::Opening(key), out.now + opening.rto);
        // A stranger's SYN is answered to the station that it came from: asking ARP for each address that a flood makes up
        // would fill the table.
        if opening.peer_mac.is_some() && matches!(opening.owner, Owner::Listener(_)) {
            let (header, mac) = (opening.handshake.syn(out.now, &tuple), opening.peer_mac);
            self.tracer.event(Point::SynSent, NO_FLOW, traced::ends(&tuple));
            return out.answer(&tuple, header, mac);
        }
        opening.unsent = !out.net.reaches(out.now, tuple.remote_ip);
        if !opening.unsent {
            let header = opening.handshake.syn(out.now, &tuple);
            self.tracer.event(Point::SynSent, NO_FLOW, traced::ends(&tuple));
            out.send_tcp(&tuple, header);
        }
    }

    /// No answer to a SYN or SYN-ACK.
    // Meets RFC 9293: MUST-22, MUST-47, SHLD-25.
    pub fn opening_due(&mut self, out: &mut Outbox<'_>, key: u32) {
        let timers = &self.config.timers;
        let (most, longest) = (timers.syn_retries, timers.max_rto_ms as Nanos * MILLISECOND);
        let most_passive = timers.syn_ack_retries;
        let Some(opening) = self.openings.get_mut(key) else { return };
        opening.tries += 1;
        opening.rto = (opening.rto * 2).min(longest);
        let remote = traced::ends(&opening.tuple)[1];
        self.tracer.event(Point::SynTimeout, NO_FLOW, [remote, opening.tries.into()]);
        let most = if matches!(opening.owner, Owner::Listener(_)) { most_passive } else { most };
        if opening.tries > most {
            let errno = opening.soft_error.unwrap_or(libc::ETIMEDOUT);
            return self.fail_opening(out, key, errno);
        }
        self.send_syn(out, key);
    }

    /// A SYN for a listener (RFC 9293 section 3.10.7.2).
    pub fn on_listen(&mut self, out: &mut Outbox<'_>, segment: &Segment, src_mac: Mac, above: Option<Seq>) {
        let local = segment.tuple.local();
        let spread = self.random.spread(&segment.tuple);
        let Some(binding) = self.listener_for(local, spread) else {
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
        self.tracer.event(Point::SynReceived, NO_FLOW, traced::ends(&segment.tuple));
        if self.flows.len() >= self.config.max_flows as usize {
            return out.drops.count(DropReason::FlowTable);
        }
        if shm::reserve::is_short() {
            return out.drops.count(DropReason::NoMemory);
        }
        // Strangers leave room for connections that this host's own programs open.
        let crowded = !self.has_flow_room() || self.openings.len() >= self.config.limits.max_openings as usize / 4 * 3;
        // Apart from the backlog, which is for connections that wait to be accepted: as Linux's tcp_max_syn_backlog and
        // somaxconn are two figures. A storm of ordinary clients ends its handshakes, however short the backlog is, and
        // cookies are for what does not end.
        let most = self.config.limits.syn_backlog;
        let Some(listener) = self.bindings.listener(binding) else { return };
        if listener.ready.len() as u32 >= listener.backlog {
            return out.drops.count(DropReason::Backlog);
        }
        if crowded || listener.half_open >= most {
            // A cookie cannot be kept above the last connection's sequence number: then the peer asks again.
            return match above {
                None if self.config.limits.syn_cookies => self.send_cookie(out, binding, segment, src_mac),
                _ => out.drops.count(DropReason::Backlog),
            };
        }
        listener.half_open += 1;
        let tuple = segment.tuple;
        let handshake =
            Handshake::listen(out.now, self.isn(out.now, &tuple, above), self.offer(out, &tuple, 0), segment);
        let congestion = self.config.default_congestion();
        if let Some(key) = self.start(tuple, handshake, Owner::Listener(binding), congestion, Some(src_mac)) {
            self.send_syn(out, key);
        }
    }

    /// A segment for a connection being opened. Gives the frame back where it is not kept.
    pub fn on_opening_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        segment: &Segment,
        src_mac: Mac,
        frame: Box<Frame>,
    ) -> Option<Box<Frame>> {
        let overrun = self.is_overrun(key);
        let opening = self.openings.get_mut(key)?;
        opening.peer_mac = Some(src_mac);
        if let Some(open) = opening.open {
            return self.on_waiting_segment(out, key, segment, &open, (src_mac, frame));
        }
        let tuple = opening.tuple;
        match opening.handshake.on_segment(out.now, segment) {
            Disposition::Drop(reason) => out.drops.count(reason.into()),
            Disposition::Challenge(reason) => {
                let ack = opening.handshake.ack(out.now, &tuple);
                out.drops.count(reason.into());
                self.challenge_opening(out, key, ack, src_mac);
            }
            Disposition::Reset(seq) => {
                let stamp = opening.handshake.ack(out.now, &tuple).options.timestamps;
                out.reset(&tuple, seq, None, stamp);
            }
            Disposition::Resend => {
                let header = opening.handshake.syn(out.now, &tuple);
                self.challenge_opening(out, key, header, src_mac);
            }
            Disposition::Refused => self.fail_opening(out, key, libc::ECONNREFUSED),
            // The peer will see the SYN-ACK again, and there may be room then.
            Disposition::Established(_) if overrun => out.drops.count(DropReason::Backlog),
            Disposition::Established(open) => {
                if open.acknowledge {
                    let ack = opening.handshake.ack(out.now, &tuple);
                    out.answer(&tuple, ack, Some(src_mac));
                }
                return self.opened(out, key, open, frame);
            }
        }
        Some(frame)
    }

    /// Answers a segment that a stranger may have sent, within the connection's limit. The answer goes to the station
    /// that the segment came from, where ARP does not know it: one that waits for ARP may leave when the connection has
    /// ended, and begin it anew.
    fn challenge_opening(&mut self, out: &mut Outbox<'_>, key: u32, header: Header, station: Mac) {
        let most = self.config.limits.challenges_per_interval();
        let Some(opening) = self.openings.get_mut(key) else { return };
        if opening.challenges.allow_of(out.now, most) {
            let tuple = opening.tuple;
            out.answer(&tuple, header, Some(station));
        } else {
            out.drops.count(DropReason::ChallengeLimit);
        }
    }

    /// So many connections of the listener wait for a context that no other one may.
    fn is_overrun(&self, key: u32) -> bool {
        let Some(Owner::Listener(binding)) = self.openings.get(key).map(|opening| opening.owner) else { return false };
        let listener = self.bindings.get(binding).and_then(|binding| binding.listener.as_ref());
        listener.is_some_and(|listener| listener.ready.len() as u32 >= listener.backlog)
    }

    /// The handshake is done. Gives the frame back unless it has payload for the engine.
    fn opened(&mut self, out: &mut Outbox<'_>, key: u32, open: Established, frame: Box<Frame>) -> Option<Box<Frame>> {
        out.timers.cancel(Timer::Opening(key));
        let opening = self.openings.get_mut(key)?;
        opening.open = Some(open);
        self.tracer.event(Point::Established, NO_FLOW, traced::ends(&opening.tuple));
        let owner = opening.owner;
        let frame = if open.pass_on { self.hold(out, key, frame) } else { Some(frame) };
        match owner {
            Owner::Connect { context, tag, slot, binding } => match self.install(out, key, context, slot) {
                Some(mss) => {
                    let local = self.openings.get(key)?.tuple.local();
                    if let Some(context) = self.contexts.get_mut(context.0) {
                        context.connects.remove(&tag);
                    }
                    self.finish_opening(out, key);
                    if binding != 0 {
                        self.unbind(out, context, binding);
                    }
                    self.contexts.reply(context, Reply::Connected { tag, slot, local, mss });
                }
                None => self.fail_opening(out, key, libc::ENOMEM),
            },
            Owner::Listener(binding) => {
                if let Some(listener) = self.bindings.listener(binding) {
                    listener.half_open -= 1;
                    listener.ready.push_back(key);
                }
                self.place(out, binding);
            }
        }
        frame
    }

    /// A segment for an open connection that no context has taken yet. A few frames are kept; the rest comes again.
    fn on_waiting_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        segment: &Segment,
        open: &Established,
        (src_mac, frame): (Mac, Box<Frame>),
    ) -> Option<Box<Frame>> {
        let rcv_nxt = open.irs + 1;
        if segment.rst() {
            match segment.header.seq == rcv_nxt {
                true => self.fail_opening(out, key, libc::ECONNRESET),
                false => out.drops.count(DropReason::OutsideWindow),
            }
            return Some(frame);
        }
        if segment.syn() {
            // The peer has not seen the last acknowledgement of its SYN.
            let opening = self.openings.get(key)?;
            let ack = opening.handshake.ack(out.now, &opening.tuple);
            self.challenge_opening(out, key, ack, src_mac);
            return Some(frame);
        }
        if segment.len() == 0 {
            return Some(frame);
        }
        self.hold(out, key, frame)
    }

    /// Keeps a frame for the engine, within limits.
    fn hold(&mut self, out: &mut Outbox<'_>, key: u32, mut frame: Box<Frame>) -> Option<Box<Frame>> {
        let most = self.config.limits.held_frames;
        let opening = self.openings.get_mut(key)?;
        if opening.held.len() >= HELD_PER_CONNECTION || self.frames.held >= most {
            out.drops.count(DropReason::NotAccepted);
            return Some(frame);
        }
        // What the frame refers to is another host's memory, which does not wait.
        frame.flatten();
        opening.held.push(frame);
        self.frames.held += 1;
        None
    }

    /// A connection attempt, or a connection that nobody has taken, has failed.
    pub fn fail_opening(&mut self, out: &mut Outbox<'_>, key: u32, errno: i32) {
        let Some(opening) = self.openings.get(key) else { return };
        let (tuple, owner, open, iss) = (opening.tuple, opening.owner, opening.open, opening.handshake.iss);
        self.tracer.event(Point::OpeningFailed, NO_FLOW, [traced::ends(&tuple)[1], errno as u64]);
        if open.is_some() && errno != libc::ECONNRESET {
            let stamp = open.and_then(|open| open.timestamps()).map(|state| state.stamp(out.now));
            out.reset(&tuple, iss + 1, open.map(|open| open.irs + 1), stamp);
        }
        match owner {
            Owner::Connect { context, tag, slot, .. } => {
                self.forget_connect(out, context, tag, slot);
                self.contexts.reply(context, Reply::Failed { tag, errno: errno as u16 });
            }
            Owner::Listener(binding) => {
                if let Some(listener) = self.bindings.listener(binding) {
                    match open {
                        Some(_) => listener.ready.retain(|other| *other != key),
                        None => listener.half_open -= 1,
                    }
                }
            }
        }
        self.connections.remove(&tuple);
        self.finish_opening(out, key);
    }

    /// The application gave a connection attempt up.
    pub fn cancel_connect(&mut self, out: &mut Outbox<'_>, context: ContextId, tag: u32) {
        let Some(key) = self.contexts.get(context.0).and_then(|context| context.connects.get(&tag).copied()) else {
            // It has been opened or has failed meanwhile: the reply is on its way.
            return;
        };
        let Some(opening) = self.openings.get(key) else { return };
        let (tuple, owner, header) = (opening.tuple, opening.owner, opening.handshake.ack(out.now, &opening.tuple));
        if header.ack != Seq(0) {
            out.reset(&tuple, header.seq, Some(header.ack), header.options.timestamps);
        }
        if let Owner::Connect { context, tag, slot, .. } = owner {
            self.forget_connect(out, context, tag, slot);
        }
        self.connections.remove(&tuple);
        self.finish_opening(out, key);
    }

    fn forget_connect(&mut self, out: &mut Outbox<'_>, context: ContextId, tag: u32, slot: Slot) {
        if let Some(context) = self.contexts.get_mut(context.0) {
            context.connects.remove(&tag);
        }
        self.free_slot(out, context, slot);
    }

    pub fn finish_opening(&mut self, out: &mut Outbox<'_>, key: u32) {
        out.timers.cancel(Timer::Opening(key));
        if let Some(opening) = self.openings.remove(key) {
            self.frames.spend(opening.held);
        }
    }
}
