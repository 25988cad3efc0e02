//! The NIC's half: flow table, memory segments, cursors. It is a state machine: payload, posts and cursor moves come
//! in; reads and writes of registered memory go out, through [`Memory`].
mod datagrams;
mod flow;
mod list;
mod messages;
mod operations;
mod out_of_order;
mod payload;
mod placement;
mod sending;
mod store;
mod verbs;

pub use flow::Kind;
pub use list::{Refused, Segment};
pub use messages::Mark;
pub use operations::{Finished, Guide, Outgoing};
pub use payload::{Memory, Payload, Started};
pub use placement::Arrival;
pub use sending::{Fetch, Read};

use flow::Flow;
use memory::{Domain, Transfer};
use messages::Messages;
use operations::Operations;
use out_of_order::OutOfOrder;
use std::collections::HashMap;
use std::sync::Arc;
use store::{BLOCK, Store};
use wire::{Ipv4Tuple, Seq};

/// Limits of a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lines of the flow table, at most 65,535.
    pub flows: usize,
    /// Entries of the backing store.
    pub entries: usize,
    /// Entries that a flow is promised, for both its lists.
    pub committed: usize,
    /// Most entries of one list.
    pub peak: usize,
    /// Intervals above holes, of all flows.
    pub intervals: usize,
    /// Intervals of one flow.
    pub intervals_per_flow: usize,
}

impl Default for Limits {
    /// The paper's section 3.2.
    fn default() -> Limits {
        Limits { flows: 10_000, entries: 1 << 20, committed: 128, peak: 8192, intervals: 8192, intervals_per_flow: 512 }
    }
}

/// Names a flow; not used again for another one soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    line: u16,
    generation: u16,
}

impl FlowId {
    /// The line of the flow table: below [`Limits::flows`], and one flow's at a time.
    pub fn line(self) -> usize {
        usize::from(self.line)
    }

    /// Of a flow that has no line: a number which is no line's.
    pub(crate) fn beside(number: u16, generation: u16) -> FlowId {
        FlowId { line: number, generation }
    }
}

#[derive(Clone, Default)]
struct FlowSlot {
    generation: u16,
    flow: Option<Flow>,
}

/// The NIC's half.
#[derive(Clone)]
pub struct Nic {
    limits: Limits,
    /// That of the table's lines, and that of flows beside the table.
    stores: [Store; 2],
    /// Lines of the table; flows beside it are behind them.
    table: usize,
    lines: Vec<FlowSlot>,
    free: Vec<u16>,
    by_tuple: HashMap<Ipv4Tuple, u16>,
    /// Flows of datagrams: their addresses and ports may be those of a connection, too.
    datagrams: HashMap<Ipv4Tuple, u16>,
    /// What was placed ahead of holes, of those flows that have some.
    ahead: HashMap<u16, OutOfOrder>,
    intervals: usize,
    /// Of flows of messages, what is known of these.
    messages: HashMap<u16, Messages>,
    /// Of those of verbs, what they are as well.
    operations: HashMap<u16, Operations>,
    /// Copies that the last placement has started.
    started: Vec<Arc<Transfer>>,
}

impl Nic {
    /// A NIC without flows. All its memory is allocated here, but for what is remembered of holes.
    pub fn new(limits: Limits) -> Nic {
        let flows = limits.flows.min(usize::from(u16::MAX));
        Nic {
            limits,
            stores: [limits.entries, 0].map(Store::new),
            table: flows,
            lines: (0..flows).map(|_| FlowSlot::default()).collect(),
            free: (0..flows as u16).rev().collect(),
            by_tuple: HashMap::with_capacity(flows),
            datagrams: HashMap::new(),
            ahead: HashMap::new(),
            intervals: 0,
            messages: HashMap::new(),
            started: Vec::new(),
            operations: HashMap::new(),
        }
    }

    /// Adds a flow; `None` where the table is full or has the tuple: then its payload is not split off.
    pub fn add(&mut self, tuple: Ipv4Tuple, domain: Domain, kind: Kind) -> Option<FlowId> {
        if self.lines_of(kind).contains_key(&tuple) {
            return None;
        }
        let line = self.free.pop()?;
        // One block more than the entries need, as a list may begin anywhere in its first block.
        let account = self.stores[0].open(self.limits.committed.div_ceil(BLOCK) + 1);
        let place = &mut self.lines[usize::from(line)];
        let generation = place.generation.wrapping_add(1);
        place.generation = generation;
        place.flow = Some(Flow::new(tuple, domain, kind, account));
        self.begin_messages(line, kind);
        self.lines_of(kind).insert(tuple, line);
        Some(FlowId { line, generation })
    }

    /// Adds a flow beside the table, which is found by its number alone: its payload is not split off. Its segments are
    /// in a store of such flows', which the first one makes; no entry is promised to it.
    pub(crate) fn add_beside(&mut self, id: FlowId, tuple: Ipv4Tuple, domain: Domain, kind: Kind) {
        if self.lines.len() == self.table {
            self.stores[1] = Store::new(self.limits.entries);
        }
        let account = self.stores[1].open(0);
        let len = self.lines.len().max(id.line() + 1);
        self.lines.resize_with(len, FlowSlot::default);
        let flow = Some(Flow::new(tuple, domain, kind, account));
        self.lines[id.line()] = FlowSlot { generation: id.generation, flow };
        self.begin_messages(id.line, kind);
    }

