//! The command line of `toe bench`.
use crate::cases::{fairness, incast, loss};
use crate::lab::Stack;
use crate::plot::Chart;
use crate::report::Report;
use crate::session;
use crate::tools::Tools;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum Case {
    /// Many hosts send to one through a slow port: throughput, tail latency, fairness (thesis table 4.5)
    Incast(incast::Arguments),
    /// Many bulk flows over one link: the share that each of them gets (thesis figure 4.17)
    Fairness(fairness::Arguments),
    /// Throughput over loss rates: small echoes and bulk flows (thesis figure 4.16)
    Loss(loss::Arguments),
}

/// What all cases take.
#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Repetitions; the median counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub pairs: u32,
    /// Only see whether everything works: a second for each measurement
    #[arg(long)]
    pub quick: bool,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw plots into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// libtoe.so, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    pub lib: Option<PathBuf>,
}

impl Common {
    /// Seconds of each measurement; `usual` where nobody says.
    pub fn seconds(&self, usual: f64) -> f64 {
        self.duration.unwrap_or(if self.quick { 1.0 } else { usual }).clamp(0.1, 600.0)
    }

    /// Seconds before each.
    pub fn warm_up(&self) -> f64 {
        if self.quick { 0.3 } else { 2.0 }
    }
}

impl Case {
    /// What the caller must look at before [`run`]: where the library is said to be.
    pub fn common(&self) -> &Common {
        match self {
            Case::Incast(arguments) => &arguments.common,
            Case::Fairness(arguments) => &arguments.common,
            Case::Loss(arguments) => &arguments.common,
        }
    }
}

/// Measures, shows and writes.
pub fn run(case: &Case, library: PathBuf) -> Result<(), String> {
    if let Some(done) = session::enter() {
        return done;
    }
    let tools = Tools::find(library)?;
    let (report, table, plots) = match case {
        Case::Incast(arguments) => shown(incast::run(&tools, arguments)?, incast::show, incast::plots),
        Case::Fairness(arguments) => shown(fairness::run(&tools, arguments)?, fairness::show, fairness::plots),
        Case::Loss(arguments) => shown(loss::run(&tools, arguments)?, loss::show, loss::plots),
    };
    finish(case.common(), &report, &table, &plots)
}

type Plots = Vec<(&'static str, Chart)>;

fn shown(report: Report, show: fn(&Report) -> String, plots: fn(&Report) -> Plots) -> (Report, String, Plots) {
    let (table, plots) = (show(&report), plots(&report));
    (report, table, plots)
}

fn finish(common: &Common, report: &Report, table: &str, plots: &[(&str, Chart)]) -> Result<(), String> {
    print(table);
    if let Some(file) = &common.json {
        report.write(file)?;
    }
    if let Some(directory) = &common.plots {
        plots.iter().try_for_each(|(name, chart)| chart.write(directory, name))?;
    }
    report.verdict()
}

/// Writes to the standard output; who does not read it any more does not want it.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// A list with commas between.
pub fn list<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    if words.is_empty() { Err("a list is empty".into()) } else { words.into_iter().map(read).collect() }
}

/// A stack by its name.
pub fn stack(text: &str) -> Result<Stack, String> {
    [Stack::Opentoe, Stack::Linux]
        .into_iter()
        .find(|stack| stack.name() == text)
        .ok_or_else(|| format!("there is no stack `{text}`; there are opentoe and linux"))
}

/// A number from 1 to `most`.
pub fn count(text: &str, most: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("`{text}` must be a number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_errors_are_sentences() {
        assert_eq!(list("1, 2,", |text| count(text, 9)), Ok(vec![1, 2]));
        assert!(list("", |text| count(text, 9)).is_err());
        assert!(list("1,10", |text| count(text, 9)).unwrap_err().contains("`10`"));
        assert!(stack("tas").unwrap_err().contains("linux"));
    }
}
