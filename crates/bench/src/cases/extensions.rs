//! Flexible extensions (FlexTOE table 2, thesis table 4.3): echo throughput with each of them as a ratio to the plain
//! build. One daemon and one load for all: an extension is loaded and unloaded while the echoes run, in turn with
//! moments without it. So other load of the machine meets both alike. What one host does is separated from what the
//! other one does where it has a data-path thread to itself. Splicing is `spliced.rs`.
use super::compare::three;
use super::extension::Extension;
use super::observed::{Figures, Part, SIZE, TIMEOUT, finish, load, moment, note_errors, observe, pause, row};
use super::rpc;
use super::spliced;
use crate::arguments::list;
use crate::lab::{FabricLab, FabricPlan};
use crate::report::{Report, Run, table};
use crate::tools::Tools;
use serde_json::json;

pub(crate) use super::observed::Arguments;

/// What putting on and taking off takes besides, at most, seconds.
const CHANGE: f64 = 0.4;
/// Runs the case.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<Report, String> {
    let common = &arguments.common;
    let rows = list(&arguments.extensions, row)?;
    let params = json!({
        "moment_s": moment(common), "pairs": common.pairs, "conns": arguments.conns, "depth": arguments.depth,
        "size": SIZE,
    });
    let mut report = Report::new("extensions", params);
    let extensions: Vec<Extension> = rows.iter().copied().flatten().collect();
    for alone in [None, Some("server")] {
        let of_lab: Vec<Extension> =
            extensions.iter().copied().filter(|extension| extension.alone() == alone).collect();
        if !of_lab.is_empty() {
            in_turn(tools, arguments, alone, &of_lab, &mut report)?;
        }
    }
    if rows.contains(&None) {
        spliced::measure(tools, arguments, &mut report)?;
    }
    Ok(report)
}

/// Extensions on one daemon, one after the other, again and again.
fn in_turn(
    tools: &Tools,
    arguments: &Arguments,
    alone: Option<&'static str>,
    extensions: &[Extension],
    report: &mut Report,
) -> Result<(), String> {
    let (moment, rounds) = (moment(&arguments.common), arguments.common.pairs);
    let all = (moment + CHANGE) * 2.0 * f64::from(rounds) * extensions.len() as f64;
    tools.print_line(&format!("extensions: about {all:.0} s"));
    let lab = FabricLab::new(tools, &FabricPlan { alone, ..FabricPlan::default() })?;
    let load = load(arguments, all);
    let (_servers, clients) = rpc::start(tools, &lab, &load)?;
    tools.stop.until("the echoes", TIMEOUT, || Ok(Figures::read(&lab, "server")?.bytes > 0.0))?;
    pause(tools, load.warm_up)?;
    for round in 1..=rounds {
        for extension in extensions {
            let plain_first = round % 2 == 1;
            let pair = measure(tools, &lab, *extension, moment, plain_first)?;
            tools.print_line(&sentence(extension.name(), &pair));
            report.runs.extend(pair.map(|run| Run { round, ..run }));
        }
    }
    note_errors(report, &finish(tools, clients)?)
}

fn sentence(name: &str, [plain, with]: &[Run; 2]) -> String {
    let ratio = capacity(with) / capacity(plain);
    format!("{name}: {} k/s, {} k/s without, {ratio:.2} of it", three(with.speed() / 1e3), three(plain.speed() / 1e3))
}

/// A moment with the extension and one without, in one of both orders.
fn measure(
    tools: &Tools,
    lab: &FabricLab,
    extension: Extension,
    moment: f64,
    plain_first: bool,
) -> Result<[Run; 2], String> {
    let point = json!({ "extension": extension.name() });
    let of = Part { lab, host: "server", alone: extension.alone().is_some(), request: SIZE };
    let run = |setup: &str| observe(tools, &of, moment, setup, &point);
    let before = if plain_first { Some(run("plain")?) } else { None };
    let on = extension.put_on(tools, lab)?;
    let with = run("with");
    on.take_off(lab)?;
    let plain = match before {
        Some(before) => before,
        None => run("plain")?,
    };
    Ok([plain, with?])
}

/// Requests for each second of the data-path thread. They are for a second of its processor time where it always has
/// something to do: it polls then, and has all of its core but what others take. They are for a second of its rounds
/// with work where it has not.
fn capacity(run: &Run) -> f64 {
    run.figure("requests_per_s_of_thread")
}

/// The reciprocal of the time that a request takes in rounds with work.
fn per_busy(run: &Run) -> f64 {
    1e9 / run.figure("busy_ns_per_request")
}

/// The table, a row for each extension. Ratios are those of pairs: median, least and most.
pub(crate) fn show(report: &Report) -> String {
    let head = ["", "plain", "with", "throughput", "ns plain", "ns with", "time", "thesis"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for point in report.points() {
        let name = point["extension"].as_str().unwrap_or_default();
        let median = |setup: &str, figure: &dyn Fn(&Run) -> f64| {
            report.median_on(setup, &point, figure).map_or("-".into(), three)
        };
        let speed = |run: &Run| run.speed() / 1e3;
        let time = |run: &Run| run.figure("busy_ns_per_request");
        let ratio = |figure: fn(&Run) -> f64| report.ratio(&point, "with", "plain", figure);
        let shown = ratio(capacity).map_or("-".into(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
        rows.push(vec![
            name.into(),
            median("plain", &speed),
            median("with", &speed),
            shown,
            median("plain", &time),
            median("with", &time),
            ratio(per_busy).map_or("-".into(), |r| format!("{:.2}", r.median)),
            Extension::published(name).map_or("-".into(), |ratio| format!("{ratio:.2}")),
        ]);
    }
    format!(
        "{}\nplain, with: thousand requests a second; throughput: for each second of the data-path thread;\n\
         ns, time: of its rounds with work, for each request{}\n",
        table(&rows),
        spliced::sentence(report).map(|sentence| format!("\n{sentence}")).unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Stack;

    #[test]
    fn extensions_are_named() {
        assert_eq!(list("null, splice", row), Ok(vec![Some(Extension::Null), None]));
        assert!(row("splicing").unwrap_err().contains("tracepoints, stream, capture, null, vlan, strip, splice"));
    }

    #[test]
    fn the_table_fits_a_terminal_and_ratios_are_pairs() {
        let mut report = Report::new("extensions", json!({}));
        for (round, (plain, with)) in [(1000.0, 900.0), (500.0, 475.0), (800.0, 800.0)].into_iter().enumerate() {
            for (setup, speed) in [("plain", plain), ("with", with)] {
                let mut run = Run::new(Stack::Opentoe, round as u32 + 1, &json!({ "extension": "tracepoints" }));
                (run.setup, run.ops_per_s) = (setup.into(), Some(speed * 1e3));
                run.figures.insert("busy_ns_per_request".into(), json!(1e6 / speed));
                run.figures.insert("requests_per_s_of_thread".into(), json!(speed * 1e3));
                report.runs.push(run);
            }
        }
        let text = show(&report);
        assert!(text.contains("0.95 (0.90-1.00)") && text.contains("0.76"), "{text}");
        assert!(text.lines().take(2).all(|line| line.chars().count() <= 80), "{text}");
    }
}
