//! Operators' modules (FlexTOE section 3.3; thesis section 4.3.3). They run batch by batch, as the engine's own do, one
//! module after the other.
mod checksums;
pub mod native;

use crate::message::{Job, Skips, Work};
use crate::{capture, preprocess};
use checksums::{Headers, Noted};
use engine::stream::Stream;
use engine::{
    Burst, Changes, Counts, DropReason, Exception, FlowId, Frame, FramePool, LoadedModule, Module, ModuleFigures,
    Nanos, Packet, Stage, Verdict,
};

/// The replicas of a stage's modules that stand in one place: each sees all frames that pass there.
pub(crate) struct Chain {
    stage: Stage,
    /// Which replicas of the modules these are.
    index: u32,
    modules: Vec<ModuleSlot>,
    /// A module needs all bytes in one piece.
    whole: bool,
    /// What all of them together may change.
    changes: Changes,
    /// Of the present batch, for each of its items.
    verdicts: Vec<Verdict>,
    /// What frames were before the first module, where one may change them.
    before: Vec<Headers>,
    fronts: Vec<Noted>,
}

struct ModuleSlot {
    module: LoadedModule,
    replica: Box<dyn Module>,
    /// Batches until the next one whose time is taken.
    until_timed: u64,
}

/// A frame of a batch, and its flow where one is known.
pub(crate) type Item<'a> = (&'a mut Box<Frame>, Option<FlowId>);

impl Chain {
    pub(crate) fn new(stage: Stage, index: u32) -> Chain {
        Chain {
            stage,
            index,
            modules: Vec::new(),
            whole: false,
            changes: Changes::Nothing,
            verdicts: Vec::new(),
            before: Vec::new(),
            fronts: Vec::new(),
        }
    }

    /// No module is here: nothing is to be run.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// From now on those of `list` that are for this stage. Modules that stay keep their replica, so their state.
    pub(crate) fn change(&mut self, list: &[LoadedModule]) {
        let mut old = std::mem::take(&mut self.modules);
        for module in list.iter().filter(|module| module.source.stage() == self.stage) {
            let seat = match old.iter().position(|seat| seat.module.id == module.id) {
                Some(at) => old.swap_remove(at),
                None => {
                    let replica = module.source.replica(self.index);
                    ModuleSlot { module: module.clone(), replica, until_timed: 0 }
                }
            };
            self.modules.push(seat);
        }
        self.whole = self.modules.iter().any(|seat| seat.module.source.whole_frames());
        self.changes = checksums::together(self.modules.iter().map(|seat| seat.module.source.changes()));
    }

    /// Runs all modules on frames. Returns the verdict on each, or nothing where all go on.
    fn frames(&mut self, frames: &mut [Box<Frame>], now: Nanos, pool: &mut FramePool) -> Option<&[Verdict]> {
        let run = |module: &mut dyn Module, frames: &mut [_], verdicts: &mut [_]| {
            module.process_frames(frames, verdicts, now)
        };
        self.process(frames, alone, run, pool)
    }

    /// The same of the frames of works that `frame_of` finds.
    fn works(
        &mut self,
        works: &mut [Work],
        frame_of: impl for<'a> Fn(&'a mut Work) -> Option<Item<'a>>,
        now: Nanos,
        pool: &mut FramePool,
    ) -> Option<&[Verdict]> {
        let run = |module: &mut dyn Module, works: &mut [Work], verdicts: &mut [Verdict]| {
            let mut counts = Counts::default();
            for (work, verdict) in works.iter_mut().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Pass) {
                if let Some((frame, flow)) = frame_of(work) {
                    *verdict = module.process(Packet { frame, flow, now });
                    counts[*verdict as usize] += 1;
                }
            }
            counts
        };
        self.process(works, |work| frame_of(work).map(|(frame, _)| frame), run, pool)
    }

    /// Runs all modules, each by `run`, on the items in which `frame_of` finds a frame.
    #[inline(always)]
    fn process<T>(
        &mut self,
        items: &mut [T],
        frame_of: impl for<'a> Fn(&'a mut T) -> Option<&'a mut Box<Frame>>,
        run: impl Fn(&mut dyn Module, &mut [T], &mut [Verdict]) -> Counts,
        pool: &mut FramePool,
    ) -> Option<&[Verdict]> {
        self.verdicts.clear();
        self.verdicts.resize(items.len(), Verdict::Pass);
        if self.whole {
            items.iter_mut().filter_map(&frame_of).for_each(|frame| pool.flatten(frame));
        }
        match self.changes {
            Changes::Nothing => {}
            Changes::Front(_) => {
                self.fronts.resize(items.len().max(self.fronts.len()), Noted::default());
                let each = items.iter_mut().zip(&mut self.fronts);
                each.for_each(|(item, noted)| frame_of(item).into_iter().for_each(|frame| noted.note(frame)));
            }
            Changes::Anything => {
                let whole = self.whole;
                self.before.resize_with(items.len().max(self.before.len()), || Headers::NONE);
                let each = items.iter_mut().zip(&mut self.before);
                each.for_each(|(item, noted)| frame_of(item).into_iter().for_each(|frame| noted.note(frame, whole)));
            }
        }
        let mut all_pass = true;
        for seat in &mut self.modules {
            all_pass &= seat.process(items, &run, &mut self.verdicts);
        }
        self.mend(items, frame_of);
        (!all_pass).then_some(&self.verdicts[..])
    }

    /// Makes checksums good again.
    #[inline(always)]
    fn mend<T>(&self, items: &mut [T], frame_of: impl for<'a> Fn(&'a mut T) -> Option<&'a mut Box<Frame>>) {
        // What is dropped is not read.
        let left = items.iter_mut().zip(&self.verdicts).map(|(item, verdict)| match drop_reason(*verdict) {
            None => frame_of(item),
            Some(_) => None,
        });
        match self.changes {
            Changes::Nothing => {}
            Changes::Front(front) => {
                for (frame, noted) in left.zip(&self.fronts) {
                    frame.into_iter().for_each(|frame| noted.mend(front, frame));
                }
            }
            Changes::Anything => {
                for (frame, noted) in left.zip(&self.before) {
                    frame.into_iter().for_each(|frame| checksums::mend(noted, frame, self.whole));
                }
            }
        }
    }
}

