//! Inspection of a program's file, for how it will run under libtoe: `opentoe doctor PROGRAM`, and `opentoe why PID` of
//! a process that has no context.
use context::elf::Elf;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Extent to which the program's TCP runs on OpenTOE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As it should.
    Fine,
    /// With an exception.
    Partly,
    /// Not at all.
    Not,
}

/// A finding in the file.
#[derive(Debug)]
pub(crate) struct Remark {
    pub what: &'static str,
    pub kind: Kind,
    /// What was found, why that matters, and what to do.
    pub text: String,
}

fn remark(what: &'static str, kind: Kind, text: impl Into<String>) -> Remark {
    Remark { what, kind, text: text.into() }
}

/// What remarks about static programs are about.
pub(crate) const STATIC: &str = "static";
/// And about dynamic ones in Go.
pub(crate) const GO: &str = "Go";

/// Scripts that name scripts, at most.
const DEPTH: usize = 4;
/// Most bytes of a file in which names are searched.
const MOST: u64 = 64 << 20;

/// Inspects a program's file. Fails with a sentence where it cannot be read.
pub(crate) fn inspect(path: &Path) -> Result<Vec<Remark>, String> {
    let mut remarks = Vec::new();
    let mut path = path.to_path_buf();
    for _ in 0..DEPTH {
        let unreadable = |error| format!("{} cannot be read: {error}", path.display());
        let mut file = File::open(&path).map_err(unreadable)?;
        let mut begin = [0; 256];
        let len = file.read(&mut begin).map_err(unreadable)?;
        let Some(interpreter) = script(&begin[..len]) else {
            match Elf::read(&file).map_err(unreadable)? {
                Some(elf) => binary(&file, &elf, &mut remarks),
                None => {
                    let text = format!("{} is neither an ELF program nor a script", path.display());
                    remarks.push(remark("file", Kind::Not, text));
                }
            }
            return Ok(remarks);
        };
        remarks.push(remark("script", Kind::Fine, format!("{} is run by {}", path.display(), interpreter.display())));
        path = interpreter;
    }
    Err(format!("{} is run by a chain of more than {DEPTH} scripts", path.display()))
}

