//! The two threads of a volume: one reads; one writes, many blocks for each wait for the disk.
use super::files::{Files, Owner};
use super::spare::SpareBlocks;
use solar::{Job, Outcome, Status};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most blocks that become durable together.
const BATCH: usize = 256;

/// Most blocks that are read before some go back, and how long the first may wait for the others.
const READS: usize = 64;
const TOGETHER: Duration = Duration::from_micros(100);

/// A block that is to be written.
pub(super) struct Write {
    pub(super) job: Job,
    pub(super) crc: u32,
    pub(super) block: Vec<u8>,
}

/// What the writing thread does, in this order.
pub(super) enum Work {
    Write(Write),
    /// This client may write from now on.
    Claim(u64),
}

/// Operations that have ended, on their way to the data-path thread.
pub(super) struct Ended {
    list: Mutex<Vec<(Job, Outcome)>>,
    pending: AtomicBool,
    wake: Box<dyn Fn() + Send + Sync>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ended {
    /// `wake` wakes the data-path thread, where it sleeps.
    pub(super) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Ended {
        Ended { list: Mutex::default(), pending: AtomicBool::new(false), wake }
    }

    pub(super) fn put(&self, ended: impl IntoIterator<Item = (Job, Outcome)>) {
        lock(&self.list).extend(ended);
        self.pending.store(true, Ordering::SeqCst);
        (self.wake)();
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    pub(super) fn take(&self, into: &mut Vec<(Job, Outcome)>) {
        if self.is_pending() {
            self.pending.store(false, Ordering::SeqCst);
            into.append(&mut lock(&self.list));
        }
    }
}

/// Blocks since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    /// Reads and writes that failed, those of other bytes than were written among them.
    pub(super) failed: AtomicU64,
    /// Reads that found other bytes than were written.
    pub(super) corrupt: AtomicU64,
}

impl Counts {
    pub(super) fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Read(_) => &self.reads,
            Outcome::Written => &self.writes,
            Outcome::Failed(status) => {
                self.corrupt.fetch_add(u64::from(*status == Status::Corrupt), Ordering::Relaxed);
                &self.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the threads of a volume and the data-path thread share.
pub(super) struct Shared {
    pub(super) files: Files,
    owner: Mutex<Owner>,
    /// Held while blocks change.
    changing: Mutex<()>,
    /// Reads that have not ended.
    pub(super) reading: AtomicUsize,
    /// Writes that have not ended, and claims.
    pub(super) writing: AtomicUsize,
    pub(super) counts: Counts,
    /// An owner could not be written down, and that is in the log.
    complained: AtomicBool,
    pub(super) ended: Arc<Ended>,
}

impl Shared {
    /// The error is a sentence.
    pub(super) fn new(files: Files, ended: Arc<Ended>) -> Result<Shared, String> {
        let owner = files.owner().map_err(|e| format!("cannot read its checksums: {e}"))?;
        Ok(Shared {
            files,
            owner: owner.into(),
            changing: Mutex::default(),
            reading: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
            counts: Counts::default(),
            complained: AtomicBool::new(false),
            ended,
        })
    }

    pub(super) fn owner(&self) -> Owner {
        *lock(&self.owner)
    }

    /// Reads blocks until no request for some is left. What is read quickly, as the system's cache gives
    /// it, goes back together.
    pub(super) fn read_all(&self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let begin = Instant::now();
            let mut ended = vec![(first, self.read(first))];
            while ended.len() < READS && begin.elapsed() < TOGETHER {
                let Ok(job) = jobs.try_recv() else { break };
                ended.push((job, self.read(job)));
            }
            ended.iter().for_each(|(_, outcome)| self.counts.count(outcome));
            self.reading.fetch_sub(ended.len(), Ordering::SeqCst);
            self.ended.put(ended);
        }
    }

    /// Reads a block without waiting, where that is possible and nothing waits before it.
    pub(super) fn read_at_once(&self, job: Job, spare: &mut SpareBlocks) -> Option<Outcome> {
        if self.reading.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let outcome = self.files.read_at_once(job.lba, spare)?;
        self.counts.count(&outcome);
        Some(outcome)
    }

    fn read(&self, job: Job) -> Outcome {
        let outcome = self.files.read(job.lba);
        if !matches!(outcome, Outcome::Failed(Status::Corrupt)) {
            return outcome;
        }
        // It may just have been written to.
        let _still = lock(&self.changing);
        self.files.read(job.lba)
    }

    /// Writes blocks until no request for it is left.
    pub(super) fn write_all(&self, work: &Receiver<Work>) {
        let mut next = work.recv().ok();
        while let Some(first) = next.take() {
            match first {
                Work::Claim(client) => self.claim(client),
                Work::Write(write) => {
                    let (batch, after) = collect(write, work);
                    next = after;
                    self.write(batch);
                }
            }
            next = next.or_else(|| work.recv().ok());
        }
    }

    fn claim(&self, client: u64) {
        let before = self.owner();
        if before.client != client {
            let owner = Owner { client, generation: before.generation.wrapping_add(1) };
            match self.files.set_owner(owner) {
                Ok(()) => {
                    *lock(&self.owner) = owner;
                    self.complained.store(false, Ordering::SeqCst);
                }
                // The client asks again, fifty times a second.
                Err(error) if !self.complained.swap(true, Ordering::SeqCst) => {
                    tracing::error!("a volume cannot change its owner: {error}");
                }
                Err(_) => {}
            }
        }
        self.writing.fetch_sub(1, Ordering::SeqCst);
        (self.ended.wake)();
    }

    /// Checksums first, then blocks: each durable before the next step.
    fn write(&self, batch: Vec<Write>) {
        let changing = lock(&self.changing);
        let announced: Vec<Result<(), Status>> =
            batch.iter().map(|write| self.files.announce(write.job.lba, write.crc)).collect();
        let all = self.files.sync_sums();
        let written: Vec<Result<(), Status>> = batch
            .iter()
            .zip(announced)
            .map(|(write, announced)| announced.and(all).and_then(|()| self.files.write(write.job.lba, &write.block)))
            .collect();
        let all = self.files.sync_blocks();
        let ended: Vec<(Job, Outcome)> = batch
            .iter()
            .zip(written)
            .map(|(write, written)| match written.and(all) {
                Ok(()) => {
                    self.files.settled(write.job.lba, write.crc);
                    (write.job, Outcome::Written)
                }
                Err(status) => (write.job, Outcome::Failed(status)),
            })
            .collect();
        drop(changing);
        ended.iter().for_each(|(_, outcome)| self.counts.count(outcome));
        self.writing.fetch_sub(ended.len(), Ordering::SeqCst);
        self.ended.put(ended);
    }
}

/// What waits, up to a batch: other blocks only, and nothing behind a claim. And what comes after it.
fn collect(first: Write, work: &Receiver<Work>) -> (Vec<Write>, Option<Work>) {
    let mut blocks = HashSet::from([first.job.lba]);
    let mut batch = vec![first];
    while batch.len() < BATCH {
        match work.try_recv() {
            Ok(Work::Write(write)) if blocks.insert(write.job.lba) => batch.push(write),
            Ok(other) => return (batch, Some(other)),
            Err(_) => break,
        }
    }
    (batch, None)
}
