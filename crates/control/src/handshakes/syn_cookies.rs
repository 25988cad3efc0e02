//! SYN cookies: a listener's answers when its handshakes are too many to remember (RFC 4987).
use super::{Handshakes, Start};
use crate::bindings::{Bindings, Listener};
use crate::connections::Connections;
use crate::half_open::Owner;
use crate::outbox::Outbox;
use crate::packet;
use engine::DropReason;
use tcp::syn_cookie::{self, Found};
use tcp::{Handshake, Segment};
use wire::Mac;

impl Handshakes {
    /// Answers a SYN with a cookie and remembers nothing but that the listener did so. The answer goes to the station
    /// that sent the SYN: asking ARP for each address that a flood makes up would fill the table.
    pub(crate) fn send_cookie(&self, out: &mut Outbox<'_>, listener: &mut Listener, segment: &Segment, src_mac: Mac) {
        let tuple = segment.tuple;
        let offer = self.offer(out, &tuple, out.config.default_congestion(), listener.mss);
        let peer = syn_cookie::remembered(offer.read(&segment.header));
        let iss = syn_cookie::sequence(out.random, out.now, &tuple, segment.header.seq, &peer);
        let recent = segment.header.options.timestamps.map_or(0, |stamp| stamp.value);
        let mut header =
            Handshake::of_cookie(out.now, iss, offer, segment.header.seq, peer, recent).syn(out.now, &tuple);
        if let Some(stamp) = &mut header.options.timestamps {
            stamp.value = syn_cookie::stamp(stamp.value, &peer);
        }
        listener.cookie_sent = Some(out.now);
        out.drops.count(DropReason::SynCookie);
        out.net.send_to(src_mac, packet::segment(&tuple, &header));
    }

    /// The handshake that a segment for a listener ends, where it brings back a cookie: made anew, as if it had been
    /// remembered. `has_room`: the engine has room for the connection.
    pub(crate) fn of_cookie(
        &mut self,
        out: &mut Outbox<'_>,
        listening: Listening<'_>,
        segment: &Segment,
        src_mac: Mac,
        has_room: bool,
    ) -> Option<Cookie> {
        let Listening { bindings, connections, binding } = listening;
        let tuple = segment.tuple;
        let sent = bindings.cookie_sent(tuple.local_port)?;
        if out.now.saturating_sub(sent) > syn_cookie::LIFE {
            return None;
        }
        let mss = bindings.segment_size(binding);
        let offer = self.offer(out, &tuple, out.config.default_congestion(), mss);
        let peer = match syn_cookie::read(out.random, out.now, &tuple, &offer, &segment.header)? {
            Found::Peer(peer) => peer,
            Found::Later => {
                out.drops.count(DropReason::NotAccepted);
                return Some(Cookie::Later);
            }
        };
        let overrun = bindings.listener(binding).is_none_or(|it| it.ready.len() as u32 >= it.backlog);
        if overrun || !has_room {
            // The peer sends again: it has a connection, as it sees it.
            out.drops.count(DropReason::Backlog);
            return Some(Cookie::Later);
        }
        let (iss, irs) = (segment.header.ack - 1, segment.header.seq - 1);
        let mark = out.random.used_cookies(&tuple, iss, irs);
        if self.used_cookies.contains(mark) {
            return None;
        }
        let recent = segment.header.options.timestamps.map_or(0, |stamp| stamp.value);
        let handshake = Handshake::of_cookie(out.now, iss, offer, irs, peer, recent);
        let (congestion, owner) = (out.config.default_congestion(), Owner::Listener(binding));
        let start = Start { tuple, handshake, owner, congestion, peer_mac: Some(src_mac) };
        let key = self.start(out, connections, start)?;
        if let Some(listener) = bindings.listener(binding) {
            listener.half_open += 1;
        }
        self.used_cookies.insert(mark);
        Some(Cookie::HalfOpen(key))
    }
}

/// A segment may bring back a cookie. Cookies are looked for only on ports that have sent some lately, so that guessing
/// is of no use at any other time.
pub(crate) fn may_return(segment: &Segment) -> bool {
    segment.ack() && !segment.syn() && !segment.rst()
}

/// The listener that a segment is for.
pub(crate) struct Listening<'a> {
    pub bindings: &'a mut Bindings,
    pub connections: &'a mut Connections,
    pub binding: u32,
}

/// The fate of a cookie that came back.
pub(crate) enum Cookie {
    /// Its handshake, in SYN-RECEIVED.
    HalfOpen(u32),
    /// There is no room for the connection now, or its first segment is missing: the peer sends again.
    Later,
}
