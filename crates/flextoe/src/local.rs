//! The pipeline on the engine's own thread. Works go through the modules, all of a batch together or one by one; what
//! is for the fast path ([`crate::fast_path`]) goes ahead.
use crate::batch::{BATCH, Batch, MANY};
use crate::capture;
use crate::dma::Dma;
use crate::fast_path::FastPath;
use crate::figures::{self, Count, ModuleName};
use crate::mapping::Mapping;
use crate::message::{Control, Job, Work};
use crate::modules::{self, Chain};
use crate::observer::{Observer, observed};
use crate::postprocess::Postprocess;
use crate::preprocess::Preprocess;
use crate::protocol::Protocol;
use crate::service::Service;
use engine::stream::Stream;
use engine::{Burst, Checksum, FlowId, Frame, Limits, LoadedModule, Nanos, Stage};
use std::iter::Take;
use std::slice;
use std::sync::Arc;
use std::vec::Drain;
use trace::Tracer;

/// Frames behind one that is not for the fast path that become works with it.
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

    /// Received frames, of which it may leave some. They take the fast path up to the first one that is not for it.
    /// That one and a few behind it become works. Of many flows, one has something unusual in nearly every burst, if
    /// only that more was advertised since the edge was read.
    pub(crate) fn arrive(
        &mut self,
        frames: &mut Take<&mut Drain<'_, Box<Frame>>>,
        batch: &mut Batch,
        now: Nanos,
        tracer: &Tracer,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        if self.takes_frames(tracer, burst) {
            let other = observed!(tracer, observer => self.fast_frames(frames, now, tracer, observer, service, burst));
            if let Some(frame) = other {
                // Where checksums are still to be verified, all frames take the slow path.
                let most = if frame.checksum == Checksum::Complete { BATCH } else { BEHIND };
                batch.receive(frame);
                return batch.receive_most(frames, most);
            }
        }
        batch.receive_most(frames, BATCH);
    }

    /// Frames can take the fast path: no observer watches a single module, and no module of an operator is to see them.
    /// Of many flows, what is needed of each is prefetched, batch by batch; so flow groups are distinguished.
    fn takes_frames(&self, tracer: &Tracer, burst: &Burst<'_, Stream>) -> bool {
        let [preprocess, protocol, ..] = &self.counts;
        let timed = preprocess.is_due(ModuleName::Preprocess, tracer) || protocol.is_due(ModuleName::Protocol, tracer);
        let watched = tracer.is_streaming() || burst.recorder.is_some();
        let passed = self.flow.iter().any(|chain| !chain.is_empty());
        !(watched || timed || passed || self.flows >= MANY || self.protocols.len() > 1)
    }

    /// Received frames on the fast path; returns the first one that is not for it.
    #[inline(never)]
    fn fast_frames<O: Observer>(
        &mut self,
        frames: &mut Take<&mut Drain<'_, Box<Frame>>>,
        now: Nanos,
        tracer: &Tracer,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> Option<Box<Frame>> {
        let Local { preprocess, protocols, postprocess, counts, .. } = self;
        let fast = FastPath { protocol: protocols.first_mut()?, postprocess, now, observer, service, burst };
        let (done, other) = fast.frames(preprocess, frames);
        figures::took(&ModuleName::ALL, counts, done, tracer);
        other
    }

    /// The modules that only received segments pass: pre-processing and those of operators for flows.
    pub(crate) fn receive(
        &mut self,
        batch: &mut Batch,
        now: Nanos,
        tracer: &Tracer,
        service: &Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        let start = self.counts[0].begin(ModuleName::Preprocess, tracer);
        if self.flows >= MANY {
            self.preprocess.prefetch_ahead(batch, |flow| self.prefetch_states(flow, service));
        }
        observed!(tracer, observer => self.preprocess.process(batch, observer));
        self.counts[0].end(ModuleName::Preprocess, batch.len(), start, tracer);
        if self.flow.first().is_some_and(|chain| !chain.is_empty()) {
            self.flow.iter_mut().for_each(|chain| modules::flow(chain, batch, now, burst.pool));
        }
    }

    /// Acknowledgements that no data took along, and delayed ones that are due; returns how many went out.
    pub(crate) fn flush(
        &mut self,
        worked: bool,
        now: Nanos,
        tracer: &Tracer,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let groups = self.protocols.len();
        let due = match worked {
            true => groups,
            false => (0..groups).filter(|group| service.flush_is_due(*group, now)).count(),
        };
        if due == 0 || self.flush_nothing(due, now, tracer, service, burst) {
            return 0;
        }
        let before = burst.tx.len();
        let mut flushes = std::mem::take(&mut self.flushes);
        for group in 0..groups {
            if worked || service.flush_is_due(group, now) {
                flushes.add(u32::MAX, Job::Flush { due: Nanos::MAX }).group = group as u8;
            }
        }
        self.run(&mut flushes, now, tracer, service, burst);
        self.flushes = flushes;
        burst.tx.len() - before
    }

    /// The usual end of a round: the protocol modules have nothing to acknowledge yet. Their works, one for each of
    /// `due` modules, would only report when there is something; they are counted, and not made.
    fn flush_nothing(
        &mut self,
        due: usize,
        now: Nanos,
        tracer: &Tracer,
        service: &mut Service,
        burst: &Burst<'_, Stream>,
    ) -> bool {
        let all = due == self.protocols.len();
        let watched = tracer.is_streaming() || burst.recorder.is_some();
        let idle = self.protocols.iter().all(|protocol| protocol.has_nothing_due(now));
        if !(all && idle) || watched || self.counts[1].is_due(ModuleName::Protocol, tracer) {
            return false;
        }
        for (due, protocol) in service.flush_due.iter_mut().zip(&self.protocols) {
            observed!(tracer, observer => *due = protocol.next_flush(observer));
        }
        figures::took(&ModuleName::ALL[1..], &self.counts[1..], due, tracer);
        true
    }

    /// Runs a batch to completion.
    pub(crate) fn run(
        &mut self,
        batch: &mut Batch,
        now: Nanos,
        tracer: &Tracer,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        if batch.is_empty() {
            return;
        }
        let flushes = batch.last().is_some_and(|work| matches!(work.job, Job::Flush { .. }));
        let watched = tracer.is_streaming() || burst.recorder.is_some();
        if flushes || watched || self.counts[1].is_due(ModuleName::Protocol, tracer) {
            observed!(tracer, observer => self.together(batch, now, tracer, observer, service, burst));
        } else {
            observed!(tracer, observer => self.one_by_one(batch, now, observer, service, burst));
            figures::took(&ModuleName::ALL[1..], &self.counts[1..], batch.len(), tracer);
        }
        batch.clear();
    }

    /// All works go through one module, then through the next. It is so where an observer watches a single module, and
    /// where the protocol module is to add acknowledgements.
    fn together<O: Observer>(
        &mut self,
        batch: &mut Batch,
        now: Nanos,
        tracer: &Tracer,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        let start = self.counts[1].begin(ModuleName::Protocol, tracer);
        batch.iter_mut().for_each(Work::begin);
        for protocol in &mut self.protocols {
            protocol.process(batch, now, observer);
        }
        self.counts[1].end(ModuleName::Protocol, batch.len(), start, tracer);
        self.finish(batch, now, Some(tracer), observer, service, burst);
    }

    /// Each work goes through all modules at once: on the fast path where it can, otherwise on the slow path.
    fn one_by_one<O: Observer>(
        &mut self,
        batch: &mut Batch,
        now: Nanos,
        observer: O,
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
                Job::Receive => self.fast_segments(left, now, observer, service, burst),
                Job::Bump { .. } => self.fast_descriptors(left, now, observer, service, burst),
                _ => 0,
            };
            if done == 0 {
                self.slow(&mut left[0], now, observer, service, burst);
            }
            left = &mut left[done.max(1)..];
        }
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
                // Those of received segments were prefetched before their lookup.
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

    #[inline(never)]
    fn fast_segments<O: Observer>(
        &mut self,
        works: &mut [Work],
        now: Nanos,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let Local { protocols, postprocess, .. } = self;
        let Some(protocol) = protocols.get_mut(usize::from(works[0].group)) else { return 0 };
        FastPath { protocol, postprocess, now, observer, service, burst }.segments(works)
    }

    #[inline(never)]
    fn fast_descriptors<O: Observer>(
        &mut self,
        works: &[Work],
        now: Nanos,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let Local { protocols, postprocess, .. } = self;
        let Some(protocol) = protocols.get_mut(usize::from(works[0].group)) else { return 0 };
        FastPath { protocol, postprocess, now, observer, service, burst }.descriptors(works)
    }

    /// The slow path of one work.
    #[inline(never)]
    fn slow<O: Observer>(
        &mut self,
        work: &mut Work,
        now: Nanos,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        work.begin();
        if let Some(protocol) = self.protocols.get_mut(work.group as usize) {
            protocol.slow_step(work, now, observer);
        }
        self.finish(slice::from_mut(work), now, None, observer, service, burst);
    }

    /// Where a stream outgrows its ring, its flow has another one before its next use.
    fn grow(&mut self, work: &Work, service: &mut Service) {
        if let Some(buffers) = self.dma.grown(work) {
            if buffers.rx.has_grown() {
                service.contexts.grown(work.flow, buffers.rx.number());
            }
            let control = Control::Rebind(FlowId(work.flow), buffers);
            self.postprocess.control(&control);
            self.dma.control(&control);
        }
    }

    /// The slow path after the protocol module, one module after the other. With a tracer, works and time of each
    /// module are counted.
    #[inline(always)]
    fn finish<O: Observer>(
        &mut self,
        works: &mut [Work],
        now: Nanos,
        tracer: Option<&Tracer>,
        observer: O,
        service: &mut Service,
        burst: &mut Burst<'_, Stream>,
    ) {
        // What works before placed lies in the new rings as well: nothing of this batch has been copied yet.
        works.iter().for_each(|work| self.grow(work, service));
        let [_, _, postprocess, dma] = &self.counts;
        let start = tracer.map_or(0, |tracer| postprocess.begin(ModuleName::Postprocess, tracer));
        self.postprocess.process(works, now, burst.pool);
        if let Some(tracer) = tracer {
            postprocess.end(ModuleName::Postprocess, works.len(), start, tracer);
        }
        let start = tracer.map_or(0, |tracer| dma.begin(ModuleName::Dma, tracer));
        self.dma.process(works, observer);
        if let Some(tracer) = tracer {
            dma.end(ModuleName::Dma, works.len(), start, tracer);
        }
        for work in works {
            capture::work(work, now, burst);
            service.leave(work, now, burst);
        }
    }

    pub(crate) fn counts(&self) -> &[Arc<Count>] {
        &self.counts
    }
}
