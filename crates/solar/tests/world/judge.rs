//! Checker of reads, with every write: a read may return what was durable when it began, or what was being written
//! meanwhile; and nothing else.
use solar::{BLOCK_LEN, Completion, Direction, Memory, Request, Status};
use std::collections::{BTreeMap, BTreeSet};

/// The value of a block that was never written.
const EMPTY: u64 = 0;

/// What a block may hold.
#[derive(Clone)]
struct Block {
    durable: u64,
    /// Writes that are under way, or ended without success: they may have happened.
    maybe: BTreeSet<u64>,
}

struct Reading {
    request: Request,
    /// What each block may be.
    allowed: Vec<BTreeSet<u64>>,
    /// What was placed.
    placed: Vec<Option<u64>>,
}

struct Writing {
    request: Request,
    blocks: Vec<Vec<u8>>,
    values: Vec<u64>,
}

pub(crate) struct Judge {
    blocks: Vec<Block>,
    readings: BTreeMap<u64, Reading>,
    writings: BTreeMap<u64, Writing>,
    next_value: u64,
    /// Reads and writes that ended well.
    pub good: u64,
    pub failed: u64,
}

impl Judge {
    pub(crate) fn new(blocks: u64) -> Judge {
        let block = Block { durable: EMPTY, maybe: BTreeSet::new() };
        Judge {
            blocks: vec![block; blocks as usize],
            readings: BTreeMap::new(),
            writings: BTreeMap::new(),
            next_value: EMPTY,
            good: 0,
            failed: 0,
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.readings.len() + self.writings.len()
    }

    /// A write is under way somewhere in this range: another one would make the outcome a matter of chance.
    pub(crate) fn is_being_written(&self, lba: u64, blocks: u32) -> bool {
        let end = lba + u64::from(blocks);
        self.writings
            .values()
            .any(|writing| writing.request.lba < end && lba < writing.request.lba + u64::from(writing.request.blocks))
    }

    pub(crate) fn begin(&mut self, request: Request) {
        let at = |lba: u64| (lba as usize).min(self.blocks.len());
        let range = at(request.lba)..at(request.lba + u64::from(request.blocks));
        match request.direction {
            Direction::Read => {
                let allowed = self.blocks[range].iter().map(|block| {
                    let mut allowed = block.maybe.clone();
                    allowed.insert(block.durable);
                    allowed
                });
                let reading =
                    Reading { request, allowed: allowed.collect(), placed: vec![None; request.blocks as usize] };
                self.readings.insert(request.token, reading);
            }
            Direction::Write => {
                let mut writing = Writing { request, blocks: Vec::new(), values: Vec::new() };
                for lba in request.lba..request.lba + u64::from(request.blocks) {
                    self.next_value += 1;
                    writing.blocks.push(content(lba, self.next_value));
                    writing.values.push(self.next_value);
                    self.may_become(lba, self.next_value);
                }
                self.writings.insert(request.token, writing);
            }
        }
    }

    fn may_become(&mut self, lba: u64, value: u64) {
        if let Some(block) = self.blocks.get_mut(lba as usize) {
            block.maybe.insert(value);
        }
        for reading in self.readings.values_mut() {
            if let Some(index) = lba.checked_sub(reading.request.lba)
                && let Some(allowed) = reading.allowed.get_mut(index as usize)
            {
                allowed.insert(value);
            }
        }
    }

    pub(crate) fn end(&mut self, completion: Completion) {
        let good = completion.status == Status::Ok;
        self.good += u64::from(good);
        self.failed += u64::from(!good);
        if let Some(writing) = self.writings.remove(&completion.token) {
            for (lba, &value) in (writing.request.lba..).zip(writing.values.iter().filter(|_| good)) {
                self.blocks[lba as usize] = Block { durable: value, maybe: BTreeSet::new() };
            }
            return;
        }
        let reading = self.readings.remove(&completion.token).expect("a request that nobody made has ended");
        if good {
            for (index, (placed, allowed)) in reading.placed.iter().zip(&reading.allowed).enumerate() {
                let placed = placed.expect("a block was never placed");
                let lba = reading.request.lba + index as u64;
                assert!(allowed.contains(&placed), "block {lba} is {placed}, and may be one of {allowed:?}");
            }
        }
    }

    /// The client's process is gone, with its requests.
    pub(crate) fn client_died(&mut self) {
        self.readings.clear();
        self.writings.clear();
    }
}

/// The bytes of a block: its place and its value, again and again.
fn content(lba: u64, value: u64) -> Vec<u8> {
    [lba.to_le_bytes(), value.to_le_bytes()].concat().repeat(BLOCK_LEN / 16)
}

/// The value of a block, which belongs to this place.
fn value_of(lba: u64, block: &[u8]) -> u64 {
    let value = u64::from_le_bytes(block[8..16].try_into().unwrap());
    if block.iter().all(|&byte| byte == 0) {
        return EMPTY;
    }
    assert_eq!(block, content(lba, value), "block {lba} has bytes of another one");
    value
}

impl Memory for Judge {
    fn block(&self, token: u64, index: u32) -> &[u8] {
        &self.writings[&token].blocks[index as usize]
    }

    fn place(&mut self, token: u64, index: u32, block: &[u8]) {
        let reading = self.readings.get_mut(&token).expect("placed into a request that has ended");
        reading.placed[index as usize] = Some(value_of(reading.request.lba + u64::from(index), block));
    }
}
