//! Receive buffer autotuning: connections offer their peers more where the program reads much in a round trip
//! ([`Tuning`]). This runs where a report to the engine covers much read data, which is once for many segments.
use super::Stream;
use crate::state::context_side::Context;
use crate::state::slab::Key;
use crate::state::tuning::Tuning;
use crate::system::waking;
use context::{OptionName, Request};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

impl Stream {
    /// A report of what was read has just gone to the engine, which had one as far as `before` until then. Returns how
    /// many bytes to offer from now on, where that is more than there are.
    fn tuned(&mut self, before: u32, sized: Option<u32>, now: Instant) -> Option<u32> {
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

    /// The engine is asked to offer so much.
    fn asked(&mut self, window: u32) {
        if let Some(tuning) = self.rare.as_deref_mut().and_then(|rare| rare.tuning.as_mut()) {
            tuning.window = window;
        }
    }
}

impl Context {
    /// Reports to the engine what was read, and may offer the peer more. `sized`: bytes of the receive buffer, where
    /// the program has set them (`SO_RCVBUF`): then they do not follow what it reads, as in Linux.
    #[inline(always)]
    pub(crate) fn open_window(&mut self, key: Key, stream: &mut Stream, sized: Option<u32>) {
        let before = stream.state().rx_reported.load(Relaxed);
        self.bump(key, stream);
        if !(stream.rx.get().is_last() | stream.shared) {
            self.tune(stream, before, sized);
        }
    }

    #[cold]
    #[inline(never)]
    fn tune(&mut self, stream: &mut Stream, before: u32, sized: Option<u32>) {
        let (Some(slot), Some(bytes)) = (stream.name, stream.tuned(before, sized, waking::now())) else { return };
        let request = Request::Set { slot, option: OptionName::ReceiveWindow, value: bytes.into() };
        // Where there is no room for the request, the next time is soon.
        if self.send_request(request) {
            stream.asked(bytes);
        }
    }
}
