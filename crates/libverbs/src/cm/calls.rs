//! Calls on identifiers: made, ended, given an address, resolved, listening.
use super::address;
use super::events;
use super::held::kind;
use super::identifier::{self, Id};
use super::lifetime::{acknowledge, create, destroy, migrate};
use super::service::{Service, service};
use crate::abi::{IbvContext, RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use crate::errno::{self, Result};
use libc::{c_int, c_void, sockaddr, sockaddr_in};
use std::net::{Ipv6Addr, SocketAddrV4};
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
    errno::minus_one(service().and_then(|service| unsafe { create(service, channel, context, space) }).map(|id| {
        // SAFETY: the program passes a place for the identifier.
        unsafe { *into = id };
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut RdmaCmId) -> c_int {
    // SAFETY: an identifier of the program's, which it uses no more.
    errno::minus_one(service().and_then(|service| unsafe { destroy(service, id) }))
}

/// After a call whose result is an event: waits for it, where the identifier has a channel of its own.
///
/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn complete(service: &Service, id: *mut RdmaCmId) -> Result<()> {
    // SAFETY: as the caller says.
    let of = unsafe { Id::of(id) };
    let waits = of.private().waits;
    if !waits {
        return Ok(());
    }
    // SAFETY: as the caller says; a waiting identifier has a channel of its own.
    unsafe {
        acknowledge(id);
        let event = events::next(service, (*id).channel)?;
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
pub(crate) unsafe fn wait_for_request(service: &Service, id: *mut RdmaCmId) -> Result<*mut RdmaCmEvent> {
    // SAFETY: as the caller says.
    unsafe {
        acknowledge(id);
        events::next(service, (*id).channel)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> c_int {
    // SAFETY: the program passes an identifier and a channel of its own, or null.
    errno::minus_one(service().and_then(|service| unsafe { migrate(service, id, channel) }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut RdmaCmId, address: *mut sockaddr) -> c_int {
    // SAFETY: the program passes an identifier and an address.
    errno::minus_one(service().and_then(|service| unsafe {
        let local = address::read(address)?;
        bind(service, id, local)
    }))
}

/// Loopback addresses mean the device itself, as with Linux: it has one address.
fn this_host(service: &Service, address: SocketAddrV4) -> SocketAddrV4 {
    let gids = &service.attachment.device().gids;
    match gids.iter().find_map(|gid| Ipv6Addr::from(gid.0).to_ipv4_mapped()) {
        Some(own) if address.ip().is_loopback() => SocketAddrV4::new(own, address.port()),
        _ => address,
    }
}

/// # Safety
/// The identifier is the program's.
unsafe fn is_bound(id: *mut RdmaCmId) -> bool {
    // SAFETY: as the caller says: zeros where there is no address.
    unsafe { (*id).route.addr.src.ss_family != 0 }
}

/// # Safety
/// The identifier is the program's.
unsafe fn bind(service: &Service, id: *mut RdmaCmId, address: SocketAddrV4) -> Result<()> {
    // SAFETY: as the caller says.
    let of = unsafe { Id::of(id) };
    let shared = of.private().shared;
    let address = this_host(service, address);
    if let Answer::Bound(local) = service.answer(Request::Bind { id: of.number, address, shared })? {
        // SAFETY: as the caller says.
        unsafe { identifier::bind(service, id, local) };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut RdmaCmId,
    source: *mut sockaddr,
    destination: *mut sockaddr,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program passes an identifier, and addresses or null for the first.
    errno::minus_one(service().and_then(|service| unsafe {
        let of = Id::of(id);
        // As with Linux: an identifier that is bound stays so.
        if !source.is_null() && !is_bound(id) {
            bind(service, id, address::read(source)?)?;
        }
        let to = this_host(service, address::read(destination)?);
        let request = Request::Resolve { id: of.number, to, timeout: timeout.max(0) as u32 };
        if let Answer::Bound(local) = service.answer(request)? {
            identifier::bind(service, id, local);
            identifier::name_peer(id, to);
        }
        complete(service, id)
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_route(id: *mut RdmaCmId, _timeout: c_int) -> c_int {
    // SAFETY: the program passes an identifier.
    errno::minus_one(service().and_then(|service| unsafe {
        service.done(Request::Route(Id::of(id).number))?;
        complete(service, id)
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut RdmaCmId, backlog: c_int) -> c_int {
    // SAFETY: the program passes an identifier.
    let of = unsafe { Id::of(id) };
    let request = Request::Listen { id: of.number, backlog: backlog.max(0) as u32 };
    errno::minus_one(service().and_then(|service| service.done(request)))
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
    // SAFETY: as the caller says: zeros where there is none.
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

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut IbvContext {
    let found = service();
    if !count.is_null() {
        // SAFETY: the program passes a place for the count, or null.
        unsafe { *count = found.is_ok().into() };
    }
    let list = found.map(|service| Box::into_raw(Box::new([service.context, null_mut()])).cast());
    errno::pointer(list)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut IbvContext) {
    if !list.is_null() {
        // SAFETY: made by `rdma_get_devices`, always of this size.
        drop(unsafe { Box::from_raw(list.cast::<[*mut IbvContext; 2]>()) });
    }
}
