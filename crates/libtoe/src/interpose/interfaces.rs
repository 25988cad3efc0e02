//! Lists of interfaces (getifaddrs(3), if_nameindex(3), netdevice(7)): the kernel's, and those of the host.
use crate::interfaces::{self, NAME_LEN, Shape, Shown};
use crate::system::errno::{self, Result};
use crate::system::{real, user_memory};
use libc::{c_char, c_int, c_uint, c_ulong, if_nameindex as Named, ifaddrs, ifconf, ifreq, sockaddr};
use std::ffi::CStr;
use std::mem::offset_of;
use std::ops::RangeInclusive;
use std::ptr::{null_mut, with_exposed_provenance_mut};

/// An interface of ours in a list of addresses. The list's first entry, which begins it, has its kind.
#[repr(C)]
struct Listed {
    link: ifaddrs,
    /// One for each address; where there is none of IPv6, the last one is not in the list.
    addresses: [ifaddrs; 2],
    hardware: libc::sockaddr_ll,
    /// The counters that the kernel puts there: all are 0.
    counters: [u32; 64],
    hardware_broadcast: libc::sockaddr_ll,
    /// For each address: itself, its mask, its broadcast address.
    places: [[libc::sockaddr_storage; 3]; 2],
    name: [u8; NAME_LEN],
    mark: u64,
}

const MARK: u64 = 0x4f70_656e_544f_4521;

impl Listed {
    fn new(shown: &Shown) -> Box<Listed> {
        // SAFETY: zeros are valid for all its parts.
        let mut listed: Box<Listed> = Box::new(unsafe { std::mem::zeroed() });
        (listed.name, listed.mark) = (shown.name, MARK);
        let card = |address: [u8; 6]| {
            // SAFETY: as above.
            let mut card: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (card.sll_family, card.sll_hatype) = (libc::AF_PACKET as u16, libc::ARPHRD_ETHER);
            (card.sll_ifindex, card.sll_halen) = (shown.index as c_int, 6);
            card.sll_addr[..6].copy_from_slice(&address);
            card
        };
        (listed.hardware, listed.hardware_broadcast) = (card(shown.port.mac), card([0xff; 6]));
        let name: *mut c_char = listed.name.as_mut_ptr().cast();
        let fill = |entry: &mut ifaddrs, [address, mask, broadcast]: [*mut sockaddr; 3]| {
            (entry.ifa_name, entry.ifa_flags) = (name, interfaces::FLAGS as c_uint);
            (entry.ifa_addr, entry.ifa_netmask, entry.ifa_ifu) = (address, mask, broadcast);
        };
        let Listed { link, addresses, hardware, counters, hardware_broadcast, places, .. } = &mut *listed;
        fill(link, [(&raw mut *hardware).cast(), null_mut(), (&raw mut *hardware_broadcast).cast()]);
        link.ifa_data = counters.as_mut_ptr().cast();
        let mut last = link;
        for (network, (entry, places)) in shown.networks().zip(addresses.iter_mut().zip(places)) {
            let Shape { address, mask, broadcast, .. } = network;
            let [address, mask, broadcast] = [Some(address), Some(mask), broadcast];
            let mut places = places.iter_mut().zip([address, mask, broadcast]).map(|(place, ip)| put(place, ip));
            fill(entry, std::array::from_fn(|_| places.next().unwrap_or(null_mut())));
            last.ifa_next = entry;
            last = entry;
        }
        listed
    }

    /// The last of its entries, behind which the list goes on.
    fn last(&mut self) -> &mut ifaddrs {
        let has_v6 = self.addresses[0].ifa_next == &raw mut self.addresses[1];
        &mut self.addresses[usize::from(has_v6)]
    }

    /// The interface that begins a list, where it is one of ours.
    unsafe fn first(list: *mut ifaddrs) -> Option<*mut Listed> {
        let entry: *mut Listed = list.cast();
        // SAFETY: an entry of the program's list. Where the name is in this place behind it, the mark, which
        // follows the name, is in the same block of memory.
        unsafe {
            let is_there = !list.is_null() && (*list).ifa_name.cast() == (&raw mut (*entry).name).cast::<c_char>();
            (is_there && (*entry).mark == MARK).then_some(entry)
        }
    }
}

/// Puts an address there, where there is one; the place, as entries have it.
fn put(place: &mut libc::sockaddr_storage, ip: Option<context::IpAddress>) -> *mut sockaddr {
    let Some(ip) = ip else { return null_mut() };
    let (bytes, len) = Shown::socket_address(ip);
    let place = std::ptr::from_mut(place);
    // SAFETY: the place is larger.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast(), len) };
    place.cast()
}

