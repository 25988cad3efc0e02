//! Requests of an application to the control plane: descriptors of the control pair, eight words each.
use super::log::LogShape;
use super::names::{Congestion, EarlyData, FastOpenKeys, OptionName, Unaccelerated};
use super::words::{Words, get_endpoint, get_slot, high, low, pair, put_endpoint, put_slot};
use crate::Endpoint;
use crate::Slot;

/// Application to control plane. A `tag` is the application's own number for a request that is answered; the
/// reply repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Reserve a local address. Answered by [`crate::Reply::Bound`].
    Bind {
        /// Repeated in the reply.
        tag: u32,
        /// What to reserve; port 0 takes a free one.
        local: Endpoint,
        /// `SO_REUSEADDR`.
        reuse_address: bool,
        /// `SO_REUSEPORT`.
        reuse_port: bool,
        /// The unspecified IPv6 address stands for that of IPv4, too: `IPV6_V6ONLY` is off.
        dual_stack: bool,
    },
    /// Accept connections on a binding. Answered by [`crate::Reply::Done`]. Again on a listener: changes its backlog.
    Listen {
        /// Repeated in the reply.
        tag: u32,
        /// From [`crate::Reply::Bound`].
        binding: u32,
        /// Most connections that wait to be accepted.
        backlog: u32,
    },
    /// This context takes up to `credits` connections of the listener from now on (an absolute number, replacing the
    /// earlier one; each [`crate::Reply::Accept`] uses one). A process that merely inherited a listener never arms it.
    Arm {
        /// The listener's binding.
        binding: u32,
        /// Connections that may wait in this context.
        credits: u32,
    },
    /// Like [`Request::Arm`], from a program that accepts and found no connection: one that waits for a process that
    /// does not accept comes here (docs/LISTENERS.md). Answered by [`crate::Reply::Done`], after
    /// [`crate::Reply::Accept`] where one came.
    Take {
        /// Repeated in the reply.
        tag: u32,
        /// The listener's binding.
        binding: u32,
        /// Connections that may wait in this context.
        credits: u32,
    },
    /// The kernel listens for this listener, too, at the same port. So connections to loopback addresses are for it,
    /// and may come over the host (docs/LOOPBACK.md). Not answered.
    Loopback {
        /// The listener's binding.
        binding: u32,
    },
    /// Open a connection. Answered by [`crate::Reply::Connecting`], then [`crate::Reply::Connected`] or
    /// [`crate::Reply::Failed`].
    Connect {
        /// Repeated in the replies.
        tag: u32,
        /// From [`crate::Reply::Bound`], or 0 for none. The connection takes the binding over.
        binding: u32,
        /// The peer.
        remote: Endpoint,
        /// Congestion-control policy.
        congestion: Congestion,
        /// `TCP_MAXSEG`; 0 for none.
        mss: u16,
        /// Whether the SYN is to carry data (RFC 7413).
        early: EarlyData,
    },
    /// So many bytes are in the transmit buffer of the slot that [`crate::Reply::Connecting`] named. Those that fit go
    /// with the SYN, which was held back for them, and the others as soon as the connection is open. Not answered.
    SynData {
        /// Of the [`Request::Connect`].
        tag: u32,
        /// Bytes, no more than the buffer holds.
        len: u32,
    },
    /// Connections of a listener that begin from now on have segments of at most so many bytes (`TCP_MAXSEG`). Not
    /// answered.
    SegmentSize {
        /// The listener's binding.
        binding: u32,
        /// Payload bytes; 0 for what the path carries.
        mss: u16,
    },
    /// An attempt ends once its SYN was sent again so often (`TCP_SYNCNT`), instead of as often as the host's
    /// configuration has it. Not answered.
    SynRetries {
        /// Of the [`Request::Connect`].
        tag: u32,
        /// So often.
        most: u8,
    },
    /// A listener takes connections whose SYN carries data (RFC 7413), and may have keys of its own. Not answered.
    FastOpen {
        /// The listener's binding.
        binding: u32,
        /// Most of them whose handshake has not ended; 0 for none.
        most: u32,
        /// The keys of its cookies; without them the host's own are used.
        keys: FastOpenKeys,
        /// Data without a cookie is taken as well: `TCP_FASTOPEN_NO_COOKIE`.
        no_cookie: bool,
    },
    /// Give up a connection that is being opened. Not answered. [`crate::Reply::Connected`] may be on its way already:
    /// then the connection is the application's to close.
    CancelConnect {
        /// Of the [`Request::Connect`].
        tag: u32,
    },
    /// Give up this context's share of a binding, listening or not. Not answered.
    Unbind {
        /// From [`crate::Reply::Bound`].
        binding: u32,
    },
    /// Give up this context's share of a connection; the last one closes it. Answered by [`crate::Reply::Freed`] once
    /// the slot may be used again.
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
    /// Ask for a connection's figures. Answered by [`crate::Reply::Info`].
    Info {
        /// Repeated in the reply.
        tag: u32,
        /// Which connection.
        slot: Slot,
    },
    /// This process is about to fork: hold everything it has for its child, which attaches with the token.
    /// Answered by [`crate::Reply::Forked`].
    Fork {
        /// Repeated in the reply.
        tag: u32,
    },
    /// This process is about to run another program by exec, which attaches with the token: hold for it what
    /// [`Request::Carry`] names, and nothing yet. Answered by [`crate::Reply::Forked`].
    Exec {
        /// Repeated in the reply.
        tag: u32,
    },
    /// The program of [`Request::Exec`] gets one thing of this context. Answered by [`crate::Reply::Done`].
    Carry {
        /// Repeated in the reply.
        tag: u32,
        /// Of the [`crate::Reply::Forked`].
        token: u64,
        /// A connection by a context and its slot there, as in [`Request::Claim`]; `None` for a local address.
        flow: Option<(u32, Slot)>,
        /// Which local address, where it is no connection; otherwise 0.
        binding: u32,
    },
    /// One thing of this context is about to be passed to another process, over a UNIX socket: hold it for whoever
    /// shows the token ([`Request::Adopt`]). Answered by [`crate::Reply::Forked`].
    Pass {
        /// Repeated in the reply.
        tag: u32,
        /// Which connection; `None` for a local address.
        slot: Option<Slot>,
        /// Which local address, where it is no connection; otherwise 0.
        binding: u32,
    },
    /// A passed connection or local address has come: from now on this context has a share of it. Answered by
    /// [`crate::Reply::Adopted`].
    Adopt {
        /// Repeated in the reply.
        tag: u32,
        /// Of the [`crate::Reply::Forked`] that the passing process got.
        token: u64,
    },
    /// What [`Request::Pass`] held could not be sent, or the program of [`Request::Exec`] could not be run. Not
    /// answered.
    Withdraw {
        /// Of the [`crate::Reply::Forked`].
        token: u64,
    },
    /// Take over the completions of a connection inherited from another context. Answered by [`crate::Reply::Claimed`].
    Claim {
        /// Repeated in the reply.
        tag: u32,
        /// The context it was inherited from.
        context: u32,
        /// Its slot there.
        slot: Slot,
    },
    /// Join two connections of this context, with all that is on its way acknowledged and read. From now on the
    /// data-path passes their bytes on. The application keeps two names, which get their end
    /// ([`crate::Reply::SpliceOver`]). Answered by [`crate::Reply::Done`], or [`crate::Reply::Failed`] with nothing
    /// changed: then the application repeats its bumps.
    Splice {
        /// Repeated in the reply.
        tag: u32,
        /// The two connections, with the application's positions in each.
        ends: [SpliceEnd; 2],
    },
    /// A connection has been quiet for a while, with everything acknowledged and read: the memory of its receive buffer
    /// may be given back (docs/MEMORY.md). Answered by [`crate::Reply::Reclaimed`]; bumps between the two may be lost.
    Reclaim {
        /// Which connection.
        slot: Slot,
        /// Bytes that the application has written since the connection began, modulo 2^32.
        tx_head: u32,
        /// Bytes that it has taken since then, modulo 2^32.
        rx_head: u32,
    },
    /// Register the context's shared log (docs/SHARED-LOG.md). Answered by [`crate::Reply::Done`].
    OpenLog {
        /// Repeated in the reply.
        tag: u32,
        /// Its size.
        shape: LogShape,
    },
    /// From now on, what comes on a connection is records of the log. Answered by [`crate::Reply::Done`].
    JoinLog {
        /// Repeated in the reply.
        tag: u32,
        /// Which connection.
        slot: Slot,
        /// Where in the stream the first record begins: what the application has taken, as in [`crate::Bump`].
        rx_head: u32,
        /// What its records are marked with.
        mark: u64,
    },
    /// For `opentoe why`: what a descriptor of this process is. Not answered. A label that names a slot also means that
    /// the application has accepted the connection: from then on it is not given to another context.
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

