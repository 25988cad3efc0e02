//! The CUDA driver's interface, as far as it is used: `libcuda.so.1`, where the process has loaded it already. Numbers
//! and types are those of the CUDA Driver API's reference manual.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;

/// `CUresult`: 0 is success.
pub(crate) type Status = c_int;
pub(crate) const NOT_READY: Status = 600;
/// `CUcontext`, `CUstream`, `CUevent`: the driver's.
pub(crate) type Handle = *mut c_void;
/// `CUdeviceptr`.
pub(crate) type Address = u64;

/// `CUpointer_attribute`.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE: c_uint = 2;
/// `CU_STREAM_NON_BLOCKING`: it does not wait for the program's default stream.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;

/// The functions. Each may be called by any thread.
#[derive(Clone, Copy)]
pub(crate) struct Driver {
    pointer_get_attribute: unsafe extern "C" fn(*mut c_void, c_int, Address) -> Status,
    primary_context_retain: unsafe extern "C" fn(*mut Handle, c_int) -> Status,
    context_set_current: unsafe extern "C" fn(Handle) -> Status,
    host_register: unsafe extern "C" fn(*mut c_void, usize, c_uint) -> Status,
    host_unregister: unsafe extern "C" fn(*mut c_void) -> Status,
    stream_create: unsafe extern "C" fn(*mut Handle, c_uint) -> Status,
    stream_destroy: unsafe extern "C" fn(Handle) -> Status,
    event_create: unsafe extern "C" fn(*mut Handle, c_uint) -> Status,
    event_destroy: unsafe extern "C" fn(Handle) -> Status,
    event_record: unsafe extern "C" fn(Handle, Handle) -> Status,
    event_query: unsafe extern "C" fn(Handle) -> Status,
    copy_in: unsafe extern "C" fn(Address, *const c_void, usize, Handle) -> Status,
    copy_out: unsafe extern "C" fn(*mut c_void, Address, usize, Handle) -> Status,
}

/// The driver's library.
struct Library(*mut c_void);

impl Library {
    /// Where the process has loaded it: nothing is loaded for programs that do not use CUDA.
    fn loaded() -> Option<Library> {
        // SAFETY: a constant string; it only reads.
        let found = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        (!found.is_null()).then_some(Library(found))
    }

    /// # Safety
    /// `F` is a pointer to a function of the type that the library has by this name.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: a handle of `dlopen`, which is never closed, and a string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr().cast::<c_char>()) };
        // SAFETY: not null, and of the type that the caller states.
        (!found.is_null()).then(|| unsafe { transmute_copy(&found) })
    }
}

impl Driver {
    /// The driver of this process; none where it does not use CUDA.
    pub(crate) fn of_process() -> Option<Driver> {
        let library = Library::loaded()?;
        // SAFETY: the types of the reference manual, by the names that <cuda.h> gives these functions today.
        unsafe {
            Some(Driver {
                pointer_get_attribute: library.function(c"cuPointerGetAttribute")?,
                primary_context_retain: library.function(c"cuDevicePrimaryCtxRetain")?,
                context_set_current: library.function(c"cuCtxSetCurrent")?,
                host_register: library.function(c"cuMemHostRegister_v2")?,
                host_unregister: library.function(c"cuMemHostUnregister")?,
                stream_create: library.function(c"cuStreamCreate")?,
                stream_destroy: library.function(c"cuStreamDestroy_v2")?,
                event_create: library.function(c"cuEventCreate")?,
                event_destroy: library.function(c"cuEventDestroy_v2")?,
                event_record: library.function(c"cuEventRecord")?,
                event_query: library.function(c"cuEventQuery")?,
                copy_in: library.function(c"cuMemcpyHtoDAsync_v2")?,
                copy_out: library.function(c"cuMemcpyDtoHAsync_v2")?,
            })
        }
    }

    /// An attribute of a pointer, which is a number or a pointer of the type's size.
    fn attribute<T: Default>(&self, which: c_int, address: Address) -> Option<T> {
        let mut value = T::default();
        // SAFETY: a local of the attribute's type, as the callers below have it.
        let status = unsafe { (self.pointer_get_attribute)((&raw mut value).cast(), which, address) };
        (status == 0).then_some(value)
    }

