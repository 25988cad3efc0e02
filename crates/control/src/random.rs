//! Unguessable numbers from one secret: initial sequence numbers (RFC 6528), timestamp offsets (RFC 7323 section
//! 5.4), ephemeral ports (RFC 6056), fork tokens. The secret is passed in, so a simulation is repeatable.
use context::Endpoint;
use engine::Nanos;
use engine::stream::FourTuple;
use siphasher::sip::SipHasher24;
use std::hash::{Hash, Hasher};
use tcp::syn_cookie::Secret;
use wire::{Mac, Seq};

/// A keyed pseudo-random function, and a generator on top of it.
pub(crate) struct Random {
    key: [u8; 16],
    count: u64,
}

/// What a number is for: numbers of different purposes are independent.
#[derive(Hash, Clone, Copy)]
enum Purpose {
    Isn,
    TimestampOffset,
    Spread,
    Next,
    Cookie,
    UsedCookies,
    Port,
    Loopback,
    FastOpen,
}

impl Random {
    pub(crate) fn new(key: [u8; 16]) -> Random {
        Random { key, count: 0 }
    }

    /// State by which another host makes the same numbers.
    pub(crate) fn state(&self) -> ([u8; 16], u64) {
        (self.key, self.count)
    }

    /// Goes on with another host's numbers.
    pub(crate) fn go_on(&mut self, (key, count): ([u8; 16], u64)) {
        (self.key, self.count) = (key, count);
    }

    /// The hardware address of the host's link to itself: a local one, which only the host can compute.
    pub(crate) fn loopback_mac(&self) -> Mac {
        let [a, b, c, d, e, f, ..] = self.prf(Purpose::Loopback, ()).to_be_bytes();
        /// Not given by a manufacturer, and not of a group (IEEE 802 section 8.2).
        const LOCAL: u8 = 0b10;
        Mac([a & !0b11 | LOCAL, b, c, d, e, f])
    }

    fn prf(&self, purpose: Purpose, what: impl Hash) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        purpose.hash(&mut hasher);
        what.hash(&mut hasher);
        hasher.finish()
    }

    /// Initial sequence number: `M + F(tuple, secret)` with a clock of 4 microseconds (RFC 6528 section 3).
    // Meets RFC 9293: MUST-8, SHLD-1, MUST-9.
    // Meets RFC 6528: 3-a, 3-b.
    pub(crate) fn isn(&self, tuple: &FourTuple, now: Nanos) -> Seq {
        Seq((now / 4000) as u32) + self.prf(Purpose::Isn, tuple) as u32
    }

    /// Offset of the millisecond clock in the timestamps of a connection. The same for the same tuple, so that
    /// timestamps grow from one incarnation to the next (RFC 6191).
    // Meets RFC 7323: 5.4-b.
    pub(crate) fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        self.prf(Purpose::TimestampOffset, tuple) as u32
    }

    /// First port of connections to a peer (RFC 6056 section 3.3.4).
    pub(crate) fn port_place(&self, remote: Endpoint) -> u64 {
        self.prf(Purpose::Port, (remote.ip, remote.port))
    }

    /// Hash of a cookie that came back.
    pub(crate) fn used_cookies(&self, tuple: &FourTuple, iss: Seq, irs: Seq) -> u64 {
        self.prf(Purpose::UsedCookies, (tuple, iss.0, irs.0))
    }

    /// The key of this host's Fast Open cookies (RFC 7413 section 4.1.2).
    pub(crate) fn fast_open_key(&self) -> [u8; 16] {
        let [first, second] = [0u8, 1].map(|half| u128::from(self.prf(Purpose::FastOpen, half)));
        (first << 64 | second).to_le_bytes()
    }

    /// Spreads connections over listeners that share a port.
    pub(crate) fn spread(&self, tuple: &FourTuple) -> u64 {
        self.prf(Purpose::Spread, tuple)
    }

    /// A fresh number.
    pub(crate) fn next(&mut self) -> u64 {
        self.count += 1;
        self.prf(Purpose::Next, self.count)
    }
}

impl Secret for Random {
    fn cookie(&self, tuple: &FourTuple, irs: Option<Seq>, period: u64, size: u32) -> u32 {
        self.prf(Purpose::Cookie, (tuple, irs.map(|irs| irs.0), period, size)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    // Checks RFC 9293: MUST-8, SHLD-1, MUST-9.
    // Checks RFC 6528: 3-a, 3-b.
    // Checks RFC 7323: 5.4-b.
    #[test]
    fn initial_sequence_numbers_differ_by_time_tuple_and_secret() {
        let ip = Ipv4Addr::new(10, 0, 0, 1).into();
        let tuple = |port| FourTuple { local_ip: ip, remote_ip: ip, local_port: port, remote_port: 80 };
        let random = Random::new([7; 16]);
        assert_eq!(random.isn(&tuple(1), 4_000_000) - random.isn(&tuple(1), 0), 1000);
        assert_ne!(random.isn(&tuple(1), 0), random.isn(&tuple(2), 0));
        assert_ne!(random.isn(&tuple(1), 0), Random::new([8; 16]).isn(&tuple(1), 0));
    }
}
