//! The contract between offload functions and the offload engine (docs/OFFLOAD.md): what `include/offload.h` declares,
//! in Rust. The names of the calls are those of SmartNS, table 2.
//!
//! A library of functions in Rust is a `cdylib` that calls [`functions!`] once:
//!
//! ```no_run
//! use offload_api::Call;
//!
//! /// Answers with the 8 bytes at the address that the request names.
//! fn peek(call: &mut Call<'_>) -> Result<(), i32> {
//!     let address = u64::from_le_bytes(call.request().try_into().map_err(|_| 22)?);
//!     let response = call.alloc_resp(8)?;
//!     call.read(address, response)?;
//!     call.submit_resp(response)
//! }
//!
//! offload_api::functions!(0x20 => peek);
//! ```

mod abi;
mod call;

pub use abi::{Calls, Context, EVERY_QP, Function, Table, VERSION, dma, status};
pub use call::{Call, enter};

/// Makes a library of offload functions: `opcode => function`, for queue pairs of every port.
#[macro_export]
macro_rules! functions {
    ($($opcode:expr => $function:path),+ $(,)?) => {
        #[doc(hidden)]
        #[allow(non_upper_case_globals, missing_docs)]
        #[unsafe(no_mangle)]
        pub static offload_calls: $crate::Table = $crate::Table::new(::std::ptr::null_mut());

        #[doc(hidden)]
        #[allow(missing_docs)]
        #[unsafe(no_mangle)]
        pub extern "C" fn offload_init() -> ::std::ffi::c_int {
            $({
                unsafe extern "C" fn entry(context: *mut $crate::Context) -> ::std::ffi::c_int {
                    // SAFETY: the engine passes the context of a call, and has set the table.
                    unsafe { $crate::enter(context, &offload_calls, $function) }
                }
                let calls = offload_calls.load(::std::sync::atomic::Ordering::Acquire);
                // SAFETY: the engine has set the table, which outlives the library.
                let done = unsafe { ((*calls).register_opcode)($opcode, $crate::EVERY_QP, Some(entry)) };
                if done != 0 {
                    return done;
                }
            })+
            0
        }
    };
}
