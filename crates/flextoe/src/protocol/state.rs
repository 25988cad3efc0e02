//! The TCP state of a flow, and what follows from it alone.
use crate::message::{EnginePositions, TxSegment, Work};
use crate::observer::Observer;
use engine::Nanos;
use engine::stream::{Agreed, FlowEnd, FlowParams, FlowStats, Resume};
use shm::{ByteRing, Pooled};
use std::sync::atomic::Ordering::Relaxed;
use tcp::{
    Acknowledged, ChallengeLimit, Ends, FlightLimit, Owner, Reassembly, RttTimer, Scoreboard, WindowUse, window,
};
use trace::Point;
use wire::Seq;
use wire::ipv4::Ecn;
use wire::tcp::{Flags, SackBlocks, Timestamps};
use wire::template::Fields;

/// Protocol state (thesis table 4.1, protocol), all of it changed atomically, by one protocol module.
///
/// Differences to the table: positions are sequence numbers, so FIN needs no cases of its own (`tx_base` and `rx_base`
/// turn them into stream positions). The window is 32 bits and already scaled. Added is what RFCs 5961, 7323, 3168,
/// 8257 and 9293 ask for beyond the paper's 43 bytes. These are window update rules, challenge ACKs, PAWS, congestion
/// echo, silly window avoidance and delayed acknowledgement. So are several out-of-order intervals instead of one, and
/// what the peer has beyond holes. Then only these are sent again, not all from the first one on (go-back-N). The
/// congestion window is here, not with the scheduler: it bounds sequence numbers.
///
/// Four cache lines. The first two and `fixed` are what the fast path of segments and descriptors uses; the last one is
/// for loss, disorder and attacks.
#[cfg_attr(test, derive(Debug))]
#[repr(C, align(64))]
pub(crate) struct ProtocolState {
    /// Oldest sequence number that is not acknowledged.
    pub una: Seq,
    /// Next to send; goes back to `una` when sending again.
    pub nxt: Seq,
    /// After the highest that was ever sent.
    pub max: Seq,
    /// After the last byte that the application wrote.
    pub head: Seq,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// The largest that it ever was (silly window avoidance, RFC 9293 section 3.8.6.2.1).
    pub max_wnd: u32,
    /// Sequence and acknowledgement number of the last window update (RFC 9293 section 3.10.7.4).
    pub wl1: Seq,
    pub wl2: Seq,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Up to where the application has read.
    pub rcv_head: Seq,
    /// Right edge of the advertised window: what lies beyond it is not accepted (RFC 9293 section 3.10.7.4).
    pub rcv_adv: Seq,
    /// The acknowledgement number sent last (RFC 7323 section 4.3: Last.ACK.sent).
    pub last_ack: Seq,
    /// Bytes received and not acknowledged yet.
    pub unacked: u32,
    pub ts_recent: u32,
    /// When that came, in [`age_ticks`].
    pub ts_recent_at: u32,
    pub asked_for: Seq,

