//! Recorder: passes frames from where they leave a pipeline to captures.
//!
//! The recorder is the data-path's own, and copies frames into a buffer of its own. Once a round it appends that to the
//! queue, where the other side is not just emptying it. Nobody waits for anybody: what finds no room is counted as
//! lost.
use super::pcapng::{self, About, Counts};
use super::{Sight, Wanted};
use crate::frame::complete;
use crate::{Checksum, Frame, Nanos};
use shm::Span;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use wire::roce::Train;

/// Most bytes that wait to be taken.
const QUEUE: usize = 8 << 20;
/// Most bytes that wait for the queue.
const PENDING: usize = 1 << 20;
/// Bytes of a block besides the frame, at most: comments are short.
const OVERHEAD: usize = 256;

/// Blocks of one capture from one place, on their way; and what was counted there.
#[derive(Default)]
pub struct Queue {
    blocks: Mutex<Vec<u8>>,
    seen: AtomicU64,
    matched: AtomicU64,
    lost: AtomicU64,
}

impl Queue {
    /// Takes all blocks that wait; `into` is emptied first, and its memory is used for those that come.
    pub fn take(&self, into: &mut Vec<u8>) {
        into.clear();
        std::mem::swap(&mut *self.lock(), into);
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        Counts { seen: self.seen.load(Relaxed), matched: self.matched.load(Relaxed), lost: self.lost.load(Relaxed) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One capture's place in a recorder.
struct Taker {
    wanted: Arc<Wanted>,
    interface: u32,
    /// Unix time, in nanoseconds, of the recorder's time 0.
    epoch: Nanos,
    queue: Arc<Queue>,
    pending: Vec<u8>,
}

/// Records frames for all captures that go on at one place: in a host, in a fabric.
#[derive(Default)]
pub struct Recorder {
    takers: Vec<Taker>,
    comment: String,
    /// A frame that is kept until it is known what becomes of it: flat, its checksum complete; a train's packets one
    /// after the other.
    copies: Vec<u8>,
    /// Where each packet of it ends.
    ends: Vec<usize>,
    /// A packet of a train.
    packet: Vec<u8>,
}

/// A frame's bytes, wherever they are.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    payload: Option<&'a Span>,
    checksum: Checksum,
}

impl Recorder {
    /// Records what is wanted from now on as packets of this interface, until [`Recorder::stop`]. `epoch` is the Unix
    /// time, in nanoseconds, at which the clock of [`Recorder::record`] was 0.
    pub fn start(&mut self, wanted: &Arc<Wanted>, interface: u32, epoch: Nanos) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        let (wanted, shared) = (Arc::clone(wanted), Arc::clone(&queue));
        self.takers.push(Taker { wanted, interface, epoch, queue: shared, pending: Vec::new() });
        queue
    }

    /// Ends a capture: its last blocks are in the queue afterwards.
    pub fn stop(&mut self, queue: &Arc<Queue>) {
        for taker in self.takers.iter_mut().filter(|taker| Arc::ptr_eq(&taker.queue, queue)) {
            taker.queue.lock().append(&mut taker.pending);
        }
        self.takers.retain(|taker| !Arc::ptr_eq(&taker.queue, queue));
    }

    /// Somebody captures.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.takers.is_empty()
    }

    /// Records a frame as it is now; of a train of RoCEv2 packets, each packet. A checksum that was left to somebody
    /// else is completed in the copy.
    pub fn record(&mut self, now: Nanos, frame: &Frame, sight: &Sight<'_>) {
        let Recorder { takers, comment, packet, .. } = self;
        each_packet(frame, packet, |view| record(takers, comment, now, view, sight));
    }

    /// Keeps a frame as it is now, until [`Recorder::record_kept`] has its fate.
    pub fn keep(&mut self, frame: &Frame) {
        let Recorder { copies, ends, packet, .. } = self;
        copies.clear();
        ends.clear();
        each_packet(frame, packet, |view| {
            view.copy(copies);
            ends.push(copies.len());
        });
    }

