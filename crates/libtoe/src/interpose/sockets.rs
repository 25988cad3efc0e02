//! Making, binding, connecting, accepting sockets; addresses and options.
use crate::calls::address::{self, Address};
use crate::calls::{binding, connect as connecting, listening, options, shutdown, waiting};
use crate::daemon::{ask, attach, share};
use crate::interfaces::netlink;
use crate::interpose::kernel_half;
use crate::lock::{self, Guard};
use crate::state::slab::Key;
use crate::state::socket::{ANY, Bound, Kind, Socket};
use crate::system::errno::{self, Result, give};
use crate::system::{real, user_memory, waking};
use crate::table::{self, Entry};
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use context::{Endpoint, IpAddress, Request, Unaccelerated};
use libc::{c_int, c_void, pollfd, sockaddr, socklen_t};
use std::net::{Ipv4Addr, Ipv6Addr};

const TYPE_MASK: c_int = 0xf;

/// `socket`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: passed on.
    let kernel = || netlink::made(unsafe { real::socket(domain, kind, protocol) }, domain, protocol);
    let known = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // Multipath TCP, which Go's listeners ask for, falls back to TCP with a peer that has none (RFC 8684 section 3.7).
    let is_tcp =
        kind & TYPE_MASK == libc::SOCK_STREAM && matches!(protocol, 0 | libc::IPPROTO_TCP | libc::IPPROTO_MPTCP);
    let may_be_ours = is_tcp && kind & !known == 0 && matches!(domain, libc::AF_INET | libc::AF_INET6);
    if !may_be_ours || !attach::is_enabled() {
        return kernel();
    }
    match fresh(domain == libc::AF_INET6, kind) {
        Ok(Some(fd)) => fd,
        Ok(None) => kernel(),
        Err(errno) => give(Err(errno)),
    }
}

/// A fresh socket; `None` where its number would be beyond the table, so that it is left to the kernel.
pub(super) fn fresh(is_v6: bool, flags: c_int) -> Decided<c_int> {
    let mut lib = lock::lock()?;
    attach::ensure(&mut lib);
    lib.need_context()?;
    let fd = lib.placeholders.descriptor(is_v6, flags)?;
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    if lib.add_socket(fd, |id| Socket::fresh(id, fd, is_v6, nonblocking)).is_none() {
        // SAFETY: the descriptor is fresh and no other code has it.
        unsafe { real::close(fd) };
        return Ok(None);
    }
    Ok(Some(fd))
}

/// The socket of a descriptor, with the library locked; `None` where it is the kernel's.
#[inline]
pub(super) fn ours(fd: c_int) -> Result<Option<(Guard, Key)>> {
    if !matches!(table::get(fd), Entry::Socket(_)) {
        return Ok(None);
    }
    let lib = lock::lock()?;
    Ok(lib.socket_of(fd).map(|key| (lib, key)))
}

/// Calls the library's function for a socket of ours, the next definition for all others.
macro_rules! route {
    ($fd:expr, |$lib:ident, $key:ident| $ours:expr, $kernel:expr) => {
        match $crate::interpose::sockets::ours($fd) {
            // SAFETY: the caller's arguments, passed on.
            Ok(None) => unsafe { $kernel },
            Ok(Some((mut guard, $key))) => {
                let $lib = &mut guard;
                #[allow(unused_unsafe, clippy::redundant_closure_call, reason = "some bodies are safe, some use `?`")]
                // SAFETY: the caller's arguments, under the contract of the call.
                let result = (|| unsafe { $ours })();
                $crate::system::errno::give(result)
            }
            Err(errno) => {
                $crate::system::errno::set(errno);
                -1
            }
        }
    };
}
pub(crate) use route;

/// A call that may find that the socket is the kernel's: `Ok(None)` then.
type Decided<T> = Result<Option<T>>;

