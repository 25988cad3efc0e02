//! What an offload engine reports of its functions, for people (docs/OFFLOAD.md). It is a program of the device like
//! any other, so the daemon shows these figures and relies on none.
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

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
    /// The same without what terminals obey, and with each name once: a program may report anything.
    #[must_use]
    pub fn printable(self) -> Report {
        let clean = |text: String| text.chars().filter(|c| !c.is_control()).collect::<String>();
        let mut names = HashSet::new();
        let libraries = self.libraries.into_iter().map(|library| Library { name: clean(library.name), ..library });
        let libraries = libraries.filter(|library| names.insert(library.name.clone())).collect();
        Report { libraries, last_end: self.last_end.map(clean), ..self }
    }

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

    #[test]
    fn a_report_has_nothing_that_a_terminal_obeys() {
        let named = |name: &str| Library { name: name.into(), ..Library::default() };
        let libraries = vec![named("list"), named("\u{1b}[2Jlist"), named("li\nst"), named("crc\u{9b}")];
        let last_end = Some("signal\r 9".into());
        let report = Report { libraries, last_end, ..Report::default() }.printable();
        let names: Vec<&str> = report.libraries.iter().map(|library| library.name.as_str()).collect();
        assert_eq!((names, report.last_end.as_deref()), (vec!["list", "[2Jlist", "crc"], Some("signal 9")));
    }
}
