//! Descriptors of the control pair: eight words each.
use crate::Slot;
use crate::names::{Congestion, OptionName, Unaccelerated};
use std::net::Ipv4Addr;

/// An address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// IPv4 address; unspecified for any.
    pub ip: Ipv4Addr,
    /// Port; 0 for one of the host's choice.
    pub port: u16,
}

/// Application to control plane. A `tag` is the application's own number for a request that is answered; the
/// reply repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Reserve a local address. Answered by [`Reply::Bound`].
    Bind {
        /// Repeated in the reply.
        tag: u32,
        /// What to reserve; port 0 takes a free one.
        local: Endpoint,
        /// `SO_REUSEADDR`.
        reuse_address: bool,
        /// `SO_REUSEPORT`.
        reuse_port: bool,
    },
    /// Accept connections on a binding. Answered by [`Reply::Done`]. Again on a listener: changes its backlog.
    Listen {
        /// Repeated in the reply.
        tag: u32,
        /// From [`Reply::Bound`].
        binding: u32,
        /// Most connections that wait to be accepted.
        backlog: u32,
    },
    /// This context takes up to `credits` connections of the listener from now on (an absolute number, replacing
    /// the earlier one; each [`Reply::Accept`] uses one). A process that merely inherited a listener never arms it.
    Arm {
        /// The listener's binding.
        binding: u32,
        /// Connections that may wait in this context.
        credits: u32,
    },
    /// Open a connection. Answered by [`Reply::Connecting`], then [`Reply::Connected`] or [`Reply::Failed`].
    Connect {
        /// Repeated in the replies.
        tag: u32,
        /// From [`Reply::Bound`], or 0 for none. The connection takes the binding over.
        binding: u32,
        /// The peer.
        remote: Endpoint,
        /// Congestion-control policy.
        congestion: Congestion,
        /// `TCP_MAXSEG`; 0 for none.
        mss: u16,
    },
    /// Give up a connection that is being opened. Not answered. [`Reply::Connected`] may be on its way already: then
    /// the connection is the application's to close.
    CancelConnect {
        /// Of the [`Request::Connect`].
        tag: u32,
    },
    /// Give up this context's share of a binding, listening or not. Not answered.
    Unbind {
        /// From [`Reply::Bound`].
        binding: u32,
    },
    /// Give up this context's share of a connection; the last one closes it. Answered by [`Reply::Freed`] once the
    /// slot may be used again.
    Close {
        /// Which connection.
        slot: Slot,
        /// The application's final position in the transmit buffer, as in [`crate::Bump`].
        tx_head: u32,
        /// The application's final position in the receive buffer.
        rx_head: u32,
        /// `SO_LINGER` with time 0: reset instead of FIN.
        abort: bool,
    },
    /// Set an option of a connection. Not answered.
    Set {
        /// Which connection.
        slot: Slot,
        /// Which option.
        option: OptionName,
        /// Its value.
        value: u64,
    },
    /// Ask for a connection's figures. Answered by [`Reply::Info`].
    Info {
        /// Repeated in the reply.
        tag: u32,
        /// Which connection.
        slot: Slot,
    },
    /// This process is about to fork: hold everything it has for its child, which attaches with the token.
    /// Answered by [`Reply::Forked`].
    Fork {
        /// Repeated in the reply.
        tag: u32,
    },
    /// Take over the notices of a connection inherited from another context. Answered by [`Reply::Claimed`].
    Claim {
        /// Repeated in the reply.
        tag: u32,
        /// The context it was inherited from.
        context: u32,
        /// Its slot there.
        slot: Slot,
    },
    /// Join two connections of this context, with all that is on its way acknowledged and read: from now on the
    /// data-path passes their bytes on, and the application keeps two names that tell it when they end
    /// ([`Reply::SpliceOver`]). Answered by [`Reply::Done`], or [`Reply::Failed`] with nothing changed: then the
    /// application repeats its bumps.
    Splice {
        /// Repeated in the reply.
        tag: u32,
        /// The two connections, with the application's positions in each.
        ends: [SpliceEnd; 2],
    },
    /// A connection has been quiet for a while, with everything acknowledged and read: the memory of its receive buffer may
    /// be given back (docs/MEMORY.md). Answered by [`Reply::Rested`]; bumps between the two may be lost.
    Rest {
        /// Which connection.
        slot: Slot,
        /// Bytes that the application has written since the connection began, modulo 2^32.
        tx_head: u32,
        /// Bytes that it has taken since then, modulo 2^32.
        rx_head: u32,
    },
    /// For `toe why`: what a descriptor of this process is. Not answered. A label that names a slot also says that the
    /// application has accepted the connection: from then on it is not given to another context.
    Label {
        /// The file descriptor.
        fd: u32,
        /// Why it is not accelerated.
        reason: Unaccelerated,
        /// Its slot, where it is a connection.
        slot: Option<Slot>,
        /// Its binding, where it has one; otherwise 0.
        binding: u32,
    },
}

