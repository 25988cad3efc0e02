//! An identifier's devices: those whose daemon's part has it, and its number there. One that is bound to no
//! address in particular is at all devices; every other one is at one.
use super::service::{Service, services};
use crate::errno::Result;
use std::net::SocketAddrV4;
use verbs::Number;
use verbs::connections::{Answer, Request, Space};
use verbs::control::Answer as Control;

/// Most attempts to find a port that is free at all devices.
const TRIES: usize = 16;

/// A device, and the number of an identifier there.
#[derive(Clone, Copy)]
pub(crate) struct DeviceIdentifier {
    pub(crate) service: &'static Service,
    pub(crate) number: Number,
}

impl DeviceIdentifier {
    /// A new identifier of a device, whose events go to this channel of it.
    pub(crate) fn create(service: &'static Service, channel: Number, space: Space) -> Result<DeviceIdentifier> {
        match service.ask(Request::Create { channel, space })? {
            Control::Number(number) => Ok(DeviceIdentifier { service, number }),
            _ => Err(libc::EIO),
        }
    }

    /// Gives it a local address.
    pub(crate) fn bind(self, address: SocketAddrV4, shared: bool) -> Result<SocketAddrV4> {
        match self.service.answer(Request::Bind { id: self.number, address, shared })? {
            Answer::Bound(local) => Ok(local),
            Answer::Event(_) => Err(libc::EIO),
        }
    }

    /// It is there no longer.
    pub(crate) fn destroy(self) -> Result<()> {
        self.service.done(Request::Destroy(self.number))?;
        self.service.ids().remove(&self.number);
        Ok(())
    }
}

/// Seats that are released unless they are taken over.
struct Fresh(Vec<DeviceIdentifier>);

impl Drop for Fresh {
    fn drop(&mut self) {
        for seat in self.0.drain(..) {
            // Where the daemon has gone, so has the seat.
            let _ = seat.destroy();
        }
    }
}

/// Seats at all devices, bound to the same port; `channel` gives the number of the channel at a device.
pub(crate) fn everywhere(
    channel: impl Fn(&'static Service) -> Result<Number>,
    space: Space,
    address: SocketAddrV4,
    shared: bool,
) -> Result<(Vec<DeviceIdentifier>, SocketAddrV4)> {
    let mut tries = if address.port() == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        let mut fresh = Fresh(Vec::new());
        let bound = services().try_fold(address, |local, service| {
            let seat = DeviceIdentifier::create(service, channel(service)?, space)?;
            fresh.0.push(seat);
            seat.bind(local, shared)
        });
        match bound {
            Ok(local) => return Ok((std::mem::take(&mut fresh.0), local)),
            // The port that the first device gave is another one's at the next.
            Err(libc::EADDRINUSE) if tries > 0 => {}
            Err(number) => return Err(number),
        }
    }
}
