//! HTML page of all reports, with everything it needs inside.
use crate::goals::{PARTS, Row, verdict};
use crate::measurement::{plots, shown};
use crate::provenance::Provenance;
use crate::published;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.6rem; border-bottom: 1px solid #e5e5e5; }
.met { color: #00735a; font-weight: 600; white-space: nowrap; }
.not { color: #b54400; font-weight: 600; white-space: nowrap; }
.none { color: #777; white-space: nowrap; }
pre { background: #f6f6f6; padding: 0.8rem; overflow-x: auto; font-size: 0.82rem; line-height: 1.35; }
svg { width: 100%; min-width: 36rem; max-width: 820px; height: auto; display: block; }
.wide { overflow-x: auto; margin: 1rem 0; } p { overflow-wrap: anywhere; }
.small { color: #666; font-size: 0.85rem; } details { margin: 0.5rem 0; }
@media (max-width: 40rem) {
body { margin: 1rem auto; padding: 0 0.7rem; }
tr.head { display: none; }
table, tbody, tr, td { display: block; }
tr { border-bottom: 1px solid #ddd; padding: 0.4rem 0; }
td { border: 0; padding: 0.1rem 0; } td:first-child { font-weight: 600; } td:empty { display: none; }
}
";

/// The page: goals, curves, and the figures of each report.
pub(crate) fn page(reports: &BTreeMap<String, Report>, rows: &[Row]) -> Result<String, String> {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>OpenTOE measured</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>OpenTOE, measured beside Linux TCP</h1>\n"
    );
    machine(&mut html, reports);
    goals(&mut html, rows);
    html += "<h2>Curves</h2>\n<p class=\"small\">Thin lines are figures of others, with their source; multiples of Linux are \
             drawn as multiples of this machine's Linux.</p>\n";
    for (_, report) in ordered(reports) {
        for (_, chart) in plots(report) {
            let _ = writeln!(html, "<div class=\"wide\">{}</div>", chart.svg()?);
        }
    }
    html += "<h2>All figures</h2>\n<p class=\"small\">Medians of the repetitions; behind them the ratio of rates to the first \
             way of Linux, pair by pair: median (least-most). CPU us: time of all processes for each request.</p>\n";
    for (name, report) in ordered(reports) {
        // Writing to a string does not fail.
        let _ = writeln!(html, "<h3>{}</h3>\n<p class=\"small\">{}</p>", escape(name), escape(&params(name, report)));
        let _ = writeln!(html, "<p class=\"small\">{}</p>", escape(&report.provenance.sentence()));
        let _ = writeln!(html, "<pre>{}</pre>", escape(shown(report).trim_end()));
        in_the_paper(&mut html, name);
    }
    html += "</body></html>\n";
    Ok(html)
}

fn machine(html: &mut String, reports: &BTreeMap<String, Report>) {
    let Some(words) = machine_words(reports) else { return };
    let _ = writeln!(html, "<p>{}</p>", escape(&times(reports)));
    let _ = writeln!(
        html,
        "<p class=\"small\">{} Client and server are the same programs on every stack. On OpenTOE the daemon has one \
         core and both programs share the other; on Linux each program has a core.</p>",
        escape(&words),
    );
}

/// The machine of the first report, in a sentence.
pub(crate) fn machine_words(reports: &BTreeMap<String, Report>) -> Option<String> {
    let machine = &reports.values().next()?.machine;
    let word = |key: &str| machine[key].as_str().unwrap_or("?");
    let (cores, memory) = (&machine["cores"], gib(machine["memory_bytes"].as_u64()));
    Some(format!("{cores} cores of {}, {memory}, Linux {}.", word("cpu"), word("kernel")))
}

/// When all of it was measured, how long it took, and with which OpenTOE.
pub(crate) fn times(reports: &BTreeMap<String, Report>) -> String {
    let of = |pick: fn(&Provenance) -> Option<String>| -> Vec<String> {
        reports.values().filter_map(|report| pick(&report.provenance)).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let dates = of(|own| own.date.clone());
    let when = match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => format!("Measured from {first} to {last}"),
        (Some(only), _) => format!("Measured on {only}"),
        _ => "Measured on an unknown day".into(),
    };
    let versions = of(|own| Some(own.version.clone()).filter(|version| !version.is_empty())).join(", ");
    let commits = of(|own| own.commit.clone());
    let commits = if commits.is_empty() { String::new() } else { format!(", commit {}", commits.join(", ")) };
    let minutes = reports.values().map(|report| report.provenance.took_s).sum::<f64>() / 60.0;
    let quick = reports.values().any(|report| report.provenance.is_quick());
    let quick =
        if quick { " Some of it is a quick run, which shows that everything works and is no measurement." } else { "" };
    let short = short(reports).unwrap_or_default();
    format!("{when}, in {minutes:.1} minutes, with OpenTOE {versions}{commits}.{quick}{short}")
}

/// Names the shortest measurement and its repetitions, where it is too short to be relied on.
fn short(reports: &BTreeMap<String, Report>) -> Option<String> {
    /// Seconds of a measurement, at least.
    const LEAST: f64 = 1.0;
    let length = |report: &Report| Some((report.params["seconds"].as_f64()?, report.repetitions()));
    let shortest = reports.values().filter_map(length).filter(|(seconds, _)| *seconds < LEAST);
    let (seconds, repetitions) = shortest.min_by(|(a, m), (b, n)| a.total_cmp(b).then(m.cmp(n)))?;
    let times = if repetitions == 1 { "once".into() } else { format!("{repetitions} times") };
    Some(format!(" The shortest measurement is {seconds} s, {times}: no measurement to rely on."))
}

/// Bytes for people.
fn gib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "?".to_string(), |bytes| format!("{:.0} GiB", bytes as f64 / (1u64 << 30) as f64))
}

/// What the paper has of an experiment that is measured by its number.
fn in_the_paper(html: &mut String, name: &str) {
    let figures = published::of(name);
    if figures.is_empty() {
        return;
    }
    *html += "<table>\n<tr class=\"head\"><th>In the paper</th><th></th></tr>\n";
    for (what, figure) in figures {
        let _ = writeln!(html, "<tr><td>{}</td><td>{}</td></tr>", escape(what), escape(figure));
    }
    *html += "</table>\n";
}

/// A page of the papers' experiments has no goals.
fn goals(html: &mut String, rows: &[Row]) {
    if rows.iter().all(|row| row.measured.is_none()) {
        return;
    }
    let met = rows.iter().filter(|row| row.met).count();
    let measured = rows.iter().filter(|row| row.measured.is_some()).count();
    let _ = writeln!(html, "<h2>Goals: {met} of {} met, {measured} measured</h2>\n<table>", rows.len());
    *html += "<tr class=\"head\"><th>What</th><th>Goal</th><th>Measured: median (least-most)</th><th></th><th>Others</th></tr>\n";
    for row in rows {
        let class = match verdict(row) {
            "met" => "met",
            "not met" => "not",
            _ => "none",
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td><td class=\"small\">{}</td></tr>",
            escape(row.goal.what),
            escape(row.goal.goal),
            escape(row.measured.as_deref().unwrap_or("-")),
            verdict(row),
            escape(row.goal.others),
        );
    }
    *html += "</table>\n";
}

/// As `opentoe bench all` measures them, then whatever else is there.
fn ordered(reports: &BTreeMap<String, Report>) -> Vec<(&str, &Report)> {
    let place = |name: &str| PARTS.iter().position(|part| part.name == name).unwrap_or(PARTS.len());
    let mut all: Vec<(&str, &Report)> = reports.iter().map(|(name, report)| (name.as_str(), report)).collect();
    all.sort_by_key(|(name, _)| place(name));
    all
}

fn params(name: &str, report: &Report) -> String {
    // A report that has its command line shows it; another command measured it where the user gave it this name.
    let own = if report.provenance.command.is_empty() { PARTS } else { &[] };
    let words = own.iter().find(|part| part.name == name).map_or("", |part| part.words);
    let command = if words.is_empty() { format!("{}; ", report.case) } else { format!("opentoe bench {words}; ") };
    let all = report.params.as_object().into_iter().flatten().map(|(key, value)| format!("{key} {value}"));
    command + &all.collect::<Vec<_>>().join(", ")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Run;
    use serde_json::json;

    #[test]
    fn a_page_stands_alone() {
        let mut report = Report::new("echo", json!({ "seconds": 2 }));
        let mut run = Run::new(crate::lab::Stack::Linux, 1, &json!({ "conns": 1 }));
        run.ops_per_s = Some(1000.0);
        report.runs.push(run);
        report.provenance.commit = Some("0123abcd".into());
        let own =
            Report { case: "echo".into(), provenance: report.provenance.clone(), ..Report::new("echo", json!({})) };
        let named = [("echo-1", report), ("my-own", own.clone()), ("flextoe-figure-16", own)];
        let reports = BTreeMap::from(named.map(|(name, report)| (name.to_string(), report)));
        let html = page(&reports, &crate::goals::rows(&reports)).unwrap();
        assert!(html.contains("Measured on 2") && html.contains("commit 0123abcd") && html.contains("<h3>my-own</h3>"));
        assert!(html.contains(">echo; seconds 2<") && html.ends_with("</body></html>\n"));
        assert_eq!(html.matches("In the paper").count(), 1);
        assert!(html.contains("<td>Jain's index at 2,000 flows"), "its paper's figures");
        assert!(!html.contains("src=") && !html.contains("href="));
        assert_eq!((gib(Some(24_684_096 << 10)), gib(None)), ("24 GiB".into(), "?".into()));
        assert_eq!(escape("<a & b>"), "&lt;a &amp; b&gt;");
    }

    #[test]
    fn only_a_report_without_its_command_gets_that_of_its_part() {
        let mut report = Report::new("echo", json!({ "seconds": 2 }));
        report.provenance.command = "opentoe bench echo --conns 5".into();
        assert_eq!(params("echo-1", &report), "echo; seconds 2");
        report.provenance.command.clear();
        assert!(params("echo-1", &report).starts_with("opentoe bench echo --conns 1 "));
    }

    #[test]
    fn the_head_names_measurements_that_are_too_short() {
        let with = |seconds: f64, rounds: u32| {
            let mut report = Report::new("echo", json!({ "seconds": seconds }));
            let run = |round| Run::new(crate::lab::Stack::Linux, round, &json!({}));
            report.runs = (1..=rounds).map(run).collect();
            report
        };
        let head = |all: Vec<Report>| {
            let named = all.into_iter().enumerate().map(|(at, report)| (at.to_string(), report));
            times(&named.collect())
        };
        let sentence = "The shortest measurement is 0.3 s, once: no measurement to rely on.";
        assert!(head(vec![with(2.0, 3), with(0.3, 3), with(0.3, 1), with(0.5, 1)]).ends_with(sentence));
        assert!(head(vec![with(0.5, 3)]).ends_with("0.5 s, 3 times: no measurement to rely on."));
        assert!(!head(vec![with(2.0, 1), Report::new("instructions", json!({}))]).contains("shortest"));
    }
}
