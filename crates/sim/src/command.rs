//! The command line: searches for seeds that fail, or replays one.
#![forbid(unsafe_code)]

use crate::generate::{generate_on, generate_talks};
use crate::inspect::TRACE_HEADING;
use crate::runner::{Search, Tally, run_caught, run_seeds};
use crate::shrink::shrink;
use crate::{Plan, Record, run_recorded};
use clap::Args;
use console::{print_line, several};
use engines::EngineKind;
use port::Capture;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// What to run.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Run one seed and print more about it
    #[arg(long, conflicts_with_all = ["seeds", "start", "plan"])]
    pub seed: Option<u64>,
    /// Run a saved scenario
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "start"])]
    pub plan: Option<PathBuf>,
    /// How many seeds to run
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Go on for so many hours instead, with seeds that differ from time to time
    #[arg(long, value_name = "N", conflicts_with_all = ["seed", "plan", "seeds"])]
    pub hours: Option<f64>,
    /// The first seed
    #[arg(long)]
    pub start: Option<u64>,
    /// Threads
    #[arg(long, default_value_t = 1)]
    pub jobs: usize,
    /// The engine of all hosts, instead of those that the seeds choose
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    pub engine: Option<EngineKind>,
    /// Only ZeroNIC hosts: the seeds' part about them, and one pair of them at least
    #[arg(long, conflicts_with_all = ["plan", "engine"])]
    pub zeronic: bool,
    /// Stop after so many failures
    #[arg(long, default_value_t = 5)]
    pub failures: usize,
    /// Make a scenario that fails smaller, and print it; a search does it with the first one
    #[arg(long)]
    pub shrink: bool,
    /// Print the last segments, requests and replies
    #[arg(long)]
    pub trace: bool,
    /// Write the frames of one scenario, as hosts send them, to a file for tcpdump and Wireshark
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Print the scenario and do not run it
    #[arg(long)]
    pub print: bool,
}

/// Runs what was asked for; 0 where nothing failed.
pub fn run(arguments: &Arguments) -> ExitCode {
    let plan = match &arguments.plan {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
            match text.and_then(|text| Plan::from_toml(&text)) {
                Ok(plan) => Some(plan),
                Err(error) => {
                    eprintln!("opentoe-sim: {}: {error}", path.display());
                    return ExitCode::FAILURE;
                }
            }
        }
        None => arguments.seed.map(|seed| scenario(seed, arguments)),
    };
    match plan {
        Some(plan) => one(&plan, arguments),
        None => many(arguments),
    }
}

fn scenario(seed: u64, arguments: &Arguments) -> Plan {
    if arguments.zeronic { generate_talks(seed) } else { generate_on(seed, arguments.engine) }
}

