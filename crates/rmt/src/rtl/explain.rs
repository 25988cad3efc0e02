//! Mapping from signals of the RTL to lines of the P4 program: for readers of a waveform or a report.
use super::{Design, SourceFile};
use crate::Loaded;

/// A signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// Its name in the program, where it is a field there.
    pub field: Option<String>,
    /// The assignments to it, in the order of the pipeline.
    pub set: Vec<Set>,
}

/// A place where a signal gets a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// File of the RTL, and line.
    pub at: String,
    /// File of the program, and line: of the table, the condition or the statement.
    pub program: Option<String>,
    /// The action that does it, with its place.
    pub action: Option<String>,
    /// The line of the RTL.
    pub text: String,
}

/// Explains a signal of a half, by its name in the RTL or in the program (`hdr.seg.flow`). `None` where there is none
/// of that name.
pub fn explain(loaded: &Loaded, design: &Design, name: &str) -> Option<Explained> {
    let name = name.replace('.', "_");
    let mut out = Explained { field: None, set: Vec::new() };
    let mut is_there = false;
    for file in &design.files {
        let lines = Lines::of(file);
        is_there |= lines.clone().any(|line| words(line.text).any(|word| word == name));
        out.field = out.field.or_else(|| lines.clone().find_map(|line| declared(line.text, &name)));
        out.set.extend(lines.filter(|line| sets(line.text, &name)).map(|line| Set {
            at: format!("{}.sv:{}", file.name, line.number),
            program: line.program.map(String::from),
            action: line.action.map(|action| with_place(loaded, action)),
            text: line.text.trim().to_string(),
        }));
    }
    is_there.then_some(out)
}

fn with_place(loaded: &Loaded, action: &str) -> String {
    let found = loaded.program.actions.iter().find(|known| known.name == action);
    found.map_or_else(|| action.to_string(), |known| format!("{action} ({})", loaded.place(known.pos)))
}

/// A line with the comments before it.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
    program: Option<&'a str>,
    action: Option<&'a str>,
}

/// The lines of a file.
#[derive(Clone)]
struct Lines<'a> {
    rest: std::iter::Enumerate<std::str::Lines<'a>>,
    /// Names of the stage's conditions and tables, with their places.
    nodes: Vec<(&'a str, &'a str)>,
    program: Option<&'a str>,
    action: Option<&'a str>,
}

impl<'a> Lines<'a> {
    fn of(file: &'a SourceFile) -> Lines<'a> {
        Lines { rest: file.text.lines().enumerate(), nodes: Vec::new(), program: None, action: None }
    }

    /// The place of the condition or table of which `text` begins what it does.
    fn runs(&self, text: &str) -> Option<&'a str> {
        let (name, end) = text.trim_start().strip_prefix("if (")?.split_once("_run")?;
        // What was decided may be held for some clocks: each puts "_q" behind its name.
        let begins = end.strip_suffix(") begin").is_some_and(|held| held.split("_q").all(str::is_empty));
        self.nodes.iter().find(|(known, _)| begins && *known == name).map(|(_, place)| *place)
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Line<'a>;

    fn next(&mut self) -> Option<Line<'a>> {
        let (number, text) = self.rest.next()?;
        let comment = text.split_once("//").map(|(_, comment)| comment.trim());
        match comment {
            Some(comment) if text.trim_start().starts_with("//") => {
                let named = named_place(comment);
                self.nodes.extend(named);
                if let Some(place) = named.map(|(_, place)| place).or(is_place(comment).then_some(comment)) {
                    (self.program, self.action) = (Some(place), None);
                } else if !comment.contains(' ') {
                    // The only action of its table.
                    self.action = Some(comment);
                }
            }
            Some(action) if text.contains(": begin //") => self.action = Some(action),
            _ if text.trim() == "endcase" => self.action = None,
            _ if text.is_empty() => (self.program, self.action) = (None, None),
            _ => {
                if let Some(place) = self.runs(text) {
                    (self.program, self.action) = (Some(place), None);
                }
            }
        }
        Some(Line { number: number + 1, text, program: self.program, action: self.action })
    }
}

/// `NAME (FILE:LINE)`.
fn named_place(comment: &str) -> Option<(&str, &str)> {
    let (name, place) = comment.split_once(" (")?;
    let place = place.split(')').next().filter(|place| is_place(place))?;
    Some((name, place))
}

/// `FILE:LINE`.
fn is_place(comment: &str) -> bool {
    let parts = comment.rsplit_once(':').filter(|(file, _)| !file.contains(' '));
    parts.is_some_and(|(_, line)| !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Identifiers, with the members of structs as ones of their own.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// A field of a struct with this name, as the program calls it.
fn declared(text: &str, name: &str) -> Option<String> {
    let (code, comment) = text.split_once("//")?;
    let is_field = code.trim_start().starts_with("logic") && code.trim_end().strip_suffix(';')?.ends_with(name);
    (is_field && words(code).any(|word| word == name) && comment.contains('.')).then(|| comment.trim().to_string())
}

/// The line gives the signal a value, other than the one that it had in the stage before.
fn sets(text: &str, name: &str) -> bool {
    let code = text.split("//").next().unwrap_or_default();
    let Some((left, right)) = code.split_once('=').filter(|(_, right)| !right.starts_with('=')) else { return false };
    let left = left.trim_end_matches('<').trim_end();
    let left = left.split('[').next().unwrap_or_default();
    let target = left.rsplit([' ', '.', '(']).next().unwrap_or_default();
    let passes = right.trim().trim_end_matches(';').rsplit('.').next() == Some(name);
    target == name && !left.contains("if") && !passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_sets_what_stands_left_of_its_assignment() {
        for text in
            ["  hdr_a = m.x;", "  next.hdr_a = 4'd1;", "  hdr_a <= in;", "  assign hdr_a = b;", "  hdr_a[3:0] = b;"]
        {
            assert!(sets(text, "hdr_a"), "{text}");
        }
        for text in
            ["  next.hdr_a = m.hdr_a;", "  b = hdr_a;", "  if (hdr_a == 1) begin", "  hdr_ab = 1;", "  // hdr_a = 1"]
        {
            assert!(!sets(text, "hdr_a"), "{text}");
        }
    }

    #[test]
    fn comments_name_the_source_of_lines() {
        let text = "// t (a.p4:7)\n\n// a.p4:7\nx = 1;\n\nif (t_run_q) begin\n1'd0: begin // act.one\ny = 2;\nendcase";
        let file = SourceFile { name: "s".into(), text: text.into() };
        let found = Lines::of(&file).map(|line| (line.program, line.action)).collect::<Vec<_>>();
        assert_eq!([found[1], found[4]], [(None, None); 2]);
        assert_eq!(found[3], (Some("a.p4:7"), None));
        assert_eq!(found[7], (Some("a.p4:7"), Some("act.one")));
        assert_eq!(found[8], (Some("a.p4:7"), None));
        let only =
            SourceFile { name: "s".into(), text: "// t (a.p4:7)\n\nif (t_run) begin\n// act.one\ny = 2;".into() };
        let found = Lines::of(&only).map(|line| (line.program, line.action)).collect::<Vec<_>>();
        assert_eq!(found[4], (Some("a.p4:7"), Some("act.one")), "the only action of its table");
        assert!(!is_place("where its payload begins") && !is_place("Stage 3 of egress:"));
        assert_eq!(
            declared("    logic [15:0] hdr_seg_flow; // hdr.seg.flow", "hdr_seg_flow"),
            Some("hdr.seg.flow".into())
        );
        assert_eq!(declared("    logic slot; // a packet is here", "slot"), None);
    }
}