impl Request {
    /// The descriptor's words. The first one is the kind and the tag.
    pub fn to_words(self) -> Words {
        let mut w = [0u64; 8];
        match self {
            Request::Bind { tag, local, reuse_address, reuse_port, dual_stack } => {
                w[0] = pair(1, tag);
                put_endpoint(&mut w, 1, local);
                w[4] = reuse_address as u64 | (reuse_port as u64) << 1 | (dual_stack as u64) << 2;
            }
            Request::Listen { tag, binding, backlog } => {
                w[0] = pair(2, tag);
                w[1] = pair(binding, backlog);
            }
            Request::Arm { binding, credits } => {
                w[0] = pair(3, 0);
                w[1] = pair(binding, credits);
            }
            Request::Take { tag, binding, credits } => (w[0], w[1]) = (pair(20, tag), pair(binding, credits)),
            Request::Loopback { binding } => (w[0], w[1]) = (pair(21, 0), pair(binding, 0)),
            Request::Connect { tag, binding, remote, congestion, mss, early } => {
                w[0] = pair(4, tag);
                put_endpoint(&mut w, 1, remote);
                w[4] = pair(binding, congestion.0 as u32);
                w[5] = pair(mss.into(), early as u32);
            }
            Request::SynData { tag, len } => (w[0], w[1]) = (pair(24, tag), len.into()),
            Request::SegmentSize { binding, mss } => (w[0], w[1]) = (pair(27, 0), pair(binding, mss.into())),
            Request::SynRetries { tag, most } => (w[0], w[1]) = (pair(26, tag), most.into()),
            Request::FastOpen { binding, most, keys, no_cookie } => {
                fast_open_words(&mut w, binding, most, keys, no_cookie)
            }
            Request::CancelConnect { tag } => w[0] = pair(5, tag),
            Request::Unbind { binding } => (w[0], w[1]) = (pair(6, 0), binding.into()),
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
            Request::Exec { tag } => w[0] = pair(22, tag),
            Request::Carry { tag, token, flow, binding } => carry_words(&mut w, tag, token, flow, binding),
            Request::Pass { tag, slot, binding } => pass_words(&mut w, tag, slot, binding),
            Request::Adopt { tag, token } => (w[0], w[1]) = (pair(18, tag), token),
            Request::Withdraw { token } => (w[0], w[1]) = (pair(19, 0), token),
            Request::Claim { tag, context, slot } => {
                (w[0], w[1], w[2]) = (pair(11, tag), put_slot(slot), context as u64);
            }
            Request::Label { fd, reason, slot, binding } => {
                (w[0], w[1]) = (pair(12, fd), pair(reason as u32, binding));
                (w[2], w[3]) = (slot.is_some() as u64, slot.map_or(0, put_slot));
            }
            Request::Reclaim { slot, tx_head, rx_head } => {
                w[0] = pair(14, 0);
                w[1] = put_slot(slot);
                w[2] = pair(tx_head, rx_head);
            }
            Request::OpenLog { tag, shape } => {
                w[0] = pair(15, tag);
                w[1] = pair(shape.record, shape.records);
            }
            Request::JoinLog { tag, slot, rx_head, mark } => {
                w[0] = pair(16, tag);
                w[1] = put_slot(slot);
                w[2] = rx_head as u64;
                w[3] = mark;
            }
            Request::Splice { tag, ends } => splice_words(&mut w, tag, &ends),
        }
        w
    }