    /// When the delayed acknowledgement goes out at the latest.
    pub ack_due: Nanos,
    pub rtt: RttTimer,
    /// Congestion control's limit on bytes in flight.
    pub flight: FlightLimit,
    pub dup_acks: u8,
    /// So many full segments are acknowledged at once; 0 where any payload is.
    pub full_acks: u8,
    /// Out-of-order intervals at once ([`engine::stream::Receiving::intervals`]).
    pub intervals: u8,
    /// This host's FIN stands at `head`, the peer's before `rcv_nxt`.
    pub ends: Ends,
    pub life: Owner,
    /// The control plane times the flow.
    pub tracked: bool,
    /// The control plane is about to take it over: nothing changes until its command.
    pub frozen: bool,
    /// Acknowledge at the end of the batch.
    pub ack_now: bool,
    /// The flow stands in the module's list of acknowledgements to send.
    pub ack_listed: bool,
    /// [`ProtocolState::is_fast`], as it was after the last work that took the slow path.
    pub fast: bool,
    /// The last message to the scheduler was that there is something to send.
    pub reported: bool,
    /// The window is smaller than a segment, and the persist timer has it used (RFC 9293 section 3.8.6.2.1).
    pub overriding: bool,
    /// Echo congestion.
    pub ece: bool,
    /// Report to the peer that the window was reduced, on the next new data.
    pub cwr: bool,
    /// Each mark of a received segment is echoed (RFC 8257 section 3.2); it never changes.
    pub dctcp_echo: bool,
    /// The application is to be notified once that all before `asked_for` was sent.
    pub asked: bool,
    /// Something is urgent ([`super::urgent`]).
    pub urgent: bool,
    /// Ends of records are not acknowledged ([`super::records`]).
    pub has_records: bool,
    /// A FIN came out of order.
    pub holds_fin: bool,
    /// Sequence number of a FIN that came out of order, with `holds_fin`: an option would take eight bytes.
    pub held_fin: Seq,

    pub fixed: Fixed,

    /// Out-of-order intervals.
    pub ooo: Reassembly,
    pub recovery: Scoreboard,
    /// How `flight` grows.
    pub window_use: WindowUse,
    pub challenges: ChallengeLimit,
}

const _: () = assert!(size_of::<Option<ProtocolState>>() == 256);

/// Constants of a flow, which change only by command.
#[cfg_attr(test, derive(Debug))]
#[repr(align(64))]
pub(crate) struct Fixed {
    pub agreed: Agreed,
    /// Most that is sent at once where it is all there is: one frame, or nothing under Nagle's algorithm.
    pub at_once: u32,
    /// Most bytes of a super-segment; an IP packet has no more.
    pub super_segment: u16,
    pub rx_rings: RxRings,
    /// Bytes that may be offered to the peer.
    pub rx_size: u32,
    pub tx_size: u32,
    /// The largest window that is advertised, bytes.
    pub largest_window: u32,
    /// The step in which the advertised window grows (RFC 9293 section 3.8.6.2.2).
    pub window_step: u32,
    /// Bytes that may lie where the received stream is now: less than `rx_size` while it is in a ring that it may
    /// outgrow.
    pub rx_place: u32,
    /// After the last segment that was not full, where Nagle's algorithm is on. It changes, and is here for the room.
    pub short_end: Seq,
    /// Sequence number of stream position 0, in each direction.
    pub tx_base: Seq,
    pub rx_base: Seq,
    pub stats: Pooled<FlowStats>,
}

/// Sizes of a received stream's rings but the small one, as powers of two: the usual one, and the last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RxRings {
    usual: u8,
    most: u8,
}

impl RxRings {
    pub(super) fn of(ring: &ByteRing) -> RxRings {
        let [usual, most] = [ring.usual(), ring.most()].map(|size| size.ilog2() as u8);
        RxRings { usual, most }
    }

    pub(super) fn most(self) -> u32 {
        1 << self.most
    }

    /// Bytes that the first of them holds in which so many may lie.
    pub(super) fn holding(self, bytes: u32) -> u32 {
        if bytes <= 1 << self.usual { 1 << self.usual } else { self.most() }
    }
}

impl Fixed {
    /// `at_once` and `window_step` are set with the MSS: [`ProtocolState::set_mss`].
    fn new(p: &FlowParams) -> Fixed {
        let most_shift = |shift: u8| shift.min(window::MOST_SHIFT);
        let (snd_shift, rcv_shift) = (most_shift(p.agreed.snd_shift), most_shift(p.agreed.rcv_shift));
        Fixed {
            agreed: Agreed { snd_shift, rcv_shift, ..p.agreed },
            at_once: 1,
            super_segment: u16::try_from(p.super_segment).unwrap_or(u16::MAX),
            short_end: p.snd_nxt,
            rx_size: p.rx.usual(),
            tx_size: p.tx.most(),
            largest_window: window::largest_window(p.rx.usual(), rcv_shift),
            window_step: 0,
            rx_place: p.rx.ease(),
            rx_rings: RxRings::of(&p.rx),
            tx_base: p.snd_nxt - p.tx_pos,
            rx_base: p.rcv_nxt - p.rx_pos,
            stats: p.stats.clone(),
        }
    }

