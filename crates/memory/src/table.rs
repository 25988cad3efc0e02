//! The data-path's table of regions, by key.
use crate::description::Description;
use crate::devices::Devices;
use crate::dma::{DmaQueue, Transfer};
use crate::fault::{Fault, Refusal};
use crate::key::{self, Key, Keys};
use crate::region::Region;
use crate::rights::{Access, Rights};
use crate::space::AddressSpace;
use shm::Span;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};

/// Whose a region is: what verbs call a protection domain. The data-path numbers them; a program has at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Domain(pub u32);

/// How much may be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Regions of the table. Rounded up to a power of two, at most 2^20.
    pub regions: usize,
    /// Regions of one domain.
    pub regions_per_domain: usize,
    /// Bytes of one domain's regions; those that overlap count each time.
    pub bytes_per_domain: u64,
    /// Of these, bytes that the data-path maps. Each page that it accesses costs 8 bytes of page table, and may cost
    /// memory that is then accounted to the data-path.
    pub mapped_per_domain: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { regions: 16_384, regions_per_domain: 4096, bytes_per_domain: 64 << 30, mapped_per_domain: 16 << 30 }
    }
}

/// All regions of a data-path, shared by its threads. Registering and deregistering take a lock of their own and
/// allocate; an access takes neither that lock nor memory: two atomic operations on its region's own cache line.
pub struct MemoryTable {
    slots: Box<[Slot]>,
    slot_bits: u32,
    limits: Limits,
    ledger: Mutex<Ledger>,
    devices: Devices,
}

/// One region, on a cache line that no other shares.
#[repr(align(64))]
#[derive(Default)]
struct Slot {
    /// Held for reading during an access, and for writing only where nobody reads: nobody waits for it.
    entry: RwLock<Option<Entry>>,
    /// The region is being deregistered: no new access begins.
    revoked: AtomicBool,
}

struct Entry {
    key: Key,
    domain: Domain,
    region: Region,
}

struct Ledger {
    keys: Keys,
    free: Vec<u32>,
    /// How often each slot has been used.
    generations: Box<[u32]>,
    usage: HashMap<Domain, Usage>,
}

#[derive(Default)]
struct Usage {
    keys: Vec<Key>,
    bytes: u64,
    mapped: u64,
}

impl MemoryTable {
    /// A table without regions. Fails where the system has no random numbers.
    pub fn new(limits: Limits) -> io::Result<MemoryTable> {
        Ok(MemoryTable::with_secret(limits, key::secret()?))
    }

    /// A table whose keys follow from this secret: whoever has that can guess them.
    pub fn with_secret(limits: Limits, secret: [u8; 16]) -> MemoryTable {
        let count = limits.regions.clamp(1, 1 << 20).next_power_of_two();
        let slot_bits = count.trailing_zeros();
        let ledger = Ledger {
            keys: Keys::new(slot_bits, secret),
            free: (0..count as u32).collect(),
            generations: vec![0; count].into(),
            usage: HashMap::new(),
        };
        let slots = (0..count).map(|_| Slot::default()).collect();
        MemoryTable { slots, slot_bits, limits, ledger: Mutex::new(ledger), devices: Devices::default() }
    }

    /// Registers what a program describes; `files` are the descriptors that came with it, `space` what the program
    /// handed over before. Checks everything. Reads the descriptors, and so may wait for the program
    /// ([`AddressSpace::from_fd`]).
    pub fn register(
        &self,
        domain: Domain,
        description: &Description,
        files: &[OwnedFd],
        space: Option<&Arc<AddressSpace>>,
    ) -> Result<Key, Refusal> {
        // Made without the lock: a program that lets this thread wait does not let others wait.
        self.enter(domain, Region::new(description, files, space)?)
    }

    /// Registers `len` bytes of a device's memory, from an address of the device's on: which addresses there are, its
    /// server has.
    pub fn register_device(
        &self,
        domain: Domain,
        queue: &Arc<DmaQueue>,
        address: u64,
        len: u64,
        rights: Rights,
    ) -> Result<Key, Refusal> {
        self.enter(domain, Region::of_device(queue, address, len, rights)?)
    }

