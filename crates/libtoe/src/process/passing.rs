//! Passing sockets to other processes over UNIX sockets (`SCM_RIGHTS`, unix(7)); docs/PASSING.md.
//!
//! A message that passes a socket of ours carries an envelope in its place: one end of a pair of UNIX sockets. In its
//! queue are the kernel socket and what an exec would carry of the socket ([`crate::process::carried`]). The other
//! process' library takes the envelope apart before the program sees the descriptor. The daemon holds the connection or
//! address meanwhile, for whoever shows the token in the envelope, and gives the region with the connection's buffers.
use crate::calls::{direct, inherited_sets};
use crate::daemon::{ask, attach, share};
use crate::lock::{self, Guard};
use crate::process::carried::{self, SocketRecord};
use crate::state::slab::Key;
use crate::state::socket::Kind;
use crate::system::errno::{self, Result};
use crate::system::warn::{self, Topic};
use crate::system::{placeholder, real, user_memory, waking};
use crate::table::{self, Entry};
use context::{Reply, Request, Unaccelerated};
use libc::{c_int, c_uint, cmsghdr, mmsghdr, msghdr, ssize_t, timespec};
use serde::{Deserialize, Serialize};
use shm::handover;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// How a message in an envelope begins.
const MARK: &[u8] = b"OpenTOE socket 1\n";

/// Bytes of control messages at most: the kernel's `net.core.optmem_max` is far below it.
const MOST_CONTROL: usize = 1 << 24;

/// The content of an envelope; with it comes the kernel socket.
#[derive(Serialize, Deserialize)]
struct Letter {
    /// The daemon gives the connection or address to whoever shows it; `None` where there is none yet.
    token: Option<u64>,
    socket: SocketRecord,
}

