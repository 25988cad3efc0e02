//! The split and merge unit's state: the NIC's half, and of each connection what its headers reported.
use crate::copying::Copying;
use crate::counters::Counters;
use crate::datagrams::Datagrams;
use crate::held::Held;
use crate::nic::{FlowId, Kind, Limits, Mark, Memory, Nic};
use crate::verbs::Verbs;
use crate::window::{Last, Lengths, Posted, Window};
use engine::{DropCounts, DropReason};
use port::{Checksum, Frame, FramePool, Recorder};
use shm::{ByteRing, Region, Span};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use wire::ipv4::Ecn;
use wire::tcp::Flags;
use wire::template::{Fields, Template};
use wire::{Ipv4Tuple, Mac, Nanos, Seq};

/// Treatment of payload that has no segment (figure 8, case (e)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shortage {
    /// It is as if the frame were lost: the peer sends it again.
    #[default]
    Drop,
    /// The NIC's half keeps the frame, and tries again when memory is posted; the transport sees it then.
    Buffer,
    /// The transport sees the header at once; the payload is kept beside, and copied when memory is posted.
    Defer,
}

/// Most bytes that are kept for a connection under [`Shortage::Buffer`] and [`Shortage::Defer`].
pub(crate) const MOST_DEFERRED: usize = 256 << 10;
/// What a window names at least where payload may be deferred.
const DEFERRED: u32 = 2 * 1460;
/// Bytes of dummy payload: as many as an IPv4 packet can have.
const DUMMY: usize = 1 << 16;

/// Payload that waits for memory.
pub(crate) enum Deferred {
    Frame(Box<Frame>),
    /// From a sequence number on, of a message where the connection carries some.
    Bytes(Seq, Option<Mark>, Vec<u8>),
}

impl Deferred {
    fn len(&self) -> usize {
        match self {
            Deferred::Frame(frame) => frame.len(),
            Deferred::Bytes(_, _, bytes) => bytes.len(),
        }
    }
}

/// Of a connection, what the unit learns from the headers that pass.
pub(crate) struct HeaderState {
    pub(crate) flow: FlowId,
    pub(crate) tuple: Ipv4Tuple,
    pub(crate) kind: Kind,
    /// Why the connection cannot go on.
    pub(crate) broken: Option<String>,
    pub(crate) window: Window,
    /// Lengths of messages that came.
    pub(crate) lengths: Lengths,
    /// Hardware addresses of outgoing frames: from, to.
    pub(crate) link: Option<[Mac; 2]>,
    /// First sequence numbers of both streams.
    pub(crate) incoming: Option<Seq>,
    pub(crate) outgoing: Option<Seq>,
    /// Where they begin is settled: no header changes it.
    pub(crate) settled: bool,
    /// The last acknowledgment number that the transport sent.
    pub(crate) acked: Option<Seq>,
    pub(crate) kept: VecDeque<Deferred>,
    deferred_bytes: usize,
    /// Headers went up, or went out, since the control stack's last poll.
    pub(crate) touched: bool,
    pub(crate) moved: Moved,
    /// Headers that wait for devices.
    pub(crate) held: Held,
    /// Some of what was posted to send is a device's.
    pub(crate) from_device: bool,
    /// The end of what left while somebody captured.
    pub(crate) recorded: Option<Seq>,
}

/// Bytes of a connection's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Placed in the memory of receives.
    pub placed: u64,
    /// Of these, kept aside before, because no receive was posted.
    pub deferred: u64,
    /// Copied out of the transport's buffer, as the flow table had no line for the connection.
    pub copied_in: u64,
    /// Handed to the wire, retransmissions included; without a line, to the transport.
    pub fetched: u64,
    /// Of these, copied: the wire takes no references, the memory is reached through the kernel, too few bytes lay in a
    /// row, or the connection has no line.
    pub copied_out: u64,
}

impl HeaderState {
    /// For people.
    pub(crate) fn carries(&self) -> &'static str {
        if self.kind == Kind::Stream { "stream" } else { "messages" }
    }

    /// Keeps payload; false where there is no room.
    pub(crate) fn keep(&mut self, kept: Deferred) -> Result<(), Deferred> {
        if self.deferred_bytes + kept.len() > MOST_DEFERRED {
            return Err(kept);
        }
        self.deferred_bytes += kept.len();
        self.kept.push_back(kept);
        Ok(())
    }

    /// Bytes that are kept.
    pub(crate) fn deferred_bytes(&self) -> usize {
        self.deferred_bytes
    }

    /// All that is kept.
    pub(crate) fn take_deferred(&mut self) -> VecDeque<Deferred> {
        self.deferred_bytes = 0;
        std::mem::take(&mut self.kept)
    }
}

