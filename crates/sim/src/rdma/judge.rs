//! Sees both sides of a link: what each completion states must be so at this moment.
use super::memory::{Memory, Needs};
use super::network::Network;
use super::plan::{LEAST_RAW, LinkKind, LinkPlan};
use super::program::{Half, SPARE};
use super::raw::Lane;
use super::work::{Work, WorkIndex, draw, stream};
use crate::plan::Plan;
use crate::random::Random;
use ::memory::MemoryTable;
use ::verbs::{Completion, CompletionFlags, SendOpcode};

/// Bytes before a datagram in the memory that it is received into.
const GRH: usize = 40;

/// The judge of a link.
pub(crate) struct Judge {
    seed: u64,
    link: usize,
    plan: LinkPlan,
    pub(crate) network: Network,
    /// What each queue pair of each side sends.
    pub(crate) works: [Vec<Vec<Work>>; 2],
    pub(crate) memories: [Memory; 2],
    /// The ways to each side's queue pairs of raw packets.
    pub(crate) lanes: [Vec<Lane>; 2],
    /// Operations that were found right.
    pub(crate) judged: u64,
    #[cfg(test)]
    pub(crate) lie: Option<Lie>,
}

/// What is wrong with a completion, in tests of the judge.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// It comes twice.
    Twice,
    /// It does not come.
    LeftOut,
    /// It comes before its data: they are not there yet, or were altered.
    Early,
    /// It is an error.
    Status,
    /// A byte before a place is written.
    Outside,
    /// It is of another shared receive queue.
    Queue,
    /// It invalidates another key, or one at all.
    Key,
}

/// A message that came.
pub(crate) struct Arrival<'a> {
    pub(crate) done: &'a Completion,
    /// Place of its receive work request.
    pub(crate) place: usize,
    /// The queue pair that it came to, and its peer's.
    pub(crate) half: &'a mut Half,
    pub(crate) peer: Option<&'a Half>,
}

impl Judge {
    /// The judge of link number `link` of a scenario.
    pub(crate) fn new(all: &Plan, link: usize, table: &MemoryTable, pids: [u32; 2]) -> Result<Judge, String> {
        let (seed, plan, network) = (all.seed, &all.links[link], Network::of(all));
        let mut random = Random::new(seed ^ super::device::OWN ^ (link as u64 + 77) << 32);
        let works = [0, 1].map(|side| (0..plan.qps).map(|_| draw(plan, plan.works[side], &mut random)).collect());
        let memory = |side: usize| {
            let shared = plan.shared_queues() * (plan.receives + SPARE);
            let receives = if shared > 0 { shared } else { plan.receives * plan.qps };
            let targets = plan.qps * plan.works[1 - side] + plan.qps;
            let bytes = (plan.longest as usize).max(8) + GRH;
            let needs = Needs {
                bytes,
                places: [(plan.qps * plan.works[side]).max(1), targets, receives],
                windows: plan.kind == LinkKind::Windowed,
            };
            Memory::new(table, super::program::Program::domain(pids[side]), needs)
        };
        let memories = [memory(0)?, memory(1)?];
        let is_raw = plan.kind == LinkKind::Raw;
        let lanes =
            [0, 1].map(|side| (0..plan.qps).filter(|_| is_raw).map(|qp| Lane::new(all, link, side, qp)).collect());
        let judge = Judge {
            seed,
            link,
            plan: plan.clone(),
            network,
            works,
            memories,
            lanes,
            judged: 0,
            #[cfg(test)]
            lie: None,
        };
        judge.prepare()?;
        Ok(judge)
    }

    /// What READs are to find, and the counters.
    fn prepare(&self) -> Result<(), String> {
        for side in 0..2 {
            for qp in 0..self.plan.qps {
                for (number, work) in self.works[side][qp].iter().enumerate() {
                    if work.opcode == SendOpcode::Read {
                        let bytes = self.data(side, qp, number);
                        let peer = &self.memories[1 - side];
                        peer.write(peer.target.place(self.place(side, qp, number)), &bytes)?;
                    }
                }
                self.set_counter(side, qp, 0)?;
            }
        }
        Ok(())
    }

