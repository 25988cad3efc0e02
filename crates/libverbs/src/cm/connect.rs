//! Connections and lookups: asked for, accepted, refused, ended.
use super::calls::complete;
use super::device_identifier::DeviceIdentifier;
use super::events::{attributes, fail, make_ready};
use super::identifier::Id;
use crate::abi::{IbvQpAttr, IbvQpCap, RdmaCmId, RdmaConnParam};
use crate::attributes::{found, mask};
use crate::errno::{self, Result};
use crate::queue_pair::Qp;
use libc::{c_int, c_void};
use verbs::connections::{Parameters, Request};
use verbs::{QpKind, QpState};

/// `RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`: as many as there may be.
const AS_MANY: u8 = 0xff;
/// Defaults.
const RETRIES: u8 = 7;
/// `IBV_EVENT_COMM_EST`.
const COMMUNICATION: c_int = 4;

/// Private data of a program.
///
/// # Safety
/// There are so many bytes, or none where the pointer is null.
unsafe fn bytes(data: *const c_void, len: u8) -> Vec<u8> {
    if data.is_null() || len == 0 {
        return Vec::new();
    }
    // SAFETY: as the caller guarantees.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len.into()) }.to_vec()
}

/// Reads and atomics at once.
struct Reads {
    /// Taken.
    resources: u8,
    /// Outstanding.
    depth: u8,
}

/// The program's values, where it gives some; `most` is what there may be.
///
/// # Safety
/// The identifier is the program's; the parameters are, or null.
unsafe fn parameters(id: *mut RdmaCmId, given: *const RdmaConnParam, most: Reads) -> Parameters {
    // SAFETY: as the caller guarantees.
    let (given, qp) = unsafe { (given.as_ref(), (*id).qp) };
    let Reads { resources, depth } = most;
    let of_limit = |wanted: u8, most: u8| if wanted == AS_MANY { most } else { wanted };
    let mut merged = match given {
        None => Parameters {
            responder_resources: resources,
            initiator_depth: depth,
            retries: RETRIES,
            rnr_retries: RETRIES,
            ..Parameters::default()
        },
        Some(given) => Parameters {
            // SAFETY: as the caller guarantees.
            data: unsafe { bytes(given.private_data, given.private_data_len) },
            responder_resources: of_limit(given.responder_resources, resources),
            initiator_depth: of_limit(given.initiator_depth, depth),
            flow_control: given.flow_control != 0,
            retries: given.retry_count,
            rnr_retries: given.rnr_retry_count,
            srq: given.srq != 0,
            qp: given.qp_num,
            unreliable: false,
        },
    };
    if !qp.is_null() {
        // SAFETY: an identifier's queue pair is not destroyed before it.
        let of = unsafe { Qp::of(qp) };
        (merged.qp, merged.srq) = (of.number, !of.made.srq.is_null());
    }
    // SAFETY: as the caller guarantees.
    merged.unreliable = unsafe { (*id).qp_type } == c_int::from(QpKind::Uc.code());
    merged
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_connect(id: *mut RdmaCmId, given: *mut RdmaConnParam) -> c_int {
    // SAFETY: the program passes an identifier, and parameters or null.
    errno::minus_one(unsafe {
        let DeviceIdentifier { service, number } = Id::of(id).seat();
        let most = service.attachment.device().limits.reads;
        let parameters = parameters(id, given, Reads { resources: most, depth: most });
        service.done(Request::Connect { id: number, parameters }).and_then(|()| complete(id))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_accept(id: *mut RdmaCmId, given: *mut RdmaConnParam) -> c_int {
    // SAFETY: the program passes an identifier, and parameters or null.
    errno::minus_one(unsafe { accept(id, given) })
}

/// # Safety
/// The identifier is the program's; the parameters are, or null.
unsafe fn accept(id: *mut RdmaCmId, given: *const RdmaConnParam) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let of = Id::of(id);
        let DeviceIdentifier { service, number } = of.seat();
        let limit = service.attachment.device().limits.reads;
        let most = {
            let peer = &of.private().peer_parameters;
            Reads { resources: peer.responder_resources.min(limit), depth: peer.initiator_depth.min(limit) }
        };
        let parameters = parameters(id, given, most);
        let is_datagrams = of.is_datagrams();
        if !is_datagrams && !(*id).qp.is_null() {
            make_ready(id, Some(&parameters)).inspect_err(|_| fail(of))?;
        }
        let accepted = service.done(Request::Accept { id: number, parameters });
        if accepted.is_err() && !is_datagrams {
            fail(of);
        }
        accepted?;
        if is_datagrams { Ok(()) } else { complete(id) }
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(id: *mut RdmaCmId, data: *const c_void, len: u8) -> c_int {
    // SAFETY: the program passes an identifier, and so many bytes.
    let (DeviceIdentifier { service, number }, data) = unsafe { (Id::of(id).seat(), bytes(data, len)) };
    errno::minus_one(service.done(Request::Reject { id: number, data }))
}

/// Options of vendors are never agreed on: this refuses as `rdma_reject` does.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject_ece(id: *mut RdmaCmId, data: *const c_void, len: u8) -> c_int {
    // SAFETY: as for `rdma_reject`.
    unsafe { rdma_reject(id, data, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut RdmaCmId) -> c_int {
    // SAFETY: the program passes an identifier.
    let DeviceIdentifier { service, number } = unsafe { Id::of(id) }.seat();
    errno::minus_one(service.done(Request::Establish(number)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(id: *mut RdmaCmId, event: c_int) -> c_int {
    if event != COMMUNICATION {
        return errno::minus_one(Err(libc::EINVAL));
    }
    // SAFETY: the program passes an identifier.
    unsafe { rdma_establish(id) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut RdmaCmId) -> c_int {
    // SAFETY: the program passes an identifier.
    errno::minus_one(unsafe {
        let of = Id::of(id);
        fail(of);
        let DeviceIdentifier { service, number } = of.seat();
        service.done(Request::Disconnect(number)).and_then(|()| complete(id))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(id: *mut RdmaCmId, into: *mut IbvQpAttr, into_mask: *mut c_int) -> c_int {
    // SAFETY: the program passes an identifier and attributes, of which it has set the state.
    let asked = || -> Result<()> {
        // SAFETY: as above.
        let state = unsafe { (*into).qp_state };
        let state = u8::try_from(state).ok().and_then(QpState::from_code).ok_or(libc::EINVAL)?;
        // SAFETY: as above.
        let known = attributes(unsafe { Id::of(id) }, state)?;
        let none = IbvQpCap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
        // SAFETY: as above.
        unsafe {
            into.write(found(&known, none));
            *into_mask = mask(&known);
        }
        Ok(())
    };
    errno::minus_one(asked())
}
