//! Flows of datagrams as the control stack keeps them: what is posted, and which one sends next (docs/ZERONIC.md,
//! "Datagrams").
use crate::nic::FlowId;
use port::{Capabilities, Frame};
use std::collections::{BTreeMap, VecDeque};
use wire::{Ipv4Tuple, Nanos, ipv4, udp};

/// Headers of a datagram's IP packet.
const HEADERS: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Until then a next hop has answered, or the datagrams for it are dropped.
pub(crate) const RESOLVE_LIMIT_NS: Nanos = 3_000_000_000;

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
    /// It is ready to send, or waits for its next hop.
    pub(crate) is_listed: bool,
    /// Since when its next hop is asked for.
    pub(crate) asks_since: Option<Nanos>,
}

/// All of a host.
#[derive(Default)]
pub(crate) struct Datagrams {
    pub(crate) flows: BTreeMap<FlowId, DatagramFlow>,
    /// Flows with something to send, round robin; and those of them that wait for their next hop.
    pub(crate) ready: VecDeque<FlowId>,
    pub(crate) asking: Vec<FlowId>,
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
        DatagramFlow { tuple, receives, sends, received: 0, sent: 0, is_listed: false, asks_since: None }
    }
}

impl Datagrams {
    /// A round would do something.
    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.looped.is_empty()
    }

    /// Something is to be sent, or waits for its next hop.
    pub(crate) fn is_sending(&self) -> bool {
        !self.ready.is_empty() || !self.asking.is_empty()
    }

    /// When the first next hop is given up.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let since = |id: &FlowId| self.flows.get(id).and_then(|flow| flow.asks_since);
        self.asking.iter().filter_map(since).min().map(|since| since + RESOLVE_LIMIT_NS)
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