impl ModuleSlot {
    /// Runs the module; true where all that it saw go on.
    #[inline(always)]
    fn process<T>(
        &mut self,
        items: &mut [T],
        run: &impl Fn(&mut dyn Module, &mut [T], &mut [Verdict]) -> Counts,
        verdicts: &mut [Verdict],
    ) -> bool {
        let start = (self.until_timed == 0).then(self.module.ticks);
        let counts = run(&mut *self.replica, items, verdicts);
        if counts == Counts::default() {
            return true;
        }
        let ticks = start.map(|start| (self.module.ticks)().saturating_sub(start));
        self.until_timed = self.until_timed.checked_sub(1).unwrap_or(ModuleFigures::TIMED - 1);
        self.module.figures.add(counts, ticks);
        counts.iter().sum::<u64>() == counts[Verdict::Pass as usize]
    }
}

/// The reason under which a verdict drops a frame, where it does.
pub(crate) fn drop_reason(verdict: Verdict) -> Option<DropReason> {
    match verdict {
        Verdict::Drop => Some(DropReason::ModuleDrop),
        Verdict::Aborted => Some(DropReason::ModuleAborted),
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
    let Some(verdicts) = chain.works(batch, from_port, now, pool) else { return };
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
    if let Some(verdicts) = chain.works(batch, |work| of_flow(work, group), now, pool) {
        batch.iter_mut().zip(verdicts).for_each(|(work, verdict)| decide(work, *verdict));
    }
    if chain.changes != Changes::Nothing {
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

/// Frames from the port pass the ingress modules of the engine's own thread; those that go on stay. `spare` is empty,
/// before and after.
pub(crate) fn admit(
    chain: &mut Chain,
    frames: &mut Vec<Box<Frame>>,
    spare: &mut Vec<Box<Frame>>,
    now: Nanos,
    burst: &mut Burst<'_, Stream>,
) {
    let Some(verdicts) = chain.frames(frames, now, burst.pool) else { return };
    for (mut frame, verdict) in frames.drain(..).zip(verdicts) {
        match verdict {
            Verdict::Pass => spare.push(frame),
            Verdict::Redirect => burst.exceptions.push((Exception::Redirected, frame)),
            Verdict::Transmit => {
                checksums::prepare(&mut frame);
                capture::by_module(&frame, Stage::Ingress, None, now, &mut burst.recorder);
                burst.tx.push(frame);
            }
            Verdict::Drop | Verdict::Aborted => discard(frame, Stage::Ingress, *verdict, now, burst),
        }
    }
    std::mem::swap(frames, spare);
}

/// Frames of `burst.tx` from number `from` on pass the egress modules; those that go on stay, in order.
pub(crate) fn depart(chain: &mut Chain, from: usize, now: Nanos, burst: &mut Burst<'_, Stream>) {
    let Some(verdicts) = chain.frames(&mut burst.tx[from..], now, burst.pool) else { return };
    for (frame, verdict) in burst.tx.split_off(from).into_iter().zip(verdicts) {
        match verdict {
            Verdict::Pass | Verdict::Transmit => burst.tx.push(frame),
            // Nobody is there to whom it could be redirected.
            Verdict::Redirect => discard(frame, Stage::Egress, Verdict::Drop, now, burst),
            Verdict::Drop | Verdict::Aborted => discard(frame, Stage::Egress, *verdict, now, burst),
        }
    }
}

fn alone(frame: &mut Box<Frame>) -> Option<&mut Box<Frame>> {
    Some(frame)
}

fn discard(frame: Box<Frame>, stage: Stage, verdict: Verdict, now: Nanos, burst: &mut Burst<'_, Stream>) {
    let reason = drop_reason(verdict);
    capture::by_module(&frame, stage, reason, now, &mut burst.recorder);
    reason.into_iter().for_each(|reason| burst.drops.count(reason));
    burst.pool.put(frame);
}
