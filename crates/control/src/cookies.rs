//! SYN cookies: what a listener does when its handshakes are too many to remember (RFC 4987).
use crate::openings::Owner;
use crate::outbox::Outbox;
use crate::packet;
use crate::plane::Plane;
use engine::DropReason;
use tcp::cookie::{self, Found};
use tcp::{Handshake, Segment};
use wire::Mac;

impl Plane {
    /// Answers a SYN with a cookie and remembers nothing but that the listener did so. The answer goes to the station
    /// that sent the SYN: asking ARP for each address that a flood makes up would fill the table.
    pub fn send_cookie(&mut self, out: &mut Outbox<'_>, binding: u32, segment: &Segment, src_mac: Mac) {
        let tuple = segment.tuple;
        let offer = self.offer(out, &tuple, 0);
        let peer = cookie::remembered(offer.read(&segment.header));
        let iss = cookie::sequence(&self.random, out.now, &tuple, segment.header.seq, &peer);
        let recent = segment.header.options.timestamps.map_or(0, |stamp| stamp.value);
        let mut header =
            Handshake::of_cookie(out.now, iss, offer, segment.header.seq, peer, recent).syn(out.now, &tuple);
        if let Some(stamp) = &mut header.options.timestamps {
            stamp.value = cookie::stamp(stamp.value, &peer);
        }
        if let Some(listener) = self.bindings.listener(binding) {
            listener.cookie_sent = Some(out.now);
        }
        out.drops.count(DropReason::SynCookie);
        out.net.send_to(src_mac, packet::segment(&tuple, &header));
    }

    /// The handshake that a segment ends, where it brings back a cookie: made anew, as if it had been remembered. Cookies are
    /// looked for only on ports that have sent some lately, so that guessing is of no use at any other time.
    pub fn opening_of_cookie(&mut self, out: &mut Outbox<'_>, segment: &Segment, src_mac: Mac) -> Option<Cookie> {
        let tuple = segment.tuple;
        if !segment.ack() || segment.syn() || segment.rst() {
            return None;
        }
        let local = tuple.local();
        let binding = self.listener_for(local, self.random.spread(&tuple))?;
        let sent = self.bindings.cookie_sent(local.port)?;
        if out.now.saturating_sub(sent) > cookie::LIFE {
            return None;
        }
        let offer = self.offer(out, &tuple, 0);
        let peer = match cookie::read(&self.random, out.now, &tuple, &offer, &segment.header)? {
            Found::Peer(peer) => peer,
            Found::Later => {
                out.drops.count(DropReason::NotAccepted);
                return Some(Cookie::Later);
            }
        };
        let overrun = self.bindings.listener(binding).is_none_or(|it| it.ready.len() as u32 >= it.backlog);
        if overrun || !self.has_flow_room() {
            // The peer sends again: it has a connection, as it sees it.
            out.drops.count(DropReason::Backlog);
            return Some(Cookie::Later);
        }
        let (iss, irs) = (segment.header.ack - 1, segment.header.seq - 1);
        let mark = self.random.redeemed(&tuple, iss, irs);
        if self.redeemed.contains(mark) {
            return None;
        }
        let recent = segment.header.options.timestamps.map_or(0, |stamp| stamp.value);
        let handshake = Handshake::of_cookie(out.now, iss, offer, irs, peer, recent);
        let congestion = self.config.default_congestion();
        let key = self.start(tuple, handshake, Owner::Listener(binding), congestion, Some(src_mac))?;
        if let Some(listener) = self.bindings.listener(binding) {
            listener.half_open += 1;
        }
        self.redeemed.insert(mark);
        Some(Cookie::Opening(key))
    }
}

/// What became of a cookie that came back.
pub(crate) enum Cookie {
    /// Its handshake, in SYN-RECEIVED.
    Opening(u32),
    /// There is no room for the connection now, or its first segment is missing: the peer sends again.
    Later,
}
