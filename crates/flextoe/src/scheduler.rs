//! Flow scheduler (thesis section 4.3.4), after Carousel: flows with a rate wait in a time wheel; flows without one are
//! served round-robin. Only flows that may send something now are in either, so it is work-conserving.
use crate::batch::Batch;
use crate::message::{Job, Report, Work};
use crate::slots::Slots;
use engine::{Nanos, ROUND_BYTES};
use std::collections::VecDeque;
use trace::{NO_FLOW, Point, Tracer};

/// Segments of a flow without a rate in one round.
const QUANTUM: u32 = 8;
/// Bytes of a flow without a rate in one round, unless one segment has more.
const QUANTUM_BYTES: u32 = 64 << 10;
/// A wheel slot is 2^12 ns, 4 us.
const SLOT_SHIFT: u32 = 12;
/// Slots of the wheel: a horizon of 16.8 ms. What is due later waits in the last one and is put in again.
const SLOTS: u64 = 4096;
/// Intervals are in units of 2^-20 ns a byte.
const INTERVAL_SHIFT: u32 = 20;
/// A flow that was served late may catch up by this much.
const SLACK: Nanos = 50_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Idle,
    Ready,
    Wheel,
}

struct Entry {
    /// Segments that the flow may send, as last reported.
    segments: u32,
    /// Grants that were not reported back.
    in_flight: u32,
    /// The flow's group (Steer).
    group: u8,
    place: QueueState,
    /// Time a byte takes at the flow's rate; 0 without one. The control side divides, so that the data-path only
    /// multiplies (thesis section 4.4.1.1).
    interval: u64,
    /// Most bytes at once at this rate: what it sends in 50 us.
    quantum: u32,
    /// With a rate: when the flow may send again.
    next: Nanos,
    /// Bytes of its last segment.
    last: u32,
}

/// Bytes of a flow's state here.
#[cfg(test)]
pub(crate) const STATE: usize = size_of::<Option<Entry>>();

impl Entry {
    fn end_grant(&mut self, sent: u32, now: Nanos) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.last = sent;
        if self.interval > 0 {
            let start = self.next.max(now.saturating_sub(SLACK));
            self.next = start + ((sent as u64).saturating_mul(self.interval) >> INTERVAL_SHIFT);
        }
    }
}

/// The flow scheduler module.
pub(crate) struct Scheduler {
    entries: Slots<Entry>,
    ready: VecDeque<u32>,
    wheel: Wheel,
    /// Works are on their way for a while: grants must be counted until they are reported back.
    threads: bool,
}

impl Scheduler {
    pub(crate) fn new(flows: u32, threads: bool) -> Scheduler {
        Scheduler { entries: Slots::new(flows), ready: VecDeque::new(), wheel: Wheel::new(), threads }
    }

    pub(crate) fn install(&mut self, flow: u32, group: u8, rate: u64) {
        let (interval, quantum) = pace(rate);
        let entry =
            Entry { segments: 0, in_flight: 0, group, place: QueueState::Idle, interval, quantum, next: 0, last: 0 };
        self.entries.insert(flow, entry);
    }

    /// A flow that stands in the wheel or among the ready ones is skipped there when it is next.
    pub(crate) fn remove(&mut self, flow: u32) {
        self.entries.remove(flow);
    }

    /// Sets a flow's rate, bytes a second; 0 for none.
    pub(crate) fn set_rate(&mut self, flow: u32, rate: u64, now: Nanos) {
        if let Some(entry) = self.entries.get_mut(flow) {
            let before = entry.interval;
            (entry.interval, entry.quantum) = pace(rate);
            entry.next = rescaled(entry.next, before, entry.interval, now);
            if entry.place == QueueState::Wheel {
                entry.place = QueueState::Idle;
            }
            self.enqueue(flow, now);
        }
    }

    /// A work's message about its flow; `grant` where this module had granted it.
    #[inline]
    pub(crate) fn report(&mut self, flow: u32, report: Report, grant: bool, now: Nanos) {
        let Some(entry) = self.entries.get_mut(flow) else { return };
        if grant {
            entry.end_grant(report.sent, now);
        }
        entry.segments = report.segments;
        if entry.segments > entry.in_flight && entry.place == QueueState::Idle {
            self.enqueue(flow, now);
        }
    }

