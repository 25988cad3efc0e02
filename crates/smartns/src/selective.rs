//! Selective repeat: what came after a lost packet is buffered until that one comes. Only lost packets are reported
//! again (SmartNS, section 3.3, "out-of-order packet processing"; docs/RDMA.md has the format on the wire).
use crate::spray::{Paths, shows_loss};
use engine::{Frame, Nanos};
use std::collections::VecDeque;
use wire::roce::Psn;

/// Packets behind the missing one that an acknowledgement reports: 16 bytes.
pub(crate) const REPORTED: u32 = 128;
/// Bytes of a selective acknowledgement behind its AETH.
pub(crate) const REPORTED_BYTES: usize = REPORTED as usize / 8;
/// A packet that is reported again may be lost, too: it is reported once more after so many round trips, and not before
/// this time.
const PROBE_RTTS: u64 = 4;
const SHORTEST_PROBE: Nanos = 50_000;
/// The same where nothing is known to be lost: a peer may be busy.
const SHORTEST_WAIT: Nanos = 1_000_000;

/// The reorder buffer: frames of packets that came too early.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The packet of the first place.
    base: Psn,
    frames: VecDeque<Option<Box<Frame>>>,
    count: u32,
}

impl Held {
    /// There is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Keeps the frame of a packet that comes after `missing`; gives it back where it is there already.
    pub(crate) fn put(&mut self, missing: Psn, psn: Psn, frame: Box<Frame>) -> Option<Box<Frame>> {
        self.advance(missing);
        let place = psn.since(self.base).max(0) as usize;
        while self.frames.len() <= place {
            self.frames.push_back(None);
        }
        if self.frames[place].is_some() {
            return Some(frame);
        }
        self.frames[place] = Some(frame);
        self.count += 1;
        None
    }

    /// Takes the frame of a packet, which is the one that is expected now. What comes before it is not needed any more.
    pub(crate) fn take(&mut self, psn: Psn) -> Option<Box<Frame>> {
        if self.count == 0 {
            return None;
        }
        self.advance(psn);
        let frame = self.frames.front_mut()?.take()?;
        self.count -= 1;
        Some(frame)
    }

    fn advance(&mut self, to: Psn) {
        if self.count == 0 {
            self.frames.clear();
            self.base = to;
        }
        while to.since(self.base) > 0 {
            self.count -= u32::from(self.frames.pop_front().flatten().is_some());
            self.base = self.base.plus(1);
        }
    }

    /// The first packet that is buffered.
    pub(crate) fn first(&self) -> Option<Psn> {
        let place = self.frames.iter().position(Option::is_some)?;
        Some(self.base.plus(place as u32))
    }

    /// Which packets behind `missing` are buffered: a bit each, the lowest for the next one.
    pub(crate) fn reported(&self, missing: Psn) -> u128 {
        let bit = |at: &u32| {
            let place = missing.plus(at + 1).since(self.base);
            usize::try_from(place).is_ok_and(|place| self.frames.get(place).is_some_and(Option::is_some))
        };
        (0..REPORTED).filter(bit).fold(0, |reported, at| reported | 1 << at)
    }
}

/// Whether a frame is buffered for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It has served.
    No,
    /// Its request came too early.
    Request,
    /// Its response did.
    Response,
}

/// Packets to send again: one, or the answer of a read from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resend {
    pub(crate) psn: Psn,
    pub(crate) packets: u32,
}

/// A packet that was reported again, how often, and the first packet that had not been reported then.
#[derive(Debug, Clone, Copy)]
struct Again {
    psn: Psn,
    before: Psn,
    times: u32,
}

