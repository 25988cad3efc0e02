//! The sizes of an application's memory (docs/MEMORY.md), and what they give its connections.
use context::{Geometry, Growing, LongPaths};
use engine::stream::Features;
use serde::{Deserialize, Serialize};
use tcp::Nanos;

/// From this round trip on, a path is long: full buffers of the usual size, a quarter of a MiB, carry 4 Gbit/s there.
const LONG_PATH: Nanos = 500_000;

/// Connections of a program with buffers for long paths, at most.
const MOST_LONG_PATHS: u32 = 64;

/// Other connections of a program whose streams may outgrow their buffers, at most.
const MOST_GROWING: u32 = 64;

/// Bytes of each buffer over a long path where buffers do not grow, at most: such a buffer is used from end to end.
const MOST_FIXED: u32 = 4 << 20;

/// Sizes of an application's region. Only what is written costs memory. All are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Connections that one application can hold at once.
    pub slots: u32,
    /// Entries of each data ring.
    pub data_entries: u32,
    /// Entries of each control ring.
    pub control_entries: u32,
    /// Bytes of a connection's receive buffer.
    pub rx_bytes: u32,
    /// Bytes of a connection's transmit buffer.
    pub tx_bytes: u32,
    /// Bytes to which each buffer of a connection whose round trip is long ([`MemoryConfig::is_long`]) may grow. A
    /// window holds what is under way in a round trip. There are 64 at most, as far as half of `context_bytes` goes. 0:
    /// they are as all others. On engines with threads of their own buffers do not grow: there they have as much from
    /// the start, 4 MiB at most.
    pub long_path_bytes: u32,
    /// The same of other connections: 64 at most, as far as half of `context_bytes` goes. 0: no buffer grows, nor do
    /// those for long paths.
    pub most_bytes: u32,
    /// Bytes of buffers that one application's connections share (docs/MEMORY.md). As many as this is enough for have
    /// full ones, and as many again half of that. This goes on down to 16 KiB for all others. 0: all have full ones.
    pub context_bytes: u64,
    /// Bytes of each of the two small rings in which a connection begins, until more is under way at once
    /// (docs/MEMORY.md). Half a page, or more; 0 to begin in the full buffers. Only the flextoe engine on one thread
    /// has them.
    pub small_bytes: u32,
    /// Bytes for a shared log (docs/SHARED-LOG.md); 0 for none. Only with the laminar engine.
    pub log_bytes: u32,
    /// Bytes of a program's memory in which received bytes may land directly (docs/ZERONIC.md, "Direct receives"); 0
    /// for none. Only with the zeronic engines. Buffers do not grow where there is one.
    pub heap_bytes: u32,
    /// Lines of the flow table: connections whose payload is placed before the transport has their headers
    /// (docs/ZERONIC.md, "More connections than lines"). The transport copies that of all others. 0: a line for each.
    /// Only with the zeronic engines.
    pub placed_connections: u32,
    /// Mapped buffer pairs that the daemon keeps per application for slots not in use. Beyond that, the memory of a
    /// closed connection goes back to the system.
    pub cached_buffers: u32,
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig {
            slots: 4096,
            data_entries: 4096,
            control_entries: 1024,
            rx_bytes: 256 << 10,
            tx_bytes: 256 << 10,
            long_path_bytes: 16 << 20,
            most_bytes: 4 << 20,
            context_bytes: 1 << 30,
            small_bytes: 2048,
            log_bytes: 0,
            heap_bytes: 0,
            placed_connections: 0,
            cached_buffers: 1024,
        }
    }
}

