//! The devices' nodes in `/dev/infiniband`: programs check whether they are there before they open a device (UCX,
//! Mooncake). There are none, so the C library's functions that ask for it are answered here. Opening the node fails as
//! ever: this library opens none.
use crate::device;
use crate::errno;
use buffers::next;
use libc::stat as Status;
use libc::{c_char, c_int, mode_t};
use std::ffi::CStr;

const FOLDER: &CStr = c"/dev/infiniband";
const NODE: &str = "/uverbs";
/// Access rights of a node, and of the folder: all users, as with udev's rules.
const NODE_MODE: mode_t = libc::S_IFCHR | 0o666;
const FOLDER_MODE: mode_t = libc::S_IFDIR | 0o755;

/// A path, where it begins so. Others are not gone through.
///
/// # Safety
/// The path is a string, or null, and stays.
pub(crate) unsafe fn below<'a>(begin: &CStr, path: *const c_char) -> Option<&'a CStr> {
    // SAFETY: as the caller guarantees; comparing ends with the string's zero.
    unsafe {
        let begins = !path.is_null() && libc::strncmp(path, begin.as_ptr(), begin.count_bytes()) == 0;
        begins.then(|| CStr::from_ptr(path))
    }
}

/// What is at a path of ours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ours {
    Folder,
    /// The node of the device with this number.
    Node(u32),
}

impl Ours {
    fn mode(self) -> mode_t {
        match self {
            Ours::Folder => FOLDER_MODE,
            Ours::Node(_) => NODE_MODE,
        }
    }
}

/// What a path is, where it is one of ours.
///
/// # Safety
/// The path is a string, or null.
unsafe fn ours(path: *const c_char) -> Option<Ours> {
    // SAFETY: as the caller guarantees.
    let below = unsafe { below(FOLDER, path) }?.to_bytes().strip_prefix(FOLDER.to_bytes())?;
    let numbers = 0..device::count() as u32;
    match std::str::from_utf8(below).ok()? {
        "" => (!numbers.is_empty()).then_some(Ours::Folder),
        below => numbers.into_iter().find(|number| format!("{NODE}{number}") == below).map(Ours::Node),
    }
}

/// Fills what a program asks for about a path of ours.
///
/// # Safety
/// The program passes a path and a place.
unsafe fn describe(path: *const c_char, into: *mut Status) -> bool {
    // SAFETY: as the caller guarantees; zeros are a valid value.
    unsafe {
        let Some(found) = ours(path) else { return false };
        into.write_bytes(0, 1);
        ((*into).st_mode, (*into).st_nlink, (*into).st_blksize) = (found.mode(), 1, 4096);
        if let Ours::Node(number) = found {
            let [major, minor] = verbs::port::NODE;
            (*into).st_rdev = libc::makedev(major, minor + number);
        }
        true
    }
}

/// The functions of one form.
macro_rules! asked {
    ($($name:ident $text:literal)+) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, into: *mut Status) -> c_int {
            // SAFETY: the program passes a path and a place.
            if unsafe { describe(path, into) } {
                return 0;
            }
            next!($text, fn(*const c_char, *mut Status) -> c_int, path, into)
        })+
    };
}

asked! {
    stat c"stat"
    stat64 c"stat64"
    lstat c"lstat"
    lstat64 c"lstat64"
}

/// The same of programs that were built with a C library before 2.33: it had one `stat`, and `version` had which
/// (Mooncake's package of PyPI). There were the kernel's, 0, and the library's own, 1, which are the same here.
macro_rules! asked_before {
    ($($name:ident $now:ident)+) => {
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $name(version: c_int, path: *const c_char, into: *mut Status) -> c_int {
            if !(0..=1).contains(&version) {
                return errno::minus_one(Err(libc::EINVAL));
            }
            // SAFETY: the program passes a path and a place.
            unsafe { $now(path, into) }
        })+
    };
}

asked_before! {
    __xstat stat
    __xstat64 stat64
    __lxstat lstat
    __lxstat64 lstat64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn access(path: *const c_char, wanted: c_int) -> c_int {
    // SAFETY: the program passes a path.
    match unsafe { ours(path) } {
        None => next!(c"access", fn(*const c_char, c_int) -> c_int, path, wanted),
        Some(Ours::Node(_)) if wanted & libc::X_OK != 0 => errno::minus_one(Err(libc::EACCES)),
        Some(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_paths_are_the_systems() {
        // SAFETY: zeros are a valid value; the functions get strings and a local place.
        unsafe {
            let mut found: Status = std::mem::zeroed();
            assert_eq!(stat(c"/dev/null".as_ptr(), &raw mut found), 0);
            assert_eq!(found.st_mode & libc::S_IFMT, libc::S_IFCHR);
            found.st_mode = 0;
            assert_eq!(__lxstat64(1, c"/dev/null".as_ptr(), &raw mut found), 0);
            assert_eq!(found.st_mode & libc::S_IFMT, libc::S_IFCHR);
            assert_eq!(__xstat(2, c"/dev/null".as_ptr(), &raw mut found), -1);
            assert_eq!((access(c"/".as_ptr(), libc::R_OK), access(c"/dev/infinibandit".as_ptr(), libc::F_OK)), (0, -1));
            assert_eq!(
                access(c"/dev/infiniband/uverbs0".as_ptr(), libc::F_OK),
                -1,
                "this process does not run on OpenTOE"
            );
            assert_eq!(stat(std::ptr::null(), &raw mut found), -1);
        }
    }
}
