//! Configuration of the emulated network.
use crate::Nanos;
use serde::{Deserialize, Serialize};

/// Impairments and limits of a fabric. They apply to each member's egress: the switch's link towards that member.
/// The default is a perfect network: no rate limit, no delay, nothing lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FabricConfig {
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// Rate of each link, bits a second, counting the bytes of Ethernet frames; 0 for no limit.
    pub rate_bps: u64,
    /// One-way delay, nanoseconds.
    pub delay_ns: Nanos,
    /// Paths of equal cost towards each member, each with that rate and a queue of its own. A hash of addresses and
    /// ports chooses one for each frame.
    pub paths: u16,
    /// Each path takes so many nanoseconds more than the one before.
    pub path_skew_ns: Nanos,
    /// Most extra delay, nanoseconds: uniform in 0 to this, and never enough to overtake an earlier frame.
    pub jitter_ns: Nanos,
    /// Probability that a frame is lost, each by itself: 0 to 1.
    pub loss: f64,
    /// Probability, at each frame, that a burst of losses begins (Gilbert's p): 0 to 1.
    pub burst_begin: f64,
    /// Probability, at each frame within a burst, that the burst ends (Gilbert's r): its mean length in frames is
    /// one over this. 0 to 1; must not be 0 where bursts begin.
    pub burst_end: f64,
    /// Probability that a frame is held back by `reorder_delay_ns`, so that later ones overtake it: 0 to 1.
    pub reorder: f64,
    /// How long a reordered frame is held back, nanoseconds.
    pub reorder_delay_ns: Nanos,
    /// Probability that a frame is delivered twice: 0 to 1.
    pub duplicate: f64,
    /// Probability that one bit of a frame's IP packet is flipped, so that a checksum is wrong: 0 to 1. A frame that is
    /// not IP is lost instead, as the Ethernet check sequence would have it.
    pub corrupt: f64,
    /// Backlog of a link, bytes, above which ECN-capable packets are marked (the K of DCTCP, RFC 8257 section 3.1);
    /// 0 for never.
    pub ecn_threshold_bytes: u64,
    /// Backlog of a link, bytes, above which frames are dropped. The backlog is what the rate has not yet let out;
    /// without a rate, all that has not been received.
    pub buffer_bytes: u64,
    /// Seed of all random decisions: the same seed, frames and times give the same fates.
    pub seed: u64,
}

impl Default for FabricConfig {
    fn default() -> FabricConfig {
        FabricConfig {
            mtu: 1500,
            rate_bps: 0,
            delay_ns: 0,
            paths: 1,
            path_skew_ns: 0,
            jitter_ns: 0,
            loss: 0.0,
            burst_begin: 0.0,
            burst_end: 0.25,
            reorder: 0.0,
            reorder_delay_ns: 100_000,
            duplicate: 0.0,
            corrupt: 0.0,
            ecn_threshold_bytes: 0,
            buffer_bytes: 16 << 20,
            seed: 1,
        }
    }
}

/// Paths of a network at most.
const MOST_PATHS: u16 = 64;

/// The smallest MTU that every IPv4 host can be expected to have (RFC 791).
const MIN_MTU: u16 = 576;

impl FabricConfig {
    /// Refuses values that mean nothing, in a sentence that names the key.
    pub fn check(&self) -> Result<(), String> {
        let probabilities = [
            ("loss", self.loss),
            ("burst_begin", self.burst_begin),
            ("burst_end", self.burst_end),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
            ("corrupt", self.corrupt),
        ];
        for (key, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(format!("`{key}` is a probability: it must be from 0 to 1, not {value}"));
            }
        }
        if self.burst_begin > 0.0 && self.burst_end == 0.0 {
            return Err("`burst_end` must not be 0 where `burst_begin` is not: the first burst would never end".into());
        }
        if self.mtu < MIN_MTU {
            return Err(format!("`mtu` must be at least {MIN_MTU}, not {}", self.mtu));
        }
        if !(1..=MOST_PATHS).contains(&self.paths) {
            return Err(format!("`paths` must be from 1 to {MOST_PATHS}, not {}", self.paths));
        }
        if self.buffer_bytes < u64::from(u16::MAX) {
            return Err(format!("`buffer_bytes` must be at least 65535, not {}", self.buffer_bytes));
        }
        Ok(())
    }

    /// Frames arrive as they were sent, and at once, as far as there is room for them.
    pub fn is_perfect(&self) -> bool {
        !self.needs_single_segments() && self.delay_ns == 0 && self.jitter_ns == 0 && !self.is_skewed()
    }

    /// Some paths take longer than others.
    fn is_skewed(&self) -> bool {
        self.paths > 1 && self.path_skew_ns > 0
    }

    /// Each frame must be one real segment, because something happens to single frames.
    pub fn needs_single_segments(&self) -> bool {
        let chances = [self.loss, self.burst_begin, self.reorder, self.duplicate, self.corrupt];
        chances.iter().any(|chance| *chance > 0.0) || self.ecn_threshold_bytes > 0 || self.rate_bps > 0
    }
}
