//! The splices of a host, and the module of the data-path that runs most of them.
use ::host::Slab;
use engine::stream::{FlowEnd, FourTuple};
use engine::{ContextId, FlowId, Nanos};
use serde::{Deserialize, Serialize};
use wire::{IpAddress, Seq, Translation};

/// Positions of a direction: segments as they come in from its peer, before translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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
    #[serde(skip)]
    pub challenges: tcp::ChallengeLimit,
    /// Without what the module of the moment has seen.
    pub seen: Seen,
}

/// Two flows that the engine was asked to stop.
pub(crate) struct Joining {
    pub context: ContextId,
    pub tag: u32,
    pub flows: [FlowId; 2],
    /// The engine's answer for each.
    pub(super) answers: [Answer; 2],
}

/// The engine's answer for a flow that it was asked to stop.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// Nothing yet.
    None,
    /// It is not quiet.
    Busy,
    /// It is frozen, at these positions.
    Frozen(FlowEnd),
}

/// Two connections that are joined.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Splice {
    pub sides: [Side; 2],
    /// Whose FIN came first.
    pub first_fin: Option<usize>,
    /// The side that has reset it.
    pub reset: Option<usize>,
    pub last_rx: Nanos,
    /// Segments, both ways, at the last poll.
    pub segments: u64,
}

impl Splice {
    pub(crate) fn both_closed(&self) -> bool {
        self.sides.iter().all(|side| side.fin.is_some())
    }
}

/// A splice that is over.
pub(crate) struct Over {
    pub sides: [Side; 2],
    /// What its applications get.
    pub errno: i32,
    /// The side that keeps TIME-WAIT.
    pub wait: Option<tcp::TimeWait>,
}

/// All splices of a host.
pub(crate) struct Splices {
    pub(super) all: Slab<Splice>,
    /// Pairs that are being joined.
    pub(super) joining: Vec<Joining>,
    /// The module, where one is loaded.
    pub(super) table: Option<Box<dyn SpliceTable>>,
    /// Of splices that are over, and of all.
    pub(super) totals: Totals,
}

/// Sums over all splices since the host began. Splices that go on do not count among segments and bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
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
    pub(crate) fn new(most: u32) -> Splices {
        Splices { all: Slab::new(most), joining: Vec::new(), table: None, totals: Totals::default() }
    }

    /// Pairs that are joined.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those whose keys are not below `first`.
    pub(crate) fn iter_from(&self, first: u32) -> impl Iterator<Item = (u32, &Splice)> {
        self.all.iter_from(first)
    }

    /// One more pair can be joined.
    pub(super) fn have_room(&self) -> bool {
        let room = |table: &dyn SpliceTable| self.all.vacant().is_some_and(|key| 2 * key + 1 < table.capacity());
        self.table.as_deref().is_some_and(room)
    }

    /// All that was seen of a direction, by the module and by the control plane.
    pub(crate) fn seen(&self, key: u32, side: usize) -> Seen {
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

    /// Hands a direction to the module, as long as its peer may send more than acknowledgements. Those of the second
    /// FIN are the control plane's.
    pub(super) fn hand_over(&mut self, key: u32, side: usize) {
        let (Some(splice), Some(table)) = (self.all.get(key), self.table.as_mut()) else { return };
        let direction = 2 * key + side as u32;
        if splice.reset.is_none() && !splice.both_closed() && direction < table.capacity() {
            // Where it does not take it, the control plane passes the segments on.
            let Side { tuple, translation, .. } = &splice.sides[side];
            table.insert(direction, tuple, translation);
        }
    }

    /// Takes both directions back: their segments come to the control plane.
    pub(super) fn take_back(&mut self, key: u32) {
        if let (Some(splice), Some(table)) = (self.all.get(key), self.table.as_mut()) {
            splice.sides.iter().for_each(|side| table.remove(&side.tuple));
        }
    }

    /// The totals, with those of splices that go on.
    pub(crate) fn figures(&self) -> Vec<(&'static str, u64)> {
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
