//! Post-processing: prepares and stamps segments, determines buffer addresses, and counts (thesis sections 4.3.1.2,
//! Pos, and 4.3.1.3, Ack, Stamp, Stats).
use crate::message::{Buffers, Control, Job, Segment, Transfer, Work};
use crate::preprocess::write_ethernet;
use crate::slots::Slots;
use engine::{Drop, FlowParams, FlowStats, FourTuple, Frame, FramePool, Nanos};
use port::Checksum;
use shm::Span;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use wire::checksum::Sum;
use wire::tcp::{self, CHECKSUM_AT};
use wire::{Mac, ethernet, ipv4};

/// Application interface and counters (thesis table 4.1, post-processor). The context and the application's name for
/// the flow are with the context queue module, which alone uses them, and the rate is with the scheduler. Addresses
/// are here too, because this module writes the headers of acknowledgements.
struct PostState {
    buffers: Buffers,
    tuple: FourTuple,
    local_mac: Mac,
    peer_mac: Mac,
    /// Sum over the pseudo-header's addresses and protocol.
    pseudo: Sum,
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
                    state.peer_mac = *mac;
                }
            }
            Control::Rebind(flow, buffers) => {
                if let Some(state) = self.flows.get_mut(flow.0) {
                    state.buffers = buffers.clone();
                }
            }
        }
    }

    pub fn process(&mut self, batch: &mut [Work], now: Nanos, pool: &mut FramePool) {
        for work in batch {
            let wants =
                matches!(work.job, Job::Receive | Job::Move(_)) || work.send.is_some() || !work.drops.is_empty();
            if let Some(state) = self.flows.get(work.flow).filter(|_| wants) {
                state.prepare(work, pool);
                Counters { stats: &state.stats, shared: self.replicated }.count(work, now);
            }
        }
    }
}

impl PostState {
    fn new(p: &FlowParams) -> PostState {
        PostState {
            buffers: Buffers { rx: Arc::clone(&p.rx), tx: Arc::clone(&p.tx) },
            tuple: p.tuple,
            local_mac: p.local_mac,
            peer_mac: p.remote_mac,
            pseudo: Sum::pseudo_header(p.tuple.local_ip, p.tuple.remote_ip, ipv4::TCP, 0),
            stats: Arc::clone(&p.stats),
        }
    }

    fn prepare(&self, work: &mut Work, pool: &mut FramePool) {
        if let Some(segment) = work.send {
            self.write(work, &segment, pool);
        }
        if work.place.len > 0 {
            work.transfer = Transfer::Place(Arc::clone(&self.buffers.rx));
        } else if let Job::Move(_) = work.job {
            work.transfer = Transfer::Move(self.buffers.clone());
        }
    }

    /// Completes the frame of a transmission, or makes one for an answer.
    fn write(&self, work: &mut Work, segment: &Segment, pool: &mut FramePool) {
        match (&work.job, work.frame.as_mut()) {
            (Job::Transmit { .. }, Some(frame)) => self.write_headers(frame, segment),
            _ => {
                let mut frame = pool.small();
                write_ethernet(&mut frame, self.local_mac, self.peer_mac);
                self.write_headers(&mut frame, segment);
                work.reply = Some(frame);
            }
        }
        if segment.len > 0 {
            work.transfer = Transfer::Fetch(Span::new(&self.buffers.tx, segment.pos, segment.len));
        }
    }

    /// Appends IPv4 and TCP headers. The checksum is left partial: the port completes it, or needs none.
    fn write_headers(&self, frame: &mut Frame, segment: &Segment) {
        let header = tcp::Header {
            src_port: self.tuple.local_port,
            dst_port: self.tuple.remote_port,
            seq: segment.seq,
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            options: tcp::Options {
                timestamps: segment.timestamps,
                sack: [segment.sack, None, None, None],
                ..tcp::Options::default()
            },
        };
        let ip_at = ethernet::HEADER_LEN;
        let tcp_at = ip_at + ipv4::HEADER_LEN;
        let tcp_len = header.len();
        let segment_len = tcp_len + segment.len as usize;
        frame.resize(tcp_at + tcp_len);
        let bytes = frame.bytes_mut();
        self.ip_header(segment, segment_len as u16).emit(&mut bytes[ip_at..]);
        header.emit(&mut bytes[tcp_at..]);
        let mut sum = self.pseudo;
        sum.add(&(segment_len as u16).to_be_bytes());
        let field = tcp_at + CHECKSUM_AT;
        bytes[field..field + 2].copy_from_slice(&sum.partial().to_be_bytes());
        frame.checksum = Checksum::Partial { start: tcp_at as u16, field: field as u16 };
        frame.segment_size = segment.segment_size;
    }

    fn ip_header(&self, segment: &Segment, payload_len: u16) -> ipv4::Header {
        ipv4::Header {
            src: self.tuple.local_ip,
            dst: self.tuple.remote_ip,
            protocol: ipv4::TCP,
            ttl: 64,
            ecn: segment.ecn,
            dscp: 0,
            // Atomic datagrams need no identification (RFC 6864 section 4.1).
            id: 0,
            dont_fragment: true,
            is_fragment: false,
            payload_len,
        }
    }
}

// All headers fit the pool's small frames (at least 256 bytes), so that writing them allocates nothing.
const _: () = assert!(ethernet::HEADER_LEN + ipv4::HEADER_LEN + tcp::MAX_HEADER_LEN <= 256);

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