/// What a requester keeps for selective repeat.
#[derive(Debug, Default)]
pub(crate) struct Selective {
    /// The peer does it as well: it signals that in its packets.
    pub(crate) peer: bool,
    /// Data of reads take 2^this paths.
    pub(crate) peer_spray: u8,
    /// The paths of the own packets, of those from `sprayed_from` on: before the peer was known to be selective, they
    /// took one path.
    pub(crate) paths: Paths,
    pub(crate) sprayed_from: Option<Psn>,
    /// The last report: the packet that is missing, and those behind it that came.
    pub(crate) report: Option<(Psn, u128)>,
    pub(crate) resend: VecDeque<Resend>,
    again: VecDeque<Again>,
    /// Responses that came too early.
    pub(crate) held: Held,
    /// A packet that asked for an acknowledgement, and when it was reported.
    sample: Option<(Psn, Nanos)>,
    /// Smoothed round-trip time; 0 before the first sample.
    rtt: Nanos,
    /// Everything before was acknowledged, but for reads and atomics whose data have not come.
    pub(crate) acked_to: Option<Psn>,
    /// Probes since something was acknowledged.
    pub(crate) probes: u32,
    /// When a retry was spent last, or something was acknowledged.
    pub(crate) counted_at: Nanos,
}

impl Selective {
    /// What is behind a missing packet has come: requests that the peer keeps, or data of reads.
    fn is_missing(&self) -> bool {
        !self.again.is_empty() || !self.held.is_empty() || self.acked_to.is_some()
    }

    /// A packet that asks for an acknowledgement is reported, for the first time. Where one before it is missing, the
    /// acknowledgement comes when that one has come.
    pub(crate) fn asked(&mut self, psn: Psn, now: Nanos) {
        if self.sample.is_none() && !self.is_missing() {
            self.sample = Some((psn, now));
        }
    }

    /// Everything before `unacked` is acknowledged.
    pub(crate) fn reached(&mut self, unacked: Psn, now: Nanos) {
        (self.probes, self.counted_at) = (0, now);
        self.sprayed_from = self.sprayed_from.filter(|from| from.since(unacked) > 0);
        while self.again.front().is_some_and(|again| again.psn.since(unacked) < 0) {
            self.again.pop_front();
        }
        self.resend.retain(|resend| resend.psn.plus(resend.packets).since(unacked) > 0);
        self.acked_to = self.acked_to.filter(|to| to.since(unacked) > 0);
        if let Some((_, at)) = self.sample.filter(|(psn, _)| psn.since(unacked) < 0) {
            // A clock that has gone back measures nothing.
            let measured = now.saturating_sub(at).max(1);
            // As RFC 6298 section 2 smooths it.
            self.rtt = if self.rtt == 0 { measured } else { self.rtt - self.rtt / 8 + measured / 8 };
            self.sample = None;
        }
    }

    /// How long to wait for an acknowledgement before a packet is reported again to get one; twice as long each time.
    /// Shorter where packets are known to be lost.
    pub(crate) fn probe_time(&self, most: Nanos) -> Nanos {
        let shortest = if self.is_missing() { SHORTEST_PROBE } else { SHORTEST_WAIT };
        let time = (self.rtt * PROBE_RTTS).max(shortest) << self.probes.min(10);
        if self.rtt == 0 { most } else { time.min(most) }
    }

    /// Adds packets to send again, unless they are to be already. No round trip is measured over them (RFC 6298
    /// section 3).
    pub(crate) fn again(&mut self, resend: Resend) {
        self.sample = None;
        if self.resend.iter().all(|other| other.psn != resend.psn) {
            self.resend.push_back(resend);
        }
    }

    /// A packet is missing, and `newest` came. Whether it is to be reported again: once, and once more where a packet
    /// came that was reported after it.
    pub(crate) fn is_lost(&mut self, psn: Psn, newest: Psn, sent_to: Psn) -> bool {
        self.sample = None;
        let known = self.again.iter_mut().find(|again| again.psn == psn);
        match known {
            Some(again) if newest.since(again.before) < 0 => false,
            Some(again) => {
                (again.before, again.times) = (sent_to, again.times + 1);
                true
            }
            None => {
                let place = self.again.partition_point(|again| again.psn.since(psn) < 0);
                self.again.insert(place, Again { psn, before: sent_to, times: 1 });
                true
            }
        }
    }

    /// Packet `psn` is missing, and those of `later` behind it came: a bit each. Whether that shows its loss, where
    /// packets take 2^`spray` paths.
    pub(crate) fn shows_loss(&self, psn: Psn, later: u128, spray: u8) -> bool {
        let alone = self.sprayed_from.map_or(0, |from| from.since(psn));
        if alone > 0 {
            // Those behind it that took one path as well.
            return later & !(u128::MAX << (alone - 1).min(127)) != 0;
        }
        shows_loss(later, spray)
    }

