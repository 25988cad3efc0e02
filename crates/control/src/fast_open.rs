//! Fast Open (RFC 7413) of listeners, which take connections with the data of their SYN. It has the listener's part,
//! its cookies, and the flows whose handshake has not ended. docs/FAST-OPEN.md is the page.
use crate::outbox::Outbox;
use crate::random::Random;
use crate::timers::{MILLISECOND, Timer};
use crate::traced;
use ::tcp::fast_open::Queue;
use ::tcp::{Established, Handshake};
use context::FastOpenKeys;
use engine::stream::{FlowFigures, FourTuple};
use engine::{FlowId, Nanos};
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher24;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::net::IpAddr;
use trace::{NO_FLOW, Point};
use wire::tcp::Cookie;
use wire::{IpAddress, Mac};

/// How soon the acknowledgement of a SYN-ACK is checked for. The count of a listener's connections checks whenever it
/// has no room.
const FIRST_CHECK: Nanos = 50 * MILLISECOND;

/// How often the connections of a listener without room are checked.
const SWEEP: Nanos = MILLISECOND;

/// A listener's part of Fast Open.
#[derive(Debug, Default)]
pub(crate) struct EarlyListener {
    pub queue: Queue,
    pub keys: FastOpenKeys,
    /// `TCP_FASTOPEN_NO_COOKIE`.
    pub no_cookie: bool,
    swept: Nanos,
}

/// Its state for the next daemon.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct EarlyListenerState {
    most: u32,
    keys: FastOpenKeys,
    no_cookie: bool,
}

impl EarlyListener {
    pub(crate) fn set(&mut self, most: u32, keys: FastOpenKeys, no_cookie: bool) {
        (self.queue.most, self.keys, self.no_cookie) = (most, keys, no_cookie);
    }

    /// The cookies that a peer may show: of the primary key, and of the backup key.
    pub(crate) fn cookies(&self, random: &Random, tuple: &FourTuple) -> [Option<Cookie>; 2] {
        let primary = self.keys.primary.unwrap_or_else(|| random.fast_open_key());
        [Some(primary), self.keys.backup].map(|key| cookie(&key?, tuple))
    }

    /// It is time to check which of its connections are open meanwhile.
    pub(crate) fn is_to_be_swept(&mut self, now: Nanos) -> bool {
        let due = now >= self.swept + SWEEP;
        self.swept = if due { now } else { self.swept };
        due
    }

    pub(crate) fn state(&self) -> EarlyListenerState {
        EarlyListenerState { most: self.queue.most, keys: self.keys, no_cookie: self.no_cookie }
    }
}

impl From<EarlyListenerState> for EarlyListener {
    fn from(state: EarlyListenerState) -> EarlyListener {
        let EarlyListenerState { most, keys, no_cookie } = state;
        EarlyListener { queue: Queue::new(most), keys, no_cookie, swept: 0 }
    }
}

/// The cookie of a peer's and this host's address. It is made as Linux makes it, so hosts of both kinds behind one
/// address can share a key.
// Meets RFC 7413: 4.1.2-b, 4.1.2-c.
fn cookie(key: &[u8; 16], tuple: &FourTuple) -> Option<Cookie> {
    let mut hasher = SipHasher24::new_with_key(key);
    for address in [tuple.remote_ip, tuple.local_ip].map(IpAddress::ip) {
        match address {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => hasher.write(&address.octets()),
        }
    }
    Cookie::new(&hasher.finish().to_le_bytes())
}

/// A connection that an engine runs, and whose SYN-ACK is not acknowledged yet.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct EarlyFlow {
    pub tuple: FourTuple,
    pub handshake: Handshake,
    /// The options that the handshake agreed on.
    pub open: Established,
    /// Its listener.
    pub binding: u32,
    /// The station that the SYN came from.
    pub station: Mac,
    /// When the SYN-ACK is sent again, how long after the last one, and how often it was.
    pub due: Nanos,
    pub rto: Nanos,
    pub tries: u32,
    /// Segments that the engine has counted and that do not answer the SYN-ACK: the one with the SYN's data.
    pub fed: u64,
}

impl EarlyFlow {
    /// The peer has answered the SYN-ACK. Its SYN, which may come again, is a segment that the engine counts as
    /// dropped.
    fn is_answered(&self, figures: &FlowFigures) -> bool {
        figures.acked_bytes > 0 || figures.rx_segments > self.fed + u64::from(figures.drops)
    }
}

/// The connections whose SYN-ACK is not acknowledged yet.
#[derive(Default)]
pub(crate) struct EarlyFlows {
    all: BTreeMap<u32, EarlyFlow>,
}

/// Outcome of a check of a connection whose SYN-ACK is not acknowledged yet.
pub(crate) enum Due {
    /// Nothing, or the SYN-ACK was sent again.
    Waits,
    /// The peer has answered.
    Answered,
    /// The peer does not answer.
    Fails,
}

