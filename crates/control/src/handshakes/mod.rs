//! Half-open connections (RFC 9293 sections 3.5 and 3.10.7.3): their handshakes and SYN timers, and input for those
//! that wait for an application.
mod early;
mod syn_cookies;

pub(crate) use early::EarlySyn;
pub(crate) use syn_cookies::{Cookie, Listening, may_return};

use crate::config::HostConfig;
use crate::connections::{Connections, Lifecycle};
use crate::half_open::{HalfOpen, Owner, SynData};
use crate::offers::Offers;
use crate::outbox::Outbox;
use crate::timers::{MILLISECOND, Timer};
use crate::traced;
use crate::used_syn_cookies::UsedCookies;
use ::host::{Cause, Slab};
use ::tcp::congestion::CongestionName;
use ::tcp::fast_open::Cookies;
use ::tcp::{ChallengeLimit, Disposition, Established, Handshake, Offer, Segment};
use engine::stream::{Carries, FourTuple};
use engine::{DropReason, Nanos};
use port::Frame;
use std::ops::Deref;
use trace::{NO_FLOW, Point};
use wire::tcp::Header;
use wire::{IpAddress, Mac, Seq, ip, tcp};

/// Frames kept for one connection that waits to be accepted.
const HELD_PER_CONNECTION: usize = 4;

/// The connections of a host that are being opened.
pub(crate) struct Handshakes {
    all: Slab<HalfOpen>,
    used_cookies: UsedCookies,
    /// Frames that are kept for connections that are not accepted yet.
    held: u32,
    /// The Fast Open cookies of peers.
    cookies: Cookies,
    /// Extensions of TCP that the engine carries.
    carries: Carries,
    /// Those of them that connections may agree on.
    offers: Offers,
}

/// A connection that begins to be opened.
pub(crate) struct Start {
    pub tuple: FourTuple,
    pub handshake: Handshake,
    pub owner: Owner,
    pub congestion: CongestionName,
    /// The station that the SYN came from, where one came.
    pub peer_mac: Option<Mac>,
}

/// The fate of a segment for a connection being opened.
pub(crate) enum Answered {
    /// It is dealt with. The frame, unless it is kept.
    Done(Option<Box<Frame>>),
    /// The connection fails with this error number.
    Failed(i32, Box<Frame>),
    /// The handshake is done. The frame, unless it is kept.
    Opened(Owner, Option<Box<Frame>>),
}

/// The effect of an ICMP error on a connection being opened.
pub(crate) enum IcmpEffect {
    /// It does not count.
    Nothing,
    /// It is the reason if no answer comes (RFC 9293 section 3.9.2.2).
    Soft,
    /// The attempt fails with this error number.
    Fails(i32),
}

impl Deref for Handshakes {
    type Target = Slab<HalfOpen>;
    fn deref(&self) -> &Slab<HalfOpen> {
        &self.all
    }
}

impl Handshakes {
    pub(crate) fn new(config: &HostConfig, carries: Carries) -> Handshakes {
        let limits = &config.limits;
        let (all, cookies) = (Slab::new(limits.max_handshakes), Cookies::new(limits.fast_open_peers));
        let (used_cookies, offers) = (UsedCookies::default(), Offers::of(config));
        Handshakes { all, used_cookies, held: 0, cookies, carries, offers }
    }

    /// Cookies of peers are forgotten.
    pub(crate) fn forget_peers(&mut self, config: &HostConfig) {
        self.cookies = Cookies::new(config.limits.fast_open_peers);
    }

    /// What later connections offer and accept.
    pub(crate) fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Later connections offer and accept this.
    pub(crate) fn set_offers(&mut self, offers: Offers) {
        self.offers = offers;
    }

    /// Frames that are kept for connections that are not accepted yet.
    pub(crate) fn held_frames(&self) -> u32 {
        self.held
    }

