//! Exec: sockets without close-on-exec survive it.
//!
//! The daemon holds what is carried, and nothing else, for the process that shows the token. What the library needs of
//! each socket travels in an environment variable; positions and bytes are in the shared regions, whose descriptors are
//! left open. The new program's copy of the library finds the variable and goes on.
use crate::calls::direct;
use crate::daemon::{ask, attach};
use crate::lock::{self, Guard};
use crate::process::carried::{self, RegionRecord, SocketRecord};
use crate::process::environment;
use crate::state::Lib;
use crate::state::mapped_region::MappedRegion;
use crate::system::errno::Result;
use crate::system::real;
use context::{Reply, Request};
use libc::{c_char, c_int, c_ulong};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// The environment variable that carries sockets over an exec. What is too long for it goes on in `TOE_INHERIT_1` and
/// others.
const VARIABLE: &str = "TOE_INHERIT";

/// The longest part in one variable: Linux refuses those of more than 128 KiB (execve(2)).
const PART: usize = 64 << 10;

/// The tag of requests whose answers nobody waits for: tags count from 1.
const UNAWAITED: u32 = 0;

/// Everything that is carried over.
#[derive(Serialize, Deserialize)]
struct Inheritance {
    /// `None` where the daemon has none of the sockets.
    token: Option<u64>,
    homes: Vec<RegionRecord>,
    sockets: Vec<SocketRecord>,
}

/// Runs an exec with an environment in which the sockets that survive it are described, and which keeps the program on
/// OpenTOE. Returns only where the exec failed.
///
/// # Safety
/// `environment` is a valid list of C strings, ending with null.
pub(crate) unsafe fn with_sockets(
    environment: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    if !attach::is_enabled() {
        return exec(environment);
    }
    let Ok(mut lib) = lock::lock() else { return exec(environment) };
    lib.come_back();
    lib.own_kernel_sockets();
    // SAFETY: the caller's list.
    let Some(prepared) = (unsafe { Prepared::new(&mut lib, environment, Lib::descriptors) }) else {
        return exec(environment);
    };
    let result = exec(prepared.list.as_ptr());
    let errno = crate::system::errno::get();
    set_close_on_exec(&prepared.homes, true);
    prepared.withdraw(&mut lib);
    drop(lib);
    crate::system::errno::set(errno);
    result
}

/// The environment of a program that is about to be run. What it needs of the library stays open.
pub(crate) struct Prepared {
    /// The environment, ending with null. It leads into the caller's list and into `_added`.
    pub list: Vec<*const c_char>,
    /// The sockets that are carried, by their index.
    pub carried: Vec<usize>,
    token: Option<u64>,
    homes: Vec<RegionRecord>,
    _added: Vec<CString>,
}

impl Prepared {
    /// `None` for a program that will not run on OpenTOE: it gets its sockets as it would without us, not connected.
    /// `descriptors` are those of a socket, by its index.
    ///
    /// # Safety
    /// `environment` is a valid list of C strings, ending with null, for as long as the result is used.
    pub(crate) unsafe fn new(
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
        missing.variables.extend(inheritance.iter().flat_map(as_variables));
        let stay = variables.iter().copied().filter(|variable| !missing.replaces(variable));
        let added = missing.variables.iter().map(CString::as_c_str);
        let end = std::iter::once(std::ptr::null());
        let list: Vec<*const c_char> = stay.chain(added).map(CStr::as_ptr).chain(end).collect();
        let token = inheritance.as_ref().and_then(|inheritance| inheritance.token);
        let homes = inheritance.map_or_else(Vec::new, |inheritance| inheritance.homes);
        set_close_on_exec(&homes, false);
        Some(Prepared { list, carried, token, homes, _added: missing.variables })
    }

    /// The program could not be run: nothing is held for it any more.
    pub(crate) fn withdraw(&self, lib: &mut Guard) {
        if let Some(token) = self.token {
            ask::send_request(lib, Request::Withdraw { token });
        }
    }
}

fn as_variables(inheritance: &Inheritance) -> Vec<CString> {
    let text = serde_json::to_vec(inheritance).unwrap_or_default();
    let variable = |(part, text): (usize, &[u8])| CString::new([name(part).as_bytes(), b"=", text].concat()).ok();
    text.chunks(PART).enumerate().filter_map(variable).collect()
}

