//! The thread that raises signals to the owners of sockets: `SIGURG` (`F_SETOWN`) and `SIGIO` (`O_ASYNC`).
//!
//! The thread that takes completions in notes on the socket which signals are pending, and wakes this one. It takes
//! them in itself while no other thread of the program is in the library. A process has it from the first socket on
//! that raises signals.
use crate::lock;
use crate::lock::Guard;
use crate::state::Lib;
use crate::state::signals::Signals;
use crate::state::slab::Key;
use crate::state::socket::Socket;
use crate::system::errno::{self, Result};
use crate::system::{owner, sharing, waking};
use crate::wait::rounds::Rounds;
use crate::wait::{Target, WaitOptions, thread};
use libc::c_int;
use std::os::fd::RawFd;
use std::sync::mpsc;

/// A stack for what the library does: nothing of the program's runs on it.
const STACK: usize = 128 << 10;

/// The program has given a socket an owner.
pub(crate) fn owned(lib: &mut Guard, key: Key) -> Result<c_int> {
    raise_for(lib, key, Signals::have_owner)
}

/// The program has set `O_ASYNC` on a socket, or taken it off.
pub(crate) fn asynchronous(lib: &mut Guard, key: Key, on: bool) -> Result<c_int> {
    let was_there = lib.need_socket(key)?.signals.are_there();
    if !on && !was_there {
        return Ok(0);
    }
    raise_for(lib, key, |signals| signals.report_events(on))
}

fn raise_for(lib: &mut Guard, key: Key, change: impl FnOnce(&mut Signals)) -> Result<c_int> {
    start(lib)?;
    let wake = lib.signaller.wake;
    let socket = lib.need_socket(key)?;
    let was_there = socket.signals.are_there();
    change(&mut socket.signals);
    if let Some(wake) = wake.filter(|_| !was_there) {
        listen(lib, key, wake);
        waking::wake(wake);
    }
    Ok(0)
}

/// All events of a socket wake the thread from now on.
fn listen(lib: &mut Lib, key: Key, wake: RawFd) {
    lib.socket(key).into_iter().for_each(|socket| socket.waiters.push(wake));
    lib.signaller.changes = lib.signaller.changes.wrapping_add(1);
}

/// After fork: the parent's thread is not here. Its sockets raise signals in the child, too.
pub(crate) fn start_in_child(lib: &mut Guard) {
    lib.signaller.wake = None;
    let owned = targets(lib);
    if owned.is_empty() || start(lib).is_err() {
        return;
    }
    let Some(wake) = lib.signaller.wake else { return };
    for target in owned {
        if let Target::Socket(key) = target {
            listen(lib, key, wake);
        }
    }
}

/// Starts the thread, where it is not there. Not under a filter of system calls, which may kill a process that starts
/// one, nor in a child that has its parent's memory.
fn start(lib: &mut Guard) -> Result<()> {
    if lib.signaller.wake.is_some() || waking::is_confined() || sharing::is_child() {
        return Ok(());
    }
    let (answer, answered) = mpsc::sync_channel(1);
    // The number of threads must not change while the lock is held.
    let started = lib.unlocked(|| {
        let blocked = owner::block_all();
        let thread = std::thread::Builder::new().name("libtoe signals".into()).stack_size(STACK);
        let thread = thread.spawn(move || {
            let wake = thread::wake_fd();
            let is_fine = wake.is_ok();
            let _ = answer.send(wake);
            if is_fine {
                run();
            }
        });
        blocked.restore();
        thread.map_err(|_| libc::EAGAIN).and_then(|_| answered.recv().unwrap_or(Err(libc::EAGAIN)))
    });
    lib.signaller.wake = Some(started?);
    Ok(())
}

fn run() {
    let Ok(mut lib) = lock::lock() else { return };
    let (mut targets, mut seen) = (Vec::new(), None);
    loop {
        if seen != Some(lib.signaller.changes) {
            seen = Some(lib.signaller.changes);
            targets = self::targets(&mut lib);
        }
        let found = |lib: &mut Lib| {
            let pending = |target: &Target| match target {
                Target::Socket(key) => lib.socket(*key).is_some_and(|socket| socket.signals.are_pending()),
                _ => false,
            };
            targets.iter().any(pending) || seen != Some(lib.signaller.changes)
        };
        let wait = WaitOptions { targets: &targets, ..WaitOptions::forever() };
        let poll = |lib: &mut Lib, _: Option<&[libc::pollfd]>| found(lib).then_some(());
        if (Rounds { wait, prepare: |_: &mut Guard, _: &[Target]| Ok(()), poll }).until(&mut lib).is_err() {
            // Without descriptors to sleep on: the next socket that is given an owner starts another one.
            lib.signaller.wake = None;
            return;
        }
        for target in &targets {
            if let Target::Socket(key) = target {
                lib.socket(*key).into_iter().for_each(raise);
            }
        }
        owner::settle();
    }
}

/// The sockets that raise signals.
fn targets(lib: &mut Lib) -> Vec<Target> {
    let indices = lib.sockets.indices();
    let raises = |index: usize| lib.sockets.get(index).is_some_and(|socket| socket.signals.are_there());
    indices
        .into_iter()
        .filter(|index| raises(*index))
        .filter_map(|index| lib.key_of(index))
        .map(Target::Socket)
        .collect()
}

fn raise(socket: &mut Socket) {
    let (urgent, events) = socket.signals.take();
    let errno = errno::get();
    if urgent {
        owner::signal(socket.fd, libc::SIGURG);
    }
    if events != 0 {
        owner::signal_events(socket.fd, events);
    }
    errno::set(errno);
}
