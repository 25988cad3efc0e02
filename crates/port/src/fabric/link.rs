//! The switch's link towards one member: its impairments, its queue, its clockless timing.
use super::config::FabricConfig;
use super::path::path_of;
use super::random::Random;
use crate::{Checksum, Frame, FramePool, Nanos, PortDrop};
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use wire::{EtherType, ethernet, ip};

/// Frames on their way to one member.
pub(super) struct Link {
    /// Frames that can be received now, in order.
    ready: VecDeque<Box<Frame>>,
    /// Frames whose time has not come.
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Bytes of both.
    bytes: u64,
    /// Its paths, as far as they were used.
    lanes: Vec<Lane>,
    /// A burst of losses is under way.
    bursting: bool,
    /// Frames accepted so far: keeps frames that are due at the same time in order.
    accepted: u64,
    random: Random,
}

/// A path: its queue and its timing.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// When the last frame's last bit is out at the link's rate, in picoseconds. A short frame on a fast link takes a
    /// fraction of a nanosecond, and many of them must add up.
    busy_until_ps: u128,
    /// When the latest frame that kept its place is due.
    last_due: Nanos,
}

struct Waiting {
    due: Nanos,
    order: u64,
    frame: Box<Frame>,
}

impl Link {
    pub(super) fn new(seed: u64) -> Link {
        Link {
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            bytes: 0,
            lanes: vec![Lane::default()],
            bursting: false,
            accepted: 0,
            random: Random::new(seed),
        }
    }

    /// Begins the random decisions anew.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// Bytes that have not been received.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When there is something to receive: 0 for now, `Nanos::MAX` where the link is empty.
    pub(super) fn next_due(&self) -> Nanos {
        if !self.ready.is_empty() {
            return 0;
        }
        self.waiting.peek().map_or(Nanos::MAX, |Reverse(first)| first.due)
    }

    /// Takes the next frame that is due. [`Link::mature`] comes first.
    pub(super) fn pop(&mut self) -> Option<Box<Frame>> {
        let frame = self.ready.pop_front()?;
        self.bytes -= frame.len() as u64;
        Some(frame)
    }

    /// Makes frames whose time has come ready.
    pub(super) fn mature(&mut self, now: Nanos) {
        while self.waiting.peek().is_some_and(|Reverse(first)| first.due <= now) {
            if let Some(Reverse(first)) = self.waiting.pop() {
                self.ready.push_back(first.frame);
            }
        }
    }

    /// Nothing waits for its time, and there is room for the frame.
    #[inline]
    pub(super) fn is_clear_for(&self, frame: &Frame, config: &FabricConfig) -> bool {
        self.waiting.is_empty() && self.bytes + frame.len() as u64 <= config.buffer_bytes
    }

    /// [`Link::push`] where the network is perfect and the link clear: most frames of most measurements.
    #[inline]
    pub(super) fn pass(&mut self, frame: Box<Frame>) {
        self.bursting = false;
        self.bytes += frame.len() as u64;
        self.accepted += 1;
        self.ready.push_back(frame);
    }

    /// Sends a frame down the link. What is dropped is named and shown to `dropped`.
    pub(super) fn push(
        &mut self,
        now: Nanos,
        frame: Box<Frame>,
        config: &FabricConfig,
        pool: &mut FramePool,
        dropped: &mut impl FnMut(PortDrop, &Frame),
    ) {
        if self.is_lost(config) {
            dropped(PortDrop::FabricLoss, &frame);
            return pool.put(frame);
        }
        let twin = self.random.chance(config.duplicate).then(|| pool.copy(&frame));
        for frame in std::iter::once(frame).chain(twin) {
            if let Err((frame, reason)) = self.carry(now, frame, config) {
                dropped(reason, &frame);
                pool.put(frame);
            }
        }
    }

    /// Independent loss, and bursts after Gilbert's model of two states (all lost in the bad one).
    fn is_lost(&mut self, config: &FabricConfig) -> bool {
        self.bursting = if self.bursting {
            config.burst_begin > 0.0 && !self.random.chance(config.burst_end)
        } else {
            self.random.chance(config.burst_begin)
        };
        let alone = self.random.chance(config.loss);
        self.bursting || alone
    }

