//! The list of devices: those of the host, or none where the process does not run on OpenTOE.
use crate::abi::IbvDevice;
use crate::attachment::{self, Attachment};
use libc::{c_char, c_int};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;
use verbs::attach;
use wire::Mac;

/// `IBV_NODE_CA`.
const CHANNEL_ADAPTER: c_int = 1;
/// `IBV_TRANSPORT_IB`.
const TRANSPORT_IB: c_int = 0;

/// A device as programs see it. Providers' libraries read behind the public structure (`verbs_device::ops`), to see
/// whether a device is theirs: there are zeros.
#[repr(C)]
struct Device {
    public: IbvDevice,
    behind: [u64; 64],
}

/// A device of the process's first search. The pointer is of one that is never freed.
struct Found {
    public: *mut IbvDevice,
    stated: attach::Device,
}

// SAFETY: the device is not written after it was made.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

static FOUND: OnceLock<Vec<Found>> = OnceLock::new();

fn found() -> &'static [Found] {
    FOUND.get_or_init(|| {
        let attached = attachment::is_wanted().then(|| Attachment::new(None).ok()).flatten();
        let make = |(number, stated): (usize, &attach::Device)| {
            let made = Box::new(Device { public: describe(&stated.name, number), behind: [0; 64] });
            Found { public: Box::into_raw(made).cast(), stated: stated.clone() }
        };
        attached.iter().flat_map(|(attachment, _)| attachment.devices().enumerate().map(make)).collect()
    })
}

/// ArenaMapping of a device in the list.
fn number(device: *mut IbvDevice) -> Option<usize> {
    found().iter().position(|found| found.public == device)
}

/// The device at this place in the list; null where there is none.
pub(crate) fn at(place: usize) -> *mut IbvDevice {
    found().get(place).map_or(std::ptr::null_mut(), |found| found.public)
}

/// How many devices there are.
pub(crate) fn count() -> usize {
    found().len()
}

/// The names of all devices.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    found().iter().map(|found| found.stated.name.as_str())
}

/// The name of a device; nothing of one that is not in the list.
pub(crate) fn name(device: *mut IbvDevice) -> Option<&'static str> {
    number(device).map(|number| found()[number].stated.name.as_str())
}

/// The first device's name and the host's address; nothing where there is no device.
pub(crate) fn address() -> Option<(&'static str, Ipv4Addr)> {
    Some((&found().first()?.stated.name, address_at(0)?))
}

/// The address of the device at this place in the list.
pub(crate) fn address_at(place: usize) -> Option<Ipv4Addr> {
    found().get(place)?.stated.gids.iter().find_map(|gid| Ipv6Addr::from(gid.0).to_ipv4_mapped())
}

fn describe(name: &str, number: usize) -> IbvDevice {
    IbvDevice {
        ops: [0; 2],
        node_type: CHANNEL_ADAPTER,
        transport_type: TRANSPORT_IB,
        name: text(name),
        dev_name: text(&format!("uverbs{number}")),
        dev_path: text(&format!("/sys/class/infiniband_verbs/uverbs{number}")),
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
    if !count.is_null() {
        // SAFETY: the program passes a place for the count, or null.
        unsafe { *count = self::count() as c_int };
    }
    let list: Box<[*mut IbvDevice]> = found().iter().map(|found| found.public).chain([std::ptr::null_mut()]).collect();
    Box::into_raw(list).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut IbvDevice) {
    if !list.is_null() {
        // SAFETY: made by `ibv_get_device_list`, always of this size: what was found stays.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, count() + 1)) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut IbvDevice) -> *const c_char {
    // SAFETY: a device of the list.
    unsafe { (*device).name.as_ptr() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(device: *mut IbvDevice) -> u64 {
    number(device).map_or(0, |number| guid(found()[number].stated.mac))
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(device: *mut IbvDevice) -> c_int {
    number(device).map_or(-1, |number| number as c_int)
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
