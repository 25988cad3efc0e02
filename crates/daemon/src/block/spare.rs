//! Memory of blocks that is used again: fresh memory is cleared first, which is as much as a copy.
use solar::BLOCK_LEN;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Most spare blocks, of all volumes of a host: as many as a client may have outstanding.
const MOST_BLOCKS: usize = 1024;
/// Most spare buffers of a connection.
const MOST_BUFFERS: usize = 64;
/// A longer buffer is freed.
const LONGEST: usize = 64 << 10;

/// Blocks that were read from a volume. Each is free again once its client has acknowledged it.
#[derive(Default)]
pub(super) struct SpareBlocks(VecDeque<Arc<[u8; BLOCK_LEN]>>);

impl SpareBlocks {
    /// A block without other references, with any bytes.
    pub(super) fn take(&mut self) -> Arc<[u8; BLOCK_LEN]> {
        // They are given in turn. Where the first one is still in use, so are probably the others.
        let first = self.0.pop_front().filter(|first| Arc::strong_count(first) == 1);
        first.unwrap_or_else(|| Arc::new([0; BLOCK_LEN]))
    }

    /// It is taken again when no reference to it is left.
    pub(super) fn keep(&mut self, block: Arc<[u8; BLOCK_LEN]>) {
        if self.0.len() < MOST_BLOCKS {
            self.0.push_back(block);
        }
    }
}

/// Buffers of requests, between the two threads of a connection.
#[derive(Default)]
pub(super) struct SpareBuffers(Mutex<Vec<Vec<u8>>>);

impl SpareBuffers {
    /// A buffer of this length, with any bytes.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// A buffer that is not needed any more.
    pub(super) fn keep(&self, buffer: Vec<u8>) {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if (1..=LONGEST).contains(&buffer.capacity()) && buffers.len() < MOST_BUFFERS {
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_taken_again_once_nobody_has_it() {
        let mut spare = SpareBlocks::default();
        let (sent, first) = (spare.take(), spare.take());
        let [of_sent, of_first] = [&sent, &first].map(Arc::as_ptr);
        spare.keep(Arc::clone(&sent));
        spare.keep(first);
        let next = spare.take();
        assert!(Arc::as_ptr(&next) != of_sent && Arc::as_ptr(&next) != of_first, "the first one is in use");
        assert_eq!(Arc::as_ptr(&spare.take()), of_first);
    }

    #[test]
    fn a_buffer_has_the_length_that_is_asked_for() {
        let spare = SpareBuffers::default();
        spare.keep(vec![7; 8192]);
        assert_eq!(spare.take(4096), vec![7; 4096]);
        spare.keep(vec![7; 4096]);
        assert_eq!(spare.take(8192).len(), 8192);
        spare.keep(vec![7; LONGEST + 1]);
        assert_eq!(spare.take(1), [0], "that one was freed");
    }
}
