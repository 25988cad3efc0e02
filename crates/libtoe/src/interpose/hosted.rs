//! Programs that are linked statically: how one begins in this process, and the calls that are about the process as the
//! program sees it. All others go the way of those below the symbols (`layer`).
use super::system_call::at;
use super::{layer, threads};
use crate::process::image::{self, Arguments};
use crate::process::{spawn, static_host};
use crate::system::real;
use context::attach::{INTERCEPT_VARIABLE, PROGRAM_VARIABLE, SYSTEM_CALLS};
use intercept::static_programs::{self, Frame};
use intercept::{Call, Class, Rules, Verdict};
use libc::{c_int, c_long};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr::null;
use std::sync::atomic::AtomicU32;

/// arch_prctl(2).
const ARCH_SET_GS: usize = 0x1001;
const ARCH_SET_FS: usize = 0x1002;
const ARCH_GET_FS: usize = 0x1003;
const ARCH_GET_GS: usize = 0x1004;
/// Addresses of user space end here.
const USER: usize = 1 << 47;
/// What the C library of this process keeps free of its stack for the library.
const MAIN_STACK: u64 = 4 << 20;

/// When the library is loaded: runs the static program that the environment names, if it names one. Then it does not
/// return.
pub(crate) fn start(descriptors: &'static [AtomicU32]) {
    static_host::start();
    let Some(path) = std::env::var_os(PROGRAM_VARIABLE) else { return };
    // SAFETY: the dynamic linker runs this before the program has threads.
    unsafe { std::env::remove_var(PROGRAM_VARIABLE) };
    let end = |word: Vec<u8>| CString::new(word).unwrap_or_default();
    let path = &end(path.into_vec());
    let words: Vec<CString> = std::env::args_os().map(|word| end(word.into_vec())).collect();
    let variable = |(name, value): (OsString, OsString)| end([name.as_bytes(), b"=", value.as_bytes()].concat());
    let environment: Vec<CString> = std::env::vars_os().map(variable).collect();
    let arguments = Arguments { path, words: &words, environment: &environment };
    let why = match begin(&arguments, descriptors) {
        Ok(status) => format!("it ended without a status ({status})"),
        Err(why) => why.to_string(),
    };
    give_up(&arguments, &why)
}

/// Where the program cannot be loaded: without the library, unless the user asked for it.
fn give_up(arguments: &Arguments, why: &str) -> ! {
    let path = arguments.path.to_string_lossy();
    if std::env::var_os(INTERCEPT_VARIABLE).is_some_and(|value| value == SYSTEM_CALLS) {
        intercept::warn(&format!("libtoe: cannot run {path}, which is linked statically: {why}\n"));
    } else {
        intercept::warn(&format!("libtoe: {path} stays on the kernel's TCP: it is linked statically, and {why}\n"));
        let list = |all: &[CString]| all.iter().map(|one| one.as_ptr()).chain([null()]).collect::<Vec<_>>();
        let (words, environment) = (list(arguments.words), list(arguments.environment));
        // SAFETY: lists that end with null.
        unsafe { real::execve(arguments.path.as_ptr(), words.as_ptr(), environment.as_ptr()) };
        intercept::warn(&format!("libtoe: cannot run {path}: {}\n", std::io::Error::last_os_error()));
    }
    // SAFETY: ends the process.
    unsafe { libc::_exit(127) }
}

fn begin(arguments: &Arguments, descriptors: &'static [AtomicU32]) -> std::io::Result<c_int> {
    let file = File::open(OsStr::from_bytes(arguments.path.to_bytes()))?;
    let image = image::load(&file)?;
    let stack = image::stack(&image, arguments)?;
    let command = arguments.path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let command = CString::new(command).unwrap_or_default();
    let rules = Rules { class_of, descriptors, ask, has_small_stacks: false };
    let frame = Frame { stack, next: image.entry, flags: 0x202, ..Frame::default() };
    let local = 0u8;
    let high = (&raw const local).expose_provenance() as u64;
    static_host::is(file);
    // SAFETY: one thread; the frame is where the program begins; this stack grows as far as its limit.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, command.as_ptr());
        static_programs::host(&rules).and_then(|()| static_programs::run(&frame, 0, high - MAIN_STACK..high, || ()))
    }
    .map_err(std::io::Error::from_raw_os_error)?;
    Ok(0)
}

fn class_of(number: usize) -> Class {
    match number as c_long {
        libc::SYS_exit | libc::SYS_arch_prctl | libc::SYS_set_tid_address | libc::SYS_brk => Class::Ask,
        libc::SYS_readlink | libc::SYS_readlinkat => Class::Ask,
        _ => layer::class_of(number),
    }
}

extern "C" fn ask(call: &mut Call) -> Verdict {
    let [a, b, c, ..] = call.arguments;
    if matches!(call.number as c_long, libc::SYS_execve | libc::SYS_execveat) && spawn::in_child() {
        // SAFETY: within `static_programs::run`, in the child.
        return unsafe { static_programs::exec(|| layer::ask(call)) };
    }
    // SAFETY: the program's arguments for this call; within `static_programs::run`.
    let done = unsafe {
        match call.number as c_long {
            libc::SYS_clone | libc::SYS_clone3 => threads::start(call),
            // A child that shares its parent's memory ends: not the parent's thread.
            libc::SYS_exit if !spawn::in_child() => threads::end(call),
            libc::SYS_arch_prctl => thread_pointer(a, b),
            libc::SYS_set_tid_address => {
                static_programs::set_clear_tid(a);
                Some(libc::gettid() as isize)
            }
            // It is the C library's of this process. A program whose wish is not granted takes other memory.
            libc::SYS_brk => Some(BREAK),
            libc::SYS_readlink => own_path(a, b, c),
            libc::SYS_readlinkat => own_path(b, c, call.arguments[3]),
            _ => None,
        }
    };
    let Some(result) = done else { return layer::ask(call) };
    call.number = result;
    Verdict::Done
}

/// What is reported to programs of the end of their data.
const BREAK: isize = 0x1000_0000;

/// `arch_prctl`: the thread pointer is the program's; the other register is this library's.
unsafe fn thread_pointer(operation: usize, address: usize) -> Option<isize> {
    // SAFETY: the program's arguments.
    unsafe {
        match operation {
            ARCH_SET_FS if address >= USER => Some(-(libc::EPERM as isize)),
            ARCH_SET_FS => {
                static_programs::set_program_fs(address as u64);
                Some(0)
            }
            ARCH_GET_FS => {
                at::<u64>(address).write_unaligned(static_programs::program_fs());
                Some(0)
            }
            ARCH_SET_GS | ARCH_GET_GS => {
                intercept::warn("libtoe: the program uses the GS register, which static programs cannot have here\n");
                Some(-(libc::EPERM as isize))
            }
            _ => None,
        }
    }
}

/// `readlink` of `/proc/self/exe`, which the kernel takes for the program that the dynamic linker made the process for.
unsafe fn own_path(link: usize, buffer: usize, len: usize) -> Option<isize> {
    // SAFETY: the program's path.
    if link == 0 || unsafe { CStr::from_ptr(at(link)) } != c"/proc/self/exe" {
        return None;
    }
    let link = static_host::link()?;
    // SAFETY: a C string; the kernel checks the program's buffer.
    let length = unsafe { libc::readlink(link.as_ptr(), at(buffer), len) };
    Some(if length < 0 { -(crate::system::errno::get() as isize) } else { length })
}
