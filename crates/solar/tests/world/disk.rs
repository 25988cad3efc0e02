//! A volume in memory whose operations take time, and end in any order.
use super::{Random, US};
use solar::{BLOCK_LEN, Block, BlockBytes, Job, Outcome, Status, Storage, Volume};

struct Write {
    crc: u32,
    block: Vec<u8>,
}

pub(crate) struct Disk {
    /// Longest time of an operation.
    pub latency: u64,
    blocks: Vec<(u32, Vec<u8>)>,
    running: Vec<(u64, Job, Option<Write>)>,
    ended: Vec<(Job, Outcome)>,
    random: Random,
    now: u64,
    writer: Option<u64>,
    generation: u32,
    /// Blocks written.
    pub writes: u64,
}

impl Disk {
    pub(crate) fn new(blocks: u64, seed: u64) -> Disk {
        let empty = vec![0; BLOCK_LEN];
        Disk {
            latency: 0,
            blocks: vec![(crc32c::crc32c(&empty), empty); blocks as usize],
            running: Vec::new(),
            ended: Vec::new(),
            random: Random::new(seed),
            now: 0,
            writer: None,
            generation: 0,
            writes: 0,
        }
    }

    /// A bit of a block flips silently.
    pub(crate) fn flip(&mut self, lba: u64, bit: usize) {
        self.blocks[lba as usize].1[bit / 8] ^= 1 << (bit % 8);
    }

    pub(crate) fn work(&mut self, now: u64) {
        self.now = now;
        let (due, later) = std::mem::take(&mut self.running).into_iter().partition(|(at, ..)| *at <= now);
        self.running = later;
        let due: Vec<(u64, Job, Option<Write>)> = due;
        for (_, job, write) in due {
            let outcome = self.carry_out(job, write);
            self.ended.push((job, outcome));
        }
    }

    fn carry_out(&mut self, job: Job, write: Option<Write>) -> Outcome {
        let place = &mut self.blocks[job.lba as usize];
        if let Some(write) = write {
            *place = (write.crc, write.block);
            self.writes += 1;
            return Outcome::Written;
        }
        let (crc, block) = place;
        if crc32c::crc32c(block) != *crc {
            return Outcome::Failed(Status::Corrupt);
        }
        Outcome::Read(Block { crc: *crc, bytes: BlockBytes::Private(block.as_slice().into()) })
    }

    pub(crate) fn ended(&mut self) -> Vec<(Job, Outcome)> {
        std::mem::take(&mut self.ended)
    }

    /// What was running happens, or does not.
    pub(crate) fn crash(&mut self) {
        for (_, job, write) in std::mem::take(&mut self.running) {
            if self.random.chance(500) {
                self.carry_out(job, write);
            }
        }
        self.ended.clear();
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.running.iter().map(|(at, ..)| *at).min()
    }

    fn begin(&mut self, job: Job, write: Option<Write>) {
        let latency = if self.latency > 0 { self.random.below(self.latency) } else { 0 };
        self.running.push((self.now + latency.max(US), job, write));
    }
}

impl Storage<u8> for Disk {
    fn find(&mut self, name: &[u8], _client: &u8) -> Option<Volume> {
        (name == b"vol").then_some(Volume { number: 7, blocks: self.blocks.len() as u64, read_only: false })
    }

    fn claim(&mut self, _volume: u32, client: u64) -> Option<u32> {
        if self.running.iter().any(|(_, _, write)| write.is_some()) {
            return None;
        }
        if self.writer.replace(client).is_some_and(|writer| writer != client) {
            self.generation += 1;
        }
        Some(self.generation)
    }

    fn read(&mut self, job: Job) {
        self.begin(job, None);
    }

    fn write(&mut self, job: Job, crc: u32, block: &[u8]) {
        self.begin(job, Some(Write { crc, block: block.to_vec() }));
    }
}
