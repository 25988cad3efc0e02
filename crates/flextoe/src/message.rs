//! Messages between modules: one [`Work`] goes down the pipeline, and each module adds its part.
use crate::observer::Observer;
use engine::stream::{FlowEnd, FlowParams, Growth};
use engine::{DropReason, DropSet, Exception, FlowId, Frame, LoadedModule, Nanos};
use shm::ByteRing;
use std::sync::Arc;
use trace::Point;
use wire::tcp::{Flags, SackBlocks, Timestamps};
use wire::template::Fields;
use wire::{Mac, Seq};

/// One unit of work: a received segment, a segment to send, or a command of host or control plane.
pub(crate) struct Work {
    /// Its place in the order: of entry up to the protocol module, of the protocol module's decisions after it.
    pub ticket: u64,
    /// The flow, once it is known.
    pub flow: u32,
    /// The flow group, set by pre-processing (Steer).
    pub group: u8,
    /// Its job.
    pub job: Job,
    /// The modules of operators that its frame does not pass.
    pub skips: Skips,
    /// The received frame.
    pub frame: Option<Box<Frame>>,
    /// The frame to send, made by post-processing where the protocol module decided so.
    pub out: Option<Box<Frame>>,
    /// Pre-processing to protocol (Sum).
    pub summary: Summary,
    /// The same: the SACK blocks that mean something, where the summary has that there are some.
    pub sacked: SackBlocks,
    /// Protocol to post-processing and DMA: the segment to send.
    pub send: Option<TxSegment>,
    /// All its SACK blocks, where it has one.
    pub sack: SackBlocks,
    /// Protocol to DMA: where received payload goes.
    pub place: PayloadPart,
    /// Protocol to post-processing: what to count.
    pub tally: Tally,
    /// Protocol to context queue.
    pub completion: Option<EnginePositions>,
    /// Protocol to flow scheduler.
    pub report: Option<Report>,
    /// For the control plane, but for [`Events::URGENT`].
    pub events: Events,
    /// Urgent data of it: few have some.
    pub urgent: Urgency,
    /// Parts that few works have.
    pub aside: Option<Box<Aside>>,
    /// Reasons of what was dropped on the way.
    pub drops: DropSet,
    /// The frame goes to the control plane.
    pub exception: Option<Exception>,
}

impl Work {
    #[inline]
    pub(crate) fn new(flow: u32, job: Job) -> Work {
        Work {
            ticket: 0,
            flow,
            group: 0,
            job,
            skips: Skips::Nothing,
            frame: None,
            out: None,
            summary: Summary::default(),
            sacked: SackBlocks::default(),
            send: None,
            sack: SackBlocks::default(),
            place: PayloadPart::default(),
            tally: Tally::default(),
            completion: None,
            report: None,
            events: Events::default(),
            urgent: Urgency::default(),
            aside: None,
            drops: DropSet::default(),
            exception: None,
        }
    }

    /// Becomes as new but for its job, for a work whose frames have left and that has nothing aside. What its modules
    /// always write before anybody reads it stays, and so does what the protocol module decided ([`Work::begin`]).
    #[inline]
    pub(crate) fn renew(&mut self, flow: u32) {
        debug_assert!(self.frame.is_none() && self.out.is_none() && self.aside.is_none(), "it has left");
        self.flow = flow;
        (self.group, self.skips) = (0, Skips::Nothing);
        (self.events, self.drops, self.exception) = (Events::default(), DropSet::default(), None);
    }

    /// Forgets what the protocol module decided of the work in whose place this one is: before any other module reads
    /// it.
    #[inline]
    pub(crate) fn begin(&mut self) {
        (self.send, self.place.len, self.tally) = (None, 0, Tally::default());
        (self.completion, self.report) = (None, None);
    }

    /// The protocol module drops it, or a part of its segment.
    pub(crate) fn drop_for<O: Observer>(&mut self, reason: DropReason, observer: O) {
        self.drops.add(reason);
        let (seq, payload) = match self.job {
            Job::Receive => (self.summary.seq.0.into(), self.summary.payload_len.into()),
            _ => (0, 0),
        };
        observer.event(Point::ProtocolDropped, self.flow, [reason as u64, seq]);
        if reason == DropReason::Duplicate {
            observer.event(Point::Duplicate, self.flow, [seq, payload]);
        }
    }

    /// Gets the next number.
    pub(crate) fn number(&mut self, next: &mut u64) {
        self.ticket = *next;
        *next += 1;
    }

    /// Payload bytes that it sends.
    #[inline]
    pub(crate) fn sent(&self) -> u32 {
        self.send.as_ref().map_or(0, |segment| segment.fields.payload_len)
    }

