//! The staging area of a DMA queue: bytes on their way, in runs of whole pages.
use super::{STAGING, STAGING_AT};
use shm::{ByteRing, PAGE, Region};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages of the area.
const PAGES: usize = STAGING / PAGE;

/// The area, as the data-path has it.
pub(super) struct Staging {
    region: Arc<Region>,
    byte_ring: Arc<ByteRing>,
    used: Mutex<Used>,
}

/// Which pages are in use.
struct Used(Box<[bool]>);

/// Pages in a row, given back when it is dropped.
pub(super) struct Run {
    staging: Arc<Staging>,
    first: usize,
    pages: usize,
}

impl Staging {
    pub(super) fn new(region: &Arc<Region>) -> io::Result<Staging> {
        let byte_ring = Arc::new(ByteRing::map(region, STAGING_AT, STAGING)?);
        let used = Mutex::new(Used(vec![false; PAGES].into()));
        Ok(Staging { region: Arc::clone(region), byte_ring, used })
    }

    /// Room for so many bytes; none where there is not so much in a row.
    pub(super) fn take(self: &Arc<Staging>, bytes: usize) -> Option<Run> {
        let pages = bytes.div_ceil(PAGE).max(1);
        let first = self.used().take(pages)?;
        Some(Run { staging: Arc::clone(self), first, pages })
    }

    /// To copy bytes in.
    pub(super) fn byte_ring(&self) -> &ByteRing {
        &self.byte_ring
    }

    /// The first byte of the area, which stays mapped as long as this lives.
    pub(super) fn base(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.region.address(STAGING_AT, STAGING))
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Used {
    /// The first pages in a row that are free: those that were used a short time ago are in the caches.
    fn take(&mut self, pages: usize) -> Option<usize> {
        let mut first = 0;
        while first + pages <= PAGES {
            let run = &mut self.0[first..first + pages];
            match run.iter().rposition(|used| *used) {
                None => {
                    run.fill(true);
                    return Some(first);
                }
                Some(last) => first += last + 1,
            }
        }
        None
    }
}

impl Run {
    /// Its place in the area.
    pub(super) fn at(&self) -> usize {
        self.first * PAGE
    }

    pub(super) fn staging(&self) -> &Staging {
        &self.staging
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.staging.used().0[self.first..self.first + self.pages].fill(false);
    }
}

#[cfg(test)]
mod tests {
    use super::super::REGION;
    use super::*;

    #[test]
    fn runs_do_not_overlap_and_come_back() {
        let region = Arc::new(Region::create("test", REGION).unwrap());
        let staging = Arc::new(Staging::new(&region).unwrap());
        let mut runs: Vec<Run> = std::iter::from_fn(|| staging.take(3 * PAGE - 1)).collect();
        assert_eq!(runs.len(), PAGES / 3);
        let mut places: Vec<usize> = runs.iter().map(Run::at).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[1] - two[0] >= 3 * PAGE));
        // The rest is one page; two neighbours that go make room for six.
        assert!(staging.take(PAGE + 1).is_none() && staging.take(1).is_some());
        runs.retain(|run| run.at() != 30 * PAGE && run.at() != 33 * PAGE);
        assert!(staging.take(7 * PAGE).is_none());
        assert_eq!(staging.take(6 * PAGE).map(|run| run.at()), Some(30 * PAGE));
        assert!(staging.take(6 * PAGE).is_some());
    }
}
