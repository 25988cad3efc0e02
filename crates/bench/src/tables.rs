//! Result tables of Markdown pages, written from reports: `opentoe bench report DIR --tables PAGE`.
//!
//! A page has a block for each table, between two comments:
//!
//! ```text
//! <!-- opentoe bench report --tables: goals -->
//! <!-- end of table -->
//! ```
//!
//! `goals` has the goals, and `cpu` the processor time of each process for a request. The name of a report is that of
//! its file without `.json`: a part of `opentoe bench all`, or a case that was measured by itself. What stands between
//! the comments is replaced; all else stays.
use crate::cases::compare::three;
use crate::goals::{self, PARTS, Row};
use crate::measurement::{Case, shown};
use crate::page;
use crate::report::{Report, Run, label, middle};
use clap::{Command, Subcommand};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const BEGIN: &str = "<!-- opentoe bench report --tables: ";
const END: &str = "<!-- end of table -->";

/// Writes the tables of a page anew; returns how many, and the names of those for which nothing was measured.
///
/// # Errors
/// A sentence: the page cannot be read or written, a table has no end, or its name means nothing.
pub(crate) fn write(page: &Path, reports: &BTreeMap<String, Report>, rows: &[Row]) -> Result<Written, String> {
    let failed = |what: &str, e: std::io::Error| format!("cannot {what} {}: {e}", page.display());
    let text = std::fs::read_to_string(page).map_err(|e| failed("read", e))?;
    let (text, written) =
        fill(&text, |name| table(name, reports, rows)).map_err(|sentence| format!("{}: {sentence}", page.display()))?;
    std::fs::write(page, text).map_err(|e| failed("write", e))?;
    Ok(written)
}

/// How many tables a page has, and the names of those that are not as [`write`] makes them.
#[cfg(test)]
pub(crate) fn differences(
    page: &Path,
    reports: &BTreeMap<String, Report>,
    rows: &[Row],
) -> Result<(usize, Vec<String>), String> {
    let text = std::fs::read_to_string(page).map_err(|e| e.to_string())?;
    let (count, mut other) = (text.matches(BEGIN).count(), Vec::new());
    for name in text.lines().filter_map(table_name) {
        let filled = fill(&text, |each| if each == name { table(name, reports, rows) } else { Ok(None) })?.0;
        other.extend((filled != text).then(|| name.to_string()));
    }
    Ok((count, other))
}

/// The name of the table that begins with a line.
fn table_name(line: &str) -> Option<&str> {
    line.trim_end().strip_prefix(BEGIN)?.strip_suffix(" -->")
}

/// Result of an update of a page's tables.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// Tables that were written.
    pub count: usize,
    /// Those that stay as they were: nothing of them was measured.
    pub left: Vec<String>,
}

/// A page with its tables replaced by what `table` makes of their names.
fn fill(text: &str, table: impl Fn(&str) -> Result<Option<String>, String>) -> Result<(String, Written), String> {
    let (mut out, mut written) = (String::new(), Written::default());
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        out += line;
        let Some(name) = table_name(line) else { continue };
        let mut old = String::new();
        let end = loop {
            match lines.next() {
                Some(line) if line.trim_end() == END => break line,
                Some(line) => old += line,
                None => return Err(format!("table `{name}` has no end: write `{END}` behind it")),
            }
        };
        match table(name)? {
            Some(new) => {
                written.count += 1;
                let _ = write!(out, "\n{}\n\n", new.trim_end());
            }
            None => {
                written.left.push(name.to_string());
                out += &old;
            }
        }
        out += end;
    }
    Ok((out, written))
}

/// The table of a name; `None` where nothing of it was measured.
fn table(name: &str, reports: &BTreeMap<String, Report>, rows: &[Row]) -> Result<Option<String>, String> {
    match name {
        "goals" => Ok((!reports.is_empty()).then(|| goals_table(reports, rows))),
        "cpu" => Ok(cpu_table(reports)),
        report if report_names().iter().any(|known| known == report) => {
            Ok(reports.get(report).map(|found| report_table(report, found)))
        }
        other => Err(format!("there is no table `{other}`; there are goals, cpu, {}", report_names().join(", "))),
    }
}

/// Names of parts, and of cases that are no part under their own name.
fn report_names() -> Vec<String> {
    let cases = Case::augment_subcommands(Command::new("bench"));
    let mut names: Vec<String> = PARTS.iter().map(|part| part.name.to_string()).collect();
    names.extend(cases.get_subcommands().map(|case| case.get_name().to_string()));
    names.sort();
    names.dedup();
    names
}

fn goals_table(reports: &BTreeMap<String, Report>, rows: &[Row]) -> String {
    let met = rows.iter().filter(|row| row.met).count();
    let mut text = format!("**{met} of {} goals are met.**\n\n", rows.len());
    text += "| what | goal | measured: median (least-most) | |\n|---|---|---|---|\n";
    for row in rows {
        let measured = row.measured.as_deref().unwrap_or("-");
        let _ = writeln!(text, "| {} | {} | {measured} | {} |", row.goal.what, row.goal.goal, goals::verdict(row));
    }
    text + &conditions(reports)
}

/// Where and when, below a table.
fn conditions(reports: &BTreeMap<String, Report>) -> String {
    let machine = page::machine_words(reports).map_or(String::new(), |words| format!(" {words}"));
    format!("\n{}\n", wrapped(&format!("Conditions: {}{machine}", page::times(reports))))
}

