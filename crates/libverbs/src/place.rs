//! The device's place among the system's devices: programs ask `realpath` for `/sys/class/infiniband/NAME/../..`, to
//! learn which bus and which memory it is near to (Mooncake). The kernel has no such folder. It is answered as for the
//! kernel's own devices in software (rxe, siw), which are below `/sys/devices/virtual`.
use crate::device;
use crate::errno;
use crate::nodes::below;
use buffers::next;
use libc::c_char;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const CLASS: &CStr = c"/sys/class/infiniband/";
const DEVICES: &str = "/sys/devices/virtual/infiniband";

/// Where a path below [`CLASS`] leads, of a device with this name; nothing where nothing is there.
fn resolve(path: &CStr, name: &str) -> Option<PathBuf> {
    let below = path.to_bytes().strip_prefix(CLASS.to_bytes())?;
    let mut parts = Path::new(OsStr::from_bytes(below)).components();
    if parts.next() != Some(Component::Normal(OsStr::new(name))) {
        return None;
    }
    let own = Path::new(DEVICES).join(name);
    let mut at = own.clone();
    for part in parts {
        match part {
            Component::ParentDir => drop(at.pop()),
            Component::Normal(part) => at.push(part),
            _ => {}
        }
    }
    (own.starts_with(&at) || at.exists()).then_some(at)
}

/// The answer about a path of the device's.
///
/// # Safety
/// The path is a string, or null.
unsafe fn answer(path: *const c_char) -> Option<CString> {
    // SAFETY: as the caller guarantees.
    let path = unsafe { below(CLASS, path) }?;
    let found = device::names().find_map(|name| resolve(path, name))?;
    CString::new(found.into_os_string().into_encoded_bytes()).ok()
}

/// Gives a path to the program: in its own place of `PATH_MAX` bytes, or in memory that it frees.
///
/// # Safety
/// The place is null, or has room for `room` bytes.
unsafe fn give(found: &CStr, into: *mut c_char, room: usize) -> *mut c_char {
    if found.count_bytes() >= room {
        errno::set(libc::ENAMETOOLONG);
        return std::ptr::null_mut();
    }
    // SAFETY: a string; it fits.
    unsafe { if into.is_null() { libc::strdup(found.as_ptr()) } else { libc::strcpy(into, found.as_ptr()) } }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realpath(path: *const c_char, into: *mut c_char) -> *mut c_char {
    // SAFETY: the program passes a path, and a place that is long enough, or none.
    match unsafe { answer(path) } {
        // SAFETY: such a place has room for the longest path.
        Some(found) => unsafe { give(&found, into, libc::PATH_MAX as usize) },
        None => next!(c"realpath", fn(*const c_char, *mut c_char) -> *mut c_char, path, into),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __realpath_chk(path: *const c_char, into: *mut c_char, room: usize) -> *mut c_char {
    // SAFETY: as above; `room` is the size that the compiler has of the place.
    match unsafe { answer(path) } {
        // SAFETY: as above.
        Some(found) => unsafe { give(&found, into, room) },
        None => next!(c"__realpath_chk", fn(*const c_char, *mut c_char, usize) -> *mut c_char, path, into, room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_in_software() {
        let of = |path: &CStr| resolve(path, "toe0").map(|path| path.to_string_lossy().into_owned());
        assert_eq!(of(c"/sys/class/infiniband/toe0").as_deref(), Some("/sys/devices/virtual/infiniband/toe0"));
        assert_eq!(of(c"/sys/class/infiniband/toe0/.."), Some(DEVICES.into()));
        assert_eq!(of(c"/sys/class/infiniband/toe0/../.."), Some("/sys/devices/virtual".into()));
        assert_eq!(of(c"/sys/class/infiniband/toe0/../../../../../../.."), Some("/".into()));
        for other in [c"/sys/class/infiniband/toe1", c"/sys/class/infiniband/toe0/device", c"/sys/class/infiniband/"] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn other_paths_are_the_systems() {
        let mut place = [0; libc::PATH_MAX as usize];
        // SAFETY: strings, and a place of the greatest length.
        unsafe {
            let found = realpath(c"/dev/../dev/null".as_ptr(), place.as_mut_ptr());
            assert_eq!(CStr::from_ptr(found), c"/dev/null");
            let found = __realpath_chk(c"/".as_ptr(), place.as_mut_ptr(), place.len());
            assert_eq!(CStr::from_ptr(found), c"/");
            assert!(realpath(c"/sys/class/infiniband/toe0".as_ptr(), place.as_mut_ptr()).is_null(), "no device here");
        }
    }
}
