//! Output of a poll: frames, and what was dropped.
use engine::{DropCounts, Frame, FramePool};
use verbs::{AsyncEvent, Number, QpNumber};

/// What comes out of a poll beside frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The program asked for an event, and this completion queue has a completion: its number is to be written into
    /// its channel.
    Completion(Number),
    /// An asynchronous event. The number is that of the completion queue, the shared receive queue or the queue pair,
    /// by the event's kind. [`AsyncEvent::CommunicationEstablished`] reports that the first message came on a
    /// connection that is ready to receive, and not yet to send.
    Async(AsyncEvent, Number),
    /// A queue pair over a stream may have a message: [`crate::Shard::next_message`], or a datagram:
    /// [`crate::Shard::datagram_to`].
    Ready(QpNumber),
    /// The send pipe holds what cannot be a work request. Nothing is taken from it any more, and all queue pairs are in
    /// the error state: the program broke the rules.
    SendPipeCorrupt,
}

/// Congestion notifications of a shard's queue pairs, also of those that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CnpCounts {
    /// Sent, for packets that came marked.
    pub sent: u64,
    /// Received by queue pairs that answer them.
    pub received: u64,
}

impl CnpCounts {
    /// Adds those of another shard.
    pub fn add(&mut self, other: CnpCounts) {
        self.sent += other.sent;
        self.received += other.received;
    }
}

/// Where a poll puts what comes out. Lists are appended to.
pub struct ShardOutput<'a> {
    /// Frames to send, in order.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// Frames to use and to give back.
    pub pool: &'a mut FramePool,
    /// What was dropped.
    pub drops: &'a mut DropCounts,
    /// Events for the control plane and the program.
    pub events: &'a mut Vec<Event>,
}
