//! Modules that an operator added (FlexTOE section 3.3; thesis section 4.3.3): they run batch by batch, as the engine's
//! own do, one module after the other.
mod checksums;

use crate::batch::Batch;
use crate::message::{Job, Skips, Work};
use crate::{preprocess, record};
use checksums::Headers;
use engine::{
    Burst, Drop, Exception, FlowId, Frame, FramePool, LoadedModule, Module, ModuleFigures, Nanos, Segment, Stage,
    Verdict,
};

/// The replicas of a stage's modules that stand in one place: each sees all frames that pass there.
pub(crate) struct Chain {
    stage: Stage,
    /// Which replicas of the modules these are.
    index: u32,
    modules: Vec<Seat>,
    /// A module wants all bytes in one piece.
    whole: bool,
    /// A module may change frames.
    changes: bool,
    /// Of the present batch, for each of its items.
    verdicts: Vec<Verdict>,
    /// Headers as they were before the first module, where one may change them.
    before: Vec<Headers>,
}

struct Seat {
    module: LoadedModule,
    replica: Box<dyn Module>,
    /// Batches until the next one whose time is taken.
    until_timed: u64,
}

/// A frame of a batch, and its flow where one is known.
pub(crate) type Item<'a> = (&'a mut Box<Frame>, Option<FlowId>);

impl Chain {
    pub fn new(stage: Stage, index: u32) -> Chain {
        Chain {
            stage,
            index,
            modules: Vec::new(),
            whole: false,
            changes: false,
            verdicts: Vec::new(),
            before: Vec::new(),
        }
    }

    /// No module is here: nothing is to be run.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// From now on those of `list` that are for this stage. Modules that stay keep their replica, so their state.
    pub fn change(&mut self, list: &[LoadedModule]) {
        let mut old = std::mem::take(&mut self.modules);
        for module in list.iter().filter(|module| module.source.stage() == self.stage) {
            let seat = match old.iter().position(|seat| seat.module.id == module.id) {
                Some(at) => old.swap_remove(at),
                None => {
                    let replica = module.source.replica(self.index);
                    Seat { module: module.clone(), replica, until_timed: 0 }
                }
            };
            self.modules.push(seat);
        }
        self.whole = self.modules.iter().any(|seat| seat.module.source.whole_frames());
        self.changes = self.modules.iter().any(|seat| seat.module.source.changes_frames());
    }

    /// Runs all modules on the frames that `frame_of` finds in `items`. Returns the verdict on each item: `Pass` for
    /// those without a frame.
    pub fn process<T>(
        &mut self,
        items: &mut [T],
        frame_of: impl for<'a> Fn(&'a mut T) -> Option<Item<'a>>,
        now: Nanos,
        pool: &mut FramePool,
    ) -> &[Verdict] {
        self.verdicts.clear();
        self.verdicts.resize(items.len(), Verdict::Pass);
        if self.whole {
            items.iter_mut().filter_map(&frame_of).for_each(|(frame, _)| pool.flatten(frame));
        }
        if self.changes {
            let whole = self.whole;
            self.before.resize_with(items.len().max(self.before.len()), || Headers::NONE);
            for (item, before) in items.iter_mut().zip(&mut self.before) {
                if let Some((frame, _)) = frame_of(item) {
                    before.note(frame, whole);
                }
            }
        }
        for seat in &mut self.modules {
            seat.process(items, &frame_of, &mut self.verdicts, now);
        }
        if self.changes {
            for ((item, before), verdict) in items.iter_mut().zip(&self.before).zip(&self.verdicts) {
                // Nobody looks at what is dropped.
                if let (Some((frame, _)), None) = (frame_of(item), drop_reason(*verdict)) {
                    checksums::mend(before, frame, self.whole);
                }
            }
        }
        &self.verdicts
    }
}

impl Seat {
    fn process<T>(
        &mut self,
        items: &mut [T],
        frame_of: &impl for<'a> Fn(&'a mut T) -> Option<Item<'a>>,
        verdicts: &mut [Verdict],
        now: Nanos,
    ) {
        let start = (self.until_timed == 0).then(self.module.ticks);
        let mut counts = [0; Verdict::ALL.len()];
        for (item, verdict) in items.iter_mut().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Pass) {
            if let Some((frame, flow)) = frame_of(item) {
                *verdict = self.replica.process(Segment { frame, flow, now });
                counts[*verdict as usize] += 1;
            }
        }
        if counts == [0; Verdict::ALL.len()] {
            return;
        }
        let ticks = start.map(|start| (self.module.ticks)().saturating_sub(start));
        self.until_timed = self.until_timed.checked_sub(1).unwrap_or(ModuleFigures::TIMED - 1);
        self.module.figures.add(counts, ticks);
    }
}

