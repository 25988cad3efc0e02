//! `opentoe trace`: what happens inside, as it happens.
use crate::arguments::TraceArguments;
use crate::locate;
use crate::table::{Table, cell, print_json, print_line, red};
use crate::units::{self, several};
use daemon::client;
use daemon::protocol::{Question, Trace};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::HashSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trace::{Kind, Point, PointSet};

/// Streams tracepoints until the count or the time is reached or somebody ends it, or lists all there are.
pub(crate) fn trace(arguments: &TraceArguments) -> Result<(), String> {
    // The names are known here: a wrong one needs no daemon to be refused.
    let points = PointSet::named(&arguments.patterns)?;
    if arguments.list {
        list(if arguments.patterns.is_empty() { PointSet::all() } else { points }, arguments.json);
        return Ok(());
    }
    let wish = Trace { points: arguments.patterns.clone(), host: arguments.host.clone(), flow: arguments.flow };
    let socket = locate::daemon(arguments.daemon.socket.as_deref())?;
    let (answer, stream) = client::open(&socket, &Question::Trace(wish))?;
    eprintln!("opentoe: {} tracepoints are on; Ctrl-C ends it", answer["points"]);
    let enough =
        end_when_due(stream.get_ref(), arguments.seconds).map_err(|e| format!("cannot receive signals: {e}"))?;
    show(stream, arguments, &enough)
}

/// Shows lines until the daemon has sent the last one. A reader that has had enough has no use for the thousands that
/// are on their way; a file gets them all.
fn show(mut stream: io::BufReader<UnixStream>, arguments: &TraceArguments, enough: &AtomicBool) -> Result<(), String> {
    let (mut shown, mut line, mut out) = (0u64, String::new(), io::BufWriter::new(io::stdout()));
    let (mut known, watched, mut skipped) = (HashSet::new(), io::stdout().is_terminal(), 0);
    loop {
        line.clear();
        let read = stream.read_line(&mut line).map_err(|e| format!("the stream broke off: {e}"))?;
        if read == 0 {
            console::wrote(out.flush());
            return Err(format!("the daemon has ended after {}", units::several(shown as usize, "record")));
        }
        let record: Value = serde_json::from_str(&line).map_err(|e| format!("the daemon sends strange lines: {e}"))?;
        if let Some(missed) = record["missed"].as_u64() {
            if record["end"] == true {
                console::wrote(out.flush());
                let missed = missed + skipped;
                let missed = if missed == 0 { String::new() } else { red(&format!(", {missed} were missed")) };
                eprintln!("opentoe: {}{missed}", units::several(shown as usize, "record"));
                return Ok(());
            }
            continue;
        }
        if arguments.count.is_some_and(|count| shown >= count) {
            continue;
        }
        if watched && enough.load(Ordering::Relaxed) {
            skipped += 1;
            continue;
        }
        let text = match (arguments.json, introduction(&record).filter(|line| known.insert(line.clone()))) {
            (true, _) => line.trim_end().to_string(),
            (false, None) => text(&record),
            (false, Some(flow)) => format!("{flow}\n{}", text(&record)),
        };
        let mut written = writeln!(out, "{text}");
        if stream.buffer().is_empty() {
            written = written.and_then(|()| out.flush());
        }
        if !console::wrote(written) {
            return Ok(());
        }
        shown += 1;
        if arguments.count == Some(shown) {
            let _ = stream.get_ref().shutdown(Shutdown::Write);
        }
    }
}

/// Ends the stream after some time, and on the first Ctrl-C, which the returned value reports; a second one ends at
/// once.
fn end_when_due(stream: &UnixStream, seconds: Option<u64>) -> io::Result<Arc<AtomicBool>> {
    let (mut signals, end) = (Signals::new([SIGINT, SIGTERM])?, stream.try_clone()?);
    let enough = Arc::new(AtomicBool::new(false));
    let had = Arc::clone(&enough);
    std::thread::spawn(move || {
        let mut arrived = signals.forever();
        arrived.next();
        had.store(true, Ordering::Relaxed);
        let _ = end.shutdown(Shutdown::Write);
        arrived.next();
        std::process::exit(130);
    });
    if let Some(seconds) = seconds {
        let end = stream.try_clone()?;
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(seconds));
            let _ = end.shutdown(Shutdown::Write);
        });
    }
    Ok(enough)
}

/// What stands before the first record of a flow, so that its addresses are not in each of them.
fn introduction(record: &Value) -> Option<String> {
    let (flow, local) = (record["flow"].as_u64()?, record["local"].as_str()?);
    Some(format!("{}: flow {flow} is {local} - {}", cell(&record["host"]), cell(&record["remote"])))
}

