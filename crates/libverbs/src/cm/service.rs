//! The process's contexts for connection management, one for each device: opened when first used, and never closed.
use crate::abi::{IbvContext, IbvPd, RdmaCmId};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::device;
use crate::domain::ibv_alloc_pd;
use crate::errno::{self, Result};
use crate::open::open;
use libc::c_int;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use verbs::Number;
use verbs::connections::{self, Request};
use verbs::control::{Answer, Request as Control};

/// What identifiers of a device share in this process.
pub(crate) struct Service {
    /// ArenaMapping of its device in the list.
    pub(crate) place: usize,
    pub(crate) context: *mut IbvContext,
    pub(crate) attachment: Arc<Attachment>,
    /// Identifiers, by the daemon's numbers. Each leaves the table before it is freed.
    ids: Mutex<HashMap<Number, *mut RdmaCmId>>,
    /// The protection domain of queue pairs for which the program names none.
    domain: Mutex<usize>,
}

// SAFETY: the context is made for use by all threads, and the table has a lock.
unsafe impl Send for Service {}
// SAFETY: as above.
unsafe impl Sync for Service {}

type Made = OnceLock<std::result::Result<Service, c_int>>;

static SERVICES: OnceLock<Vec<Made>> = OnceLock::new();

fn all() -> &'static [Made] {
    SERVICES.get_or_init(|| (0..device::count()).map(|_| OnceLock::new()).collect())
}

/// The service of the first device; ENODEV where the process has none.
pub(crate) fn service() -> Result<&'static Service> {
    service_at(0)
}

/// The service of the device at this place in the list.
pub(crate) fn service_at(place: usize) -> Result<&'static Service> {
    let made = all().get(place).ok_or(libc::ENODEV)?.get_or_init(|| {
        let context = open(device::at(place))?;
        // SAFETY: it was opened just now, and stays open.
        let attachment = Arc::clone(&unsafe { Context::of(context) }.attachment);
        Ok(Service { place, context, attachment, ids: Mutex::default(), domain: Mutex::new(0) })
    });
    made.as_ref().map_err(|number| *number)
}

/// The services of all devices that can be opened, in the order of the list.
pub(crate) fn services() -> impl Iterator<Item = &'static Service> {
    (0..all().len()).filter_map(|place| service_at(place).ok())
}

/// The service of the first device that has this address; of the first device at all where none has it, so that the
/// daemon refuses the address with its reason.
pub(crate) fn service_of(address: Ipv4Addr) -> Result<&'static Service> {
    let places = 0..all().len();
    let place = places.into_iter().find(|place| device::address_at(*place) == Some(address));
    service_at(place.unwrap_or(0))
}

impl Service {
    /// Asks for what is answered without a value.
    pub(crate) fn done(&self, request: Request) -> Result<()> {
        self.attachment.done(&Control::Connections(request))
    }

    /// Asks for an object that has a number, and perhaps a descriptor.
    pub(crate) fn number(&self, request: Request) -> Result<(Number, Option<OwnedFd>)> {
        self.attachment.number(&Control::Connections(request))
    }

    /// Asks for an object that has a number, with a descriptor of the program's.
    pub(crate) fn number_for(&self, request: Request, fd: BorrowedFd<'_>) -> Result<Number> {
        match self.attachment.ask_with(&Control::Connections(request), fd)? {
            (Answer::Number(number), _) => Ok(number),
            _ => Err(libc::EIO),
        }
    }

    /// Asks.
    pub(crate) fn ask(&self, request: Request) -> Result<Answer> {
        self.attachment.ask(&Control::Connections(request)).map(|(answer, _)| answer)
    }

    /// Asks for what has an answer of connection management.
    pub(crate) fn answer(&self, request: Request) -> Result<connections::Answer> {
        match self.ask(request)? {
            Answer::Connections(answer) => Ok(answer),
            _ => Err(libc::EIO),
        }
    }

    /// Identifiers by number.
    pub(crate) fn ids(&self) -> MutexGuard<'_, HashMap<Number, *mut RdmaCmId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The protection domain for calls that name none.
    pub(crate) fn domain(&self) -> Result<*mut IbvPd> {
        let mut domain = self.domain.lock().unwrap_or_else(PoisonError::into_inner);
        if *domain == 0 {
            // SAFETY: the context is open.
            let made = unsafe { ibv_alloc_pd(self.context) };
            if made.is_null() {
                return Err(errno::get());
            }
            *domain = made.expose_provenance();
        }
        Ok(std::ptr::with_exposed_provenance_mut(*domain))
    }
}
