//! Splicing: two connections of one application become one path (FlexTOE appendix B, thesis section 4.3.3). A module
//! of the data-path translates their segments from then on; what it hands over (FIN, RST, options that it does not
//! know) the control plane translates and passes on, with the same arithmetic, and it ends the pair.
mod joining;
mod passing;

pub(crate) use joining::Joining;

use crate::flow::Spliced;
use crate::plane::{Plane, Stage};
use crate::timers::Timer;
use ::host::Slab;
use context::Reply;
use engine::stream::FourTuple;
use engine::{FlowId, Nanos};
use wire::{IpAddress, Mac, Seq, Translation};

/// What was seen of a direction: segments as they come in from its peer, before translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Segments passed on.
    pub segments: u64,
    /// Payload bytes passed on.
    pub bytes: u64,
    /// After the last byte of the latest segment.
    pub next: Seq,
    /// The latest acknowledgement.
    pub ack: Seq,
    /// The latest window, bytes.
    pub window: u32,
}

/// The splice module of the data-path, as the control plane uses it. A direction is named by a number, below
/// [`SpliceTable::capacity`], and by the connection on which its segments come in.
pub trait SpliceTable: Send {
    /// Directions that it holds at most; a pair has two.
    fn capacity(&self) -> u32;
    /// Forgets what was seen of a direction, and takes it to stand at `seen`.
    fn start(&mut self, direction: u32, seen: &Seen);
    /// From now on the module passes segments of `tuple` (as this host sees it) on itself; replaces an earlier entry.
    /// False where it cannot: then they keep coming to the control plane.
    fn insert(&mut self, direction: u32, tuple: &FourTuple, translation: &Translation) -> bool;
    /// From now on they come to the control plane.
    fn remove(&mut self, tuple: &FourTuple);
    /// What the module has seen since [`SpliceTable::start`].
    fn seen(&self, direction: u32) -> Seen;
}

/// One of two connections that are joined, and the direction that begins there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    pub tuple: FourTuple,
    /// Towards this side's peer.
    pub next_hop: IpAddress,
    /// From this side's segments to the other side's.
    pub translation: Translation,
    /// Added to this host's clock in the timestamps to this side's peer.
    pub clock_offset: Option<u32>,
    /// The last timestamps from the peer and to it that the control plane saw.
    pub stamps: (u32, u32),
    /// The application's name for it, as long as it has one.
    pub flow: Option<FlowId>,
    /// After the peer's FIN, once it came; and it was acknowledged.
    pub fin: Option<Seq>,
    pub fin_acked: bool,
    /// Its limit on challenge acknowledgements.
    pub challenges: tcp::ChallengeLimit,
    /// Without what the module of the moment has seen.
    pub seen: Seen,
}

/// Two connections that are joined.
pub(crate) struct Splice {
    pub sides: [Side; 2],
    /// Whose FIN came first.
    pub first_fin: Option<usize>,
    /// The side that has reset it.
    pub reset: Option<usize>,
    pub heard_at: Nanos,
    /// Segments, both ways, when it was last looked at.
    pub segments: u64,
}

impl Splice {
    pub fn both_closed(&self) -> bool {
        self.sides.iter().all(|side| side.fin.is_some())
    }
}

/// All splices of a host.
pub(crate) struct Splices {
    pub all: Slab<Splice>,
    /// Pairs that are being joined.
    pub joining: Vec<Joining>,
    /// The module, where one is loaded.
    pub table: Option<Box<dyn SpliceTable>>,
    /// Of splices that are over, and of all.
    pub totals: Totals,
}

/// What was spliced since the host began, splices that go on not counted among segments and bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub made: u64,
    pub refused: u64,
    pub resets: u64,
    pub segments: u64,
    pub bytes: u64,
    /// Segments that the control plane passed on.
    pub passed: u64,
}

impl Splices {
    pub fn new(most: u32) -> Splices {
        Splices { all: Slab::new(most), joining: Vec::new(), table: None, totals: Totals::default() }
    }

    /// One more pair can be joined.
    pub fn have_room(&self) -> bool {
        let room = |table: &dyn SpliceTable| self.all.vacant().is_some_and(|key| 2 * key + 1 < table.capacity());
        self.table.as_deref().is_some_and(room)
    }

    /// All that was seen of a direction, by the module and by the control plane.
    pub fn seen(&self, key: u32, side: usize) -> Seen {
        let Some(splice) = self.all.get(key) else { return Seen::default() };
        let own = splice.sides[side].seen;
        let direction = 2 * key + side as u32;
        let table = self.table.as_ref().filter(|table| direction < table.capacity());
        let Some(module) = table.map(|table| table.seen(direction)) else { return own };
        Seen {
            segments: own.segments + module.segments,
            bytes: own.bytes + module.bytes,
            next: own.next.max(module.next),
            ack: own.ack.max(module.ack),
            window: own.window.max(module.window),
        }
    }

