//! `opentoe bench all`: every part, one after the other, into a directory; then the goals and the page.
use crate::arguments::Common;
use crate::goals::{self, PARTS, Part, Row};
use crate::measurement::{Case, measure, plots};
use crate::page;
use crate::report::{Report, table};
use crate::tables;
use crate::tools::Tools;
use clap::{Args, Parser};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Arguments of the case.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    pub common: Common,
    /// Where reports go
    #[arg(long, value_name = "DIR", default_value = "opentoe-bench")]
    pub directory: PathBuf,
    /// Only these parts
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    pub only: Vec<String>,
}

/// Which reports to show.
#[derive(Args, Debug)]
pub struct ReportArguments {
    /// Where reports of `opentoe bench` are, as NAME.json; the page is written there as report.html
    pub directory: PathBuf,
    /// Also draw their plots into this directory, as SVG and PNG
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Also write the result tables of this Markdown page anew; it marks them with comments (docs/BENCH.md)
    #[arg(long, value_name = "PAGE")]
    pub tables: Vec<PathBuf>,
}

/// Repetitions and seconds of a measurement by default.
const PAIRS: u32 = 3;
const SECONDS: f64 = 2.0;

/// A line of words as the command line reads it.
#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    case: Case,
}

/// Measures all parts, writing each as soon as it is there; what fails is reported and does not end the others.
pub(crate) fn run(tools: &Tools, arguments: &Arguments) -> Result<(), String> {
    measure_parts(tools, &chosen(&arguments.only)?, &arguments.common, &arguments.directory)
}

/// Measures these parts into a directory, and shows what is there.
pub(crate) fn measure_parts(tools: &Tools, parts: &[&Part], common: &Common, directory: &Path) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
    let cases = parts.iter().map(|part| Ok((*part, case(part, common)?)));
    let cases = cases.collect::<Result<Vec<(&Part, Case)>, String>>()?;
    let seconds: f64 = cases.iter().map(|(_, case)| case.estimate()).sum();
    tools.print_line(&format!(
        "{} parts, about {:.0} minutes, into {}",
        cases.len(),
        seconds / 60.0,
        directory.display()
    ));
    let mut failed = Vec::new();
    for (part, case) in cases {
        if let Some(sentence) = case.lacks(tools) {
            tools.print_line(&format!("{} is left out: {sentence}", part.name));
            continue;
        }
        let done = measure(&case, tools).and_then(|(report, _)| {
            report.write(&directory.join(format!("{}.json", part.name)))?;
            report.verdict()
        });
        tools.stop.check()?;
        if let Err(sentence) = done {
            tools.print_line(&format!("{} failed: {sentence}", part.name));
            failed.push(format!("{}: {sentence}", part.name));
        }
    }
    show(directory)?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Shows the reports of a directory in all forms that were asked for.
pub(crate) fn report(arguments: &ReportArguments) -> Result<(), String> {
    let (reports, rows) = show(&arguments.directory)?;
    arguments.plots.as_deref().map_or(Ok(()), |folder| draw(&reports, folder))?;
    for page in &arguments.tables {
        let tables::Written { count, left } = tables::write(page, &reports, &rows)?;
        console::print(&format!("{}: {count} tables written\n", page.display()));
        if !left.is_empty() {
            console::print(&format!("  not measured, and left as they were: {}\n", left.join(", ")));
        }
    }
    Ok(())
}

/// Shows the goals and writes the page of what is in a directory.
fn show(directory: &Path) -> Result<(BTreeMap<String, Report>, Vec<Row>), String> {
    let reports = read(directory)?;
    if reports.is_empty() {
        return Err(format!("there is no report of opentoe bench in {}: write some with --json", directory.display()));
    }
    let rows = goals::rows(&reports);
    console::print(&text(&rows));
    let file = directory.join("report.html");
    let page = page::page(&reports, &rows)?;
    std::fs::write(&file, page).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    console::print(&format!("the page: {}\n", file.display()));
    Ok((reports, rows))
}

