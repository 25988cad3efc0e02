//! Configuration of a shard.
use crate::congestion::Congestion;
use memory::MemoryTable;
use std::sync::Arc;
use verbs::Mtu;
use wire::Mac;

/// How lost packets are made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// All packets from the lost one on are sent again (IBTA 1.3, 9.7.5.2.4).
    #[default]
    GoBackN,
    /// Lost packets only, with peers that do it as well; with others, go-back-N.
    SelectiveRepeat,
}

/// How payload comes into frames that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransmitPath {
    /// Frames refer to it ("header-only TX", SmartNS section 3.2), but for short messages, which travel together.
    #[default]
    Auto,
    /// As above, and only messages travel together to which no frame would refer: for experiments.
    HeaderOnly,
    /// All of it is copied into frames, for experiments: what SmartNS compares with (section 5.3).
    Staged,
}

/// What carries a shard's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LowerLayer {
    /// Packets of RoCEv2.
    #[default]
    Packets,
    /// Messages over a stream, which somebody else carries ([`crate::Shard::next_message`],
    /// [`crate::Shard::next_datagram`]): reliable connections without atomics, and datagrams.
    Stream,
}

/// What raw packets of a program may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawPackets {
    /// The host's hardware address: the source of each frame.
    pub source: Mac,
    /// Bytes of a frame at most.
    pub most_bytes: u32,
}

/// What a shard may hold and do at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Address handles.
    pub handles: u32,
    /// Packets that a queue pair may have sent without an acknowledgement; below 2^22.
    pub window: u32,
    /// Reads and atomics outstanding at a queue pair, either way.
    pub reads: u8,
    /// Bytes of a message.
    pub message_bytes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { qps: 4096, cqs: 1024, srqs: 256, handles: 4096, window: 256, reads: 128, message_bytes: 1 << 30 }
    }
}

/// What a shard is made of.
#[derive(Clone)]
pub struct ShardConfig {
    /// Registered memory of all programs. What a queue pair reaches is decided by its protection domain, which the
    /// caller numbers so that no two programs have the same.
    pub table: Arc<MemoryTable>,
    /// Limits.
    pub limits: Limits,
    /// How lost packets are made up for.
    pub recovery: Recovery,
    /// With peers that repeat selectively as well, packets with payload take 2^`spray` paths in turn; at most 7.
    pub spray: u8,
    /// How payload comes into frames.
    pub transmit_path: TransmitPath,
    /// How connected queue pairs answer congestion.
    pub congestion: Congestion,
    /// What carries its requests.
    pub lower_layer: LowerLayer,
    /// The largest packet that the port carries: a datagram's payload at most.
    pub mtu: Mtu,
    /// Where the program may send and receive whole frames.
    pub raw: Option<RawPackets>,
}
