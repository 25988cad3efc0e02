//! Identifiers: made, moved to another channel, ended.
use super::device_identifier::DeviceIdentifier;
use super::held::rdma_ack_cm_event;
use super::identifier::{Channel, Id, SPACE_TCP, SPACE_UDP};
use super::service::service;
use crate::abi::{RdmaCmEvent, RdmaCmId, RdmaEventChannel};
use crate::errno::Result;
use libc::{c_int, c_void};
use std::ptr::null_mut;
use verbs::connections::{Request, Space};

/// A new identifier. Without a channel it gets one of its own, and its calls wait.
///
/// # Safety
/// The channel is the program's, or null.
pub(crate) unsafe fn create(
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
    let service = service()?;
    let channel = if waits { Channel::open()? } else { channel };
    // SAFETY: as the caller guarantees, or made just now.
    let of = unsafe { Channel::of(channel) }.at(service);
    let made = of.and_then(|of| DeviceIdentifier::create(service, of, space));
    if made.is_err() && waits {
        // SAFETY: made just now.
        unsafe { Channel::close(channel) };
    }
    let id = Id::add(made?, channel, context, space);
    // SAFETY: made just now.
    unsafe { Id::of(id) }.private().waits = waits;
    Ok(id)
}

/// Ends an identifier: waits until the program has acknowledged its events.
///
/// # Safety
/// The identifier is the program's, and is used no more.
pub(crate) unsafe fn destroy(id: *mut RdmaCmId) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Id::of(id) };
    of.seats().into_iter().try_for_each(DeviceIdentifier::destroy)?;
    // SAFETY: as the caller guarantees.
    unsafe { acknowledge(id) };
    of.events.wait();
    let own = of.private().waits;
    if own {
        // SAFETY: the identifier's own, which nobody else has.
        unsafe { Channel::close(of.public.channel) };
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
    // SAFETY: as the caller guarantees; the event is one that was taken.
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
pub(crate) unsafe fn migrate(id: *mut RdmaCmId, channel: *mut RdmaEventChannel) -> Result<()> {
    // SAFETY: as the caller guarantees.
    let of = unsafe { Id::of(id) };
    let waits = channel.is_null();
    let channel = if waits { Channel::open()? } else { channel };
    // SAFETY: as the caller guarantees, or made just now.
    let to = unsafe { Channel::of(channel) };
    let moved = of.seats().into_iter().try_for_each(|DeviceIdentifier { service, number }| {
        service.done(Request::Migrate { id: number, channel: to.at(service)? })
    });
    if let (Err(_), true) = (moved, waits) {
        // SAFETY: made just now.
        unsafe { Channel::close(channel) };
    }
    moved?;
    let had_own = std::mem::replace(&mut of.private().waits, waits);
    // SAFETY: as the caller guarantees; the identifier's own channel is nobody else's.
    unsafe {
        let before = std::mem::replace(&mut (*id).channel, channel);
        if had_own {
            acknowledge(id);
            Channel::close(before);
        }
    }
    Ok(())
}
