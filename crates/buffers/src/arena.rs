//! Buffers of the program, in memory that the data-path can map (docs/REGISTERED-MEMORY.md, "Page-aligned buffers").
//!
//! Addresses are reserved once. A buffer is a part of a sealed memfd that is mapped there. A child of fork gets a
//! private copy, as of all memory of its parent.
use crate::lock::Lock;
use libc::{c_int, c_void};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// Bytes of a page: all buffers are multiples of it.
pub const PAGE: usize = shm::PAGE;
/// Bytes of all buffers at most. They are addresses only until they are used.
const ROOM: usize = 64 << 30;
/// Milliseconds that a parent waits for a child's copy, so that a child that hangs does not stop it for ever.
const TIMEOUT: c_int = 30_000;

/// The first reserved address, and how many there are: none before [`begin`].
static FROM: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
static ARENA: OnceLock<Option<Lock<Arena>>> = OnceLock::new();

/// The process forks: no buffers are made meanwhile. A thread that forks may wait for another one, which allocates.
static FORKS: AtomicBool = AtomicBool::new(false);

/// Where buffers lie: a part of a sealed memfd, which is mapped.
pub struct ArenaMapping {
    /// The memfd.
    pub file: OwnedFd,
    /// Where the part begins in it: whole pages.
    pub at: u64,
    /// The address where the part is mapped, for as long as the process lives.
    pub base: usize,
    /// Its bytes.
    pub len: usize,
}

/// All buffers. Places are offsets from the first address.
struct Arena {
    place: ArenaMapping,
    /// Places and lengths.
    used: BTreeMap<usize, usize>,
    free: BTreeMap<usize, usize>,
    /// Buffers that others still read, by place.
    pinned: BTreeMap<usize, Pins>,
    /// This process is a child of the one that made them: it has copies, and adds none.
    is_copy: bool,
    /// While the process forks: the child closes the second one when it has its copies.
    pipe: Option<[OwnedFd; 2]>,
}

/// Buffers are there from now on, in a memfd of their own. Where the system has no room for them, none ever are.
pub fn begin() {
    begin_with(Arena::own_place);
}

/// Buffers are there from now on, and lie where the caller states. False where they are elsewhere already.
pub fn begin_in(place: ArenaMapping) -> bool {
    let base = place.base;
    begin_with(|| Some(place));
    FROM.load(Relaxed) == base
}

fn begin_with(place: impl FnOnce() -> Option<ArenaMapping>) {
    let arena = ARENA.get_or_init(|| place().and_then(Arena::new).map(Lock::new));
    if let Some(arena) = arena {
        let (base, len) = arena.lock().bounds();
        FROM.store(base, Relaxed);
        LEN.store(len, Release);
    }
}

/// It is an address of a buffer.
#[inline]
pub fn holds(address: *const c_void) -> bool {
    // Zero before there are any: nothing is below it.
    let len = LEN.load(Acquire);
    address.addr().wrapping_sub(FROM.load(Relaxed)) < len
}

/// A buffer, or nothing: there are none, or no room. `align` is a power of two.
pub fn allocate(align: usize, len: usize) -> Option<*mut c_void> {
    let arena = ARENA.get()?.as_ref()?;
    let len = len.max(1).checked_next_multiple_of(PAGE)?;
    if FORKS.load(Acquire) {
        return None;
    }
    arena.lock().allocate(align.max(PAGE), len)
}

/// Bytes of a buffer; 0 where none begins there.
pub fn len_of(address: *const c_void) -> usize {
    let Some(Some(arena)) = ARENA.get() else { return 0 };
    let arena = arena.lock();
    arena.used.get(&(address.addr() - arena.place.base)).copied().unwrap_or(0)
}

/// Gives a buffer back.
pub fn release(address: *mut c_void) {
    if let Some(Some(arena)) = ARENA.get() {
        arena.lock().give_back(address.addr());
    }
}

/// Who reads a buffer besides the program.
#[derive(Default)]
struct Pins {
    count: u32,
    /// The program has given it back meanwhile.
    is_released: bool,
}

