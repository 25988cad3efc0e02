//! Curves of speed: one set-up over connections, message size or load, and the papers' figures beside.
use crate::cases::{incast_rdma, working_set};
use crate::lab::Stack;
use crate::plot::{Chart, Line, LineStyle, Unit, series};
use crate::report::{Report, Run};
use crate::setup::series_name;
use serde_json::Value;

/// A figure that others published, as a multiple of Linux in their own measurement: drawn as that multiple of ours.
struct Published {
    times_linux: f64,
    name: &'static str,
}

const ECHO: &[Published] = &[
    Published { times_linux: 10.0, name: "published: 10x Linux (Laminar, thesis fig. 5.11)" },
    Published { times_linux: 3.3, name: "published: 3.3x Linux (FlexTOE, NSDI fig. 13)" },
];
const STREAM: &[Published] =
    &[Published { times_linux: 4.0, name: "published: 4x Linux (FlexTOE receiving, NSDI fig. 10)" }];
/// TAS, patched to yield, on the test machine: connections and thousand echoes a second.
const TAS: &[(f64, f64)] = &[(1.0, 47.0), (16.0, 448.0), (128.0, 1000.0), (1024.0, 1060.0)];
/// A few points make a curve.
const FEW: usize = 3;

/// The curves in a report of one of these cases.
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
        "kv-cache" if varies(report, "mib") => vec![("kv-cache", kv_cache(report))],
        "offload" if varies(report, "hops") => vec![("offload-list", offload_list(report))],
        "notification" if varies(report, "together") => vec![("notification", notification(report))],
        "working-set" if varies(report, "mib") => working_set_charts(report),
        "incast-rdma" if varies(report, "senders") => vec![("incast-rdma", short_messages(report))],
        "rdma" if varies(report, "queue_pairs") => vec![("rdma-queue-pairs", queue_pairs(report))],
        "rdma" if varies(report, "size") && !varies_in_words(report, "test") => vec![("rdma-size", rdma_size(report))],
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

fn varies_in_words(report: &Report, name: &str) -> bool {
    let points = report.points();
    points.iter().any(|point| point[name] != points[0][name])
}

/// Each set-up's figure over a number of the points.
fn lines(report: &Report, x: impl Fn(&Value) -> Option<f64>, y: impl Fn(&Run) -> f64 + Copy) -> Vec<Line> {
    let all = report.points();
    let line = |(colour, (_, setup)): (usize, (Stack, String))| {
        let of = |at: usize| report.on(&setup, &all[at]).map(y).collect();
        let (mut points, spread) = series(all.len(), |at| x(&all[at]), of);
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name: series_name(&setup), points, spread, colour, stroke: LineStyle::Full }
    };
    report.setups().into_iter().enumerate().map(line).collect()
}

fn of_point(name: &'static str) -> impl Fn(&Value) -> Option<f64> {
    move |point| point[name].as_f64()
}

/// Multiples of the line of Linux.
fn beside(lines: &[Line], published: &[Published]) -> Vec<Line> {
    let Some(linux) = lines.iter().find(|line| line.name.starts_with("Linux")) else { return Vec::new() };
    let multiple = |(at, one): (usize, &Published)| Line {
        name: one.name.into(),
        points: linux.points.iter().map(|(x, y)| (*x, y * one.times_linux)).collect(),
        colour: 3 + at,
        stroke: LineStyle::Reference,
        ..Line::default()
    };
    published.iter().enumerate().map(multiple).collect()
}

fn connections(report: &Report) -> Chart {
    let mut lines = lines(report, of_point("conns"), |run| run.speed() / 1e3);
    lines.extend(beside(&lines, ECHO));
    let (name, points) = ("TAS on the test machine".into(), TAS.to_vec());
    lines.push(Line { name, points, colour: 5, stroke: LineStyle::Reference, ..Line::default() });
    chart("Echo of 64 B, one in flight, over connections", "connections", "thousand echoes a second", lines)
}

fn over_loopback(report: &Report) -> bool {
    report.setups().iter().any(|(_, name)| name.ends_with("loopback"))
}

/// What others published is over networks, and not beside it.
fn loopback_connections(report: &Report) -> Chart {
    let lines = lines(report, of_point("conns"), |run| run.speed() / 1e3);
    chart("Echo of 64 B over loopback, one in flight", "connections", "thousand echoes a second", lines)
}

fn message_size(report: &Report) -> Chart {
    let lines = lines(report, of_point("size"), |run| run.speed() / 1e3);
    chart("Echo over message size", "bytes of a message", "thousand echoes a second", lines)
}

fn block_depth(report: &Report) -> Chart {
    let lines = lines(report, of_point("depth"), |run| run.speed() / 1e3);
    chart("A disk over NBD: blocks at random places, by fio", "commands in flight", "thousand blocks a second", lines)
}

