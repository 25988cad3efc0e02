//! The moment at which a host stands still: where its engine left each flow.
use crate::flow::Place;
use crate::flows::Flows;
use engine::FlowId;
use engine::stream::FlowEnd;
use std::collections::BTreeMap;

/// Where the engine left the flows of a host that is being handed over, or was.
#[derive(Default)]
pub(crate) struct Standstill {
    /// None while the host runs.
    ends: Option<BTreeMap<FlowId, FlowEnd>>,
}

impl Standstill {
    /// The host stands still, or is about to.
    pub(crate) fn is_on(&self) -> bool {
        self.ends.is_some()
    }

    pub(crate) fn begin(&mut self) {
        self.ends = Some(BTreeMap::new());
    }

    /// The host goes on. Where its flows were left.
    pub(crate) fn finish(&mut self) -> BTreeMap<FlowId, FlowEnd> {
        self.ends.take().unwrap_or_default()
    }

    /// The engine has given everything up.
    pub(crate) fn is_complete(&self, flows: &Flows) -> bool {
        let Some(ends) = &self.ends else { return false };
        flows.iter().all(|(id, flow)| match flow.place {
            Place::Engine => ends.contains_key(&FlowId(id)),
            Place::Leaving(_) => false,
            Place::Gone => true,
        })
    }

    /// A flow that was removed only to be handed over. False where it was leaving anyway.
    pub(crate) fn take(&mut self, flows: &Flows, id: FlowId, end: &FlowEnd) -> bool {
        let stays = flows.get(id.0).is_some_and(|flow| flow.place == Place::Engine);
        match &mut self.ends {
            Some(ends) if stays => {
                ends.insert(id, *end);
                true
            }
            _ => false,
        }
    }

    /// Where the engine left a flow.
    pub(crate) fn end_of(&self, id: FlowId) -> Option<FlowEnd> {
        self.ends.as_ref()?.get(&id).copied()
    }
}
