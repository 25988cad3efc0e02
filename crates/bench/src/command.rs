//! The command line of `toe bench`.
use crate::cases::{compare, connect, echo, fairness, http, idle, incast, isolation, kv, loss, stream};
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
    /// Small messages there and back: rate, latency, CPU
    Echo(echo::Arguments),
    /// Bulk flows: throughput, CPU
    Stream(stream::Arguments),
    /// memcached and redis: rate, latency, CPU
    Kv(kv::Arguments),
    /// Short connections: open, request, reply, close
    Connect(connect::Arguments),
    /// nginx and wrk: requests a second
    Http(http::Arguments),
    /// Many open connections with nothing to say: memory of each, CPU
    Idle(idle::Arguments),
    /// Quick answers beside bulk flows (thesis figure 5.19)
    Isolation(isolation::Arguments),
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
            Case::Echo(arguments) => &arguments.common,
            Case::Stream(arguments) => &arguments.common,
            Case::Kv(arguments) => &arguments.common,
            Case::Connect(arguments) => &arguments.common,
            Case::Http(arguments) => &arguments.common,
            Case::Idle(arguments) => &arguments.common,
            Case::Isolation(arguments) => &arguments.common,
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
    let (report, table) = measure(case, &tools)?;
    finish(case.common(), &report, &table)
}

/// Measures; the table is for people.
fn measure(case: &Case, tools: &Tools) -> Result<(Report, String), String> {
    let shown = |report: Report, show: fn(&Report) -> String| {
        let table = show(&report);
        (report, table)
    };
    Ok(match case {
        Case::Echo(arguments) => shown(echo::run(tools, arguments)?, compare::show),
        Case::Stream(arguments) => shown(stream::run(tools, arguments)?, compare::show),
        Case::Kv(arguments) => shown(kv::run(tools, arguments)?, compare::show),
        Case::Connect(arguments) => shown(connect::run(tools, arguments)?, compare::show),
        Case::Http(arguments) => shown(http::run(tools, arguments)?, compare::show),
        Case::Idle(arguments) => shown(idle::run(tools, arguments)?, idle::show),
        Case::Isolation(arguments) => shown(isolation::run(tools, arguments)?, isolation::show),
        Case::Incast(arguments) => shown(incast::run(tools, arguments)?, incast::show),
        Case::Fairness(arguments) => shown(fairness::run(tools, arguments)?, fairness::show),
        Case::Loss(arguments) => shown(loss::run(tools, arguments)?, loss::show),
    })
}

/// What can be drawn of a report, with a name for each plot.
fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    match report.case.as_str() {
        "incast" => incast::plots(report),
        "fairness" => fairness::plots(report),
        "loss" => loss::plots(report),
        _ => Vec::new(),
    }
}

fn finish(common: &Common, report: &Report, table: &str) -> Result<(), String> {
    print(table);
    if let Some(file) = &common.json {
        report.write(file)?;
    }
    if let Some(directory) = &common.plots {
        plots(report).iter().try_for_each(|(name, chart)| chart.write(directory, name))?;
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
