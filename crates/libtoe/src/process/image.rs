//! Programs that are linked statically: the dynamic linker does not load them, and nothing is preloaded into them. So
//! this library loads them itself, into a process that the dynamic linker made for it (docs/SYSTEM-CALLS.md).
use context::elf::{self, Elf, ProgramHeader};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

const PAGE: u64 = 4096;

/// A program in memory.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its entry point.
    pub entry: u64,
    /// Its program headers, and how many there are.
    headers: u64,
    count: u64,
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what)
}

/// Loads a static program.
///
/// # Errors
/// The system's, or a sentence where the file is none.
pub(crate) fn load(file: &File) -> io::Result<Image> {
    let elf = Elf::read(file)?.filter(Elf::is_own).ok_or_else(|| wrong("it is no program for this processor"))?;
    if elf.segment(elf::PT_INTERP).is_some() {
        return Err(wrong("it is linked dynamically"));
    }
    let loads = || elf.segments.iter().filter(|segment| segment.kind == elf::PT_LOAD);
    let start = loads().map(|segment| segment.address & !(PAGE - 1)).min().ok_or_else(|| wrong("it has no code"))?;
    let end = loads().filter_map(|segment| segment.address.checked_add(segment.in_memory)).max().unwrap_or(start);
    let room = match elf.kind {
        elf::ET_EXEC => reserve(start, end - start)?,
        elf::ET_DYN => reserve(0, end - start)?,
        _ => return Err(wrong("it is no program")),
    };
    let base = room.wrapping_sub(start);
    loads().try_for_each(|segment| map(file, segment, base))?;
    let at = elf.headers_at;
    let inside = |segment: &&ProgramHeader| (segment.offset..segment.offset + segment.in_file).contains(&at);
    let headers = loads().find(inside).map_or(0, |segment| base.wrapping_add(segment.address + at - segment.offset));
    Ok(Image { entry: base.wrapping_add(elf.entry), headers, count: elf.segments.len() as u64 })
}

fn reserve(address: u64, len: u64) -> io::Result<u64> {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    let at = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: replaces nothing.
    let got = unsafe { libc::mmap(at, len as usize, libc::PROT_NONE, flags, -1, 0) };
    if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(got.expose_provenance() as u64) }
}

fn map(file: &File, segment: &ProgramHeader, base: u64) -> io::Result<()> {
    let flag = |bit: u32, protection: i32| if segment.flags & bit != 0 { protection } else { 0 };
    let protection =
        flag(libc::PF_R, libc::PROT_READ) | flag(libc::PF_W, libc::PROT_WRITE) | flag(libc::PF_X, libc::PROT_EXEC);
    let start = base.wrapping_add(segment.address);
    let (page, skipped) = (start & !(PAGE - 1), start & (PAGE - 1));
    let place = |address: u64, len: u64, flags: i32, fd: i32, offset: u64| {
        let at = std::ptr::with_exposed_provenance_mut(address as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | flags;
        // SAFETY: within the range that was reserved for the program.
        let got = unsafe { libc::mmap(at, len as usize, protection, flags, fd, offset as i64) };
        if got == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    let in_file = (skipped + segment.in_file).next_multiple_of(PAGE);
    if segment.in_file > 0 {
        place(page, skipped + segment.in_file, 0, file.as_raw_fd(), segment.offset.wrapping_sub(skipped))?;
    }
    let all = (skipped + segment.in_memory).next_multiple_of(PAGE);
    let from = if segment.in_file > 0 { in_file } else { 0 };
    if all > from {
        place(page + from, all - from, libc::MAP_ANONYMOUS, -1, 0)?;
    }
    if segment.in_memory > segment.in_file && segment.in_file > 0 && protection & libc::PROT_WRITE != 0 {
        let rest = (start + segment.in_file)..(page + in_file);
        // SAFETY: the end of the segment's last page of the file, which is private and writable.
        unsafe {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(rest.start as usize);
            at.write_bytes(0, (rest.end - rest.start) as usize);
        }
    }
    Ok(())
}

/// Arguments of the program, on its stack.
pub(crate) struct Arguments<'a> {
    /// Its path.
    pub path: &'a CStr,
    /// Its words.
    pub words: &'a [CString],
    /// Its environment.
    pub environment: &'a [CString],
}

/// Makes the program's stack as the kernel does (System V psABI, "Initial Process Stack"). Returns the stack pointer.
///
/// # Errors
/// The system's, where there is no memory.
pub(crate) fn stack(image: &Image, arguments: &Arguments) -> io::Result<u64> {
    let len = stack_len();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: replaces nothing.
    let low = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    if low == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut stack = Stack { low: low.expose_provenance(), at: low.expose_provenance() + len };
    let path = stack.text(arguments.path)?;
    let words = arguments.words.iter().map(|word| stack.text(word)).collect::<io::Result<Vec<u64>>>()?;
    let environment = arguments.environment.iter().map(|word| stack.text(word)).collect::<io::Result<Vec<u64>>>()?;
    let mut all = vec![words.len() as u64];
    all.extend(words.into_iter().chain([0]).chain(environment).chain([0]));
    for [kind, value] in auxiliary()? {
        let value = match kind {
            libc::AT_PHDR => image.headers,
            libc::AT_PHNUM => image.count,
            libc::AT_BASE => 0,
            libc::AT_ENTRY => image.entry,
            libc::AT_EXECFN => path,
            _ => value,
        };
        all.extend([kind, value]);
    }
    stack.at &= !15;
    stack.at -= (all.len() * 8).next_multiple_of(16);
    let bytes: Vec<u8> = all.iter().flat_map(|word| word.to_le_bytes()).collect();
    stack.write(stack.at, &bytes)?;
    Ok(stack.at as u64)
}

/// The auxiliary vector of this process, with its end.
fn auxiliary() -> io::Result<Vec<[u64; 2]>> {
    let bytes = std::fs::read("/proc/self/auxv")?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| word.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))).collect();
    Ok(words.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
}

/// Bytes of the program's stack.
fn stack_len() -> usize {
    const USUAL: u64 = 8 << 20;
    let mut limit = libc::rlimit { rlim_cur: USUAL, rlim_max: USUAL };
    // SAFETY: a local.
    unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) };
    // Without a limit, the kernel's stack grows as far as there is room.
    limit.rlim_cur.clamp(1 << 20, 64 << 20) as usize & !(PAGE as usize - 1)
}

/// A stack that is being written, from above.
struct Stack {
    low: usize,
    at: usize,
}

impl Stack {
    fn text(&mut self, text: &CStr) -> io::Result<u64> {
        self.at = self.at.saturating_sub(text.to_bytes_with_nul().len());
        self.write(self.at, text.to_bytes_with_nul())?;
        Ok(self.at as u64)
    }

    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        if at < self.low {
            return Err(io::Error::from_raw_os_error(libc::E2BIG));
        }
        let place = std::ptr::with_exposed_provenance_mut::<u8>(at);
        // SAFETY: within the stack.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}
