//! Memory for bad times. A Rust program ends where an allocation fails, and with a daemon all its programs would lose
//! their connections. So the daemon keeps some memory that it does not use. An allocation that fails gets it and
//! succeeds. From then on nothing new is begun ([`is_short`]) until the system has given as much again.
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{dangling_mut, null_mut};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Bytes that are kept: enough for whatever the connections that there are may still need. They are never written, so
/// they are address space and no memory, unless the system commits to no more than it has (`vm.overcommit_memory = 2`).
pub const BYTES: usize = 32 << 20;

/// The reserve; null before [`keep`]; [`SPENT`] once it was given to an allocation.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// No mapping begins here.
const SPENT: *mut u8 = dangling_mut();

/// The system's allocator with the reserve behind it, for `#[global_allocator]`. Without [`keep`] it is the system's.
pub struct Allocator;

/// A call of the system's allocator; again with the reserve given up, where there was no memory.
fn patiently(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let first = allocate();
    if !first.is_null() {
        return first;
    }
    release();
    allocate()
}

// SAFETY: all calls go to the system's allocator with the caller's arguments. A call that failed has changed nothing,
// so it may be repeated.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller guarantees is what the system asks for.
        patiently(|| unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        patiently(|| unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; a failed `realloc` leaves the old block as it was.
        patiently(|| unsafe { System.realloc(at, layout, size) })
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Takes the reserve from the system, where it is not there. False where the system has no memory for it.
pub fn keep() -> bool {
    let held = RESERVE.load(Acquire);
    if !held.is_null() && held != SPENT {
        return true;
    }
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let fresh = unsafe { libc::mmap(null_mut(), BYTES, rights, kind, -1, 0) };
    if fresh == libc::MAP_FAILED {
        return false;
    }
    if RESERVE.compare_exchange(held, fresh.cast(), AcqRel, Acquire).is_err() {
        // Another thread was first.
        // SAFETY: the mapping that was made above, which no other code has.
        unsafe { libc::munmap(fresh, BYTES) };
    }
    true
}

/// An allocation needed the reserve, and the system has not given it back since: begin nothing new. Never where nobody
/// keeps one.
#[inline]
pub fn is_short() -> bool {
    RESERVE.load(Acquire) == SPENT && !keep()
}

/// Bytes from which on a block gets a mapping of its own: glibc's default.
#[cfg(target_env = "gnu")]
const OWN_MAPPING: libc::c_int = 128 << 10;

/// Makes large blocks go back to the system when they are freed, for as long as the process runs. Call it before any
/// thread starts.
///
/// From some size on, a block gets a mapping of its own. By default glibc raises that size to the one of the largest
/// block ever freed, up to 32 MiB. It keeps twice as much at the end of each thread's arena (`M_MMAP_THRESHOLD`,
/// mallopt(3)).
/// [`give_back`] cannot return that: `malloc_trim` trims the end of the first arena only. A daemon with eight arenas a
/// core would keep the largest block that it ever had as often as it has arenas.
pub fn fix_thresholds() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain call that sets a parameter of the allocator, which takes any size up to 32 MiB.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING);
    }
}

/// Gives the system the pages that the allocator keeps and nobody uses. Milliseconds where there are many: for quiet
/// times.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: a plain call; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes of the blocks that are allocated, on all threads; `None` where the C library does not count them. The
/// memory that the process has (`RssAnon`) also counts what the allocator keeps for later. That is 128 KiB at the end
/// of each arena, of which there are eight a core (mallopt(3), `M_TRIM_THRESHOLD`, `M_ARENA_MAX`).
pub fn allocated() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: a plain call; it takes each arena's lock in turn.
        let counted = unsafe { libc::mallinfo2() };
        Some((counted.uordblks + counted.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Gives the reserve to whoever allocates next.
#[cold]
fn release() {
    let held = RESERVE.load(Acquire);
    if held.is_null() || held == SPENT {
        return;
    }
    if RESERVE.compare_exchange(held, SPENT, AcqRel, Acquire).is_ok() {
        // SAFETY: the mapping that `keep` made; this thread alone has taken it out.
        unsafe { libc::munmap(held.cast(), BYTES) };
    }
}
