//! SystemVerilog text, line by line, and names that are legal in it.
use std::collections::BTreeSet;

/// Lines, indented by what opens and closes.
#[derive(Default)]
pub(super) struct Text {
    out: String,
    depth: usize,
}

const OPENS: &[&str] = &["module ", "package ", "function ", "case ", "generate"];

impl Text {
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if line.starts_with("end") || line.starts_with(')') || line.starts_with('}') {
            self.depth = self.depth.saturating_sub(1);
        }
        if !line.is_empty() {
            self.out.push_str(&"  ".repeat(self.depth));
            self.out.push_str(line);
        }
        self.out.push('\n');
        let code = line.split(" //").next().unwrap_or_default();
        let opens = OPENS.iter().any(|word| code.starts_with(word)) && !code.ends_with(')');
        if opens || code.ends_with("begin") || code.ends_with('(') || code.ends_with('{') || code.starts_with("case (")
        {
            self.depth += 1;
        }
    }

    /// Begins what is only worked out where something is `busy`, in a simulation that defines `GATED`: most stages are
    /// empty in most of its clocks. Otherwise these signals are zero. Hardware has no such choice.
    pub(super) fn begin_gated<'n>(&mut self, busy: &str, signals: impl IntoIterator<Item = &'n str>) {
        self.line("`ifdef GATED");
        self.line(format!("if (!({busy})) begin"));
        signals.into_iter().for_each(|name| self.line(format!("{name} = '0;")));
        self.line("end else begin");
        self.line("`endif");
    }

    /// Ends that.
    pub(super) fn end_gated(&mut self) {
        self.line("`ifdef GATED");
        self.line("end");
        self.line("`endif");
    }

    /// The ports of a module, one a line, and the end of its head. Its body stays indented.
    pub(super) fn ports(&mut self, ports: &[String]) {
        self.connect(ports);
        self.depth += 1;
    }

    /// The ports of an instance, one a line, and its end.
    pub(super) fn connect(&mut self, ports: &[String]) {
        for (i, port) in ports.iter().enumerate() {
            self.line(format!("{port}{}", if i + 1 < ports.len() { "," } else { "" }));
        }
        self.line(");");
    }

    pub(super) fn text(self) -> String {
        self.out
    }
}

/// The declared type of so many bits.
pub(super) fn logic(width: u32) -> String {
    if width == 1 { "logic".into() } else { format!("logic [{}:0]", width - 1) }
}

/// A constant.
pub(super) fn number(value: u128, width: u32) -> String {
    if value < 10 { format!("{width}'d{value}") } else { format!("{width}'h{value:x}") }
}

/// A value of `from` bits in `to`, cut or filled with zeros.
pub(super) fn fit(value: &str, from: u32, to: u32) -> String {
    match from.cmp(&to) {
        std::cmp::Ordering::Equal => value.into(),
        std::cmp::Ordering::Less => format!("{{{}'d0, {value}}}", to - from),
        std::cmp::Ordering::Greater => format!("{to}'({value})"),
    }
}

/// Bits that numbers below `count` take, one at least.
pub(super) fn bits_for(count: usize) -> u32 {
    (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// Words of the language, and names that every generated module has.
const TAKEN: &[&str] = &[
    "alias",
    "always",
    "assign",
    "automatic",
    "begin",
    "bind",
    "bit",
    "buf",
    "byte",
    "case",
    "cell",
    "chandle",
    "class",
    "clocking",
    "config",
    "const",
    "context",
    "cover",
    "default",
    "design",
    "disable",
    "dist",
    "do",
    "edge",
    "else",
    "end",
    "enum",
    "event",
    "expect",
    "export",
    "extends",
    "extern",
    "final",
    "for",
    "force",
    "forever",
    "fork",
    "function",
    "generate",
    "if",
    "iff",
    "import",
    "include",
    "initial",
    "inout",
    "input",
    "inside",
    "int",
    "integer",
    "interface",
    "join",
    "large",
    "library",
    "local",
    "logic",
    "longint",
    "matches",
    "medium",
    "module",
    "new",
    "null",
    "output",
    "package",
    "packed",
    "parameter",
    "priority",
    "program",
    "property",
    "protected",
    "pure",
    "rand",
    "real",
    "ref",
    "reg",
    "release",
    "repeat",
    "return",
    "scalared",
    "sequence",
    "signed",
    "small",
    "solve",
    "static",
    "string",
    "strong",
    "struct",
    "super",
    "supply",
    "table",
    "task",
    "this",
    "time",
    "tri",
    "type",
    "typedef",
    "union",
    "unique",
    "unsigned",
    "use",
    "var",
    "vectored",
    "virtual",
    "void",
    "wait",
    "weak",
    "while",
    "wire",
    "with",
    "within",
    "clk",
    "rst",
    "in",
    "out",
    "m",
    "a",
    "b",
    "p",
    "next",
    "ctl",
    "slot",
    "live",
    "rest",
    "old",
    "op",
    "index",
    "bits",
    "accept",
    "mem",
    "head",
    "word",
    "key",
    "hit",
    "action",
    "args",
];

/// Names of one half, each used once.
#[derive(Default)]
pub(super) struct Names {
    used: BTreeSet<String>,
}

impl Names {
    /// The program's name with what the language allows.
    pub(super) fn name(&mut self, from: &str) -> String {
        let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let mut base: String = from.replace('$', "").chars().map(legal).collect();
        if TAKEN.contains(&base.as_str()) || base.starts_with(|c: char| !c.is_ascii_alphabetic()) {
            base = format!("p4_{base}");
        }
        let mut name = base.clone();
        let mut number = 2;
        while !self.used.insert(name.clone()) {
            name = format!("{base}_{number}");
            number += 1;
        }
        name
    }
}