/// `getifaddrs`: the host's interfaces first, since programs take the first that is not loopback's.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe {
        let result = real::getifaddrs(list);
        if result == 0 {
            for shown in interfaces::all().iter().rev() {
                // The C library's own netlink socket may have listed it already, where system calls are intercepted.
                if !has(*list, shown) {
                    let listed = Box::into_raw(Listed::new(shown));
                    (*listed).last().ifa_next = *list;
                    *list = listed.cast();
                }
            }
        }
        result
    }
}

unsafe fn has(list: *mut ifaddrs, shown: &Shown) -> bool {
    let mut at = list;
    // SAFETY: a list of the C library's.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: names end with a zero.
        if unsafe { CStr::from_ptr(entry.ifa_name) }.to_bytes() == shown.short_name() {
            return true;
        }
        at = entry.ifa_next;
    }
    false
}

/// `freeifaddrs`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn freeifaddrs(list: *mut ifaddrs) {
    let mut rest = list;
    // SAFETY: what `getifaddrs` gave.
    unsafe {
        while let Some(listed) = Listed::first(rest) {
            rest = (*listed).last().ifa_next;
            drop(Box::from_raw(listed));
        }
        if !rest.is_null() {
            real::freeifaddrs(rest);
        }
    }
}

/// `if_nametoindex`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn if_nametoindex(name: *const c_char) -> c_uint {
    // SAFETY: the caller's name.
    let ours = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes()).and_then(interfaces::named);
    // SAFETY: passed on.
    ours.map_or_else(|| unsafe { real::if_nametoindex(name) as c_uint }, |shown| shown.index)
}

/// `if_indextoname`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char {
    // SAFETY: the caller's place has room for a name.
    unsafe {
        match interfaces::numbered(index) {
            Some(shown) if !name.is_null() => {
                std::ptr::copy_nonoverlapping(shown.name.as_ptr().cast(), name, NAME_LEN);
                name
            }
            _ => with_exposed_provenance_mut(real::if_indextoname(index, name) as usize),
        }
    }
}

/// `if_nameindex`. The C library frees the names one by one, and then the list.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn if_nameindex() -> *mut Named {
    // SAFETY: the C library's list ends with a number of 0; the new one has room for all.
    unsafe {
        let kernels: *mut Named = with_exposed_provenance_mut(real::if_nameindex() as usize);
        let mut shown = interfaces::all();
        if kernels.is_null() || shown.is_empty() {
            return kernels;
        }
        let count = (0..).take_while(|at| (*kernels.add(*at)).if_index != 0).count();
        let listed = std::slice::from_raw_parts(kernels, count);
        shown.retain(|shown| !listed.iter().any(|listed| listed.if_index == shown.index));
        let list: *mut Named = libc::realloc(kernels.cast(), (count + shown.len() + 1) * size_of::<Named>()).cast();
        if list.is_null() {
            return kernels;
        }
        for (at, shown) in shown.iter().enumerate() {
            let if_name = libc::strdup(shown.name.as_ptr().cast());
            list.add(count + at).write(Named { if_index: shown.index, if_name });
        }
        list.add(count + shown.len()).write(Named { if_index: 0, if_name: null_mut() });
        list
    }
}

const SIOCGIFNAME: c_ulong = 0x8910;
const SIOCGIFCONF: c_ulong = 0x8912;
const SIOCGIFFLAGS: c_ulong = 0x8913;
const SIOCGIFADDR: c_ulong = 0x8915;
const SIOCGIFDSTADDR: c_ulong = 0x8917;
const SIOCGIFBRDADDR: c_ulong = 0x8919;
const SIOCGIFNETMASK: c_ulong = 0x891b;
const SIOCGIFMETRIC: c_ulong = 0x891d;
const SIOCGIFMTU: c_ulong = 0x8921;
const SIOCGIFHWADDR: c_ulong = 0x8927;
const SIOCGIFINDEX: c_ulong = 0x8933;
const SIOCGIFTXQLEN: c_ulong = 0x8942;
const SIOCETHTOOL: c_ulong = 0x8946;

/// The requests of `ioctl` that may be about interfaces.
pub(super) const QUESTIONS: RangeInclusive<c_ulong> = SIOCGIFNAME..=SIOCETHTOOL;

