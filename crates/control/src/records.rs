//! Journal records of connections ([`Records`]) in this process' own memory. They are for simulations and tests, in
//! which the next host is made in the process of the one that is gone.
use crate::journal::{ADDRESS_WORDS, RECORD_WORDS, Records};
use std::sync::{Arc, Mutex, PoisonError};

/// Records that outlive a host; clones are of the same ones.
#[derive(Clone)]
pub struct RecordsInMemory(Arc<Mutex<Vec<Words>>>);

type Words = ([u64; RECORD_WORDS], [u64; ADDRESS_WORDS]);

impl RecordsInMemory {
    /// For so many connections, of which there is none yet.
    pub fn new(count: u32) -> RecordsInMemory {
        RecordsInMemory(Arc::new(Mutex::new(vec![([0; RECORD_WORDS], [0; ADDRESS_WORDS]); count as usize])))
    }

    /// Number of connections in it.
    pub fn used(&self) -> usize {
        self.with(|records| records.iter().filter(|record| record.0[0] != 0).count())
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Words>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Records for RecordsInMemory {
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