    /// So many bytes may be offered to the peer.
    pub(super) fn set_offer(&mut self, bytes: u32) {
        self.rx_size = bytes;
        self.largest_window = window::largest_window(bytes, self.agreed.rcv_shift);
        self.window_step = window::window_step(self.largest_window, self.agreed.mss.into());
    }
}

const _: () = assert!(size_of::<Fixed>() == 64);

/// The timestamp of what a flow with this offset sends at a time: milliseconds.
#[inline(always)]
pub(super) fn timestamp(now: Nanos, offset: u32) -> u32 {
    ((now / 1_000_000) as u32).wrapping_add(offset)
}

/// Bits of a time that are left out where days count: 17 milliseconds.
const AGE_BITS: u32 = 24;

/// A time, for the age of a timestamp: modulo two years.
#[inline(always)]
pub(super) fn age_ticks(now: Nanos) -> u32 {
    (now >> AGE_BITS) as u32
}

/// How long ago that was, nanoseconds.
#[inline(always)]
pub(super) fn age(ticks: u32, now: Nanos) -> Nanos {
    Nanos::from(age_ticks(now).wrapping_sub(ticks)) << AGE_BITS
}

impl ProtocolState {
    pub(super) fn new(p: &FlowParams, now: Nanos) -> ProtocolState {
        let mut state = ProtocolState {
            una: p.snd_nxt,
            nxt: p.snd_nxt,
            max: p.snd_nxt,
            head: p.snd_nxt,
            snd_wnd: p.snd_wnd,
            max_wnd: p.snd_wnd,
            flight: FlightLimit::new(p.cwnd, p.growth),
            window_use: WindowUse::new(p.snd_nxt, p.growth),
            wl1: p.rcv_nxt - 1,
            wl2: p.snd_nxt,
            rcv_nxt: p.rcv_nxt,
            rcv_head: p.rcv_nxt,
            // From the handshake: the window of a SYN is not scaled (RFC 7323 section 2.2).
            rcv_adv: p.rcv_nxt + p.rx.usual().min(u16::MAX.into()),
            last_ack: p.rcv_nxt + p.answered,
            ooo: Reassembly::new(),
            unacked: 0,
            ack_due: 0,
            rtt: RttTimer::after_handshake(p.rtt),
            ts_recent: p.ts_recent,
            ts_recent_at: age_ticks(now),
            recovery: Scoreboard::new(p.snd_nxt),
            holds_fin: false,
            held_fin: p.rcv_nxt,
            dup_acks: 0,
            full_acks: if p.receiving.delayed_acks { 2 } else { 0 },
            intervals: p.receiving.intervals,
            ends: Ends::default(),
            life: Owner::Owned,
            tracked: false,
            frozen: false,
            ack_now: false,
            ack_listed: false,
            fast: false,
            reported: false,
            overriding: false,
            ece: false,
            cwr: false,
            dctcp_echo: p.dctcp_echo,
            challenges: ChallengeLimit::new(),
            asked: false,
            asked_for: p.snd_nxt,
            urgent: false,
            has_records: false,
            fixed: Fixed::new(p),
        };
        state.set_mss(p.agreed.mss);
        state
    }

    pub(super) fn set_mss(&mut self, mss: u16) {
        let mss = mss.max(1);
        self.fixed.agreed.mss = mss;
        self.set_nagle(self.has_nagle());
        self.fixed.window_step = window::window_step(self.fixed.largest_window, mss.into());
    }

