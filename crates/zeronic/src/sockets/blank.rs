//! Blank rings: what the engine inside takes for the buffers of its connections. Their bytes mean nothing, so all
//! connections share them.
use shm::{Mirror, Region, Span};
use std::collections::HashMap;
use std::sync::Arc;

/// Blank rings, by size.
#[derive(Default)]
pub(super) struct Blanks {
    rings: HashMap<u32, Arc<Mirror>>,
}

impl Blanks {
    /// The ring of so many bytes; none where the system has no memory for it.
    pub(super) fn ring(&mut self, size: u32) -> Option<Arc<Mirror>> {
        if let Some(ring) = self.rings.get(&size) {
            return Some(Arc::clone(ring));
        }
        let region = Arc::new(Region::create("zeronic blank ring", size as usize).ok()?);
        let ring = Arc::new(Mirror::map(&region, 0, size as usize).ok()?);
        self.rings.insert(size, Arc::clone(&ring));
        Some(ring)
    }

    /// These bytes belong to a blank ring: the payload that they stand for is in its place already.
    pub(super) fn has(&self, span: &Span) -> bool {
        self.rings.values().any(|ring| span.is_of(ring))
    }
}
