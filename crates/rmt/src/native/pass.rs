//! Passes of packets through compiled code: one by one, through a half or through both at once, or in batches through a
//! half.
use super::Native;
use super::context::{self, MOST_MIRRORS, MOST_SIDE_BYTES};
use super::tables::View;
use crate::ir::Gress;

/// The headers of so many packets of a batch get room at once.
const HEADS: usize = 256;

/// A packet into a half.
#[derive(Debug, Clone, Copy)]
pub struct Input<'p> {
    /// Ingress: where it came from. Egress: where it goes.
    pub port: u16,
    /// Egress: its queue.
    pub queue: u8,
    /// Its bytes, from the first; all that a parser may read.
    pub bytes: &'p [u8],
    /// Its length, bytes, with what lies behind.
    pub length: usize,
}

impl<'p> Input<'p> {
    /// A packet whose bytes are all there.
    pub fn whole(port: u16, bytes: &'p [u8]) -> Input<'p> {
        Input { port, queue: 0, bytes, length: bytes.len() }
    }
}

/// Result of a half for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// It goes on: ingress to the traffic manager, egress out of its port. Otherwise it was dropped.
    pub forwarded: bool,
    /// Ingress: egress port.
    pub port: u16,
    /// Ingress: queue.
    pub queue: u8,
    /// Ingress: without egress processing.
    pub bypass: bool,
    /// Bytes of the input that [`Output::head`] replaces.
    pub payload_at: usize,
    head: (u32, u32),
    mirrors: (u32, u32),
}

impl Output {
    /// Of a packet that another machine ran: whether it goes on, its port, what of it the headers replace, bytes of
    /// headers and copies.
    pub(crate) fn new(forwarded: bool, port: u16, payload_at: usize, counts: [usize; 2]) -> Output {
        let [head, mirrors] = counts.map(|count| count as u32);
        Output { forwarded, port, queue: 0, bypass: false, payload_at, head: (0, head), mirrors: (0, mirrors) }
    }

    /// A packet of which nothing came.
    pub(crate) fn dropped() -> Output {
        Output::new(false, 0, 0, [0, 0])
    }

    /// Bytes that replace those before [`Output::payload_at`].
    #[inline]
    pub fn head_len(&self) -> usize {
        self.head.1 as usize
    }

    /// It made copies.
    #[inline]
    pub fn has_copies(&self) -> bool {
        self.mirrors.0 < self.mirrors.1
    }
}

/// A copy by the mirror, on its way to egress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirrored {
    /// Egress port.
    pub port: u16,
    /// Queue.
    pub queue: u8,
    /// Bytes of the packet itself that follow at most: of the original (ingress), of what left (egress).
    pub truncate: usize,
    len: usize,
    bytes: [u8; MOST_SIDE_BYTES],
}

impl Mirrored {
    /// One that another machine made.
    ///
    /// # Panics
    /// If more stands in front than a mirror puts there.
    pub(crate) fn new(port: u16, queue: u8, truncate: usize, front: &[u8]) -> Mirrored {
        let mut bytes = [0; MOST_SIDE_BYTES];
        bytes[..front.len()].copy_from_slice(front);
        Mirrored { port, queue, truncate, len: front.len(), bytes }
    }

    /// The bytes in front.
    pub fn front(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Results of a batch; its memory is used again for the next.
#[derive(Debug, Default)]
pub struct Batch {
    /// One for each packet, in order.
    pub outputs: Vec<Output>,
    heads: Vec<u8>,
    mirrors: Vec<Mirrored>,
}

impl Batch {
    /// The bytes in front of what is left of a packet.
    pub fn head(&self, output: &Output) -> &[u8] {
        &self.heads[output.head.0 as usize..][..output.head.1 as usize]
    }

    /// Its copies.
    pub fn mirrors(&self, output: &Output) -> &[Mirrored] {
        &self.mirrors[output.mirrors.0 as usize..output.mirrors.1 as usize]
    }

    fn clear(&mut self) {
        self.outputs.clear();
        self.heads.clear();
        self.mirrors.clear();
    }
}

/// Result of both halves for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Through {
    /// It went through both. Otherwise `output` is ingress's result. Where that was forwarded and does not bypass
    /// egress, this way has no joined code: the traffic manager has the packet.
    pub crossed: bool,
    /// Of a packet that crossed: what egress made of it, with the port that ingress chose, and the bytes of the packet
    /// that ingress took. Where egress dropped it, it has no headers.
    pub output: Output,
}

impl Native {
    /// Packets through ingress, in order.
    pub fn ingress<'p>(&mut self, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        self.batch(Gress::Ingress, packets, out);
    }

