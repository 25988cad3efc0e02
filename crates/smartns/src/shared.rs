//! State that the queue pairs of a shard share.
use crate::completion_queue::{Added, CompletionQueue, Solicited};
use crate::config::ShardConfig;
use crate::objects::{NewHandle, NewSrq};
use crate::output::{CnpCounts, Event, ShardOutput};
use crate::placement::Registered;
use crate::receive_queue::{Receive, ReceiveQueue};
use crate::windows::Windows;
use engine::{DropReason, Frame, Nanos};
use host::Slab;
use memory::Domain;
use std::sync::Arc;
use verbs::control::XrcQueue;
use verbs::{AsyncEvent, Completion, Number};

/// A shared receive queue.
pub(crate) struct SharedReceives {
    pub(crate) queue: ReceiveQueue,
    /// Protection domain of its memory.
    pub(crate) domain: Domain,
    /// An event is wanted once there are fewer work requests; 0: none is.
    pub(crate) limit: u32,
    /// Queue pairs that use it.
    pub(crate) users: u32,
    /// It is one of extended reliable connections.
    pub(crate) xrc: Option<XrcQueue>,
}

impl SharedReceives {
    pub(crate) fn new(srq: NewSrq) -> SharedReceives {
        let queue = ReceiveQueue::new(srq.pipe, srq.receives, srq.pieces);
        SharedReceives { queue, domain: srq.domain, limit: 0, users: 0, xrc: srq.xrc }
    }

    /// The limit is reached, for the first time since it was set.
    pub(crate) fn reaches_limit(&mut self) -> bool {
        let reached = self.limit > 0 && self.queue.stage(self.limit) < self.limit;
        if reached {
            self.limit = 0;
        }
        reached
    }
}

/// Objects that several queue pairs use, and the memory of the program.
pub(crate) struct Shared {
    pub(crate) config: ShardConfig,
    /// Names change between polls only: then nobody else holds it.
    pub(crate) memory: Arc<Registered>,
    pub(crate) windows: Windows,
    pub(crate) cqs: Slab<CompletionQueue>,
    pub(crate) srqs: Slab<SharedReceives>,
    pub(crate) handles: Slab<NewHandle>,
    /// Congestion notifications so far.
    pub(crate) cnps: CnpCounts,
    /// Completion queues with completions since their program's request was read.
    added_to: Vec<Number>,
    /// Completion queues that have overrun, and whose queue pairs are still to be stopped.
    pub(crate) overrun: Vec<Number>,
}

impl Shared {
    pub(crate) fn new(config: ShardConfig) -> Shared {
        let memory = Arc::new(Registered::new(config.table.clone()));
        let limits = config.limits;
        Shared {
            config,
            memory,
            windows: Windows::default(),
            cqs: Slab::new(limits.cqs),
            srqs: Slab::new(limits.srqs),
            handles: Slab::new(limits.handles),
            cnps: CnpCounts::default(),
            added_to: Vec::new(),
            overrun: Vec::new(),
        }
    }

    /// Adds a completion.
    #[inline]
    pub(crate) fn complete(&mut self, cq: Number, completion: &Completion, solicited: Solicited) {
        let Some(queue) = self.cqs.get_mut(cq) else { return };
        match queue.add(completion, solicited) {
            Added::First => self.added_to.push(cq),
            Added::Overrun => self.overrun.push(cq),
            Added::Another | Added::Lost => {}
        }
    }

    /// Notifies programs that wait of what was added.
    pub(crate) fn settle(&mut self, events: &mut Vec<Event>) {
        for cq in self.added_to.drain(..) {
            if self.cqs.get_mut(cq).is_some_and(CompletionQueue::needs_event) {
                events.push(Event::Completion(cq));
            }
        }
    }
}

/// One poll: the time, what is shared, and where results go.
pub(crate) struct Round<'a, 'o> {
    pub(crate) now: Nanos,
    pub(crate) shared: &'a mut Shared,
    pub(crate) out: &'a mut ShardOutput<'o>,
}

impl Round<'_, '_> {
    /// Counts a drop.
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.out.drops.count(reason);
    }

    /// Passes an asynchronous event on.
    pub(crate) fn event(&mut self, event: AsyncEvent, number: Number) {
        self.out.events.push(Event::Async(event, number));
    }

    /// Takes the next work request of a shared receive queue.
    pub(crate) fn take_shared(&mut self, number: Number, into: &mut Receive) -> bool {
        let Some(srq) = self.shared.srqs.get_mut(number) else { return false };
        let taken = srq.queue.take(into);
        if srq.reaches_limit() {
            self.event(AsyncEvent::SrqLimitReached, number);
        }
        taken
    }

    /// A frame with room for so many bytes.
    pub(crate) fn frame(&mut self, bytes: usize) -> Box<Frame> {
        let small = self.out.pool.small();
        if small.capacity() >= bytes {
            return small;
        }
        self.out.pool.put(small);
        self.out.pool.large()
    }
}
