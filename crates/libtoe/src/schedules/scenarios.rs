//! Scenarios: programs of a few threads that wait for each other in different ways.
//!
//! Their sleeps have time-outs of ten seconds or none. So where time leaps by more than the library's own short naps,
//! somebody slept although there was something for them.
use super::controller::{ADDRESS, Act, CONTROL, Death};
use libc::{c_int, c_void, epoll_event, pollfd, sockaddr_in};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// A scenario: makes its sockets, and has what each thread does with them.
pub(super) struct Scenario {
    pub name: &'static str,
    pub make: fn() -> Vec<Act>,
    /// How often a daemon dies.
    pub deaths: u32,
}

const fn scenario(name: &'static str, make: fn() -> Vec<Act>) -> Scenario {
    Scenario { name, make, deaths: 0 }
}

pub(super) const ALL: &[Scenario] = &[
    scenario("a-set-each", a_set_each),
    scenario("one-set-once", || one_set(EPOLLIN | libc::EPOLLONESHOT as u32)),
    scenario("one-set-edge", || one_set(EPOLLIN | libc::EPOLLET as u32)),
    scenario("one-set-level", || one_set(EPOLLIN)),
    scenario("one-set-exclusive", || one_set(EPOLLIN | libc::EPOLLEXCLUSIVE as u32)),
    scenario("one-set-busy", one_set_busy),
    scenario("mixed", mixed),
    scenario("nested", nested),
    scenario("polled-set", polled_set),
    scenario("kernel-beside", kernel_beside),
    scenario("acceptors", acceptors),
    scenario("room", room),
    scenario("requests", requests),
    scenario("ends", ends),
    Scenario { deaths: 1, ..scenario("daemon-gone", daemon_gone) },
    Scenario { deaths: 1, ..scenario("daemon-killed", || daemon_killed(Death::Survived)) },
    Scenario { deaths: 2, ..scenario("daemon-killed-resuming", || daemon_killed(Death::ResumingToo)) },
    Scenario { deaths: 2, ..scenario("daemon-killed-listening", || daemon_killed(Death::ListeningToo)) },
];

const EPOLLIN: u32 = libc::EPOLLIN as u32;
/// How often threads exchange a message: enough for one that is woken in vain to become a follower.
const ROUNDS: usize = 7;
/// No sleep is to end by it.
const LONG: c_int = 10_000;

fn check(result: isize) -> usize {
    assert!(result >= 0, "errno {}", crate::system::errno::get());
    result as usize
}

fn listen() -> (RawFd, sockaddr_in) {
    // SAFETY: calls with locals of the right size.
    unsafe {
        let listener = socket();
        let mut address: sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as u16;
        address.sin_addr.s_addr = u32::from_ne_bytes(ADDRESS.octets());
        let mut len = size_of::<sockaddr_in>() as u32;
        check(libc::bind(listener, (&raw const address).cast(), len) as isize);
        check(libc::listen(listener, 16) as isize);
        check(libc::getsockname(listener, (&raw mut address).cast(), &mut len) as isize);
        (listener, address)
    }
}

fn socket() -> RawFd {
    // SAFETY: a plain call.
    check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) } as isize) as RawFd
}

fn connect(to: sockaddr_in) -> RawFd {
    let fd = socket();
    // SAFETY: a local of the right size.
    check(unsafe { libc::connect(fd, (&raw const to).cast(), size_of::<sockaddr_in>() as u32) } as isize);
    fd
}

fn accept(listener: RawFd) -> RawFd {
    // SAFETY: no address is asked for.
    check(unsafe { libc::accept(listener, std::ptr::null_mut(), std::ptr::null_mut()) } as isize) as RawFd
}

/// Two ends of a connection. The stand-in opens one when somebody accepts it.
pub(super) fn pair() -> (RawFd, RawFd) {
    let ((listener, address), client) = (listen(), socket());
    set_flags(client, libc::O_NONBLOCK);
    // SAFETY: a local of the right size.
    let begun = unsafe { libc::connect(client, (&raw const address).cast(), size_of::<sockaddr_in>() as u32) };
    assert_eq!((begun, crate::system::errno::get()), (-1, libc::EINPROGRESS));
    let server = accept(listener);
    let mut opened = pollfd { fd: client, events: libc::POLLOUT, revents: 0 };
    // SAFETY: a local.
    assert_eq!(check(unsafe { libc::poll(&mut opened, 1, LONG) } as isize), 1);
    set_flags(client, 0);
    close(listener);
    (client, server)
}

