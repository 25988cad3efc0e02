//! The processes for which a daemon was started: it ends when all of them have ended and no program is attached.
use rustix::event::{Timespec, epoll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most owners after the first one: each costs a descriptor.
const MAX_OWNERS: usize = 1024;

/// The owners of a daemon. Threads that answer questions add to them; the main thread polls them.
pub(crate) struct Owners {
    /// Readable when an owner has ended.
    ended: OwnedFd,
    state: Mutex<State>,
    shared: bool,
}

struct State {
    alive: Vec<(i32, OwnedFd)>,
    /// Where they are written down, for a daemon that takes the place of this one.
    list: Option<File>,
    /// The daemon ends: no process can become an owner any more.
    closed: bool,
}

impl Owners {
    /// Begins with one process. Where it is `shared`, further ones may join. All are written down beside the daemon's
    /// socket. Where there is no `first`, the daemon takes the place of one that was killed: its owners are those of
    /// that one that are left, perhaps none. The error is a sentence.
    pub(crate) fn at(socket: &Path, first: Option<i32>, shared: bool) -> Result<Owners, String> {
        let path = list_path(socket);
        let before = if first.is_none() { fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let ended = epoll::create(epoll::CreateFlags::CLOEXEC);
        let ended = ended.map_err(|e| format!("the daemon cannot watch its owner: {e}"))?;
        let list = File::options().write(true).create(true).truncate(true).mode(0o600).open(path).ok();
        let owners = Owners { ended, state: Mutex::new(State { alive: Vec::new(), list, closed: false }), shared };
        {
            let mut state = owners.state();
            for pid in before.lines().filter_map(|line| line.parse().ok()) {
                // A process that has ended meanwhile is none any more.
                let _ = owners.add(&mut state, pid);
            }
            if let Some(first) = first {
                owners.add(&mut state, first)?;
            }
        }
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
        if let Some(list) = &mut state.list {
            // Where that fails, the next daemon does not have this one.
            let _ = writeln!(list, "{pid}");
        }
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

    /// No owner is left.
    pub(crate) fn none(&self) -> bool {
        self.state().alive.is_empty()
    }

    /// Where no owner is left, none can join from now on; returns whether it is so.
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

/// The file beside a daemon's socket with the process numbers of its owners.
fn list_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".owners");
    path.into()
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

    /// Of a daemon at a socket whose folder is not there: nothing is written down.
    fn owners_of(first: i32, shared: bool) -> Result<Owners, String> {
        Owners::at(Path::new("/nowhere/socket"), Some(first), shared)
    }

    #[test]
    fn a_daemon_is_kept_until_the_last_owner_has_ended() {
        let (first, second) = (sleeper(), sleeper());
        let owners = owners_of(first.id() as i32, true).unwrap();
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
    fn a_daemon_that_takes_the_place_of_a_killed_one_has_its_owners() {
        let directory = std::env::temp_dir().join(format!("toe-owners-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let socket = directory.join("socket");
        let (first, second, third) = (sleeper(), sleeper(), sleeper());
        let pids = [&first, &second, &third].map(|child| child.id() as i32);
        let owners = Owners::at(&socket, Some(pids[0]), true).unwrap();
        owners.join(pids[1]).unwrap();
        end(first);
        // It was killed.
        std::mem::forget(owners);
        let next = Owners::at(&socket, None, true).unwrap();
        assert_eq!(next.pids(), [pids[1]]);
        next.join(pids[2]).unwrap();
        let later = Owners::at(&socket, None, true).unwrap();
        assert_eq!(later.pids(), [pids[1], pids[2]]);
        end(second);
        end(third);
        assert!(Owners::at(&socket, None, true).unwrap().none());
        assert!(Owners::at(&socket, Some(pids[0]), true).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_process_that_has_ended_or_is_hidden_is_no_owner() {
        assert!(owners_of(0, true).unwrap_err().contains("another PID namespace"));
        let child = sleeper();
        let pid = child.id() as i32;
        end(child);
        assert!(owners_of(pid, false).unwrap_err().starts_with("the daemon's owner is not there: "));
        let own = owners_of(std::process::id() as i32, false).unwrap();
        assert_eq!(own.join(1), Err("this daemon belongs to one program".into()));
    }
}
