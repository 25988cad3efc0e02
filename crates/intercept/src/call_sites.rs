//! The places that the net caught: their stubs, and the jump there, where a place can be rewritten while threads run.
//!
//! Runs in a handler of a signal, with all signals blocked: no memory is allocated, nothing of the C library is used.
use crate::patch;
use crate::pool::{self, CallSite};
use crate::running;
use crate::sites::{CALL, JUMP};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};

/// Places that are remembered: a power of two.
const MOST: usize = 4096;

static LOCK: AtomicBool = AtomicBool::new(false);
/// Open addressing: the place, its stub's way in, and how many bytes behind it the stub does.
static CALLS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static STUBS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static BEHIND: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
/// The jump that has taken the call's own place; 0: none has.
static JUMPS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Places that are caught each time.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// How many places cannot be rewritten: the net catches each of their calls.
pub(crate) fn left() -> usize {
    LEFT.load(Relaxed)
}

/// In the child of a fork: another thread of the parent may have had it.
pub(crate) fn free_lock() {
    LOCK.store(false, Release);
}

/// Where a thread goes on that made a system call at a place; `None` where there is no more room.
///
/// # Safety
/// There is a system call instruction at the place, which the thread has just run.
pub(crate) unsafe fn stub(call: u64, number: usize) -> Option<u64> {
    while LOCK.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
        std::hint::spin_loop();
    }
    // SAFETY: the caller's place.
    let found = unsafe { found(call).or_else(|| made(call, number)) };
    LOCK.store(false, Release);
    found
}

fn slots(call: u64) -> impl Iterator<Item = usize> {
    let first = (call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    (0..MOST).map(move |step| (first + step) % MOST)
}

/// The stub of a place that was caught before. Where other code stands there now, it has none.
unsafe fn found(call: u64) -> Option<u64> {
    let slot = slots(call).find(|slot| [0, call].contains(&CALLS[*slot].load(Relaxed)))?;
    let (stub, len) = (STUBS[slot].load(Relaxed), usize::from(BEHIND[slot].load(Relaxed)));
    if stub == 0 {
        return None;
    }
    // Another thread was caught here as well, and rewrote the place meanwhile.
    let jump = JUMPS[slot].load(Relaxed);
    // SAFETY: the thread has just run a call there, and a jump took more bytes than that.
    if jump != 0 && jump == unsafe { first_bytes(call) } {
        return Some(stub);
    }
    // SAFETY: a stub that was made here; the thread would run these bytes next.
    let (then, now) = unsafe { (pool::behind(stub, len), running::bytes(call + CALL, len)) };
    (then[..len] == now[..len]).then_some(stub)
}

unsafe fn made(call: u64, number: usize) -> Option<u64> {
    let slot = slots(call).find(|slot| [0, call].contains(&CALLS[*slot].load(Relaxed)))?;
    // SAFETY: the caller's place.
    let plan = unsafe { running::plan(call, number) };
    // SAFETY: the thread would run these bytes; by the plan, so many can be read.
    let (before, behind) =
        unsafe { (running::bytes(call - plan.before as u64, plan.before), running::bytes(call + CALL, plan.behind)) };
    let stub = pool::add(&CallSite { call, before: &before[..plan.before], behind: &behind[..plan.behind] })?;
    BEHIND[slot].store(plan.behind as u8, Relaxed);
    STUBS[slot].store(stub.enter, Relaxed);
    CALLS[slot].store(call, Relaxed);
    let can_lead = plan.before + plan.behind != 0;
    // SAFETY: the plan's bytes lead to the stub, which does the same.
    if !can_lead || unsafe { patch::lead(call - plan.before as u64, stub.start, plan.code) }.is_err() {
        LEFT.fetch_add(1, Relaxed);
    } else if plan.before == 0 {
        // SAFETY: the jump was just written there.
        JUMPS[slot].store(unsafe { first_bytes(call) }, Relaxed);
    }
    Some(stub.enter)
}

/// As many bytes at a call as a jump has.
unsafe fn first_bytes(call: u64) -> u64 {
    // SAFETY: the caller's.
    let found = unsafe { running::bytes(call, JUMP as usize) };
    found[..JUMP as usize].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    std::arch::global_asm!(
        ".p2align 6",
        "toe_intercept_place: mov rax, rdi",
        "syscall",
        "cmp rax, -4096",
        "ja toe_intercept_place",
        "ret"
    );

    unsafe extern "C" {
        fn toe_intercept_place();
    }

    #[test]
    fn a_thread_caught_during_a_rewrite_goes_the_same_way() {
        let call = toe_intercept_place as *const () as u64 + 3;
        let own = 0x1000;
        // SAFETY: no stub runs; the place is code of this program that nobody runs.
        unsafe {
            pool::begin(own, own, false).unwrap();
            let first = stub(call, libc::SYS_getpid as usize).unwrap();
            assert_eq!(running::bytes(call, 1)[0], 0xe9);
            assert_eq!(stub(call, libc::SYS_getpid as usize), Some(first));
        }
    }
}
