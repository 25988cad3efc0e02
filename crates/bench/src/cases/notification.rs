//! The notification pipe beside a doorbell (SmartNS section 5.5, figure 14): elements of 64 bytes between two threads,
//! in nanoseconds. Callgrind counts their instructions where both ends are one thread.
use super::compare::{self, Column};
use crate::arguments::{Common, list, numbered};
use crate::callgrind::{self, Call};
use crate::directory::Directory;
use crate::lab::Stack;
use crate::process::Process;
use crate::report::{Report, Run};
use crate::tools::Tools;
use clap::Args;
use port::Netns;
use serde_json::json;
use std::time::Duration;

const SECONDS: f64 = 3.0;
/// What a measurement takes besides its seconds: counting is most of it.
const AROUND_S: f64 = 1.5;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Elements that are counted.
const COUNTED: u64 = 1 << 16;
/// Elements that the rings of the example hold.
const MOST: usize = 1024;
/// The ways of the example.
const WAYS: [&str; 2] = ["pipe", "doorbell"];

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Elements that go together: a doorbell is written once for them
    #[arg(long, value_name = "N,...", default_value = "1,4,16,64", value_parser = numbered(MOST))]
    pub together: String,
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let points = arguments.together.split(',').count() as f64;
    points * (arguments.common.seconds(SECONDS) + AROUND_S) * f64::from(arguments.common.pairs)
}

/// Runs the case. An example measures both ways of a point, one after the other.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    callgrind::is_there()?;
    let common = &arguments.common;
    let seconds = common.seconds(SECONDS);
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "bytes": 64, "valgrind": "callgrind" });
    let mut report = Report::new("notification", params);
    tools.print_line(&format!("notification: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for together in list(&arguments.together, |word| crate::arguments::count(word, MOST))? {
            let place = format!("{together} together");
            let measured = timed(tools, together, seconds).and_then(|times| Ok((times, counted(tools, together)?)));
            let (times, counts) = match measured {
                Ok(both) => both,
                Err(sentence) => {
                    report.measured(tools, &place, Err(sentence))?;
                    continue;
                }
            };
            for ((way, [element, one_way]), instructions) in WAYS.into_iter().zip(times).zip(counts) {
                let mut run = Run::new(Stack::Opentoe, round, &json!({ "together": together }));
                (run.setup, run.engine, run.ops_per_s) = (way.into(), None, Some(1e9 / element));
                run.figures.insert("element_ns".into(), json!(element));
                run.figures.insert("one_way_ns".into(), json!(one_way));
                run.figures.insert("instructions".into(), json!(instructions));
                let times = format!("{element:.1} ns an element, {one_way:.0} ns one way");
                tools.print_line(&format!("{place}, {way}: {times}, {instructions:.1} instructions"));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// Of each way, nanoseconds of an element in a stream, and of one way.
fn timed(tools: &Tools, together: usize, seconds: f64) -> Result<[[f64; 2]; 2], String> {
    // Two ways, each with a stream and round trips.
    let milliseconds = (seconds * 1000.0 / 4.0).max(1.0);
    let words = [tools.example("notification")?, "time".into(), together.to_string(), format!("{milliseconds:.0}")];
    let directory = Directory::new("notification")?;
    let words: Vec<String> = tools.pinned(None).into_iter().chain(words).collect();
    let program = Process::start(&Netns::create()?, &words, directory.path().join("log"))?;
    let printed = program.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
    figures(&printed).ok_or_else(|| format!("the example notification printed {printed}"))
}

/// What the example prints.
fn figures(printed: &str) -> Option<[[f64; 2]; 2]> {
    let of = |way: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(way)?.strip_prefix(' '))?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        <[f64; 2]>::try_from(numbers).ok()
    };
    Some([of(WAYS[0])?, of(WAYS[1])?])
}

/// Of each way, instructions of both ends for an element.
fn counted(tools: &Tools, together: usize) -> Result<[f64; 2], String> {
    let directory = Directory::new("count")?;
    let file = directory.path().join("notification.callgrind");
    let count = COUNTED.next_multiple_of(together as u64);
    let words = [tools.example("notification")?, "count".into(), together.to_string(), count.to_string()];
    let words: Vec<String> = callgrind::words(&file).into_iter().chain(words).collect();
    let program = Process::start(&Netns::create()?, &words, directory.path().join("log"))?;
    program.finish(&tools.stop, TIMEOUT)?;
    let calls = callgrind::calls(&file)?;
    let of = |way: &str| {
        let function = format!("path_{way}");
        let of_way = |call: &&Call| call.function.contains(&function);
        let instructions: u64 = calls.iter().filter(of_way).map(|call| call.instructions).sum();
        if instructions == 0 {
            Err(format!("callgrind saw no {function}"))
        } else {
            Ok(instructions as f64 / count as f64)
        }
    };
    Ok([of(WAYS[0])?, of(WAYS[1])?])
}

const COLUMNS: &[Column] = &[
    Column::new("ns an element", |run| run.figure("element_ns")),
    Column::new("ns one way", |run| run.figure("one_way_ns")),
    Column::new("instructions", |run| run.figure("instructions")),
];

/// The table.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_both_ways_are_read() {
        assert_eq!(figures("pipe 1.50 20\ndoorbell 3.00 44.25\n"), Some([[1.5, 20.0], [3.0, 44.25]]));
        assert_eq!(figures("pipe 1.50 20\ndoorbell 3.00\n"), None);
        assert_eq!(figures("notification: no shared memory"), None);
    }
}
