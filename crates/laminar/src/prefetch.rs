//! Cache prefetch: the lines that a batch is going to need (docs/PERFORMANCE.md).
//!
//! A descriptor names its flow. A frame's flow is known when the pipeline has found it, which is too late: so it is
//! guessed.
use crate::Laminar;
use context::Bump;
use engine::Frame;

/// So many frames ahead, what a flow leads to is asked for.
const AHEAD: usize = 4;
/// Up to so many flows, most of what is needed of them stays in the core's own cache. Prefetching it would cost more
/// than it saves.
const FEW: usize = 512;
impl Laminar {
    /// Before a batch of frames: notes their flows.
    pub(crate) fn prefetch_ahead(&mut self, frames: &[Box<Frame>]) {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        if self.tuples.len() > FEW {
            ahead.extend(frames.iter().map(|frame| self.flow_predictor.of(frame)));
            ahead.iter().for_each(|id| self.ask_for_flow(*id));
        }
        self.ahead = ahead;
    }

    /// Before the frame at a place of the batch.
    #[inline(always)]
    pub(crate) fn before_frame(&self, at: usize) {
        let Some(id) = self.ahead.get(at + AHEAD) else { return };
        if let Some(flow) = self.flows.get(*id as usize).and_then(Option::as_deref) {
            shm::prefetch(&*flow.stats);
            shm::prefetch_first::<1, _>(&*flow.rx);
        }
    }

    /// Before some descriptors: the first of them wait, the others do not.
    pub(crate) fn before_bumps(&self, bumps: &[(u32, Bump)]) {
        if self.tuples.len() > FEW {
            bumps.iter().for_each(|(id, _)| self.ask_for_flow(*id));
            bumps.iter().for_each(|(id, _)| self.ask_for_more(*id));
        }
        bumps.iter().for_each(|(id, _)| self.ask_for_payload(*id));
    }

    #[inline(always)]
    fn ask_for_flow(&self, id: u32) {
        if let Some(flow) = self.flows.get(id as usize).and_then(Option::as_deref) {
            shm::prefetch_first::<3, _>(flow);
        }
    }

    /// What the flow leads to.
    #[inline(always)]
    fn ask_for_more(&self, id: u32) {
        if let Some(flow) = self.flows.get(id as usize).and_then(Option::as_deref) {
            shm::prefetch(&*flow.stats);
            shm::prefetch(&*flow.rx);
            shm::prefetch(&*flow.tx);
        }
    }

    /// The next bytes to send, which lie in the cache of the application's core, and the place of those that answer
    /// them.
    #[inline(always)]
    fn ask_for_payload(&self, id: u32) {
        if let Some(flow) = self.flows.get(id as usize).and_then(Option::as_deref) {
            flow.tx.prefetch(flow.nxt - flow.tx_base);
            flow.rx.prefetch_to_write(flow.rx_tail);
        }
    }
}
