//! Static programs that this program runs: the library loads them, into a process of this program's own file.
use context::attach::{INTERCEPT_VARIABLE, PROGRAM_VARIABLE, SYSTEM_CALLS};
use context::program::{Linkage, linkage};
use libc::c_char;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The path of the static program that this process runs.
pub(crate) static PATH: OnceLock<CString> = OnceLock::new();

/// When the library is loaded: static programs are loaded where system calls are seen.
pub(crate) fn start() {
    HOSTS.store(std::env::var_os(INTERCEPT_VARIABLE).is_some_and(|value| value == SYSTEM_CALLS), Relaxed);
}

/// Static programs that this one runs are loaded by the library, too.
static HOSTS: AtomicBool = AtomicBool::new(false);

/// What is run in place of a static program: this process' own, into which this library is preloaded.
pub(crate) struct Host {
    /// The environment, ending with null. It leads into the caller's list and into `_variable`.
    pub environment: Vec<*const c_char>,
    /// Its path.
    pub path: &'static CStr,
    _variable: CString,
}

impl Host {
    /// For the program at a path; `None` where the kernel can run it.
    ///
    /// # Safety
    /// A C string, or null, and a list of C strings that ends with null, for as long as the result is used.
    pub(crate) unsafe fn of(path: *const c_char, environment: *const *const c_char) -> Option<Host> {
        if !HOSTS.load(Relaxed) || path.is_null() || environment.is_null() {
            return None;
        }
        // SAFETY: the caller's.
        let asked = unsafe { CStr::from_ptr(path) };
        let is_itself = asked == c"/proc/self/exe";
        let path = PATH.get().filter(|_| is_itself).map_or(asked, CString::as_c_str);
        if linkage(Path::new(OsStr::from_bytes(path.to_bytes()))) != Linkage::Static {
            return None;
        }
        let variable = CString::new([PROGRAM_VARIABLE.as_bytes(), b"=", path.to_bytes()].concat()).ok()?;
        // SAFETY: the caller's list, up to its null.
        let given =
            unsafe { (0..).map(|index| environment.add(index).read()).take_while(|variable| !variable.is_null()) };
        let environment = given.chain([variable.as_ptr(), std::ptr::null()]).collect();
        Some(Host { environment, path: c"/proc/self/exe", _variable: variable })
    }
}
