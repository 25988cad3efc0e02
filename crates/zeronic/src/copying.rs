//! Connections for which the flow table has no line: ordinary ones of the transport, which has their payload as well
//! as their headers (docs/ZERONIC.md, "More connections than lines"). "Non-zero-copy flows do not occupy the newly
//! proposed data structures" (the paper's section 3.2), so what was posted is kept here.
use crate::nic::{FlowId, Kind, Limits, Refused, Segment};
use memory::Domain;
use std::collections::{HashMap, VecDeque};
use wire::Ipv4Tuple;

/// Bytes of one copy.
pub(crate) const PIECE: usize = 64 << 10;

/// All such connections.
pub(crate) struct Copying {
    by_tuple: HashMap<Ipv4Tuple, FlowId>,
    pub(crate) flows: HashMap<FlowId, Copied>,
    /// Numbers that no line of the flow table has.
    free: Vec<u16>,
    next: u16,
    generation: u16,
    /// Most segments of a list.
    most_posts: usize,
    pub(crate) scratch: Vec<u8>,
}

/// A connection.
pub(crate) struct Copied {
    tuple: Ipv4Tuple,
    pub(crate) domain: Domain,
    /// It carries messages: what is posted, and where they go, the NIC's half keeps beside its table.
    has_marks: bool,
    /// Of a stream: what is left of the posted memory, in the order of posting.
    pub(crate) receives: VecDeque<Segment>,
    pub(crate) sends: VecDeque<Segment>,
    /// Bytes that the transport has taken, and those that the peer has acknowledged.
    pub(crate) written: u64,
    pub(crate) acknowledged: u64,
}

impl Copying {
    /// Beside a flow table with these limits.
    pub(crate) fn new(limits: Limits) -> Copying {
        Copying {
            by_tuple: HashMap::new(),
            flows: HashMap::new(),
            free: Vec::new(),
            next: u16::try_from(limits.flows).unwrap_or(u16::MAX),
            generation: 0,
            most_posts: limits.peak,
            scratch: Vec::new(),
        }
    }

    /// Adds a connection; none where there is no number left.
    pub(crate) fn add(&mut self, tuple: Ipv4Tuple, domain: Domain, kind: Kind) -> Option<FlowId> {
        let number = self.free.pop().or_else(|| {
            self.next = self.next.checked_add(1)?;
            Some(self.next - 1)
        })?;
        self.generation = self.generation.wrapping_add(1);
        let flow = FlowId::beside(number, self.generation);
        let (receives, sends) = (VecDeque::new(), VecDeque::new());
        self.flows.insert(
            flow,
            Copied { tuple, domain, has_marks: kind.has_marks(), receives, sends, written: 0, acknowledged: 0 },
        );
        self.by_tuple.insert(tuple, flow);
        Some(flow)
    }

    /// Removes a connection: from now on nothing is read or written for it.
    pub(crate) fn remove(&mut self, flow: FlowId) -> bool {
        let Some(copied) = self.flows.remove(&flow) else { return false };
        self.by_tuple.remove(&copied.tuple);
        self.free.push(flow.line() as u16);
        true
    }

    pub(crate) fn find(&self, tuple: &Ipv4Tuple) -> Option<FlowId> {
        self.by_tuple.get(tuple).copied()
    }

    pub(crate) fn has(&self, flow: FlowId) -> bool {
        self.flows.contains_key(&flow)
    }

    /// It is one, and carries a stream.
    pub(crate) fn has_stream(&self, flow: FlowId) -> bool {
        self.flows.get(&flow).is_some_and(|copied| !copied.has_marks)
    }

    /// Appends to a list, as a line of the flow table does.
    pub(crate) fn post(&mut self, flow: FlowId, way: Way, segment: Segment) -> Result<(), Refused> {
        let copied = self.flows.get_mut(&flow).ok_or(Refused::Flow)?;
        let list = if way == Way::In { &mut copied.receives } else { &mut copied.sends };
        if segment.len == 0 {
            return Err(Refused::Segment);
        }
        if list.len() >= self.most_posts {
            return Err(Refused::Full);
        }
        list.push_back(segment);
        Ok(())
    }
}

/// Direction of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

/// The first `len` bytes of a list's first segment are done.
pub(crate) fn take(list: &mut VecDeque<Segment>, len: usize) {
    let Some(front) = list.front_mut() else { return };
    (front.offset, front.len) = (front.offset + len as u64, front.len - len as u64);
    if front.len == 0 {
        list.pop_front();
    }
}

pub(crate) fn piece(list: &VecDeque<Segment>, budget: usize) -> usize {
    list.front().map_or(0, |front| front.len.min(PIECE.min(budget) as u64) as usize)
}
