//! Path to a peer: what is in flight on it, its round-trip time and time-out, its window, and whether it works.
use crate::config::PathConfig;
use crate::packet::{Ack, BLOCK_LEN};
use std::collections::VecDeque;
use tcp::congestion::{Controller, Sample, initial_window};
use tcp::{Acknowledged, DUPLICATES, FlightLimit, Nanos, RttEstimator, WindowUse};
use wire::Seq;

/// Payload bytes of a full packet.
const MSS: u32 = BLOCK_LEN as u32;

/// A packet that is in flight, or was.
#[derive(Debug)]
struct Sent<T> {
    at: Nanos,
    /// What it carries; `None` for a probe.
    item: Option<T>,
    /// It is acknowledged or given up.
    settled: bool,
}

/// What happened since the congestion policy was asked last.
#[derive(Debug, Default)]
struct Round {
    began: Nanos,
    acked: u32,
    /// Bytes by which the window has grown.
    grown: u32,
    marked: u32,
    lost: u32,
}

#[derive(Debug)]
enum State {
    Up,
    /// Nothing is sent on it but probes.
    Failed {
        probe_at: Nanos,
        wait: Nanos,
    },
}

/// Report of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathReport {
    /// It has not failed.
    pub works: bool,
    /// Its smoothed round-trip time, nanoseconds; `None` before the first acknowledgement.
    pub rtt: Option<Nanos>,
    /// Packets that are in flight.
    pub in_flight: u32,
    /// Most that may be.
    pub window: u32,
}

/// A path. `T` is what a packet carries.
#[derive(Debug)]
pub(crate) struct Path<T> {
    state: State,
    /// In the order of sending; the last has the number before `next`.
    sent: VecDeque<Sent<T>>,
    next: u32,
    in_flight: u32,
    rtt: RttEstimator,
    policy: Controller,
    /// The congestion window in bytes, which grows with acknowledgements.
    limit: FlightLimit,
    usage: WindowUse,
    /// Bytes that are settled, as a stream has them that are acknowledged.
    settled: Seq,
    /// Most packets in flight.
    most: u32,
    round: Round,
}

impl<T> Path<T> {
    pub(crate) fn new(config: &PathConfig, now: Nanos) -> Path<T> {
        let policy = config.congestion.start(MSS, now);
        let (settled, growth) = (Seq(0), policy.growth());
        Path {
            state: State::Up,
            sent: VecDeque::new(),
            next: 0,
            in_flight: 0,
            rtt: RttEstimator::new(config.rto),
            policy,
            limit: FlightLimit::new(initial_window(MSS), growth),
            usage: WindowUse::new(settled, growth),
            settled,
            most: config.most_in_flight,
            round: Round::default(),
        }
    }

    pub(crate) fn works(&self) -> bool {
        matches!(self.state, State::Up)
    }

    pub(crate) fn report(&self) -> PathReport {
        let Path { rtt, in_flight, .. } = self;
        PathReport { works: self.works(), rtt: rtt.srtt(), in_flight: *in_flight, window: self.window() }
    }

    /// Packets that may be sent now.
    pub(crate) fn room(&self) -> u32 {
        if self.works() { self.window().saturating_sub(self.in_flight) } else { 0 }
    }

    /// A packet is sent: its number.
    pub(crate) fn send(&mut self, item: Option<T>, now: Nanos) -> u32 {
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        self.in_flight += 1;
        self.sent.push_back(Sent { at: now, item, settled: false });
        sequence
    }

    /// A probe is due: its number.
    pub(crate) fn probe(&mut self, config: &PathConfig, now: Nanos) -> Option<u32> {
        match &mut self.state {
            State::Failed { probe_at, wait } if *probe_at <= now => {
                *probe_at = now + *wait;
                *wait = (*wait * 2).min(config.probe_most);
            }
            _ => return None,
        }
        // Whether the last probe is lost is of no interest any more.
        self.give_up(&mut VecDeque::new());
        Some(self.send(None, now))
    }

    /// Nothing has come back since its last time-out: what others can carry is better there.
    pub(crate) fn is_suspect(&self) -> bool {
        self.rtt.backoffs() > 0
    }

    /// Nothing is in flight on a path that is suspect: a probe shows whether it works. Its number.
    pub(crate) fn test(&mut self, now: Nanos) -> Option<u32> {
        let is_due = self.works() && self.is_suspect() && self.in_flight == 0;
        is_due.then(|| self.send(None, now))
    }

    /// An acknowledgement: what the packet carried. What is lost by it goes to `lost`: three packets that were sent
    /// later on this path have come before it.
    pub(crate) fn acknowledged(&mut self, ack: Ack, now: Nanos, lost: &mut VecDeque<T>) -> Option<T> {
        let index = self.index(ack.sequence)?;
        let sent = &mut self.sent[index];
        if sent.settled {
            return None;
        }
        sent.settled = true;
        let (at, item) = (sent.at, sent.item.take());
        // Each packet has a number of its own, also one that carries something again: no sample is ambiguous.
        self.rtt.sample(now.saturating_sub(at).max(1));
        self.state = State::Up;
        let max = self.settled + self.in_flight.saturating_mul(MSS);
        let news = Acknowledged { una: self.settled, max, bytes: MSS, mss: MSS };
        self.round.grown += self.limit.acknowledge(&mut self.usage, &news);
        self.settle();
        self.round.acked += 1;
        self.round.marked += u32::from(ack.marked);
        for index in 0..index.saturating_sub(DUPLICATES as usize - 1) {
            self.lose(index, lost);
        }
        self.forget_settled();
        item
    }

