//! Buffers of a flow: their replacement, and the part of them that its peer is offered (docs/MEMORY.md).
use crate::flow::Flow;
use crate::{Laminar, frames};
use context::Slot;
use engine::ContextId;
use shm::ByteRing;
use std::sync::Arc;

impl Laminar {
    /// The flow goes on in other buffers, under another name.
    pub(crate) fn move_to(&mut self, id: u32, context: ContextId, slot: Slot, rx: Arc<ByteRing>, tx: Arc<ByteRing>) {
        self.end_membership(id);
        let Some(flow) = self.flows.get_mut(id as usize).and_then(Option::as_deref_mut) else { return };
        flow.adopt_grown_ring();
        let most = flow.rx.size().min(rx.size());
        frames::copy_buffer(&flow.rx, &rx, flow.rx_head, most);
        // Not more than was written before: behind it, the new context may be writing already.
        let unacknowledged = flow.head - flow.una;
        frames::copy_buffer(&flow.tx, &tx, flow.una - flow.tx_base, unacknowledged);
        let size = flow.rx_size;
        flow.use_rings(rx, tx);
        if flow.rx_size != size {
            // The pipeline gives addresses modulo the size of the largest ring.
            self.switch.program.hide(&flow.params);
            self.switch.program.show(&flow.params, flow.rx_base);
        }
        self.rename(id, context, slot);
    }

    /// From now on the flow's peer may be offered so many bytes. It gets them when the application next reads. A flow
    /// that another engine left may have unread bytes that are not known yet.
    pub(crate) fn offer(&mut self, id: u32, bytes: u32) {
        if let Some(flow) = self.flow(id) {
            flow.offer(bytes);
        }
    }
}

impl Flow {
    /// The peer may be offered so many bytes, as far as the stream's rings hold them. The right edge stays where it is
    /// until there is more to give back ([`Flow::replenish`]).
    fn offer(&mut self, bytes: u32) {
        let window = tcp::window::largest_window(bytes.min(self.rx_size), self.params.agreed.rcv_shift);
        let more = window.saturating_sub(self.rx_window);
        (self.rx_window, self.synced) = (self.rx_window + more, self.synced.wrapping_sub(more));
    }
}
