//! Context queues: takes the applications' bumps and gives them completions (thesis sections 4.3.1.1 and 4.3.1.3,
//! Notify).
use crate::batch::{Batch, MANY};
use crate::message::{EnginePositions, FlowCommand, Job, Work};
use crate::scheduler::Scheduler;
use crate::slots::Slots;
use context::{Bump, Completion, DrainingContexts, EngineEnd, PollList, Polled, Slot};
use engine::stream::Stream;
use engine::{DropCounts, DropReason, Event, Nanos};
use std::collections::{BTreeMap, VecDeque};
use trace::{NO_FLOW, Point, Tracer};

/// Bumps taken from one context before the next one is polled.
const BUDGET: u32 = 64;
/// How long to sleep at most while an application's ring has no room for its completions.
const RETRY: Nanos = 200_000;

struct Context {
    end: EngineEnd,
    /// What the application's slots name.
    flows: Vec<Named>,
    /// Completions to give, as the ring takes them, one for each flow: they are absolute, so the latest one has all. Of
    /// a flow that left, [`LEFT`].
    pending: Vec<[u64; 2]>,
    /// Number of the first one of them, counted from 1 as they were noted.
    first: u64,
    /// Last completions of flows that are gone and found no room: how they ended. One a slot at most.
    parting: VecDeque<Completion>,
    /// The context stands in the list of those that have completions to give.
    listed: bool,
    corrupt: bool,
}

/// In place of a completion's first word.
const LEFT: u64 = u64::MAX;

/// What a slot names.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Named {
    /// [`NOBODY`] for none.
    flow: u32,
    /// The slot's, so that a descriptor of an earlier connection is recognised.
    generation: u16,
    /// The flow's group (Steer).
    group: u8,
    /// The ring of the application's stream, as the engine has seen it.
    ring: u8,
}

/// No flow has this number.
const NOBODY: u32 = u32::MAX;

impl Named {
    const NOTHING: Named = Named { flow: NOBODY, generation: 0, group: 0, ring: 0 };
}

/// This module's state of a flow: its name, and the number of its last completion.
struct Name {
    context: u32,
    /// The ring in which the received stream is: each completion has that.
    ring: u8,
    /// The first word of each completion, but for FIN: the slot, and the ring.
    word: u64,
    noted: u64,
}

/// Bytes of a flow's state here.
#[cfg(test)]
pub(crate) const STATE: usize = size_of::<Option<Name>>();

impl Name {
    fn new(context: u32, slot: Slot, ring: u8) -> Name {
        let [word, _] = Completion { slot, rx_tail: 0, tx_tail: 0, fin: false, ring, urgent: false }.to_words();
        Name { context, ring, word, noted: 0 }
    }

    fn slot(&self) -> Slot {
        Completion::from_words([self.word, 0]).slot
    }

    /// A completion with these positions.
    #[inline(always)]
    fn completion(&self, positions: EnginePositions) -> [u64; 2] {
        let EnginePositions { rx_tail, tx_tail, fin } = positions;
        let slot = Slot { index: 0, generation: 0 };
        let [word, positions] = Completion { slot, rx_tail, tx_tail, fin, ring: 0, urgent: false }.to_words();
        [self.word | word, positions]
    }
}

/// The number of descriptors taken, and of segments granted with them.
#[derive(Default)]
pub(crate) struct Taken {
    pub descriptors: usize,
    pub grants: usize,
}

/// The context queue module.
pub(crate) struct ContextQueue {
    contexts: Vec<Option<Context>>,
    /// Those that are there: a poll must not cost more for the ones that could be.
    poll_list: PollList,
    draining: DrainingContexts,
    names: Slots<Name>,
    /// The urgent byte of what flows receive, of those whose peers have sent any: its stream position.
    urgent: BTreeMap<u32, u32>,
    /// Contexts with completions to give, each once.
    listed: Vec<u32>,
    /// Number of the first completion of the next context: above all those of earlier ones, which flows may still have.
    fresh: u64,
}

impl ContextQueue {
    pub(crate) fn new(flows: u32, contexts: u32) -> ContextQueue {
        let contexts = (0..contexts).map(|_| None).collect();
        let (poll_list, draining, listed) = (PollList::default(), DrainingContexts::default(), Vec::new());
        let (names, urgent) = (Slots::new(flows), BTreeMap::new());
        ContextQueue { contexts, poll_list, draining, names, urgent, listed, fresh: 1 }
    }

    pub(crate) fn attach(&mut self, context: u32, end: EngineEnd) {
        if let Some(place) = self.contexts.get_mut(context as usize) {
            let (flows, pending, parting) = (Vec::new(), Vec::new(), VecDeque::new());
            match place {
                Some(old) => self.fresh = self.fresh.max(old.first + old.pending.len() as u64),
                None => self.poll_list.add(context),
            }
            *place = Some(Context { end, flows, pending, first: self.fresh, parting, listed: false, corrupt: false });
        }
    }

