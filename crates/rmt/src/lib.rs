//! P4-16 for the reconfigurable match-action architecture (RMT, thesis section 5.1.1). It has a front end for the
//! language subset that a pipeline program for Tofino 2 needs. It has checks against the limits of that architecture, a
//! report of what the program uses, and an interpreter. It contains nothing of TCP.
//!
//! `docs/P4.md` describes the subset and the limits.
#![deny(unsafe_code)]

mod ast;
mod control;
pub mod cosim;
mod deps;
mod diag;
mod elab;
pub mod interp;
pub mod ir;
mod lexer;
mod limits;
mod meter;
pub mod native;
mod ops;
mod overlay;
mod parse;
mod pipeline;
mod place;
mod preprocess;
mod report;
pub mod rtl;
mod scan;
mod walk;

pub use diag::{Diagnostic, Pos, Severity};
pub use meter::Rates;
pub use pipeline::Pipeline;
pub use place::{Resources, STAGE, STAGES};
pub use report::{PHV_BITS, Placed, Report};

use diag::{Problem, Sources};
use std::path::Path;

/// A program that can be a pipeline.
#[derive(Debug)]
pub struct Loaded {
    /// In intermediate form.
    pub program: ir::Program,
    /// Its resource report, with warnings.
    pub report: Report,
    /// Names given from outside that stand nowhere in the program's files: most likely slips.
    pub unread: Vec<String>,
    /// Its files, for later messages about them.
    pub(crate) sources: Sources,
}

impl Loaded {
    /// # Errors
    /// A sentence, where one of these names given from outside stands nowhere in the program.
    pub fn reads(&self, defines: &[(String, String)]) -> Result<(), String> {
        match defines.iter().find(|(name, _)| self.unread.contains(name)) {
            Some((name, _)) => Err(format!("-D {name} does nothing: no file of the program has this name")),
            None => Ok(()),
        }
    }

    /// File and line of a place.
    pub(crate) fn place(&self, pos: diag::Pos) -> String {
        format!("{}:{}", self.sources.file_name(pos.file), pos.line)
    }
}

/// Checks a program against everything that the architecture can't do, and returns what it uses.
///
/// # Errors
/// Everything that is wrong, each with its place; never empty.
pub fn check(path: &Path) -> Result<Report, Vec<Diagnostic>> {
    load(path, &[]).map(|l| l.report)
}

/// Reads and checks a program. `defines` are names given from outside, as with `-D`.
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
    let (sources, unread) = (std::mem::take(&mut pre.sources), pre.unread.into_iter().collect());
    let decls = decls.map_err(|p| render(&sources, &[*p]))?;
    let (program, problems) = elab::elaborate(&decls);
    accept(&sources, problems)?;
    let mut problems = limits::check(&program);
    let mut graph = deps::Graph::new(&program).map_err(|p| render(&sources, &[*p]))?;
    graph.name_places(&sources);
    graph.check_registers(&program, &mut problems);
    graph.check_tables(&mut problems);
    let warnings = accept(&sources, problems)?;
    let placement = place::place(&program, &graph).map_err(|p| render(&sources, &[*p]))?;
    let mut report = Report::new(&program, &graph, &placement);
    if report.phv_bits > PHV_BITS {
        let message =
            format!("the fields need {} bits of the packet header vector, which has {PHV_BITS}", report.phv_bits);
        return Err(render(&sources, &[*Problem::error(Pos::default(), message)]));
    }
    report.warnings = warnings;
    Ok(Loaded { program, report, unread, sources })
}

/// The warnings, if there is nothing worse.
fn accept(sources: &Sources, problems: Vec<Problem>) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
    let (errors, warnings): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(|p| p.severity == Severity::Error);
    if errors.is_empty() { Ok(render(sources, &warnings)) } else { Err(render(sources, &errors)) }
}

fn render(sources: &Sources, problems: &[Problem]) -> Vec<Diagnostic> {
    let mut list: Vec<Diagnostic> = Vec::new();
    for problem in problems {
        // What is shared by both halves is found wrong in both.
        let diagnostic = sources.diagnostic(problem);
        if !list.contains(&diagnostic) {
            list.push(diagnostic);
        }
    }
    list
}
