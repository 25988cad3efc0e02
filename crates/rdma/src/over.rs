//! What a device over streams keeps for whoever carries them.
use engine::FramePool;
use port::Frame;
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
    Gone(QpNumber),
}

/// What a device over streams keeps for whoever carries them.
pub(crate) struct Over {
    pub(crate) changes: Vec<Change>,
    /// Frames that nobody sends, and where they come from.
    pub(crate) scratch: Vec<Box<Frame>>,
    pub(crate) pool: FramePool,
}

impl Default for Over {
    fn default() -> Over {
        Over { changes: Vec::new(), scratch: Vec::new(), pool: FramePool::new(1) }
    }
}

impl Over {
    pub(crate) fn has_peer(&mut self, qp: QpNumber, remote: Ipv4Addr, remote_qp: Option<QpNumber>) {
        let change = remote_qp.map(|remote_qp| Change::HasPeer { qp, remote, remote_qp });
        self.changes.extend(change);
    }

    pub(crate) fn gone(&mut self, qps: impl IntoIterator<Item = QpNumber>) {
        self.changes.extend(qps.into_iter().map(Change::Gone));
    }
}
