//! `connect`: opening a connection, blocking and not.
use crate::context_side;
use crate::errno::Result;
use crate::lock::Guard;
use crate::readiness;
use crate::socket::Kind;
use crate::state::{Key, Lib};
use crate::wait::{self, Signals, Target, Wait};
use context::{Congestion, Endpoint, Reply, Request, Slot, Unaccelerated};
use std::time::Instant;

/// `connect`. A non-blocking one says `EINPROGRESS` as soon as the SYN is on its way.
pub fn connect(lib: &mut Guard, key: Key, remote: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    match &socket.kind {
        Kind::Fresh | Kind::Bound { .. } => {}
        Kind::Connecting { .. } if socket.nonblocking => return Err(libc::EALREADY),
        Kind::Connecting { .. } => return wait_for_it(lib, key),
        Kind::Listener(_) | Kind::Stream(_) => return Err(libc::EISCONN),
    }
    let nonblocking = socket.nonblocking;
    socket.take_error();
    ask_for_it(lib, key, remote)?;
    wait_until_on_its_way(lib, key)?;
    let socket = lib.need_socket(key)?;
    match socket.kind {
        Kind::Stream(_) => Ok(()),
        Kind::Connecting { .. } if nonblocking => Err(libc::EINPROGRESS),
        Kind::Connecting { .. } => wait_for_it(lib, key),
        _ => Err(socket.take_error()),
    }
}

fn ask_for_it(lib: &mut Guard, key: Key, remote: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    let binding = match socket.kind {
        Kind::Bound { binding, .. } => binding,
        _ => 0,
    };
    let congestion = Congestion::from_code(socket.options.congestion);
    let mss = socket.options.mss;
    let context = lib.need_context()?;
    let tag = context.fresh_tag();
    context.connects.insert(tag, key);
    lib.need_socket(key)?.kind = Kind::Connecting { tag, remote, local: None };
    context_side::tell(lib, Request::Connect { tag, binding, remote, congestion, mss });
    Ok(())
}

/// Waits until the control plane has taken the request up: from then on the local address is known, and what can
/// be refused at once has been.
fn wait_until_on_its_way(lib: &mut Guard, key: Key) -> Result<()> {
    let targets = [Target::Socket(key)];
    let wait = Wait { targets: &targets, ..Wait::forever() };
    wait::until(lib, wait, |lib, _| match lib.socket(key).map(|socket| &socket.kind) {
        Some(Kind::Connecting { local: None, .. }) => None,
        _ => Some(()),
    })
}

fn wait_for_it(lib: &mut Guard, key: Key) -> Result<()> {
    let timeout = lib.need_socket(key)?.options.send_timeout;
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    let targets = [Target::Socket(key)];
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    let wait = Wait { deadline, targets: &targets, signals, ..Wait::forever() };
    let over = wait::until(lib, wait, |lib, _| match lib.socket(key) {
        None => Some(Err(libc::EBADF)),
        Some(socket) => match socket.kind {
            Kind::Connecting { .. } => None,
            Kind::Stream(_) => Some(Ok(())),
            _ => Some(Err(socket.take_error())),
        },
    });
    match over {
        Ok(result) => result,
        // The connection goes on being opened, as on Linux.
        Err(libc::ETIMEDOUT) => Err(libc::EINPROGRESS),
        Err(errno) => Err(errno),
    }
}

/// `shutdown` of a connection that is being opened.
pub fn give_up(lib: &mut Guard, key: Key) -> Result<()> {
    let Kind::Connecting { tag, .. } = lib.need_socket(key)?.kind else { return Err(libc::ENOTCONN) };
    if let Some(context) = lib.context() {
        context.connects.remove(&tag);
    }
    context_side::tell(lib, Request::CancelConnect { tag });
    let Lib { sockets, sets, .. } = &mut **lib;
    if let Some(socket) = sockets.get_mut(key.index) {
        socket.kind = Kind::Fresh;
        readiness::notify(socket, sets, readiness::ALL);
    }
    Ok(())
}

impl Lib {
    /// Takes in what the control plane says of a connection that is being opened.
    pub fn connect_reply(&mut self, key: Key, reply: Reply) {
        match reply {
            Reply::Connecting { local: chosen, .. } => {
                if let Some(Kind::Connecting { local, .. }) = self.socket(key).map(|socket| &mut socket.kind) {
                    *local = Some(chosen);
                }
                self.wake_socket(key, 0);
            }
            Reply::Connected { tag, slot, local, mss } => self.connected(key, tag, slot, local, mss),
            Reply::Failed { tag, errno } => self.connect_failed(key, tag, errno as i32),
            _ => {}
        }
    }

    fn connected(&mut self, key: Key, tag: u32, slot: Slot, local: Endpoint, mss: u16) {
        let remote = match self.socket(key).map(|socket| &socket.kind) {
            Some(Kind::Connecting { remote, .. }) => Some(*remote),
            _ => None,
        };
        let Some(context) = self.context() else { return };
        context.connects.remove(&tag);
        let Some(remote) = remote else { return self.refuse_connection(slot) };
        self.open_stream(key, slot, local, remote, mss);
        self.send_early_options(key, slot);
        self.label(key, Unaccelerated::No);
        self.wake_socket(key, readiness::OUT);
    }

    /// A connection was opened for a socket that is gone.
    pub fn refuse_connection(&mut self, slot: Slot) {
        if let Some(context) = self.context() {
            context.tell_surely(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true });
        }
    }

    fn connect_failed(&mut self, key: Key, tag: u32, errno: i32) {
        if let Some(context) = self.context() {
            context.connects.remove(&tag);
        }
        if let Some(socket) = self.socket(key) {
            socket.error = errno;
            socket.kind = Kind::Fresh;
        }
        self.wake_socket(key, readiness::ALL);
    }

    /// Tells those who wait for a socket that it changed.
    pub fn wake_socket(&mut self, key: Key, bits: u32) {
        if let Some(socket) = self.sockets.get_mut(key.index).filter(|socket| socket.id == key.id) {
            readiness::notify(socket, &mut self.sets, bits);
        }
    }
}