fn volume_clients(report: &Report) -> Chart {
    let lines = lines(report, of_point("clients"), |run| run.speed() / 1e3);
    chart("A volume: blocks of 4 KiB at random places, by fio", "clients", "thousand blocks a second", lines)
}

fn kv_cache(report: &Report) -> Chart {
    let lines = lines(report, of_point("mib"), |run| run.gbit_per_s.unwrap_or(f64::NAN));
    chart("Transfers of a KV cache by Mooncake, one outstanding", "MiB of a transfer", "Gbit/s", lines)
}

fn queue_pairs(report: &Report) -> Chart {
    let lines = lines(report, of_point("queue_pairs"), |run| run.gbit_per_s.unwrap_or(f64::NAN));
    chart("Messages of one program over its queue pairs, or flows", "queue pairs", "Gbit/s", lines)
}

fn working_set_charts(report: &Report) -> Vec<(&'static str, Chart)> {
    let over = |title: &str, y: &str, figure: fn(&Run) -> f64| {
        chart(title, "MiB of receive buffers", y, lines(report, of_point("mib"), figure))
    };
    let title = "WRITEs of 8 KiB over the working set of receive buffers";
    let through = "Bytes of lines that a cache of 32 MiB lacks, for each of payload";
    vec![
        ("working-set", over(title, "Gbit/s", Run::speed)),
        ("working-set-memory", over(through, "bytes", working_set::through_memory)),
    ]
}

fn notification(report: &Report) -> Chart {
    let lines = lines(report, of_point("together"), |run| run.figure("element_ns"));
    chart("Elements of 64 B from thread to thread", "elements together", "ns an element", lines)
}

fn rdma_size(report: &Report) -> Chart {
    let lines = lines(report, of_point("size"), |run| run.gbit_per_s.unwrap_or(f64::NAN));
    chart("RDMA over the bytes of a message", "bytes of a message", "Gbit/s", lines)
}

fn offload_list(report: &Report) -> Chart {
    let median = |run: &Run| run.latency_us.map_or(f64::NAN, |latency| latency.p50);
    let title = "A list in the memory of another host: median time to find a key";
    let unit = Unit::Time;
    Chart { unit, ..chart(title, "elements visited", "median time", lines(report, of_point("hops"), median)) }
}

fn short_messages(report: &Report) -> Chart {
    let title = "Incast of RDMA: 99th percentile of a short message's time";
    let lines = lines(report, of_point("senders"), incast_rdma::tail);
    Chart { log_y: true, unit: Unit::Time, ..chart(title, "senders", "99th percentile", lines) }
}

fn write_size(report: &Report) -> Chart {
    let mut lines = lines(report, of_point("size"), Run::speed);
    lines.extend(beside(&lines, STREAM));
    chart("One flow, over the bytes of a write", "bytes of a write", "Gbit/s", lines)
}

/// Latency over the load that was offered: what was carried goes back where a stack is overloaded.
fn load_latency(report: &Report) -> Chart {
    let offered = |point: &Value| Some(point["rate"].as_f64()? / 1e3);
    let named = |lines: Vec<Line>, what: &str, stroke: LineStyle| {
        let rename = |line: Line| Line { name: format!("{}, {what}", line.name), stroke, ..line };
        lines.into_iter().map(rename).collect::<Vec<_>>()
    };
    let latency = |run: &Run, pick: fn(&crate::sample::Latency) -> f64| run.latency_us.as_ref().map_or(f64::NAN, pick);
    let mut all = named(lines(report, offered, |run| latency(run, |l| l.p50)), "p50", LineStyle::Full);
    all.extend(named(lines(report, offered, |run| latency(run, |l| l.p99)), "p99", LineStyle::Second));
    let ends = all.iter().flat_map(|line| &line.points).map(|point| point.0);
    let (least, most) = ends.fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
    let published =
        [("published: Laminar, p50 (thesis fig. 5.9)", 18.0), ("published: FlexTOE, p50 (NSDI fig. 11)", 20.0)];
    for (at, (name, us)) in published.into_iter().enumerate() {
        let points = vec![(least, us), (most, us)];
        all.push(Line { name: name.into(), points, colour: 4 + at, stroke: LineStyle::Reference, ..Line::default() });
    }
    let title = "Latency of an echo over the load, open loop";
    Chart { log_y: true, unit: Unit::Time, ..chart(title, "thousand echoes a second asked for", "latency", all) }
}

fn chart(title: &str, x: &str, y: &str, lines: Vec<Line>) -> Chart {
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    Chart { title: title.into(), x: x.into(), y: y.into(), lines, ..Chart::default() }
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
        assert_eq!([&lines[0], &lines[1]].map(|line| line.name.as_str()), ["OpenTOE", "Linux"]);
        report.runs.truncate(2);
        assert!(of(&report).is_empty());
    }
}