    /// So many bytes that are received and not acknowledged are acknowledged at once.
    #[inline(always)]
    pub(super) fn ack_after(&self) -> u32 {
        u32::from(self.full_acks) * u32::from(self.fixed.agreed.mss)
    }

    /// Whether segments that are not full wait for each other.
    // Meets RFC 9293: MUST-17.
    pub(super) fn set_nagle(&mut self, on: bool) {
        self.fixed.at_once = if on { 0 } else { self.most_of_a_frame() };
    }

    /// Most payload bytes of one frame: a multiple of the MSS; one segment while something is urgent.
    #[inline(always)]
    pub(super) fn tx_most(&self) -> u32 {
        if self.has_nagle() { self.most_of_a_frame() } else { self.fixed.at_once }
    }

    #[cold]
    fn most_of_a_frame(&self) -> u32 {
        let mss = self.fixed.agreed.mss.into();
        if self.urgent { mss } else { window::super_segment(self.fixed.super_segment.into(), mss) }
    }

    /// Nagle's algorithm is on.
    #[inline(always)]
    pub(super) fn has_nagle(&self) -> bool {
        self.fixed.at_once == 0
    }

    /// After the last sequence number that there is to send, FIN included.
    #[inline]
    pub(super) fn end(&self) -> Seq {
        self.head + self.ends.local_len()
    }

    /// After the last byte received in order, FIN not included.
    #[inline]
    pub(super) fn rcv_data_end(&self) -> Seq {
        self.rcv_nxt - self.ends.peer_len()
    }

    /// How far the receive buffer reaches beyond the advertised window: at least as far as that window can grow.
    #[inline(always)]
    pub(super) fn unadvertised(&self) -> u32 {
        self.rcv_head + self.fixed.rx_size - self.rcv_adv
    }

    /// How far the advertised window's right edge can move: what the buffer holds, as far as the header's field can
    /// express it.
    #[cold]
    #[inline(never)]
    pub(super) fn window_gain(&self) -> u32 {
        let room = self.fixed.rx_size.saturating_sub(self.rcv_nxt - self.rcv_head);
        let edge = self.rcv_nxt + window::largest_window(room, self.fixed.agreed.rcv_shift);
        if self.rcv_adv.before(edge) { edge - self.rcv_adv } else { 0 }
    }

    /// Bytes that the advertised window holds from `rcv_nxt` on. A FIN at its edge takes `rcv_nxt` beyond it.
    #[inline(always)]
    pub(super) fn open_window(&self) -> u32 {
        if self.rcv_nxt.before(self.rcv_adv) { self.rcv_adv - self.rcv_nxt } else { 0 }
    }

    /// Bytes that may be sent from `nxt` within both windows.
    // Meets RFC 9293: MUST-34, SHLD-15, SHLD-16.
    // Meets RFC 5681: 3.1-a.
    #[inline]
    pub(super) fn usable(&self) -> u32 {
        self.snd_wnd.min(self.flight.bytes()).saturating_sub(self.nxt - self.una)
    }

    /// The same where the peer may have something beyond a hole. What it has is not in flight, nor is what is lost (RFC
    /// 6675 section 5, step C).
    pub(super) fn usable_now(&self) -> u32 {
        let window = self.snd_wnd.saturating_sub(self.nxt - self.una);
        window.min(self.flight.bytes().saturating_sub(self.in_flight()))
    }

    /// The sequence number of stream position `position`, where the application may write the byte before it.
    pub(super) fn written_end(&self, position: u32) -> Option<Seq> {
        let end = self.fixed.tx_base + position;
        let is_in_buffer = self.una.before(end) && end - self.una <= self.fixed.tx_size;
        (is_in_buffer && self.ends.may_write()).then_some(end)
    }

    /// Bytes on their way (RFC 6675 section 2, pipe).
    pub(super) fn in_flight(&self) -> u32 {
        (self.nxt - self.una) - self.recovery.absent()
    }

