//! Event requests: a program asks for an event for the next completion of a queue (`ibv_req_notify_cq`).
//!
//! The wish is a word of the queue's region, where other regions have the application's doorbell. The program writes
//! the word and then polls once more; the engine adds a completion and then reads the word. Each has a full fence
//! between the two, so the program finds the completion, or the engine the wish.
use shm::Region;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

/// Byte of the region where the word stands.
const AT: usize = 256;

/// For what a program asks for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Wish {
    /// The next completion.
    Any = 1,
    /// The next solicited one, or the next error.
    Solicited = 2,
}

/// One side's view of the word.
pub struct Notify {
    region: Arc<Region>,
}

impl Notify {
    /// The word of this completion queue's region.
    pub fn new(region: &Arc<Region>) -> Notify {
        Notify { region: Arc::clone(region) }
    }

    /// The program: asks for one event. Afterwards the queue is to be polled once more. A wish for any completion is
    /// not weakened (verbs: `ibv_req_notify_cq`).
    pub fn ask(&self, wish: Wish) {
        let word = self.region.u32_at(AT);
        if wish == Wish::Any || word.load(Relaxed) != Wish::Any as u32 {
            word.store(wish as u32, SeqCst);
        }
        fence(SeqCst);
    }

    /// The engine, after it has added completions: whether the program is to get an event, once. `solicited`: one of
    /// them was solicited or an error.
    #[inline]
    pub fn take(&self, solicited: bool) -> bool {
        fence(SeqCst);
        let word = self.region.u32_at(AT);
        let wanted = match word.load(Relaxed) {
            0 => false,
            // Any other number than those above is the program's own affair.
            wish => solicited || wish == Wish::Any as u32,
        };
        if wanted {
            word.store(0, SeqCst);
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_gives_one_event() {
        let region = Arc::new(Region::create("notify", shm::PAGE).unwrap());
        let (program, engine) = (Notify::new(&region), Notify::new(&region));
        assert!(!engine.take(true), "nobody asked");
        program.ask(Wish::Solicited);
        assert!(!engine.take(false));
        assert!(engine.take(true));
        assert!(!engine.take(true), "once");
        program.ask(Wish::Any);
        program.ask(Wish::Solicited);
        assert!(engine.take(false), "a wish for any is not weakened");
    }
}
