//! The list of devices: the host's one, or none where the process does not run on OpenTOE.
use crate::abi::IbvDevice;
use crate::attachment::{self, Attachment};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use wire::Mac;

/// `IBV_NODE_CA`.
const CHANNEL_ADAPTER: c_int = 1;
/// `IBV_TRANSPORT_IB`.
const TRANSPORT_IB: c_int = 0;

/// A device as programs see it. Providers' libraries look behind the public structure (`verbs_device::ops`), to see
/// whether a device is theirs: there are zeros.
#[repr(C)]
struct Device {
    public: IbvDevice,
    behind: [u64; 64],
}

/// What was found when the process looked first. The pointer is of a device that is never freed.
struct Found(*mut IbvDevice, Mac, Option<Ipv4Addr>);

// SAFETY: the device is not written after it was made.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

static FOUND: OnceLock<Option<Found>> = OnceLock::new();

fn found() -> Option<&'static Found> {
    let look = || {
        if !attachment::is_wanted() {
            return None;
        }
        let (attachment, _) = Attachment::new().ok()?;
        let device = attachment.device();
        let made = Box::new(Device { public: describe(&device.name), behind: [0; 64] });
        let address = device.gids.iter().find_map(|gid| Ipv6Addr::from(gid.0).to_ipv4_mapped());
        Some(Found(Box::into_raw(made).cast(), device.mac, address))
    };
    FOUND.get_or_init(look).as_ref()
}

/// The host's device; null where there is none.
pub(crate) fn device() -> *mut IbvDevice {
    found().map_or(std::ptr::null_mut(), |found| found.0)
}

/// The device's name and the host's address; nothing where there is no device.
pub(crate) fn address() -> Option<(String, Ipv4Addr)> {
    let found = found()?;
    // SAFETY: a device that is never freed; its name ends with a zero.
    let name = unsafe { CStr::from_ptr((&raw const (*found.0).name).cast()) };
    Some((name.to_string_lossy().into_owned(), found.2?))
}

fn describe(name: &str) -> IbvDevice {
    IbvDevice {
        ops: [0; 2],
        node_type: CHANNEL_ADAPTER,
        transport_type: TRANSPORT_IB,
        name: text(name),
        dev_name: text("uverbs0"),
        dev_path: text("/sys/class/infiniband_verbs/uverbs0"),
        ibdev_path: text(&format!("/sys/class/infiniband/{name}")),
    }
}

/// A C string in a fixed array, cut off where it is longer.
pub(crate) fn text<const N: usize>(from: &str) -> [c_char; N] {
    let mut to = [0; N];
    to.iter_mut().take(N - 1).zip(from.bytes()).for_each(|(to, from)| *to = from as c_char);
    to
}

/// A GUID made of a hardware address (EUI-64, as IBTA Annex A17 has it for RoCE), in network byte order.
pub(crate) fn guid(mac: Mac) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut IbvDevice {
    let device = device();
    if !count.is_null() {
        // SAFETY: the program passes a place for the count, or null.
        unsafe { *count = c_int::from(!device.is_null()) };
    }
    Box::into_raw(Box::new([device, std::ptr::null_mut()])).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut IbvDevice) {
    if !list.is_null() {
        // SAFETY: made by `ibv_get_device_list`, always of this size.
        drop(unsafe { Box::from_raw(list.cast::<[*mut IbvDevice; 2]>()) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char {
    // SAFETY: a device of the list.
    unsafe { (*device).name.as_ptr() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut IbvDevice) -> u64 {
    found().map_or(0, |found| guid(found.1))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut IbvDevice) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_has_the_hardware_address() {
        let guid = guid(Mac([0x02, 0x11, 0x22, 0x33, 0x44, 0x55])).to_ne_bytes();
        assert_eq!(guid, [0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55]);
    }

    #[test]
    fn names_are_cut_off() {
        assert_eq!(text::<4>("toe0"), [b't', b'o', b'e', 0].map(|byte| byte as c_char));
    }
}