/// Draws what can be drawn; two pictures of one name have that of their report before it.
fn draw(reports: &BTreeMap<String, Report>, folder: &Path) -> Result<(), String> {
    let mut taken = HashSet::new();
    for (report, (chart, drawn)) in
        reports.iter().flat_map(|(name, report)| plots(report).into_iter().map(move |p| (name, p)))
    {
        let name = if taken.insert(chart) { chart.to_string() } else { format!("{report}-{chart}") };
        drawn.write(folder, &name)?;
    }
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Part>, String> {
    let named = |name: &String| {
        let names = || PARTS.iter().map(|part| part.name).collect::<Vec<_>>().join(", ");
        PARTS
            .iter()
            .find(|part| part.name == name)
            .ok_or_else(|| format!("there is no part `{name}`; there are {}", names()))
    };
    if only.is_empty() { Ok(PARTS.iter().collect()) } else { only.iter().map(named).collect() }
}

/// A part as the command line would have it.
pub(crate) fn case(part: &Part, common: &Common) -> Result<Case, String> {
    let pairs = if !part.repeated || common.quick { 1 } else { common.pairs.max(1) };
    let pairs = if part.repeated && common.pairs == 1 && !common.quick { PAIRS } else { pairs };
    let seconds = common.seconds(SECONDS);
    let line = format!("opentoe-bench {} --pairs {pairs} --duration {seconds}", part.words);
    let quick = common.quick.then_some("--quick");
    let words = line.split_whitespace().chain(quick);
    Line::try_parse_from(words).map(|line| line.case).map_err(|e| format!("{}: {e}", part.name))
}

fn read(directory: &Path) -> Result<BTreeMap<String, Report>, String> {
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", directory.display());
    let mut reports = BTreeMap::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            reports.insert(name, Report::read(&path)?);
        }
    }
    Ok(reports)
}

/// The goals for a terminal: two lines each, so that 80 columns are enough.
fn text(rows: &[Row]) -> String {
    let mut lines = vec![["what", "goal", ""].map(String::from).to_vec()];
    let mut measured = Vec::new();
    for row in rows {
        lines.push([row.goal.what, row.goal.goal, goals::verdict(row)].map(String::from).to_vec());
        measured.push(row.measured.clone().unwrap_or_default());
    }
    let aligned = table(&lines);
    let mut text = String::new();
    for (at, line) in aligned.lines().enumerate() {
        text += &format!("{line}\n");
        if let Some(measured) =
            at.checked_sub(1).and_then(|at| measured.get(at)).filter(|measured| !measured.is_empty())
        {
            text += &format!("    {measured}\n");
        }
    }
    let (met, measured) = (rows.iter().filter(|row| row.met).count(), rows.iter().filter(|row| row.measured.is_some()));
    text + &format!("{met} of {} goals met, {} measured\n", rows.len(), measured.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(quick: bool) -> Common {
        Common { duration: None, pairs: 1, quick, json: None, csv: None, plots: None, lib: None }
    }

    #[test]
    fn every_part_is_a_command_line() {
        for part in PARTS {
            let case = case(part, &common(false)).unwrap();
            assert!(case.estimate() > 0.0);
            let pairs = if part.repeated { PAIRS } else { 1 };
            assert_eq!(case.common().pairs, pairs, "{}", part.name);
        }
        assert!(chosen(&["nothing".into()]).is_err_and(|sentence| sentence.contains("echo-128")));
    }

    #[test]
    fn the_goals_fit_a_terminal() {
        let rows = goals::rows(&BTreeMap::new());
        let text = text(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("0 of 35 goals met"), "{text}");
    }

    /// The published tables are those of the published reports: nobody types a figure into them.
    #[test]
    fn tables_of_pages_are_those_of_the_reports() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let reports = read(&root.join("bench/results")).unwrap();
        let rows = goals::rows(&reports);
        for (page, least) in [("docs/PERFORMANCE.md", 8), ("docs/EXPERIMENTS.md", 2)] {
            let (count, other) = tables::differences(&root.join(page), &reports, &rows).unwrap();
            let command = format!("opentoe bench report bench/results --tables {page}");
            assert_eq!(other, [""; 0], "tables of {page} that `{command}` writes otherwise");
            assert!(count >= least, "{page} has only {count} tables of reports");
        }
    }
}
