//! Programs that use queues of posts and completions: those of ZeroNIC hosts (`context::comm`) and of volumes
//! (`context::volume`). Each has a service thread of its own.
mod devices;
pub(crate) mod seat;
mod service;

use crate::block::{self, BlockPlaces};
use crate::zeronic::{self, ZeronicPlace};
use context::comm::Answer;
use rustix::event::{EventfdFlags, eventfd};
use seat::{Failure, Seat, Who};
use shm::{handover, reserve};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

/// Service threads at once, of all hosts and volumes.
const MOST: usize = 256;
/// Bytes of a service thread's stack.
const STACK: usize = 512 << 10;

/// All such programs of the daemon.
pub(crate) struct QueuePrograms {
    zeronics: Vec<ZeronicPlace>,
    blocks: BlockPlaces,
    alive: Arc<Alive>,
}

/// The service threads.
struct Alive {
    count: AtomicUsize,
    /// Readable when one has ended.
    wake: OwnedFd,
}

/// One service thread; it is gone when this is dropped, also where the thread panicked.
struct OneAlive(Arc<Alive>);

impl OneAlive {
    fn of(alive: &Arc<Alive>) -> OneAlive {
        alive.count.fetch_add(1, Relaxed);
        OneAlive(Arc::clone(alive))
    }
}

impl Drop for OneAlive {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
        // Failing means that the counter is at its limit: it is signalled.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }
}

/// A first message that asks for a ZeroNIC host or a volume.
pub(crate) fn is_hello(message: &[u8]) -> bool {
    zeronic::is_hello(message) || block::is_hello(message)
}

impl QueuePrograms {
    /// # Errors
    /// The system has no descriptor left.
    pub(crate) fn new(zeronics: Vec<ZeronicPlace>, blocks: BlockPlaces) -> io::Result<QueuePrograms> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(QueuePrograms { zeronics, blocks, alive: Arc::new(Alive { count: AtomicUsize::new(0), wake }) })
    }

    /// Where ZeroNIC hosts are served.
    pub(crate) fn zeronics(&self) -> &[ZeronicPlace] {
        &self.zeronics
    }

    /// Readable when a service thread has ended: then call [`QueuePrograms::reap`].
    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.alive.wake.as_fd()
    }

    /// [`QueuePrograms::count`] is asked again.
    pub(crate) fn reap(&self) {
        let _ = rustix::io::read(&self.alive.wake, &mut [0; 8]);
    }

    /// Programs that are attached, or about to be.
    pub(crate) fn count(&self) -> usize {
        self.alive.count.load(Relaxed)
    }

    /// Takes a program's hello: starts its service thread, or refuses it with a sentence.
    pub(crate) fn start(&self, socket: OwnedFd, message: &[u8]) {
        let socket = Arc::new(socket);
        let refused = Arc::clone(&socket);
        let started = self.seat_of(&socket, message).and_then(|(seat, who)| {
            let alive = OneAlive::of(&self.alive);
            let body = move || {
                if let Err((errno, sentence)) = service::serve(&socket, seat, who) {
                    refuse(&socket, errno, sentence);
                }
                drop(alive);
            };
            let thread = thread::Builder::new().name("queues".into()).stack_size(STACK).spawn(body);
            thread.map(drop).map_err(|e| (libc::EAGAIN, format!("the daemon cannot start a thread: {e}")))
        });
        if let Err((errno, sentence)) = started {
            refuse(&refused, errno, sentence);
        }
    }

    fn seat_of(&self, socket: &OwnedFd, message: &[u8]) -> Result<(Box<dyn Seat>, Who), Failure> {
        let peer = handover::credentials(socket.as_fd())
            .map_err(|e| (libc::EACCES, format!("the credentials of the peer cannot be read: {e}")))?;
        let (pid, uid) = (peer.pid.unsigned_abs(), peer.uid);
        let (seat, command) = if block::is_hello(message) {
            self.blocks.seat_of(message, uid)?
        } else {
            zeronic::seat_of(&self.zeronics, socket, message, uid)?
        };
        if self.count() >= MOST || reserve::is_short() {
            return Err((libc::EAGAIN, "the daemon serves as many programs as it can: end some first".into()));
        }
        Ok((seat, Who { pid, uid, command }))
    }
}

fn refuse(socket: &OwnedFd, errno: i32, sentence: String) {
    tracing::warn!("a program was refused: {sentence}");
    let answer = serde_json::to_vec(&Answer::Refused(errno, sentence)).unwrap_or_default();
    // It may be gone already.
    let _ = handover::send(socket.as_fd(), &answer, &[]);
}
