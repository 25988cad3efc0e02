//! Replies of the control plane to an application: descriptors of the control pair, eight words each.
use super::words::{Words, get_endpoint, get_number, get_slot, high, low, pair, put_endpoint, put_slot, put_slot_and};
use crate::Endpoint;
use crate::Slot;

/// A connection's figures: what `TCP_INFO` needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowInfo {
    /// State as Linux numbers them (`TCP_ESTABLISHED` = 1, ...).
    pub state: u8,
    /// What loss recovery is about, as Linux numbers it (`tcp_ca_state`).
    pub ca_state: u8,
    /// Congestion-control policy, a [`crate::Congestion`] code.
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
    /// Of these, so many were reported to have come twice (D-SACK).
    pub dsack_dups: u32,
    /// Data of the SYN was acknowledged with it (RFC 7413).
    pub syn_data: bool,
    /// Bytes sent and not acknowledged.
    pub unacked: u32,
    /// Bytes written and not sent; less than 2^31.
    pub unsent: u32,
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
        /// The connection's slot, where its SYN waits for data ([`crate::Request::SynData`]).
        slot: Slot,
        /// Most bytes of data; 0 where the SYN waits for none.
        room: u16,
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
        /// Bytes that the SYN carried and that are acknowledged.
        early: u16,
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
    /// A connection ended with an error; the slot stays until [`crate::Request::Close`].
    Error {
        /// Which connection.
        slot: Slot,
        /// Linux error number: `ECONNRESET`, `ETIMEDOUT`, ...
        errno: u16,
    },
    /// A connection that was claimed had ended in order before that: what a last completion would have. The slot stays
    /// until [`crate::Request::Close`].
    Ended {
        /// Which connection.
        slot: Slot,
        /// Where the peer's bytes end, as in [`crate::Completion`].
        rx_tail: u32,
        /// Where its own bytes end, all of them acknowledged.
        tx_tail: u32,
    },
    /// Answer to [`crate::Request::Reclaim`]: the application repeats its bump.
    Reclaimed {
        /// Which connection.
        slot: Slot,
        /// The memory was given back. Otherwise the connection was not quiet, or the control plane not idle enough.
        done: bool,
    },
    /// A connection that was joined with another one is over; the slot stays until [`crate::Request::Close`].
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
    /// Answer to [`crate::Request::Fork`] and [`crate::Request::Pass`]: what was asked for is held.
    Forked {
        /// Of the request.
        tag: u32,
        /// What the child shows in [`crate::attach::Hello`], or another process in [`crate::Request::Adopt`].
        token: u64,
    },
    /// This context has a share of what another one passed.
    Adopted {
        /// Of the request.
        tag: u32,
        /// Where a connection's buffers are, context and slot; `None` for a local address.
        home: Option<(u32, Slot)>,
        /// The local address, where it is no connection; otherwise 0.
        binding: u32,
    },
    /// What this context passed to another process was not adopted in time: it is held no longer.
    NotAdopted,
    /// Completions of the connection come to this context from now on.
    Claimed {
        /// Of the request.
        tag: u32,
        /// Its slot in this context's data pair. Its buffers stay where they are, in the context it came from.
        slot: Slot,
        /// Which claim of the host's this was, modulo 2^32 and never 0: of two contexts that claimed, the later one has
        /// it.
        claim: u32,
    },
    /// A connection's figures.
    Info {
        /// Of the request.
        tag: u32,
        /// The figures.
        info: FlowInfo,
    },
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
                put_endpoint(&mut w, 1, local);
                w[4] = binding as u64;
            }
            Reply::Connecting { tag, local, slot, room } => {
                w[0] = pair(4, tag);
                put_endpoint(&mut w, 1, local);
                w[4] = put_slot_and(slot, room);
            }
            Reply::Connected { tag, slot, local, mss, early } => {
                w[0] = pair(5, tag);
                w[1] = put_slot_and(slot, mss);
                put_endpoint(&mut w, 2, local);
                w[5] = early.into();
            }
            Reply::Accept { binding, slot, local, remote, mss } => {
                w[0] = pair(6, binding);
                w[1] = put_slot_and(slot, mss);
                put_endpoint(&mut w, 2, local);
                put_endpoint(&mut w, 5, remote);
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
            Reply::NotAdopted => w[0] = pair(16, 0),
            Reply::Adopted { tag, home, binding } => {
                w[0] = pair(17, tag);
                let (context, slot) = home.map_or((0, 0), |(context, slot)| (context, put_slot(slot)));
                (w[1], w[2], w[3]) = (pair(home.is_some() as u32, binding), u64::from(context), slot);
            }
            Reply::Claimed { tag, slot, claim } => {
                w[0] = pair(11, tag);
                w[1] = put_slot(slot);
                w[2] = claim as u64;
            }
            Reply::Info { tag, info } => {
                w[0] = pair(12, tag);
                info.put(&mut w);
            }
            Reply::Reclaimed { slot, done } => {
                w[0] = pair(14, done as u32);
                w[1] = put_slot(slot);
            }
            Reply::Ended { slot, rx_tail, tx_tail } => {
                w[0] = pair(15, 0);
                w[1] = put_slot(slot);
                w[2] = pair(rx_tail, tx_tail);
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
            3 => Reply::Bound { tag, binding: low(w[4]), local: get_endpoint(&w, 1) },
            4 => {
                let (slot, room) = (get_slot(w[4]), get_number(w[4]));
                Reply::Connecting { tag, local: get_endpoint(&w, 1), slot, room }
            }
            5 => {
                let (slot, mss, early) = (get_slot(w[1]), get_number(w[1]), w[5] as u16);
                Reply::Connected { tag, slot, local: get_endpoint(&w, 2), mss, early }
            }
            6 => Reply::Accept {
                binding: tag,
                slot: get_slot(w[1]),
                local: get_endpoint(&w, 2),
                remote: get_endpoint(&w, 5),
                mss: get_number(w[1]),
            },
            7 => Reply::Unaccept { binding: tag, slot: get_slot(w[1]) },
            8 => Reply::Error { slot: get_slot(w[1]), errno: tag as u16 },
            9 => Reply::Freed { slot: get_slot(w[1]) },
            10 => Reply::Forked { tag, token: w[1] },
            11 => Reply::Claimed { tag, slot: get_slot(w[1]), claim: low(w[2]) },
            12 => Reply::Info { tag, info: FlowInfo::get(&w) },
            13 => Reply::SpliceOver { slot: get_slot(w[1]), errno: tag as u16 },
            15 => Reply::Ended { slot: get_slot(w[1]), rx_tail: w[2] as u32, tx_tail: high(w[2]) },
            16 => Reply::NotAdopted,
            17 => {
                let home = (low(w[1]) != 0).then(|| (low(w[2]), get_slot(w[3])));
                Reply::Adopted { tag, home, binding: high(w[1]) }
            }
            14 => Reply::Reclaimed { slot: get_slot(w[1]), done: tag != 0 },
            _ => return None,
        })
    }
}

