//! Connections of queue pairs.
use rdma::Naming;
use smartns::Header;
use std::net::Ipv4Addr;
use verbs::QpNumber;
use wire::Nanos;

/// Connections of peers that are no queue pair's yet.
pub(super) const MOST_UNCLAIMED: usize = 512;
/// How long one may stay so.
pub(super) const UNCLAIMED: Nanos = 60_000_000_000;
/// How long the peer may take to end its side.
pub(super) const CLOSING: Nanos = 2_000_000_000;
/// Between two attempts to connect, at first and at most.
const FIRST_PAUSE: Nanos = 10_000_000;
const LAST_PAUSE: Nanos = 1_000_000_000;

/// A connection.
pub(super) struct Link {
    pub(super) peer: Ipv4Addr,
    /// The queue pair that has it.
    pub(super) qp: Option<QpNumber>,
    /// Queue pairs that it was named for: the own one, and the peer's.
    pub(super) own_qp: Option<QpNumber>,
    pub(super) peer_qp: Option<QpNumber>,
    /// Both sides' numbers of it in connection management; 0 where there are none.
    pub(super) own_comm: u32,
    pub(super) peer_comm: u32,
    /// It is one between hosts: datagrams go over it, and it becomes no queue pair's.
    pub(super) is_of_hosts: bool,
    /// Time of the last datagram.
    pub(super) used: Nanos,
    /// This side began it.
    pub(super) is_begun_here: bool,
    /// Both sides have opened it.
    pub(super) is_open: bool,
    /// Its queue pair is gone.
    pub(super) is_over: bool,
    /// This side sends no more, and it is forgotten then at the latest.
    pub(super) closing: Option<Nanos>,
    pub(super) since: Nanos,
    pub(super) attempts: Attempts,
}

impl Link {
    pub(super) fn new(peer: Ipv4Addr, since: Nanos) -> Link {
        Link {
            peer,
            qp: None,
            own_qp: None,
            peer_qp: None,
            own_comm: 0,
            peer_comm: 0,
            is_of_hosts: false,
            used: since,
            is_begun_here: false,
            is_open: false,
            is_over: false,
            closing: None,
            since,
            attempts: Attempts::default(),
        }
    }

    /// Its queue pairs were named.
    pub(super) fn is_named(&self) -> bool {
        self.peer_qp.is_some() || self.is_managed()
    }

    /// Connection management began it.
    pub(super) fn is_managed(&self) -> bool {
        self.own_comm != 0 || self.peer_comm != 0
    }

    /// It is no queue pair's, and never was, nor is it the hosts'.
    pub(super) fn is_unclaimed(&self) -> bool {
        self.qp.is_none() && !self.is_over && !self.is_of_hosts
    }

    /// It may become this queue pair's.
    pub(super) fn is_between(&self, qp: QpNumber, remote: Ipv4Addr, remote_qp: QpNumber) -> bool {
        let ends = self.peer == remote && self.peer_qp == Some(remote_qp) && self.own_qp.is_none_or(|own| own == qp);
        ends && self.is_unclaimed() && self.closing.is_none()
    }

    /// The peer sent a message of connection management.
    pub(super) fn note_peer(&mut self, naming: &Naming) {
        if naming.sender != 0 {
            self.peer_comm = naming.sender;
        }
        self.peer_qp = naming.qp.or(self.peer_qp);
    }

    /// The same, from this side.
    pub(super) fn note_own(&mut self, naming: &Naming) {
        if naming.sender != 0 {
            self.own_comm = naming.sender;
        }
        self.own_qp = naming.qp.or(self.own_qp);
    }

    /// A message of connection management goes over it.
    pub(super) fn carries(&self, to: Ipv4Addr, naming: &Naming) -> bool {
        let is = |own: u32, named: u32| own != 0 && own == named;
        self.peer == to && (is(self.own_comm, naming.sender) || is(self.peer_comm, naming.receiver))
    }
}

/// A queue pair that has a peer, and no connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingLink {
    pub(super) remote: Ipv4Addr,
    pub(super) remote_qp: QpNumber,
    /// This side connects.
    pub(super) connects: bool,
    pub(super) attempts: Attempts,
}

impl PendingLink {
    pub(super) fn new(remote: Ipv4Addr, remote_qp: QpNumber, connects: bool) -> PendingLink {
        PendingLink { remote, remote_qp, connects, attempts: Attempts::default() }
    }
}

/// Attempts to connect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts {
    /// There is none before.
    pub(super) next: Nanos,
    pause: Nanos,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts { next: 0, pause: FIRST_PAUSE }
    }
}

impl Attempts {
    /// It did not work; again later.
    pub(super) fn failed(&mut self, now: Nanos) {
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(LAST_PAUSE);
    }
}

/// A message between queue pairs of this host that has no place yet.
pub(super) struct Stashed {
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
}
