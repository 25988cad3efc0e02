//! The NIC's half: flow table, memory segments, cursors. It is a state machine: payload, posts and cursor moves come
//! in; reads and writes of registered memory go out, through [`Memory`].
mod flow;
mod list;
mod messages;
mod operations;
mod out_of_order;
mod payload;
mod store;
mod verbs;

pub use flow::Kind;
pub use list::{Refused, Segment};
pub use messages::Mark;
pub use operations::{Finished, Guide, Outgoing};
pub use payload::{Memory, Payload, Started};

use flow::{Aim, Case, Flow};
use memory::{Domain, Fault, Transfer};
use messages::Messages;
use operations::Operations;
use out_of_order::OutOfOrder;
use port::Piece;
use std::collections::HashMap;
use std::sync::Arc;
use store::{BLOCK, Store};
use wire::{Ipv4Tuple, Seq};

/// Bytes in a row from which on a frame of their own, which refers to them, costs less than copying them.
const WORTH_REFERRING: u64 = 4096;
/// Bytes of a whole frame from which on it refers to them.
const LEAST_REFERRED: u32 = 512;

/// How much a NIC holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lines of the flow table, at most 65,535.
    pub flows: usize,
    /// Entries of the backing store.
    pub entries: usize,
    /// Entries that a flow is promised, for both its lists.
    pub committed: usize,
    /// Most entries of one list.
    pub peak: usize,
    /// Intervals above holes, of all flows.
    pub intervals: usize,
    /// Intervals of one flow.
    pub intervals_per_flow: usize,
}

impl Default for Limits {
    /// The paper's section 3.2.
    fn default() -> Limits {
        Limits { flows: 10_000, entries: 1 << 20, committed: 128, peak: 8192, intervals: 8192, intervals_per_flow: 512 }
    }
}

/// Names a flow; not used again for another one soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId {
    line: u16,
    generation: u16,
}

impl FlowId {
    /// The line of the flow table: below [`Limits::flows`], and one flow's at a time.
    pub fn line(self) -> usize {
        usize::from(self.line)
    }
}

/// What became of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Its bytes `[skip, skip + len)` are in memory; those before were there already, those behind have no segment.
    Placed {
        /// Bytes below the cursor.
        skip: u32,
        /// Bytes that were written.
        len: u32,
    },
    /// The same bytes are on their way into a device's memory: [`Nic::take_started`] has the copies, and
    /// [`Nic::has_landed`] is to be notified when all of them have ended.
    Placing {
        /// Bytes below the cursor.
        skip: u32,
        /// Bytes that are being written.
        len: u32,
    },
    /// All of it lies below the cursor.
    Old,
    /// It has no segment.
    Nowhere,
    /// There are as many holes as can be remembered.
    Holes,
    /// The memory cannot be written.
    Fault(Fault),
    /// The message is longer than its receive.
    TooLong,
    /// What is said of its message cannot be, beside what was said before.
    Impossible,
    /// There is no such flow, or it is of another kind.
    NoFlow,
}

/// What became of a request for bytes to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// They were appended, but for the first `skip`, which are acknowledged.
    Done {
        /// Bytes below `una`.
        skip: u32,
    },
    /// All of them are acknowledged.
    Old,
    /// Some were never posted.
    NotPosted,
    /// The memory cannot be read.
    Fault(Fault),
    /// There is no such flow.
    NoFlow,
}

#[derive(Clone, Default)]
struct FlowSlot {
    generation: u16,
    flow: Option<Flow>,
}

/// The NIC's half.
#[derive(Clone)]
pub struct Nic {
    limits: Limits,
    store: Store,
    lines: Box<[FlowSlot]>,
    free: Vec<u16>,
    by_tuple: HashMap<Ipv4Tuple, u16>,
    /// What was placed ahead of holes, of those flows that have some.
    ahead: HashMap<u16, OutOfOrder>,
    intervals: usize,
    /// Of flows of messages, what is known of these.
    messages: HashMap<u16, Messages>,
    /// Of those of verbs, what they are as well.
    operations: HashMap<u16, Operations>,
    /// Copies that the last placement has started.
    started: Vec<Arc<Transfer>>,
}

/// A part of the outgoing stream that comes out of a device's memory.
pub struct Read {
    /// Its first byte.
    pub seq: Seq,
    /// The copy.
    pub transfer: Arc<Transfer>,
}

