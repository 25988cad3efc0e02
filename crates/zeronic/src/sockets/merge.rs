//! Headers from the engine inside: they leave with the payload that they speak of, by reference to the transmit buffer
//! where the engine refers to its own.
use super::SocketEngine;
use super::flow_entry::Standing;
use crate::frames::{Segment, segment};
use engine::Burst;
use engine::stream::Stream;
use port::Frame;
use wire::tcp::Flags;

impl SocketEngine {
    /// Gives the frames of a burst from number `first` on their payload.
    pub(super) fn merge(&mut self, first: usize, burst: &mut Burst<'_, Stream>) {
        for at in first..burst.tx.len() {
            let frame = &mut burst.tx[at];
            let Some(segment) = segment(frame, frame.len()) else { continue };
            let Some(flow) = self.flows.sending(&segment, frame) else { continue };
            let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut) else { continue };
            if segment.has(Flags::ACK) {
                line.promise(segment.ack, segment.window);
            }
            if segment.payload_len > 0 && line.standing != Standing::Whole {
                let Some(span) = line.outgoing(segment.seq, segment.payload_len as u32) else { continue };
                self.counts.fetched_bytes += span.len() as u64;
                fetch(frame, &segment, span);
            }
            if line.completes && frame.segment_size == 0 {
                frame.complete_checksum();
            }
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