/// Runs one scenario.
fn one(plan: &Plan, arguments: &Arguments) -> ExitCode {
    if arguments.print {
        console::print(&plan.to_toml());
        return ExitCode::SUCCESS;
    }
    if let Err(sentence) = record(plan, arguments) {
        eprintln!("opentoe-sim: {sentence}");
        return ExitCode::FAILURE;
    }
    match run_caught(plan) {
        Ok(figures) => {
            print_line(&format!("passed: {figures}"));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            print_line(&format!("FAILED {failure}"));
            if arguments.shrink {
                print_smaller(plan);
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs one scenario for its trace or capture. How it ends is shown by another run.
fn record(plan: &Plan, arguments: &Arguments) -> Result<(), String> {
    let create = |path: &PathBuf| Capture::create(path, "network", 0, u64::MAX);
    let capture = arguments.pcap.as_ref().map(create).transpose()?;
    if !arguments.trace && capture.is_none() {
        return Ok(());
    }
    let mut lines = Vec::new();
    let trace = arguments.trace.then_some(&mut lines);
    let _ = run_recorded(plan, Record { trace, capture: capture.clone() });
    if arguments.trace {
        print_line(TRACE_HEADING);
        lines.iter().for_each(|line| print_line(line));
    }
    let Some(capture) = capture else { return Ok(()) };
    capture.flush();
    match capture.figures().error {
        Some(error) => Err(format!("cannot write the capture file: {error}")),
        None => Ok(()),
    }
}

/// What is to be searched. A search by time begins elsewhere each time, so that the searches of many nights add up.
fn search(arguments: &Arguments, begin: Instant) -> Search {
    let since_1970 = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let Arguments { seeds, jobs, failures, engine, zeronic, .. } = *arguments;
    let end = |hours: f64| begin + Duration::from_secs_f64(hours.clamp(0.0, 1e5) * 3600.0);
    let first = arguments.start.unwrap_or_else(|| if arguments.hours.is_some() { since_1970() << 20 } else { 0 });
    let count = if arguments.hours.is_some() { u64::MAX } else { seeds };
    Search { first, count, jobs, failures, until: arguments.hours.map(end), engine, zeronic }
}

/// Runs many seeds.
fn many(arguments: &Arguments) -> ExitCode {
    let begin = Instant::now();
    let search = search(arguments, begin);
    let pause = Duration::from_secs(if std::io::stderr().is_terminal() { 1 } else { 30 });
    let mut shown = begin;
    print_line(&format!("seeds from {} on", search.first));
    let tally = run_seeds(search, |tally| {
        if shown.elapsed() > pause {
            shown = Instant::now();
            progress(tally, &search, begin);
        }
    });
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    print_line(&summary(&tally, begin));
    for (seed, failure) in &tally.failures {
        let engine = arguments.engine.map(|kind| format!(" --engine {}", kind.name()));
        let only = engine.unwrap_or_else(|| if arguments.zeronic { " --zeronic" } else { "" }.into());
        print_line(&format!("seed {seed} FAILED {failure}\n  again: opentoe sim --seed {seed}{only} --shrink"));
    }
    if let Some((seed, _)) = tally.failures.first() {
        print_smaller(&scenario(*seed, arguments));
    }
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn progress(tally: &Tally, search: &Search, begin: Instant) {
    let mut out = std::io::stderr();
    let left = search.until.map(|until| until.saturating_duration_since(Instant::now()).as_secs());
    let of = match left {
        Some(seconds) => format!("{}:{:02} h left", seconds / 3600, seconds / 60 % 60),
        None => format!("of {}", search.count),
    };
    let line = summary(tally, begin);
    // Failing to show progress is no reason to stop.
    let _ = if out.is_terminal() { write!(out, "\r\x1b[K{of}: {line}") } else { writeln!(out, "{of}: {line}") };
}

fn summary(tally: &Tally, begin: Instant) -> String {
    let seconds = begin.elapsed().as_secs_f64();
    let figures = &tally.figures;
    let searched = format!(
        "{} in {seconds:.0} s ({:.0} a second), {} failed",
        several(tally.seeds, "seed"),
        tally.seeds as f64 / seconds.max(0.001),
        tally.failures.len()
    );
    let connections = several(figures.completed + figures.spoiled, "connection");
    let counts = [
        format!("{} MB read", figures.bytes / 1_000_000),
        format!("{} survived {}", several(figures.survivors, "connection"), several(figures.kills, "kill")),
        format!("{} outgrew their buffers", several(figures.grown, "stream")),
        format!("{} judged", several(figures.operations, "RDMA operation")),
        format!("{} renewed", several(figures.renewed, "queue pair")),
        format!("{} judged", several(figures.posts, "ZeroNIC post")),
        several(figures.frames, "frame"),
        format!("{:.1} virtual hours", figures.virtual_ns as f64 / 3.6e12),
    ];
    format!("{searched}; {connections}, {} of them spoiled by plan; {}", figures.spoiled, counts.join(", "))
}

fn print_smaller(plan: &Plan) {
    // A smaller scenario that fails in another way shows nothing about this failure.
    let kind = |plan: &Plan| run_caught(plan).err().map(|failure| failure.kind());
    let wanted = kind(plan);
    let small = shrink(plan, 3000, |plan| kind(plan) == wanted);
    let what = run_caught(&small).err().map_or_else(String::new, |failure| failure.to_string());
    print_line(&format!("# smaller, and it fails too: {}\n{}", what.replace('\n', "\n# "), small.to_toml()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Figures;

    #[test]
    fn a_search_of_one_seed_is_summed_up_in_words() {
        let figures = Figures { completed: 1, renewed: 2, ..Figures::default() };
        let text = summary(&Tally { seeds: 1, figures, ..Tally::default() }, Instant::now());
        assert!(text.starts_with("1 seed in 0 s (") && text.contains("; 1 connection, 0 of them spoiled"), "{text}");
        assert!(text.contains(", 2 queue pairs renewed, 0 ZeroNIC posts judged, 0 frames, "), "{text}");
    }
}
