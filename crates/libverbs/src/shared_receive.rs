//! Shared receive queues, and posting to receive queues of either kind.
use crate::abi::{
    IbvContext, IbvCq, IbvPd, IbvRecvWr, IbvSge, IbvSrq, IbvSrqAttr, IbvSrqInitAttr, IbvSrqInitAttrEx, IbvXrcd,
};
use crate::attachment::Attachment;
use crate::channel::Unacknowledged;
use crate::completion_queue::Cq;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{self, Result};
use crate::queues::ReceiveQueue;
use crate::xrc::XrcDomain;
use context::queues::AppQueues;
use libc::c_int;
use shm::Region;
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use verbs::control::{Answer, Request, XrcQueue};
use verbs::{AsyncEvent, Number, Piece, ReceivePiece};

/// `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const MOST: c_int = 1;
const LIMIT: c_int = 1 << 1;
/// `IBV_SRQ_INIT_ATTR_TYPE`, `_PD`, `_XRCD` and `_CQ`; `IBV_SRQT_BASIC` and `IBV_SRQT_XRC`.
const WITH_TYPE: u32 = 1;
const WITH_DOMAIN: u32 = 1 << 1;
const OF_XRC: u32 = 0b1100;
const BASIC: c_int = 0;
const XRC: c_int = 1;

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    public: IbvSrq,
    attachment: Arc<Attachment>,
    /// Its number.
    pub(crate) number: Number,
    /// What work requests are posted to.
    pub(crate) queue: Arc<ReceiveQueue>,
    attributes: IbvSrqAttr,
    limit: AtomicU32,
    /// Where its completions go, where messages name it: it is one of extended reliable connections.
    named_in: *mut IbvCq,
    /// Asynchronous events.
    pub(crate) events: Unacknowledged,
}

impl Srq {
    /// The queue behind the public part.
    ///
    /// # Safety
    /// `ibv_create_srq` gave the pointer, and the queue is not destroyed.
    #[inline]
    pub(crate) unsafe fn of<'a>(srq: *mut IbvSrq) -> &'a Srq {
        // SAFETY: the public part is its first member.
        unsafe { &*srq.cast() }
    }

    /// The program got an event of it. A limit gives one event.
    pub(crate) fn event(&self, event: AsyncEvent) {
        if event == AsyncEvent::SrqLimitReached {
            self.limit.store(0, Relaxed);
        }
        self.events.got();
    }
}

/// The program's end of a receive queue, in a region that the daemon passed.
pub(crate) fn receive_queue(fd: Option<OwnedFd>, most: u32) -> Result<ReceiveQueue> {
    let region = Region::from_fd(fd.ok_or(libc::EIO)?).map_err(|_| libc::ENOMEM)?;
    let pipe = AppQueues::new(&Arc::new(region)).ok().and_then(|queues| queues.receive).ok_or(libc::EIO)?;
    Ok(ReceiveQueue::new(pipe, most))
}

/// What a queue of extended reliable connections belongs to.
struct Named {
    domain: *mut IbvXrcd,
    cq: *mut IbvCq,
}

