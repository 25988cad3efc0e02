//! Learning switch: its members, the member of each address, and the destination of a frame.
use super::bell::Bell;
use super::config::FabricConfig;
use super::link::Link;
use crate::capture::{Direction, Fate, Recorder, Sight};
use crate::{Capabilities, Frame, FramePool, Nanos, PortCounters, PortDrop, PortDrops, cut};
use std::collections::HashMap;
use std::sync::Arc;
use wire::{Mac, ethernet};

/// Most addresses learned behind uplinks. At the limit the switch forgets them all and learns anew, which costs a
/// few flooded frames.
const MOST_LEARNED: usize = 4096;

/// A member's place in the switch.
pub(super) type Slot = usize;

pub(super) struct Member {
    pub(super) name: String,
    /// A host's own address; an uplink has many behind it.
    pub(super) mac: Option<Mac>,
    pub(super) link: Link,
    pub(super) bell: Arc<Bell>,
    pub(super) counters: PortCounters,
    pub(super) drops: PortDrops,
    /// What an uplink takes; a host takes everything.
    pub(super) takes: Option<Capabilities>,
}

pub(super) struct Switch {
    config: FabricConfig,
    /// [`FabricConfig::is_perfect`] of the above: read for each frame.
    perfect: bool,
    members: Vec<Option<Member>>,
    /// Addresses of hosts, which do not move, and those learned behind uplinks.
    table: HashMap<Mac, Slot>,
    /// The last one that was looked up: bursts go to one station.
    recent: Option<(Mac, Slot)>,
    learned: usize,
    /// Members that got a frame in this burst: to be notified once.
    touched: Vec<Slot>,
    segments: Vec<Box<Frame>>,
    /// Of frames that are dropped here.
    pub(super) recorder: Recorder,
}

impl Switch {
    pub(super) fn new(config: FabricConfig) -> Switch {
        Switch {
            perfect: config.is_perfect(),
            config,
            members: Vec::new(),
            table: HashMap::new(),
            recent: None,
            learned: 0,
            touched: Vec::new(),
            segments: Vec::new(),
            recorder: Recorder::default(),
        }
    }

    pub(super) fn config(&self) -> &FabricConfig {
        &self.config
    }

    /// Changes the impairments. Frames on their way keep the times they have.
    pub(super) fn configure(&mut self, config: FabricConfig) {
        if config.seed != self.config.seed {
            for (slot, member) in self.members.iter_mut().enumerate() {
                if let Some(member) = member {
                    member.link.reseed(seed_of(&config, slot));
                }
            }
        }
        self.perfect = config.is_perfect();
        self.config = config;
    }

    pub(super) fn add(&mut self, name: &str, mac: Option<Mac>, takes: Option<Capabilities>, bell: &Arc<Bell>) -> Slot {
        let slot = self.members.iter().position(Option::is_none).unwrap_or(self.members.len());
        let member = Member {
            name: name.into(),
            mac,
            link: Link::new(seed_of(&self.config, slot)),
            bell: Arc::clone(bell),
            counters: PortCounters::default(),
            drops: PortDrops::default(),
            takes,
        };
        if slot == self.members.len() {
            self.members.push(None);
        }
        self.members[slot] = Some(member);
        self.recent = None;
        if let Some(mac) = mac {
            self.table.insert(mac, slot);
        }
        slot
    }

