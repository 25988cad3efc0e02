//! The connections of a host in all states: the owner of a segment, and the local ports in use.
use crate::port_set::{PeerPorts, PortSet};
use crate::tuples::TupleMap;
use context::Endpoint;
use engine::stream::FourTuple;
use engine::{FlowId, Nanos};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use wire::IpAddress;

/// The part that gets a connection's segments, where the engine does not process them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// It is being opened.
    HalfOpen(u32),
    /// An engine runs it, or is about to.
    Flow(FlowId),
    /// It is joined with another one: which splice, and which side of it.
    Splice(u32, usize),
    /// It is closed and waits.
    TimeWait(u32),
    /// An earlier daemon left it, and its program may come back for it.
    Survivor,
}

/// All connections of the host, in every stage.
pub(crate) struct Connections {
    stages: TupleMap<Lifecycle>,
    /// How many have each local port, and which ports are in use. The system gives the pages that are written to.
    counts: Vec<u32>,
    ports: PortSet,
    /// Those with a local port of the ephemeral range, by their remote end.
    peers: HashMap<Endpoint, PeerPorts>,
    ephemeral: RangeInclusive<u16>,
    /// The host's addresses, and connections of the host with itself.
    addresses: Vec<IpAddress>,
    own: u32,
    /// Those of them that are over loopback.
    loopback: u32,
}

impl Connections {
    pub(crate) fn new(ephemeral: RangeInclusive<u16>, addresses: Vec<IpAddress>) -> Connections {
        Connections {
            stages: TupleMap::default(),
            counts: vec![0; 1 << u16::BITS],
            ports: PortSet::default(),
            peers: HashMap::new(),
            ephemeral,
            addresses,
            own: 0,
            loopback: 0,
        }
    }

    pub(crate) fn get(&self, tuple: &FourTuple) -> Option<Lifecycle> {
        self.stages.get(tuple).copied()
    }

    /// Adds a connection, or moves it to another stage.
    pub(crate) fn set(&mut self, tuple: FourTuple, stage: Lifecycle) {
        let (port, remote) = (tuple.local_port, tuple.remote());
        let new = self.stages.insert(tuple, stage).is_none();
        if new {
            self.own += self.is_own(&tuple) as u32;
            self.loopback += tuple.remote_ip.is_loopback() as u32;
            self.counts[usize::from(port)] += 1;
            self.ports.insert(port);
        }
        if new && self.ephemeral.contains(&port) {
            self.peers.entry(remote).or_default().insert(port);
        }
    }

    /// A connection in TIME-WAIT whose port may be used again at some time. `since_of` is when one of the waiting
    /// came.
    pub(crate) fn offer_port(&mut self, tuple: &FourTuple, since: Nanos, since_of: impl Fn(u32) -> Option<Nanos>) {
        let Some(peer) = self.peers.get_mut(&tuple.remote()) else { return };
        peer.wait(since, tuple.local_port, |local_port| match self.stages.get(&FourTuple { local_port, ..*tuple }) {
            Some(Lifecycle::TimeWait(key)) => since_of(*key),
            _ => None,
        });
    }

    pub(crate) fn remove(&mut self, tuple: &FourTuple) {
        if self.stages.remove(tuple).is_none() {
            return;
        }
        self.own -= self.is_own(tuple) as u32;
        self.loopback -= tuple.remote_ip.is_loopback() as u32;
        let port = tuple.local_port;
        let count = &mut self.counts[usize::from(port)];
        *count -= 1;
        if *count == 0 {
            self.ports.remove(port);
        }
        let remote = tuple.remote();
        if self.ephemeral.contains(&port) && self.peers.get_mut(&remote).is_some_and(|peer| peer.remove(port)) {
            self.peers.remove(&remote);
        }
    }

    /// A spliced connection is over. Its four-tuple may be another one's already.
    pub(crate) fn remove_splice(&mut self, tuple: &FourTuple) {
        if matches!(self.get(tuple), Some(Lifecycle::Splice(..))) {
            self.remove(tuple);
        }
    }

    /// Local ports that connections use.
    pub(crate) fn ports(&self) -> &PortSet {
        &self.ports
    }

    /// Local ports of the connections to a remote end, of the ephemeral range.
    pub(crate) fn towards(&self, remote: Endpoint) -> Option<&PeerPorts> {
        self.peers.get(&remote)
    }

    /// The connection to a remote end that came into TIME-WAIT first is read no more.
    pub(crate) fn pop_wait(&mut self, remote: Endpoint) {
        if let Some(peer) = self.peers.get_mut(&remote) {
            peer.pop_wait();
        }
    }

    /// A connection uses the local port.
    pub(crate) fn uses_port(&self, port: u16) -> bool {
        self.ports.contains(port)
    }

    /// The host is connected with itself: some of its frames are for itself.
    pub(crate) fn to_self(&self) -> bool {
        self.own > 0
    }

    fn is_own(&self, tuple: &FourTuple) -> bool {
        self.addresses.contains(&tuple.remote_ip) || tuple.remote_ip.is_loopback()
    }

    /// Some connections are over loopback.
    pub(crate) fn loopback(&self) -> bool {
        self.loopback > 0
    }

    /// Connections in any stage.
    pub(crate) fn len(&self) -> usize {
        self.stages.len()
    }
}