impl Nic {
    /// A NIC without flows. All its memory is allocated here, but for what is remembered of holes.
    pub fn new(limits: Limits) -> Nic {
        let flows = limits.flows.min(usize::from(u16::MAX));
        Nic {
            limits,
            store: Store::new(limits.entries),
            lines: (0..flows).map(|_| FlowSlot::default()).collect(),
            free: (0..flows as u16).rev().collect(),
            by_tuple: HashMap::with_capacity(flows),
            ahead: HashMap::new(),
            intervals: 0,
            messages: HashMap::new(),
            started: Vec::new(),
            operations: HashMap::new(),
        }
    }

    /// Adds a flow; `None` where the table is full or has the tuple: then its payload is not split off.
    pub fn add(&mut self, tuple: Ipv4Tuple, domain: Domain, kind: Kind) -> Option<FlowId> {
        if self.by_tuple.contains_key(&tuple) {
            return None;
        }
        let line = self.free.pop()?;
        // One block more than the entries need, as a list may begin anywhere in its first block.
        let account = self.store.open(self.limits.committed.div_ceil(BLOCK) + 1);
        let place = &mut self.lines[usize::from(line)];
        place.generation = place.generation.wrapping_add(1);
        place.flow = Some(Flow::new(tuple, domain, kind, account));
        if kind.has_marks() {
            self.messages.insert(line, Messages::default());
        }
        if kind == Kind::Operations {
            self.operations.insert(line, Operations::default());
        }
        self.by_tuple.insert(tuple, line);
        Some(FlowId { line, generation: place.generation })
    }

    /// Removes a flow: from now on nothing is written or read for it.
    pub fn remove(&mut self, id: FlowId) -> bool {
        let Some(flow) = self.lines.get_mut(id.line()).filter(|line| line.generation == id.generation) else {
            return false;
        };
        let Some(flow) = flow.flow.take() else { return false };
        self.by_tuple.remove(&flow.tuple);
        flow.end(&mut self.store);
        self.intervals -= self.ahead.remove(&id.line).map_or(0, |ahead| ahead.len());
        self.messages.remove(&id.line);
        self.operations.remove(&id.line);
        self.free.push(id.line);
        true
    }

    /// The flow of a connection.
    pub fn find(&self, tuple: &Ipv4Tuple) -> Option<FlowId> {
        let line = *self.by_tuple.get(tuple)?;
        Some(FlowId { line, generation: self.lines[usize::from(line)].generation })
    }

    /// Appends a segment to receive into.
    pub fn post_receive(&mut self, id: FlowId, segment: Segment) -> Result<(), Refused> {
        let (peak, store) = (self.limits.peak, &mut self.store);
        find_mut(&mut self.lines, id).ok_or(Refused::Flow)?.post_receive(store, peak, segment)
    }