/// One of two connections that are to be joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpliceEnd {
    /// Which connection.
    pub slot: Slot,
    /// The application's position in the transmit buffer, as in [`crate::Bump`].
    pub tx_head: u32,
    /// The application's position in the receive buffer.
    pub rx_head: u32,
}

/// A connection's figures: what `TCP_INFO` needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowInfo {
    /// State as Linux numbers them (`TCP_ESTABLISHED` = 1, ...).
    pub state: u8,
    /// Congestion-control policy, a [`Congestion`] code.
    pub congestion: u8,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Its mean deviation, microseconds.
    pub rttvar_us: u32,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes.
    pub ssthresh: u32,
    /// Segments sent again since the connection began.
    pub retransmits: u32,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// The peer's receive window, bytes.
    pub snd_wnd: u32,
    /// Bytes acknowledged since the connection began.
    pub bytes_acked: u64,
    /// Bytes received since the connection began.
    pub bytes_received: u64,
}

/// Control plane to application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The request failed.
    Failed {
        /// Of the request.
        tag: u32,
        /// Linux error number.
        errno: u16,
    },
    /// The request is done.
    Done {
        /// Of the request.
        tag: u32,
    },
    /// A local address is reserved.
    Bound {
        /// Of the request.
        tag: u32,
        /// Names the binding from now on; never 0.
        binding: u32,
        /// The address, with the port chosen.
        local: Endpoint,
    },
    /// A SYN is on its way (or waits for ARP).
    Connecting {
        /// Of the request.
        tag: u32,
        /// The address and port chosen.
        local: Endpoint,
    },
    /// The connection is open: the data pair may be used for it.
    Connected {
        /// Of the request.
        tag: u32,
        /// Its slot in this context.
        slot: Slot,
        /// Its local address.
        local: Endpoint,
        /// Payload bytes of a full segment.
        mss: u16,
    },
    /// A connection came in on a listener: the data pair may be used for it.
    Accept {
        /// The listener's binding.
        binding: u32,
        /// Its slot in this context.
        slot: Slot,
        /// The address it was opened to.
        local: Endpoint,
        /// The peer.
        remote: Endpoint,
        /// Payload bytes of a full segment.
        mss: u16,
    },
    /// A connection was taken back before the application accepted it (it was reset, or moved to another
    /// context that has the listener). Answered by nothing; the slot may be used again.
    Unaccept {
        /// The listener's binding.
        binding: u32,
        /// Its slot in this context.
        slot: Slot,
    },
    /// A connection ended with an error; the slot stays until [`Request::Close`].
    Error {
        /// Which connection.
        slot: Slot,
        /// Linux error number: `ECONNRESET`, `ETIMEDOUT`, ...
        errno: u16,
    },
    /// Answer to [`Request::Rest`]: the application repeats its bump.
    Rested {
        /// Which connection.
        slot: Slot,
        /// The memory was given back. Otherwise the connection was not quiet, or the control plane not idle enough.
        done: bool,
    },
    /// A connection that was joined with another one is over; the slot stays until [`Request::Close`].
    SpliceOver {
        /// Which connection.
        slot: Slot,
        /// 0 where both sides have closed; otherwise a Linux error number: `ECONNRESET`, `ETIMEDOUT`.
        errno: u16,
    },
    /// A closed connection is over: its slot may be used again.
    Freed {
        /// Which connection.
        slot: Slot,
    },
    /// Everything is held for the child.
    Forked {
        /// Of the request.
        tag: u32,
        /// What the child shows in [`crate::attach::Hello`].
        token: u64,
    },
    /// Notices of the connection come to this context from now on.
    Claimed {
        /// Of the request.
        tag: u32,
        /// Its slot in this context's data pair. Its buffers stay where they are, in the context it came from.
        slot: Slot,
    },
    /// A connection's figures.
    Info {
        /// Of the request.
        tag: u32,
        /// The figures.
        info: FlowInfo,
    },
}