    /// Records the frame that was kept last.
    pub fn record_kept(&mut self, now: Nanos, sight: &Sight<'_>) {
        let mut from = 0;
        for to in &self.ends {
            let view = View { bytes: &self.copies[from..*to], payload: None, checksum: Checksum::Complete };
            record(&mut self.takers, &mut self.comment, now, view, sight);
            from = *to;
        }
    }

    /// Hands what was recorded over. While somebody empties the queue at this moment, `patient` waits for that (no
    /// longer than it takes to swap two buffers), and otherwise the blocks stay until the next time.
    pub fn hand_over(&mut self, patient: bool) {
        self.takers.iter_mut().for_each(|taker| taker.hand_over(patient));
    }
}

/// Shows a frame to `act` as it is on a wire: a train of RoCEv2 packets one by one, made in `packet`.
pub(crate) fn each_packet(frame: &Frame, packet: &mut Vec<u8>, mut act: impl FnMut(View<'_>)) {
    if frame.checksum != Checksum::Icrc {
        return act(frame.into());
    }
    let mut whole = Vec::new();
    let bytes = match frame.payload() {
        None => frame.bytes(),
        Some(_) => {
            frame.append_flat(&mut whole);
            &whole
        }
    };
    let train = Train::of(bytes, frame.segment_size);
    let Some(mut train) = train else {
        return act(View { bytes, payload: None, checksum: frame.checksum });
    };
    for _ in 0..train.count() {
        packet.clear();
        train.write_next(packet);
        act(View { bytes: packet, payload: None, checksum: Checksum::Complete });
    }
}

fn record(takers: &mut [Taker], comment: &mut String, now: Nanos, view: View<'_>, sight: &Sight<'_>) {
    comment.clear();
    for taker in takers {
        count(&taker.queue.seen);
        if !taker.wanted.admits(sight) || !taker.wanted.filter.accepts(view.bytes, view.payload) {
            continue;
        }
        if comment.is_empty() {
            sight.describe(comment);
        }
        count(&taker.queue.matched);
        taker.add(now, view, sight, comment);
    }
}

/// One more. The recorder is the only one that counts.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}

impl Taker {
    fn add(&mut self, now: Nanos, view: View<'_>, sight: &Sight<'_>, comment: &str) {
        if self.pending.len() + view.len().min(self.wanted.snaplen as usize) + OVERHEAD > PENDING {
            self.hand_over(false);
            if !self.pending.is_empty() {
                count(&self.queue.lost);
                return;
            }
        }
        let about = About {
            interface: self.interface,
            time: self.epoch.saturating_add(now),
            direction: Some(sight.direction),
            len: view.len() as u32,
            comment,
        };
        let snaplen = self.wanted.snaplen as usize;
        pcapng::packet(&mut self.pending, &about, |into| {
            let start = into.len();
            view.copy(into);
            into.truncate(start + snaplen);
        });
    }

    fn hand_over(&mut self, patient: bool) {
        if self.pending.is_empty() {
            return;
        }
        let mut blocks = match self.queue.blocks.try_lock() {
            Ok(blocks) => blocks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if patient => self.queue.lock(),
            Err(TryLockError::WouldBlock) => return,
        };
        if blocks.len() + self.pending.len() <= QUEUE {
            blocks.append(&mut self.pending);
        }
    }
}

impl<'a> From<&'a Frame> for View<'a> {
    fn from(frame: &'a Frame) -> View<'a> {
        View { bytes: frame.bytes(), payload: frame.payload(), checksum: frame.checksum }
    }
}

impl View<'_> {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.payload.map_or(0, Span::len)
    }

    /// Appends the frame as it would be on a wire, that is, flat and with its checksum.
    pub(crate) fn copy(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend_from_slice(self.bytes);
        if let Some(span) = self.payload {
            span.append(into);
        }
        let whole = into.len() - start;
        if let Checksum::Partial { start: from, field } = self.checksum {
            // A module may have cut the frame shorter than its headers.
            if usize::from(from) <= whole && usize::from(field) + 2 <= whole {
                complete(&mut into[start..], from, field);
            }
        }
    }
}
