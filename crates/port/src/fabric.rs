//! The built-in emulated network: hosts joined by a switch, in one process.
//!
//! Every member has a link from the switch to it, with the rate, delay, losses and buffer that [`FabricConfig`] asks
//! for. On a perfect link a frame is handed over as it is: super-segments whole, payload by reference, checksums
//! not computed. Nothing here reads a clock; the same seed, frames and times give the same result.

mod bell;
mod config;
mod link;
mod path;
mod random;
mod switch;

pub use config::FabricConfig;

use crate::cut::make_whole;
use crate::{Capabilities, Checksum, Frame, FramePool, Nanos, Port, PortCounters, PortDrops, Recorder, cut};
use bell::Bell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use switch::{Slot, Switch};
use wire::Mac;

/// Most payload bytes of a super-segment on a fabric: with headers it is within an IPv4 packet (65,535 bytes).
pub const MAX_SUPER_SEGMENT: u32 = 65_000;
/// Frames moved over an uplink in one round.
const UPLINK_BURST: usize = 64;
/// An uplink that gave nothing this many times is quiet. As long as it stays so, it is polled only once in
/// [`QUIET_NS`], because each poll may be a system call that the hosts of the fabric would wait for.
const QUIET_POLLS: u32 = 64;
const QUIET_NS: Nanos = 2_000;

/// A handle to an emulated network; clones are handles to the same one.
#[derive(Clone)]
pub struct Fabric(Arc<Shared>);

struct Shared {
    switch: Mutex<Switch>,
    /// Apart from the switch, so that system calls of an uplink do not hold up the hosts.
    uplinks: Mutex<Vec<Uplink>>,
    /// Nothing is taken from the uplinks.
    held: AtomicBool,
}

struct Uplink {
    port: Box<dyn Port>,
    slot: Slot,
    bell: Arc<Bell>,
    received: Vec<Box<Frame>>,
    to_send: Vec<Box<Frame>>,
    /// Polls in a row that gave nothing, and the time of the last one.
    empty_polls: u32,
    polled_at: Nanos,
}

impl Uplink {
    fn receive(&mut self, now: Nanos, pool: &mut FramePool) -> usize {
        let wait = self.empty_polls >= QUIET_POLLS && now < self.polled_at.saturating_add(QUIET_NS);
        if wait || self.port.failure().is_some() {
            return 0;
        }
        let count = self.port.receive(now, UPLINK_BURST, pool, &mut self.received);
        self.empty_polls = if count > 0 { 0 } else { self.empty_polls.saturating_add(1) };
        self.polled_at = now;
        count
    }
}

/// What a member of a fabric has done so far.
#[derive(Debug, Clone, serde::Serialize)]
pub struct MemberFigures {
    /// Its name.
    pub name: String,
    /// Its hardware address; none for an uplink.
    pub mac: Option<String>,
    /// Frames that it received.
    pub rx_frames: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Frames that it sent.
    pub tx_frames: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Bytes on their way to it.
    pub waiting_bytes: u64,
    /// Frames dropped on their way to it, and frames of its own that could go nowhere: by name.
    pub drops: Vec<(&'static str, u64)>,
}

impl Fabric {
    /// An empty network.
    pub fn new(config: FabricConfig) -> Fabric {
        Fabric(Arc::new(Shared {
            switch: Mutex::new(Switch::new(config)),
            uplinks: Mutex::new(Vec::new()),
            held: AtomicBool::new(false),
        }))
    }

