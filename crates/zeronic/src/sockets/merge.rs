//! Headers from the engine inside: they leave with the payload that they speak of, by reference to the transmit buffer
//! where the engine refers to its own.
use super::SocketEngine;
use super::flow_entry::{Outgoing, Standing};
use crate::frames::{Segment, segment};
use engine::Burst;
use engine::stream::Stream;
use port::{Frame, cut_headers};
use wire::tcp::Flags;

impl SocketEngine {
    /// Gives the frames of a burst from number `first` on their payload.
    pub(super) fn merge(&mut self, first: usize, burst: &mut Burst<'_, Stream>) {
        for at in first..burst.tx.len() {
            if !self.dress(&mut burst.tx[at]) {
                return self.merge_rows(at, burst);
            }
        }
    }

    /// The same from a frame on whose payload does not lie in one row.
    #[cold]
    fn merge_rows(&mut self, first: usize, burst: &mut Burst<'_, Stream>) {
        for mut frame in burst.tx.split_off(first) {
            if self.dress(&mut frame) {
                burst.tx.push(frame);
            } else {
                self.cut(&frame, burst);
                burst.pool.put(frame);
            }
        }
    }

    /// Gives a frame its payload. False, and nothing changed, where that lies in several rows.
    #[inline]
    fn dress(&mut self, frame: &mut Frame) -> bool {
        let Some(segment) = segment(frame, frame.len()) else { return true };
        let Some(flow) = self.flows.sending(&segment, frame) else { return true };
        let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut) else { return true };
        if segment.has(Flags::ACK) {
            line.promise(segment.ack, segment.window);
        }
        if segment.payload_len > 0 && line.standing != Standing::Whole {
            let span = match line.outgoing(segment.seq, segment.payload_len as u32) {
                Outgoing::Ring(span) => span,
                Outgoing::Program(span) => {
                    self.counts.referred_bytes += span.len() as u64;
                    span
                }
                Outgoing::Rows => return false,
                Outgoing::Nowhere => return true,
            };
            self.counts.fetched_bytes += span.len() as u64;
            fetch(frame, &segment, span);
        }
        if line.completes && frame.segment_size == 0 {
            frame.complete_checksum();
        }
        true
    }

    /// Makes frames of one whose payload lies in several rows.
    fn cut(&mut self, frame: &Frame, burst: &mut Burst<'_, Stream>) {
        let Some(segment) = segment(frame, frame.len()) else { return };
        let line = self.flows.sending(&segment, frame).and_then(|flow| self.lines.get(flow.0 as usize)?.as_deref());
        let Some((line, mut rows)) = line.and_then(|line| Some((line, line.rows(segment.seq)?))) else { return };
        let first = burst.tx.len();
        cut_headers(frame, usize::from(u16::MAX), burst.pool, burst.tx, &mut rows);
        self.counts.fetched_bytes += segment.payload_len as u64;
        self.counts.gathered_bytes += rows.copied;
        self.counts.referred_bytes += rows.referred_to;
        for frame in burst.tx[first..].iter_mut().filter(|frame| line.completes && frame.segment_size == 0) {
            frame.complete_checksum();
        }
    }
}

/// Puts payload in the place of dummy payload, in the form that this has: behind the headers, or by reference.
fn fetch(frame: &mut Frame, segment: &Segment, span: shm::Span) {
    if frame.bytes().len() == segment.payload_at {
        frame.set_payload(Some(span));
    } else {
        frame.set_payload(None);
        frame.resize(segment.payload_at + segment.payload_len);
        span.read(&mut frame.bytes_mut()[segment.payload_at..]);
    }
}