/// The full path of a program, also in the directories that ordinary users lack.
pub(crate) fn program_path(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"].map(Into::into));
    all.map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The program behind `#!`; for `env`, the one that it searches for.
fn script(begin: &[u8]) -> Option<PathBuf> {
    let line = begin.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='));
    match (first.ends_with("/env"), wanted) {
        (true, Some(name)) => Some(program_path(name).unwrap_or_else(|| name.into())),
        _ => Some(first.into()),
    }
}

fn binary(file: &File, elf: &Elf, remarks: &mut Vec<Remark>) {
    if !elf.is_64 {
        let text = "a 32-bit program: libtoe.so is a 64-bit library and cannot be loaded into it; use a 64-bit build";
        return remarks.push(remark("class", Kind::Not, text));
    }
    if !elf.is_own() {
        let number = elf.machine;
        let text = format!("built for another processor (ELF machine {number}): libtoe.so cannot be loaded into it");
        return remarks.push(remark("machine", Kind::Not, text));
    }
    privileges(file, remarks);
    let linker = elf.interpreter(file);
    let names = Names::of(file);
    match &linker {
        None => remarks.push(linked_statically(&names)),
        Some(linker) if linker.contains("musl") => {
            let text = format!("dynamic, with musl ({linker}): libtoe.so needs glibc; use a build for glibc");
            remarks.push(remark("linking", Kind::Not, text));
        }
        Some(linker) => remarks.push(remark("linking", Kind::Fine, format!("dynamic: {linker} preloads libtoe.so"))),
    }
    if linker.is_some() {
        names.remarks(remarks);
    }
}

fn linked_statically(names: &Names) -> Remark {
    let what = if names.is_go() { "a static Go program" } else { "statically linked" };
    if !cfg!(target_arch = "x86_64") {
        let text = format!("{what}: nothing can be preloaded, and it runs on the kernel's stack; link it dynamically");
        return remark("linking", Kind::Not, text);
    }
    let text = format!(
        "{what}: nothing can be preloaded, and opentoe run loads it itself; with --intercept symbols, or without \
         opentoe run, it stays on the kernel's stack"
    );
    remark(STATIC, Kind::Fine, text)
}

/// A program with rights that its caller lacks: the dynamic linker ignores LD_PRELOAD (ld.so(8), secure-execution
/// mode).
fn privileges(file: &File, remarks: &mut Vec<Remark>) {
    let root = rustix::process::geteuid().is_root();
    let mode = file.metadata().map_or(0, |meta| meta.permissions().mode());
    if mode & 0o6000 != 0 {
        let text = "set-user-ID or set-group-ID: the dynamic linker ignores LD_PRELOAD unless its owner runs it; run a copy \
                    without these bits as the user that it is to run as";
        remarks.push(remark("privileges", if root { Kind::Partly } else { Kind::Not }, text));
    }
    let mut value = [0u8; 64];
    if rustix::fs::fgetxattr(file, "security.capability", &mut value[..]).is_ok() {
        let text = "file capabilities: the dynamic linker ignores LD_PRELOAD unless root runs it; use the capabilities of a \
                    service (systemd's AmbientCapabilities) instead";
        remarks.push(remark("privileges", if root { Kind::Partly } else { Kind::Not }, text));
    }
}

/// The file's bytes, in which names of functions and libraries stand.
struct Names(Vec<u8>);

impl Names {
    fn of(file: &File) -> Names {
        let most = file.metadata().map_or(0, |meta| meta.len()).min(MOST) as usize;
        let mut bytes = vec![0; most];
        let whole = file.read_exact_at(&mut bytes, 0).is_ok();
        Names(if whole { bytes } else { Vec::new() })
    }

    fn is_go(&self) -> bool {
        self.has(b"\xff Go buildinf:")
    }

    fn has(&self, name: &[u8]) -> bool {
        let first = name[0];
        let mut rest = self.0.as_slice();
        while let Some(at) = rest.iter().position(|byte| *byte == first) {
            if rest[at..].starts_with(name) {
                return true;
            }
            rest = &rest[at + 1..];
        }
        false
    }

    /// What a program uses with which a part of it stays with the kernel or differs.
    fn remarks(&self, remarks: &mut Vec<Remark>) {
        let uses = |names: &[&[u8]]| names.iter().any(|name| self.has(name));
        if uses(&[b"\0seccomp_load\0", b"\0libseccomp.so", b"\0liburing.so"]) && !uses(&[b"\0liburing.so"]) {
            let text = "it filters system calls: libtoe then makes only the few that docs/POSIX.md lists, and passes no sockets";
            remarks.push(remark("seccomp", Kind::Partly, text));
        }
        if uses(&[b"\0liburing.so", b"\0io_uring_setup\0"]) {
            let text = "it may use io_uring, which bypasses the library: sockets given to a ring fail; switch that off in its \
                        configuration";
            remarks.push(remark("io_uring", Kind::Partly, text));
        }
        if self.is_go() {
            let text = "a Go program makes system calls by instructions of its own: opentoe run intercepts these; with \
                        --intercept symbols it stays on the kernel's stack";
            remarks.push(remark(GO, Kind::Fine, text));
        }
        if uses(&[b"\0fdopen\0", b"\0dprintf\0", b"\0posix_spawn\0", b"\0popen\0", b"\0execl\0", b"\0execlp\0"]) {
            let text = "it uses functions that make system calls inside the C library: where they concern sockets, run it with \
                        opentoe run --intercept syscalls";
            remarks.push(remark("C library", Kind::Partly, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context::elf::OWN_MACHINE;

    fn kinds(path: &Path) -> Vec<(&'static str, Kind)> {
        inspect(path).unwrap().iter().map(|remark| (remark.what, remark.kind)).collect()
    }

    #[test]
    fn a_program_of_this_machine_is_dynamic() {
        let own = std::env::current_exe().unwrap();
        assert!(kinds(&own).contains(&("linking", Kind::Fine)), "{:?}", inspect(&own));
    }

    #[test]
    fn what_cannot_run_follows_from_the_file_alone() {
        let place = std::env::temp_dir().join(format!("opentoe-program-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = place.join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let header = |class: u8, machine: u16| {
            let mut bytes = vec![0; 64];
            bytes[..4].copy_from_slice(b"\x7fELF");
            (bytes[4], bytes[18], bytes[19]) = (class, machine as u8, (machine >> 8) as u8);
            bytes
        };
        assert_eq!(kinds(&write("old", &header(1, OWN_MACHINE))), [("class", Kind::Not)]);
        assert_eq!(kinds(&write("foreign", &header(2, 243))), [("machine", Kind::Not)]);
        let still = write("static", &header(2, OWN_MACHINE));
        let x86 = cfg!(target_arch = "x86_64");
        assert_eq!(kinds(&still), [if x86 { (STATIC, Kind::Fine) } else { ("linking", Kind::Not) }]);
        std::fs::set_permissions(&still, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(kinds(&still)[0].0, "privileges");
        assert_eq!(kinds(&write("text", b"hello")), [("file", Kind::Not)]);
        let line = format!("#!{}\n", still.display());
        assert_eq!(kinds(&write("script", line.as_bytes()))[0], ("script", Kind::Fine));
        assert!(inspect(&place.join("missing")).unwrap_err().contains("cannot be read"));
        let circle = place.join("circle");
        write("circle", format!("#!{}\n", circle.display()).as_bytes());
        assert!(inspect(&circle).unwrap_err().contains("chain"));
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn env_is_resolved() {
        assert_eq!(script(b"#!/usr/bin/env -S A=b sh -e\n"), program_path("sh"));
        assert_eq!(script(b"#! /bin/sh -e\nrest"), Some("/bin/sh".into()));
        assert_eq!(script(b"\x7fELF"), None);
    }
}