fn set_flags(fd: RawFd, flags: c_int) {
    // SAFETY: a plain call.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) } as isize);
}

fn close(fd: RawFd) {
    // SAFETY: a descriptor of the scenario's.
    check(unsafe { libc::close(fd) } as isize);
}

fn put(fd: RawFd, byte: u8) {
    // SAFETY: a local byte.
    assert_eq!(check(unsafe { libc::write(fd, (&raw const byte).cast(), 1) }), 1);
}

/// A byte; `None` at the end of the stream, or where there is none now.
fn get(fd: RawFd) -> Option<u8> {
    let mut byte = 0u8;
    // SAFETY: a local byte.
    match unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } {
        1 => Some(byte),
        0 => None,
        _ if crate::system::errno::get() == libc::EAGAIN => None,
        _ => panic!("errno {}", crate::system::errno::get()),
    }
}

fn set() -> RawFd {
    // SAFETY: a plain call.
    check(unsafe { libc::epoll_create1(0) } as isize) as RawFd
}

fn control(set: RawFd, operation: c_int, fd: RawFd, events: u32) {
    let mut event = epoll_event { events, u64: fd as u64 };
    // SAFETY: a local event.
    check(unsafe { libc::epoll_ctl(set, operation, fd, &mut event) } as isize);
}

/// Waits for one event; what it is for, and which.
fn wait(set: RawFd) -> (RawFd, u32) {
    wait_for_some::<1>(set)[0]
}

/// Waits for up to so many events.
fn wait_for_some<const MOST: usize>(set: RawFd) -> Vec<(RawFd, u32)> {
    let mut events = [epoll_event { events: 0, u64: 0 }; MOST];
    // SAFETY: local events.
    let found = check(unsafe { libc::epoll_wait(set, events.as_mut_ptr(), MOST as c_int, LONG) } as isize);
    assert!(found > 0, "a wait for events came to its time-out");
    events[..found].iter().map(|event| (event.u64 as RawFd, event.events)).collect()
}

pub(super) fn event() -> RawFd {
    // SAFETY: a plain call.
    check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) } as isize) as RawFd
}

fn signal(event: RawFd) {
    let one = 1u64;
    // SAFETY: eight local bytes.
    assert_eq!(check(unsafe { libc::write(event, (&raw const one).cast(), 8) }), 8);
}

fn clear(event: RawFd) {
    let mut count = 0u64;
    // SAFETY: eight local bytes.
    unsafe { libc::read(event, (&raw mut count).cast(), 8) };
}

/// Somebody has written to an eventfd.
pub(super) fn is_readable(event: RawFd) -> bool {
    let mut fds = [pollfd { fd: event, events: libc::POLLIN, revents: 0 }];
    // SAFETY: a local, without waiting.
    check(unsafe { libc::poll(fds.as_mut_ptr(), 1, 0) } as isize) > 0
}

/// Sends a byte and waits for the same one.
fn ask(fd: RawFd, byte: u8) {
    put(fd, byte);
    assert_eq!(get(fd), Some(byte));
}

/// Speaks over one connection after the other, so many rounds.
fn speak<const MANY: usize>(connections: [RawFd; MANY]) {
    for round in 0..ROUNDS {
        connections.iter().for_each(|fd| ask(*fd, round as u8));
    }
    connections.into_iter().for_each(close);
}

/// Answers what comes, by reads that wait, until its end.
fn serve(fd: RawFd) {
    while let Some(byte) = get(fd) {
        put(fd, byte);
    }
    close(fd);
}

/// Answers what comes over the one connection of its set, until its end.
fn serve_in_set(set: RawFd, fd: RawFd) {
    loop {
        assert_eq!(wait(set).0, fd);
        let Some(byte) = get(fd) else { break };
        put(fd, byte);
    }
    close(fd);
    close(set);
}

pub(super) fn set_with(fd: RawFd) -> RawFd {
    let set = set();
    control(set, libc::EPOLL_CTL_ADD, fd, EPOLLIN);
    set
}