impl MemoryConfig {
    /// The region's geometry.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            slots: self.slots,
            long: self.long_paths(),
            growing: self.growing(),
            data_entries: self.data_entries,
            control_entries: self.control_entries,
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            full_slots: self.full_slots(),
            small_bytes: self.small_bytes,
            log_bytes: self.log_bytes,
            heap_bytes: self.heap_bytes,
        }
    }

    /// The same where streams neither begin in small rings nor grow.
    pub fn fixed(self) -> MemoryConfig {
        MemoryConfig { small_bytes: 0, most_bytes: 0, ..self }
    }

    /// As far as an engine has small rings and growth.
    pub(crate) fn on(self, features: &Features) -> MemoryConfig {
        match (features.grows, features.starts_small) {
            (false, _) => self.fixed(),
            (true, false) => MemoryConfig { small_bytes: 0, ..self },
            (true, true) => self,
        }
    }

    /// Connections for whose full buffers the budget is enough, as a power of two.
    fn full_slots(&self) -> u32 {
        let enough = self.context_bytes / self.pair().max(1);
        match enough.checked_ilog2() {
            Some(power) if self.context_bytes > 0 => 1 << power.min(self.slots.max(1).ilog2()),
            _ if self.context_bytes == 0 => self.slots,
            _ => 1,
        }
    }

    /// Whether a connection with this first round trip, if it is known, gets the buffers of long paths.
    pub(crate) fn is_long(rtt: Option<Nanos>) -> bool {
        rtt.is_some_and(|rtt| rtt >= LONG_PATH)
    }

    /// Also where the budget or the other sizes leave no room for them.
    fn has_valid_long_paths(&self) -> bool {
        let bytes = self.long_path_bytes;
        bytes == 0 || (bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes))
    }

    /// With a shared log, each connection's window is a promise of records. With a heap, libtoe writes to the ring what
    /// landed elsewhere: the ring must not be exchanged meanwhile.
    fn long_paths(&self) -> LongPaths {
        let grow = self.most_bytes > 0 && self.heap_bytes == 0;
        let bytes = if grow { self.long_path_bytes } else { self.long_path_bytes.min(MOST_FIXED) };
        if self.log_bytes > 0 || bytes <= self.rx_bytes.max(self.tx_bytes) {
            return LongPaths::NONE;
        }
        let most = MOST_LONG_PATHS.min(self.slots / 4);
        let enough = match self.context_bytes {
            0 => most,
            budget => most.min((budget / 2 / (2 * u64::from(bytes))) as u32),
        };
        if enough > 0 { LongPaths { slots: enough, bytes, grow } } else { LongPaths::NONE }
    }

    /// Also where the budget or the other sizes leave no room for it.
    fn has_valid_growth(&self) -> bool {
        let bytes = self.most_bytes;
        bytes == 0 || (bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes))
    }

    fn growing(&self) -> Growing {
        let bytes = self.most_bytes;
        if self.heap_bytes > 0 || bytes <= self.rx_bytes.max(self.tx_bytes) {
            return Growing::NONE;
        }
        let most = MOST_GROWING.min(self.slots / 4);
        let enough = match self.context_bytes {
            0 => most,
            budget => most.min((budget / 2 / (2 * u64::from(bytes))) as u32),
        };
        if enough > 0 { Growing { slots: enough, bytes } } else { Growing::NONE }
    }

    /// Bytes of a connection's full buffers.
    fn pair(&self) -> u64 {
        self.rx_bytes as u64 + self.tx_bytes as u64
    }

    /// A sentence about the first value that cannot be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let check = |ok: bool, sentence: &str| if ok { Ok(()) } else { Err(sentence.to_string()) };
        check(
            self.geometry().is_valid() && self.has_valid_long_paths() && self.has_valid_growth(),
            "memory: all sizes must be powers of two; rings at least 64 entries, buffers, the log and the heap at least 4096 bytes, \
             small_bytes 0 or from 2048 to half of a buffer, and 8192 at most, long_path_bytes and most_bytes 0 or at most 2^30",
        )?;
        check(
            self.context_bytes == 0 || self.context_bytes >= self.pair(),
            "memory: context_bytes must be at least rx_bytes and tx_bytes together, or 0 for full buffers always",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_limits_how_many_connections_have_full_buffers() {
        let full = |context_bytes, slots| MemoryConfig { context_bytes, slots, ..MemoryConfig::default() }.geometry();
        assert_eq!(MemoryConfig::default().geometry().full_slots, 2048);
        assert_eq!(full(3 << 20, 4096).full_slots, 4, "the power of two below six");
        assert_eq!(full(1 << 40, 4096).full_slots, 4096);
        assert_eq!(full(0, 65_536).full_slots, 65_536);
        assert_eq!(full(1 << 30, 4096).long, LongPaths { slots: 16, bytes: 16 << 20, grow: true });
        assert_eq!(full(64 << 20, 4096).long.slots, 1, "half of the budget");
        let fixed = MemoryConfig { most_bytes: 0, ..MemoryConfig::default() }.geometry();
        assert_eq!(fixed.long, LongPaths { slots: 64, bytes: 4 << 20, grow: false });
        assert_eq!((full(0, 32).long.slots, full(0, 2).long), (8, LongPaths::NONE), "a quarter of the slots");
        let heap = MemoryConfig { heap_bytes: 1 << 20, ..MemoryConfig::default() }.geometry();
        assert_eq!((heap.long, heap.growing), (fixed.long, Growing::NONE));
        let growing = |context_bytes, slots| full(context_bytes, slots).growing;
        assert_eq!(growing(1 << 30, 4096), Growing { slots: 64, bytes: 4 << 20 });
        assert_eq!((growing(64 << 20, 4096).slots, growing(0, 32).slots, growing(0, 2)), (4, 8, Growing::NONE));
        let bytes = full(1 << 30, 32_768).region_len() - full(1 << 30, 32_768).rx_at(0);
        assert!(bytes < (2 << 30) + 32_768 * (32 << 10) + (1 << 30), "twice the budget, the least ones, growth");
        let memory = MemoryConfig { context_bytes: (512 << 10) - 1, ..MemoryConfig::default() };
        let refusal = memory.check().unwrap_err();
        assert!(refusal.contains("context_bytes"), "{refusal}");
    }
}