    /// A host joins with its hardware address, which no other member may have; it leaves when the port is dropped.
    pub fn join(&self, name: &str, mac: Mac) -> io::Result<FabricPort> {
        let bell = Arc::new(Bell::new()?);
        let mut switch = self.switch();
        if let Some(other) = switch.members().find(|member| member.mac == Some(mac)) {
            let sentence = format!("{} has the hardware address {mac} already", other.name);
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, sentence));
        }
        let slot = switch.add(name, Some(mac), None, &bell);
        Ok(FabricPort { fabric: self.clone(), name: name.into(), mac, slot, bell })
    }

    /// An outside port joins, with all stations behind it. [`Fabric::poll`] moves its frames.
    pub fn uplink(&self, name: &str, port: Box<dyn Port>) -> io::Result<()> {
        let bell = Arc::new(Bell::new()?);
        let slot = self.switch().add(name, None, Some(port.capabilities()), &bell);
        let (received, to_send) = (Vec::new(), Vec::new());
        lock(&self.0.uplinks).push(Uplink { port, slot, bell, received, to_send, empty_polls: 0, polled_at: 0 });
        Ok(())
    }

    /// Moves frames between the uplinks and the switch; returns how many. What is dropped is counted. Where another
    /// thread is at it already, nothing is done.
    pub fn poll(&self, now: Nanos, pool: &mut FramePool, drops: &mut PortDrops) -> usize {
        let mut uplinks = match self.0.uplinks.try_lock() {
            Ok(uplinks) => uplinks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return 0,
        };
        uplinks.iter_mut().map(|uplink| self.pump(now, uplink, pool, drops)).sum()
    }

    /// From now on, frames from outside wait in the uplinks' devices, or they come in again. Those that hosts
    /// send go out either way.
    pub fn hold_uplinks(&self, held: bool) {
        self.0.held.store(held, Ordering::Relaxed);
    }

    /// What `read` gives for each uplink, in the order in which they joined.
    pub fn each_uplink<T>(&self, read: impl FnMut(&dyn Port) -> T) -> Vec<T> {
        lock(&self.0.uplinks).iter().map(|uplink| &*uplink.port).map(read).collect()
    }

    /// Descriptors that become readable when [`Fabric::poll`] has something to do: the uplinks' own, and those that
    /// distinguish that a host on another thread sent to one. They are duplicates and belong to the caller; ask again
    /// after adding an uplink.
    pub fn wait_fds(&self) -> io::Result<Vec<OwnedFd>> {
        let mut fds = Vec::new();
        for uplink in lock(&self.0.uplinks).iter() {
            if let Some(fd) = uplink.port.wait_fd() {
                fds.push(fd.try_clone_to_owned()?);
            }
            fds.push(uplink.bell.fd().try_clone_to_owned()?);
        }
        Ok(fds)
    }

    /// As [`Port::prepare_to_sleep`], for the thread that calls [`Fabric::poll`].
    pub fn prepare_to_sleep(&self) {
        lock(&self.0.uplinks).iter().for_each(|uplink| {
            uplink.bell.set_asleep(true);
            uplink.port.prepare_to_sleep();
        });
    }

    /// As [`Port::awake`], for the thread that calls [`Fabric::poll`].
    pub fn awake(&self) {
        lock(&self.0.uplinks).iter_mut().for_each(|uplink| {
            uplink.bell.set_asleep(false);
            uplink.port.awake();
            uplink.empty_polls = 0;
        });
    }

    /// As [`Port::has_work`], for [`Fabric::poll`].
    pub fn has_work(&self, now: Nanos) -> bool {
        lock(&self.0.uplinks).iter().any(|uplink| uplink.bell.next_due() <= now || uplink.port.has_work(now))
    }

    /// As [`Port::next_deadline`], for [`Fabric::poll`].
    pub fn next_deadline(&self) -> Option<Nanos> {
        let uplinks = lock(&self.0.uplinks);
        uplinks.iter().flat_map(|uplink| [deadline(&uplink.bell), uplink.port.next_deadline()]).flatten().min()
    }

    /// Sentences about uplinks that are gone for good.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.0.uplinks).iter().filter_map(|uplink| uplink.port.failure()).collect()
    }

    /// Changes the impairments at run time. Frames on their way keep the times they have. Super-segments of flows
    /// that began before are cut where single frames now matter.
    pub fn configure(&self, config: FabricConfig) {
        self.switch().configure(config);
    }

    /// The impairments as they are.
    pub fn config(&self) -> FabricConfig {
        self.switch().config().clone()
    }

    /// Does something with the recorder of the frames that the fabric drops.
    pub fn with_recorder<T>(&self, act: impl FnOnce(&mut Recorder) -> T) -> T {
        act(&mut self.switch().recorder)
    }

    /// What each member has done so far.
    pub fn members(&self) -> Vec<MemberFigures> {
        let figures = |member: &switch::Member| MemberFigures {
            name: member.name.clone(),
            mac: member.mac.map(|mac| mac.to_string()),
            rx_frames: member.counters.rx_frames,
            rx_bytes: member.counters.rx_bytes,
            tx_frames: member.counters.tx_frames,
            tx_bytes: member.counters.tx_bytes,
            waiting_bytes: member.link.bytes(),
            drops: member.drops.iter().map(|(reason, count)| (reason.label(), count)).collect(),
        };
        self.switch().members().map(figures).collect()
    }

    /// What the fabric offers its hosts: what the impairments leave, and what all uplinks take. Checksums that an
    /// uplink needs complete are completed on the way.
    pub fn capabilities(&self) -> Capabilities {
        let switch = self.switch();
        let single = switch.config().needs_single_segments();
        let mut offer = Capabilities {
            mtu: switch.config().mtu,
            super_segment: if single { 0 } else { MAX_SUPER_SEGMENT },
            checksum: !single,
        };
        for takes in switch.members().filter_map(|member| member.takes) {
            offer.mtu = offer.mtu.min(takes.mtu);
            offer.super_segment = offer.super_segment.min(takes.super_segment);
        }
        offer
    }

    fn pump(&self, now: Nanos, uplink: &mut Uplink, pool: &mut FramePool, drops: &mut PortDrops) -> usize {
        uplink.bell.clear();
        let inwards = if self.0.held.load(Ordering::Relaxed) { 0 } else { uplink.receive(now, pool) };
        let Uplink { port, slot, bell, received, to_send, .. } = uplink;
        if inwards > 0 {
            self.switch().send(now, *slot, received, pool, drops);
        }
        let due = bell.next_due() <= now;
        let outwards = if due { self.switch().receive(now, *slot, UPLINK_BURST, to_send) } else { 0 };
        if outwards > 0 {
            adapt(to_send, port.capabilities(), pool, drops);
            port.send(now, to_send, pool, drops);
        }
        inwards + outwards
    }

    fn switch(&self) -> MutexGuard<'_, Switch> {
        lock(&self.0.switch)
    }
}

