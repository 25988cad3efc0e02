//! Memory: the stubs near the code, and the jumps in it.
use crate::objects::Code;
use crate::sites::{JUMP, Reason, Site};
use crate::stubs;
use shm::system_call;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

const PAGE: u64 = 4096;
/// How far from the code stubs may be: a jump reaches 2 GiB, and code and stubs have a length.
const REACH: u64 = 1 << 30;
/// Distance between two places that are tried as room for stubs.
const STEP: u64 = 1 << 20;

/// Makes the stubs of a range's sites and leads the sites there.
///
/// # Safety
/// The sites are whole instructions of the range, which is mapped readable and executable; nobody runs them meanwhile.
pub(crate) unsafe fn apply(code: &Code, sites: &[Site], entry: u64) -> Result<(), Reason> {
    if sites.is_empty() {
        return Ok(());
    }
    let len = (stubs::HEAD + sites.len() * stubs::MOST).next_multiple_of(PAGE as usize);
    let address = near(code, len).ok_or(Reason::Memory)?;
    // SAFETY: the caller's range.
    let bytes = unsafe { code.bytes() };
    let mut area = Vec::with_capacity(len);
    area.extend(entry.to_le_bytes());
    area.resize(16, 0xcc);
    let mut jumps = Vec::with_capacity(sites.len());
    for site in sites {
        let original = &bytes[(site.start - code.start) as usize..(site.end - code.start) as usize];
        let stub = stubs::add(&mut area, address, site, original).ok_or(Reason::Memory)?;
        jumps.push((site.start, stubs::jump(site, stub).ok_or(Reason::Memory)?));
    }
    assert!(area.len() <= len, "the stubs are longer than the room for them");
    // SAFETY: the area is fresh and has room; the range is the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping(
            area.as_ptr(),
            std::ptr::with_exposed_provenance_mut(address as usize),
            area.len(),
        );
        protect(address, len, libc::PROT_READ | libc::PROT_EXEC)?;
        rewrite(code, &jumps)
    }
}

/// Fresh memory, readable and writable, in reach of a range of code.
fn near(code: &Code, len: usize) -> Option<u64> {
    let end = (code.start + code.len as u64).next_multiple_of(PAGE);
    let below = (0..REACH / STEP).map(|step| (code.start & !(PAGE - 1)).checked_sub(len as u64 + step * STEP));
    let above = (0..REACH / STEP).map(|step| end.checked_add(step * STEP));
    below.zip(above).flat_map(|(below, above)| [below, above]).flatten().find(|address| map(*address, len))
}

/// Maps memory at an address where nothing is.
fn map(address: u64, len: usize) -> bool {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as usize;
    // SAFETY: does not replace what is mapped.
    let got = unsafe { system_call::raw(libc::SYS_mmap, [address as usize, len, prot, flags, usize::MAX, 0]) };
    if got >= 0 && got as u64 != address {
        // A kernel older than 4.17 takes the address for a wish.
        // SAFETY: just mapped.
        unsafe { system_call::raw(libc::SYS_munmap, [got as usize, len, 0, 0, 0, 0]) };
    }
    got as u64 == address
}

/// Changes the protection of whole pages.
unsafe fn protect(address: u64, len: usize, protection: libc::c_int) -> Result<(), Reason> {
    let first = address & !(PAGE - 1);
    let len = (address + len as u64).next_multiple_of(PAGE) - first;
    let arguments = [first as usize, len as usize, protection as usize, 0, 0, 0];
    // SAFETY: the caller's memory.
    let result = unsafe { system_call::raw(libc::SYS_mprotect, arguments) };
    if result < 0 { Err(Reason::Memory) } else { Ok(()) }
}

/// Writes the jumps. Pages without one stay shared with other processes.
unsafe fn rewrite(code: &Code, jumps: &[(u64, [u8; JUMP as usize])]) -> Result<(), Reason> {
    let plain = libc::PROT_READ | libc::PROT_EXEC;
    let end = (code.start + code.len as u64).next_multiple_of(PAGE);
    for (at, jump) in jumps {
        let page = at & !(PAGE - 1);
        let len = (2 * PAGE).min(end - page) as usize;
        // SAFETY: pages of the caller's range. They stay executable: the C library may be what is changed.
        unsafe {
            protect(page, len, plain | libc::PROT_WRITE)?;
            let place = std::ptr::with_exposed_provenance_mut::<u8>(*at as usize);
            jump.iter().enumerate().for_each(|(offset, byte)| place.add(offset).write_volatile(*byte));
            protect(page, len, plain)?;
        }
    }
    Ok(())
}

