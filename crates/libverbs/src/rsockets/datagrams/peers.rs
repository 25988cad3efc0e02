//! Destinations: the queue pair of each, once it is known, and the address handle by which it is reached. The table is
//! bounded; whoever was used longest ago goes.
use crate::abi::{IbvAh, IbvPd};
use crate::errno::{self, Result};
use crate::handle::{attributes, ibv_create_ah, ibv_destroy_ah};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use verbs::{AddressVector, Gid, QpNumber};

/// Destinations that are remembered.
const MOST: usize = 256;
/// The GID index of paths between IPv4 addresses, and the device's only port.
const GID_INDEX: u8 = 1;
const PORT: u8 = 1;

/// A handle, which ends with this.
struct Handle(*mut IbvAh);

impl Handle {
    /// # Safety
    /// The domain is this process's, and stays as long as the handle.
    unsafe fn new(domain: *mut IbvPd, to: Ipv4Addr) -> Result<Handle> {
        let gid = Gid(to.to_ipv6_mapped().octets());
        let path = AddressVector { gid, gid_index: GID_INDEX, ..AddressVector::default() };
        let mut attributes = attributes(&path, PORT);
        // SAFETY: as the caller guarantees; local attributes.
        let handle = unsafe { ibv_create_ah(domain, &raw mut attributes) };
        if handle.is_null() { Err(errno::get()) } else { Ok(Handle(handle)) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `ibv_create_ah`, and used no more. Datagrams that were posted with it leave before it ends.
        unsafe { ibv_destroy_ah(self.0) };
    }
}

/// How a destination is reached: its queue pair, by a handle that is there as long as the table is not changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerPath {
    pub(super) handle: *mut IbvAh,
    pub(super) qp: QpNumber,
}

#[derive(Default)]
struct Peer {
    way: Option<(Handle, QpNumber)>,
    /// When it was used last.
    used: u64,
}

/// The destinations of a socket.
pub(super) struct Peers {
    domain: *mut IbvPd,
    known: HashMap<SocketAddrV4, Peer>,
    /// Counts uses.
    uses: u64,
}

impl Peers {
    /// None yet.
    ///
    /// # Safety
    /// The domain is this process's, and stays as long as this.
    pub(super) unsafe fn new(domain: *mut IbvPd) -> Peers {
        Peers { domain, known: HashMap::new(), uses: 0 }
    }

    /// There is such a destination.
    pub(super) fn has(&self, address: SocketAddrV4) -> bool {
        self.known.contains_key(&address)
    }

    /// How a destination is reached; `None` where it is new, or has not answered yet.
    pub(super) fn way(&mut self, address: SocketAddrV4) -> Option<PeerPath> {
        let peer = self.used(address);
        peer.way.as_ref().map(|(handle, qp)| PeerPath { handle: handle.0, qp: *qp })
    }

    /// A destination has sent its queue pair.
    pub(super) fn learn(&mut self, address: SocketAddrV4, qp: QpNumber, reached: bool) {
        let domain = self.domain;
        let peer = self.used(address);
        match &mut peer.way {
            Some((_, known)) => *known = qp,
            // Without its next hop, making the handle would wait for that: datagrams go by UDP until the next answer.
            None if !reached => {}
            // SAFETY: as `new` has it.
            None => peer.way = unsafe { Handle::new(domain, *address.ip()) }.ok().map(|handle| (handle, qp)),
        }
    }

    /// A destination, which is used now.
    fn used(&mut self, address: SocketAddrV4) -> &mut Peer {
        if self.known.len() >= MOST && !self.has(address) {
            let oldest = self.known.iter().min_by_key(|(_, peer)| peer.used).map(|(address, _)| *address);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.uses += 1;
        let peer = self.known.entry(address).or_default();
        peer.used = self.uses;
        peer
    }
}