/// Keeps the buffer that has these bytes, also where the program gives it back: until [`unpin`] was called as often.
/// False where no buffer has all of them, or they are a copy that nobody else reads.
pub fn pin(address: *const c_void, len: usize) -> bool {
    let Some(Some(arena)) = ARENA.get() else { return false };
    arena.lock().pin(address.addr(), len)
}

/// Nobody else reads these bytes of a buffer any more.
pub fn unpin(address: *const c_void) {
    if let Some(Some(arena)) = ARENA.get() {
        arena.lock().unpin(address.addr());
    }
}

impl Arena {
    /// The place of the buffer that an address lies in.
    fn place_of(&self, address: usize, len: usize) -> Option<usize> {
        let at = address.checked_sub(self.place.base)?;
        let (place, bytes) = self.used.range(..=at).next_back()?;
        at.checked_add(len).is_some_and(|end| end <= place + bytes).then_some(*place)
    }

    fn pin(&mut self, address: usize, len: usize) -> bool {
        let Some(place) = self.place_of(address, len).filter(|_| !self.is_copy) else { return false };
        let pins = self.pinned.entry(place).or_default();
        if pins.is_released {
            // It is no buffer to the program.
            return false;
        }
        pins.count += 1;
        true
    }

    fn unpin(&mut self, address: usize) {
        let Some(place) = self.place_of(address, 0).filter(|_| !self.is_copy) else { return };
        let Some(pins) = self.pinned.get_mut(&place) else { return };
        pins.count -= 1;
        if pins.count > 0 {
            return;
        }
        let is_released = pins.is_released;
        self.pinned.remove(&place);
        if is_released {
            self.release(place);
        }
    }

    /// The program gives a buffer back.
    fn give_back(&mut self, address: usize) {
        let place = address - self.place.base;
        match self.pinned.get_mut(&place) {
            Some(pins) => pins.is_released = true,
            None => self.release(place),
        }
    }

    /// A memfd of the program's own, and addresses for all of it.
    fn own_place() -> Option<ArenaMapping> {
        // A file beyond the limit would end the program with a signal.
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: fills a whole structure.
        let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
        if asked != 0 || limit.rlim_cur < ROOM as libc::rlim_t {
            return None;
        }
        // SAFETY: a name that ends with zero; the result is checked.
        let fd =
            unsafe { libc::memfd_create(c"opentoe-buffers".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return None;
        }
        // SAFETY: a fresh descriptor.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain calls with an owned descriptor.
        let sealed = unsafe {
            libc::ftruncate(fd, ROOM as libc::off_t) == 0
                && libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) == 0
        };
        let base = if sealed { reserve(null_mut(), ROOM)? } else { return None };
        Some(ArenaMapping { file, at: 0, base: base.addr(), len: ROOM })
    }

