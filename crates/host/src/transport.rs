//! Transports of a host: each is one object that owns its control plane and its engine.
use crate::demux::{Claim, Claims};
use crate::net::{Flushed, Net, Received};
use engine::{DropCounts, Exception, Nanos, Recorder};
use port::{Frame, FramePool};

/// A transport of a host.
pub trait Transport: Send {
    /// For people and captures: `udp_echo`.
    fn name(&self) -> &'static str;
    /// The frames that it processes. Asked once, when it is added.
    fn claims(&self) -> Vec<Claim>;
    /// One bounded round on the frames that it claims, which it drains. Returns how much was done; 0 means idle.
    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize;
    /// There is something to do now. Looked at before sleeping.
    fn has_work(&self, now: Nanos) -> bool;
    /// When something is due by itself.
    fn next_deadline(&self) -> Option<Nanos>;
}

/// What a transport uses of its host.
pub struct Io<'a> {
    /// The network layer: packets of the control plane go through it.
    pub net: &'a mut Net,
    /// Frames to send, in order: those that the data-path built itself.
    pub tx: &'a mut Vec<Box<Frame>>,
    /// Frames to use and to give back.
    pub pool: &'a mut FramePool,
    /// What was dropped, host-wide.
    pub drops: &'a mut DropCounts,
    /// While somebody captures: takes each frame, with what became of it.
    pub recorder: Option<&'a mut Recorder>,
}

/// A transport, and the frames that it is to process; none between polls.
struct Seat {
    transport: Box<dyn Transport>,
    frames: Vec<Box<Frame>>,
}

/// Transports with claims of their own. What none of them claims is their host's.
#[derive(Default)]
pub struct Transports {
    list: Vec<Seat>,
    claims: Claims,
    /// Empty between polls.
    received: Vec<Box<Frame>>,
}

impl Transports {
    /// There is none: no frame needs to be looked at.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a transport.
    ///
    /// # Errors
    /// A sentence, where another one claims the same frames; then this one is not added.
    pub fn add(&mut self, transport: Box<dyn Transport>) -> Result<(), String> {
        let claims = transport.claims();
        let taken = claims.iter().find_map(|claim| self.claims.find(*claim).map(|owner| (claim, owner)));
        if let Some((claim, owner)) = taken {
            let (name, other) = (transport.name(), self.list[owner].transport.name());
            return Err(format!("transport {name} claims {claim}, which {other} has already"));
        }
        claims.into_iter().for_each(|claim| self.claims.add(claim, self.list.len()));
        self.list.push(Seat { transport, frames: Vec::new() });
        Ok(())
    }

    /// Takes out of `rx` what is claimed, and polls every transport once. Returns how much was done.
    pub fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        std::mem::swap(rx, &mut self.received);
        for frame in self.received.drain(..) {
            match self.claims.owner(&frame) {
                Some(owner) => self.list[owner].frames.push(frame),
                None => rx.push(frame),
            }
        }
        self.list.iter_mut().map(|seat| seat.transport.poll(now, &mut seat.frames, io)).sum()
    }

    /// Some transport has something to do now.
    pub fn has_work(&self, now: Nanos) -> bool {
        self.list.iter().any(|seat| seat.transport.has_work(now))
    }

    /// When something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.list.iter().filter_map(|seat| seat.transport.next_deadline()).min()
    }
}

/// A host whose transports all have claims: ARP, ICMP and unclaimed frames are its own.
pub struct Host {
    net: Net,
    transports: Transports,
    drops: DropCounts,
    /// Frames that the host sends to itself.
    looped: Vec<(Exception, Box<Frame>)>,
}

impl Host {
    /// A host with this network layer, and no transport yet.
    pub fn new(net: Net) -> Host {
        Host { net, transports: Transports::default(), drops: DropCounts::default(), looped: Vec::new() }
    }

    /// Adds a transport.
    ///
    /// # Errors
    /// As [`Transports::add`].
    pub fn add(&mut self, transport: Box<dyn Transport>) -> Result<(), String> {
        self.transports.add(transport)
    }

    /// One bounded round. Drains `rx`, appends to `tx`. Returns how much was done; 0 means idle.
    pub fn poll(
        &mut self,
        now: Nanos,
        rx: &mut Vec<Box<Frame>>,
        tx: &mut Vec<Box<Frame>>,
        pool: &mut FramePool,
    ) -> usize {
        rx.extend(self.looped.drain(..).map(|(_, frame)| frame));
        let mut done = rx.len();
        while self.net.expire(now, &mut self.drops).is_some() {
            done += 1;
        }
        let io = &mut Io { net: &mut self.net, tx, pool, drops: &mut self.drops, recorder: None };
        done += self.transports.poll(now, rx, io);
        for mut frame in rx.drain(..) {
            if let Received::Packet(ip) = self.net.receive(now, &mut frame, &mut self.drops) {
                self.net.refuse(now, &ip, &frame, &mut self.drops);
            }
            pool.put(frame);
        }
        self.net.flush(pool, &mut self.drops, &mut Flushed { tx, looped: &mut self.looped });
        done
    }

    /// There is something to do now. Looked at before sleeping.
    pub fn has_work(&self, now: Nanos) -> bool {
        let due = self.net.next_due().is_some_and(|due| due <= now);
        due || !self.looped.is_empty() || self.net.has_outgoing() || self.transports.has_work(now)
    }

    /// When something is due by itself.
    pub fn next_deadline(&self) -> Option<Nanos> {
        [self.net.next_due(), self.transports.next_deadline()].into_iter().flatten().min()
    }

    /// Its network layer.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// What it dropped.
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }
}
