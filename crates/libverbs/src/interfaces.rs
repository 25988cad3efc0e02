//! The host's address among the machine's interfaces: libfabric and others find devices by the addresses that
//! `getifaddrs` lists. The kernel has no interface of the host, so the device's port is added to its list.
use crate::cm::plain;
use crate::device;
use buffers::next;
use libc::{c_char, c_int, c_uint, ifaddrs, sockaddr_in};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What the port can: it is up, and has an address and no loops.
const FLAGS: c_uint = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_NOARP) as c_uint;

/// One entry, with what it points to.
#[repr(C)]
struct Entry {
    public: ifaddrs,
    address: sockaddr_in,
    mask: sockaddr_in,
    name: [c_char; crate::abi::NAME_BYTES],
}

/// The entries that are out: `freeifaddrs` distinguishes them from the C library's by their addresses.
static OUT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn out() -> MutexGuard<'static, Vec<usize>> {
    OUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An entry in front of a list.
fn entry(name: &str, own: Ipv4Addr, next: *mut ifaddrs) -> *mut ifaddrs {
    // SAFETY: zeros are a valid value.
    let mut public: ifaddrs = unsafe { std::mem::zeroed() };
    (public.ifa_next, public.ifa_flags) = (next, FLAGS);
    let address = plain(SocketAddrV4::new(own, 0));
    // A host's own address; its network is the daemon's affair.
    let mask = plain(SocketAddrV4::new(Ipv4Addr::BROADCAST, 0));
    let made = Box::into_raw(Box::new(Entry { public, address, mask, name: device::text(name) }));
    // SAFETY: it was made just now, and does not move.
    unsafe {
        (*made).public.ifa_name = (&raw mut (*made).name).cast();
        (*made).public.ifa_addr = (&raw mut (*made).address).cast();
        (*made).public.ifa_netmask = (&raw mut (*made).mask).cast();
    }
    out().push(made.expose_provenance());
    made.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getifaddrs(into: *mut *mut ifaddrs) -> c_int {
    let done = next!(c"getifaddrs", fn(*mut *mut ifaddrs) -> c_int, into);
    if done == 0 {
        if let Some((name, own)) = device::address() {
            // SAFETY: the C library has written the list there.
            unsafe { *into = entry(name, own, *into) };
        }
    }
    done
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freeifaddrs(list: *mut ifaddrs) {
    let mut remaining = list;
    let is_ours = {
        let mut out = out();
        let at = out.iter().position(|entry| *entry == list.addr());
        at.map(|at| out.swap_remove(at)).is_some()
    };
    if is_ours {
        // SAFETY: `entry` made it, and it is used no more.
        remaining = unsafe { Box::from_raw(list.cast::<Entry>()) }.public.ifa_next;
    }
    if !remaining.is_null() {
        next!(c"freeifaddrs", fn(*mut ifaddrs), remaining);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr::null_mut;

    #[test]
    fn an_entry_stands_in_front_and_is_freed_with_the_list() {
        let mut list = null_mut();
        // SAFETY: a place for the list, which is valid until it is freed.
        unsafe {
            assert_eq!(getifaddrs(&raw mut list), 0);
            let front = entry("toe0", Ipv4Addr::new(10, 0, 0, 7), list);
            assert_eq!((CStr::from_ptr((*front).ifa_name), (*front).ifa_next), (c"toe0", list));
            let address = (*front).ifa_addr.cast::<sockaddr_in>().read();
            assert_eq!(address.sin_addr.s_addr, u32::from_ne_bytes([10, 0, 0, 7]));
            assert_eq!(out().len(), 1);
            freeifaddrs(front);
            assert!(out().is_empty());
            freeifaddrs(null_mut());
        }
    }
}
