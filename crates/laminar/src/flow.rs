//! The host's half of a flow: what libTOE keeps in the paper (credits, transmission head, thesis 5.3.2). It is joined
//! with what a segment's worth of bookkeeping needs. The pipeline decides; this follows its descriptors.
mod recovery;

use crate::descriptor::{BAD_ACK, CHALLENGE, DMA_GRANT, DUP_ACK, Dma, FAST_RETRANSMIT, TIMEOUT, TX_NEW};
use crate::places::Member;
use crate::program::Program;
use context::{Bump, Completion, Slot};
use engine::stream::{self, FlowParams, FlowStats, Stream, ticks};
use engine::{Event, FlowId, Nanos};
use shm::{ByteRing, Pooled};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use tcp::window::{self, SmallSegment, Waiting};
use tcp::{Acknowledged, ChallengeLimit, Ends, FlightLimit, Owner, Recovery, RttTimer, WindowUse};
use wire::Seq;
use wire::tcp::Flags;

/// A flow's state in the host. In the order of use, so that what each segment and descriptor needs lies in the first
/// three lines of the cache.
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub una: Seq,
    pub nxt: Seq,
    pub max: Seq,
    pub head: Seq,
    /// Right edge of the peer's window, and its largest size.
    pub edge: Seq,
    pub max_wnd: u32,
    /// As the pipeline counts them.
    pub credits: u32,
    /// What may be in flight as far as congestion control goes.
    flight: FlightLimit,
    window_use: WindowUse,
    /// Sequence numbers of stream position 0.
    pub tx_base: Seq,
    pub rx_base: Seq,
    /// Positions: received in order; taken by the application; reported to the pipeline.
    pub rx_tail: u32,
    pub rx_head: u32,
    pub synced: u32,
    pub mss: u32,
    pub tx_most: u32,
    /// Received bytes that the application has not taken lie where they are, up to so many: with more, the stream
    /// outgrows its small ring (docs/MEMORY.md).
    pub rx_most: u32,

    /// Present rings of payload, and how much the buffers hold.
    pub rx: Arc<ByteRing>,
    pub tx: Arc<ByteRing>,
    pub rx_size: u32,
    /// The largest window that is advertised.
    pub rx_window: u32,
    pub tx_size: u32,
    pub stats: Pooled<FlowStats>,
    /// Added to the pipeline's clock, milliseconds, to give the flow's timestamps; nothing where it has none.
    pub clock: Option<u32>,
    rtt: RttTimer,
    /// `recovery` is not idle, or limited transmit is active.
    losing: bool,
    /// The peer is to be notified that the congestion window was reduced, on the next new data.
    pub cwr: bool,
    /// The window is smaller than a segment, and the persist timer has it used (RFC 9293 section 3.8.6.2.1).
    pub overriding: bool,
    /// This host's FIN is at `head`; the peer's behind `rx_tail`.
    pub ends: Ends,
    pub life: Owner,
    pub tracked: bool,
    /// Bytes of a segment's headers without options.
    pub header_len: u8,
    /// The received stream is in this one of its rings, as completions report ([`ByteRing::number`]).
    pub rx_ring: u8,

    /// It is stopped until it is removed or goes on.
    pub frozen: bool,
    /// It is in the list of those that may have something to send.
    pub ready: bool,
    /// A completion waits in its context.
    pub completion_pending: bool,
    /// It is in the list of those with a time in `ack_due`.
    pub ack_listed: bool,
    recovery: Recovery,
    /// A duplicate acknowledgement reported something new that the peer has.
    block_is_new: bool,
    /// Its records go to a log.
    pub member: Option<Box<Member>>,
    /// When the acknowledgement that the pipeline delays goes out at the latest.
    pub ack_due: Option<Nanos>,
    pub rate: u64,
    /// Sequence number of the peer's FIN, until all before it is there.
    pub fin_held: Option<Seq>,
    ecn_seen: u32,
    pub challenges: ChallengeLimit,
    /// The application is to be notified once that all before `asked_for` was sent.
    pub asked: bool,
    asked_for: Seq,
    /// When the last segment came whose timestamp was not too old.
    pub stamped_at: Nanos,
    /// Parameters of its installation; its rings are the present ones.
    pub params: FlowParams,
}

/// Counts. Nobody else writes, so nothing has to be locked.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// A segment to push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Push {
    pub position: u32,
    pub len: u32,
    pub fin: bool,
    /// It ends what there is to send.
    pub last: bool,
}