/// The reason under which a verdict drops a frame, where it does.
pub(crate) fn drop_reason(verdict: Verdict) -> Option<Drop> {
    match verdict {
        Verdict::Drop => Some(Drop::ModuleDrop),
        Verdict::Aborted => Some(Drop::ModuleAborted),
        Verdict::Pass | Verdict::Transmit | Verdict::Redirect => None,
    }
}

/// Carries out the verdict on a work's received frame: where it does not go on, nothing is left to do but to leave.
pub(crate) fn decide(work: &mut Work, verdict: Verdict) {
    match verdict {
        Verdict::Pass => return,
        Verdict::Transmit => {
            work.out = work.frame.take();
            work.out.iter_mut().for_each(|frame| checksums::prepare(frame));
        }
        Verdict::Redirect => work.exception = Some(Exception::Redirected),
        Verdict::Drop | Verdict::Aborted => drop_reason(verdict).into_iter().for_each(|reason| work.drops.add(reason)),
    }
    work.job = Job::Void;
}

/// The ingress modules' part of works: frames from the port.
pub(crate) fn ingress(chain: &mut Chain, batch: &mut [Work], now: Nanos, pool: &mut FramePool) {
    if chain.is_empty() {
        return;
    }
    let verdicts = chain.process(batch, from_port, now, pool);
    batch.iter_mut().zip(verdicts).for_each(|(work, verdict)| decide(work, *verdict));
}

fn from_port(work: &mut Work) -> Option<Item<'_>> {
    match (work.job, work.skips) {
        (Job::Receive, Skips::Nothing) => work.frame.as_mut().map(|frame| (frame, None)),
        _ => None,
    }
}

/// The flow modules' part of works: steered segments of one flow group.
pub(crate) fn flow(chain: &mut Chain, batch: &mut [Work], now: Nanos, pool: &mut FramePool) {
    if chain.is_empty() {
        return;
    }
    let group = chain.index as u8;
    let verdicts = chain.process(batch, |work| of_flow(work, group), now, pool);
    batch.iter_mut().zip(verdicts).for_each(|(work, verdict)| decide(work, *verdict));
    if chain.changes {
        for work in batch.iter_mut() {
            if of_flow(work, group).is_some() {
                preprocess::read_again(work);
            }
        }
    }
}

fn of_flow(work: &mut Work, group: u8) -> Option<Item<'_>> {
    let flow = FlowId(work.flow);
    let passes = matches!(work.job, Job::Receive) && work.group == group && work.skips != Skips::Modules;
    work.frame.as_mut().filter(|_| passes).map(|frame| (frame, Some(flow)))
}

/// Frames from the port pass the ingress modules of the engine's own thread; only those that go on become works.
pub(crate) fn admit(
    chain: &mut Chain,
    frames: &mut Vec<Box<Frame>>,
    batch: &mut Batch,
    now: Nanos,
    burst: &mut Burst<'_>,
) {
    let verdicts = chain.process(frames, alone, now, burst.pool);
    if verdicts.iter().all(|verdict| *verdict == Verdict::Pass) {
        return frames.drain(..).for_each(|frame| batch.receive(frame));
    }
    for (mut frame, verdict) in frames.drain(..).zip(verdicts) {
        match verdict {
            Verdict::Pass => batch.receive(frame),
            Verdict::Redirect => burst.exceptions.push((Exception::Redirected, frame)),
            Verdict::Transmit => {
                checksums::prepare(&mut frame);
                record::by_module(&frame, Stage::Ingress, None, now, &mut burst.recorder);
                burst.tx.push(frame);
            }
            Verdict::Drop | Verdict::Aborted => discard(frame, Stage::Ingress, *verdict, now, burst),
        }
    }
}

/// Frames of `burst.tx` from number `from` on pass the egress modules; those that go on stay, in order.
pub(crate) fn depart(chain: &mut Chain, from: usize, now: Nanos, burst: &mut Burst<'_>) {
    let verdicts = chain.process(&mut burst.tx[from..], alone, now, burst.pool);
    if verdicts.iter().all(|verdict| matches!(verdict, Verdict::Pass | Verdict::Transmit)) {
        return;
    }
    for (frame, verdict) in burst.tx.split_off(from).into_iter().zip(verdicts) {
        match verdict {
            Verdict::Pass | Verdict::Transmit => burst.tx.push(frame),
            // Nobody is there to whom it could be redirected.
            Verdict::Redirect => discard(frame, Stage::Egress, Verdict::Drop, now, burst),
            Verdict::Drop | Verdict::Aborted => discard(frame, Stage::Egress, *verdict, now, burst),
        }
    }
}

fn alone(frame: &mut Box<Frame>) -> Option<Item<'_>> {
    Some((frame, None))
}

fn discard(frame: Box<Frame>, stage: Stage, verdict: Verdict, now: Nanos, burst: &mut Burst<'_>) {
    let reason = drop_reason(verdict);
    record::by_module(&frame, stage, reason, now, &mut burst.recorder);
    reason.into_iter().for_each(|reason| burst.drops.count(reason));
    burst.pool.put(frame);
}
