//! Frames from the wire: payload to its place in the receive buffer, headers to the engine inside (figure 8).
use super::SocketEngine;
use super::direct::Part;
use super::flow_entry::{FlowEntry, Placement, Standing};
use crate::frames::{Segment, segment};
use engine::stream::{self, Stream};
use engine::{Burst, DropReason, Exception, FlowId, Nanos};
use port::{Checksum, Frame};
use wire::tcp::Flags;

impl SocketEngine {
    /// Takes the frames of a burst in. Headers are in `up` afterwards; what the control plane gives back stays there.
    /// Returns how much the engine did meanwhile.
    pub(super) fn split(&mut self, now: Nanos, burst: &mut Burst<'_, Stream>) -> usize {
        let mut frames = std::mem::take(&mut self.came);
        frames.append(&mut self.waiting);
        frames.append(burst.rx);
        let back = std::mem::take(burst.back);
        if burst.recorder.is_some() {
            return self.split_recorded(now, frames, back, burst);
        }
        for frame in frames.drain(..) {
            let header = self.take_in(frame, burst);
            self.up.extend(header);
        }
        self.came = frames;
        for (why, frame) in back {
            let header = if why == Exception::Redirected { Some(frame) } else { self.take_in(frame, burst) };
            burst.back.extend(header.map(|frame| (why, frame)));
        }
        0
    }

    /// What the engine is to get of a frame. Segments of no connection are the control plane's at once, in their order:
    /// it verifies them itself.
    pub(super) fn take_in(&mut self, mut frame: Box<Frame>, burst: &mut Burst<'_, Stream>) -> Option<Box<Frame>> {
        let Some(segment) = segment(&frame, frame.len()) else { return Some(frame) };
        let flow = self.flows.receiving(&segment, &frame);
        let line = flow.and_then(|flow| self.line(flow)).filter(|line| segment.is_for(&frame, line.station));
        let standing = line.map_or(Standing::Still, |line| line.standing);
        let flow = match (standing, flow) {
            (Standing::Goes, Some(flow)) => flow,
            (Standing::Whole, _) => return Some(frame),
            (Standing::Asked, _) => {
                self.waiting.push(frame);
                return None;
            }
            _ => {
                burst.exceptions.push((Exception::NoFlow, frame));
                return None;
            }
        };
        // What is referred to never left the machine: there is no checksum of it to be verified.
        if frame.checksum == Checksum::Complete || frame.bytes().len() > segment.payload_at {
            burst.pool.flatten(&mut frame);
        }
        match self.split_one(flow, frame, segment) {
            Ok(frame) => Some(frame),
            Err((frame, reason)) => {
                burst.drops.count(reason);
                burst.pool.put(frame);
                None
            }
        }
    }

    /// Payload to its place; the header, or the frame with the reason for which it is dropped.
    fn split_one(
        &mut self,
        flow: FlowId,
        mut frame: Box<Frame>,
        mut segment: Segment,
    ) -> Result<Box<Frame>, (Box<Frame>, DropReason)> {
        let counts = &mut self.counts;
        let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut) else {
            return Ok(frame);
        };
        if segment.payload_len == 0 {
            return Ok(frame);
        }
        if !segment.is_sound(&frame) {
            counts.unsound += 1;
            return Err((frame, DropReason::TcpChecksum));
        }
        if segment.has(Flags::SYN) || segment.has(Flags::RST) {
            // The stream has no bytes of theirs.
            segment.strip(&mut frame, 0);
            return Ok(frame);
        }
        let (seq, whole) = (segment.seq, segment.payload_len as u32);
        let left = match line.place(seq, whole) {
            Placement::Old => {
                counts.old += 1;
                whole
            }
            Placement::At { skip, len } => {
                if let Some(ring) = line.outgrows(seq + skip + len) {
                    self.commands.push(stream::Command::Grown(flow, ring).into());
                }
                let range = skip as usize..(skip + len) as usize;
                let landed = line.write(seq + skip, Part { payload: segment.payload(&frame), range });
                counts.landed_bytes += u64::from(landed);
                self.heaps.list(flow, &mut line.direct);
                counts.placed_bytes += u64::from(len);
                counts.without_place += u64::from(skip + len < whole);
                skip + len
            }
            Placement::None => {
                counts.without_place += 1;
                // A sender whose window is closed asks with data, and gives up where nobody answers (RFC 9293 section
                // 3.8.6.1). A segment below the window is answered, too.
                segment.ask(&mut frame, line.cursor() - 1);
                return Ok(frame);
            }
        };
        let step = usize::from(frame.segment_size);
        segment.strip(&mut frame, left as usize);
        match line.dummy(seq, left) {
            Some(dummy) => frame.set_payload(Some(dummy)),
            // Longer than the buffer, and all of it old.
            None => segment.ask(&mut frame, line.cursor() - 1),
        }
        frame.segment_size = if left as usize > step { step as u16 } else { 0 };
        Ok(frame)
    }
}

impl SocketEngine {
    /// Frames that the engine does not take after all have their payload again: it is in its place.
    pub(super) fn unsplit(&mut self, first: usize, burst: &mut Burst<'_, Stream>) {
        for (_, frame) in &mut burst.exceptions[first..] {
            if !frame.payload().is_some_and(|span| self.blanks.has(span)) {
                continue;
            }
            frame.set_payload(None);
            let Some(segment) = segment(frame, usize::MAX) else { continue };
            let flow = self.flows.receiving(&segment, frame);
            let line = flow.and_then(|flow| self.lines.get(flow.0 as usize)?.as_deref());
            frame.set_payload(line.and_then(|line| line.received(segment.seq, segment.payload_len as u32)));
            // Nobody verified what it refers to, and nobody has to.
            burst.pool.flatten(frame);
            if let (Some(line), Some(bytes)) = (line, frame.bytes_mut().get_mut(segment.payload_at..)) {
                line.overlay(segment.seq, bytes);
            }
        }
    }

    /// After a batch: programs may take back what landed in their memory.
    pub(super) fn release_stretches(&mut self) {
        let (lines, listed) = (&mut self.lines, &mut self.heaps.listed);
        listed.retain(|flow| {
            lines.get_mut(flow.0 as usize).and_then(Option::as_deref_mut).is_some_and(FlowEntry::release_stretch)
        });
    }
}
