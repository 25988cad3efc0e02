//! Service around the pipeline, on the engine's own thread (the service island of thesis section 4.4.1). It has context
//! queue, flow scheduler, the way out, and the modules' figures.
use crate::context_queue::ContextQueue;
use crate::figures::Count;
use crate::message::{Aside, Events, Job, Work};
use crate::scheduler::Scheduler;
use engine::stream::{self, Stream};
use engine::{Burst, Event, FlowId, Limits, Nanos};
use std::sync::Arc;

pub(crate) struct Service {
    pub contexts: ContextQueue,
    pub scheduler: Scheduler,
    /// For each flow group, when the next delayed acknowledgement is due; `Nanos::MAX` for none.
    pub flush_due: Vec<Nanos>,
    /// Descriptors taken, and segments granted.
    pub counts: [Arc<Count>; 2],
}

impl Service {
    /// With `threads`, modules are on threads of their own, so that works are on their way for a while.
    pub(crate) fn new(limits: &Limits, groups: u8, threads: bool) -> Service {
        Service {
            contexts: ContextQueue::new(limits.flows, limits.contexts),
            scheduler: Scheduler::new(limits.flows, threads),
            flush_due: vec![Nanos::MAX; groups as usize],
            counts: ["context_queue", "scheduler"].map(|name| Count::new(name.into())),
        }
    }

    /// Figures of context queue and flow scheduler.
    pub(crate) fn list(&self, into: &mut Vec<(String, &'static str, u64)>) {
        self.counts.iter().for_each(|count| count.list(into));
        for (count, waiting) in self.counts.iter().zip([self.contexts.waiting(), self.scheduler.waiting()]) {
            into.push((count.name().into(), "waiting", waiting as u64));
        }
    }

    pub(crate) fn flush_is_due(&self, group: usize, now: Nanos) -> bool {
        self.flush_due[group] <= now
    }

    /// A work leaves the pipeline: its frames go to the port, the rest to those whom it concerns. Payload is in its
    /// place by now, so that neither application nor peer gets completion of bytes that are not there (thesis section
    /// 4.3.1.3).
    #[inline(always)]
    pub(crate) fn leave(&mut self, work: &mut Work, now: Nanos, burst: &mut Burst<'_, Stream>) {
        if let Some(frame) = work.frame.take() {
            match work.exception {
                Some(exception) => burst.exceptions.push((exception, frame)),
                None => burst.pool.put(frame),
            }
        }
        if let Some(frame) = work.out.take() {
            burst.tx.push(frame);
        }
        match work.report {
            Some(report) => self.scheduler.report(work.flow, report, work.is_grant(), now),
            None if work.is_grant() => self.scheduler.grant_over(work.flow, work.sent(), now),
            None => {}
        }
        if let Some(positions) = work.completion {
            self.contexts.notify(work.flow, positions);
        }
        if !work.drops.is_empty() || !work.events.is_empty() || work.aside.is_some() {
            self.report_rare(work, burst);
        }
        if let Job::Flush { due } = work.job {
            self.flush_due[work.group as usize] = due;
        }
    }
}

impl Service {
    /// The rare results of works, of which the application gets some.
    #[cold]
    #[inline(never)]
    fn report_rare(&mut self, work: &mut Work, burst: &mut Burst<'_, Stream>) {
        if let Some(Aside::Sent(position)) = work.aside.as_deref() {
            self.contexts.report_sent(work.flow, *position);
        }
        if work.events.has(Events::URGENT) {
            self.contexts.report_urgent(work.flow, work.urgent.byte);
        }
        report(work, burst);
    }
}

/// The others: drops, and events for the control plane.
fn report(work: &mut Work, burst: &mut Burst<'_, Stream>) {
    for reason in work.drops.iter() {
        burst.drops.count(reason);
    }
    let flow = FlowId(work.flow);
    let too = work.events.has(Events::ENDED_BEFORE);
    let each = [
        (Events::ACTIVE, Event::Transport(stream::Event::Active(flow))),
        (Events::CONGESTION, Event::Transport(stream::Event::Congestion(flow))),
        (Events::LOCAL_FIN, Event::Transport(stream::Event::LocalFin(flow))),
        // Before FIN_ACKED, after which a closed connection leaves the engine without a reset (RFC 9293 section 3.6.1).
        (Events::ORPHAN_DATA, Event::Transport(stream::Event::OrphanData(flow))),
        (Events::FIN_ACKED, Event::Transport(stream::Event::FinAcked(flow))),
        (
            Events::PEER_FIN,
            if too {
                Event::Transport(stream::Event::PeerFinToo(flow))
            } else {
                Event::Transport(stream::Event::PeerFin(flow))
            },
        ),
        (Events::RESET, Event::Transport(stream::Event::Reset(flow))),
    ];
    burst.events.extend(each.into_iter().filter(|(bit, _)| work.events.has(*bit)).map(|(_, event)| event));
    burst.events.extend(work.aside.take().and_then(|aside| match *aside {
        Aside::End(end) => Some(Event::Removed(flow, end)),
        Aside::Frozen(Some(end)) => Some(Event::Transport(stream::Event::Frozen(flow, end))),
        Aside::Frozen(None) => Some(Event::Transport(stream::Event::Busy(flow))),
        Aside::Move(_) | Aside::Resume(_) | Aside::Grow { .. } | Aside::Sent(_) => None,
    }));
}