    #[cold]
    #[inline(never)]
    fn widen(&mut self) {
        let gain = self.window_gain();
        if gain >= self.fixed.window_step {
            self.rcv_adv += gain;
        }
    }

    /// The window to advertise, moving its right edge where that is worth it; the edge never moves back.
    // Meets RFC 9293: MUST-1, REC-1, SHLD-14, MUST-39.
    // Meets RFC 7323: 2.3-b.
    #[inline(always)]
    pub(super) fn window(&mut self) -> u16 {
        if self.unadvertised() >= self.fixed.window_step {
            self.widen();
        }
        (self.open_window() >> self.fixed.agreed.rcv_shift) as u16
    }

    /// A segment that carries the present acknowledgement, and settles what was to be acknowledged.
    #[inline(always)]
    pub(super) fn segment(&mut self, seq: Seq, flags: Flags, now: Nanos) -> TxSegment {
        let (window, timestamps) = (self.window(), self.stamp(now));
        self.last_ack = self.rcv_nxt;
        self.unacked = 0;
        self.ack_now = false;
        let fields = Fields {
            seq,
            ack: self.rcv_nxt,
            flags: flags | Flags::ACK | if self.ece { Flags::ECE } else { Flags(0) },
            timestamps,
            window,
            sack: None,
            ecn: Ecn::NotEct,
            payload_len: 0,
        };
        TxSegment { fields, pos: 0, segment_size: 0 }
    }

    /// A pure acknowledgement (thesis section 4.3.1.3: Ack, Stamp). It reports what came `dsack` (RFC 2883).
    // Meets RFC 2018: 3-a.
    // Meets RFC 2883: 4-a, 4-b, 4-c.
    #[inline(never)]
    pub(super) fn acknowledge<O: Observer>(
        &mut self,
        dsack: Option<(Seq, Seq)>,
        work: &mut Work,
        now: Nanos,
        observer: O,
    ) {
        let mut segment = self.segment(self.acceptable_seq(), Flags(0), now);
        if self.fixed.agreed.sack && (dsack.is_some() || !self.ooo.is_empty()) {
            work.sack = self.ooo.blocks(dsack, SackBlocks::room(self.fixed.agreed.ts_offset.is_some()));
            segment.fields.sack = work.sack.iter().next();
        }
        self.report_acknowledgement(&segment, work.flow, observer);
        work.send = Some(segment);
    }

    /// The sequence number of a segment without payload, which the peer accepts. After a kill, `max` is what was
    /// written, and may lie beyond the peer's window.
    #[inline(always)]
    fn acceptable_seq(&self) -> Seq {
        if self.max - self.una > self.max_wnd { self.right_edge() } else { self.max }
    }

    #[cold]
    fn right_edge(&self) -> Seq {
        self.una + self.snd_wnd
    }

    /// Reports an acknowledgement without payload to tracepoints.
    #[inline(always)]
    pub(super) fn report_acknowledgement<O: Observer>(&self, segment: &TxSegment, flow: u32, observer: O) {
        let (ack, window) = (segment.fields.ack.0.into(), segment.fields.window);
        observer.event(Point::AckSent, flow, [ack, u64::from(window) << self.fixed.agreed.rcv_shift]);
        if window == 0 {
            observer.event(Point::OwnWindowClosed, flow, [ack, 0]);
        }
    }

    // Meets RFC 7323: 3.2-b, 5.4-a.
    #[inline(always)]
    pub(super) fn stamp(&self, now: Nanos) -> Option<Timestamps> {
        let offset = self.fixed.agreed.ts_offset?;
        Some(Timestamps { value: timestamp(now, offset), echo: self.ts_recent })
    }

