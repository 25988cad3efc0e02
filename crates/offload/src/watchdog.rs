//! The watchdog: a function that does not wait keeps its thread, so nothing but the end of the process stops it. The
//! supervisor starts the others again, without the library that is to blame.
use crate::status::{Status, Stuck, now};
use crate::wake::Wake;
use rustix::process::{Signal, getpid, kill_process};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Time between two polls while a thread is awake.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A function that does not use the processor is ended after so many times its time.
const MOST_TIMES: u64 = 10;

/// Where threads report that they are awake.
#[derive(Default)]
pub(crate) struct Watchdog {
    awake: Mutex<bool>,
    bell: Condvar,
}

impl Watchdog {
    /// A thread is awake.
    pub(crate) fn wake(&self) {
        *self.awake.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    /// Starts the thread that polls. It sleeps while all threads do.
    pub(crate) fn start(self: &Arc<Self>, threads: Vec<Arc<Wake>>, status: Status, quantum: Duration) {
        let watchdog = Arc::clone(self);
        std::thread::spawn(move || {
            let mut seen = Seen::default();
            loop {
                watchdog.wait();
                while status.running().iter().any(|_| true) || threads.iter().any(|thread| !thread.is_asleep()) {
                    std::thread::sleep(POLL_INTERVAL);
                    let guilty = status.stuck(quantum).find(|stuck| seen.is_guilty(*stuck, quantum));
                    if let Some(Stuck { library, .. }) = guilty {
                        status.blame(library);
                        let _ = kill_process(getpid(), Signal::KILL);
                    }
                }
            }
        });
    }

    fn wait(&self) {
        let mut awake = self.awake.lock().unwrap_or_else(PoisonError::into_inner);
        while !*awake {
            awake = self.bell.wait(awake).unwrap_or_else(PoisonError::into_inner);
        }
        *awake = false;
    }
}

/// Threads that were too late before, with the processor's time that they had then.
#[derive(Default)]
struct Seen(HashMap<u64, (Stuck, Duration)>);

impl Seen {
    /// A thread is too late because of its library: it has used the processor since it was seen first. On a crowded
    /// machine it may only have waited for one.
    fn is_guilty(&mut self, stuck: Stuck, quantum: Duration) -> bool {
        let used = used(stuck.thread).unwrap_or_default();
        let first = self.0.entry(stuck.thread).or_insert((stuck, used));
        if first.0 != stuck {
            *first = (stuck, used);
        }
        // A function that sleeps uses none, and keeps its thread as well.
        used.saturating_sub(first.1) >= quantum / 4 || now() - stuck.since > MOST_TIMES * quantum.as_nanos() as u64
    }
}

/// Time on a processor of a thread of this process (`/proc/PID/task/TID/schedstat`).
fn used(thread: u64) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}
