//! A client's connection: its queue pair, and the memory of its messages. Each message has a slot, which is posted
//! for a request, belongs to the call, and is posted again when the response has left.
use crate::call::{Memory, Payload};
use crate::device::{Device, Made};
use crate::dma::Host;
use crate::limits::{REQUEST_BYTES, RESPONSE_BYTES, SLOTS};
use memory::Key;
use shm::{PipeProducer, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use verbs::{Piece, QpNumber, ReceivePiece, SendElement, SendFlags, SendOpcode};

/// A connection.
pub(crate) struct Link {
    /// Its queue pair.
    pub(crate) qp: QpNumber,
    /// Whose memory its functions reach.
    pub(crate) host: Arc<Host>,
    receive: PipeProducer<2>,
    memory: Region,
    key: Key,
    /// Slots by the number of a receive work request, and by that of a send.
    posted: [usize; SLOTS],
    sent: [usize; SLOTS],
    receives: u32,
    sends: u32,
    /// Calls that are under way.
    pub(crate) calls: usize,
    /// It ends: no call begins, and no response leaves.
    pub(crate) ends: bool,
}

/// A response.
pub(crate) struct Response {
    /// Its slot.
    pub(crate) slot: usize,
    /// Status and tag.
    pub(crate) immediate: u32,
    /// Its bytes, in the slot's room.
    pub(crate) payload: Payload,
}

/// The memory of a connection.
pub(crate) fn memory() -> std::io::Result<Region> {
    Region::create("offload-messages", SLOTS * (REQUEST_BYTES + RESPONSE_BYTES))
}

impl Link {
    /// A queue pair with its registered memory: all slots are posted.
    pub(crate) fn new(made: Made, host: Arc<Host>, memory: Region, key: Key) -> Link {
        host.connections.fetch_add(1, Relaxed);
        let (posted, sent) = ([0; SLOTS], [0; SLOTS]);
        let Made { qp, receive } = made;
        let mut link =
            Link { qp, host, receive, memory, key, posted, sent, receives: 0, sends: 0, calls: 0, ends: false };
        (0..SLOTS).for_each(|slot| link.post(slot));
        link
    }

    /// Posts a slot for a request.
    fn post(&mut self, slot: usize) {
        let piece = self.piece(slot * REQUEST_BYTES, REQUEST_BYTES);
        // The queue has room for all slots.
        let _ = self.receive.push(ReceivePiece { piece, more: false }.encode());
        self.posted[self.receives as usize % SLOTS] = slot;
        self.receives = self.receives.wrapping_add(1);
    }

    fn piece(&self, at: usize, len: usize) -> Piece {
        let address = self.memory.address(at, len).expose_provenance() as u64;
        Piece { address, len: len as u32, key: self.key.0 }
    }

    /// The slot of a request that has come.
    pub(crate) fn received(&self, number: u32) -> usize {
        self.posted[number as usize % SLOTS]
    }

    /// The memory of a slot.
    pub(crate) fn memory(&self, slot: usize) -> Memory {
        let response = SLOTS * REQUEST_BYTES + slot * RESPONSE_BYTES;
        Memory {
            request: self.memory.address(slot * REQUEST_BYTES, REQUEST_BYTES),
            response: self.memory.address(response, RESPONSE_BYTES),
        }
    }

    /// Sends a response. The device is to be rung.
    pub(crate) fn respond(&mut self, device: &Device, response: Response) {
        let Response { slot, immediate, payload: Payload { bytes, to } } = response;
        self.sent[self.sends as usize % SLOTS] = slot;
        let mut element = SendElement {
            flags: SendFlags::SIGNALED | SendFlags::SOLICITED,
            number: self.sends,
            immediate,
            ..SendElement::new(self.qp, SendOpcode::SendImmediate)
        };
        if let Some(to) = to {
            element.opcode = SendOpcode::WriteImmediate;
            (element.target, element.key) = (to.address, to.key);
        }
        if !bytes.is_empty() {
            let at = SLOTS * REQUEST_BYTES + slot * RESPONSE_BYTES + bytes.start;
            element.pieces = 1;
            element.set_piece(0, self.piece(at, bytes.len()));
        }
        self.sends = self.sends.wrapping_add(1);
        device.post(element.encode());
    }

    /// A response has left: its slot is posted again.
    pub(crate) fn left(&mut self, number: u32) {
        self.post(self.sent[number as usize % SLOTS]);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.host.connections.fetch_sub(1, Relaxed);
    }
}
