//! Queue pairs and what they need, made for an identifier.
use super::events::attributes;
use super::identifier::Id;
use crate::abi::{
    IbvCompChannel, IbvCq, IbvPd, IbvQpCap, IbvQpInitAttr, IbvQpInitAttrEx, IbvSrqInitAttr, IbvSrqInitAttrEx, RdmaCmId,
};
use crate::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::cq_calls::{ibv_create_cq, ibv_destroy_cq};
use crate::errno::{self, Result};
use crate::qp_calls::{create_qp_ex, ibv_create_qp, ibv_destroy_qp, modify};
use crate::shared_receive::{create_srq_ex, ibv_create_srq, ibv_destroy_srq};
use libc::c_int;
use std::ptr::null_mut;
use verbs::QpState;

/// `IBV_QP_INIT_ATTR_PD`, `IBV_SRQ_INIT_ATTR_PD`.
const QP_DOMAIN: u32 = 1;
const SRQ_DOMAIN: u32 = 1 << 1;

/// A pointer that a call of verbs gave; its error where it is null.
fn made<T>(pointer: *mut T) -> Result<*mut T> {
    if pointer.is_null() { Err(errno::get()) } else { Ok(pointer) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut RdmaCmId,
    domain: *mut IbvPd,
    asked: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: the program passes an identifier, a domain or null, and attributes.
    errno::minus_one(unsafe { create(id, domain, &mut *asked) })
}

/// Makes a queue pair and takes it to the state in which receive work requests can be posted; of datagrams, to that in
/// which it sends.
///
/// # Safety
/// The identifier is the program's, and so is what the attributes name.
pub(crate) unsafe fn create(id: *mut RdmaCmId, domain: *mut IbvPd, asked: &mut IbvQpInitAttr) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let domain = prepare(id, domain)?;
        asked.qp_type = (*id).qp_type;
        if asked.srq.is_null() {
            asked.srq = (*id).srq;
        }
        let cap = asked.cap;
        queues(id, Given { send: &mut asked.send_cq, receive: &mut asked.recv_cq, cap })?;
        let qp = made(ibv_create_qp(domain, asked)).inspect_err(|_| drop_queues(id))?;
        ((*id).qp, (*id).pd) = (qp, domain);
        begin(id)
    }
}

/// What each queue pair of an identifier needs: the domain.
///
/// # Safety
/// As [`create`].
unsafe fn prepare(id: *mut RdmaCmId, domain: *mut IbvPd) -> Result<*mut IbvPd> {
    // SAFETY: as the caller guarantees.
    unsafe {
        if !(*id).qp.is_null() || (*id).verbs.is_null() {
            return Err(libc::EINVAL);
        }
        let domain = if domain.is_null() { (*id).pd } else { domain };
        let domain = if domain.is_null() { Id::of(id).seat().service.domain()? } else { domain };
        if (*domain).context == (*id).verbs { Ok(domain) } else { Err(libc::EINVAL) }
    }
}

/// Completion queues that a program brings, or null, and what they are to hold.
struct Given<'a> {
    send: &'a mut *mut IbvCq,
    receive: &'a mut *mut IbvCq,
    cap: IbvQpCap,
}

/// Completion queues where the program brings none, each with a channel.
///
/// # Safety
/// As [`create`].
unsafe fn queues(id: *mut RdmaCmId, given: Given<'_>) -> Result<()> {
    let Given { send, receive, cap } = given;
    // SAFETY: as the caller guarantees.
    unsafe {
        if send.is_null() {
            let (channel, cq) = queue(id, cap.max_send_wr)?;
            ((*id).send_cq_channel, (*id).send_cq) = (channel, cq);
            Id::of(id).private().made[0] = true;
        } else {
            ((*id).send_cq_channel, (*id).send_cq) = ((**send).channel, *send);
        }
        // With an SRQ that has a completion queue, receive work requests complete there.
        if receive.is_null() && (*id).recv_cq.is_null() {
            let (channel, cq) = queue(id, cap.max_recv_wr).inspect_err(|_| drop_queues(id))?;
            ((*id).recv_cq_channel, (*id).recv_cq) = (channel, cq);
            Id::of(id).private().made[1] = true;
        } else if !receive.is_null() {
            ((*id).recv_cq_channel, (*id).recv_cq) = ((**receive).channel, *receive);
        }
        (*send, *receive) = ((*id).send_cq, (*id).recv_cq);
        Ok(())
    }
}

