//! The daemon's ends of the queues of one program that posts and takes completions ([`crate::comm`],
//! [`crate::volume`]).
//!
//! A program that takes no completions gets no more posts taken. So what waits for room is bounded by what its place
//! lets it have outstanding.
use crate::queues::{COMPLETION_WORDS, SEND_WORDS};
use shm::{Doorbell, PipeConsumer, PipeProducer};
use std::collections::VecDeque;

/// How long a thread sleeps at most while completions find no room, nanoseconds: nobody rings when some are taken.
pub const RETRY: u64 = 200_000;

/// The ends.
pub struct ProgramQueues {
    posts: PipeConsumer<SEND_WORDS>,
    completions: PipeProducer<COMPLETION_WORDS>,
    bell: Doorbell,
    program_bell: Doorbell,
    /// Completions that found no room.
    late: VecDeque<[u64; COMPLETION_WORDS]>,
    news: bool,
}

impl ProgramQueues {
    /// The ends of both queues; the program rings `bell`, and the daemon `program_bell`.
    pub fn new(
        posts: PipeConsumer<SEND_WORDS>,
        completions: PipeProducer<COMPLETION_WORDS>,
        bell: Doorbell,
        program_bell: Doorbell,
    ) -> ProgramQueues {
        ProgramQueues { posts, completions, bell, program_bell, late: VecDeque::new(), news: false }
    }

    /// The doorbell on which the data-path thread sleeps.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }

    /// Some completions find no room: a sleeping side polls again after [`RETRY`].
    pub fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// There is a post that [`ProgramQueues::next_post`] would give.
    pub fn has_posts(&self) -> bool {
        self.late.is_empty() && !self.posts.is_empty()
    }

    /// The next post, to be checked; none while completions find no room.
    pub fn next_post(&mut self) -> Option<[u64; SEND_WORDS]> {
        self.push_late();
        if self.late.is_empty() { self.posts.pop() } else { None }
    }

    /// Adds a completion, behind those that find no room.
    pub fn complete(&mut self, completion: [u64; COMPLETION_WORDS]) {
        self.late.push_back(completion);
        self.push_late();
    }

    /// Wakes the program, where it has new completions.
    pub fn ring(&mut self) {
        self.push_late();
        if std::mem::take(&mut self.news) {
            self.program_bell.ring();
        }
    }

    fn push_late(&mut self) {
        while let Some(completion) = self.late.front() {
            if self.completions.push(*completion).is_err() {
                return;
            }
            self.late.pop_front();
            self.news = true;
        }
    }
}
