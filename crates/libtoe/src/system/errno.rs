//! `errno`, and how results become what C callers expect.
use libc::c_int;

/// Result of calls inside the library: a value, or a Linux error number.
pub(crate) type Result<T> = std::result::Result<T, c_int>;

/// This thread's `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: the C library gives a valid pointer to this thread's variable.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
pub(crate) fn set(value: c_int) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = value }
}

/// A result as C sees it: the value, or -1 with `errno` set.
pub(crate) fn give<T: From<i8>>(result: Result<T>) -> T {
    result.unwrap_or_else(|errno| {
        set(errno);
        T::from(-1)
    })
}

/// The result of a call to the C library.
pub(crate) fn check<T: PartialOrd + From<i8>>(value: T) -> Result<T> {
    if value < T::from(0) { Err(get()) } else { Ok(value) }
}
