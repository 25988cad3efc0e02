//! State of a device over streams, for the transport that carries them.
use engine::FramePool;
use port::Frame;
use smartns::{FinalMessage, LowerLayer};
use std::net::Ipv4Addr;
use verbs::QpNumber;

/// What happened to a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It has a peer, and can have a connection to it.
    HasPeer {
        /// It.
        qp: QpNumber,
        /// The peer's address.
        remote: Ipv4Addr,
        /// The peer's queue pair.
        remote_qp: QpNumber,
    },
    /// It is gone, or was reset: its connection ends.
    Gone {
        /// It.
        qp: QpNumber,
        /// What is left to send, where it had a connection.
        last: Option<FinalMessage>,
    },
}

/// What a device over streams keeps for their carrier. Over packets there is none, so nothing is stored.
pub(crate) struct StreamBinding {
    lower_layer: LowerLayer,
    pub(crate) changes: Vec<Change>,
    /// Frames that nobody sends, and where they come from.
    pub(crate) scratch: Vec<Box<Frame>>,
    pub(crate) pool: FramePool,
}

impl StreamBinding {
    pub(crate) fn new(lower_layer: LowerLayer) -> StreamBinding {
        StreamBinding { lower_layer, changes: Vec::new(), scratch: Vec::new(), pool: FramePool::new(1) }
    }

    pub(crate) fn has_peer(&mut self, qp: QpNumber, remote: Ipv4Addr, remote_qp: Option<QpNumber>) {
        self.note(remote_qp.map(|remote_qp| Change::HasPeer { qp, remote, remote_qp }));
    }

    pub(crate) fn gone(&mut self, qp: QpNumber, last: Option<FinalMessage>) {
        self.note([Change::Gone { qp, last }]);
    }

    fn note(&mut self, changes: impl IntoIterator<Item = Change>) {
        if self.lower_layer == LowerLayer::Stream {
            self.changes.extend(changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_packets_nothing_piles_up() {
        for (lower_layer, stored) in [(LowerLayer::Packets, 0), (LowerLayer::Stream, 2)] {
            let mut over = StreamBinding::new(lower_layer);
            over.has_peer(17, Ipv4Addr::LOCALHOST, Some(18));
            over.gone(17, None);
            assert_eq!(over.changes.len(), stored);
        }
    }
}
