//! The pipeline on the engine's own thread: a batch goes through one module, then the next.
use crate::batch::{BATCH, Batch, MANY};
use crate::dma::Dma;
use crate::mapping::Mapping;
use crate::message::{Control, Job, Received, Work};
use crate::modules::{self, Chain};
use crate::postprocess::Postprocess;
use crate::preprocess::Preprocess;
use crate::protocol::{self, Protocol};
use crate::record;
use crate::service::{Count, Service};
use crate::traced::{self, ModuleName, Said};
use engine::stream::{self, Stream};
use engine::{Burst, Checksum, FlowId, Frame, Limits, LoadedModule, Nanos, Stage};
use std::iter::Take;
use std::sync::Arc;
use std::vec::Drain;
use trace::Point;

/// Frames behind one that is not plain that go the long way with it.
const BEHIND: usize = 7;

pub(crate) struct Local {
    pub ingress: Chain,
    /// One for each flow group.
    flow: Vec<Chain>,
    preprocess: Preprocess,
    /// One for each flow group.
    protocols: Vec<Protocol>,
    postprocess: Postprocess,
    dma: Dma,
    flushes: Batch,
    /// Flows that are installed.
    flows: usize,
    counts: [Arc<Count>; 4],
}

impl Local {
    pub(crate) fn new(limits: &Limits, mapping: &Mapping) -> Local {
        Local {
            ingress: Chain::new(Stage::Ingress, 0),
            flow: (0..mapping.flow_groups).map(|group| Chain::new(Stage::Flow, group.into())).collect(),
            preprocess: Preprocess::new(limits.flows, mapping.flow_groups),
            protocols: (0..mapping.flow_groups).map(|group| Protocol::new(group, limits.flows, false)).collect(),
            postprocess: Postprocess::new(limits.flows, false),
            dma: Dma::new(limits.flows),
            flushes: Batch::default(),
            flows: 0,
            counts: ["preprocess", "protocol", "postprocess", "dma"].map(|name| Count::new(name.into())),
        }
    }

    /// From now on these modules of operators run.
    pub(crate) fn change(&mut self, modules: &[LoadedModule]) {
        self.ingress.change(modules);
        self.flow.iter_mut().for_each(|chain| chain.change(modules));
    }

    pub(crate) fn control(&mut self, control: &Control, group: usize, now: Nanos) {
        match control {
            Control::Install(_) => self.flows += 1,
            Control::Forget(_) => self.flows = self.flows.saturating_sub(1),
            Control::Rebind(..) | Control::NextHop(..) | Control::Modules(..) => {}
        }
        self.preprocess.control(control);
        self.protocols[group].control(control, now);
        self.postprocess.control(control);
        self.dma.control(control);
    }

    /// Received frames, of which it may leave some. While no observer watches a single module, each goes through all
    /// modules at once, up to the first one that is not plain. That one and a few behind it become works. Of many
    /// flows, one has something unusual in nearly every burst, if only that more was advertised since the edge was
    /// read.
    pub(crate) fn arrive(
        &mut self,
        frames: &mut Take<&mut Drain<'_, Box<Frame>>>,
        batch: &mut Batch,
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        let [preprocess, protocol, ..] = &self.counts;
        let due = [(preprocess, ModuleName::Preprocess), (protocol, ModuleName::Protocol)];
        let timed = due.iter().any(|(count, module)| count.is_due(*module, &service.tracer));
        let watched = service.tracer.is_streaming() || burst.recorder.is_some();
        let passed = self.flow.iter().any(|chain| !chain.is_empty());
        // Of many flows, what is needed of each is asked for ahead, batch by batch.
        if !(watched || timed || passed || self.flows >= MANY) {
            let other = match service.tracer.is_active() {
                false => self.straight::<false>(frames, now, service, burst),
                true => self.straight::<true>(frames, now, service, burst),
            };
            if let Some(frame) = other {
                // Where checksums are still to be verified, none is plain.
                let most = if frame.checksum == Checksum::Complete { BATCH } else { BEHIND };
                batch.receive(frame);
                return batch.receive_most(frames, most);
            }
        }
        batch.receive_most(frames, BATCH);
    }

