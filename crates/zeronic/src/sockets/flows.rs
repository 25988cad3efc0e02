//! Flow look-up: a table of its own for IPv4, so that IPv6 costs those connections one test.
use crate::frames::Segment;
use engine::FlowId;
use port::Frame;
use std::collections::HashMap;
use wire::{FourTuple, Ipv4Tuple, Ipv6Tuple};

/// The engine's connections.
#[derive(Default)]
pub(super) struct Flows {
    v4: HashMap<Ipv4Tuple, FlowId>,
    v6: HashMap<Ipv6Tuple, FlowId>,
}

impl Flows {
    pub(super) fn insert(&mut self, tuple: &FourTuple, flow: FlowId) {
        if let Some(tuple) = tuple.as_v4() {
            self.v4.insert(tuple, flow);
        }
        if let Some(tuple) = tuple.as_v6() {
            self.v6.insert(tuple, flow);
        }
    }

    /// Removes a connection, but not one of the same tuple that came after it.
    pub(super) fn remove(&mut self, tuple: &FourTuple, flow: FlowId) {
        if let Some(tuple) = tuple.as_v4().filter(|tuple| self.v4.get(tuple) == Some(&flow)) {
            self.v4.remove(&tuple);
        }
        if let Some(tuple) = tuple.as_v6().filter(|tuple| self.v6.get(tuple) == Some(&flow)) {
            self.v6.remove(&tuple);
        }
    }

    /// The connection that receives a segment.
    #[inline]
    pub(super) fn receiving(&self, segment: &Segment, frame: &Frame) -> Option<FlowId> {
        match &segment.incoming {
            Some(tuple) => self.v4.get(tuple).copied(),
            None => self.receiving_v6(segment, frame),
        }
    }

    /// The connection that sends a segment.
    #[inline]
    pub(super) fn sending(&self, segment: &Segment, frame: &Frame) -> Option<FlowId> {
        match &segment.outgoing() {
            Some(tuple) => self.v4.get(tuple).copied(),
            None => self.sending_v6(segment, frame),
        }
    }

    #[inline(never)]
    fn receiving_v6(&self, segment: &Segment, frame: &Frame) -> Option<FlowId> {
        self.v6.get(&segment.incoming_v6(frame)).copied()
    }

    #[inline(never)]
    fn sending_v6(&self, segment: &Segment, frame: &Frame) -> Option<FlowId> {
        self.v6.get(&segment.incoming_v6(frame).turned()).copied()
    }
}
