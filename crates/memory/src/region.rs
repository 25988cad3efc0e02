//! A registered region: bounds, parts, and the copies.
use crate::description::{AccessPath, Description};
use crate::dma::{DmaQueue, Transfer};
use crate::fault::{Fault, Refusal};
use crate::mapping::Mapping;
use crate::rights::Rights;
use crate::space::AddressSpace;
use shm::Span;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

/// Memory of a program as the data-path reaches it. Offsets are counted from the region's first byte.
pub(crate) struct Region {
    address: u64,
    len: u64,
    rights: Rights,
    parts: Box<[Part]>,
}

struct Part {
    /// Its first byte, as an offset in the region.
    start: u64,
    len: u64,
    backing: Backing,
}

/// What a part is made of.
enum Backing {
    /// The program's addresses, and where the part begins.
    Kernel(Arc<AddressSpace>, u64),
    Shared(Mapping),
    /// A device's memory, from an address of the device's on. It is the only part of its region.
    Device(DeviceMemory),
}

/// Memory that only copies of a DMA queue reach.
struct DeviceMemory {
    queue: Arc<DmaQueue>,
    address: u64,
    /// Held by each copy that is under way, too.
    whose: Arc<()>,
}

impl Region {
    /// `len` bytes of a device's memory, from an address of the device's on.
    pub(crate) fn of_device(queue: &Arc<DmaQueue>, address: u64, len: u64, rights: Rights) -> Result<Region, Refusal> {
        if len == 0 || address.checked_add(len).is_none() {
            return Err(Refusal::Invalid("it has no bytes, or ends beyond the last address"));
        }
        if !rights.are_consistent() {
            return Err(Refusal::Invalid("remote write and atomic need local write"));
        }
        let backing = Backing::Device(DeviceMemory { queue: Arc::clone(queue), address, whose: Arc::new(()) });
        Ok(Region { address, len, rights, parts: Box::new([Part { start: 0, len, backing }]) })
    }

    fn device(&self) -> Option<&DeviceMemory> {
        match &*self.parts {
            [Part { backing: Backing::Device(device), .. }] => Some(device),
            _ => None,
        }
    }

    /// The queue of the device whose memory it is.
    pub(crate) fn queue(&self) -> Option<&Arc<DmaQueue>> {
        self.device().map(|device| &device.queue)
    }

    /// Starts to write into a device's memory; writes at once into other memory.
    pub(crate) fn start_write(&self, at: u64, from: &[u8]) -> Result<Option<Arc<Transfer>>, Fault> {
        let Some(device) = self.device() else { return self.write(at, from).map(|()| None) };
        self.bounds(at, from.len())?;
        device.queue.write(device.address + at, from, &device.whose).map(Some)
    }

    /// The same of a part of what a span refers to.
    pub(crate) fn start_write_span(
        &self,
        at: u64,
        span: &Span,
        part: Range<usize>,
    ) -> Result<Option<Arc<Transfer>>, Fault> {
        let Some(device) = self.device() else { return self.write_span(at, span, part).map(|()| None) };
        self.bounds(at, part.len())?;
        device.queue.write_span(device.address + at, span, part, &device.whose).map(Some)
    }

    /// Starts to read a device's memory; `None` for other memory.
    pub(crate) fn start_read(&self, at: u64, len: usize) -> Result<Option<Arc<Transfer>>, Fault> {
        let Some(device) = self.device() else { return Ok(None) };
        self.bounds(at, len)?;
        device.queue.read(device.address + at, len, &device.whose).map(Some)
    }

    /// Checks what a program states, and maps what can be mapped.
    pub(crate) fn new(
        description: &Description,
        files: &[OwnedFd],
        space: Option<&Arc<AddressSpace>>,
    ) -> Result<Region, Refusal> {
        let len = description.check(files.len())?;
        let (mut parts, mut start) = (Vec::with_capacity(description.extents.len()), 0);
        for extent in &description.extents {
            let backing = match extent.way {
                AccessPath::Kernel => {
                    let space =
                        space.ok_or(Refusal::Descriptor("the program has not handed over its address space"))?;
                    Backing::Kernel(Arc::clone(space), description.address + start)
                }
                AccessPath::Shared { file, offset } => {
                    let file = files[file as usize].as_fd();
                    Backing::Shared(Mapping::new(file, offset, extent.len, description.rights.may_write())?)
                }
            };
            parts.push(Part { start, len: extent.len, backing });
            start += extent.len;
        }
        Ok(Region { address: description.address, len, rights: description.rights, parts: parts.into() })
    }

    #[inline]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// Bytes that the data-path has mapped.
    pub(crate) fn mapped(&self) -> u64 {
        self.parts.iter().filter(|part| matches!(part.backing, Backing::Shared(_))).map(|part| part.len).sum()
    }

