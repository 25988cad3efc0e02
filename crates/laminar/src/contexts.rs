//! Context queues: the applications' bumps and their completions. With the buffers, this is the host's side of the DMA
//! channel (thesis section 5.4), in the place of RDMA queue pairs.
use context::{Bump, Completion, DrainingContexts, EngineEnd, LOG_SLOT, Slot};
use engine::stream::Stream;
use engine::{ContextId, DropCounts, DropReason, Event, Nanos};
use std::collections::VecDeque;

/// Bumps taken from one context before the next one is polled.
const BUDGET: usize = 128;
/// How long to sleep at most while an application's ring has no room for its completions.
pub(crate) const RETRY: Nanos = 200_000;

/// In the place of a flow: the descriptor is for the context's log.
pub(crate) const LOG: u32 = u32::MAX;

struct Context {
    end: EngineEnd,
    /// The flows that the application's slots name, with the slots' generations.
    flows: Vec<Option<(u16, u32)>>,
    /// Flows that have a completion to give, each once.
    pending: Vec<u32>,
    /// Last completions of flows that are gone and found no room: how they ended. One a slot at most.
    parting: VecDeque<Completion>,
    /// How far its log can be read, where that was not reported yet.
    log: Option<Completion>,
    corrupt: bool,
}

/// All contexts of a host.
pub(crate) struct Contexts {
    list: Vec<Option<Context>>,
    /// Those that are attached, in order: a poll reads no others.
    attached: Vec<u32>,
    /// Where the next poll begins: a place in `attached`.
    first: usize,
    draining: DrainingContexts,
}

impl Contexts {
    pub(crate) fn new(contexts: u32) -> Contexts {
        let list = (0..contexts).map(|_| None).collect();
        Contexts { list, attached: Vec::new(), first: 0, draining: DrainingContexts::default() }
    }

    pub(crate) fn attach(&mut self, context: u32, end: EngineEnd) {
        if let Some(place) = self.list.get_mut(context as usize) {
            let (pending, parting) = (Vec::new(), VecDeque::new());
            *place = Some(Context { end, flows: Vec::new(), pending, parting, log: None, corrupt: false });
            if let Err(at) = self.attached.binary_search(&context) {
                self.attached.insert(at, context);
            }
        }
    }

    pub(crate) fn detach(&mut self, context: u32) {
        if let Some(place) = self.list.get_mut(context as usize) {
            *place = None;
            self.attached.retain(|attached| *attached != context);
            self.draining.forget(context);
        }
    }

    /// The process of a context is gone.
    pub(crate) fn drain(&mut self, context: u32) {
        if let Some(place) = self.list.get(context as usize).and_then(Option::as_ref) {
            self.draining.add(context, &place.end);
        }
    }

    /// Reports whose processes are gone and have left nothing that was not taken.
    pub(crate) fn report_drained(&mut self, events: &mut Vec<Event<Stream>>) {
        let taken_from = |context: &&Context| !context.corrupt;
        let list = &self.list;
        let drained =
            self.draining.gone(|id| list[id as usize].as_ref().filter(taken_from).map(|context| &context.end));
        events.extend(drained.into_iter().map(|context| Event::Drained(ContextId(context))));
    }

    fn get(&mut self, context: u32) -> Option<&mut Context> {
        self.list.get_mut(context as usize)?.as_mut()
    }

    pub(crate) fn name(&mut self, flow: u32, context: u32, slot: Slot) {
        let Some(at) = self.get(context) else { return };
        let index = slot.index as usize;
        if at.flows.len() <= index {
            at.flows.resize(index + 1, None);
        }
        at.flows[index] = Some((slot.generation, flow));
    }

    pub(crate) fn forget(&mut self, flow: u32, context: u32, slot: Slot) {
        let Some(at) = self.get(context) else { return };
        if let Some(entry) = at.flows.get_mut(slot.index as usize).filter(|e| **e == Some((slot.generation, flow))) {
            *entry = None;
        }
        at.pending.retain(|pending| *pending != flow);
    }

    /// The last completion of a flow that is gone: it reports how the flow ended.
    pub(crate) fn part(&mut self, context: u32, completion: Completion) {
        let Some(at) = self.get(context) else { return };
        at.parting.retain(|other| other.slot.index != completion.slot.index);
        at.parting.push_back(completion);
    }

    /// The log can be read up to here; replaces what was to be reported before.
    pub(crate) fn report_log(&mut self, context: u32, completion: Completion) {
        if let Some(at) = self.get(context) {
            at.log = Some(completion);
        }
    }

