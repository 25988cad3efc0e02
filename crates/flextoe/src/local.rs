//! All modules on the engine's own thread: a batch goes through one module, then the next.
use crate::MANY;
use crate::batch::Batch;
use crate::dma::Dma;
use crate::mapping::Mapping;
use crate::message::{Control, Job, Work};
use crate::modules::{self, Chain};
use crate::postprocess::Postprocess;
use crate::preprocess::Preprocess;
use crate::protocol::Protocol;
use crate::record;
use crate::service::{Count, Service};
use crate::traced::ModuleName;
use engine::{Burst, Event, FlowId, Limits, LoadedModule, Nanos, Stage};
use std::sync::Arc;

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
    pub fn new(limits: &Limits, mapping: &Mapping) -> Local {
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
    pub fn change(&mut self, modules: &[LoadedModule]) {
        self.ingress.change(modules);
        self.flow.iter_mut().for_each(|chain| chain.change(modules));
    }

    pub fn control(&mut self, control: &Control, group: usize, now: Nanos) {
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

    /// The modules that only received segments pass: pre-processing and those of operators for flows.
    pub fn receive(&mut self, batch: &mut Batch, now: Nanos, service: &Service, burst: &mut Burst<'_>) {
        let start = self.counts[0].begin(ModuleName::Preprocess, &service.tracer);
        if self.flows >= MANY {
            self.preprocess.look_ahead(batch, |flow| self.prefetch_states(flow, service));
        }
        self.preprocess.process(batch);
        self.counts[0].end(ModuleName::Preprocess, batch, start, &service.tracer);
        if self.flow.first().is_some_and(|chain| !chain.is_empty()) {
            self.flow.iter_mut().for_each(|chain| modules::flow(chain, batch, now, burst.pool));
        }
    }

    /// Acknowledgements that no data took along, and delayed ones that are due; returns how many went out.
    pub fn flush(&mut self, worked: bool, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) -> usize {
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
    pub fn run(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        if batch.is_empty() {
            return;
        }
        let (count, tracer) = (&self.counts[1], &service.tracer);
        let start = count.begin(ModuleName::Protocol, tracer);
        let flushes = batch.last().is_some_and(|work| matches!(work.job, Job::Flush { .. }));
        if start == 0 && !flushes && !tracer.is_active() && burst.recorder.is_none() {
            return self.run_straight(batch, now, service, burst);
        }
        batch.iter_mut().for_each(Work::begin);
        for protocol in &mut self.protocols {
            protocol.process(batch, now, tracer);
        }
        count.end(ModuleName::Protocol, batch, start, tracer);
        self.finish(batch, now, service, burst);
        batch.clear();
    }

    /// As [`Local::run`], while nobody looks at a module alone: each work goes through protocol and all that comes after
    /// it at once, and what modules say to each other of a plain one is never written down.
    fn run_straight(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        if self.flows >= MANY {
            self.prefetch(batch, service);
        }
        let mut left = &mut batch[..];
        while let Some(work) = left.first_mut() {
            // Those of a kind follow each other, and each kind has a loop of its own.
            let done = match work.job {
                Job::Receive => self.segments(left, now, service, burst),
                Job::Bump { .. } => self.descriptors(left, now, service, burst),
                _ => 0,
            };
            if done == 0 {
                self.any(&mut left[0], now, service, burst);
            }
            left = &mut left[done.max(1)..];
        }
        let names = [ModuleName::Protocol, ModuleName::Postprocess, ModuleName::Dma];
        self.counts[1..].iter().zip(names).for_each(|(count, name)| count.end(name, batch, 0, &service.tracer));
        batch.clear();
    }

    /// Asks for what modules know of a flow. Its group is not known yet, or is the only one, as a rule.
    #[inline(always)]
    fn prefetch_states(&self, flow: u32, service: &Service) {
        self.protocols.iter().for_each(|protocol| protocol.prefetch(flow));
        self.postprocess.prefetch(flow);
        service.contexts.prefetch(flow);
    }

    /// Asks for all that the works of a batch are about to need, so that the memory's answers come while others are worked
    /// on: first the flows' states, then what is behind them, then where payload goes.
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
    fn segments(&mut self, works: &mut [Work], now: Nanos, service: &mut Service, burst: &mut Burst<'_>) -> usize {
        let group = works[0].group;
        let Some(protocol) = self.protocols.get_mut(usize::from(group)) else { return 0 };
        for (at, work) in works.iter_mut().enumerate() {
            if work.group != group || !matches!(work.job, Job::Receive) {
                return at;
            }
            let Some(received) = protocol.receive_plain(work, now) else { return at };
            let buffer = self.postprocess.received(work.flow, &received.tally, now);
            if let Some(frame) = work.frame.take() {
                if let Some(buffer) = buffer {
                    Dma::received(&frame, work.summary.payload_at, received.place, buffer);
                }
                burst.pool.put(frame);
            }
            service.contexts.notify(work.flow, received.notice);
            if let Some(report) = received.report {
                service.scheduler.report(work.flow, report, false, now);
            }
        }
        works.len()
    }

    /// The same of descriptors.
    #[inline(never)]
    fn descriptors(&mut self, works: &mut [Work], now: Nanos, service: &mut Service, burst: &mut Burst<'_>) -> usize {
        let group = works[0].group;
        let Some(protocol) = self.protocols.get_mut(usize::from(group)) else { return 0 };
        for (at, work) in works.iter_mut().enumerate() {
            if work.group != group {
                return at;
            }
            let Some(sent) = protocol.bump_plain(work, now) else { return at };
            if let Some(segment) = &sent.segment {
                if let Some((mut frame, buffer)) = self.postprocess.sent(work.flow, segment, burst.pool) {
                    Dma::sent(&mut frame, segment, buffer);
                    burst.tx.push(frame);
                }
            }
            if sent.active {
                burst.events.push(Event::Active(FlowId(work.flow)));
            }
            // Its turn was not counted: nothing waits on this thread.
            if let Some(report) = sent.report {
                service.scheduler.report(work.flow, report, false, now);
            }
        }
        works.len()
    }

    /// Whatever is not plain.
    #[inline(never)]
    fn any(&mut self, work: &mut Work, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        work.begin();
        if let Some(protocol) = self.protocols.get_mut(work.group as usize) {
            protocol.any_step(work, now);
        }
        self.postprocess.one::<false>(work, now, burst.pool);
        self.dma.one(work);
        service.leave(work, now, burst);
    }

    /// What comes after the protocol module, one module after the other.
    fn finish(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
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

    pub fn counts(&self) -> &[Arc<Count>] {
        &self.counts
    }
}
