//! The glue around the program, from parser to deparser: ports, traffic manager, mirror (thesis section 5.2).
use crate::descriptor::{DMA_LEN, Dma, LogPlace, PORT_CPU, PORT_HOST, PORT_NET, segment};
use crate::program::Program;
use engine::{Frame, FramePool};
use rmt::ir::Gress;
use rmt::native::{Input, Mirrored, Passes};
use std::collections::VecDeque;

/// Packets that wait between the halves at most.
const QUEUE: usize = 4096;

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

impl Carried {
    /// Bytes behind the headers.
    fn payload(&self) -> usize {
        match self {
            Carried::Nothing => 0,
            Carried::Received(frame, payload_at) => frame.len().saturating_sub(*payload_at),
            Carried::Payload { len, .. } => *len as usize,
        }
    }
}

/// What became of a packet.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A descriptor for the host.
    Host(Dma, Carried),
    /// The same, of payload that has its place in a log.
    Log(Dma, LogPlace, Carried),
    /// A frame for the network: its headers, without payload.
    Network(Box<Frame>, Carried),
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

/// A packet of the host, the control plane or the packet generator, for ingress.
pub(crate) struct Entry {
    pub port: u16,
    pub bytes: [u8; DMA_LEN],
    pub carried: Carried,
}

/// The switch. A packet goes through both halves at once; the traffic manager's queue holds what the mirror made.
pub(crate) struct Switch {
    pub program: Program,
    queue: VecDeque<Mirrored>,
    /// Headers between the halves, and behind the second.
    between: Vec<u8>,
    behind: Vec<u8>,
    /// Results, in order, for the caller to take.
    pub outcomes: Vec<Outcome>,
    /// Packets through ingress, through egress, and pseudo segments among these.
    pub counts: [u64; 3],
}

impl Switch {
    pub fn new(mut program: Program) -> Switch {
        let passes = program.native.passes();
        let room = |gress| vec![0; passes.room(gress)];
        let (between, behind) = (room(Gress::Ingress), room(Gress::Egress));
        drop(passes);
        Switch { program, queue: VecDeque::new(), between, behind, outcomes: Vec::new(), counts: [0; 3] }
    }

    /// Runs another program from now on. Nothing waits between two calls.
    pub fn replace(&mut self, program: Program) {
        let (outcomes, counts) = (std::mem::take(&mut self.outcomes), self.counts);
        *self = Switch { outcomes, counts, ..Switch::new(program) };
    }

    /// Frames from a port through both halves.
    pub fn frames(&mut self, port: u16, frames: &mut Vec<Box<Frame>>, pool: &mut FramePool) {
        self.counts[0] += frames.len() as u64;
        let Switch { program, queue, between, behind, outcomes, counts } = self;
        let mut line = Line { passes: program.native.passes(), queue, behind, outcomes, counts, pool };
        for mut frame in frames.drain(..) {
            let input = Input { port, queue: 0, bytes: frame.bytes(), length: frame.len() };
            let output = line.passes.run(Gress::Ingress, input, between);
            let head = &between[..output.head_len()];
            if output.kept && output.bypass {
                rewrite(&mut frame, head, output.rest);
                let to_cpu = output.port == PORT_CPU;
                line.outcomes.push(if to_cpu { Outcome::Cpu(frame) } else { Outcome::Forward(frame) });
            } else if output.kept {
                line.egress(output.port, output.queue, head, Carried::Received(frame, output.rest));
            } else {
                line.outcomes.push(Outcome::Refused(Carried::Received(frame, output.rest)));
            }
        }
        line.drain();
    }

    /// Packets that are headers only, through both halves.
    pub fn entries(&mut self, entries: &mut Vec<Entry>, pool: &mut FramePool) {
        self.counts[0] += entries.len() as u64;
        let Switch { program, queue, between, behind, outcomes, counts } = self;
        let mut line = Line { passes: program.native.passes(), queue, behind, outcomes, counts, pool };
        for entry in entries.drain(..) {
            let length = entry.bytes.len() + entry.carried.payload();
            let input = Input { port: entry.port, queue: 0, bytes: &entry.bytes, length };
            let output = line.passes.run(Gress::Ingress, input, between);
            match output.kept {
                true => line.egress(output.port, output.queue, &between[..output.head_len()], entry.carried),
                false => line.outcomes.push(Outcome::Refused(entry.carried)),
            }
        }
        line.drain();
    }
}

/// The way from the traffic manager on.
struct Line<'s> {
    passes: Passes<'s>,
    queue: &'s mut VecDeque<Mirrored>,
    behind: &'s mut Vec<u8>,
    outcomes: &'s mut Vec<Outcome>,
    counts: &'s mut [u64; 3],
    pool: &'s mut FramePool,
}

impl Line<'_> {
    fn egress(&mut self, port: u16, queue: u8, packet: &[u8], carried: Carried) {
        self.counts[1] += 1;
        let input = Input { port, queue, bytes: packet, length: packet.len() + carried.payload() };
        let output = self.passes.run(Gress::Egress, input, self.behind);
        let waiting = self.queue.len();
        for copy in self.passes.mirrored() {
            if self.queue.len() >= QUEUE {
                self.outcomes.push(Outcome::Overflow(Carried::Nothing));
            } else {
                self.queue.push_back(copy);
            }
        }
        let answered = self.queue.len() > waiting;
        let head = &self.behind[..output.head_len()];
        self.outcomes.push(if !output.kept {
            let (flow, length) = segment(packet).unwrap_or((u16::MAX, 0));
            Outcome::Spent(flow, length, answered, carried)
        } else if port == PORT_HOST {
            match Dma::parse(head) {
                Some(dma) => match LogPlace::parse(head) {
                    None => Outcome::Host(dma, carried),
                    Some(place) => Outcome::Log(dma, place, carried),
                },
                None => Outcome::Refused(carried),
            }
        } else {
            let mut frame = self.pool.small();
            frame.bytes_vec().extend_from_slice(head);
            Outcome::Network(frame, carried)
        });
    }

    /// Pseudo segments follow the packets that they came of.
    fn drain(&mut self) {
        while let Some(copy) = self.queue.pop_front() {
            self.counts[2] += 1;
            self.egress(copy.port, copy.queue, copy.front(), Carried::Nothing);
        }
    }
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

const _: () = assert!(PORT_NET != PORT_CPU);