    fn new(place: ArenaMapping) -> Option<Arena> {
        // SAFETY: functions that live as long as the program: a preloaded library is not unloaded.
        if unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) } != 0 {
            return None;
        }
        let free = BTreeMap::from([(0, place.len)]);
        Some(Arena { place, used: BTreeMap::new(), free, pinned: BTreeMap::new(), is_copy: false, pipe: None })
    }

    fn bounds(&self) -> (usize, usize) {
        (self.place.base, self.place.len)
    }

    fn allocate(&mut self, align: usize, len: usize) -> Option<*mut c_void> {
        if self.is_copy {
            return None;
        }
        let start = |place: usize| (self.place.base + place).next_multiple_of(align) - self.place.base;
        let fits =
            |(place, room): (&usize, &usize)| start(*place).checked_add(len).is_some_and(|end| end <= place + room);
        let (place, room) = self.free.iter().find(|hole| fits(*hole)).map(|(place, room)| (*place, *room))?;
        let at = start(place);
        let address = self.map(at, len, libc::MAP_SHARED)?;
        self.free.remove(&place);
        if at > place {
            self.free.insert(place, at - place);
        }
        if at + len < place + room {
            self.free.insert(at + len, place + room - at - len);
        }
        self.used.insert(at, len);
        Some(address)
    }

    fn release(&mut self, place: usize) {
        let address = std::ptr::with_exposed_provenance_mut(self.place.base + place);
        // A child's copy stays as it is: its pages are the child's own.
        if self.is_copy {
            return;
        }
        let Some(len) = self.used.remove(&place) else { return };
        if reserve(address, len).is_none() {
            // Too many mappings: the place is not used again.
            return;
        }
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an owned descriptor; what was in this part of the file is not needed any more.
        unsafe { libc::fallocate(self.place.file.as_raw_fd(), punch, self.offset(place), len as libc::off_t) };
        let (mut from, mut to) = (place, place + len);
        if let Some((before, room)) = self.free.range(..place).next_back().map(|(at, room)| (*at, *room)) {
            if before + room == place {
                self.free.remove(&before);
                from = before;
            }
        }
        if let Some(room) = self.free.remove(&to) {
            to += room;
        }
        self.free.insert(from, to - from);
    }

    /// Where in the file a place is.
    fn offset(&self, place: usize) -> libc::off_t {
        self.place.at as libc::off_t + place as libc::off_t
    }

    /// Maps a part of the file to its reserved place.
    fn map(&self, place: usize, len: usize, sharing: c_int) -> Option<*mut c_void> {
        let address = std::ptr::with_exposed_provenance_mut(self.place.base + place);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_FIXED | libc::MAP_NORESERVE);
        // SAFETY: replaces a mapping of this arena's own, at addresses that it reserved.
        let mapped =
            unsafe { libc::mmap(address, len, rights, flags, self.place.file.as_raw_fd(), self.offset(place)) };
        (mapped != libc::MAP_FAILED).then_some(mapped)
    }

    /// In a child: all buffers become private, and each page is copied.
    fn copy_all(&mut self) {
        self.is_copy = true;
        for (place, len) in &self.used {
            if self.map(*place, *len, libc::MAP_PRIVATE).is_none() {
                // Going on would let parent and child write each other's memory.
                std::process::abort();
            }
            for page in (*place..place + len).step_by(PAGE) {
                let byte: *mut u8 = std::ptr::with_exposed_provenance_mut(self.place.base + page);
                // SAFETY: of the page that was just mapped for writing; the value stays as it is. This thread's own
                // stack may be there: so nothing is moved, and this is the only thread of the child.
                unsafe { byte.write_volatile(byte.read_volatile()) };
            }
        }
    }
}

/// Reserves addresses: at `address`, or anywhere where that is null.
fn reserve(address: *mut c_void, len: usize) -> Option<*mut c_void> {
    let fixed = if address.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: fresh addresses, or those of a buffer that the program has given back.
    let mapped = unsafe { libc::mmap(address, len, libc::PROT_NONE, flags, -1, 0) };
    (mapped != libc::MAP_FAILED).then(|| std::ptr::with_exposed_provenance_mut(mapped.expose_provenance()))
}

fn arena() -> Option<&'static Lock<Arena>> {
    ARENA.get()?.as_ref()
}

extern "C" fn before_fork() {
    let Some(lock) = arena() else { return };
    FORKS.store(true, Release);
    let mut arena = lock.lock();
    if !arena.used.is_empty() && !arena.is_copy {
        let mut ends = [0; 2];
        // SAFETY: fills both; then they are fresh descriptors.
        arena.pipe = unsafe {
            (libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) == 0).then(|| ends.map(|fd| OwnedFd::from_raw_fd(fd)))
        };
    }
    arena.keep();
}

