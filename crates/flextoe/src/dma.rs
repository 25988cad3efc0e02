//! DMA: the copies between frames and payload buffers (thesis section 4.3.1, Payload). Stateless. On one machine a
//! transmission needs no copy here: the frame refers to the buffer, and the port moves the bytes.
use crate::message::{Job, Place, Transfer, Work};
use engine::{Frame, FramePool};
use shm::{Mirror, Span};
use std::sync::Arc;

pub(crate) fn process(batch: &mut [Work], pool: &mut FramePool) {
    for work in batch {
        match std::mem::replace(&mut work.transfer, Transfer::None) {
            Transfer::None => {}
            Transfer::Fetch(span) => {
                if let Some(frame) = work.frame.as_mut() {
                    frame.set_payload(Some(span));
                }
            }
            Transfer::Place(buffer) => {
                if let Some(frame) = &work.frame {
                    place(frame, work.summary.payload_at as usize, work.place, &buffer);
                }
            }
            Transfer::Move(old) => {
                if let Job::Move(relocation) = &work.job {
                    copy(&old.rx, &relocation.new.rx, relocation.rx);
                    copy(&old.tx, &relocation.new.tx, relocation.tx);
                }
            }
        }
        release(work, pool);
    }
}

/// Gives a frame back that goes nowhere: a received one whose payload is placed, or one for a transmission that had
/// nothing to send.
fn release(work: &mut Work, pool: &mut FramePool) {
    let leaves = work.exception.is_some() || (matches!(work.job, Job::Transmit { .. }) && work.send.is_some());
    if !leaves {
        if let Some(frame) = work.frame.take() {
            pool.put(frame);
        }
    }
}

/// Copies a part of a frame's payload to its place: from the contiguous bytes, from the referenced ones, or both.
fn place(frame: &Frame, payload_at: usize, place: Place, buffer: &Mirror) {
    let bytes = frame.bytes();
    let (start, end) = (payload_at + place.skip as usize, payload_at + (place.skip + place.len) as usize);
    let contiguous = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]);
    buffer.write(place.pos, contiguous);
    if let Some(span) = frame.payload().filter(|_| end > bytes.len()) {
        let skip = start.max(bytes.len()) - bytes.len();
        let part = span.slice(skip as u32, (end - bytes.len() - skip) as u32);
        buffer.write_span(place.pos.wrapping_add(contiguous.len() as u32), &part);
    }
}

fn copy(from: &Arc<Mirror>, to: &Mirror, (pos, len): (u32, u32)) {
    let len = len.min(from.size()).min(to.size());
    to.write_span(pos, &Span::new(from, pos, len));
}
