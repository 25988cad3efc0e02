//! Identifiers: made, moved to another channel, ended.
use super::held::rdma_ack_cm_event;
use super::identifier::{Channel, Id, SPACE_TCP, SPACE_UDP};
use super::service::Service;
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use crate::errno::Result;
use libc::{c_int, c_void};
use std::ptr::null_mut;
use verbs::connections::{Request, Space};
use verbs::control::Answer;

/// A new identifier. Without a channel it gets one of its own, and its calls wait.
///
/// # Safety
/// The channel is the program's, or null.
pub(crate) unsafe fn create(
    service: &Service,
    channel: *mut RdmaEventChannel,
    context: *mut c_void,
    space: c_int,
) -> Result<*mut RdmaCmId> {
    let space = match space {
        SPACE_TCP => Space::Connections,
        SPACE_UDP => Space::Datagrams,
        _ => return Err(libc::EPROTONOSUPPORT),
    };
    let waits = channel.is_null();
    let channel = if waits { Channel::open(service)? } else { channel };
    // SAFETY: as the caller says, or made just now.
    let of = unsafe { Channel::of(channel) }.number;
    let made = service.ask(Request::Create { channel: of, space }).and_then(|answer| match answer {
        Answer::Number(number) => Ok(number),
        _ => Err(libc::EIO),
    });
    if made.is_err() && waits {
        // SAFETY: made just now.
        unsafe { Channel::close(service, channel) };
    }
    let id = Id::add(service, made?, channel, context, space);
    // SAFETY: made just now.
    unsafe { Id::of(id) }.private().waits = waits;
    Ok(id)
}

/// Ends an identifier: waits until the program has acknowledged its events.
///
/// # Safety
/// The identifier is the program's, and is used no more.
pub(crate) unsafe fn destroy(service: &Service, id: *mut RdmaCmId) -> Result<()> {
    // SAFETY: as the caller says.
    let of = unsafe { Id::of(id) };
    service.done(Request::Destroy(of.number))?;
    service.ids().remove(&of.number);
    // SAFETY: as the caller says.
    unsafe { acknowledge(id) };
    of.events.wait();
    let own = of.private().waits;
    if own {
        // SAFETY: the identifier's own, which nobody else has.
        unsafe { Channel::close(service, of.public.channel) };
    }
    // SAFETY: made by `Id::add`, and used no more.
    drop(unsafe { Box::from_raw(id.cast::<Id>()) });
    Ok(())
}

/// The event that an identifier's last waiting call got.
///
/// # Safety
/// The identifier is not destroyed.
pub(crate) unsafe fn acknowledge(id: *mut RdmaCmId) {
    // SAFETY: as the caller says; the event is one that was taken.
    unsafe {
        let event: *mut RdmaCmEvent = std::mem::replace(&mut (*id).event, null_mut());
        if !event.is_null() {
            rdma_ack_cm_event(event);
        }
    }
}

/// Events go to another channel; without one, to one of the identifier's own, and its calls wait from now on.
///
/// # Safety
/// The identifier and the channel are the program's.
pub(crate) unsafe fn migrate(service: &Service, id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> Result<()> {
    // SAFETY: as the caller says.
    let of = unsafe { Id::of(id) };
    let waits = channel.is_null();
    let channel = if waits { Channel::open(service)? } else { channel };
    // SAFETY: as the caller says, or made just now.
    let number = unsafe { Channel::of(channel) }.number;
    let moved = service.done(Request::Migrate { id: of.number, channel: number });
    if let (Err(_), true) = (moved, waits) {
        // SAFETY: made just now.
        unsafe { Channel::close(service, channel) };
    }
    moved?;
    let had_own = std::mem::replace(&mut of.private().waits, waits);
    // SAFETY: as the caller says; the identifier's own channel is nobody else's.
    unsafe {
        let before = std::mem::replace(&mut (*id).channel, channel);
        if had_own {
            acknowledge(id);
            Channel::close(service, before);
        }
    }
    Ok(())
}
