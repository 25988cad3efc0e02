//! Sends by reference of a connection, and the notifications that the program gets: Linux' `MSG_ZEROCOPY`
//! (Documentation/networking/msg_zerocopy.rst). Each call has a number. Once the peer has acknowledged all of a call's
//! bytes, its number is in a notification on the socket's error queue. Notifications of calls that follow each other
//! are one.
use context::{MOST_POSTS, Post};
use std::collections::VecDeque;

/// Calls of a connection that may wait for their notification. Linux bounds them by memory (`net.core.optmem_max`).
const MOST_CALLS: usize = 1024;

/// Bytes of one put, whose memory is kept for as long as they are under way.
#[derive(Debug, Clone, Copy)]
struct Put {
    end: u32,
    address: usize,
}

/// A call that the program is to be notified of.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    /// Behind its last byte.
    end: u32,
    is_copied: bool,
}

/// Notification to the program: the calls `first` to `last` are over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Notification {
    pub first: u32,
    pub last: u32,
    /// Bytes of theirs were copied (`SO_EE_CODE_ZEROCOPY_COPIED`).
    pub is_copied: bool,
}

/// Relation of a new part of the stream to the posted ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It makes the last post so long.
    Extends(u32),
    /// A post of its own.
    Post,
    /// There is no room for another post.
    Crowded,
}

/// Sends by reference of one connection.
#[derive(Default)]
pub(crate) struct References {
    puts: VecDeque<Put>,
    /// Posts of which some bytes are under way.
    posts: VecDeque<Post>,
    calls: VecDeque<Call>,
    next_call: u32,
    /// Bytes that calls of this kind copied.
    copied: u64,
    notifications: VecDeque<Notification>,
}

/// Position `end` lies at `tail` or before it.
fn is_past(end: u32, tail: u32) -> bool {
    end.wrapping_sub(tail) as i32 <= 0
}

impl References {
    /// A call begins; nothing where too many wait for their notification. What it returns belongs to the call's end.
    pub(crate) fn begin_call(&self) -> Option<u64> {
        (self.calls.len() + self.notifications.len() < MOST_CALLS).then_some(self.copied)
    }

    /// A call has put all its bytes, before position `end`.
    pub(crate) fn end_call(&mut self, copied_before: u64, end: u32) {
        let number = self.next_call;
        self.next_call = number.wrapping_add(1);
        self.calls.push_back(Call { number, end, is_copied: self.copied != copied_before });
    }

    /// So many bytes were copied.
    pub(crate) fn copied(&mut self, bytes: usize) {
        self.copied += bytes as u64;
    }

    /// How bytes at offset `at` of the heap, for position `pos`, fit what is posted.
    pub(crate) fn fit(&self, pos: u32, at: u32, len: u32) -> Fit {
        let follows = |last: &&Post| last.pos.wrapping_add(last.len) == pos && last.at.wrapping_add(last.len) == at;
        match self.posts.back().filter(follows) {
            Some(last) => Fit::Extends(last.len + len),
            None if self.posts.len() < MOST_POSTS => Fit::Post,
            None => Fit::Crowded,
        }
    }

    /// Bytes were posted, after a check of how they fit. Their memory, of which `address` is a part, is pinned.
    pub(crate) fn posted(&mut self, fit: &Fit, post: Post, address: usize) {
        match (fit, self.posts.back_mut()) {
            (Fit::Extends(len), Some(last)) => last.len = *len,
            _ => self.posts.push_back(post),
        }
        self.puts.push_back(Put { end: post.pos.wrapping_add(post.len), address });
    }

    /// The peer has acknowledged everything before position `tail`. Gives the addresses whose memory is free to
    /// `unpin`. True where there are notifications that were not there before.
    pub(crate) fn settle(&mut self, tail: u32, mut unpin: impl FnMut(usize)) -> bool {
        while let Some(put) = self.puts.front().filter(|put| is_past(put.end, tail)) {
            unpin(put.address);
            self.puts.pop_front();
        }
        while self.posts.front().is_some_and(|post| is_past(post.pos.wrapping_add(post.len), tail)) {
            self.posts.pop_front();
        }
        let mut is_new = false;
        // Also of those of which bytes were copied: others may have been sent by reference.
        while let Some(call) = self.calls.front().copied().filter(|call| is_past(call.end, tail)) {
            self.calls.pop_front();
            self.notify(call);
            is_new = true;
        }
        is_new
    }

