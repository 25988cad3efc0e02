//! `setrlimit`, `getrlimit`, `prlimit` of the process's own address space ([`crate::system::address_space`]); others
//! are the kernel's.
use crate::daemon::attach;
use crate::system::{address_space, errno, real, user_memory};
use libc::{c_int, pid_t, rlimit};

/// True where a call concerns the library, too.
pub(super) fn concerns(pid: pid_t, resource: c_int) -> bool {
    let own = pid == 0 || pid as u32 == std::process::id();
    own && resource == libc::RLIMIT_AS as c_int && attach::is_enabled()
}

/// `prlimit`: sets what is given, then the old figures are written.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prlimit(pid: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: the program's pointers; the old figures come first into a local, as both may be the same.
    unsafe {
        if !concerns(pid, resource) {
            return real::prlimit(pid, resource, new, old);
        }
        let mut before = rlimit { rlim_cur: 0, rlim_max: 0 };
        let mut result = real::getrlimit(libc::RLIMIT_AS, &mut before);
        address_space::get(&mut before);
        let new = match user_memory::read_any(new) {
            Ok(new) => new,
            Err(errno) => return errno::give(Err(errno)),
        };
        if let (0, Some(new)) = (result, &new) {
            result = address_space::set(new);
        }
        if result == 0 && !old.is_null() {
            return errno::give(user_memory::write(old, before).map(|()| 0));
        }
        result
    }
}

/// `prlimit64`: the same structure on 64-bit machines.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn prlimit64(pid: pid_t, resource: c_int, new: *const rlimit, old: *mut rlimit) -> c_int {
    // SAFETY: as this function.
    unsafe { prlimit(pid, resource, new, old) }
}

/// `setrlimit`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setrlimit(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: as this function.
    unsafe { prlimit(0, resource, new, std::ptr::null_mut()) }
}

/// `setrlimit64`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn setrlimit64(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: as this function.
    unsafe { setrlimit(resource, new) }
}

/// `getrlimit`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrlimit(resource: c_int, old: *mut rlimit) -> c_int {
    // SAFETY: as this function.
    unsafe { prlimit(0, resource, std::ptr::null(), old) }
}

/// `getrlimit64`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrlimit64(resource: c_int, old: *mut rlimit) -> c_int {
    // SAFETY: as this function.
    unsafe { getrlimit(resource, old) }
}
