//! TIME-WAIT and FIN-WAIT-2 of closed connections (RFC 9293 section 3.10.7.4).
use crate::config::HostConfig;
use crate::connections::{Connections, Lifecycle};
use crate::outbox::Outbox;
use crate::timers::Timer;
use ::host::Slab;
use engine::stream::FourTuple;
use engine::{DropReason, Nanos};
use std::collections::VecDeque;
use tcp::{Segment, TimeWait, TimeWaitDisposition};
use wire::Seq;

/// The waiting connections of a host, and how long they wait.
pub(crate) struct TimeWaits {
    all: Slab<TimeWait>,
    /// Keys in the order in which they came, some of them over.
    order: VecDeque<(Nanos, u32)>,
    time_wait: Nanos,
    fin_wait: Nanos,
    /// Most challenge acknowledgements of a connection in an interval of their limit.
    challenges: u8,
}

impl TimeWaits {
    pub(crate) fn new(config: &HostConfig) -> TimeWaits {
        let nanos = |ms: u32| Nanos::from(ms) * 1_000_000;
        TimeWaits {
            all: Slab::new(config.limits.max_time_wait.max(1)),
            order: VecDeque::new(),
            time_wait: nanos(config.timers.time_wait_ms),
            fin_wait: nanos(config.timers.fin_timeout_ms),
            challenges: config.limits.challenges_per_interval(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, key: u32) -> Option<&TimeWait> {
        self.all.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &TimeWait)> {
        self.all.iter()
    }

    /// Those whose keys are not below `first`.
    pub(crate) fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &TimeWait)> {
        self.all.iter_from(first)
    }

    /// Adds a closed connection. Where there are too many, the oldest is forgotten.
    pub(crate) fn start(&mut self, out: &mut Outbox<'_>, connections: &mut Connections, wait: TimeWait) {
        while let Some((since, key)) = self.order.front().copied() {
            let over = self.all.get(key).is_none_or(|wait| wait.since != since);
            if !over && !self.all.is_full() {
                break;
            }
            self.order.pop_front();
            if !over {
                self.end(out, connections, key);
            }
        }
        let (tuple, since) = (wait.tuple, wait.since);
        let Some(key) = self.all.insert(wait) else { return };
        self.order.push_back((since, key));
        connections.set(tuple, Lifecycle::TimeWait(key));
        self.offer_port(connections, &tuple, since);
        self.restart_clock(out, key);
    }

    /// A segment of a waiting connection. Returns the sequence number above which a new connection begins, where the
    /// segment is its SYN.
    pub(crate) fn on_segment(
        &mut self,
        out: &mut Outbox<'_>,
        connections: &mut Connections,
        key: u32,
        segment: &Segment,
    ) -> Option<Seq> {
        let wait = self.all.get_mut(key)?;
        let (since, ended_before) = (wait.since, wait.ends.peer_ended());
        let disposition = wait.on_segment(segment);
        let ack = wait.ack(out.now);
        match disposition {
            TimeWaitDisposition::Ignore => out.drops.count(DropReason::AfterClose),
            TimeWaitDisposition::Acknowledge => {
                out.drops.count(DropReason::AfterClose);
                if wait.challenges.allow_of(out.now, self.challenges) {
                    out.send_tcp(&segment.tuple, ack);
                } else {
                    out.drops.count(DropReason::ChallengeLimit);
                }
            }
            TimeWaitDisposition::Finished => {
                // Not within the budget for answers to unknown peers: without it, a peer that closes thousands of
                // connections a second keeps them all in LAST-ACK.
                out.send_tcp(&segment.tuple, ack);
                self.restart_clock(out, key);
                if !ended_before {
                    self.offer_port(connections, &segment.tuple, since);
                }
            }
            TimeWaitDisposition::Reuse(above) => {
                self.end(out, connections, key);
                return Some(above);
            }
            TimeWaitDisposition::Reset => {
                out.drops.count(DropReason::AfterClose);
                self.end(out, connections, key);
                out.reset(&segment.tuple, ack.seq, Some(ack.ack), ack.options.timestamps);
            }
            TimeWaitDisposition::Gone => self.end(out, connections, key),
        }
        None
    }

    /// The port of a connection in TIME-WAIT is for a connection that finds no other one.
    fn offer_port(&self, connections: &mut Connections, tuple: &FourTuple, since: Nanos) {
        connections.offer_port(tuple, since, |key| self.all.get(key).map(|wait| wait.since));
    }

    /// Starts the clock of a waiting connection anew.
    fn restart_clock(&self, out: &mut Outbox<'_>, key: u32) {
        let Some(wait) = self.all.get(key) else { return };
        let time = if wait.ends.peer_ended() { self.time_wait } else { self.fin_wait };
        out.timers.set(Timer::TimeWait(key), out.now + time);
    }

    /// Forgets a waiting connection.
    pub(crate) fn end(&mut self, out: &mut Outbox<'_>, connections: &mut Connections, key: u32) {
        out.timers.cancel(Timer::TimeWait(key));
        if let Some(wait) = self.all.remove(key) {
            connections.remove(&wait.tuple);
        }
    }
}