/// Changes by a descriptor of the pipeline.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    pub delivered: u32,
    pub acked: bool,
    pub fin_acked: bool,
    pub bad_ack: bool,
    /// The peer has advertised a window larger than any before.
    pub wider: bool,
    /// The segment is not acceptable: it is answered within the limit.
    pub challenged: bool,
}

/// Result of the application's positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bumped {
    /// They count.
    Taken,
    /// They count, and the application has ended its stream.
    Ended,
    /// They cannot be: nothing changed.
    Impossible,
}

impl Flow {
    pub(crate) fn new(p: FlowParams) -> Flow {
        let header_len = wire::ethernet::HEADER_LEN + wire::ip::header_len(p.tuple.remote_ip) + wire::tcp::HEADER_LEN;
        let mut flow = Flow {
            tx_base: p.snd_nxt - p.tx_pos,
            rx_base: p.rcv_nxt - p.rx_pos,
            una: p.snd_nxt,
            nxt: p.snd_nxt,
            max: p.snd_nxt,
            head: p.snd_nxt,
            edge: p.snd_nxt + p.snd_wnd,
            max_wnd: p.snd_wnd,
            credits: 0,
            flight: FlightLimit::new(p.cwnd, p.growth),
            window_use: WindowUse::new(p.snd_nxt, p.growth),
            rate: p.rate,
            mss: 0,
            tx_most: 0,
            rx_tail: p.rx_pos,
            rx_head: p.rx_pos,
            synced: p.rx_pos,
            rx_most: p.rx.place(),
            rx: Arc::clone(&p.rx),
            tx: Arc::clone(&p.tx),
            rx_size: p.rx.most(),
            rx_window: window::largest_window(p.rx.usual(), p.agreed.rcv_shift),
            tx_size: p.tx.most(),
            stats: p.stats.clone(),
            recovery: Recovery::new(p.snd_nxt),
            block_is_new: false,
            losing: false,
            overriding: false,
            cwr: false,
            rtt: RttTimer::after_handshake(p.rtt),
            ecn_seen: 0,
            challenges: ChallengeLimit::new(),
            asked: false,
            asked_for: p.snd_nxt,
            clock: None,
            stamped_at: 0,
            ack_due: None,
            ack_listed: false,
            ends: Ends::default(),
            life: Owner::Owned,
            fin_held: None,
            tracked: false,
            header_len: header_len as u8,
            rx_ring: p.rx.number(),
            frozen: false,
            ready: false,
            completion_pending: false,
            member: None,
            params: p,
        };
        flow.set_mss(flow.params.agreed.mss);
        flow
    }

    /// Offset of the TCP header in its segments.
    #[inline]
    pub(crate) fn tcp_at(&self) -> usize {
        usize::from(self.header_len) - wire::tcp::HEADER_LEN
    }

    pub(crate) fn set_mss(&mut self, mss: u16) {
        self.mss = mss.max(1) as u32;
        self.tx_most = window::super_segment(self.params.super_segment, self.mss);
    }

    /// After the last sequence number that there is to send, FIN included.
    pub(crate) fn end(&self) -> Seq {
        self.head + self.ends.local_len()
    }

    /// The transmit stream goes on where its application has put it.
    #[cold]
    pub(crate) fn adopt_grown_ring(&mut self) {
        if let Some(ring) = self.tx.grown() {
            self.use_rings(Arc::clone(&self.rx), ring);
        }
    }

    /// The byte at stream position `last`, modulo the largest ring's size, is about to be received. Where it is too far
    /// ahead for the stream's ring, it goes on in another one.
    #[inline]
    pub(crate) fn receives(&mut self, last: u32) {
        // The pipeline adds within the buffer.
        let ahead = last.wrapping_sub(self.rx_head) & (self.rx_size - 1);
        if ahead >= self.rx_most {
            self.outgrow(ahead + 1);
        }
    }

    /// The received stream goes on in a ring that holds so many bytes.
    #[cold]
    pub(crate) fn outgrow(&mut self, bytes: u32) {
        let rx = self.rx.holding(self.rx_head, self.rx_head.wrapping_add(bytes));
        self.use_rings(rx, Arc::clone(&self.tx));
    }

