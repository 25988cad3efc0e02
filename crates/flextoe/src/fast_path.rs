//! The fast path through all modules: expected segments and descriptors, on flows about which nothing is unusual. Each
//! goes from its source to the application or the port at once. What modules pass to each other is never written down.
//! The protocol module may refuse one ([`Protocol::receive_fast`], [`Protocol::bump_fast`]). Then nothing has changed,
//! and it takes the slow path ([`crate::local`]).
use crate::dma::Dma;
use crate::message::{Job, Received, Sent, Work};
use crate::observer::Observer;
use crate::postprocess::Postprocess;
use crate::preprocess::Preprocess;
use crate::protocol::Protocol;
use crate::service::Service;
use engine::stream::{self, Stream};
use engine::{Burst, FlowId, Frame, Nanos};
use trace::Point;

/// The modules of one flow group.
pub(crate) struct FastPath<'a, 'b, O> {
    pub protocol: &'a mut Protocol,
    pub postprocess: &'a Postprocess,
    pub now: Nanos,
    pub observer: O,
    pub service: &'a mut Service,
    pub burst: &'a mut Burst<'b, Stream>,
}

impl<O: Observer> FastPath<'_, '_, O> {
    /// Received frames, up to one that is not for this path: returns how many, and that one.
    #[inline(always)]
    pub(crate) fn frames(
        mut self,
        preprocess: &Preprocess,
        frames: impl Iterator<Item = Box<Frame>>,
    ) -> (usize, Option<Box<Frame>>) {
        let mut done = 0;
        for frame in frames {
            let Some((flow, summary)) = preprocess.fast(&frame) else { return (done, Some(frame)) };
            let Some(received) = self.protocol.receive_fast(flow, &summary, self.now, self.observer) else {
                return (done, Some(frame));
            };
            self.observer.event(Point::Identified, flow, [summary.seq.0.into(), summary.payload_len.into()]);
            self.deliver(flow, &received, Some(frame), summary.payload_at);
            done += 1;
        }
        (done, None)
    }

    /// Received segments of a flow group that have become works, up to one that is not for this path: returns how many.
    #[inline(always)]
    pub(crate) fn segments(mut self, works: &mut [Work]) -> usize {
        let group = works.first().map_or(0, |work| work.group);
        let mut done = 0;
        for work in works {
            if work.group != group || !matches!(work.job, Job::Receive) {
                break;
            }
            let received = self.protocol.receive_fast(work.flow, &work.summary, self.now, self.observer);
            let Some(received) = received else { break };
            self.deliver(work.flow, &received, work.frame.take(), work.summary.payload_at);
            done += 1;
        }
        done
    }

    /// The same of descriptors.
    #[inline(always)]
    pub(crate) fn descriptors(mut self, works: &[Work]) -> usize {
        let group = works.first().map_or(0, |work| work.group);
        let mut done = 0;
        for work in works {
            if work.group != group {
                break;
            }
            let Some(sent) = self.protocol.bump_fast(work, self.now, self.observer) else { break };
            self.send(work, &sent);
            done += 1;
        }
        done
    }

    /// What comes after the protocol module of a received segment, whose payload starts at byte `payload_at`.
    #[inline(always)]
    fn deliver(&mut self, flow: u32, received: &Received, frame: Option<Box<Frame>>, payload_at: u32) {
        if let Some(report) = received.report {
            self.service.scheduler.report(flow, report, false, self.now);
        }
        let buffer = self.postprocess.received(flow, &received.tally, self.now);
        if let Some(frame) = frame {
            if let Some(buffer) = buffer {
                Dma::received(flow, &frame, payload_at, received.place, buffer, self.observer);
            }
            self.burst.pool.put(frame);
        }
        self.service.contexts.notify(flow, received.completion);
    }

    /// The same of a descriptor.
    #[inline(always)]
    fn send(&mut self, work: &Work, sent: &Sent) {
        if let Some(segment) = &sent.segment {
            if let Some((mut frame, buffers)) = self.postprocess.sent(work.flow, segment, self.burst.pool) {
                Dma::sent(work.flow, &mut frame, segment, &buffers.tx, self.observer);
                // It lies in the cache of the application's core, and the receiver is going to copy it a batch later.
                buffers.tx.prefetch(segment.pos);
                if let Job::Bump { rx_head, .. } = work.job {
                    // So does the place of what comes next: the application has read what was there.
                    buffers.rx.prefetch_to_write(rx_head);
                }
                self.burst.tx.push(frame);
            }
        }
        if sent.active {
            self.burst.events.push(stream::Event::Active(FlowId(work.flow)).into());
        }
        // Its grant was not counted: nothing waits on this thread.
        if let Some(report) = sent.report {
            self.service.scheduler.report(work.flow, report, false, self.now);
        }
    }
}
