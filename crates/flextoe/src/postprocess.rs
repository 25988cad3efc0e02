//! Post-processing: allocates, prepares and stamps segments, and counts (thesis sections 4.3.1.2, Alloc and Head, and
//! 4.3.1.3, Ack, Stamp, Stats).
use crate::message::{Buffers, Control, Job, Marks, Tally, TxSegment, Work};
use crate::slots::Slots;
use engine::stream::{FlowParams, FlowStats};
use engine::{DropReason, Frame, FramePool, Nanos};
use port::Checksum;
use shm::{ByteRing, Pooled};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use wire::tcp::{self, Flags, SackBlocks};
use wire::template::{self, Fields, Template};

/// Counters and headers (thesis table 4.1, post-processor). The context queue module has the context and the
/// application's name for the flow, which it alone uses. The payload buffers are with the DMA module, the rate is with
/// the scheduler. Addresses are here, because this module writes all headers, from a template. Once there is one, it
/// costs no more to write them whole than to complete what pre-processing began. So it takes the frame from the pool,
/// too, and only for segments that the protocol module decided to send.
struct PostState {
    headers: Template,
    stats: Pooled<FlowStats>,
    /// For the DMA module where that is on the same thread: as in the paper, this module gives it addresses (Pos).
    buffers: Buffers,
}

/// Bytes of a flow's state here.
#[cfg(test)]
pub(crate) const STATE: usize = size_of::<Option<PostState>>();

/// The post-processing module, or one replica of it.
pub(crate) struct Postprocess {
    flows: Slots<PostState>,
    /// There are other replicas, so that counters have more than one writer.
    replicated: bool,
}

impl Postprocess {
    pub(crate) fn new(flows: u32, replicated: bool) -> Postprocess {
        Postprocess { flows: Slots::new(flows), replicated }
    }

    pub(crate) fn control(&mut self, control: &Control) {
        match control {
            Control::Install(params) => {
                if let Some(state) = PostState::new(params) {
                    self.flows.insert(params.flow.0, state);
                }
            }
            Control::Forget(flow) => {
                self.flows.remove(flow.0);
            }
            Control::NextHop(flow, mac) => {
                if let Some(state) = self.flows.get_mut(flow.0) {
                    state.headers.set_next_hop(*mac);
                }
            }
            Control::Rebind(flow, buffers) => {
                if let Some(state) = self.flows.get_mut(flow.0) {
                    state.buffers = buffers.clone();
                }
            }
            Control::Modules(..) => {}
        }
    }

    pub(crate) fn process(&self, batch: &mut [Work], now: Nanos, pool: &mut FramePool) {
        match self.replicated {
            true => batch.iter_mut().for_each(|work| self.one::<true>(work, now, pool)),
            false => batch.iter_mut().for_each(|work| self.one::<false>(work, now, pool)),
        }
    }

    /// One work; `SHARED` where there are other replicas.
    #[inline(always)]
    pub(crate) fn one<const SHARED: bool>(&self, work: &mut Work, now: Nanos, pool: &mut FramePool) {
        let relevant = matches!(work.job, Job::Receive) || work.send.is_some() || !work.drops.is_empty();
        // An order may find a loss.
        if !relevant && !work.tally.marks.has(Marks::FAST_RETRANSMIT) {
            return;
        }
        if let Some(state) = self.flows.get(work.flow) {
            work.out = work.send.as_ref().map(|segment| state.prepare(segment, || work.sack, pool));
            if work.send.as_ref().is_some_and(|segment| segment.fields.flags.has(Flags::URG)) {
                point(work);
            }
            Counters::<SHARED> { stats: &state.stats }.count(work, now);
        }
    }

    /// Asks for a flow's state ahead of its use.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: u32) {
        self.flows.prefetch(flow);
    }

    /// The same of what that leads to.
    #[inline(always)]
    pub(crate) fn prefetch_more(&self, flow: u32) {
        if let Some(state) = self.flows.get(flow) {
            shm::prefetch(&*state.stats);
            shm::prefetch(&*state.buffers.rx);
            shm::prefetch(&*state.buffers.tx);
        }
    }

    /// The same of the place in its receive buffer where stream position `pos` goes.
    #[inline(always)]
    pub(crate) fn prefetch_place(&self, flow: u32, pos: u32) {
        if let Some(state) = self.flows.get(flow) {
            state.buffers.rx.prefetch(pos);
        }
    }

    /// A received segment on the fast path: it is only counted. Returns where its payload goes. With one replica of
    /// this module.
    #[inline(always)]
    pub(crate) fn received(&self, flow: u32, tally: &Tally, now: Nanos) -> Option<&ByteRing> {
        let state = self.flows.get(flow)?;
        Counters::<false> { stats: &state.stats }.received(tally, now);
        Some(&state.buffers.rx)
    }

    /// A segment to send on the fast path, and the flow's buffers. With one replica of this module.
    #[inline(always)]
    pub(crate) fn sent(&self, flow: u32, segment: &TxSegment, pool: &mut FramePool) -> Option<(Box<Frame>, &Buffers)> {
        let state = self.flows.get(flow)?;
        Counters::<false> { stats: &state.stats }.sent(segment.fields.payload_len);
        Some((state.prepare(segment, SackBlocks::default, pool), &state.buffers))
    }
}

