//! One line for each case, and the count at the end.
use crate::process::Session;
use std::io::Write;
use std::time::{Duration, Instant};

/// What a case returns: a few words about what it saw, or what went wrong.
pub type Outcome = Result<String, String>;

/// Counts and prints.
#[derive(Default)]
pub struct Report {
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    /// Runs one case and prints its line; on failure also what its programs printed last.
    pub fn case(&mut self, session: &Session, name: &str, limit: Duration, run: impl FnOnce() -> Outcome) {
        if session.interrupted() {
            return;
        }
        print!("{name:<54} ");
        let _ = std::io::stdout().flush();
        session.begin_case(limit);
        let begin = Instant::now();
        let outcome = run();
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(words) => {
                self.passed += 1;
                println!("ok     {seconds:5.1} s  {words}");
            }
            Err(why) => {
                self.failed.push(name.to_string());
                println!("FAILED {seconds:5.1} s  {why}");
                print!("{}", session.tails());
            }
        }
    }

    /// Prints the count; whether all went well.
    pub fn finish(self, session: &Session) -> bool {
        if session.interrupted() {
            println!("interrupted");
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        self.failed.is_empty() && self.passed > 0 && !session.interrupted()
    }
}
