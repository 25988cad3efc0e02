//! Cost of a short connection in the programs at both ends: `connect` without waiting, `accept4`, `close`. All is on
//! one thread, on the tests' stand-in for the daemon.
//!
//! ```text
//! LD_PRELOAD=target/release/libtoe.so TOE_SOCKET=/tmp/short target/release/examples/short \
//!     [connections at once, 16 at most] [ignored] [rounds]
//! ```
//!
//! Each call is in a function named after it: `bench/instructions` counts under callgrind what each costs.
#[path = "../tests/loop_host/mod.rs"]
mod loop_host;

use loop_host::{ADDRESS, LoopHost};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

/// Opens a connection, which is there later.
#[inline(never)]
fn path_connect(address: &libc::sockaddr_in) -> RawFd {
    // SAFETY: plain calls; the address outlives them.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        let connected = libc::connect(fd, (&raw const *address).cast(), size_of_val(address) as libc::socklen_t);
        assert!(fd >= 0 && connected < 0 && *libc::__errno_location() == libc::EINPROGRESS);
        fd
    }
}

/// Takes a connection that waits.
#[inline(never)]
fn path_accept(listener: RawFd) -> RawFd {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: a plain call; no address is asked for.
    unsafe { libc::accept4(listener, std::ptr::null_mut(), std::ptr::null_mut(), flags) }
}

/// Closes an end.
#[inline(never)]
fn path_close(fd: RawFd) {
    // SAFETY: a descriptor of this program.
    assert_eq!(unsafe { libc::close(fd) }, 0);
}

fn main() {
    let arguments: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [many, _, rounds] = [0, 1, 2].map(|i| arguments.get(i).copied().unwrap_or([16, 64, 200][i]));
    let Some(path) = std::env::var_os("TOE_SOCKET").filter(|_| std::env::var_os("LD_PRELOAD").is_some()) else {
        eprintln!("short: to be run with LD_PRELOAD=.../libtoe.so and TOE_SOCKET=a path for the stand-in's socket");
        std::process::exit(2);
    };
    let mut host = LoopHost::start(path.as_ref());
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    listener.set_nonblocking(true).expect("a socket");
    let Ok(SocketAddr::V4(local)) = listener.local_addr() else { panic!("an address of IPv4") };
    host.pause();
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: local.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*local.ip()).to_be() },
        sin_zero: [0; 8],
    };
    // The first one reports that the program accepts.
    assert_eq!(path_accept(listener.as_raw_fd()), -1);
    for _ in 0..rounds {
        let clients: Vec<RawFd> = (0..many).map(|_| path_connect(&address)).collect();
        host.step();
        let servers: Vec<RawFd> = (0..many).map(|_| path_accept(listener.as_raw_fd())).collect();
        assert!(servers.iter().all(|fd| *fd >= 0), "all are there");
        host.step();
        servers.into_iter().chain(clients).for_each(path_close);
        host.step();
    }
    // Ending would wait for the stand-in, which is stopped.
    std::process::exit(0);
}
