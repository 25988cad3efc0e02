//! A socket on its way to another process or another program: what must be reported of it. Positions and bytes are in
//! the shared regions, whose descriptors go with it.
use crate::daemon::attach;
use crate::state::Lib;
use crate::state::mapped_region::MappedRegion;
use crate::state::slab::Key;
use crate::state::socket::{Bound, Kind, Listener, Socket};
use crate::state::stream::Stream;
use crate::system::address_space;
use crate::table::{self, Entry};
use context::attach::Ticket;
use context::{Endpoint, FourTuple, Geometry, Slot};
use serde::{Deserialize, Serialize};
use shm::Region;
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// A region that holds buffers of connections.
#[derive(Serialize, Deserialize)]
pub(crate) struct RegionRecord {
    /// Its descriptor, for a program that is run by exec. To others the daemon gives one.
    pub fd: RawFd,
    context: u32,
    geometry: Geometry,
}

/// A socket.
#[derive(Serialize, Deserialize)]
pub(crate) struct SocketRecord {
    /// Those that refer to it.
    pub descriptors: Vec<RawFd>,
    is_v6: bool,
    nonblocking: bool,
    kernel_half: bool,
    stands_in: bool,
    kind: KindRecord,
}

/// Binding, its address, and whether the host chose the port.
type BoundRecord = (u32, Endpoint, bool);
/// Index and generation.
type SlotRecord = (u32, u16);

#[derive(Serialize, Deserialize)]
enum KindRecord {
    Fresh,
    Bound(BoundRecord),
    Listener { bound: BoundRecord, backlog: u32, ticket: Option<Box<Ticket>> },
    Stream { home: usize, slot: SlotRecord, claim_by: (u32, SlotRecord), ends: FourTuple, mss: u16 },
}

fn describe_bound(bound: &Bound) -> BoundRecord {
    (bound.binding, bound.local, bound.chosen)
}

fn rebuild_bound((binding, local, chosen): BoundRecord) -> Bound {
    Bound { binding, local, chosen }
}

/// Record of a socket; `None` for one that cannot be carried. The regions that it needs are added to
/// `homes`.
pub(crate) fn describe(
    socket: &Socket,
    descriptors: Vec<RawFd>,
    homes: &mut Vec<RegionRecord>,
) -> Option<SocketRecord> {
    let kind = describe_kind(socket, homes)?;
    let Socket { is_v6, nonblocking, kernel_half, stands_in, .. } = *socket;
    Some(SocketRecord { descriptors, is_v6, nonblocking, kernel_half, stands_in, kind })
}

fn describe_kind(socket: &Socket, homes: &mut Vec<RegionRecord>) -> Option<KindRecord> {
    Some(match &socket.kind {
        Kind::Fresh => KindRecord::Fresh,
        Kind::Bound(bound) => KindRecord::Bound(describe_bound(bound)),
        Kind::Listener(listener) => {
            let (bound, ticket) = (describe_bound(&listener.bound), listener.ticket.clone());
            KindRecord::Listener { bound, backlog: listener.backlog, ticket }
        }
        // Its answer would come to a context that is gone.
        Kind::Connecting { .. } => return None,
        // It goes with the context.
        Kind::Log(_) => return None,
        Kind::Stream(_) if socket.broken => return None,
        Kind::Stream(stream) => {
            let claim_by = match stream.name {
                Some(name) => (stream.claim_by.0, slot(name)),
                None => (stream.claim_by.0, slot(stream.claim_by.1)),
            };
            let ends = stream.ends.get();
            let home = place_of(&stream.home, homes);
            KindRecord::Stream { home, slot: slot(stream.home_slot), claim_by, ends, mss: stream.mss }
        }
    })
}

fn place_of(home: &Arc<MappedRegion>, homes: &mut Vec<RegionRecord>) -> usize {
    let fd = home.region.fd().as_raw_fd();
    homes.iter().position(|known| known.fd == fd).unwrap_or_else(|| {
        homes.push(RegionRecord { fd, context: home.context(), geometry: home.geometry });
        homes.len() - 1
    })
}

fn slot(slot: Slot) -> SlotRecord {
    (slot.index, slot.generation)
}
fn as_slot((index, generation): SlotRecord) -> Slot {
    Slot { index, generation }
}

impl SocketRecord {
    /// What the daemon has of it, by the names of [`context::Request::Carry`]: a connection, otherwise a local address.
    /// `None` for a socket that it does not have.
    pub(crate) fn share(&self) -> Option<(Option<(u32, Slot)>, u32)> {
        match &self.kind {
            KindRecord::Fresh => None,
            KindRecord::Bound(bound) | KindRecord::Listener { bound, .. } => Some((None, bound.0)),
            KindRecord::Stream { claim_by: (context, slot), .. } => Some((Some((*context, as_slot(*slot))), 0)),
        }
    }

    /// The daemon decides what came from another process: a connection by its home, an address by its number. From
    /// there it is claimed. `None` where the two do not agree.
    pub(crate) fn claim_from(&mut self, named: Option<(u32, Slot)>, number: u32) -> Option<()> {
        match (&mut self.kind, named) {
            (KindRecord::Stream { home, slot, claim_by, .. }, Some((context, named))) => {
                (*home, *claim_by) = (0, (context, *slot));
                (as_slot(*slot) == named).then_some(())
            }
            (KindRecord::Bound(bound) | KindRecord::Listener { bound, .. }, None) => (bound.0 == number).then_some(()),
            _ => None,
        }
    }