    pub(crate) fn detach(&mut self, context: u32) {
        if let Some(place) = self.contexts.get_mut(context as usize) {
            let last = place.take().map_or(0, |old| old.first + old.pending.len() as u64);
            self.fresh = self.fresh.max(last);
        }
        self.poll_list.remove(context);
        self.draining.forget(context);
        self.listed.retain(|listed| *listed != context);
    }

    /// The process of a context is gone.
    pub(crate) fn drain(&mut self, context: u32) {
        if let Some(place) = self.contexts.get(context as usize).and_then(Option::as_ref) {
            self.draining.add(context, &place.end);
        }
    }

    /// Contexts whose processes are gone, and all that they left has been taken now.
    pub(crate) fn drained(&mut self) -> Vec<u32> {
        let taken_from = |context: &&Context| !context.corrupt;
        let contexts = &self.contexts;
        self.draining.gone(|id| contexts[id as usize].as_ref().filter(taken_from).map(|context| &context.end))
    }

    /// Gives a flow of a flow group a name, in place of an earlier one.
    pub(crate) fn name(&mut self, (flow, group): (u32, u8), context: u32, slot: Slot) {
        let ring = self.names.get(flow).map_or(0, |name| name.ring);
        let completion = self.forget(flow);
        if let Some(at) = self.contexts.get_mut(context as usize).and_then(Option::as_mut) {
            let index = slot.index as usize;
            if at.flows.len() <= index {
                at.flows.resize(index + 1, Named::NOTHING);
            }
            at.flows[index] = Named { flow, generation: slot.generation, group, ring: 0 };
        }
        self.names.insert(flow, Name::new(context, slot, ring));
        if let Some(positions) = completion {
            self.notify(flow, positions);
        }
        if let Some(position) = self.urgent.get(&flow) {
            self.report_urgent(flow, *position);
        }
    }

    /// A flow's received stream is in this one of its rings ([`shm::ByteRing::number`]).
    pub(crate) fn grown(&mut self, flow: u32, ring: u8) {
        let is_urgent = self.urgent.contains_key(&flow);
        if let Some(name) = self.names.get_mut(flow) {
            *name = Name { noted: name.noted, ..Name::new(name.context, name.slot(), ring) };
            name.word |= if is_urgent { Completion::URGENT_WORD } else { 0 };
        }
    }

    /// Reports which byte of what a flow receives is urgent. The pending completion is marked with it, and so are all
    /// later ones.
    pub(crate) fn report_urgent(&mut self, flow: u32, position: u32) {
        let Some(name) = self.names.get_mut(flow) else { return };
        self.urgent.insert(flow, position);
        name.word |= Completion::URGENT_WORD;
        let Some(context) = self.contexts.get_mut(name.context as usize).and_then(Option::as_mut) else { return };
        context.end.report_urgent(name.slot().index, position);
        if let Some(waiting) = context.pending(name.noted) {
            waiting[0] |= Completion::URGENT_WORD;
        }
    }

    /// Takes a flow's name away; returns a completion that was not given.
    pub(crate) fn forget(&mut self, flow: u32) -> Option<EnginePositions> {
        let name = self.names.remove(flow)?;
        let at = self.contexts.get_mut(name.context as usize).and_then(Option::as_mut)?;
        let slot = name.slot();
        if let Some(entry) = at.flows.get_mut(slot.index as usize) {
            if entry.flow == flow && entry.generation == slot.generation {
                *entry = Named::NOTHING;
            }
        }
        let completion = std::mem::replace(at.pending(name.noted)?, [LEFT; 2]);
        let Completion { rx_tail, tx_tail, fin, .. } = Completion::from_words(completion);
        Some(EnginePositions { rx_tail, tx_tail, fin })
    }

    /// A flow is gone. A completion of it that found no room is still given: it has how the flow ended.
    pub(crate) fn part(&mut self, flow: u32) {
        let Some(name) = self.names.get(flow) else { return };
        let (context, slot, ring) = (name.context, name.slot(), name.ring);
        let urgent = self.urgent.remove(&flow).is_some();
        let Some(EnginePositions { rx_tail, tx_tail, fin }) = self.forget(flow) else { return };
        let Some(at) = self.contexts.get_mut(context as usize).and_then(Option::as_mut) else { return };
        at.parting.retain(|completion| completion.slot.index != slot.index);
        at.parting.push_back(Completion { slot, rx_tail, tx_tail, fin, ring, urgent });
        if !at.listed {
            at.listed = true;
            self.listed.push(context);
        }
    }