    /// The bytes of a work request.
    pub(crate) fn data(&self, side: usize, qp: usize, number: usize) -> Vec<u8> {
        let stream = stream(self.seed, WorkIndex { link: self.link, side, qp, work: number });
        let len = self.works[side][qp][number].len;
        if let Some(lane) = self.lanes[1 - side].get(qp) {
            return lane.frame(number, stream, len);
        }
        let mut bytes = vec![0; len];
        stream.fill(0, &mut bytes);
        bytes
    }

    /// The place of a work request: among its side's sources, and among its peer's targets.
    pub(crate) fn place(&self, side: usize, qp: usize, number: usize) -> usize {
        qp * self.plan.works[side] + number
    }

    /// The place of a queue pair's counter among its peer's targets.
    pub(crate) fn counter(&self, side: usize, qp: usize) -> usize {
        self.plan.qps * self.plan.works[side] + qp
    }

    /// What the counter is when so many works have ended. Nothing is under way.
    pub(crate) fn set_counter(&self, side: usize, qp: usize, done: usize) -> Result<(), String> {
        let works = &self.works[side][qp];
        let value = works.get(done).map_or_else(|| works.last().map_or(0, Work::after), |work| work.before);
        let peer = &self.memories[1 - side];
        peer.write(peer.target.place(self.counter(side, qp)), &value.to_ne_bytes())
    }

    /// A send work request has ended well: it has done what it asks.
    pub(crate) fn sent(&mut self, side: usize, qp: usize, number: usize) -> Result<(), String> {
        self.judged += 1;
        if !self.plan.kind.is_reliable() {
            return Ok(());
        }
        let work = self.works[side][qp][number];
        let (own, peer, place) = (&self.memories[side], &self.memories[1 - side], self.place(side, qp, number));
        let expected = self.data(side, qp, number);
        let (found, what) = match work.opcode {
            SendOpcode::Write | SendOpcode::WriteImmediate => {
                (peer.read(peer.target.place(place), work.len)?, "a WRITE completes before its data are there")
            }
            SendOpcode::Read => (own.read(own.source.place(place), work.len)?, "a READ completes before its data"),
            SendOpcode::FetchAdd | SendOpcode::CompareSwap => {
                let found = own.read(own.source.place(place), 8)?;
                return same(&found, &work.before.to_ne_bytes(), "an atomic is not executed once, in order");
            }
            _ => return Ok(()),
        };
        same(&found, &expected, what)
    }

    /// Which of its peer's messages came.
    fn number(&self, side: usize, qp: usize, arrival: &Arrival<'_>) -> Result<usize, String> {
        let nobody = "a message comes that nobody sent";
        if let Some(lane) = self.lanes[side].get(qp) {
            let own = &self.memories[side];
            let frame = own.read(own.receive.place(arrival.place), LEAST_RAW)?;
            return lane.number(&frame).ok_or_else(|| nobody.into());
        }
        if !self.plan.kind.is_reliable() {
            return Ok(arrival.done.immediate as usize);
        }
        let works = &self.works[1 - side][qp];
        (arrival.half.expected..works.len()).find(|number| works[*number].takes_receive()).ok_or_else(|| nobody.into())
    }

    /// Nothing is lost, and each send finds a receive work request: so the first message of each queue pair has come.
    pub(crate) fn first_came(&self, side: usize, halves: &[Half]) -> Result<(), String> {
        let LinkPlan { breaks, vanishes, receive_gap_us, .. } = &self.plan;
        let is_due = self.network.is_calm
            && !self.plan.kind.of_verbs().is_connected()
            && self.plan.shared_queues() == 0
            && (breaks.is_empty(), *vanishes, *receive_gap_us) == (true, None, 0);
        let none = |qp: usize| halves[qp].expected == 0 && !self.works[1 - side][qp].is_empty();
        match (0..halves.len()).find(|qp| is_due && none(*qp)) {
            Some(qp) => Err(format!("side {side}: nothing came to queue pair {qp}")),
            None => Ok(()),
        }
    }

