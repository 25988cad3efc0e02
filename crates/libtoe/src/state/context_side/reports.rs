//! Reports of one connection to the engine, and its requests: the window, marks, urgent data and posted buffers.
use super::Context;
use crate::state::slab::Key;
use crate::state::stream::Stream;
use crate::system::waking;
use context::{Bump, OptionName, Request, TakenBack};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Polls of a buffer that the engine is writing to, before the thread yields, and between checks whether the daemon is
/// gone.
const POLLS: u32 = 64;

impl Context {
    /// Reports to the engine what was read, and may offer the peer more. `sized`: bytes of the receive buffer, where
    /// the program has set them (`SO_RCVBUF`): then they do not follow what it reads, as in Linux.
    #[inline(always)]
    pub(crate) fn open_window(&mut self, key: Key, stream: &mut Stream, sized: Option<u32>) {
        let before = stream.state().rx_reported.load(Relaxed);
        self.bump(key, stream);
        if stream.may_grow() {
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

    /// Sends the engine the present positions of a connection, and asks it what the connection's mark is about.
    pub(crate) fn bump_and_ask(&mut self, key: Key, stream: &mut Stream) {
        self.bump(key, stream);
        let Some(question) = stream.name.and_then(|slot| stream.question(slot)) else { return };
        if self.end.bumps.push(question.to_words()).is_err() {
            self.defer_bump(key, stream);
        }
        self.end.daemon_bell.ring();
    }

    /// Notifies the engine that the last byte that the program wrote is urgent, before a bump reports that the byte is
    /// there.
    pub(crate) fn urge(&mut self, stream: &mut Stream) {
        self.mark_written(stream, Bump::URGENT);
    }

    /// Notifies the engine that a record ends with what the program wrote (`MSG_EOR`), before a bump reports that.
    /// Where the engine has no records, this is the end of a write like all others.
    #[cold]
    pub(crate) fn end_record(&mut self, stream: &mut Stream) {
        if self.welcome.urgent {
            self.mark_written(stream, Bump::RECORD);
        }
    }

    /// Sends a mark of what was written last.
    fn mark_written(&mut self, stream: &mut Stream, mark: u8) {
        let Some(slot) = stream.name else { return };
        let bump = Bump { ring: mark, ..stream.bump(slot, false) };
        while self.end.bumps.push(bump.to_words()).is_err() && !self.daemon_is_gone() {
            self.end.daemon_bell.ring();
            waking::yield_now();
        }
    }

    /// Takes the posted buffer of a connection back. Waits for the engine's next batch where that has written what it
    /// has not reported: microseconds.
    #[cold]
    pub(crate) fn take_back(&mut self, stream: &Stream) {
        let Some(words) = stream.direct_words().filter(|_| stream.has_posted()) else { return };
        let mut polls = 0u32;
        while words.take_back(stream.state().rx_tail.load(Acquire)) == TakenBack::Asked {
            if polls % POLLS == 0 {
                self.end.daemon_bell.ring();
                if self.daemon_is_gone() {
                    words.abandon();
                }
                waking::yield_now();
            }
            polls = polls.wrapping_add(1);
            std::hint::spin_loop();
        }
        stream.settle(&words);
    }
}