/// `bind`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's address, passed on.
    let kernel = || unsafe { real::bind(fd, address, len) };
    match ours(fd) {
        Ok(None) => kernel(),
        // SAFETY: as above.
        Ok(Some((mut lib, key))) => finish(unsafe { decide_bind(&mut lib, key, fd, address, len) }, lib, kernel),
        Err(errno) => give(Err(errno)),
    }
}

/// Gives the result of a decision, or asks the kernel, without the lock.
fn finish(decided: Decided<c_int>, lib: Guard, kernel: impl FnOnce() -> c_int) -> c_int {
    drop(lib);
    match decided {
        Ok(Some(result)) => result,
        Ok(None) => kernel(),
        Err(errno) => give(Err(errno)),
    }
}

unsafe fn decide_bind(
    lib: &mut Guard,
    key: Key,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> Decided<c_int> {
    // SAFETY: the caller's address.
    let local = match unsafe { address::parse(address, len)? } {
        Address::Ip(local) if !lib.need_socket(key)?.may_have(local.ip) => return Err(libc::EINVAL),
        // The port that is chosen must be free on both stacks.
        Address::Ip(local @ Endpoint { ip, port: 0 }) if ip == ANY.ip && lib.has_family(key, ip) => {
            // SAFETY: as above.
            return unsafe { kernel_half::bind_any(lib, key, fd, address, len, local) }.map(|()| Some(0));
        }
        Address::Ip(local) if lib.has_family(key, local.ip) => local,
        Address::V6Any(port) if takes_any_v6(lib, key)? => {
            let local = Endpoint { ip: lib.any_address(key), port };
            // SAFETY: as above.
            return unsafe { kernel_half::bind_any(lib, key, fd, address, len, local) }.map(|()| Some(0));
        }
        _ => {
            lib.leave_to_kernel(key, Unaccelerated::Family)?;
            return Ok(None);
        }
    };
    if local.ip.is_loopback() {
        // SAFETY: as above.
        return unsafe { bind_loopback(lib, key, fd, address, len, local) };
    }
    if !local.ip.is_unspecified() && !lib.need_context()?.welcome.addresses.contains(&local.ip) {
        lib.leave_to_kernel(key, Unaccelerated::ForeignAddress)?;
        return Ok(None);
    }
    binding::bind(lib, key, local)?;
    Ok(Some(0))
}

/// The unspecified IPv6 address is for both families, or the host speaks IPv6.
fn takes_any_v6(lib: &mut Guard, key: Key) -> Result<bool> {
    let socket = lib.need_socket(key)?;
    let both = socket.is_v6 && !socket.options.v6_only;
    Ok(both || lib.speaks_v6(key))
}

/// A loopback address is the kernel's first: its ports are the truth for all programs of the machine. Then it is the
/// host's, too, where the host serves this program's loopback.
unsafe fn bind_loopback(
    lib: &mut Guard,
    key: Key,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
    local: Endpoint,
) -> Decided<c_int> {
    if !matches!(lib.need_socket(key)?.kind, Kind::Fresh) {
        return Err(libc::EINVAL);
    }
    if !lib.need_context()?.welcome.loopback {
        lib.leave_to_kernel(key, Unaccelerated::Loopback)?;
        return Ok(None);
    }
    // SAFETY: the caller's address.
    unsafe { kernel_half::bind(lib, key, fd, address, len)? };
    let chosen = local.port == 0;
    let port = if chosen { kernel_half::port(fd) } else { local.port };
    match binding::bind_to(lib, key, Endpoint { port, ..local }, chosen) {
        Ok(()) => lib.need_socket(key)?.kernel_half = true,
        // A connection over the host has the port, or too many are bound: the kernel goes on alone.
        Err(_) => lib.leave_to_kernel(key, Unaccelerated::Loopback)?,
    }
    Ok(Some(0))
}

/// `listen`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    route!(fd, |lib, key| listen_ours(lib, key, fd, backlog), real::listen(fd, backlog))
}

