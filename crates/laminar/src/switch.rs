//! The glue around the program, from parser to deparser: ports, traffic manager, mirror (thesis section 5.2).
use crate::descriptor::{PORT_CPU, PORT_HOST, PORT_NET};
use crate::program::Program;
use engine::{Frame, FramePool};
use rmt::Pipeline;
use rmt::ir::Gress;
use rmt::native::{Input, Mirrored, Output, Through};
use std::collections::VecDeque;

/// Packets that wait between the halves at most.
const QUEUE: usize = 4096;
/// Room for headers in a frame that is made: more than Laminar's need, and so many zeros are written without a call.
const FRONT: usize = 160;
/// Payload of at most so many bytes is copied behind the headers. That costs less than counting a reference to it here
/// and at the peer. One line of the cache.
pub(crate) const SHORT: u32 = 64;

/// Companion of a packet beside the pipeline: the program never gets payload.
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
    #[inline]
    fn payload(&self) -> usize {
        match self {
            Carried::Nothing => 0,
            Carried::Received(frame, payload_at) => frame.len().saturating_sub(*payload_at),
            Carried::Payload { len, .. } => *len as usize,
        }
    }

    /// Of these, bytes that are to be copied behind the headers.
    #[inline]
    fn short(&self) -> usize {
        match self {
            Carried::Payload { len, .. } if *len <= SHORT => *len as usize,
            _ => 0,
        }
    }
}

/// Fate of a packet.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A descriptor for the host: [`Switch::head`].
    Host(Carried),
    /// A frame for the network: its headers, and room for payload that is [`SHORT`].
    Network(Box<Frame>, Carried),
    /// A frame that goes out as it is.
    Forward(Box<Frame>),
    /// The exception path.
    Cpu(Box<Frame>),
    /// Dropped at ingress.
    Refused(Carried),
    /// Dropped at egress; whether an acknowledgement is sent for it.
    Spent(bool, Carried),
}

/// The switch. A packet goes through both halves at once, then the pseudo segments that it caused: these the traffic
/// manager's queue holds.
pub(crate) struct Switch {
    pub program: Program,
    queue: VecDeque<Mirrored>,
    /// Headers between the halves, where there is no joined code, and behind the second.
    between: Vec<u8>,
    behind: Vec<u8>,
    /// Bytes of the latter that the last packet has.
    len: usize,
    /// Packets through ingress, through egress, and pseudo segments among these.
    pub counts: [u64; 3],
    /// Copies for which the queue had no room.
    pub overflowed: u64,
}

/// How far a packet came.
enum End {
    /// Through ingress, which dropped it.
    Refused,
    /// Through ingress, which sent it past egress.
    Past,
    /// Through both; whether it left the second.
    Egress(bool),
}

impl Switch {
    pub(crate) fn new(program: Program) -> Switch {
        let room = || vec![0; program.pipeline.room()];
        let (between, behind) = (room(), room());
        Switch { program, queue: VecDeque::new(), between, behind, len: 0, counts: [0; 3], overflowed: 0 }
    }

    /// Runs another program from now on. Nothing waits between two calls.
    pub(crate) fn replace(&mut self, program: Program) {
        *self = Switch { counts: self.counts, ..Switch::new(program) };
    }

    /// Headers of the last packet that came out.
    #[inline]
    pub(crate) fn head(&self) -> &[u8] {
        &self.behind[..self.len]
    }

    /// A packet through both halves: how far it came, its port, how many of its bytes the headers replace, and whether
    /// copies wait.
    #[inline(always)]
    fn pass(&mut self, input: Input<'_>) -> (End, u16, usize, bool) {
        self.counts[0] += 1;
        let Through { crossed, output } = self.program.pipeline.through(input, &mut self.behind);
        self.len = output.head_len();
        let (port, payload_at) = (output.port, output.payload_at);
        if !crossed {
            if !output.forwarded {
                return (End::Refused, port, payload_at, false);
            }
            if output.bypass {
                return (End::Past, port, payload_at, false);
            }
            let length = self.len + input.length - payload_at;
            std::mem::swap(&mut self.between, &mut self.behind);
            let (forwarded, copies) = self.egress(port, output.queue, length);
            return (End::Egress(forwarded), port, payload_at, copies);
        }
        self.counts[1] += 1;
        if output.has_copies() {
            self.queue_copies();
        }
        (End::Egress(output.forwarded), port, payload_at, output.has_copies())
    }

    /// The packet whose headers are in `between` through egress: whether it left, and whether copies wait.
    fn egress(&mut self, port: u16, queue: u8, length: usize) -> (bool, bool) {
        self.counts[1] += 1;
        let bytes = &self.between[..self.len];
        let output = self.program.pipeline.one(Gress::Egress, Input { port, queue, bytes, length }, &mut self.behind);
        self.len = output.head_len();
        if output.has_copies() {
            self.queue_copies();
        }
        (output.forwarded, output.has_copies())
    }

    #[cold]
    fn queue_copies(&mut self) {
        let (queue, overflowed) = (&mut self.queue, &mut self.overflowed);
        let mut hold = |copy: Mirrored| {
            if queue.len() >= QUEUE {
                *overflowed += 1;
            } else {
                queue.push_back(copy);
            }
        };
        match &self.program.pipeline {
            Pipeline::Native(native) => native.mirrored().for_each(&mut hold),
            Pipeline::Model(model) => model.mirrored().for_each(&mut hold),
        }
    }

