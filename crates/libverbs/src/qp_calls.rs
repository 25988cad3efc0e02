//! Queue pairs: created, modified, queried, destroyed.
use crate::abi::{IbvContext, IbvEce, IbvGid, IbvPd, IbvQp, IbvQpAttr, IbvQpInitAttr, IbvQpInitAttrEx};
use crate::attachment::Attachment;
use crate::attributes;
use crate::channel::Unacknowledged;
use crate::completion_queue::Cq;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{self, Result};
use crate::extended_send;
use crate::queue_pair::Qp;
use crate::queues::{Queues, SendQueue};
use crate::shared_receive::{Srq, receive_queue};
use crate::xrc::XrcDomain;
use buffers::Lock;
use libc::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use verbs::control::{Answer, NewQp, Request};
use verbs::{Gid, Number, QpAttributes, QpKind, QpState};

/// `IBV_QP_INIT_ATTR_PD`, `IBV_QP_INIT_ATTR_XRCD` and `IBV_QP_INIT_ATTR_SEND_OPS_FLAGS`.
const WITH_DOMAIN: u32 = 1;
const WITH_XRC_DOMAIN: u32 = 1 << 1;
const WITH_OPERATIONS: u32 = 1 << 6;
/// `IBV_QP_EX_WITH_*`: writes, sends, reads and atomics, with immediate data, and what concerns memory windows.
const OPERATIONS: u64 = 0b11_1111_1111;

/// # Safety
/// The domain, completion queues and SRQ are the program's, or null where there need be none.
unsafe fn create(domain: *mut IbvPd, asked: &mut IbvQpInitAttr) -> Result<*mut Qp> {
    let kind = u8::try_from(asked.qp_type).ok().and_then(QpKind::from_code).ok_or(libc::EINVAL)?;
    // The sending half of an XRC receives nothing.
    let sends_only = kind == QpKind::XrcSend;
    if sends_only && asked.recv_cq.is_null() {
        asked.recv_cq = asked.send_cq;
    }
    if domain.is_null() || asked.send_cq.is_null() || asked.recv_cq.is_null() || sends_only && !asked.srq.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees.
    let (of, send_cq, receive_cq) = unsafe { (Domain::of(domain), Cq::of(asked.send_cq), Cq::of(asked.recv_cq)) };
    // SAFETY: as the caller guarantees.
    let srq = (!asked.srq.is_null()).then(|| unsafe { Srq::of(asked.srq) });
    let new = NewQp {
        kind,
        domain: of.number,
        send_cq: send_cq.number,
        receive_cq: receive_cq.number,
        srq: srq.map(|srq| srq.number),
        capacities: attributes::capacities(&asked.cap),
        signals_all: asked.sq_sig_all != 0,
    };
    let (answer, fds) = of.attachment.ask(&Request::CreateQp(new))?;
    let Answer::Qp { number, capacities, pipe } = answer else { return Err(libc::EIO) };
    asked.cap = attributes::cap(&capacities);
    let receive = match srq {
        _ if sends_only => None,
        Some(srq) => Some(Arc::clone(&srq.queue)),
        None => Some(Arc::new(receive_queue(fds.into_iter().next(), capacities.receive)?)),
    };
    let queues = Arc::new(Queues { qp: number, send: SendQueue::new(capacities.send), receive });
    send_cq.polled.lock().add(&queues);
    receive_cq.polled.lock().add(&queues);
    let parts = Parts { attachment: Arc::clone(&of.attachment), domain, kind, queues, made: *asked, pipe };
    // SAFETY: the domain's context is open.
    Ok(unsafe { add(of.context(), parts) })
}

