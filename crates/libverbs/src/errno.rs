//! Errors as verbs give them: calls that return `int` return the error number, those that return a pointer set `errno`.
use libc::c_int;

/// The error is an error number.
pub(crate) type Result<T> = std::result::Result<T, c_int>;

/// Sets `errno`.
pub(crate) fn set(number: c_int) {
    // SAFETY: the C library gives each thread a valid place.
    unsafe { *libc::__errno_location() = number };
}

/// What `errno` is.
pub(crate) fn get() -> c_int {
    // SAFETY: as in `set`.
    unsafe { *libc::__errno_location() }
}

/// A new object, or null with `errno` set.
pub(crate) fn pointer<T>(made: Result<*mut T>) -> *mut T {
    made.unwrap_or_else(|number| {
        set(number);
        std::ptr::null_mut()
    })
}

/// 0, or the error number, which is in `errno` as well: some programs read it there.
pub(crate) fn number(done: Result<()>) -> c_int {
    done.err().inspect(|number| set(*number)).unwrap_or(0)
}

/// 0, or -1 with `errno` set: for the calls that do it so.
pub(crate) fn minus_one(done: Result<()>) -> c_int {
    if number(done) == 0 { 0 } else { -1 }
}
