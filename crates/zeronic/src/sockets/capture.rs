//! Captures (`opentoe pcap`): the wire's frames, whole, with what became of them. While somebody captures, received
//! frames go to the engine one by one, so that what it drops of each is known.
use super::{SocketEngine, reborrow};
use crate::capture::is_again;
use crate::frames::segment;
use engine::stream::Stream;
use engine::{Burst, Exception, Frame, Nanos};
use port::capture::{Direction, Fate, Sight};

impl SocketEngine {
    /// As `split`, and the engine has worked on each frame. Returns how much it did.
    #[cold]
    pub(super) fn split_recorded(
        &mut self,
        now: Nanos,
        frames: Vec<Box<Frame>>,
        back: Vec<(Exception, Box<Frame>)>,
        burst: &mut Burst<'_, Stream>,
    ) -> usize {
        let (back, redirected) = back.into_iter().partition::<Vec<_>, _>(|(why, _)| *why != Exception::Redirected);
        burst.back.extend(redirected);
        let back = back.into_iter().map(|(_, frame)| frame);
        back.chain(frames).map(|frame| self.one(now, frame, burst)).sum()
    }

    fn one(&mut self, now: Nanos, frame: Box<Frame>, burst: &mut Burst<'_, Stream>) -> usize {
        let segment = segment(&frame, frame.len());
        let flow = segment.and_then(|segment| self.flows.receiving(&segment, &frame)).map(|flow| flow.0);
        let records = !frame.recorded;
        if let Some(recorder) = burst.recorder.as_deref_mut().filter(|_| records) {
            recorder.keep(&frame);
        }
        let (before, sent) = (burst.drops.clone(), burst.tx.len());
        let others = burst.exceptions.len() + self.waiting.len();
        let header = self.take_in(frame, burst);
        self.up.extend(header);
        let (rx, back) = (&mut Vec::new(), &mut Vec::new());
        let done = self.round(now, &mut Burst { rx, back, ..reborrow(burst) });
        // What goes to the control plane is recorded there, and what waits later.
        let is_over = burst.exceptions.len() + self.waiting.len() == others;
        if let Some(recorder) = burst.recorder.as_deref_mut().filter(|_| records && is_over) {
            let fate = Fate::of_received(burst.drops.since(&before));
            recorder.record_kept(now, &Sight { direction: Direction::In, flow, module: "split", fate });
        }
        self.record_sent(now, sent, burst);
        done
    }

    /// Records the engine's frames of a burst from number `first` on.
    pub(super) fn record_sent(&mut self, now: Nanos, first: usize, burst: &mut Burst<'_, Stream>) {
        let Some(recorder) = burst.recorder.as_deref_mut() else { return };
        for frame in &burst.tx[first..] {
            let Some(segment) = segment(frame, frame.len()) else { continue };
            let Some(flow) = self.flows.sending(&segment, frame) else { continue };
            let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut) else { continue };
            let fate = if is_again(&mut line.recorded, &segment) { Fate::SentAgain } else { Fate::Sent };
            let flow = Some(flow.0);
            recorder.record(now, frame, &Sight { direction: Direction::Out, flow, module: "merge", fate });
        }
    }
}