/// Bytes that a processor writes and fetches as a whole.
const LINE: u64 = 64;
/// `jmp [rip]`, and the address behind it.
const HOP: usize = 16;
/// Pages with hops that there may be.
const PAGES: usize = 32;

/// Pages with jumps to stubs that are out of reach, and how many bytes of each are used.
static HOPS: [(AtomicU64, AtomicUsize); PAGES] = [const { (AtomicU64::new(0), AtomicUsize::new(0)) }; PAGES];

/// Whether a jump at an address can be written at once.
pub(crate) fn is_one_line(at: u64) -> bool {
    at / LINE == (at + JUMP - 1) / LINE
}

/// Writes into executable pages of private memory, which stay executable meanwhile.
///
/// # Safety
/// The range is the caller's, and what runs in it does the same before and after.
pub(crate) unsafe fn write(at: u64, bytes: &[u8]) -> Result<(), Reason> {
    let plain = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: the caller's range.
    unsafe {
        protect(at, bytes.len(), plain | libc::PROT_WRITE)?;
        let place = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        bytes.iter().enumerate().for_each(|(offset, byte)| place.add(offset).write_volatile(*byte));
        protect(at, bytes.len(), plain)
    }
}

/// Replaces five bytes within a line of memory by a jump to a stub, at once: other threads may run them. One thread at
/// a time.
///
/// # Safety
/// The bytes are of the mapping `code`, readable and executable; the stub does what they do.
pub(crate) unsafe fn lead(at: u64, stub: u64, code: Range<u64>) -> Result<(), Reason> {
    let reachable = |to: u64| i32::try_from(to.wrapping_sub(at + JUMP) as i64).ok();
    let distance = match reachable(stub) {
        Some(distance) => distance,
        // SAFETY: nothing leads to a hop before it is written.
        None => reachable(unsafe { hop(stub, &code) }?).ok_or(Reason::Memory)?,
    };
    let first = at.min((at & !(LINE - 1)) + LINE - 8);
    let place = std::ptr::with_exposed_provenance_mut::<u64>(first as usize);
    let plain = libc::PROT_READ | libc::PROT_EXEC;
    let end = code.end;
    debug_assert!(first >= code.start && first + 8 <= end.next_multiple_of(PAGE));
    // SAFETY: eight bytes of one line of the caller's mapping.
    unsafe {
        protect(first, 8, plain | libc::PROT_WRITE)?;
        let mut bytes = place.read_unaligned().to_le_bytes();
        let offset = (at - first) as usize;
        bytes[offset] = 0xe9;
        bytes[offset + 1..offset + JUMP as usize].copy_from_slice(&distance.to_le_bytes());
        std::arch::asm!("mov [{}], {}", in(reg) place, in(reg) u64::from_le_bytes(bytes), options(nostack, preserves_flags));
        protect(first, 8, plain)
    }
}

/// A jump to a stub, in reach of a mapping.
unsafe fn hop(stub: u64, code: &Range<u64>) -> Result<u64, Reason> {
    let object = Code { start: code.start, len: (code.end - code.start) as usize };
    let is_near = |page: u64| page.abs_diff(code.start).max(page.abs_diff(code.end)) < 2 * REACH - PAGE;
    for (page, used) in &HOPS {
        let mut at = page.load(Relaxed);
        if at == 0 {
            at = near(&object, PAGE as usize).ok_or(Reason::Memory)?;
            page.store(at, Relaxed);
        }
        let offset = used.load(Relaxed);
        if !is_near(at) || offset + HOP > PAGE as usize {
            continue;
        }
        let mut bytes = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[6..].copy_from_slice(&stub.to_le_bytes());
        // SAFETY: bytes of a page of our own that nothing leads to yet.
        unsafe { write(at + offset as u64, &bytes)? };
        used.store(offset + HOP, Relaxed);
        return Ok(at + offset as u64);
    }
    Err(Reason::Memory)
}
