//! All modules on the engine's own thread: a batch goes through one module, then the next.
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
use engine::{Burst, Limits, LoadedModule, Nanos, Stage};
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
            counts: ["preprocess", "protocol", "postprocess", "dma"].map(|name| Count::new(name.into())),
        }
    }

    /// From now on these modules of operators run.
    pub fn change(&mut self, modules: &[LoadedModule]) {
        self.ingress.change(modules);
        self.flow.iter_mut().for_each(|chain| chain.change(modules));
    }

    pub fn control(&mut self, control: &Control, group: usize, now: Nanos) {
        self.preprocess.control(control);
        self.protocols[group].control(control, now);
        self.postprocess.control(control);
        self.dma.control(control);
    }

    /// The modules that only received segments pass: pre-processing and those of operators for flows.
    pub fn receive(&mut self, batch: &mut Batch, now: Nanos, service: &Service, burst: &mut Burst<'_>) {
        let start = self.counts[0].begin(ModuleName::Preprocess, &service.tracer);
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
        for protocol in &mut self.protocols {
            protocol.process(batch, now, tracer);
        }
        count.end(ModuleName::Protocol, batch, start, tracer);
        self.finish(batch, now, service, burst);
        batch.clear();
    }

    /// What comes after the protocol module. These modules keep nothing from one work to the next: while nobody looks at
    /// one of them alone, each work goes through all of them at once.
    fn finish(&mut self, batch: &mut Batch, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        let ([_, _, postprocess, dma], tracer) = (&self.counts, &service.tracer);
        let start = postprocess.begin(ModuleName::Postprocess, tracer);
        if start == 0 && !tracer.is_streaming() && burst.recorder.is_none() {
            batch.iter_mut().for_each(|work| self.finish_one(work, now, service, burst));
            postprocess.end(ModuleName::Postprocess, batch, 0, &service.tracer);
            dma.end(ModuleName::Dma, batch, 0, &service.tracer);
            return;
        }
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

    #[inline(always)]
    fn finish_one(&self, work: &mut Work, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        match work.job {
            Job::Receive if work.plain => {
                self.postprocess.received(work, now);
                self.dma.received(work);
                service.leave_received(work, now, burst);
            }
            Job::Bump { .. } if work.plain => {
                self.postprocess.sent(work, burst.pool);
                self.dma.sent(work);
                service.leave_sent(work, now, burst);
            }
            _ => self.finish_any(work, now, service, burst),
        }
    }

    #[inline(never)]
    fn finish_any(&self, work: &mut Work, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        self.postprocess.one::<false>(work, now, burst.pool);
        self.dma.one(work);
        service.leave(work, now, burst);
    }

    pub fn counts(&self) -> &[Arc<Count>] {
        &self.counts
    }
}