    /// Bytes lie here from now on.
    pub(crate) fn use_rings(&mut self, rx: Arc<ByteRing>, tx: Arc<ByteRing>) {
        (self.rx_most, self.rx_size, self.tx_size) = (rx.place(), rx.most(), tx.most());
        self.rx_ring = rx.number();
        (self.params.rx, self.params.tx) = (Arc::clone(&rx), Arc::clone(&tx));
        (self.rx, self.tx) = (rx, tx);
    }

    /// Takes the application's positions; older ones change nothing.
    pub(crate) fn bump(&mut self, bump: &Bump) -> Bumped {
        if bump.ring > self.tx.number() {
            match bump.ring {
                Bump::UNTIL_SENT => (self.asked, self.asked_for) = (true, self.tx_base + bump.tx_head),
                _ => self.adopt_grown_ring(),
            }
        }
        let newer = |position: u32, old: u32| {
            let step = position.wrapping_sub(old);
            if step as i32 > 0 { step } else { 0 }
        };
        let written = newer(bump.tx_head, self.head - self.tx_base);
        // Of a log, the log itself has its reader's position.
        let taken = if self.member.is_some() { 0 } else { newer(bump.rx_head, self.rx_head) };
        let unacked = if !self.ends.may_write() { 0 } else { self.head - self.una };
        let extends = written > 0 && (!self.ends.may_write() || written > self.tx_size - unacked);
        if extends || taken > self.rx_tail.wrapping_sub(self.rx_head) {
            return Bumped::Impossible;
        }
        self.head += written;
        self.rx_head = self.rx_head.wrapping_add(taken);
        if bump.fin && self.ends.end_local() {
            return Bumped::Ended;
        }
        Bumped::Taken
    }

    /// Receive buffer to give back to the pipeline, where it is worth it. That is a quarter of the window (thesis
    /// 5.3.1.7), or two segments where it is nearly closed (RFC 9293 section 3.8.6.2.2).
    // Meets RFC 9293: MUST-39, SHLD-14.
    pub(crate) fn replenish(&mut self) -> Option<u32> {
        let gain = self.rx_head.wrapping_sub(self.synced);
        let open = self.rx_window - self.rx_tail.wrapping_sub(self.synced);
        let worth = window::is_worth_advertising(gain, open, self.rx_window, self.mss);
        if self.ends.peer_ended() || self.life == Owner::Dead || gain == 0 || !worth {
            return None;
        }
        self.synced = self.rx_head;
        Some(gain)
    }

    /// Takes in a descriptor of the pipeline.
    pub(crate) fn follow(&mut self, dma: &Dma, now: Nanos) -> Change {
        let mut change =
            Change { bad_ack: dma.flags & BAD_ACK != 0, challenged: dma.flags & CHALLENGE != 0, ..Change::default() };
        let una = Seq(dma.una);
        if self.una.before(una) && una.at_or_before(self.max) {
            self.acknowledge(una, now, &mut change);
        }
        if self.edge.before(Seq(dma.edge)) {
            self.edge = Seq(dma.edge);
            change.wider = self.max_wnd < self.edge - self.una;
            self.max_wnd = self.max_wnd.max(self.edge - self.una);
        }
        let tail = Seq(dma.position) - self.rx_base;
        let step = tail.wrapping_sub(self.rx_tail);
        if !self.ends.peer_ended() && step as i32 > 0 {
            change.delivered = step;
            self.rx_tail = tail;
        }
        // Credits that the host asked for itself it has counted already, and spent since.
        if dma.op == DMA_GRANT && self.rate > 0 {
            self.credits = dma.credits;
        }
        if dma.flags & (FAST_RETRANSMIT | TIMEOUT | DUP_ACK) != 0 {
            self.lost(dma);
        }
        change
    }

    fn acknowledge(&mut self, una: Seq, now: Nanos, change: &mut Change) {
        let fin_acked = !self.ends.may_write() && !self.ends.all_acknowledged() && una == self.end();
        let bytes = (una - self.una) - fin_acked as u32;
        let ack = Acknowledged { una: self.una, max: self.max, bytes, mss: self.mss };
        let grown = self.flight.acknowledge(&mut self.window_use, &ack);
        if grown > 0 {
            self.stats.grown.fetch_add(grown, Relaxed);
        }
        self.una = una;
        if self.nxt.before(una) {
            self.nxt = una;
        }
        add(&self.stats.acked_bytes, bytes.into());
        change.acked = true;
        if fin_acked {
            change.fin_acked = true;
            self.ends.acknowledge();
        }
        if self.losing {
            self.recover_further();
        }
        let rtt = self.rtt.take(now, una);
        // Where segments have timestamps, the pipeline measures.
        if rtt > 0 && self.clock.is_none() {
            self.took(rtt);
        }
    }