/// Cuts and completes what the port does not do itself.
fn adapt(frames: &mut Vec<Box<Frame>>, takes: Capabilities, pool: &mut FramePool, drops: &mut PortDrops) {
    make_whole(frames, pool, drops);
    if takes.super_segment == 0 && frames.iter().any(|frame| frame.segment_size > 0) {
        for frame in std::mem::take(frames) {
            if frame.segment_size == 0 {
                frames.push(frame);
            } else if let Err(frame) = cut(frame, pool, frames) {
                pool.put(frame);
                drops.count(crate::PortDrop::TooLong);
            }
        }
    }
    if !takes.checksum {
        let partial = |frame: &&mut Box<Frame>| matches!(frame.checksum, Checksum::Partial { .. });
        frames.iter_mut().filter(partial).for_each(|frame| frame.complete_checksum());
    }
}

/// A host's port on a fabric.
pub struct FabricPort {
    fabric: Fabric,
    name: String,
    mac: Mac,
    slot: Slot,
    bell: Arc<Bell>,
}

impl Port for FabricPort {
    fn name(&self) -> String {
        format!("fabric {}", self.name)
    }

    fn capabilities(&self) -> Capabilities {
        self.fabric.capabilities()
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn receive(&mut self, now: Nanos, most: usize, _pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        self.bell.clear();
        if self.bell.next_due() > now {
            return 0;
        }
        self.fabric.switch().receive(now, self.slot, most, into)
    }

    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        if !frames.is_empty() {
            self.fabric.switch().send(now, self.slot, frames, pool, drops);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.fd())
    }

    fn prepare_to_sleep(&self) {
        self.bell.set_asleep(true);
    }

    fn awake(&self) {
        self.bell.set_asleep(false);
    }

    fn next_deadline(&self) -> Option<Nanos> {
        deadline(&self.bell)
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.bell.next_due() <= now
    }

    fn counters(&self) -> PortCounters {
        self.fabric.switch().member(self.slot).map_or_else(PortCounters::default, |member| member.counters)
    }
}

impl std::ops::Drop for FabricPort {
    fn drop(&mut self) {
        self.fabric.switch().remove(self.slot);
    }
}

fn deadline(bell: &Bell) -> Option<Nanos> {
    Some(bell.next_due()).filter(|due| *due != Nanos::MAX)
}

/// Locks, also after another thread panicked: the switch's state is whole between statements that can.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