/// Two threads wait in sets of their own (gRPC's client), a third one speaks to either.
fn a_set_each() -> Vec<Act> {
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let server = |fd: RawFd| -> Act {
        let set = set_with(fd);
        Box::new(move || serve_in_set(set, fd))
    };
    let client = move || {
        for round in 0..ROUNDS {
            ask(if round % 3 == 2 { b } else { a }, round as u8);
        }
        close(a);
        close(b);
    };
    vec![server(of_a), server(of_b), Box::new(client)]
}

/// Two threads wait in one set for two connections (Erlang's pollers), two others speak.
fn one_set(events: u32) -> Vec<Act> {
    let set = set();
    let ends = [pair(), pair()];
    for (_, server) in ends {
        set_flags(server, libc::O_NONBLOCK);
        control(set, libc::EPOLL_CTL_ADD, server, events);
    }
    let over = event();
    control(set, libc::EPOLL_CTL_ADD, over, EPOLLIN);
    let left = Arc::new(AtomicU32::new(2 + 2));
    let leaves = move |left: &AtomicU32| {
        if left.fetch_sub(1, SeqCst) == 1 {
            close(set);
            close(over);
            ends.iter().flat_map(|(a, b)| [*a, *b]).for_each(close);
        }
    };
    let server = |left: Arc<AtomicU32>| -> Act {
        Box::new(move || {
            loop {
                let (fd, _) = wait(set);
                if fd == over {
                    break;
                }
                while let Some(byte) = get(fd) {
                    put(fd, byte);
                }
                if events & libc::EPOLLONESHOT as u32 != 0 {
                    control(set, libc::EPOLL_CTL_MOD, fd, events);
                }
            }
            leaves(&left);
        })
    };
    let speaking = Arc::new(AtomicU32::new(2));
    let client = |fd: RawFd, left: Arc<AtomicU32>| -> Act {
        let speaking = Arc::clone(&speaking);
        Box::new(move || {
            (0..ROUNDS).for_each(|round| ask(fd, round as u8));
            if speaking.fetch_sub(1, SeqCst) == 1 {
                signal(over);
            }
            leaves(&left);
        })
    };
    let acts = [server(Arc::clone(&left)), server(Arc::clone(&left))].into_iter();
    acts.chain(ends.map(|(fd, _)| client(fd, Arc::clone(&left)))).collect()
}

/// Who takes the first byte waits until somebody else has taken the second one of the same connection. Another thread
/// of the set must be woken, although the connection was ready before.
fn one_set_busy() -> Vec<Act> {
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let set = set_with(of_a);
    let over = event();
    control(set, libc::EPOLL_CTL_ADD, over, EPOLLIN);
    let left = Arc::new(AtomicU32::new(3));
    let server = |left: Arc<AtomicU32>| -> Act {
        set_flags(of_a, libc::O_NONBLOCK);
        Box::new(move || {
            loop {
                if wait_for_some::<4>(set).iter().any(|(fd, _)| *fd == over) {
                    break;
                }
                match get(of_a) {
                    Some(1) => {
                        put(of_a, 1);
                        assert_eq!(get(of_b), Some(3));
                    }
                    Some(byte) => put(of_a, byte),
                    None => {}
                }
            }
            if left.fetch_sub(1, SeqCst) == 1 {
                [of_a, of_b, set, over].into_iter().for_each(close);
            }
        })
    };
    let client = move || {
        for _ in 0..ROUNDS {
            ask(a, 1);
            ask(a, 2);
            put(b, 3);
        }
        signal(over);
        close(a);
        close(b);
    };
    vec![server(Arc::clone(&left)), server(Arc::clone(&left)), server(left), Box::new(client)]
}

/// One thread reads, one polls beside a descriptor of the kernel, one has a set; a fourth one speaks to each in turn.
fn mixed() -> Vec<Act> {
    let ends = [pair(), pair(), pair()];
    let [of_reader, of_poller, of_set] = ends.map(|(_, server)| server);
    let never = event();
    let poller = move || {
        loop {
            let mut fds = [of_poller, never].map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
            // SAFETY: locals.
            assert_eq!(check(unsafe { libc::poll(fds.as_mut_ptr(), 2, LONG) } as isize), 1, "a poll's time-out");
            let Some(byte) = get(of_poller) else { break };
            put(of_poller, byte);
        }
        close(of_poller);
        close(never);
    };
    let set = set_with(of_set);
    let client = move || speak(ends.map(|(fd, _)| fd));
    let reader = move || serve(of_reader);
    vec![Box::new(reader), Box::new(poller), Box::new(move || serve_in_set(set, of_set)), Box::new(client)]
}