/// The name of the variable with a part of the description.
fn name(part: usize) -> String {
    if part == 0 { VARIABLE.into() } else { format!("{VARIABLE}_{part}") }
}

/// Takes the description out of the environment; empty where there is none.
///
/// # Safety
/// The process has no other thread.
unsafe fn take_variables() -> Vec<u8> {
    let take = |part| {
        let text = std::env::var_os(name(part))?;
        // SAFETY: the caller's.
        unsafe { std::env::remove_var(name(part)) };
        Some(text.into_vec())
    };
    (0..).map_while(take).flatten().collect()
}

/// # Safety
/// `list` is null or a valid list of C strings, ending with null.
pub(crate) unsafe fn strings<'a>(list: *const *const c_char) -> Vec<&'a CStr> {
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

fn set_close_on_exec(homes: &[RegionRecord], on: bool) {
    for home in homes {
        // SAFETY: a plain call on a descriptor of the library.
        unsafe { real::fcntl(home.fd, libc::F_SETFD, if on { libc::FD_CLOEXEC as c_ulong } else { 0 }) };
    }
}

/// What survives, and the sockets' indices; `None` where nothing does.
fn describe(lib: &mut Guard, of: impl Fn(&Lib, usize) -> Vec<RawFd>) -> (Option<Inheritance>, Vec<usize>) {
    direct::take_all_back(lib);
    let mut homes: Vec<RegionRecord> = Vec::new();
    let (mut sockets, mut carried) = (Vec::new(), Vec::new());
    let indices = if lib.context().is_some() { lib.sockets.indices() } else { Vec::new() };
    for index in indices {
        let descriptors = surviving(of(lib, index));
        let Some(socket) = lib.sockets.get(index).filter(|_| !descriptors.is_empty()) else { continue };
        let Some(record) = carried::describe(socket, descriptors, &mut homes) else { continue };
        sockets.push(record);
        carried.push(index);
    }
    if sockets.is_empty() {
        return (None, carried);
    }
    match hold(lib, &sockets) {
        Ok(token) => (Some(Inheritance { token, homes, sockets }), carried),
        Err(_) => (None, Vec::new()),
    }
}

/// Lets the daemon hold what it has of these sockets, and returns under which token; `None` where it has nothing.
fn hold(lib: &mut Guard, sockets: &[SocketRecord]) -> Result<Option<u64>> {
    let shares: Vec<_> = sockets.iter().filter_map(SocketRecord::share).collect();
    let Some(((last_flow, last_binding), others)) = shares.split_last() else { return Ok(None) };
    let Reply::Forked { token, .. } = ask::ask(lib, |tag| Request::Exec { tag })? else {
        return Err(libc::EPROTO);
    };
    for (flow, binding) in others {
        ask::send_request(lib, Request::Carry { tag: UNAWAITED, token, flow: *flow, binding: *binding });
    }
    // Requests are taken in their order: with the last one all are held. One that fails is of a connection that is
    // over, which the new program finds out.
    let carry = |tag| Request::Carry { tag, token, flow: *last_flow, binding: *last_binding };
    let _ = ask::ask(lib, carry);
    Ok(Some(token))
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

/// When the library is loaded: goes on with what an exec left, where there was one.
pub(crate) fn take_over() {
    if !attach::is_enabled() {
        return;
    }
    // SAFETY: the dynamic linker runs this before the program has threads.
    let text = unsafe { take_variables() };
    let Ok(inheritance) = serde_json::from_slice::<Inheritance>(&text) else { return };
    let Ok(mut lib) = lock::lock() else { return };
    match attach::attach(inheritance.token) {
        Ok(context) => lib.attached(context),
        Err(failure) => attach::refuse(failure.sentence()),
    }
    let homes: Vec<Option<Arc<MappedRegion>>> = inheritance.homes.iter().map(open_home).collect();
    for record in &inheritance.sockets {
        carried::rebuild(&mut lib, record, &homes);
    }
}

fn open_home(record: &RegionRecord) -> Option<Arc<MappedRegion>> {
    // SAFETY: the descriptor was left open for this by the library before the exec; nobody else owns it.
    carried::open_home(record, unsafe { OwnedFd::from_raw_fd(record.fd) })
}