    /// Plain segments, from the port to the application without a work; returns the first frame that is none. `COUNTED`
    /// where tracepoints are on.
    #[inline(never)]
    fn straight<const COUNTED: bool>(
        &mut self,
        frames: &mut Take<&mut Drain<'_, Box<Frame>>>,
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> Option<Box<Frame>> {
        let Local { preprocess, protocols, postprocess, counts, .. } = self;
        // With several, flow groups are told apart batch by batch.
        let [protocol] = &mut protocols[..] else { return None };
        let (mut done, mut other, mut said) = (0, None, Said::new());
        for frame in frames {
            let Some((flow, summary)) = preprocess.plain(&frame) else {
                other = Some(frame);
                break;
            };
            let start = if COUNTED { service.tracer.sample() } else { 0 };
            let Some(received) = protocol.receive_plain(flow, &summary, now) else {
                other = Some(frame);
                break;
            };
            if COUNTED {
                said.segment(&received, start, &service.tracer);
            }
            take_in(postprocess, flow, &received, (Some(frame), summary.payload_at), now, service, burst);
            done += 1;
        }
        if COUNTED && done > 0 {
            said.end(&service.tracer);
            service.tracer.add(Point::Identified, done as u64);
        }
        counts.iter().zip(ModuleName::ALL).for_each(|(count, name)| count.took(name, done, &service.tracer));
        other
    }

    /// The modules that only received segments pass: pre-processing and those of operators for flows.
    pub(crate) fn receive(&mut self, batch: &mut Batch, now: Nanos, service: &Service, burst: &mut Burst<'_, Stream>) {
        let start = self.counts[0].begin(ModuleName::Preprocess, &service.tracer);
        if self.flows >= MANY {
            self.preprocess.prefetch_ahead(batch, |flow| self.prefetch_states(flow, service));
        }
        self.preprocess.process(batch);
        self.counts[0].end(ModuleName::Preprocess, batch, start, &service.tracer);
        if self.flow.first().is_some_and(|chain| !chain.is_empty()) {
            self.flow.iter_mut().for_each(|chain| modules::flow(chain, batch, now, burst.pool));
        }
    }

    /// Acknowledgements that no data took along, and delayed ones that are due; returns how many went out.
    pub(crate) fn flush(
        &mut self,
        worked: bool,
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let before = burst.tx.len();
        let mut flushes = std::mem::take(&mut self.flushes);
        for group in 0..self.protocols.len() {
            if worked || service.flush_is_due(group, now) {
                flushes.add(u32::MAX, Job::Flush { due: Nanos::MAX }).group = group as u8;
            }
        }
        if !flushes.is_empty() {
            self.run(&mut flushes, now, service, burst);
        }
        self.flushes = flushes;
        burst.tx.len() - before
    }

    /// Runs a batch to completion.
    pub(crate) fn run(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_, Stream>) {
        if batch.is_empty() {
            return;
        }
        let (count, tracer) = (&self.counts[1], &service.tracer);
        let start = count.begin(ModuleName::Protocol, tracer);
        let flushes = batch.last().is_some_and(|work| matches!(work.job, Job::Flush { .. }));
        if start == 0 && !flushes && !tracer.is_streaming() && burst.recorder.is_none() {
            return match tracer.is_active() {
                false => self.run_straight::<false>(batch, now, service, burst),
                true => self.run_straight::<true>(batch, now, service, burst),
            };
        }
        batch.iter_mut().for_each(Work::begin);
        for protocol in &mut self.protocols {
            protocol.process(batch, now, tracer);
        }
        count.end(ModuleName::Protocol, batch, start, tracer);
        self.finish(batch, now, service, burst);
        batch.clear();
    }

    /// As [`Local::run`], while no observer watches a single module. Each work goes through protocol and all that comes
    /// after it at once. What modules pass to each other of a plain one is never written down. `COUNTED` where
    /// tracepoints are on.
    fn run_straight<const COUNTED: bool>(
        &mut self,
        batch: &mut Batch,
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        if self.flows >= MANY {
            self.prefetch(batch, service);
        }
        let mut left = &mut batch[..];
        while let Some(work) = left.first_mut() {
            // Those of a kind follow each other, and each kind has a loop of its own.
            let done = match work.job {
                Job::Receive => self.segments::<COUNTED>(left, now, service, burst),
                Job::Bump { .. } => self.descriptors::<COUNTED>(left, now, service, burst),
                _ => 0,
            };
            if done == 0 {
                self.any::<COUNTED>(&mut left[0], now, service, burst);
            }
            left = &mut left[done.max(1)..];
        }
        let after = self.counts.iter().zip(ModuleName::ALL).skip(1);
        after.for_each(|(count, name)| count.took(name, batch.len(), &service.tracer));
        batch.clear();
    }

    /// Prefetches the modules' state of a flow. Its group is not known yet, or is the only one, as a rule.
    #[inline(always)]
    fn prefetch_states(&self, flow: u32, service: &Service) {
        self.protocols.iter().for_each(|protocol| protocol.prefetch(flow));
        self.postprocess.prefetch(flow);
        service.contexts.prefetch(flow);
    }

    /// Prefetches all that the works of a batch are about to need, so that the memory answers while others are worked
    /// on. The order is the flows' states, then what is behind them, then where payload goes.
    #[inline(never)]
    fn prefetch(&self, batch: &[Work], service: &Service) {
        for work in batch {
            if !matches!(work.job, Job::Receive) {
                // Those of received segments were asked for before they were looked up.
                self.prefetch_states(work.flow, service);
            }
            work.frame.iter().filter_map(|frame| frame.payload()).for_each(|payload| payload.prefetch());
        }
        batch.iter().for_each(|work| self.postprocess.prefetch_more(work.flow));
        for work in batch.iter().filter(|work| matches!(work.job, Job::Receive)) {
            let protocol = self.protocols.get(usize::from(work.group));
            if let Some(pos) = protocol.and_then(|protocol| protocol.next_place(work.flow)) {
                self.postprocess.prefetch_place(work.flow, pos);
            }
        }
    }

    /// Plain segments of a flow group, up to a work that is none; returns how many.
    #[inline(never)]
    fn segments<const COUNTED: bool>(
        &mut self,
        works: &mut [Work],
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let (group, mut said) = (works[0].group, Said::new());
        let Some(protocol) = self.protocols.get_mut(usize::from(group)) else { return 0 };
        let mut done = 0;
        for work in works.iter_mut() {
            if work.group != group || !matches!(work.job, Job::Receive) {
                break;
            }
            let start = if COUNTED { service.tracer.sample() } else { 0 };
            let Some(received) = protocol.receive_plain(work.flow, &work.summary, now) else { break };
            if COUNTED {
                said.segment(&received, start, &service.tracer);
            }
            let frame = (work.frame.take(), work.summary.payload_at);
            take_in(&self.postprocess, work.flow, &received, frame, now, service, burst);
            done += 1;
        }
        if COUNTED {
            said.end(&service.tracer);
        }
        done
    }

    /// The same of descriptors.
    #[inline(never)]
    fn descriptors<const COUNTED: bool>(
        &mut self,
        works: &mut [Work],
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let (group, mut said) = (works[0].group, Said::new());
        let Some(protocol) = self.protocols.get_mut(usize::from(group)) else { return 0 };
        let mut done = 0;
        for work in works.iter_mut() {
            if work.group != group {
                break;
            }
            let start = if COUNTED { service.tracer.sample() } else { 0 };
            let Some(sent) = protocol.bump_plain(work, now) else { break };
            if COUNTED {
                said.descriptor(&sent, start, &service.tracer);
            }
            if let Some(segment) = &sent.segment {
                if let Some((mut frame, buffers)) = self.postprocess.sent(work.flow, segment, burst.pool) {
                    Dma::sent(&mut frame, segment, &buffers.tx);
                    // It lies in the cache of the application's core, and the receiver is going to copy it a batch
                    // later.
                    buffers.tx.prefetch(segment.pos);
                    if let Job::Bump { rx_head, .. } = work.job {
                        // So does the place of what comes next: the application has read what was there.
                        buffers.rx.prefetch_to_write(rx_head);
                    }
                    burst.tx.push(frame);
                }
            }
            if sent.active {
                burst.events.push(stream::Event::Active(FlowId(work.flow)).into());
            }
            // Its turn was not counted: nothing waits on this thread.
            if let Some(report) = sent.report {
                service.scheduler.report(work.flow, report, false, now);
            }
            done += 1;
        }
        if COUNTED {
            said.end(&service.tracer);
        }
        done
    }

    /// Whatever is not plain.
    #[inline(never)]
    fn any<const COUNTED: bool>(
        &mut self,
        work: &mut Work,
        now: Nanos,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        work.begin();
        if let Some(protocol) = self.protocols.get_mut(work.group as usize) {
            protocol.any_step(work, now);
        }
        self.grow(work, service);
        self.postprocess.one::<false>(work, now, burst.pool);
        self.dma.one(work);
        if COUNTED {
            let (one, tracer) = (std::slice::from_ref(work), &service.tracer);
            protocol::count(one, work.group, tracer);
            traced::batch(ModuleName::Dma, one, tracer);
        }
        service.leave(work, now, burst);
    }

    /// Where a stream outgrows its small ring, its flow has another one before anybody looks for it.
    fn grow(&mut self, work: &Work, service: &mut Service) {
        if let Some(buffers) = self.dma.grown(work) {
            if buffers.rx.has_grown() {
                service.contexts.grown(work.flow);
            }
            let control = Control::Rebind(FlowId(work.flow), buffers);
            self.postprocess.control(&control);
            self.dma.control(&control);
        }
    }

    /// What comes after the protocol module, one module after the other.
    fn finish(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_, Stream>) {
        // What works before placed lies in the new rings as well: nothing of this batch has been copied yet.
        batch.iter().for_each(|work| self.grow(work, service));
        let ([_, _, postprocess, dma], tracer) = (&self.counts, &service.tracer);
        let start = postprocess.begin(ModuleName::Postprocess, tracer);
        self.postprocess.process(batch, now, burst.pool);
        postprocess.end(ModuleName::Postprocess, batch, start, tracer);
        let start = dma.begin(ModuleName::Dma, tracer);
        self.dma.process(batch);
        dma.end(ModuleName::Dma, batch, start, tracer);
        for work in batch.iter_mut() {
            record::work(work, now, burst);
            service.leave(work, now, burst);
        }
    }

    pub(crate) fn counts(&self) -> &[Arc<Count>] {
        &self.counts
    }
}

/// What comes after the protocol module of a plain segment: `frame`, whose payload starts at that byte.
#[inline(always)]
fn take_in(
    postprocess: &Postprocess,
    flow: u32,
    received: &Received,
    (frame, payload_at): (Option<Box<Frame>>, u32),
    now: Nanos,
    service: &mut Service,
    burst: &mut Burst<'_, Stream>,
) {
    let buffer = postprocess.received(flow, &received.tally, now);
    if let Some(frame) = frame {
        if let Some(buffer) = buffer {
            Dma::received(&frame, payload_at, received.place, buffer);
        }
        burst.pool.put(frame);
    }
    service.contexts.notify(flow, received.completion);
    if let Some(report) = received.report {
        service.scheduler.report(flow, report, false, now);
    }
}
