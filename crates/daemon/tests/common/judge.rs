//! Checker of a volume: it writes and reads blocks at random places, and keeps which bytes each block may have.
use crate::common::nbd::{Command, Nbd};
use crate::common::store::{BLOCK, bytes};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests at once.
const DEPTH: usize = 32;

/// Which bytes a block may have: each write has a number, whose bytes no other write has.
#[derive(Default, Clone)]
struct Versions {
    /// The last write that was answered, or that was read; 0 for zeros.
    known: u64,
    /// Writes since then that failed, or whose answer never came.
    unsure: Vec<u64>,
}

/// A request that was not answered yet.
struct Asked {
    block: u64,
    /// What it writes; `None` where it reads.
    version: Option<u64>,
}

/// It has every write that was answered.
pub(crate) struct Judge {
    blocks: Vec<Versions>,
    /// Errors that are no mistake.
    pub allowed: &'static [u32],
    /// Requests that ended so.
    pub refused: u64,
    last: u64,
    dice: u64,
}

fn content(version: u64) -> Vec<u8> {
    if version == 0 { vec![0; BLOCK] } else { bytes(version, BLOCK) }
}

impl Judge {
    /// Of a volume of zeros.
    pub(crate) fn new(blocks: usize) -> Judge {
        Judge { blocks: vec![Versions::default(); blocks], allowed: &[], refused: 0, last: 0, dice: 1 }
    }

    /// Below `end`, xorshift.
    pub(crate) fn random(&mut self, end: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % end
    }

    /// Writes, and reads what was written, until `enough` or the connection ends. `answers` counts.
    pub(crate) fn work(&mut self, nbd: &mut Nbd, answers: &AtomicU64, enough: impl Fn() -> bool) -> io::Result<()> {
        let mut asked = HashMap::new();
        let done = self.converse(nbd, &mut asked, answers, enough);
        for Asked { block, version } in asked.into_values() {
            self.blocks[block as usize].unsure.extend(version);
        }
        done
    }

    fn converse(
        &mut self,
        nbd: &mut Nbd,
        asked: &mut HashMap<u64, Asked>,
        answers: &AtomicU64,
        enough: impl Fn() -> bool,
    ) -> io::Result<()> {
        loop {
            while asked.len() < DEPTH && !enough() {
                self.ask(nbd, asked)?;
            }
            if asked.is_empty() {
                return Ok(());
            }
            let (handle, error) = nbd.answer()?;
            let data = asked[&handle].version.is_none() && error == 0;
            let data = if data { nbd.data(BLOCK)? } else { Vec::new() };
            let answered = asked.remove(&handle).unwrap();
            self.judge(&answered, error, &data);
            answers.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// No block is in two requests at once: their order would be open.
    fn ask(&mut self, nbd: &mut Nbd, asked: &mut HashMap<u64, Asked>) -> io::Result<()> {
        let block = loop {
            let block = self.random(self.blocks.len() as u64);
            if asked.values().all(|other| other.block != block) {
                break block;
            }
        };
        self.last += 1;
        let (handle, at) = (self.last, block * BLOCK as u64);
        if self.random(4) == 0 {
            asked.insert(handle, Asked { block, version: None });
            return nbd.send_as(handle, Command::Read, at, BLOCK as u32, &[]);
        }
        asked.insert(handle, Asked { block, version: Some(handle) });
        nbd.send_as(handle, Command::Write, at, BLOCK as u32, &content(handle))
    }

    fn judge(&mut self, asked: &Asked, error: u32, data: &[u8]) {
        let versions = &mut self.blocks[asked.block as usize];
        match (error, asked.version) {
            (0, Some(version)) => *versions = Versions { known: version, unsure: Vec::new() },
            (0, None) => {
                let candidates = [&versions.unsure[..], &[versions.known]].concat();
                let found = candidates.iter().find(|version| content(**version) == data);
                let found = found.unwrap_or_else(|| panic!("block {} has none of {candidates:?}", asked.block));
                *versions = Versions { known: *found, unsure: Vec::new() };
            }
            (error, version) => {
                assert!(self.allowed.contains(&error), "error {error} of block {}", asked.block);
                self.refused += 1;
                versions.unsure.extend(version);
            }
        }
    }

    /// Reads all blocks: how many are not to be had.
    pub(crate) fn check(&mut self, nbd: &mut Nbd) -> usize {
        let mut lost = 0;
        for block in 0..self.blocks.len() as u64 {
            let read = nbd.read(block * BLOCK as u64, BLOCK as u32);
            lost += usize::from(read.is_err());
            self.judge(
                &Asked { block, version: None },
                read.as_ref().err().copied().unwrap_or(0),
                &read.unwrap_or_default(),
            );
        }
        lost
    }
}
