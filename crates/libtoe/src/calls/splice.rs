//! Splicing: two connections are joined, so that the data-path forwards their bytes without the program (FlexTOE
//! appendix B).
//!
//! Joining needs a moment at which nothing is on its way. Where peers send without a pause there is none by itself, so
//! the library makes one. It passes on what arrives, but sends the engine no bump that it was read. The windows close,
//! the peers stop, the rest is acknowledged. Then the pair is joined, and the first segment of the joined path opens
//! the windows again. Where that takes too long, the program goes on with nothing lost.
use crate::calls::{direct, waiting};
use crate::daemon::{ask, share};
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::slot_state::{RX_FIN, SHUT_READ, SHUT_WRITE, SPLICED};
use crate::state::socket::{Kind, Socket};
use crate::state::{Lib, Link, events, readiness};
use crate::system::errno::Result;
use crate::system::waking;
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use context::{Request, Slot, SpliceEnd};
use std::time::{Duration, Instant};

/// How long a call on blocking sockets tries while no byte is passed on or acknowledged. While bytes move it goes on: a
/// peer on a long path has megabytes of window to fill before it stops.
const TIMEOUT: Duration = Duration::from_millis(200);
/// How long it tries at most.
const MOST: Duration = Duration::from_secs(2);
/// Time between two attempts after the control plane reported that something is on its way.
const PAUSE: Duration = Duration::from_millis(1);

/// Two sockets that are being joined.
struct Pair {
    keys: [Key; 2],
    /// Bytes of each that were passed on to the other, but not consumed.
    taken: [u32; 2],
    /// Where it gives up.
    deadline: Instant,
    /// The latest `deadline` of all.
    end: Instant,
    /// Of each connection at the last poll: bytes that were passed on, and bytes in flight.
    seen: [[u32; 2]; 2],
    /// What is unread may be passed on.
    carries: bool,
}

/// `toe_splice`.
pub(crate) fn splice(lib: &mut Guard, keys: [Key; 2]) -> Result<()> {
    if keys[0].index == keys[1].index {
        return Err(libc::EINVAL);
    }
    let mut blocking = true;
    for key in keys {
        share::claim(lib, key)?;
        lib.uncork(key);
        blocking &= !lib.need_socket(key)?.nonblocking;
    }
    let now = waking::now();
    let [deadline, end] = if blocking { [now + TIMEOUT, now + MOST] } else { [now; 2] };
    let mut pair = Pair { keys, taken: [0; 2], deadline, end, seen: [[0; 2]; 2], carries: blocking };
    let result = pair.join(lib);
    pair.finish(lib, result.is_ok());
    result
}

impl Pair {
    fn join(&mut self, lib: &mut Guard) -> Result<()> {
        loop {
            let attempt = self.attempt(lib);
            if attempt != Err(libc::EAGAIN) || waking::now() + PAUSE > self.deadline {
                return attempt;
            }
            // The engine ignored the program's bumps for them meanwhile.
            self.keys.into_iter().for_each(|key| lib.bump_again(key));
            let pause = Some(waking::now() + PAUSE);
            let wait = WaitOptions { deadline: pause, signals: Signals::Keep, ..WaitOptions::forever() };
            let _ = waiting::until(lib, wait, |_, _| None::<()>);
        }
    }

    /// Waits until nothing is on its way, as far as can be seen from here, then asks once.
    fn attempt(&mut self, lib: &mut Guard) -> Result<()> {
        let targets = self.keys.map(Target::Socket);
        let ends = loop {
            let deadline = self.deadline;
            let wait = WaitOptions {
                deadline: Some(deadline),
                targets: &targets,
                signals: Signals::Keep,
                ..WaitOptions::forever()
            };
            match waiting::until(lib, wait, |lib, _| self.poll(lib).transpose()) {
                Ok(ends) => break ends?,
                // Something moved meanwhile.
                Err(libc::ETIMEDOUT) if self.deadline > deadline => {}
                Err(libc::ETIMEDOUT) => return Err(libc::EAGAIN),
                Err(errno) => return Err(errno),
            }
        };
        ask::ask(lib, |tag| Request::Splice { tag, ends }).map(|_| ())
    }

