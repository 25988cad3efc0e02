//! Connections for datagrams: one to each host that they go to, whichever side began it. They carry the questions of
//! connection management about queue pairs of datagrams, too.
use super::links::Attempts;
use crate::nic::FlowId;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use wire::Nanos;

/// For so long, datagrams wait for room on a connection. Those behind them are dropped, until there is room.
const TIMEOUT: Nanos = 1_000_000_000;

/// The connections of a peer host.
#[derive(Debug, Default)]
pub(super) struct Host {
    /// The one that datagrams go out on.
    pub(super) flow: Option<FlowId>,
    /// The last one that the peer began.
    theirs: Option<FlowId>,
    /// Since when it has no room.
    full: Option<Nanos>,
    pub(super) attempts: Attempts,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<Ipv4Addr, Host>);

impl Host {
    /// There is room on its connection.
    pub(super) fn has_room(&mut self) {
        self.full = None;
    }

    /// There is none, and it is worth waiting for.
    pub(super) fn may_wait(&mut self, now: Nanos) -> bool {
        now < *self.full.get_or_insert(now) + TIMEOUT
    }
}

impl Hosts {
    /// A host that datagrams go to.
    pub(super) fn get(&mut self, peer: Ipv4Addr) -> &mut Host {
        self.0.entry(peer).or_default()
    }

    /// The peer uses a connection for datagrams. Returns the one that it has given up for it.
    pub(super) fn peer_uses(&mut self, peer: Ipv4Addr, flow: FlowId) -> Option<FlowId> {
        let host = self.get(peer);
        let before = host.theirs.replace(flow).filter(|before| *before != flow);
        if host.flow.is_none() || host.flow == before {
            (host.flow, host.full) = (Some(flow), None);
        }
        before
    }

    /// A connection has ended; `was_open`: the peer had taken it.
    pub(super) fn ended(&mut self, now: Nanos, peer: Ipv4Addr, flow: FlowId, was_open: bool) {
        let Some(host) = self.0.get_mut(&peer) else { return };
        host.theirs.take_if(|theirs| *theirs == flow);
        if host.flow.take_if(|own| *own == flow).is_some() {
            (host.flow, host.full) = (host.theirs, None);
            if was_open {
                host.attempts = Attempts::default();
            } else {
                host.attempts.failed(now);
            }
        }
    }

    /// Forgets hosts without connections that may be tried again.
    pub(super) fn tidy(&mut self, now: Nanos) {
        self.0.retain(|_, host| host.flow.is_some() || host.theirs.is_some() || host.attempts.next > now);
    }

    /// When one that waits for room has waited long enough.
    pub(super) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let ends = self.0.values().filter_map(|host| host.full).map(|since| since + TIMEOUT);
        ends.filter(|end| *end > now).min()
    }
}
