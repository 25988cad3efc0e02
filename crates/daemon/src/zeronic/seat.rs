//! The place of a program on a ZeroNIC host.
use super::maker::ZeronicPlace;
use crate::attaching::{printable, version};
use crate::domains::Domains;
use crate::queue_programs::seat::{Failure, Seat, Who, hello};
use context::ProgramQueues;
use context::comm::{Answer, Hello, VERSION};
use memory::{Domain, MemoryTable};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use zeronic::{NewProgram, ProgramId};

/// A program's place; it has an identity once it is attached.
struct ZeronicSeat {
    place: ZeronicPlace,
    id: Option<ProgramId>,
}

/// A first message that asks for a ZeroNIC host.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    version(message, "comm").is_some()
}

/// The place that a first message asks for, and the command line in it.
pub(crate) fn seat_of(
    places: &[ZeronicPlace],
    socket: &OwnedFd,
    message: &[u8],
    uid: u32,
) -> Result<(Box<dyn Seat>, String), Failure> {
    let hello: Hello = hello(message, version(message, "comm"), VERSION)?;
    let found = places.iter().find(|place| hello.host.as_ref().is_none_or(|name| place.section.is_called(name)));
    let place = found.ok_or_else(|| {
        (libc::ENODEV, "this daemon has no such ZeroNIC host: its configuration has [[zeronic]] sections".into())
    })?;
    place.admit(socket.as_fd(), uid).map_err(|sentence| (libc::EACCES, sentence))?;
    let command = printable(&hello.command);
    tracing::debug!(host = place.section.name, "{command} uses toe_comm");
    Ok((Box::new(ZeronicSeat { place: place.clone(), id: None }), command))
}

impl Seat for ZeronicSeat {
    fn table(&self) -> &Arc<MemoryTable> {
        &self.place.table
    }

    fn domains(&self) -> &Domains {
        &self.place.rdma.domains
    }

    fn attach(&mut self, who: Who, domain: Domain, queues: ProgramQueues, watched: OwnedFd) -> Result<Answer, Failure> {
        let Who { pid, uid, command } = who;
        let program = NewProgram { pid, command, uid, domain, queues };
        let index = self.place.index;
        let attached = self.place.handle.ask(move |path| path.attach_zeronic(index, program, watched));
        self.id = Some(attached.and_then(|attached| attached).map_err(|why| (libc::ENODEV, why))?);
        Ok(Answer::Welcome(self.place.section.name.clone()))
    }

    fn detach(&mut self) {
        if let Some(id) = self.id.take() {
            let index = self.place.index;
            // Where the thread has ended, the daemon is ending.
            let _ = self.place.handle.ask(move |path| path.detach_zeronic(index, id));
        }
    }

    fn device_timeout(&self) -> Option<u64> {
        Some(u64::from(self.place.section.device_timeout_ms) * 1_000_000)
    }
}
