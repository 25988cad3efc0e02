//! An application that sends by reference. Some of its bytes lie in the heap of its region until they are acknowledged,
//! and then mean something else.
use super::{App, Rng};
use context::{MOST_POSTS, Post, SendWords};
use shm::ByteRing;
use std::collections::VecDeque;

/// What it has of the heap. A byte of the stream lies at its position modulo the heap's size.
pub(crate) struct Referring {
    words: SendWords,
    heap: ByteRing,
    /// Ends of posts that are under way.
    posts: VecDeque<u32>,
    last: Option<Post>,
    freed: u32,
    pub sent: u64,
}

impl App {
    /// From now on, it sends by reference, where the engine finds posts.
    pub(crate) fn refer(&mut self) {
        let words = SendWords::new(&self.end.region, &self.end.geometry, self.slot.index).expect("a heap");
        let heap = words.heap().expect("laid out so");
        self.referring = Some(Referring { words, heap, posts: VecDeque::new(), last: None, freed: 0, sent: 0 });
    }

    /// Writes bytes at the stream's end: by reference, or to the ring.
    pub(super) fn put(&mut self, rng: &mut Rng, at: usize, len: usize) {
        let bytes = &self.outgoing[at..at + len];
        let whole = self.referring.as_mut().filter(|_| rng.chance(70)).is_some_and(|referring| {
            referring.free(self.freed);
            referring.put(self.slot.mark(), self.written, bytes)
        });
        if whole {
            // What lies in the ring there means nothing.
            self.tx.write(self.written, &vec![0xdd; len]);
        } else {
            self.tx.write(self.written, bytes);
        }
    }
}

impl Referring {
    fn size(&self) -> u32 {
        self.heap.size()
    }

    /// What is acknowledged is the application's: it writes something else there.
    fn free(&mut self, freed: u32) {
        let len = freed.wrapping_sub(self.freed).min(self.size());
        self.heap.write(freed.wrapping_sub(len), &vec![0xee; len as usize]);
        self.freed = freed;
        while self.posts.front().is_some_and(|end| end.wrapping_sub(freed) as i32 <= 0) {
            self.posts.pop_front();
        }
    }

    fn put(&mut self, mark: u32, pos: u32, bytes: &[u8]) -> bool {
        let (at, len) = (pos % self.size(), bytes.len() as u32);
        if len == 0 || at + len > self.size() || !self.words.may_post(mark) {
            return false;
        }
        let follows = |last: &Post| last.pos.wrapping_add(last.len) == pos && last.at + last.len == at;
        let is_full = self.posts.len() == MOST_POSTS;
        match self.last.filter(follows).zip(self.posts.back_mut()) {
            Some((last, end)) => {
                self.heap.write(at, bytes);
                let grown = Post { len: last.len + len, ..last };
                self.words.extend(grown.len);
                self.last = Some(grown);
                *end = pos.wrapping_add(len);
            }
            None if is_full => return false,
            None => {
                self.heap.write(at, bytes);
                let post = Post { pos, at, len };
                self.words.post(mark, post);
                self.last = Some(post);
                self.posts.push_back(pos.wrapping_add(len));
            }
        }
        self.sent += u64::from(len);
        true
    }
}
