//! The records of a shared log, as this process sees them.
use crate::state::mapped_region::MappedRegion;
use context::LogShape;
use std::sync::Arc;

/// The log of this process. Records are counted from its beginning.
pub(crate) struct Log {
    pub(crate) home: Arc<MappedRegion>,
    pub(crate) shape: LogShape,
    /// Can be read, as the engine reported; handed out; given back.
    pub(crate) ready: u64,
    pub(crate) read: u64,
    pub(crate) trimmed: u64,
}

/// `struct toe_log_record`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    data: *const u8,
    index: u64,
    mark: u64,
    number: u64,
}

impl Log {
    /// There is a record to take.
    pub(crate) fn is_readable(&self) -> bool {
        self.ready != self.read
    }

    pub(crate) fn record(&self, index: u64) -> Record {
        let (region, geometry) = (&self.home.region, &self.home.geometry);
        let record = self.shape.read(region, geometry, index);
        let data = if record.hole { std::ptr::null() } else { self.shape.address(region, geometry, index) };
        Record { data, index, mark: record.mark, number: record.number }
    }
}
