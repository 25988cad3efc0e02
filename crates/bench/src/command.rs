//! The command line of `opentoe bench`.
use crate::all;
use crate::cases::compare::Comparison;
use crate::cases::{
    block, compare, connect, echo, extensions, fairness, http, idle, incast, instructions, isolation, kv, log, loss,
    stream,
};
use crate::charts;
use crate::lab::Stack;
use crate::plot::Chart;
use crate::report::Report;
use crate::session;
use crate::tools::Tools;
use clap::{Args, Subcommand};
use std::ops::RangeInclusive;
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
    /// A disk over the network: random blocks a second (thesis figure 5.16)
    Block(block::Arguments),
    /// Many open connections with nothing to say: memory of each, CPU
    Idle(idle::Arguments),
    /// Instructions for a request, in the engine and in libtoe (needs valgrind)
    Instructions(instructions::Arguments),
    /// Quick answers beside bulk flows (thesis figure 5.19)
    Isolation(isolation::Arguments),
    /// Records of many connections appended to one log, by a server and by the data-path (thesis 5.5.2)
    Log(log::Arguments),
    /// All of it, held against the goals, in one report
    All(all::Arguments),
    /// Show the goals and write one HTML page of the reports in a directory
    Report(all::ReportArguments),
    /// Many hosts send to one through a slow port: throughput, tail latency, fairness (thesis table 4.5)
    Incast(incast::Arguments),
    /// Many bulk flows over one link: the share that each of them gets (thesis figure 4.17)
    Fairness(fairness::Arguments),
    /// Throughput over loss rates: small echoes and bulk flows (thesis figure 4.16)
    Loss(loss::Arguments),
    /// What tracepoints, a capture and modules cost, put on and off while echoes run (thesis table 4.3)
    Extensions(extensions::Arguments),
}

/// What all cases take.
#[derive(Args, Debug, Clone)]
pub struct Common {
    /// Seconds of each measurement
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
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
        self.duration.unwrap_or(if self.quick { 1.0 } else { usual })
    }

    /// Where results go is there: better said before minutes of measuring than after.
    fn places(&self) -> Result<(), String> {
        let file = self.json.as_ref().and_then(|file| file.parent());
        match file.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
            Some(folder) => Err(format!("there is no directory {} for --json: make it first", folder.display())),
            None => Ok(()),
        }
    }

    /// Seconds before each.
    pub fn warm_up(&self) -> f64 {
        if self.quick { 0.3 } else { 2.0 }
    }
}

/// A time that can be measured over.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "say seconds from 0.1 to 600".into())
}

impl Case {
    /// What all cases take; it says where the library is.
    pub fn common(&self) -> Option<&Common> {
        Some(match self {
            Case::Echo(arguments) => &arguments.comparison.common,
            Case::Stream(arguments) => &arguments.comparison.common,
            Case::Kv(arguments) => &arguments.comparison.common,
            Case::Connect(arguments) => &arguments.comparison.common,
            Case::Http(arguments) => &arguments.comparison.common,
            Case::Block(arguments) => &arguments.comparison.common,
            Case::Idle(arguments) => &arguments.comparison.common,
            Case::Instructions(arguments) => &arguments.common,
            Case::Isolation(arguments) => &arguments.comparison.common,
            Case::Log(arguments) => &arguments.comparison.common,
            Case::Incast(arguments) => &arguments.common,
            Case::Fairness(arguments) => &arguments.common,
            Case::Loss(arguments) => &arguments.common,
            Case::Extensions(arguments) => &arguments.common,
            Case::All(arguments) => &arguments.common,
            Case::Report(_) => return None,
        })
    }

    /// How long it takes, seconds, roughly.
    pub fn estimate(&self) -> f64 {
        let points = |text: &str| text.split(',').count();
        let speed = |comparison: &Comparison, points: usize| {
            comparison.estimate(comparison.stacks.all().map_or(1, |setups| setups.len()), points)
        };
        match self {
            Case::Echo(a) => {
                speed(&a.comparison, points(&a.conns) * points(&a.size) * points(&a.depth) * a.rate.len().max(1))
            }
            Case::Stream(a) => speed(&a.comparison, points(&a.flows) * points(&a.size) * points(&a.dir)),
            // Two measurements, and time to become quiet before each.
            Case::Idle(a) => speed(&a.comparison, points(&a.conns)) * 4.0,
            Case::Kv(a) => speed(&a.comparison, points(&a.server) * points(&a.conns) * points(&a.depth)),
            Case::Connect(a) => speed(&a.comparison, points(&a.conns) * points(&a.size)),
            Case::Http(a) => speed(&a.comparison, points(&a.conns)),
            Case::Block(a) => speed(&a.comparison, points(&a.disk) * points(&a.depth) * points(&a.size)),
            Case::Instructions(_) => instructions::estimate(),
            Case::Isolation(a) => speed(&a.comparison, 1 + points(&a.flows)),
            Case::Log(a) => {
                let ways = a.comparison.stacks.all().map_or(1, |setups| log::ways(&setups));
                a.comparison.estimate(ways, points(&a.conns) * points(&a.size))
            }
            Case::Loss(a) => {
                let measurements = points(&a.loss) * points(&a.load) * points(&a.stack) * a.common.pairs as usize;
                measurements as f64 * (a.common.seconds(4.0) + a.common.warm_up() + 1.0)
            }
            _ => 0.0,
        }
    }
}

