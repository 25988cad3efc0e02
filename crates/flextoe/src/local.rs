//! All modules on the engine's own thread: a batch goes through one module, then the next.
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
    flushes: Vec<Work>,
    counts: [Arc<Count>; 4],
}

impl Local {
    pub fn new(limits: &Limits, mapping: &Mapping) -> Local {
        Local {
            ingress: Chain::new(Stage::Ingress, 0),
            flow: (0..mapping.flow_groups).map(|group| Chain::new(Stage::Flow, group.into())).collect(),
            preprocess: Preprocess::new(limits.flows, mapping.flow_groups),
            protocols: (0..mapping.flow_groups).map(|group| Protocol::new(group, limits.flows)).collect(),
            postprocess: Postprocess::new(limits.flows, false),
            dma: Dma::new(limits.flows),
            flushes: Vec::new(),
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

    /// Runs a batch to completion.
    pub fn run(&mut self, batch: &mut Vec<Work>, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        if batch.is_empty() {
            return;
        }
        let start = self.counts[0].begin(ModuleName::Preprocess, &service.tracer);
        self.preprocess.process(batch, burst.pool);
        self.counts[0].end(ModuleName::Preprocess, batch, start, &service.tracer);
        if self.flow.first().is_some_and(|chain| !chain.is_empty()) {
            self.flow.iter_mut().for_each(|chain| modules::flow(chain, batch, now, burst.pool));
        }
        self.finish(batch, now, service, burst);
    }

    /// Acknowledgements that no data took along, and delayed ones that are due; returns how many went out.
    pub fn flush(&mut self, worked: bool, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) -> usize {
        let before = burst.tx.len();
        let mut flushes = std::mem::take(&mut self.flushes);
        for group in 0..self.protocols.len() {
            if worked || service.flush_is_due(group, now) {
                flushes.push(Work { group: group as u8, ..Work::new(u32::MAX, Job::Flush { due: None }) });
            }
        }
        if !flushes.is_empty() {
            self.finish(&mut flushes, now, service, burst);
        }
        self.flushes = flushes;
        burst.tx.len() - before
    }

    fn finish(&mut self, batch: &mut Vec<Work>, now: Nanos, service: &mut Service, burst: &mut Burst<'_>) {
        let ([_, protocol, postprocess, dma], tracer) = (&self.counts, &service.tracer);
        let start = protocol.begin(ModuleName::Protocol, tracer);
        for protocol in &mut self.protocols {
            protocol.process(batch, now, tracer);
        }
        protocol.end(ModuleName::Protocol, batch, start, tracer);
        let start = postprocess.begin(ModuleName::Postprocess, tracer);
        self.postprocess.process(batch, now, burst.pool);
        postprocess.end(ModuleName::Postprocess, batch, start, tracer);
        let start = dma.begin(ModuleName::Dma, tracer);
        self.dma.process(batch);
        dma.end(ModuleName::Dma, batch, start, tracer);
        if burst.recorder.is_some() {
            batch.iter_mut().for_each(|work| record::work(work, now, burst));
        }
        for work in batch.iter_mut() {
            service.leave(work, now, burst);
        }
        batch.clear();
    }

    pub fn counts(&self) -> &[Arc<Count>] {
        &self.counts
    }
}
