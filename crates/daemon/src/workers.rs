//! Threads for an engine's modules that do not run on the data-path thread.
use crate::clock::Clock;
use crate::config::PollingConfig;
use crate::wake::Wake;
use engine::{Nanos, Worker};
use shm::reserve;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// After so long a silence, frames that a burst needed and the allocator's free pages go back to the system.
pub(crate) const SILENCE: Nanos = 1_000_000_000;

/// A data-path that panicked serves nobody: the daemon ends with it, so that applications see it at once.
pub(crate) struct EndWithThread;

impl Drop for EndWithThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a data-path thread failed; the daemon ends");
            std::process::exit(101);
        }
    }
}

/// The workers of one data-path thread. They work while it does, and sleep while it sleeps.
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Workers {
    pub(crate) fn new() -> Workers {
        Workers { threads: Vec::new(), stop: Arc::new(AtomicBool::new(false)) }
    }

    /// Gives a worker its thread; `leader` is the data-path thread's.
    pub(crate) fn start(
        &mut self,
        mut worker: Box<dyn Worker>,
        clock: Clock,
        polling: PollingConfig,
        leader: Arc<Wake>,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let name = worker.name();
        let body = move || {
            let _guard = EndWithThread;
            work(worker.as_mut(), clock, polling, &leader, &stop);
        };
        self.threads.push(thread::Builder::new().name(name).spawn(body)?);
        Ok(())
    }

    /// The data-path thread is awake: so are the workers.
    pub(crate) fn unpark(&self) {
        self.threads.iter().for_each(|worker| worker.thread().unpark());
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        self.unpark();
        for worker in self.threads.drain(..) {
            let _ = worker.join();
        }
    }
}

fn work(worker: &mut dyn Worker, clock: Clock, polling: PollingConfig, leader: &Wake, stop: &AtomicBool) {
    let silence = Duration::from_nanos(SILENCE);
    let patience = Duration::from_micros((polling.spin_us + polling.yield_us).into());
    let (mut idle_since, mut rests) = (None, false);
    while !stop.load(SeqCst) {
        if worker.poll(clock.now()) > 0 {
            (idle_since, rests) = (None, false);
            // What it did may be work for the leader, which looks again after announcing that it sleeps.
            leader.ring();
            continue;
        }
        let idle = idle_since.get_or_insert_with(Instant::now).elapsed();
        if !rests && idle >= silence {
            worker.rest();
            reserve::give_back();
            rests = true;
        }
        if idle > patience && leader.is_asleep() {
            // Unparked when the leader wakes; a wake-up before this line makes it return at once.
            if rests { thread::park() } else { thread::park_timeout(silence) }
        } else {
            thread::yield_now();
        }
    }
}