type Words = [u64; 8];

fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}
fn low(word: u64) -> u32 {
    word as u32
}
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
fn put_slot(slot: Slot) -> u64 {
    pair(slot.index, slot.generation as u32)
}
fn get_slot(word: u64) -> Slot {
    Slot { index: low(word), generation: high(word) as u16 }
}
fn put_endpoint(endpoint: Endpoint) -> u64 {
    pair(u32::from(endpoint.ip), endpoint.port as u32)
}
fn get_endpoint(word: u64) -> Endpoint {
    Endpoint { ip: Ipv4Addr::from(low(word)), port: high(word) as u16 }
}

impl Request {
    /// The descriptor's words. The first one is the kind and the tag.
    pub fn to_words(self) -> Words {
        let mut w = [0u64; 8];
        match self {
            Request::Bind { tag, local, reuse_address, reuse_port } => {
                w[0] = pair(1, tag);
                w[1] = put_endpoint(local);
                w[2] = reuse_address as u64 | (reuse_port as u64) << 1;
            }
            Request::Listen { tag, binding, backlog } => {
                w[0] = pair(2, tag);
                w[1] = pair(binding, backlog);
            }
            Request::Arm { binding, credits } => {
                w[0] = pair(3, 0);
                w[1] = pair(binding, credits);
            }
            Request::Connect { tag, binding, remote, congestion, mss } => {
                w[0] = pair(4, tag);
                w[1] = put_endpoint(remote);
                w[2] = pair(binding, congestion as u32);
                w[3] = mss as u64;
            }
            Request::CancelConnect { tag } => w[0] = pair(5, tag),
            Request::Unbind { binding } => {
                w[0] = pair(6, 0);
                w[1] = binding as u64;
            }
            Request::Close { slot, tx_head, rx_head, abort } => {
                w[0] = pair(7, 0);
                w[1] = put_slot(slot);
                w[2] = pair(tx_head, rx_head);
                w[3] = abort as u64;
            }
            Request::Set { slot, option, value } => {
                w[0] = pair(8, option as u32);
                w[1] = put_slot(slot);
                w[2] = value;
            }
            Request::Info { tag, slot } => {
                w[0] = pair(9, tag);
                w[1] = put_slot(slot);
            }
            Request::Fork { tag } => w[0] = pair(10, tag),
            Request::Claim { tag, context, slot } => {
                w[0] = pair(11, tag);
                w[1] = put_slot(slot);
                w[2] = context as u64;
            }
            Request::Label { fd, reason, slot, binding } => {
                w[0] = pair(12, fd);
                w[1] = pair(reason as u32, binding);
                w[2] = slot.is_some() as u64;
                w[3] = slot.map_or(0, put_slot);
            }
            Request::Rest { slot, tx_head, rx_head } => {
                w[0] = pair(14, 0);
                w[1] = put_slot(slot);
                w[2] = pair(tx_head, rx_head);
            }
            Request::Splice { tag, ends } => {
                w[0] = pair(13, tag);
                for (at, end) in ends.iter().enumerate() {
                    w[1 + 2 * at] = put_slot(end.slot);
                    w[2 + 2 * at] = pair(end.tx_head, end.rx_head);
                }
            }
        }
        w
    }

