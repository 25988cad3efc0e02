//! Captures (`opentoe pcap`): the wire's frames, whole, with what the NIC's half made of them. What the transport makes
//! of a header afterwards is not known here.
use crate::frames::{FrameKind, Segment, kind};
use crate::nic::Memory;
use crate::split::Round;
use crate::unit::Unit;
use port::capture::{Direction, Fate, Sight};
use port::{Frame, FramePool};
use wire::tcp::Flags;
use wire::{Nanos, Seq};

/// Who decides about received frames, and about sent ones.
const SPLIT: &str = "split";
const MERGE: &str = "merge";

impl<M: Memory> Unit<M> {
    /// Takes a burst of frames in, as [`Unit::incoming`] does, and records each.
    pub(crate) fn received(
        &mut self,
        now: Nanos,
        frames: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
        up: &mut Vec<Box<Frame>>,
    ) {
        if !self.recorder.is_on() {
            return self.incoming(now, frames, pool, up);
        }
        let mut open = None;
        for frame in frames.drain(..) {
            self.recorder.keep(&frame);
            let before = self.drops.clone();
            self.take_in(now, frame, &mut Round { pool, up, open: &mut open });
            let fate = Fate::of_received(self.drops.since(&before));
            self.recorder.record_kept(now, &Sight { direction: Direction::In, flow: None, module: SPLIT, fate });
        }
        self.finish(open, up);
    }

    /// Records frames that are about to leave.
    pub(crate) fn record_sent(&mut self, now: Nanos, frames: &[Box<Frame>]) {
        if !self.recorder.is_on() {
            return;
        }
        for frame in frames {
            let fate = if self.is_again(frame) { Fate::SentAgain } else { Fate::Sent };
            self.recorder.record(now, frame, &Sight { direction: Direction::Out, flow: None, module: MERGE, fate });
        }
    }

    /// Sequence numbers of a frame that is about to leave were recorded before.
    fn is_again(&mut self, frame: &Frame) -> bool {
        let FrameKind::Segment(segment) = kind(frame, frame.len()) else { return false };
        let Some(flow) = segment.outgoing().and_then(|tuple| self.find(&tuple)) else { return false };
        let Some(way) = self.header_state(flow) else { return false };
        is_again(&mut way.recorded, &segment)
    }
}

/// A segment that is about to leave has sequence numbers that were recorded before; `recorded` is where those end.
pub(crate) fn is_again(recorded: &mut Option<Seq>, segment: &Segment) -> bool {
    let control = [Flags::SYN, Flags::FIN].map(|flag| usize::from(segment.has(flag))).iter().sum::<usize>();
    let len = segment.payload_len + control;
    if len == 0 {
        return false;
    }
    let is_again = recorded.is_some_and(|end| segment.seq.before(end));
    let end = segment.seq + len as u32;
    *recorded = Some(recorded.map_or(end, |recorded| recorded.max(end)));
    is_again
}
