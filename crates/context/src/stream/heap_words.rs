//! Where a slot's words about the heap are: those of direct receives, and those of sends by reference.
use crate::Geometry;
use shm::{ByteRing, Region};
use std::io;
use std::sync::Arc;

/// The place of such words in a region that has a heap.
pub(super) struct HeapWords {
    pub(super) region: Arc<Region>,
    pub(super) geometry: Geometry,
    /// Offset of the first word.
    pub(super) at: usize,
}

impl HeapWords {
    /// Those of slot `index`, which begin at `at`; none where the region has no heap. Each connection asks as it opens,
    /// and most regions have none: so the test stands in the caller.
    #[inline]
    pub(super) fn new(
        region: &Arc<Region>,
        geometry: &Geometry,
        index: u32,
        at: fn(&Geometry, u32) -> usize,
    ) -> Option<HeapWords> {
        if geometry.heap_bytes == 0 { None } else { HeapWords::in_heap(region, geometry, index, at) }
    }

    #[cold]
    fn in_heap(
        region: &Arc<Region>,
        geometry: &Geometry,
        index: u32,
        at: fn(&Geometry, u32) -> usize,
    ) -> Option<HeapWords> {
        let exists = index < geometry.slots;
        exists.then(|| HeapWords { region: Arc::clone(region), geometry: *geometry, at: at(geometry, index) })
    }

    /// The heap: an offset is a position of this ring. Nothing lies outside it.
    ///
    /// # Errors
    /// The region is not laid out so.
    pub(super) fn heap(&self) -> io::Result<ByteRing> {
        ByteRing::map(&self.region, self.geometry.heap_at(), self.geometry.heap_bytes as usize)
    }

    /// All bytes of a post lie in the heap.
    pub(super) fn holds(&self, at: u32, len: u32) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.geometry.heap_bytes)
    }
}
