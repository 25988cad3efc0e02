//! A socket that is OpenTOE's or may become so: what it is.
use crate::state::few::Few;
pub(crate) use crate::state::listener::{Bound, Listener, Pending};
use crate::state::log_records::Log;
use crate::state::option_values::Options;
use crate::state::set::Watcher;
use crate::state::signals::Signals;
use crate::state::stream::Stream;
use crate::system::errno::Result;
use context::{Endpoint, IpAddress, Request, Slot, Unaccelerated};
use libc::c_int;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

/// A stream socket. Behind its descriptor is a kernel socket that stays idle, or serves as the kernel's half of a
/// listener. It is the [stand-in](crate::system::placeholder) of the process or one of its own. To fall back to the
/// kernel is to forget that it is ours.
pub(crate) struct Socket {
    /// Never given twice in a process.
    pub id: u64,
    /// Descriptors that refer to it.
    pub descriptors: u32,
    /// One of them: what `opentoe why` shows.
    pub fd: RawFd,
    /// `AF_INET6`: addresses are shown IPv4-mapped.
    pub is_v6: bool,
    /// `O_NONBLOCK`.
    pub nonblocking: bool,
    /// Error for `SO_ERROR` or the next call.
    pub error: c_int,
    /// Local addresses that it once had; `None` for most.
    pub past: Option<Box<Past>>,
    /// No `connect` has returned yet what came of the last attempt to connect (Linux's state SS_CONNECTING).
    pub outcome_pending: bool,
    /// The connection was reset, or the daemon died.
    pub broken: bool,
    /// Its kind.
    pub kind: Kind,
    /// Options that the library acts upon.
    pub options: Options,
    /// The kernel socket is bound as well (`AF_INET6` wildcard), or listens.
    pub kernel_half: bool,
    /// It has no kernel socket of its own.
    pub stands_in: bool,
    /// To its owner.
    pub signals: Signals,
    /// Epoll sets that have it.
    pub watchers: Few<Watcher>,
    /// Wake descriptors of threads that wait for it.
    pub waiters: Few<RawFd>,
}

/// Local addresses that a socket once had.
pub(crate) struct Past {
    /// That of an attempt that failed or a listener that was shut down: what `getsockname` goes on to return.
    last_local: Endpoint,
    /// The address that the program asked `bind` for: it stays where the port goes.
    asked_ip: IpAddress,
}

/// Kind of a socket.
pub(crate) enum Kind {
    /// Neither bound nor connected: it may become the kernel's or OpenTOE's.
    Fresh,
    /// Bound to an address of the host.
    Bound(Box<Bound>),
    /// Listening.
    Listener(Box<Listener>),
    /// Being connected.
    Connecting(Box<Attempt>),
    /// Connected.
    Stream(Box<Stream>),
    /// The process's shared log: no socket to the program, but a descriptor to wait on.
    Log(Box<Log>),
}

impl Kind {
    /// Bound to an address of the host.
    pub(crate) fn bound(bound: Bound) -> Kind {
        Kind::Bound(Box::new(bound))
    }
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Of the request.
    pub tag: u32,
    /// The peer.
    pub remote: Endpoint,
    /// This end, once the control plane has chosen it.
    pub local: Option<Endpoint>,
    /// Earlier address of the socket.
    pub bound: Option<Bound>,
    /// The call did not wait until the control plane had taken the request up.
    pub left: bool,
    /// Data of the SYN.
    pub early: Early,
}

/// The data of an attempt's SYN (RFC 7413).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// None.
    No,
    /// The SYN waits for it: the connection's slot, and the most bytes.
    Awaited(Slot, u16),
    /// So many bytes, which are in the transmit buffer.
    Written(u32),
}

impl Socket {
    /// A socket that was just made.
    pub(crate) fn fresh(id: u64, fd: RawFd, is_v6: bool, nonblocking: bool) -> Socket {
        Socket {
            id,
            descriptors: 1,
            fd,
            is_v6,
            nonblocking,
            error: 0,
            past: None,
            outcome_pending: false,
            broken: false,
            kind: Kind::Fresh,
            options: Options::default(),
            kernel_half: false,
            stands_in: true,
            signals: Signals::default(),
            watchers: Few::None,
            waiters: Few::None,
        }
    }

