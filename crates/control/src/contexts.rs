//! Contexts: attached applications, with their slots.
use crate::labels::Labels;
use crate::outbox::Outbox;
use ::host::Slab;
use context::{Class, ControlEnd, Geometry, PollList, Reply, Slot};
use engine::{Command, ContextId, FlowId};
use serde::{Deserialize, Serialize};
use shm::{ByteRing, Level};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use trace::{NO_FLOW, Point, Tracer};

/// The credentials of the attached process, from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// Process number.
    pub pid: u32,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Command line.
    pub command: String,
    /// It is in the network namespace whose loopback the host's is.
    pub loopback: bool,
}

/// A holder of a binding or of a flow; the last one closes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Holder {
    /// An attached application.
    Context(ContextId),
    /// A child that was forked and has not attached yet, by its token.
    Hold(u64),
    /// A listener whose connection lost the context that was to accept it.
    Listener(u32),
}

/// The state of a context's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its process runs.
    Alive,
    /// Its process is gone, or broke the rules; the engine still takes what it left in its ring.
    Draining,
    /// Its shares are given up; it stays until no flow needs its name or its rings.
    Gone,
}

/// An attached application.
pub(crate) struct Context {
    pub application: Application,
    pub end: ControlEnd,
    pub life: Life,
    /// The daemon has reported that the process is gone: the number may be used again once all is over.
    pub released: bool,
    pub slots: Slots,
    /// Flows that it has a share of.
    pub flows: BTreeSet<FlowId>,
    pub bindings: BTreeSet<u32>,
    /// The one that last got a connection for it.
    pub served: u32,
    /// Connections that it is opening, by tag.
    pub connects: BTreeMap<u32, u32>,
    pub labels: Labels,
    /// It has registered a shared log.
    pub has_log: bool,
    /// Replies that found the ring full.
    backlog: VecDeque<Reply>,
    to_ring: bool,
}

impl Context {
    pub(crate) fn new(application: Application, end: ControlEnd, cached_buffers: u32) -> Context {
        let slots = Slots::new(end.geometry(), cached_buffers);
        // One for each slot, and some for sockets without one.
        let most_labels = end.geometry().slots.saturating_add(1024);
        Context {
            application,
            end,
            life: Life::Alive,
            released: false,
            slots,
            flows: BTreeSet::new(),
            bindings: BTreeSet::new(),
            served: 0,
            connects: BTreeMap::new(),
            labels: Labels::new(most_labels),
            has_log: false,
            backlog: VecDeque::new(),
            to_ring: false,
        }
    }

    pub(crate) fn alive(&self) -> bool {
        self.life == Life::Alive
    }

    /// Leaves a reply. One that finds the ring full waits here; requests are not taken meanwhile. The other replies are
    /// at most a few for each slot, so what waits is bounded.
    pub(crate) fn reply(&mut self, reply: Reply) {
        if !self.alive() {
            return;
        }
        // Most find the ring with room, and none before them.
        if self.backlog.is_empty() && self.end.replies.push(reply.to_words()).is_ok() {
            self.to_ring = true;
            return;
        }
        self.backlog.push_back(reply);
        self.push_replies();
    }

    /// Replies wait for room in the ring.
    pub(crate) fn is_backlogged(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// It left requests that can be taken, or made room for replies that wait.
    pub(crate) fn has_work(&self) -> bool {
        let ready = if self.is_backlogged() { self.end.replies.is_drained() } else { !self.end.requests.is_empty() };
        self.alive() && ready
    }

    /// Moves waiting replies into the ring.
    pub(crate) fn push_replies(&mut self) {
        while let Some(reply) = self.backlog.front() {
            if self.end.replies.push(reply.to_words()).is_err() {
                break;
            }
            self.backlog.pop_front();
            self.to_ring = true;
        }
    }

    /// Wakes the application if it has something new and sleeps; returns whether it did.
    pub(crate) fn ring(&mut self) -> bool {
        std::mem::take(&mut self.to_ring) && self.end.app_bell.ring()
    }

    /// Replies that wait for room, as they will be left.
    pub(crate) fn waiting_replies(&self) -> Vec<[u64; 8]> {
        self.backlog.iter().map(|reply| reply.to_words()).collect()
    }
}

/// The attached applications of a host, by number.
pub(crate) struct Contexts {
    all: Slab<Context>,
    /// Whose requests are taken in a round.
    poll_list: PollList,
    /// Contexts that got something in this round: their bells are rung at its end.
    to_wake: Vec<ContextId>,
}

impl Deref for Contexts {
    type Target = Slab<Context>;
    fn deref(&self) -> &Slab<Context> {
        &self.all
    }
}

impl DerefMut for Contexts {
    fn deref_mut(&mut self) -> &mut Slab<Context> {
        &mut self.all
    }
}

impl Contexts {
    pub(crate) fn new(most: u32) -> Contexts {
        Contexts { all: Slab::new(most), poll_list: PollList::default(), to_wake: Vec::new() }
    }

