//! Configuration of a device, and its attributes.
use crate::gid;
use crate::objects::Most;
use memory::MemoryTable;
use smartns::{Congestion, LowerLayer, RawPackets, Recovery, ShardConfig, TransmitPath};
use std::net::Ipv4Addr;
use std::sync::Arc;
use verbs::attach::{Device as Stated, Limits};
use verbs::{MOST_INLINE, MOST_PIECES, Mtu};
use wire::{Mac, ethernet};

/// Packets that a queue pair may have sent without an acknowledgement.
const WINDOW: u32 = 256;

/// Bytes of an Ethernet header with a VLAN tag.
const MOST_ETHERNET: u32 = (ethernet::HEADER_LEN + ethernet::TAG_LEN) as u32;

/// Rules for frames of a program: each frame that no transport claims is compared with all.
const FLOWS: u32 = 256;

/// Bytes of all memory regions of a program. Of those that the data-path maps, each page costs it 8 bytes.
const REGISTERED: u64 = 64 << 30;
/// Bytes of the regions of a program's queues.
const QUEUES: u64 = 512 << 20;

/// A host's RDMA device.
#[derive(Clone)]
pub struct Config {
    /// Name of its host, for people.
    pub host: String,
    /// `ibv_get_device_name`: `toe0`.
    pub name: String,
    /// The host's hardware address.
    pub mac: Mac,
    /// The host's address.
    pub address: Ipv4Addr,
    /// Most bytes of an IP packet.
    pub ip_mtu: u16,
    /// Gigabits a second, for people and programs that ask.
    pub speed: u32,
    /// What each program may have.
    pub limits: Limits,
    /// Programs at once.
    pub programs: u32,
    /// How lost packets are made up for.
    pub recovery: Recovery,
    /// With peers that repeat selectively as well, packets with payload take 2^`spray` paths in turn; at most 7.
    pub spray: u8,
    /// How payload comes into frames.
    pub transmit_path: TransmitPath,
    /// How connected queue pairs answer congestion.
    pub congestion: Congestion,
    /// Programs may send and receive whole Ethernet frames.
    pub raw_packets: bool,
    /// What carries their requests. Over streams, their carrier finds the ways to peers, too.
    pub lower_layer: LowerLayer,
    /// Registered memory of all programs of the daemon.
    pub table: Arc<MemoryTable>,
    /// Makes numbers of queue pairs unguessable.
    pub secret: [u8; 16],
}

/// What a program may have by default.
pub const LIMITS: Limits = Limits {
    qps: 4096,
    work_requests: 16_384,
    pieces: MOST_PIECES as u32,
    inline: MOST_INLINE as u32,
    cqs: 1024,
    completions: 1 << 18,
    regions: 4096,
    region_bytes: 64 << 30,
    domains: 256,
    reads: 128,
    srqs: 256,
    handles: 4096,
    windows: 4096,
    memberships: 256,
    message_bytes: 1 << 30,
};

impl Config {
    /// Payload of a packet at most; `None` where the port carries too little for any.
    pub fn mtu(&self) -> Option<Mtu> {
        Mtu::fitting(self.ip_mtu.into())
    }

    /// What programs get.
    pub fn stated(&self) -> Option<Stated> {
        Some(Stated {
            name: self.name.clone(),
            mac: self.mac,
            gids: gid::table(self.mac, self.address.into()),
            mtu: self.mtu()?,
            speed: self.speed,
            atomics: self.lower_layer == LowerLayer::Packets,
            xrc: self.lower_layer == LowerLayer::Packets,
            limits: self.limits,
        })
    }

    pub(crate) fn shard(&self, mtu: Mtu) -> ShardConfig {
        let l = &self.limits;
        let limits = smartns::Limits {
            qps: l.qps,
            cqs: l.cqs,
            srqs: l.srqs,
            handles: l.handles,
            window: WINDOW,
            reads: l.reads,
            message_bytes: l.message_bytes,
        };
        let (recovery, congestion) = (self.recovery, self.congestion);
        let most_bytes = u32::from(self.ip_mtu) + MOST_ETHERNET;
        let raw = self.raw_packets.then_some(RawPackets { source: self.mac, most_bytes });
        ShardConfig {
            table: Arc::clone(&self.table),
            limits,
            recovery,
            spray: self.spray,
            transmit_path: self.transmit_path,
            congestion,
            lower_layer: self.lower_layer,
            mtu,
            raw,
        }
    }
}

impl Most {
    /// What these limits allow.
    pub fn of(limits: &Limits) -> Most {
        Most {
            region_bytes: REGISTERED,
            queue_bytes: QUEUES,
            domains: limits.domains,
            regions: limits.regions,
            channels: limits.cqs,
            cqs: limits.cqs,
            srqs: limits.srqs,
            qps: limits.qps,
            handles: limits.handles,
            windows: limits.windows,
            flows: FLOWS,
        }
    }
}
