//! Threads for an engine's modules that do not run on the data-path thread.
use crate::clock::Clock;
use crate::config::PollingConfig;
use crate::memory_trim::{self, Quiet};
use crate::wake::Wake;
use engine::{Nanos, Worker};
use rustix::thread::{CpuSet, sched_setaffinity};
use shm::reserve;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A data-path that panicked serves no program: the daemon ends with it, so that applications see it at once.
pub(crate) struct EndWithThread;

impl Drop for EndWithThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a data-path thread failed; the daemon ends");
            std::process::exit(101);
        }
    }
}

/// Binds the calling thread to a core, whatever it inherited from the one that started it.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    if core < CpuSet::MAX_CPU {
        cores.set(core);
    }
    if let Err(error) = sched_setaffinity(None, &cores) {
        tracing::warn!("a data-path thread cannot stay on core {core}: {error}");
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

    /// Gives a worker its thread, on a core where one is named; `leader` is the data-path thread's.
    pub(crate) fn start(
        &mut self,
        mut worker: Box<dyn Worker>,
        core: Option<usize>,
        clock: Clock,
        polling: PollingConfig,
        leader: Arc<Wake>,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let name = worker.name();
        let body = move || {
            let _guard = EndWithThread;
            core.into_iter().for_each(pin);
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
    let limit = Nanos::from(polling.spin_us + polling.yield_us) * 1000;
    let mut idle_since = None;
    let (mut quiet, mut rounds, mut released) = (Quiet::new(clock.now()), 0, false);
    while !stop.load(SeqCst) {
        let now = clock.now();
        if worker.poll(now) > 0 {
            (idle_since, released) = (None, false);
            rounds += 1;
            // What it did may be work for the leader, which polls again after announcing that it sleeps.
            leader.ring();
            continue;
        }
        if quiet.is_over(now, rounds) && !released {
            released = true;
            if worker.trim() {
                reserve::give_back();
            }
        }
        if now - *idle_since.get_or_insert(now) > limit && leader.is_asleep() {
            // Unparked when the leader wakes; a wake-up before this line makes it return at once.
            if released { thread::park() } else { thread::park_timeout(Duration::from_nanos(memory_trim::PERIOD)) }
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;
    use std::sync::mpsc;

    /// Sends the cores that its thread may use.
    struct Asking(mpsc::Sender<Vec<usize>>);

    impl Worker for Asking {
        fn name(&self) -> String {
            "asking".into()
        }

        fn poll(&mut self, _: Nanos) -> usize {
            let cores = sched_getaffinity(None).expect("its own cores");
            let _ = self.0.send((0..CpuSet::MAX_CPU).filter(|at| cores.is_set(*at)).collect());
            0
        }

        fn trim(&mut self) -> bool {
            false
        }
    }

    fn cores_of_a_worker(core: Option<usize>) -> Vec<usize> {
        let (send, receive) = mpsc::channel();
        let mut workers = Workers::new();
        let leader = Arc::new(Wake::new().expect("a doorbell"));
        let worker = Box::new(Asking(send));
        workers.start(worker, core, Clock::start(), PollingConfig::default(), leader).expect("a thread");
        receive.recv().expect("its first round")
    }

    #[test]
    fn a_worker_is_bound_to_its_core_and_one_without_is_not() {
        let all = cores_of_a_worker(None);
        let last = *all.last().expect("a core");
        assert_eq!(cores_of_a_worker(Some(last)), [last]);
        let own = sched_getaffinity(None).expect("the test's own cores");
        assert!(all.iter().all(|core| own.is_set(*core)) && all.len() == own.count() as usize);
    }
}
