//! When things are due. One entry for each thing; setting it again replaces the earlier time, so nothing fires that
//! was cancelled.
use engine::Nanos;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A connection being opened: its SYN or SYN-ACK.
    Opening(u32),
    /// An installed flow: retransmission, probes, congestion control.
    Flow(u32),
    /// A closed connection in TIME-WAIT or FIN-WAIT-2.
    Wait(u32),
    /// An address in the ARP table.
    Arp(Ipv4Addr),
    /// Two connections that are joined.
    Splice(u32),
    /// What is held for a forked child.
    Hold(u64),
}

/// The set of timers.
#[derive(Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Nanos, Timer)>,
    set: BTreeMap<Timer, Nanos>,
}

impl Timers {
    pub fn set(&mut self, timer: Timer, at: Nanos) {
        if let Some(earlier) = self.set.insert(timer, at) {
            self.due.remove(&(earlier, timer));
        }
        self.due.insert((at, timer));
    }

    pub fn cancel(&mut self, timer: Timer) {
        if let Some(at) = self.set.remove(&timer) {
            self.due.remove(&(at, timer));
        }
    }

    /// Takes the next one that is due.
    pub fn pop(&mut self, now: Nanos) -> Option<Timer> {
        let (at, timer) = *self.due.first()?;
        if at > now {
            return None;
        }
        self.due.pop_first();
        self.set.remove(&timer);
        Some(timer)
    }

    pub fn next(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Timers that are set.
    pub fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
