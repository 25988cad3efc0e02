//! Congestion control of a queue pair: the policy of its host, and how the rate holds packets back.
//!
//! Both halves of a queue pair send payload: requests, and answers to the peer's reads. They share one rate.
use crate::dcqcn::{Dcqcn, SLOWEST};
use crate::notification_point::NotificationPoint;
use engine::Nanos;
use wire::ipv4::Ecn;
use wire::roce::Path;

/// Bytes of a packet beside its payload: Ethernet, IPv4, UDP, BTH and ICRC.
// Meets IBTA: A17.9.1-a.
pub(crate) const OVERHEAD: usize = 14 + 20 + 8 + 12 + 4;
/// A frame has no more packets than leave in this time.
const BURST: Nanos = 2_000;
/// A round that comes late by so much is made up for: the rate holds over this time.
const LATE: Nanos = 20_000;
/// The peer is asked for an acknowledgement once in this time, so that no slow sender takes its packets for lost.
const ASK: Nanos = 50_000;
/// Bytes of a packet at most, and how long one takes at the lowest rate. Nothing is held back for longer.
const LONGEST: u64 = 4096 + 128;
const MOST_WAIT: Nanos = LONGEST * 8 * SECOND / SLOWEST;
const SECOND: u64 = 1_000_000_000;

/// How connected queue pairs answer congestion of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// Not at all.
    #[default]
    None,
    /// By DCQCN (Zhu et al., SIGCOMM '15): receivers answer ECN marks by notifications, senders limit their rates.
    Dcqcn {
        /// The rate at which a sender begins, and its highest, bits a second.
        line_rate: u64,
    },
}

/// What people see of a queue pair's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The rate at which it may send, bits a second; `None` while that is the line's.
    pub rate: Option<u64>,
    /// Notifications that it got.
    pub notified: u64,
    /// Notifications that it sent to its peer.
    pub sent: u64,
}

/// The sender of a queue pair whose host answers congestion.
#[derive(Debug)]
pub(crate) struct Pacer {
    line: u64,
    /// Its rate; `None` while that is the line's, which no sender exceeds.
    limit: Option<Dcqcn>,
    /// What was sent before has left by then.
    free_at: Nanos,
    /// Something waits for that.
    waits_until: Option<Nanos>,
    /// When an acknowledgement was asked for last, and that the next frame is to ask.
    asked_at: Nanos,
    asks: bool,
    notified: u64,
    /// What it sends its peer of congestion.
    pub(crate) notification_point: NotificationPoint,
}

impl Pacer {
    /// That of a new queue pair; `None` where its host answers no congestion.
    pub(crate) fn new(congestion: Congestion) -> Option<Box<Pacer>> {
        let Congestion::Dcqcn { line_rate } = congestion else { return None };
        Some(Box::new(Pacer {
            line: line_rate.max(SLOWEST),
            limit: None,
            free_at: 0,
            waits_until: None,
            asked_at: 0,
            asks: false,
            notified: 0,
            notification_point: NotificationPoint::default(),
        }))
    }

    /// As after [`Pacer::new`].
    pub(crate) fn reset(&mut self) {
        let line = self.line;
        Pacer::new(Congestion::Dcqcn { line_rate: line }).into_iter().for_each(|new| *self = *new);
    }

    /// The peer reports that packets met congestion (CNP).
    pub(crate) fn notify(&mut self, now: Nanos) {
        self.notified += 1;
        match &mut self.limit {
            Some(limit) => limit.notify(now),
            None => self.limit = Some(Dcqcn::new(self.line, now)),
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.limit.as_ref().is_some_and(Dcqcn::is_free) {
            self.limit = None;
        }
    }

    /// Nothing may be sent now. Where something may, it is noted whether that is to ask for an acknowledgement.
    pub(crate) fn holds(&mut self, now: Nanos) -> bool {
        if let Some(limit) = &mut self.limit {
            limit.advance(now);
            self.settle();
        }
        // After the clock went back.
        self.free_at = self.free_at.min(now.saturating_add(MOST_WAIT));
        let holds = self.free_at > now;
        self.waits_until = holds.then_some(self.free_at);
        let since = now.checked_sub(self.asked_at);
        self.asks = since.is_none_or(|since| since >= ASK);
        holds
    }

    /// Bits a second, at least the slowest.
    fn rate(&self) -> u64 {
        self.limit.as_ref().map_or(self.line, Dcqcn::rate)
    }

    /// When something that waits may be sent.
    pub(crate) fn waits_until(&self) -> Option<Nanos> {
        self.waits_until
    }

    /// Its timer fired.
    pub(crate) fn fire(&mut self, now: Nanos) {
        self.waits_until = self.waits_until.filter(|until| *until > now);
    }

    /// The frame that is being made is to ask for an acknowledgement.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// One of its packets does.
    pub(crate) fn asked(&mut self, now: Nanos) {
        (self.asks, self.asked_at) = (false, now);
    }

    /// Bytes that a frame may have, where there is more than one packet to put into it.
    pub(crate) fn frame_bytes(&self) -> usize {
        (u128::from(self.rate()) * u128::from(BURST) / u128::from(8 * SECOND)) as usize
    }

    /// A frame of so many bytes was sent.
    pub(crate) fn sent(&mut self, now: Nanos, bytes: usize) {
        let time = u128::from(bytes as u64 * 8) * u128::from(SECOND) / u128::from(self.rate());
        self.free_at = self.free_at.max(now.saturating_sub(LATE)) + time as Nanos;
        self.limit.iter_mut().for_each(|limit| limit.sent(bytes as u64));
        self.settle();
    }

    /// For people.
    pub(crate) fn view(&self, now: Nanos) -> Sender {
        let at = |limit: &Dcqcn| {
            let mut limit = limit.clone();
            limit.advance(now);
            (!limit.is_free()).then(|| limit.rate())
        };
        Sender { rate: self.limit.as_ref().and_then(at), notified: self.notified, sent: self.notification_point.sent() }
    }
}

/// Whether packets of a queue pair may be marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// They have payload, and a sender that answers.
    May,
    /// All others.
    Never,
}

