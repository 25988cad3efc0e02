//! `bpf_trace_printk`: the last lines, for whoever debugs a module.
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Most lines that are stored.
const LINES: usize = 256;
/// Characters of a line.
const LENGTH: usize = 256;

/// The last lines that a program printed.
#[derive(Default)]
pub(crate) struct Log(Mutex<VecDeque<String>>);

impl Log {
    pub(crate) fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Takes all lines out.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// Formats as C's printf does, for numbers: `%d %i %u %x %c %p`, with `l`, `ll`, a width and zeros.
pub(super) fn format(pattern: &[u8], numbers: [u64; 3]) -> String {
    let pattern = pattern.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(pattern);
    let mut line = String::new();
    let mut numbers = numbers.into_iter();
    let mut remaining = text.chars();
    while let Some(one) = remaining.next() {
        if one != '%' {
            line.push(one);
            continue;
        }
        let mut width = String::new();
        let mut long = false;
        let kind = loop {
            match remaining.next() {
                Some('l') => long = true,
                Some(digit @ '0'..='9') => width.push(digit),
                other => break other,
            }
        };
        match kind {
            Some('%') | None => line.push('%'),
            Some(kind) => line.push_str(&number(kind, long, &width, numbers.next().unwrap_or(0))),
        }
    }
    line.chars().take(LENGTH).collect::<String>().trim_end().to_string()
}

fn number(kind: char, long: bool, width: &str, value: u64) -> String {
    let value = if long || kind == 'p' { value } else { value & u64::from(u32::MAX) };
    let text = match kind {
        'd' | 'i' if long => (value as i64).to_string(),
        'd' | 'i' => (value as i32).to_string(),
        'u' => value.to_string(),
        'x' => format!("{value:x}"),
        'X' => format!("{value:X}"),
        'p' => format!("{value:#x}"),
        'c' => char::from(value as u8).to_string(),
        other => return format!("%{other}"),
    };
    let wanted = width.parse::<usize>().unwrap_or(0).min(32);
    if width.starts_with('0') { format!("{text:0>wanted$}") } else { format!("{text:>wanted$}") }
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn numbers_are_formatted_as_in_c() {
        let numbers = [u64::MAX, 255, 7];
        assert_eq!(format(b"%d is %x of %lld\n\0junk", numbers), "-1 is ff of 7");
        assert_eq!(format(b"%5u|%04x|100%%", [3, 10, 0]), "    3|000a|100%");
        assert_eq!(format(b"%s", numbers), "%s");
        assert_eq!(format(&[b'x'; 999], numbers).len(), 256);
    }
}
