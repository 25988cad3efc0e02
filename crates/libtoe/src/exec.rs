//! Exec: sockets without close-on-exec survive it.
//!
//! As before a fork, the daemon holds everything for whoever shows the token. What the library must know of each
//! socket travels in an environment variable; positions and bytes are in the shared regions, whose descriptors are
//! left open. The new program's copy of the library finds the variable and goes on.
use crate::attach;
use crate::context_side::{self, Home};
use crate::lock::{self, Guard};
use crate::real;
use crate::socket::{Bound, Kind, Listener, Socket};
use crate::state::{Key, Lib};
use crate::stream::Stream;
use crate::table::{self, Entry};
use context::attach::SOCKET_VARIABLE;
use context::{Endpoint, FourTuple, Geometry, Reply, Request, Slot};
use libc::{c_char, c_int, c_ulong};
use serde::{Deserialize, Serialize};
use shm::Region;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

/// The environment variable that carries sockets over an exec.
const VARIABLE: &str = "TOE_INHERIT";

/// Everything that is carried over.
#[derive(Serialize, Deserialize)]
struct Inheritance {
    token: u64,
    homes: Vec<HomeRecord>,
    sockets: Vec<SocketRecord>,
}

/// A region that holds buffers of connections.
#[derive(Serialize, Deserialize)]
struct HomeRecord {
    fd: RawFd,
    context: u32,
    geometry: Geometry,
}

/// A socket.
#[derive(Serialize, Deserialize)]
struct SocketRecord {
    descriptors: Vec<RawFd>,
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
    Listener { bound: BoundRecord, backlog: u32 },
    Stream { home: usize, slot: SlotRecord, claim_by: (u32, SlotRecord), ends: FourTuple, mss: u16 },
}

/// Runs an exec with an environment in which the sockets that survive it are described. Returns only where the exec
/// failed.
///
/// # Safety
/// `environment` is a valid list of C strings, ending with null.
pub unsafe fn with_sockets(
    environment: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let Ok(mut lib) = lock::lock() else { return exec(environment) };
    lib.own_kernel_sockets();
    // SAFETY: the caller's list.
    let variables = unsafe { strings(environment) };
    // A program that will not run on OpenTOE gets its sockets as it would without us: not connected.
    if !variables.iter().any(|variable| variable.to_bytes().starts_with(SOCKET_VARIABLE.as_bytes())) {
        return exec(environment);
    }
    let Some(inheritance) = describe(&mut lib) else { return exec(environment) };
    let Ok(text) = serde_json::to_string(&inheritance) else { return exec(environment) };
    let Ok(own) = CString::new(format!("{VARIABLE}={text}")) else { return exec(environment) };
    let mut list: Vec<*const c_char> = variables.iter().map(|variable| variable.as_ptr()).collect();
    list.push(own.as_ptr());
    list.push(std::ptr::null());
    set_close_on_exec(&inheritance.homes, false);
    let result = exec(list.as_ptr());
    let errno = crate::errno::get();
    set_close_on_exec(&inheritance.homes, true);
    drop(lib);
    crate::errno::set(errno);
    result
}

/// # Safety
/// `list` is null or a valid list of C strings, ending with null.
unsafe fn strings<'a>(list: *const *const c_char) -> Vec<&'a CStr> {
    let mut found = Vec::new();
    let mut at = list;
    // SAFETY: the caller's list; the loop ends at its null.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            found.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
    }
    found
}

fn set_close_on_exec(homes: &[HomeRecord], on: bool) {
    for home in homes {
        // SAFETY: a plain call on a descriptor of the library.
        unsafe { real::fcntl(home.fd, libc::F_SETFD, if on { libc::FD_CLOEXEC as c_ulong } else { 0 }) };
    }
}

/// What survives; `None` where nothing does.
fn describe(lib: &mut Guard) -> Option<Inheritance> {
    lib.context()?;
    let mut homes: Vec<HomeRecord> = Vec::new();
    let mut sockets = Vec::new();
    for index in lib.sockets.indices() {
        let descriptors = surviving(lib, index);
        let Some(socket) = lib.sockets.get(index).filter(|_| !descriptors.is_empty()) else { continue };
        let Some(kind) = describe_kind(socket, &mut homes) else { continue };
        let Socket { is_v6, nonblocking, kernel_half, stands_in, .. } = *socket;
        sockets.push(SocketRecord { descriptors, is_v6, nonblocking, kernel_half, stands_in, kind });
    }
    if sockets.is_empty() {
        return None;
    }
    match context_side::ask(lib, |tag| Request::Fork { tag }) {
        Ok(Reply::Forked { token, .. }) => Some(Inheritance { token, homes, sockets }),
        _ => None,
    }
}

