//! Memory that outlives a host.
use control::{ADDRESS_WORDS, RECORD_WORDS, Records};
use std::sync::{Arc, Mutex, PoisonError};

/// The records of a host's connections, for the host that takes its place.
#[derive(Clone)]
pub(crate) struct Lasting(Arc<Mutex<Vec<Words>>>);

type Words = ([u64; RECORD_WORDS], [u64; ADDRESS_WORDS]);

impl Lasting {
    /// For so many connections.
    pub(crate) fn new(count: u32) -> Lasting {
        Lasting(Arc::new(Mutex::new(vec![([0; RECORD_WORDS], [0; ADDRESS_WORDS]); count as usize])))
    }

    /// Nothing is in it any more.
    pub(crate) fn emptied(self) -> Lasting {
        self.with(|records| records.iter_mut().for_each(|record| record.0[0] = 0));
        self
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Words>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Records for Lasting {
    fn count(&self) -> u32 {
        self.with(|records| records.len() as u32)
    }
    fn load(&self, at: u32) -> [u64; RECORD_WORDS] {
        self.with(|records| records[at as usize].0)
    }
    fn load_addresses(&self, at: u32) -> [u64; ADDRESS_WORDS] {
        self.with(|records| records[at as usize].1)
    }
    fn store(&mut self, at: u32, words: &[u64; RECORD_WORDS], addresses: Option<&[u64; ADDRESS_WORDS]>) {
        self.with(|records| {
            let record = &mut records[at as usize];
            *record = (*words, addresses.copied().unwrap_or(record.1));
        });
    }
    fn clear(&mut self, at: u32) {
        self.with(|records| records[at as usize].0[0] = 0);
    }
}
