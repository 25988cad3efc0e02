//! Flows of datagrams as the control stack keeps them: what is posted, and which one sends next (docs/ZERONIC.md,
//! "Datagrams").
use crate::nic::{FlowId, Started};
use memory::Fault;
use port::{Capabilities, Frame};
use shm::Span;
use std::collections::{BTreeMap, VecDeque};
use wire::{Ipv4Tuple, Nanos, ipv4, udp};

/// Headers of a datagram's IP packet.
const HEADERS: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Until then a next hop has answered, or the datagrams for it are dropped.
pub(crate) const RESOLVE_LIMIT_NS: Nanos = 3_000_000_000;
/// While a device's queue has no room, the next look at it is not later than this.
const ROOM_POLL_NS: Nanos = 1_000_000;

/// Why a flow of datagrams is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDatagrams {
    /// The transport finds no next hops, or another stack has the host's address.
    Unsupported,
    /// An address or a port that cannot be a peer's.
    Peer,
    /// Another flow has the same ends, or there is no free port.
    InUse,
    /// The flow table is full.
    Full,
}

/// A flow of datagrams.
pub(crate) struct DatagramFlow {
    pub(crate) tuple: Ipv4Tuple,
    /// Numbers of the posts under way, in the order of the NIC's lists.
    pub(crate) receives: VecDeque<u64>,
    pub(crate) sends: VecDeque<u64>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Datagrams that have taken a receive, the oldest first: each is reported when it and all before it are in memory.
    pub(crate) landing: VecDeque<Landing>,
    /// Of the first sends, the copies out of devices' memory; none where a send's memory is no device's.
    pub(crate) reads: VecDeque<Started>,
    /// Some of what was posted to send is a device's.
    pub(crate) from_device: bool,
    /// It is ready to send, or waits for its next hop or a device.
    pub(crate) is_listed: bool,
    /// Since when its next hop is asked for.
    pub(crate) asks_since: Option<Nanos>,
}

/// A datagram that has taken a receive.
pub(crate) struct Landing {
    pub(crate) post: u64,
    pub(crate) len: u64,
    /// Into a device's memory.
    pub(crate) copy: Started,
}

/// All of a host.
#[derive(Default)]
pub(crate) struct Datagrams {
    pub(crate) flows: BTreeMap<FlowId, DatagramFlow>,
    /// Flows with something to send, round robin; and those of them that wait for their next hop or a device.
    pub(crate) ready: VecDeque<FlowId>,
    pub(crate) waiting: Vec<FlowId>,
    /// One of those waits for room in a device's queue, of which no completion may be due.
    pub(crate) lacks_room: bool,
    /// Flows with datagrams on their way into devices' memory, and flows whose device is gone or has failed.
    pub(crate) landing: Vec<FlowId>,
    pub(crate) failed: Vec<FlowId>,
    /// Receives that are done: the post's number, and its bytes.
    pub(crate) done: Vec<(FlowId, u64, u64)>,
    /// Frames for the own address: the next round receives them.
    pub(crate) looped: Vec<Box<Frame>>,
    /// Most payload that fits in a frame; before the first round, in an IP packet.
    most: Option<usize>,
}

impl DatagramFlow {
    pub(crate) fn new(tuple: Ipv4Tuple) -> DatagramFlow {
        let (receives, sends) = (VecDeque::new(), VecDeque::new());
        DatagramFlow {
            tuple,
            receives,
            sends,
            received: 0,
            sent: 0,
            landing: VecDeque::new(),
            reads: VecDeque::new(),
            from_device: false,
            is_listed: false,
            asks_since: None,
        }
    }

    /// The bytes of the next send, where they come out of a device's memory; `None` as long as they are on their way.
    pub(crate) fn next_read(&mut self) -> Option<Result<Option<Span>, Fault>> {
        if !self.from_device {
            return Some(Ok(None));
        }
        let span = match self.reads.front()? {
            None => None,
            Some(copy) => match copy.result()? {
                Ok(()) => copy.span(),
                Err(fault) => return Some(Err(fault)),
            },
        };
        self.reads.pop_front();
        Some(Ok(span))
    }
}

impl Datagrams {
    /// A round would do something.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.looped.is_empty()
    }

    /// Something is to be sent, or waits for its next hop or a device.
    pub(crate) fn is_sending(&self) -> bool {
        !self.ready.is_empty() || !self.waiting.is_empty()
    }

    /// When the first next hop is given up, or a device's queue is to be looked at again.
    pub(crate) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let since = |id: &FlowId| self.flows.get(id).and_then(|flow| flow.asks_since);
        let given_up = self.waiting.iter().filter_map(since).min().map(|since| since + RESOLVE_LIMIT_NS);
        [given_up, self.lacks_room.then_some(now + ROOM_POLL_NS)].into_iter().flatten().min()
    }

    /// A datagram has taken a flow's next receive. It is done once it, and what came before it, is in memory: posts of
    /// a direction are done in their order.
    pub(crate) fn landed(&mut self, id: FlowId, len: u64, copy: Started) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let Some(post) = flow.receives.pop_front() else { return };
        flow.landing.push_back(Landing { post, len, copy });
        self.settle(id);
        if self.flows.get(&id).is_some_and(|flow| !flow.landing.is_empty()) && !self.landing.contains(&id) {
            self.landing.push(id);
        }
    }

    /// Copies into devices' memory have ended.
    pub(crate) fn settle_all(&mut self) {
        let mut landing = std::mem::take(&mut self.landing);
        landing.retain(|id| {
            self.settle(*id);
            self.flows.get(id).is_some_and(|flow| !flow.landing.is_empty())
        });
        self.landing = landing;
    }

    /// Takes in which of a flow's datagrams are in memory.
    fn settle(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        while let Some(Landing { post, len, copy }) = flow.landing.front() {
            match copy.as_ref().map_or(Some(Ok(())), |copy| copy.result()) {
                None => break,
                Some(Ok(())) => {
                    flow.received += len;
                    self.done.push((id, *post, *len));
                    flow.landing.pop_front();
                }
                Some(Err(_)) => {
                    // Of this one and of those behind it nothing is known.
                    flow.landing.clear();
                    self.failed.push(id);
                }
            }
        }
    }

    /// A round begins: what was sent to the own address comes in, and `wire` has the port's MTU.
    pub(crate) fn begin_round(&mut self, wire: Capabilities, into: &mut Vec<Box<Frame>>) {
        self.most = Some(usize::from(wire.mtu).saturating_sub(HEADERS));
        into.append(&mut self.looped);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Most payload of a datagram.
    pub(crate) fn most(&self) -> usize {
        self.most.unwrap_or(usize::from(u16::MAX) - HEADERS)
    }
}