    /// Adds an application that attaches; `None` where there is no room.
    pub(crate) fn add(&mut self, context: Context) -> Option<ContextId> {
        let key = self.all.insert(context)?;
        self.poll_list.add(key);
        Some(ContextId(key))
    }

    /// Adds an application under the number that it had; `None` where there is no room.
    pub(crate) fn add_at(&mut self, id: ContextId, context: Context) -> Option<()> {
        self.all.insert_at(id.0, context)?;
        self.poll_list.add(id.0);
        // Its replies may wait for room.
        self.to_wake.push(id);
        Some(())
    }

    /// Programs of a user that are attached.
    pub(crate) fn of_user(&self, uid: u32) -> usize {
        let is_of_user = |(_, context): &(u32, &Context)| context.application.uid == uid && context.alive();
        self.iter().filter(is_of_user).count()
    }

    /// The contexts whose requests are taken in this round. They are given back after the round
    /// ([`Contexts::set_poll_list`]).
    pub(crate) fn take_poll_list(&mut self) -> PollList {
        std::mem::take(&mut self.poll_list)
    }

    pub(crate) fn set_poll_list(&mut self, poll_list: PollList) {
        self.poll_list = poll_list;
    }

    /// Before the requests of an application are taken: replies that wait go into its ring. False where it is gone.
    pub(crate) fn begin_poll(&mut self, id: ContextId) -> bool {
        let Some(context) = self.all.get_mut(id.0) else { return false };
        if context.is_backlogged() {
            context.push_replies();
            self.to_wake.push(id);
        }
        true
    }

    /// A holder can still act: a process that has ended cannot.
    pub(crate) fn runs(&self, holder: Holder) -> bool {
        match holder {
            Holder::Context(id) => self.get(id.0).is_some_and(|context| context.alive()),
            Holder::Hold(_) | Holder::Listener(_) => true,
        }
    }

    /// An application has a share of a binding.
    pub(crate) fn has_binding(&self, id: ContextId, binding: u32) -> bool {
        self.get(id.0).is_some_and(|context| context.bindings.contains(&binding))
    }

    /// Its slots are used up, or as many as an application may have.
    pub(crate) fn is_full(&self, out: &Outbox<'_>, id: ContextId) -> bool {
        let limit = out.config.limits.connections_per_application;
        let full = |context: &Context| context.slots.is_full() || (limit > 0 && context.slots.used() >= limit);
        self.get(id.0).is_none_or(full)
    }

    /// Nothing more comes from a context or goes to it. First the engine empties its ring: what the process wrote
    /// before its end is sent.
    pub(crate) fn end(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        let Some(context) = self.get_mut(id.0).filter(|context| context.alive()) else { return };
        context.life = Life::Draining;
        out.commands.push(Command::Drain(id));
    }

    /// The process of a context is gone, as the daemon reports.
    pub(crate) fn release(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        if let Some(context) = self.get_mut(id.0) {
            context.released = true;
        }
        self.end(out, id);
        self.retire(out, id);
    }

    /// Gives a slot back; a context that is gone and has no slot in use any more is forgotten.
    pub(crate) fn free_slot(&mut self, out: &mut Outbox<'_>, id: ContextId, slot: Slot) {
        if let Some(context) = self.get_mut(id.0) {
            context.slots.free(slot, &context.end);
        }
        self.retire(out, id);
    }

    /// Forgets a context whose process is gone once no flow needs its name or its rings.
    pub(crate) fn retire(&mut self, out: &mut Outbox<'_>, id: ContextId) {
        let Some(context) = self.get(id.0) else { return };
        if context.life == Life::Gone && context.released && context.slots.used() == 0 {
            self.all.remove(id.0);
            out.commands.push(Command::Detach(id));
        }
    }

    /// Sends an application a reply.
    pub(crate) fn reply(&mut self, id: ContextId, reply: Reply) {
        if let Some(context) = self.all.get_mut(id.0) {
            context.reply(reply);
            if self.to_wake.last() != Some(&id) {
                self.to_wake.push(id);
            }
        }
    }