    /// The local address of an attempt that failed or a listener that was shut down: what `getsockname` goes on to
    /// return.
    pub(crate) fn last_local(&self) -> Endpoint {
        self.past.as_ref().map_or(ANY, |past| past.last_local)
    }

    /// The address that the program asked `bind` for: it stays where the port goes.
    pub(crate) fn asked_ip(&self) -> IpAddress {
        self.past.as_ref().map_or(ANY.ip, |past| past.asked_ip)
    }

    /// Sets [`Socket::last_local`].
    pub(crate) fn set_last_local(&mut self, local: Endpoint) {
        if local != self.last_local() {
            self.past().last_local = local;
        }
    }

    /// Sets [`Socket::asked_ip`].
    pub(crate) fn set_asked_ip(&mut self, ip: IpAddress) {
        if ip != self.asked_ip() {
            self.past().asked_ip = ip;
        }
    }

    fn past(&mut self) -> &mut Past {
        self.past.get_or_insert_with(|| Box::new(Past { last_local: ANY, asked_ip: ANY.ip }))
    }

    /// The open connection; the error of calls on a socket that has none.
    pub(crate) fn stream(&mut self) -> Result<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Ok(stream),
            _ => Err(libc::ENOTCONN),
        }
    }

    /// Another process may have it as well from now on.
    pub(crate) fn share(&mut self) {
        match &mut self.kind {
            Kind::Stream(stream) => stream.share(),
            Kind::Listener(listener) => listener.shared = true,
            _ => {}
        }
    }

    /// Another process may take completions of its connection.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(&self.kind, Kind::Stream(stream) if stream.shared)
    }

    /// It may be bound or connected to such an address: not to one of IPv4 where it is for IPv6 alone.
    pub(crate) fn may_have(&self, ip: IpAddress) -> bool {
        !(ip.is_v4() && self.is_v6 && self.options.v6_only)
    }

    /// A socket of `AF_INET6` that is bound to one address of IPv4, or was and has no other. Linux takes that for the
    /// source of its connections.
    pub(crate) fn has_source_v4(&self) -> bool {
        let asked = self.asked_ip();
        let is_any = matches!(&self.kind, Kind::Bound(bound) if bound.local.ip.is_unspecified());
        self.is_v6 && asked.is_v4() && !asked.is_unspecified() && !is_any
    }

    /// It is being connected, and its SYN waits for data.
    pub(crate) fn awaits_data(&self) -> bool {
        matches!(&self.kind, Kind::Connecting(attempt) if matches!(attempt.early, Early::Awaited(..)))
    }

    /// It is connected.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.kind, Kind::Stream(_))
    }

    /// It is a listener, and the kernel's half listens as well.
    pub(crate) fn listens_in_kernel(&self) -> bool {
        self.kernel_half && matches!(self.kind, Kind::Listener(_))
    }

    /// An attempt to connect failed and no `connect` has reported it yet: until then Linux shows an ended stream.
    pub(crate) fn attempt_failed(&self) -> bool {
        self.outcome_pending && matches!(self.kind, Kind::Fresh | Kind::Bound(_))
    }

    /// Takes the pending error.
    pub(crate) fn take_error(&mut self) -> c_int {
        std::mem::take(&mut self.error)
    }

    /// Its label for the daemon.
    pub(crate) fn label(&self, fd: RawFd, reason: Unaccelerated) -> Request {
        let (slot, binding) = match &self.kind {
            Kind::Stream(stream) => (stream.name, 0),
            Kind::Bound(bound) => (None, bound.binding),
            Kind::Listener(listener) => (None, listener.bound.binding),
            _ => (None, 0),
        };
        Request::Label { fd: fd as u32, reason, slot, binding }
    }
}

/// The unspecified endpoint.
pub(crate) const ANY: Endpoint = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 0);

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/MEMORY.md: tens of thousands of them may be idle.
    #[test]
    fn what_is_kept_of_a_connection_is_small() {
        assert!(size_of::<Option<Socket>>() <= 96, "{}", size_of::<Option<Socket>>());
        assert!(size_of::<Stream>() <= 160, "{}", size_of::<Stream>());
    }
}
