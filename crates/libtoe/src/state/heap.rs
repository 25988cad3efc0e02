//! The heap of the process' region (docs/ZERONIC.md, "Direct receives"): where `libtoe_heap.so` is preloaded, large
//! allocations lie there.
use crate::state::mapped_region::MappedRegion;
use crate::system::own_fd::out_of_the_way;
use crate::system::real;
use libc::{c_int, c_void, iovec, size_t};
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

/// The region of the heap: what the program has allocated there stays mapped, whatever becomes of the context.
static HEAP_REGION: OnceLock<Arc<MappedRegion>> = OnceLock::new();

/// Functions of `libtoe_heap.so`, where the heap is in use.
static PINS: OnceLock<Pins> = OnceLock::new();

#[derive(Clone, Copy)]
struct Pins {
    pin: Pin,
    unpin: Unpin,
}

type Pin = unsafe extern "C" fn(*const c_void, size_t) -> c_int;
type Unpin = unsafe extern "C" fn(*const c_void);

/// Keeps memory of the heap from being used for anything else, until [`unpin`]. False where it is not allocated there.
pub(crate) fn pin(part: iovec) -> bool {
    // SAFETY: the function takes any address.
    PINS.get().is_some_and(|pins| unsafe { (pins.pin)(part.iov_base, part.iov_len) } == 0)
}

/// Memory that was pinned, of which `address` is a part, may be used again.
pub(crate) fn unpin(address: usize) {
    if let Some(pins) = PINS.get() {
        // SAFETY: the same.
        unsafe { (pins.unpin)(std::ptr::without_provenance(address)) };
    }
}

/// The function of this name, where a library has it.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a name that ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The process has attached: its heap is in this region, where it has none yet.
pub(crate) fn begin(home: &Arc<MappedRegion>) {
    let geometry = &home.geometry;
    if geometry.heap_bytes == 0 || HEAP_REGION.get().is_some() {
        return;
    }
    let Some(begin) = function(c"opentoe_heap_begin") else { return };
    let (at, len) = (geometry.heap_at(), geometry.heap_bytes as usize);
    let base: *mut c_void = home.region.address(at, len).cast();
    // SAFETY: a plain call on a descriptor of the library's.
    let file = unsafe { real::fcntl(home.region.fd().as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    if file < 0 {
        return;
    }
    let file = out_of_the_way(file);
    // SAFETY: the function of this name has this type. The memory stays mapped, for `HEAP_REGION` keeps the region.
    let begun = unsafe {
        let begin: unsafe extern "C" fn(c_int, u64, *mut c_void, size_t) -> c_int = std::mem::transmute(begin);
        begin(file, at as u64, base, len) == 0
    };
    if !begun {
        return;
    }
    let _ = HEAP_REGION.set(Arc::clone(home));
    if let (Some(pin), Some(unpin)) = (function(c"opentoe_heap_pin"), function(c"opentoe_heap_unpin")) {
        // SAFETY: the functions of these names have these types.
        let pins = unsafe {
            let pin = std::mem::transmute::<*mut c_void, Pin>(pin);
            Pins { pin, unpin: std::mem::transmute::<*mut c_void, Unpin>(unpin) }
        };
        let _ = PINS.set(pins);
    }
}