    /// The flow scheduler granted it a segment.
    #[inline]
    pub(crate) fn is_grant(&self) -> bool {
        matches!(self.job, Job::Transmit { .. } | Job::Bump { grant: true, .. })
    }
}

/// The modules of operators that a received frame does not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Skips {
    Nothing,
    /// Those of the ingress stage.
    Ingress,
    /// Those of any stage.
    Modules,
}

/// The workflows (thesis section 4.3.1): RX, TX, and HC, to which the control plane's commands belong.
///
/// With a tag of its own, since each module reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Job {
    /// A received segment.
    Receive,
    /// The scheduler's grant for a flow: one segment of at most `most` payload bytes (but at least one MSS).
    Transmit { most: u32 },
    /// The application's positions; with a grant, as in `Transmit` without a limit, where no other flow waits for one.
    /// In an order in which they are two stores: that of tag and marks, and that of a descriptor's second word.
    Bump { fin: bool, grant: bool, tx_head: u32, rx_head: u32 },
    /// A command that only the protocol module carries out.
    FlowCommand(FlowCommand),
    /// A pure acknowledgement, made by the protocol module itself.
    Ack,
    /// The wait of a hole is over; made by the protocol module itself.
    Overdue,
    /// End of a batch: acknowledgements that are due go out. The protocol module reports when the next one is
    /// due; `Nanos::MAX` for none.
    Flush { due: Nanos },
    /// The flow stops if it is quiet; these are its application's positions.
    Freeze { tx_head: u32, rx_head: u32 },
    /// The flow leaves.
    Remove,
    /// The flow's bytes are copied to new buffers: [`Aside::Move`].
    Move,
    /// The flow goes on where another engine left it: [`Aside::Resume`].
    Resume,
    /// Nothing is left to do.
    Void,
}

/// Rare parts of a work, kept apart so that they cost the others nothing.
pub(crate) enum Aside {
    /// Where a flow's bytes are to be copied.
    Move(Relocation),
    /// Where a flow stood in another engine.
    Resume(FlowEnd),
    /// The received stream outgrows its ring.
    Grow {
        /// What the application has not read begins at this position.
        from: u32,
        /// What is received ends here.
        end: u32,
    },
    /// For the application, which has asked: its stream was sent up to this position.
    Sent(u32),
    /// For the control plane, in answer to a removal.
    End(FlowEnd),
    /// For the control plane: whether the flow could stop, and where it stands.
    Frozen(Option<FlowEnd>),
}

/// Commands for the protocol module, named as in [`engine::Command`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlowCommand {
    Window(u32),
    Growth(Growth),
    /// Offer up to so many bytes.
    Offer(u32),
    Mss(u16),
    /// Segments that are not full wait for each other.
    Nagle(bool),
    /// What was sent from there on may be on its way.
    Retransmit(Option<Seq>),
    /// What is outstanding may be lost.
    ProbeTail,
    Probe,
    Untrack,
    Orphan,
    /// Send a completion with the present positions.
    Announce,
    /// The application's stream may have outgrown its ring.
    CheckGrowth,
    /// Go on after [`Job::Freeze`].
    Thaw,
    /// Notify the application once all before this stream position was sent.
    ReportSent(u32),
    /// The byte before this stream position is urgent.
    Urge(u32),
    /// A record ends before this stream position.
    EndRecord(u32),
}

/// A flow's payload buffers.
#[derive(Clone)]
pub(crate) struct Buffers {
    pub rx: Arc<ByteRing>,
    pub tx: Arc<ByteRing>,
}

/// New buffers for a flow, and which bytes to copy there: stream positions and lengths, from the protocol module.
pub(crate) struct Relocation {
    pub new: Buffers,
    pub rx: (u32, u32),
    pub tx: (u32, u32),
}

/// The header summary: what later modules need of a received segment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Summary {
    pub seq: Seq,
    pub ack: Seq,
    pub flags: Flags,
    /// As in the header, not scaled.
    pub window: u16,
    pub timestamps: Option<Timestamps>,
    /// There are SACK blocks: [`Work::sacked`].
    pub sack: bool,
    /// Byte of the frame where the payload starts.
    pub payload_at: u32,
    pub payload_len: u32,
    /// Congestion was experienced.
    pub ce: bool,
}

/// A segment to send, decided by the protocol module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TxSegment {
    /// Its headers, as far as they matter.
    pub fields: Fields,
    /// Stream position of the payload.
    pub pos: u32,
    /// For a super-segment, payload bytes of each segment on the wire; else 0.
    pub segment_size: u16,
}

