//! The program's side: how a range of its memory is reached, and the descriptors for it.
use crate::description::{AccessPath, Description, Extent, MAX_EXTENTS, MAX_FILES};
use crate::fault::Refusal;
use crate::mapping::Mapping;
use crate::maps::{self, Map};
use crate::rights::Rights;
use rustix::fs::{Mode, OFlags, RawDir, fcntl_getfl, fstat, major, minor, open};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Makes descriptions of this process's memory. Linked into the program by a library of ours; what it states is checked
/// by the data-path all the same.
pub struct Registrar {
    process: u32,
}

/// What is sent to the data-path.
pub struct Prepared {
    /// What was found.
    pub description: Description,
    /// The files that it counts, at most [`MAX_FILES`].
    pub files: Vec<OwnedFd>,
}

impl Registrar {
    /// For this process. A child needs one of its own.
    pub fn new() -> Registrar {
        Registrar { process: std::process::id() }
    }

    /// What the data-path needs once, before the first region: see [`crate::AddressSpace`]. To be sent and closed: a
    /// child that gives up rights after fork would inherit the right to write its parent's memory.
    ///
    /// Refused with `EACCES` where the process may not be inspected (`PR_SET_DUMPABLE` 0: it was started with another
    /// user's rights, for example), and where there is no /proc.
    pub fn address_space(&self) -> Result<OwnedFd, Refusal> {
        self.is_this_process()?;
        Ok(open("/proc/self/mem", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    fn is_this_process(&self) -> Result<(), Refusal> {
        let same = self.process == std::process::id();
        same.then_some(()).ok_or(Refusal::Invalid("the registrar is the parent process's; make another one after fork"))
    }

    /// Describes `len` bytes at `address`. Nothing about the memory changes.
    pub fn prepare(&self, address: u64, len: u64, rights: Rights) -> Result<Prepared, Refusal> {
        self.is_this_process()?;
        if !rights.are_consistent() {
            return Err(Refusal::Invalid("remote write and atomic need local write"));
        }
        let end = address.checked_add(len).ok_or(Refusal::Invalid("it ends beyond the last address"))?;
        if len == 0 {
            return Err(Refusal::Invalid("it has no bytes"));
        }
        let found = maps::cover(&maps::all()?, address, end).map_err(|address| Refusal::NotMapped { address })?;
        let unfit = found.iter().find(|map| !map.readable || (rights.may_write() && !map.writable));
        if let Some(map) = unfit {
            return Err(Refusal::NotMapped { address: map.start });
        }
        let mut files = Files::default();
        let mut extents: Vec<Extent> = Vec::new();
        for map in &found {
            let way = match files.find(map, rights.may_write()) {
                Some(file) => AccessPath::Shared { file, offset: map.offset },
                None => AccessPath::Kernel,
            };
            add(&mut extents, Extent { len: map.end - map.start, way });
        }
        if extents.len() > MAX_EXTENTS {
            // The kernel reaches everything, and does not mind how many mappings there are.
            files.found.clear();
            extents = vec![Extent { len, way: AccessPath::Kernel }];
        }
        let files = files.found.into_iter().map(|(_, fd)| fd).collect();
        Ok(Prepared { description: Description { address, rights, extents }, files })
    }
}

impl Default for Registrar {
    fn default() -> Registrar {
        Registrar::new()
    }
}

/// Adds an extent to those before it; one that goes on where the last one ends becomes part of it.
fn add(extents: &mut Vec<Extent>, next: Extent) {
    if let Some(last) = extents.last_mut() {
        let goes_on = match (last.way, next.way) {
            (AccessPath::Kernel, AccessPath::Kernel) => true,
            (AccessPath::Shared { file, offset }, AccessPath::Shared { file: other, offset: following }) => {
                file == other && offset.checked_add(last.len) == Some(following)
            }
            _ => false,
        };
        if goes_on {
            last.len += next.len;
            return;
        }
    }
    extents.push(next);
}

/// Files that the data-path can map, each once.
#[derive(Default)]
struct Files {
    found: Vec<((u32, u32, u64), OwnedFd)>,
}

impl Files {
    /// The number of the file behind a mapping, if the data-path may map it too and the process still has it open.
    fn find(&mut self, map: &Map, write: bool) -> Option<u32> {
        if !map.shared || map.file.2 == 0 {
            return None;
        }
        if let Some(known) = self.found.iter().position(|(file, _)| *file == map.file) {
            return Some(known as u32);
        }
        if self.found.len() == MAX_FILES {
            return None;
        }
        let fd = descriptor_of(map.file, write)?;
        self.found.push((map.file, fd));
        Some(self.found.len() as u32 - 1)
    }
}

/// A copy of a descriptor that this process has of a file, if it is one that the data-path can map.
fn descriptor_of(file: (u32, u32, u64), write: bool) -> Option<OwnedFd> {
    let folder = open("/proc/self/fd", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // SAFETY: used at once, to inspect and to copy. Another thread may close it meanwhile: then that fails, or it
        // is another file, which `is` finds out of the copy.
        let candidate = unsafe { BorrowedFd::borrow_raw(number) };
        let is = |fd: BorrowedFd<'_>| {
            fstat(fd).is_ok_and(|at| (major(at.st_dev), minor(at.st_dev), at.st_ino) == file)
                && (!write || fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::RDWR)))
        };
        if is(candidate) {
            let Ok(copy) = candidate.try_clone_to_owned() else { continue };
            if is(copy.as_fd()) {
                return Mapping::is_safe(copy.as_fd()).then_some(copy);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_s_registrar_is_refused() {
        let parents = Registrar { process: std::process::id() + 1 };
        let word = 7u64;
        let refused = parents.prepare(&raw const word as u64, 8, Rights::NONE);
        assert!(matches!(refused, Err(Refusal::Invalid(_))) && parents.address_space().is_err());
        assert!(Registrar::new().prepare(&raw const word as u64, 8, Rights::NONE).is_ok());
    }

    #[test]
    fn extents_that_go_on_become_one() {
        let mut extents = Vec::new();
        let shared = |file, offset| AccessPath::Shared { file, offset };
        for (len, way) in [
            (10, AccessPath::Kernel),
            (4096, AccessPath::Kernel),
            (4096, shared(0, 0)),
            (4096, shared(0, 4096)),
            (4096, shared(0, 4096)),
            (4096, shared(1, 8192)),
            (1, AccessPath::Kernel),
        ] {
            add(&mut extents, Extent { len, way });
        }
        let lengths: Vec<u64> = extents.iter().map(|extent| extent.len).collect();
        assert_eq!(lengths, [4106, 8192, 4096, 4096, 1]);
    }
}
