//! The one lock of the library.
//!
//! A process has one context and one lock for all that belongs to it. An uncontended lock costs two atomic operations a
//! call, or none where the process has one thread. There is no order of locks to get wrong. The lock's word names its
//! owner. So a signal handler that calls into the library while its own thread holds the lock is recognised, and never
//! waits for itself.
use crate::state::Lib;
use crate::system::errno::Result;
use crate::system::waking::{self, Point};
use libc::c_char;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize, compiler_fence};

struct Shared {
    /// The number of the thread that holds the lock, with [`CONTENDED`] where others sleep; 0 for none.
    owner: AtomicUsize,
    lib: UnsafeCell<Lib>,
}

// SAFETY: `lib` is only reached through a `Guard`, of which there is at most one at a time.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared { owner: AtomicUsize::new(0), lib: UnsafeCell::new(Lib::new()) };

/// Somebody sleeps until the lock is free.
const CONTENDED: usize = 1;
/// Polls of a taken lock before a sleep for it: a call holds it for some 100 ns.
const SPINS: u32 = 200;

/// A number that no other living thread has and that is even: where the C library keeps the thread's description.
#[inline(always)]
fn me() -> usize {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let me;
        // SAFETY: the first word of the thread's description is its address (the psABI's "thread pointer"), which is
        // what `pthread_self` returns; without the call.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) me, options(nostack, preserves_flags, readonly, pure)) };
        me
    }
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    // SAFETY: has no conditions.
    unsafe {
        libc::pthread_self() as usize
    }
}

/// The C library's word that is set while the process has one thread only (glibc, from 2.32 on); else a word that is
/// never set.
static ALONE: AtomicPtr<c_char> = AtomicPtr::new((&raw const NOT_KNOWN).cast_mut());
static NOT_KNOWN: c_char = 0;

/// Finds out where the C library reports whether there are other threads. To be called once, before there are any.
pub(crate) fn detect_threads() {
    // SAFETY: a name that ends with a zero; what is found is a byte that the C library keeps for as long as the process
    // lives.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    if !found.is_null() {
        ALONE.store(found.cast(), Relaxed);
    }
}

/// The process has no other thread. Then taking and giving the lock back needs no locked instruction. Each one waits
/// until the store buffer is empty: of payload and descriptors, whose cache lines the daemon's core has.
#[inline(always)]
pub(crate) fn is_alone() -> bool {
    // SAFETY: points at a byte that lives for as long as the process; only pthread_create changes it, on this very
    // thread as long as there is no other.
    unsafe { ALONE.load(Relaxed).read_volatile() != 0 }
}

/// Takes the lock, where it is free, for a thread that is `alone` or not.
#[inline(always)]
fn take(me: usize, alone: bool) -> bool {
    let owner = &SHARED.owner;
    if !alone {
        return owner.compare_exchange(0, me, Acquire, Relaxed).is_ok();
    }
    // A signal handler that comes in between has given it back when it ends.
    let free = owner.load(Relaxed) == 0;
    if free {
        owner.store(me, Relaxed);
        compiler_fence(Acquire);
    }
    free
}

/// The library's state, locked by this thread.
pub(crate) struct Guard {
    /// It was taken while there was no other thread. None comes to be before it is given back.
    alone: bool,
    /// It belongs to a thread.
    _own: PhantomData<*const ()>,
}

/// Locks the library. `EAGAIN` in a signal handler that interrupted the library on this very thread.
#[inline]
pub(crate) fn lock() -> Result<Guard> {
    let (me, alone) = (me(), is_alone());
    waking::point(Point::Lock);
    if !take(me, alone) {
        if is_mine() {
            return Err(libc::EAGAIN);
        }
        wait_for_it(me);
    }
    Ok(Guard { alone, _own: PhantomData })
}

/// Whether this thread holds the lock already, which only a signal handler can see.
pub(crate) fn is_mine() -> bool {
    SHARED.owner.load(Relaxed) & !CONTENDED == me()
}

#[cold]
fn wait_for_it(me: usize) {
    let owner = &SHARED.owner;
    for _ in 0..SPINS {
        if owner.load(Relaxed) == 0 && owner.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
            return;
        }
        std::hint::spin_loop();
    }
    loop {
        let seen = owner.load(Relaxed);
        // Others may sleep as well, so whoever took it after a sleep wakes the next one when it is done.
        let next = if seen == 0 { me | CONTENDED } else { seen | CONTENDED };
        if owner.compare_exchange(seen, next, Acquire, Relaxed).is_err() {
            continue;
        }
        if seen == 0 {
            return;
        }
        futex(libc::FUTEX_WAIT, next as u32);
    }
}

#[inline]
fn release(alone: bool) {
    if alone {
        return SHARED.owner.store(0, Release);
    }
    if SHARED.owner.swap(0, Release) & CONTENDED != 0 {
        wake_one();
    }
}

#[cold]
fn wake_one() {
    let errno = crate::system::errno::get();
    futex(libc::FUTEX_WAKE, 1);
    crate::system::errno::set(errno);
}

/// On the half of the word that has the contended bit.
fn futex(operation: libc::c_int, value: u32) {
    let low_half = if cfg!(target_endian = "little") { 0 } else { size_of::<usize>() / 4 - 1 };
    // SAFETY: the address is in the static word; no time limit.
    unsafe {
        let word = (&raw const SHARED.owner).cast::<u32>().add(low_half);
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
        shm::system_call::raw(libc::SYS_futex, [word.expose_provenance(), operation, value as usize, 0, 0, 0]);
    }
}

impl Guard {
    /// Runs something without the lock. What was looked up before must be looked up again.
    pub(crate) fn unlocked<T>(&mut self, run: impl FnOnce() -> T) -> T {
        release(self.alone);
        let again = Again(self);
        let result = run();
        drop(again);
        result
    }
}

/// Takes the lock again, also where what ran without it panics: the guard gives it back.
struct Again<'a>(&'a mut Guard);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        let (me, alone) = (me(), is_alone());
        waking::point(Point::Lock);
        if !take(me, alone) {
            wait_for_it(me);
        }
        self.0.alone = alone;
    }
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        release(self.alone);
    }
}

impl Deref for Guard {
    type Target = Lib;
    #[inline]
    fn deref(&self) -> &Lib {
        // SAFETY: this thread holds the lock, and has no other guard.
        unsafe { &*SHARED.lib.get() }
    }
}

impl DerefMut for Guard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Lib {
        // SAFETY: as above.
        unsafe { &mut *SHARED.lib.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_exclude_each_other_and_a_handler_not_itself() {
        let add = || {
            for _ in 0..20_000 {
                let mut lib = lock().unwrap();
                assert!(is_mine());
                assert_eq!(lock().err(), Some(libc::EAGAIN));
                lib.fresh_id();
                if lib.fresh_id() % 64 == 0 {
                    lib.unlocked(std::thread::yield_now);
                }
            }
        };
        let before = lock().unwrap().fresh_id();
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(add))));
        assert!(!is_mine());
        assert_eq!(lock().unwrap().fresh_id(), before + 4 * 2 * 20_000 + 1);
    }
}
