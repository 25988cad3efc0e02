//! Whether the process has one thread: then what guards against others costs nothing.
use libc::c_char;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// Where the C library says that the process has one thread only (glibc, from 2.32 on); else a word that says nothing.
static ALONE: AtomicPtr<c_char> = AtomicPtr::new((&raw const NOT_KNOWN).cast_mut());
static NOT_KNOWN: c_char = 0;

/// Finds out where the C library says whether there are other threads. Before, [`is_alone`] says no.
pub fn look_for_others() {
    // SAFETY: a name that ends with a zero; what is found is a byte that the C library keeps for as long as the process
    // lives.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    if !found.is_null() {
        ALONE.store(found.cast(), Relaxed);
    }
}

/// The process has no other thread. Then taking and giving back a lock needs no locked instruction, each of which waits
/// until all that was written before has reached the cache: payload and descriptors, whose lines the daemon's core has.
#[inline(always)]
pub fn is_alone() -> bool {
    // SAFETY: points at a byte that lives for as long as the process; only pthread_create changes it, on this very
    // thread as long as there is no other.
    unsafe { ALONE.load(Relaxed).read_volatile() != 0 }
}
