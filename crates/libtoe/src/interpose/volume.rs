//! `toe_volume_*` of include/toe.h. As the zero-copy functions, they are the library's own.
use super::handles::{Handle, close, events, register, text, with};
use crate::calls::volume::{Volume, VolumeEvent};
use crate::system::errno::{give, set};
use context::comm::Piece;
use context::volume::Order;
use libc::{c_char, c_int, c_void, size_t};
use std::sync::Mutex;

/// `toe_volume_open`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_open(volume: *const c_char, host: *const c_char) -> *mut Handle<Volume> {
    // SAFETY: null, or strings of the caller's.
    let (volume, host) = unsafe { (text(volume), text(host)) };
    match volume.ok_or(libc::EFAULT).and_then(|volume| Volume::open(volume, host)) {
        Ok(volume) => Box::into_raw(Box::new(Mutex::new(volume))),
        Err(errno) => {
            set(errno);
            std::ptr::null_mut()
        }
    }
}

/// `toe_volume_close`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_close(volume: *mut Handle<Volume>) {
    // SAFETY: from toe_volume_open, and not used any more, as its description asks.
    unsafe { close(volume) }
}

/// `toe_volume_size`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_size(volume: *mut Handle<Volume>) -> u64 {
    // SAFETY: the caller's.
    unsafe { with(volume, |volume| Ok(volume.bytes())) }.unwrap_or(0)
}

/// `toe_volume_is_read_only`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_is_read_only(volume: *mut Handle<Volume>) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(volume, |volume| Ok(c_int::from(volume.is_read_only()))) })
}

/// `toe_volume_fd`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_fd(volume: *mut Handle<Volume>) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(volume, |volume| Ok(volume.fd())) })
}

/// `toe_volume_register`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_register(
    volume: *mut Handle<Volume>,
    at: *mut c_void,
    len: size_t,
    key: *mut u32,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { register(volume, at, key, |volume, address| volume.register(address, len as u64)) }
}

/// `toe_volume_deregister`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_deregister(volume: *mut Handle<Volume>, key: u32) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(volume, |volume| volume.deregister(key)) }.map(|()| 0))
}

/// `toe_volume_read`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_read(
    volume: *mut Handle<Volume>,
    at: u64,
    len: size_t,
    key: u32,
    offset: u64,
    id: u64,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(volume, Order::Read, at, Piece { key, offset, len: len as u64 }, id) }
}

/// `toe_volume_write`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_write(
    volume: *mut Handle<Volume>,
    at: u64,
    len: size_t,
    key: u32,
    offset: u64,
    id: u64,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { post(volume, Order::Write, at, Piece { key, offset, len: len as u64 }, id) }
}

/// `toe_volume_poll`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_poll(
    volume: *mut Handle<Volume>,
    list: *mut VolumeEvent,
    most: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { events(volume, list, most, |volume, list| Ok(volume.take(list))) }
}

/// `toe_volume_wait`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn toe_volume_wait(
    volume: *mut Handle<Volume>,
    list: *mut VolumeEvent,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { events(volume, list, most, |volume, list| volume.wait(list, timeout)) }
}

/// # Safety
/// As [`with`].
unsafe fn post(volume: *mut Handle<Volume>, order: Order, at: u64, memory: Piece, id: u64) -> c_int {
    // SAFETY: the caller's.
    give(unsafe { with(volume, |volume| volume.post(order, at, memory, id)) }.map(|()| 0))
}