    /// The queues of devices, which whoever serves the table's accesses has to poll.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    fn enter(&self, domain: Domain, region: Region) -> Result<Key, Refusal> {
        let mut ledger = self.ledger();
        ledger.charge(domain, &region, &self.limits)?;
        let Some(last) = ledger.free.len().checked_sub(1) else {
            ledger.discharge(domain, &region);
            return Err(Refusal::Limit("the data-path's table of regions is full"));
        };
        let Ledger { keys, free, generations, usage } = &mut *ledger;
        let slot = free.swap_remove(keys.draw(last + 1)) as usize;
        let key = keys.next(slot, &mut generations[slot]);
        usage.entry(domain).or_default().keys.push(key);
        // Free slots have no readers that stay: an access there with a stale key ends at once.
        *self.slots[slot].entry.write().unwrap_or_else(PoisonError::into_inner) = Some(Entry { key, domain, region });
        self.slots[slot].revoked.store(false, SeqCst);
        Ok(key)
    }

    /// Opens a region for one access. It stays registered as long as the lease is held: hold it for a copy, not longer.
    #[inline]
    pub fn open(&self, domain: Domain, key: Key, access: Access) -> Result<Lease<'_>, Fault> {
        let slot = &self.slots[Keys::slot(key, self.slot_bits)];
        // Whoever holds it for writing registers or deregisters: the key is not valid yet, or no longer.
        let held = slot.entry.try_read().map_err(|_| Fault::Key)?;
        let valid = held.as_ref().is_some_and(|entry| entry.key == key && entry.domain == domain);
        if !valid || slot.revoked.load(SeqCst) {
            return Err(Fault::Key);
        }
        let lease = Lease { held, access };
        if !lease.region()?.rights().contains(access.needs()) {
            return Err(Fault::Rights);
        }
        Ok(lease)
    }

    /// Begins to deregister: from now on no access begins. The region is gone once [`MemoryTable::finish`] reports it.
    pub fn revoke(&self, domain: Domain, key: Key) -> Result<(), Fault> {
        let ledger = self.ledger();
        if !ledger.usage.get(&domain).is_some_and(|usage| usage.keys.contains(&key)) {
            return Err(Fault::Key);
        }
        self.slots[Keys::slot(key, self.slot_bits)].revoked.store(true, SeqCst);
        Ok(())
    }

    /// Ends what [`MemoryTable::revoke`] began, where no access is under way any more: then no byte of the region is
    /// read or written again. Otherwise, `Ok(false)`: ask later. Never waits.
    pub fn finish(&self, domain: Domain, key: Key) -> Result<bool, Fault> {
        let mut ledger = self.ledger();
        let Some(place) = ledger.usage.get(&domain).and_then(|usage| usage.keys.iter().position(|held| *held == key))
        else {
            return Err(Fault::Key);
        };
        let index = Keys::slot(key, self.slot_bits);
        let slot = &self.slots[index];
        if !slot.revoked.load(SeqCst) {
            return Err(Fault::Key);
        }
        let mut held = match slot.entry.try_write() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        // Frames on their way refer to its bytes.
        if held.as_mut().is_some_and(|entry| entry.region.is_referred_to()) {
            return Ok(false);
        }
        let Some(entry) = held.take() else { return Err(Fault::Key) };
        drop(held);
        if let Some(usage) = ledger.usage.get_mut(&domain) {
            usage.keys.swap_remove(place);
        }
        ledger.discharge(domain, &entry.region);
        ledger.free.push(index as u32);
        Ok(true)
    }

    /// Deregisters, and waits for accesses that are under way. For a thread that nobody waits for.
    pub fn deregister(&self, domain: Domain, key: Key) -> Result<(), Fault> {
        self.revoke(domain, key)?;
        while !self.finish(domain, key)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The program is gone: deregisters what it had. True once nothing is left; otherwise ask again later. Never waits.
    pub fn remove(&self, domain: Domain) -> bool {
        let keys = self.ledger().usage.get(&domain).map(|usage| usage.keys.clone()).unwrap_or_default();
        let mut all = true;
        for key in keys {
            // Another thread may have ended it meanwhile.
            let _ = self.revoke(domain, key);
            all &= self.finish(domain, key).unwrap_or(true);
        }
        all
    }

    /// Regions and bytes that a domain has registered.
    pub fn usage(&self, domain: Domain) -> (usize, u64) {
        self.ledger().usage.get(&domain).map_or((0, 0), |usage| (usage.keys.len(), usage.bytes))
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn charge(&mut self, domain: Domain, region: &Region, limits: &Limits) -> Result<(), Refusal> {
        let usage = self.usage.entry(domain).or_default();
        let bytes = usage.bytes.saturating_add(region.len());
        let mapped = usage.mapped.saturating_add(region.mapped());
        let reached = match () {
            _ if usage.keys.len() >= limits.regions_per_domain => Some("the program has as many regions as it may"),
            _ if bytes > limits.bytes_per_domain => Some("the program has as many bytes as it may"),
            _ if mapped > limits.mapped_per_domain => Some("the data-path maps as much of the program as it may"),
            _ => None,
        };
        match reached {
            Some(limit) => {
                self.forget_if_empty(domain);
                Err(Refusal::Limit(limit))
            }
            None => {
                (usage.bytes, usage.mapped) = (bytes, mapped);
                Ok(())
            }
        }
    }

    fn discharge(&mut self, domain: Domain, region: &Region) {
        if let Some(usage) = self.usage.get_mut(&domain) {
            usage.bytes -= region.len();
            usage.mapped -= region.mapped();
        }
        self.forget_if_empty(domain);
    }

    fn forget_if_empty(&mut self, domain: Domain) {
        if self.usage.get(&domain).is_some_and(|usage| usage.keys.is_empty()) {
            self.usage.remove(&domain);
        }
    }
}

/// A region that is open for one access. As long as it is held, deregistration is not finished.
pub struct Lease<'t> {
    held: RwLockReadGuard<'t, Option<Entry>>,
    access: Access,
}

