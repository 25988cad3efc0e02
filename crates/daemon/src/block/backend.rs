//! The volumes of a host, as its storage server uses them: nothing here waits for a disk. What the system has in memory
//! is read at once; all else is for the threads of the volume.
use super::cache::BlockCache;
use super::files::Files;
use super::spare::SpareBlocks;
use super::writer::{Ended, Shared, Work, Write};
use solar::transport::{Backend, Peer};
use solar::{BlockBytes, Job, Outcome, Status, Storage, Volume};
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
    cache: BlockCache,
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

/// Most blocks that are read at once, without another thread, between two polls for other work: each takes
/// a microsecond or two.
const MOST_AT_ONCE: usize = 64;

impl Served {
    /// Reads a block without waiting, and keeps it, unless a write may just change it.
    fn read_at_once(&mut self, job: Job, spare: &mut SpareBlocks) -> Option<Outcome> {
        let changes = self.shared.writing.load(Ordering::SeqCst) > 0;
        let outcome = self.shared.read_at_once(job, spare)?;
        if let (false, Outcome::Read(block)) = (changes, &outcome)
            && let BlockBytes::Private(bytes) = &block.bytes
        {
            self.cache.keep(job.lba, block.crc, bytes);
        }
        Some(outcome)
    }
}

/// The volumes of a host.
pub(super) struct Volumes {
    list: Vec<Served>,
    ended: Arc<Ended>,
    /// What was read at once, and memory for it.
    at_once: Vec<(Job, Outcome)>,
    spare: SpareBlocks,
    /// Of these, blocks that were read from the system.
    from_disk: usize,
}

impl Volumes {
    pub(super) fn new(wake: Box<dyn Fn() + Send + Sync>) -> Volumes {
        Volumes {
            list: Vec::new(),
            ended: Arc::new(Ended::new(wake)),
            at_once: Vec::new(),
            spare: SpareBlocks::default(),
            from_disk: 0,
        }
    }

    /// One more volume. The error is a sentence.
    pub(super) fn add(&mut self, section: &super::VolumeSection) -> Result<VolumeThreads, String> {
        let files = Files::open(&section.file, section.size, section.read_only)?;
        let volume = Volume { number: self.list.len() as u32, blocks: files.blocks, read_only: section.read_only };
        let cache = BlockCache::new(section.cache_bytes, files.blocks)
            .map_err(|e| format!("no memory for cache_bytes = {}: {e}", section.cache_bytes))?;
        let shared = Arc::new(Shared::new(files, Arc::clone(&self.ended))?);
        let (reads, to_read) = channel();
        let (writes, to_write) = channel();
        let (name, clients) = (section.name.clone(), section.clients.clone());
        let threads =
            VolumeThreads { name: name.clone(), shared: Arc::clone(&shared), reads: to_read, writes: to_write };
        self.list.push(Served { name, clients, volume, shared, cache, reads, writes });
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
        if let Some(served) = self.list.get_mut(job.volume as usize) {
            if let Some(block) = served.cache.find(job.lba) {
                let outcome = Outcome::Read(block);
                served.shared.counts.count(&outcome);
                return self.at_once.push((job, outcome));
            }
            if self.from_disk < MOST_AT_ONCE
                && let Some(outcome) = served.read_at_once(job, &mut self.spare)
            {
                self.from_disk += 1;
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
        if let Some(served) = self.list.get_mut(job.volume as usize) {
            if served.shared.writing.load(Ordering::SeqCst) >= MOST_WAITING {
                return self.ended.put([(job, Outcome::Failed(Status::Failed))]);
            }
            served.shared.writing.fetch_add(1, Ordering::SeqCst);
            served.cache.forget(job.lba);
            let _ = served.writes.send(Work::Write(Write { job, crc, block: block.to_vec() }));
        }
    }
}

impl Backend for Volumes {
    fn take_ended(&mut self, ended: &mut Vec<(Job, Outcome)>) {
        ended.append(&mut self.at_once);
        self.from_disk = 0;
        let before = ended.len();
        self.ended.take(ended);
        // Written or failed: whatever a write left behind.
        for (job, _) in ended.iter().skip(before).filter(|(_, outcome)| !matches!(outcome, Outcome::Read(_))) {
            if let Some(served) = self.list.get_mut(job.volume as usize) {
                served.cache.forget(job.lba);
            }
        }
    }

    fn has_ended(&self) -> bool {
        !self.at_once.is_empty() || self.ended.is_pending()
    }
}