fn listen_ours(lib: &mut Guard, key: Key, fd: c_int, backlog: c_int) -> Result<c_int> {
    // Like Linux, 0 still lets one connection in, and negative numbers mean the most.
    let limit = if backlog < 0 { 4096 } else { backlog.clamp(1, 4096) as u32 };
    kernel_half::choose_port(lib, key, fd)?;
    listening::listen(lib, key, limit)?;
    listen_in_kernel(lib, key, fd, backlog)?;
    lib.take_ticket(key);
    Ok(0)
}

/// A listener on the unspecified address also takes connections to the kernel's own addresses. Where the kernel has the
/// port in use already, it goes without. Where not, connections to loopback addresses may come over the host, too: no
/// other program can be meant.
fn listen_in_kernel(lib: &mut Guard, key: Key, fd: c_int, backlog: c_int) -> Result<()> {
    lib.own_kernel_socket(key)?;
    let socket = lib.need_socket(key)?;
    let Kind::Listener(listener) = &socket.kind else { return Ok(()) };
    let Bound { binding, local, .. } = listener.bound;
    if !local.ip.is_unspecified() && !local.ip.is_loopback() {
        // It may have listened on any address before.
        socket.kernel_half = false;
        return Ok(());
    }
    if !socket.kernel_half && !kernel_half::bind_to(fd, local, socket.is_v6) {
        return Ok(());
    }
    // The kernel's half never blocks: waiting is the library's business.
    // SAFETY: plain calls on a descriptor of ours.
    let listening = unsafe {
        let flags = real::fcntl(fd, libc::F_GETFL, 0);
        real::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as libc::c_ulong);
        real::listen(fd, backlog) == 0
    };
    lib.need_socket(key)?.kernel_half = listening;
    if listening {
        lib.watch_kernel_half(key, fd);
        if lib.need_context()?.welcome.loopback {
            ask::send_request(lib, Request::Loopback { binding });
        }
    }
    Ok(())
}

/// `accept`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: the caller's pointers, passed on.
    unsafe { accept4(fd, address, len, 0) }
}

/// `accept4`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    route!(fd, |lib, key| accept_ours(lib, key, fd, (address, len), flags), real::accept4(fd, address, len, flags))
}

unsafe fn accept_ours(
    lib: &mut Guard,
    key: Key,
    fd: c_int,
    (address, len): (*mut sockaddr, *mut socklen_t),
    flags: c_int,
) -> Result<c_int> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Err(libc::EINVAL);
    }
    lib.request_events(key);
    listening::search_elsewhere(lib, key);
    wait_for_connection(lib, key, fd)?;
    // SAFETY: the caller's pointers.
    match unsafe { accept_now(lib, key, (address, len), flags) } {
        // SAFETY: as above. The kernel's half does not block.
        Ok(None) => errno::check(unsafe { real::accept4(fd, address, len, flags) }),
        Ok(Some(accepted)) => Ok(accepted),
        Err(errno) => Err(errno),
    }
}

/// Waits for a connection of either kind.
fn wait_for_connection(lib: &mut Guard, key: Key, fd: c_int) -> Result<()> {
    // Where one of the host's waits, the kernel is not asked.
    lib.drain();
    if lib.takes_first(key) {
        return Ok(());
    }
    let socket = lib.need_socket(key)?;
    let kernel = match socket.kernel_half {
        true => vec![pollfd { fd, events: libc::POLLIN, revents: 0 }],
        false => Vec::new(),
    };
    let timeout = socket.options.receive_timeout;
    let deadline = match socket.nonblocking {
        true => Some(waking::now()),
        false => timeout.map(|timeout| waking::now() + timeout),
    };
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    let targets = [Target::Socket(key)];
    let wait = WaitOptions { deadline, targets: &targets, kernel, signals, mask: None };
    let found = waiting::until(lib, wait, |lib, kernel| {
        let first = lib.takes_first(key);
        let Some(socket) = lib.socket(key) else { return Some(Err(libc::EBADF)) };
        match &socket.kind {
            Kind::Listener(_) if first => Some(Ok(())),
            Kind::Listener(_) if kernel.is_some_and(|fds| fds.iter().any(|fd| fd.revents != 0)) => Some(Ok(())),
            Kind::Listener(_) if socket.broken => Some(Err(libc::EINVAL)),
            Kind::Listener(_) => None,
            _ => Some(Err(libc::EINVAL)),
        }
    });
    match found {
        Err(libc::ETIMEDOUT) => Err(libc::EAGAIN),
        Err(errno) => Err(errno),
        Ok(result) => result,
    }
}