/// One thread waits in a set within a set, one in a set of its own; a third one speaks.
fn nested() -> Vec<Act> {
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let (inner, outer) = (set_with(of_a), set());
    control(outer, libc::EPOLL_CTL_ADD, inner, EPOLLIN);
    let own = set_with(of_b);
    let server = move || {
        loop {
            assert_eq!(wait(outer).0, inner);
            assert_eq!(wait(inner).0, of_a);
            let Some(byte) = get(of_a) else { break };
            put(of_a, byte);
        }
        [of_a, inner, outer].into_iter().for_each(close);
    };
    let own = move || serve_in_set(own, of_b);
    vec![Box::new(server), Box::new(own), Box::new(move || speak([b, a]))]
}

/// One thread polls a set, and then asks it what is ready, as programs do whose loops are within others'.
fn polled_set() -> Vec<Act> {
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let (polled, own) = (set_with(of_a), set_with(of_b));
    let server = move || {
        loop {
            let mut fds = [pollfd { fd: polled, events: libc::POLLIN, revents: 0 }];
            // SAFETY: a local.
            assert_eq!(check(unsafe { libc::poll(fds.as_mut_ptr(), 1, LONG) } as isize), 1, "a poll's time-out");
            assert_eq!(wait(polled).0, of_a);
            let Some(byte) = get(of_a) else { break };
            put(of_a, byte);
        }
        [of_a, polled].into_iter().for_each(close);
    };
    let own = move || serve_in_set(own, of_b);
    vec![Box::new(server), Box::new(own), Box::new(move || speak([a, b]))]
}

/// A set of both kinds, whose thread is woken by either, beside a thread that only reads.
fn kernel_beside() -> Vec<Act> {
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let (kick, set) = (event(), set_with(of_a));
    control(set, libc::EPOLL_CTL_ADD, kick, EPOLLIN);
    let server = move || {
        loop {
            if wait(set).0 == kick {
                clear(kick);
                put(of_a, 99);
                continue;
            }
            let Some(byte) = get(of_a) else { break };
            put(of_a, byte);
        }
        [of_a, set, kick].into_iter().for_each(close);
    };
    let client = move || {
        for round in 0..ROUNDS {
            ask(a, round as u8);
            signal(kick);
            assert_eq!(get(a), Some(99));
            ask(b, round as u8);
        }
        close(a);
        close(b);
    };
    vec![Box::new(server), Box::new(move || serve(of_b)), Box::new(client)]
}

/// Two threads wait for connections of one listener, a third one makes them.
fn acceptors() -> Vec<Act> {
    let (listener, address) = listen();
    let left = Arc::new(AtomicU32::new(2));
    let server = |left: Arc<AtomicU32>| -> Act {
        Box::new(move || {
            loop {
                let fd = accept(listener);
                let byte = get(fd).unwrap();
                put(fd, byte);
                close(fd);
                if byte == u8::MAX {
                    break;
                }
            }
            if left.fetch_sub(1, SeqCst) == 1 {
                close(listener);
            }
        })
    };
    let client = move || {
        for byte in (0..ROUNDS as u8 - 2).chain([u8::MAX; 2]) {
            let fd = connect(address);
            ask(fd, byte);
            close(fd);
        }
    };
    vec![server(Arc::clone(&left)), server(left), Box::new(client)]
}

/// One thread waits for room, another one takes the bytes, a third one is spoken to meanwhile.
fn room() -> Vec<Act> {
    const BYTES: usize = 200_000;
    let [(a, of_a), (b, of_b)] = [pair(), pair()];
    let writer = move || {
        let bytes = vec![7u8; BYTES];
        // SAFETY: a local slice.
        assert_eq!(check(unsafe { libc::write(a, bytes.as_ptr().cast::<c_void>(), BYTES) }), BYTES);
        close(a);
    };
    let reader = move || {
        let (mut bytes, mut all) = (vec![0u8; 30_000], 0);
        loop {
            // SAFETY: a local slice.
            match check(unsafe { libc::read(of_a, bytes.as_mut_ptr().cast::<c_void>(), bytes.len()) }) {
                0 => break,
                got => all += got,
            }
            ask(b, all as u8);
        }
        assert_eq!(all, BYTES);
        close(of_a);
        close(b);
    };
    let set = set_with(of_b);
    vec![Box::new(writer), Box::new(reader), Box::new(move || serve_in_set(set, of_b))]
}