    /// Appends a segment to send.
    pub fn post_send(&mut self, id: FlowId, segment: Segment) -> Result<(), Refused> {
        let (peak, store) = (self.limits.peak, &mut self.store);
        find_mut(&mut self.lines, id).ok_or(Refused::Flow)?.post_send(store, peak, segment)?;
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.sends(segment.len as u32);
        }
        Ok(())
    }

    /// The incoming stream begins at `seq`. Does nothing once some of it was placed.
    pub fn begin_receiving(&mut self, id: FlowId, seq: Seq) {
        if let Some(flow) = find_mut(&mut self.lines, id) {
            flow.begin_receiving(seq);
        }
    }

    /// The outgoing stream begins at `seq`. Does nothing once some of it was sent.
    pub fn begin_sending(&mut self, id: FlowId, seq: Seq) {
        if let Some(flow) = find_mut(&mut self.lines, id) {
            flow.begin_sending(seq);
        }
    }

    /// Places a part of a stream (figure 8), before any transport has seen it.
    pub fn place(&mut self, id: FlowId, seq: Seq, payload: &[u8], memory: &impl Memory) -> Arrival {
        self.place_payload(id, seq, Payload::Bytes(payload), memory)
    }

    /// The same wherever the payload lies: it is copied once.
    pub fn place_payload(&mut self, id: FlowId, seq: Seq, payload: Payload<'_>, memory: &impl Memory) -> Arrival {
        self.started.clear();
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Stream) else {
            return Arrival::NoFlow;
        };
        let aim = match flow.aim(seq, payload.len() as u32) {
            Case::Old => return Arrival::Old,
            Case::Nowhere => return Arrival::Nowhere,
            Case::Place(aim) => aim,
        };
        let Some(held) = self.room_for(id, aim) else { return Arrival::Holes };
        let flow = find_mut(&mut self.lines, id).expect("it was found");
        let (mut at, mut result) = (aim.skip as usize, Ok(()));
        flow.target(&self.store, aim, |part| {
            let range = at..at + part.len as usize;
            at = range.end;
            if result.is_ok() {
                let written = payload.write(flow.domain, part.key, part.offset, range, memory);
                result = written.map(|started| self.started.extend(started));
            }
        });
        match result {
            Ok(()) => self.written(id, aim, held),
            Err(fault) => Arrival::Fault(fault),
        }
    }

    /// Copies that the last placement has started, also where it then failed. Those of a [`Arrival::Placing`] are some.
    pub fn take_started(&mut self) -> Vec<Arc<Transfer>> {
        std::mem::take(&mut self.started)
    }

    /// The bytes `[seq, seq + len)` that were on their way ([`Arrival::Placing`]) are in memory.
    pub fn has_landed(&mut self, id: FlowId, seq: Seq, len: u32) {
        let Some(aim) = find_mut(&mut self.lines, id).and_then(|flow| flow.aim_part(seq, len)) else { return };
        let held = self.ahead.get(&id.line).map_or(0, OutOfOrder::len);
        self.landed(id, aim, held);
    }

    /// Bytes are written as they were aimed, or on their way.
    fn written(&mut self, id: FlowId, aim: Aim, held: usize) -> Arrival {
        if self.started.is_empty() {
            return self.landed(id, aim, held);
        }
        Arrival::Placing { skip: aim.skip, len: aim.len }
    }

    /// Places a part of a message, wherever its message's receive is (the paper's section 3.5).
    pub fn place_part(
        &mut self,
        id: FlowId,
        seq: Seq,
        mark: Mark,
        payload: Payload<'_>,
        memory: &impl Memory,
    ) -> Arrival {
        self.started.clear();
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Messages) else {
            return Arrival::NoFlow;
        };
        let Some(aim) = flow.aim_part(seq, payload.len() as u32) else { return Arrival::Old };
        let Some(messages) = self.messages.get(&id.line) else { return Arrival::NoFlow };
        let (within, cursor) = (u64::from(seq - mark.start), flow.cursor());
        let inside = within + payload.len() as u64 <= u64::from(mark.len);
        let Some(index) = messages.receive_of(mark, cursor).filter(|_| inside) else { return Arrival::Impossible };
        let Some(receive) = flow.receive(&self.store, index) else { return Arrival::Nowhere };
        // A receive of which something came has the message's length.
        if u64::from(mark.len) > receive.len {
            return Arrival::TooLong;
        }
        let Some(held) = self.room_for(id, aim) else { return Arrival::Holes };
        let flow = find_mut(&mut self.lines, id).expect("it was found");
        let (range, at) = (aim.skip as usize..payload.len(), receive.offset + within + u64::from(aim.skip));
        match payload.write(flow.domain, receive.key, at, range, memory) {
            Ok(started) => self.started.extend(started),
            Err(fault) => return Arrival::Fault(fault),
        }
        flow.shorten(&mut self.store, index, mark.len);
        if let Some(messages) = self.messages.get_mut(&id.line) {
            messages.came(index, mark, cursor);
        }
        self.written(id, aim, held)
    }

    /// How many intervals above holes a flow has; `None` where the aim needs one more than there may be.
    fn room_for(&mut self, id: FlowId, aim: Aim) -> Option<usize> {
        let held = self.ahead.get(&id.line).map_or(0, OutOfOrder::len);
        let full = self.intervals >= self.limits.intervals || held >= self.limits.intervals_per_flow;
        let flow = find_mut(&mut self.lines, id)?;
        (!full || !flow.opens_a_hole(aim)).then_some(held)
    }

    /// Bytes were written as they were aimed; the flow had `held` intervals above holes.
    fn landed(&mut self, id: FlowId, aim: Aim, held: usize) -> Arrival {
        let Some(flow) = find_mut(&mut self.lines, id) else { return Arrival::NoFlow };
        if held == 0 && !flow.opens_a_hole(aim) {
            flow.landed(aim, &mut OutOfOrder::default());
        } else {
            let ahead = self.ahead.entry(id.line).or_default();
            flow.landed(aim, ahead);
            self.intervals = self.intervals + ahead.len() - held;
            if ahead.len() == 0 {
                self.ahead.remove(&id.line);
            }
        }
        Arrival::Placed { skip: aim.skip, len: aim.len }
    }

    /// Places an unreliable datagram in the next segment. One that is longer stays out, and the segment stays.
    pub fn place_datagram(&mut self, id: FlowId, payload: &[u8], memory: &impl Memory) -> Arrival {
        let Some(flow) = find_mut(&mut self.lines, id).filter(|flow| flow.kind == Kind::Datagrams) else {
            return Arrival::NoFlow;
        };
        let segment = flow.next_for_datagram(&self.store);
        let Some(segment) = segment.filter(|segment| segment.len >= payload.len() as u64) else {
            return Arrival::Nowhere;
        };
        if let Err(fault) = memory.write(flow.domain, segment.key, segment.offset, payload) {
            return Arrival::Fault(fault);
        }
        flow.datagram_landed(&mut self.store);
        Arrival::Placed { skip: 0, len: payload.len() as u32 }
    }

    /// The transport has the stream in order up to `to`: moves the cursor, never past the first hole, and retires
    /// segments behind it. Returns by how many bytes.
    pub fn advance(&mut self, id: FlowId, to: Seq) -> u32 {
        let moved = find_mut(&mut self.lines, id).map_or(0, |flow| flow.advance(&mut self.store, to));
        if let Some(messages) = self.messages.get_mut(&id.line).filter(|_| moved > 0) {
            messages.advanced(moved);
            if let Some(operations) = self.operations.get_mut(&id.line) {
                while messages.take().is_some() {
                    operations.finish();
                }
            }
        }
        moved
    }

    /// The bytes of the next message that is behind the cursor, each once.
    pub fn take_message(&mut self, id: FlowId) -> Option<u32> {
        self.positions(id)?;
        self.messages.get_mut(&id.line)?.take()
    }

    /// The message that byte `seq` of the outgoing stream is in, and how many of its bytes are left from there on.
    pub fn message_at(&self, id: FlowId, seq: Seq) -> Option<(Mark, u32)> {
        self.messages.get(&id.line)?.at(seq, self.positions(id)?.una)
    }

    /// Appends the bytes `[seq, seq + len)` of the outgoing stream to `into`, but none that the peer has.
    pub fn fetch(&mut self, id: FlowId, seq: Seq, len: u32, into: &mut Vec<u8>, memory: &impl Memory) -> Fetch {
        let Some(flow) = find_mut(&mut self.lines, id) else { return Fetch::NoFlow };
        if flow.kind == Kind::Operations {
            return self.fetch_operation(id, seq, len, into, memory);
        }
        let Some(aim) = flow.aim_fetch(seq, len) else { return Fetch::NotPosted };
        if aim.len == 0 {
            return Fetch::Old;
        }
        let (before, mut result) = (into.len(), Ok(()));
        flow.source(&self.store, aim, |part| {
            if result.is_ok() {
                result = memory.append(flow.domain, part.key, part.offset, part.len as usize, into);
            }
        });
        if let Err(fault) = result {
            into.truncate(before);
            return Fetch::Fault(fault);
        }
        flow.fetched(aim);
        Fetch::Done { skip: aim.skip }
    }

    /// Starts to read what of `[seq, seq + len)` lies in devices' memory. Nothing of it counts as fetched yet. Returns
    /// of how many bytes it is known how they are had: fewer where a device's queue has no room for the next ones.
    ///
    /// # Errors
    /// The device is gone.
    pub fn start_fetch(
        &self,
        id: FlowId,
        seq: Seq,
        len: u32,
        memory: &impl Memory,
        reads: &mut Vec<Read>,
    ) -> Result<u32, Fault> {
        let flow = self.lines.get(id.line()).filter(|line| line.generation == id.generation);
        let Some(flow) = flow.and_then(|line| line.flow.as_ref()) else { return Ok(len) };
        // What nobody posted, or cannot be read, is found missing when it is fetched.
        let Some(aim) = flow.aim_fetch(seq, len).filter(|aim| aim.len > 0) else { return Ok(len) };
        let (begin, mut known, mut result) = (seq + aim.skip, 0, Ok(()));
        flow.source(&self.store, aim, |part| {
            if result.is_err() {
                return;
            }
            match memory.start_read(flow.domain, part.key, part.offset, part.len as usize) {
                Ok(started) => reads.extend(started.map(|transfer| Read { seq: begin + known, transfer })),
                Err(fault @ (Fault::Busy | Fault::Lost)) => result = Err(fault),
                Err(_) => {}
            }
            if result.is_ok() {
                known += part.len as u32;
            }
        });
        match result {
            Err(Fault::Lost) => Err(Fault::Lost),
            Err(_) => Ok(aim.skip + known),
            Ok(()) => Ok(len),
        }
    }

    /// The bytes `[seq, seq + len)` came out of a device's memory and are sent: as by [`Nic::fetch`]. False where they
    /// were not posted, or the peer has some.
    pub fn fetched(&mut self, id: FlowId, seq: Seq, len: u32) -> bool {
        let Some(flow) = find_mut(&mut self.lines, id) else { return false };
        let aim = flow.aim_fetch(seq, len).filter(|aim| aim.len > 0 && aim.skip == 0);
        aim.map(|aim| flow.fetched(aim)).is_some()
    }

    /// Whose memory a flow uses.
    pub fn domain(&self, id: FlowId) -> Option<Domain> {
        let line = self.lines.get(id.line()).filter(|line| line.generation == id.generation)?;
        line.flow.as_ref().map(|flow| flow.domain)
    }

    /// How the first bytes of `[seq, seq + len)` of the outgoing stream are had best: by reference where so many lie in
    /// a row that this is worth it, and then they count as fetched.
    pub fn refer(&mut self, id: FlowId, seq: Seq, len: u32, memory: &impl Memory) -> Piece {
        let all = Piece::Copy(len as usize);
        let Some(flow) = find_mut(&mut self.lines, id) else { return all };
        if flow.kind == Kind::Operations {
            return self.refer_operation(id, seq, len, memory).unwrap_or(all);
        }
        let Some(aim) = flow.aim_fetch(seq, len).filter(|aim| aim.skip == 0 && aim.len > 0) else { return all };
        let (mut first, mut before) = (None::<Segment>, 0);
        // Pieces in a row count as one; the first that is long enough ends the search.
        flow.source(&self.store, aim, |part| match &mut first {
            Some(row) if row.key == part.key && row.offset + row.len == part.offset => row.len += part.len,
            Some(row) if row.len >= WORTH_REFERRING => {}
            row => {
                before += row.as_ref().map_or(0, |row| row.len);
                *row = Some(part);
            }
        });
        let whole = |row: &Segment| row.len == u64::from(len) && len >= LEAST_REFERRED;
        let Some(row) = first.filter(|row| row.len >= WORTH_REFERRING || whole(row)) else { return all };
        if before > 0 {
            return Piece::Copy(before as usize);
        }
        match memory.refer(flow.domain, row.key, row.offset, row.len as usize) {
            Ok(Some(span)) => {
                flow.fetched(Aim { len: row.len as u32, ..aim });
                Piece::Refer(span)
            }
            // What cannot be referred to, and faults, are seen when it is copied.
            _ => Piece::Copy(row.len as usize),
        }
    }

    /// The peer has the outgoing stream up to `to`: segments behind it retire. Never past what was sent.
    pub fn acknowledged(&mut self, id: FlowId, to: Seq) -> u32 {
        let moved = find_mut(&mut self.lines, id).map_or(0, |flow| flow.acknowledged(&mut self.store, to));
        if let Some(messages) = self.messages.get_mut(&id.line).filter(|_| moved > 0) {
            let count = messages.acknowledged(moved);
            if let Some(operations) = self.operations.get_mut(&id.line) {
                operations.retire(count);
            }
        }
        moved
    }

    /// The positions of a flow.
    pub fn positions(&self, id: FlowId) -> Option<Positions> {
        let line = self.lines.get(id.line()).filter(|line| line.generation == id.generation)?;
        let flow = line.flow.as_ref()?;
        Some(Positions {
            cursor: flow.cursor(),
            frontier: flow.frontier(),
            posted_end: flow.posted_end(),
            una: flow.una(),
            entries: flow.entries(),
        })
    }

    /// Entries of the backing store that no flow has.
    pub fn free_entries(&self) -> usize {
        self.store.available() * BLOCK
    }
}

fn find_mut(lines: &mut [FlowSlot], id: FlowId) -> Option<&mut Flow> {
    lines.get_mut(id.line()).filter(|line| line.generation == id.generation)?.flow.as_mut()
}

/// Where a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// The incoming stream is in order up to here, says the transport.
    pub cursor: Seq,
    /// It was placed without a hole up to here.
    pub frontier: Seq,
    /// The byte behind the last one that has a segment.
    pub posted_end: Seq,
    /// The first byte of the outgoing stream that the peer has not acknowledged.
    pub una: Seq,
    /// Entries of both lists.
    pub entries: usize,
}
