//! Receive buffer autotuning: connections offer their peers more where the program reads much in a round trip
//! ([`Tuning`]). This runs where a report to the engine covers much read data, which is once for many segments.
use super::Stream;
use crate::state::tuning::Tuning;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

impl Stream {
    /// A report of what was read has just gone to the engine, which had one as far as `before` until then. Returns how
    /// many bytes to offer from now on, where that is more than there are.
    pub(in crate::state) fn tuned(&mut self, before: u32, sized: Option<u32>, now: Instant) -> Option<u32> {
        let (usual, most) = (self.rx.get().full, self.home.geometry.rx_most(self.home_slot.index));
        let (reported, tail) = (self.state().rx_reported.load(Relaxed), self.state().rx_tail.load(Acquire));
        let tuning = &mut self.rare.get_or_insert_default().tuning;
        let last = tuning.get_or_insert(Tuning::begin(before, reported, usual, None, now));
        let window = last.window;
        if window >= most {
            return None;
        }
        let need = match sized {
            Some(bytes) => bytes,
            None if tail.wrapping_sub(last.edge) as i32 <= 0 => return None,
            None => {
                let need = last.need(reported, now);
                *last = Tuning::begin(before, reported, window, last.round, now);
                need?
            }
        };
        let bytes = need.checked_next_power_of_two().unwrap_or(most).min(most);
        (bytes > window).then_some(bytes)
    }

    /// The receive buffer may grow: it is not at its largest, and no other process has the connection.
    #[inline(always)]
    pub(in crate::state) fn may_grow(&self) -> bool {
        !(self.rx.get().is_last() | self.shared)
    }

    /// The engine is asked to offer so much.
    pub(in crate::state) fn asked(&mut self, window: u32) {
        if let Some(tuning) = self.rare.as_deref_mut().and_then(|rare| rare.tuning.as_mut()) {
            tuning.window = window;
        }
    }
}