/// The receiving half of an XRC. It has neither queues nor a protection domain.
///
/// # Safety
/// The domain is one of the program's.
unsafe fn create_receiver(asked: &mut IbvQpInitAttrEx) -> Result<*mut IbvQp> {
    if asked.xrcd.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees.
    let of = unsafe { XrcDomain::of(asked.xrcd) };
    let (answer, _) = of.attachment.ask(&Request::CreateXrcReceiver(of.number))?;
    let Answer::Qp { number, capacities, pipe } = answer else { return Err(libc::EIO) };
    asked.cap = attributes::cap(&capacities);
    let made = IbvQpInitAttr {
        qp_context: asked.qp_context,
        send_cq: null_mut(),
        recv_cq: null_mut(),
        srq: null_mut(),
        cap: asked.cap,
        qp_type: asked.qp_type,
        sq_sig_all: asked.sq_sig_all,
    };
    let queues = Arc::new(Queues { qp: number, send: SendQueue::new(0), receive: None });
    let attachment = Arc::clone(&of.attachment);
    let parts = Parts { attachment, domain: null_mut(), kind: QpKind::XrcReceive, queues, made, pipe };
    // SAFETY: the domain's context is open.
    Ok(unsafe { add(of.context(), parts) }.cast())
}

/// What a new queue pair is made of.
struct Parts {
    attachment: Arc<Attachment>,
    domain: *mut IbvPd,
    kind: QpKind,
    queues: Arc<Queues>,
    made: IbvQpInitAttr,
    pipe: u32,
}

/// Adds a queue pair to those of a context.
///
/// # Safety
/// The context is open.
unsafe fn add(context: *mut IbvContext, parts: Parts) -> *mut Qp {
    let Parts { attachment, domain, kind, queues, made, pipe } = parts;
    let number = queues.qp;
    let qp = Box::into_raw(Box::new(Qp {
        public: extended_send::with_functions(public(context, domain, &made, number)),
        attachment,
        number,
        kind,
        queues,
        made,
        pipe,
        building: Lock::new(Default::default()),
        events: Unacknowledged::default(),
    }));
    // SAFETY: as the caller guarantees.
    unsafe { Context::of(context) }.objects().qps.insert(number, qp.cast());
    qp
}

fn public(context: *mut IbvContext, domain: *mut IbvPd, asked: &IbvQpInitAttr, number: Number) -> IbvQp {
    IbvQp {
        context,
        qp_context: asked.qp_context,
        pd: domain,
        send_cq: asked.send_cq,
        recv_cq: asked.recv_cq,
        srq: asked.srq,
        handle: number,
        qp_num: number,
        state: QpState::Reset.code().into(),
        qp_type: asked.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(domain: *mut IbvPd, asked: *mut IbvQpInitAttr) -> *mut IbvQp {
    // SAFETY: the program passes objects of its own.
    errno::pointer(unsafe { create(domain, &mut *asked) }.map(<*mut Qp>::cast))
}

/// `ibv_create_qp_ex`, for what is more than a domain.
pub(crate) unsafe extern "C" fn create_qp_ex(_context: *mut IbvContext, asked: *mut IbvQpInitAttrEx) -> *mut IbvQp {
    // SAFETY: the program passes attributes.
    let asked = unsafe { &mut *asked };
    if asked.qp_type == c_int::from(QpKind::XrcReceive.code()) && asked.comp_mask == WITH_XRC_DOMAIN {
        // SAFETY: the program passes a domain of its own.
        return errno::pointer(unsafe { create_receiver(asked) });
    }
    let operations = if asked.comp_mask & WITH_OPERATIONS != 0 { asked.send_ops_flags } else { 0 };
    let unknown = asked.comp_mask & !(WITH_DOMAIN | WITH_OPERATIONS) != 0 || operations & !OPERATIONS != 0;
    if unknown || asked.comp_mask & WITH_DOMAIN == 0 {
        return errno::pointer(Err(libc::EOPNOTSUPP));
    }
    let mut plain = IbvQpInitAttr {
        qp_context: asked.qp_context,
        send_cq: asked.send_cq,
        recv_cq: asked.recv_cq,
        srq: asked.srq,
        cap: asked.cap,
        qp_type: asked.qp_type,
        sq_sig_all: asked.sq_sig_all,
    };
    // SAFETY: the program passes objects of its own.
    let qp = errno::pointer(unsafe { create(asked.pd, &mut plain) });
    asked.cap = plain.cap;
    qp.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut IbvQp, attributes: *mut IbvQpAttr, mask: c_int) -> c_int {
    // SAFETY: the program passes attributes.
    let from = unsafe { &*attributes };
    // SAFETY: a queue pair of the program's.
    errno::number(attributes::asked(from, mask).and_then(|attributes| unsafe { modify(qp, attributes) }))
}

/// Changes attributes of a queue pair.
///
/// # Safety
/// The queue pair is the program's.
pub(crate) unsafe fn modify(qp: *mut IbvQp, attributes: QpAttributes) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Qp::of(qp) };
    of.attachment.done(&Request::ModifyQp { qp: of.number, attributes })?;
    if let Some(state) = attributes.state {
        // SAFETY: as above; programs read the member.
        unsafe { (*qp).state = state.code().into() };
        if state == QpState::Reset {
            forget(of);
        }
    }
    Ok(())
}