    /// A frame from a port.
    #[inline(always)]
    pub(crate) fn frame(&mut self, port: u16, mut frame: Box<Frame>) -> Outcome {
        let input = Input { port, queue: 0, bytes: frame.bytes(), length: frame.len() };
        match self.pass(input) {
            (End::Egress(true), PORT_HOST, payload_at, _) => Outcome::Host(Carried::Received(frame, payload_at)),
            (End::Egress(false), _, payload_at, answered) => {
                Outcome::Spent(answered, Carried::Received(frame, payload_at))
            }
            (End::Past, port, payload_at, _) => {
                rewrite(&mut frame, self.head(), payload_at);
                if port == PORT_CPU { Outcome::Cpu(frame) } else { Outcome::Forward(frame) }
            }
            // A segment does not become another frame.
            (End::Egress(true) | End::Refused, _, payload_at, _) => {
                Outcome::Refused(Carried::Received(frame, payload_at))
            }
        }
    }

    /// A packet of the host, the control plane or the packet generator, headers only. Most become frames, so the
    /// deparser writes into one: what is copied right behind its stores would wait for all of them. Behind the headers
    /// is room for payload that is [`SHORT`].
    #[inline(always)]
    pub(crate) fn entry(&mut self, port: u16, bytes: &[u8], carried: Carried, pool: &mut FramePool) -> Outcome {
        let input = Input { port, queue: 0, bytes, length: bytes.len() + carried.payload() };
        let mut frame = pool.small();
        frame.bytes_vec().extend_from_slice(&[0; FRONT]);
        if self.between.len() > FRONT {
            frame.resize(self.between.len());
        }
        self.counts[0] += 1;
        let Through { crossed, output } = self.program.pipeline.through(input, frame.bytes_mut());
        if !crossed {
            return self.entry_apart((frame, output), input.length, carried, pool);
        }
        self.counts[1] += 1;
        if output.has_copies() {
            self.queue_copies();
        }
        if !output.forwarded {
            pool.put(frame);
            return Outcome::Spent(false, carried);
        }
        let len = output.head_len();
        if output.port == PORT_HOST {
            self.len = len;
            self.behind[..len].copy_from_slice(&frame.bytes()[..len]);
            pool.put(frame);
            return Outcome::Host(carried);
        }
        frame.resize(len + carried.short());
        Outcome::Network(frame, carried)
    }

    /// Behind ingress, for a packet without joined code: its headers are at the frame's front.
    #[cold]
    fn entry_apart(
        &mut self,
        (frame, output): (Box<Frame>, Output),
        length: usize,
        carried: Carried,
        pool: &mut FramePool,
    ) -> Outcome {
        self.len = output.head_len();
        self.between[..self.len].copy_from_slice(&frame.bytes()[..self.len]);
        pool.put(frame);
        if !output.forwarded || output.bypass {
            return Outcome::Refused(carried);
        }
        let (forwarded, _) = self.egress(output.port, output.queue, self.len + length - output.payload_at);
        match (forwarded, output.port) {
            (false, _) => Outcome::Spent(false, carried),
            (true, PORT_HOST) => Outcome::Host(carried),
            (true, _) => {
                let mut frame = self.headers(pool);
                frame.resize(self.len + carried.short());
                Outcome::Network(frame, carried)
            }
        }
    }

    /// The next pseudo segment that waits. They follow the packets that they came of.
    pub(crate) fn pseudo(&mut self, pool: &mut FramePool) -> Option<Outcome> {
        let copy = self.queue.pop_front()?;
        self.counts[2] += 1;
        let front = copy.front();
        self.len = front.len();
        if self.between.len() < self.len {
            self.between.resize(self.len, 0);
        }
        self.between[..self.len].copy_from_slice(front);
        Some(match (self.egress(copy.port, copy.queue, front.len()), copy.port) {
            ((false, _), _) => Outcome::Spent(false, Carried::Nothing),
            (_, PORT_HOST) => Outcome::Host(Carried::Nothing),
            _ => Outcome::Network(self.headers(pool), Carried::Nothing),
        })
    }

    /// The pseudo segments that the last packet caused are lost at the traffic manager, which the program allows for.
    #[cold]
    pub(crate) fn forget_copies(&mut self) {
        self.queue.clear();
    }

    /// Nothing waits in the queue.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// A frame of the headers that came out.
    fn headers(&self, pool: &mut FramePool) -> Box<Frame> {
        let mut frame = pool.small();
        frame.bytes_vec().extend_from_slice(self.head());
        frame
    }
}

/// Puts the deparser's headers in the place of those that the parser took.
fn rewrite(frame: &mut Frame, head: &[u8], payload_at: usize) {
    if head.len() == payload_at {
        frame.bytes_mut()[..payload_at].copy_from_slice(head);
    } else if frame.strip_front(payload_at) {
        frame.grow_front(head.len());
        frame.bytes_mut()[..head.len()].copy_from_slice(head);
    }
}

const _: () = assert!(PORT_NET != PORT_CPU);
