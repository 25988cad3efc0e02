//! Names of Fast Open (RFC 7413): what a socket's SYN has of it, and what listeners may set.
use context::Slot;

/// What a listener may decide about data that comes with SYNs.
pub(crate) const OF_LISTENERS: [i32; 3] = [libc::TCP_FASTOPEN, libc::TCP_FASTOPEN_KEY, libc::TCP_FASTOPEN_NO_COOKIE];

/// The data of an attempt's SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Early {
    /// None.
    No,
    /// The SYN waits for it: the connection's slot, and the most bytes.
    Awaited(Slot, u16),
    /// So many bytes, which are in the transmit buffer; with a notification once they are acknowledged
    /// (`MSG_ZEROCOPY`).
    Written(u32, bool),
}