    /// The place of a packet in `sent`.
    fn index(&self, sequence: u32) -> Option<usize> {
        let from_end = self.next.wrapping_sub(sequence) as usize;
        self.sent.len().checked_sub(from_end).filter(|_| from_end > 0)
    }

    fn lose(&mut self, index: usize, lost: &mut VecDeque<T>) {
        let sent = &mut self.sent[index];
        if !sent.settled {
            sent.settled = true;
            lost.extend(sent.item.take());
            self.round.lost += 1;
            self.settle();
        }
    }

    /// A packet is in flight no more.
    fn settle(&mut self) {
        self.in_flight -= 1;
        self.settled += MSS;
    }

    fn forget_settled(&mut self) {
        while self.sent.front().is_some_and(|sent| sent.settled) {
            self.sent.pop_front();
        }
    }

    /// Everything in flight goes to `lost`.
    fn give_up(&mut self, lost: &mut VecDeque<T>) {
        for index in 0..self.sent.len() {
            self.lose(index, lost);
        }
        self.sent.clear();
    }

    /// When something is to be done next without a packet that comes.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match self.state {
            State::Up => Some(self.sent.front()?.at + self.rtt.rto().nanos()),
            State::Failed { probe_at, .. } => Some(probe_at),
        }
    }

    /// The oldest packet is overdue: all in flight goes to `lost`, because a path keeps the order. After some such
    /// time-outs in a row the path has failed.
    pub(crate) fn time_out(&mut self, config: &PathConfig, now: Nanos, lost: &mut VecDeque<T>) {
        if !self.works() || self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.round.lost = 0;
        self.decide(self.sample(now, true));
        self.give_up(lost);
        self.rtt.back_off();
        if self.rtt.backoffs() >= config.failures {
            self.state =
                State::Failed { probe_at: now + config.probe, wait: (config.probe * 2).min(config.probe_most) };
        }
    }

    /// Asks the congestion policy once a round trip. `waiting` packets wait for a path.
    pub(crate) fn control(&mut self, now: Nanos, waiting: usize) {
        let round_trip = self.rtt.srtt().unwrap_or(0);
        let happened = self.round.acked > 0 || self.round.lost > 0;
        if happened && now.saturating_sub(self.round.began) >= round_trip {
            let unsent = (waiting as u64 * u64::from(MSS)).min(u32::MAX.into()) as u32;
            self.decide(Sample { unsent, ..self.sample(now, false) });
            self.round = Round { began: now, ..Round::default() };
        }
    }

    fn sample(&self, now: Nanos, timeout: bool) -> Sample {
        Sample {
            now,
            acked: u64::from(self.round.acked) * u64::from(MSS),
            ecn_acked: u64::from(self.round.marked) * u64::from(MSS),
            rtt: None,
            srtt: self.rtt.srtt(),
            losses: self.round.lost.min(1),
            undone: false,
            timeout,
            outstanding: self.in_flight.saturating_mul(MSS),
            unsent: 0,
            grown: self.round.grown,
            mss: MSS,
        }
    }

    fn decide(&mut self, sample: Sample) {
        let decision = self.policy.update(&sample);
        self.round.grown = 0;
        self.limit.set_cwnd(decision.cwnd);
        self.limit.set_growth(&mut self.usage, self.policy.growth());
    }

    /// The window in packets. One below one packet, which a policy may pace, is one packet here.
    fn window(&self) -> u32 {
        (self.limit.cwnd() / MSS).clamp(1, self.most)
    }

    /// The share of the window that is in flight, in 1/1024.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight.saturating_mul(1024) / self.window()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcp::congestion::CongestionName;

    // Checks RFC 5681: 3.1-c.
    #[test]
    fn acknowledgements_widen_the_window_and_a_timeout_reduces_it() {
        let congestion = CongestionName::named("cubic").unwrap();
        let config = PathConfig { congestion, ..PathConfig::default() };
        let mut path = Path::new(&config, 0);
        let (first, mut lost) = (path.report().window, VecDeque::new());
        (0..first).for_each(|item| _ = path.send(Some(item), 1));
        for sequence in 0..first {
            let ack = Ack { path: 0, sequence, marked: false };
            assert_eq!(path.acknowledged(ack, 1_000_000, &mut lost), Some(sequence));
            assert_eq!(path.report().window, first + sequence + 1, "before the policy runs");
        }
        path.control(2_000_000, 1);
        assert_eq!(path.report().window, 2 * first, "it has that already");
        path.send(Some(first), 3_000_000);
        path.time_out(&config, path.deadline().unwrap(), &mut lost);
        assert_eq!((path.report().window, lost), (1, VecDeque::from([first])));
    }
}
