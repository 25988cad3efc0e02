//! UMEM: the frame memory shared with the kernel, in chunks, and the owner of each. Both lie in a region that another
//! process can map, and go on with (docs/TAKEOVER.md).
use shm::{PAGE, Region};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a chunk: one page, which every driver accepts.
pub(super) const CHUNK: usize = 4096;

/// Words from the end of the region: how many chunks there are, where the program runs, and the interface's MTU.
const CHUNKS: usize = 1;
const NATIVE: usize = 2;
const MTU: usize = 3;

/// Bytes of a region with so many chunks.
fn len_of(chunks: u32) -> usize {
    (chunks as usize * (CHUNK + 8) + MTU * 8).next_multiple_of(PAGE)
}

/// Owner of a chunk, which may write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This side.
    Free,
    /// The kernel, to receive into.
    Filling,
    /// The kernel, to send from; given to it at this time.
    Sending(u64),
}

impl Owner {
    fn to_word(self) -> u64 {
        match self {
            Owner::Free => 0,
            Owner::Filling => 1,
            Owner::Sending(since) => since.saturating_add(2),
        }
    }

    fn from_word(word: u64) -> Owner {
        match word {
            0 => Owner::Free,
            1 => Owner::Filling,
            later => Owner::Sending(later - 2),
        }
    }
}

/// Chunks of memory. The first half is for receiving, the second for sending.
pub(super) struct Umem {
    /// All chunks, then a word for the owner of each.
    region: Region,
    chunks: u32,
    /// Free chunks for sending, the one that has been free for longest first: a completion that comes twice then
    /// meets a chunk that is not in flight, and is noticed.
    free: VecDeque<u32>,
}

impl Umem {
    /// Memory of `chunks` chunks, an even number.
    pub(super) fn new(chunks: u32) -> io::Result<Umem> {
        let umem = Umem::of(Region::create("toe-afxdp", len_of(chunks))?, chunks);
        umem.word_from_end(CHUNKS).store(chunks.into(), Relaxed);
        Ok(umem)
    }

    /// The memory of another process. [`Umem::go_on`] goes on where that one has left it.
    pub(super) fn adopt(fd: OwnedFd) -> io::Result<Umem> {
        let mut umem = Umem::of(Region::from_fd(fd)?, 0);
        let possible = |chunks: &u32| *chunks >= 2 && chunks % 2 == 0 && len_of(*chunks) == umem.region.len();
        let chunks = u32::try_from(umem.word_from_end(CHUNKS).load(Relaxed)).ok().filter(possible);
        umem.chunks = chunks.ok_or(io::ErrorKind::InvalidData)?;
        Ok(umem)
    }

    /// What another process is to find out of the queue: where the program runs ([`super::Program::native`]), and the
    /// interface's MTU. That process may be in another network namespace.
    pub(super) fn describe(&self, native: bool, mtu: u16) {
        self.word_from_end(NATIVE).store(native.into(), Relaxed);
        self.word_from_end(MTU).store(mtu.into(), Relaxed);
    }

    /// The same, of the process that opened the queue.
    pub(super) fn description(&self) -> (bool, u16) {
        let [native, mtu] = [NATIVE, MTU].map(|word| self.word_from_end(word).load(Relaxed));
        (native != 0, mtu as u16)
    }

    fn word_from_end(&self, words: usize) -> &AtomicU64 {
        self.region.u64_at(self.region.len() - words * 8)
    }

    fn of(region: Region, chunks: u32) -> Umem {
        Umem { region, chunks, free: (chunks / 2..chunks).collect() }
    }

    /// Goes on where another process left the memory.
    pub(super) fn go_on(&mut self) {
        self.free = (self.chunks / 2..self.chunks).filter(|chunk| self.owner(*chunk) == Owner::Free).collect();
    }

