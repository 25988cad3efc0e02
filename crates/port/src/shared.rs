//! Shared port of two stacks that have the same addresses (docs/ZERONIC.md, "One address for all"). Each received frame
//! goes to the one that it is for. TCP segments go by their local port, and so do ICMP errors about them; everything
//! else is the first stack's, which answers ARP requests. Both get ARP replies, since either may have asked. A frame
//! that a stack sends to the own hardware address is for the other stack, and does not leave.
mod tcp_ports;

pub use tcp_ports::TcpPorts;

use crate::{Capabilities, Frame, FramePool, Nanos, Port, PortCounters, PortDrop, PortDrops};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::{EtherType, Mac, arp, ethernet};

/// Frames that may wait for a stack: where more do, they wait in the network instead, which drops what it must.
const WAITING: usize = 256;

/// Receiver of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    First,
    Second,
    Both,
}

struct Inner {
    port: Box<dyn Port>,
    ports: Arc<TcpPorts>,
    received: Vec<Box<Frame>>,
    /// Frames of the first stack and of the second.
    waiting: [VecDeque<Box<Frame>>; 2],
}

/// One stack's part of a port.
pub struct SharedPort {
    inner: Arc<Mutex<Inner>>,
    name: String,
    mac: Mac,
    wait: Option<OwnedFd>,
    /// 0 or 1.
    stack: usize,
    counters: PortCounters,
}

/// Divides a port between two stacks of one thread, which have one hardware address and the same addresses.
///
/// # Errors
/// The system has no descriptor left.
pub fn share(port: Box<dyn Port>, ports: &Arc<TcpPorts>) -> io::Result<[SharedPort; 2]> {
    let (name, mac) = (port.name(), port.mac());
    let wait = |port: &dyn Port| port.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    let waits = [wait(&*port)?, wait(&*port)?];
    let (received, waiting) = (Vec::new(), [VecDeque::new(), VecDeque::new()]);
    let inner = Arc::new(Mutex::new(Inner { port, ports: Arc::clone(ports), received, waiting }));
    let mut stack = 0;
    Ok(waits.map(|wait| {
        let own = SharedPort {
            inner: Arc::clone(&inner),
            name: name.clone(),
            mac,
            wait,
            stack,
            counters: PortCounters::default(),
        };
        stack += 1;
        own
    }))
}

impl Inner {
    /// Takes at most `most` frames from the network.
    fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool) {
        if self.waiting.iter().any(|waiting| waiting.len() >= WAITING) {
            return;
        }
        self.port.receive(now, most, pool, &mut self.received);
        let [first, second] = &mut self.waiting;
        for frame in self.received.drain(..) {
            match whose(frame.bytes(), &self.ports) {
                For::First => first.push_back(frame),
                For::Second => second.push_back(frame),
                For::Both => {
                    second.push_back(pool.copy(&frame));
                    first.push_back(frame);
                }
            }
        }
    }
}

impl SharedPort {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port for SharedPort {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner().port.capabilities()
    }

    fn mac(&self) -> Mac {
        self.mac
    }

    fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        let mut inner = self.inner();
        if inner.waiting[self.stack].len() < most {
            inner.receive(now, most, pool);
        }
        let waiting = &mut inner.waiting[self.stack];
        let count = waiting.len().min(most);
        let before = into.len();
        into.extend(waiting.drain(..count));
        drop(inner);
        self.counters.rx_frames += count as u64;
        self.counters.rx_bytes += into[before..].iter().map(|frame| frame.len() as u64).sum::<u64>();
        count
    }

    fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool, drops: &mut PortDrops) {
        self.counters.tx_frames += frames.len() as u64;
        self.counters.tx_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        let mut inner = self.inner();
        let to_other = |frame: &Frame| frame.bytes().starts_with(&self.mac.0);
        if frames.iter().any(|frame| to_other(frame)) {
            let waiting = &mut inner.waiting[1 - self.stack];
            let (own, others): (Vec<_>, Vec<_>) = frames.drain(..).partition(|frame| to_other(frame));
            frames.extend(others);
            for frame in own {
                // A copy, since what a frame refers to is its sender's, which may end before the other stack reads it.
                if waiting.len() < WAITING {
                    waiting.push_back(pool.copy(&frame));
                } else {
                    drops.count(PortDrop::PortQueue);
                }
                pool.put(frame);
            }
        }
        inner.port.send(now, frames, pool, drops);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait.as_ref().map(AsFd::as_fd)
    }

    fn prepare_to_sleep(&self) {
        self.inner().port.prepare_to_sleep();
    }

    fn awake(&self) {
        self.inner().port.awake();
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.inner().port.next_deadline()
    }

    fn has_work(&self, now: Nanos) -> bool {
        let inner = self.inner();
        !inner.waiting[self.stack].is_empty() || inner.port.has_work(now)
    }

    fn counters(&self) -> PortCounters {
        self.counters
    }

    fn failure(&self) -> Option<String> {
        self.inner().port.failure()
    }
}

