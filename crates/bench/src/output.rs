//! What is printed for people.

/// Writes to the standard output; who does not read it any more does not want it.
pub fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