    /// Reads a descriptor; `None` where its kind or a code in it is unknown.
    pub fn from_words(w: Words) -> Option<Request> {
        let tag = high(w[0]);
        Some(match low(w[0]) {
            1 => Request::Bind {
                tag,
                local: get_endpoint(&w, 1),
                reuse_address: w[4] & 1 != 0,
                reuse_port: w[4] & 2 != 0,
                dual_stack: w[4] & 4 != 0,
            },
            2 => Request::Listen { tag, binding: low(w[1]), backlog: high(w[1]) },
            3 => Request::Arm { binding: low(w[1]), credits: high(w[1]) },
            4 => Request::Connect {
                tag,
                remote: get_endpoint(&w, 1),
                binding: low(w[4]),
                congestion: Congestion(high(w[4]) as u8),
                mss: low(w[5]) as u16,
                early: EarlyData::from_code(high(w[5]) as u8)?,
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
            14 => Request::Reclaim { slot: get_slot(w[1]), tx_head: low(w[2]), rx_head: high(w[2]) },
            15 => Request::OpenLog { tag, shape: LogShape { record: low(w[1]), records: high(w[1]) } },
            17 => Request::Pass { tag, slot: (low(w[1]) != 0).then(|| get_slot(w[2])), binding: high(w[1]) },
            18 => Request::Adopt { tag, token: w[1] },
            19 => Request::Withdraw { token: w[1] },
            20 => Request::Take { tag, binding: low(w[1]), credits: high(w[1]) },
            16 => Request::JoinLog { tag, slot: get_slot(w[1]), rx_head: low(w[2]), mark: w[3] },
            21 => Request::Loopback { binding: low(w[1]) },
            22 => Request::Exec { tag },
            23 => {
                let flow = (low(w[1]) != 0).then(|| (low(w[3]), get_slot(w[2])));
                Request::Carry { tag, token: w[4], flow, binding: high(w[1]) }
            }
            24 => Request::SynData { tag, len: w[1] as u32 },
            27 => Request::SegmentSize { binding: low(w[1]), mss: high(w[1]) as u16 },
            26 => Request::SynRetries { tag, most: w[1] as u8 },
            25 => {
                let key = |at: usize| [w[at].to_le_bytes(), w[at + 1].to_le_bytes()].concat().try_into().ok();
                let (flags, keys) = (w[2], [2, 4].map(|bit| w[2] & bit != 0));
                let keys = FastOpenKeys { primary: key(3).filter(|_| keys[0]), backup: key(5).filter(|_| keys[1]) };
                Request::FastOpen { binding: low(w[1]), most: high(w[1]), keys, no_cookie: flags & 1 != 0 }
            }
            _ => return None,
        })
    }
}

fn fast_open_words(w: &mut Words, binding: u32, most: u32, keys: FastOpenKeys, no_cookie: bool) {
    let FastOpenKeys { primary, backup } = keys;
    (w[0], w[1]) = (pair(25, 0), pair(binding, most));
    w[2] = no_cookie as u64 | (primary.is_some() as u64) << 1 | (backup.is_some() as u64) << 2;
    for (key, at) in [(primary, 3), (backup, 5)] {
        for (word, half) in w[at..at + 2].iter_mut().zip(key.unwrap_or_default().chunks_exact(8)) {
            *word = half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
    }
}

fn splice_words(w: &mut Words, tag: u32, ends: &[SpliceEnd]) {
    w[0] = pair(13, tag);
    for (at, end) in ends.iter().enumerate() {
        w[1 + 2 * at] = put_slot(end.slot);
        w[2 + 2 * at] = pair(end.tx_head, end.rx_head);
    }
}

fn carry_words(w: &mut Words, tag: u32, token: u64, flow: Option<(u32, Slot)>, binding: u32) {
    pass_words(w, tag, flow.map(|(_, slot)| slot), binding);
    w[0] = pair(23, tag);
    w[3] = flow.map_or(0, |(context, _)| context.into());
    w[4] = token;
}

fn pass_words(w: &mut Words, tag: u32, slot: Option<Slot>, binding: u32) {
    (w[0], w[1]) = (pair(17, tag), pair(slot.is_some() as u32, binding));
    w[2] = slot.map_or(0, put_slot);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    const SLOT: Slot = Slot { index: 70_000, generation: 9 };
    const HERE: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 1, 2, 3), 65_535);