    /// A grant is used, after which there is nothing to send, as was reported before.
    pub(crate) fn grant_over(&mut self, flow: u32, sent: u32, now: Nanos) {
        if let Some(entry) = self.entries.get_mut(flow) {
            entry.end_grant(sent, now);
        }
    }

    /// Prefetches a flow's entry.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: u32) {
        self.entries.prefetch(flow);
    }

    fn enqueue(&mut self, flow: u32, now: Nanos) {
        let Some(entry) = self.entries.get_mut(flow).filter(|entry| entry.place == QueueState::Idle) else { return };
        if entry.interval > 0 && entry.next > now {
            entry.place = QueueState::Wheel;
            self.wheel.insert(flow, entry.next);
        } else {
            entry.place = QueueState::Ready;
            self.ready.push_back(flow);
        }
    }

    /// No flow waits for a grant.
    #[inline]
    pub(crate) fn nobody_waits(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether a flow whose application has just sent a bump has a grant at once. It has where no flow waits for one,
    /// and it has no rate. The usual case of a request or a response: what would otherwise be two works is one.
    #[inline]
    pub(crate) fn grant_at_once(&mut self, flow: u32) -> bool {
        debug_assert!(self.nobody_waits(), "others come first");
        let Some(entry) = self.entries.get_mut(flow) else { return false };
        let alone = entry.place == QueueState::Idle && entry.interval == 0 && entry.in_flight == 0;
        if self.threads {
            entry.in_flight += alone as u32;
        }
        alone
    }

    /// Grants segments: at most `most` works.
    pub(crate) fn pick(&mut self, now: Nanos, most: usize, works: &mut Batch, tracer: &Tracer) {
        self.advance_wheel(now);
        if self.waiting() > 0 {
            tracer.value(Point::SchedulerWaiting, NO_FLOW, self.waiting() as u64);
        }
        let end = works.len() + most;
        let mut bytes = 0;
        while works.len() < end && bytes < ROUND_BYTES {
            let Some(flow) = self.ready.pop_front() else { break };
            bytes = self.serve(flow, now, end, works, tracer).saturating_add(bytes);
        }
        report_grants(works, tracer);
    }

    /// Serves a flow for this round; returns about how many bytes it will send.
    fn serve(&mut self, flow: u32, now: Nanos, end: usize, works: &mut Batch, tracer: &Tracer) -> u32 {
        let Some(entry) = self.entries.get_mut(flow).filter(|entry| entry.place == QueueState::Ready) else { return 0 };
        entry.place = QueueState::Idle;
        let waiting = entry.segments.saturating_sub(entry.in_flight);
        if waiting == 0 {
            return 0;
        }
        let last = entry.last;
        if entry.interval > 0 {
            // One at a time: when the next one is due depends on what this one turns out to be.
            if entry.next > now {
                self.enqueue(flow, now);
            } else if entry.in_flight == 0 {
                entry.in_flight = 1;
                if entry.next > 0 {
                    tracer.value(Point::TurnLate, flow, now - entry.next);
                }
                works.add(flow, Job::Transmit { most: entry.quantum }).group = entry.group;
                return last;
            }
            return 0;
        }
        let grants = waiting.min(QUANTUM).min((end - works.len()) as u32).min((QUANTUM_BYTES / last.max(1)).max(1));
        entry.in_flight += grants;
        for _ in 0..grants {
            works.add(flow, Job::Transmit { most: u32::MAX }).group = entry.group;
        }
        if waiting > grants {
            self.enqueue(flow, now);
        }
        grants.saturating_mul(last)
    }

    fn advance_wheel(&mut self, now: Nanos) {
        let Scheduler { entries, ready, wheel, .. } = self;
        wheel.advance(now, |flow| {
            if let Some(entry) = entries.get_mut(flow).filter(|entry| entry.place == QueueState::Wheel) {
                entry.place = QueueState::Ready;
                ready.push_back(flow);
            }
        });
    }

    /// Flows that wait for service or for their time.
    pub(crate) fn waiting(&self) -> usize {
        self.ready.len() + self.wheel.count
    }

    pub(crate) fn has_work(&self, now: Nanos) -> bool {
        !self.ready.is_empty() || self.wheel.next_deadline().is_some_and(|due| due <= now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.wheel.next_deadline()
    }
}

/// Reports to tracepoints the grants of a round: one work for each segment, those of a flow together.
#[inline(always)]
fn report_grants(works: &[Work], tracer: &Tracer) {
    if tracer.is_on(Point::Grant) {
        let grants = works.chunk_by(|one, next| one.flow == next.flow);
        grants.for_each(|of_flow| tracer.event(Point::Grant, of_flow[0].flow, [of_flow.len() as u64, 0]));
    }
}

/// When a flow may send again whose rate changes: it waits for as many bytes as before, at the new rate. Otherwise each
/// change, and congestion control makes one a round trip, would let a segment go at once.
fn rescaled(next: Nanos, before: u64, after: u64, now: Nanos) -> Nanos {
    let left = next.saturating_sub(now);
    match before {
        0 => next.min(now),
        _ => now.saturating_add((u128::from(left) * u128::from(after) / u128::from(before)).min(1 << 62) as Nanos),
    }
}

/// From bytes a second to interval and quantum.
fn pace(rate: u64) -> (u64, u32) {
    if rate == 0 {
        return (0, u32::MAX);
    }
    let interval = ((1_000_000_000u64 << INTERVAL_SHIFT) / rate).max(1);
    (interval, (rate / 20_000).clamp(1, u32::MAX as u64) as u32)
}

/// The time wheel. The order of flows within a slot is not kept, as in the paper.
struct Wheel {
    slots: Vec<Vec<u32>>,
    /// One bit a slot: it is not empty.
    occupied: [u64; SLOTS as usize / 64],
    /// Slots up to this tick are done.
    tick: u64,
    count: usize,
}

impl Wheel {
    fn new() -> Wheel {
        Wheel { slots: vec![Vec::new(); SLOTS as usize], occupied: [0; SLOTS as usize / 64], tick: 0, count: 0 }
    }

    fn insert(&mut self, flow: u32, due: Nanos) {
        let tick = due.div_ceil(1 << SLOT_SHIFT).clamp(self.tick + 1, self.tick + SLOTS - 1);
        let slot = (tick % SLOTS) as usize;
        self.slots[slot].push(flow);
        self.occupied[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
    }

    fn advance(&mut self, now: Nanos, mut due: impl FnMut(u32)) {
        let target = now >> SLOT_SHIFT;
        while self.count > 0 {
            let Some(tick) = self.next_tick().filter(|tick| *tick <= target) else { break };
            let slot = (tick % SLOTS) as usize;
            self.count -= self.slots[slot].len();
            self.slots[slot].drain(..).for_each(&mut due);
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            self.tick = tick;
        }
        self.tick = self.tick.max(target);
    }

    /// The first tick after `self.tick` whose slot is not empty.
    fn next_tick(&self) -> Option<u64> {
        let mut tick = self.tick + 1;
        while tick < self.tick + SLOTS {
            let slot = (tick % SLOTS) as usize;
            let word = self.occupied[slot / 64] >> (slot % 64);
            if word != 0 {
                let found = tick + word.trailing_zeros() as u64;
                return (found < self.tick + SLOTS).then_some(found);
            }
            tick += 64 - (slot % 64) as u64;
        }
        None
    }

    fn next_deadline(&self) -> Option<Nanos> {
        if self.count == 0 { None } else { self.next_tick().map(|tick| tick << SLOT_SHIFT) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(scheduler: &mut Scheduler, now: Nanos) -> Vec<u32> {
        let mut works = Batch::default();
        scheduler.pick(now, 1000, &mut works, &Tracer::off());
        works.iter().map(|work| work.flow).collect()
    }

    #[test]
    fn flows_without_rate_share_in_turn() {
        let mut s = Scheduler::new(4, true);
        for flow in 0..2 {
            s.install(flow, 0, 0);
            s.report(flow, Report { segments: 20, sent: 0 }, false, 0);
        }
        let mut works = Batch::default();
        s.pick(0, 36, &mut works, &Tracer::off());
        let given: Vec<u32> = works.iter().map(|work| work.flow).collect();
        assert_eq!(given, [&[0; 8][..], &[1; 8], &[0; 8], &[1; 8], &[0; 4]].concat());
        assert!(s.has_work(0));
        assert_eq!(granted(&mut s, 0), [1; 4]);
        assert!(!s.has_work(0), "reports show whether there is more");
    }

    #[test]
    fn short_flows_wait_for_few_bytes_of_long_ones() {
        let mut s = Scheduler::new(5, true);
        (0..5).for_each(|flow| s.install(flow, 0, 0));
        // Four flows have sent a super-segment each, and have more; then the fifth has a segment.
        for flow in 0..4 {
            s.report(flow, Report { segments: 1, sent: 0 }, false, 0);
        }
        assert_eq!(granted(&mut s, 0), [0, 1, 2, 3]);
        for flow in 0..4 {
            s.report(flow, Report { segments: 8, sent: 65_160 }, true, 0);
        }
        s.report(4, Report { segments: 1, sent: 0 }, false, 0);
        let mut bytes = 0;
        loop {
            let round = granted(&mut s, 0);
            if round.contains(&4) {
                break;
            }
            assert!(!round.is_empty() && round.len() as u32 * 65_160 < ROUND_BYTES + QUANTUM_BYTES, "{round:?}");
            bytes += round.len() * 65_160;
        }
        assert!(bytes <= 4 * 65_160, "{bytes} bytes went before it");
    }

    #[test]
    fn a_rate_is_kept_over_many_grants() {
        for rate in [1_000_000u64, 125_000_000, 1_250_000_000] {
            let mut s = Scheduler::new(1, true);
            s.install(0, 0, rate);
            s.report(0, Report { segments: 1, sent: 0 }, false, 0);
            let (mut now, mut sent) = (0, 0u64);
            while now < 1_000_000_000 {
                for _ in granted(&mut s, now) {
                    sent += 1448;
                    s.report(0, Report { segments: 1, sent: 1448 }, true, now);
                }
                now = s.next_deadline().unwrap_or(now).max(now + 1000);
            }
            let error = (sent as f64 - rate as f64).abs() / rate as f64;
            assert!(error < 0.02, "rate {rate}: sent {sent}");
        }
    }

    #[test]
    fn a_rate_that_changes_often_is_kept_too() {
        let mut s = Scheduler::new(1, true);
        s.install(0, 0, 1_000_000);
        s.report(0, Report { segments: 1, sent: 0 }, false, 0);
        let mut sent = 0u64;
        for round in 0..100_000u64 {
            let now = round * 10_000;
            // Four times between any two segments, up and down around 1 MB/s.
            if round % 40 == 0 {
                s.set_rate(0, if round % 80 == 0 { 900_000 } else { 1_100_000 }, now);
            }
            for _ in granted(&mut s, now) {
                sent += 1448;
                s.report(0, Report { segments: 1, sent: 1448 }, true, now);
            }
        }
        assert!((980_000..1_020_000).contains(&sent), "in one second: {sent}");
    }

    #[test]
    fn a_flow_that_loses_its_rate_need_not_wait() {
        let mut s = Scheduler::new(1, true);
        s.install(0, 0, 1000);
        s.report(0, Report { segments: 1, sent: 1448 }, true, 100_000);
        assert!(granted(&mut s, 200_000).is_empty(), "for more than a second");
        s.set_rate(0, 0, 200_000);
        assert_eq!(granted(&mut s, 200_000), [0]);
    }

    #[test]
    fn a_removed_flow_gets_no_grant_under_a_reused_number() {
        let mut s = Scheduler::new(1, true);
        s.install(0, 0, 1_000_000);
        s.report(0, Report { segments: 5, sent: 1448 }, true, 100_000);
        s.remove(0);
        s.install(0, 0, 0);
        assert!(granted(&mut s, 50_000_000).is_empty());
        s.report(0, Report { segments: 1, sent: 0 }, false, 50_000_000);
        assert_eq!(granted(&mut s, 50_000_000), [0]);
    }

    #[test]
    fn the_wheel_serves_every_deadline_once_in_time() {
        let mut wheel = Wheel::new();
        let mut dues: Vec<Nanos> = (0..500u64).map(|i| i * i * 40 + 5000).collect();
        for (flow, due) in dues.iter().enumerate() {
            wheel.insert(flow as u32, *due);
        }
        let mut served = Vec::new();
        while let Some(now) = wheel.next_deadline() {
            wheel.advance(now, |flow| {
                assert!(dues[flow as usize] <= now && now < dues[flow as usize] + (1 << SLOT_SHIFT));
                served.push(flow);
            });
        }
        served.sort();
        dues.sort();
        assert_eq!(served, (0..500).collect::<Vec<u32>>());
    }
}
