//! Direct receives: beside its ring, a connection has a stretch of its stream that lies in the program's memory
//! (docs/ZERONIC.md, "Direct receives"). Whose turn it is follows from [`context::DirectWords`].
use super::referred::Referred;
use crate::nic::Payload;
use context::{DirectWords, EngineEnd, PlacementTarget, Post, SendWords};
use engine::{ContextId, FlowId, Slot};
use shm::{ByteRing, Span};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The contexts whose programs have memory that received bytes may land in, and the connections of which some may.
#[derive(Default)]
pub(super) struct Heaps {
    contexts: HashMap<ContextId, Heap>,
    /// Connections with a stretch, and some that had one.
    pub(super) listed: Vec<FlowId>,
}

/// The memory of a context.
struct Heap {
    /// Those of its first slot.
    words: DirectWords,
    sends: SendWords,
    ring: Arc<ByteRing>,
}

impl Heaps {
    pub(super) fn attach(&mut self, context: ContextId, end: &EngineEnd) {
        let Some((words, sends)) = end.direct_words().zip(end.send_words()) else { return };
        if let Ok(ring) = words.heap().map(Arc::new) {
            self.contexts.insert(context, Heap { words, sends, ring });
        }
    }

    pub(super) fn detach(&mut self, context: ContextId) {
        self.contexts.remove(&context);
    }

    /// For the connection of this name, of which everything up to position `high` has come.
    pub(super) fn direct(&self, context: ContextId, slot: Slot, high: u32) -> Option<Box<Direct>> {
        let heap = self.contexts.get(&context)?;
        let (words, heap) = (heap.words.of_slot(slot.index)?, Arc::clone(&heap.ring));
        Some(Box::new(Direct { words, heap, stretch: None, high, landed: 0, is_held: false, is_listed: false }))
    }
}

impl Heaps {
    /// For the connection of this name: its program may send by reference.
    pub(super) fn referred(&self, context: ContextId, slot: Slot) -> Option<Box<Referred>> {
        let heap = self.contexts.get(&context)?;
        let words = heap.sends.of_slot(slot.index)?;
        Some(Box::new(Referred::new(words, Arc::clone(&heap.ring), slot.mark())))
    }

    /// The program of this name may send by reference already: an earlier engine has accepted that.
    pub(super) fn may_post(&self, context: ContextId, slot: Slot) -> bool {
        let words = self.contexts.get(&context).and_then(|heap| heap.sends.of_slot(slot.index));
        words.is_some_and(|words| words.may_post(slot.mark()))
    }

    /// Bytes of a connection were placed: it is looked at after the batch where it has a stretch.
    #[inline]
    pub(super) fn list(&mut self, flow: FlowId, direct: &mut Option<Box<Direct>>) {
        if let Some(direct) = direct.as_deref_mut().filter(|direct| direct.is_held && !direct.is_listed) {
            direct.is_listed = true;
            self.listed.push(flow);
        }
    }
}

/// A connection whose bytes may land directly.
pub(super) struct Direct {
    words: DirectWords,
    heap: Arc<ByteRing>,
    stretch: Option<Stretch>,
    /// Everything that has come lies below this position.
    pub(super) high: u32,
    /// Bytes that landed directly in this batch.
    landed: u32,
    is_held: bool,
    /// It is in the list of those with a stretch.
    pub(super) is_listed: bool,
}

/// The part of the stream that lies in the program's memory.
#[derive(Clone, Copy)]
struct Stretch {
    from: u32,
    to: u32,
    /// Where position `from` lies in the heap.
    at: u32,
}

impl Stretch {
    fn place_of(&self, pos: u32) -> u32 {
        self.at.wrapping_add(pos.wrapping_sub(self.from))
    }
}

/// A part of a segment's payload.
pub(super) struct Part<'a> {
    pub(super) payload: Payload<'a>,
    pub(super) range: Range<usize>,
}

/// `a` comes before `b` in the stream.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

fn earlier(a: u32, b: u32) -> u32 {
    if before(a, b) { a } else { b }
}

/// Copies a part of a payload to a position of a buffer.
pub(super) fn place(buffer: &ByteRing, pos: u32, part: &Part) {
    let range = &part.range;
    match part.payload {
        Payload::Span(span, _) => buffer.write_part(pos, span, (range.start as u32, range.len() as u32)),
        Payload::Bytes(bytes) => buffer.write(pos, &bytes[range.clone()]),
    }
}

