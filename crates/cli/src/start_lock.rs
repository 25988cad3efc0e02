//! A lock among processes: one does its work, and the others that would disturb it wait.
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A lock that is held until it is dropped.
///
/// It is the abstract name of a UNIX socket. Such a name belongs to the network namespace, as addresses, routes and
/// devices do; every user can take it; and it is gone with its process. A lock on a file would need one that each user
/// may open. The kernel refuses to open another user's file in /tmp with O_CREAT (fs.protected_regular). Containers
/// that share a network namespace share no folder.
pub(crate) struct StartLock {
    _name: Option<UnixListener>,
}

impl StartLock {
    /// A daemon starts within this time. A process that waits longer goes on without the lock.
    const TIMEOUT: Duration = Duration::from_secs(10);

    /// The lock to start the daemon that a user's programs share: of one user's processes in a network namespace, one
    /// has it.
    pub(crate) fn of_user() -> StartLock {
        let own = rustix::process::geteuid().as_raw();
        // Any user can take any name: one of another's is no reason to wait.
        StartLock::take(&format!("opentoe-run-{own}"), Self::TIMEOUT, |name| held_by(name, own))
    }

    /// The lock to choose a free network and to start the daemon that takes it. Of all processes in a network
    /// namespace, one has it, because the kernel has one table of routes for all users. A user who keeps the name
    /// delays the others by the time limit, and no longer.
    pub(crate) fn of_network() -> StartLock {
        StartLock::take("opentoe-run-network", Self::TIMEOUT, |_| true)
    }

    /// Waits as long as the holder of the name is one to wait for.
    fn take(name: &str, limit: Duration, waits: impl Fn(&SocketAddr) -> bool) -> StartLock {
        let Ok(name) = SocketAddr::from_abstract_name(name) else {
            return StartLock { _name: None };
        };
        let begin = Instant::now();
        loop {
            match UnixListener::bind_addr(&name) {
                Ok(listener) => return StartLock { _name: Some(listener) },
                Err(_) if begin.elapsed() > limit || !waits(&name) => return StartLock { _name: None },
                Err(_) => sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// The name is taken by a process of this user, or nobody has it any more.
fn held_by(name: &SocketAddr, own: u32) -> bool {
    UnixStream::connect_addr(name)
        .map_or(true, |holder| shm::handover::credentials(holder.as_fd()).is_ok_and(|holder| holder.uid == own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// A name that no other test has.
    fn name(what: &str) -> String {
        format!("opentoe-test-{}-{what}", std::process::id())
    }

    #[test]
    fn one_has_the_lock_and_the_others_have_it_after_it() {
        let (name, inside) = (name("order"), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let lock = StartLock::take(&name, Duration::from_secs(60), |_| true);
                    assert!(lock._name.is_some());
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have the lock");
                    sleep(Duration::from_millis(20));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }

    #[test]
    fn no_wait_is_endless_or_for_an_unknown_process() {
        let name = name("time-limit");
        let first = StartLock::take(&name, Duration::ZERO, |_| true);
        assert!(first._name.is_some());
        let begin = Instant::now();
        assert!(StartLock::take(&name, Duration::from_millis(30), |_| true)._name.is_none());
        assert!(begin.elapsed() >= Duration::from_millis(30));
        assert!(StartLock::take(&name, Duration::from_secs(3600), |_| false)._name.is_none());
        drop(first);
        assert!(StartLock::take(&name, Duration::ZERO, |_| true)._name.is_some());
    }
}
