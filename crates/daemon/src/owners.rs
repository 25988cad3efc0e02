//! The processes for which a daemon was started: it ends when all of them have ended and nobody is attached.
use rustix::event::{Timespec, epoll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Who may become an owner after the first one: each costs a descriptor.
const MAX_OWNERS: usize = 1024;

/// The owners of a daemon. Threads that answer questions add to them, the main thread looks who is left.
pub(crate) struct Owners {
    /// Readable when an owner has ended.
    ended: OwnedFd,
    state: Mutex<State>,
    shared: bool,
}

struct State {
    alive: Vec<(i32, OwnedFd)>,
    /// The daemon ends: nobody can become an owner any more.
    closed: bool,
}

impl Owners {
    /// Begins with one process. Where it is `shared`, further ones may join. The error is a sentence.
    pub(crate) fn new(first: i32, shared: bool) -> Result<Owners, String> {
        let ended = epoll::create(epoll::CreateFlags::CLOEXEC);
        let ended = ended.map_err(|e| format!("the daemon cannot watch its owner: {e}"))?;
        let owners = Owners { ended, state: Mutex::new(State { alive: Vec::new(), closed: false }), shared };
        owners.add(&mut owners.state(), first)?;
        Ok(owners)
    }

    /// Readable when an owner has ended, until [`Owners::reap`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Programs may join.
    pub(crate) fn shared(&self) -> bool {
        self.shared
    }

    /// One more process keeps the daemon. The error is a sentence.
    pub(crate) fn join(&self, pid: i32) -> Result<(), String> {
        let mut state = self.state();
        if !self.shared {
            return Err("this daemon belongs to one program".into());
        }
        if state.closed {
            return Err("this daemon ends".into());
        }
        if state.alive.len() >= MAX_OWNERS {
            return Err(format!("{MAX_OWNERS} programs keep this daemon; that is the limit"));
        }
        self.add(&mut state, pid)
    }

    fn add(&self, state: &mut State, pid: i32) -> Result<(), String> {
        if state.alive.iter().any(|(known, _)| *known == pid) {
            return Ok(());
        }
        let process = Pid::from_raw(pid).ok_or("the daemon's owner is in another PID namespace")?;
        let gone = |e: rustix::io::Errno| format!("the daemon's owner is not there: {e}");
        let process = pidfd_open(process, PidfdFlags::empty()).map_err(gone)?;
        epoll::add(&self.ended, &process, epoll::EventData::new_u64(pid as u64), epoll::EventFlags::IN)
            .map_err(gone)?;
        state.alive.push((pid, process));
        Ok(())
    }

    /// Forgets those that have ended. Closing their descriptors also takes them out of the epoll set.
    pub(crate) fn reap(&self) {
        let mut state = self.state();
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        while let Ok(count @ 1..) = epoll::wait(&self.ended, &mut events[..], Some(&Timespec::default())) {
            let ended = |pid: i32| events[..count].iter().any(|event| event.data.u64() == pid as u64);
            state.alive.retain(|(pid, _)| !ended(*pid));
        }
    }

    /// The owners that are left.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.state().alive.iter().map(|(pid, _)| *pid).collect()
    }

    /// Nobody is left.
    pub(crate) fn none(&self) -> bool {
        self.state().alive.is_empty()
    }

    /// Where nobody is left, nobody can join from now on; returns whether it is so.
    pub(crate) fn close_if_none(&self) -> bool {
        let mut state = self.state();
        state.closed |= state.alive.is_empty();
        state.closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one step: a thread that panicked left nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Owners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owners").field("pids", &self.pids()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_daemon_is_kept_until_the_last_owner_has_ended() {
        let (first, second) = (sleeper(), sleeper());
        let owners = Owners::new(first.id() as i32, true).unwrap();
        owners.join(second.id() as i32).unwrap();
        owners.join(second.id() as i32).unwrap();
        assert_eq!(owners.pids(), [first.id() as i32, second.id() as i32]);
        end(first);
        owners.reap();
        assert_eq!(owners.pids(), [second.id() as i32]);
        assert!(!owners.none() && !owners.close_if_none());
        end(second);
        owners.reap();
        assert!(owners.none() && owners.close_if_none());
        let late = sleeper();
        assert_eq!(owners.join(late.id() as i32), Err("this daemon ends".into()));
        end(late);
    }

    #[test]
    fn who_has_ended_or_cannot_be_seen_is_no_owner() {
        assert!(Owners::new(0, true).unwrap_err().contains("another PID namespace"));
        let child = sleeper();
        let pid = child.id() as i32;
        end(child);
        assert!(Owners::new(pid, false).unwrap_err().starts_with("the daemon's owner is not there: "));
        let own = Owners::new(std::process::id() as i32, false).unwrap();
        assert_eq!(own.join(1), Err("this daemon belongs to one program".into()));
    }
}