    /// Some have new completions or replies whose doorbells are not rung yet.
    pub(crate) fn have_pending_bells(&self) -> bool {
        !self.to_wake.is_empty()
    }

    /// Rings the bells of those that have something new and sleep.
    pub(crate) fn ring(&mut self, tracer: &Tracer) {
        for id in self.to_wake.drain(..) {
            let Some(context) = self.all.get_mut(id.0) else { continue };
            context.push_replies();
            if context.ring() {
                tracer.event(Point::ControlBell, NO_FLOW, [id.0.into(), 0]);
            }
        }
    }
}

/// The slots in use, with how often each was.
#[derive(Serialize, Deserialize)]
pub(crate) struct SlotsState {
    generations: Vec<u16>,
    flows: Vec<Option<FlowId>>,
    free: Vec<u32>,
    used: u32,
}

/// Receive and transmit buffer of a slot.
pub(crate) type Buffers = (Arc<ByteRing>, Arc<ByteRing>);

/// The slots of a context. One with the largest buffers is used first, and of those the one freed last: its buffers are
/// mapped and warm. So a program with few connections has large buffers, however many there were before. Those for long
/// paths are for other connections where there is nothing else.
pub(crate) struct Slots {
    generations: Vec<u16>,
    flows: Vec<Option<FlowId>>,
    /// For long paths.
    free_long: Vec<u32>,
    /// Those whose transmit streams may outgrow their buffers.
    free_growing: Vec<u32>,
    /// The others, by the halvings of their buffers.
    free: Vec<Vec<u32>>,
    geometry: Geometry,
    used: u32,
    /// Those that are mapped, by slot.
    buffers: Vec<Option<Buffers>>,
    /// How many of them there are.
    mapped: usize,
    cached: usize,
}

impl Slots {
    fn new(geometry: Geometry, cached: u32) -> Slots {
        let sizes = match geometry.class(geometry.slots - 1) {
            Class::LongPath => 1,
            Class::Halved(halvings) => halvings as usize + 1,
        };
        let long = geometry.long.slots;
        Slots {
            generations: vec![0; long as usize],
            flows: vec![None; long as usize],
            free_long: (0..long).rev().collect(),
            free_growing: Vec::new(),
            free: vec![Vec::new(); sizes],
            geometry,
            used: 0,
            buffers: Vec::new(),
            mapped: 0,
            cached: cached as usize,
        }
    }

    /// As another daemon goes on with them.
    pub(crate) fn state(&self) -> SlotsState {
        let (generations, flows) = (self.generations.clone(), self.flows.clone());
        let free = [self.free.concat(), self.free_growing.clone(), self.free_long.clone()].concat();
        SlotsState { generations, flows, free, used: self.used }
    }

    /// Goes on with another daemon's.
    pub(crate) fn go_on(&mut self, state: SlotsState) {
        let SlotsState { generations, flows, free, used } = state;
        (self.generations, self.flows, self.used) = (generations, flows, used);
        self.free_long.clear();
        free.into_iter().for_each(|index| self.put_back(index));
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.geometry.slots
    }

    /// There is a free slot whose buffers are no smaller than those of this class.
    pub(crate) fn has_free(&self, class: Class) -> bool {
        !self.is_full() && (self.has_usual(class) || self.has_long())
    }

    /// There is a free slot for a long path.
    pub(crate) fn has_long(&self) -> bool {
        !self.free_long.is_empty()
    }

    /// The same of those that are not for long paths.
    fn has_usual(&self, class: Class) -> bool {
        let growing = (!self.free_growing.is_empty()).then_some(0);
        let used = growing.or_else(|| self.free.iter().position(|free| !free.is_empty()));
        let used = used.map(|halvings| Class::Halved(halvings as u32));
        used.or_else(|| self.unused().map(|index| self.geometry.class(index))).is_some_and(|next| next <= class)
    }

    /// Takes a free slot whose buffers are no smaller than those of this class, where there is one.
    pub(crate) fn take_as_large(&mut self, class: Class) -> Option<Slot> {
        let usual = self.has_usual(class);
        if usual || self.has_long() { self.take(!usual) } else { None }
    }

    /// The first slot that was never used.
    fn unused(&self) -> Option<u32> {
        Some(self.generations.len() as u32).filter(|index| *index < self.geometry.slots)
    }

    fn of_class(&mut self, index: u32) -> &mut Vec<u32> {
        match self.geometry.class(index) {
            Class::LongPath => &mut self.free_long,
            Class::Halved(_) if self.geometry.may_outgrow(index) => &mut self.free_growing,
            Class::Halved(halvings) => &mut self.free[halvings as usize],
        }
    }

