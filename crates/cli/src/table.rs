//! Tables and colours for people.
use std::io::IsTerminal;

/// Rows under a heading; numbers are right-aligned.
pub(crate) struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(heading: &[&str]) -> Table {
        Table { heading: heading.iter().map(|word| word.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row with one cell for each column.
    pub(crate) fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// It has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows it has.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self) {
        let columns = self.columns();
        print_line(&bold(&line(&columns, &self.heading)));
        let mut lines = self.rows.iter().map(|row| line(&columns, row) + "\n");
        lines.all(|line| console::print(&line));
    }

    /// Width of each column, and whether it holds numbers. Computed once: there may be tens of thousands of rows.
    fn columns(&self) -> Vec<(usize, bool)> {
        (0..self.heading.len()).map(|at| (self.width(at), self.is_numeric(at))).collect()
    }

    /// Characters of its widest line.
    #[cfg(test)]
    pub(crate) fn widest(&self) -> usize {
        let columns = self.columns();
        self.rows.iter().chain([&self.heading]).map(|row| visible(&line(&columns, row))).max().unwrap_or(0)
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().chain([&self.heading]).filter_map(|row| row.get(column));
        cells.map(|cell| visible(cell)).max().unwrap_or(0)
    }

    fn is_numeric(&self, column: usize) -> bool {
        let number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains([':', '/']);
        let mut cells = self.rows.iter().filter_map(|row| row.get(column)).filter(|cell| *cell != "-").peekable();
        cells.peek().is_some() && cells.all(number)
    }
}

/// Cells under each other; a column has its width, and numbers stand to the right.
fn line(columns: &[(usize, bool)], cells: &[String]) -> String {
    let padded = cells.iter().zip(columns).map(|(cell, (width, numeric))| {
        let pad = " ".repeat(width.saturating_sub(visible(cell)));
        if *numeric { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().into()
}

/// Characters of a text that take a place: colours do not.
fn visible(text: &str) -> usize {
    let mut parts = text.split('\x1b');
    let plain = parts.next().map_or(0, |part| part.chars().count());
    plain + parts.map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count())).sum::<usize>()
}

pub(crate) use console::print_line;

/// Reports what is wrong with the command line, and ends.
pub(crate) fn wrong_usage(sentence: &str) -> ! {
    eprintln!("opentoe: {sentence}");
    std::process::exit(2)
}

/// Writes a value as JSON.
pub(crate) fn print_json(value: &serde_json::Value) {
    print_line(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// In bold, on a terminal.
pub(crate) fn bold(text: &str) -> String {
    paint(text, "1")
}

/// In green, on a terminal.
pub(crate) fn green(text: &str) -> String {
    paint(text, "32")
}

/// In yellow, on a terminal.
pub(crate) fn yellow(text: &str) -> String {
    paint(text, "33")
}

/// In red, on a terminal.
pub(crate) fn red(text: &str) -> String {
    paint(text, "31")
}

fn paint(text: &str, code: &str) -> String {
    let plain = !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain { text.into() } else { format!("\x1b[{code}m{text}\x1b[0m") }
}

/// A number with thousands separated.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A list in an answer; empty where there is none.
pub(crate) fn list<'a>(value: &'a serde_json::Value, key: &str) -> &'a [serde_json::Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A value of the daemon's answer as a cell.
pub(crate) fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".into(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_right_aligned_and_words_left() {
        let mut table = Table::new(&["name", "count"]);
        table.row(["a", "5"]);
        table.row(["long", "1,234"]);
        let columns = table.columns();
        assert_eq!(line(&columns, &table.rows[0]), "a         5");
        assert_eq!(line(&columns, &table.rows[1]), "long  1,234");
        assert_eq!(table.widest(), 11);
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(12), "12");
        assert_eq!(visible("\x1b[32mok\x1b[0m  "), 4);
    }
}
