//! Cost of a socket call. Requests and replies go on many connections, as memcached makes them, on the tests' stand-in
//! for the daemon, all on one thread.
//!
//! ```text
//! LD_PRELOAD=target/release/libtoe.so TOE_SOCKET=/tmp/calls target/release/examples/calls \
//!     [connections] [payload bytes] [rounds]
//! ```
//!
//! Each call is in a function named after it: `bench/instructions` counts under callgrind what each costs.
#[path = "../tests/loop_host/mod.rs"]
mod loop_host;

use libc::{c_int, epoll_event};
use loop_host::{ADDRESS, LoopHost};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

/// Waits for whatever is ready; returns the descriptors.
#[inline(never)]
fn path_epoll(set: RawFd, events: &mut [epoll_event]) -> &[epoll_event] {
    // SAFETY: a slice of events and its length.
    let found = unsafe { libc::epoll_wait(set, events.as_mut_ptr(), events.len() as c_int, -1) };
    &events[..found.max(0) as usize]
}

/// Reads a request that is there.
#[inline(never)]
fn path_recv(fd: RawFd, buffer: &mut [u8]) -> isize {
    // SAFETY: a buffer and its length.
    unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }
}

/// Reads where nothing is: servers read until they get EAGAIN.
#[inline(never)]
fn path_again(fd: RawFd, buffer: &mut [u8]) -> isize {
    // SAFETY: as above.
    unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) }
}

/// Sends a reply of two pieces.
#[inline(never)]
fn path_send(fd: RawFd, reply: &[u8]) -> isize {
    let (head, body) = reply.split_at(reply.len() / 2);
    let mut pieces =
        [head, body].map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
    // SAFETY: a message of two pieces that outlive the call; zero is valid for the rest of it.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len();
        libc::sendmsg(fd, &message, 0)
    }
}

fn connect(connections: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let dial = std::thread::spawn(move || {
        let dial = |_| TcpStream::connect(address).expect("a connection");
        (0..connections).map(dial).collect::<Vec<_>>()
    });
    let accepted: Vec<TcpStream> = (0..connections).map(|_| listener.accept().expect("a connection").0).collect();
    dial.join().expect("no panic").into_iter().zip(accepted).collect()
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [connections, bytes, rounds] = [0, 1, 2].map(|i| arguments.get(i).copied().unwrap_or([64, 64, 200][i]));
    let Some(path) = std::env::var_os("TOE_SOCKET").filter(|_| std::env::var_os("LD_PRELOAD").is_some()) else {
        eprintln!("calls: to be run with LD_PRELOAD=.../libtoe.so and TOE_SOCKET=a path for the stand-in's socket");
        std::process::exit(2);
    };
    let mut host = LoopHost::start(path.as_ref());
    let mut pairs = connect(connections);
    host.pause();
    // SAFETY: plain calls; the events are local.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    for (_, server) in &pairs {
        server.set_nonblocking(true).expect("a socket");
        let mut event = epoll_event { events: libc::EPOLLIN as u32, u64: server.as_raw_fd() as u64 };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, server.as_raw_fd(), &mut event) }, 0);
    }
    let (mut message, mut buffer) = (vec![7; bytes], vec![0; 16384]);
    let mut events = vec![epoll_event { events: 0, u64: 0 }; connections];
    for _ in 0..rounds {
        for (client, _) in &mut pairs {
            client.write_all(&message).expect("room");
        }
        host.step();
        let ready = path_epoll(set, &mut events);
        assert_eq!(ready.len(), connections);
        for event in ready {
            let fd = event.u64 as RawFd;
            assert_eq!(path_recv(fd, &mut buffer), bytes as isize);
            assert_eq!(path_again(fd, &mut buffer), -1);
            assert_eq!(path_send(fd, &buffer[..bytes]), bytes as isize);
        }
        host.step();
        for (client, _) in &mut pairs {
            client.read_exact(&mut message).expect("a reply");
        }
    }
    // Closing them would wait for the stand-in, which is stopped.
    std::process::exit(0);
}
