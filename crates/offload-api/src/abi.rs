//! The types of `include/offload.h`.
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicPtr;

/// Version of [`Calls`]. A later one has more calls behind those of an earlier one.
pub const VERSION: u32 = 2;
/// For [`Calls::register_opcode`]: the queue pairs of all ports.
pub const EVERY_QP: u32 = 0;

/// Codes of [`Calls::submit_dma`].
pub mod dma {
    use std::ffi::c_int;

    /// From the host's memory.
    pub const READ: c_int = 0;
    /// To the host's memory.
    pub const WRITE: c_int = 1;
    /// Adds the word at the function's address, and leaves there what was in the host's memory.
    pub const FETCH_ADD: c_int = 2;
    /// Two words at the function's address: expected and new. What was in the host's memory is left in the first one.
    pub const COMPARE_SWAP: c_int = 3;
}

/// Statuses that the engine itself gives, in the high half of a response's immediate data.
pub mod status {
    /// The function returned 0.
    pub const OK: u16 = 0;
    /// No function is registered for the opcode.
    pub const NO_OPCODE: u16 = 0xff00;
    /// The function returned a negative number.
    pub const FAILED: u16 = 0xff01;
    /// The function was ended at its time limit.
    pub const TIMED_OUT: u16 = 0xff02;
    /// The engine had no memory for the call.
    pub const NO_MEMORY: u16 = 0xff03;
}

/// The request, as a function sees it. The engine keeps more behind it.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// The request's bytes.
    pub request: *const c_void,
    /// How many.
    pub request_size: u64,
    /// The opcode that it came with.
    pub opcode: u32,
    /// The queue pair that it came by.
    pub qp: u32,
}

/// An offload function: 0, a status of its own up to 0xfeff, or a negative error number.
pub type Function = unsafe extern "C" fn(*mut Context) -> c_int;

/// What the engine offers. The engine writes its address to the library's symbol `offload_calls` before it calls
/// `offload_init`.
#[repr(C)]
#[derive(Debug)]
pub struct Calls {
    /// [`VERSION`].
    pub version: u32,
    /// For `offload_init`: opcode, port of the queue pairs or [`EVERY_QP`], function. 0 or a negative error number.
    pub register_opcode: unsafe extern "C" fn(u32, u32, Option<Function>) -> c_int,
    /// Room for the response; null where it is too much.
    pub alloc_resp: unsafe extern "C" fn(*mut Context, usize) -> *mut c_void,
    /// Operation, address in the host's memory, address in the function's, bytes. A number for `wait_dma_finish`, or a
    /// negative error number.
    pub submit_dma: unsafe extern "C" fn(*mut Context, c_int, u64, *mut c_void, usize) -> i64,
    /// 0, or a negative error number.
    pub wait_dma_finish: unsafe extern "C" fn(*mut Context, i64) -> c_int,
    /// 0, or a negative error number.
    pub submit_resp: unsafe extern "C" fn(*mut Context, *const c_void, usize) -> c_int,
    /// As `submit_resp`, to an address of the client's under a remote key. Since version 2.
    pub submit_resp_to: unsafe extern "C" fn(*mut Context, *const c_void, usize, u64, u32) -> c_int,
}

/// The symbol `offload_calls` of a library.
pub type Table = AtomicPtr<Calls>;
