//! The ports of a host, of any kinds: received frames, and the port by which a frame leaves.
use engine::Nanos;
use port::{Frame, FramePool, Port, PortCounters, PortDrops};
use wire::{Mac, ethernet};

/// Most ports of a host.
const MOST: usize = 16;

/// The ports of a host, in the order in which its network layer has them ([`crate::Net::links`]).
pub struct Ports(Vec<PortSlot>);

/// A port, with what it dropped.
struct PortSlot {
    port: Box<dyn Port>,
    mac: Mac,
    drops: PortDrops,
    /// Empty between rounds.
    to_send: Vec<Box<Frame>>,
}

impl Ports {
    /// These ports.
    ///
    /// # Errors
    /// A sentence, where there is none, there are too many, or two have one hardware address: frames leave by the port
    /// whose address they bear.
    pub fn new(ports: Vec<Box<dyn Port>>) -> Result<Ports, String> {
        if ports.is_empty() || ports.len() > MOST {
            return Err(format!("a host has 1 to {MOST} ports, and this one {}", ports.len()));
        }
        let seat =
            |port: Box<dyn Port>| PortSlot { mac: port.mac(), port, drops: PortDrops::default(), to_send: Vec::new() };
        let seats: Vec<PortSlot> = ports.into_iter().map(seat).collect();
        for (at, seat) in seats.iter().enumerate() {
            if let Some(other) = seats[..at].iter().find(|other| other.mac == seat.mac) {
                let (mac, name, other) = (seat.mac, seat.port.name(), other.port.name());
                return Err(format!(
                    "ports {other} and {name} have one hardware address, {mac}: give one of them a `mac`"
                ));
            }
        }
        Ok(Ports(seats))
    }

    /// Appends at most `most` received frames of each port to `into`; returns how many.
    pub fn receive(&mut self, now: Nanos, most: usize, pool: &mut FramePool, into: &mut Vec<Box<Frame>>) -> usize {
        if let [seat] = self.0.as_mut_slice() {
            return seat.port.receive(now, most, pool, into);
        }
        let mut received = 0;
        for (seat, number) in self.0.iter_mut().zip(0..) {
            let before = into.len();
            received += seat.port.receive(now, most, pool, into);
            into[before..].iter_mut().for_each(|frame| frame.port = number);
        }
        received
    }

    /// Sends all of `frames`, in order, each by the port whose hardware address it bears; the first where none has it.
    pub fn send(&mut self, now: Nanos, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        if let [seat] = self.0.as_mut_slice() {
            return seat.port.send(now, frames, pool, &mut seat.drops);
        }
        for frame in frames.drain(..) {
            let src = ethernet::Header::parse(frame.bytes()).ok().map(|header| header.src);
            let at = self.0.iter().position(|seat| Some(seat.mac) == src).unwrap_or(0);
            self.0[at].to_send.push(frame);
        }
        for seat in self.0.iter_mut().filter(|seat| !seat.to_send.is_empty()) {
            seat.port.send(now, &mut seat.to_send, pool, &mut seat.drops);
        }
    }

    /// All ports, in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Port> {
        self.0.iter().map(|seat| &*seat.port)
    }

    /// Drops of all ports.
    pub fn drops(&self) -> PortDrops {
        let mut drops = PortDrops::default();
        self.0.iter().for_each(|seat| drops.merge(&seat.drops));
        drops
    }

    /// Totals of all of them.
    pub fn counters(&self) -> PortCounters {
        self.iter().map(|port| port.counters()).fold(PortCounters::default(), |sum, port| PortCounters {
            rx_frames: sum.rx_frames + port.rx_frames,
            rx_bytes: sum.rx_bytes + port.rx_bytes,
            tx_frames: sum.tx_frames + port.tx_frames,
            tx_bytes: sum.tx_bytes + port.tx_bytes,
        })
    }

    /// The caller is about to sleep ([`Port::prepare_to_sleep`]).
    pub fn prepare_to_sleep(&self) {
        self.iter().for_each(|port| port.prepare_to_sleep());
    }

    /// The caller polls again.
    pub fn awake(&self) {
        self.iter().for_each(|port| port.awake());
    }

    /// Something can be received right now.
    pub fn has_work(&self, now: Nanos) -> bool {
        self.iter().any(|port| port.has_work(now))
    }

    /// The next time at which a port has something to do by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.iter().filter_map(|port| port.next_deadline()).min()
    }
}
