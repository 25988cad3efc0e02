//! Output of the programs for people. A reader that went away (`opentoe ls | head`) is no error. Any other failure to
//! write is remembered, and [`finish`] returns it at the end: an empty file must not look like an empty answer.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;

/// The first failure to write to standard output.
static FAILURE: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes a line.
pub fn print_line(line: &str) {
    print(&format!("{line}\n"));
}

/// Writes a text as it is. Returns false where nobody will read it: then there is no reason to write more.
pub fn print(text: &str) -> bool {
    wrote(io::stdout().write_all(text.as_bytes()))
}

/// Hands over what is buffered. Returns false where nobody will read it.
pub fn flush() -> bool {
    wrote(io::stdout().flush())
}

/// What becomes of the program at its end: everything was written, or nobody wanted it.
///
/// # Errors
/// A sentence, where something else than the reader's end prevented it.
pub fn finish() -> Result<(), String> {
    flush();
    match FAILURE.lock().map(|mut failure| failure.take()) {
        Ok(Some(error)) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("the answer is not complete, because standard output cannot be written: {error}"))
        }
        _ => Ok(()),
    }
}

/// For writers of their own behind standard output: remembers the first failure. Returns whether there has been none.
pub fn wrote(done: io::Result<()>) -> bool {
    let Ok(mut failure) = FAILURE.lock() else { return false };
    if let Err(error) = done {
        failure.get_or_insert(error);
    }
    failure.is_none()
}

/// So many things: 1 host, 2 hosts.
pub fn several<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        let counts = [0u64, 1, 2].map(|count| several(count, "connection"));
        assert_eq!(counts, ["0 connections", "1 connection", "2 connections"]);
        assert_eq!(several(1usize, "time"), "1 time");
    }
}
