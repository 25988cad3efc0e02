//! The frame memory shared with the kernel, in chunks, and who owns each chunk.
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;

/// Bytes of a chunk: one page, which every driver accepts.
pub(super) const CHUNK: usize = 4096;

/// Who may write a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This side.
    Free,
    /// The kernel, to receive into.
    Filling,
    /// The kernel, to send from; given to it at this time.
    Sending(u64),
}

/// Chunks of memory. The first half is for receiving, the second for sending.
pub(super) struct Umem {
    base: NonNull<u8>,
    chunks: u32,
    owners: Vec<Owner>,
    /// Free chunks for sending, the one that has been free for longest first: a completion that comes twice then
    /// meets a chunk that is not in flight, and is noticed.
    free: VecDeque<u32>,
}

// SAFETY: the mapping belongs to this value; chunks that the kernel owns are not accessed.
unsafe impl Send for Umem {}

impl Umem {
    /// Memory of `chunks` chunks, an even number.
    pub(super) fn new(chunks: u32) -> io::Result<Umem> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), chunks as usize * CHUNK, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Umem {
            base: NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?,
            chunks,
            owners: vec![Owner::Free; chunks as usize],
            free: (chunks / 2..chunks).collect(),
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks as u64 * CHUNK as u64
    }

    /// Chunks for receiving.
    pub(super) fn receive_chunks(&self) -> std::ops::Range<u32> {
        0..self.chunks / 2
    }

    /// Gives a chunk to the kernel to receive into; returns its address in the memory.
    pub(super) fn lend_for_receiving(&mut self, chunk: u32) -> u64 {
        self.owners[chunk as usize] = Owner::Filling;
        u64::from(chunk) * CHUNK as u64
    }

    /// Takes a received frame back: its chunk and its bytes. None where the kernel names what it does not own.
    pub(super) fn take_received(&mut self, address: u64, len: u32) -> Option<(u32, &[u8])> {
        let chunk = self.chunk_of(address)?;
        let start = (address % CHUNK as u64) as usize;
        if self.owners[chunk as usize] != Owner::Filling || start + len as usize > CHUNK {
            return None;
        }
        self.owners[chunk as usize] = Owner::Free;
        // SAFETY: within the chunk, which is this side's now and is borrowed with the memory.
        let bytes = unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(address as usize), len as usize) };
        Some((chunk, bytes))
    }

    /// A free chunk to write a frame into.
    pub(super) fn next_to_send(&mut self) -> Option<(u32, &mut [u8])> {
        let chunk = *self.free.front()?;
        // SAFETY: the chunk is this side's, and the memory is borrowed mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(chunk as usize * CHUNK), CHUNK) };
        Some((chunk, bytes))
    }

    /// Gives the chunk that [`Umem::next_to_send`] named to the kernel; returns its address in the memory.
    pub(super) fn lend_for_sending(&mut self, now: u64) -> Option<u64> {
        let chunk = self.free.pop_front()?;
        self.owners[chunk as usize] = Owner::Sending(now);
        Some(u64::from(chunk) * CHUNK as u64)
    }

    /// Takes a chunk back that the kernel says it has sent. `false` where it was not in flight: not to be believed.
    pub(super) fn complete(&mut self, address: u64) -> bool {
        let Some(chunk) = self.chunk_of(address) else { return false };
        if !matches!(self.owners[chunk as usize], Owner::Sending(_)) {
            return false;
        }
        self.owners[chunk as usize] = Owner::Free;
        self.free.push_back(chunk);
        true
    }

    /// Takes back what has been in flight since `before` or longer: the kernel has forgotten to complete it. Only
    /// after it has taken everything out of the transmit ring. Returns how many.
    pub(super) fn reclaim_lost(&mut self, before: u64) -> usize {
        let mut lost = 0;
        for chunk in self.chunks / 2..self.chunks {
            if matches!(self.owners[chunk as usize], Owner::Sending(since) if since <= before) {
                self.owners[chunk as usize] = Owner::Free;
                self.free.push_back(chunk);
                lost += 1;
            }
        }
        lost
    }

    fn chunk_of(&self, address: u64) -> Option<u32> {
        let chunk = address / CHUNK as u64;
        (chunk < u64::from(self.chunks)).then_some(chunk as u32)
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this base and length, unmapped once; the socket was closed before.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.chunks as usize * CHUNK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_believed_once() {
        let mut umem = Umem::new(8).unwrap();
        let address = umem.lend_for_sending(1).unwrap();
        assert!(umem.complete(address));
        assert!(!umem.complete(address), "not in flight any more");
        assert!(!umem.complete(u64::MAX) && !umem.complete(0), "no chunk, or one for receiving");
        let sent: Vec<u64> = std::iter::from_fn(|| umem.lend_for_sending(2)).collect();
        assert_eq!(sent.len(), 4);
        assert_eq!(sent.last(), Some(&address), "the latest one to be freed comes last");
        assert!(umem.next_to_send().is_none());
    }

    #[test]
    fn what_is_never_completed_comes_back_later() {
        let mut umem = Umem::new(8).unwrap();
        for now in 1..=4 {
            umem.lend_for_sending(now).unwrap();
        }
        assert_eq!(umem.reclaim_lost(2), 2);
        assert_eq!(umem.reclaim_lost(2), 0);
        assert!(umem.next_to_send().is_some());
    }

    #[test]
    fn a_received_frame_must_be_in_a_chunk_that_was_lent() {
        let mut umem = Umem::new(8).unwrap();
        let address = umem.lend_for_receiving(1);
        assert!(umem.take_received(address + 256, CHUNK as u32).is_none(), "beyond the chunk");
        assert!(umem.take_received(0, 60).is_none(), "not lent");
        assert_eq!(umem.take_received(address + 256, 60).map(|(chunk, bytes)| (chunk, bytes.len())), Some((1, 60)));
        assert!(umem.take_received(address + 256, 60).is_none(), "twice");
    }
}
