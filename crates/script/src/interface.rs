//! The table of callbacks between a packet-script runner and a stack, and what stands between C and [`Sockets`].
//!
//! Every callback answers as the system call of its name does: -1 and `errno` where it fails. The runner may call from
//! several threads ([`crate::instance`]).
use crate::event_set::Event;
use crate::flags::Flags;
use crate::instance::Instance;
use crate::memory::{
    address, answer, answer_int, bytes, check, destination, done, gather, give_address, give_control, give_value,
    parts, readable, scatter,
};
use crate::preload;
use crate::sockets::{Accepted, Sockets};
use crate::stack::Stack;
use libc::{
    EAGAIN, EFAULT, EINPROGRESS, EINVAL, ENOSYS, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void,
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval, timezone,
};
use std::ffi::CStr;
use std::sync::Arc;

type Data = *mut c_void;

/// The table, as the runner declares it. The two calls that take any number of arguments are declared with the one that
/// they are called with; Linux's calling conventions pass it alike.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "each is the system call of its name, with the table's own value first")]
pub struct Interface {
    pub userdata: Data,
    pub free: unsafe extern "C" fn(Data),
    pub socket: unsafe extern "C" fn(Data, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(Data, c_int, *const sockaddr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(Data, c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    pub connect: unsafe extern "C" fn(Data, c_int, *const sockaddr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(Data, c_int, *mut c_void, size_t) -> ssize_t,
    pub readv: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    pub recv: unsafe extern "C" fn(Data, c_int, *mut c_void, size_t, c_int) -> ssize_t,
    pub recvfrom:
        unsafe extern "C" fn(Data, c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t,
    pub recvmsg: unsafe extern "C" fn(Data, c_int, *mut msghdr, c_int) -> ssize_t,
    pub write: unsafe extern "C" fn(Data, c_int, *const c_void, size_t) -> ssize_t,
    pub writev: unsafe extern "C" fn(Data, c_int, *const iovec, c_int) -> ssize_t,
    pub send: unsafe extern "C" fn(Data, c_int, *const c_void, size_t, c_int) -> ssize_t,
    pub sendto: unsafe extern "C" fn(Data, c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t,
    pub sendmsg: unsafe extern "C" fn(Data, c_int, *const msghdr, c_int) -> ssize_t,
    pub fcntl: unsafe extern "C" fn(Data, c_int, c_int, c_long) -> c_int,
    pub ioctl: unsafe extern "C" fn(Data, c_int, c_ulong, *mut c_int) -> c_int,
    pub close: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(Data, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int,
    pub setsockopt: unsafe extern "C" fn(Data, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(Data, *mut pollfd, nfds_t, c_int) -> c_int,
    pub netdev_send: unsafe extern "C" fn(Data, *const c_void, size_t) -> c_int,
    pub netdev_receive: unsafe extern "C" fn(Data, *mut c_void, *mut size_t, *mut c_longlong) -> c_int,
    pub usleep: unsafe extern "C" fn(Data, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(Data, *mut timeval, *mut timezone) -> c_int,
    pub epoll_create: unsafe extern "C" fn(Data, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(Data, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(Data, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(Data, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(Data, c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> ssize_t,
}

/// Fills the table. `flags` is what stands in `--so_flags`, or null ([`crate::flags`]). With flags that cannot be, the
/// process ends with a sentence: the interface has no way to report an error.
///
/// # Safety
/// `flags` is null or a string that ends with 0; `interface` points to a table that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    // SAFETY: the caller guarantees it.
    let text = if flags.is_null() { "".into() } else { unsafe { CStr::from_ptr(flags) }.to_string_lossy() };
    let made = Flags::parse(&text).and_then(|flags| Ok(Sockets::new(Stack::new(flags.clone())?).with_flags(flags)));
    let sockets = match made {
        Ok(sockets) => sockets,
        Err(sentence) => {
            eprintln!("libtoe_script.so: {sentence}");
            std::process::exit(1);
        }
    };
    let instance = Arc::new(Instance::new(sockets));
    preload::add(&instance);
    let table = Interface {
        userdata: Arc::into_raw(instance).cast_mut().cast(),
        free,
        socket,
        bind,
        listen,
        accept,
        connect,
        read,
        readv,
        recv,
        recvfrom,
        recvmsg,
        write,
        writev,
        send,
        sendto,
        sendmsg,
        fcntl,
        ioctl,
        close,
        shutdown,
        getsockopt,
        setsockopt,
        poll,
        netdev_send,
        netdev_receive,
        usleep,
        gettimeofday,
        epoll_create,
        epoll_ctl,
        epoll_wait,
        pipe,
        splice,
    };
    // SAFETY: the caller guarantees that it may be written.
    unsafe { interface.write(table) };
}

/// # Safety
/// `data` is a table's `userdata` that was not freed.
unsafe fn instance<'a>(data: Data) -> &'a Instance {
    // SAFETY: `packetdrill_interface_init` made it, and only `free` takes it back.
    unsafe { &*data.cast::<Instance>() }
}

unsafe extern "C" fn free(data: Data) {
    // SAFETY: made by `packetdrill_interface_init`; the runner calls this once, at last.
    let instance = unsafe { Arc::from_raw(data.cast::<Instance>()) };
    preload::remove(&instance);
    instance.abandon();
}

unsafe extern "C" fn socket(data: Data, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the runner passes the table's own value, here and below.
    let instance = unsafe { instance(data) };
    answer_int(instance.at_once(|sockets| sockets.socket(domain, kind, protocol)))
}

unsafe extern "C" fn bind(data: Data, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as in `socket`; the address is as the runner guarantees.
    let (instance, to) = unsafe { (instance(data), address(to, len)) };
    done(to.and_then(|to| instance.at_once(|sockets| sockets.bind(fd, to))))
}

unsafe extern "C" fn listen(data: Data, fd: c_int, backlog: c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    done(instance.at_once(|sockets| sockets.listen(fd, backlog)))
}

unsafe extern "C" fn accept(data: Data, fd: c_int, from: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    let accepted = instance.call(None, |sockets| sockets.blocks(fd), |sockets| sockets.accept(fd));
    answer_int(accepted.map(|Accepted { fd, peer, is_v6 }| {
        // SAFETY: the room is as the runner guarantees.
        unsafe { give_address(peer, is_v6, from, len) };
        fd
    }))
}

unsafe extern "C" fn connect(data: Data, fd: c_int, to: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: as in `bind`.
    let (instance, to) = unsafe { (instance(data), address(to, len)) };
    let begun = to.and_then(|to| instance.at_once(|sockets| sockets.connect(fd, to)));
    let waits = begun == Err(EINPROGRESS) && instance.at_once(|sockets| Ok(sockets.blocks(fd))) == Ok(true);
    done(if waits { instance.call(None, |_| true, |sockets| sockets.connect_result(fd)) } else { begun })
}

unsafe extern "C" fn read(data: Data, fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: as the runner guarantees.
    unsafe { recv(data, fd, into, len, 0) }
}

unsafe extern "C" fn readv(data: Data, fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the runner guarantees.
    let (instance, vector) = unsafe { (instance(data), parts(vector, count.max(0) as usize)) };
    // SAFETY: as the runner guarantees.
    unsafe { receive_into(instance, fd, vector, 0) }
}

unsafe extern "C" fn recv(data: Data, fd: c_int, into: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let one = [iovec { iov_base: into, iov_len: len }];
    // SAFETY: the only part is as the runner guarantees.
    unsafe { receive_into(instance(data), fd, &one, flags) }
}

unsafe extern "C" fn recvfrom(
    data: Data,
    fd: c_int,
    into: *mut c_void,
    len: size_t,
    flags: c_int,
    _: *mut sockaddr,
    _: *mut socklen_t,
) -> ssize_t {
    // A stream's bytes come from its peer; Linux leaves the address alone, too.
    // SAFETY: as the runner guarantees.
    unsafe { recv(data, fd, into, len, flags) }
}

unsafe extern "C" fn recvmsg(data: Data, fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the runner guarantees.
    let (instance, message) = unsafe { (instance(data), &mut *message) };
    let of_errors = flags & libc::MSG_ERRQUEUE;
    let (received, control) = if of_errors != 0 {
        match instance.at_once(|sockets| sockets.notification(fd)) {
            Ok(notification) => (0, Some(notification)),
            Err(errno) => return answer::<ssize_t>(Err(errno)),
        }
    } else {
        // SAFETY: as the runner guarantees.
        let received = unsafe { receive_into(instance, fd, parts(message.msg_iov, message.msg_iovlen), flags) };
        let left = |sockets: &mut Sockets| Ok(sockets.in_queue(fd));
        (received, if received >= 0 { instance.at_once(left).ok().flatten() } else { None })
    };
    if received >= 0 {
        (message.msg_flags, message.msg_namelen) = (of_errors, 0);
        // SAFETY: as the runner guarantees.
        unsafe { give_control(control, message) };
    }
    received
}

/// # Safety
/// Each part has room for as many bytes as it states.
unsafe fn receive_into(instance: &Instance, fd: c_int, parts: &[iovec], flags: c_int) -> ssize_t {
    if let Err(errno) = check(parts) {
        return answer::<ssize_t>(Err(errno));
    }
    let most = parts.iter().map(|part| part.iov_len).sum();
    answer(instance.receive(fd, most, flags).map(|received| {
        // SAFETY: not more than the parts have room for was received.
        unsafe { scatter(parts, &received) };
        received.len()
    }))
}

unsafe extern "C" fn write(data: Data, fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: as the runner guarantees.
    unsafe { send(data, fd, from, len, 0) }
}

unsafe extern "C" fn writev(data: Data, fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the runner guarantees.
    let (instance, all) = unsafe { (instance(data), gather(parts(vector, count.max(0) as usize))) };
    answer(all.and_then(|all| instance.write_all(fd, &all, 0)))
}

unsafe extern "C" fn send(data: Data, fd: c_int, from: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: as the runner guarantees.
    let (instance, from) = unsafe { (instance(data), readable(from, len)) };
    answer(from.and_then(|from| instance.write_all(fd, from, flags)))
}

unsafe extern "C" fn sendto(
    data: Data,
    fd: c_int,
    from: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: as the runner guarantees; the address of a connection's peer is known.
    let (instance, from, to) = unsafe { (instance(data), readable(from, len), destination(to, to_len)) };
    answer(from.and_then(|from| instance.send_to(fd, from, flags, to)))
}

unsafe extern "C" fn sendmsg(data: Data, fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the runner guarantees.
    let (instance, message) = unsafe { (instance(data), &*message) };
    // SAFETY: as the runner guarantees.
    let all = unsafe { gather(parts(message.msg_iov, message.msg_iovlen)) };
    // SAFETY: as the runner guarantees.
    let to = unsafe { destination(message.msg_name.cast(), message.msg_namelen) };
    answer(all.and_then(|all| instance.send_to(fd, &all, flags, to)))
}

unsafe extern "C" fn fcntl(data: Data, fd: c_int, command: c_int, value: c_long) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    answer_int(instance.at_once(|sockets| {
        let socket = sockets.get(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if socket.nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                socket.nonblocking = value & c_long::from(libc::O_NONBLOCK) != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(EINVAL),
        }
    }))
}

unsafe extern "C" fn ioctl(data: Data, fd: c_int, request: c_ulong, value: *mut c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    done(instance.at_once(|sockets| {
        let answer = match request {
            libc::FIONREAD => sockets.waiting(fd)?.0,
            libc::TIOCOUTQ => sockets.waiting(fd)?.1,
            _ => return Err(EINVAL),
        };
        if value.is_null() {
            return Err(EFAULT);
        }
        // SAFETY: these requests have an int for the answer.
        unsafe { *value = answer as c_int };
        Ok(())
    }))
}

unsafe extern "C" fn close(data: Data, fd: c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    done(instance.at_once(|sockets| sockets.close(fd)))
}

unsafe extern "C" fn shutdown(data: Data, fd: c_int, how: c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    done(instance.at_once(|sockets| sockets.shutdown(fd, how)))
}

unsafe extern "C" fn getsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    let found = instance.at_once(|sockets| sockets.option(fd, level, name));
    // SAFETY: the room is as the runner guarantees.
    done(found.and_then(|found| unsafe { give_value(&found, value, len) }))
}

unsafe extern "C" fn setsockopt(
    data: Data,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: as the runner guarantees.
    let (instance, value) = unsafe { (instance(data), bytes(value, len as usize)) };
    done(instance.at_once(|sockets| sockets.set_option(fd, level, name, value)))
}

unsafe extern "C" fn poll(data: Data, fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    if fds.is_null() && count > 0 {
        return answer_int(Err(EFAULT));
    }
    // SAFETY: as the runner guarantees; without descriptors, the pointer is not read.
    let (instance, fds) = unsafe {
        (instance(data), if count == 0 { &mut [][..] } else { std::slice::from_raw_parts_mut(fds, count as usize) })
    };
    let begin = instance.now();
    let end = u64::try_from(timeout).ok().map(|milliseconds| begin + milliseconds * 1_000_000);
    let poll = |sockets: &mut Sockets, fds: &mut [pollfd]| {
        for fd in fds.iter_mut() {
            let always = libc::POLLERR | libc::POLLHUP;
            fd.revents = sockets.readiness(fd.fd).map_or(libc::POLLNVAL, |bits| bits & (fd.events | always));
        }
        let ready = fds.iter().filter(|fd| fd.revents != 0).count() as c_int;
        let over = end.is_some_and(|end| sockets.stack.now() >= end);
        if ready > 0 || over { Ok(ready) } else { Err(EAGAIN) }
    };
    answer_int(instance.call(end, |_| timeout != 0, |sockets| poll(sockets, fds)))
}

unsafe extern "C" fn netdev_send(data: Data, packet: *const c_void, len: size_t) -> c_int {
    // SAFETY: as the runner guarantees.
    let (instance, packet) = unsafe { (instance(data), bytes(packet, len)) };
    done(instance.at_once(|sockets| {
        sockets.stack.inject(packet);
        sockets.take_in();
        Ok(())
    }))
}

unsafe extern "C" fn netdev_receive(data: Data, into: *mut c_void, len: *mut size_t, time: *mut c_longlong) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    if into.is_null() || len.is_null() || time.is_null() {
        return answer_int(Err(EFAULT));
    }
    let next = instance.next_packet();
    let (at, packet) = next.unwrap_or_else(|at| (at, Vec::new()));
    // SAFETY: not more is written than the caller has room for.
    unsafe {
        let part = packet.len().min(*len);
        std::ptr::copy_nonoverlapping(packet.as_ptr(), into.cast(), part);
        (*len, *time) = (part, (at / 1000) as c_longlong);
    }
    0
}

unsafe extern "C" fn usleep(data: Data, microseconds: c_uint) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    instance.sleep(u64::from(microseconds) * 1000);
    0
}

unsafe extern "C" fn gettimeofday(data: Data, time: *mut timeval, _zone: *mut timezone) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    if time.is_null() {
        return answer_int(Err(EFAULT));
    }
    let us = (instance.read_clock() / 1000) as i64;
    // SAFETY: there is room for one.
    unsafe { *time = timeval { tv_sec: us / 1_000_000, tv_usec: us % 1_000_000 } };
    0
}

unsafe extern "C" fn epoll_create(data: Data, size: c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    answer_int(instance.at_once(|sockets| sockets.epoll_create(size)))
}

unsafe extern "C" fn epoll_ctl(data: Data, set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    let asked = match event.is_null() {
        true if operation != libc::EPOLL_CTL_DEL => return answer_int(Err(EFAULT)),
        true => Event { events: 0, data: 0 },
        false => {
            // SAFETY: as the runner guarantees.
            let epoll_event { events, u64: data } = unsafe { event.read_unaligned() };
            Event { events, data }
        }
    };
    done(instance.at_once(|sockets| sockets.epoll_ctl(set, operation, fd, asked)))
}

unsafe extern "C" fn epoll_wait(data: Data, set: c_int, into: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
    // SAFETY: as in `socket`.
    let instance = unsafe { instance(data) };
    if into.is_null() {
        return answer_int(Err(EFAULT));
    }
    let begin = instance.now();
    let end = u64::try_from(timeout).ok().map(|milliseconds| begin + milliseconds * 1_000_000);
    let poll = |sockets: &mut Sockets| {
        let found = sockets.epoll_take(set, most.max(0) as usize);
        let over = end.is_some_and(|end| sockets.stack.now() >= end);
        if over && found == Err(EAGAIN) { Ok(Vec::new()) } else { found }
    };
    answer_int(instance.call(end, |_| timeout != 0, poll).map(|found| {
        for (at, Event { events, data }) in found.iter().enumerate() {
            // SAFETY: there is room for `most`, and no more were found.
            unsafe { into.add(at).write_unaligned(epoll_event { events: *events, u64: *data }) };
        }
        found.len() as c_int
    }))
}

unsafe extern "C" fn pipe(_: Data, _: *mut c_int) -> c_int {
    answer_int(Err(ENOSYS))
}

unsafe extern "C" fn splice(
    _: Data,
    _: c_int,
    _: *mut loff_t,
    _: c_int,
    _: *mut loff_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    answer::<ssize_t>(Err(ENOSYS))
}