    /// A member leaves; what is on its way to it goes with it.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.members[slot] = None;
        self.recent = None;
        self.table.retain(|_, at| *at != slot);
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }

    pub(super) fn member(&mut self, slot: Slot) -> Option<&mut Member> {
        self.members.get_mut(slot)?.as_mut()
    }

    /// Sends a burst from a member into the network.
    pub(super) fn send(
        &mut self,
        now: Nanos,
        from: Slot,
        frames: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
        drops: &mut PortDrops,
    ) {
        let bytes = frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if let Some(member) = self.member(from) {
            member.counters.tx_frames += frames.len() as u64;
            member.counters.tx_bytes += bytes;
        }
        for frame in frames.drain(..) {
            self.forward(now, from, frame, pool, drops);
        }
        self.wake_members();
        if self.recorder.is_on() {
            self.recorder.hand_over(true);
        }
    }

    /// Appends at most `most` frames that are due to a member.
    pub(super) fn receive(&mut self, now: Nanos, slot: Slot, most: usize, into: &mut Vec<Box<Frame>>) -> usize {
        let Some(member) = self.member(slot) else { return 0 };
        member.link.mature(now);
        let before = into.len();
        while into.len() - before < most {
            let Some(frame) = member.link.pop() else { break };
            member.counters.rx_frames += 1;
            member.counters.rx_bytes += frame.len() as u64;
            into.push(frame);
        }
        member.bell.set_next_due(member.link.next_due());
        into.len() - before
    }

    fn forward(&mut self, now: Nanos, from: Slot, frame: Box<Frame>, pool: &mut FramePool, drops: &mut PortDrops) {
        let Ok(header) = ethernet::Header::parse(frame.bytes()) else {
            return self.refuse(now, from, frame, PortDrop::Ethernet, pool, drops);
        };
        if self.is_too_long(&frame) {
            return self.refuse(now, from, frame, PortDrop::TooLong, pool, drops);
        }
        self.learn(header.src, from);
        if frame.segment_size == 0 || !self.config.needs_single_segments() {
            return self.route(now, from, header.dst, frame, pool, drops);
        }
        let mut segments = std::mem::take(&mut self.segments);
        match cut(frame, pool, &mut segments) {
            Ok(()) => {
                for segment in segments.drain(..) {
                    self.route(now, from, header.dst, segment, pool, drops);
                }
            }
            Err(frame) => self.refuse(now, from, frame, PortDrop::TooLong, pool, drops),
        }
        self.segments = segments;
    }

    /// A super-segment may be as long as an IPv4 packet can be, any other frame as the MTU.
    fn is_too_long(&self, frame: &Frame) -> bool {
        let most = if frame.segment_size > 0 { u16::MAX } else { self.config.mtu };
        frame.exceeds(most)
    }

    fn route(
        &mut self,
        now: Nanos,
        from: Slot,
        to: Mac,
        frame: Box<Frame>,
        pool: &mut FramePool,
        drops: &mut PortDrops,
    ) {
        if to.is_group() {
            return self.flood(now, from, frame, pool, drops, |_| true);
        }
        let found = match self.recent {
            Some((mac, slot)) if mac == to => Some(slot),
            _ => self.table.get(&to).copied(),
        };
        self.recent = found.map(|slot| (to, slot));
        match found {
            Some(slot) if slot != from => self.deliver(now, slot, frame, pool, drops),
            Some(_) => self.refuse(now, from, frame, PortDrop::FabricUnknown, pool, drops),
            // All hosts are known: an unknown station can only be behind an uplink.
            None => self.flood(now, from, frame, pool, drops, |member| member.mac.is_none()),
        }
    }

    /// Copies a frame to all other members that `wanted` names.
    fn flood(
        &mut self,
        now: Nanos,
        from: Slot,
        frame: Box<Frame>,
        pool: &mut FramePool,
        drops: &mut PortDrops,
        wanted: impl Fn(&Member) -> bool,
    ) {
        let mut reached = false;
        for slot in 0..self.members.len() {
            if slot != from && self.members[slot].as_ref().is_some_and(&wanted) {
                reached = true;
                let twin = pool.copy(&frame);
                self.deliver(now, slot, twin, pool, drops);
            }
        }
        if reached {
            pool.put(frame);
        } else {
            self.refuse(now, from, frame, PortDrop::FabricUnknown, pool, drops);
        }
    }

    fn deliver(&mut self, now: Nanos, to: Slot, frame: Box<Frame>, pool: &mut FramePool, drops: &mut PortDrops) {
        let Some(member) = self.members[to].as_mut() else { return pool.put(frame) };
        let recorder = &mut self.recorder;
        let dropped = &mut |reason, frame: &Frame| {
            drops.count(reason);
            member.drops.count(reason);
            if recorder.is_on() {
                recorder.record(now, frame, &dropped_here(reason));
            }
        };
        if self.perfect && member.link.is_clear_for(&frame, &self.config) {
            member.link.pass(frame);
        } else {
            member.link.push(now, frame, &self.config, pool, dropped);
        }
        if !self.touched.contains(&to) {
            self.touched.push(to);
        }
    }

    /// Drops a frame before it is on any link.
    fn refuse(
        &mut self,
        now: Nanos,
        from: Slot,
        frame: Box<Frame>,
        reason: PortDrop,
        pool: &mut FramePool,
        drops: &mut PortDrops,
    ) {
        if self.recorder.is_on() {
            self.recorder.record(now, &frame, &dropped_here(reason));
        }
        pool.put(frame);
        drops.count(reason);
        if let Some(member) = self.member(from) {
            member.drops.count(reason);
        }
    }

    /// Remembers behind which uplink a station is. A host's address is its own: an uplink does not take it over.
    fn learn(&mut self, station: Mac, from: Slot) {
        let is_uplink = self.members[from].as_ref().is_some_and(|member| member.mac.is_none());
        if !is_uplink || station.is_group() || self.table.get(&station).is_some_and(|at| *at == from) {
            return;
        }
        if self.members().any(|member| member.mac == Some(station)) {
            return;
        }
        self.recent = None;
        if self.learned >= MOST_LEARNED {
            let members = &self.members;
            self.table.retain(|_, at| members[*at].as_ref().is_some_and(|member| member.mac.is_some()));
            self.learned = 0;
        }
        self.learned += usize::from(self.table.insert(station, from).is_none());
    }

    /// Notifies each member that got frames in this burst, once.
    fn wake_members(&mut self) {
        for slot in self.touched.drain(..) {
            if let Some(member) = &self.members[slot] {
                member.bell.set_next_due(member.link.next_due());
                member.bell.ring();
            }
        }
    }
}

/// Each link decides by itself, so that traffic on one does not change another one's fate.
fn seed_of(config: &FabricConfig, slot: Slot) -> u64 {
    config.seed ^ (slot as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// What a capture has of a frame that goes no further. It is on its way to a member: into the fabric, seen from there.
fn dropped_here(reason: PortDrop) -> Sight<'static> {
    Sight { direction: Direction::In, flow: None, module: "fabric", fate: Fate::dropped(reason) }
}