    /// A round-trip time, nanoseconds.
    pub(crate) fn took(&self, rtt: u32) {
        self.stats.rtt_ns.store(rtt, Relaxed);
        self.stats.rtt_samples.store(self.stats.rtt_samples.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Bytes acknowledged under ECN echo so far, as the pipeline counts them.
    pub(crate) fn ecn(&mut self, bytes: u32) {
        let more = bytes.wrapping_sub(self.ecn_seen);
        self.ecn_seen = bytes;
        self.stats.ecn_bytes.fetch_add(more as u64, Relaxed);
    }

    /// What congestion control leaves.
    fn allowance(&self) -> u32 {
        self.flight.bytes().saturating_sub(self.nxt - self.una)
    }

    /// Credits that the next segment needs: all that the window leaves. Flows with a rate get theirs from the packet
    /// generator.
    pub(crate) fn missing_credits(&self, push: &Push) -> Option<u32> {
        let short = self.credits < push.len.max(1);
        (self.rate == 0 && short).then(|| self.allowance().max(push.len).max(1) - self.credits)
    }

    /// Established, with nothing unread, unsent or unacknowledged. What is out of order is in the pipeline.
    pub(crate) fn is_quiet(&self) -> bool {
        let open = self.ends.are_open() && self.fin_held.is_none() && self.life != Owner::Dead;
        open && self.una == self.head && self.nxt == self.head && self.rx_tail == self.rx_head
    }

    /// There is something to send, as far as the peer's window goes.
    pub(crate) fn has_more(&self) -> bool {
        self.nxt.before(self.end()) && self.nxt.before(self.edge) && self.life != Owner::Dead
    }

    /// The next segment, if one may be sent. Silly windows are avoided (RFC 9293 section 3.8.6.2.1).
    // Meets RFC 9293: MUST-38, SHLD-27, SHLD-28.
    // Meets RFC 5681: 3.1-a.
    pub(crate) fn next_push(&mut self) -> Option<Push> {
        self.skip_block();
        if self.life == Owner::Dead || (self.rate > 0 && self.credits == 0) {
            return None;
        }
        let data = if self.nxt.before(self.head) { self.head - self.nxt } else { 0 };
        let fin_waits = !self.ends.may_write() && self.nxt.at_or_before(self.head);
        let window = if self.nxt.before(self.edge) { self.edge - self.nxt } else { 0 };
        let position = self.nxt - self.tx_base;
        if data == 0 {
            return (fin_waits && window > 0).then_some(Push { position, len: 0, fin: true, last: true });
        }
        let paced = if self.rate > 0 { self.credits } else { u32::MAX };
        let usable = window.min(self.allowance()).min(paced);
        let waiting = Waiting { data, usable, most: self.tx_most, mss: self.mss };
        let len = self.recovery.clip(self.nxt, waiting.cut(|| self.may_be_small(usable, paced >= self.mss.min(data)))?);
        Some(Push { position, len, fin: fin_waits && len == data && window > len, last: len == data })
    }

    /// A segment may be sent although it is not full and more data waits. Where nothing is in flight, only with the
    /// credits that it needs.
    fn may_be_small(&self, usable: u32, has_credits: bool) -> bool {
        let small = SmallSegment {
            usable,
            window: if self.una.before(self.edge) { self.edge - self.una } else { 0 },
            largest: self.max_wnd,
            cwnd: self.flight.cwnd(),
            alone: self.nxt == self.una && has_credits,
            overriding: self.overriding,
        };
        self.nxt.before(self.max) || small.is_due()
    }

    /// Flags of the descriptor of a segment that is about to be pushed. What was sent before is not ECN-capable.
    // Meets RFC 3168: 6.1.2-b, 6.1.5-a.
    #[inline]
    pub(crate) fn tx_flags(&mut self, push: &Push) -> u8 {
        let mut flags = if push.fin { Flags::FIN.0 } else { 0 };
        // A super-segment ends what a receiver's GRO collects, as on Linux.
        if (push.last && push.len > 0) || push.len > self.mss {
            flags |= Flags::PSH.0;
        }
        if self.params.agreed.ecn && push.len > 0 && self.nxt == self.max {
            flags |= TX_NEW;
            if std::mem::take(&mut self.cwr) {
                flags |= Flags::CWR.0;
            }
        }
        flags
    }

    /// The application has asked how far its bytes were sent: the position, once that is far enough.
    #[cold]
    pub(crate) fn take_sent(&mut self) -> Option<u32> {
        let sent = if self.head.before(self.max) { self.head } else { self.max };
        self.asked = self.max.before(self.asked_for);
        (!self.asked).then(|| sent - self.tx_base)
    }

    /// The segment is on its way.
    pub(crate) fn pushed(&mut self, push: &Push, now: Nanos) {
        let after = self.nxt + push.len + push.fin as u32;
        let stats = &self.stats;
        add(&stats.tx_segments, 1);
        add(&stats.tx_bytes, push.len.into());
        if self.nxt.before(self.max) {
            stats.retransmitted_segments.fetch_add(1, Relaxed);
        } else if self.rtt.start(now, after) {
            stats.timed_ticks.store(ticks(now), Relaxed);
        }
        self.overriding = false;
        self.credits = self.credits.saturating_sub(push.len);
        self.nxt = after;
        self.max = self.max.max(after);
    }

    pub(crate) fn completion(&self, slot: Slot) -> Completion {
        let acked = if self.ends.all_acknowledged() { self.head } else { self.una };
        let rx_tail = self.member.as_ref().map_or(self.rx_tail, |member| member.start);
        Completion {
            slot,
            rx_tail,
            tx_tail: acked - self.tx_base,
            fin: self.ends.peer_ended(),
            ring: self.rx_ring,
            urgent: false,
        }
    }

    pub(crate) fn rcv_nxt(&self) -> Seq {
        self.rx_base + self.rx_tail + self.ends.peer_len()
    }

    /// A segment has come.
    #[inline]
    pub(crate) fn note_received(&self, now: Nanos) {
        let stats = &self.stats;
        add(&stats.rx_segments, 1);
        stats.last_rx_ns.store(now, Relaxed);
    }

    /// Payload has come, of which so many bytes are new in order; none, though some is to be placed: out of order.
    #[inline]
    pub(crate) fn count_received(&self, placed: bool, delivered: u32) {
        let stats = &self.stats;
        if delivered > 0 {
            add(&stats.rx_bytes, delivered.into());
        } else if placed {
            stats.out_of_order.fetch_add(1, Relaxed);
        }
    }

    /// What the pipeline measured until this acknowledgement: bytes under ECN echo, if it has one.
    #[inline]
    pub(crate) fn measure(&mut self, id: u32, echoes: bool, program: &mut Program) {
        if self.params.agreed.ecn && echoes {
            let bytes = program.ecn_bytes(id);
            if bytes != self.ecn_seen {
                self.ecn(bytes);
            }
        }
        if self.clock.is_some() {
            if let Some(rtt) = program.take_rtt(id) {
                self.took(rtt);
            }
        }
    }

    /// The control plane is notified of it when there first is something to send or to be acknowledged.
    #[inline]
    pub(crate) fn track(&mut self, id: u32, events: &mut Vec<Event<Stream>>) {
        if !self.tracked && self.life != Owner::Dead && self.una != self.end() {
            self.tracked = true;
            events.push(stream::Event::Active(FlowId(id)).into());
        }
    }

    /// It may have something to send: it is queued for it.
    #[inline]
    pub(crate) fn may_send(&mut self, id: u32, ready: &mut VecDeque<u32>, events: &mut Vec<Event<Stream>>) {
        self.track(id, events);
        if !self.ready && self.has_more() {
            self.ready = true;
            ready.push_back(id);
        }
    }

    /// Of the figures that mean "now", those that a segment of the peer can change.
    #[inline]
    pub(crate) fn publish_received(&self) {
        let stats = &self.stats;
        let window = if self.una.before(self.edge) { self.edge - self.una } else { 0 };
        stats.snd_wnd.store(window, Relaxed);
        stats.snd_una.store(self.una.0, Relaxed);
        stats.rcv_nxt.store(self.rcv_nxt().0, Relaxed);
    }

    /// Likewise those that a segment of this end can change.
    #[inline]
    pub(crate) fn publish_sent(&self) {
        let stats = &self.stats;
        stats.unsent.store(self.end() - self.max, Relaxed);
        stats.snd_nxt.store(self.max.0, Relaxed);
    }

    /// The figures that mean "now".
    pub(crate) fn publish(&self) {
        self.publish_sent();
        self.publish_received();
    }
}