/// The way of packets (RFC 3168 section 5).
pub(crate) fn marked_path(path: &Path, marks: Marks) -> Path {
    let ecn = match marks {
        Marks::May => Ecn::Ect0,
        Marks::Never => Ecn::NotEct,
    };
    Path { traffic_class: path.traffic_class & !3 | ecn as u8, ..*path }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 10_000_000_000;

    fn pacer() -> Pacer {
        *Pacer::new(Congestion::Dcqcn { line_rate: LINE }).unwrap()
    }

    /// Bytes that leave in a time without notifications, where rounds come once in a microsecond.
    fn leaves(pacer: &mut Pacer, from: Nanos, time: Nanos) -> u64 {
        let mut bytes = 0;
        for now in (from..from + time).step_by(1000) {
            while !pacer.holds(now) {
                pacer.sent(now, 1250);
                bytes += 1250;
            }
        }
        bytes
    }

    #[test]
    fn the_line_is_the_limit_before_and_after_a_notification() {
        assert!(Pacer::new(Congestion::None).is_none());
        let mut pacer = pacer();
        let a_millisecond = LINE / 8 / 1000;
        // And what the time before allows at once.
        let expected = a_millisecond..a_millisecond * 103 / 100;
        assert!(expected.contains(&leaves(&mut pacer, 1_000_000, 1_000_000)));
        assert_eq!(pacer.view(1000), Sender { rate: None, notified: 0, sent: 0 });
        pacer.notify(2_000_000);
        assert_eq!(pacer.view(2_000_000), Sender { rate: Some(LINE / 2), notified: 1, sent: 0 });
        // The first increase is not due yet.
        let half = leaves(&mut pacer, 2_000_000, 50_000);
        assert!((a_millisecond / 42..a_millisecond / 38).contains(&half), "{half}");
        assert_eq!(pacer.view(1_000_000_000).rate, None);
        assert!(expected.contains(&leaves(&mut pacer, 1_000_000_000, 1_000_000)) && pacer.limit.is_none());
    }

    #[test]
    fn packets_leave_at_the_rate_whenever_rounds_come() {
        for round in [1000, 7000, 40_000] {
            let (mut pacer, mut sent) = (pacer(), 0u64);
            (0..200).for_each(|at| pacer.notify(at));
            for now in (1000..1_000_000_000).step_by(round) {
                // At the lowest rate all the time.
                pacer.notify(now);
                while !pacer.holds(now) {
                    pacer.sent(now, 1250);
                    sent += 1250;
                }
                assert!(pacer.waits_until().is_some_and(|until| until > now));
            }
            // A second at 10 Mbit/s.
            assert!((1_248_000..=1_253_000).contains(&sent), "{sent} bytes with a round in {round} ns");
        }
    }

    #[test]
    fn a_clock_that_goes_back_holds_nothing_for_long() {
        let mut pacer = pacer();
        (0..200).for_each(|at| pacer.notify((1 << 50) + at));
        pacer.sent(1 << 50, 4096);
        assert!(pacer.holds(1 << 50) && pacer.holds(5000));
        assert!(!pacer.holds(5000 + MOST_WAIT));
    }

    #[test]
    fn an_acknowledgement_is_asked_for_once_in_a_while() {
        let mut pacer = pacer();
        pacer.notify(1_000_000);
        let asks = |pacer: &mut Pacer, now| {
            pacer.holds(now);
            let asks = pacer.asks();
            if asks {
                pacer.asked(now);
            }
            asks
        };
        let times = [1_000_000, 1_010_000, 1_049_999, 1_050_000, 1_051_000, 500, 600];
        assert_eq!(times.map(|now| asks(&mut pacer, now)), [true, false, false, true, false, true, false]);
    }

    #[test]
    fn frames_have_no_more_than_leaves_in_2_microseconds() {
        let mut pacer = pacer();
        assert_eq!(pacer.frame_bytes(), 2500);
        pacer.notify(0);
        assert_eq!(pacer.frame_bytes(), 1250);
    }
}
