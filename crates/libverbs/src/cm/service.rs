//! The process's one context for connection management: opened when it is first used, and never closed.
use crate::abi::{IbvContext, IbvPd, RdmaCmId};
use crate::attachment::Attachment;
use crate::context::Context;
use crate::device;
use crate::domain::ibv_alloc_pd;
use crate::errno::{self, Result};
use crate::open::open;
use libc::c_int;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use verbs::Number;
use verbs::connections::{self, Request};
use verbs::control::{Answer, Request as Control};

/// What identifiers of this process share.
pub(crate) struct Service {
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

static SERVICE: OnceLock<std::result::Result<Service, c_int>> = OnceLock::new();

/// The service; ENODEV where the process has no device.
pub(crate) fn service() -> Result<&'static Service> {
    let made = SERVICE.get_or_init(|| {
        let device = device::device();
        if device.is_null() {
            return Err(libc::ENODEV);
        }
        let context = open(device)?;
        // SAFETY: it was opened just now, and stays open.
        let attachment = Arc::clone(&unsafe { Context::of(context) }.attachment);
        Ok(Service { context, attachment, ids: Mutex::default(), domain: Mutex::new(0) })
    });
    made.as_ref().map_err(|number| *number)
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

    /// The protection domain for who names none.
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
