//! What the control plane keeps for a while: frames, and questions about shared logs.
use engine::{ContextId, Exception, FlowId};
use port::Frame;
use std::collections::VecDeque;

/// Frames, and what becomes of them.
#[derive(Default)]
pub(crate) struct KeptFrames {
    /// Of flows that the engine learns of only now, or that a module sent here; and why they came.
    pub refeed: Vec<(Exception, Box<Frame>)>,
    /// Of no use any more: the pool gets them back.
    pub spent: Vec<Box<Frame>>,
    /// How many are kept for connections that nobody has accepted yet.
    pub held: u32,
}

impl KeptFrames {
    /// Frames that were held are of no use any more.
    pub fn spend(&mut self, frames: Vec<Box<Frame>>) {
        self.held -= frames.len() as u32;
        self.spent.extend(frames);
    }
}

/// What the control plane has of shared logs.
#[derive(Default)]
pub(crate) struct Logs {
    /// The engine keeps them.
    pub kept: bool,
    /// Flows that the engine was told to let join a log, in order: who asked, and with which tag.
    pub joins: VecDeque<(FlowId, ContextId, u32)>,
}
