//! The one lock of the library.
//!
//! A process has one context and one lock for all that belongs to it: an uncontended lock costs two atomic
//! operations a call, and there is no order of locks to get wrong. A signal handler that calls into the library
//! while its own thread holds the lock is recognised by the owner's mark and never waits for itself.
use crate::errno::Result;
use crate::state::Lib;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

static LIB: Mutex<Lib> = Mutex::new(Lib::new());
/// Mark of the thread that holds the lock; 0 for none.
static OWNER: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MARK: Cell<u8> = const { Cell::new(0) };
}

/// A number that no other living thread has: the address of a thread-local variable.
fn me() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// The library's state, locked.
pub struct Guard(Option<MutexGuard<'static, Lib>>);

/// Locks the library. `EAGAIN` in a signal handler that interrupted the library on this very thread.
#[inline]
pub fn lock() -> Result<Guard> {
    let me = me();
    if OWNER.load(Relaxed) == me {
        return Err(libc::EAGAIN);
    }
    Ok(Guard(Some(take(me))))
}

/// Whether this thread holds the lock already, which only a signal handler can see.
pub fn is_mine() -> bool {
    OWNER.load(Relaxed) == me()
}

fn take(me: usize) -> MutexGuard<'static, Lib> {
    let guard = LIB.lock().unwrap_or_else(PoisonError::into_inner);
    OWNER.store(me, Relaxed);
    guard
}

impl Guard {
    /// Runs something without the lock. What was looked up before must be looked up again.
    pub fn unlocked<T>(&mut self, run: impl FnOnce() -> T) -> T {
        OWNER.store(0, Relaxed);
        self.0 = None;
        let result = run();
        self.0 = Some(take(me()));
        result
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        OWNER.store(0, Relaxed);
    }
}

impl Deref for Guard {
    type Target = Lib;
    fn deref(&self) -> &Lib {
        self.0.as_deref().expect("locked outside of `unlocked`")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut Lib {
        self.0.as_deref_mut().expect("locked outside of `unlocked`")
    }
}
