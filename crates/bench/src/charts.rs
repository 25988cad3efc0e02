//! Curves of speed: one set-up over connections, message size or load, and what the papers say beside.
use crate::lab::Stack;
use crate::plot::{Chart, Line};
use crate::report::{Report, Run};
use serde_json::Value;

/// A figure that others published, as a multiple of Linux in their own measurement: drawn as that multiple of ours.
struct Published {
    times_linux: f64,
    name: &'static str,
}

const ECHO: &[Published] = &[
    Published { times_linux: 10.0, name: "10x our Linux (Laminar, thesis fig. 5.11)" },
    Published { times_linux: 3.3, name: "3.3x our Linux (FlexTOE, NSDI fig. 13)" },
];
const STREAM: &[Published] = &[Published { times_linux: 4.0, name: "4x our Linux (FlexTOE receiving, NSDI fig. 10)" }];
/// TAS, patched to yield, on the test machine: connections and thousand echoes a second.
const TAS: &[(f64, f64)] = &[(1.0, 47.0), (16.0, 448.0), (128.0, 1000.0), (1024.0, 1060.0)];
/// A few points make a curve.
const FEW: usize = 3;

/// The curves in a report of echo, stream, block or volume.
pub(crate) fn of(report: &Report) -> Vec<(&'static str, Chart)> {
    let drawn = match report.case.as_str() {
        "echo" if varies(report, "rate") => vec![("load-latency", load_latency(report))],
        "echo" if varies(report, "conns") && over_loopback(report) => {
            vec![("loopback-connections", loopback_connections(report))]
        }
        "echo" if varies(report, "conns") => vec![("connections", connections(report))],
        "echo" if varies(report, "size") => vec![("message-size", message_size(report))],
        "block" if varies(report, "depth") => vec![("block-depth", block_depth(report))],
        "volume" if varies(report, "clients") => vec![("volume-clients", volume_clients(report))],
        "offload" if varies(report, "hops") => vec![("offload-list", offload_list(report))],
        "stream" if varies(report, "size") => vec![("write-size", write_size(report))],
        _ => Vec::new(),
    };
    drawn.into_iter().filter(|(_, chart)| chart.lines.iter().any(|line| !line.points.is_empty())).collect()
}

fn varies(report: &Report, name: &str) -> bool {
    let mut values: Vec<u64> = report.points().iter().filter_map(|point| point[name].as_u64()).collect();
    values.sort_unstable();
    values.dedup();
    values.len() >= FEW
}

/// Each set-up's figure over a number of the points.
fn lines(report: &Report, x: impl Fn(&Value, &str) -> Option<f64>, y: impl Fn(&Run) -> f64 + Copy) -> Vec<Line> {
    let line = |(colour, (_, setup)): (usize, (Stack, String))| {
        let point = |point: Value| Some((x(&point, &setup)?, report.median_on(&setup, &point, y)?));
        let points = report.points().into_iter().filter_map(point).collect();
        Line { name: setup.clone(), points, colour, reference: false }
    };
    report.setups().into_iter().enumerate().map(line).collect()
}

fn of_point(name: &'static str) -> impl Fn(&Value, &str) -> Option<f64> {
    move |point, _| point[name].as_f64()
}

/// Multiples of the line of Linux.
fn beside(lines: &[Line], published: &[Published]) -> Vec<Line> {
    let Some(linux) = lines.iter().find(|line| line.name.starts_with("linux")) else { return Vec::new() };
    let multiple = |(at, one): (usize, &Published)| Line {
        name: one.name.into(),
        points: linux.points.iter().map(|(x, y)| (*x, y * one.times_linux)).collect(),
        colour: 3 + at,
        reference: true,
    };
    published.iter().enumerate().map(multiple).collect()
}

fn connections(report: &Report) -> Chart {
    let mut lines = lines(report, of_point("conns"), |run| run.speed() / 1e3);
    lines.extend(beside(&lines, ECHO));
    let (name, points) = ("TAS on the test machine".into(), TAS.to_vec());
    lines.push(Line { name, points, colour: 5, reference: true });
    chart("Echo of 64 B, one in flight, over connections", "connections", "thousand a second", lines)
}

fn over_loopback(report: &Report) -> bool {
    report.setups().iter().any(|(_, name)| name.ends_with("loopback"))
}

/// What others published is over networks, and not beside it.
fn loopback_connections(report: &Report) -> Chart {
    let mut lines = lines(report, of_point("conns"), |run| run.speed() / 1e3);
    if let [one, other] = &mut lines[..] {
        [one, other].into_iter().for_each(|line| line.name = stack_of(&line.name).into());
    }
    chart("Echo of 64 B over loopback, one in flight", "connections", "thousand echoes a second", lines)
}