    /// Every byte is mapped: no access makes a system call, or waits for anybody.
    pub(crate) fn is_mapped(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.backing, Backing::Shared(_)))
    }

    #[inline]
    pub(crate) fn bounds(&self, at: u64, len: usize) -> Result<(), Fault> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Fault::Bounds),
        }
    }

    #[inline]
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: the same bytes; only whole, written ones are put there.
        self.fill(at, unsafe { &mut *(std::ptr::from_mut(into) as *mut [MaybeUninit<u8>]) })
    }

    /// Appends `len` bytes from `at` on; nothing where it fails.
    #[inline]
    pub(crate) fn append(&self, at: u64, len: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
        // First the bounds: a length may be anything.
        self.bounds(at, len)?;
        if let [Part { backing: Backing::Shared(mapping), .. }] = &*self.parts {
            mapping.append(at, len, into);
            return Ok(());
        }
        into.reserve(len);
        self.fill(at, &mut into.spare_capacity_mut()[..len])?;
        // SAFETY: so many bytes of the spare capacity were just written.
        unsafe { into.set_len(into.len() + len) };
        Ok(())
    }

    /// Writes all of `into`, where it succeeds.
    #[inline]
    fn fill(&self, at: u64, into: &mut [MaybeUninit<u8>]) -> Result<(), Fault> {
        self.bounds(at, into.len())?;
        self.each(at, into.len(), |backing, from, done, count| match backing {
            Backing::Kernel(space, address) => space.read(address + from, &mut into[done..done + count]),
            Backing::Device(_) => Err(Fault::Device),
            Backing::Shared(mapping) => {
                mapping.read(from, &mut into[done..done + count]);
                Ok(())
            }
        })
    }

    #[inline]
    pub(crate) fn write(&self, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.bounds(at, from.len())?;
        if let [Part { backing: Backing::Shared(mapping), .. }] = &*self.parts {
            mapping.write(at, from);
            return Ok(());
        }
        self.each(at, from.len(), |backing, to, done, count| match backing {
            Backing::Kernel(space, address) => space.write(address + to, &from[done..done + count]),
            Backing::Device(_) => Err(Fault::Device),
            Backing::Shared(mapping) => {
                mapping.write(to, &from[done..done + count]);
                Ok(())
            }
        })
    }

    /// Writes a part of what a span refers to.
    #[inline]
    pub(crate) fn write_span(&self, at: u64, span: &Span, part: Range<usize>) -> Result<(), Fault> {
        self.bounds(at, part.len())?;
        if let [Part { backing: Backing::Shared(mapping), .. }] = &*self.parts {
            mapping.write_span(at, span, part);
            return Ok(());
        }
        self.write(at, &bytes_of(span, part))
    }

    /// Writes as [`Region::write_span`], and the last byte shows after all others.
    #[inline]
    pub(crate) fn write_span_last(&self, at: u64, span: &Span, part: Range<usize>) -> Result<(), Fault> {
        self.bounds(at, part.len())?;
        if let [Part { backing: Backing::Shared(mapping), .. }] = &*self.parts {
            mapping.write_span_last(at, span, part);
            return Ok(());
        }
        self.write_last(at, &bytes_of(span, part))
    }

    /// Bytes by reference, where they are mapped and lie so that this can be.
    #[inline]
    pub(crate) fn refer(&self, at: u64, len: usize) -> Option<Span> {
        self.bounds(at, len).ok().filter(|()| len > 0)?;
        let part = &self.parts[self.part_at(at)];
        match &part.backing {
            Backing::Shared(mapping) if at + len as u64 <= part.start + part.len => mapping.refer(at - part.start, len),
            _ => None,
        }
    }

    /// Somebody refers to bytes of it, or copies some.
    pub(crate) fn is_referred_to(&mut self) -> bool {
        self.parts.iter_mut().any(|part| match &mut part.backing {
            Backing::Shared(mapping) => mapping.is_referred_to(),
            Backing::Kernel(..) => false,
            Backing::Device(device) => Arc::get_mut(&mut device.whose).is_none(),
        })
    }

    /// Writes as [`Region::write`], and the last byte shows after all others.
    #[inline]
    pub(crate) fn write_last(&self, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.bounds(at, from.len())?;
        if let [Part { backing: Backing::Shared(mapping), .. }] = &*self.parts {
            mapping.write_last(at, from);
            return Ok(());
        }
        let Some((last, others)) = from.split_last() else { return Ok(()) };
        self.write(at, others)?;
        fence(SeqCst);
        self.write(at + others.len() as u64, std::slice::from_ref(last))
    }

    /// Replaces the word at `at` by what `change` makes of it, unless that is `None`, and returns what it was.
    pub(crate) fn update(&self, at: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, Fault> {
        self.bounds(at, 8)?;
        if self.address.wrapping_add(at) % 8 != 0 {
            return Err(Fault::Alignment);
        }
        let part = &self.parts[self.part_at(at)];
        match &part.backing {
            Backing::Kernel(space, address) => space.update(address + (at - part.start), change),
            Backing::Shared(mapping) => Ok(mapping.update(at - part.start, change)),
            Backing::Device(_) => Err(Fault::Device),
        }
    }

    /// The part that holds byte `at`, which is in the region.
    #[inline]
    fn part_at(&self, at: u64) -> usize {
        match self.parts.len() {
            1 => 0,
            _ => self.parts.partition_point(|part| part.start <= at) - 1,
        }
    }

    /// Calls `copy` for what lies in each part: what backs it, offset in the part, bytes done before, bytes.
    #[inline]
    fn each(
        &self,
        at: u64,
        len: usize,
        mut copy: impl FnMut(&Backing, u64, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        let mut done = 0;
        for part in &self.parts[self.part_at(at)..] {
            let from = at + done as u64 - part.start;
            let count = (len - done).min(usize::try_from(part.len - from).unwrap_or(usize::MAX));
            copy(&part.backing, from, done, count)?;
            done += count;
            if done == len {
                break;
            }
        }
        Ok(())
    }
}

/// A copy of a part of what a span refers to.
fn bytes_of(span: &Span, part: Range<usize>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len());
    span.slice(part.start as u32, part.len() as u32).append(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Extent;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use shm::PAGE;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const PAGES: u64 = 8;

    fn sealed() -> OwnedFd {
        let fd = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, PAGES * PAGE as u64).unwrap();
        fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
        fd
    }

    /// Pages of one file as a region in any order, from byte `lead` of the first one to byte `tail` of the last.
    fn scattered(order: &[u64], lead: u64, tail: u64, files: &[OwnedFd]) -> Region {
        let page = PAGE as u64;
        let last = order.len() - 1;
        let extents = order.iter().enumerate().map(|(index, number)| {
            let begin = if index == 0 { lead } else { 0 };
            let end = if index == last { tail } else { page };
            Extent { len: end - begin, way: AccessPath::Shared { file: 0, offset: number * page + begin } }
        });
        let rights = Rights::LOCAL_WRITE;
        let description = Description { address: 7 * page + lead, rights, extents: extents.collect() };
        Region::new(&description, files, None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_copy_touches_its_bytes_and_no_other(
            order in Just((0..PAGES).collect::<Vec<_>>()).prop_shuffle(),
            count in 2usize..=PAGES as usize,
            lead in 0u64..4096,
            tail in 1u64..=4096,
            at in prop_oneof![0u64..40_000, any::<u64>()],
            len in 0usize..20_000,
        ) {
            let files = [sealed()];
            let order = &order[..count];
            let region = scattered(order, lead, tail, &files);
            let all = (count as u64 - 1) * 4096 + tail - lead;
            prop_assert_eq!(region.len(), all);
            let inside = at.checked_add(len as u64).is_some_and(|end| end <= all);
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            prop_assert_eq!(region.write(at, &bytes), if inside { Ok(()) } else { Err(Fault::Bounds) });
            let mut copy = vec![0; len];
            prop_assert_eq!(region.read(at, &mut copy).is_ok(), inside);
            prop_assert!(!inside || copy == bytes);
            // The file itself, page by page in the region's order.
            let file = File::from(files[0].try_clone().unwrap());
            let mut whole = vec![0; PAGES as usize * PAGE];
            file.read_exact_at(&mut whole, 0).unwrap();
            let expected = if inside { bytes.iter().filter(|byte| **byte != 0).count() } else { 0 };
            prop_assert_eq!(whole.iter().filter(|byte| **byte != 0).count(), expected);
            if inside {
                for (index, byte) in bytes.iter().enumerate() {
                    let place = lead + at + index as u64;
                    let page = order[(place / 4096) as usize];
                    prop_assert_eq!(whole[(page * 4096 + place % 4096) as usize], *byte);
                }
            }
        }

        #[test]
        fn an_atomic_needs_its_eight_bytes_and_their_alignment(lead in 0u64..4096, at in 0u64..10_000) {
            let region = scattered(&[2, 0], lead, 4000, &[sealed()]);
            let added = region.update(at, |word| Some(word + 5));
            let expected = match at {
                _ if at + 8 > 8096 - lead => Err(Fault::Bounds),
                _ if (lead + at) % 8 != 0 => Err(Fault::Alignment),
                _ => Ok(0),
            };
            prop_assert_eq!(added, expected);
            prop_assert_eq!(region.update(at, |_| None), expected.map(|_| 5));
        }
    }
}
