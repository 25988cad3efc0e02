//! SYN cookies that have made their connection.

/// Cookies that came back, so that each makes one connection. A segment that arrives when its connection is over would
/// begin it again, and its bytes would be read twice. The last ones, about as many as there are places.
#[derive(Default)]
pub(crate) struct UsedCookies {
    /// By their lower bits, a newer one in the place of an older one; 0 for none. Empty before the first.
    marks: Vec<u64>,
}

/// Half a second of a hundred thousand connections each second: 512 KiB, for hosts that ever sent cookies.
const PLACES: usize = 1 << 16;

impl UsedCookies {
    pub(crate) fn insert(&mut self, mark: u64) {
        self.marks.resize(PLACES, 0);
        self.marks[mark as usize % PLACES] = mark;
    }

    pub(crate) fn contains(&self, mark: u64) -> bool {
        self.marks.get(mark as usize % PLACES) == Some(&mark)
    }
}
