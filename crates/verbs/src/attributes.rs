//! Attributes of queue pairs and paths.
use crate::{Mtu, QpNumber, QpState};
use memory::Rights;
use serde::{Deserialize, Serialize};

/// A GID: 128 bits in network byte order; for RoCEv2 an IPv6 address, or an IPv4 address in its mapped form (IBTA Annex
/// A17.4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Gid(pub [u8; 16]);

/// A path to a peer (`struct ibv_ah_attr`), as far as RoCEv2 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AddressVector {
    /// The peer's.
    pub gid: Gid,
    /// Which of the own GIDs is the source.
    pub gid_index: u8,
    /// Hop limit; 0 stands for the host's own.
    pub hop_limit: u8,
    /// Traffic class; its upper six bits are the DSCP.
    pub traffic_class: u8,
    /// Flow label, 20 bits; spreads UDP source ports.
    pub flow_label: u32,
    /// Service level.
    pub service_level: u8,
}

/// How much a queue pair holds (`struct ibv_qp_cap`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacities {
    /// Work requests of the send queue.
    pub send: u32,
    /// Work requests of the receive queue.
    pub receive: u32,
    /// Scatter-gather entries of a send work request.
    pub send_pieces: u32,
    /// Scatter-gather entries of a receive work request.
    pub receive_pieces: u32,
    /// Bytes of inline data.
    pub inline: u32,
}

/// Attributes that a state transition sets, or that a query returns (`struct ibv_qp_attr`). `None`: not set, where the
/// program's mask does not name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QpAttributes {
    /// The state.
    pub state: Option<QpState>,
    /// What peers may do; local write has no meaning here.
    pub rights: Option<Rights>,
    /// Index of the partition key; 0 is the only one.
    pub partition_index: Option<u16>,
    /// The port; 1 is the only one.
    pub port: Option<u8>,
    /// Queue key of datagrams.
    pub queue_key: Option<u32>,
    /// The path to the peer.
    pub path: Option<AddressVector>,
    /// Payload of a packet at most.
    pub mtu: Option<Mtu>,
    /// Time-out for an acknowledgement: 4.096 us * 2^n; 0 is never (IBTA 1.3, 9.7.6.1.3). 5 bits.
    pub timeout: Option<u8>,
    /// Retransmissions after time-outs or sequence errors, at most 7.
    pub retries: Option<u8>,
    /// Retransmissions after RNR NAKs, at most 7, which is for ever.
    pub rnr_retries: Option<u8>,
    /// The time that RNR NAKs of this queue pair ask for, as a code of 5 bits (IBTA 1.3, table 45).
    pub rnr_timer: Option<u8>,
    /// Packet sequence number of the first packet to receive, 24 bits.
    pub receive_psn: Option<u32>,
    /// Packet sequence number of the first packet to send, 24 bits.
    pub send_psn: Option<u32>,
    /// Reads and atomics that the peer may have outstanding here.
    pub responder_resources: Option<u8>,
    /// Reads and atomics that this queue pair may have outstanding.
    pub initiator_depth: Option<u8>,
    /// The peer's queue pair.
    pub remote_qp: Option<QpNumber>,
}