    /// How often a packet was sent that is sent again now: another path each time.
    pub(crate) fn times(&self, psn: Psn) -> u32 {
        let known = self.again.iter().find(|again| again.psn == psn);
        known.map_or(1, |again| again.times) + self.probes
    }

    /// Data of reads behind packet `missing` show that it was lost: one that took the same path came.
    pub(crate) fn held_shows_loss(&self, missing: Psn, spray: u8) -> bool {
        spray == 0 || shows_loss(self.held.reported(missing), spray)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::FramePool;

    #[test]
    fn frames_come_out_in_order_and_once() {
        let (mut pool, mut held) = (FramePool::new(8), Held::default());
        let psn = |at: i32| Psn::new(0xff_fffe).plus(at as u32);
        for at in [3, 1, 5] {
            assert!(held.put(psn(0), psn(at), pool.small()).is_none());
        }
        assert!(held.put(psn(0), psn(3), pool.small()).is_some(), "it is there");
        assert_eq!((held.reported(psn(0)), held.first()), (0b10101, Some(psn(1))));
        assert!(held.take(psn(0)).is_none() && held.take(psn(1)).is_some() && held.take(psn(1)).is_none());
        assert_eq!(held.reported(psn(2)), 0b101);
        assert!(held.take(psn(4)).is_none(), "the one before is not needed any more");
        assert!(held.take(psn(5)).is_some() && held.is_empty());
        assert!(held.put(psn(9), psn(200), pool.small()).is_none());
        assert_eq!(held.reported(psn(9)), 0, "too far to be reported");
    }

    #[test]
    fn a_packet_is_sent_again_once_until_later_ones_come() {
        let mut selective = Selective::default();
        let psn = Psn::new;
        assert!(selective.is_lost(psn(5), psn(7), psn(10)));
        assert!(selective.is_lost(psn(3), psn(7), psn(10)));
        assert!(!selective.is_lost(psn(5), psn(9), psn(14)));
        assert!(selective.is_lost(psn(5), psn(10), psn(14)));
        assert!(!selective.is_lost(psn(5), psn(12), psn(20)));
        selective.reached(psn(6), 100);
        assert!(selective.again.is_empty());
    }

    #[test]
    fn a_probe_waits_for_some_round_trips_and_longer_each_time() {
        let mut selective = Selective::default();
        assert_eq!(selective.probe_time(1 << 30), 1 << 30);
        selective.asked(Psn::new(1), 1000);
        selective.reached(Psn::new(2), 101_000);
        assert_eq!(selective.probe_time(1 << 30), 1_000_000);
        assert!(selective.is_lost(Psn::new(3), Psn::new(5), Psn::new(9)));
        assert_eq!(selective.probe_time(1 << 30), 400_000);
        selective.asked(Psn::new(8), 0);
        selective.reached(Psn::new(9), 1 << 40);
        assert_eq!(selective.rtt, 100_000, "it comes when what is missing has come");
        selective.asked(Psn::new(9), 200_000);
        selective.reached(Psn::new(10), 150_000);
        assert!(selective.rtt < 100_000, "a clock that goes back is no long way");
        selective.rtt = 100_000;
        assert_eq!(selective.probe_time(1 << 30), 1_000_000);
        // Data of a read came behind what is missing.
        assert!(selective.held.put(Psn::new(10), Psn::new(12), FramePool::new(1).small()).is_none());
        assert_eq!(selective.probe_time(1 << 30), 400_000);
        assert!(selective.held.take(Psn::new(12)).is_some());
        selective.acked_to = Some(Psn::new(12));
        assert_eq!(selective.probe_time(1 << 30), 400_000);
        selective.acked_to = None;
        selective.asked(Psn::new(13), 0);
        selective.again(Resend { psn: Psn::new(11), packets: 1 });
        selective.reached(Psn::new(14), 1 << 40);
        assert_eq!(selective.rtt, 100_000, "no round trip over what is reported again");
        assert!(selective.is_lost(Psn::new(15), Psn::new(16), Psn::new(17)));
        selective.probes = 2;
        assert_eq!((selective.probe_time(1 << 30), selective.probe_time(500_000)), (1_600_000, 500_000));
    }
}
