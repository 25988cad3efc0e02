//! Timer queue of the control plane. One entry for each thing; setting it again replaces the earlier time, so nothing
//! fires that was cancelled.
use ::host::{Calendar, Deadlines};
use engine::Nanos;

/// One millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// A timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection being opened: its SYN or SYN-ACK.
    Opening(u32),
    /// An installed flow: retransmission, probes, congestion control.
    Flow(u32),
    /// A closed connection in TIME-WAIT or FIN-WAIT-2.
    Wait(u32),
    /// Two connections that are joined.
    Splice(u32),
    /// A listener whose connections may have to go to another process.
    Turn(u32),
    /// What is held for a forked child.
    Hold(u64),
    /// Connections that an earlier daemon left.
    Survivors,
}

/// The set of timers. Those of connections are many and set often: they have calendars.
#[derive(Default)]
pub(crate) struct Timers {
    flows: Calendar,
    openings: Calendar,
    waits: Calendar,
    others: Deadlines<Timer>,
}

impl Timers {
    /// The calendar that a timer is in, and its number there.
    fn calendar(&mut self, timer: Timer) -> Option<(&mut Calendar, u32)> {
        match timer {
            Timer::Flow(flow) => Some((&mut self.flows, flow)),
            Timer::Opening(key) => Some((&mut self.openings, key)),
            Timer::Wait(key) => Some((&mut self.waits, key)),
            Timer::Splice(_) | Timer::Turn(_) | Timer::Hold(_) | Timer::Survivors => None,
        }
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Nanos) {
        if let Some((calendar, key)) = self.calendar(timer) {
            return calendar.set(key, at);
        }
        self.others.set(timer, at);
    }

    pub(crate) fn cancel(&mut self, timer: Timer) {
        if let Some((calendar, key)) = self.calendar(timer) {
            return calendar.cancel(key);
        }
        self.others.cancel(timer);
    }

    /// Takes the next one that is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Timer> {
        for calendar in [&mut self.flows, &mut self.openings, &mut self.waits] {
            calendar.advance(now);
        }
        // Most of the time there is none.
        self.next().filter(|at| *at <= now)?;
        let (_, timer) = self.first()?;
        self.cancel(timer);
        Some(timer)
    }

    fn first(&self) -> Option<(Nanos, Timer)> {
        let flow = self.flows.first().map(|(at, flow)| (at, Timer::Flow(flow)));
        let opening = self.openings.first().map(|(at, key)| (at, Timer::Opening(key)));
        let wait = self.waits.first().map(|(at, key)| (at, Timer::Wait(key)));
        [flow, opening, wait, self.others.first()].into_iter().flatten().min()
    }

    /// Some flows whose timers are due soon, in no order: a hint.
    pub(crate) fn flows_soon(&self, most: usize) -> impl Iterator<Item = u32> {
        self.flows.soon(most)
    }

    pub(crate) fn next(&self) -> Option<Nanos> {
        let others = self.others.first().map_or(Nanos::MAX, |(at, _)| at);
        let calendars = [&self.flows, &self.openings, &self.waits];
        let next = calendars.iter().filter_map(|calendar| calendar.first()).fold(others, |next, (at, _)| next.min(at));
        Some(next).filter(|at| *at < Nanos::MAX)
    }

    /// Timers that are set.
    pub(crate) fn len(&self) -> usize {
        self.others.len() + self.flows.len() + self.openings.len() + self.waits.len()
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
        timers.set(Timer::Wait(1), 20);
        timers.set(Timer::Opening(1), 5);
        timers.cancel(Timer::Opening(1));
        assert_eq!((timers.next(), timers.pop(19)), (Some(20), None));
        assert_eq!(timers.pop(40), Some(Timer::Wait(1)));
        assert_eq!((timers.pop(40), timers.pop(40), timers.len()), (Some(Timer::Flow(1)), None, 0));
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
                20..30 => Timer::Opening(number),
                30..40 => Timer::Wait(number),
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
            let due = first.filter(|(at, _)| *at <= now).map(|(_, timer)| timer);
            assert_eq!(timers.pop(now), due);
            due.into_iter().for_each(|timer| {
                list.remove(&timer);
            });
        }
    }
}
