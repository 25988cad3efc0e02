//! The place of a program at a volume that a host uses.
use super::export::{TIMEOUT, size_of};
use super::views::{BlockPlace, BlockPlaces};
use crate::attaching::{printable, version};
use crate::domains::Domains;
use crate::queue_programs::seat::{Failure, Seat, Who, hello};
use crate::wake::watch;
use context::ProgramQueues;
use context::comm::Answer;
use context::volume::{Hello, VERSION};
use memory::{Domain, MemoryTable};
use rustix::event::epoll;
use solar::transport::{ProgramId, View};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A program's place; it has an identity, and a doorbell that is watched, once it is attached.
struct VolumeSeat {
    place: BlockPlace,
    id: Option<ProgramId>,
    watched: Option<OwnedFd>,
}

/// A first message that asks for a volume.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    version(message, "volume_version").is_some()
}

impl BlockPlaces {
    /// The place that a first message asks for, and the command line in it. Volumes are for the daemon's user, as their
    /// sockets are.
    pub(crate) fn seat_of(&self, message: &[u8], uid: u32) -> Result<(Box<dyn Seat>, String), Failure> {
        let hello: Hello = hello(message, version(message, "volume_version"), VERSION)?;
        let matches = |place: &&BlockPlace| {
            place.section.volume == hello.volume && hello.host.as_ref().is_none_or(|host| *host == place.section.host)
        };
        let place = self.blocks.iter().find(matches).ok_or_else(|| {
            let volume = printable(&hello.volume);
            (libc::ENODEV, format!("no host uses a volume `{volume}`: its configuration has [[block]] sections"))
        })?;
        if uid != 0 && uid != rustix::process::geteuid().as_raw() {
            return Err((libc::EACCES, format!("user {uid} may not use volumes: they are for the daemon's user")));
        }
        let command = printable(&hello.command);
        tracing::debug!(volume = place.section.volume, "{command} uses the volume");
        Ok((Box::new(VolumeSeat { place: place.clone(), id: None, watched: None }), command))
    }
}

impl Seat for VolumeSeat {
    fn table(&self) -> &Arc<MemoryTable> {
        self.place.programs.table()
    }

    fn domains(&self) -> &Domains {
        &self.place.domains
    }

    fn attach(
        &mut self,
        _who: Who,
        domain: Domain,
        queues: ProgramQueues,
        watched: OwnedFd,
    ) -> Result<Answer, Failure> {
        let section = &self.place.section;
        let blocks = match self.place.gate.queue().wait(TIMEOUT) {
            View::Open { blocks } => blocks,
            View::Opening => return Err((libc::ETIMEDOUT, format!("{} does not answer", section.server))),
            View::Ended(status) => return Err((libc::EIO, format!("{} refuses it: {status}", section.server))),
        };
        let Some(bytes) = size_of(blocks) else {
            return Err((libc::EIO, format!("{} reports {blocks} blocks", section.server)));
        };
        let id = self.place.programs.attach(domain, queues).map_err(|why| (libc::EAGAIN, why))?;
        self.id = Some(id);
        // Edge-triggered, so the eventfd needs no read: each ring wakes once.
        let watching = self.place.handle.ask(move |path| {
            watch(&path.epoll, watched.as_fd(), epoll::EventFlags::ET).map(|()| watched).map_err(|e| e.to_string())
        });
        self.watched = Some(watching.and_then(|watched| watched).map_err(|why| (libc::EAGAIN, why))?);
        Ok(Answer::Volume { bytes, read_only: section.read_only })
    }

    fn detach(&mut self) {
        if let Some(id) = self.id.take() {
            self.place.programs.detach(id);
        }
        if let Some(watched) = self.watched.take() {
            // Where the thread has ended, the daemon is ending.
            let _ = self.place.handle.ask(move |path| epoll::delete(&path.epoll, watched));
        }
    }
}
