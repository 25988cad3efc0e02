//! The command line of `opentoe bench`.
use crate::all;
use crate::arguments::Common;
use crate::csv;
use crate::measurement::{Case, measure, plots};
use crate::paper;
use crate::report::Report;
use crate::session;
use crate::tools::Tools;
use clap::Subcommand;
use std::path::PathBuf;

/// What to do.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// One measurement.
    #[command(flatten)]
    Measure(Box<Case>),
    /// All of it, held against the goals, in one report
    All(all::Arguments),
    /// Experiments of the papers, by the number of their figure or table
    Paper(paper::Arguments),
    /// Show the goals and write one HTML page of the reports in a directory
    Report(all::ReportArguments),
}

impl Verb {
    /// What all cases take; it has the library's place.
    pub fn common(&self) -> Option<&Common> {
        match self {
            Verb::Measure(case) => Some(case.common()),
            Verb::All(arguments) => Some(&arguments.common),
            Verb::Paper(arguments) => Some(&arguments.common),
            Verb::Report(_) => None,
        }
    }
}

/// Measures, shows and writes.
pub fn run(verb: &Verb, library: PathBuf) -> Result<(), String> {
    if let Some(done) = session::enter() {
        return done;
    }
    verb.common().map_or(Ok(()), Common::places)?;
    match verb {
        Verb::Measure(case) => {
            let (report, table) = measure(case, &Tools::find(library)?)?;
            finish(case.common(), &report, &table)
        }
        Verb::All(arguments) => all::run(&Tools::find(library)?, arguments),
        Verb::Paper(arguments) => paper::run(&Tools::find(library)?, arguments),
        Verb::Report(arguments) => report(arguments),
    }
}

/// Whether it only lists what can be measured; needs no privilege and no library.
pub fn lists(verb: &Verb) -> bool {
    let lists = matches!(verb, Verb::Paper(arguments) if arguments.names.is_empty());
    if lists {
        paper::list();
    }
    lists
}

/// Shows what was measured earlier; needs no privilege and no library.
pub fn report(arguments: &all::ReportArguments) -> Result<(), String> {
    all::report(arguments)
}

fn finish(common: &Common, report: &Report, table: &str) -> Result<(), String> {
    console::print(table);
    if let Some(file) = &common.json {
        report.write(file)?;
    }
    if let Some(file) = &common.csv {
        csv::write(report, file)?;
    }
    if let Some(directory) = &common.plots {
        let charts = plots(report);
        if charts.is_empty() {
            eprintln!(
                "opentoe: nothing is drawn: a curve takes three values or more of what is varied (docs/BENCH.md)"
            );
        }
        charts.iter().try_for_each(|(name, chart)| chart.write(directory, name))?;
    }
    report.verdict()
}