/// Measures, shows and writes.
pub fn run(case: &Case, library: PathBuf) -> Result<(), String> {
    if let Some(done) = session::enter() {
        return done;
    }
    case.common().map_or(Ok(()), Common::places)?;
    let tools = Tools::find(library)?;
    match case {
        Case::All(arguments) => all::run(&tools, arguments),
        case => {
            let (report, table) = measure(case, &tools)?;
            finish(case.common(), &report, &table)
        }
    }
}

/// Shows what was measured earlier; needs no privilege and no library.
pub fn report(arguments: &all::ReportArguments) -> Result<(), String> {
    all::report(&arguments.directory)
}

/// Measures; the table is for people.
pub fn measure(case: &Case, tools: &Tools) -> Result<(Report, String), String> {
    let report = match case {
        Case::Echo(arguments) => echo::run(tools, arguments),
        Case::Stream(arguments) => stream::run(tools, arguments),
        Case::Kv(arguments) => kv::run(tools, arguments),
        Case::Connect(arguments) => connect::run(tools, arguments),
        Case::Http(arguments) => http::run(tools, arguments),
        Case::Block(arguments) => block::run(tools, arguments),
        Case::Idle(arguments) => idle::run(tools, arguments),
        Case::Instructions(arguments) => instructions::run(tools, arguments),
        Case::Isolation(arguments) => isolation::run(tools, arguments),
        Case::Log(arguments) => log::run(tools, arguments),
        Case::Incast(arguments) => incast::run(tools, arguments),
        Case::Fairness(arguments) => fairness::run(tools, arguments),
        Case::Loss(arguments) => loss::run(tools, arguments),
        Case::Extensions(arguments) => extensions::run(tools, arguments),
        Case::All(_) | Case::Report(_) => Err("all and report are no single measurements".into()),
    }?
    .unless_empty()?;
    let table = shown(&report);
    Ok((report, table))
}

/// A report's table.
pub fn shown(report: &Report) -> String {
    match report.case.as_str() {
        "idle" => idle::show(report),
        "instructions" => instructions::show(report),
        "isolation" => isolation::show(report),
        "incast" => incast::show(report),
        "fairness" => fairness::show(report),
        "loss" => loss::show(report),
        "extensions" => extensions::show(report),
        _ => compare::show(report),
    }
}

/// What can be drawn of a report, with a name for each plot.
pub fn plots(report: &Report) -> Vec<(&'static str, Chart)> {
    match report.case.as_str() {
        "incast" => incast::plots(report),
        "fairness" => fairness::plots(report),
        "loss" => loss::plots(report),
        _ => charts::of(report),
    }
}

fn finish(common: Option<&Common>, report: &Report, table: &str) -> Result<(), String> {
    print(table);
    if let Some(file) = common.and_then(|common| common.json.as_ref()) {
        report.write(file)?;
    }
    if let Some(directory) = common.and_then(|common| common.plots.as_ref()) {
        plots(report).iter().try_for_each(|(name, chart)| chart.write(directory, name))?;
    }
    report.verdict()
}

/// Writes to the standard output; who does not read it any more does not want it.
pub fn print(text: &str) {
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

/// What the command line takes as a list whose words `read` takes: a wrong one is refused before anything is looked
/// for.
pub fn listed<T>(
    read: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    move |text| list(text, &read).map(|_| text.to_string())
}

/// The same of numbers from 1 to `most`.
pub fn numbered(most: usize) -> impl Fn(&str) -> Result<String, String> + Clone + Send + Sync + 'static {
    listed(move |word| count(word, most))
}

/// A number from 1 to `most`.
pub fn count(text: &str, most: usize) -> Result<usize, String> {
    within(text, 1..=most)
}

/// A number of a range.
pub fn within(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("`{text}` must be a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_errors_are_sentences() {
        assert_eq!(list("1, 2,", |text| count(text, 9)), Ok(vec![1, 2]));
        assert_eq!(numbered(9)("1, 9"), Ok("1, 9".to_string()));
        assert!(numbered(9)("").is_err());
        assert!(numbered(9)("1,10").unwrap_err().contains("`10`"));
        assert!(stack("tas").unwrap_err().contains("linux"));
    }
}
