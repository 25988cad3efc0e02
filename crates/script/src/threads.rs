//! Blocked threads of the runner. Virtual time passes only while all threads stand still but the one that
//! lets it pass. So what a script finds does not depend on how the kernel schedules the runner's threads.
//!
//! A thread stands still where it waits in a call and has taken in all that changed. It also does where it is outside
//! and sleeps until another thread of the process wakes it (futex(2): locks, condition variables, joins). packetdrill's
//! main thread does the latter while it waits for the end of a call that its other thread makes. A thread that sleeps
//! in another system call, say for a shell command, goes on by itself and does not count.
use std::collections::BTreeMap;
use std::fs;

/// The kernel's number of a thread.
pub(crate) type Thread = i32;

/// What a thread does, as the calls show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It is outside, or in a call that does not wait.
    Acts,
    /// It waits in a call: the number of changes that it has seen, and when its call is over in any case, nanoseconds.
    Waits { seen: u64, until: Option<u64> },
    /// It is about to let time pass, once all others stand still.
    Passes,
}

/// What all threads but one do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Others {
    /// They stand still.
    Stand,
    /// One or more sleep in system calls that end by themselves, if ever; the others stand still.
    Sleep,
    /// One or more are on their way: they run, want a core, or are about to see a change.
    Go,
}

/// All threads that have called.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    known: BTreeMap<Thread, Doing>,
    /// Number of the last change of anything.
    changes: u64,
    /// The thread that made the last calls, where all of these were looks at the clock, and how many.
    clock_reads: Option<(Thread, u64)>,
}

/// The calling thread.
pub(crate) fn current() -> Thread {
    // SAFETY: a plain system call.
    unsafe { libc::gettid() }
}

impl Threads {
    /// The thread begins a call.
    pub(crate) fn acts(&mut self, thread: Thread) {
        self.known.insert(thread, Doing::Acts);
        self.clock_reads = None;
    }

    /// The thread begins a look at the clock; how many it made before without another call between.
    pub(crate) fn clock_reads(&mut self, thread: Thread) -> u64 {
        self.known.insert(thread, Doing::Acts);
        let before = self.clock_reads.filter(|(last, _)| *last == thread).map_or(0, |(_, looks)| looks);
        self.clock_reads = Some((thread, before + 1));
        before
    }

    /// The thread waits for a change after this one, at most until then.
    pub(crate) fn waits(&mut self, thread: Thread, until: Option<u64>) {
        self.known.insert(thread, Doing::Waits { seen: self.changes, until });
    }

    /// The thread is about to let time pass.
    pub(crate) fn passes(&mut self, thread: Thread) {
        self.known.insert(thread, Doing::Passes);
    }

    /// Something changed that threads may wait for.
    pub(crate) fn change(&mut self) {
        self.changes += 1;
    }

    /// The number of the last change.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// The first time after `now` at which a call that waits is over.
    pub(crate) fn earliest_end(&self, now: u64) -> Option<u64> {
        let ends = self.known.values().filter_map(|doing| match doing {
            Doing::Waits { until, .. } => *until,
            _ => None,
        });
        ends.filter(|end| *end > now).min()
    }

    /// All others stand still, or are about to let time pass themselves.
    pub(crate) fn others_stand(&mut self, thread: Thread) -> Others {
        self.others(thread, true)
    }

    /// All others stand still, and none of them is about to let time pass: they wait for this one.
    pub(crate) fn others_wait_for(&mut self, thread: Thread) -> Others {
        self.others(thread, false)
    }

    fn others(&mut self, thread: Thread, may_pass: bool) -> Others {
        let changes = self.changes;
        let mut most = Others::Stand;
        self.known.retain(|other, doing| {
            let stands = |stands| Some(if stands { Others::Stand } else { Others::Go });
            let does = match doing {
                _ if *other == thread => stands(true),
                Doing::Passes => stands(may_pass),
                Doing::Waits { seen, .. } => stands(*seen == changes),
                Doing::Acts => outside(*other),
            };
            most = most.max(does.unwrap_or(Others::Stand));
            does.is_some()
        });
        most
    }
}

/// What a thread outside the calls does; none where it exists no more.
fn outside(thread: Thread) -> Option<Others> {
    let read = |file: &str| fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
    let before = match read("syscall") {
        Ok(before) => before,
        // It may end before the file is opened, or after.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => return None,
        Err(_) => return Some(Others::Go),
    };
    // A thread that was just woken on another core still shows the system call that it slept in, but not that it
    // sleeps. Between the two files it may have gone on to another call.
    let asleep = read("stat").is_ok_and(|stat| is_asleep(&stat)) && read("syscall").is_ok_and(|after| after == before);
    Some(match asleep {
        true if sleeps_for_thread(&before) => Others::Stand,
        true => Others::Sleep,
        false => Others::Go,
    })
}

/// What proc(5) shows of a thread's system call: its number and arguments, or that it runs.
fn sleeps_for_thread(text: &str) -> bool {
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    matches!(number, Some(libc::SYS_futex | libc::SYS_futex_waitv))
}

/// The state behind the name, which is in parentheses and may be anything.
fn is_asleep(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    fn until_others_wait(threads: &mut Threads) -> bool {
        (0..60_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            threads.others_wait_for(current()) == Others::Stand
        })
    }

    #[test]
    fn a_thread_stands_still_where_only_another_thread_can_wake_it() {
        let (sender, receiver) = mpsc::channel();
        let (ask, asked) = mpsc::channel::<()>();
        let seen = Arc::new(AtomicBool::new(false));
        let was_seen = Arc::clone(&seen);
        let mut threads = Threads::default();
        threads.acts(current());
        let other = thread::spawn(move || {
            sender.send(current()).unwrap();
            // Asleep until the channel closes, then until time has passed.
            asked.recv().unwrap_err();
            while !was_seen.load(Relaxed) {
                thread::sleep(Duration::from_millis(300));
            }
        });
        threads.acts(receiver.recv().unwrap());
        assert!(until_others_wait(&mut threads));
        drop(ask);
        thread::sleep(Duration::from_millis(100));
        assert_ne!(threads.others_wait_for(current()), Others::Stand, "it sleeps, and wakes by itself");
        seen.store(true, Relaxed);
        other.join().unwrap();
        // The kernel wakes who joins before it removes the thread.
        assert!(until_others_wait(&mut threads), "it is gone");
    }

    #[test]
    fn a_thread_that_waits_must_have_seen_the_last_change() {
        let mut threads = Threads::default();
        threads.waits(1, Some(70));
        assert_eq!(threads.others_wait_for(2), Others::Stand);
        threads.change();
        assert_eq!(threads.others_wait_for(2), Others::Go);
        threads.waits(1, Some(70));
        threads.passes(3);
        assert_eq!((threads.others_stand(2), threads.others_wait_for(2)), (Others::Stand, Others::Go));
        assert_eq!([threads.earliest_end(60), threads.earliest_end(70)], [Some(70), None]);
    }

    #[test]
    fn clock_reads_count_while_nothing_else_is_called() {
        let mut threads = Threads::default();
        assert_eq!(
            [threads.clock_reads(1), threads.clock_reads(1), threads.clock_reads(2), threads.clock_reads(1)],
            [0, 1, 0, 0]
        );
        threads.acts(1);
        assert_eq!(threads.clock_reads(1), 0);
    }
}
