//! Multicast groups of identifiers of datagrams, as programs call it.
use super::address;
use super::calls::complete;
use super::device_identifier::DeviceIdentifier;
use super::identifier::Id;
use super::membership::Membership;
use crate::abi::RdmaCmId;
use crate::errno::{self, Result};
use crate::qp_calls::detach;
use libc::{c_int, c_void, sockaddr};
use std::net::SocketAddrV4;
use verbs::connections::Request;

/// `RDMA_CM_JOIN_MC_ATTR_ADDRESS`, and `RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS`.
const WITH_ADDRESS: u32 = 1;
const WITH_FLAGS: u32 = 1 << 1;
/// `RDMA_MC_JOIN_FLAG_FULLMEMBER`, and `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`.
const FULL_MEMBER: u32 = 0;
const SENDS_ONLY: u32 = 1;

/// `struct rdma_cm_join_mc_attr_ex`.
#[repr(C)]
struct JoinAttributes {
    comp_mask: u32,
    join_flags: u32,
    address: *const sockaddr,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast(id: *mut RdmaCmId, group: *const sockaddr, context: *mut c_void) -> c_int {
    // SAFETY: the program passes an identifier and an address.
    errno::minus_one(unsafe { address::read(group).and_then(|group| join(id, group, FULL_MEMBER, context)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut RdmaCmId,
    asked: *const JoinAttributes,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the program passes attributes, which have all of these members.
    let asked = unsafe { &*asked };
    let flags = if asked.comp_mask & WITH_FLAGS != 0 { asked.join_flags } else { FULL_MEMBER };
    let refused = match () {
        _ if asked.comp_mask & !(WITH_ADDRESS | WITH_FLAGS) != 0 => Err(libc::EOPNOTSUPP),
        _ if asked.comp_mask & WITH_ADDRESS == 0 || flags > SENDS_ONLY => Err(libc::EINVAL),
        _ => Ok(()),
    };
    errno::minus_one(refused.and_then(|()| {
        // SAFETY: the program passes an identifier and an address.
        unsafe { join(id, address::read(asked.address)?, flags, context) }
    }))
}

/// # Safety
/// The identifier is the program's.
unsafe fn join(id: *mut RdmaCmId, group: SocketAddrV4, flags: u32, context: *mut c_void) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Id::of(id) };
    let DeviceIdentifier { service, number: own } = of.seat();
    let receives = flags != SENDS_ONLY;
    let membership = Membership { group, context: context as usize, receives, is_attached: false };
    of.private().groups.push(membership);
    if let Err(number) = service.done(Request::Join { id: own, group }) {
        // Another thread may have joined another group meanwhile.
        of.private().groups.retain(|membership| membership.group != group || membership.is_attached);
        return Err(number);
    }
    // SAFETY: as the caller guarantees.
    unsafe { complete(id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_leave_multicast(id: *mut RdmaCmId, group: *const sockaddr) -> c_int {
    // SAFETY: the program passes an identifier and an address.
    errno::minus_one(unsafe { address::read(group).and_then(|group| leave(id, group)) })
}

/// # Safety
/// The identifier is the program's.
unsafe fn leave(id: *mut RdmaCmId, group: SocketAddrV4) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Id::of(id) };
    let mut private = of.private();
    let at = private.groups.iter().position(|membership| membership.group.ip() == group.ip());
    let membership = private.groups.swap_remove(at.ok_or(libc::EADDRNOTAVAIL)?);
    if membership.is_attached && !of.public.qp.is_null() {
        // SAFETY: the identifier's queue pair is not destroyed before it.
        unsafe { detach(of.public.qp, membership.gid())? };
    }
    Ok(())
}
