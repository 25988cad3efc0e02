//! `SO_SNDBUF`: how much a program lets wait for its peer.
//!
//! Programs set it low so that what they write next is not behind seconds of what they wrote before. The buffer stays
//! as large as the host's configuration has it; less of it is used.
use super::Stream;
use crate::state::ring::{Direction, Limit, Ring};
use shm::Level;

impl Stream {
    /// From now on at most so many bytes wait to be acknowledged.
    pub(crate) fn limit_sending(&mut self, limit: u32) {
        self.tx.set(self.limited(self.tx.get().level(), Limit::of(limit)));
    }

    /// Bytes that may wait to be acknowledged.
    #[inline]
    pub(super) fn most_in_flight(&self) -> u32 {
        self.tx.get().allowed()
    }

    /// The ring of what is written, within the limit that there is.
    pub(super) fn tx_ring(&self, level: Level) -> Ring {
        self.limited(level, self.tx.get().limit)
    }

    fn limited(&self, level: Level, limit: Limit) -> Ring {
        Ring::new(&self.home, self.home_slot, Direction::Out, level).eased_to(limit)
    }
}