    /// Hands a direction to the module, as long as its peer may send more than acknowledgements that the control
    /// plane has to see: those of the second FIN.
    pub fn hand_over(&mut self, key: u32, side: usize) {
        let (Some(splice), Some(table)) = (self.all.get(key), self.table.as_mut()) else { return };
        let direction = 2 * key + side as u32;
        if splice.reset.is_none() && !splice.both_closed() && direction < table.capacity() {
            // Where it does not take it, the control plane passes the segments on.
            let Side { tuple, translation, .. } = &splice.sides[side];
            table.insert(direction, tuple, translation);
        }
    }

    /// Takes both directions back: their segments come to the control plane.
    pub fn take_back(&mut self, key: u32) {
        if let (Some(splice), Some(table)) = (self.all.get(key), self.table.as_mut()) {
            splice.sides.iter().for_each(|side| table.remove(&side.tuple));
        }
    }

    /// The totals, with those of splices that go on.
    pub fn figures(&self) -> Vec<(&'static str, u64)> {
        let seen = || self.all.iter().flat_map(|(key, _)| [self.seen(key, 0), self.seen(key, 1)]);
        let Totals { made, refused, resets, segments, bytes, passed } = self.totals;
        vec![
            ("made", made),
            ("refused", refused),
            ("resets", resets),
            ("segments", segments + seen().map(|seen| seen.segments).sum::<u64>()),
            ("bytes", bytes + seen().map(|seen| seen.bytes).sum::<u64>()),
            ("passed_by_control_plane", passed),
        ]
    }
}

impl Plane {
    /// The splice module came or went. What is spliced goes on either way: without the module, by the control plane.
    pub fn set_splice_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        let keys: Vec<u32> = self.splices.all.iter().map(|(key, _)| key).collect();
        for key in &keys {
            let seen = [0, 1].map(|side| self.splices.seen(*key, side));
            if let Some(splice) = self.splices.all.get_mut(*key) {
                splice.sides.iter_mut().zip(seen).for_each(|(side, seen)| side.seen = seen);
            }
            self.splices.take_back(*key);
        }
        self.splices.table = table;
        for key in keys {
            for side in 0..2 {
                self.start_direction(key, side);
            }
        }
    }

    /// Tells the module where a direction stands, and hands it over.
    fn start_direction(&mut self, key: u32, side: usize) {
        let Some(splice) = self.splices.all.get(key) else { return };
        let seen = Seen { segments: 0, bytes: 0, ..splice.sides[side].seen };
        let direction = 2 * key + side as u32;
        if let Some(table) = self.splices.table.as_mut().filter(|table| direction < table.capacity()) {
            table.start(direction, &seen);
        }
        self.splices.hand_over(key, side);
    }

    /// The next hop's hardware address changed.
    pub fn splice_next_hop(&mut self, ip: IpAddress, mac: Mac) {
        let mut changed = Vec::new();
        for (key, splice) in self.splices.all.iter_mut() {
            for side in 0..2 {
                let beyond = splice.sides[1 - side].next_hop;
                let dst_mac = &mut splice.sides[side].translation.dst_mac;
                if beyond == ip && *dst_mac != mac {
                    *dst_mac = mac;
                    changed.push((key, side));
                }
            }
        }
        changed.into_iter().for_each(|(key, side)| self.splices.hand_over(key, side));
    }

    /// Forgets a splice: its four-tuples are free, its applications are told.
    fn end_splice(&mut self, key: u32, errno: i32) -> Option<Splice> {
        let seen = [0, 1].map(|side| self.splices.seen(key, side));
        self.splices.take_back(key);
        self.timers.cancel(Timer::Splice(key));
        let splice = self.splices.all.remove(key)?;
        for (side, seen) in splice.sides.iter().zip(seen) {
            self.splices.totals.segments += seen.segments;
            self.splices.totals.bytes += seen.bytes;
            if matches!(self.connections.get(&side.tuple), Some(Stage::Splice(..))) {
                self.connections.remove(&side.tuple);
            }
            if let Some(flow) = side.flow {
                self.tell_over(flow, errno);
            }
        }
        Some(splice)
    }

    /// Tells the applications that have a name for a spliced connection that it is over.
    fn tell_over(&mut self, id: FlowId, errno: i32) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        flow.spliced = Spliced::Over(errno as u16);
        let open: Vec<_> = flow.names.iter().filter(|name| name.open).copied().collect();
        for name in open {
            self.reply(name.context, Reply::SpliceOver { slot: name.slot, errno: errno as u16 });
        }
    }

    /// The last application that had a name for a spliced connection gave it up. The splice goes on (AccelTCP).
    pub fn forget_splice_name(&mut self, id: FlowId, spliced: Spliced) {
        let Spliced::In(key) = spliced else { return };
        if let Some(splice) = self.splices.all.get_mut(key) {
            splice.sides.iter_mut().filter(|side| side.flow == Some(id)).for_each(|side| side.flow = None);
        }
    }
}
