//! Events: getting them from the two kinds of pipes, and acknowledging them.
use crate::abi::{IbvAsyncEvent, IbvCompChannel, IbvContext, IbvCq};
use crate::channel::read_message;
use crate::completion_queue::Cq;
use crate::context::{Context, Objects};
use crate::errno::{self, Result};
use crate::queue_pair::Qp;
use crate::shared_receive::Srq;
use libc::{c_int, c_uint, c_void};
use std::os::fd::RawFd;
use verbs::{AsyncEvent, AsyncMessage, ChannelMessage};

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut IbvCompChannel,
    cq: *mut *mut IbvCq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: `ibv_create_comp_channel` gave it.
    let (context, fd) = unsafe { (Context::of((*channel).context), (*channel).fd) };
    errno::minus_one(next_completion(context, fd).map(|found| {
        // SAFETY: the program passes places for both; the queue waits for the acknowledgement.
        unsafe {
            *cq = found;
            *cq_context = (*found).cq_context;
        }
    }))
}

/// The queue of the next event, which then waits for an acknowledgement.
fn next_completion(context: &Context, fd: RawFd) -> Result<*mut IbvCq> {
    loop {
        let ChannelMessage(number) = ChannelMessage::decode(read_message::<{ ChannelMessage::BYTES }>(fd)?);
        if let Some(cq) = context.objects().cqs.get(&number) {
            // SAFETY: a queue leaves the table before it is freed, and the table is locked.
            unsafe { &*cq.cast::<Cq>() }.events.got();
            return Ok(*cq);
        }
        // It was destroyed meanwhile.
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut IbvCq, events: c_uint) {
    // SAFETY: a queue that waits for this.
    unsafe { &*cq.cast::<Cq>() }.events.acknowledge(events);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut IbvContext, event: *mut IbvAsyncEvent) -> c_int {
    // SAFETY: an open context.
    let context = unsafe { Context::of(context) };
    errno::minus_one(next_event(context).map(|found| {
        // SAFETY: the program passes a place for the event.
        unsafe { event.write(found) };
    }))
}

fn next_event(context: &Context) -> Result<IbvAsyncEvent> {
    loop {
        let bytes = read_message::<{ AsyncMessage::BYTES }>(context.async_fd())?;
        let Some(message) = AsyncMessage::decode(bytes) else { continue };
        if let Some(element) = element(&context.objects(), message) {
            return Ok(IbvAsyncEvent { element, event_type: message.event.code().into() });
        }
        // It was destroyed meanwhile.
    }
}

/// The object of an event, which then waits for an acknowledgement.
fn element(objects: &Objects, message: AsyncMessage) -> Option<*mut c_void> {
    let AsyncMessage { event, number } = message;
    // SAFETY (of the three blocks): an object leaves the table before it is freed, and the table is locked.
    match event {
        AsyncEvent::DeviceFatal => Some(std::ptr::null_mut()),
        AsyncEvent::CompletionQueueError => objects.cqs.get(&number).map(|cq| {
            // SAFETY: as above.
            unsafe { &*cq.cast::<Cq>() }.async_events.got();
            cq.cast()
        }),
        AsyncEvent::SrqError | AsyncEvent::SrqLimitReached => objects.srqs.get(&number).map(|srq| {
            // SAFETY: as above.
            unsafe { &*srq.cast::<Srq>() }.event(event);
            srq.cast()
        }),
        _ => objects.qps.get(&number).map(|qp| {
            // SAFETY: as above.
            unsafe { &*qp.cast::<Qp>() }.events.got();
            qp.cast()
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut IbvAsyncEvent) {
    // SAFETY: the program passes an event that it got, whose object it cannot have destroyed.
    let event = unsafe { &*event };
    let object = event.element;
    match u8::try_from(event.event_type).ok().and_then(AsyncEvent::from_code) {
        None | Some(AsyncEvent::DeviceFatal) => {}
        // SAFETY: as above.
        Some(AsyncEvent::CompletionQueueError) => unsafe { &*object.cast::<Cq>() }.async_events.acknowledge(1),
        Some(AsyncEvent::SrqError | AsyncEvent::SrqLimitReached) => {
            // SAFETY: as above.
            unsafe { &*object.cast::<Srq>() }.events.acknowledge(1);
        }
        // SAFETY: as above.
        Some(_) => unsafe { &*object.cast::<Qp>() }.events.acknowledge(1),
    }
}
