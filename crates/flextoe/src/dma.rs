//! DMA: the copies between frames and payload buffers (thesis section 4.3.1, Payload). On one machine a transmission
//! needs no copy here: the frame refers to the buffer, and the port moves the bytes.
use crate::message::{Aside, Buffers, Control, FlowCommand, Job, PayloadPart, TxSegment, Work};
use crate::observer::Observer;
use crate::slots::Slots;
use engine::Frame;
use shm::{ByteRing, Span};
use std::sync::Arc;
use trace::Point;

/// The DMA module, or one replica of it. In the paper it is stateless and post-processing gives it addresses (Pos). So
/// it is here while both are on one thread. From one thread to another, an address would be a counted reference for
/// each segment, so this module has the table of buffers itself.
pub(crate) struct Dma {
    flows: Slots<Buffers>,
}

impl Dma {
    pub(crate) fn new(flows: u32) -> Dma {
        Dma { flows: Slots::new(flows) }
    }

    pub(crate) fn control(&mut self, control: &Control) {
        match control {
            Control::Install(params) => {
                let buffers = Buffers { rx: Arc::clone(&params.rx), tx: Arc::clone(&params.tx) };
                self.flows.insert(params.flow.0, buffers);
            }
            Control::Forget(flow) => {
                self.flows.remove(flow.0);
            }
            Control::Rebind(flow, buffers) => {
                if let Some(state) = self.flows.get_mut(flow.0) {
                    *state = buffers.clone();
                }
            }
            Control::NextHop(..) | Control::Modules(..) => {}
        }
    }

    /// A flow's rings from now on, where a stream outgrows one. The protocol module decides this for the
    /// received stream, the application for the other one.
    pub(crate) fn grown(&self, work: &Work) -> Option<Buffers> {
        let buffers = || self.flows.get(work.flow);
        match (&work.aside, work.job) {
            (None, Job::FlowCommand(FlowCommand::CheckGrowth)) => {
                buffers().and_then(|Buffers { rx, tx }| Some(Buffers { rx: Arc::clone(rx), tx: tx.grown()? }))
            }
            (Some(aside), _) => match **aside {
                Aside::Grow { from, end } => {
                    buffers().map(|Buffers { rx, tx }| Buffers { rx: rx.holding(from, end), tx: Arc::clone(tx) })
                }
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn process<O: Observer>(&self, batch: &mut [Work], observer: O) {
        batch.iter_mut().for_each(|work| self.one(work, observer));
    }

    #[inline(always)]
    pub(crate) fn one<O: Observer>(&self, work: &mut Work, observer: O) {
        match work.job {
            Job::Receive => {
                if let (Some(frame), Some(buffers)) = (&work.frame, self.flows.get(work.flow)) {
                    let (flow, payload_at) = (work.flow, work.summary.payload_at);
                    Dma::received(flow, frame, payload_at, work.place, &buffers.rx, observer);
                }
            }
            Job::Transmit { .. } | Job::Bump { .. } | Job::FlowCommand(FlowCommand::ProbeTail) => {
                if let (Some(frame), Some(segment), Some(buffers)) =
                    (&mut work.out, &work.send, self.flows.get(work.flow))
                {
                    Dma::sent(work.flow, frame, segment, &buffers.tx, observer);
                }
            }
            Job::Move => {
                if let (Some(Aside::Move(relocation)), Some(buffers)) =
                    (&work.aside.as_deref(), self.flows.get(work.flow))
                {
                    copy(&buffers.rx, &relocation.new.rx, relocation.rx);
                    copy(&buffers.tx, &relocation.new.tx, relocation.tx);
                }
            }
            _ => {}
        }
    }

    /// Places the payload of a received segment, which starts at byte `payload_at` of the frame.
    #[inline(always)]
    pub(crate) fn received<O: Observer>(
        flow: u32,
        frame: &Frame,
        payload_at: u32,
        part: PayloadPart,
        buffer: &ByteRing,
        observer: O,
    ) {
        if part.len > 0 {
            observer.value(Point::DmaPlaced, flow, part.len.into());
            place(frame, payload_at as usize, part, buffer);
        }
    }

    /// Attaches the payload of a segment to send.
    #[inline(always)]
    pub(crate) fn sent<O: Observer>(
        flow: u32,
        frame: &mut Frame,
        segment: &TxSegment,
        buffer: &Arc<ByteRing>,
        observer: O,
    ) {
        let len = segment.fields.payload_len;
        if len > 0 {
            observer.value(Point::DmaAttached, flow, len.into());
            match len <= buffer.size() {
                // Made in its place in the frame.
                true => frame.attach(Span::new(buffer, segment.pos, len)),
                false => attach_later(frame, segment.pos, len, buffer),
            }
        }
    }
}

/// Attaches more bytes than the small ring of a stream holds.
#[cold]
#[inline(never)]
fn attach_later(frame: &mut Frame, pos: u32, len: u32, buffer: &Arc<ByteRing>) {
    frame.attach(buffer.span(pos, len));
}

/// Copies a part of a frame's payload to its place: from the contiguous bytes, from the referenced ones, or both.
#[inline(always)]
fn place(frame: &Frame, payload_at: usize, place: PayloadPart, buffer: &ByteRing) {
    let bytes = frame.bytes();
    if let (Some(span), true) = (frame.payload(), payload_at == bytes.len()) {
        return buffer.write_part(place.pos, span, (place.skip, place.len));
    }
    let (start, end) = (payload_at + place.skip as usize, payload_at + (place.skip + place.len) as usize);
    let contiguous = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]);
    buffer.write(place.pos, contiguous);
    if let Some(span) = frame.payload().filter(|_| end > bytes.len()) {
        let skip = start.max(bytes.len()) - bytes.len();
        let part = (skip as u32, (end - bytes.len() - skip) as u32);
        buffer.write_part(place.pos.wrapping_add(contiguous.len() as u32), span, part);
    }
}

fn copy(from: &Arc<ByteRing>, to: &ByteRing, (pos, len): (u32, u32)) {
    let len = len.min(from.size()).min(to.size());
    to.write_span(pos, &Span::new(from, pos, len));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::Off;
    use shm::{PAGE, Region, Rings};
    use wire::Seq;
    use wire::ipv4::Ecn;
    use wire::tcp::Flags;
    use wire::template::Fields;

    #[test]
    fn a_small_ring_that_overflows_grows_into_the_full_one() {
        let region = Arc::new(Region::create("test", 3 * PAGE).unwrap());
        let rings = Rings { small: Some((0, 64)), full: (PAGE, PAGE), large: None, word: 128 };
        let small = Arc::new(ByteRing::map_first(&region, rings).unwrap());
        small.write(0, &[7; 64]);
        let sent = |payload_len| {
            let fields = Fields {
                seq: Seq(0),
                ack: Seq(0),
                flags: Flags::ACK,
                window: 0,
                timestamps: None,
                sack: None,
                ecn: Ecn::NotEct,
                payload_len,
            };
            let segment = TxSegment { fields, pos: 0, segment_size: 0 };
            let mut frame = engine::FramePool::new(1).small();
            Dma::sent(0, &mut frame, &segment, &small, Off);
            frame.payload().map(|span| span.len())
        };
        assert_eq!([sent(0), sent(64), sent(4000)], [None, Some(64), Some(4000)]);
    }
}
