//! SYN cookies (RFC 4987 section 3.6 and appendix A): the state of a half-open connection, in the numbers that the peer
//! sends back.
//!
//! The initial sequence number carries the peer's segment size, rounded down to one of eight. It also carries 29 bits
//! that only this host can compute. 12 come from the addresses and the time, 17 from these and the peer's initial
//! sequence number. So where the peer's first segment was lost, a later one is recognised, and not answered with a
//! reset. Its sequence number alone would not do. Where both use timestamps, the low bits of the one that the peer will
//! echo carry its window scale, SACK and ECN. Without timestamps these are not offered, since no side would remember
//! the answer.
use super::negotiate::{Offer, Peer};
use crate::{FourTuple, Nanos};
use wire::Seq;
use wire::tcp::Header;

/// A cookie is good in the period in which it was made and in the next one.
const PERIOD: Nanos = 64_000_000_000;
/// Segment sizes that can be remembered, from paths that are common.
const SIZES: [u16; 8] = [88, 536, 1220, 1360, 1400, 1440, 1460, 8960];
/// Bits of the initial sequence number below the segment size.
const PROOF_BITS: u32 = 29;
/// Of these, the lower ones depend on the peer's initial sequence number.
const EXACT_BITS: u32 = 17;
/// Bits of a timestamp that are used.
const STAMP_BITS: u32 = 6;
const SHIFT_MASK: u32 = 15;
/// Window scales end at 14.
const NO_SHIFT: u32 = 15;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;

/// A host's secret: a keyed pseudo-random function that no other host can compute.
pub trait Secret {
    /// The number for a connection's addresses, the peer's initial sequence number, the period and the segment size.
    fn cookie(&self, tuple: &FourTuple, irs: Option<Seq>, period: u64, size: u32) -> u32;
}

/// For how long a cookie may come back.
pub const LIFE: Nanos = 2 * PERIOD;

/// The options of a peer that a cookie can carry.
pub fn remembered(peer: Peer) -> Peer {
    let mss = SIZES[size_index(peer.mss)];
    if peer.timestamps { Peer { mss, ..peer } } else { Peer { mss, ..Peer::default() } }
}

fn size_index(mss: u16) -> usize {
    SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0)
}

/// The initial sequence number for a peer.
pub fn sequence(secret: &impl Secret, now: Nanos, tuple: &FourTuple, irs: Seq, peer: &Peer) -> Seq {
    let index = size_index(peer.mss) as u32;
    Seq(index << PROOF_BITS | proof(secret, now / PERIOD, tuple, irs, index))
}

fn proof(secret: &impl Secret, period: u64, tuple: &FourTuple, irs: Seq, index: u32) -> u32 {
    let loose = secret.cookie(tuple, None, period, index) & ((1 << (PROOF_BITS - EXACT_BITS)) - 1);
    let exact = secret.cookie(tuple, Some(irs), period, index) & ((1 << EXACT_BITS) - 1);
    loose << EXACT_BITS | exact
}

/// The content of a cookie that an acknowledgement brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A cookie that is still good, from this peer.
    Peer(Peer),
    /// A cookie, but not on the peer's first segment: that comes again.
    Later,
}

/// The timestamp for a SYN-ACK: at most the clock, and less than two times 64 milliseconds older.
pub fn stamp(clock: u32, peer: &Peer) -> u32 {
    let shift = peer.shift.map_or(NO_SHIFT, u32::from);
    let bits = shift | if peer.sack { SACK } else { 0 } | if peer.ecn { ECN } else { 0 };
    let value = clock >> STAMP_BITS << STAMP_BITS | bits;
    // Modulo 2^32, as all timestamps.
    if value.wrapping_sub(clock) as i32 > 0 { value.wrapping_sub(1 << STAMP_BITS) } else { value }
}