    /// There is room for one more connection in the engine, which has so many, counting those being opened.
    pub(crate) fn has_room_beside(&self, out: &Outbox<'_>, flows: usize) -> bool {
        flows + self.len() < out.config.max_flows as usize && !self.is_full()
    }

    /// Options that this host offers to a peer.
    // Meets RFC 9293: MUST-67.
    pub(crate) fn offer(&self, out: &Outbox<'_>, tuple: &FourTuple, congestion: CongestionName, mss: u16) -> Offer {
        let most =
            // Meets RFC 8200: 8.3-a.
            out.net.link_towards(tuple.remote_ip).caps.mtu - (ip::header_len(tuple.remote_ip) + tcp::HEADER_LEN) as u16;
        let shift = out.config.window_shift();
        // Which slot it will have is not known yet: the window is that of the smallest buffer.
        let geometry = out.config.memory.geometry();
        let rx_bytes = geometry.rx_len(geometry.slots - 1);
        let offer = Offer {
            mss: if mss == 0 { most } else { most.min(mss) },
            shift,
            window: rx_bytes.min(u16::MAX as u32) as u16,
            ecn: self.carries.echoes_until_cwr || congestion.needs.exact_marks,
            ecn_tries: 1,
            timestamp_offset: out.random.timestamp_offset(tuple),
            timestamps: self.carries.timestamps,
            sack: self.carries.sack,
        };
        self.offers.limit(offer)
    }

    /// Adds a connection; `None` where there is no room.
    pub(crate) fn start(&mut self, out: &Outbox<'_>, connections: &mut Connections, start: Start) -> Option<u32> {
        let Start { tuple, handshake, owner, congestion, peer_mac } = start;
        let half_open = HalfOpen {
            tuple,
            handshake,
            owner,
            congestion,
            rto: out.config.timers.syn_rto_ms as Nanos * MILLISECOND,
            tries: 0,
            most_tries: None,
            unsent: false,
            soft_error: None,
            peer_mac,
            open: None,
            challenges: ChallengeLimit::default(),
            early: SynData::No,
            held: Vec::new(),
        };
        let key = self.all.insert(half_open)?;
        connections.set(tuple, Lifecycle::HalfOpen(key));
        Some(key)
    }

    /// Its SYN is sent again at most so often.
    pub(crate) fn limit_tries(&mut self, key: u32, most: u8) {
        if let Some(half_open) = self.all.get_mut(key) {
            half_open.most_tries = Some(most);
        }
    }

    /// Another slot is the connection's.
    pub(crate) fn set_owner(&mut self, key: u32, owner: Owner) {
        if let Some(half_open) = self.all.get_mut(key) {
            half_open.owner = owner;
        }
    }

    /// Goes on with another host's; `None` where there is no room.
    pub(crate) fn go_on(
        &mut self,
        out: &mut Outbox<'_>,
        connections: &mut Connections,
        key: u32,
        half_open: HalfOpen,
    ) -> Option<()> {
        let (tuple, waits, rto) = (half_open.tuple, half_open.open.is_none(), half_open.rto);
        self.all.insert_at(key, half_open)?;
        connections.set(tuple, Lifecycle::HalfOpen(key));
        if waits {
            out.timers.set(Timer::HalfOpen(key), out.now + rto);
        }
        Some(())
    }

    /// Sends the SYN of the present state, and again later. Where the next hop does not answer ARP yet, the SYN is sent
    /// as soon as it does. Of many at once, ARP would keep one.
    pub(crate) fn send_syn(&mut self, out: &mut Outbox<'_>, key: u32) {
        let Some(half_open) = self.all.get_mut(key) else { return };
        let tuple = half_open.tuple;
        out.timers.set(Timer::HalfOpen(key), out.now + half_open.rto);
        // An unknown peer's SYN is answered to the station that it came from. Asking ARP for each address that a flood
        // makes up would fill the table.
        if half_open.peer_mac.is_some() && matches!(half_open.owner, Owner::Listener(_)) {
            let (header, mac) = (half_open.handshake.syn(out.now, &tuple), half_open.peer_mac);
            out.tracer.event(Point::SynSent, NO_FLOW, traced::ends(&tuple));
            return out.answer(&tuple, header, mac);
        }
        half_open.unsent = !out.net.reaches(out.now, tuple.remote_ip);
        if !half_open.unsent {
            let header = half_open.handshake.syn(out.now, &tuple);
            let data = half_open.take_data();
            out.tracer.event(Point::SynSent, NO_FLOW, traced::ends(&tuple));
            out.send_syn(&tuple, header, &data);
        }
    }

