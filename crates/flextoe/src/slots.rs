//! A module's private state of each flow, by flow number.

/// Places for flows below a limit. The address space is reserved at start; memory is touched as flows come.
pub(crate) struct Slots<T> {
    places: Vec<Option<T>>,
    most: u32,
}

/// Bytes from which on a table takes huge pages: the last one of them is then no large part of it.
const LARGE: usize = 2 << 20;

impl<T> Slots<T> {
    pub(crate) fn new(most: u32) -> Slots<T> {
        Slots { places: Vec::with_capacity(most as usize), most }
    }

    /// Puts a flow's state; refuses a number beyond the limit and one that is taken.
    pub(crate) fn insert(&mut self, flow: u32, state: T) -> bool {
        if flow >= self.most || self.get(flow).is_some() {
            return false;
        }
        let at = flow as usize;
        if self.places.len() <= at {
            let before = self.places.len() * size_of::<Option<T>>();
            if before < LARGE && (at + 1) * size_of::<Option<T>>() >= LARGE {
                shm::prefer_huge_pages(&self.places);
            }
            self.places.resize_with(at + 1, || None);
        }
        self.places[at] = Some(state);
        true
    }

    pub(crate) fn remove(&mut self, flow: u32) -> Option<T> {
        self.places.get_mut(flow as usize).and_then(Option::take)
    }

    /// Prefetches a flow's state.
    #[inline(always)]
    pub(crate) fn prefetch(&self, flow: u32) {
        if let Some(place) = self.places.get(flow as usize) {
            shm::prefetch(place);
        }
    }

    #[inline]
    pub(crate) fn get(&self, flow: u32) -> Option<&T> {
        self.places.get(flow as usize).and_then(Option::as_ref)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, flow: u32) -> Option<&mut T> {
        self.places.get_mut(flow as usize).and_then(Option::as_mut)
    }
}
