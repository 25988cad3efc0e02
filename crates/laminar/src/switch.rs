//! The glue around the program, from parser to deparser: ports, traffic manager, mirror (thesis section 5.2).
use crate::descriptor::{Dma, PORT_CPU, PORT_HOST, PORT_NET, segment};
use crate::program::Program;
use engine::Frame;
use rmt::native::{Batch, Input};
use std::collections::VecDeque;

/// Packets that go through a half together.
const BATCH: usize = 64;
/// Packets that wait between the halves at most.
const QUEUE: usize = 4096;
/// Bytes of the longest header that a half puts in front, with room.
const HEAD: usize = 80;

/// What goes along with a packet beside the pipeline: the program never sees payload.
#[derive(Debug)]
pub(crate) enum Carried {
    Nothing,
    /// A frame, and where its payload begins.
    Received(Box<Frame>, usize),
    /// A segment of a flow's transmit buffer: flow, stream position, payload bytes.
    Payload {
        flow: u32,
        position: u32,
        len: u32,
    },
}

/// What became of a packet.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A descriptor for the host.
    Host(Dma, Carried),
    /// A frame for the network: its headers.
    Network([u8; HEAD], usize, Carried),
    /// A frame that goes out as it is.
    Forward(Box<Frame>),
    /// The exception path.
    Cpu(Box<Frame>),
    /// Dropped at ingress.
    Refused(Carried),
    /// Dropped at egress: flow, payload bytes, and whether an acknowledgement is sent for it.
    Spent(u16, u16, bool, Carried),
    /// The traffic manager had no room.
    Overflow(Carried),
}

/// A packet between ingress and egress.
struct Item {
    port: u16,
    queue: u8,
    head: [u8; HEAD],
    len: usize,
    carried: Carried,
}

/// A packet of the host, the control plane or the packet generator, for ingress.
pub(crate) struct Entry {
    pub port: u16,
    pub bytes: [u8; 36],
    pub carried: Carried,
}

/// The switch.
pub(crate) struct Switch {
    pub program: Program,
    ingress: Batch,
    egress: Batch,
    queue: VecDeque<Item>,
    taken: Vec<Item>,
    /// Results, in order, for the caller to take.
    pub outcomes: Vec<Outcome>,
    /// Packets through ingress, through egress, and pseudo segments among these.
    pub counts: [u64; 3],
}

impl Switch {
    pub fn new(program: Program) -> Switch {
        Switch {
            program,
            ingress: Batch::default(),
            egress: Batch::default(),
            queue: VecDeque::with_capacity(BATCH),
            taken: Vec::with_capacity(BATCH),
            outcomes: Vec::with_capacity(BATCH),
            counts: [0; 3],
        }
    }

    /// Frames from a port through both halves.
    pub fn frames(&mut self, port: u16, frames: &mut Vec<Box<Frame>>) {
        let inputs = frames.iter().map(|f| Input { port, queue: 0, bytes: f.bytes(), length: f.len() });
        self.program.native.ingress(inputs, &mut self.ingress);
        self.counts[0] += frames.len() as u64;
        for (at, mut frame) in frames.drain(..).enumerate() {
            let output = self.ingress.outputs[at];
            if output.kept && output.bypass {
                rewrite(&mut frame, self.ingress.head(&output), output.rest);
                let to_cpu = output.port == PORT_CPU;
                self.outcomes.push(if to_cpu { Outcome::Cpu(frame) } else { Outcome::Forward(frame) });
                continue;
            }
            self.admit(at, Carried::Received(frame, output.rest));
        }
        self.drain();
    }

    /// Packets that are headers only, through both halves.
    pub fn entries(&mut self, entries: &mut Vec<Entry>) {
        let inputs = entries.iter().map(|e| {
            let payload = if let Carried::Payload { len, .. } = e.carried { len as usize } else { 0 };
            Input { port: e.port, queue: 0, bytes: &e.bytes, length: e.bytes.len() + payload }
        });
        self.program.native.ingress(inputs, &mut self.ingress);
        self.counts[0] += entries.len() as u64;
        for (at, entry) in entries.drain(..).enumerate() {
            self.admit(at, entry.carried);
        }
        self.drain();
    }

    /// Into the traffic manager, if ingress let the packet pass.
    fn admit(&mut self, at: usize, carried: Carried) {
        let output = self.ingress.outputs[at];
        if !output.kept {
            return self.outcomes.push(Outcome::Refused(carried));
        }
        if self.queue.len() >= QUEUE {
            return self.outcomes.push(Outcome::Overflow(carried));
        }
        let (head, len) = copied(self.ingress.head(&output));
        self.queue.push_back(Item { port: output.port, queue: output.queue, head, len, carried });
    }

    /// Egress, until nothing waits: pseudo segments follow what they came of.
    fn drain(&mut self) {
        while !self.queue.is_empty() {
            let count = self.queue.len().min(BATCH);
            self.taken.extend(self.queue.drain(..count));
            let input = |item: &'_ Item| (item.port, item.queue, item.len);
            let inputs = self.taken.iter().map(|item| {
                let (port, queue, len) = input(item);
                Input { port, queue, bytes: &item.head[..len], length: len }
            });
            self.program.native.egress(inputs, &mut self.egress);
            self.counts[1] += count as u64;
            let mut taken = std::mem::take(&mut self.taken);
            for (at, item) in taken.drain(..).enumerate() {
                self.leave(at, item);
            }
            self.taken = taken;
        }
    }

    fn leave(&mut self, at: usize, item: Item) {
        let output = self.egress.outputs[at];
        let copies = self.egress.mirrors(&output);
        let answered = !copies.is_empty();
        for copy in copies {
            self.counts[2] += 1;
            if self.queue.len() < QUEUE {
                let (head, len) = copied(copy.front());
                let (port, queue) = (copy.port, copy.queue);
                self.queue.push_back(Item { port, queue, head, len, carried: Carried::Nothing });
            }
        }
        let head = self.egress.head(&output);
        let outcome = if !output.kept {
            let (flow, length) = segment(&item.head[..item.len]).unwrap_or((u16::MAX, 0));
            Outcome::Spent(flow, length, answered, item.carried)
        } else if item.port == PORT_HOST {
            match Dma::parse(head) {
                Some(dma) => Outcome::Host(dma, item.carried),
                None => Outcome::Refused(item.carried),
            }
        } else {
            let (head, len) = copied(head);
            Outcome::Network(head, len, item.carried)
        };
        self.outcomes.push(outcome);
    }
}

fn copied(bytes: &[u8]) -> ([u8; HEAD], usize) {
    let mut head = [0; HEAD];
    let len = bytes.len().min(HEAD);
    head[..len].copy_from_slice(&bytes[..len]);
    (head, len)
}

/// Puts the deparser's headers in the place of those that the parser took.
fn rewrite(frame: &mut Frame, head: &[u8], rest: usize) {
    if head.len() == rest {
        frame.bytes_mut()[..rest].copy_from_slice(head);
    } else if frame.strip_front(rest) {
        frame.grow_front(head.len());
        frame.bytes_mut()[..head.len()].copy_from_slice(head);
    }
}

// A `seg_h` and the longest headers that egress emits, dma_h or Ethernet, IPv4 and TCP with timestamps and a block, fit.
const _: () = assert!(crate::descriptor::SEG_LEN <= HEAD && crate::descriptor::DMA_LEN <= HEAD && 54 + 24 <= HEAD);
const _: () = assert!(PORT_NET != PORT_CPU);
