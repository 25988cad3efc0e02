//! Volumes for programs (`toe_volume_*` in include/toe.h, docs/SOLAR.md): the contract between a program and a volume
//! that a host of the daemon uses.
//!
//! Attaching and the registration of memory are those of [`crate::comm`]: the same socket, [`Request`]s and
//! [`Answer`]s. In the region of queues ([`crate::queues`]) are [`Post`]s and [`Completion`]s of this file.
//!
//! [`Request`]: crate::comm::Request
//! [`Answer`]: crate::comm::Answer
use crate::comm::Piece;
use serde::{Deserialize, Serialize};

/// Version of what is in this file.
pub const VERSION: u32 = 1;

/// Program to daemon: the first message. [`crate::comm::Answer::Volume`] follows, or
/// [`crate::comm::Answer::Refused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the library.
    pub volume_version: u32,
    /// The volume's name in the section `[[block]]`.
    pub volume: String,
    /// The host that uses it; `None` for the first one that does.
    pub host: Option<String>,
    /// Command line of the process, for people.
    pub command: String,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the volume into memory.
    Read,
    /// From memory to the volume. The memory must not change until the completion.
    Write,
}

/// A post: whole blocks of a volume, and the memory for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    /// The program's own number, which the completion repeats.
    pub id: u64,
    /// Which way.
    pub order: Order,
    /// Byte of the volume where it begins.
    pub at: u64,
    /// The memory; its length is that of the request.
    pub memory: Piece,
}

const READ: u64 = 1;
const WRITE: u64 = 2;

impl Post {
    /// The element of a send queue.
    pub fn to_words(self) -> [u64; 8] {
        let kind = match self.order {
            Order::Read => READ,
            Order::Write => WRITE,
        };
        [kind, self.id, self.at, self.memory.key.into(), self.memory.offset, self.memory.len, 0, 0]
    }

    /// Reads an element. `None` for what no library of ours writes.
    pub fn from_words(words: [u64; 8]) -> Option<Post> {
        let [kind, id, at, key, offset, len, ..] = words;
        let order = match kind {
            READ => Order::Read,
            WRITE => Order::Write,
            _ => return None,
        };
        Some(Post { id, order, at, memory: Piece { key: key as u32, offset, len } })
    }
}

/// An element of a completion queue: a request has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The post's number.
    pub id: u64,
    /// A Linux error number; 0 where all bytes were read, or are durable.
    pub errno: u32,
}

impl Completion {
    /// The element.
    pub fn to_words(self) -> [u64; 8] {
        [self.id, self.errno.into(), 0, 0, 0, 0, 0, 0]
    }

    /// Reads an element.
    pub fn from_words(words: [u64; 8]) -> Completion {
        Completion { id: words[0], errno: words[1] as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back() {
        let memory = Piece { key: u32::MAX, offset: 1 << 35, len: 1 << 34 };
        for order in [Order::Read, Order::Write] {
            let post = Post { id: u64::MAX, order, at: 1 << 60, memory };
            assert_eq!(Post::from_words(post.to_words()), Some(post));
            assert!(post.to_words()[7] < shm::VALID);
        }
        assert_eq!(Post::from_words([0; 8]), None);
        let completion = Completion { id: u64::MAX, errno: 5 };
        assert_eq!(Completion::from_words(completion.to_words()), completion);
    }
}
