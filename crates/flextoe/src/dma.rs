//! DMA: the copies between frames and payload buffers (thesis section 4.3.1, Payload). On one machine a transmission
//! needs no copy here: the frame refers to the buffer, and the port moves the bytes.
use crate::message::{Aside, Buffers, Control, Job, Place, Segment, Work};
use crate::slots::Slots;
use engine::Frame;
use shm::{Mirror, Span};
use std::sync::Arc;

/// The DMA module, or one replica of it. In the paper it is stateless and post-processing gives it addresses (Pos).
/// Here an address would be a counted reference for each segment, so this module has the table of buffers itself.
pub(crate) struct Dma {
    flows: Slots<Buffers>,
}

impl Dma {
    pub fn new(flows: u32) -> Dma {
        Dma { flows: Slots::new(flows) }
    }

    pub fn control(&mut self, control: &Control) {
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

    pub fn process(&self, batch: &mut [Work]) {
        batch.iter_mut().for_each(|work| self.one(work));
    }

    #[inline(always)]
    pub fn one(&self, work: &mut Work) {
        match work.job {
            Job::Receive => {
                if let Some(frame) = &work.frame {
                    self.received(work.flow, frame, work.summary.payload_at, work.place);
                }
            }
            Job::Transmit { .. } | Job::Bump { .. } => {
                if let (Some(frame), Some(segment)) = (&mut work.out, &work.send) {
                    self.sent(work.flow, frame, segment);
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

    /// Places the payload of a flow's received segment, which starts at byte `payload_at` of the frame.
    #[inline(always)]
    pub fn received(&self, flow: u32, frame: &Frame, payload_at: u32, part: Place) {
        if part.len > 0 {
            if let Some(buffers) = self.flows.get(flow) {
                place(frame, payload_at as usize, part, &buffers.rx);
            }
        }
    }

    /// Attaches the payload of a flow's segment to send.
    #[inline(always)]
    pub fn sent(&self, flow: u32, frame: &mut Frame, segment: &Segment) {
        if segment.fields.payload_len > 0 {
            if let Some(buffers) = self.flows.get(flow) {
                frame.set_payload(Some(Span::new(&buffers.tx, segment.pos, segment.fields.payload_len)));
            }
        }
    }
}

/// Copies a part of a frame's payload to its place: from the contiguous bytes, from the referenced ones, or both.
#[inline(always)]
fn place(frame: &Frame, payload_at: usize, place: Place, buffer: &Mirror) {
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

fn copy(from: &Arc<Mirror>, to: &Mirror, (pos, len): (u32, u32)) {
    let len = len.min(from.size()).min(to.size());
    to.write_span(pos, &Span::new(from, pos, len));
}
