//! One flow: its two lists, the cursor, and what was placed (the paper's figure 8).
use super::list::{List, MOST_OF_ENTRY, Refused, Segment};
use super::out_of_order::OutOfOrder;
use super::store::{Account, Store};
use memory::Domain;
use wire::{Ipv4Tuple, Seq};

/// Content of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A stream with sequence numbers: TCP.
    Stream,
    /// Messages over a stream: each one takes a receive.
    Messages,
    /// Messages of verbs over a stream: each has its place in its header.
    Operations,
    /// Unreliable datagrams: each one lands in the next segment.
    Datagrams,
}

impl Kind {
    /// Segments carry the mark of their message.
    pub(crate) fn has_marks(self) -> bool {
        matches!(self, Kind::Messages | Kind::Operations)
    }
}

/// What an operation may be ahead of the cursor: what is in order needs no memory of anybody's to be posted.
const OPERATIONS_WINDOW: u32 = 4 << 20;

/// Where a payload goes: its bytes `[skip, skip + len)`, to byte `from` of what is left of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aim {
    pub(super) skip: u32,
    pub(super) len: u32,
    pub(super) from: u64,
}

/// The cases of figure 8 for a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    /// (a), (c), (d)
    Place(Aim),
    /// (b)
    Old,
    /// (e)
    Nowhere,
}

/// A line of the flow table. Kept small: there are ten thousand.
#[derive(Clone)]
pub(super) struct Flow {
    pub(super) tuple: Ipv4Tuple,
    pub(super) domain: Domain,
    pub(super) kind: Kind,
    account: Account,
    receives: List,
    sends: List,
    /// The stream is in order up to here, as the transport reports.
    cursor: Seq,
    /// The stream was placed without a hole up to here: at or above the cursor.
    frontier: Seq,
    /// The first byte that the peer has not acknowledged.
    una: Seq,
    /// The byte behind the last one that was fetched.
    sent: Seq,
    /// Some bytes were placed, or fetched: where the stream began does not change any more.
    has_received: bool,
    has_sent: bool,
}

impl Flow {
    pub(super) fn new(tuple: Ipv4Tuple, domain: Domain, kind: Kind, account: Account) -> Flow {
        Flow {
            tuple,
            domain,
            kind,
            account,
            receives: List::EMPTY,
            sends: List::EMPTY,
            cursor: Seq(0),
            frontier: Seq(0),
            una: Seq(0),
            sent: Seq(0),
            has_received: false,
            has_sent: false,
        }
    }

    /// Gives everything back to the store.
    pub(super) fn end(mut self, store: &mut Store) {
        self.receives.clear(store, &mut self.account);
        self.sends.clear(store, &mut self.account);
        store.close(self.account);
    }

    pub(super) fn post_receive(&mut self, store: &mut Store, most: usize, segment: Segment) -> Result<(), Refused> {
        // A message, or a datagram, takes a whole entry.
        if self.kind != Kind::Stream && segment.len > MOST_OF_ENTRY {
            return Err(Refused::Segment);
        }
        self.receives.push(store, &mut self.account, most, segment)
    }

    pub(super) fn post_send(&mut self, store: &mut Store, most: usize, segment: Segment) -> Result<(), Refused> {
        // A message, or a datagram, takes a whole entry.
        if matches!(self.kind, Kind::Messages | Kind::Datagrams) && segment.len > MOST_OF_ENTRY {
            return Err(Refused::Segment);
        }
        self.sends.push(store, &mut self.account, most, segment)
    }

    /// Entries of both lists.
    pub(super) fn entries(&self) -> usize {
        self.receives.entries() + self.sends.entries()
    }

    /// The incoming stream begins here. Without effect once something was placed.
    pub(super) fn begin_receiving(&mut self, seq: Seq) {
        if !self.has_received {
            (self.cursor, self.frontier) = (seq, seq);
        }
    }

    /// The outgoing stream begins here. Without effect once something was sent.
    pub(super) fn begin_sending(&mut self, seq: Seq) {
        if !self.has_sent {
            (self.una, self.sent) = (seq, seq);
        }
    }

    pub(super) fn cursor(&self) -> Seq {
        self.cursor
    }

    pub(super) fn frontier(&self) -> Seq {
        self.frontier
    }

    /// The byte behind the last one that has a segment; at most 2^31 - 1 behind the cursor.
    pub(super) fn posted_end(&self) -> Seq {
        match self.kind {
            Kind::Operations => self.cursor + OPERATIONS_WINDOW,
            _ => self.cursor + self.receives.bytes().min(i32::MAX as u64) as u32,
        }
    }

    /// Figure 8 for a part of a message, whose receive is known: what of `[seq, seq + len)` is new.
    pub(super) fn aim_part(&self, seq: Seq, len: u32) -> Option<Aim> {
        let at = (seq - self.cursor) as i32;
        let skip = if at < 0 { at.unsigned_abs() } else { 0 };
        (skip < len).then(|| Aim { skip, len: len - skip, from: at.max(0) as u64 })
    }

