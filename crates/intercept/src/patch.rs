//! Memory: the stubs near the code, and the jumps in it.
use crate::objects::Code;
use crate::sites::{JUMP, Reason, Site};
use crate::stubs;
use shm::system_call;

const PAGE: u64 = 4096;
/// How far from the code stubs may be: a jump reaches 2 GiB, and code and stubs have a length.
const REACH: u64 = 1 << 30;
/// Distance between two places where room for stubs is looked for.
const STEP: u64 = 1 << 20;

/// Makes the stubs of a range's sites and leads the sites there.
///
/// # Safety
/// The sites are whole instructions of the range, which is mapped readable and executable; nobody runs them meanwhile.
pub unsafe fn apply(code: &Code, sites: &[Site], entry: u64) -> Result<(), Reason> {
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
