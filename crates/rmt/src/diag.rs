//! Diagnostics: positions in the source, and errors.
use std::fmt;

/// A place in the source: file, line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    pub(crate) file: u16,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub col: u32,
}

/// Its severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program is refused.
    Error,
    /// The program is accepted, but most likely does not do what was meant.
    Warning,
}

/// One finding, ready for people: [`fmt::Display`] shows the place, the sentence, the line and the help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The file as it was named.
    pub file: String,
    /// Line, from 1; 0 where the finding concerns the whole program.
    pub line: u32,
    /// Column, from 1.
    pub col: u32,
    /// One sentence.
    pub message: String,
    /// Advice what to do instead.
    pub help: Option<String>,
    /// The source line.
    pub text: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        if self.line == 0 {
            write!(f, "{}: {kind}: {}", self.file, self.message)?;
        } else {
            write!(f, "{}:{}:{}: {kind}: {}", self.file, self.line, self.col, self.message)?;
            // Tabs are kept in the margin so that the caret stands under its column.
            let margin: String =
                self.text.chars().take(self.col as usize - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            write!(f, "\n{:5} | {}\n      | {margin}^", self.line, self.text)?;
        }
        match &self.help {
            Some(help) => write!(f, "\n      = {help}"),
            None => Ok(()),
        }
    }
}

/// A finding before its file is looked up.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub severity: Severity,
    pub pos: Pos,
    pub message: String,
    pub help: Option<String>,
}

impl Problem {
    pub(crate) fn error(pos: Pos, message: impl Into<String>) -> Box<Problem> {
        Box::new(Problem { severity: Severity::Error, pos, message: message.into(), help: None })
    }

    pub(crate) fn warning(pos: Pos, message: impl Into<String>) -> Box<Problem> {
        Box::new(Problem { severity: Severity::Warning, pos, message: message.into(), help: None })
    }

    pub(crate) fn help(mut self: Box<Self>, help: impl Into<String>) -> Box<Problem> {
        self.help = Some(help.into());
        self
    }
}

/// A result whose error has a place.
pub(crate) type Res<T> = Result<T, Box<Problem>>;

/// Everything read: the names and texts of the files.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    /// Keeps a file; its number goes into positions.
    pub(crate) fn add(&mut self, name: String, text: String) -> u16 {
        self.files.push((name, text));
        (self.files.len() - 1) as u16
    }

    pub(crate) fn text(&self, file: u16) -> &str {
        &self.files[file as usize].1
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// A file's name without its folder.
    pub(crate) fn file_name(&self, file: u16) -> &str {
        let name = self.files.get(file as usize).map_or("", |(name, _)| name);
        name.rsplit('/').next().unwrap_or(name)
    }

    pub(crate) fn diagnostic(&self, problem: &Problem) -> Diagnostic {
        let (file, source) = match self.files.get(problem.pos.file as usize) {
            Some((name, text)) => (name.clone(), text.as_str()),
            None => (String::new(), ""),
        };
        let text = source.lines().nth((problem.pos.line as usize).saturating_sub(1)).unwrap_or("").to_string();
        Diagnostic {
            severity: problem.severity,
            file,
            line: problem.pos.line,
            col: problem.pos.col.max(1),
            message: problem.message.clone(),
            help: problem.help.clone(),
            text,
        }
    }
}
