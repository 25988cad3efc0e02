//! Ports, where frames enter and leave a host, behind one burst interface: [`Port`].
//!
//! A port moves frames and parses nothing above what it needs to steer. Kinds of ports, with their keys in the
//! configuration, are in `crates/daemon/src/ports.rs`: a new kind is added there.

mod afxdp;
pub mod bpf;
pub mod capture;
mod cut;
pub mod drops;
mod fabric;
mod frame;
mod interface;
mod netlink;
mod netns;
mod pcap;
mod pool;
mod shared;
mod socket;
mod tap;

pub use afxdp::{AfXdp, AfXdpConfig, AfXdpFigures};
pub use capture::Recorder;
pub use cut::{Piece, Source, cut, cut_headers};
pub use drops::{PortDrop, PortDrops};
pub use fabric::{Fabric, FabricConfig, FabricPort, MAX_SUPER_SEGMENT, MemberFigures};
pub use frame::{Checksum, Frame};
pub use interface::{Interface, Offloads};
pub use netns::Netns;
pub use pcap::{Capture, CaptureFigures, Captured};
pub use pool::FramePool;
pub use shared::{SharedPort, TcpPorts, share};
pub use socket::{KernelTcp, kernel_tcp, unacknowledged};
pub use tap::{Tap, TapConfig, local_mac};
pub use wire::Nanos;

use std::os::fd::BorrowedFd;
use wire::Mac;

/// What a port does in place of the engine (offloads).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Most bytes of an IP packet on the wire.
    pub mtu: u16,
    /// Most payload bytes of a super-segment that the port takes in one frame, cutting it itself (TSO) or moving
    /// it whole; 0 where each frame must fit the MTU.
    pub super_segment: u32,
    /// The port completes transport checksums itself, or moves frames where they need none.
    pub checksum: bool,
}

/// Totals of a port since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

/// A device that another process can go on with, while this one has it still. It is to use it once this one does not.
pub struct Handover<'a> {
    /// Which one, as the other process finds it in its configuration: `toe0`, `eth1 queue 0`.
    pub device: String,
    /// What it is made of: [`Tap::adopt`] and [`AfXdp::adopt`] take these, in this order. Nothing of a device that was
    /// deleted.
    pub descriptors: Vec<BorrowedFd<'a>>,
}

/// A burst interface to a network.
pub trait Port: Send {
    /// A short name for people: `tap toe0`, `fabric`.
    fn name(&self) -> String;
    /// What it offers.
    fn capabilities(&self) -> Capabilities;
    /// The hardware address that the host should use on it.
    fn mac(&self) -> Mac;
    /// Appends at most `most` received frames to `into`; returns how many. Never blocks.
    fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize;
    /// Sends all of `frames`, in order, and gives them back to the pool. What the network does not take is dropped
    /// and counted. Never blocks.
    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops);
    /// A descriptor that becomes readable when frames arrive, where there is one: for sleeping.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
    /// The caller is about to sleep: from now until [`Port::awake`], frames that arrive signal [`Port::wait_fd`]. Check
    /// [`Port::has_work`] once more before waiting. A port whose caller never calls this signals at any time.
    fn prepare_to_sleep(&self) {}
    /// The caller polls again: no signals are needed.
    fn awake(&self) {}
    /// When the port next has something to do by itself (a delayed frame falls due), for sleeping.
    fn next_deadline(&self) -> Option<Nanos>;
    /// Something can be received right now, as far as is known without a system call.
    fn has_work(&self, now: Nanos) -> bool;
    /// What another process needs to go on with the device, where there is one.
    fn handover(&self) -> Option<Handover<'_>> {
        None
    }
    /// Totals.
    fn counters(&self) -> PortCounters;
    /// The network behind the port is gone for good (device deleted); a sentence about it.
    fn failure(&self) -> Option<String> {
        None
    }
}