    /// A message came to queue pair `qp` of a side.
    pub(crate) fn received(&mut self, side: usize, qp: usize, arrival: Arrival<'_>) -> Result<(), String> {
        let number = self.number(side, qp, &arrival)?;
        let Arrival { done, place, half, peer } = arrival;
        let works = &self.works[1 - side][qp];
        let work = works.get(number).filter(|work| work.takes_receive()).ok_or("a message comes that nobody sent")?;
        // Rules bring frames of an earlier life to the queue pair of a later one, also those that were sent again.
        let is_of_this_life = self.lanes[side].is_empty() || self.plan.breaks.is_empty();
        if is_of_this_life && peer.is_some_and(|peer| number >= peer.next) {
            return Err(format!("message {number} comes before it is sent"));
        }
        if self.plan.kind == LinkKind::Extended && done.remote_qp != work.srq {
            return Err(format!("message {number} comes to the wrong shared receive queue, not to {}", work.srq));
        }
        let is_datagram = self.plan.kind == LinkKind::Datagram;
        let header = if is_datagram { GRH } else { 0 };
        if done.bytes as usize != work.len + header {
            return Err(format!("message {number} of {} bytes comes with {}", work.len, done.bytes));
        }
        half.got_window(work.opcode, done)?;
        let has_number = !matches!(work.opcode, SendOpcode::Send | SendOpcode::SendInvalidate);
        if has_number && done.immediate as usize != number {
            return Err(format!("message {number} comes with immediate data {}", done.immediate));
        }
        if is_datagram && (!done.flags.has(CompletionFlags::GRH) || peer.is_some_and(|it| it.number != done.remote_qp))
        {
            return Err(format!("datagram {number} comes from another one: {done:?}"));
        }
        let (keeps_order, keeps_count) = (self.network.keeps_order, self.network.keeps_count);
        if number < half.expected && keeps_order && keeps_count && is_of_this_life {
            return Err(format!("message {number} comes after {}", half.expected));
        }
        half.expected = half.expected.max(number + 1);
        let own = &self.memories[side];
        let expected = self.data(1 - side, qp, number);
        let (at, whole) = (own.receive.place(place), self.plan.longest as usize + header);
        let memory = own.read(at, whole)?;
        let used = match work.opcode {
            SendOpcode::WriteImmediate => {
                let target = own.read(own.target.place(self.place(1 - side, qp, number)), work.len)?;
                same(&target, &expected, "immediate data come before the data of their WRITE")?;
                0
            }
            _ => {
                same(&memory[header..][..work.len], &expected, "a message completes before its data are there")?;
                header + work.len
            }
        };
        // What is left of a message that lost a part, and whose receive work request serves the next one.
        let is_fresh = self.plan.kind != LinkKind::Unreliable || self.network.is_calm;
        if is_fresh && memory[used..].iter().any(|byte| *byte != super::memory::GUARD) {
            return Err(format!("message {number} wrote beyond its {} bytes", work.len));
        }
        self.judged += 1;
        own.clear(&own.receive, place, whole)
    }

    /// Memory that a receive work request had which ended otherwise.
    pub(crate) fn unused(&self, side: usize, place: usize) -> Result<(), String> {
        let own = &self.memories[side];
        own.clear(&own.receive, place, self.plan.longest as usize + GRH)
    }

    /// In the end: nothing stands where nobody may write, and nothing wrong where somebody may.
    pub(crate) fn bytes_in_place(&self) -> Result<(), String> {
        for side in 0..2 {
            let memory = &self.memories[side];
            memory.check(|section, place| self.allowed(side, section, place))?;
        }
        Ok(())
    }

    /// What may stand in a place.
    fn allowed(&self, side: usize, section: usize, place: usize) -> Vec<u8> {
        let memory = &self.memories[side];
        let as_it_is = |at: usize, len: usize| memory.read(at, len).unwrap_or_default();
        let of = if section == 0 { side } else { 1 - side };
        let count = self.plan.works[of].max(1);
        let (qp, number) = (place / count, place % count);
        match (section, self.works[of].get(qp).and_then(|works| works.get(number))) {
            // What its queue pair is still to use, or was lost with it, may be there in part.
            (2, _) => as_it_is(memory.receive.place(place), self.plan.longest as usize + GRH),
            (1, None) => as_it_is(memory.target.place(place), 8),
            (1, Some(work)) if work.writes() || work.opcode == SendOpcode::Read => self.data(of, qp, number),
            (0, Some(work)) if work.opcode.is_atomic() => as_it_is(memory.source.place(place), 8),
            (0, Some(_)) => self.data(of, qp, number),
            _ => Vec::new(),
        }
    }
}

fn same(found: &[u8], expected: &[u8], what: &str) -> Result<(), String> {
    match found.iter().zip(expected).position(|(found, expected)| found != expected) {
        Some(at) => Err(format!("{what} (byte {at} of {})", expected.len())),
        None => Ok(()),
    }
}
