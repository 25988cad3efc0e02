//! Handles that a program holds: objects of the library's, each behind a lock.
use crate::system::errno::{Result, give};
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// Object behind a program's handle.
pub(super) type Handle<T> = Mutex<T>;

/// Acts on the object of a handle.
///
/// # Safety
/// The handle is null, or made by the library and not closed.
pub(super) unsafe fn with<T, R>(handle: *mut Handle<T>, act: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
    // SAFETY: as the caller guarantees.
    let handle = unsafe { handle.as_ref() }.ok_or(libc::EINVAL)?;
    act(&mut handle.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Ends the object of a handle.
///
/// # Safety
/// As [`with`]; nobody uses it from now on.
pub(super) unsafe fn close<T>(handle: *mut Handle<T>) {
    if !handle.is_null() {
        // SAFETY: as the caller guarantees.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// A string of the program's; `None` for null.
///
/// # Safety
/// Null, or a string.
pub(super) unsafe fn text(from: *const c_char) -> Option<String> {
    // SAFETY: as the caller guarantees.
    (!from.is_null()).then(|| unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned())
}

/// Fills the program's array of events; gives how many.
///
/// # Safety
/// `list` is null or has room for `most` events, which are numbers; the handle as in [`with`].
pub(super) unsafe fn events<T, E>(
    handle: *mut Handle<T>,
    list: *mut E,
    most: c_int,
    take: impl FnOnce(&mut T, &mut [E]) -> Result<usize>,
) -> c_int {
    let Some(most) = usize::try_from(most).ok().filter(|most| *most > 0 && !list.is_null()) else {
        return give(Err(libc::EINVAL));
    };
    // SAFETY: the caller's array; an event is numbers, and any bytes are one.
    let list = unsafe { std::slice::from_raw_parts_mut(list, most) };
    // SAFETY: the caller's.
    give(unsafe { with(handle, |object| take(object, list)) }.map(|count| count as c_int))
}

/// Registers memory, and gives its key by a pointer.
///
/// # Safety
/// `key` is null or the caller's; the handle as in [`with`].
pub(super) unsafe fn register<T>(
    handle: *mut Handle<T>,
    at: *mut c_void,
    key: *mut u32,
    register: impl FnOnce(&mut T, u64) -> Result<u32>,
) -> c_int {
    if key.is_null() {
        return give(Err(libc::EFAULT));
    }
    // SAFETY: the caller's.
    let registered = unsafe { with(handle, |object| register(object, at.expose_provenance() as u64)) };
    give(registered.map(|registered| {
        // SAFETY: not null, and the caller's.
        unsafe { key.write(registered) };
        0
    }))
}
