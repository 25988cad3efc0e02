//! What an offload engine reports of its functions, for people (docs/OFFLOAD.md). It is a program of the device like
//! any other, so the daemon shows these figures and relies on none.
use serde::{Deserialize, Serialize};

/// Libraries of a report at most.
pub const MOST_LIBRARIES: usize = 256;
/// Bytes of a name at most.
const MOST_NAME: usize = 64;
/// Bytes of a sentence at most.
pub const MOST_SENTENCE: usize = 1024;

/// An offload engine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// How often its worker ended and another one was started.
    pub restarts: u32,
    /// Why the last one ended.
    pub last_end: Option<String>,
    /// DMA operations that are outstanding: of those that go through the kernel.
    pub outstanding_dma: u64,
    /// Libraries of functions.
    pub libraries: Vec<Library>,
}

/// A library of functions: what its calls came to since it was loaded, or since the worker was started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// Calls that were begun.
    pub calls: u64,
    /// Calls that ended with a negative number, or at their time limit.
    pub failed: u64,
    /// Of these, those at their time limit.
    pub timed_out: u64,
    /// Nanoseconds in which functions ran, without what they waited.
    pub busy_ns: u64,
    /// DMA operations of calls that have ended.
    pub dma: u64,
}

impl Report {
    /// It is of a size that may be kept.
    pub fn is_bounded(&self) -> bool {
        let short = |library: &Library| library.name.len() <= MOST_NAME;
        self.libraries.len() <= MOST_LIBRARIES
            && self.libraries.iter().all(short)
            && self.last_end.as_ref().is_none_or(|why| why.len() <= MOST_SENTENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_kept_only_where_it_is_short() {
        let named = |name: &str, count: usize| Report {
            libraries: vec![Library { name: name.into(), ..Library::default() }; count],
            ..Report::default()
        };
        let ended = |len: usize| Report { last_end: Some("x".repeat(len)), ..Report::default() };
        assert!(named(&"x".repeat(64), 256).is_bounded() && ended(MOST_SENTENCE).is_bounded());
        assert!(!named("x", 257).is_bounded() && !named(&"x".repeat(65), 1).is_bounded());
        assert!(!ended(MOST_SENTENCE + 1).is_bounded());
    }
}