/// Takes a connection from the queue; `None` where only the kernel has one.
unsafe fn accept_now(
    lib: &mut Guard,
    key: Key,
    (address, len): (*mut sockaddr, *mut socklen_t),
    flags: c_int,
) -> Decided<c_int> {
    let socket = lib.need_socket(key)?;
    let (is_v6, options) = (socket.is_v6, socket.options.clone());
    let Kind::Listener(listener) = &mut socket.kind else { return Err(libc::EINVAL) };
    let Some(pending) = listener.queue.pop_front() else { return Ok(None) };
    let fd = match lib.placeholders.descriptor(is_v6, flags) {
        Ok(fd) => fd,
        Err(errno) => {
            lib.put_back(key, pending);
            return Err(errno);
        }
    };
    let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
    let accepted = lib.add_socket(fd, |id| Socket { options, ..Socket::fresh(id, fd, is_v6, nonblocking) });
    let Some(accepted) = accepted else {
        // SAFETY: the descriptor is fresh and no other code has it.
        unsafe { real::close(fd) };
        let close = context::Request::Close { slot: pending.slot, tx_head: 0, rx_head: 0, abort: true };
        lib.need_context()?.send_request_surely(close);
        return Err(libc::EMFILE);
    };
    lib.open_stream(accepted, pending.slot, pending.local, pending.remote, pending.mss);
    lib.send_early_options(accepted, pending.slot);
    lib.label_accepted(accepted);
    if pending.errno != 0 {
        lib.fail_stream(accepted.index, pending.errno);
    }
    lib.request_events(key);
    // SAFETY: the caller's pointers. As on Linux, a connection that nobody can be notified of is closed.
    match unsafe { address::store(pending.remote, is_v6, address, len) } {
        Ok(()) => Ok(Some(fd)),
        Err(errno) => {
            table::clear(fd);
            lib.drop_descriptor(accepted.index);
            // SAFETY: the descriptor is fresh and no other code has it.
            unsafe { real::close(fd) };
            Err(errno)
        }
    }
}

/// `connect`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: the caller's address, passed on.
    let kernel = || unsafe { real::connect(fd, address, len) };
    match ours(fd) {
        Ok(None) => kernel(),
        Ok(Some((mut lib, key))) => {
            // SAFETY: as above.
            let decided = unsafe { address::parse(address, len) }.and_then(|to| decide_connect(&mut lib, key, to));
            finish(decided, lib, kernel)
        }
        Err(errno) => give(Err(errno)),
    }
}