    /// Reads a descriptor; `None` where its kind or a code in it is unknown.
    pub fn from_words(w: Words) -> Option<Request> {
        let tag = high(w[0]);
        Some(match low(w[0]) {
            1 => Request::Bind {
                tag,
                local: get_endpoint(w[1]),
                reuse_address: w[2] & 1 != 0,
                reuse_port: w[2] & 2 != 0,
            },
            2 => Request::Listen { tag, binding: low(w[1]), backlog: high(w[1]) },
            3 => Request::Arm { binding: low(w[1]), credits: high(w[1]) },
            4 => Request::Connect {
                tag,
                remote: get_endpoint(w[1]),
                binding: low(w[2]),
                congestion: Congestion::from_code(high(w[2]) as u8),
                mss: w[3] as u16,
            },
            5 => Request::CancelConnect { tag },
            6 => Request::Unbind { binding: low(w[1]) },
            7 => Request::Close { slot: get_slot(w[1]), tx_head: low(w[2]), rx_head: high(w[2]), abort: w[3] != 0 },
            8 => Request::Set { slot: get_slot(w[1]), option: OptionName::from_code(tag as u8)?, value: w[2] },
            9 => Request::Info { tag, slot: get_slot(w[1]) },
            10 => Request::Fork { tag },
            11 => Request::Claim { tag, slot: get_slot(w[1]), context: low(w[2]) },
            12 => Request::Label {
                fd: tag,
                reason: Unaccelerated::from_code(low(w[1]) as u8)?,
                slot: (w[2] != 0).then(|| get_slot(w[3])),
                binding: high(w[1]),
            },
            13 => {
                let end =
                    |at: usize| SpliceEnd { slot: get_slot(w[at]), tx_head: low(w[at + 1]), rx_head: high(w[at + 1]) };
                Request::Splice { tag, ends: [end(1), end(3)] }
            }
            14 => Request::Rest { slot: get_slot(w[1]), tx_head: low(w[2]), rx_head: high(w[2]) },
            _ => return None,
        })
    }
}

impl Reply {
    /// The descriptor's words. The first one is the kind and the tag.
    pub fn to_words(self) -> Words {
        let mut w = [0u64; 8];
        match self {
            Reply::Failed { tag, errno } => {
                w[0] = pair(1, tag);
                w[1] = errno as u64;
            }
            Reply::Done { tag } => w[0] = pair(2, tag),
            Reply::Bound { tag, binding, local } => {
                w[0] = pair(3, tag);
                w[1] = put_endpoint(local);
                w[2] = binding as u64;
            }
            Reply::Connecting { tag, local } => {
                w[0] = pair(4, tag);
                w[1] = put_endpoint(local);
            }
            Reply::Connected { tag, slot, local, mss } => {
                w[0] = pair(5, tag);
                w[1] = put_slot(slot);
                w[2] = put_endpoint(local);
                w[3] = mss as u64;
            }
            Reply::Accept { binding, slot, local, remote, mss } => {
                w[0] = pair(6, binding);
                w[1] = put_slot(slot);
                w[2] = put_endpoint(local);
                w[3] = put_endpoint(remote);
                w[4] = mss as u64;
            }
            Reply::Unaccept { binding, slot } => {
                w[0] = pair(7, binding);
                w[1] = put_slot(slot);
            }
            Reply::Error { slot, errno } => {
                w[0] = pair(8, errno as u32);
                w[1] = put_slot(slot);
            }
            Reply::Freed { slot } => {
                w[0] = pair(9, 0);
                w[1] = put_slot(slot);
            }
            Reply::Forked { tag, token } => {
                w[0] = pair(10, tag);
                w[1] = token;
            }
            Reply::Claimed { tag, slot } => {
                w[0] = pair(11, tag);
                w[1] = put_slot(slot);
            }
            Reply::Info { tag, info } => {
                w[0] = pair(12, tag);
                info.put(&mut w);
            }
            Reply::Rested { slot, done } => {
                w[0] = pair(14, done as u32);
                w[1] = put_slot(slot);
            }
            Reply::SpliceOver { slot, errno } => {
                w[0] = pair(13, errno as u32);
                w[1] = put_slot(slot);
            }
        }
        w
    }

    /// Reads a descriptor; `None` where its kind is unknown.
    pub fn from_words(w: Words) -> Option<Reply> {
        let tag = high(w[0]);
        Some(match low(w[0]) {
            1 => Reply::Failed { tag, errno: w[1] as u16 },
            2 => Reply::Done { tag },
            3 => Reply::Bound { tag, binding: low(w[2]), local: get_endpoint(w[1]) },
            4 => Reply::Connecting { tag, local: get_endpoint(w[1]) },
            5 => Reply::Connected { tag, slot: get_slot(w[1]), local: get_endpoint(w[2]), mss: w[3] as u16 },
            6 => Reply::Accept {
                binding: tag,
                slot: get_slot(w[1]),
                local: get_endpoint(w[2]),
                remote: get_endpoint(w[3]),
                mss: w[4] as u16,
            },
            7 => Reply::Unaccept { binding: tag, slot: get_slot(w[1]) },
            8 => Reply::Error { slot: get_slot(w[1]), errno: tag as u16 },
            9 => Reply::Freed { slot: get_slot(w[1]) },
            10 => Reply::Forked { tag, token: w[1] },
            11 => Reply::Claimed { tag, slot: get_slot(w[1]) },
            12 => Reply::Info { tag, info: FlowInfo::get(&w) },
            13 => Reply::SpliceOver { slot: get_slot(w[1]), errno: tag as u16 },
            14 => Reply::Rested { slot: get_slot(w[1]), done: tag != 0 },
            _ => return None,
        })
    }
}

