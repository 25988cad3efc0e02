//! `rdma_create_ep` and `rdma_get_request`: identifiers whose calls wait.
use super::calls::{rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route, wait_for_request};
use super::held::{kind, rdma_ack_cm_event};
use super::identifier::{Id, Template};
use super::lifetime::{create, destroy};
use super::resources::{self, rdma_destroy_qp, rdma_destroy_srq};
use crate::abi::{IbvPd, IbvQpInitAttr, RdmaAddrInfo, RdmaCmId};
use crate::errno::{self, Result};
use libc::c_int;
use std::ptr::null_mut;

/// `RAI_PASSIVE`.
const PASSIVE: c_int = 1;
/// How long a next hop may take to answer, in milliseconds.
const TIMEOUT: c_int = 2000;

/// The result of a call of C that sets `errno`.
fn done(result: c_int) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(errno::get()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    into: *mut *mut RdmaCmId,
    info: *mut RdmaAddrInfo,
    domain: *mut IbvPd,
    asked: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the program passes what `rdma_getaddrinfo` gave, a domain or null, and attributes or null.
    errno::minus_one(unsafe {
        create(null_mut(), null_mut(), (*info).ai_port_space).and_then(|id| {
            (*id).qp_type = (*info).ai_qp_type;
            *into = id;
            prepare(id, &*info, domain, asked).inspect_err(|_| rdma_destroy_ep(id))
        })
    })
}

/// # Safety
/// As for [`rdma_create_ep`].
unsafe fn prepare(id: *mut RdmaCmId, info: &RdmaAddrInfo, domain: *mut IbvPd, asked: *mut IbvQpInitAttr) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        if info.ai_flags & PASSIVE != 0 {
            done(rdma_bind_addr(id, info.ai_src_addr))?;
            (*id).pd = domain;
            Id::of(id).private().queue_pair = asked.as_ref().map(|asked| Template(*asked));
            return Ok(());
        }
        done(rdma_resolve_addr(id, info.ai_src_addr, info.ai_dst_addr, TIMEOUT))?;
        done(rdma_resolve_route(id, TIMEOUT))?;
        match asked.as_mut() {
            None => Ok(()),
            Some(asked) => resources::create(id, domain, asked),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut RdmaCmId) {
    // SAFETY: the program passes an identifier that it uses no more.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        let _ = destroy(id);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(listener: *mut RdmaCmId, into: *mut *mut RdmaCmId) -> c_int {
    // SAFETY: the program passes a listener and a place for the identifier.
    errno::minus_one(unsafe { request_of(listener) }.map(|id| {
        // SAFETY: as above.
        unsafe { *into = id };
    }))
}

/// The next connection that a peer asks a listener for.
///
/// # Safety
/// The listener is the program's.
unsafe fn request_of(listener: *mut RdmaCmId) -> Result<*mut RdmaCmId> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let of = Id::of(listener);
        let waits = of.private().waits;
        if !waits {
            return Err(libc::EINVAL);
        }
        let event = wait_for_request(listener)?;
        if (*event).status != 0 || (*event).event != kind::CONNECT_REQUEST {
            let status = (*event).status.abs();
            rdma_ack_cm_event(event);
            return Err(if status == 0 { libc::EINVAL } else { status });
        }
        let id = (*event).id;
        let template = of.private().queue_pair.as_ref().map(|template| template.0);
        if let Some(mut template) = template {
            if let Err(number) = resources::create(id, (*listener).pd, &mut template) {
                rdma_ack_cm_event(event);
                let _ = destroy(id);
                return Err(number);
            }
        }
        (*id).event = event;
        Ok(id)
    }
}
