//! The heap of the process' region (docs/ZERONIC.md, "Direct receives"): where `libtoe_heap.so` is preloaded, large
//! allocations lie there.
use crate::state::mapped_region::MappedRegion;
use crate::system::own_fd::out_of_the_way;
use crate::system::real;
use libc::{c_int, c_void, size_t};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

/// The region of the heap: what the program has allocated there stays mapped, whatever becomes of the context.
static KEPT: OnceLock<Arc<MappedRegion>> = OnceLock::new();

/// The process has attached: its heap is in this region, where it has none yet.
pub(crate) fn begin(home: &Arc<MappedRegion>) {
    let geometry = &home.geometry;
    if geometry.heap_bytes == 0 || KEPT.get().is_some() {
        return;
    }
    // SAFETY: a name that ends with zero.
    let begin = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"opentoe_heap_begin".as_ptr()) };
    if begin.is_null() {
        return;
    }
    let (at, len) = (geometry.heap_at(), geometry.heap_bytes as usize);
    let base: *mut c_void = home.region.address(at, len).cast();
    // SAFETY: a plain call on a descriptor of the library's.
    let file = unsafe { real::fcntl(home.region.fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    if file < 0 {
        return;
    }
    let file = out_of_the_way(file);
    // SAFETY: the function of this name has this type. The memory stays mapped, for `KEPT` keeps the region.
    let begun = unsafe {
        let begin: unsafe extern "C" fn(c_int, u64, *mut c_void, size_t) -> c_int = std::mem::transmute(begin);
        begin(file, at as u64, base, len) == 0
    };
    if begun {
        let _ = KEPT.set(Arc::clone(home));
    }
}
