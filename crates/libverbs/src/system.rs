//! Files of the system that programs read through the library, and structures of the kernel's interface.
use crate::errno;
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// Reads a file of sysfs without its last line end; its length, or -1.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    into: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: the program passes two strings.
    let path = unsafe { path(folder).join(path(file)) };
    // SAFETY: the program passes a place of so many bytes.
    unsafe { read(&path, into, room) }
}

/// The same for a file of a device's folder. Its name is a format of `printf` in the system's library; ours has none.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_read_ibdev_sysfs_file(
    into: *mut c_char,
    room: usize,
    _device: *mut c_void,
    _format: *const c_char,
) -> c_int {
    if room > 0 && !into.is_null() {
        // SAFETY: there is room for a byte.
        unsafe { *into = 0 };
    }
    errno::minus_one(Err(libc::ENOENT))
}

unsafe fn path<'a>(text: *const c_char) -> &'a Path {
    // SAFETY: the caller passes a string.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

/// # Safety
/// `into` is a place of `room` bytes.
unsafe fn read(path: &Path, into: *mut c_char, room: usize) -> c_int {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return errno::minus_one(Err(error.raw_os_error().unwrap_or(libc::EIO))),
    };
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let count = line.len().min(room.saturating_sub(1));
    // SAFETY: as the caller guarantees: no more than the room, and a zero behind where there is room for it.
    unsafe {
        into.cast::<u8>().copy_from_nonoverlapping(line.as_ptr(), count);
        if count < room {
            *into.add(count) = 0;
        }
    }
    count as c_int
}

/// Functions between structures of verbs and of the kernel's interface. That interface has no part here, so nobody has
/// such a structure.
macro_rules! of_the_kernel {
    ($($name:ident)+) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name(_to: *mut c_void, _from: *mut c_void) {})+
    };
}

of_the_kernel! {
    ibv_copy_ah_attr_from_kern
    ibv_copy_qp_attr_from_kern
    ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern
}

/// Device memory of other processes cannot be reached: the device has none.
#[unsafe(no_mangle)]
extern "C" fn ibv_import_dm(_context: *mut c_void, _handle: u32) -> *mut c_void {
    errno::pointer(Err(libc::EOPNOTSUPP))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_dm(_memory: *mut c_void) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_without_its_line_end() {
        let file = std::env::temp_dir().join(format!("verbs-system-{}", std::process::id()));
        std::fs::write(&file, "hello\n").unwrap();
        let mut room = [1 as c_char; 8];
        // SAFETY: a local array.
        let got = unsafe { read(&file, room.as_mut_ptr(), room.len()) };
        // SAFETY: a zero was written behind.
        assert_eq!((got, unsafe { CStr::from_ptr(room.as_ptr()) }), (5, c"hello"));
        // SAFETY: a local array.
        assert_eq!(unsafe { read(&file, room.as_mut_ptr(), 3) }, 2);
        std::fs::remove_file(&file).unwrap();
        // SAFETY: a local array.
        assert_eq!(unsafe { read(&file, room.as_mut_ptr(), 3) }, -1);
    }
}