/// `12:30:01.000012 a flow 3 flextoe.protocol.sent seq=1 payload=64 B`; nanoseconds, which a round of the data-path
/// does not distinguish, are in the JSON only, so that most lines fit 80 columns.
fn text(record: &Value) -> String {
    let time = record["time_ns"].as_u64().unwrap_or(0);
    let (seconds, nanos) = (time / 1_000_000_000, time % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    let flow = record["flow"].as_u64().map_or("-".into(), |flow| format!("flow {flow}"));
    let name = record["point"].as_str().unwrap_or_default();
    let point = Point::ALL.iter().find(|point| point.name() == name);
    let arguments = point.map_or(&[][..], |point| point.arguments()).iter().map(|(name, unit)| {
        let value = &record["args"][name];
        format!(" {name}={}{}", cell(value), if value.is_number() { unit.suffix() } else { "" })
    });
    let arguments: String = arguments.collect();
    let host = cell(&record["host"]);
    format!("{hours:02}:{minutes:02}:{:02}.{:06} {host} {flow} {name}{arguments}", seconds % 60, nanos / 1000)
}

fn list(points: PointSet, as_json: bool) {
    if as_json {
        let point = |point: Point| {
            let arguments: Vec<Value> =
                point.arguments().iter().map(|(name, unit)| json!({ "name": name, "unit": unit.name() })).collect();
            let kind = if point.kind() == Kind::Event { "event" } else { "histogram" };
            json!({ "name": point.name(), "kind": kind, "arguments": arguments, "sentence": point.sentence() })
        };
        return print_json(&points.iter().map(point).collect());
    }
    let mut table = Table::new(&["tracepoint", "kind", "what it means"]);
    for point in points.iter() {
        let kind = if point.kind() == Kind::Event { "event" } else { "histogram" };
        table.row([point.name(), kind, point.sentence()]);
    }
    table.print();
}

/// What tracepoints counted; of those that counted nothing only how many they are, unless all are wanted.
pub(crate) fn figures(answer: &Value, all: bool) {
    for station in crate::ls::list(answer, "hosts") {
        let points = crate::ls::list(station, "points");
        let (shown, silent): (Vec<&Value>, Vec<&Value>) = points.iter().partition(|point| all || point["count"] != 0);
        print_line(&crate::table::bold(&station_name(station)));
        if points.is_empty() {
            print_line("no tracepoint is on, and none was; --enable PATTERN counts some");
        }
        if !shown.is_empty() {
            counted(&shown).print();
        }
        if !silent.is_empty() {
            print_line(&format!("and {} that counted nothing: --all shows them", several(silent.len(), "tracepoint")));
        }
        print_line("");
    }
}

/// A host, or a data-path thread with the hosts that it runs.
fn station_name(station: &Value) -> String {
    let name = cell(&station["name"]);
    match crate::ls::list(station, "runs") {
        [] => format!("host {name}"),
        hosts => format!("{name}, which runs {}", hosts.iter().map(cell).collect::<Vec<_>>().join(", ")),
    }
}

fn counted(points: &[&Value]) -> Table {
    let mut table = Table::new(&["tracepoint", "on", "count", "p50", "p99", "max", "unit"]);
    for point in points {
        let on = if point["on"] == true { "yes" } else { "no" };
        // A histogram that has counted nothing has no percentiles.
        let number = |key: &str| point[key].as_u64().filter(|_| key == "count" || point["count"] != 0);
        let numbers = ["count", "p50", "p99", "max"]
            .map(|key| number(key).map_or_else(|| "-".to_string(), crate::table::thousands));
        table.row([cell(&point["point"]), on.to_string()].into_iter().chain(numbers).chain([cell(&point["unit"])]));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_with_their_hosts() {
        assert_eq!(station_name(&json!({ "name": "a", "points": [] })), "host a");
        let thread = json!({ "name": "thread 0", "runs": ["a", "b"] });
        assert_eq!(station_name(&thread), "thread 0, which runs a, b");
    }

    #[test]
    fn a_line_fits_a_terminal_and_a_flow_is_introduced() {
        let record = json!({
            "time_ns": 45_296_000_012_345u64, "host": "client0", "thread": "flextoe", "flow": 12,
            "local": "10.77.0.2:58966", "remote": "10.77.0.1:7777", "point": "flextoe.protocol.out_of_order",
            "args": { "seq": 4_294_967_295u32, "payload": 1448 },
        });
        let line = "12:34:56.000012 client0 flow 12 flextoe.protocol.out_of_order seq=4294967295 payload=1448 B";
        assert_eq!(text(&record), line);
        assert_eq!(introduction(&record).unwrap(), "client0: flow 12 is 10.77.0.2:58966 - 10.77.0.1:7777");
        assert_eq!(introduction(&json!({ "flow": null, "local": null })), None);
    }
}
