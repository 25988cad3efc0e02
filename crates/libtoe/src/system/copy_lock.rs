//! One copy at a time where several processes share a connection.
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Polls of a taken lock between two checks whether its holder still lives.
const POLLS: u32 = 1000;

/// Held while one of several processes that share a connection copies. The word has the holder's process number, 0 for
/// none: one that is killed meanwhile must not keep the others out.
pub(crate) struct CopyLock {
    lock: *const AtomicU32,
}

impl CopyLock {
    /// Takes the lock, as soon as whoever has it is done or dead.
    pub(crate) fn new(lock: &AtomicU32) -> CopyLock {
        let me = std::process::id();
        let mut polls = 0u32;
        while let Err(holder) = lock.compare_exchange(0, me, Acquire, Relaxed) {
            polls = polls.wrapping_add(1);
            if polls % POLLS == 0 && is_dead(holder) {
                let _ = lock.compare_exchange(holder, 0, Relaxed, Relaxed);
            }
            crate::system::waking::yield_now();
        }
        CopyLock { lock }
    }
}

impl Drop for CopyLock {
    fn drop(&mut self) {
        // SAFETY: the region stays mapped while the library's lock is held, and this value never outlives that.
        unsafe { &*self.lock }.store(0, Release);
    }
}

/// Whether a process has ended, also where its parent, which may be the one that asks, has not been notified yet.
fn is_dead(process: u32) -> bool {
    // SAFETY: signal 0 only asks whether the process exists.
    if unsafe { libc::kill(process as i32, 0) } != 0 {
        return crate::system::errno::get() == libc::ESRCH;
    }
    // The state follows the name, which is in parentheses and may have some in it: proc(5).
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_killed_while_it_copied_keeps_nobody_out() {
        let lock = AtomicU32::new(0);
        // It ends at once, and its parent takes no completion before it asks for the lock.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        lock.store(child.id(), Relaxed);
        drop(CopyLock::new(&lock));
        assert_eq!(lock.load(Relaxed), 0);
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn one_that_lives_is_waited_for() {
        let lock = AtomicU32::new(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                assert_eq!(lock.swap(0, Release), 1);
            });
            drop(CopyLock::new(&lock));
        });
    }
}
