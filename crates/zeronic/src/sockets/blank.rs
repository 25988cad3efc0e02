//! Blank rings: what the engine inside takes for the buffers of its connections. Their bytes mean nothing, so all
//! connections share them, and all sizes the same memory.
use shm::{ByteRing, Region, Span};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Blank rings, by size and by what a stream usually has of it.
pub(super) struct Blanks {
    region: Arc<Region>,
    rings: HashMap<(u32, u32), Arc<ByteRing>>,
}

impl Blanks {
    /// For rings of at most `most` bytes.
    pub(super) fn new(most: u32) -> io::Result<Blanks> {
        let region = Arc::new(Region::create("zeronic blank ring", most as usize)?);
        Ok(Blanks { region, rings: HashMap::new() })
    }

    /// The one that stands for all rings of a stream, of which this is one; none where that is more than there may be.
    pub(super) fn standing_for(&mut self, ring: &ByteRing) -> Option<Arc<ByteRing>> {
        let sizes = (ring.most(), ring.usual());
        if let Some(ring) = self.rings.get(&sizes) {
            return Some(Arc::clone(ring));
        }
        let ring = ByteRing::map(&self.region, 0, sizes.0 as usize).ok()?.standing_for(sizes.1);
        let ring = Arc::new(ring);
        self.rings.insert(sizes, Arc::clone(&ring));
        Some(ring)
    }

    /// These bytes belong to a blank ring: the payload that they stand for is in its place already.
    pub(super) fn has(&self, span: &Span) -> bool {
        self.rings.values().any(|ring| span.is_of(ring))
    }
}