    /// Packets through egress, in order. Those that bypass egress leave as they are: they are not for here.
    pub fn egress<'p>(&mut self, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        self.batch(Gress::Egress, packets, out);
    }

    fn batch<'p>(&mut self, gress: Gress, packets: impl IntoIterator<Item = Input<'p>>, out: &mut Batch) {
        out.clear();
        let room = self.room();
        for packet in packets {
            let at = out.heads.len();
            if out.heads.capacity() < at + room {
                out.heads.reserve(room.max(1) * HEADS);
            }
            out.heads.resize(at + room, 0);
            let mut output = self.one(gress, packet, &mut out.heads[at..]);
            let first = out.mirrors.len() as u32;
            out.mirrors.extend(self.mirrored());
            output.head.0 = at as u32;
            output.mirrors = (first, out.mirrors.len() as u32);
            out.heads.truncate(at + output.head.1 as usize);
            out.outputs.push(output);
        }
    }

    /// Most bytes of headers that a half emits.
    #[inline]
    pub fn room(&self) -> usize {
        self.head_bytes[0].max(self.head_bytes[1])
    }

    /// One packet through a half. Its headers go to the front of `head`, [`Output::head_len`] bytes of them.
    ///
    /// # Panics
    /// If `head` is shorter than [`Native::room`].
    #[inline(always)]
    pub fn one(&mut self, gress: Gress, packet: Input<'_>, head: &mut [u8]) -> Output {
        self.prepare(packet, head);
        let accepted = self.code.run(gress, &mut self.context);
        self.output(gress, accepted)
    }

    /// One packet through both halves, where it is of a kind for which there is joined code: most are. The program's
    /// effects are the same as those of [`Native::one`] for ingress and for egress; the headers between the halves are
    /// not made. Meant for a packet that the traffic manager would pass on at once. `head` as for [`Native::one`].
    ///
    /// # Panics
    /// If `head` is shorter than [`Native::room`].
    #[inline(always)]
    pub fn through(&mut self, packet: Input<'_>, head: &mut [u8]) -> Through {
        self.prepare(packet, head);
        let end = self.code.run_joined(&mut self.context);
        let crossed = end == context::CROSSED;
        let gress = if crossed { Gress::Egress } else { Gress::Ingress };
        Through { crossed, output: self.output(gress, end != 0) }
    }

    #[inline(always)]
    fn prepare(&mut self, packet: Input<'_>, head: &mut [u8]) {
        assert!(head.len() >= self.room(), "room for all headers");
        if !self.settled {
            self.settle();
        }
        let context = &mut *self.context;
        context.packet = packet.bytes.as_ptr();
        context.len = packet.bytes.len() as u64;
        context.length = packet.length as u64;
        (context.port, context.queue) = (packet.port as u64, packet.queue as u64);
        context.head = head.as_mut_ptr();
        context.mirror_count = 0;
    }

    #[inline(always)]
    fn output(&self, gress: Gress, accepted: bool) -> Output {
        let context = &*self.context;
        let drop = context.out[context::OUT_DROP];
        let goes = gress == Gress::Egress || context.port_set == 1;
        let forwarded = accepted && drop & 1 == 0 && goes;
        Output {
            forwarded,
            port: context.out[context::OUT_PORT] as u16,
            queue: context.out[context::OUT_QUEUE] as u8,
            bypass: gress == Gress::Ingress && context.out[context::OUT_BYPASS] == 1,
            payload_at: if accepted { context.payload_at as usize } else { 0 },
            head: (0, if accepted { context.head_len as u32 } else { 0 }),
            mirrors: (0, if accepted && drop & 4 == 0 { context.mirror_count as u32 } else { 0 }),
        }
    }

    /// The copies that the last pass made.
    pub fn mirrored(&self) -> impl Iterator<Item = Mirrored> + '_ {
        let drop = self.context.out[context::OUT_DROP];
        let count = if drop & 4 == 0 { self.context.mirror_count as usize } else { 0 };
        self.context.mirrors[..count.min(MOST_MIRRORS)].iter().filter_map(|copy| {
            let session = self.sessions[copy.session as usize & 0xff]?;
            let port = match self.context.out[context::OUT_MIRROR_PORT] {
                0 => session.port,
                port => port as u16,
            };
            let queue = self.context.out[context::OUT_MIRROR_QUEUE] as u8;
            Some(Mirrored { port, queue, truncate: session.truncate, len: copy.len as usize, bytes: copy.bytes })
        })
    }

    /// Addresses of everything that a pass may touch: they change when the control plane does something.
    #[cold]
    fn settle(&mut self) {
        let [registers, counters, defaults] = &mut self.addresses;
        registers.clear();
        registers.extend(self.registers.iter_mut().map(|r| r.as_mut_ptr().expose_provenance() as u64));
        counters.clear();
        counters.extend(self.counters.iter_mut().map(|c| c.as_mut_ptr().expose_provenance() as u64));
        defaults.clear();
        defaults.extend(self.tables.iter().map(|t| t.default().as_ptr().expose_provenance() as u64));
        self.views.clear();
        self.views.extend(self.tables.iter().map(View::of));
        let context = &mut *self.context;
        context.registers = registers.as_ptr();
        context.counters = counters.as_ptr();
        context.defaults = defaults.as_ptr();
        context.views = self.views.as_ptr();
        context.tables = self.tables.as_ptr();
        context.meters = self.meters.as_mut_ptr();
        context.program = &*self.program;
        self.settled = true;
    }
}
