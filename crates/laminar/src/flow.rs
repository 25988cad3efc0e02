//! The host's half of a flow: what libTOE keeps in the paper (credits, transmission head, thesis 5.3.2), joined with
//! what a segment's worth of bookkeeping needs. The pipeline decides; this follows its descriptors.
mod recovery;

use crate::descriptor::{BAD_ACK, DMA_GRANT, DUP_ACK, Dma, FAST_RETRANSMIT, TIMEOUT};
use crate::log::Member;
use crate::program::Program;
use context::{Bump, Notice, Slot};
use engine::stream::{self, FlowParams, FlowStats, Stream};
use engine::{Event, FlowId, Nanos};
use shm::{Mirror, Pooled};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use tcp::{ChallengeLimit, window};
use wire::Seq;

/// A flow as the host knows it. In the order of use, so that what each segment and descriptor needs lies in the first three lines of
/// the cache.
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
    /// What may be in flight as far as congestion control goes: the congestion window, and `limited`.
    allowed: u32,
    /// Sequence numbers of stream position 0.
    pub tx_base: Seq,
    pub rx_base: Seq,
    /// Positions: received in order; taken by the application; told to the pipeline.
    pub rx_tail: u32,
    pub rx_head: u32,
    pub synced: u32,
    pub mss: u32,
    pub tx_most: u32,
    /// Received bytes that the application has not taken lie where they are, up to so many: with more, the stream outgrows its
    /// small ring (docs/MEMORY.md).
    pub rx_most: u32,

    /// Where payload lies now, and how much the buffers hold.
    pub rx: Arc<Mirror>,
    pub tx: Arc<Mirror>,
    pub rx_size: u32,
    /// The largest window that is advertised.
    pub rx_window: u32,
    pub tx_size: u32,
    pub stats: Pooled<FlowStats>,
    /// Added to the pipeline's clock, milliseconds, to give the flow's timestamps; nothing where it has none.
    pub clock: Option<u32>,
    rtt_start: Nanos,
    rtt_end: Seq,
    timing: bool,
    /// Something of `recovering`, `limited`, `sacked` and `skipped` is set.
    losing: bool,
    recovering: bool,
    pub fin: bool,
    pub fin_acked: bool,
    pub peer_fin: bool,
    pub orphan: bool,
    pub tracked: bool,
    pub dead: bool,

    /// It stands still until it is removed or goes on.
    pub frozen: bool,
    /// It stands in the list of those that may have something to send.
    pub ready: bool,
    /// A notice waits in its context.
    pub noticed: bool,
    /// It stands in the list of those with a time in `ack_due`.
    pub ack_listed: bool,
    /// Loss recovery ends when more than this is acknowledged (RFC 6582).
    pub recover: Seq,
    /// Its records go to a log.
    pub member: Option<Box<Member>>,
    /// When the acknowledgement that the pipeline delays goes out at the latest.
    pub ack_due: Option<Nanos>,
    pub rate: u64,
    /// Sequence number of the peer's FIN, until all before it is there.
    pub fin_held: Option<Seq>,
    /// The congestion window, and what limited transmit adds to it for now (RFC 3042), bytes.
    cwnd: u32,
    limited: u32,
    /// What the peer has beyond a hole, as its acknowledgements tell; empty where there is no such thing. And what it
    /// was at the duplicate acknowledgement before.
    sacked: (Seq, Seq),
    sacked_before: (Seq, Seq),
    /// The hole before it was sent again up to here, and the rest left out.
    skipped: Option<Seq>,
    ecn_seen: u32,
    pub challenges: ChallengeLimit,
    /// What it was installed with; its rings are those of now.
    pub params: FlowParams,
}