fn stack_of(setup: &str) -> &'static str {
    if setup.starts_with("linux") { "Linux" } else { "OpenTOE" }
}

fn message_size(report: &Report) -> Chart {
    let lines = lines(report, of_point("size"), |run| run.speed() / 1e3);
    chart("Echo over message size", "bytes of a message", "thousand a second", lines)
}

fn block_depth(report: &Report) -> Chart {
    let lines = lines(report, of_point("depth"), |run| run.speed() / 1e3);
    chart("A disk over NBD: blocks at random places, by fio", "commands in flight", "thousand a second", lines)
}

fn volume_clients(report: &Report) -> Chart {
    let lines = lines(report, of_point("clients"), |run| run.speed() / 1e3);
    chart("A volume: blocks of 4 KiB at random places, by fio", "clients", "thousand a second", lines)
}

fn offload_list(report: &Report) -> Chart {
    let median = |run: &Run| run.latency_us.map_or(f64::NAN, |latency| latency.p50);
    let title = "A list in the memory of another host: median time to find a key";
    chart(title, "elements looked at", "microseconds", lines(report, of_point("hops"), median))
}

fn write_size(report: &Report) -> Chart {
    let mut lines = lines(report, of_point("size"), Run::speed);
    lines.extend(beside(&lines, STREAM));
    chart("One flow, over the bytes of a write", "bytes of a write", "Gbit/s", lines)
}

/// Latency over the load that was carried.
fn load_latency(report: &Report) -> Chart {
    let carried =
        |point: &Value, setup: &str| Some(report.median_on(setup, point, Run::speed)? / 1e3).filter(|rate| *rate > 0.0);
    let named = |lines: Vec<Line>, what: &str, shift: usize| {
        let rename = |line: Line| Line { name: format!("{}, {what}", line.name), colour: line.colour + shift, ..line };
        lines.into_iter().map(rename).collect::<Vec<_>>()
    };
    let latency = |run: &Run, pick: fn(&crate::sample::Latency) -> f64| run.latency_us.as_ref().map_or(f64::NAN, pick);
    let mut all = named(lines(report, carried, |run| latency(run, |l| l.p50)), "p50", 0);
    all.extend(named(lines(report, carried, |run| latency(run, |l| l.p99)), "p99", 2));
    let ends = all.iter().flat_map(|line| &line.points).map(|point| point.0);
    let (least, most) = ends.fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
    let published = [("Laminar, median (thesis fig. 5.9)", 18.0), ("FlexTOE, median (NSDI fig. 11)", 20.0)];
    for (at, (name, us)) in published.into_iter().enumerate() {
        all.push(Line { name: name.into(), points: vec![(least, us), (most, us)], colour: 4 + at, reference: true });
    }
    let title = "Latency of an echo over the load, open loop";
    Chart { log_y: true, ..chart(title, "thousand a second carried", "microseconds", all) }
}

fn chart(title: &str, x: &str, y: &str, lines: Vec<Line>) -> Chart {
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    Chart { title: title.into(), x: x.into(), y: y.into(), places: Vec::new(), log_y: false, lines }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn echo_of(setups: [(Stack, &str); 2]) -> Report {
        let mut report = Report::new("echo", json!({}));
        for conns in [1, 16, 128] {
            for (stack, setup) in setups {
                let mut run = Run::new(stack, 1, &json!({ "conns": conns, "size": 64, "depth": 1 }));
                (run.setup, run.ops_per_s) = (setup.into(), Some(1e5 * f64::from(conns)));
                report.runs.push(run);
            }
        }
        report
    }

    #[test]
    fn over_loopback_there_are_the_two_stacks() {
        let charts = of(&echo_of([(Stack::Opentoe, "flextoe loopback"), (Stack::Linux, "linux loopback")]));
        assert_eq!(charts[0].0, "loopback-connections");
        let names: Vec<&str> = charts[0].1.lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["OpenTOE", "Linux"]);
    }

    #[test]
    fn a_curve_has_a_line_for_each_set_up_and_what_others_published() {
        let mut report = echo_of([(Stack::Opentoe, "flextoe fabric"), (Stack::Linux, "linux cubic")]);
        let charts = of(&report);
        assert_eq!(charts[0].0, "connections");
        let lines = &charts[0].1.lines;
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[2].points[0], (1.0, 1000.0));
        report.runs.truncate(2);
        assert!(of(&report).is_empty());
    }
}
