//! Tables in a given width: columns are as wide as their longest cell, and where they do not all fit, those that matter
//! least are left out whole. Nothing is cut off.

/// A column.
pub(super) struct Column {
    title: &'static str,
    right: bool,
    /// The lower, the longer it stays.
    rank: u8,
    cells: Vec<String>,
}

impl Column {
    /// Words.
    pub(super) fn words(title: &'static str, rank: u8, cells: Vec<String>) -> Column {
        Column { title, right: false, rank, cells }
    }

    /// Numbers: aligned at their ends.
    pub(super) fn numbers(title: &'static str, rank: u8, cells: Vec<String>) -> Column {
        Column { title, right: true, rank, cells }
    }

    fn width(&self, steady: usize) -> usize {
        let widest = self.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        // Numbers change: a column that breathes with them is hard to read.
        let least = if self.right { steady } else { 0 };
        widest.max(self.title.chars().count()).max(least)
    }

    fn padded(&self, text: &str, width: usize) -> String {
        if self.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
    }
}

/// The heading and the rows, each at most `width` characters.
pub(super) fn lines(mut columns: Vec<Column>, width: usize) -> (String, Vec<String>) {
    const STEADY: usize = 4;
    let fits = |columns: &[Column], gap: usize| {
        let all: usize = columns.iter().map(|column| column.width(STEADY)).sum();
        all + gap * columns.len().saturating_sub(1) <= width
    };
    while columns.len() > 1 && !fits(&columns, 1) {
        let last = columns.iter().enumerate().max_by_key(|(_, column)| column.rank).map_or(0, |(at, _)| at);
        columns.remove(last);
    }
    let gap = if fits(&columns, 2) { "  " } else { " " };
    let row = |cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> =
            columns.iter().map(|column| column.padded(&cell(column), column.width(STEADY))).collect();
        cells.join(gap).trim_end().to_string()
    };
    let count = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let rows = (0..count).map(|at| row(&|column: &Column| column.cells.get(at).cloned().unwrap_or_default()));
    (row(&|column: &Column| column.title.into()), rows.collect())
}

/// As many of the pieces as fit, in their order; those that do not are left out whole.
pub(super) fn pieces(pieces: impl IntoIterator<Item = String>, width: usize) -> String {
    let mut line = String::new();
    for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
        let gap = if line.is_empty() { 0 } else { 2 };
        if line.chars().count() + gap + piece.chars().count() <= width {
            line.extend(std::iter::repeat_n(' ', gap));
            line += &piece;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> (String, Vec<String>) {
        let of = |cells: [&str; 2]| cells.map(String::from).to_vec();
        let columns = vec![
            Column::words("name", 0, of(["a", "longest"])),
            Column::numbers("n", 2, of(["1", "12345"])),
            Column::words("end", 1, of(["x", "y"])),
        ];
        lines(columns, width)
    }

    #[test]
    fn columns_that_do_not_fit_are_left_out_whole() {
        assert_eq!(
            table(80),
            ("name         n  end".into(), vec!["a            1  x".into(), "longest  12345  y".into()])
        );
        assert_eq!(table(17).1[1], "longest 12345 y");
        assert_eq!(table(16).1[1], "longest  y");
        assert_eq!(table(5).1[1], "longest", "the first is never left out");
        assert_eq!(pieces(["one".into(), "three".into(), String::new(), "2".into()], 7), "one  2");
    }
}