/// `ioctl` about interfaces; `None` where the kernel answers. Reads and writes the program's place as the kernel does.
pub(super) unsafe fn control(request: c_ulong, argument: c_ulong, kernel: impl Fn() -> c_int) -> Option<Result<c_int>> {
    if request == SIOCGIFCONF {
        // SAFETY: the caller's pointer.
        return unsafe { configuration(with_exposed_provenance_mut(argument as usize), kernel) };
    }
    let place: *mut ifreq = with_exposed_provenance_mut(argument as usize);
    if !crate::daemon::attach::is_enabled() || !user_memory::can_write(place, size_of::<ifreq>()) {
        return None;
    }
    // SAFETY: the caller's place.
    let name = unsafe { (*place).ifr_name }.map(|byte| byte as u8);
    let shown = match request {
        // SAFETY: as above.
        SIOCGIFNAME => interfaces::numbered(unsafe { (*place).ifr_ifru.ifru_ifindex } as c_uint)?,
        _ => interfaces::named(&name)?,
    };
    // SAFETY: as above.
    Some(unsafe { answer(request, &mut *place, &shown) })
}

unsafe fn answer(request: c_ulong, place: &mut ifreq, shown: &Shown) -> Result<c_int> {
    // As on Linux, these calls are IPv4's.
    let network = shown.networks().next();
    let address = |of: fn(&Shape) -> Option<context::IpAddress>| {
        let ip = network.as_ref().and_then(of).filter(|ip| ip.is_v4());
        ip.map(|ip| Shown::socket_address(ip).0).ok_or(libc::EADDRNOTAVAIL)
    };
    let value = &mut place.ifr_ifru;
    let store = |value: &mut libc::__c_anonymous_ifr_ifru, bytes: [u8; 28]| {
        let place: *mut u8 = std::ptr::from_mut(value).cast();
        // SAFETY: an IPv4 address fits.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, size_of::<sockaddr>()) }
    };
    match request {
        SIOCGIFNAME => place.ifr_name = shown.name.map(|byte| byte as c_char),
        SIOCGIFFLAGS => value.ifru_flags = interfaces::FLAGS as i16,
        SIOCGIFADDR | SIOCGIFDSTADDR => store(value, address(|it| Some(it.address))?),
        SIOCGIFBRDADDR => store(value, address(|it| it.broadcast)?),
        SIOCGIFNETMASK => store(value, address(|it| Some(it.mask))?),
        SIOCGIFMETRIC => value.ifru_metric = 0,
        SIOCGIFMTU => value.ifru_mtu = c_int::from(shown.port.mtu),
        SIOCGIFINDEX => value.ifru_ifindex = shown.index as c_int,
        SIOCGIFTXQLEN => value.ifru_metric = 1000,
        SIOCGIFHWADDR => {
            let mut card = [0; 28];
            card[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
            card[2..8].copy_from_slice(&shown.port.mac);
            store(value, card);
        }
        SIOCETHTOOL => return Err(libc::EOPNOTSUPP),
        // Nobody changes it from here.
        _ => return Err(libc::EPERM),
    }
    Ok(0)
}

/// `SIOCGIFCONF`: the IPv4 addresses, as many as there is room for.
unsafe fn configuration(place: *mut ifconf, kernel: impl Fn() -> c_int) -> Option<Result<c_int>> {
    let one = size_of::<ifreq>();
    // Where an address is bad, the kernel reports it.
    if !user_memory::can_write(place, size_of::<ifconf>()) {
        return None;
    }
    let shown: Vec<Shown> = interfaces::all().into_iter().filter(|shown| shown.port.address.is_v4()).collect();
    if shown.is_empty() {
        return None;
    }
    // SAFETY: the caller's place, and what it leads to.
    unsafe {
        let (buffer, len) = ((*place).ifc_ifcu.ifcu_req, (*place).ifc_len);
        if buffer.is_null() {
            return Some(errno::check(kernel()).inspect(|_| (*place).ifc_len += (shown.len() * one) as c_int));
        }
        let fit = shown.len().min(len.max(0) as usize / one);
        ((*place).ifc_ifcu.ifcu_req, (*place).ifc_len) = (buffer.wrapping_add(fit), len - (fit * one) as c_int);
        let result = errno::check(kernel());
        ((*place).ifc_ifcu.ifcu_req, (*place).ifc_len) = (buffer, (*place).ifc_len + (fit * one) as c_int);
        for (at, shown) in shown[..fit].iter().enumerate().filter(|_| result.is_ok()) {
            let mut entry: ifreq = std::mem::zeroed();
            entry.ifr_name = shown.name.map(|byte| byte as c_char);
            // The length was checked above: these are IPv4's.
            let _ = answer(SIOCGIFADDR, &mut entry, shown);
            if let Err(errno) = user_memory::write(buffer.wrapping_add(at), entry) {
                return Some(Err(errno));
            }
        }
        Some(result)
    }
}

const _: () = assert!(offset_of!(Listed, link) == 0 && offset_of!(Listed, mark) == offset_of!(Listed, name) + NAME_LEN);