    /// Takes descriptors of all contexts in turn, at most about `most`. Those for a context's log are [`LOG`]'s, with
    /// the context's number in the slot's place.
    pub(crate) fn take(
        &mut self,
        most: usize,
        bumps: &mut Vec<(u32, Bump)>,
        drops: &mut DropCounts,
        events: &mut Vec<Event<Stream>>,
    ) {
        let count = self.attached.len();
        for step in 0..count {
            let at = (self.first + step) % count;
            let id = self.attached[at];
            let place = self.list[id as usize].as_mut();
            let Some(context) = place.filter(|context| !context.corrupt) else { continue };
            if !context.take(id, bumps, drops) {
                drops.count(DropReason::RingCorrupt);
                events.push(Event::RingCorrupt(ContextId(id)));
            }
            if bumps.len() >= most {
                self.first = (at + 1) % count;
                return;
            }
        }
    }

    /// The flow has a completion to give, and had none.
    #[inline]
    pub(crate) fn add_pending(&mut self, flow: u32, context: u32) {
        if let Some(at) = self.get(context) {
            at.pending.push(flow);
        }
    }

    /// Reports how far a flow has sent, before the completion that is to be given.
    pub(crate) fn report_sent(&mut self, context: u32, slot: u32, position: u32) {
        self.get(context).into_iter().for_each(|at| at.end.report_sent(slot, position));
    }

    /// Gives completions as far as rings have room. `completion` gives a flow's, where it still is this context's.
    pub(crate) fn deliver(&mut self, mut completion: impl FnMut(u32, u32) -> Option<Completion>) {
        for id in &self.attached {
            let Some(context) = &mut self.list[*id as usize] else { continue };
            let mut given = false;
            while let Some(parting) = context.parting.front() {
                if context.end.completions.push(parting.to_words()).is_err() {
                    break;
                }
                context.parting.pop_front();
                given = true;
            }
            if let Some(log) = context.log.filter(|log| context.end.completions.push(log.to_words()).is_ok()) {
                context.log = context.log.filter(|other| *other != log);
                given = true;
            }
            loop {
                let room = (context.end.completions.free() as usize).min(context.pending.len());
                if room == 0 {
                    break;
                }
                for flow in context.pending.drain(..room) {
                    if let Some(completion) = completion(flow, *id) {
                        given |= context.end.completions.add(completion.to_words()).is_ok();
                    }
                }
            }
            if given {
                // All at once: each poll of the application's in between takes the position's cache line away.
                context.end.completions.publish();
                context.end.app_bell.ring();
            }
            context.end.set_completions_wait(context.waits());
        }
    }

    /// There are descriptors to take, or completions that have room now.
    pub(crate) fn has_work(&self) -> bool {
        let ready = |context: &Context| {
            let waits = context.waits() && context.end.completions.is_drained();
            !context.corrupt && (!context.end.bumps.is_empty() || waits)
        };
        self.contexts().any(ready)
    }

    fn contexts(&self) -> impl Iterator<Item = &Context> {
        self.attached.iter().filter_map(|id| self.list[*id as usize].as_ref())
    }

    /// Completions wait for room.
    pub(crate) fn waits(&self) -> bool {
        self.contexts().any(Context::waits)
    }
}

impl Context {
    /// Completions wait for room.
    fn waits(&self) -> bool {
        !self.pending.is_empty() || !self.parting.is_empty() || self.log.is_some()
    }

    /// Takes a round's descriptors; false where the ring is corrupt.
    fn take(&mut self, id: u32, bumps: &mut Vec<(u32, Bump)>, drops: &mut DropCounts) -> bool {
        for _ in 0..BUDGET {
            match self.end.bumps.pop() {
                Ok(None) => break,
                Ok(Some(words)) => {
                    let bump = Bump::from_words(words);
                    let entry = self.flows.get(bump.slot.index as usize).copied().flatten();
                    match entry.filter(|(generation, _)| *generation == bump.slot.generation) {
                        Some((_, flow)) => bumps.push((flow, bump)),
                        None if bump.slot.index == LOG_SLOT => {
                            bumps.push((LOG, Bump { slot: Slot { index: id, generation: 0 }, ..bump }));
                        }
                        None => drops.count(DropReason::BumpUnknown),
                    }
                }
                Err(_) => {
                    self.corrupt = true;
                    return false;
                }
            }
        }
        true
    }
}
