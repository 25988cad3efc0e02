//! `connect`: opening a connection, blocking and not.
use crate::calls::waiting;
use crate::daemon::ask;
use crate::lock::Guard;
use crate::state::slab::Key;
use crate::state::socket::{ANY, Attempt, Bound, Early, Kind, Socket};
use crate::state::stream::Stream;
use crate::state::{Lib, Link, events, readiness};
use crate::system::errno::Result;
use crate::system::waking;
use crate::wait::signals::Signals;
use crate::wait::{Target, WaitOptions};
use context::{Completion, Congestion, Endpoint, FourTuple, Reply, Request, Slot, Unaccelerated};

/// `connect`. A non-blocking one returns `EINPROGRESS` as soon as the daemon is asked, also where it is answered at
/// once. The next call has the result.
pub(crate) fn connect(lib: &mut Guard, key: Key, remote: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    if !matches!(socket.kind, Kind::Connecting { .. }) && std::mem::take(&mut socket.outcome_pending) {
        return outcome(socket).inspect_err(|_| lib.disconnect(key));
    }
    match &socket.kind {
        Kind::Fresh | Kind::Bound(_) => {}
        Kind::Connecting { .. } if socket.awaits_data() => return Err(libc::EISCONN),
        Kind::Connecting { .. } if socket.nonblocking => return Err(libc::EALREADY),
        Kind::Connecting { .. } => return wait_for_it(lib, key),
        Kind::Log(_) => return Err(libc::EOPNOTSUPP),
        Kind::Listener(_) | Kind::Stream(_) => return Err(libc::EISCONN),
    }
    // Bound sockets and loopback addresses are refused at once more often, and the latter go to the kernel then. With
    // Fast Open the control plane reports whether there is a cookie, and so whether the first write goes with the SYN.
    let usual = socket.nonblocking && !socket.options.fast_open.connect;
    let leaves = usual && matches!(socket.kind, Kind::Fresh) && !remote.ip.is_loopback();
    socket.take_error();
    ask_for_it(lib, key, remote)?;
    if let Some(Kind::Connecting(attempt)) = lib.socket(key).map(|socket| &mut socket.kind).filter(|_| leaves) {
        attempt.left = true;
        return Err(libc::EINPROGRESS);
    }
    wait_until_on_its_way(lib, key)?;
    let socket = lib.need_socket(key)?;
    if socket.awaits_data() {
        // As on Linux with TCP_FASTOPEN_CONNECT, the first write goes with the SYN.
        return Ok(());
    }
    match socket.kind {
        _ if socket.outcome_pending && socket.nonblocking => Err(libc::EINPROGRESS),
        Kind::Connecting { .. } => wait_for_it(lib, key),
        _ => {
            socket.outcome_pending = false;
            outcome(socket)
        }
    }
}

/// What came of an attempt that is over.
fn outcome(socket: &mut Socket) -> Result<()> {
    let open = matches!(socket.kind, Kind::Stream(_)) && !socket.broken;
    match socket.take_error() {
        0 if open => Ok(()),
        // The error was already returned by SO_ERROR.
        0 => Err(libc::ECONNABORTED),
        errno => Err(errno),
    }
}

fn ask_for_it(lib: &mut Guard, key: Key, remote: Endpoint) -> Result<()> {
    let socket = lib.need_socket(key)?;
    let bound = match &socket.kind {
        Kind::Bound(bound) => Some(**bound),
        _ => None,
    };
    let binding = bound.map_or(0, |bound| bound.binding);
    let congestion = Congestion(socket.options.congestion);
    let (mss, early, retries) = (socket.options.mss, socket.options.fast_open.asked(), socket.options.syn_retries);
    let context = lib.need_context()?;
    let tag = context.fresh_tag();
    context.connects.insert(tag, key);
    let socket = lib.need_socket(key)?;
    (socket.kind, socket.outcome_pending) =
        (Kind::Connecting(Box::new(Attempt { tag, remote, local: None, bound, left: false, early: Early::No })), true);
    ask::send_request(lib, Request::Connect { tag, binding, remote, congestion, mss, early });
    if retries > 0 {
        ask::send_request(lib, Request::SynRetries { tag, most: retries });
    }
    Ok(())
}

/// Waits until the control plane has taken the request up. From then on the local address is known, and what can be
/// refused at once has been.
pub(crate) fn wait_until_on_its_way(lib: &mut Guard, key: Key) -> Result<()> {
    let targets = [Target::Socket(key)];
    let wait = WaitOptions { targets: &targets, ..WaitOptions::forever() };
    waiting::until(lib, wait, |lib, _| match lib.socket(key).map(|socket| &socket.kind) {
        Some(Kind::Connecting(attempt)) => attempt.local.map(|_| ()),
        _ => Some(()),
    })
}

pub(crate) fn wait_for_it(lib: &mut Guard, key: Key) -> Result<()> {
    let timeout = lib.need_socket(key)?.options.send_timeout;
    let signals = if timeout.is_some() { Signals::Interrupt } else { Signals::Restart };
    let targets = [Target::Socket(key)];
    let deadline = timeout.map(|timeout| waking::now() + timeout);
    let wait = WaitOptions { deadline, targets: &targets, signals, ..WaitOptions::forever() };
    let over = waiting::until(lib, wait, |lib, _| match lib.socket(key) {
        None => Some(Err(libc::EBADF)),
        Some(Socket { kind: Kind::Connecting { .. }, .. }) => None,
        Some(socket) => {
            socket.outcome_pending = false;
            Some(outcome(socket))
        }
    });
    match over {
        Ok(result) => result,
        // The connection goes on being opened, as on Linux.
        Err(libc::ETIMEDOUT) => Err(libc::EINPROGRESS),
        Err(errno) => Err(errno),
    }
}