/// # Safety
/// As [`create`].
unsafe fn queue(id: *mut RdmaCmId, entries: u32) -> Result<(*mut IbvCompChannel, *mut IbvCq)> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let channel = made(ibv_create_comp_channel((*id).verbs))?;
        let entries = entries.max(1) as c_int;
        let cq = made(ibv_create_cq((*id).verbs, entries, id.cast(), channel, 0));
        let cq = cq.inspect_err(|_| {
            ibv_destroy_comp_channel(channel);
        })?;
        Ok((channel, cq))
    }
}

/// Completion queues that were made for the identifier go with its queue pair.
///
/// # Safety
/// As [`create`]; nobody uses them.
unsafe fn drop_queues(id: *mut RdmaCmId) {
    // SAFETY: as the caller guarantees.
    unsafe {
        let made = std::mem::take(&mut Id::of(id).private().made);
        let id = &mut *id;
        let ends =
            [(made[0], &mut id.send_cq, &mut id.send_cq_channel), (made[1], &mut id.recv_cq, &mut id.recv_cq_channel)];
        for (is_own, cq, channel) in ends {
            if is_own {
                ibv_destroy_cq(*cq);
                ibv_destroy_comp_channel(*channel);
            }
            (*cq, *channel) = (null_mut(), null_mut());
        }
    }
}

/// The first states of a new queue pair.
///
/// # Safety
/// As [`create`]; the identifier has a queue pair.
unsafe fn begin(id: *mut RdmaCmId) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let of = Id::of(id);
        let states: &[QpState] = match of.is_datagrams() {
            true => &[QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend],
            false => &[QpState::Init],
        };
        let went = states.iter().try_for_each(|state| modify((*id).qp, attributes(of, *state)?));
        if went.is_err() {
            rdma_destroy_qp(id);
        }
        went
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(id: *mut RdmaCmId, asked: *mut IbvQpInitAttrEx) -> c_int {
    // SAFETY: the program passes an identifier and attributes.
    errno::minus_one((|| unsafe {
        let asked = &mut *asked;
        let given = if asked.comp_mask & QP_DOMAIN != 0 { asked.pd } else { null_mut() };
        let domain = prepare(id, given)?;
        (asked.pd, asked.comp_mask, asked.qp_type) = (domain, asked.comp_mask | QP_DOMAIN, (*id).qp_type);
        let cap = asked.cap;
        queues(id, Given { send: &mut asked.send_cq, receive: &mut asked.recv_cq, cap })?;
        let qp = made(create_qp_ex((*id).verbs, asked)).inspect_err(|_| drop_queues(id))?;
        ((*id).qp, (*id).pd) = (qp, domain);
        begin(id)
    })())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut RdmaCmId) {
    // SAFETY: the program passes an identifier.
    unsafe {
        if !(*id).qp.is_null() {
            ibv_destroy_qp((*id).qp);
            (*id).qp = null_mut();
            drop_queues(id);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(id: *mut RdmaCmId, domain: *mut IbvPd, asked: *mut IbvSrqInitAttr) -> c_int {
    // SAFETY: the program passes an identifier, a domain or null, and attributes.
    errno::minus_one((|| unsafe {
        let domain = prepare(id, domain)?;
        let srq = made(ibv_create_srq(domain, asked))?;
        ((*id).srq, (*id).pd) = (srq, domain);
        Id::of(id).private().made_srq = true;
        Ok(())
    })())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(id: *mut RdmaCmId, asked: *mut IbvSrqInitAttrEx) -> c_int {
    // SAFETY: the program passes an identifier and attributes.
    errno::minus_one((|| unsafe {
        let asked = &mut *asked;
        let given = if asked.comp_mask & SRQ_DOMAIN != 0 { asked.pd } else { null_mut() };
        let domain = prepare(id, given)?;
        (asked.pd, asked.comp_mask) = (domain, asked.comp_mask | SRQ_DOMAIN);
        let srq = made(create_srq_ex((*id).verbs, asked))?;
        ((*id).srq, (*id).pd) = (srq, domain);
        Id::of(id).private().made_srq = true;
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut RdmaCmId) {
    // SAFETY: the program passes an identifier.
    unsafe {
        if std::mem::take(&mut Id::of(id).private().made_srq) {
            ibv_destroy_srq((*id).srq);
            (*id).srq = null_mut();
        }
    }
}
