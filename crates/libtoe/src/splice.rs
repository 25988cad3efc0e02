//! Joining two connections, so that the data-path passes their bytes on without the program (FlexTOE appendix B).
use crate::context_side;
use crate::errno::Result;
use crate::lock::Guard;
use crate::share;
use crate::socket::Kind;
use crate::state::{Key, Lib};
use crate::stream::{RX_FIN, SHUT_READ, SHUT_WRITE, SPLICED, Stream};
use crate::wait::{self, Signals, Target, Wait};
use crate::{data, readiness};
use context::{Request, Slot, SpliceEnd};
use std::time::{Duration, Instant};

/// How long a call on blocking sockets waits for a moment at which nothing is on its way.
const PATIENCE: Duration = Duration::from_millis(200);
/// Time between two attempts after the control plane said that something is on its way.
const PAUSE: Duration = Duration::from_millis(1);

/// `toe_splice`.
pub fn splice(lib: &mut Guard, keys: [Key; 2]) -> Result<()> {
    if keys[0].index == keys[1].index {
        return Err(libc::EINVAL);
    }
    let mut blocking = true;
    for key in keys {
        share::claim(lib, key)?;
        data::uncork(lib, key);
        blocking &= !lib.need_socket(key)?.nonblocking;
    }
    let deadline = Instant::now() + if blocking { PATIENCE } else { Duration::ZERO };
    loop {
        let attempt = attempt(lib, keys, deadline);
        if attempt != Err(libc::EAGAIN) {
            return attempt;
        }
        // The engine ignored what the program said of them meanwhile.
        keys.into_iter().for_each(|key| lib.bump_again(key));
        if Instant::now() + PAUSE > deadline {
            return attempt;
        }
        let _ = pause(lib, Instant::now() + PAUSE, || None::<()>);
    }
}

/// Waits for what the program wrote to be acknowledged, then asks once.
fn attempt(lib: &mut Guard, keys: [Key; 2], deadline: Instant) -> Result<()> {
    let targets = keys.map(Target::Socket);
    let wait = Wait { deadline: Some(deadline), targets: &targets, signals: Signals::Keep, ..Wait::forever() };
    let ends = wait::until(lib, wait, |lib, _| match keys.map(|key| end(lib, key)) {
        [Ok(Some(a)), Ok(Some(b))] => Some(Ok([a, b])),
        [Err(errno), _] | [_, Err(errno)] => Some(Err(errno)),
        _ => None,
    });
    let ends = ends.map_err(|errno| if errno == libc::ETIMEDOUT { libc::EAGAIN } else { errno })??;
    context_side::ask(lib, |tag| Request::Splice { tag, ends })?;
    for key in keys {
        if let Some(Kind::Stream(stream)) = lib.socket(key).map(|socket| &socket.kind) {
            stream.raise(SPLICED);
        }
    }
    Ok(())
}

/// Where the program stands in a connection; `None` while something that it wrote is not acknowledged.
fn end(lib: &mut Lib, key: Key) -> Result<Option<SpliceEnd>> {
    let socket = lib.socket(key).ok_or(libc::EBADF)?;
    if socket.error != 0 {
        return Err(socket.take_error());
    }
    let broken = socket.broken;
    let stream = socket.stream()?;
    if broken || stream.flags() & (RX_FIN | SHUT_READ | SHUT_WRITE | SPLICED) != 0 {
        return Err(libc::ENOTCONN);
    }
    if stream.readable() > 0 {
        // It is the program's to read.
        return Err(libc::EAGAIN);
    }
    let Some(slot) = stream.name else { return Err(libc::EBADF) };
    let (tx_head, rx_head) = stream.positions();
    Ok((stream.in_flight() == 0).then_some(SpliceEnd { slot, tx_head, rx_head }))
}

fn pause<T>(lib: &mut Guard, until: Instant, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let wait = Wait { deadline: Some(until), signals: Signals::Keep, ..Wait::forever() };
    wait::until(lib, wait, |_, _| look())
}

impl Lib {
    fn bump_again(&mut self, key: Key) {
        let Lib { sockets, link: crate::state::Link::Attached(context), .. } = self else { return };
        let socket = sockets.get_mut(key.index).filter(|socket| socket.id == key.id);
        if let Some(Kind::Stream(stream)) = socket.map(|socket| &mut socket.kind) {
            context.bump(key, stream);
        }
    }

    /// A spliced connection has ended as connections do: the program reads end of file.
    pub fn splice_over(&mut self, slot: Slot) {
        let Some(key) = self.context().and_then(|context| context.socket_of(slot)) else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        if let Kind::Stream(stream) = &mut socket.kind {
            Stream::raise(stream, RX_FIN | SHUT_WRITE);
            readiness::notify(socket, &mut self.sets, readiness::ALL);
        }
    }
}
