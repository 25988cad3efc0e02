//! Linkage of a program's file: a library can be preloaded into some, must load others itself, and has no way into the
//! rest.
use crate::elf::{self, Elf};
use std::fs::File;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Linkage of a program's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linkage {
    /// Dynamically, or it is no ELF file: a script's interpreter most often is.
    Dynamic,
    /// Statically, for x86-64.
    Static,
    /// For another architecture, 32 bits among them.
    Foreign,
    /// It runs with another user's rights, and the dynamic linker preloads nothing into it.
    OfAnotherUser,
}

impl Linkage {
    /// Why a program stays on the kernel's TCP, as the end of a sentence that begins with "it". `symbols`: only the C
    /// library's functions are interposed.
    pub fn obstacle(self, symbols: bool) -> Option<&'static str> {
        match self {
            Linkage::Dynamic => None,
            Linkage::Static if !symbols => None,
            Linkage::Static => Some("is linked statically; --intercept syscalls carries such programs"),
            Linkage::Foreign => Some("is no 64-bit program for this machine"),
            Linkage::OfAnotherUser => {
                Some("runs with the rights of its owner, and no library can be put in front of it")
            }
        }
    }
}

/// Reads a program's file. One that cannot be read counts as linked dynamically.
pub fn linkage(path: &Path) -> Linkage {
    read(path).unwrap_or(Linkage::Dynamic)
}

fn read(path: &Path) -> Option<Linkage> {
    let file = File::open(path).ok()?;
    if changes_user(&file.metadata().ok()?)? {
        return Some(Linkage::OfAnotherUser);
    }
    if !cfg!(target_arch = "x86_64") {
        return Some(Linkage::Dynamic);
    }
    let Some(elf) = Elf::read(&file).ok()? else { return Some(Linkage::Dynamic) };
    if !elf.is_own() {
        return Some(Linkage::Foreign);
    }
    let has = |kind: u32| elf.segment(kind).is_some();
    // Without an interpreter, a file that is not bound to an address is a static program or the dynamic linker itself.
    let is_linker = || path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld"));
    let is_static = !has(elf::PT_INTERP) && (elf.kind == elf::ET_EXEC || has(elf::PT_DYNAMIC) && !is_linker());
    Some(if is_static { Linkage::Static } else { Linkage::Dynamic })
}

/// Whether a program gets other rights than this process has (execve(2)).
fn changes_user(file: &Metadata) -> Option<bool> {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    // proc(5): it belongs to the effective user and group.
    let own = std::fs::metadata("/proc/self").ok()?;
    let changes_group = file.mode() & SET_GROUP == SET_GROUP && file.gid() != own.gid();
    Some(changes_group || file.mode() & SET_USER != 0 && file.uid() != own.uid())
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished() {
        assert_eq!(linkage(&std::env::current_exe().unwrap()), Linkage::Dynamic);
        assert_eq!(linkage(Path::new("/no/such/program")), Linkage::Dynamic);
        let file = std::env::temp_dir().join(format!("linkage-{}", std::process::id()));
        let write = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            linkage(&file)
        };
        let mut header = [0u8; 120];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (header[16], header[18], header[32], header[54], header[56]) = (2, 62, 64, 56, 1);
        assert_eq!(write(&header), Linkage::Static);
        header[64] = 3;
        assert_eq!(write(&header), Linkage::Dynamic);
        header[18] = 183;
        assert_eq!(write(&header), Linkage::Foreign);
        (header[18], header[4]) = (3, 1);
        assert_eq!(write(&header), Linkage::Foreign);
        assert_eq!(write(b"#!/bin/sh\n"), Linkage::Dynamic);
        std::fs::remove_file(&file).unwrap();
    }
}
