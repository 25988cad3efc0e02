//! Report of a run: one line for each case, and the count at the end.
use crate::process::Session;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::{Duration, Instant};

/// What a case returns: a few words about what it saw, or what went wrong.
pub type Outcome = Result<String, String>;

/// Counts and prints.
#[derive(Default, Serialize, Deserialize)]
pub struct Report {
    passed: usize,
    /// Each with its reason.
    failed: Vec<String>,
    /// Others print at the same time: a line is printed when it is whole.
    #[serde(skip)]
    whole: bool,
}

impl Report {
    /// One of several that are printed at the same time.
    pub fn beside_others(beside: bool) -> Report {
        Report { whole: beside, ..Report::default() }
    }

    /// Runs one case and prints its line; on failure also what its programs printed last.
    pub fn case(&mut self, session: &Session, name: &str, limit: Duration, run: impl FnOnce() -> Outcome) {
        if session.interrupted() {
            return;
        }
        let head = format!("{name:<54} ");
        if !self.whole {
            write(&head);
        }
        session.begin_case(limit);
        let begin = Instant::now();
        let outcome = run();
        let seconds = begin.elapsed().as_secs_f64();
        let result = match outcome {
            Ok(words) => {
                self.passed += 1;
                format!("ok     {seconds:5.1} s  {words}\n")
            }
            Err(why) => {
                self.failed.push(format!("{name}: {}", why.lines().next().unwrap_or_default()));
                format!("FAILED {seconds:5.1} s  {why}\n{}", session.excerpts())
            }
        };
        write(&if self.whole { head + &result } else { result });
    }

    /// Takes the count of another report.
    pub fn add(&mut self, other: Report) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
    }

    /// Prints the count; whether all went well.
    pub fn finish(self, session: &Session) -> bool {
        if session.interrupted() {
            println!("interrupted");
        }
        for case in &self.failed {
            println!("failed: {case}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty() && self.passed > 0 && !session.interrupted()
    }
}

/// In one piece.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