/// # Safety
/// The domain is one of the program's, and so are those of `named` and its completion queue.
unsafe fn create(domain: *mut IbvPd, asked: &mut IbvSrqInitAttr, named: Option<Named>) -> Result<*mut IbvSrq> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Domain::of(domain) };
    let (receives, pieces) = (asked.attr.max_wr, asked.attr.max_sge.max(1));
    // SAFETY: as the caller guarantees.
    let cq = named.as_ref().map(|named| unsafe { Cq::of(named.cq) });
    let xrc = named.as_ref().zip(cq).map(|(named, cq)| {
        // SAFETY: as the caller guarantees.
        XrcQueue { domain: unsafe { XrcDomain::of(named.domain) }.number, cq: cq.number }
    });
    let (answer, fds) = of.attachment.ask(&Request::CreateSrq { domain: of.number, receives, pieces, xrc })?;
    let Answer::Queue { number, .. } = answer else { return Err(libc::EIO) };
    let queue = Arc::new(receive_queue(fds.into_iter().next(), receives)?);
    cq.iter().for_each(|cq| cq.polled.lock().add_named(number, &queue));
    let public = IbvSrq {
        context: of.context(),
        srq_context: asked.srq_context,
        pd: domain,
        handle: number,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    asked.attr.max_sge = pieces;
    let srq = Box::into_raw(Box::new(Srq {
        public,
        attachment: Arc::clone(&of.attachment),
        number,
        queue,
        attributes: asked.attr,
        limit: AtomicU32::new(0),
        named_in: named.map_or(null_mut(), |named| named.cq),
        events: Unacknowledged::default(),
    }))
    .cast();
    // SAFETY: the domain's context is open.
    unsafe { Context::of(of.context()) }.objects().srqs.insert(number, srq);
    Ok(srq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(domain: *mut IbvPd, asked: *mut IbvSrqInitAttr) -> *mut IbvSrq {
    // SAFETY: the program passes a domain and attributes.
    errno::pointer(unsafe { create(domain, &mut *asked, None) })
}

/// `ibv_create_srq_ex`, for what is not a plain SRQ.
pub(crate) unsafe extern "C" fn create_srq_ex(_context: *mut IbvContext, asked: *mut IbvSrqInitAttrEx) -> *mut IbvSrq {
    // SAFETY: the program passes attributes.
    let asked = unsafe { &mut *asked };
    let kind = if asked.comp_mask & WITH_TYPE == 0 { BASIC } else { asked.srq_type };
    let named = match (kind, asked.comp_mask & !WITH_TYPE) {
        (BASIC, WITH_DOMAIN) => None,
        (XRC, mask) if mask == WITH_DOMAIN | OF_XRC => Some(Named { domain: asked.xrcd, cq: asked.cq }),
        _ => return errno::pointer(Err(libc::EOPNOTSUPP)),
    };
    if asked.pd.is_null() || named.as_ref().is_some_and(|named| named.domain.is_null() || named.cq.is_null()) {
        return errno::pointer(Err(libc::EINVAL));
    }
    let mut plain = IbvSrqInitAttr { srq_context: asked.srq_context, attr: asked.attr };
    // SAFETY: the program passes domains and a completion queue of its own.
    let srq = errno::pointer(unsafe { create(asked.pd, &mut plain, named) });
    asked.attr = plain.attr;
    srq
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut IbvSrq, attributes: *mut IbvSrqAttr, mask: c_int) -> c_int {
    // SAFETY: a queue of the program's, and attributes.
    let (of, limit) = unsafe { (Srq::of(srq), (*attributes).srq_limit) };
    if mask & MOST != 0 {
        return errno::number(Err(libc::EOPNOTSUPP));
    }
    if mask & LIMIT == 0 {
        return 0;
    }
    errno::number(of.attachment.done(&Request::LimitSrq { srq: of.number, limit }).map(|()| {
        of.limit.store(limit, Relaxed);
    }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut IbvSrq, into: *mut IbvSrqAttr) -> c_int {
    // SAFETY: a queue of the program's, and a place for its attributes.
    unsafe {
        let of = Srq::of(srq);
        into.write(IbvSrqAttr { srq_limit: of.limit.load(Relaxed), ..of.attributes });
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut IbvSrq) -> c_int {
    // SAFETY: a queue of the program's, and its context.
    let (of, context) = unsafe { (Srq::of(srq), Context::of((*srq).context)) };
    errno::number(of.attachment.done(&Request::DestroySrq(of.number)).map(|()| {
        context.objects().srqs.remove(&of.number);
        if !of.named_in.is_null() {
            // SAFETY: a completion queue that a shared receive queue uses is not destroyed.
            unsafe { Cq::of(of.named_in) }.polled.lock().remove_named(of.number);
        }
        of.events.wait();
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(srq.cast::<Srq>()) });
    }))
}

/// `ibv_get_srq_num`: what messages of extended reliable connections name. ENOSYS for other queues.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut IbvSrq, into: *mut u32) -> c_int {
    // SAFETY: a queue of the program's, and a place for the number.
    unsafe {
        let of = Srq::of(srq);
        if of.named_in.is_null() {
            return libc::ENOSYS;
        }
        into.write(of.number);
    }
    0
}

/// `ibv_post_srq_recv`.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut IbvSrq,
    request: *mut IbvRecvWr,
    bad: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: a queue of the program's and a list of work requests.
    unsafe {
        let of = Srq::of(srq);
        post_list(&of.queue, of.attributes.max_sge, request, bad)
    }
}

/// Posts a list of receive work requests; returns the first that cannot be posted.
///
/// # Safety
/// The list and its scatter-gather lists are valid, and `bad` is a place for a pointer or null.
pub(crate) unsafe fn post_list(
    queue: &ReceiveQueue,
    most_pieces: u32,
    mut request: *mut IbvRecvWr,
    bad: *mut *mut IbvRecvWr,
) -> c_int {
    // SAFETY: as the caller guarantees.
    while let Some(one) = unsafe { request.as_ref() } {
        // SAFETY: as the caller guarantees.
        if let Err(number) = unsafe { post(queue, most_pieces, one) } {
            if !bad.is_null() {
                // SAFETY: as the caller guarantees.
                unsafe { *bad = request };
            }
            return errno::number(Err(number));
        }
        request = one.next;
    }
    0
}

/// # Safety
/// As [`post_list`].
#[inline]
unsafe fn post(queue: &ReceiveQueue, most_pieces: u32, request: &IbvRecvWr) -> Result<()> {
    let count = usize::try_from(request.num_sge).map_err(|_| libc::EINVAL)?;
    match count {
        // An element without bytes.
        0 => queue.post(request.wr_id, [ReceivePiece::default()].into_iter()),
        _ if count > most_pieces as usize => Err(libc::EINVAL),
        _ => {
            // SAFETY: as the caller guarantees.
            let list = unsafe { std::slice::from_raw_parts(request.sg_list, count) };
            let pieces =
                list.iter().enumerate().map(|(at, entry)| ReceivePiece { piece: piece(entry), more: at + 1 < count });
            queue.post(request.wr_id, pieces)
        }
    }
}

/// A scatter-gather entry as queues carry it.
#[inline]
pub(crate) fn piece(entry: &IbvSge) -> Piece {
    Piece { address: entry.addr, len: entry.length, key: entry.lkey }
}
