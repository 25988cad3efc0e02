//! A shared log in a context's region (docs/SHARED-LOG.md): the places of records and of their state.
use crate::Geometry;
use serde::{Deserialize, Serialize};
use shm::{ByteRing, PAGE, Region};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The slot that means the log in [`crate::Bump`]s and [`crate::Completion`]s. Both count records since the log began,
/// modulo 2^32: a completion's `rx_tail` how many can be read, a bump's `rx_head` how many were given back.
pub const LOG_SLOT: u32 = u32::MAX;

/// Bytes of a record's description.
const ENTRY: usize = 16;
/// What is in a record's place, in the low bits of the second word of its entry.
const WHOLE: u64 = 1;
const HOLE: u64 = 2;

/// Size of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogShape {
    /// Bytes of a record: a power of two from 16 to 65,536.
    pub record: u32,
    /// Records that the log holds: a power of two.
    pub records: u32,
}

impl LogShape {
    /// It can be a log, and the region has room for it.
    pub fn fits(&self, geometry: &Geometry) -> bool {
        let LogShape { record, records } = *self;
        let sizes = record.is_power_of_two() && (16..=65_536).contains(&record) && records.is_power_of_two();
        sizes && self.records_len() >= PAGE && self.records_len() + self.table_len() <= geometry.log_bytes as usize
    }

    /// Bytes of all records.
    fn records_len(&self) -> usize {
        self.record as usize * self.records as usize
    }

    /// Bytes of all entries.
    fn table_len(&self) -> usize {
        (self.records as usize * ENTRY).max(PAGE)
    }
}

/// Description of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRecord {
    /// The connection's mark, as the application gave it.
    pub mark: u64,
    /// How many records of the connection came before.
    pub number: u64,
    /// Its connection ended before all of it came: the bytes in its place mean nothing.
    pub hole: bool,
}

/// The daemon's end of a log. It writes, and reads nothing of it.
pub struct LogEnd {
    /// The records, one after the other.
    pub records: ByteRing,
    table: ByteRing,
    /// Its size.
    pub shape: LogShape,
}

impl LogEnd {
    pub(crate) fn new(region: &Arc<Region>, geometry: &Geometry, shape: LogShape) -> io::Result<LogEnd> {
        if !shape.fits(geometry) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let at = geometry.log_at();
        let records = ByteRing::map(region, at, shape.records_len())?;
        let table = ByteRing::map(region, at + shape.records_len(), shape.table_len())?;
        Ok(LogEnd { records, table, shape })
    }

    /// Reports what became of record `index`, before a completion lets the application read it.
    pub fn describe(&self, index: u64, record: &LogRecord) {
        let state = record.number << 2 | if record.hole { HOLE } else { WHOLE };
        let mut entry = [0; ENTRY];
        entry[..8].copy_from_slice(&record.mark.to_ne_bytes());
        entry[8..].copy_from_slice(&state.to_ne_bytes());
        self.table.write((index as u32 & (self.shape.records - 1)) * ENTRY as u32, &entry);
    }
}

impl LogShape {
    /// For the application: the description of record `index`, which can be read by a completion.
    pub fn read(&self, region: &Region, geometry: &Geometry, index: u64) -> LogRecord {
        let at = (index as u32 & (self.records - 1)) as usize;
        let entry = geometry.log_at() + self.records_len() + at * ENTRY;
        let (mark, state) = (region.u64_at(entry).load(Relaxed), region.u64_at(entry + 8).load(Relaxed));
        LogRecord { mark, number: state >> 2, hole: state & 3 != WHOLE }
    }

    /// For the application: where record `index` lies.
    pub fn address(&self, region: &Region, geometry: &Geometry, index: u64) -> *const u8 {
        let at = (index as u32 & (self.records - 1)) as usize * self.record as usize;
        region.address(geometry.log_at() + at, self.record as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Geometry = Geometry {
        slots: 1,
        long: crate::LongPaths::NONE,
        growing: crate::Growing::NONE,
        data_entries: 64,
        control_entries: 64,
        rx_bytes: 4096,
        tx_bytes: 4096,
        full_slots: 1,
        small_bytes: 0,
        log_bytes: 16_384,
        heap_bytes: 0,
    };

    #[test]
    fn what_is_no_log_or_does_not_fit_is_refused() {
        let fits = |record, records| LogShape { record, records }.fits(&SIZES);
        assert!(fits(64, 128) && fits(4096, 2) && fits(16, 256));
        // Not a power of two, too small a record, less than a page, more than there is; with the table, one byte too
        // many.
        for (record, records) in
            [(48, 128), (8, 1024), (64, 32), (64, 512), (64, 100), (1 << 17, 1), (0, 0), (16, 1024)]
        {
            assert!(!fits(record, records), "{record} {records}");
        }
        assert!(!LogShape { record: u32::MAX, records: u32::MAX }.fits(&SIZES));
        assert!(!LogShape { record: 64, records: 64 }.fits(&Geometry { log_bytes: 0, ..SIZES }));
    }

    #[test]
    fn both_sides_see_the_same_record() {
        let region = Arc::new(SIZES.create_region("test").unwrap());
        let shape = LogShape { record: 64, records: 128 };
        let end = LogEnd::new(&region, &SIZES, shape).unwrap();
        for (index, hole) in [(0, false), (127, true), (128 * 7 + 5, false), (u32::MAX as u64 + 9, false)] {
            let record = LogRecord { mark: u64::MAX - index, number: 1 << 40, hole };
            end.describe(index, &record);
            end.records.write((index as u32).wrapping_mul(64), &[index as u8; 64]);
            assert_eq!(shape.read(&region, &SIZES, index), record);
            // SAFETY is not needed to compare addresses: the records begin at a page.
            let at = shape.address(&region, &SIZES, index) as usize - shape.address(&region, &SIZES, 0) as usize;
            assert_eq!(at, (index % 128) as usize * 64);
        }
    }
}
