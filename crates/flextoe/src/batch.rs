//! A batch of works on its way through the modules of one thread.
use crate::message::{Job, Work};
use engine::Frame;
use std::ops::{Deref, DerefMut};

/// Works that go through the modules together: as many as stay in the first-level cache on the way.
pub(crate) const BATCH: usize = 64;
/// With so many flows, the modules' state of them is no longer in the caches when it is needed.
pub(crate) const MANY: usize = 2048;

/// A list of works, each made in its place. Places are used again without being made anew: nearly all of a work is
/// written by one module before another reads it.
#[derive(Default)]
pub(crate) struct Batch {
    places: Vec<Work>,
    len: usize,
}

impl Batch {
    /// Adds a work.
    #[inline(always)]
    pub(crate) fn add(&mut self, flow: u32, job: Job) -> &mut Work {
        let work = self.place(flow);
        work.job = job;
        work
    }

    /// Adds a work whose job the caller writes in its place. One that was made elsewhere would be written byte by byte,
    /// and read as a whole right after: the processor has to wait for that.
    #[inline(always)]
    pub(crate) fn place(&mut self, flow: u32) -> &mut Work {
        if self.len >= self.places.len() {
            self.grow();
        }
        let work = &mut self.places[self.len];
        self.len += 1;
        work.renew(flow);
        work
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.places.push(Work::new(u32::MAX, Job::Void));
    }

    /// Adds a received frame.
    #[inline(always)]
    pub(crate) fn receive(&mut self, frame: Box<Frame>) {
        let old = self.add(u32::MAX, Job::Receive).frame.replace(frame);
        debug_assert!(old.is_none());
    }

    /// Adds the next `most` received frames.
    #[inline]
    pub(crate) fn receive_most(&mut self, frames: &mut impl ExactSizeIterator<Item = Box<Frame>>, most: usize) {
        let count = frames.len().min(most);
        while self.places.len() < self.len + count {
            self.grow();
        }
        for (work, frame) in self.places[self.len..self.len + count].iter_mut().zip(frames) {
            work.renew(u32::MAX);
            work.job = Job::Receive;
            work.frame = Some(frame);
        }
        self.len += count;
    }

    /// Adds a work that was made elsewhere.
    pub(crate) fn push(&mut self, work: Work) {
        let place = self.add(u32::MAX, Job::Void);
        *place = work;
    }

    /// Empties the list. What the works carried has left them.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Gives memory back that a burst needed.
    pub(crate) fn shrink(&mut self) {
        self.places.truncate(self.len);
        self.places.shrink_to_fit();
    }

    /// Takes all works out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Work> {
        let len = std::mem::take(&mut self.len);
        self.places.drain(..len)
    }
}

impl Deref for Batch {
    type Target = [Work];

    #[inline]
    fn deref(&self) -> &[Work] {
        &self.places[..self.len]
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Work] {
        &mut self.places[..self.len]
    }
}
