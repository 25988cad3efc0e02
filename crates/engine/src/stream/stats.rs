//! Per-flow counters that the data-path writes and the control plane reads without asking.
use crate::Nanos;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Bits of a time that a tick leaves out: 1,024 nanoseconds.
const TICK_BITS: u32 = 10;

/// A time in ticks of 1,024 nanoseconds, modulo 2^32: more than an hour.
#[inline(always)]
pub fn ticks(time: Nanos) -> u32 {
    (time >> TICK_BITS) as u32
}

/// The time of these ticks, which is within the last hour.
pub fn time_of_ticks(ticks: u32, now: Nanos) -> Nanos {
    let ago = ((now >> TICK_BITS) as u32).wrapping_sub(ticks);
    ((now >> TICK_BITS).saturating_sub(ago.into())) << TICK_BITS
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident: $atomic:ty => $value:ty,)+) => {
        /// A flow's counters (thesis table 4.1, post-processor: `cnt_ackb`, `cnt_ecnb`, `cnt_fretx`, `rtt_est`). All
        /// accesses are relaxed: each is read alone, and updates commute.
        #[derive(Default, Debug)]
        #[repr(C)]
        pub struct FlowStats { $($(#[$doc])+ pub $name: $atomic,)+ }

        /// All of [`FlowStats`] at one moment.
        #[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
        pub struct FlowFigures {
            $($(#[$doc])+ pub $name: $value,)+
            /// Bytes (and FIN) sent and not acknowledged, now.
            pub outstanding: u32,
        }

        impl FlowStats {
            /// The counters now.
            pub fn read(&self) -> FlowFigures {
                // In this order: what is sent grows, so it is never before what was acknowledged a moment ago.
                let (snd_una, snd_nxt) = (self.snd_una.load(Acquire), self.snd_nxt.load(Relaxed));
                let outstanding = (snd_nxt.wrapping_sub(snd_una) as i32).max(0) as u32;
                FlowFigures { snd_una, snd_nxt, ..FlowFigures { $($name: self.$name.load(Relaxed),)+ outstanding } }
            }
        }

        impl FlowFigures {
            /// Names and values, for people and machines.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name as u64),)+ ("outstanding", self.outstanding.into())]
            }
        }
    };
}

// In a pool each begins a line of the cache, and with what the pool keeps of it fits two (docs/MEMORY.md).
const _: () = assert!(size_of::<FlowStats>() <= 120);

// The first cache line is all that timers and congestion control read.
counters! {
    /// Bytes acknowledged by the peer, in total.
    acked_bytes: AtomicU64 => u64,
    /// Of these, bytes whose acknowledgement carried ECN echo.
    ecn_bytes: AtomicU64 => u64,
    /// When the last segment came from the peer, nanoseconds.
    last_rx_ns: AtomicU64 => u64,
    /// When new data was last sent while no segment was being timed, in ticks ([`ticks`]). It is the first data after
    /// all was acknowledged, and then about one segment a round trip (RFC 6298 section 5.1).
    timed_ticks: AtomicU32 => u32,
    /// Bytes by which acknowledgements have made the congestion window grow, modulo 2^32 ([`wire::tcp::Growth`]).
    grown: AtomicU32 => u32,
    /// Bytes (and FIN) that the application wrote and that were not sent yet, now.
    unsent: AtomicU32 => u32,
    /// The peer's receive window, bytes, now.
    snd_wnd: AtomicU32 => u32,
    /// Next sequence number to send, now.
    snd_nxt: AtomicU32 => u32,
    /// Oldest sequence number that is not acknowledged, now.
    snd_una: AtomicU32 => u32,
    /// Next sequence number expected, now.
    rcv_nxt: AtomicU32 => u32,
    /// Last round-trip time measured, nanoseconds; 0 before the first.
    rtt_ns: AtomicU32 => u32,
    /// Round-trip times measured, modulo 65,536: whether there is a new one.
    rtt_samples: AtomicU16 => u16,
    /// Losses that turned out to be none, modulo 256: all that was sent again for them came twice (RFC 3708).
    undone: AtomicU8 => u8,
    /// The last drop's reason: its number in [`crate::DropReason::ALL`] plus one; 0 before the first.
    last_drop: AtomicU8 => u8,
    /// Fast retransmits: losses that were found by what the peer has, or that a probe repaired.
    fast_retransmits: AtomicU32 => u32,
    /// Segments sent again.
    retransmitted_segments: AtomicU32 => u32,
    /// Segments or parts of them dropped on this flow.
    drops: AtomicU32 => u32,
    /// Payload bytes sent, retransmissions included.
    tx_bytes: AtomicU64 => u64,
    /// Segments sent with payload or FIN (a super-segment counts as one).
    tx_segments: AtomicU64 => u64,
    /// Payload bytes received in order.
    rx_bytes: AtomicU64 => u64,
    /// Segments received.
    rx_segments: AtomicU64 => u64,
    /// Duplicate acknowledgements received.
    duplicate_acks: AtomicU32 => u32,
    /// Segments received out of order and kept.
    out_of_order: AtomicU32 => u32,
    /// Bytes that the peer has beyond holes, as its last SACK blocks report, now (RFC 2018).
    sacked: AtomicU32 => u32,
    /// Acknowledgements that report something that came twice (D-SACK, RFC 2883).
    dsack_dups: AtomicU32 => u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_the_time_of_the_last_hour() {
        for now in [5_000, 4_000_000_000_000, 5_000_000_000_000, u64::MAX / 2] {
            for ago in [0, 3_000, 3_600_000_000_000].into_iter().filter(|ago| *ago <= now) {
                let time = time_of_ticks(ticks(now - ago), now);
                assert!(time <= now - ago && now - ago - time < 1 << TICK_BITS, "{now} {ago}");
            }
        }
    }
}