/// The protocol module's result for a segment on the fast path: there is no drop, no event, nothing rare to count.
pub(crate) struct Received {
    pub place: PayloadPart,
    pub tally: Tally,
    pub completion: EnginePositions,
    pub report: Option<Report>,
}

impl Received {
    /// Writes it into the work, for modules elsewhere.
    #[inline(always)]
    pub(crate) fn note(self, work: &mut Work) {
        (work.place, work.tally) = (self.place, self.tally);
        (work.completion, work.report) = (Some(self.completion), self.report);
    }
}

/// The same of a descriptor.
pub(crate) struct Sent {
    pub segment: Option<TxSegment>,
    pub report: Option<Report>,
    /// The flow was quiet before ([`Events::ACTIVE`]).
    pub active: bool,
}

impl Sent {
    /// As [`Received::note`].
    #[inline(always)]
    pub(crate) fn note(self, work: &mut Work) {
        if self.segment.is_some() {
            work.tally.marks.add(Marks::SENT);
        }
        if self.active {
            work.events.add(Events::ACTIVE);
        }
        (work.send, work.report) = (self.segment, self.report);
    }
}

/// What is urgent about a work; what does not hold for it means nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Urgency {
    /// With [`Events::URGENT`]: the stream position of the urgent byte that the peer has announced.
    pub byte: u32,
    /// Of a segment to send with URG: its urgent pointer.
    pub pointer: u16,
}

/// The place of a part of a received payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PayloadPart {
    /// Stream position in the receive buffer.
    pub pos: u32,
    /// Bytes of the segment's payload before the part.
    pub skip: u32,
    /// Bytes of the part.
    pub len: u32,
}

/// Additions of a work to the flow's counters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub acked: u32,
    pub delivered: u32,
    /// Round-trip time in nanoseconds; 0 for none.
    pub rtt: u32,
    pub marks: Marks,
}

/// The kind of a work, to be counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// A segment sent, with payload or FIN.
    pub(crate) const SENT: Marks = Marks(1);
    /// Not for the first time.
    pub(crate) const RETRANSMITTED: Marks = Marks(2);
    /// An acknowledgement that echoed congestion.
    pub(crate) const ECN_ECHOED: Marks = Marks(4);
    pub(crate) const FAST_RETRANSMIT: Marks = Marks(8);
    pub(crate) const DUPLICATE_ACK: Marks = Marks(16);
    pub(crate) const OUT_OF_ORDER: Marks = Marks(32);
    /// A D-SACK: the peer got something twice.
    pub(crate) const DSACK: Marks = Marks(64);
    /// All that was sent again since a loss was found came twice: nothing was lost.
    pub(crate) const UNDONE: Marks = Marks(128);
    /// All but the first.
    pub(crate) const RARE: Marks = Marks(!1);

    pub(crate) fn add(&mut self, other: Marks) {
        self.0 |= other.0;
    }
    pub(crate) fn has(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }
}

/// The engine's positions, as in [`context::Completion`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EnginePositions {
    pub rx_tail: u32,
    pub tx_tail: u32,
    pub fin: bool,
}

/// To the flow scheduler, after each work. None where there is nothing to send and the scheduler has that already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    /// Segments that the flow may send now.
    pub segments: u32,
    /// Payload bytes that this work sent.
    pub sent: u32,
}

/// A set of events without further content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Events(u16);

impl Events {
    pub(crate) const ACTIVE: Events = Events(1);
    pub(crate) const PEER_FIN: Events = Events(2);
    pub(crate) const FIN_ACKED: Events = Events(4);
    pub(crate) const RESET: Events = Events(8);
    pub(crate) const ORPHAN_DATA: Events = Events(16);
    /// With [`Events::PEER_FIN`]: the application had ended its own stream before.
    pub(crate) const ENDED_BEFORE: Events = Events(32);
    /// The application has ended its own stream.
    pub(crate) const LOCAL_FIN: Events = Events(64);
    /// The peer has announced an urgent byte. For the application.
    pub(crate) const URGENT: Events = Events(128);
    /// A loss was found, or one turned out to be none.
    pub(crate) const CONGESTION: Events = Events(256);

    pub(crate) fn add(&mut self, other: Events) {
        self.0 |= other.0;
    }
    pub(crate) fn has(self, other: Events) -> bool {
        self.0 & other.0 != 0
    }
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Changes of the modules' state of flows, sent to each replica.
#[derive(Clone)]
pub(crate) enum Control {
    Install(Arc<FlowParams>),
    Forget(FlowId),
    Rebind(FlowId, Buffers),
    NextHop(FlowId, Mac),
    /// From now on these modules of operators run.
    Modules(Arc<[LoadedModule]>),
}
