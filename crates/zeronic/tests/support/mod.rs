//! A plain reference of the NIC's half: a map of bytes, nothing clever.
#![allow(dead_code, reason = "each test file uses its part")]
use memory::{Domain, Fault, Key};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use wire::{Ipv4Tuple, Seq};
use zeronic::{Arrival, FlowId, Kind, Limits, Memory, Nic, Refused, Segment};

pub(crate) const DOMAIN: Domain = Domain(7);
pub(crate) const REGIONS: usize = 3;
pub(crate) const REGION_LEN: usize = 64;

/// Regions that are plain arrays. What lies outside of them is a fault.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plain(pub RefCell<[[u8; REGION_LEN]; REGIONS]>, Cell<bool>);

impl Plain {
    pub(crate) fn new() -> Plain {
        Plain(RefCell::new([[0; REGION_LEN]; REGIONS]), Cell::new(false))
    }

    /// From now on, no region is registered.
    pub(crate) fn unmap(&self) {
        self.1.set(true);
    }

    fn is_mapped(&self) -> Result<(), Fault> {
        if self.1.get() { Err(Fault::Key) } else { Ok(()) }
    }
}

fn range(key: Key, at: u64, len: usize) -> Result<(usize, std::ops::Range<usize>), Fault> {
    let region = key.0 as usize;
    let end = at as usize + len;
    if region >= REGIONS {
        return Err(Fault::Key);
    }
    if end > REGION_LEN { Err(Fault::Bounds) } else { Ok((region, at as usize..end)) }
}

impl Memory for Plain {
    fn write(&self, domain: Domain, key: Key, at: u64, from: &[u8]) -> Result<(), Fault> {
        assert_eq!(domain, DOMAIN);
        self.is_mapped()?;
        let (region, range) = range(key, at, from.len())?;
        self.0.borrow_mut()[region][range].copy_from_slice(from);
        Ok(())
    }
    fn append(&self, domain: Domain, key: Key, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        assert_eq!(domain, DOMAIN);
        self.is_mapped()?;
        let (region, range) = range(key, at, len)?;
        into.extend_from_slice(&self.0.borrow()[region][range]);
        Ok(())
    }
    fn check(&self, _: Domain, key: Key, at: u64, len: u64) -> Result<(), Fault> {
        range(key, at, len as usize).map(|_| ())
    }
}

pub(crate) fn tuple(port: u16) -> Ipv4Tuple {
    let (local_ip, remote_ip) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Ipv4Tuple { local_ip, remote_ip, local_port: 80, remote_port: port }
}

/// What the reference does is what the words of docs/ZERONIC.md say, byte by byte. Positions count from the beginning
/// of the stream.
#[derive(Clone)]
pub(crate) struct Reference {
    pub memory: [[u8; REGION_LEN]; REGIONS],
    /// Where each byte of the stream goes.
    pub posted: Vec<(usize, usize)>,
    pub placed: BTreeSet<i64>,
    pub cursor: i64,
}

/// What happens to a receiving flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Bytes `[from, to)` of the stream arrive.
    Arrive(i64, i64),
    /// A segment of so many bytes is posted, in a region.
    Post(usize, u8),
    /// Everything up to there is in order, as the transport, or a liar, reports.
    Advance(i64),
}

/// The NIC's half and the reference, side by side.
#[derive(Clone)]
pub(crate) struct Pair {
    pub nic: Nic,
    pub id: FlowId,
    pub memory: Plain,
    pub reference: Reference,
    begin: Seq,
    arrivals: u8,
    /// The next free byte of each region: segments lie apart, so that a byte too many shows.
    free: [usize; REGIONS],
}

pub(crate) fn small_limits() -> Limits {
    Limits { flows: 2, entries: 512, committed: 8, peak: 300, intervals: 64, intervals_per_flow: 32 }
}

impl Pair {
    pub(crate) fn new(begin: Seq) -> Pair {
        let mut nic = Nic::new(small_limits());
        let id = nic.add(tuple(1), DOMAIN, Kind::Stream).unwrap();
        nic.begin_receiving(id, begin);
        let (memory, posted, placed) = ([[0; REGION_LEN]; REGIONS], Vec::new(), BTreeSet::new());
        let reference = Reference { memory, posted, placed, cursor: 0 };
        Pair { nic, id, memory: Plain::new(), reference, begin, arrivals: 0, free: [1; REGIONS] }
    }

    fn seq(&self, at: i64) -> Seq {
        Seq(self.begin.0.wrapping_add(at as u32))
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Arrive(from, to) => self.arrive(from, to),
            Step::Post(region, len) => self.post(region, usize::from(len)),
            Step::Advance(to) => self.advance(to),
        }
        assert_eq!(*self.memory.0.borrow(), self.reference.memory, "after {step:?}");
        let positions = self.nic.positions(self.id).unwrap();
        assert_eq!(positions.cursor, self.seq(self.reference.cursor), "after {step:?}");
        assert_eq!(positions.posted_end, self.seq(self.reference.posted.len() as i64), "after {step:?}");
        assert_eq!(positions.frontier, self.seq(self.reference.frontier()), "after {step:?}");
    }

    fn arrive(&mut self, from: i64, to: i64) {
        self.arrivals = self.arrivals.wrapping_add(1).max(1);
        let payload = vec![self.arrivals; (to - from) as usize];
        let expected = self.reference.arrive(from, to, self.arrivals);
        let got = self.nic.place(self.id, self.seq(from), &payload, &self.memory);
        assert_eq!(got, expected, "[{from}, {to})");
    }

    fn post(&mut self, region: usize, len: usize) {
        let offset = self.free[region];
        if offset + len > REGION_LEN {
            return;
        }
        self.free[region] += len + 1;
        let segment = Segment { key: Key(region as u32), offset: offset as u64, len: len as u64 };
        let posted = self.nic.post_receive(self.id, segment);
        match len {
            0 => assert_eq!(posted, Err(Refused::Segment)),
            _ => assert_eq!(posted, Ok(())),
        }
        self.reference.posted.extend((offset..offset + len).map(|at| (region, at)));
    }

    fn advance(&mut self, to: i64) {
        let moved = self.nic.advance(self.id, self.seq(to));
        assert_eq!(i64::from(moved), self.reference.advance(to), "to {to}");
    }
}

impl Reference {
    pub(crate) fn frontier(&self) -> i64 {
        (self.cursor..).find(|at| !self.placed.contains(at)).unwrap()
    }

    fn arrive(&mut self, from: i64, to: i64, value: u8) -> Arrival {
        let new: Vec<i64> = (from..to).filter(|at| *at >= self.cursor).collect();
        if new.is_empty() {
            return Arrival::Old;
        }
        let mut len = 0;
        for at in &new {
            let Some((region, byte)) = self.posted.get(*at as usize) else { break };
            self.memory[*region][*byte] = value;
            self.placed.insert(*at);
            len += 1;
        }
        match len {
            0 => Arrival::Nowhere,
            _ => Arrival::Placed { skip: (to - from) as u32 - new.len() as u32, len },
        }
    }

    fn advance(&mut self, to: i64) -> i64 {
        let to = to.min(self.frontier()).max(self.cursor);
        let moved = to - self.cursor;
        self.cursor = to;
        moved
    }
}
