//! On which devices an identifier is: it begins on the first one, and its addresses choose.
use super::device_identifier::{DeviceIdentifier, everywhere};
use super::identifier::{self, Channel, Id};
use super::service::{Service, service, service_of};
use crate::abi::RdmaCmId;
use crate::device;
use crate::errno::Result;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Loopback addresses mean the first device itself, as with Linux.
pub(crate) fn this_host(address: SocketAddrV4) -> SocketAddrV4 {
    match device::address_at(0) {
        Some(own) if address.ip().is_loopback() => SocketAddrV4::new(own, address.port()),
        _ => address,
    }
}

/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn is_bound(id: *mut RdmaCmId) -> bool {
    // SAFETY: as the caller guarantees: zeros where there is no address.
    unsafe { (*id).route.addr.src.ss_family != 0 }
}

/// Binds an identifier: to the first device of this address; to all devices where it is no address in particular.
///
/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn bind(id: *mut RdmaCmId, address: SocketAddrV4) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        if is_bound(id) {
            return Err(libc::EINVAL);
        }
        let of = Id::of(id);
        let shared = of.private().shared;
        let address = this_host(address);
        if !address.ip().is_unspecified() || device::count() < 2 {
            move_to(id, service_of(*address.ip())?)?;
            let local = of.seat().bind(address, shared)?;
            identifier::bind(of.seat().service, id, local);
            return Ok(());
        }
        let channel = Channel::of(of.public.channel);
        let (seats, local) = everywhere(|service| channel.at(service), of.space(), address, shared)?;
        let first = seats[0].service;
        Id::sit(id, seats);
        identifier::bind(first, id, local);
        Ok(())
    }
}

/// The identifier's only device from now on is the one for this destination.
///
/// # Safety
/// The identifier is the program's.
pub(crate) unsafe fn choose(id: *mut RdmaCmId, to: Ipv4Addr) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let (seats, chosen) = (Id::of(id).seats(), towards(to)?);
        match (seats.len(), is_bound(id)) {
            (1, true) => Ok(()),
            (1, false) => move_to(id, chosen),
            _ => {
                let matching = seats.iter().find(|seat| seat.service.place == chosen.place);
                Id::sit(id, vec![*matching.unwrap_or(&seats[0])]);
                Ok(())
            }
        }
    }
}

/// The service of the device for a destination: the one that has the address itself, or the first one.
fn towards(to: Ipv4Addr) -> Result<&'static Service> {
    let own = (0..device::count()).any(|place| device::address_at(place) == Some(to));
    if own { service_of(to) } else { service() }
}

/// An identifier without an address begins anew on a device.
///
/// # Safety
/// The identifier is the program's.
unsafe fn move_to(id: *mut RdmaCmId, service: &'static Service) -> Result<()> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let of = Id::of(id);
        if of.seat().service.place != service.place {
            let channel = Channel::of(of.public.channel).at(service)?;
            Id::sit(id, vec![DeviceIdentifier::create(service, channel, of.space())?]);
        }
        Ok(())
    }
}
