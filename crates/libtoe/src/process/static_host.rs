//! Static programs that this program runs. The library loads them, into a process of this program's own file, or warns
//! of those that no library comes into.
use crate::daemon::attach;
use crate::process::environment;
use crate::process::exec::strings;
use crate::system::warn;
use context::attach::{INTERCEPT_VARIABLE, PROGRAM_VARIABLE, SYMBOLS};
use context::linkage::{Linkage, linkage};
use libc::c_char;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The file of the static program that this process runs. It may be renamed and deleted meanwhile.
static FILE: OnceLock<OwnedFd> = OnceLock::new();

/// This process runs the static program of this file.
pub(crate) fn is(file: File) {
    FILE.get_or_init(|| attach::keep(file.into()));
}

/// A link to the static program's file in /proc: it has where the file is now, as /proc/self/exe does of other
/// programs.
pub(crate) fn link() -> Option<CString> {
    CString::new(format!("/proc/self/fd/{}", FILE.get()?.as_raw_fd())).ok()
}

/// When the library is loaded: static programs are loaded unless only symbols are to be interposed.
pub(crate) fn start() {
    ONLY_SYMBOLS.store(std::env::var_os(INTERCEPT_VARIABLE).is_some_and(|value| value == SYMBOLS), Relaxed);
}

/// Static programs stay on the kernel's TCP.
static ONLY_SYMBOLS: AtomicBool = AtomicBool::new(false);

/// The warning where a static program cannot be loaded, and is run as it would be without this library.
pub(crate) const NO_HOST: &str =
    "a static program stays on the kernel's TCP: loading it needs /proc and the dynamic linker";

/// What is run in place of a static program: this process' own, into which this library is preloaded.
pub(crate) struct Host {
    /// The environment, ending with null. It leads into the caller's list and into `_variable`.
    pub environment: Vec<*const c_char>,
    /// Its path.
    pub path: &'static CStr,
    _variable: CString,
}

impl Host {
    /// For the program at a path; `None` where the kernel is to run it.
    ///
    /// # Safety
    /// A C string, or null, and a list of C strings that ends with null, for as long as the result is used.
    pub(crate) unsafe fn of(path: *const c_char, environment: *const *const c_char) -> Option<Host> {
        if path.is_null() || environment.is_null() || !attach::is_enabled() {
            return None;
        }
        // SAFETY: the caller's.
        let (asked, given) = unsafe { (CStr::from_ptr(path), strings(environment)) };
        // Without the library, the process would run this program's file once more.
        if !environment::loads_library(&given) || environment::is_of_valgrind(&given) {
            return None;
        }
        let own = if asked == c"/proc/self/exe" { own_path() } else { None };
        let path = own.as_deref().unwrap_or(asked);
        let linkage = linkage(Path::new(OsStr::from_bytes(path.to_bytes())));
        if let Some(why) = linkage.obstacle(ONLY_SYMBOLS.load(Relaxed)) {
            warn::line(&format!("{} stays on the kernel's TCP: it {why}", path.to_string_lossy()));
            return None;
        }
        if linkage != Linkage::Static {
            return None;
        }
        let variable = CString::new([PROGRAM_VARIABLE.as_bytes(), b"=", path.to_bytes()].concat()).ok()?;
        let ends = [variable.as_ptr(), std::ptr::null()];
        let environment = given.iter().map(|one| one.as_ptr()).chain(ends).collect();
        Some(Host { environment, path: c"/proc/self/exe", _variable: variable })
    }
}

/// Where the static program's file is that this process runs: the path by which it was run means nothing in another
/// folder.
fn own_path() -> Option<CString> {
    let path = std::fs::read_link(OsStr::from_bytes(link()?.to_bytes())).ok()?;
    CString::new(path.into_os_string().into_vec()).ok()
}

/// The file that `execvp` and `posix_spawnp` run (execvp(3)), where it is there.
///
/// # Safety
/// A C string, or null.
pub(crate) unsafe fn in_path(file: *const c_char) -> Option<CString> {
    if file.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let file = unsafe { CStr::from_ptr(file) };
    if file.is_empty() || file.to_bytes().contains(&b'/') {
        return Some(file.to_owned());
    }
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let all = std::env::split_paths(&folders).map(|folder| folder.join(OsStr::from_bytes(file.to_bytes())));
    let found = all.into_iter().find(|path| is_program(path))?;
    CString::new(found.as_os_str().as_bytes()).ok()
}