impl Direct {
    /// Places a part of a payload at position `pos`: in the stretch or in the ring. Everything below `cursor` is the
    /// program's. Returns how many bytes went to the stretch.
    pub(super) fn place(&mut self, ring: &ByteRing, cursor: u32, pos: u32, part: Part) -> u32 {
        self.hold(cursor);
        let end = pos.wrapping_add(part.range.len() as u32);
        self.high = later(self.high, end);
        let Some(stretch) = self.stretch.filter(|stretch| before(pos, stretch.to)) else {
            place(ring, pos, &part);
            return 0;
        };
        // What lies before the stretch is below the cursor, so none of it comes.
        let (payload, Range { start, end: stop }) = (part.payload, part.range);
        let direct = earlier(end, stretch.to).wrapping_sub(pos);
        let border = start + direct as usize;
        place(&self.heap, stretch.place_of(pos), &Part { payload, range: start..border });
        self.landed += direct;
        if border < stop {
            place(ring, pos.wrapping_add(direct), &Part { payload, range: border..stop });
        }
        direct
    }

    /// Looks once a batch whether there is a stretch, and holds it. What came before a stretch lies in the ring, so
    /// none begins while anything lies there that is not in order yet.
    fn hold(&mut self, cursor: u32) {
        if self.is_held {
            return;
        }
        match self.words.hold(!before(cursor, self.high)) {
            PlacementTarget::Same if self.stretch.is_some() => self.is_held = true,
            PlacementTarget::None => self.stretch = None,
            PlacementTarget::New => self.begin(cursor),
            // Nobody took it: the program has written its words, or an earlier daemon.
            PlacementTarget::Same => self.words.give_back(cursor),
        }
    }

    fn begin(&mut self, cursor: u32) {
        self.stretch = self.words.begin_at(cursor).map(|Post { pos, at, len }| Stretch {
            from: cursor,
            to: pos.wrapping_add(len),
            at: at.wrapping_add(cursor.wrapping_sub(pos)),
        });
        self.is_held = self.stretch.is_some();
        if !self.is_held {
            self.words.give_back(cursor);
        }
    }

    pub(super) fn has_stretch(&self) -> bool {
        self.stretch.is_some()
    }

    /// After a batch, in which the cursor has come so far: the program may take its memory back, or has it back.
    pub(super) fn release(&mut self, ring: &ByteRing, cursor: u32) {
        let Some(stretch) = self.stretch else { return };
        if !self.is_held && !self.words.is_wanted() {
            // Nothing came. What the program took back by itself is found with the next bytes.
            return;
        }
        let is_full = !before(cursor, stretch.to);
        if self.is_held && !is_full && self.words.release(earlier(self.high, stretch.to)) {
            self.words.count(std::mem::take(&mut self.landed));
            self.is_held = false;
            return;
        }
        self.finish(ring, cursor);
    }

    /// The stretch is over: the connection ends here, or goes elsewhere, or the program wants its memory back. What
    /// lies there ahead of the cursor goes to the ring, with what lies in holes.
    pub(super) fn finish(&mut self, ring: &ByteRing, cursor: u32) {
        let Some(stretch) = self.stretch.take() else { return };
        let is_held = std::mem::take(&mut self.is_held) || self.words.hold(false) == PlacementTarget::Same;
        self.words.count(std::mem::take(&mut self.landed));
        if !is_held {
            return;
        }
        let (from, high) = (later(cursor, stretch.from), earlier(self.high, stretch.to));
        if before(from, high) {
            let len = high.wrapping_sub(from).min(ring.size()).min(self.heap.size());
            ring.write_span(from, &Span::new(&self.heap, stretch.place_of(from), len));
        }
        // A FIN counts in the cursor, and has no byte.
        self.words.give_back(earlier(from, high));
    }

    /// Of bytes from position `pos` on, puts in those that have landed.
    pub(super) fn overlay(&self, pos: u32, into: &mut [u8]) {
        let Some(stretch) = self.stretch else { return };
        let end = pos.wrapping_add(into.len() as u32);
        let (from, to) = (later(pos, stretch.from), earlier(end, stretch.to));
        if before(from, to) {
            let (skip, len) = (from.wrapping_sub(pos) as usize, to.wrapping_sub(from) as usize);
            self.heap.read(stretch.place_of(from), &mut into[skip..skip + len]);
        }
    }
}
