//! `poll` and `select` over any mix of OpenTOE sockets, epoll sets and the kernel's descriptors.
use crate::calls::waiting;
use crate::daemon::share;
use crate::lock::Guard;
use crate::state::{Lib, events, readiness};
use crate::system::errno::Result;
use crate::table::{self, Entry};
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use libc::{c_short, pollfd, sigset_t};
use std::time::Instant;

/// True where the kernel alone can answer.
pub(crate) fn is_kernels(fds: &[pollfd]) -> bool {
    !fds.iter().any(|fd| matches!(table::get(fd.fd), Entry::Socket(_) | Entry::Set(_)))
}

/// `ppoll`. Fills in `revents` and returns how many are not zero.
pub(crate) fn poll(
    lib: &mut Guard,
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    mask: Option<sigset_t>,
) -> Result<usize> {
    let targets = targets_of(lib, fds)?;
    let kernel = kernel_part(lib, fds);
    share::give_up_unclaimed(lib);
    let wait = WaitOptions { deadline, targets: &targets, kernel, signals: Signals::Interrupt, mask };
    let found = waiting::until(lib, wait, |lib, kernel| {
        let ready = fill_in(lib, fds, kernel);
        (ready > 0).then_some(ready)
    });
    match found {
        Err(libc::ETIMEDOUT) => Ok(0),
        found => found,
    }
}

/// What is ours among the descriptors; each listener is armed, each shared connection claimed.
fn targets_of(lib: &mut Guard, fds: &[pollfd]) -> Result<Vec<Target>> {
    let mut targets = Vec::with_capacity(fds.len());
    for fd in fds {
        if let Some(key) = lib.socket_of(fd.fd) {
            lib.request_events(key);
            share::claim(lib, key)?;
            targets.push(Target::Socket(key));
        } else if let Some(key) = lib.set_of(fd.fd) {
            targets.push(Target::Set(key));
        }
    }
    Ok(targets)
}

/// The same list for the kernel: OpenTOE sockets are left out, in their places.
fn kernel_part(lib: &mut Lib, fds: &[pollfd]) -> Vec<pollfd> {
    let is_kernels = |lib: &mut Lib, fd: i32| match lib.socket_of(fd) {
        Some(key) => lib.socket(key).is_some_and(|socket| socket.listens_in_kernel()),
        None => true,
    };
    let part =
        |fd: &pollfd| pollfd { fd: if is_kernels(lib, fd.fd) { fd.fd } else { -1 }, events: fd.events, revents: 0 };
    let kernel: Vec<pollfd> = fds.iter().map(part).collect();
    if kernel.iter().all(|fd| fd.fd < 0) { Vec::new() } else { kernel }
}

fn fill_in(lib: &mut Lib, fds: &mut [pollfd], kernel: Option<&[pollfd]>) -> usize {
    let mut ready = 0;
    for (i, fd) in fds.iter_mut().enumerate() {
        fd.revents = kernel.and_then(|kernel| kernel.get(i)).map_or(0, |kernel| kernel.revents);
        if let Some(key) = lib.socket_of(fd.fd) {
            let wanted = fd.events as u16 as u32;
            let bits = lib.socket(key).map_or(0, |socket| readiness::among(socket, wanted));
            fd.revents |= bits as c_short;
        } else if let Some(key) = lib.set_of(fd.fd) {
            if lib.set_is_ready(key) {
                fd.revents |= events::IN as c_short & fd.events;
            }
        }
        ready += (fd.revents != 0) as usize;
    }
    ready
}