    /// The receive of that place in the list, whole.
    pub(super) fn receive(&self, store: &Store, index: usize) -> Option<Segment> {
        self.receives.nth(store, index)
    }

    /// The message of that receive has `len` bytes, not more than were posted.
    pub(super) fn shorten(&mut self, store: &mut Store, index: usize, len: u32) {
        self.receives.shorten(store, index, u64::from(len));
    }

    /// Figure 8.
    pub(super) fn aim(&self, seq: Seq, len: u32) -> Case {
        let at = (seq - self.cursor) as i32;
        let skip = if at < 0 { at.unsigned_abs() } else { 0 };
        if skip >= len {
            return Case::Old;
        }
        let from = at.max(0) as u64;
        match self.receives.bytes().saturating_sub(from) {
            0 => Case::Nowhere,
            room => Case::Place(Aim { skip, len: room.min(u64::from(len - skip)) as u32, from }),
        }
    }

    /// The parts of memory that an aim means.
    pub(super) fn target(&self, store: &Store, aim: Aim, each: impl FnMut(Segment)) {
        self.receives.walk(store, aim.from, u64::from(aim.len), each);
    }

    /// Bytes were placed as they were aimed. `ahead` has what lies above holes.
    pub(super) fn landed(&mut self, aim: Aim, ahead: &mut OutOfOrder) {
        self.has_received = true;
        let start = self.cursor + aim.from as u32;
        let end = start + aim.len;
        if self.frontier.before(start) {
            ahead.add(start, end);
        } else {
            self.frontier = ahead.join(self.frontier.max(end));
        }
    }

    /// The bytes would be the first above a new hole.
    pub(super) fn opens_a_hole(&self, aim: Aim) -> bool {
        self.frontier.before(self.cursor + aim.from as u32)
    }

    /// The transport has the stream in order up to `to`: moves the cursor there, or to the first hole. Returns by how
    /// much it moved.
    pub(super) fn advance(&mut self, store: &mut Store, to: Seq) -> u32 {
        if to.at_or_before(self.cursor) {
            return 0;
        }
        let moved = (to - self.cursor).min(self.frontier - self.cursor);
        self.cursor += moved;
        if self.kind != Kind::Operations {
            self.receives.retire(store, &mut self.account, u64::from(moved));
        }
        moved
    }

    /// The next segment for a datagram, which has to be at least so long.
    pub(super) fn next_for_datagram(&self, store: &Store) -> Option<Segment> {
        self.receives.front(store)
    }

    /// A datagram took the first segment.
    pub(super) fn datagram_landed(&mut self, store: &mut Store) {
        if let Some(segment) = self.receives.front(store) {
            self.receives.retire(store, &mut self.account, segment.len);
        }
    }

    /// The datagram to send that has so many before it.
    pub(super) fn send_at(&self, store: &Store, index: usize) -> Option<Segment> {
        self.sends.nth(store, index)
    }

    /// Takes the next datagram to send off the list.
    pub(super) fn next_to_send(&mut self, store: &mut Store) -> Option<Segment> {
        let segment = self.sends.front(store)?;
        self.sends.retire(store, &mut self.account, segment.len);
        Some(segment)
    }

    pub(super) fn una(&self) -> Seq {
        self.una
    }

    /// What can be fetched of `[seq, seq + len)`: how many bytes of it are acknowledged, and where the others are in
    /// the list. `None` where some were never posted.
    pub(super) fn aim_fetch(&self, seq: Seq, len: u32) -> Option<Aim> {
        self.aim_among(self.sends.bytes(), seq, len)
    }

    /// The same, of so many bytes that were posted.
    pub(super) fn aim_among(&self, posted: u64, seq: Seq, len: u32) -> Option<Aim> {
        let at = (seq - self.una) as i32;
        let skip = if at < 0 { at.unsigned_abs().min(len) } else { 0 };
        let from = at.max(0) as u64;
        let aim = Aim { skip, len: len - skip, from };
        (aim.len == 0 || from + u64::from(aim.len) <= posted).then_some(aim)
    }

    /// The parts of memory that are fetched.
    pub(super) fn source(&self, store: &Store, aim: Aim, each: impl FnMut(Segment)) {
        self.sends.walk(store, aim.from, u64::from(aim.len), each);
    }

    /// Bytes were fetched as they were aimed.
    pub(super) fn fetched(&mut self, aim: Aim) {
        self.has_sent = true;
        self.sent = self.sent.max(self.una + aim.from as u32 + aim.len);
    }

    /// The transport reports that the peer has everything up to `to`: moves `una` there, or to what was sent. Returns
    /// by how much.
    pub(super) fn acknowledged(&mut self, store: &mut Store, to: Seq) -> u32 {
        if to.at_or_before(self.una) {
            return 0;
        }
        let moved = (to - self.una).min(self.sent - self.una);
        self.una += moved;
        if self.kind != Kind::Operations {
            self.sends.retire(store, &mut self.account, u64::from(moved));
        }
        moved
    }
}