/// Counts. Nobody else writes, so nothing has to be locked.
#[inline]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Likewise one of few.
#[inline]
fn add_one(counter: &AtomicU32) {
    counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Bytes that may lie in a ring before the stream outgrows it.
fn most(ring: &Mirror) -> u32 {
    if ring.is_small() { ring.ease() } else { u32::MAX }
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

/// What a descriptor of the pipeline changed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    pub delivered: u32,
    pub acked: bool,
    pub fin_acked: bool,
    pub bad_ack: bool,
}

/// What came of the application's positions.
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
    pub fn new(p: FlowParams) -> Flow {
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
            allowed: p.cwnd,
            cwnd: p.cwnd,
            limited: 0,
            rate: p.rate,
            mss: 0,
            tx_most: 0,
            rx_tail: p.rx_pos,
            rx_head: p.rx_pos,
            synced: p.rx_pos,
            rx_most: most(&p.rx),
            rx: Arc::clone(&p.rx),
            tx: Arc::clone(&p.tx),
            rx_size: p.rx.full_size(),
            rx_window: window::largest_window(p.rx.full_size(), p.rcv_wscale),
            tx_size: p.tx.full_size(),
            stats: p.stats.clone(),
            recover: p.snd_nxt,
            losing: false,
            recovering: false,
            sacked: (p.snd_nxt, p.snd_nxt),
            sacked_before: (p.snd_nxt, p.snd_nxt),
            skipped: None,
            rtt_end: p.snd_nxt,
            rtt_start: 0,
            timing: false,
            ecn_seen: 0,
            challenges: ChallengeLimit::new(),
            clock: None,
            ack_due: None,
            ack_listed: false,
            fin: false,
            fin_acked: false,
            peer_fin: false,
            fin_held: None,
            orphan: false,
            tracked: false,
            dead: false,
            frozen: false,
            ready: false,
            noticed: false,
            member: None,
            params: p,
        };
        flow.set_mss(flow.params.mss);
        flow
    }

    pub fn set_mss(&mut self, mss: u16) {
        self.mss = mss.max(1) as u32;
        self.tx_most = window::super_segment(self.params.super_segment, self.mss);
    }

    /// After the last sequence number that there is to send, FIN included.
    pub fn end(&self) -> Seq {
        self.head + self.fin as u32
    }

    /// The transmit stream goes on where its application has put it.
    #[cold]
    pub fn look(&mut self) {
        if let Some(ring) = self.tx.look() {
            self.use_rings(Arc::clone(&self.rx), ring);
        }
    }

    /// The byte at stream position `last`, modulo the buffer's size, is about to be received: where it is too far ahead for the
    /// stream's small ring, it goes on in its buffer.
    #[inline]
    pub fn receives(&mut self, last: u32) {
        // The pipeline adds within the buffer.
        if last.wrapping_sub(self.rx_head) & (self.rx_size - 1) >= self.rx_most {
            self.outgrow();
        }
    }

    /// The received stream goes on in its buffer.
    #[cold]
    pub fn outgrow(&mut self) {
        self.use_rings(self.rx.grow(self.rx_head), Arc::clone(&self.tx));
    }

    /// Bytes lie here from now on.
    pub fn use_rings(&mut self, rx: Arc<Mirror>, tx: Arc<Mirror>) {
        (self.rx_most, self.rx_size, self.tx_size) = (most(&rx), rx.full_size(), tx.full_size());
        (self.params.rx, self.params.tx) = (Arc::clone(&rx), Arc::clone(&tx));
        (self.rx, self.tx) = (rx, tx);
    }

    /// Takes the application's positions; older ones say nothing new.
    pub fn bump(&mut self, bump: &Bump) -> Bumped {
        if bump.grown && self.tx.is_small() {
            self.look();
        }
        let newer = |position: u32, old: u32| {
            let step = position.wrapping_sub(old);
            if step as i32 > 0 { step } else { 0 }
        };
        let written = newer(bump.tx_head, self.head - self.tx_base);
        // What a log's reader has taken the log says.
        let taken = if self.member.is_some() { 0 } else { newer(bump.rx_head, self.rx_head) };
        let unacked = if self.fin { 0 } else { self.head - self.una };
        let extends = written > 0 && (self.fin || written > self.tx_size - unacked);
        if extends || taken > self.rx_tail.wrapping_sub(self.rx_head) {
            return Bumped::Impossible;
        }
        self.head += written;
        self.rx_head = self.rx_head.wrapping_add(taken);
        if bump.fin && !self.fin {
            self.fin = true;
            return Bumped::Ended;
        }
        Bumped::Taken
    }

    /// Receive buffer to give back to the pipeline, where it is worth it: a quarter of the window (thesis 5.3.1.7), or
    /// two segments where it is nearly closed (RFC 9293 section 3.8.6.2.2).
    // Meets RFC 9293: MUST-39, SHLD-14.
    pub fn replenish(&mut self) -> Option<u32> {
        let gain = self.rx_head.wrapping_sub(self.synced);
        let open = self.rx_window - self.rx_tail.wrapping_sub(self.synced);
        let worth = window::is_worth_telling(gain, open, self.rx_window, self.mss);
        if self.peer_fin || self.dead || gain == 0 || !worth {
            return None;
        }
        self.synced = self.rx_head;
        Some(gain)
    }

    /// Takes in what the pipeline says.
    pub fn follow(&mut self, dma: &Dma, now: Nanos) -> Change {
        let mut change = Change { bad_ack: dma.flags & BAD_ACK != 0, ..Change::default() };
        let una = Seq(dma.una);
        if self.una.before(una) && una.at_or_before(self.max) {
            self.acknowledge(una, now, &mut change);
        }
        if self.edge.before(Seq(dma.edge)) {
            self.edge = Seq(dma.edge);
            self.max_wnd = self.max_wnd.max(self.edge - self.una);
        }
        let tail = Seq(dma.position) - self.rx_base;
        let step = tail.wrapping_sub(self.rx_tail);
        if !self.peer_fin && step as i32 > 0 {
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
        let fin_acked = self.fin && una == self.end();
        let bytes = (una - self.una) - (fin_acked && !self.fin_acked) as u32;
        self.una = una;
        if self.nxt.before(una) {
            self.nxt = una;
        }
        add(&self.stats.acked_bytes, bytes.into());
        change.acked = true;
        change.fin_acked = fin_acked && !self.fin_acked;
        self.fin_acked |= fin_acked;
        if self.losing {
            self.recover_further();
        }
        if self.timing && self.rtt_end.at_or_before(una) {
            self.timing = false;
            let rtt = now.saturating_sub(self.rtt_start).clamp(1, u32::MAX as u64) as u32;
            self.took(rtt);
        }
    }

    /// A round-trip time, nanoseconds.
    pub fn took(&self, rtt: u32) {
        self.stats.rtt_ns.store(rtt, Relaxed);
        add_one(&self.stats.rtt_samples);
    }

    /// Bytes acknowledged under ECN echo so far, as the pipeline counts them.
    pub fn ecn(&mut self, bytes: u32) {
        let more = bytes.wrapping_sub(self.ecn_seen);
        self.ecn_seen = bytes;
        self.stats.ecn_bytes.fetch_add(more as u64, Relaxed);
    }

    /// What congestion control leaves.
    fn allowance(&self) -> u32 {
        self.allowed.saturating_sub(self.nxt - self.una)
    }

    /// Credits to ask for, so that the next segment may go: all that the window leaves. Flows with a rate get theirs
    /// from the packet generator.
    pub fn wanted(&self, push: &Push) -> Option<u32> {
        let short = self.credits < push.len.max(1);
        (self.rate == 0 && short).then(|| self.allowance().max(push.len).max(1) - self.credits)
    }

    /// Established, with nothing unread, unsent or unacknowledged. What is out of order the pipeline knows.
    pub fn is_quiet(&self) -> bool {
        let sent = self.una == self.head && self.nxt == self.head && !self.fin;
        sent && self.rx_tail == self.rx_head && !self.peer_fin && self.fin_held.is_none() && !self.dead
    }

    /// There is something to send, as far as the peer's window goes.
    pub fn has_more(&self) -> bool {
        self.nxt.before(self.end()) && self.nxt.before(self.edge) && !self.dead
    }

    /// The next segment, if one may be sent. Silly windows are avoided as RFC 9293 section 3.8.6.2.1 says.
    // Meets RFC 9293: MUST-38.
    // Meets RFC 5681: 3.1-a.
    pub fn next_push(&mut self) -> Option<Push> {
        self.skip_sacked();
        if self.dead || (self.rate > 0 && self.credits == 0) {
            return None;
        }
        let data = if self.nxt.before(self.head) { self.head - self.nxt } else { 0 };
        let fin_waits = self.fin && self.nxt.at_or_before(self.head);
        let window = if self.nxt.before(self.edge) { self.edge - self.nxt } else { 0 };
        let position = self.nxt - self.tx_base;
        if data == 0 {
            return (fin_waits && window > 0).then_some(Push { position, len: 0, fin: true, last: true });
        }
        let paced = if self.rate > 0 { self.credits } else { u32::MAX };
        let usable = window.min(self.allowance()).min(paced);
        let mut len = data.min(usable).min(self.tx_most);
        let alone = self.nxt == self.una && paced >= self.mss.min(data);
        let small = self.nxt.before(self.max) || alone || usable >= self.max_wnd.div_ceil(2);
        if len == 0 || (len < data && len < self.mss && !small) {
            return None;
        }
        if len < data && len > self.mss {
            len -= len % self.mss;
        }
        let (left, right) = self.sacked;
        if left != right && self.nxt.before(left) {
            len = len.min(left - self.nxt);
        }
        Some(Push { position, len, fin: fin_waits && len == data && window > len, last: len == data })
    }

    /// The segment is on its way.
    pub fn pushed(&mut self, push: &Push, now: Nanos) {
        let after = self.nxt + push.len + push.fin as u32;
        let stats = &self.stats;
        add(&stats.tx_segments, 1);
        add(&stats.tx_bytes, push.len.into());
        if self.nxt.before(self.max) {
            stats.retransmitted_segments.fetch_add(1, Relaxed);
        } else if !self.timing && self.clock.is_none() {
            (self.timing, self.rtt_end, self.rtt_start) = (true, after, now);
        }
        self.credits = self.credits.saturating_sub(push.len);
        self.nxt = after;
        self.max = self.max.max(after);
    }

    pub fn notice(&self, slot: Slot) -> Notice {
        let acked = if self.fin_acked { self.head } else { self.una };
        let rx_tail = self.member.as_ref().map_or(self.rx_tail, |member| member.start);
        Notice { slot, rx_tail, tx_tail: acked - self.tx_base, fin: self.peer_fin, grown: self.rx.has_grown() }
    }

    pub fn rcv_nxt(&self) -> Seq {
        self.rx_base + self.rx_tail + self.peer_fin as u32
    }

    /// A segment has come.
    #[inline]
    pub fn heard(&self, now: Nanos) {
        let stats = &self.stats;
        add(&stats.rx_segments, 1);
        stats.last_rx_ns.store(now, Relaxed);
    }

    /// Payload has come, of which so many bytes are new in order; none, though some is to be placed: out of order.
    #[inline]
    pub fn count_received(&self, placed: bool, delivered: u32) {
        let stats = &self.stats;
        if delivered > 0 {
            add(&stats.rx_bytes, delivered.into());
        } else if placed {
            stats.out_of_order.fetch_add(1, Relaxed);
        }
    }

    /// What the pipeline measured until this acknowledgement: bytes under ECN echo, if it has one.
    #[inline]
    pub fn measure(&mut self, id: u32, echoes: bool, program: &mut Program) {
        if self.params.ecn && echoes {
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

    /// The control plane hears of it when there first is something to send or to be acknowledged.
    #[inline]
    pub fn track(&mut self, id: u32, events: &mut Vec<Event<Stream>>) {
        if !self.tracked && !self.dead && self.una != self.end() {
            self.tracked = true;
            events.push(stream::Event::Active(FlowId(id)).into());
        }
    }

    /// It may have something to send: it gets its turn.
    #[inline]
    pub fn may_send(&mut self, id: u32, ready: &mut VecDeque<u32>, events: &mut Vec<Event<Stream>>) {
        self.track(id, events);
        if !self.ready && self.has_more() {
            self.ready = true;
            ready.push_back(id);
        }
    }

    /// Of the figures that mean "now", those that a segment of the peer can change.
    #[inline]
    pub fn publish_received(&self) {
        let stats = &self.stats;
        let window = if self.una.before(self.edge) { self.edge - self.una } else { 0 };
        stats.snd_wnd.store(window, Relaxed);
        stats.snd_una.store(self.una.0, Relaxed);
        stats.rcv_nxt.store(self.rcv_nxt().0, Relaxed);
    }

    /// Likewise those that a segment of this end can change.
    #[inline]
    pub fn publish_sent(&self) {
        let stats = &self.stats;
        stats.unsent.store(self.end() - self.max, Relaxed);
        stats.snd_nxt.store(self.max.0, Relaxed);
    }

    /// The figures that mean "now".
    pub fn publish(&self) {
        self.publish_sent();
        self.publish_received();
    }
}