/// The descriptors of a socket that stay open.
fn surviving(lib: &Lib, index: usize) -> Vec<RawFd> {
    let stays = |fd: &RawFd| {
        // SAFETY: a plain call.
        let flags = unsafe { real::fcntl(*fd, libc::F_GETFD, 0) };
        flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    lib.descriptors(index).into_iter().filter(stays).collect()
}

fn describe_bound(bound: &Bound) -> BoundRecord {
    (bound.binding, bound.local, bound.chosen)
}

fn rebuild_bound((binding, local, chosen): BoundRecord) -> Bound {
    Bound { binding, local, chosen }
}

fn describe_kind(socket: &Socket, homes: &mut Vec<HomeRecord>) -> Option<KindRecord> {
    Some(match &socket.kind {
        Kind::Fresh => KindRecord::Fresh,
        Kind::Bound(bound) => KindRecord::Bound(describe_bound(bound)),
        Kind::Listener(listener) => {
            KindRecord::Listener { bound: describe_bound(&listener.bound), backlog: listener.backlog }
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

fn place_of(home: &Arc<Home>, homes: &mut Vec<HomeRecord>) -> usize {
    let fd = home.region.fd().as_raw_fd();
    homes.iter().position(|known| known.fd == fd).unwrap_or_else(|| {
        homes.push(HomeRecord { fd, context: home.context, geometry: home.geometry });
        homes.len() - 1
    })
}

fn slot(slot: Slot) -> SlotRecord {
    (slot.index, slot.generation)
}
fn as_slot((index, generation): SlotRecord) -> Slot {
    Slot { index, generation }
}

/// When the library is loaded: goes on with what an exec left, where there was one.
pub fn take_over() {
    let Some(text) = std::env::var(VARIABLE).ok().filter(|_| attach::is_enabled()) else { return };
    // SAFETY: the dynamic linker runs this before the program has threads.
    unsafe { std::env::remove_var(VARIABLE) };
    let Ok(inheritance) = serde_json::from_str::<Inheritance>(&text) else { return };
    let Ok(mut lib) = lock::lock() else { return };
    match attach::attach(Some(inheritance.token)) {
        Ok(context) => lib.attached(context),
        Err(sentence) => attach::refuse(&sentence),
    }
    let homes: Vec<Option<Arc<Home>>> = inheritance.homes.iter().map(open_home).collect();
    for record in &inheritance.sockets {
        rebuild(&mut lib, record, &homes);
    }
}

fn open_home(record: &HomeRecord) -> Option<Arc<Home>> {
    // SAFETY: the descriptor was left open for this by the library before the exec; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(record.fd) };
    let region = Region::from_fd(attach::keep(fd)).ok()?;
    let fits = record.geometry.is_valid() && region.len() >= record.geometry.region_len();
    let home = Home { region: Arc::new(region), geometry: record.geometry, context: record.context };
    fits.then(|| Arc::new(home))
}

fn rebuild(lib: &mut Lib, record: &SocketRecord, homes: &[Option<Arc<Home>>]) {
    let Some(&first) = record.descriptors.first() else { return };
    let Some(kind) = rebuild_kind(&record.kind, homes) else { return };
    let binding = if let Kind::Listener(listener) = &kind { Some(listener.bound.binding) } else { None };
    let make = |id| Socket {
        kind,
        kernel_half: record.kernel_half,
        stands_in: record.stands_in,
        ..Socket::fresh(id, first, record.is_v6, record.nonblocking)
    };
    let Some(key) = lib.add_socket(first, make) else { return };
    for fd in &record.descriptors[1..] {
        if table::set(*fd, Entry::Socket(key.index)) {
            lib.sockets.get_mut(key.index).into_iter().for_each(|socket| socket.descriptors += 1);
        }
    }
    enlist(lib, binding, key);
}

fn enlist(lib: &mut Lib, binding: Option<u32>, key: Key) {
    if let (Some(binding), Some(context)) = (binding, lib.context()) {
        context.listeners.insert(binding, key);
    }
}

fn rebuild_kind(record: &KindRecord, homes: &[Option<Arc<Home>>]) -> Option<Kind> {
    Some(match record {
        KindRecord::Fresh => Kind::Fresh,
        KindRecord::Bound(bound) => Kind::bound(rebuild_bound(*bound)),
        KindRecord::Listener { bound, backlog } => Kind::Listener(Box::new(Listener {
            bound: rebuild_bound(*bound),
            backlog: *backlog,
            credits: None,
            queue: VecDeque::new(),
        })),
        KindRecord::Stream { home, slot, claim_by, ends, mss } => {
            let home = homes.get(*home)?.as_ref().filter(|home| slot.0 < home.geometry.slots)?;
            let mut stream = Stream::at(home, as_slot(*slot), *ends, *mss);
            stream.claim_by = (claim_by.0, as_slot(claim_by.1));
            stream.shared = true;
            Kind::Stream(Box::new(stream))
        }
    })
}