impl EarlyFlows {
    /// For the daemon that goes on with them.
    pub(crate) fn states(&self) -> Vec<(u32, EarlyFlow)> {
        self.all.iter().map(|(id, early)| (*id, early.clone())).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn has(&self, id: FlowId) -> bool {
        self.all.contains_key(&id.0)
    }

    /// A connection's SYN-ACK is not acknowledged: RFC 9293's state is SYN-RECEIVED.
    pub(crate) fn waits(&self, id: FlowId, figures: Option<&FlowFigures>) -> bool {
        let early = self.all.get(&id.0).zip(figures);
        early.is_some_and(|(early, figures)| !early.is_answered(figures))
    }

    /// The SYN-ACK of a connection goes, and is to be acknowledged.
    pub(crate) fn begin(&mut self, out: &mut Outbox<'_>, id: FlowId, mut early: EarlyFlow) {
        early.send(out);
        early.due = out.now + early.rto;
        out.timers.set(Timer::Early(id.0), out.now + FIRST_CHECK.min(early.rto));
        self.all.insert(id.0, early);
    }

    /// Goes on with another host's.
    pub(crate) fn go_on(&mut self, out: &mut Outbox<'_>, id: u32, early: EarlyFlow) {
        // The engine that goes on counts from nothing.
        let early = EarlyFlow { fed: 0, due: out.now + early.rto, ..early };
        out.timers.set(Timer::Early(id), early.due);
        self.all.insert(id, early);
    }

    /// It is time to check one.
    pub(crate) fn due(&mut self, out: &mut Outbox<'_>, id: FlowId, figures: &FlowFigures) -> Due {
        let Some(early) = self.all.get_mut(&id.0) else { return Due::Waits };
        if early.is_answered(figures) {
            return Due::Answered;
        }
        if out.now >= early.due {
            let timers = &out.config.timers;
            early.tries += 1;
            early.rto = (early.rto * 2).min(Nanos::from(timers.max_rto_ms) * MILLISECOND);
            early.due = out.now + early.rto;
            if early.tries > timers.syn_ack_retries {
                return Due::Fails;
            }
            out.tracer.event(Point::SynTimeout, NO_FLOW, [traced::ends(&early.tuple)[1], early.tries.into()]);
            early.send(out);
            out.timers.set(Timer::Early(id.0), out.now + FIRST_CHECK.min(early.rto));
        } else {
            out.timers.set(Timer::Early(id.0), early.due);
        }
        Due::Waits
    }

    /// Those of a listener, to check.
    pub(crate) fn of_listener(&self, binding: u32) -> Vec<FlowId> {
        self.all.iter().filter(|(_, early)| early.binding == binding).map(|(id, _)| FlowId(*id)).collect()
    }

    /// One more segment does not answer the SYN-ACK.
    pub(crate) fn expect_one_more(&mut self, id: FlowId) {
        self.all.get_mut(&id.0).into_iter().for_each(|early| early.fed += 1);
    }

    /// The peer has answered the SYN-ACK of one.
    pub(crate) fn is_answered(&self, id: FlowId, figures: &FlowFigures) -> bool {
        self.all.get(&id.0).is_some_and(|early| early.is_answered(figures))
    }

    /// Its handshake is over, in whatever way.
    pub(crate) fn end(&mut self, out: &mut Outbox<'_>, id: FlowId) -> Option<EarlyFlow> {
        if self.all.is_empty() {
            return None;
        }
        let early = self.all.remove(&id.0)?;
        out.timers.cancel(Timer::Early(id.0));
        Some(early)
    }
}

impl EarlyFlow {
    fn send(&mut self, out: &mut Outbox<'_>) {
        let header = self.handshake.syn(out.now, &self.tuple);
        out.tracer.event(Point::SynSent, NO_FLOW, traced::ends(&self.tuple));
        out.answer(&self.tuple, header, Some(self.station));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(remote: &str, local: &str) -> FourTuple {
        let (remote_ip, local_ip) = (remote.parse().expect("an address"), local.parse().expect("an address"));
        FourTuple { local_ip, remote_ip, local_port: 8080, remote_port: 1000 }
    }

    /// What Linux gives for this key, by its own tests of Fast Open (tools/testing/selftests/net/packetdrill).
    // Checks RFC 7413: 4.1.2-b, 4.1.2-c.
    #[test]
    fn cookies_are_those_of_linux() {
        let key: Vec<u8> = [0xa1, 0xb2, 0xc3, 0xd4].iter().flat_map(|byte| [*byte; 4]).collect();
        let key: [u8; 16] = key.try_into().expect("16 bytes");
        let is = |key: &[u8; 16], tuple: &FourTuple, expected: u64| {
            let found = cookie(key, tuple).expect("a cookie");
            assert_eq!(found.bytes(), expected.to_be_bytes(), "{tuple:?}: {:02x?}", found.bytes());
        };
        let v4 = tuple("192.0.2.1", "192.168.0.1");
        is(&key, &v4, 0x3021_b9d8_8901_7eeb);
        is(&[0; 16], &v4, 0xb7c1_2350_a90d_c8f5);
        let v6 = tuple("fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1");
        is(&key, &v6, 0xc1d1_e974_2a47_a9bc);
        is(&[0; 16], &v6, 0x82af_1a8f_9a20_5c34);
    }

    #[test]
    fn cookies_differ_by_peer_and_key_and_not_by_port() {
        let listener = EarlyListener::default();
        let of = |secret: u8, tuple: &FourTuple| listener.cookies(&Random::new([secret; 16]), tuple);
        let one = tuple("10.0.0.1", "10.0.0.2");
        let [primary, backup] = of(1, &one);
        assert!(primary.is_some() && backup.is_none());
        assert_eq!(of(1, &FourTuple { local_port: 1, remote_port: 2, ..one })[0], primary);
        assert_ne!(of(1, &tuple("10.0.0.3", "10.0.0.2"))[0], primary);
        assert_ne!(of(2, &one)[0], primary);
    }
}