    fn put_back(&mut self, index: u32) {
        self.of_class(index).push(index);
    }

    /// Takes a free slot: one for long paths, or another one, as far as there are such.
    pub(crate) fn take(&mut self, long: bool) -> Option<Slot> {
        if self.is_full() {
            return None;
        }
        let index = match if long { self.free_long.pop() } else { None } {
            Some(index) => index,
            None => self.take_usual().or_else(|| self.free_long.pop())?,
        };
        self.used += 1;
        Some(Slot { index, generation: self.generations[index as usize] })
    }

    /// First those whose transmit streams may outgrow their buffers. Slots that were never used come after all that
    /// were.
    fn take_usual(&mut self) -> Option<u32> {
        self.free_growing.pop().or_else(|| self.free.iter_mut().find_map(Vec::pop)).or_else(|| {
            let index = self.unused()?;
            self.generations.push(0);
            self.flows.push(None);
            Some(index)
        })
    }

    /// Takes a slot in a use that an earlier daemon gave it. False where it is in use already.
    pub(crate) fn take_at(&mut self, slot: Slot) -> bool {
        while self.generations.len() <= slot.index as usize {
            self.put_back(self.generations.len() as u32);
            self.generations.push(0);
            self.flows.push(None);
        }
        let free = self.of_class(slot.index);
        let Some(at) = free.iter().position(|index| *index == slot.index) else { return false };
        free.swap_remove(at);
        self.generations[slot.index as usize] = slot.generation;
        self.used += 1;
        true
    }

    /// Sets which flow a slot names.
    pub(crate) fn assign(&mut self, slot: Slot, flow: FlowId) {
        self.flows[slot.index as usize] = Some(flow);
    }

    /// The flow that a slot names, if the slot is in this use of it.
    pub(crate) fn flow(&self, slot: Slot) -> Option<FlowId> {
        let generation = *self.generations.get(slot.index as usize)?;
        self.flows[slot.index as usize].filter(|_| generation == slot.generation)
    }

    /// The slot's buffers, mapped now or before, for a connection that begins there. It begins in its small rings,
    /// where there are any, or with both streams `grown`.
    pub(crate) fn begin(&mut self, index: u32, grown: bool, end: &ControlEnd) -> std::io::Result<Buffers> {
        let level = if grown || !self.geometry.has_small() { Level::Full } else { Level::Small };
        let fits = |(rx, tx): &&Buffers| [rx, tx].iter().all(|ring| ring.level() == level && !ring.has_grown());
        let kept = self.buffers.get(index as usize).and_then(Option::as_ref).filter(fits).cloned();
        end.begin(index, grown);
        match kept {
            Some(buffers) => Ok(buffers),
            None => self.buffers(index, end),
        }
    }

    /// The slot's buffers, mapped now, as far as its streams have grown.
    pub(crate) fn buffers(&mut self, index: u32, end: &ControlEnd) -> std::io::Result<Buffers> {
        let (rx, tx) = end.map_buffers(index)?;
        let buffers = (Arc::new(rx), Arc::new(tx));
        if self.buffers.len() <= index as usize {
            self.buffers.resize(index as usize + 1, None);
        }
        self.mapped += self.buffers[index as usize].replace(buffers.clone()).is_none() as usize;
        Ok(buffers)
    }

    /// Something besides this table still refers to the slot's buffers: the engine, or frames on their way.
    pub(crate) fn is_referred_to(&self, slot: Slot) -> bool {
        let shared = |(rx, tx): &Buffers| Arc::strong_count(rx) > 1 || Arc::strong_count(tx) > 1;
        self.buffers.get(slot.index as usize).and_then(Option::as_ref).is_some_and(shared)
    }

    /// Gives a slot back. Beyond the number that is kept, its buffers are unmapped and their memory returned.
    pub(crate) fn free(&mut self, slot: Slot, end: &ControlEnd) {
        let index = slot.index as usize;
        self.flows[index] = None;
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.put_back(slot.index);
        self.used -= 1;
        // The engine may still have to copy out of them: a connection that moves to another context.
        if !self.is_referred_to(slot) {
            // As below.
            let _ = end.discard_large(slot.index);
        }
        let spare = self.mapped > self.cached && !self.is_referred_to(slot);
        if spare && self.buffers.get_mut(index).and_then(Option::take).is_some() {
            self.mapped -= 1;
            // Memory that the system does not take back now is taken back with the region.
            let _ = end.discard_buffers(slot.index);
        }
    }
}
