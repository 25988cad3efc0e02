//! Word of a doorbell: how a sleeper announces itself, and how the other side finds one. Why no wake-up is lost
//! is described at [`crate::Doorbell`]; the model checker goes through every interleaving of this file (`model.rs`).
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, fence};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, fence};

/// In the word: the sleeper calls `membarrier` before its last poll. Below it, the number of sleepers.
pub(crate) const BARRIER: u32 = 1 << 31;

/// One sleeper more. A full fence is to follow before the last poll for work.
#[inline]
pub(crate) fn one_more(word: &AtomicU32) {
    word.fetch_add(1, SeqCst);
}

/// Whether somebody sleeps, after work was published. The fence is left out where this side `relies` on the sleeper's
/// barrier and the sleeper promises one.
#[inline]
pub(crate) fn somebody_sleeps(word: &AtomicU32, relies: bool) -> bool {
    compiler_fence(SeqCst);
    let mut value = word.load(Relaxed);
    if !relies || value & BARRIER == 0 {
        fence(SeqCst);
        value = word.load(SeqCst);
    }
    value & !BARRIER != 0
}