impl FlowInfo {
    fn put(&self, w: &mut Words) {
        w[1] = pair(self.rtt_us, self.rttvar_us);
        w[2] = pair(self.cwnd, self.ssthresh);
        w[3] = pair(self.retransmits, self.unacked);
        w[4] = pair(self.snd_wnd, self.mss as u32 | (self.state as u32) << 16 | (self.congestion as u32) << 24);
        w[5] = self.bytes_acked;
        w[6] = self.bytes_received;
    }
    fn get(w: &Words) -> FlowInfo {
        let packed = high(w[4]);
        FlowInfo {
            state: (packed >> 16) as u8,
            congestion: (packed >> 24) as u8,
            mss: packed as u16,
            rtt_us: low(w[1]),
            rttvar_us: high(w[1]),
            cwnd: low(w[2]),
            ssthresh: high(w[2]),
            retransmits: low(w[3]),
            unacked: high(w[3]),
            snd_wnd: low(w[4]),
            bytes_acked: w[5],
            bytes_received: w[6],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot { index: 70_000, generation: 9 };
    const HERE: Endpoint = Endpoint { ip: Ipv4Addr::new(10, 1, 2, 3), port: 65_535 };

    #[test]
    fn requests_come_back() {
        for request in [
            Request::Bind { tag: 1, local: HERE, reuse_address: true, reuse_port: false },
            Request::Listen { tag: u32::MAX, binding: 2, backlog: 3 },
            Request::Arm { binding: 4, credits: 5 },
            Request::Connect { tag: 6, binding: 7, remote: HERE, congestion: Congestion::Cubic, mss: 536 },
            Request::CancelConnect { tag: 8 },
            Request::Unbind { binding: 9 },
            Request::Close { slot: SLOT, tx_head: 1, rx_head: 2, abort: true },
            Request::Set { slot: SLOT, option: OptionName::UserTimeout, value: u64::MAX },
            Request::Info { tag: 10, slot: SLOT },
            Request::Fork { tag: 11 },
            Request::Claim { tag: 12, context: 13, slot: SLOT },
            Request::Label { fd: 14, reason: Unaccelerated::NoRoute, slot: Some(SLOT), binding: 15 },
            Request::Rest { slot: SLOT, tx_head: 4, rx_head: u32::MAX },
            Request::Splice {
                tag: 16,
                ends: [
                    SpliceEnd { slot: SLOT, tx_head: 17, rx_head: 18 },
                    SpliceEnd { slot: Slot { index: 3, generation: 4 }, tx_head: 19, rx_head: u32::MAX },
                ],
            },
        ] {
            assert_eq!(Request::from_words(request.to_words()), Some(request));
        }
        assert_eq!(Request::from_words([u64::MAX; 8]), None);
    }

    #[test]
    fn replies_come_back() {
        let info = FlowInfo { state: 1, congestion: 3, mss: 1460, rtt_us: 7, unacked: 9, ..FlowInfo::default() };
        for reply in [
            Reply::Failed { tag: 1, errno: 111 },
            Reply::Done { tag: 2 },
            Reply::Bound { tag: 3, binding: 4, local: HERE },
            Reply::Connecting { tag: 5, local: HERE },
            Reply::Connected { tag: 6, slot: SLOT, local: HERE, mss: 1448 },
            Reply::Accept { binding: 7, slot: SLOT, local: HERE, remote: HERE, mss: 1448 },
            Reply::Unaccept { binding: 8, slot: SLOT },
            Reply::Error { slot: SLOT, errno: 104 },
            Reply::Freed { slot: SLOT },
            Reply::Forked { tag: 9, token: u64::MAX },
            Reply::Claimed { tag: 10, slot: SLOT },
            Reply::Info { tag: 11, info },
            Reply::SpliceOver { slot: SLOT, errno: 104 },
            Reply::Rested { slot: SLOT, done: true },
        ] {
            assert_eq!(Reply::from_words(reply.to_words()), Some(reply));
        }
    }
}