    /// Takes descriptors of all contexts in turn, at most as many as make a batch.
    pub(crate) fn poll(
        &mut self,
        works: &mut Batch,
        scheduler: &mut Scheduler,
        drops: &mut DropCounts,
        events: &mut Vec<Event<Stream>>,
        tracer: &Tracer,
    ) -> Taken {
        let mut all = Taken::default();
        let contexts = &mut self.contexts;
        self.poll_list.round(|id| {
            let Some(context) = contexts[id as usize].as_mut() else { return Polled::Gone };
            if context.corrupt {
                return Polled::Nothing;
            }
            let Taken { descriptors, grants } = context.take(works, scheduler, drops);
            if context.corrupt {
                drops.count(DropReason::RingCorrupt);
                events.push(Event::RingCorrupt(engine::ContextId(id)));
            }
            all.descriptors += descriptors;
            all.grants += grants;
            match descriptors {
                0 => Polled::Nothing,
                _ if all.descriptors >= BUDGET as usize => Polled::Full,
                _ => Polled::Some,
            }
        });
        if all.descriptors > 0 {
            report_descriptors(all.descriptors, works, tracer);
        }
        all
    }

    /// Asks for a flow's name ahead of its use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: u32) {
        self.names.prefetch(flow);
    }

    /// Notes a completion; [`ContextQueue::deliver`] gives it.
    #[inline(always)]
    pub(crate) fn notify(&mut self, flow: u32, positions: EnginePositions) {
        let Some(name) = self.names.get_mut(flow) else { return };
        let Some(context) = self.contexts.get_mut(name.context as usize).and_then(Option::as_mut) else { return };
        let completion = name.completion(positions);
        if let Some(place) = context.pending(name.noted) {
            // One waits already.
            return *place = completion;
        }
        name.noted = context.first + context.pending.len() as u64;
        context.pending.push(completion);
        if !context.listed {
            context.listed = true;
            self.listed.push(name.context);
        }
    }

    /// Reports how far a flow has sent, before the completion that waits to be given.
    pub(crate) fn report_sent(&self, flow: u32, position: u32) {
        let Some(name) = self.names.get(flow) else { return };
        if let Some(context) = self.contexts.get(name.context as usize).and_then(Option::as_ref) {
            context.end.report_sent(name.slot().index, position);
        }
    }

    /// Gives applications their completions, as far as their rings have room, and rings each one's bell once.
    pub(crate) fn deliver(&mut self, tracer: &Tracer) {
        let mut at = 0;
        while at < self.listed.len() {
            let id = self.listed[at];
            let context = self.contexts[id as usize].as_mut();
            if context.is_none_or(|context| context.give(id, tracer)) {
                self.listed.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// There are descriptors to take, or completions that have room now.
    pub(crate) fn has_work(&self) -> bool {
        let ready = |context: &Context| {
            !context.corrupt
                && (!context.end.bumps.is_empty() || (context.listed && context.end.completions.is_drained()))
        };
        self.attached().any(ready)
    }

    /// Completions that are not given yet.
    pub(crate) fn waiting(&self) -> usize {
        self.attached().map(|context| context.pending.len() + context.parting.len()).sum()
    }

    fn attached(&self) -> impl Iterator<Item = &Context> {
        self.poll_list.iter().filter_map(|id| self.contexts[id as usize].as_ref())
    }

    /// When to check again for room for completions, if any wait.
    pub(crate) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        (!self.listed.is_empty()).then_some(now + RETRY)
    }
}

/// Reports to tracepoints how many descriptors were taken, and the grants that came with them.
#[inline(always)]
fn report_descriptors(taken: usize, works: &[Work], tracer: &Tracer) {
    tracer.value(Point::Descriptors, NO_FLOW, taken as u64);
    if tracer.is_on(Point::Grant) {
        let grants = works.iter().filter(|work| work.is_grant());
        match tracer.is_streaming() {
            true => grants.for_each(|work| tracer.event(Point::Grant, work.flow, [1, 0])),
            false => tracer.add(Point::Grant, grants.count() as u64),
        }
    }
}

/// What a slot names; nothing where it is an earlier connection's.
#[inline(always)]
fn named(flows: &mut [Named], slot: Slot) -> Option<&mut Named> {
    let named = flows.get_mut(slot.index as usize)?;
    (named.generation == slot.generation && named.flow != NOBODY).then_some(named)
}

/// A bump has another ring than those before it, or asks for something in the place of one: a work before that of its
/// positions. False where it has no positions.
#[cold]
#[inline(never)]
fn change_ring(named: &mut Named, bump: &Bump, works: &mut Batch) -> bool {
    let (command, has_positions) = match bump.ring {
        Bump::UNTIL_SENT => (FlowCommand::ReportSent(bump.tx_head), false),
        Bump::URGENT => (FlowCommand::Urge(bump.tx_head), false),
        Bump::RECORD => (FlowCommand::EndRecord(bump.tx_head), false),
        ring => {
            named.ring = ring;
            (FlowCommand::CheckGrowth, true)
        }
    };
    works.add(named.flow, Job::FlowCommand(command)).group = named.group;
    has_positions
}

impl Context {
    /// Prefetches what the next descriptors name, and the scheduler's state of those flows.
    #[inline(never)]
    fn prefetch_ahead(&mut self, scheduler: &Scheduler) {
        let Context { end, flows, .. } = self;
        let slot = |words| Bump::from_words(words).slot.index as usize;
        end.bumps.ahead(BUDGET).filter_map(|words| flows.get(slot(words))).for_each(shm::prefetch);
        end.bumps
            .ahead(BUDGET)
            .filter_map(|words| flows.get(slot(words)))
            .for_each(|named| scheduler.prefetch(named.flow));
    }

    /// Takes a round's descriptors; returns how many. Of several in a row for one flow, the last one has all.
    fn take(&mut self, works: &mut Batch, scheduler: &mut Scheduler, drops: &mut DropCounts) -> Taken {
        if self.flows.len() >= MANY {
            self.prefetch_ahead(scheduler);
        }
        let Context { end: EngineEnd { bumps, .. }, flows, corrupt, .. } = self;
        let Ok(waiting) = bumps.waiting() else {
            *corrupt = true;
            return Taken::default();
        };
        if waiting == 0 {
            // The line of what comes next is the application's to write.
            return Taken::default();
        }
        let budget = waiting.min(BUDGET);
        let mut taken = Taken { descriptors: budget as usize, grants: 0 };
        let at_once = scheduler.nobody_waits();
        let mut next = bumps.at(0);
        for before in 0..budget {
            let words = next;
            if before + 1 < waiting {
                next = bumps.at(before + 1);
                if Bump::is_overtaken(words[0], next[0]) {
                    continue;
                }
            }
            let bump = Bump::from_words(words);
            let Some(named) = named(flows, bump.slot) else {
                drops.count(DropReason::BumpUnknown);
                continue;
            };
            if bump.ring > named.ring && !change_ring(named, &bump, works) {
                continue;
            }
            let grant = at_once && scheduler.grant_at_once(named.flow);
            taken.grants += grant as usize;
            let work = works.place(named.flow);
            work.job = Job::Bump { fin: bump.fin, grant, tx_head: bump.tx_head, rx_head: bump.rx_head };
            work.group = named.group;
        }
        bumps.release(budget);
        taken
    }

    /// The place of a pending completion by its number, where it was not given yet.
    #[inline(always)]
    fn pending(&mut self, noted: u64) -> Option<&mut [u64; 2]> {
        self.pending.get_mut(noted.checked_sub(self.first)? as usize)
    }

    /// Reports completions to a tracer whose records somebody watches.
    #[cold]
    fn report(&self, completions: &[[u64; 2]], tracer: &Tracer) {
        for words in completions {
            let completion = Completion::from_words(*words);
            let named = self.flows.get(completion.slot.index as usize);
            let positions = [completion.rx_tail.into(), completion.tx_tail.into()];
            tracer.event(Point::Completion, named.map_or(NO_FLOW, |named| named.flow), positions);
        }
    }

    /// Gives pending completions; true where none is left.
    fn give(&mut self, id: u32, tracer: &Tracer) -> bool {
        let (mut given, mut done, streaming) = (0, 0, tracer.is_streaming());
        while let Some(completion) = self.parting.front() {
            if self.end.completions.push(completion.to_words()).is_err() {
                tracer.event(Point::CompletionWaits, NO_FLOW, [id.into(), self.parting.len() as u64]);
                break;
            }
            self.parting.pop_front();
            given += 1;
        }
        for run in self.pending.split(|words| words[0] == LEFT) {
            let added = self.end.completions.add_all(run);
            if streaming {
                self.report(&run[..added], tracer);
            }
            given += added;
            done += added;
            if added < run.len() {
                let waiting = self.pending.len() - done;
                tracer.event(Point::CompletionWaits, NO_FLOW, [id.into(), waiting as u64]);
                break;
            }
            // One that left follows, or nothing.
            done += usize::from(done < self.pending.len());
        }
        self.end.completions.publish();
        self.first += done as u64;
        self.pending.drain(..done);
        if !streaming {
            tracer.add(Point::Completion, given as u64);
        }
        if given > 0 && self.end.app_bell.ring() {
            tracer.event(Point::ContextBell, NO_FLOW, [id.into(), 0]);
        }
        self.listed = !self.pending.is_empty() || !self.parting.is_empty();
        self.end.set_completions_wait(self.listed);
        !self.listed
    }
}
