//! Cache of recently read blocks of a volume, in memory that frames refer to. A read that finds its block here costs no
//! system call, no copy and no checksum at the server. The reader checks the checksum, as for any block.
//!
//! Only the data-path thread uses it. A block stands here only as long as the volume has the same bytes. A writer
//! removes it before the client is answered, and nothing is cached while a write is under way.
use shm::{ByteRing, PAGE, Region, Span};
use solar::{BLOCK_LEN, Block, BlockBytes};
use std::io;
use std::sync::Arc;

/// The cache of one volume: each block has one place in it.
pub(super) struct BlockCache {
    region: Option<Arc<Region>>,
    places: Vec<CachedBlock>,
}

/// A place; its memory is there once it was used.
#[derive(Default)]
struct CachedBlock {
    lba: Option<u64>,
    crc: u32,
    bytes: Option<Arc<ByteRing>>,
}

impl BlockCache {
    /// A cache of at most so many bytes, none for 0. Its memory is taken as it fills.
    ///
    /// # Errors
    /// The system has no memory or no descriptor.
    pub(super) fn new(bytes: u64, blocks: u64) -> io::Result<BlockCache> {
        const { assert!(BLOCK_LEN == PAGE, "a block is a ring of its own") };
        let count = (bytes / BLOCK_LEN as u64).min(blocks);
        let region = (count > 0).then(|| Region::create("opentoe-volume", count as usize * BLOCK_LEN)).transpose()?;
        let places = std::iter::repeat_with(CachedBlock::default).take(count as usize).collect();
        Ok(BlockCache { region: region.map(Arc::new), places })
    }

    fn place(&mut self, lba: u64) -> Option<(usize, &mut CachedBlock)> {
        let at = lba.checked_rem(self.places.len() as u64)? as usize;
        Some((at, &mut self.places[at]))
    }

    /// The block, where it is here.
    pub(super) fn find(&mut self, lba: u64) -> Option<Block> {
        let (_, place) = self.place(lba).filter(|(_, place)| place.lba == Some(lba))?;
        let span = Span::new(place.bytes.as_ref()?, 0, BLOCK_LEN as u32);
        // Its copy comes later in the round, and the cache is larger than the processor's.
        span.prefetch_front();
        Some(Block { crc: place.crc, bytes: BlockBytes::Shared(span) })
    }

    /// Keeps a block that was just read. Where frames still refer to what has its place, that one stays.
    pub(super) fn keep(&mut self, lba: u64, crc: u32, block: &[u8]) {
        let Some(region) = self.region.clone() else { return };
        let Some((at, place)) = self.place(lba) else { return };
        if place.bytes.is_none() {
            place.bytes = ByteRing::map(&region, at * BLOCK_LEN, BLOCK_LEN).ok().map(Arc::new);
        }
        if let Some(ring) = place.bytes.as_mut().and_then(Arc::get_mut) {
            ring.write(0, block);
            (place.lba, place.crc) = (Some(lba), crc);
        }
    }

    /// The block is about to have other bytes, or has them.
    pub(super) fn forget(&mut self, lba: u64) {
        if let Some((_, place)) = self.place(lba).filter(|(_, place)| place.lba == Some(lba)) {
            place.lba = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(block: &Block) -> Vec<u8> {
        let BlockBytes::Shared(span) = &block.bytes else { panic!("it is shared") };
        let mut bytes = Vec::new();
        span.append(&mut bytes);
        bytes
    }

    #[test]
    fn a_block_is_found_until_it_is_forgotten_or_replaced() {
        let mut cache = BlockCache::new(4 * 4096 + 1, 100).unwrap();
        for lba in 0..4 {
            assert!(cache.find(lba).is_none());
            cache.keep(lba, lba as u32, &[lba as u8; 4096]);
        }
        for lba in 0..4 {
            let block = cache.find(lba).unwrap();
            assert_eq!((block.crc, bytes(&block)), (lba as u32, vec![lba as u8; 4096]));
        }
        cache.forget(1);
        cache.forget(6);
        cache.keep(7, 7, &[7; 4096]);
        let found = [0, 1, 2, 3, 7].map(|lba| cache.find(lba).is_some());
        assert_eq!(found, [true, false, true, false, true]);
    }

    #[test]
    fn what_a_frame_refers_to_does_not_change() {
        let mut cache = BlockCache::new(4096, 100).unwrap();
        cache.keep(0, 0, &[1; 4096]);
        let sent = cache.find(0).unwrap();
        cache.keep(1, 1, &[2; 4096]);
        assert_eq!((bytes(&sent), cache.find(1).is_none()), (vec![1; 4096], true));
        cache.forget(0);
        cache.keep(0, 0, &[3; 4096]);
        assert_eq!((bytes(&sent), cache.find(0).is_none()), (vec![1; 4096], true));
        drop(sent);
        cache.keep(0, 0, &[3; 4096]);
        assert_eq!(bytes(&cache.find(0).unwrap()), vec![3; 4096]);
    }

    #[test]
    fn without_memory_nothing_is_cached() {
        let mut cache = BlockCache::new(4095, 100).unwrap();
        cache.keep(0, 0, &[1; 4096]);
        cache.forget(0);
        assert!(cache.find(0).is_none());
    }
}
