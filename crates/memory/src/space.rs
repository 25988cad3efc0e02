//! A program's address space, reached through the kernel.
use crate::fault::{Fault, Refusal};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, fstatfs, readlink};
use rustix::io::{Errno, pread, pwrite};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// `PROC_SUPER_MAGIC` of <linux/magic.h>.
const PROC_MAGIC: u64 = 0x9fa0;

/// The address space that a program had when it opened its own `/proc/self/mem` and handed the descriptor over.
///
/// The descriptor names the address space, not the process: after `execve` or exit every access fails, and no number of
/// a process can come to mean another one. It needs no privilege: the program had the right, and gave it away.
pub struct AddressSpace {
    mem: OwnedFd,
    /// Held during atomic operations: each is a read and a write.
    atomics: Mutex<()>,
}

impl AddressSpace {
    /// Takes the descriptor of a program that is not trusted. Looking at a descriptor, and closing it, may wait for the
    /// program where it is a file that the program itself serves (FUSE): not for a thread that others wait for.
    pub fn from_fd(mem: OwnedFd) -> Result<AddressSpace, Refusal> {
        let wrong = Refusal::Descriptor("the first descriptor is not the program's /proc/self/mem, open for both");
        let name = readlink(format!("/proc/self/fd/{}", mem.as_raw_fd()), Vec::new())?;
        // First what nobody else answers.
        if !is_mem(name.as_bytes()) || !fcntl_getfl(&mem)?.contains(OFlags::RDWR) {
            return Err(wrong);
        }
        let regular = FileType::from_raw_mode(fstat(&mem)?.st_mode) == FileType::RegularFile;
        if !regular || fstatfs(&mem)?.f_type as u64 != PROC_MAGIC {
            return Err(wrong);
        }
        Ok(AddressSpace { mem, atomics: Mutex::new(()) })
    }

    /// Copies out of the program, one system call. All of `into` is written where it succeeds.
    pub(crate) fn read(&self, address: u64, into: &mut [MaybeUninit<u8>]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            match pread(&self.mem, &mut into[done..], address + done as u64) {
                // The address space is gone.
                Ok(([], _)) => return Err(Fault::Unmapped),
                Ok((bytes, _)) => done += bytes.len(),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Fault::Unmapped),
            }
        }
        Ok(())
    }

    /// Copies into the program, one system call.
    pub(crate) fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            match pwrite(&self.mem, &from[done..], address + done as u64) {
                Ok(0) => return Err(Fault::Unmapped),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Fault::Unmapped),
            }
        }
        Ok(())
    }

    /// Replaces the word at `address` by what `change` makes of it, unless that is `None`, and returns what it was.
    /// Atomic among the data-path's own atomic operations on this address space only.
    pub(crate) fn update(&self, address: u64, change: impl Fn(u64) -> Option<u64>) -> Result<u64, Fault> {
        let _held = self.atomics.lock().unwrap_or_else(PoisonError::into_inner);
        let mut word = [MaybeUninit::new(0); 8];
        self.read(address, &mut word)?;
        // SAFETY: written when it was made, whatever the read did.
        let before = u64::from_ne_bytes(word.map(|byte| unsafe { byte.assume_init() }));
        if let Some(after) = change(before) {
            self.write(address, &after.to_ne_bytes())?;
        }
        Ok(before)
    }
}

/// `/proc/PID/mem` or `/proc/PID/task/TID/mem`, whatever the program's /proc is called here.
fn is_mem(name: &[u8]) -> bool {
    let mut parts = name.rsplit(|byte| *byte == b'/');
    let last = parts.next();
    let number = |part: Option<&[u8]>| part.is_some_and(|p| !p.is_empty() && p.iter().all(u8::is_ascii_digit));
    last == Some(b"mem") && number(parts.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::OwnedFd;

    fn opened(path: &str, write: bool) -> OwnedFd {
        OpenOptions::new().read(true).write(write).open(path).unwrap().into()
    }

    #[test]
    fn only_an_address_space_is_taken() {
        assert!(AddressSpace::from_fd(opened("/proc/self/mem", true)).is_ok());
        assert!(AddressSpace::from_fd(opened("/proc/self/mem", false)).is_err());
        assert!(AddressSpace::from_fd(opened("/proc/self/comm", true)).is_err());
        assert!(AddressSpace::from_fd(opened("/dev/null", true)).is_err());
        let folder = std::env::temp_dir().join(format!("toe-memory-{}", std::process::id())).join("17");
        std::fs::create_dir_all(&folder).unwrap();
        let imitation = File::options().read(true).write(true).create(true).truncate(true).open(folder.join("mem"));
        assert!(AddressSpace::from_fd(imitation.unwrap().into()).is_err());
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_range_that_is_not_mapped_is_a_fault() {
        let space = AddressSpace::from_fd(opened("/proc/self/mem", true)).unwrap();
        let (word, mut copy) = (0x1234_5678u32, [MaybeUninit::new(0); 4]);
        space.read(&raw const word as u64, &mut copy).unwrap();
        // SAFETY: written when it was made.
        assert_eq!(u32::from_ne_bytes(copy.map(|byte| unsafe { byte.assume_init() })), word);
        assert_eq!(space.read(0, &mut copy), Err(Fault::Unmapped));
        assert_eq!(space.write(u64::MAX - 3, &[0; 4]), Err(Fault::Unmapped));
    }
}