    /// The program's positions in both connections; nothing while bytes are on their way.
    fn poll(&mut self, lib: &mut Lib) -> Result<Option<[SpliceEnd; 2]>> {
        for key in self.keys {
            direct::take_back(lib, key);
            let socket = lib.socket(key).ok_or(libc::EBADF)?;
            if socket.error != 0 {
                return Err(socket.take_error());
            }
            let broken = socket.broken;
            let stream = socket.stream()?;
            if broken || stream.flags() & (RX_FIN | SHUT_READ | SHUT_WRITE | SPLICED) != 0 {
                return Err(libc::ENOTCONN);
            }
        }
        for side in 0..2 {
            self.carry(lib, side)?;
        }
        self.note_progress(lib);
        let mut end = |side: usize| {
            let stream = lib.socket(self.keys[side])?.stream().ok()?;
            let quiet = stream.in_flight() == 0 && stream.readable() == self.taken[side] && !stream.keeps();
            let (tx_head, rx_head) = stream.positions();
            let rx_head = rx_head.wrapping_add(self.taken[side]);
            Some(SpliceEnd { slot: stream.name?, tx_head, rx_head }).filter(|_| quiet)
        };
        Ok(end(0).zip(end(1)).map(|(a, b)| [a, b]))
    }

    /// Puts the deadline off where bytes were passed on or acknowledged since the last poll.
    fn note_progress(&mut self, lib: &mut Lib) {
        let seen = [0, 1].map(|side| {
            let stream = lib.socket(self.keys[side]).and_then(|socket| socket.stream().ok());
            [self.taken[side], stream.map_or(0, |stream| stream.in_flight())]
        });
        if self.seen != seen {
            self.seen = seen;
            self.deadline = (waking::now() + TIMEOUT).min(self.end);
        }
    }

    /// Passes on what is unread of a side, as far as the other one has room.
    fn carry(&mut self, lib: &mut Lib, side: usize) -> Result<()> {
        let Lib { sockets, link: Link::Attached(context), .. } = lib else { return Err(libc::ENETDOWN) };
        let unread = |socket: &mut Socket| Some(socket.stream().ok()?.unread(self.taken[side]));
        let Some(unread) = sockets.get_mut(self.keys[side].index).and_then(unread) else { return Ok(()) };
        let len: usize = unread.iter().map(|piece| piece.iov_len).sum();
        if len == 0 {
            return Ok(());
        }
        if !self.carries {
            // It is the program's to read.
            return Err(libc::EAGAIN);
        }
        let key = self.keys[1 - side];
        let Some(Kind::Stream(to)) = sockets.get_mut(key.index).map(|socket| &mut socket.kind) else { return Ok(()) };
        // SAFETY: the pieces lie in the ring of another connection, which stays mapped under the same lock.
        let copied = unsafe { to.copy_in(&unread, 0) }.unwrap_or(0) as u32;
        if copied > 0 {
            context.bump(key, to);
            self.taken[side] += copied;
        }
        Ok(())
    }

    /// What was passed on was read; and where the pair was not joined, the engine is notified of it.
    fn finish(self, lib: &mut Guard, joined: bool) {
        for (key, taken) in self.keys.into_iter().zip(self.taken) {
            if let Some(Kind::Stream(stream)) = lib.socket(key).map(|socket| &socket.kind) {
                stream.consume(taken);
                if joined {
                    stream.raise(SPLICED);
                }
            }
            if !joined {
                lib.bump_again(key);
            }
        }
    }
}

impl Lib {
    fn bump_again(&mut self, key: Key) {
        let Lib { sockets, link: Link::Attached(context), .. } = self else { return };
        let socket = sockets.get_mut(key.index).filter(|socket| socket.id == key.id);
        if let Some(Kind::Stream(stream)) = socket.map(|socket| &mut socket.kind) {
            context.bump(key, stream);
        }
    }

    /// A spliced connection has ended as connections do: the program reads end of file.
    pub(crate) fn splice_over(&mut self, slot: Slot) {
        let Some(index) = self.context().and_then(|context| context.socket_of(slot)) else { return };
        let Some(socket) = self.sockets.get_mut(index) else { return };
        if let Kind::Stream(stream) = &mut socket.kind {
            stream.raise(RX_FIN | SHUT_WRITE);
            readiness::notify(socket, &mut self.sets, events::ALL);
        }
    }
}