    fn notify(&mut self, Call { number, is_copied, .. }: Call) {
        match self.notifications.back_mut() {
            Some(last) if last.is_copied == is_copied && last.last.wrapping_add(1) == number => last.last = number,
            _ => self.notifications.push_back(Notification { first: number, last: number, is_copied }),
        }
    }

    /// The connection is over: nothing is sent any more.
    pub(crate) fn finish(&mut self, mut unpin: impl FnMut(usize)) {
        self.puts.drain(..).for_each(|put| unpin(put.address));
        self.posts.clear();
        while let Some(call) = self.calls.pop_front() {
            self.notify(call);
        }
    }

    /// Takes the addresses of what is under way: somebody else unpins them.
    pub(crate) fn take_pins(&mut self) -> Vec<usize> {
        self.posts.clear();
        self.puts.drain(..).map(|put| put.address).collect()
    }

    /// Posts under way: parts of the stream, and where they lie in the heap.
    pub(crate) fn posts(&self) -> impl Iterator<Item = Post> + '_ {
        self.posts.iter().copied()
    }

    /// The program is to be notified of something: of all calls where the connection is over.
    pub(crate) fn has_notifications(&self, is_over: bool) -> bool {
        !self.notifications.is_empty() || is_over && !self.calls.is_empty()
    }

    /// The oldest notification.
    pub(crate) fn take_notification(&mut self) -> Option<Notification> {
        self.notifications.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(references: &mut References, pos: u32, at: u32, len: u32) -> Fit {
        let fit = references.fit(pos, at, len);
        if fit != Fit::Crowded {
            references.posted(&fit, Post { pos, at, len }, at as usize);
        }
        fit
    }

    fn settle(references: &mut References, tail: u32) -> (bool, Vec<usize>) {
        let mut unpinned = Vec::new();
        (references.settle(tail, |address| unpinned.push(address)), unpinned)
    }

    const BEGIN: u32 = u32::MAX - 10;

    #[test]
    fn calls_are_over_in_order_once_their_bytes_are_acknowledged() {
        let mut sends = References::default();
        assert_eq!(post(&mut sends, BEGIN, 0, 20), Fit::Post);
        sends.end_call(0, BEGIN.wrapping_add(20));
        assert_eq!(post(&mut sends, BEGIN.wrapping_add(20), 20, 30), Fit::Extends(50));
        sends.end_call(0, BEGIN.wrapping_add(50));
        sends.copied(5);
        sends.end_call(0, BEGIN.wrapping_add(55));
        assert_eq!((settle(&mut sends, BEGIN.wrapping_add(19)), sends.take_notification()), ((false, vec![]), None));
        assert_eq!(settle(&mut sends, BEGIN.wrapping_add(20)), (true, vec![0]));
        assert_eq!(settle(&mut sends, BEGIN.wrapping_add(54)), (true, vec![20]));
        assert_eq!(settle(&mut sends, BEGIN.wrapping_add(55)), (true, vec![]), "a copied piece ends no call early");
        let notifications = [sends.take_notification(), sends.take_notification(), sends.take_notification()];
        let notification = |first, last, is_copied| Some(Notification { first, last, is_copied });
        assert_eq!(notifications, [notification(0, 1, false), notification(2, 2, true), None]);
        assert!(sends.posts().next().is_none());
    }

    #[test]
    fn so_many_posts_and_calls_are_under_way_and_no_more() {
        let mut sends = References::default();
        for number in 0..MOST_POSTS as u32 {
            assert_eq!(post(&mut sends, number * 10, number * 100, 10), Fit::Post);
        }
        assert_eq!(post(&mut sends, 630, 9000, 10), Fit::Crowded);
        settle(&mut sends, 10);
        assert_eq!(post(&mut sends, 630, 9000, 10), Fit::Post);
        for _ in 0..MOST_CALLS {
            assert_eq!(sends.begin_call(), Some(0));
            sends.end_call(0, 640);
        }
        assert_eq!(sends.begin_call(), None);
        assert!(settle(&mut sends, 640).0);
        assert!(sends.begin_call().is_some(), "all are one notification");
    }

    #[test]
    fn the_end_of_a_connection_ends_all() {
        let mut sends = References::default();
        post(&mut sends, 0, 7, 10);
        sends.end_call(0, 10);
        let mut unpinned = Vec::new();
        sends.finish(|address| unpinned.push(address));
        assert_eq!((unpinned, sends.has_notifications(false)), (vec![7], true));
    }
}