    /// The socket that this process has already of the connection or address.
    pub(crate) fn existing(&self, lib: &Lib, home: Option<&Arc<MappedRegion>>) -> Option<Key> {
        let same = |socket: &Socket| match (&self.kind, &socket.kind) {
            (KindRecord::Stream { slot: at, .. }, Kind::Stream(stream)) => {
                home.is_some_and(|home| Arc::ptr_eq(home, &stream.home)) && stream.home_slot == as_slot(*at)
            }
            (KindRecord::Bound(bound), Kind::Bound(own)) => bound.0 == own.binding,
            (KindRecord::Listener { bound, .. }, Kind::Listener(own)) => bound.0 == own.bound.binding,
            _ => false,
        };
        let index = (0..lib.sockets.span()).find(|index| lib.sockets.get(*index).is_some_and(same))?;
        lib.key_of(index)
    }
}

/// The home of a connection that came from another process: mapped already, or given by the daemon.
pub(crate) fn passed_home(lib: &mut Lib, context: u32) -> Option<Arc<MappedRegion>> {
    let own = lib.context()?;
    if own.home.context() == context {
        return Some(Arc::clone(&own.home));
    }
    let (region, geometry) = attach::region_of(own.control(), context)?;
    known_home(lib, &region).or_else(|| open_home(&RegionRecord { fd: -1, context, geometry }, region))
}

/// The home that this process has mapped already of a region.
fn known_home(lib: &mut Lib, region: &OwnedFd) -> Option<Arc<MappedRegion>> {
    let wanted = identity(region.as_raw_fd())?;
    let mut seen: Vec<Arc<MappedRegion>> = lib.context().map(|context| Arc::clone(&context.home)).into_iter().collect();
    for index in 0..lib.sockets.span() {
        let Some(Kind::Stream(stream)) = lib.sockets.get(index).map(|socket| &socket.kind) else { continue };
        if !seen.iter().any(|home| Arc::ptr_eq(home, &stream.home)) {
            seen.push(Arc::clone(&stream.home));
        }
    }
    seen.into_iter().find(|home| identity(home.region.fd().as_raw_fd()) == Some(wanted))
}

/// What distinguishes a file from all others.
fn identity(fd: RawFd) -> Option<(libc::dev_t, libc::ino_t)> {
    // SAFETY: the result is written into a local, for which zero is valid.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut status) == 0).then_some((status.st_dev, status.st_ino))
    }
}

/// Maps the region of a record.
pub(crate) fn open_home(record: &RegionRecord, fd: OwnedFd) -> Option<Arc<MappedRegion>> {
    address_space::before_mapping(record.geometry.is_valid().then(|| record.geometry.region_len())?);
    let region = Region::from_fd(attach::keep(fd)).ok()?;
    let fits = region.len() >= record.geometry.region_len();
    fits.then(|| Arc::new(MappedRegion::new(Arc::new(region), record.geometry, record.context)))
}

/// The socket of a record, of ours from now on.
pub(crate) fn rebuild(lib: &mut Lib, record: &SocketRecord, homes: &[Option<Arc<MappedRegion>>]) -> Option<Key> {
    let &first = record.descriptors.first()?;
    let kind = rebuild_kind(&record.kind, homes)?;
    let binding = if let Kind::Listener(listener) = &kind { Some(listener.bound.binding) } else { None };
    let make = |id| Socket {
        kind,
        kernel_half: record.kernel_half,
        stands_in: record.stands_in,
        ..Socket::fresh(id, first, record.is_v6, record.nonblocking)
    };
    let key = lib.add_socket(first, make)?;
    for fd in &record.descriptors[1..] {
        lib.add_descriptor(*fd, key);
    }
    enlist(lib, binding, key);
    Some(key)
}

impl Lib {
    /// Enters another descriptor of a socket; `None` where its number is beyond the table.
    pub(crate) fn add_descriptor(&mut self, fd: RawFd, key: Key) -> Option<()> {
        let socket = self.sockets.get_mut(key.index)?;
        table::set(fd, Entry::Socket(key.index)).then(|| socket.descriptors += 1)
    }
}

fn enlist(lib: &mut Lib, binding: Option<u32>, key: Key) {
    if let (Some(binding), Some(context)) = (binding, lib.context()) {
        context.listeners.insert(binding, key);
    }
}

fn rebuild_kind(record: &KindRecord, homes: &[Option<Arc<MappedRegion>>]) -> Option<Kind> {
    Some(match record {
        KindRecord::Fresh => Kind::Fresh,
        KindRecord::Bound(bound) => Kind::bound(rebuild_bound(*bound)),
        KindRecord::Listener { bound, backlog, ticket } => Kind::Listener(Box::new(Listener {
            bound: rebuild_bound(*bound),
            backlog: *backlog,
            credits: None,
            queue: VecDeque::new(),
            shared: true,
            ticket: ticket.clone(),
        })),
        KindRecord::Stream { home, slot, claim_by, ends, mss } => {
            let home = homes.get(*home)?.as_ref().filter(|home| slot.0 < home.geometry.slots)?;
            let mut stream = Stream::at(home, as_slot(*slot), *ends, *mss);
            stream.claim_by = (claim_by.0, as_slot(claim_by.1));
            stream.share();
            Kind::Stream(Box::new(stream))
        }
    })
}
