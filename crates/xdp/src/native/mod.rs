//! Running a program: as native code (`jit`), or step by step (`interp`), with the same helpers.
//!
//! The only place in this crate with unsafe code: programs work with real addresses. Why that is safe: the check has
//! proved what each register holds. What it could not prove, the code tests before each access. So each access is
//! inside the frame, the run's own stack and metadata, or a map's memory. These live at least as long as the run.
#![allow(unsafe_code)]

mod helpers;
pub(crate) mod interp;
pub(crate) mod jit;
mod print;

use crate::maps::{Epochs, Map, Pin};
use engine::Verdict;
use port::{Frame, Nanos};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use print::Log;

/// Bytes of metadata that travel with a frame.
const META: usize = 16;

/// Records of ring buffers that a run may have open.
const OPEN_RECORDS: usize = 16;

/// Why a run was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Fault {
    OutOfBounds = 1,
    Instructions = 2,
    Unaligned = 3,
}

impl Fault {
    pub(crate) const NAMES: [&'static str; 3] =
        ["out of bounds", "too many instructions", "unaligned atomic operation"];
}

/// What replicas of a program share.
pub(crate) struct Shared {
    pub maps: Vec<Map>,
    pub epochs: Arc<Epochs>,
    pub log: Log,
    /// Ended runs by [`Fault`], less one.
    pub faults: [AtomicU64; 3],
    /// Where the last one was, plus one.
    pub last_fault: AtomicU64,
    /// Instructions that a run may take.
    pub budget: i64,
    pub seed: u64,
}

/// What native code and helpers use during a run. Generated code contains the offsets of the first fields.
#[repr(C)]
pub(crate) struct Run {
    data: usize,
    data_end: usize,
    meta: usize,
    meta_end: usize,
    now: u64,
    budget: i64,
    fault: u32,
    fault_at: u32,
    /// The replica, below the number that per-CPU maps are made for.
    replica: u32,
    zero: u32,
    /// Addresses of the frame and of what is shared, valid during a run.
    frame: usize,
    shared: Arc<Shared>,
    pin: Arc<Pin>,
    pinned: bool,
    random: u64,
    metadata: [u32; META / 4],
    open: Vec<(usize, usize)>,
}

/// The compiled or interpreted program: takes a run whose fields are set, returns what register 0 holds.
pub(crate) trait Execute {
    fn execute(&self, run: &mut Run) -> u64;
}

impl Run {
    pub(crate) fn new(shared: &Arc<Shared>, index: u32, replicas: u32) -> Run {
        Run {
            data: 0,
            data_end: 0,
            meta: 0,
            meta_end: 0,
            now: 0,
            budget: 0,
            fault: 0,
            fault_at: 0,
            replica: index % replicas,
            zero: 0,
            frame: 0,
            shared: shared.clone(),
            pin: shared.epochs.join(),
            pinned: false,
            random: shared.seed ^ u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            metadata: [0; META / 4],
            open: Vec::with_capacity(OPEN_RECORDS),
        }
    }

    /// Runs a program on a frame.
    #[inline]
    pub(crate) fn run(&mut self, program: &impl Execute, frame: &mut Frame, now: Nanos) -> Verdict {
        self.frame = std::ptr::from_mut(frame) as usize;
        self.see(frame);
        self.set_metadata(frame.metadata);
        self.now = now;
        self.budget = self.shared.budget;
        let result = program.execute(self);
        if self.pinned {
            self.pinned = false;
            self.shared.epochs.unpin(&self.pin);
        }
        if self.meta != self.meta_end {
            frame.metadata = self.metadata_out();
        }
        if self.fault != 0 || !self.open.is_empty() {
            return self.failed();
        }
        match result as u32 {
            1 => Verdict::Drop,
            2 => Verdict::Pass,
            3 => Verdict::Transmit,
            4 => Verdict::Redirect,
            _ => Verdict::Aborted,
        }
    }

    /// Takes note of where the frame's bytes are.
    fn see(&mut self, frame: &mut Frame) {
        let bytes = frame.bytes_mut().as_mut_ptr_range();
        (self.data, self.data_end) = (bytes.start as usize, bytes.end as usize);
    }

    /// Metadata is as long as to its last word that is not zero, and ends where the buffer ends.
    fn set_metadata(&mut self, words: [u32; META / 4]) {
        self.meta_end = self.metadata.as_ptr() as usize + META;
        self.meta = self.meta_end;
        if words != [0; META / 4] {
            let count = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
            self.metadata[META / 4 - count..].copy_from_slice(&words[..count]);
            self.meta -= 4 * count;
        }
    }

    fn metadata_out(&self) -> [u32; META / 4] {
        let count = (self.meta_end - self.meta) / 4;
        let mut words = [0; META / 4];
        words[..count].copy_from_slice(&self.metadata[META / 4 - count..]);
        words
    }

    #[cold]
    fn failed(&mut self) -> Verdict {
        if let Some(count) = (self.fault as usize).checked_sub(1).and_then(|index| self.shared.faults.get(index)) {
            count.fetch_add(1, Relaxed);
            self.shared.last_fault.store(u64::from(self.fault_at) + 1, Relaxed);
        }
        self.fault = 0;
        for (map, address) in self.open.drain(..) {
            if let Some(ring) = self.shared.maps.get(map).and_then(Map::ring) {
                ring.finish(address, false);
            }
        }
        Verdict::Aborted
    }

    /// Before a lookup in a map whose entries may be removed.
    #[inline]
    fn pin(&mut self) {
        if !self.pinned {
            self.pinned = true;
            self.shared.epochs.pin(&self.pin);
        }
    }

    fn frame(&mut self) -> &mut Frame {
        // SAFETY: it was set from a mutable reference by `run`, which is below us on the call stack and does not use
        // that reference meanwhile; helpers that call this hold no other reference to the frame.
        unsafe { &mut *(self.frame as *mut Frame) }
    }
}
