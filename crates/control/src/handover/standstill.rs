//! The standstill of a host: where its engine left each flow, and each log.
use crate::contexts::Contexts;
use crate::flow::EngineState;
use crate::flows::Flows;
use engine::stream::{FlowEnd, LogState};
use engine::{ContextId, FlowId};
use std::collections::BTreeMap;

/// The positions at which the engine left a host's flows and logs, for a handover.
#[derive(Default)]
pub(crate) struct Standstill {
    /// None while the host runs.
    left: Option<Left>,
}

/// The state that an engine gave up.
#[derive(Default)]
pub(crate) struct Left {
    pub flows: BTreeMap<FlowId, FlowEnd>,
    /// By the context whose log it is; nothing where the engine had none for it.
    pub logs: BTreeMap<ContextId, Option<Box<LogState>>>,
}

impl Standstill {
    /// The host stands still, or is about to.
    pub(crate) fn is_on(&self) -> bool {
        self.left.is_some()
    }

    pub(crate) fn begin(&mut self) {
        self.left = Some(Left::default());
    }

    /// The host goes on. What was left.
    pub(crate) fn finish(&mut self) -> Left {
        self.left.take().unwrap_or_default()
    }

    /// The engine has given everything up.
    pub(crate) fn is_complete(&self, contexts: &Contexts, flows: &Flows) -> bool {
        let Some(Left { flows: ends, logs }) = &self.left else { return false };
        let mut with_logs = contexts.iter().filter(|(_, context)| context.has_log);
        with_logs.all(|(id, _)| logs.contains_key(&ContextId(id)))
            && flows.iter().all(|(id, flow)| match flow.engine {
                EngineState::Engine => ends.contains_key(&FlowId(id)),
                EngineState::Leaving(_) => false,
                EngineState::Gone => true,
            })
    }

    /// A flow that was removed only to be handed over. False where it was leaving anyway.
    pub(crate) fn take(&mut self, flows: &Flows, id: FlowId, end: &FlowEnd) -> bool {
        let stays = flows.get(id.0).is_some_and(|flow| flow.engine == EngineState::Engine);
        match &mut self.left {
            Some(left) if stays => {
                left.flows.insert(id, *end);
                true
            }
            _ => false,
        }
    }

    /// A context's log, which was given up to be handed over.
    pub(crate) fn take_log(&mut self, context: ContextId, log: Option<Box<LogState>>) {
        if let Some(left) = &mut self.left {
            left.logs.insert(context, log);
        }
    }

    /// Positions at which the engine left a flow.
    pub(crate) fn end_of(&self, id: FlowId) -> Option<FlowEnd> {
        self.left.as_ref()?.flows.get(&id).copied()
    }

    /// State of a context's log.
    pub(crate) fn log_of(&self, id: ContextId) -> Option<&LogState> {
        self.left.as_ref()?.logs.get(&id)?.as_deref()
    }
}
