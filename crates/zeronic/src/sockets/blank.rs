//! Blank rings: what the engine inside takes for the buffers of its connections. Their bytes mean nothing, so all
//! connections share them, and all sizes the same memory.
use shm::{ByteRing, Region, Span};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Blank rings, by size.
pub(super) struct Blanks {
    region: Arc<Region>,
    rings: HashMap<u32, Arc<ByteRing>>,
}

impl Blanks {
    /// For rings of at most `most` bytes.
    pub(super) fn new(most: u32) -> io::Result<Blanks> {
        let region = Arc::new(Region::create("zeronic blank ring", most as usize)?);
        Ok(Blanks { region, rings: HashMap::new() })
    }

    /// The ring of so many bytes; none where that is more than there may be.
    pub(super) fn ring(&mut self, size: u32) -> Option<Arc<ByteRing>> {
        if let Some(ring) = self.rings.get(&size) {
            return Some(Arc::clone(ring));
        }
        let ring = Arc::new(ByteRing::map(&self.region, 0, size as usize).ok()?);
        self.rings.insert(size, Arc::clone(&ring));
        Some(ring)
    }

    /// These bytes belong to a blank ring: the payload that they stand for is in its place already.
    pub(super) fn has(&self, span: &Span) -> bool {
        self.rings.values().any(|ring| span.is_of(ring))
    }
}
