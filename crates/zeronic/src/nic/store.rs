//! The backing store of list entries: blocks of eight, one cache line, given to flows and taken back.
//!
//! A flow is promised some blocks and may have more while others do not need them (the paper's section 3.2: committed
//! and peak entries).

/// Entries of a block.
pub(super) const BLOCK: usize = 8;
/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// All blocks of a NIC.
#[derive(Clone)]
pub(super) struct Store {
    entries: Box<[u64]>,
    /// The block after each one: in a flow's list, or among the free ones.
    next: Box<[u32]>,
    free: u32,
    /// Blocks from here on were never used.
    fresh: u32,
    available: u32,
    /// Free blocks that are promised to flows.
    promised: u32,
}

/// A flow's account of the store.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Account {
    held: u16,
    promise: u16,
}

impl Store {
    /// A store of so many entries, rounded down to blocks.
    pub(super) fn new(entries: usize) -> Store {
        let blocks = (entries / BLOCK).min(NONE as usize - 1);
        Store {
            entries: vec![0; blocks * BLOCK].into(),
            next: vec![0; blocks].into(),
            free: NONE,
            fresh: 0,
            available: blocks as u32,
            promised: 0,
        }
    }

    /// Promises `blocks` to a flow, or what is not promised yet.
    pub(super) fn open(&mut self, blocks: usize) -> Account {
        let promise = u32::try_from(blocks).unwrap_or(u32::MAX).min(self.available - self.promised);
        let promise = u16::try_from(promise).unwrap_or(u16::MAX);
        self.promised += u32::from(promise);
        Account { held: 0, promise }
    }

    /// Ends a promise; the flow has given all blocks back.
    pub(super) fn close(&mut self, account: Account) {
        debug_assert_eq!(account.held, 0);
        self.promised -= u32::from(account.promise);
    }

    /// Blocks that a flow can take now.
    pub(super) fn room(&self, account: Account) -> usize {
        let own = account.promise.saturating_sub(account.held);
        usize::from(own) + (self.available - self.promised) as usize
    }

    /// Takes a block; `None` where there is no room for the flow.
    pub(super) fn take(&mut self, account: &mut Account) -> Option<u32> {
        if self.room(*account) == 0 || account.held == u16::MAX {
            return None;
        }
        let block = match self.free {
            NONE => {
                self.fresh += 1;
                self.fresh - 1
            }
            block => {
                self.free = self.next[block as usize];
                block
            }
        };
        self.promised -= u32::from(account.held < account.promise);
        self.available -= 1;
        account.held += 1;
        self.next[block as usize] = NONE;
        Some(block)
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, account: &mut Account, block: u32) {
        account.held -= 1;
        self.available += 1;
        self.promised += u32::from(account.held < account.promise);
        self.next[block as usize] = self.free;
        self.free = block;
    }

    /// Puts `after` behind a block.
    pub(super) fn link(&mut self, block: u32, after: u32) {
        self.next[block as usize] = after;
    }

    /// The block behind one.
    pub(super) fn after(&self, block: u32) -> u32 {
        self.next[block as usize]
    }

    /// An entry of a block.
    pub(super) fn entry(&mut self, block: u32, at: u8) -> &mut u64 {
        &mut self.entries[block as usize * BLOCK + usize::from(at)]
    }

    /// The same to read.
    pub(super) fn get(&self, block: u32, at: u8) -> u64 {
        self.entries[block as usize * BLOCK + usize::from(at)]
    }

    /// Blocks that nobody has.
    pub(super) fn available(&self) -> usize {
        self.available as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_holds_beside_a_flow_that_takes_all_it_can() {
        let mut store = Store::new(10 * BLOCK);
        let (mut modest, mut greedy) = (store.open(3), store.open(2));
        let taken: Vec<u32> = std::iter::from_fn(|| store.take(&mut greedy)).collect();
        assert_eq!((taken.len(), store.room(modest)), (7, 3));
        let mine: Vec<u32> = std::iter::from_fn(|| store.take(&mut modest)).collect();
        assert_eq!((mine.len(), store.available()), (3, 0));
        for block in taken {
            store.give(&mut greedy, block);
        }
        for block in mine {
            store.give(&mut modest, block);
        }
        store.close(modest);
        store.close(greedy);
        assert_eq!((store.available(), store.promised), (10, 0));
        assert_eq!(store.open(100).promise, 10, "what is left is promised");
    }
}
