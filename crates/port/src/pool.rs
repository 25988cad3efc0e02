//! Recycled frames, so that no frame costs an allocation.
use crate::Frame;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Capacity of a small frame: headers with their payload by reference, or control frames.
const SMALL: usize = 256;
/// Capacity of a large frame: the largest super-segment that a TAP device gives in one read, with headers.
const LARGE: usize = 65_536 + 128;
/// Frames of each size kept locally before half of them go to the shared store: 4 MiB of large ones at most.
const LOCAL: [usize; 2] = [512, 64];
/// Frames of each size that a pool keeps that gives back the rest: those of one burst.
const KEPT: [usize; 2] = [64, 4];

struct Store {
    small: ArrayQueue<Box<Frame>>,
    large: ArrayQueue<Box<Frame>>,
}

/// A store of frames. Each thread has its own handle (a clone), which keeps frames at hand and shares the rest.
pub struct FramePool {
    small: Vec<Box<Frame>>,
    large: Vec<Box<Frame>>,
    store: Arc<Store>,
}

impl FramePool {
    /// A pool whose shared store keeps at most `most` frames of each size; what comes back beyond that is freed.
    pub fn new(most: usize) -> FramePool {
        let store = Store { small: ArrayQueue::new(most.max(1)), large: ArrayQueue::new(most.max(1)) };
        FramePool { small: Vec::new(), large: Vec::new(), store: Arc::new(store) }
    }

    /// An empty frame for headers (at least 256 bytes).
    #[inline(always)]
    pub fn small(&mut self) -> Box<Frame> {
        let mut frame = match self.small.pop() {
            Some(frame) => frame,
            None => self.fresh(),
        };
        frame.reset();
        frame
    }

    #[inline(never)]
    fn fresh(&self) -> Box<Frame> {
        self.store.small.pop().unwrap_or_else(|| Box::new(Frame::with_capacity(SMALL)))
    }

    /// An empty frame for a whole super-segment (at least 64 KiB).
    #[inline]
    pub fn large(&mut self) -> Box<Frame> {
        let stored = self.large.pop().or_else(|| self.store.large.pop());
        let mut frame = stored.unwrap_or_else(|| Box::new(Frame::with_capacity(LARGE)));
        frame.reset();
        frame
    }

    /// Copies a frame's payload into its contiguous part, as [`Frame::flatten`] does; where it has no room for that, it
    /// becomes a frame that has.
    #[inline]
    pub fn flatten(&mut self, frame: &mut Box<Frame>) {
        if frame.payload().is_none() {
            return;
        }
        if frame.len() > frame.capacity() {
            let mut large = self.large();
            large.take_over(frame);
            self.put(std::mem::replace(frame, large));
        }
        frame.flatten();
    }

    /// A flat copy of a frame.
    pub fn copy(&mut self, frame: &Frame) -> Box<Frame> {
        let mut twin = self.small();
        if frame.len() > twin.capacity() {
            self.put(twin);
            twin = self.large();
        }
        frame.append_flat(twin.bytes_vec());
        twin.checksum = frame.checksum;
        twin.segment_size = frame.segment_size;
        twin
    }

    /// Takes a frame back.
    #[inline(always)]
    pub fn put(&mut self, mut frame: Box<Frame>) {
        // All else is cleared when it is taken out, by whoever is about to write it.
        frame.set_payload(None);
        if frame.whole_capacity() < LARGE && self.small.len() < LOCAL[0] {
            return self.small.push(frame);
        }
        self.keep(frame);
    }

    /// There are more frames than a quiet host needs.
    pub fn has_spare(&self) -> bool {
        self.has_cached_spare() || !self.store.small.is_empty() || !self.store.large.is_empty()
    }

    /// Frees these. Other handles keep what they have at hand.
    pub fn free_spare(&mut self) {
        let [small, large] = KEPT;
        self.small.truncate(small);
        self.large.truncate(large);
        while self.store.small.pop().is_some() || self.store.large.pop().is_some() {}
    }

    /// Frees all that this handle has at hand: for one of several, on an idle thread. True where that was more
    /// than a quiet host needs.
    pub fn free_own(&mut self) -> bool {
        let spare = self.has_cached_spare();
        (self.small, self.large) = (Vec::new(), Vec::new());
        spare
    }

    fn has_cached_spare(&self) -> bool {
        let [small, large] = KEPT;
        self.small.len() > small || self.large.len() > large
    }

    /// Keeps a large frame, or one of many.
    #[inline(never)]
    fn keep(&mut self, frame: Box<Frame>) {
        let (local, shared, most) = match frame.whole_capacity() >= LARGE {
            true => (&mut self.large, &self.store.large, LOCAL[1]),
            false => (&mut self.small, &self.store.small, LOCAL[0]),
        };
        local.push(frame);
        if local.len() > most {
            for frame in local.drain(most / 2..) {
                // A full store frees the frame: that bounds the pool's memory.
                let _ = shared.push(frame);
            }
        }
    }
}

impl Clone for FramePool {
    /// Another handle to the same store.
    fn clone(&self) -> FramePool {
        FramePool { small: Vec::new(), large: Vec::new(), store: Arc::clone(&self.store) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_burst_a_pool_gives_back_what_it_does_not_need() {
        let mut pool = FramePool::new(4096);
        let burst: Vec<_> = (0..3006).map(|at| if at < 3000 { pool.small() } else { pool.large() }).collect();
        burst.into_iter().for_each(|frame| pool.put(frame));
        assert!(pool.has_spare() && !pool.store.small.is_empty());
        pool.free_spare();
        assert!(!pool.has_spare());
        assert_eq!([pool.small.len(), pool.large.len()], KEPT);
        let frames: Vec<_> = (0..100).map(|_| pool.small()).collect();
        frames.into_iter().for_each(|frame| pool.put(frame));
        assert_eq!(pool.small.len(), 100);
    }
}