/// The unit. `M` is registered memory.
pub(crate) struct Unit<M: Memory> {
    pub(crate) nic: Nic,
    pub(crate) memory: M,
    /// Verbs, where the host offers them.
    pub(crate) verbs: Option<Box<Verbs>>,
    pub(crate) datagrams: Datagrams,
    pub(crate) copying: Copying,
    pub(crate) shortage: Shortage,
    pub(crate) counters: Counters,
    pub(crate) drops: DropCounts,
    pub(crate) recorder: Recorder,
    /// By line of the flow table, and by number of connections without one.
    pub(crate) header_states: Vec<Option<Box<HeaderState>>>,
    /// Lines that were touched.
    pub(crate) touched: Vec<FlowId>,
    dummy: Arc<ByteRing>,
    /// Frames of the unit's own that are to go out.
    pub(crate) own: Vec<Box<Frame>>,
    /// Connections whose window is closed although a little memory is posted.
    pub(crate) squeezed: Vec<FlowId>,
    /// Connections of which something waits for devices.
    pub(crate) holding: Vec<FlowId>,
    /// Connections whose kept payload waits for room in devices' queues.
    pub(crate) short: Vec<FlowId>,
}

impl<M: Memory> Unit<M> {
    pub(crate) fn new(limits: Limits, memory: M, shortage: Shortage) -> io::Result<Unit<M>> {
        let region = Arc::new(Region::create("zeronic dummy payload", DUMMY)?);
        let dummy = Arc::new(ByteRing::map(&region, 0, DUMMY)?);
        let (header_states, touched, own, squeezed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Unit {
            nic: Nic::new(limits),
            memory,
            verbs: None,
            datagrams: Datagrams::default(),
            copying: Copying::new(limits),
            shortage,
            counters: Counters::default(),
            drops: DropCounts::default(),
            recorder: Recorder::default(),
            header_states,
            touched,
            dummy,
            own,
            squeezed,
            holding: Vec::new(),
            short: Vec::new(),
        })
    }

    pub(crate) fn add_header_state(&mut self, flow: FlowId, tuple: Ipv4Tuple, kind: Kind) {
        let way = HeaderState {
            flow,
            tuple,
            kind,
            broken: None,
            window: Window::default(),
            lengths: Lengths::default(),
            link: None,
            incoming: None,
            outgoing: None,
            settled: false,
            acked: None,
            kept: VecDeque::new(),
            deferred_bytes: 0,
            touched: false,
            moved: Moved::default(),
            held: Held::default(),
            from_device: false,
            recorded: None,
        };
        if self.header_states.len() <= flow.line() {
            self.header_states.resize_with(flow.line() + 1, || None);
        }
        self.header_states[flow.line()] = Some(Box::new(way));
    }

    pub(crate) fn remove_header_state(&mut self, flow: FlowId) {
        // One that is copied may have a place in both.
        if self.nic.remove(flow) | self.copying.remove(flow) {
            self.header_states[flow.line()] = None;
        }
    }

    pub(crate) fn header_state(&mut self, flow: FlowId) -> Option<&mut HeaderState> {
        self.header_states.get_mut(flow.line())?.as_deref_mut().filter(|way| way.flow == flow)
    }

    pub(crate) fn kind(&mut self, flow: FlowId) -> Option<Kind> {
        self.header_state(flow).map(|way| way.kind)
    }

    /// Segments of the connection carry the mark of their message.
    pub(crate) fn has_marks(&mut self, flow: FlowId) -> bool {
        self.kind(flow).is_some_and(Kind::has_marks)
    }

    /// A connection or a flow of datagrams is refused: there is no line and no number for it.
    pub(crate) fn refuse(&mut self) {
        self.counters.refused += 1;
        self.drops.count(DropReason::FlowTable);
    }

    /// The control stack has to poll the connection.
    pub(crate) fn touch(&mut self, flow: FlowId) {
        if let Some(way) = self.header_state(flow).filter(|way| !way.touched) {
            way.touched = true;
            self.touched.push(flow);
        }
    }

