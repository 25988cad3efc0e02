//! Where everything lies in a context's region.
use serde::{Deserialize, Serialize};
use shm::{CACHE_LINE, PAGE, ring_bytes};

/// Bytes per slot that belong to the application's side alone: libtoe keeps a socket's positions there, so
/// that processes which share a socket after fork share its state. The daemon never reads them.
pub const SLOT_STATE_BYTES: usize = 128;

/// The doorbell word of the application: how many of its threads sleep.
pub(crate) const APP_BELL: usize = 4 * CACHE_LINE;
/// The doorbell word of the daemon.
pub(crate) const DAEMON_BELL: usize = 5 * CACHE_LINE;

/// The sizes from which the layout follows. All are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Connections that the context can hold at once.
    pub slots: u32,
    /// Entries of each data ring.
    pub data_entries: u32,
    /// Entries of each control ring.
    pub control_entries: u32,
    /// Bytes of a connection's receive buffer; at least a page.
    pub rx_bytes: u32,
    /// Bytes of a connection's transmit buffer; at least a page.
    pub tx_bytes: u32,
    /// Bytes for a shared log ([`crate::LogShape`]), at the region's end; 0 where there can be none.
    pub log_bytes: u32,
}

impl Geometry {
    /// Whether the sizes are powers of two within their limits.
    pub fn is_valid(&self) -> bool {
        let Geometry { slots, data_entries, control_entries, rx_bytes, tx_bytes, log_bytes } = *self;
        let ok = |value: u32, least: u32, most: u32| value.is_power_of_two() && (least..=most).contains(&value);
        ok(slots, 1, 1 << 20)
            && ok(data_entries, 64, 1 << 20)
            && ok(control_entries, 64, 1 << 20)
            && ok(rx_bytes, PAGE as u32, 1 << 30)
            && ok(tx_bytes, PAGE as u32, 1 << 30)
            && (log_bytes == 0 || ok(log_bytes, PAGE as u32, 1 << 30))
    }

    pub(crate) fn bumps_at(&self) -> usize {
        PAGE
    }
    pub(crate) fn notices_at(&self) -> usize {
        self.bumps_at() + ring_bytes::<2>(self.data_entries)
    }
    pub(crate) fn requests_at(&self) -> usize {
        self.notices_at() + ring_bytes::<2>(self.data_entries)
    }
    pub(crate) fn replies_at(&self) -> usize {
        self.requests_at() + ring_bytes::<8>(self.control_entries)
    }
    /// Byte where the application's state of slot `index` starts.
    pub fn slot_state_at(&self, index: u32) -> usize {
        assert!(index < self.slots);
        self.replies_at() + ring_bytes::<8>(self.control_entries) + index as usize * SLOT_STATE_BYTES
    }
    fn buffers_at(&self) -> usize {
        let states = self.replies_at() + ring_bytes::<8>(self.control_entries) + self.slots as usize * SLOT_STATE_BYTES;
        states.next_multiple_of(PAGE)
    }
    /// Byte where the receive buffer of slot `index` starts.
    pub fn rx_at(&self, index: u32) -> usize {
        assert!(index < self.slots);
        self.buffers_at() + index as usize * (self.rx_bytes as usize + self.tx_bytes as usize)
    }
    /// Byte where the transmit buffer of slot `index` starts.
    pub fn tx_at(&self, index: u32) -> usize {
        self.rx_at(index) + self.rx_bytes as usize
    }
    /// Byte where the shared log starts.
    pub fn log_at(&self) -> usize {
        self.buffers_at() + self.slots as usize * (self.rx_bytes as usize + self.tx_bytes as usize)
    }
    /// Bytes of the whole region. Only what is written costs memory.
    pub fn region_len(&self) -> usize {
        self.log_at() + self.log_bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_are_aligned() {
        let sizes =
            Geometry { slots: 8, data_entries: 64, control_entries: 64, rx_bytes: 8192, tx_bytes: 4096, log_bytes: 0 };
        let g = sizes;
        assert!(g.is_valid());
        for at in [g.bumps_at(), g.notices_at(), g.requests_at(), g.replies_at(), g.slot_state_at(0)] {
            assert_eq!(at % CACHE_LINE, 0);
        }
        assert!(g.slot_state_at(7) + SLOT_STATE_BYTES <= g.rx_at(0));
        assert_eq!(g.rx_at(0) % PAGE, 0);
        assert_eq!(g.tx_at(7) + 4096, g.region_len());
        assert!(!Geometry { slots: 3, ..g }.is_valid());
        let with_log = Geometry { log_bytes: 8192, ..g };
        assert_eq!((with_log.log_at(), with_log.region_len()), (g.region_len(), g.region_len() + 8192));
        assert!(with_log.is_valid() && !Geometry { log_bytes: 5000, ..g }.is_valid());
    }
}
