//! Page tables of quiet connections. Giving back the memory of buffers leaves the tables that led there. They are a
//! page for every 2 MiB of a region, in each process that has it mapped. This is 2 KiB for each end of an idle
//! connection with buffers of the usual size. Linux frees a table that is empty when a process drops all 2 MiB of it
//! (`MADV_DONTNEED`, from 6.14 on). What other connections there still have comes back with a page fault each.
use crate::Geometry;
use shm::Region;
use std::ops::Range;

/// What a table of pages maps.
const BLOCK: usize = 2 << 20;

/// Which parts of a region may be dropped, as one process sees it.
pub(crate) struct Tables {
    /// For each block of addresses, connections that were reclaimed there since it was last dropped. Connections that
    /// send meanwhile are not taken out: dropping too much costs some page faults, and nothing else.
    reclaimed: Vec<u16>,
}

impl Tables {
    pub(super) fn new(geometry: &Geometry) -> Tables {
        Tables { reclaimed: vec![0; geometry.region_len() / BLOCK + 2] }
    }

    /// The buffers of a slot were given back. Drops the blocks that are quiet now.
    pub(super) fn reclaimed(&mut self, region: &Region, geometry: &Geometry, index: u32) {
        let small = geometry.small_pair();
        if small > 0 {
            self.rested_part(region, (geometry.small_at(index), small), geometry.small_at(0)..geometry.rx_at(0));
        }
        let buffers = (geometry.rx_at(index), geometry.pair_len(index));
        self.rested_part(region, buffers, geometry.rx_at(0)..geometry.log_at());
    }

    /// The same of one of the parts of a region where connections have their bytes: `len` bytes from `at` on.
    fn rested_part(&mut self, region: &Region, (at, len): (usize, usize), buffers: Range<usize>) {
        // Blocks are those of addresses, wherever the region begins.
        let base = region.address(0, 0) as usize;
        let lead = base % BLOCK;
        let start = at + lead;
        let end = start + len;
        // As many as make a block worth dropping: about all that it holds.
        let enough = (BLOCK / len).clamp(1, u16::MAX as usize) as u16;
        for block in start / BLOCK..end.div_ceil(BLOCK) {
            let Some(reclaimed) = self.reclaimed.get_mut(block) else { return };
            *reclaimed += 1;
            if *reclaimed < enough {
                continue;
            }
            *reclaimed = 0;
            let from = (block * BLOCK).saturating_sub(lead).max(buffers.start);
            let to = ((block + 1) * BLOCK - lead).min(buffers.end);
            // Where it fails, the tables stay: they are needed by nobody, and harm nobody.
            let _ = region.drop_pages(from, to.saturating_sub(from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_in_a_dropped_block_is_still_there() {
        let (rx_bytes, tx_bytes) = (1 << 18, 1 << 18);
        let (data_entries, control_entries, log_bytes, small_bytes) = (64, 64, 0, 0);
        let (slots, full_slots, long) = (64, 64, crate::LongPaths::NONE);
        let geometry = Geometry {
            slots,
            long,
            growing: crate::Growing::NONE,
            data_entries,
            control_entries,
            rx_bytes,
            tx_bytes,
            full_slots,
            small_bytes,
            log_bytes,
            heap_bytes: 0,
        };
        let region = geometry.create_region("test").unwrap();
        let word = |index: u32| region.u32_at(geometry.tx_at(index));
        (0..64).for_each(|index| word(index).store(index + 1, std::sync::atomic::Ordering::Relaxed));
        let mut tables = Tables::new(&geometry);
        for index in (0..64).chain(0..64) {
            tables.reclaimed(&region, &geometry, index);
        }
        assert!((0..64).all(|index| word(index).load(std::sync::atomic::Ordering::Relaxed) == index + 1));
        assert!(tables.reclaimed.iter().all(|reclaimed| *reclaimed < 4), "four connections of 512 KiB fill a block");
        // A connection that is larger than a block.
        let large = Geometry { slots: 2, rx_bytes: 1 << 22, tx_bytes: 1 << 22, ..geometry };
        let region = large.create_region("test").unwrap();
        let mut tables = Tables::new(&large);
        tables.reclaimed(&region, &large, 1);
        assert!(tables.reclaimed.iter().all(|reclaimed| *reclaimed == 0));
    }
}