    /// What becomes of payload without a segment. A SEND of verbs waits for its receive in any case: dropped, it would
    /// be sent again after a timeout each.
    pub(crate) fn shortage_of(&self, kind: Kind) -> Shortage {
        match kind {
            Kind::Operations => Shortage::Defer,
            Kind::Stream | Kind::Messages | Kind::Datagrams => self.shortage,
        }
    }

    /// Memory that is posted for the incoming stream. Under [`Shortage::Defer`], room for two segments where there is
    /// less. A sender waits long before it uses a smaller window (RFC 9293 section 3.8.6.2.1).
    pub(crate) fn posted(&self, flow: FlowId) -> Posted {
        let Some(positions) = self.nic.positions(flow) else { return Posted { bytes: 0, end: Seq(0) } };
        let mut end = positions.posted_end;
        let way = self.header_states.get(flow.line()).and_then(Option::as_deref);
        if let Some(way) = way.filter(|way| way.kind == Kind::Operations && way.deferred_bytes >= DEFERRED as usize) {
            // What is kept has no place yet, and what follows would have none.
            end = way.acked.unwrap_or(positions.cursor);
        }
        if let Some(way) = way.filter(|way| way.kind == Kind::Messages && self.shortage == Shortage::Drop) {
            // Each message takes a receive, however short it is, and one that finds none is lost.
            let (known, others) = self.nic.expected(flow).unwrap_or_default();
            let likely = (known + way.lengths.of(others)).min(i32::MAX as u64) as u32;
            let likely = positions.cursor + likely.max(way.window.longest());
            end = if likely.before(end) { likely } else { end };
        }
        if let Some(way) = way.filter(|way| self.shortage_of(way.kind) == Shortage::Defer) {
            let room = way.acked.filter(|_| way.deferred_bytes < DEFERRED as usize);
            end = room.map_or(end, |acked| end.max(acked + DEFERRED));
        }
        Posted { bytes: end - positions.cursor, end }
    }

    /// Dummy payload.
    pub(crate) fn dummy(&self, len: usize) -> Span {
        Span::new(&self.dummy, 0, len as u32)
    }

    /// Memory was posted: notifies the peer, where that is worth a frame.
    pub(crate) fn advertise_more(&mut self, now: Nanos, flow: FlowId, pool: &mut FramePool) {
        let posted_end = self.posted(flow).end;
        let Some(way) = self.header_state(flow) else { return };
        let (update, squeezed) = (way.window.update(now, posted_end), way.window.is_squeezed());
        if let Some((last, window)) = update {
            self.acknowledge(flow, last, window, pool);
        }
        if squeezed {
            self.squeezed.push(flow);
        }
    }

    /// Polls windows that are closed although a little memory is posted.
    pub(crate) fn squeeze(&mut self, now: Nanos, pool: &mut FramePool) {
        let mut left = std::mem::take(&mut self.squeezed);
        left.sort_unstable_by_key(|flow| flow.line());
        left.dedup();
        left.retain(|flow| {
            let Some(way) = self.header_state(*flow) else { return false };
            let (squeeze, still) = (way.window.squeeze(now), way.window.is_squeezed());
            if let Some((last, window)) = squeeze {
                self.acknowledge(*flow, last, window, pool);
            }
            still
        });
        self.squeezed = left;
    }

    /// Sends an ACK of the unit's own with this window.
    pub(crate) fn acknowledge(&mut self, flow: FlowId, last: Last, window: u16, pool: &mut FramePool) {
        let Some(way) = self.header_state(flow) else { return };
        let (Some([from, to]), tuple) = (way.link, way.tuple) else { return };
        let ports = (tuple.local_port, tuple.remote_port);
        let addresses = (tuple.local_ip.into(), tuple.remote_ip.into());
        let Some(template) = Template::new((from, to), addresses, ports) else { return };
        let Last { seq, ack, timestamps } = last;
        let (flags, ecn) = (Flags::ACK, Ecn::NotEct);
        let mut frame = pool.small();
        let fields = Fields { seq, ack, flags, window, timestamps, sack: None, ecn, payload_len: 0 };
        let (start, field) = template.write(&fields, frame.bytes_vec());
        frame.checksum = Checksum::Partial { start, field };
        self.own.push(frame);
        self.counters.window_updates += 1;
    }
}