    /// No answer to a SYN or SYN-ACK. Returns the error number with which the connection fails, where it does.
    // Meets RFC 9293: MUST-22, MUST-47, SHLD-25.
    pub(crate) fn due(&mut self, out: &mut Outbox<'_>, key: u32) -> Option<i32> {
        let timers = &out.config.timers;
        let (most, longest) = (timers.syn_retries, timers.max_rto_ms as Nanos * MILLISECOND);
        let most_passive = timers.syn_ack_retries;
        let half_open = self.all.get_mut(key)?;
        half_open.tries += 1;
        half_open.rto = (half_open.rto * 2).min(longest);
        let remote = traced::ends(&half_open.tuple)[1];
        out.tracer.event(Point::SynTimeout, NO_FLOW, [remote, half_open.tries.into()]);
        let most = if matches!(half_open.owner, Owner::Listener(_)) { most_passive } else { most };
        let most = half_open.most_tries.map_or(most, u32::from);
        if half_open.tries > most {
            return Some(half_open.soft_error.unwrap_or(libc::ETIMEDOUT));
        }
        self.send_syn(out, key);
        None
    }

    /// A segment for a connection being opened. Where its listener is `overrun`, its handshake does not end.
    pub(crate) fn on_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        segment: &Segment,
        src_mac: Mac,
        frame: Box<Frame>,
        overrun: bool,
    ) -> Answered {
        let Some(half_open) = self.all.get_mut(key) else { return Answered::Done(None) };
        half_open.peer_mac = Some(src_mac);
        if half_open.early != SynData::No {
            // Nothing was sent: it is not for this connection.
            out.drops.count(DropReason::NoAck);
            return Answered::Done(Some(frame));
        }
        if let Some(open) = half_open.open {
            return self.on_waiting_segment(out, key, segment, &open, src_mac, frame);
        }
        let tuple = half_open.tuple;
        match half_open.handshake.on_segment(out.now, segment) {
            Disposition::Drop(reason) => out.drops.count(reason.into()),
            Disposition::Challenge(reason) => {
                let ack = half_open.handshake.ack(out.now, &tuple);
                out.drops.count(reason.into());
                self.challenge(out, key, ack, src_mac);
            }
            Disposition::Reset(seq) => {
                let stamp = half_open.handshake.ack(out.now, &tuple).options.timestamps;
                out.reset(&tuple, seq, None, stamp);
            }
            Disposition::Resend => {
                let header = half_open.handshake.syn(out.now, &tuple);
                self.challenge(out, key, header, src_mac);
            }
            Disposition::Refused => return Answered::Failed(libc::ECONNREFUSED, frame),
            // The peer will see the SYN-ACK again, and there may be room then.
            Disposition::Established(_) if overrun => out.drops.count(DropReason::Backlog),
            Disposition::Established(open) => {
                self.learn(out, key, segment);
                let Some(half_open) = self.all.get(key) else { return Answered::Done(Some(frame)) };
                if open.acknowledge {
                    let ack = half_open.handshake.ack(out.now, &tuple);
                    out.answer(&tuple, ack, Some(src_mac));
                }
                return self.opened(out, key, open, frame);
            }
        }
        Answered::Done(Some(frame))
    }

    /// Answers a segment that an unknown peer may have sent, within the connection's limit. The answer goes to the
    /// station that the segment came from, where ARP has no entry. One that waits for ARP may leave when the connection
    /// has ended, and begin it anew.
    fn challenge(&mut self, out: &mut Outbox<'_>, key: u32, header: Header, station: Mac) {
        let most = out.config.limits.challenges_per_interval();
        let Some(half_open) = self.all.get_mut(key) else { return };
        if half_open.challenges.allow_of(out.now, most) {
            let tuple = half_open.tuple;
            out.answer(&tuple, header, Some(station));
        } else {
            out.drops.count(DropReason::ChallengeLimit);
        }
    }

    /// The handshake is done. Keeps the frame where it has payload for the engine.
    fn opened(&mut self, out: &mut Outbox<'_>, key: u32, open: Established, frame: Box<Frame>) -> Answered {
        out.timers.cancel(Timer::HalfOpen(key));
        let Some(half_open) = self.all.get_mut(key) else { return Answered::Done(None) };
        half_open.open = Some(open);
        out.tracer.event(Point::Established, NO_FLOW, traced::ends(&half_open.tuple));
        let owner = half_open.owner;
        match owner {
            Owner::Connect { .. } => out.counters.opened += 1,
            Owner::Listener(_) => out.counters.accepted += 1,
        }
        open.rtt.into_iter().for_each(|time| out.counters.round_trips.record(time));
        let frame = if open.pass_on { self.hold(out, key, frame) } else { Some(frame) };
        Answered::Opened(owner, frame)
    }

    /// A segment for an open connection that no context has taken yet. A few frames are kept; the rest comes again.
    fn on_waiting_segment(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        segment: &Segment,
        open: &Established,
        src_mac: Mac,
        frame: Box<Frame>,
    ) -> Answered {
        let rcv_nxt = open.irs + 1;
        if segment.rst() {
            if segment.header.seq == rcv_nxt {
                return Answered::Failed(libc::ECONNRESET, frame);
            }
            out.drops.count(DropReason::OutsideWindow);
            return Answered::Done(Some(frame));
        }
        let Some(half_open) = self.all.get(key) else { return Answered::Done(Some(frame)) };
        let ack = half_open.handshake.ack(out.now, &half_open.tuple);
        // A SYN: the peer has not seen the last acknowledgement of it. Nothing new: a keepalive, which the peer sends
        // until it gives the connection up (RFC 9293 section 3.8.4).
        let is_old = segment.header.seq.before(ack.ack) && (segment.header.seq + segment.len()).at_or_before(ack.ack);
        if segment.syn() || is_old {
            self.challenge(out, key, ack, src_mac);
            return Answered::Done(Some(frame));
        }
        Answered::Done(if segment.len() == 0 { Some(frame) } else { self.hold(out, key, frame) })
    }

    /// Keeps a frame for the engine, within limits.
    fn hold(&mut self, out: &mut Outbox<'_>, key: u32, mut frame: Box<Frame>) -> Option<Box<Frame>> {
        let most = out.config.limits.held_frames;
        let half_open = self.all.get_mut(key)?;
        if half_open.held.len() >= HELD_PER_CONNECTION || self.held >= most {
            out.drops.count(DropReason::NotAccepted);
            return Some(frame);
        }
        // What the frame refers to is another host's memory, which does not wait.
        frame.flatten();
        half_open.held.push(frame);
        self.held += 1;
        None
    }

    /// The frames that are kept for a connection: the engine takes it over.
    pub(crate) fn take_held(&mut self, key: u32) -> Vec<Box<Frame>> {
        let held = self.all.get_mut(key).map(|half_open| std::mem::take(&mut half_open.held)).unwrap_or_default();
        self.held -= held.len() as u32;
        held
    }

    /// A connection attempt, or a connection that no application took, fails: its peer is reset where it may hold the
    /// connection open. What its owner gets, the caller decides.
    pub(crate) fn report_failed(&self, out: &mut Outbox<'_>, key: u32, errno: i32) -> Option<&HalfOpen> {
        let half_open = self.all.get(key)?;
        let (tuple, open) = (half_open.tuple, half_open.open);
        out.tracer.event(Point::HandshakeFailed, NO_FLOW, [traced::ends(&tuple)[1], errno as u64]);
        if open.is_some() && errno != libc::ECONNRESET {
            let stamp = open.and_then(|open| open.timestamps()).map(|state| state.stamp(out.now));
            out.reset(&tuple, half_open.handshake.iss + 1, open.map(|open| open.irs + 1), stamp);
        }
        Some(half_open)
    }

    /// The application gives a connection attempt up. A peer that has answered is reset.
    pub(crate) fn report_cancelled(&self, out: &mut Outbox<'_>, key: u32) -> Option<&HalfOpen> {
        let half_open = self.all.get(key)?;
        let header = half_open.handshake.ack(out.now, &half_open.tuple);
        if header.ack != Seq(0) {
            out.reset(&half_open.tuple, header.seq, Some(header.ack), header.options.timestamps);
        }
        Some(half_open)
    }

    /// Forgets a connection: it is a flow now, or has failed.
    pub(crate) fn finish(&mut self, out: &mut Outbox<'_>, key: u32) {
        out.timers.cancel(Timer::HalfOpen(key));
        if let Some(half_open) = self.all.remove(key) {
            self.held -= half_open.held.len() as u32;
            out.frames.spent.extend(half_open.held);
        }
    }

    /// A router or the peer's host reports that something is not reachable; `seq` is the sequence number that it
    /// quotes.
    pub(crate) fn on_unreachable(&mut self, key: u32, cause: Cause, seq: Seq) -> IcmpEffect {
        let Some(half_open) = self.all.get_mut(key).filter(|half_open| half_open.handshake.iss == seq) else {
            return IcmpEffect::Nothing;
        };
        match cause {
            Cause::NoNetwork => half_open.soft_error = Some(libc::ENETUNREACH),
            Cause::NoHost => half_open.soft_error = Some(libc::EHOSTUNREACH),
            // A port or protocol that is not there ends the attempt.
            Cause::Refused => return IcmpEffect::Fails(libc::ECONNREFUSED),
            Cause::TooBig(_) | Cause::Other => return IcmpEffect::Nothing,
        }
        IcmpEffect::Soft
    }

    /// A neighbour has a hardware address: SYNs that waited for it go.
    pub(crate) fn neighbour_learned(&mut self, out: &mut Outbox<'_>, ip: IpAddress) {
        let behind = |tuple: &FourTuple| out.net.hop(tuple.remote_ip) == Some(ip);
        let unsent = self.iter().filter(|(_, half_open)| half_open.unsent && behind(&half_open.tuple));
        let unsent: Vec<u32> = unsent.map(|(key, _)| key).collect();
        unsent.into_iter().for_each(|key| self.send_syn(out, key));
    }

    /// Connections of this host's applications that are being opened through a neighbour.
    pub(crate) fn through(&self, out: &Outbox<'_>, ip: IpAddress) -> Vec<u32> {
        let behind = |tuple: &FourTuple| out.net.hop(tuple.remote_ip) == Some(ip);
        let waits = |it: &HalfOpen| matches!(it.owner, Owner::Connect { .. }) && it.open.is_none() && behind(&it.tuple);
        self.iter().filter(|(_, it)| waits(it)).map(|(key, _)| key).collect()
    }

    /// Connections of a listener that are being opened, or wait for an application.
    pub(crate) fn of_listener(&self, binding: u32) -> Vec<u32> {
        let mine = Owner::Listener(binding);
        self.iter().filter(|(_, half_open)| half_open.owner == mine).map(|(key, _)| key).collect()
    }
}

/// An initial sequence number, above one that was used before where that is given.
pub(crate) fn isn(out: &Outbox<'_>, tuple: &FourTuple, above: Option<Seq>) -> Seq {
    let isn = out.random.isn(tuple, out.now);
    above.map_or(isn, |least| isn.max(least))
}
