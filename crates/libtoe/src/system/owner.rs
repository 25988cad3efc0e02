//! Owners of sockets, which the kernel keeps with each socket's own kernel socket, and signals to them.
use crate::system::real;
use libc::{c_int, c_long, pid_t, siginfo_t, sigset_t};
use shm::system_call;
use std::os::fd::RawFd;

const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const OF_THREAD: c_int = 0;
const OF_PROCESS: c_int = 1;
/// What old Linux has in `si_code` of a signal for events: one that a process may send.
const SI_SIGIO: c_int = -5;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// `f_owner_ex` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Owner {
    kind: c_int,
    pid: pid_t,
}

/// A command of `fcntl` that gives a descriptor an owner, or changes its signal.
pub(crate) fn is_set_by(command: c_int) -> bool {
    matches!(command, libc::F_SETOWN | F_SETOWN_EX | F_SETSIG)
}

/// Likewise a request of `ioctl`.
pub(crate) fn is_set_by_request(request: u64) -> bool {
    matches!(request, FIOSETOWN | SIOCSPGRP)
}

fn of(fd: RawFd) -> Option<Owner> {
    let mut owner = Owner::default();
    // SAFETY: writes a local.
    let result = unsafe { real::fcntl(fd, F_GETOWN_EX, (&raw mut owner).expose_provenance() as u64) };
    (result == 0 && owner.pid > 0).then_some(owner)
}

/// Sends a signal to the owner, where there is one.
pub(crate) fn signal(fd: RawFd, signal: c_int) {
    let Some(Owner { kind, pid }) = of(fd) else { return };
    match kind {
        // SAFETY: a system call without pointers.
        OF_THREAD => drop(unsafe { system_call::raw(libc::SYS_tkill, [pid as usize, signal as usize, 0, 0, 0, 0]) }),
        // SAFETY: likewise.
        OF_PROCESS => drop(unsafe { libc::kill(pid, signal) }),
        // SAFETY: likewise.
        _ => drop(unsafe { libc::kill(-pid, signal) }),
    }
}

/// `siginfo_t` of a signal for events.
#[repr(C)]
struct EventInfo {
    signal: c_int,
    errno: c_int,
    code: c_int,
    /// The union is aligned to a word.
    _pad: c_int,
    band: c_long,
    fd: c_int,
    _rest: [u8; size_of::<siginfo_t>() - 28],
}

const _: () = assert!(size_of::<EventInfo>() == size_of::<siginfo_t>());

/// Sends `SIGIO` for events on a descriptor, or the signal of `F_SETSIG`, which has the descriptor and the events.
pub(crate) fn signal_events(fd: RawFd, events: u32) {
    // SAFETY: a plain call.
    let chosen = unsafe { real::fcntl(fd, F_GETSIG, 0) };
    if chosen <= 0 {
        return signal(fd, libc::SIGIO);
    }
    let Some(Owner { kind, pid }) = of(fd) else { return };
    let (code, band) = (SI_SIGIO, c_long::from(events));
    let info = EventInfo { signal: chosen, errno: 0, code, _pad: 0, band, fd, _rest: [0; _] };
    let (at, chosen) = ((&raw const info).expose_provenance(), chosen as usize);
    // SAFETY: the kernel reads a local.
    unsafe {
        match kind {
            OF_THREAD => {
                let process = std::process::id() as usize;
                system_call::raw(libc::SYS_rt_tgsigqueueinfo, [process, pid as usize, chosen, at, 0, 0]);
            }
            OF_PROCESS => drop(system_call::raw(libc::SYS_rt_sigqueueinfo, [pid as usize, chosen, at, 0, 0, 0])),
            _ => signal(fd, chosen as c_int),
        }
    }
}

const PRIVATE_EXPEDITED: usize = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;

/// To be called with the library's lock, after signals were sent. A thread of this process whose signal it is has it
/// before it can take the lock. Its handler then finds the lock free, or another thread's. For the barrier interrupts
/// every processor that runs a thread of the process, and an interrupted thread takes signals before it goes on.
pub(crate) fn settle() {
    let barrier = |command| {
        // SAFETY: a system call without pointers.
        unsafe { system_call::raw(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) }
    };
    if barrier(PRIVATE_EXPEDITED) != 0 {
        barrier(REGISTER_PRIVATE_EXPEDITED);
        barrier(PRIVATE_EXPEDITED);
    }
}

/// A thread's blocked signals.
pub(crate) struct Blocked(sigset_t);

/// Blocks all signals but faults and those that the C library keeps for itself: what this thread makes next begins so.
pub(crate) fn block_all() -> Blocked {
    // SAFETY: the sets are local.
    unsafe {
        let (mut all, mut before): (sigset_t, sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigdelset(&mut all, fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        Blocked(before)
    }
}

impl Blocked {
    /// As it was before.
    pub(crate) fn restore(self) {
        // SAFETY: the set that `block_all` saved.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