    fn keys(backup: Option<[u8; 16]>) -> FastOpenKeys {
        FastOpenKeys { primary: Some(std::array::from_fn(|at| at as u8 + 7)), backup }
    }

    #[test]
    fn requests_come_back() {
        let there = "[fe80::1:2:3:4%4294967295]:1".parse::<SocketAddr>().expect("an address").into();
        for request in [
            Request::Bind { tag: 1, local: HERE, reuse_address: true, reuse_port: false, dual_stack: false },
            Request::Bind { tag: 1, local: there, reuse_address: false, reuse_port: true, dual_stack: false },
            Request::Bind { tag: 1, local: there, reuse_address: false, reuse_port: false, dual_stack: true },
            Request::Connect {
                tag: 6,
                binding: 7,
                remote: there,
                congestion: Congestion(4),
                mss: u16::MAX,
                early: EarlyData::No,
            },
            Request::Listen { tag: u32::MAX, binding: 2, backlog: 3 },
            Request::Arm { binding: 4, credits: 5 },
            Request::Take { tag: 21, binding: 4, credits: u32::MAX },
            Request::Loopback { binding: 6 },
            Request::Connect {
                tag: 6,
                binding: 7,
                remote: HERE,
                congestion: Congestion(3),
                mss: 536,
                early: EarlyData::WithCookie,
            },
            Request::SynData { tag: 27, len: u32::MAX },
            Request::SynRetries { tag: 28, most: 127 },
            Request::FastOpen { binding: 6, most: 7, keys: FastOpenKeys::default(), no_cookie: true },
            Request::FastOpen { binding: 6, most: u32::MAX, keys: keys(Some([1; 16])), no_cookie: false },
            Request::FastOpen { binding: 6, most: 7, keys: keys(None), no_cookie: false },
            Request::SegmentSize { binding: 28, mss: u16::MAX },
            Request::CancelConnect { tag: 8 },
            Request::Unbind { binding: 9 },
            Request::Close { slot: SLOT, tx_head: 1, rx_head: 2, abort: true },
            Request::Set { slot: SLOT, option: OptionName::UserTimeout, value: u64::MAX },
            Request::Info { tag: 10, slot: SLOT },
            Request::Fork { tag: 11 },
            Request::Exec { tag: 22 },
            Request::Carry { tag: 23, token: u64::MAX, flow: Some((24, SLOT)), binding: 0 },
            Request::Carry { tag: 25, token: 26, flow: None, binding: u32::MAX },
            Request::Pass { tag: 17, slot: Some(SLOT), binding: 0 },
            Request::Pass { tag: 18, slot: None, binding: u32::MAX },
            Request::Adopt { tag: 19, token: u64::MAX },
            Request::Withdraw { token: 20 },
            Request::Claim { tag: 12, context: 13, slot: SLOT },
            Request::Label { fd: 14, reason: Unaccelerated::NoRoute, slot: Some(SLOT), binding: 15 },
            Request::Reclaim { slot: SLOT, tx_head: 4, rx_head: u32::MAX },
            Request::OpenLog { tag: 5, shape: LogShape { record: 64, records: u32::MAX } },
            Request::JoinLog { tag: 6, slot: SLOT, rx_head: u32::MAX, mark: u64::MAX },
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
}
