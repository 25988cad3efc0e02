//! The volumes of a host, as its storage server uses them: nothing here waits for a disk. What the system has in memory
//! is read at once; all else is for the threads of the volume.
use super::files::Files;
use super::spare::SpareBlocks;
use super::writer::{Ended, Shared, Work, Write};
use solar::transport::{Backend, Peer};
use solar::{Job, Outcome, Status, Storage, Volume};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Most operations of a volume that wait for its disk: those of as many sessions as there may be.
const MOST_WAITING: usize = 64 * 1024;

struct Served {
    name: String,
    clients: Vec<Ipv4Addr>,
    volume: Volume,
    shared: Arc<Shared>,
    reads: Sender<Job>,
    writes: Sender<Work>,
}

/// What the threads of a volume need.
pub(super) struct VolumeThreads {
    pub(super) name: String,
    pub(super) shared: Arc<Shared>,
    pub(super) reads: Receiver<Job>,
    pub(super) writes: Receiver<Work>,
}

/// Most blocks that are read at once, without another thread, between two looks at what else is to be done: each takes
/// a microsecond or two.
const MOST_AT_ONCE: usize = 64;

/// The volumes of a host.
pub(super) struct Volumes {
    list: Vec<Served>,
    ended: Arc<Ended>,
    /// What was read at once, and memory for it.
    at_once: Vec<(Job, Outcome)>,
    spare: SpareBlocks,
}

impl Volumes {
    pub(super) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Volumes {
        Volumes {
            list: Vec::new(),
            ended: Arc::new(Ended::new(wake)),
            at_once: Vec::new(),
            spare: SpareBlocks::default(),
        }
    }

    /// One more volume. The error is a sentence.
    pub(super) fn add(&mut self, section: &super::VolumeSection) -> Result<VolumeThreads, String> {
        let files = Files::open(&section.file, section.size, section.read_only)?;
        let volume = Volume { number: self.list.len() as u32, blocks: files.blocks, read_only: section.read_only };
        let shared = Arc::new(Shared::new(files, Arc::clone(&self.ended))?);
        let (reads, to_read) = channel();
        let (writes, to_write) = channel();
        let (name, clients) = (section.name.clone(), section.clients.clone());
        let threads =
            VolumeThreads { name: name.clone(), shared: Arc::clone(&shared), reads: to_read, writes: to_write };
        self.list.push(Served { name, clients, volume, shared, reads, writes });
        Ok(threads)
    }
}

impl Storage<Peer> for Volumes {
    fn find(&mut self, name: &[u8], (address, _): &Peer) -> Option<Volume> {
        let may = |served: &&Served| served.clients.is_empty() || served.clients.contains(address);
        self.list.iter().find(|served| served.name.as_bytes() == name).filter(may).map(|served| served.volume)
    }

    fn claim(&mut self, volume: u32, client: u64) -> Option<u32> {
        let served = self.list.get(volume as usize)?;
        if served.shared.writing.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let owner = served.shared.owner();
        if owner.client == client {
            return Some(owner.generation);
        }
        // The client asks again: then it is written down.
        served.shared.writing.fetch_add(1, Ordering::SeqCst);
        let _ = served.writes.send(Work::Claim(client));
        None
    }

    // The threads live as long as the daemon: they take everything. What sessions that have ended left still waits
    // here, so that the number of sessions is no bound.
    fn read(&mut self, job: Job) {
        if let Some(served) = self.list.get(job.volume as usize) {
            if self.at_once.len() < MOST_AT_ONCE
                && let Some(outcome) = served.shared.read_at_once(job, &mut self.spare)
            {
                return self.at_once.push((job, outcome));
            }
            if served.shared.reading.load(Ordering::SeqCst) >= MOST_WAITING {
                return self.ended.put([(job, Outcome::Failed(Status::Failed))]);
            }
            served.shared.reading.fetch_add(1, Ordering::SeqCst);
            let _ = served.reads.send(job);
        }
    }

    fn write(&mut self, job: Job, crc: u32, block: &[u8]) {
        if let Some(served) = self.list.get(job.volume as usize) {
            if served.shared.writing.load(Ordering::SeqCst) >= MOST_WAITING {
                return self.ended.put([(job, Outcome::Failed(Status::Failed))]);
            }
            served.shared.writing.fetch_add(1, Ordering::SeqCst);
            let _ = served.writes.send(Work::Write(Write { job, crc, block: block.to_vec() }));
        }
    }
}

impl Backend for Volumes {
    fn take_ended(&mut self, ended: &mut Vec<(Job, Outcome)>) {
        ended.append(&mut self.at_once);
        self.ended.take(ended);
    }

    fn has_ended(&self) -> bool {
        !self.at_once.is_empty() || self.ended.is_pending()
    }
}