    /// The address is a device's, or managed by the driver.
    pub(crate) fn is_device(&self, address: Address) -> bool {
        let managed = self.attribute::<c_uint>(IS_MANAGED, address).is_some_and(|managed| managed != 0);
        managed || self.attribute::<c_uint>(MEMORY_TYPE, address) == Some(DEVICE)
    }

    /// The allocation that an address is in: its first byte, and bytes.
    pub(crate) fn range(&self, address: Address) -> Option<(Address, u64)> {
        let size: usize = self.attribute(RANGE_SIZE, address)?;
        Some((self.attribute(RANGE_START, address)?, size as u64))
    }

    /// The context that copies of this address can be made in: its own, or its device's primary one.
    pub(crate) fn context(&self, address: Address) -> Option<Handle> {
        let own = self.attribute::<usize>(CONTEXT, address).filter(|own| *own != 0);
        if let Some(own) = own {
            return Some(std::ptr::with_exposed_provenance_mut(own));
        }
        let (device, mut context) = (self.attribute::<c_int>(DEVICE_ORDINAL, address)?, std::ptr::null_mut());
        // SAFETY: a local for the result. It is kept as long as the process lives, as the program itself does.
        let status = unsafe { (self.primary_context_retain)(&raw mut context, device) };
        (status == 0 && !context.is_null()).then_some(context)
    }

    /// Calls of this thread are about this context.
    pub(crate) fn enter(&self, context: Handle) -> bool {
        // SAFETY: a context of the driver's; one that is gone is an error.
        unsafe { (self.context_set_current)(context) == 0 }
    }

    /// Pins memory, so that copies of it do not pass through other memory. Where it cannot be, copies work as well.
    pub(crate) fn pin(&self, at: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's memory, which stays mapped until it is unpinned.
        unsafe { (self.host_register)(at.cast(), len, 0) == 0 }
    }

    pub(crate) fn unpin(&self, at: *mut u8) {
        // SAFETY: what was pinned. An error means that the context is gone, and then so is the pin.
        unsafe { (self.host_unregister)(at.cast()) };
    }

    pub(crate) fn stream(&self) -> Option<Handle> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: a local for the result.
        (unsafe { (self.stream_create)(&raw mut stream, NON_BLOCKING) } == 0).then_some(stream)
    }

    pub(crate) fn end_stream(&self, stream: Handle) {
        // SAFETY: a stream of this driver's, not used any more.
        unsafe { (self.stream_destroy)(stream) };
    }

    pub(crate) fn event(&self) -> Option<Handle> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a local for the result.
        (unsafe { (self.event_create)(&raw mut event, NO_TIMING) } == 0).then_some(event)
    }

    pub(crate) fn end_event(&self, event: Handle) {
        // SAFETY: an event of this driver's, not used any more.
        unsafe { (self.event_destroy)(event) };
    }

    /// The event happens when all that was ordered on the stream is done.
    pub(crate) fn record(&self, event: Handle, stream: Handle) -> bool {
        // SAFETY: both are this driver's.
        unsafe { (self.event_record)(event, stream) == 0 }
    }

    /// 0 once it has happened, [`NOT_READY`] before, or an error.
    pub(crate) fn query(&self, event: Handle) -> Status {
        // SAFETY: an event of this driver's.
        unsafe { (self.event_query)(event) }
    }

    /// Orders a copy of host memory to a device.
    ///
    /// # Safety
    /// `from` is valid for `len` bytes until the copy is done. A wrong device address is an error of the driver's.
    pub(crate) unsafe fn copy_in(&self, to: Address, from: *const u8, len: usize, stream: Handle) -> bool {
        // SAFETY: as the caller guarantees.
        unsafe { (self.copy_in)(to, from.cast(), len, stream) == 0 }
    }

    /// The other way.
    ///
    /// # Safety
    /// As [`Driver::copy_in`], and nobody else reads `to` meanwhile.
    pub(crate) unsafe fn copy_out(&self, to: *mut u8, from: Address, len: usize, stream: Handle) -> bool {
        // SAFETY: as the caller guarantees.
        unsafe { (self.copy_out)(to.cast(), from, len, stream) == 0 }
    }
}
