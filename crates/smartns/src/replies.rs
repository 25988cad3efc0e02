//! Responder resources: the reads and atomics that a peer may ask for again (IBTA 1.3, 9.7.5.1.3).
use crate::placement::Target;
use std::collections::VecDeque;
use wire::roce::Psn;

/// What answers a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// Memory, read when it is sent.
    Read(Target),
    /// What the word held, stored: an atomic is executed once.
    Atomic(u64),
}

/// A read or an atomic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    /// Its request's packet.
    pub(crate) first: Psn,
    /// Packets of the whole answer.
    pub(crate) packets: u32,
    /// Bytes of the whole answer.
    pub(crate) len: u32,
    pub(crate) answer: Answer,
    /// Packets to send: from `begin`, of which those up to `next` are sent, to `end`.
    pub(crate) begin: u32,
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// How often it was asked for again.
    pub(crate) repeats: u32,
    /// All of it was sent once: where the peer has fewer outstanding than it may, it needs this one no more.
    pub(crate) was_sent: bool,
}

impl Reply {
    /// Some packets of it are to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.next < self.end
    }
}

/// The list of them, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    list: VecDeque<Reply>,
}

impl Replies {
    /// Adds one. False where the peer has more outstanding than the `most` that it may.
    // Meets IBTA: 9.7.5-c.
    pub(crate) fn add(&mut self, reply: Reply, most: u8) -> bool {
        while self.list.len() >= usize::from(most) {
            match self.list.front() {
                Some(oldest) if oldest.was_sent => self.list.pop_front(),
                _ => return false,
            };
        }
        self.list.push_back(reply);
        true
    }

    /// The first one that has something to send.
    pub(crate) fn pending(&mut self) -> Option<&mut Reply> {
        self.list.iter_mut().find(|reply| reply.is_pending())
    }

    /// The one that has this packet: it was asked for again.
    pub(crate) fn holding(&mut self, psn: Psn) -> Option<&mut Reply> {
        self.list.iter_mut().find(|reply| {
            let at = psn.since(reply.first);
            at >= 0 && (at as u32) < reply.packets
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(first: u32, packets: u32) -> Reply {
        let answer = Answer::Atomic(first.into());
        Reply {
            first: Psn::new(first),
            packets,
            len: 8,
            answer,
            begin: 0,
            next: 0,
            end: packets,
            repeats: 0,
            was_sent: false,
        }
    }

    // Checks IBTA: 9.7.5-c.
    #[test]
    fn as_many_are_stored_as_may_be_outstanding() {
        let mut replies = Replies::default();
        assert!(!replies.add(reply(0, 1), 0));
        assert!(replies.add(reply(0xff_ffff, 3), 2) && replies.add(reply(2, 1), 2));
        assert!(!replies.add(reply(3, 1), 2), "the oldest is not sent yet");
        let oldest = replies.pending().unwrap();
        (oldest.next, oldest.was_sent) = (3, true);
        // A repeated request that comes late does not keep it.
        oldest.next = 0;
        assert!(replies.add(reply(3, 1), 2));
        assert!(replies.holding(Psn::new(0)).is_none());
        assert_eq!(replies.holding(Psn::new(2)).unwrap().first, Psn::new(2));
        assert_eq!(replies.pending().unwrap().first, Psn::new(2));
    }
}
