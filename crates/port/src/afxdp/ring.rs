//! A ring shared with the kernel (Documentation/networking/af_xdp.rst): indices run freely, entries lie at the index
//! modulo the size.
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A ring of `T`, plain data of the kernel's interface.
pub(super) struct Ring<T: Copy> {
    base: NonNull<u8>,
    len: usize,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries_at: usize,
    entries: u32,
    /// This side's index, published by [`Ring::publish`].
    mine: u32,
    kind: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone on our side; the kernel's side goes through atomics.
unsafe impl<T: Copy> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `entries` (a power of two) at `page` of the socket.
    pub(super) fn map(
        socket: &OwnedFd,
        page: i64,
        entries: u32,
        offsets: &libc::xdp_ring_offset,
    ) -> io::Result<Ring<T>> {
        assert!(entries.is_power_of_two());
        let len = offsets.desc as usize + entries as usize * size_of::<T>();
        // SAFETY: a fresh shared mapping of the socket's ring at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Ring {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?,
            len,
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            flags: offsets.flags as usize,
            entries_at: offsets.desc as usize,
            entries,
            mine: 0,
            kind: PhantomData,
        })
    }

    /// This side goes on as producer where the ring stands: another process may have used it before.
    pub(super) fn go_on_producing(&mut self) {
        self.mine = self.word(self.producer).load(Acquire);
    }

    /// The same as consumer.
    pub(super) fn go_on_consuming(&mut self) {
        self.mine = self.word(self.consumer).load(Acquire);
    }

    /// Adds an entry; `false` where the ring is full. The kernel sees it after [`Ring::publish_produced`].
    pub(super) fn push(&mut self, entry: T) -> bool {
        let used = self.mine.wrapping_sub(self.word(self.consumer).load(Acquire));
        if used >= self.entries {
            return false;
        }
        // SAFETY: `entry_at` is within the mapping; the kernel does not touch entries that are not published.
        unsafe { self.entry_at(self.mine).write(entry) };
        self.mine = self.mine.wrapping_add(1);
        true
    }

    pub(super) fn publish_produced(&self) {
        self.word(self.producer).store(self.mine, Release);
    }

    /// The kernel has taken everything that was published.
    pub(super) fn is_drained(&self) -> bool {
        self.word(self.consumer).load(Acquire) == self.mine
    }

    /// Takes an entry. Its place is the kernel's again after [`Ring::publish_consumed`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: `entry_at` is within the mapping; the entry was published by the kernel.
        let entry = unsafe { self.entry_at(self.mine).read() };
        self.mine = self.mine.wrapping_add(1);
        Some(entry)
    }

    pub(super) fn publish_consumed(&self) {
        self.word(self.consumer).store(self.mine, Release);
    }

    /// There is nothing to take. An index of the kernel's that cannot be counts as nothing.
    pub(super) fn is_empty(&self) -> bool {
        let available = self.word(self.producer).load(Acquire).wrapping_sub(self.mine);
        available == 0 || available > self.entries
    }

    /// The kernel asks to be called to go on.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.len);
        // SAFETY: within the mapping, aligned by the kernel, and only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    fn entry_at(&self, index: u32) -> *mut T {
        let slot = (index & (self.entries - 1)) as usize;
        // SAFETY: `map` made the mapping large enough for all entries.
        unsafe { self.base.as_ptr().add(self.entries_at + slot * size_of::<T>()).cast() }
    }
}

impl<T: Copy> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this base and length, unmapped once.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