    fn begin_messages(&mut self, line: u16, kind: Kind) {
        if kind.has_marks() {
            self.messages.insert(line, Messages::default());
        }
        if kind == Kind::Operations {
            self.operations.insert(line, Operations::default());
        }
    }

    /// Removes a flow: from now on nothing is written or read for it.
    pub fn remove(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.lines.get_mut(id.line()).filter(|line| line.generation == id.generation) else {
            return false;
        };
        let Some(flow) = flow.flow.take() else { return false };
        let is_beside = which(self.table, id) > 0;
        if !is_beside {
            self.lines_of(flow.kind).remove(&flow.tuple);
            self.free.push(id.line);
        }
        flow.end(&mut self.stores[usize::from(is_beside)]);
        self.intervals -= self.ahead.remove(&id.line).map_or(0, |ahead| ahead.len());
        self.messages.remove(&id.line);
        self.operations.remove(&id.line);
        true
    }

    fn lines_of(&mut self, kind: Kind) -> &mut HashMap<Ipv4Tuple, u16> {
        if kind == Kind::Datagrams { &mut self.datagrams } else { &mut self.by_tuple }
    }

    /// The flow of a connection.
    pub fn find(&self, tuple: &Ipv4Tuple) -> Option<FlowId> {
        let line = *self.by_tuple.get(tuple)?;
        Some(FlowId { line, generation: self.lines[usize::from(line)].generation })
    }

    /// Appends a segment to receive into.
    pub fn post_receive(&mut self, id: FlowId, segment: Segment) -> Result<(), Refused> {
        let (peak, store) = (self.limits.peak, &mut self.stores[which(self.table, id)]);
        let flow = find_mut(&mut self.lines, id).ok_or(Refused::Flow)?;
        flow.post_receive(store, peak, segment)?;
        if flow.kind == Kind::Messages {
            self.messages.get_mut(&id.line).into_iter().for_each(Messages::receives);
        }
        Ok(())
    }

    /// Of a flow of messages: bytes from the cursor up to the end of the last message of which something came, and the
    /// receives behind that one's.
    pub(crate) fn expected(&self, id: FlowId) -> Option<(u64, usize)> {
        self.positions(id)?;
        self.messages.get(&id.line).map(Messages::expected)
    }

    /// Appends a segment to send.
    pub fn post_send(&mut self, id: FlowId, segment: Segment) -> Result<(), Refused> {
        let (peak, store) = (self.limits.peak, &mut self.stores[which(self.table, id)]);
        find_mut(&mut self.lines, id).ok_or(Refused::Flow)?.post_send(store, peak, segment)?;
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.sends(segment.len as u32);
        }
        Ok(())
    }

    /// The incoming stream begins at `seq`. Does nothing once some of it was placed.
    pub fn begin_receiving(&mut self, id: FlowId, seq: Seq) {
        if let Some(flow) = find_mut(&mut self.lines, id) {
            flow.begin_receiving(seq);
        }
    }

    /// The outgoing stream begins at `seq`. Does nothing once some of it was sent.
    pub fn begin_sending(&mut self, id: FlowId, seq: Seq) {
        if let Some(flow) = find_mut(&mut self.lines, id) {
            flow.begin_sending(seq);
        }
    }

    /// Domain of the memory that a flow uses.
    pub fn domain(&self, id: FlowId) -> Option<Domain> {
        let line = self.lines.get(id.line()).filter(|line| line.generation == id.generation)?;
        line.flow.as_ref().map(|flow| flow.domain)
    }

    /// The positions of a flow.
    pub fn positions(&self, id: FlowId) -> Option<Positions> {
        let line = self.lines.get(id.line()).filter(|line| line.generation == id.generation)?;
        let flow = line.flow.as_ref()?;
        Some(Positions {
            cursor: flow.cursor(),
            frontier: flow.frontier(),
            posted_end: flow.posted_end(),
            una: flow.una(),
            entries: flow.entries(),
        })
    }

    /// Entries of the table's backing store that no flow has.
    pub fn free_entries(&self) -> usize {
        self.stores[0].available() * BLOCK
    }
}

/// The store that a flow's lists are in.
fn which(table: usize, id: FlowId) -> usize {
    usize::from(id.line() >= table)
}

fn find_mut(lines: &mut [FlowSlot], id: FlowId) -> Option<&mut Flow> {
    lines.get_mut(id.line()).filter(|line| line.generation == id.generation)?.flow.as_mut()
}

/// Positions of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// The incoming stream is in order up to here, as the transport reports.
    pub cursor: Seq,
    /// It was placed without a hole up to here.
    pub frontier: Seq,
    /// The byte behind the last one that has a segment.
    pub posted_end: Seq,
    /// The first byte of the outgoing stream that the peer has not acknowledged.
    pub una: Seq,
    /// Entries of both lists.
    pub entries: usize,
}