impl Lib {
    /// After the call that reports that an attempt failed, the socket is as new.
    fn disconnect(&mut self, key: Key) {
        let Some(socket) = self.socket(key) else { return };
        let mut local = Endpoint { ip: socket.asked_ip(), ..socket.last_local() };
        socket.set_last_local(local);
        let Kind::Stream(stream) = &socket.kind else { return };
        local.port = stream.ends.local().port;
        socket.set_last_local(local);
        socket.broken = false;
        let kind = std::mem::replace(&mut socket.kind, Kind::Fresh);
        if let (Kind::Stream(stream), Some(context)) = (kind, self.context()) {
            context.close_stream(stream, false);
        }
    }

    /// Takes in the control plane's answer for a connection that is being opened.
    pub(crate) fn connect_reply(&mut self, key: Key, reply: Reply) {
        match reply {
            Reply::Connecting { local: chosen, slot, room, .. } => {
                if let Some(Kind::Connecting(attempt)) = self.socket(key).map(|socket| &mut socket.kind) {
                    attempt.local = Some(chosen);
                    attempt.early = if room > 0 { Early::Awaited(slot, room) } else { Early::No };
                }
                self.wake_socket(key, if room > 0 { events::OUT } else { 0 });
            }
            Reply::Connected { tag, slot, local, mss, early } => {
                let written = self.connected(key, tag, slot, local, mss);
                self.count_early(key, slot, written, early.into());
            }
            Reply::Failed { tag, errno } => self.connect_failed(key, tag, errno as i32),
            _ => {}
        }
    }

    /// The connection is open. Gives the bytes that were written for its SYN.
    fn connected(&mut self, key: Key, tag: u32, slot: Slot, local: Endpoint, mss: u16) -> u32 {
        let attempt = match self.socket(key).map(|socket| &socket.kind) {
            Some(Kind::Connecting(attempt)) => Some(**attempt),
            _ => None,
        };
        let Some(context) = self.context() else { return 0 };
        context.connects.remove(&tag);
        let Some(Attempt { remote, early, .. }) = attempt else {
            self.refuse_connection(slot);
            return 0;
        };
        self.open_stream(key, slot, local, remote, mss);
        self.send_early_options(key, slot);
        self.label(key, Unaccelerated::No);
        self.wake_socket(key, events::OUT);
        if let Early::Written(bytes) = early { bytes } else { 0 }
    }

    /// Makes the socket the open connection of `slot`.
    pub(crate) fn open_stream(&mut self, key: Key, slot: Slot, local: Endpoint, remote: Endpoint, mss: u16) {
        let Link::Attached(context) = &mut self.link else { return };
        let Some(socket) = self.sockets.get_mut(key.index) else { return };
        let mut stream = Stream::open(&context.home, slot, FourTuple::new(local, remote), mss);
        socket.options.send_limit.into_iter().for_each(|limit| stream.limit_sending(limit));
        stream.use_unsent_mark(socket.options.unsent_mark, socket.options.low_mark);
        socket.kind = Kind::Stream(Box::new(stream));
        let early: Option<Completion> = context.use_slot(slot, key);
        if let Some(completion) = early {
            self.apply(key, &completion);
        }
    }

    /// A connection was opened for a socket that is gone.
    pub(crate) fn refuse_connection(&mut self, slot: Slot) {
        if let Some(context) = self.context() {
            context.send_request_surely(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true });
        }
    }

    fn connect_failed(&mut self, key: Key, tag: u32, errno: i32) {
        if let Some(context) = self.context() {
            context.connects.remove(&tag);
        }
        let (mut released, mut last_local) = (None, None);
        if let Some(socket) = self.socket(key) {
            // Without a local address the attempt never began: the call itself has the error, where it waits.
            if let Kind::Connecting(attempt) = &socket.kind {
                let Attempt { local, bound, left, .. } = **attempt;
                socket.outcome_pending = local.is_some() || left;
                last_local = Some(local.unwrap_or(ANY));
                // As on Linux, an attempt that began takes a port that was not asked for with it.
                let (gone, stays) = match bound {
                    Some(bound) if bound.chosen && local.is_some() => (Some(bound), None),
                    stays => (None, stays),
                };
                released = gone;
                socket.kind = stays.map_or(Kind::Fresh, Kind::bound);
            }
            last_local.into_iter().for_each(|local| socket.set_last_local(local));
            socket.error = errno;
        }
        if let (Some(Bound { binding, .. }), Some(context)) = (released, self.context()) {
            context.send_request_surely(Request::Unbind { binding });
            self.release_kernel_half(key);
        }
        self.wake_socket(key, events::ALL);
    }

    /// Wakes the threads that wait for a socket that it changed.
    pub(crate) fn wake_socket(&mut self, key: Key, bits: u32) {
        if let Some(socket) = self.sockets.get_mut(key.index).filter(|socket| socket.id == key.id) {
            readiness::notify(socket, &mut self.sets, bits);
        }
    }
}
