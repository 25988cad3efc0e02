//! P4-16 for the reconfigurable match-action architecture (RMT, thesis section 5.1.1): a front end for the language
//! subset that a pipeline program for Tofino 2 needs, checks against the limits of that architecture, a report of what
//! the program uses, and an interpreter. It knows nothing of TCP.
//!
//! `docs/P4.md` describes the subset and the limits.
#![forbid(unsafe_code)]

mod ast;
mod diag;
mod elab;
pub mod ir;
mod lexer;
mod ops;
mod parse;
mod preprocess;

pub use diag::{Diagnostic, Pos, Severity};

use diag::{Problem, Sources};
use std::path::Path;

/// A program read from a file, with what there is to say about it.
#[derive(Debug)]
pub struct Loaded {
    /// In intermediate form.
    pub program: ir::Program,
    /// Warnings.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the types of a program. `defines` are names given from outside, as with `-D`.
///
/// # Errors
/// Everything that is wrong, each with its place; never empty.
pub fn load(path: &Path, defines: &[(String, String)]) -> Result<Loaded, Vec<Diagnostic>> {
    let text = read(path).ok_or_else(|| vec![unreadable(path)])?;
    load_text(&path.display().to_string(), text, defines, &read)
}

fn read(path: &Path) -> Option<String> {
    // A program is small; a device or a huge file is a mistake.
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > 16 << 20 {
        return None;
    }
    String::from_utf8(std::fs::read(path).ok()?).ok()
}

fn unreadable(path: &Path) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        file: path.display().to_string(),
        line: 0,
        col: 1,
        message: "cannot be read as a text file of at most 16 MiB".into(),
        help: None,
        text: String::new(),
    }
}

/// As [`load`], of a text; `loader` gives the texts of included files.
///
/// # Errors
/// Everything that is wrong; never empty.
pub fn load_text(
    name: &str,
    text: String,
    defines: &[(String, String)],
    loader: &dyn Fn(&Path) -> Option<String>,
) -> Result<Loaded, Vec<Diagnostic>> {
    let mut pre = preprocess::Preprocessor::new(defines, loader);
    let tokens = pre.run(name, text);
    let decls = tokens.and_then(|t| parse::parse(&t));
    let sources = std::mem::take(&mut pre.sources);
    let decls = decls.map_err(|p| render(&sources, &[*p]))?;
    let (program, problems) = elab::elaborate(&decls);
    let (errors, warnings): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(|p| p.severity == Severity::Error);
    if !errors.is_empty() {
        return Err(render(&sources, &errors));
    }
    Ok(Loaded { program, warnings: render(&sources, &warnings) })
}

fn render(sources: &Sources, problems: &[Problem]) -> Vec<Diagnostic> {
    problems.iter().map(|p| sources.diagnostic(p)).collect()
}
