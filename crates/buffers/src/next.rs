//! Functions of whoever stands behind this library: the C library, or another one that was loaded later.
use std::ffi::CStr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A function by its name, looked up when it is first called.
pub struct Next {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Next {
    /// The function of this name, not looked up yet.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(0) }
    }

    /// Where it is.
    #[inline]
    pub fn address(&self) -> usize {
        match self.at.load(Relaxed) {
            0 => self.find(),
            known => known,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: a name that ends with zero.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }.addr();
        if found == 0 {
            // There is no C library without these: nothing can go on.
            std::process::abort();
        }
        self.at.store(found, Relaxed);
        found
    }
}

/// Calls the next function of a name and type.
#[doc(hidden)]
#[macro_export]
macro_rules! next {
    ($name:literal, fn($($kind:ty),*) $(-> $result:ty)?, $($argument:expr),*) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::new($name);
        // SAFETY: the function of this name has this type, as its page of the manual has it.
        unsafe {
            std::mem::transmute::<*const (), unsafe extern "C" fn($($kind),*) $(-> $result)?>(
                std::ptr::with_exposed_provenance(NEXT.address()),
            )($($argument),*)
        }
    }};
}
