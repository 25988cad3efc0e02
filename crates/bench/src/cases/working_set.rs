//! The receive path over its working set (SmartNS section 5.4, figure 13): WRITEs of 8 KiB into receive buffers. Those
//! are used again first that came back last, or those that came back first. Rates, and the bytes that go through memory
//! where the last level of the cache is one that valgrind simulates.
use super::compare::{self, Column, three};
use crate::arguments::{Common, list, listed, numbered};
use crate::callgrind;
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
/// What a measurement takes besides its seconds, and for each MiB of the working set: counting is most of it.
const AROUND_S: f64 = 0.7;
const EACH_MIB_S: f64 = 0.01;
const TIMEOUT: Duration = Duration::from_secs(300);
/// Of a working set.
const MOST_MIB: usize = 1024;
const WAYS: [&str; 2] = ["recent", "round-robin"];

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Buffers that are used again first: recent (those that came back last, as here), round-robin (those that came
    /// back first, as in a card's receive queue)
    #[arg(long, value_name = "WAY,...", default_value = "recent,round-robin", value_parser = listed(way))]
    pub way: String,
    /// MiB of all receive buffers, of which a message fills 8 KiB
    #[arg(long, value_name = "MIB,...", default_value = "1,4,16,32,48,96", value_parser = numbered(MOST_MIB))]
    pub mib: String,
}

/// How long it takes, seconds.
pub(crate) fn estimate(arguments: &Arguments) -> f64 {
    let each = arguments.common.seconds(SECONDS) + AROUND_S;
    let sizes = arguments.mib.split(',').filter_map(|word| word.parse::<f64>().ok());
    let all: f64 = sizes.map(|mib| each + mib * EACH_MIB_S).sum();
    all * arguments.way.split(',').count() as f64 * f64::from(arguments.common.pairs)
}

/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    callgrind::is_there()?;
    let common = &arguments.common;
    let seconds = common.seconds(SECONDS);
    let cache = callgrind::LAST_LEVEL;
    let params = json!({ "seconds": seconds, "pairs": common.pairs, "bytes": 8192, "valgrind": "callgrind",
        "simulated_cache": { "bytes": cache.bytes, "ways": cache.ways, "line": cache.line } });
    let mut report = Report::new("working-set", params);
    tools.print_line(&format!("working-set: about {:.0} s", estimate(arguments)));
    for round in 1..=common.pairs {
        for mib in list(&arguments.mib, |word| crate::arguments::count(word, MOST_MIB))? {
            for way in list(&arguments.way, way)? {
                let mut run = Run::new(Stack::Opentoe, round, &json!({ "mib": mib }));
                (run.setup, run.engine) = (way.into(), None);
                let place = format!("{mib} MiB, {way}");
                let Some(run) = report.measured(tools, &place, measure(tools, way, mib, seconds, run))? else {
                    continue;
                };
                let through = three(run.figure(THROUGH));
                tools.print_line(&format!(
                    "{place}: {}, {through} bytes through memory for each",
                    compare::sentence(&run)
                ));
                report.runs.push(run);
            }
        }
    }
    Ok(report)
}

/// Bytes of lines that the last level of the cache lacked, for each byte of payload.
const THROUGH: &str = "memory_bytes_per_byte";

fn measure(tools: &Tools, way: &str, mib: usize, seconds: f64, run: Run) -> Result<Run, String> {
    let directory = Directory::new("working-set")?;
    let of = |what: &[&str]| -> Result<Vec<String>, String> {
        let words = [way.to_string(), mib.to_string()].into_iter().chain(what.iter().map(ToString::to_string));
        Ok([tools.example("working_set")?].into_iter().chain(words).collect())
    };
    let printed = |words: Vec<String>, log: &str| {
        let program = Process::start(&Netns::create()?, &words, directory.path().join(log))?;
        let printed = program.finish(&tools.stop, TIMEOUT + Duration::from_secs_f64(seconds))?;
        number(&printed).ok_or_else(|| format!("the example working_set printed {printed}"))
    };
    let timed = of(&["time", &format!("{:.0}", (seconds * 1000.0).max(1.0))])?;
    let gbit_per_s = printed(tools.pinned(None).into_iter().chain(timed).collect(), "time.log")?;
    let file = directory.path().join("working-set.callgrind");
    let counted = callgrind::with_caches(&file, "*path_receive*").into_iter().chain(of(&["count"])?).collect();
    let payload = printed(counted, "count.log")?;
    let missed = callgrind::last_level_misses(&file)? * callgrind::LAST_LEVEL.line;
    let mut run = Run { gbit_per_s: Some(gbit_per_s), ..run };
    run.figures.insert(THROUGH.into(), json!(missed as f64 / payload));
    Ok(run)
}

/// The table.
pub(crate) fn show(report: &Report) -> String {
    compare::show_with(report, &[Column::new("bytes through memory for each", |run| run.figure(THROUGH))])
}

/// Of a run, for the chart.
pub(crate) fn through_memory(run: &Run) -> f64 {
    run.figure(THROUGH)
}

fn way(text: &str) -> Result<&'static str, String> {
    let known = WAYS.into_iter().find(|known| *known == text);
    known.ok_or_else(|| format!("there is no way `{text}`; there are {}", WAYS.join(" and ")))
}

/// What the example prints, behind valgrind's lines about the machine's caches.
fn number(printed: &str) -> Option<f64> {
    printed.lines().last()?.parse().ok().filter(|number| *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_the_number() {
        assert_eq!(number("--7-- warning: L3 cache found, using its data\n33554432\n"), Some(33_554_432.0));
        assert_eq!(number("121.67\n"), Some(121.67));
        assert_eq!([number(""), number("usage: working_set\n"), number("0.00\n")], [None; 3]);
    }
}
