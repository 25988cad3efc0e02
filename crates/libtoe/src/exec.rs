//! Exec: sockets without close-on-exec survive it.
//!
//! As before a fork, the daemon holds everything for whoever shows the token. What the library must know of each
//! socket travels in an environment variable; positions and bytes are in the shared regions, whose descriptors are
//! left open. The new program's copy of the library finds the variable and goes on.
use crate::attach;
use crate::context_side::{self, Home};
use crate::environment;
use crate::lock::{self, Guard};
use crate::real;
use crate::socket::{Bound, Kind, Listener, Socket};
use crate::state::{Key, Lib};
use crate::stream::Stream;
use crate::table::{self, Entry};
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

/// Runs an exec with an environment in which the sockets that survive it are described, and which keeps the program on
/// OpenTOE. Returns only where the exec failed.
///
/// # Safety
/// `environment` is a valid list of C strings, ending with null.
pub unsafe fn with_sockets(
    environment: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !attach::is_enabled() {
        return exec(environment);
    }
    let Ok(mut lib) = lock::lock() else { return exec(environment) };
    lib.own_kernel_sockets();
    // SAFETY: the caller's list.
    let Some(prepared) = (unsafe { Prepared::new(&mut lib, environment, Lib::descriptors) }) else {
        return exec(environment);
    };
    let result = exec(prepared.list.as_ptr());
    let errno = crate::errno::get();
    set_close_on_exec(&prepared.homes, true);
    drop(lib);
    crate::errno::set(errno);
    result
}

/// The environment of a program that is about to be run. What it needs of the library stays open.
pub struct Prepared {
    /// The environment, ending with null. It leads into the caller's list and into `_added`.
    pub list: Vec<*const c_char>,
    /// The sockets that are carried, by their index.
    pub carried: Vec<usize>,
    homes: Vec<HomeRecord>,
    _added: Vec<CString>,
}

impl Prepared {
    /// `None` for a program that will not run on OpenTOE: it gets its sockets as it would without us, not connected.
    /// `descriptors` are those of a socket, by its index.
    ///
    /// # Safety
    /// `environment` is a valid list of C strings, ending with null, for as long as the result is used.
    pub unsafe fn new(
        lib: &mut Guard,
        environment: *const *const c_char,
        descriptors: impl Fn(&Lib, usize) -> Vec<RawFd>,
    ) -> Option<Prepared> {
        // SAFETY: the caller's list.
        let variables = unsafe { strings(environment) };
        if environment::leaves(&variables) {
            return None;
        }
        let (inheritance, carried) = describe(lib, descriptors);
        let mut missing = environment::missing(&variables, inheritance.is_some());
        missing.variables.extend(inheritance.as_ref().and_then(as_variable));
        let stay = variables.iter().copied().filter(|variable| !missing.replaces(variable));
        let added = missing.variables.iter().map(CString::as_c_str);
        let end = std::iter::once(std::ptr::null());
        let list: Vec<*const c_char> = stay.chain(added).map(CStr::as_ptr).chain(end).collect();
        let homes = inheritance.map_or_else(Vec::new, |inheritance| inheritance.homes);
        set_close_on_exec(&homes, false);
        Some(Prepared { list, carried, homes, _added: missing.variables })
    }
}

fn as_variable(inheritance: &Inheritance) -> Option<CString> {
    let text = serde_json::to_string(inheritance).ok()?;
    CString::new(format!("{VARIABLE}={text}")).ok()
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

/// What survives, and the sockets' indices; `None` where nothing does.
fn describe(lib: &mut Guard, of: impl Fn(&Lib, usize) -> Vec<RawFd>) -> (Option<Inheritance>, Vec<usize>) {
    let mut homes: Vec<HomeRecord> = Vec::new();
    let (mut sockets, mut carried) = (Vec::new(), Vec::new());
    let indices = if lib.context().is_some() { lib.sockets.indices() } else { Vec::new() };
    for index in indices {
        let descriptors = surviving(of(lib, index));
        let Some(socket) = lib.sockets.get(index).filter(|_| !descriptors.is_empty()) else { continue };
        let Some(kind) = describe_kind(socket, &mut homes) else { continue };
        let Socket { is_v6, nonblocking, kernel_half, stands_in, .. } = *socket;
        sockets.push(SocketRecord { descriptors, is_v6, nonblocking, kernel_half, stands_in, kind });
        carried.push(index);
    }
    if sockets.is_empty() {
        return (None, carried);
    }
    match context_side::ask(lib, |tag| Request::Fork { tag }) {
        Ok(Reply::Forked { token, .. }) => (Some(Inheritance { token, homes, sockets }), carried),
        _ => (None, Vec::new()),
    }
}

/// Those of a socket's descriptors that stay open.
fn surviving(descriptors: Vec<RawFd>) -> Vec<RawFd> {
    let stays = |fd: &RawFd| {
        // SAFETY: a plain call.
        let flags = unsafe { real::fcntl(*fd, libc::F_GETFD, 0) };
        flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    descriptors.into_iter().filter(stays).collect()
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
