//! Timer queue of the control plane. One entry for each thing; setting it again replaces the earlier time, so nothing
//! fires that was cancelled.
use ::host::{Deadlines, TimerQueue};
use engine::Nanos;

/// One millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection being opened: its SYN or SYN-ACK.
    HalfOpen(u32),
    /// An installed flow: retransmission, probes, congestion control.
    Flow(u32),
    /// An installed flow whose SYN-ACK is not acknowledged yet.
    Early(u32),
    /// A closed connection in TIME-WAIT or FIN-WAIT-2.
    TimeWait(u32),
    /// Two connections that are joined.
    Splice(u32),
    /// A listener whose connections may have to go to another process.
    Reassign(u32),
    /// What is held for a forked child.
    Hold(u64),
    /// Connections that an earlier daemon left.
    Survivors,
}

/// The set of timers. Those of connections are many and set often: they have timer queues.
#[derive(Default)]
pub(crate) struct Timers {
    flows: TimerQueue,
    handshakes: TimerQueue,
    time_waits: TimerQueue,
    others: Deadlines<Timer>,
    /// None is due before this time: most rounds check no more.
    quiet_until: Nanos,
}

impl Timers {
    /// The timer queue that a timer is in, and its number there.
    fn timer_queue(&mut self, timer: Timer) -> Option<(&mut TimerQueue, u32)> {
        match timer {
            Timer::Flow(flow) => Some((&mut self.flows, flow)),
            Timer::HalfOpen(key) => Some((&mut self.handshakes, key)),
            Timer::TimeWait(key) => Some((&mut self.time_waits, key)),
            Timer::Early(_) | Timer::Splice(_) | Timer::Reassign(_) | Timer::Hold(_) | Timer::Survivors => None,
        }
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Nanos) {
        self.quiet_until = self.quiet_until.min(at);
        if let Some((timer_queue, key)) = self.timer_queue(timer) {
            return timer_queue.set(key, at);
        }
        self.others.set(timer, at);
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some((timer_queue, key)) = self.timer_queue(timer) {
            return timer_queue.cancel(key);
        }
        self.others.cancel(timer);
    }

    /// None is due, by the bound alone: no timer is read.
    #[inline]
    pub(crate) fn are_quiet(&self, now: Nanos) -> bool {
        now < self.quiet_until
    }

    /// Takes the next one that is due, with the time at which it was.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<(Nanos, Timer)> {
        if self.are_quiet(now) {
            return None;
        }
        for timer_queue in [&mut self.flows, &mut self.handshakes, &mut self.time_waits] {
            timer_queue.advance(now);
        }
        let Some((at, timer)) = self.first().filter(|(at, _)| *at <= now) else {
            // The calendars go on with the days all the same.
            self.quiet_until = self.next().unwrap_or(Nanos::MAX).min(now + MILLISECOND);
            return None;
        };
        self.cancel(timer);
        Some((at, timer))
    }

    fn first(&self) -> Option<(Nanos, Timer)> {
        let flow = self.flows.first().map(|(at, flow)| (at, Timer::Flow(flow)));
        let half_open = self.handshakes.first().map(|(at, key)| (at, Timer::HalfOpen(key)));
        let wait = self.time_waits.first().map(|(at, key)| (at, Timer::TimeWait(key)));
        [flow, half_open, wait, self.others.first()].into_iter().flatten().min()
    }

    /// Some flows whose timers are due soon, in no order: a hint.
    pub(crate) fn flows_soon(&self, most: usize) -> impl Iterator<Item = u32> {
        self.flows.soon(most)
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        let others = self.others.first().map_or(Nanos::MAX, |(at, _)| at);
        let timer_queues = [&self.flows, &self.handshakes, &self.time_waits];
        let next = timer_queues
            .iter()
            .filter_map(|timer_queue| timer_queue.first())
            .fold(others, |next, (at, _)| next.min(at));
        Some(next).filter(|at| *at < Nanos::MAX)
    }

    /// Timers that are set.
    pub(crate) fn len(&self) -> usize {
        self.others.len() + self.flows.len() + self.handshakes.len() + self.time_waits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn setting_again_replaces_and_cancelled_ones_never_fire() {
        let mut timers = Timers::default();
        timers.set(Timer::Flow(1), 10);
        timers.set(Timer::Flow(1), 30);
        timers.set(Timer::TimeWait(1), 20);
        timers.set(Timer::HalfOpen(1), 5);
        timers.cancel(Timer::HalfOpen(1));
        assert_eq!((timers.next(), timers.pop(19)), (Some(20), None));
        assert_eq!(timers.pop(40), Some((20, Timer::TimeWait(1))));
        assert_eq!((timers.pop(40), timers.pop(40), timers.len()), (Some((30, Timer::Flow(1))), None, 0));
    }

    /// Whatever is set, set again, cancelled and taken: the same as with a plain list.
    #[test]
    fn agrees_with_a_list() {
        let (mut timers, mut list) = (Timers::default(), BTreeMap::new());
        let (mut random, mut now) = (1u32, 0);
        for _ in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (what, number, later) = (random >> 28, (random >> 16) % 50, u64::from(random >> 8) % 100);
            let timer = match number {
                0..20 => Timer::Flow(number),
                20..30 => Timer::HalfOpen(number),
                30..40 => Timer::TimeWait(number),
                _ => Timer::Splice(number),
            };
            match what {
                0..10 => {
                    timers.set(timer, now + later);
                    list.insert(timer, now + later);
                }
                10..12 => {
                    timers.cancel(timer);
                    list.remove(&timer);
                }
                _ => now += later / 10,
            }
            let first = list.iter().map(|(timer, at)| (*at, *timer)).min();
            assert_eq!((timers.next(), timers.len()), (first.map(|(at, _)| at), list.len()));
            let due = first.filter(|(at, _)| *at <= now);
            assert!(due.is_none() || !timers.are_quiet(now));
            assert_eq!(timers.pop(now), due);
            due.into_iter().for_each(|(_, timer)| {
                list.remove(&timer);
            });
        }
    }
}
