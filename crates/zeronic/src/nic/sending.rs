//! Bytes to send: copied or referred to out of the posted segments, and retired once the peer has them.
use super::flow::Aim;
use super::list::Segment;
use super::payload::Memory;
use super::{FlowId, Kind, Mark, Nic, find_mut, which};
use memory::{Fault, Transfer};
use port::Piece;
use std::sync::Arc;
use wire::Seq;

/// Bytes in a row from which on a frame of their own, which refers to them, costs less than copying them.
pub(super) const WORTH_REFERRING: u64 = 4096;
/// Bytes of a whole frame from which on it refers to them.
pub(super) const LEAST_REFERRED: u32 = 512;

/// Result of a request for bytes to send.
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

/// A part of the outgoing stream that comes out of a device's memory.
pub struct Read {
    /// Its first byte.
    pub seq: Seq,
    /// The copy.
    pub transfer: Arc<Transfer>,
}

impl Nic {
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
        flow.source(&self.stores[which(self.table, id)], aim, |part| {
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
        flow.source(&self.stores[which(self.table, id)], aim, |part| {
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

    /// How the first bytes of `[seq, seq + len)` of the outgoing stream are had best. It is by reference where so many
    /// lie in a row that this is worth it. Then they count as fetched.
    pub fn refer(&mut self, id: FlowId, seq: Seq, len: u32, memory: &impl Memory) -> Piece {
        let all = Piece::Copy(len as usize);
        let Some(flow) = find_mut(&mut self.lines, id) else { return all };
        if flow.kind == Kind::Operations {
            return self.refer_operation(id, seq, len, memory).unwrap_or(all);
        }
        let Some(aim) = flow.aim_fetch(seq, len).filter(|aim| aim.skip == 0 && aim.len > 0) else { return all };
        let (mut first, mut before) = (None::<Segment>, 0);
        // Pieces in a row count as one; the first that is long enough ends the search.
        flow.source(&self.stores[which(self.table, id)], aim, |part| match &mut first {
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
        let moved = find_mut(&mut self.lines, id)
            .map_or(0, |flow| flow.acknowledged(&mut self.stores[which(self.table, id)], to));
        if let Some(messages) = self.messages.get_mut(&id.line).filter(|_| moved > 0) {
            let count = messages.acknowledged(moved);
            if let Some(operations) = self.operations.get_mut(&id.line) {
                operations.retire(count);
            }
        }
        moved
    }
}