/// Text in lines of at most 120 characters, as pages have them.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= 120 => *line += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

/// Parts whose processor time is shown, in this order.
const CPU_PARTS: [&str; 8] =
    ["echo-128", "echo-many", "echo-depth", "echo-batch", "memcached", "redis", "connect", "http-close"];

/// Nanoseconds of each process for a request: medians over the repetitions.
fn cpu_table(reports: &BTreeMap<String, Report>) -> Option<String> {
    let mut text = String::from("| part | set-up | k/s | toed | server | clients |\n|---|---|---|---|---|---|\n");
    let mut any = false;
    for (name, report) in CPU_PARTS.iter().filter_map(|name| Some((name, reports.get(*name)?))) {
        let points = report.points();
        for point in &points {
            for (at, (_, setup)) in report.setups().iter().enumerate() {
                let Some(rate) = report.median_on(setup, point, Run::speed) else { continue };
                let of = |process: &str| {
                    let times = report.on(setup, point).map(|run| nanoseconds(run, process)).collect();
                    middle(times).map_or("-".into(), |value| format!("{value:.0}"))
                };
                let what = match (at, points.len() > 1) {
                    (0, true) => format!("{name}: {}", label(point)),
                    (0, false) => (*name).to_string(),
                    _ => String::new(),
                };
                let [toed, server, clients] = ["toed", "server", "clients"].map(of);
                let _ = writeln!(text, "| {what} | {setup} | {} | {toed} | {server} | {clients} |", three(rate / 1e3));
                any = true;
            }
        }
    }
    any.then_some(text)
}

/// Processor time of a process for a request; no number where it was not measured.
fn nanoseconds(run: &Run, process: &str) -> f64 {
    let requests = run.ops_per_s.unwrap_or(f64::NAN) * run.figure("seconds");
    run.cpu_s.get(process).map_or(f64::NAN, |seconds| seconds * 1e9 / requests)
}

/// A report's own table, as the terminal shows it.
fn report_table(name: &str, report: &Report) -> String {
    let conditions = conditions(&BTreeMap::from([(name.to_string(), report.clone())]));
    format!("```text\n{}\n```\n{conditions}", shown(report).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Stack;
    use serde_json::json;

    #[test]
    fn only_what_stands_between_the_comments_is_replaced() {
        let page = format!("before\n{BEGIN}a -->\nold\n{END}\nbetween\n{BEGIN}b -->\nkept\n{END}\nafter");
        let table = |name: &str| Ok((name == "a").then(|| "new\n".to_string()));
        let (text, written) = fill(&page, table).unwrap();
        assert_eq!(text, format!("before\n{BEGIN}a -->\n\nnew\n\n{END}\nbetween\n{BEGIN}b -->\nkept\n{END}\nafter"));
        assert_eq!(written, Written { count: 1, left: vec!["b".into()] });
        assert_eq!(fill(&text, table).unwrap().0, text, "a second time changes nothing");
    }

    #[test]
    fn a_table_without_an_end_or_a_meaning_is_an_error() {
        let error = fill(&format!("{BEGIN}goals -->\nrest of the page\n"), |_| Ok(None)).unwrap_err();
        assert!(error.contains("`goals` has no end"), "{error}");
        let error = table("gaols", &BTreeMap::new(), &[]).unwrap_err();
        assert!(error.contains("no table `gaols`") && error.contains("echo-128") && error.contains(" wan"), "{error}");
    }

    #[test]
    fn a_case_that_is_no_part_has_a_table() {
        assert_eq!(table("wan", &BTreeMap::new(), &[]), Ok(None), "not measured");
        let mut report = Report::new("wan", json!({}));
        let mut run = Run::new(Stack::Linux, 1, &json!({ "size": 0, "rtt_ms": 50, "mbit": 100, "loss": 0.01 }));
        run.gbit_per_s = Some(0.0425);
        report.runs.push(run);
        let text = table("wan", &BTreeMap::from([("wan".to_string(), report)]), &[]).unwrap().unwrap();
        assert!(text.contains("42.50 Mbit/s") && text.contains("Conditions: "), "{text}");
    }

    #[test]
    fn text_fits_a_page() {
        let text = wrapped(&"word ".repeat(100));
        assert!(text.lines().all(|line| line.len() <= 120) && text.lines().count() == 5, "{text}");
        assert_eq!(text.split_whitespace().count(), 100);
    }

    #[test]
    fn processor_time_is_that_of_a_request() {
        let mut report = Report::new("echo", json!({}));
        for (round, seconds) in [(1, 0.5), (2, 0.7), (3, 0.6)] {
            let mut run = Run::new(Stack::Opentoe, round, &json!({ "conns": 128 }));
            run.ops_per_s = Some(1e6);
            run.figures.insert("seconds".into(), json!(2.0));
            run.cpu_s.insert("toed".into(), seconds);
            report.runs.push(run);
        }
        let text = cpu_table(&BTreeMap::from([("echo-128".to_string(), report)])).unwrap();
        assert!(text.contains("| echo-128 | opentoe | 1000 | 300 | - | - |"), "{text}");
        assert_eq!(cpu_table(&BTreeMap::new()), None);
    }
}
