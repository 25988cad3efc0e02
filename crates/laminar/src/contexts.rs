//! Context queues: the applications' bumps and their notices. With the buffers, this is the host's side of the DMA
//! channel (thesis section 5.4), in the place of RDMA queue pairs.
use context::{Bump, EngineEnd, Notice, Slot};
use engine::{ContextId, Drop, DropCounts, Event, Nanos};
use std::collections::VecDeque;

/// Bumps taken from one context before the next one has its turn.
const TURN: usize = 64;
/// How long to sleep at most while an application's ring has no room for its notices.
pub(crate) const RETRY: Nanos = 200_000;

struct Context {
    end: EngineEnd,
    /// The flows that the application's slots name, with the slots' generations.
    flows: Vec<Option<(u16, u32)>>,
    /// Flows that have a notice to give, each once.
    pending: VecDeque<u32>,
    corrupt: bool,
}

/// All contexts of a host.
pub(crate) struct Contexts {
    list: Vec<Option<Context>>,
    /// Who has the first turn.
    first: usize,
}

impl Contexts {
    pub fn new(contexts: u32) -> Contexts {
        Contexts { list: (0..contexts).map(|_| None).collect(), first: 0 }
    }

    pub fn attach(&mut self, context: u32, end: EngineEnd) {
        if let Some(place) = self.list.get_mut(context as usize) {
            *place = Some(Context { end, flows: Vec::new(), pending: VecDeque::new(), corrupt: false });
        }
    }

    pub fn detach(&mut self, context: u32) {
        if let Some(place) = self.list.get_mut(context as usize) {
            *place = None;
        }
    }

    fn get(&mut self, context: u32) -> Option<&mut Context> {
        self.list.get_mut(context as usize)?.as_mut()
    }

    pub fn name(&mut self, flow: u32, context: u32, slot: Slot) {
        let Some(at) = self.get(context) else { return };
        let index = slot.index as usize;
        if at.flows.len() <= index {
            at.flows.resize(index + 1, None);
        }
        at.flows[index] = Some((slot.generation, flow));
    }

    pub fn forget(&mut self, flow: u32, context: u32, slot: Slot) {
        let Some(at) = self.get(context) else { return };
        if let Some(entry) = at.flows.get_mut(slot.index as usize).filter(|e| **e == Some((slot.generation, flow))) {
            *entry = None;
        }
        at.pending.retain(|pending| *pending != flow);
    }

    /// Takes descriptors of all contexts in turn, at most about `most`.
    pub fn take(&mut self, most: usize, bumps: &mut Vec<(u32, Bump)>, drops: &mut DropCounts, events: &mut Vec<Event>) {
        let count = self.list.len();
        for step in 0..count {
            let at = (self.first + step) % count;
            let Some(context) = self.list[at].as_mut().filter(|context| !context.corrupt) else { continue };
            if !context.take(bumps, drops) {
                drops.count(Drop::RingCorrupt);
                events.push(Event::RingCorrupt(ContextId(at as u32)));
            }
            if bumps.len() >= most {
                self.first = (at + 1) % count;
                return;
            }
        }
    }

    /// The flow has a notice to give, and had none.
    pub fn wants(&mut self, flow: u32, context: u32) {
        if let Some(at) = self.get(context) {
            at.pending.push_back(flow);
        }
    }

    /// Gives notices as far as rings have room. `notice` gives a flow's, where it still is this context's.
    pub fn deliver(&mut self, mut notice: impl FnMut(u32, u32) -> Option<Notice>) {
        for (id, context) in self.list.iter_mut().enumerate() {
            let Some(context) = context else { continue };
            let mut given = false;
            while let Some(flow) = context.pending.front() {
                if context.end.notices.free() == 0 {
                    break;
                }
                if let Some(notice) = notice(*flow, id as u32) {
                    given |= context.end.notices.push(notice.to_words()).is_ok();
                }
                context.pending.pop_front();
            }
            if given {
                context.end.app_bell.ring();
            }
        }
    }

    /// There are descriptors to take, or notices that have room now.
    pub fn has_work(&self) -> bool {
        let ready = |context: &Context| {
            let waits = !context.pending.is_empty() && context.end.notices.is_drained();
            !context.corrupt && (!context.end.bumps.is_empty() || waits)
        };
        self.list.iter().flatten().any(ready)
    }

    /// Notices wait for room.
    pub fn waits(&self) -> bool {
        self.list.iter().flatten().any(|context| !context.pending.is_empty())
    }
}

impl Context {
    /// Takes a turn's descriptors; false where the ring is corrupt.
    fn take(&mut self, bumps: &mut Vec<(u32, Bump)>, drops: &mut DropCounts) -> bool {
        for _ in 0..TURN {
            match self.end.bumps.pop() {
                Ok(None) => break,
                Ok(Some(words)) => {
                    let bump = Bump::from_words(words);
                    let entry = self.flows.get(bump.slot.index as usize).copied().flatten();
                    match entry.filter(|(generation, _)| *generation == bump.slot.generation) {
                        Some((_, flow)) => bumps.push((flow, bump)),
                        None => drops.count(Drop::BumpUnknown),
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
