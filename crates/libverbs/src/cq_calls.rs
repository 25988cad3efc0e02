//! Completion queues: made, ended, armed.
use crate::abi::{IbvCompChannel, IbvContext, IbvCq, IbvCqEx, IbvCqInitAttrEx};
use crate::channel::{Channel, Unacknowledged};
use crate::completion_queue::Cq;
use crate::context::Context;
use crate::errno::{self, Result};
use crate::extended_poll;
use crate::polled::Polled;
use buffers::Lock;
use context::queues::AppQueues;
use libc::{c_int, c_void};
use shm::Region;
use std::sync::Arc;
use verbs::control::{Answer, Request};
use verbs::{Notify, Wish};

/// The members that `ibv_create_cq_ex` can offer (`IBV_WC_EX_WITH_*`): all standard ones, and when it was added, by the
/// clock of the machine, raw or not.
const READABLE: u64 = 0xff | 1 << 11;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS`.
const WITH_FLAGS: u32 = 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` and `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`: nothing changes by them.
const KNOWN_FLAGS: u32 = 3;

/// What a new queue is to be.
struct Wanted {
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    vector: u32,
}

/// # Safety
/// The context is open, and the channel is one of it or null.
unsafe fn create(context: *mut IbvContext, wanted: &Wanted) -> Result<*mut Cq> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Context::of(context) };
    if wanted.entries == 0 || wanted.vector != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller guarantees.
    let channel = unsafe { wanted.channel.cast::<Channel>().as_ref() }.map(|channel| channel.number);
    let (answer, fds) = of.attachment.ask(&Request::CreateCq { entries: wanted.entries, channel })?;
    let (Answer::Queue { number, entries }, Some(fd)) = (answer, fds.into_iter().next()) else {
        return Err(libc::EIO);
    };
    let region = Arc::new(Region::from_fd(fd).map_err(|_| libc::ENOMEM)?);
    let pipe = AppQueues::new(&region).ok().and_then(|queues| queues.completion).ok_or(libc::EIO)?;
    let base = IbvCq {
        context,
        channel: wanted.channel,
        cq_context: wanted.cq_context,
        handle: number,
        cqe: entries as c_int,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let cq = Box::into_raw(Box::new(Cq {
        public: extended_poll::with_functions(base),
        attachment: Arc::clone(&of.attachment),
        number,
        polled: Lock::new(Polled::new(pipe)),
        notify: Notify::new(&region),
        events: Unacknowledged::default(),
        async_events: Unacknowledged::default(),
    }));
    of.objects().cqs.insert(number, cq.cast());
    Ok(cq)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut IbvContext,
    entries: c_int,
    cq_context: *mut c_void,
    channel: *mut IbvCompChannel,
    vector: c_int,
) -> *mut IbvCq {
    let wanted = Wanted { entries: entries.max(0) as u32, cq_context, channel, vector: vector as u32 };
    // SAFETY: the program passes a context, and a channel of it or null.
    errno::pointer(unsafe { create(context, &wanted) }.map(<*mut Cq>::cast))
}

/// `ibv_create_cq_ex`.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut IbvContext,
    attributes: *mut IbvCqInitAttrEx,
) -> *mut IbvCqEx {
    // SAFETY: the program passes attributes.
    let asked = unsafe { &*attributes };
    let flags = if asked.comp_mask & WITH_FLAGS != 0 { asked.flags } else { 0 };
    if asked.comp_mask & !WITH_FLAGS != 0 || asked.wc_flags & !READABLE != 0 || flags & !KNOWN_FLAGS != 0 {
        return errno::pointer(Err(libc::EOPNOTSUPP));
    }
    let (cq_context, channel) = (asked.cq_context, asked.channel);
    let wanted = Wanted { entries: asked.cqe, cq_context, channel, vector: asked.comp_vector };
    // SAFETY: the program passes a context, and a channel of it or null.
    errno::pointer(unsafe { create(context, &wanted) }.map(<*mut Cq>::cast))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut IbvCq) -> c_int {
    // SAFETY: a queue of the program's, and its context.
    let (of, context) = unsafe { (Cq::of(cq), Context::of((*cq).context)) };
    errno::number(of.attachment.done(&Request::DestroyCq(of.number)).map(|()| {
        context.objects().cqs.remove(&of.number);
        of.events.wait();
        of.async_events.wait();
        // SAFETY: made by `Box::into_raw`, and used no more.
        drop(unsafe { Box::from_raw(cq.cast::<Cq>()) });
    }))
}

/// A queue that is large enough stays as it is.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut IbvCq, entries: c_int) -> c_int {
    // SAFETY: a queue of the program's.
    errno::number(match (entries, unsafe { (*cq).cqe }) {
        (..=0, _) => Err(libc::EINVAL),
        (wanted, has) if wanted <= has => Ok(()),
        // SAFETY: as above.
        (wanted, _) => unsafe { grow(cq, wanted as u32) },
    })
}

/// # Safety
/// The queue is the program's.
unsafe fn grow(cq: *mut IbvCq, entries: u32) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Cq::of(cq) };
    let (answer, fds) = of.attachment.ask(&Request::ResizeCq { cq: of.number, entries })?;
    let (Answer::Queue { entries, .. }, Some(fd)) = (answer, fds.into_iter().next()) else { return Err(libc::EIO) };
    let region = Arc::new(Region::from_fd(fd).map_err(|_| libc::ENOMEM)?);
    let pipe = AppQueues::new(&region).ok().and_then(|queues| queues.completion).ok_or(libc::EIO)?;
    of.polled.lock().resize(pipe);
    // SAFETY: as the caller guarantees; programs read the member.
    unsafe { (*cq).cqe = entries as c_int };
    Ok(())
}

/// `ibv_req_notify_cq`.
pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut IbvCq, solicited_only: c_int) -> c_int {
    // SAFETY: a queue of the program's.
    let of = unsafe { Cq::of(cq) };
    of.notify.ask(if solicited_only == 0 { Wish::Any } else { Wish::Solicited });
    0
}
