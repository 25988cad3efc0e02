//! Calls on identifiers: made, ended, given an address, resolved, listening.
use super::address;
use super::device_identifier::DeviceIdentifier;
use super::events;
use super::held::kind;
use super::identifier::{self, Id};
use super::lifetime::{acknowledge, create, destroy, migrate};
use super::placement::{bind, choose, is_bound, this_host};
use super::service::services;
use crate::abi::{IbvContext, RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use crate::errno::{self, Result};
use libc::{c_int, c_void, sockaddr, sockaddr_in};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;
use verbs::connections::{Answer, Request};

/// `RDMA_OPTION_ID`, and its option `RDMA_OPTION_ID_REUSEADDR`, `_AFONLY`.
const LEVEL_ID: c_int = 0;
const REUSE_ADDRESS: c_int = 1;
const FAMILY_ONLY: c_int = 2;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut RdmaEventChannel,
    into: *mut *mut RdmaCmId,
    context: *mut c_void,
    space: c_int,
) -> c_int {
    // SAFETY: the program passes a channel of its own, or null.
    errno::minus_one(unsafe { create(channel, context, space) }.map(|id| {
        // SAFETY: the program passes a place for the identifier.
        unsafe { *into = id };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    // SAFETY: an identifier of the program's, which it uses no more.
    errno::minus_one(unsafe { destroy(id) })
}

/// After a call whose result is an event: waits for it, where the identifier has a channel of its own.
///
/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn complete(id: *mut RdmaCmId) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Id::of(id) };
    let waits = of.private().waits;
    if !waits {
        return Ok(());
    }
    // SAFETY: as the caller guarantees; a waiting identifier has a channel of its own.
    unsafe {
        acknowledge(id);
        let event = events::next((*id).channel)?;
        (*id).event = event;
        match ((*event).event, (*event).status) {
            (_, 0) => Ok(()),
            (kind::REJECTED, _) => Err(libc::ECONNREFUSED),
            (_, status) => Err(status.abs()),
        }
    }
}

/// The next event of an identifier that waits by itself, in `id.event`.
///
/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn wait_for_request(id: *mut RdmaCmId) -> Result<*mut RdmaCmEvent> {
    // SAFETY: as the caller guarantees.
    unsafe {
        acknowledge(id);
        events::next((*id).channel)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> c_int {
    // SAFETY: the program passes an identifier and a channel of its own, or null.
    errno::minus_one(unsafe { migrate(id, channel) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut RdmaCmId, address: *mut sockaddr) -> c_int {
    // SAFETY: the program passes an identifier and an address.
    errno::minus_one(unsafe { address::read(address).and_then(|local| bind(id, local)) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program passes an identifier, and addresses or null for the first.
    errno::minus_one(unsafe { resolve(id, source, destination, timeout) })
}

/// # Safety
/// As for [`rdma_resolve_addr`].
unsafe fn resolve(id: *mut RdmaCmId, source: *mut sockaddr, destination: *mut sockaddr, timeout: c_int) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let to = this_host(address::read(destination)?);
        // As with Linux: an identifier that is bound stays so.
        if !source.is_null() && !is_bound(id) {
            bind(id, address::read(source)?)?;
        }
        choose(id, *to.ip())?;
        let DeviceIdentifier { service, number } = Id::of(id).seat();
        let request = Request::Resolve { id: number, to, timeout: timeout.max(0) as u32 };
        if let Answer::Bound(local) = service.answer(request)? {
            identifier::bind(service, id, local);
            identifier::name_peer(id, to);
        }
        complete(id)
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout: c_int) -> c_int {
    // SAFETY: the program passes an identifier.
    errno::minus_one(unsafe {
        let DeviceIdentifier { service, number } = Id::of(id).seat();
        service.done(Request::Route(number)).and_then(|()| complete(id))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    let listened = || {
        // SAFETY: the program passes an identifier.
        let of = unsafe { Id::of(id) };
        // SAFETY: as above.
        if unsafe { !is_bound(id) } {
            // SAFETY: as above.
            unsafe { bind(id, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))? };
        }
        let backlog = backlog.max(0) as u32;
        let listen = |DeviceIdentifier { service, number }| service.done(Request::Listen { id: number, backlog });
        of.seats().into_iter().try_for_each(listen)
    };
    errno::minus_one(listened())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut RdmaCmId,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> c_int {
    let done = match (level, name) {
        (LEVEL_ID, REUSE_ADDRESS) if len == size_of::<c_int>() => {
            // SAFETY: the program passes an identifier, and a value of this size.
            unsafe { Id::of(id).private().shared = value.cast::<c_int>().read_unaligned() != 0 };
            Ok(())
        }
        // Addresses here are of one family.
        (LEVEL_ID, FAMILY_ONLY) if len == size_of::<c_int>() => Ok(()),
        (LEVEL_ID, REUSE_ADDRESS | FAMILY_ONLY) => Err(libc::EINVAL),
        _ => Err(libc::EOPNOTSUPP),
    };
    errno::minus_one(done)
}

/// # Safety
/// An identifier; its addresses are IPv4's or none.
unsafe fn port(address: *const libc::sockaddr_storage) -> u16 {
    // SAFETY: as the caller guarantees: zeros where there is none.
    unsafe { (*address.cast::<sockaddr_in>()).sin_port }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: the program passes an identifier.
    unsafe { port(&raw const (*id).route.addr.src) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: the program passes an identifier.
    unsafe { port(&raw const (*id).route.addr.dst) }
}

/// The contexts of all devices that can be opened; an error where there is none.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut IbvContext {
    let mut list: Vec<*mut IbvContext> = services().map(|service| service.context).collect();
    if !count.is_null() {
        // SAFETY: the program passes a place for the count, or null.
        unsafe { *count = list.len() as c_int };
    }
    if list.is_empty() {
        return errno::pointer(Err(libc::ENODEV));
    }
    list.push(null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut IbvContext) {
    if !list.is_null() {
        // SAFETY: made by `rdma_get_devices`: what was opened stays open, so it ends at the first null.
        unsafe {
            let len = (0..).take_while(|at| !(*list.add(*at)).is_null()).count() + 1;
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)));
        }
    }
}
