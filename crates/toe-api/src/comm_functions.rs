//! The functions `toe_comm_*` of `include/toe.h`.
use crate::functions::{missing, named};
use libc::{c_char, c_int, c_void, size_t, sockaddr_in};
use std::io;
use std::sync::OnceLock;

/// `toe_comm`: only the library reads it.
#[repr(C)]
pub(crate) struct Handle {
    _inside: [u8; 0],
}

/// `struct toe_comm_event`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawEvent {
    pub what: u32,
    pub connection: u32,
    pub id: u64,
    pub value: u64,
}

type Connect = unsafe extern "C" fn(*mut Handle, *const sockaddr_in, u64) -> c_int;
type Datagrams = unsafe extern "C" fn(*mut Handle, u16, *const sockaddr_in, u64) -> c_int;
type Listen = unsafe extern "C" fn(*mut Handle, u16, u64) -> c_int;
pub(crate) type Move = unsafe extern "C" fn(*mut Handle, u32, u32, u64, size_t, u64) -> c_int;
type Of = unsafe extern "C" fn(*mut Handle, u32) -> c_int;

/// Those that this crate uses.
pub(crate) struct CommFunctions {
    pub open: unsafe extern "C" fn(*const c_char) -> *mut Handle,
    pub close: unsafe extern "C" fn(*mut Handle),
    pub fd: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub register: unsafe extern "C" fn(*mut Handle, *mut c_void, size_t, *mut u32) -> c_int,
    pub deregister: Of,
    pub connect: Connect,
    pub listen: Listen,
    pub connect_messages: Connect,
    pub listen_messages: Listen,
    pub connect_datagrams: Datagrams,
    pub send: Move,
    pub recv: Move,
    pub end: Of,
    pub drop: Of,
    pub wait: unsafe extern "C" fn(*mut Handle, *mut RawEvent, c_int, c_int) -> c_int,
}

/// What was looked up; `Unsupported` where `libtoe.so` is not loaded.
pub(crate) fn comm_functions() -> io::Result<&'static CommFunctions> {
    static FOUND: OnceLock<Option<CommFunctions>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref().ok_or_else(missing)
}

fn find() -> Option<CommFunctions> {
    // SAFETY: the types are those of include/toe.h.
    unsafe {
        Some(CommFunctions {
            open: named(c"toe_comm_open")?,
            close: named(c"toe_comm_close")?,
            fd: named(c"toe_comm_fd")?,
            register: named(c"toe_comm_register")?,
            deregister: named(c"toe_comm_deregister")?,
            connect: named(c"toe_comm_connect")?,
            listen: named(c"toe_comm_listen")?,
            connect_messages: named(c"toe_comm_connect_messages")?,
            listen_messages: named(c"toe_comm_listen_messages")?,
            connect_datagrams: named(c"toe_comm_connect_datagrams")?,
            send: named(c"toe_comm_send")?,
            recv: named(c"toe_comm_recv")?,
            end: named(c"toe_comm_end")?,
            drop: named(c"toe_comm_drop")?,
            wait: named(c"toe_comm_wait")?,
        })
    }
}
