//! Captures: frames of works that leave the pipeline are recorded (FlexTOE section 3.3: tcpdump).
use crate::message::{Job, Marks, Work};
use engine::stream::Stream;
use engine::{Burst, DropReason, Frame, Nanos, Recorder, Stage};
use port::capture::{Direction, Fate, Sight};

/// Records the frames of a work, while a capture runs. Those that go to the control plane it records itself.
#[inline]
pub(crate) fn work(work: &mut Work, now: Nanos, burst: &mut Burst<'_, Stream>) {
    if let Some(recorder) = burst.recorder.as_deref_mut() {
        record(work, now, recorder);
    }
}

#[cold]
fn record(work: &mut Work, now: Nanos, recorder: &mut Recorder) {
    let flow = (work.flow != u32::MAX).then_some(work.flow);
    if let (Some(frame), None) = (&work.frame, work.exception) {
        match work.job {
            _ if frame.recorded => {}
            // A work whose segment pre-processing or a module of an operator refused is void.
            job => {
                let by_operator = |reason| matches!(reason, DropReason::ModuleDrop | DropReason::ModuleAborted);
                let module = match job {
                    Job::Void if work.drops.iter().any(by_operator) => "modules",
                    Job::Void => "preprocess",
                    _ => "protocol",
                };
                let fate = Fate::of_received(work.drops);
                recorder.record(now, frame, &Sight { direction: Direction::In, flow, module, fate });
            }
        }
    }
    if let Some(frame) = &work.out {
        let again = work.tally.marks.has(Marks::RETRANSMITTED);
        let (module, fate) = match work.job {
            Job::Void => ("modules", Fate::Returned),
            _ => ("protocol", if again { Fate::SentAgain } else { Fate::Sent }),
        };
        let sight = Sight { direction: Direction::Out, flow, module, fate };
        recorder.record(now, frame, &sight);
    }
}

/// Records a received frame for which there is no room.
#[cold]
pub(crate) fn refused(frame: &Frame, reason: DropReason, now: Nanos, recorder: &mut Option<&mut Recorder>) {
    if let Some(recorder) = recorder {
        let sight = Sight { direction: Direction::In, flow: None, module: "sequencer", fate: Fate::dropped(reason) };
        recorder.record(now, frame, &sight);
    }
}

/// Records a frame that modules of a stage dropped, or (without a reason) sent out again.
#[inline]
pub(crate) fn by_module(
    frame: &Frame,
    stage: Stage,
    reason: Option<DropReason>,
    now: Nanos,
    recorder: &mut Option<&mut Recorder>,
) {
    if let Some(recorder) = recorder {
        let fate = reason.map_or(Fate::Returned, Fate::dropped);
        let is_out = stage == Stage::Egress || fate == Fate::Returned;
        let direction = if is_out { Direction::Out } else { Direction::In };
        recorder.record(now, frame, &Sight { direction, flow: None, module: stage.label(), fate });
    }
}
