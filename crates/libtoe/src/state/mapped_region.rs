//! The shared memory in which connections lie.
use crate::system::address_space;
use crate::table;
use context::Geometry;
use shm::Region;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// Region with a connection's buffers and state. It outlives the context: inherited connections stay in their parent's
/// region.
pub(crate) struct MappedRegion {
    /// The region.
    pub region: Arc<Region>,
    /// Its layout.
    pub geometry: Geometry,
    /// Number of its context in the daemon.
    context: AtomicU32,
}

impl MappedRegion {
    /// A region that was just mapped.
    pub(crate) fn new(region: Arc<Region>, geometry: Geometry, context: u32) -> MappedRegion {
        address_space::mapped(region.len());
        MappedRegion { region, geometry, context: AtomicU32::new(context) }
    }

    /// Number of its context in the daemon.
    pub(crate) fn context(&self) -> u32 {
        self.context.load(Relaxed)
    }

    /// It has come to another daemon.
    pub(crate) fn is_now(&self, context: u32) {
        self.context.store(context, Relaxed);
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        address_space::unmapped(self.region.len());
        table::clear(self.region.fd().as_raw_fd());
    }
}