    /// The descriptor with which another process maps it.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.region.fd()
    }

    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    pub(super) fn address(&self) -> u64 {
        self.region.address(0, CHUNK) as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.chunks as u64 * CHUNK as u64
    }

    fn owner(&self, chunk: u32) -> Owner {
        Owner::from_word(self.region.u64_at(self.owner_at(chunk)).load(Relaxed))
    }

    fn set_owner(&mut self, chunk: u32, owner: Owner) {
        self.region.u64_at(self.owner_at(chunk)).store(owner.to_word(), Relaxed);
    }

    fn owner_at(&self, chunk: u32) -> usize {
        self.chunks as usize * CHUNK + chunk as usize * 8
    }

    /// Chunks for receiving.
    pub(super) fn receive_chunks(&self) -> std::ops::Range<u32> {
        0..self.chunks / 2
    }

    /// Gives a chunk to the kernel to receive into; returns its address in the memory.
    pub(super) fn lend_for_receiving(&mut self, chunk: u32) -> u64 {
        self.set_owner(chunk, Owner::Filling);
        u64::from(chunk) * CHUNK as u64
    }

    /// Takes a received frame back: its chunk and its bytes. None where the kernel names what it does not own.
    pub(super) fn take_received(&mut self, address: u64, len: u32) -> Option<(u32, &[u8])> {
        let chunk = self.chunk_of(address)?;
        let start = (address % CHUNK as u64) as usize;
        if self.owner(chunk) != Owner::Filling || start + len as usize > CHUNK {
            return None;
        }
        self.set_owner(chunk, Owner::Free);
        // SAFETY: within the chunk, which is this side's now and is borrowed with the memory.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.region.address(address as usize, len as usize), len as usize) };
        Some((chunk, bytes))
    }

    /// A free chunk to write a frame into.
    pub(super) fn next_to_send(&mut self) -> Option<(u32, &mut [u8])> {
        let chunk = *self.free.front()?;
        // SAFETY: the chunk is this side's, and the memory is borrowed mutably.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.region.address(chunk as usize * CHUNK, CHUNK), CHUNK) };
        Some((chunk, bytes))
    }

    /// Gives the chunk that [`Umem::next_to_send`] named to the kernel; returns its address in the memory.
    pub(super) fn lend_for_sending(&mut self, now: u64) -> Option<u64> {
        let chunk = self.free.pop_front()?;
        self.set_owner(chunk, Owner::Sending(now));
        Some(u64::from(chunk) * CHUNK as u64)
    }

    /// Takes a chunk back that the kernel reports as sent. `false` where it was not in flight: then it is ignored.
    pub(super) fn complete(&mut self, address: u64) -> bool {
        let Some(chunk) = self.chunk_of(address) else { return false };
        if !matches!(self.owner(chunk), Owner::Sending(_)) {
            return false;
        }
        self.set_owner(chunk, Owner::Free);
        self.free.push_back(chunk);
        true
    }

    /// Takes back what has been in flight since `before` or longer: the kernel has forgotten to complete it. Only
    /// after it has taken everything out of the transmit ring. Returns how many.
    pub(super) fn reclaim_lost(&mut self, before: u64) -> usize {
        let mut lost = 0;
        for chunk in self.chunks / 2..self.chunks {
            if matches!(self.owner(chunk), Owner::Sending(since) if since <= before) {
                self.set_owner(chunk, Owner::Free);
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
    fn another_process_goes_on_with_what_is_in_flight() {
        let mut old = Umem::new(8).unwrap();
        let adopt = |region: BorrowedFd<'_>| Umem::adopt(region.try_clone_to_owned().unwrap());
        let mut new = adopt(old.fd()).unwrap();
        assert_eq!(new.chunks(), 8);
        let received = old.lend_for_receiving(2);
        let [first, second] = [7, 8].map(|now| old.lend_for_sending(now).unwrap());
        assert!(old.complete(first));
        new.go_on();
        assert!(new.take_received(received, 60).is_some());
        assert!(!new.complete(first) && new.complete(second));
        assert_eq!(std::iter::from_fn(|| new.lend_for_sending(9)).count(), 4);
        let foreign = Region::create("other", len_of(8)).unwrap();
        assert_eq!(adopt(foreign.fd()).err().map(|error| error.kind()), Some(io::ErrorKind::InvalidData));
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
