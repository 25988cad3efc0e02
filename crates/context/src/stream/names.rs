//! Codes that both sides use: socket options, reasons, and congestion-control policies.

/// A congestion-control policy by its code: a row of the table in `tcp::congestion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Congestion(pub u8);

impl Congestion {
    /// The host's default. So are unknown codes.
    pub const DEFAULT: Congestion = Congestion(0);
}

/// Whether a SYN is to carry data (TCP Fast Open, RFC 7413).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum EarlyData {
    /// No.
    #[default]
    No = 0,
    /// Where the peer's cookie is there; otherwise the SYN asks for one.
    WithCookie = 1,
    /// Without a cookie: `TCP_FASTOPEN_NO_COOKIE`.
    WithoutCookie = 2,
}

impl EarlyData {
    pub(crate) fn from_code(code: u8) -> Option<EarlyData> {
        use EarlyData::*;
        [No, WithCookie, WithoutCookie].into_iter().find(|early| *early as u8 == code)
    }
}

/// The keys of a listener's cookies (`TCP_FASTOPEN_KEY`). Cookies of both are taken; those that are given are of the
/// primary one.
#[derive(Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct FastOpenKeys {
    /// The first key; none for the host's own.
    pub primary: Option<[u8; 16]>,
    /// The second key.
    pub backup: Option<[u8; 16]>,
}

/// Keys are secret: logs and traces do not show them.
impl std::fmt::Debug for FastOpenKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = [self.primary, self.backup].iter().flatten().count();
        write!(f, "FastOpenKeys({count})")
    }
}

/// A socket option that reaches the control plane; the others are libtoe's own business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum OptionName {
    /// `SO_KEEPALIVE`: 0 or 1.
    Keepalive = 1,
    /// `TCP_KEEPIDLE`, seconds.
    KeepaliveIdle = 2,
    /// `TCP_KEEPINTVL`, seconds.
    KeepaliveInterval = 3,
    /// `TCP_KEEPCNT`.
    KeepaliveCount = 4,
    /// `TCP_USER_TIMEOUT`, milliseconds.
    UserTimeout = 5,
    /// `TCP_CONGESTION`: a [`Congestion`] code.
    Congestion = 6,
    /// `SO_MAX_PACING_RATE`, bytes a second; 0 for no limit.
    PacingRate = 7,
    /// `TCP_LINGER2`, seconds.
    FinTimeout = 8,
    /// `TCP_NODELAY`: 0 or 1. To a host whose configuration has Nagle's algorithm.
    NoDelay = 9,
    /// Bytes of its receive stream that the application has room for, and asks to be offered to the peer. It is never
    /// less than before, and at most what its ring may have ([`crate::Geometry::rx_most`]).
    ReceiveWindow = 10,
}

impl OptionName {
    pub(crate) fn from_code(code: u8) -> Option<OptionName> {
        use OptionName::*;
        let timers = [KeepaliveIdle, KeepaliveInterval, UserTimeout, FinTimeout];
        let others = [Keepalive, KeepaliveCount, Congestion, PacingRate, NoDelay, ReceiveWindow];
        timers.into_iter().chain(others).find(|name| *name as u8 == code)
    }
}

/// Why a socket is the kernel's and not OpenTOE's: what `opentoe why` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Unaccelerated {
    /// It is accelerated.
    No = 0,
    /// Neither bound nor connected yet.
    Undecided = 1,
    /// Not an IPv4 stream socket.
    Family = 2,
    /// Bound or connected to a loopback address where nobody listens on the host, or of another network namespace.
    Loopback = 3,
    /// The host has no route to the peer.
    NoRoute = 4,
    /// The local address is not the host's.
    ForeignAddress = 5,
    /// A call was made on it before that only the kernel can do.
    Operation = 6,
    /// The context has no room for another connection.
    NoRoom = 7,
    /// The daemon is gone.
    Detached = 8,
}

impl Unaccelerated {
    /// The reason of a code.
    pub fn from_code(code: u8) -> Option<Unaccelerated> {
        use Unaccelerated::*;
        [No, Undecided, Family, Loopback, NoRoute, ForeignAddress, Operation, NoRoom, Detached]
            .into_iter()
            .find(|reason| *reason as u8 == code)
    }
    /// A sentence for a person.
    pub fn sentence(self) -> &'static str {
        match self {
            Unaccelerated::No => "accelerated: its connection runs on OpenTOE",
            Unaccelerated::Undecided => "undecided: it is neither bound nor connected yet",
            Unaccelerated::Family => "kernel: not an address of TCP, or of IPv6 where the host does not have it",
            Unaccelerated::Loopback => "kernel: a loopback address, with nobody of the host at its other end",
            Unaccelerated::NoRoute => "kernel: the host has no route to this peer",
            Unaccelerated::ForeignAddress => "kernel: the local address does not belong to the host",
            Unaccelerated::Operation => "kernel: an earlier call on this socket is one that only the kernel can do",
            Unaccelerated::NoRoom => "kernel: the context has no room for another connection",
            Unaccelerated::Detached => "kernel: the daemon is gone",
        }
    }
}
