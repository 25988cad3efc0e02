//! Post-processing: prepares and stamps segments, and counts (thesis sections 4.3.1.2, Head, and 4.3.1.3, Ack, Stamp,
//! Stats).
use crate::message::{Control, Job, Segment, Work};
use crate::slots::Slots;
use engine::{Drop, FlowParams, FlowStats, Frame, FramePool, Nanos};
use port::Checksum;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use wire::template::{self, Fields, Template};

/// Counters and headers (thesis table 4.1, post-processor). The context and the application's name for the flow are
/// with the context queue module, which alone uses them, the payload buffers with the DMA module, and the rate is with
/// the scheduler. Addresses are here, because this module writes all headers, from a template: once there is one,
/// it costs no more to write them whole than to complete what pre-processing began.
struct PostState {
    headers: Template,
    stats: Arc<FlowStats>,
}

/// The post-processing module, or one replica of it.
pub(crate) struct Postprocess {
    flows: Slots<PostState>,
    /// There are other replicas, so that counters have more than one writer.
    replicated: bool,
}

impl Postprocess {
    pub fn new(flows: u32, replicated: bool) -> Postprocess {
        Postprocess { flows: Slots::new(flows), replicated }
    }

    pub fn control(&mut self, control: &Control) {
        match control {
            Control::Install(params) => {
                self.flows.insert(params.flow.0, PostState::new(params));
            }
            Control::Forget(flow) => {
                self.flows.remove(flow.0);
            }
            Control::NextHop(flow, mac) => {
                if let Some(state) = self.flows.get_mut(flow.0) {
                    state.headers.set_next_hop(*mac);
                }
            }
            Control::Rebind(..) | Control::Modules(..) => {}
        }
    }

    pub fn process(&mut self, batch: &mut [Work], now: Nanos, pool: &mut FramePool) {
        for work in batch {
            let wants = matches!(work.job, Job::Receive) || work.send.is_some() || !work.drops.is_empty();
            if let Some(state) = self.flows.get(work.flow).filter(|_| wants) {
                state.prepare(work, pool);
                Counters { stats: &state.stats, shared: self.replicated }.count(work, now);
            }
        }
    }
}

impl PostState {
    fn new(p: &FlowParams) -> PostState {
        let (link, addresses) = ((p.local_mac, p.remote_mac), (p.tuple.local_ip, p.tuple.remote_ip));
        let headers = Template::new(link, addresses, (p.tuple.local_port, p.tuple.remote_port));
        PostState { headers, stats: Arc::clone(&p.stats) }
    }

    /// Completes the frame of a transmission, or makes one for an answer.
    fn prepare(&self, work: &mut Work, pool: &mut FramePool) {
        let Some(segment) = &work.send else { return };
        match (&work.job, work.frame.as_mut()) {
            (Job::Transmit { .. }, Some(frame)) => self.write_headers(frame, segment),
            _ => {
                let mut frame = pool.small();
                self.write_headers(&mut frame, segment);
                work.reply = Some(frame);
            }
        }
    }

    /// Writes all headers. The checksum is left partial: the port completes it, or needs none.
    fn write_headers(&self, frame: &mut Frame, segment: &Segment) {
        let fields = Fields {
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            timestamps: segment.timestamps,
            sack: segment.sack,
            ecn: segment.ecn,
            payload_len: segment.len,
        };
        let (start, field) = self.headers.write(&fields, frame.bytes_vec());
        frame.checksum = Checksum::Partial { start, field };
        frame.segment_size = segment.segment_size;
    }
}

// All headers fit the pool's small frames (at least 256 bytes), so that writing them allocates nothing.
const _: () = assert!(template::MAX_LEN <= 256);

/// A flow's counters, added to by one replica or by several. Updates commute (thesis section 4.3).
struct Counters<'a> {
    stats: &'a FlowStats,
    shared: bool,
}

impl Counters<'_> {
    fn count(&self, work: &Work, now: Nanos) {
        let (stats, tally) = (self.stats, &work.tally);
        if let Job::Receive = work.job {
            self.add32_if(tally.duplicate_ack, &stats.duplicate_acks);
            self.add32_if(tally.out_of_order, &stats.out_of_order);
            self.add32_if(tally.fast_retransmit, &stats.fast_retransmits);
            self.add(&stats.rx_segments, 1);
            self.add(&stats.rx_bytes, tally.delivered);
            self.add(&stats.acked_bytes, tally.acked);
            self.add(&stats.ecn_bytes, if tally.ecn_echoed { tally.acked } else { 0 });
            stats.last_rx_ns.store(now, Relaxed);
            if tally.rtt > 0 {
                stats.rtt_ns.store(tally.rtt, Relaxed);
                self.add32_if(true, &stats.rtt_samples);
            }
        }
        if tally.sent {
            self.add(&stats.tx_segments, 1);
            self.add(&stats.tx_bytes, work.send.map_or(0, |segment| segment.len));
            self.add32_if(tally.retransmitted, &stats.retransmitted_segments);
        }
        if !work.drops.is_empty() {
            self.count_drops(work);
        }
    }

    fn count_drops(&self, work: &Work) {
        for reason in work.drops.iter() {
            self.add32_if(true, &self.stats.drops);
            let number = Drop::ALL.iter().position(|other| *other == reason).unwrap_or(0);
            self.stats.last_drop.store(number as u32 + 1, Relaxed);
        }
    }

    fn add(&self, counter: &AtomicU64, by: u32) {
        if by == 0 {
        } else if self.shared {
            counter.fetch_add(by as u64, Relaxed);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(by as u64), Relaxed);
        }
    }

    fn add32_if(&self, condition: bool, counter: &AtomicU32) {
        if !condition {
        } else if self.shared {
            counter.fetch_add(1, Relaxed);
        } else {
            counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}