    /// The engine's positions, for a completion.
    #[inline(always)]
    pub(super) fn positions(&self) -> EnginePositions {
        let acked = if self.ends.all_acknowledged() { self.head } else { self.una };
        EnginePositions {
            rx_tail: self.rcv_data_end() - self.fixed.rx_base,
            tx_tail: acked - self.fixed.tx_base,
            fin: self.ends.peer_ended(),
        }
    }

    /// State of the flow when it leaves.
    pub(super) fn flow_end(&self) -> FlowEnd {
        FlowEnd {
            snd_nxt: self.max,
            snd_una: self.una,
            rcv_nxt: self.rcv_nxt,
            unread: self.rcv_data_end() - self.rcv_head,
            ts_recent: self.ts_recent,
            resume: Some(Resume {
                tx_pos: self.una - self.fixed.tx_base,
                rx_pos: self.rcv_nxt - self.fixed.rx_base,
                pending: if self.ends.all_acknowledged() { 0 } else { self.head - self.una },
                window: self.open_window(),
                snd_wnd: self.snd_wnd,
                state: self.ends.state(),
            }),
        }
    }

    /// Goes on where another engine left the flow, whose `una` and `rcv_nxt` it was installed with. What was on its way
    /// in between is lost: what is unacknowledged is sent again, and the peer gets what is expected of it.
    pub(super) fn resume(&mut self, end: &FlowEnd) {
        let Some(resume) = end.resume else { return };
        self.max = end.snd_nxt;
        self.ends = Ends::of(resume.state);
        self.head = if self.ends.all_acknowledged() { self.una - 1 } else { self.una + resume.pending };
        self.rcv_head = self.rcv_data_end() - end.unread;
        self.rcv_adv = self.rcv_nxt + resume.window.min(self.fixed.largest_window);
        if self.max != self.una {
            self.recovery.begin(self.max);
            self.go_back();
        }
        self.ack_now = true;
    }

    /// The congestion window grows with an acknowledgement of so many bytes, which `una` does not have yet.
    #[inline(always)]
    pub(super) fn grow_window(&mut self, bytes: u32) {
        let ack = Acknowledged { una: self.una, max: self.max, bytes, mss: self.fixed.agreed.mss.into() };
        let grown = self.flight.acknowledge(&mut self.window_use, &ack);
        if grown > 0 {
            let counter = &self.fixed.stats.grown;
            counter.store(counter.load(Relaxed).wrapping_add(grown), Relaxed);
        }
    }

    /// Publishes the figures that mean "now". They do not commute, so the one module that changes them writes them.
    #[inline(always)]
    pub(super) fn publish(&self) {
        let stats = &self.fixed.stats;
        stats.unsent.store(self.end() - self.max, Relaxed);
        stats.snd_wnd.store(self.snd_wnd, Relaxed);
        stats.snd_nxt.store(self.max.0, Relaxed);
        stats.snd_una.store(self.una.0, Relaxed);
        stats.rcv_nxt.store(self.rcv_nxt.0, Relaxed);
    }

    /// Invariants between any two works.
    pub(super) fn check(&self) {
        debug_assert!(
            !self.fast || self.rcv_nxt.at_or_before(self.rcv_adv),
            "fast-path segments are within the window"
        );
        debug_assert!(!self.fast || self.is_fast(), "fast");
        debug_assert!(self.una.at_or_before(self.nxt) && self.nxt.at_or_before(self.max), "una <= nxt <= max");
        debug_assert!(self.max.at_or_before(self.end()), "max <= end");
        debug_assert!(self.end() - self.una <= self.fixed.tx_size + 1, "unacknowledged <= buffer");
        debug_assert!(self.rcv_data_end() - self.rcv_head <= self.fixed.rx_place, "received <= place");
        debug_assert!(self.ooo.first().is_none_or(|(left, _)| self.rcv_nxt.before(left)), "a gap before the intervals");
        debug_assert!(self.ooo.end().is_none_or(|end| end - self.rcv_head <= self.fixed.rx_place));
    }
}