/// Reads a cookie of this host from an acknowledgement.
pub fn read(secret: &impl Secret, now: Nanos, tuple: &FourTuple, offer: &Offer, ack: &Header) -> Option<Found> {
    let (iss, irs) = (ack.ack - 1, ack.seq - 1);
    let (index, found) = (iss.0 >> PROOF_BITS, iss.0 & ((1 << PROOF_BITS) - 1));
    let period = now / PERIOD;
    let proofs = [Some(period), period.checked_sub(1)].map(|it| Some(proof(secret, it?, tuple, irs, index)));
    if !proofs.contains(&Some(found)) {
        let loose = proofs.iter().flatten().any(|proof| proof >> EXACT_BITS == found >> EXACT_BITS);
        return loose.then_some(Found::Later);
    }
    let mss = SIZES[index as usize];
    let Some(stamp) = ack.options.timestamps.filter(|_| offer.timestamps) else {
        return Some(Found::Peer(Peer { mss, ..Peer::default() }));
    };
    // Either way: a clock that went back since would find all its cookies in the future.
    let age = offer.clock(now).wrapping_sub(stamp.echo) as i32;
    if u64::from(age.unsigned_abs()) > (LIFE + PERIOD) / 1_000_000 {
        return None;
    }
    let shift = stamp.echo & SHIFT_MASK;
    Some(Found::Peer(Peer {
        mss,
        shift: (shift != NO_SHIFT).then_some(shift as u8),
        timestamps: true,
        sack: stamp.echo & SACK != 0 && offer.sack,
        ecn: stamp.echo & ECN != 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::handshake::testing::{TUPLE, segment};
    use super::*;
    use std::hash::{DefaultHasher, Hash, Hasher};
    use wire::tcp::{Flags, Timestamps};

    struct Key(u64);

    impl Secret for Key {
        fn cookie(&self, tuple: &FourTuple, irs: Option<Seq>, period: u64, size: u32) -> u32 {
            let mut hasher = DefaultHasher::new();
            (self.0, tuple, irs.map(|irs| irs.0), period, size).hash(&mut hasher);
            hasher.finish() as u32
        }
    }

    const NOW: Nanos = 1000 * PERIOD + PERIOD / 2;
    const IRS: u32 = 77;

    fn offer(timestamps: bool) -> Offer {
        let (mss, timestamp_offset) = (1460, 0xffff_0000);
        Offer { mss, shift: 2, window: 5000, ecn: true, ecn_tries: 1, timestamp_offset, timestamps, sack: true }
    }

    /// What comes back from a peer that has `peer` on its SYN.
    fn answer(peer: &Peer, made: Nanos) -> Header {
        let remembered = remembered(*peer);
        let iss = sequence(&Key(1), made, &TUPLE, Seq(IRS), &remembered);
        let mut ack = segment(Flags::ACK, IRS + 1, (iss + 1).0, 0).header;
        let echo = stamp(offer(true).clock(made), &remembered);
        ack.options.timestamps = peer.timestamps.then_some(Timestamps { value: 5, echo });
        ack
    }

    fn found(now: Nanos, ack: &Header) -> Option<Found> {
        read(&Key(1), now, &TUPLE, &offer(true), ack)
    }

    fn read_at(now: Nanos, ack: &Header) -> Option<Peer> {
        match found(now, ack)? {
            Found::Peer(peer) => Some(peer),
            Found::Later => None,
        }
    }

    #[test]
    fn everything_that_fits_is_remembered() {
        for shift in (0..=14).map(Some).chain([None]) {
            for (sack, ecn, mss) in [(true, false, 1460), (false, true, 9000), (true, true, 1459), (false, false, 20)] {
                let peer = Peer { mss, shift, timestamps: true, sack, ecn };
                let expected = Peer { mss: SIZES[size_index(mss)], ..peer };
                assert_eq!(read_at(NOW, &answer(&peer, NOW)), Some(expected));
                let bare = Peer { timestamps: false, ..peer };
                let found = read_at(NOW, &answer(&bare, NOW)).unwrap();
                assert_eq!(found, Peer { mss: expected.mss, ..Peer::default() });
            }
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_time_its_connection_and_its_secret() {
        let peer = Peer { mss: 1460, shift: Some(7), timestamps: true, sack: true, ecn: false };
        let ack = answer(&peer, NOW);
        assert!(read_at(NOW + PERIOD, &ack).is_some());
        assert_eq!((found(NOW + 2 * PERIOD, &ack), found(NOW - PERIOD, &ack)), (None, None));
        for changed in
            [Header { ack: ack.ack + (1 << EXACT_BITS), ..ack }, Header { ack: ack.ack + (1 << PROOF_BITS), ..ack }]
        {
            assert_eq!(found(NOW, &changed), None);
        }
        assert_eq!(found(NOW, &Header { seq: ack.seq + 1448, ..ack }), Some(Found::Later));
        let other = FourTuple { remote_port: TUPLE.remote_port + 1, ..TUPLE };
        assert_eq!(read(&Key(1), NOW, &other, &offer(true), &ack), None);
        assert_eq!(read(&Key(2), NOW, &TUPLE, &offer(true), &ack), None);
    }

    #[test]
    fn timestamps_are_never_ahead_of_the_clock() {
        for clock in [0, 1, 63, 64, 1000, u32::MAX - 3, u32::MAX] {
            for shift in [None, Some(0), Some(14)] {
                let peer = Peer { mss: 1460, shift, timestamps: true, sack: true, ecn: true };
                assert!(clock.wrapping_sub(stamp(clock, &peer)) < 128);
            }
        }
    }
}
