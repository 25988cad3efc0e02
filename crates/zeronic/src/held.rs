//! Queue of held headers: they wait for copies of devices' memory (the paper's section 3.1: when the DMA of the payload
//! is complete, the header goes up. What is sent is fetched before it is merged). Those of a connection keep their
//! order.
use crate::frames::Segment;
use crate::nic::{FlowId, Read};
use memory::{Fault, Transfer};
use port::Frame;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::Seq;

/// Headers of one connection that wait, each way.
pub(crate) const MOST: usize = 256;

/// Headers of a connection that wait.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) incoming: VecDeque<In>,
    pub(crate) outgoing: VecDeque<Out>,
}

/// A header entry that may still grow.
pub(crate) struct Open {
    pub(crate) frame: Box<Frame>,
    pub(crate) segment: Segment,
    pub(crate) flow: FlowId,
    /// Payload bytes of each frame that it was made of.
    pub(crate) step: usize,
}

/// A received payload on its way, and its header.
pub(crate) struct In {
    pub(crate) transfers: Vec<Arc<Transfer>>,
    /// Its range in the stream.
    pub(crate) range: Option<(Seq, u32)>,
    /// It counts as placed when it is there.
    pub(crate) lands: bool,
    /// None where the transport has seen it, or must not.
    pub(crate) header: Option<Open>,
}

/// A header of the transport's, and its payload where that comes out of devices' memory.
pub(crate) struct Out {
    pub(crate) frame: Box<Frame>,
    pub(crate) seq: Seq,
    pub(crate) len: u32,
    pub(crate) reads: Vec<Read>,
    /// Bytes of which it is known how they are had; the others wait for room in a device's queue.
    pub(crate) known: u32,
}

impl In {
    /// Only what came before it lets it wait.
    pub(crate) fn header_only() -> In {
        In { transfers: Vec::new(), range: None, lands: false, header: None }
    }

    /// `None` as long as some of it is under way.
    pub(crate) fn result(&self) -> Option<Result<(), Fault>> {
        all(self.transfers.iter())
    }
}

impl Out {
    /// `None` as long as some of it is under way, or waits for room.
    pub(crate) fn result(&self) -> Option<Result<(), Fault>> {
        if self.known < self.len { None } else { all(self.reads.iter().map(|read| &read.transfer)) }
    }
}

/// The result of all of them: `None` as long as one is under way.
fn all<'a>(mut transfers: impl Iterator<Item = &'a Arc<Transfer>>) -> Option<Result<(), Fault>> {
    transfers.try_fold(Ok(()), |before, transfer| Some(before.and(transfer.result()?)))
}

impl Held {
    /// Something waits on its way in.
    pub(crate) fn is_incoming(&self) -> bool {
        !self.incoming.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.incoming.len() >= MOST
    }

    /// The lowest byte of the stream that is on its way in. No receive beyond it is done: else a late copy of a
    /// retransmission would write into memory that the program has again.
    pub(crate) fn floor(&self) -> Option<Seq> {
        let starts = self.incoming.iter().filter_map(|held| held.range).map(|(start, _)| start);
        starts.reduce(|one, other| if other.before(one) { other } else { one })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.incoming.is_empty() && self.outgoing.is_empty()
    }
}