/// Connects, or finds that the kernel must.
pub(super) fn decide_connect(lib: &mut Guard, key: Key, to: Address) -> Decided<c_int> {
    let remote = match to {
        Address::Ip(remote) if lib.has_family(key, remote.ip) => remote,
        // Linux takes the unspecified address for the machine itself.
        Address::V6Any(port) => Endpoint { ip: lib.any_address(key), port },
        Address::Unspecified => return dissolve(lib, key),
        Address::Ip(_) | Address::Other => return not_here(lib, key, Unaccelerated::Family),
    };
    if matches!(lib.need_socket(key)?.kind, Kind::Fresh | Kind::Bound(_)) {
        let socket = lib.need_socket(key)?;
        if !socket.may_have(remote.ip) && !socket.outcome_pending {
            return Err(libc::ENETUNREACH);
        }
        if !remote.ip.is_v4() && socket.has_source_v4() && !socket.outcome_pending {
            return Err(libc::EAFNOSUPPORT);
        }
        if remote.ip.is_loopback() || remote.ip.is_unspecified() {
            return connect_loopback(lib, key, remote);
        }
        let loopback = |bound: &Bound| bound.local.ip.is_loopback();
        let from_loopback = matches!(&lib.need_socket(key)?.kind, Kind::Bound(bound) if loopback(bound));
        if from_loopback || !lib.need_context()?.reaches(remote) {
            return not_here(lib, key, Unaccelerated::NoRoute);
        }
    }
    connecting::connect(lib, key, remote)?;
    Ok(Some(0))
}

/// To this machine itself: over the host, where a listener of its own is there; else the kernel connects.
fn connect_loopback(lib: &mut Guard, key: Key, remote: Endpoint) -> Decided<c_int> {
    let bound_to = match &lib.need_socket(key)?.kind {
        Kind::Bound(bound) => bound.local.ip,
        _ => ANY.ip,
    };
    let may_be_loopback = bound_to.is_unspecified() || bound_to.is_loopback();
    if !may_be_loopback || !lib.need_context()?.welcome.loopback {
        return not_here(lib, key, Unaccelerated::Loopback);
    }
    // Linux takes the unspecified address for 127.0.0.1, or ::1.
    let ip = match remote.ip.is_unspecified() {
        true if remote.ip.is_v4() => Ipv4Addr::LOCALHOST.into(),
        true => IpAddress::v6(Ipv6Addr::LOCALHOST, 0),
        false => remote.ip,
    };
    match connecting::connect(lib, key, Endpoint { ip, ..remote }) {
        // Nobody listens there on the host, or there is no room: the kernel's half has some.
        Err(libc::ENETUNREACH | libc::ENOBUFS | libc::ENOMEM) => not_here(lib, key, Unaccelerated::Loopback),
        done => done.map(|()| Some(0)),
    }
}

/// The kernel connects, unless the socket is bound to an address of the host: then nobody can.
fn not_here(lib: &mut Guard, key: Key, reason: Unaccelerated) -> Decided<c_int> {
    lib.own_kernel_socket(key)?;
    let socket = lib.need_socket(key)?;
    match socket.kind {
        Kind::Fresh => {}
        Kind::Bound(ref bound) if bound.local.ip.is_unspecified() || bound.local.ip.is_loopback() => {
            let Bound { binding, local, .. } = **bound;
            // Bound to a port only: the same port in the kernel. A loopback address is bound there already.
            let (fd, is_v6, bound) = (socket.fd, socket.is_v6, socket.kernel_half);
            if !bound && !kernel_half::bind_to(fd, local, is_v6) {
                return Err(errno::get());
            }
            socket.kind = Kind::Fresh;
            lib.need_context()?.send_request_surely(context::Request::Unbind { binding });
        }
        Kind::Bound(_) => return Err(libc::ENETUNREACH),
        _ => return Err(libc::EISCONN),
    }
    lib.leave_to_kernel(key, reason)?;
    Ok(None)
}

