//! What a capture gets to know of the frames of works that leave the pipeline (FlexTOE section 3.3: tcpdump).
use crate::message::{Job, Work};
use engine::{Burst, Drop, Frame, Nanos, Recorder, Stage};
use port::capture::{Direction, Fate, Sight};

/// Records the frames of a work, where somebody captures. Those that go to the control plane it records itself.
#[inline]
pub(crate) fn work(work: &mut Work, now: Nanos, burst: &mut Burst<'_>) {
    if let Some(recorder) = burst.recorder.as_deref_mut() {
        record(work, now, recorder);
    }
}

#[cold]
fn record(work: &mut Work, now: Nanos, recorder: &mut Recorder) {
    let flow = (work.flow != u32::MAX).then_some(work.flow);
    if let (Some(frame), None) = (&work.frame, work.exception) {
        match work.job {
            Job::Transmit { .. } if work.send.is_some() => {
                recorder.record(now, frame, &sent(flow, work.tally.retransmitted));
            }
            Job::Transmit { .. } => {}
            _ if frame.recorded => {}
            // A work whose segment pre-processing or a module of an operator refused is void.
            job => {
                let by_operator = |reason| matches!(reason, Drop::ModuleDrop | Drop::ModuleAborted);
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
    if let Some(frame) = &work.reply {
        let sight = match work.job {
            Job::Void => Sight { direction: Direction::Out, flow, module: "modules", fate: Fate::Returned },
            _ => sent(flow, false),
        };
        recorder.record(now, frame, &sight);
    }
}

fn sent(flow: Option<u32>, again: bool) -> Sight<'static> {
    let fate = if again { Fate::SentAgain } else { Fate::Sent };
    Sight { direction: Direction::Out, flow, module: "protocol", fate }
}

/// Records a received frame for which there is no room.
#[cold]
pub(crate) fn refused(frame: &Frame, reason: Drop, now: Nanos, recorder: &mut Option<&mut Recorder>) {
    if let Some(recorder) = recorder {
        let sight =
            Sight { direction: Direction::In, flow: None, module: "sequencer", fate: Fate::Dropped(reason.into()) };
        recorder.record(now, frame, &sight);
    }
}

/// Records a frame that modules of a stage dropped, or (without a reason) sent out again.
#[inline]
pub(crate) fn by_module(
    frame: &Frame,
    stage: Stage,
    reason: Option<Drop>,
    now: Nanos,
    recorder: &mut Option<&mut Recorder>,
) {
    if let Some(recorder) = recorder {
        let fate = reason.map_or(Fate::Returned, |reason| Fate::Dropped(reason.into()));
        let is_out = stage == Stage::Egress || fate == Fate::Returned;
        let direction = if is_out { Direction::Out } else { Direction::In };
        recorder.record(now, frame, &Sight { direction, flow: None, module: stage.label(), fate });
    }
}