/// One thread waits for the daemon's answers, others for bytes.
fn requests() -> Vec<Act> {
    let (a, of_a) = pair();
    let asker = || {
        for _ in 0..ROUNDS {
            close(listen().0);
        }
    };
    let set = set_with(of_a);
    vec![Box::new(asker), Box::new(move || serve_in_set(set, of_a)), Box::new(move || speak([a]))]
}

/// Ends, and connections shut by another thread of the process, wake whoever waits.
fn ends() -> Vec<Act> {
    let connections = [pair(), pair(), pair()];
    let [of_reader, of_set, of_shut] = connections.map(|(_, server)| server);
    let reader = move || {
        assert_eq!(get(of_reader), None);
        close(of_reader);
    };
    let shut = move || {
        assert_eq!(get(of_shut), None);
        close(of_shut);
    };
    let set = set();
    control(set, libc::EPOLL_CTL_ADD, of_set, EPOLLIN | libc::EPOLLRDHUP as u32);
    let in_set = move || {
        assert_ne!(wait(set).1 & libc::EPOLLRDHUP as u32, 0);
        close(of_set);
        close(set);
    };
    let closer = move || {
        // SAFETY: plain calls.
        unsafe {
            check(libc::shutdown(of_shut, libc::SHUT_RD) as isize);
            check(libc::shutdown(connections[1].0, libc::SHUT_WR) as isize);
        }
        connections.iter().for_each(|(fd, _)| close(*fd));
    };
    vec![Box::new(reader), Box::new(in_set), Box::new(shut), Box::new(closer)]
}

/// Ends in a reset, where the call failed.
fn is_reset(result: isize) -> bool {
    let reset = [libc::ECONNRESET, libc::EPIPE];
    assert!(result >= 0 || reset.contains(&crate::system::errno::get()), "errno {}", crate::system::errno::get());
    result < 0
}

/// The daemon is gone, and the next one does not have the connections: that wakes whoever waits. The thread that saw it
/// first may never call again.
fn daemon_gone() -> Vec<Act> {
    let [(a, reads), (b, in_set), (writes, d)] = [pair(), pair(), pair()];
    let mut byte = 0u8;
    let reader = move || {
        // SAFETY: a local byte.
        assert!(is_reset(unsafe { libc::read(reads, (&raw mut byte).cast(), 1) }));
        close(reads);
    };
    let set = set_with(in_set);
    let in_set = move || {
        assert_ne!(wait(set).1 & libc::EPOLLERR as u32, 0);
        close(in_set);
        close(set);
    };
    let writer = move || {
        let bytes = vec![7u8; 50_000];
        // SAFETY: a local slice.
        while !is_reset(unsafe { libc::send(writes, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) }) {}
        close(writes);
    };
    let killer = move || {
        *CONTROL.dies.lock().unwrap() = Some(Death::WithAll);
        [a, b, d].into_iter().for_each(close);
    };
    vec![Box::new(reader), Box::new(in_set), Box::new(writer), Box::new(killer)]
}

/// A daemon is killed in the middle of conversations, and the next one goes on with them, or the one after it. So does
/// a listener.
fn daemon_killed(death: Death) -> Vec<Act> {
    let [(a, of_a), (b, of_b), (c, of_c)] = [pair(), pair(), pair()];
    let (listener, address) = listen();
    let speaker = move || {
        for round in 0..ROUNDS {
            if round == ROUNDS / 2 {
                *CONTROL.dies.lock().unwrap() = Some(death);
            }
            ask(a, round as u8);
            ask(b, round as u8);
        }
        [a, b].into_iter().for_each(close);
        speak([connect(address)]);
    };
    let reader = move || {
        assert_eq!(get(of_c), None);
        close(of_c);
    };
    let server = move || {
        serve(of_a);
        // What only waits meanwhile goes on as well.
        close(c);
    };
    let acceptor = move || {
        serve(accept(listener));
        close(listener);
    };
    let set = set_with(of_b);
    let in_set = move || serve_in_set(set, of_b);
    vec![Box::new(speaker), Box::new(server), Box::new(in_set), Box::new(reader), Box::new(acceptor)]
}