/// The places of passed descriptors in a message.
///
/// # Safety
/// The message's control buffer is valid.
unsafe fn rights(message: &msghdr) -> Vec<*mut RawFd> {
    let mut places = Vec::new();
    // SAFETY: the macros stay within the control buffer; a length that leads out of it ends the walk.
    unsafe {
        let end = message.msg_control.addr() + message.msg_controllen;
        let mut at: *mut cmsghdr = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = at.as_ref() {
            let len = header.cmsg_len;
            if len < libc::CMSG_LEN(0) as usize || at.addr() + len > end {
                break;
            }
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
                let count = (len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first: *mut RawFd = libc::CMSG_DATA(at).cast();
                places.extend((0..count).map(|i| first.add(i)));
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    places
}

/// Whether a message passes a socket of ours.
unsafe fn passes_ours(message: &msghdr) -> bool {
    if message.msg_control.is_null() || message.msg_controllen == 0 || !attach::is_enabled() {
        return false;
    }
    // Where an address is bad, the kernel reports it.
    if message.msg_controllen > MOST_CONTROL || !user_memory::can_read(message.msg_control, message.msg_controllen) {
        return false;
    }
    // SAFETY: the caller's message; a place may be unaligned.
    unsafe { rights(message).iter().any(|place| is_socket(place.read_unaligned())) }
}

fn is_socket(fd: RawFd) -> bool {
    matches!(table::get(fd), Entry::Socket(_))
}

/// Whether one of several messages passes a socket of ours.
///
/// # Safety
/// As `sendmmsg`.
pub(crate) unsafe fn passes(messages: *const mmsghdr, count: c_uint) -> bool {
    let count = count.min(1024);
    if !user_memory::can_read(messages, count as usize * size_of::<mmsghdr>()) {
        return false;
    }
    // SAFETY: the caller's array has `count` messages.
    (0..count as usize).any(|i| unsafe { passes_ours(&(*messages.add(i)).msg_hdr) })
}

/// `sendmsg` on a descriptor that is not ours.
///
/// # Safety
/// As `sendmsg`.
pub(crate) unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's message.
    match unsafe { user_memory::read_any(message) }.ok().flatten().as_ref() {
        // SAFETY: as above.
        Some(message) if unsafe { passes_ours(message) } => {
            // SAFETY: as above.
            errno::give(unsafe { send_enveloped(fd, message, flags) })
        }
        // SAFETY: passed on.
        _ => unsafe { real::sendmsg(fd, message, flags) },
    }
}

unsafe fn send_enveloped(fd: c_int, message: &msghdr, flags: c_int) -> Result<ssize_t> {
    let mut control = vec![0u64; message.msg_controllen.div_ceil(8)];
    // SAFETY: the caller's control buffer has this length, and so has the copy.
    let copy = unsafe {
        let (from, to): (*const u8, *mut u8) = (message.msg_control.cast(), control.as_mut_ptr().cast());
        std::ptr::copy_nonoverlapping(from, to, message.msg_controllen);
        msghdr { msg_control: control.as_mut_ptr().cast(), ..*message }
    };
    let mut sent = Sent { tokens: Vec::new(), envelopes: Vec::new() };
    // SAFETY: the places are in the copy.
    let result = unsafe {
        match enclose_all(fd, &rights(&copy), &mut sent) {
            Ok(()) => errno::check(real::sendmsg(fd, &copy, flags)),
            Err(errno) => Err(errno),
        }
    };
    if result.is_err() {
        sent.withdraw();
    }
    result
}

/// What one message passes.
struct Sent {
    tokens: Vec<u64>,
    envelopes: Vec<OwnedFd>,
}

impl Sent {
    /// The message did not go out.
    fn withdraw(&self) {
        let Ok(mut lib) = lock::lock() else { return };
        for token in &self.tokens {
            ask::send_request(&mut lib, Request::Withdraw { token: *token });
        }
    }
}

/// Puts envelopes in the places of sockets of ours.
unsafe fn enclose_all(over: c_int, places: &[*mut RawFd], sent: &mut Sent) -> Result<()> {
    let refuse = |topic| {
        warn::once(topic);
        Err(libc::EOPNOTSUPP)
    };
    if waking::is_confined() {
        return refuse(Topic::NotPassed);
    }
    if is_outside(over) {
        return refuse(Topic::PassedOutside);
    }
    let mut lib = lock::lock()?;
    for place in places {
        // SAFETY: in the copy of the control buffer; it may be unaligned.
        let fd = unsafe { place.read_unaligned() };
        let Some(key) = lib.socket_of(fd) else { continue };
        if is_over(&mut lib, key)? {
            // Its kernel socket shows the same: there is no connection.
            continue;
        }
        if lib.need_socket(key)?.is_stream() && is_of_other_user(over, lib.need_context()?.user) {
            return refuse(Topic::OtherUser);
        }
        let letter = match describe(&mut lib, key) {
            Ok(Some(described)) => described,
            Ok(None) => return refuse(Topic::NotPassed),
            // It ended just now.
            Err(libc::EBADF) => continue,
            Err(errno) => return Err(errno),
        };
        sent.tokens.extend(letter.token);
        let envelope = enclose(&letter, fd)?;
        // SAFETY: as above.
        unsafe { place.write_unaligned(envelope.as_raw_fd()) };
        sent.envelopes.push(envelope);
    }
    Ok(())
}

/// Its connection was reset. Claimed first, where another process has it as well.
fn is_over(lib: &mut Guard, key: Key) -> Result<bool> {
    share::claim(lib, key)?;
    lib.drain_replies_now();
    Ok(lib.need_socket(key)?.broken)
}

/// What is reported of a socket that is passed; `None` for one that cannot be.
fn describe(lib: &mut Guard, key: Key) -> Result<Option<Letter>> {
    if !lib.need_socket(key)?.is_stream() {
        lib.own_kernel_socket(key)?;
    }
    direct::take_back(lib, key);
    let socket = lib.need_socket(key)?;
    let Some(record) = carried::describe(socket, Vec::new(), &mut Vec::new()) else { return Ok(None) };
    socket.share();
    let (slot, binding) = match &socket.kind {
        Kind::Stream(stream) => (stream.name, 0),
        Kind::Bound(bound) => (None, bound.binding),
        Kind::Listener(listener) => (None, listener.bound.binding),
        _ => (None, 0),
    };
    inherited_sets::after_fork(lib, false);
    let token = match (slot, binding) {
        (None, 0) => None,
        _ => match ask::ask(lib, |tag| Request::Pass { tag, slot, binding })? {
            Reply::Forked { token, .. } => Some(token),
            _ => return Err(libc::EPROTO),
        },
    };
    Ok(Some(Letter { token, socket: record }))
}

fn enclose(letter: &Letter, fd: RawFd) -> Result<OwnedFd> {
    let text = serde_json::to_vec(letter).map_err(|_| libc::EINVAL)?;
    let message = [MARK, &text].concat();
    // SAFETY: the program's descriptor, open during its call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let number = |error: std::io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
    let (here, envelope) = handover::pair().map_err(number)?;
    handover::send(here.as_fd(), &message, &[socket]).map_err(number)?;
    Ok(envelope)
}

/// The process at the other end of a UNIX socket does not run on OpenTOE, as far as that can be found out. It cannot be
/// for two ends that were made as a pair.
fn is_outside(over: RawFd) -> bool {
    // SAFETY: the program's descriptor, open during its call.
    let socket = unsafe { BorrowedFd::borrow_raw(over) };
    let Ok(other) = handover::credentials(socket) else { return false };
    if other.pid <= 0 || other.pid as u32 == std::process::id() || !has_name(over) {
        return false;
    }
    // Without permission to read it, the best is assumed.
    std::fs::read(format!("/proc/{}/maps", other.pid)).is_ok_and(|maps| !contains(&maps, b"libtoe"))
}

/// The process at the other end of a UNIX socket is of another user than this process at its attach, as far as that
/// shows. For a pair's ends, the daemon checks the adopting process.
fn is_of_other_user(over: RawFd, user: libc::uid_t) -> bool {
    // SAFETY: the program's descriptor, open during its call.
    let socket = unsafe { BorrowedFd::borrow_raw(over) };
    let Ok(other) = handover::credentials(socket) else { return false };
    // Nobody is at the other end of a datagram socket that was not made as one of a pair.
    other.uid == u32::MAX || (has_name(over) && other.uid != user)
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// One of the two ends was bound: they are not a pair.
fn has_name(fd: RawFd) -> bool {
    [real::getsockname, real::getpeername].into_iter().any(|name| {
        let mut address = [0u64; 16];
        let mut len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: a local buffer with its length.
        let done = unsafe { name(fd, address.as_mut_ptr().cast(), &mut len) };
        done == 0 && len as usize > size_of::<libc::sa_family_t>()
    })
}

/// `recvmsg` on a descriptor that is not ours.
///
/// # Safety
/// As `recvmsg`.
pub(crate) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: passed on; the kernel has accepted the message where it gave something.
    unsafe {
        let got = real::recvmsg(fd, message, flags);
        if got >= 0 {
            open_all(&*message, flags);
        }
        got
    }
}

/// `recvmmsg` on a descriptor that is not ours.
///
/// # Safety
/// As `recvmmsg`.
pub(crate) unsafe fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: passed on; the kernel has filled as many messages as it returned.
    unsafe {
        let got = real::recvmmsg(fd, messages, count, flags, timeout);
        for i in 0..got.max(0) as usize {
            open_all(&(*messages.add(i)).msg_hdr, flags);
        }
        got
    }
}

/// Takes the envelopes of a message apart. What was only peeked at stays as it is.
unsafe fn open_all(message: &msghdr, flags: c_int) {
    let none = message.msg_control.is_null() || message.msg_controllen == 0 || flags & libc::MSG_PEEK != 0;
    if none || !attach::is_enabled() || waking::is_confined() {
        return;
    }
    let errno = errno::get();
    // SAFETY: the kernel has filled the control buffer; the descriptors are fresh.
    unsafe {
        for place in rights(message) {
            let fd = place.read_unaligned();
            if handover::begins_with(BorrowedFd::borrow_raw(fd), MARK) && open(fd).is_none() {
                warn::once(Topic::NotThere);
            }
        }
    }
    errno::set(errno);
}

/// Takes an envelope apart: its descriptor is the socket's from now on. Where that cannot be used, it is an idle one.
fn open(fd: RawFd) -> Option<()> {
    // SAFETY: a fresh descriptor that the program has not seen yet.
    let (message, fds) = handover::recv(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    let letter: Letter = serde_json::from_slice(message.strip_prefix(MARK)?).ok()?;
    placeholder::replace(fds.first()?.as_raw_fd(), fd);
    let mut lib = lock::lock().ok()?;
    attach::ensure(&mut lib);
    adopt(&mut lib, letter, fd)
}

fn adopt(lib: &mut Guard, letter: Letter, fd: RawFd) -> Option<()> {
    let Letter { token, mut socket } = letter;
    socket.descriptors = vec![fd];
    let mut known = Vec::new();
    if let Some(token) = token {
        let Ok(Reply::Adopted { home, binding, .. }) = ask::ask(lib, |tag| Request::Adopt { tag, token }) else {
            return None;
        };
        socket.claim_from(home, binding)?;
        if let Some((context, _)) = home {
            known.push(carried::passed_home(lib, context));
        }
        if let Some(key) = socket.existing(lib, known.first().and_then(Option::as_ref)) {
            return lib.add_descriptor(fd, key);
        }
    }
    let key = carried::rebuild(lib, &socket, &known)?;
    lib.label(key, Unaccelerated::No);
    Some(())
}