/// Writes the urgent pointer of a segment. The checksum is still to be completed.
#[cold]
fn point(work: &mut Work) {
    let Some(frame) = &mut work.out else { return };
    if let Checksum::Partial { start, .. } = frame.checksum {
        let headers = frame.bytes_mut().get_mut(usize::from(start)..).unwrap_or_default();
        tcp::set_urgent_pointer(headers, work.urgent.pointer);
    }
}

impl PostState {
    /// `None` for a flow between addresses that are not of one family.
    fn new(p: &FlowParams) -> Option<PostState> {
        let tuple = p.tuple;
        let (link, addresses) = ((p.local_mac, p.remote_mac), (tuple.local_ip, tuple.remote_ip));
        let headers = Template::new(link, addresses, (tuple.local_port, tuple.remote_port))?;
        let buffers = Buffers { rx: Arc::clone(&p.rx), tx: Arc::clone(&p.tx) };
        Some(PostState { headers, stats: p.stats.clone(), buffers })
    }

    /// Makes the frame of a segment to send, with all headers. The checksum is left partial: the port
    /// completes it, or needs none. `sack` gives the SACK blocks, where the segment has one.
    #[inline(always)]
    fn prepare(&self, segment: &TxSegment, sack: impl FnOnce() -> SackBlocks, pool: &mut FramePool) -> Box<Frame> {
        let mut frame = pool.small();
        let Some(headers) = self.headers.v4() else {
            let blocks = if segment.fields.sack.is_some() { sack() } else { SackBlocks::default() };
            return self.prepare_v6(segment.fields, segment.segment_size, blocks, frame);
        };
        let (start, field) = headers.write(&segment.fields, sack, frame.bytes_vec());
        frame.checksum = Checksum::Partial { start, field };
        frame.segment_size = segment.segment_size;
        frame
    }

    /// The same over IPv6. It is in code of its own, so that IPv4's is as short as it would be alone. It goes by value,
    /// so that the fields need not be put into memory there.
    #[inline(never)]
    fn prepare_v6(&self, fields: Fields, segment_size: u16, blocks: SackBlocks, mut frame: Box<Frame>) -> Box<Frame> {
        let (start, field) = self.headers.write_with(&fields, || blocks, frame.bytes_vec());
        frame.checksum = Checksum::Partial { start, field };
        frame.segment_size = segment_size;
        frame
    }
}

// All headers fit the pool's small frames (at least 256 bytes), so that writing them allocates nothing.
const _: () = assert!(template::MAX_LEN <= 256);

/// A flow's counters, added to by one replica, or `SHARED` by several. Updates commute (thesis section 4.3).
struct Counters<'a, const SHARED: bool> {
    stats: &'a FlowStats,
}

impl<const SHARED: bool> Counters<'_, SHARED> {
    #[inline(always)]
    fn count(&self, work: &Work, now: Nanos) {
        let tally = &work.tally;
        if let Job::Receive = work.job {
            self.received(tally, now);
        }
        if tally.marks.has(Marks::SENT) {
            self.sent(work.sent());
        }
        if tally.marks.has(Marks::RARE) {
            self.count_marks(tally);
        }
        if !work.drops.is_empty() {
            self.count_drops(work);
        }
    }

    #[inline(always)]
    fn received(&self, tally: &Tally, now: Nanos) {
        let stats = self.stats;
        self.add(&stats.rx_segments, 1);
        self.add(&stats.rx_bytes, tally.delivered);
        self.add(&stats.acked_bytes, tally.acked);
        stats.last_rx_ns.store(now, Relaxed);
        if tally.rtt > 0 {
            stats.rtt_ns.store(tally.rtt, Relaxed);
            if SHARED {
                stats.rtt_samples.fetch_add(1, Relaxed);
            } else {
                stats.rtt_samples.store(stats.rtt_samples.load(Relaxed).wrapping_add(1), Relaxed);
            }
        }
    }

    #[inline(always)]
    fn sent(&self, payload: u32) {
        self.add(&self.stats.tx_segments, 1);
        self.add(&self.stats.tx_bytes, payload);
    }

    #[cold]
    #[inline(never)]
    fn count_marks(&self, tally: &Tally) {
        let stats = self.stats;
        if tally.marks.has(Marks::ECN_ECHOED) {
            self.add(&stats.ecn_bytes, tally.acked);
        }
        let each = [
            (Marks::DUPLICATE_ACK, &stats.duplicate_acks),
            (Marks::OUT_OF_ORDER, &stats.out_of_order),
            (Marks::FAST_RETRANSMIT, &stats.fast_retransmits),
            (Marks::RETRANSMITTED, &stats.retransmitted_segments),
            (Marks::DSACK, &stats.dsack_dups),
        ];
        each.iter().filter(|(mark, _)| tally.marks.has(*mark)).for_each(|(_, counter)| self.add32(counter));
        stats.undone.fetch_add(tally.marks.has(Marks::UNDONE).into(), Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn count_drops(&self, work: &Work) {
        for reason in work.drops.iter() {
            self.add32(&self.stats.drops);
            let number = DropReason::ALL.iter().position(|other| *other == reason).unwrap_or(0);
            self.stats.last_drop.store(number as u8 + 1, Relaxed);
        }
    }

    #[inline(always)]
    fn add(&self, counter: &AtomicU64, by: u32) {
        if SHARED {
            counter.fetch_add(by as u64, Relaxed);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(by as u64), Relaxed);
        }
    }

    #[inline(always)]
    fn add32(&self, counter: &AtomicU32) {
        if SHARED {
            counter.fetch_add(1, Relaxed);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}