/// The bits of [`FlowInfo::unsent`].
const UNSENT: u32 = u32::MAX >> 1;

impl FlowInfo {
    /// [`FlowInfo::ca_state`]: nothing is lost; the peer has something beyond a hole; fast recovery; after a timeout.
    pub const CA_OPEN: u8 = 0;
    /// See there.
    pub const CA_DISORDER: u8 = 1;
    /// See there.
    pub const CA_RECOVERY: u8 = 3;
    /// See there.
    pub const CA_LOSS: u8 = 4;

    /// SYN-RECEIVED, as Linux numbers it.
    pub const SYN_RECEIVED: u8 = 3;

    /// Segments that the peer has, as `tcpi_delivered` counts them. The SYN is one, with its data; other bytes count by
    /// full segments.
    pub fn delivered(&self) -> u32 {
        match self.state {
            1 | 4..=6 | 8 | 9 | 11 => 1 + self.bytes_acked.div_ceil(self.mss.max(1).into()) as u32,
            _ => 0,
        }
    }

    fn put(&self, w: &mut Words) {
        w[1] = pair(self.rtt_us, self.rttvar_us);
        w[2] = pair(self.cwnd, self.ssthresh);
        w[3] = pair(self.retransmits, self.unacked);
        w[4] = pair(
            self.snd_wnd,
            self.mss as u32 | (self.state as u32 | (self.ca_state as u32) << 4) << 16 | (self.congestion as u32) << 24,
        );
        w[5] = self.bytes_acked;
        w[6] = self.bytes_received;
        w[7] = pair(self.dsack_dups, u32::from(self.syn_data) << 31 | self.unsent & UNSENT);
    }
    fn get(w: &Words) -> FlowInfo {
        let packed = high(w[4]);
        FlowInfo {
            state: (packed >> 16) as u8 & 15,
            ca_state: (packed >> 20) as u8 & 15,
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
            dsack_dups: low(w[7]),
            syn_data: high(w[7]) & !UNSENT != 0,
            unsent: high(w[7]) & UNSENT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    const SLOT: Slot = Slot { index: 70_000, generation: 9 };
    const HERE: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 1, 2, 3), 65_535);

    #[test]
    fn replies_come_back() {
        let there = "[fe80::1:2:3:4%4294967295]:1".parse::<SocketAddr>().expect("an address").into();
        let info = FlowInfo {
            state: 12,
            ca_state: FlowInfo::CA_LOSS,
            congestion: 3,
            mss: 1460,
            rtt_us: 7,
            unacked: 9,
            dsack_dups: 5,
            syn_data: true,
            ..FlowInfo::default()
        };
        for reply in [
            Reply::Failed { tag: 1, errno: 111 },
            Reply::Done { tag: 2 },
            Reply::Bound { tag: 3, binding: 4, local: HERE },
            Reply::Connecting { tag: 5, local: HERE, slot: SLOT, room: u16::MAX },
            Reply::Connected { tag: 6, slot: SLOT, local: HERE, mss: 1448, early: 0 },
            Reply::Accept { binding: 7, slot: SLOT, local: HERE, remote: HERE, mss: 1448 },
            Reply::Accept { binding: 7, slot: SLOT, local: HERE, remote: there, mss: u16::MAX },
            Reply::Connected { tag: 6, slot: SLOT, local: there, mss: u16::MAX, early: u16::MAX },
            Reply::Unaccept { binding: 8, slot: SLOT },
            Reply::Error { slot: SLOT, errno: 104 },
            Reply::Freed { slot: SLOT },
            Reply::Forked { tag: 9, token: u64::MAX },
            Reply::NotAdopted,
            Reply::Adopted { tag: 12, home: Some((u32::MAX, SLOT)), binding: 0 },
            Reply::Adopted { tag: 12, home: None, binding: u32::MAX },
            Reply::Claimed { tag: 10, slot: SLOT, claim: u32::MAX },
            Reply::Info { tag: 11, info },
            Reply::SpliceOver { slot: SLOT, errno: 104 },
            Reply::Reclaimed { slot: SLOT, done: true },
            Reply::Ended { slot: SLOT, rx_tail: 7, tx_tail: u32::MAX },
        ] {
            assert_eq!(Reply::from_words(reply.to_words()), Some(reply));
        }
    }
}