/// Bytes of a region that are read in one call with others.
pub struct ReadPiece<'a> {
    /// Offset of the first one.
    pub at: u64,
    /// Where they go.
    pub into: &'a mut [u8],
}

/// Bytes that are written into a region in one call with others.
#[derive(Clone, Copy)]
pub struct WritePiece<'a> {
    /// Offset of the first one.
    pub at: u64,
    /// The bytes.
    pub from: &'a [u8],
}

impl Lease<'_> {
    /// The region's first byte, as an address of the program.
    #[inline]
    pub fn address(&self) -> u64 {
        self.held.as_ref().map_or(0, |entry| entry.region.address())
    }

    /// Bytes of the region.
    #[inline]
    pub fn len(&self) -> u64 {
        self.held.as_ref().map_or(0, |entry| entry.region.len())
    }

    /// It has no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An access may wait for the program, whose memory is reached through the kernel. A page of it may have to be
    /// fetched from swap, from a file, or from the program itself (FUSE). False: a copy between mapped pages.
    pub fn may_wait(&self) -> bool {
        self.held.as_ref().is_some_and(|entry| !entry.region.is_mapped())
    }

    /// Reads from offset `at` on.
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.for_reading()?.read(at, into)
    }

    /// Appends `len` bytes from offset `at` on; none where it fails.
    #[inline]
    pub fn append(&self, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        self.for_reading()?.append(at, len, into)
    }

    /// Writes from offset `at` on. In which order the bytes show is not defined; all of them do when it has returned.
    #[inline]
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.for_writing()?.write(at, from)
    }

    /// Writes a part of what a span refers to, copied once.
    #[inline]
    pub fn write_span(&self, at: u64, span: &Span, part: Range<usize>) -> Result<(), Fault> {
        self.for_writing()?.write_span(at, span, part)
    }

    /// Writes as [`Lease::write_span`], and the last byte shows after all others, as with [`Lease::write_last`].
    #[inline]
    pub fn write_span_last(&self, at: u64, span: &Span, part: Range<usize>) -> Result<(), Fault> {
        self.for_writing()?.write_span_last(at, span, part)
    }

    /// `len` bytes from offset `at` on, by reference, for whoever reads them later: deregistration is not finished
    /// before. `None` where they have to be copied, because they are not mapped, or lie across a border within.
    #[inline]
    pub fn refer(&self, at: u64, len: usize) -> Result<Option<Span>, Fault> {
        let region = self.for_reading()?;
        region.bounds(at, len)?;
        Ok(region.refer(at, len))
    }

    /// The memory is a device's. It is written by [`Lease::start_write`] and read by [`Lease::start_read`] only.
    #[inline]
    pub fn is_device(&self) -> bool {
        self.held.as_ref().is_some_and(|entry| entry.region.queue().is_some())
    }

    /// Starts to write from offset `at` on, and returns a handle that reports its end. Deregistration is not finished
    /// before. Memory that is no device's is written at once, and then there is nothing to wait for.
    #[inline]
    pub fn start_write(&self, at: u64, from: &[u8]) -> Result<Option<Arc<Transfer>>, Fault> {
        self.for_writing()?.start_write(at, from)
    }

    /// The same of a part of what a span refers to.
    #[inline]
    pub fn start_write_span(&self, at: u64, span: &Span, part: Range<usize>) -> Result<Option<Arc<Transfer>>, Fault> {
        self.for_writing()?.start_write_span(at, span, part)
    }

    /// Starts to read `len` bytes from offset `at` on. `None` where the memory is no device's: it can be read at once.
    #[inline]
    pub fn start_read(&self, at: u64, len: usize) -> Result<Option<Arc<Transfer>>, Fault> {
        self.for_reading()?.start_read(at, len)
    }

    /// Writes as [`Lease::write`], and the last byte shows after all others: programs poll it to see that a message is
    /// complete.
    #[inline]
    pub fn write_last(&self, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.for_writing()?.write_last(at, from)
    }

    /// Reads several pieces; where one leaves the region, none.
    pub fn gather(&self, pieces: &mut [ReadPiece<'_>]) -> Result<(), Fault> {
        let region = self.for_reading()?;
        pieces.iter().try_for_each(|piece| region.bounds(piece.at, piece.into.len()))?;
        pieces.iter_mut().try_for_each(|piece| region.read(piece.at, piece.into))
    }

    /// Writes several pieces; where one leaves the region, none.
    pub fn scatter(&self, pieces: &[WritePiece<'_>]) -> Result<(), Fault> {
        let region = self.for_writing()?;
        pieces.iter().try_for_each(|piece| region.bounds(piece.at, piece.from.len()))?;
        pieces.iter().try_for_each(|piece| region.write(piece.at, piece.from))
    }

    /// Stores `new` in the 8 bytes at offset `at` where they hold `expected`; returns what they held, in the byte order
    /// of this machine. Atomic among all accesses where the memory is mapped ([`Lease::may_wait`] is false), otherwise
    /// among the data-path's atomic operations on the program's memory only (verbs: `IBV_ATOMIC_HCA`).
    pub fn compare_swap(&self, at: u64, expected: u64, new: u64) -> Result<u64, Fault> {
        self.for_atomics()?.update(at, |before| (before == expected).then_some(new))
    }

    /// Adds to the 8 bytes at offset `at`, modulo 2^64, and returns what they held; atomic as [`Lease::compare_swap`].
    pub fn fetch_add(&self, at: u64, addend: u64) -> Result<u64, Fault> {
        self.for_atomics()?.update(at, |before| Some(before.wrapping_add(addend)))
    }

    #[inline]
    fn region(&self) -> Result<&Region, Fault> {
        self.held.as_ref().map(|entry| &entry.region).ok_or(Fault::Key)
    }

    #[inline]
    fn for_reading(&self) -> Result<&Region, Fault> {
        if self.access.reads() { self.region() } else { Err(Fault::Rights) }
    }

    #[inline]
    fn for_writing(&self) -> Result<&Region, Fault> {
        if self.access.writes() { self.region() } else { Err(Fault::Rights) }
    }

    fn for_atomics(&self) -> Result<&Region, Fault> {
        if self.access.is_atomic() { self.region() } else { Err(Fault::Rights) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::{AccessPath, Extent};
    use crate::rights::Rights;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    const OURS: Domain = Domain(1);

    fn table(limits: Limits) -> MemoryTable {
        MemoryTable::new(limits).unwrap()
    }

    /// A region of a sealed memfd, `len` bytes.
    fn register(table: &MemoryTable, domain: Domain, len: u64) -> Result<Key, Refusal> {
        let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, len).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let extents = vec![Extent { len, way: AccessPath::Shared { file: 0, offset: 0 } }];
        table.register(domain, &Description { address: 4096, rights: Rights::ALL, extents }, &[file], None)
    }

    #[test]
    fn every_limit_is_held_and_given_back() {
        let limits = Limits { regions: 4, regions_per_domain: 3, bytes_per_domain: 100, mapped_per_domain: 90 };
        let table = table(limits);
        let full = |made: Result<Key, Refusal>| assert!(matches!(made, Err(Refusal::Limit(_))));
        let first = register(&table, OURS, 60).unwrap();
        full(register(&table, OURS, 31));
        register(&table, OURS, 30).unwrap();
        assert_eq!(table.usage(OURS), (2, 90));
        table.deregister(OURS, first).unwrap();
        let others = [register(&table, OURS, 1).unwrap(), register(&table, OURS, 1).unwrap()];
        full(register(&table, OURS, 1));
        assert_eq!(table.usage(OURS), (3, 32));
        // One slot is left, for whoever comes.
        register(&table, Domain(2), 1).unwrap();
        full(register(&table, Domain(2), 1));
        assert_eq!((table.usage(Domain(2)), others[0] == others[1]), ((1, 1), false));
        assert!(table.remove(OURS) && table.remove(OURS));
        assert_eq!(table.usage(OURS), (0, 0));
        (0..3).for_each(|_| drop(register(&table, Domain(2), 1)));
        assert_eq!(table.usage(Domain(2)), (3, 3));
    }

    #[test]
    fn an_access_under_way_postpones_the_end_and_no_other_begins() {
        let table = table(Limits::default());
        let key = register(&table, OURS, 100).unwrap();
        assert_eq!(table.finish(OURS, key), Err(Fault::Key));
        let lease = table.open(OURS, key, Access::RemoteWrite).unwrap();
        table.revoke(OURS, key).unwrap();
        assert!(matches!(table.open(OURS, key, Access::LocalRead), Err(Fault::Key)));
        assert_eq!((table.finish(OURS, key), table.remove(OURS)), (Ok(false), false));
        lease.write(3, b"still there").unwrap();
        drop(lease);
        assert_eq!((table.finish(OURS, key), table.finish(OURS, key)), (Ok(true), Err(Fault::Key)));
    }

    #[test]
    fn a_reference_postpones_the_end_and_is_within_bounds() {
        let table = table(Limits::default());
        let key = register(&table, OURS, 5000).unwrap();
        let lease = table.open(OURS, key, Access::LocalRead).unwrap();
        assert!(matches!(lease.refer(4000, 1001), Err(Fault::Bounds)));
        assert!(matches!(lease.refer(u64::MAX, 2), Err(Fault::Bounds)));
        let span = lease.refer(4000, 1000).unwrap().unwrap();
        drop(lease);
        table.open(OURS, key, Access::LocalWrite).unwrap().write_span(0, &span, 2..9).unwrap();
        table.revoke(OURS, key).unwrap();
        assert_eq!((table.finish(OURS, key), table.remove(OURS)), (Ok(false), false));
        let copy = span.slice(5, 10);
        drop(span);
        assert_eq!(table.finish(OURS, key), Ok(false));
        drop(copy);
        assert!(table.remove(OURS));
    }

    #[test]
    fn a_key_of_an_earlier_region_opens_none() {
        let table = table(Limits { regions: 1, ..Limits::default() });
        let mut earlier = Vec::new();
        for _ in 0..300 {
            let key = register(&table, OURS, 10).unwrap();
            assert!(table.open(OURS, key, Access::LocalRead).is_ok() && !earlier.contains(&key));
            assert!(earlier.iter().all(|old| table.open(OURS, *old, Access::LocalRead).is_err()));
            table.deregister(OURS, key).unwrap();
            earlier.push(key);
        }
    }
}