fn whose(frame: &[u8], ports: &TcpPorts) -> For {
    let Ok(header) = ethernet::Header::parse(frame) else { return For::First };
    let packet = &frame[ethernet::HEADER_LEN..];
    match header.ethertype {
        EtherType::Ipv4 if ports.is_for_second(packet) => For::Second,
        EtherType::Arp => match arp::Packet::parse(packet) {
            Ok(arp::Packet { operation: arp::Operation::Reply, .. }) => For::Both,
            _ => For::First,
        },
        _ => For::First,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, FabricConfig};
    use wire::ipv4::{self, TCP};
    use wire::tcp::Flags;
    use wire::{Seq, tcp};

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const PEERS: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn ports() -> Arc<TcpPorts> {
        let ports = TcpPorts::new(61_000..=65_535);
        assert!(ports.take(4791));
        Arc::new(ports)
    }

    /// A segment to this port, whose sequence number distinguishes it from others.
    fn segment(to: u16, number: u32) -> Vec<u8> {
        segment_of(to, number, Flags::ACK)
    }

    fn segment_of(to: u16, number: u32, flags: Flags) -> Vec<u8> {
        let (src, dst) = ([10, 0, 0, 9].into(), [10, 0, 0, 1].into());
        let header = tcp::Header {
            src_port: 80,
            dst_port: to,
            seq: Seq(number),
            ack: Seq(0),
            flags,
            window: 0,
            options: tcp::Options::default(),
        };
        let mut frame = vec![0; ethernet::HEADER_LEN + ipv4::HEADER_LEN + header.len()];
        ethernet::Header { dst: OWN, src: PEERS, ethertype: EtherType::Ipv4 }.emit(&mut frame);
        let (ip, body) = frame[ethernet::HEADER_LEN..].split_at_mut(ipv4::HEADER_LEN);
        ipv4::Header::new(TCP, (src, dst), header.len() as u16).emit(ip);
        header.emit(body);
        frame
    }

    fn number(frame: &Frame) -> u32 {
        let at = ethernet::HEADER_LEN + ipv4::HEADER_LEN;
        tcp::Header::parse(&frame.bytes()[at..]).unwrap().0.seq.0
    }

    fn send(peer: &mut impl Port, pool: &mut FramePool, segments: impl Iterator<Item = Vec<u8>>) {
        let frame = |bytes: Vec<u8>| {
            let mut frame = pool.small();
            frame.bytes_vec().extend(bytes);
            frame
        };
        let mut frames: Vec<_> = segments.map(frame).collect();
        peer.send(1, &mut frames, pool, &mut PortDrops::default());
    }

    /// A peer, and the parts of a port that is shared.
    fn network() -> (crate::FabricPort, [SharedPort; 2]) {
        let fabric = Fabric::new(FabricConfig::default());
        let port = fabric.join("shared", OWN).unwrap();
        (fabric.join("peer", PEERS).unwrap(), share(Box::new(port), &ports()).unwrap())
    }

    #[test]
    fn old_segments_go_to_the_second_stack_and_syns_to_the_first() {
        let ports = ports();
        assert!(ports.take(80));
        let to = |flags| whose(&segment_of(80, 0, flags), &ports);
        let all = [Flags::SYN, Flags::ACK, Flags::FIN | Flags::ACK, Flags::SYN | Flags::ACK, Flags::RST];
        assert_eq!(all.map(to), [For::Second; 5]);
        ports.leave(80);
        let others = [For::Second; 4];
        assert_eq!((to(all[0]), [all[1], all[2], all[3], all[4]].map(to)), (For::First, others));
        ports.bind(80, true);
        assert_eq!(all.map(to), [For::First; 5], "the first stack's, from then on");
    }

    #[test]
    fn segments_go_to_whose_port_it_is_and_arp_replies_to_both() {
        let ports = ports();
        let to = |port| whose(&segment(port, 0), &ports);
        assert_eq!([80, 4791, 61_000, 65_535].map(to), [For::First, For::Second, For::Second, For::Second]);
        let arp = |operation| {
            let mut frame = vec![0; ethernet::HEADER_LEN + arp::LEN];
            ethernet::Header { dst: OWN, src: PEERS, ethertype: EtherType::Arp }.emit(&mut frame);
            let ip = |last| [10, 0, 0, last].into();
            arp::Packet { operation, sender_mac: PEERS, sender_ip: ip(9), target_mac: OWN, target_ip: ip(1) }
                .emit(&mut frame[ethernet::HEADER_LEN..]);
            whose(&frame, &ports)
        };
        assert_eq!([arp::Operation::Request, arp::Operation::Reply].map(arp), [For::First, For::Both]);
        let whole = segment(4791, 0);
        assert!((0..30).all(|len| whose(&whole[..len], &ports) == For::First), "frames that end early");
    }

    #[test]
    fn each_stack_receives_its_own_frames_in_order() {
        let (mut peer, mut stacks) = network();
        let mut pool = FramePool::new(64);
        for polls_first in [0, 1] {
            let to = |number| if number % 3 == 0 { 4791 } else { 80 };
            send(&mut peer, &mut pool, (0..40).map(|number| segment(to(number), number)));
            assert!(stacks.iter().all(|stack| stack.has_work(1)));
            let mut got = [Vec::new(), Vec::new()];
            for stack in [polls_first, 1 - polls_first, polls_first, 1 - polls_first] {
                stacks[stack].receive(1, 32, &mut pool, &mut got[stack]);
            }
            let numbers = |of: &[Box<Frame>]| of.iter().map(|frame| number(frame)).collect::<Vec<_>>();
            let of = |port| (0..40).filter(|number| to(*number) == port).collect::<Vec<_>>();
            assert_eq!([numbers(&got[0]), numbers(&got[1])], [of(80), of(4791)]);
            assert!(!stacks.iter().any(|stack| stack.has_work(1)));
        }
        assert_eq!(stacks.map(|stack| stack.counters().rx_frames), [52, 28]);
    }

    #[test]
    fn a_frame_to_the_own_hardware_address_is_the_other_stacks() {
        let (mut peer, mut stacks) = network();
        let (mut pool, mut into) = (FramePool::new(64), Vec::new());
        for stack in [0, 1] {
            let mut own = segment(80, stack as u32);
            own[6..12].copy_from_slice(&OWN.0);
            let mut others = own.clone();
            others[..6].copy_from_slice(&PEERS.0);
            send(&mut stacks[stack], &mut pool, [own, others].into_iter());
            assert!(stacks[1 - stack].has_work(1) && !stacks[stack].has_work(1));
            assert_eq!(stacks[1 - stack].receive(1, 8, &mut pool, &mut into), 1);
            assert_eq!(peer.receive(1, 8, &mut pool, &mut into), 1, "what is for others leaves");
        }
        assert_eq!(into.iter().map(|frame| number(frame)).collect::<Vec<_>>(), [0, 0, 1, 1]);
        // Those that the other one does not take are dropped in the end, and counted.
        let mut drops = PortDrops::default();
        let many = |pool: &mut FramePool| {
            let mut frame = pool.small();
            frame.bytes_vec().extend(segment(80, 7));
            frame
        };
        let mut frames: Vec<_> = (0..WAITING + 3).map(|_| many(&mut pool)).collect();
        stacks[0].send(1, &mut frames, &mut pool, &mut drops);
        assert_eq!(drops.get(PortDrop::PortQueue), 3);
    }

    #[test]
    fn frames_that_a_stack_does_not_take_wait_in_the_network() {
        let (mut peer, [mut first, mut second]) = network();
        let (mut pool, mut into) = (FramePool::new(64), Vec::new());
        for round in 0..10 {
            send(&mut peer, &mut pool, (0..64).map(|number| segment(4791, round * 64 + number)));
            assert_eq!(first.receive(1, 64, &mut pool, &mut into), 0);
        }
        assert_eq!(second.inner().waiting[1].len(), WAITING);
        while second.receive(1, 64, &mut pool, &mut into) > 0 {}
        assert!(into.iter().map(|frame| number(frame)).eq(0..640), "all, in order");
    }
}