/// `connect` to `AF_UNSPEC`: gives a connection that is being opened up.
fn dissolve(lib: &mut Guard, key: Key) -> Decided<c_int> {
    match lib.need_socket(key)?.kind {
        Kind::Connecting { .. } => shutdown::give_up_connecting(lib, key).map(|()| Some(0)),
        Kind::Fresh => Ok(Some(0)),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// `shutdown`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    route!(fd, |lib, key| shutdown_ours(lib, key, fd, how), real::shutdown(fd, how))
}

fn shutdown_ours(lib: &mut Guard, key: Key, fd: c_int, how: c_int) -> Result<c_int> {
    shutdown::shutdown(lib, key, how)?;
    if lib.need_socket(key)?.kernel_half {
        // SAFETY: a plain call on a descriptor of ours.
        unsafe { real::shutdown(fd, how) };
    }
    Ok(0)
}

/// `getsockname`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let name = |lib: &mut Guard, key| -> Result<c_int> {
        if matches!(&lib.need_socket(key)?.kind, Kind::Connecting(attempt) if attempt.local.is_none()) {
            connecting::wait_until_on_its_way(lib, key)?;
        }
        let socket = lib.need_socket(key)?;
        let local = match &socket.kind {
            Kind::Fresh | Kind::Log(_) => socket.last_local(),
            Kind::Bound(bound) => bound.local,
            Kind::Listener(listener) => listener.bound.local,
            Kind::Connecting(attempt) => attempt.local.unwrap_or(ANY),
            Kind::Stream(stream) => stream.ends.local(),
        };
        // SAFETY: the caller's pointers.
        unsafe { name(local, socket, address, len) }
    };
    route!(fd, |lib, key| name(lib, key), real::getsockname(fd, address, len))
}

/// Writes the name of one end. Unspecified ends of an IPv6 socket are the unspecified IPv6 address.
unsafe fn name(end: Endpoint, socket: &Socket, address: *mut sockaddr, len: *mut socklen_t) -> Result<c_int> {
    if address.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's pointers.
    unsafe {
        let room = user_memory::read(len)? as usize;
        address::store(end, socket.is_v6, address, len)?;
        if socket.is_v6 && end.ip.is_unspecified() && room >= 24 {
            user_memory::write_bytes(address.cast::<u8>().wrapping_add(8), &[0; 16])?;
        }
    }
    Ok(0)
}

/// `getpeername`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let name = |lib: &mut Guard, key| -> Result<c_int> {
        // The peer's reset may have come since the last call that checked.
        lib.drain();
        let socket = lib.need_socket(key)?;
        let broken = socket.broken;
        let Kind::Stream(stream) = &socket.kind else { return Err(libc::ENOTCONN) };
        let remote = stream.ends.remote();
        if broken || stream.is_over() {
            return Err(libc::ENOTCONN);
        }
        // SAFETY: the caller's pointers.
        unsafe { name(remote, socket, address, len) }
    };
    route!(fd, |lib, key| name(lib, key), real::getpeername(fd, address, len))
}

/// `setsockopt`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let set = |lib: &mut Guard, key| -> Result<c_int> {
        // No option is longer than a page.
        let mut given = vec![0; (len as usize).min(shm::PAGE)];
        user_memory::read_bytes(value.cast(), &mut given)?;
        options::set(lib, key, fd, level, option, &given).map(|()| 0)
    };
    route!(fd, |lib, key| set(lib, key), real::setsockopt(fd, level, option, value, len))
}

/// `getsockopt`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let get = |lib: &mut Guard, key| -> Result<c_int> {
        share::claim(lib, key)?;
        lib.drain();
        match options::get(lib, key, level, option)? {
            None => {
                lib.own_kernel_socket(key)?;
                // SAFETY: the caller's pointers, passed on.
                errno::check(unsafe { real::getsockopt(fd, level, option, value, len) })
            }
            // SAFETY: the caller's pointers.
            Some(found) => unsafe { copy_option(&found, value, len) },
        }
    };
    route!(fd, |lib, key| get(lib, key), real::getsockopt(fd, level, option, value, len))
}

unsafe fn copy_option(found: &[u8], value: *mut c_void, len: *mut socklen_t) -> Result<c_int> {
    // SAFETY: at most `*len` bytes are written, for which the program gave the place.
    unsafe {
        let most = found.len().min(user_memory::read(len)? as usize);
        user_memory::write_bytes(value.cast(), &found[..most])?;
        user_memory::write(len, most as socklen_t)?;
    }
    Ok(0)
}