/// Waits until the child has its copy: what this process writes afterwards is not the child's.
extern "C" fn in_parent() {
    let Some(lock) = arena() else { return };
    // SAFETY: this thread has kept the lock before it forked.
    let mut arena = unsafe { lock.resume() };
    FORKS.store(false, Release);
    if let Some([read, write]) = arena.pipe.take() {
        drop(write);
        let mut fd = libc::pollfd { fd: read.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // The child closes its end, also where it dies. A signal is no reason to go on.
        // SAFETY: one valid entry.
        while unsafe { libc::poll(&raw mut fd, 1, TIMEOUT) } < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
}

extern "C" fn in_child() {
    let Some(lock) = arena() else { return };
    // SAFETY: the thread that forked kept the lock, and is the only one here.
    let mut arena = unsafe { lock.resume() };
    FORKS.store(false, Release);
    if !arena.is_copy {
        arena.copy_all();
    }
    arena.pipe = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// # Safety
    /// The bytes are a buffer's.
    unsafe fn bytes<'a>(address: *mut c_void, len: usize) -> &'a mut [u8] {
        // SAFETY: as the caller guarantees.
        unsafe { std::slice::from_raw_parts_mut(address.cast(), len) }
    }

    #[test]
    fn buffers_are_aligned_apart_zero_and_used_again() {
        begin();
        let sizes = [(4096, 1), (1 << 21, 5000), (4096, 1 << 20), (8192, 4096)];
        let made: Vec<_> = sizes.iter().map(|(align, len)| allocate(*align, *len).unwrap()).collect();
        for ((align, len), address) in sizes.iter().zip(&made) {
            assert!(holds(*address) && address.addr() % align == 0);
            assert_eq!(len_of(*address), len.next_multiple_of(PAGE));
            // SAFETY: a buffer of this length.
            let bytes = unsafe { bytes(*address, *len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
        let mut ranges: Vec<_> = made.iter().map(|at| (at.addr(), at.addr() + len_of(*at))).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        made.iter().for_each(|address| release(*address));
        let again = allocate(4096, 1 << 20).unwrap();
        // SAFETY: as above.
        assert!(unsafe { bytes(again, 1 << 20) }.iter().all(|byte| *byte == 0), "what was given back is gone");
        release(again);
        assert!(allocate(4096, ROOM + 1).is_none() && allocate(4096, usize::MAX).is_none());
        assert!(!holds(std::ptr::null()) && !holds((&raw const sizes).cast()));
    }

    #[test]
    fn a_registered_part_of_a_buffer_is_mapped() {
        begin();
        let address = allocate(4096, 4 * PAGE).unwrap();
        let (from, len) = (address.addr() as u64 + 5, 3 * PAGE as u64 - 9);
        let prepared = memory::Registrar::new().prepare(from, len, memory::Rights::ALL).unwrap();
        let [extent] = prepared.description.extents[..] else { panic!("{:?}", prepared.description) };
        assert!(matches!(extent.way, memory::AccessPath::Shared { .. }) && extent.len == len);
        release(address);
    }

    #[test]
    fn a_pinned_buffer_outlives_the_program_s_use_of_it() {
        begin();
        let len = 16 * PAGE;
        let address = allocate(4096, len).unwrap();
        let inside = address.wrapping_byte_add(5 * PAGE);
        assert!(pin(inside, 11 * PAGE) && pin(address, len));
        // What begins one byte earlier ends in another buffer, which may be another test's.
        assert!(!pin(inside, 11 * PAGE + 1) && !pin(address.wrapping_byte_sub(1), 2) && !pin(null_mut(), 1));
        // SAFETY: a buffer of this length.
        unsafe { bytes(address, len) }.fill(7);
        release(address);
        assert!(!pin(inside, 1), "it is no buffer to the program");
        let other = allocate(4096, len).unwrap();
        assert!(other != address, "its place is not used again");
        unpin(inside);
        // SAFETY: it is mapped as long as it is pinned.
        assert!(unsafe { bytes(address, len) }.iter().all(|byte| *byte == 7));
        unpin(address);
        assert_eq!(len_of(address), 0, "it is given back with the last pin");
        release(other);
    }

    #[test]
    fn a_child_has_the_bytes_as_of_the_fork_then_its_own() {
        begin();
        let address = allocate(4096, 64 * PAGE).unwrap();
        // SAFETY: a buffer of this length.
        let shared = unsafe { bytes(address, 64 * PAGE) };
        shared.fill(1);
        let mut ends = [0; 2];
        // SAFETY: fills both.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child calls what may be called after fork, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut go = 0u8;
            // SAFETY: reads a byte into a byte.
            let read = unsafe { libc::read(ends[0], (&raw mut go).cast(), 1) };
            // The parent has written meanwhile.
            let kept = shared.iter().all(|byte| *byte == 1);
            shared.fill(3);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if kept && read == 1 && allocate(4096, 1).is_none() { 0 } else { 1 }) };
        }
        shared.fill(2);
        let mut status = 0;
        // SAFETY: writes a byte; waits for the child that was just made.
        unsafe {
            assert_eq!(libc::write(ends[1], [1u8].as_ptr().cast(), 1), 1);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        assert!(shared.iter().all(|byte| *byte == 2), "what the child writes is its own");
        release(address);
    }
}