/// A reset queue pair has no work requests; completions that are not polled yet are dropped.
fn forget(qp: &Qp) {
    qp.queues.send.reset();
    let own = qp.queues.receive.iter().filter(|_| qp.made.srq.is_null());
    own.for_each(|receive| receive.reset());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut IbvQp,
    into: *mut IbvQpAttr,
    _mask: c_int,
    made: *mut IbvQpInitAttr,
) -> c_int {
    // SAFETY: a queue pair of the program's.
    let of = unsafe { Qp::of(qp) };
    errno::number(of.attachment.ask(&Request::QueryQp(of.number)).and_then(|(answer, _)| {
        let Answer::Attributes(attributes) = answer else { return Err(libc::EIO) };
        // SAFETY: the program passes places for both.
        unsafe {
            into.write(attributes::found(&attributes, of.made.cap));
            made.write(of.made);
            (*qp).state = (*into).qp_state;
        }
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut IbvQp) -> c_int {
    // SAFETY: a queue pair of the program's, and its context.
    let (of, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
    errno::number(of.attachment.done(&Request::DestroyQp(of.number)).map(|()| {
        context.objects().qps.remove(&of.number);
        for cq in [of.made.send_cq, of.made.recv_cq].into_iter().filter(|cq| !cq.is_null()) {
            // SAFETY: a completion queue that a queue pair uses is not destroyed.
            unsafe { Cq::of(cq) }.polled.lock().remove(of.number);
        }
        of.events.wait();
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(qp.cast::<Qp>()) });
    }))
}

/// A queue pair gets what is sent to a multicast group.
///
/// # Safety
/// The queue pair is the program's.
pub(crate) unsafe fn attach(qp: *mut IbvQp, group: Gid) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Qp::of(qp) };
    of.attachment.done(&Request::Attach { qp: of.number, group })
}

/// And no longer.
///
/// # Safety
/// The queue pair is the program's.
pub(crate) unsafe fn detach(qp: *mut IbvQp, group: Gid) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Qp::of(qp) };
    of.attachment.done(&Request::Detach { qp: of.number, group })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut IbvQp, gid: *const IbvGid, _lid: u16) -> c_int {
    // SAFETY: the program passes a queue pair and a GID.
    errno::number(unsafe { attach(qp, Gid((*gid).raw)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut IbvQp, gid: *const IbvGid, _lid: u16) -> c_int {
    // SAFETY: the program passes a queue pair and a GID.
    errno::number(unsafe { detach(qp, Gid((*gid).raw)) })
}

/// No enhancements of connection establishment are offered: the answer is all zeros.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(_qp: *mut IbvQp, into: *mut IbvEce) -> c_int {
    // SAFETY: the program passes a place for the answer.
    unsafe { into.write(IbvEce { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_set_ece(_qp: *mut IbvQp, ece: *mut IbvEce) -> c_int {
    // SAFETY: the program passes what it asks for.
    let nothing = unsafe { (*ece).options == 0 };
    errno::number(if nothing { Ok(()) } else { Err(libc::EOPNOTSUPP) })
}

/// Payload is placed packet by packet, not byte by byte in order.
#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(_qp: *mut IbvQp, _operation: c_int, _flags: u32) -> c_int {
    0
}