    fn carry(
        &mut self,
        now: Nanos,
        mut frame: Box<Frame>,
        config: &FabricConfig,
    ) -> Result<(), (Box<Frame>, PortDrop)> {
        if self.random.chance(config.corrupt) && !flip_a_bit(&mut frame, &mut self.random) {
            return Err((frame, PortDrop::FabricLoss));
        }
        let path = path_of(&frame, config.paths.into());
        if path >= self.lanes.len() {
            self.lanes.resize(path + 1, Lane::default());
        }
        let (backlog, len) = (self.backlog(now, path, config), frame.len() as u64);
        let most_bytes = config.buffer_bytes.saturating_add(in_flight(config)).saturating_mul(config.paths.into());
        if backlog + len > config.buffer_bytes || self.bytes + len > most_bytes {
            return Err((frame, PortDrop::FabricQueue));
        }
        if config.ecn_threshold_bytes > 0 && backlog > config.ecn_threshold_bytes {
            mark(&mut frame);
        }
        self.mature(now);
        let due = self.due(now, path, len, config);
        self.bytes += len;
        self.accepted += 1;
        if due <= now {
            self.ready.push_back(frame);
        } else {
            // It waits: nothing may refer to an application's memory for long.
            frame.flatten();
            self.waiting.push(Reverse(Waiting { due, order: self.accepted, frame }));
        }
        Ok(())
    }

    /// Bytes that the rate has not yet let out of a path; without a rate, all that has not been received.
    fn backlog(&self, now: Nanos, path: usize, config: &FabricConfig) -> u64 {
        if config.rate_bps == 0 {
            return self.bytes;
        }
        let left_ps = self.lanes[path].busy_until_ps.saturating_sub(u128::from(now) * 1000);
        (left_ps.saturating_mul(config.rate_bps.into()) / (8 * PS_PER_S)).min(1 << 60) as u64
    }

    /// When a frame arrives that is sent now. At the very end of time, where a delay is absurd, and not after it.
    fn due(&mut self, now: Nanos, path: usize, len: u64, config: &FabricConfig) -> Nanos {
        let (mut due, lane) = (now, &mut self.lanes[path]);
        if config.rate_bps > 0 {
            let start = lane.busy_until_ps.max(u128::from(now) * 1000);
            lane.busy_until_ps = start + u128::from(len) * 8 * PS_PER_S / u128::from(config.rate_bps);
            due = lane.busy_until_ps.div_ceil(1000) as Nanos;
        }
        let delay = config.delay_ns.saturating_add(config.path_skew_ns.saturating_mul(path as Nanos));
        due = due.saturating_add(delay).saturating_add(self.random.up_to(config.jitter_ns));
        due = due.max(lane.last_due).min(Nanos::MAX - 1);
        if self.random.chance(config.reorder) {
            return due.saturating_add(config.reorder_delay_ns).min(Nanos::MAX - 1);
        }
        if due > now {
            lane.last_due = due;
        }
        due
    }
}

/// Where the addresses of an IPv6 header begin.
const ADDRESSES_V6: usize = 8;

const PS_PER_S: u128 = 1_000_000_000_000;

/// Bytes that a link of this rate and delay holds besides its buffer.
fn in_flight(config: &FabricConfig) -> u64 {
    if config.rate_bps == 0 {
        return 0;
    }
    let skew = u128::from(config.path_skew_ns) * u128::from(config.paths);
    let delay = u128::from(config.delay_ns) + u128::from(config.jitter_ns) + u128::from(config.reorder_delay_ns) + skew;
    (delay.saturating_mul(config.rate_bps.into()) / 8_000_000_000).min(1 << 40) as u64
}

/// Flips one bit of an IP packet whose checksums are complete, among those that a checksum covers: a single flipped bit
/// always changes the Internet checksum. Returns whether there was such a packet.
fn flip_a_bit(frame: &mut Frame, random: &mut Random) -> bool {
    let Ok(header) = ethernet::Header::parse(frame.bytes()) else { return false };
    let whole = frame.len();
    let Some(packet) = frame.bytes().get(ethernet::HEADER_LEN..) else { return false };
    let Ok((ip, ip_len)) = ip::Header::parse(header.ethertype, packet, whole - ethernet::HEADER_LEN) else {
        return false;
    };
    frame.complete_checksum();
    frame.checksum = Checksum::Complete;
    // Not in the padding behind a short packet, where no check covers it. Of an IPv6 header, which has no
    // checksum, only the addresses, which the upper layer's covers.
    let first = if header.ethertype == EtherType::Ipv6 { ADDRESSES_V6 } else { 0 };
    let bits = ((ip_len - first) as u64 + u64::from(ip.payload_len)) * 8;
    let bit = random.up_to(bits - 1) as usize;
    frame.bytes_mut()[ethernet::HEADER_LEN + first + bit / 8] ^= 1 << (bit % 8);
    true
}

fn mark(frame: &mut Frame) {
    if let Some((at, _)) = ip::packet_at(frame.bytes()) {
        ip::mark_ce(&mut frame.bytes_mut()[at..]);
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Waiting {}
