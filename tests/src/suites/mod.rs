//! Test suites of others, on the kernel and on OpenTOE: those of Go's standard library and of Python. Each test comes
//! to the same on both, or `tests/suites.txt` has the reason why not.
mod go;
mod python;

pub(crate) use go::compiler;

use crate::lab::Lab;
use crate::process::{Process, Session, describe};
use crate::report::Outcome;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

/// How long a suite may take in all.
pub const LIMIT: Duration = Duration::from_secs(5400);
/// Tests that differ are run again so often, without the others.
const AGAIN: usize = 3;
/// Differences that are shown.
const SHOWN: usize = 40;
/// What is known to differ, and why: a line each with suite, test and reason.
const EXPLAINED: &str = include_str!("../../suites.txt");

/// A program of tests.
pub struct Suite {
    /// Its name: "go net, static".
    pub name: String,
    kind: Kind,
}

enum Kind {
    Go { package: &'static str, cgo: bool },
    Python { module: &'static str },
}

/// All of them.
pub fn all() -> Vec<Suite> {
    let mut all = go::suites();
    all.extend(python::suites());
    all
}

/// What came of each test.
type Outcomes = BTreeMap<String, String>;

/// A program that runs tests, and how its output is read.
trait Runner {
    /// Runs these tests, all where there are none.
    fn command(&self, command: Command, tests: &BTreeSet<String>) -> Command;
    /// The program.
    fn program(&self) -> &str;
    /// What the output has.
    fn outcomes(&self, output: &str) -> Outcomes;
}

impl Suite {
    /// Runs it on both stacks. `None` where this machine lacks what it needs.
    pub fn run(&self, session: &Session, lab: &Lab) -> Outcome {
        let runner: Box<dyn Runner> = match &self.kind {
            Kind::Go { package, cgo } => match go::build(session, package, *cgo)? {
                Some(runner) => Box::new(runner),
                None => return Ok("left out: this machine has no Go compiler".into()),
            },
            Kind::Python { module } => match python::find(module) {
                Some(runner) => Box::new(runner),
                None => return Ok("left out: libpython3.11-testsuite is not installed".into()),
            },
        };
        let before = connections(lab)?;
        let everything = BTreeSet::new();
        let pair = both(session, lab, runner.as_ref(), &everything)?;
        let mut open = differences(&pair);
        let first: Vec<String> = open.keys().cloned().collect();
        for _ in 0..AGAIN {
            if open.is_empty() {
                break;
            }
            let tests = open.keys().cloned().collect();
            let again = differences(&both(session, lab, runner.as_ref(), &tests)?);
            open.retain(|test, _| again.contains_key(test));
        }
        let carried = connections(lab)? - before;
        self.judge(&pair, &open, &first, carried)
    }

    /// `first`: what differed when all ran. `open`: what of it differed each time again.
    fn judge(&self, pair: &[Outcomes; 2], open: &BTreeMap<String, String>, first: &[String], carried: u64) -> Outcome {
        let [kernel, opentoe] = pair;
        let explained = |test: &str| reasons(&self.name).any(|(name, _)| matches(name, test));
        let (known, new): (Vec<_>, Vec<_>) = open.iter().partition(|(test, _)| explained(test));
        let seldom: Vec<&str> = first.iter().map(String::as_str).filter(|test| !open.contains_key(*test)).collect();
        let names = if seldom.is_empty() { String::new() } else { format!(" ({})", seldom.join(", ")) };
        // Those that were skipped or failed on both prove nothing about OpenTOE.
        let both = |how: [&str; 2]| {
            kernel.iter().filter(|(test, of)| how.contains(&of.as_str()) && opentoe.get(*test) == Some(of)).count()
        };
        let words = format!(
            "{} tests, {} skipped and {} failing on both, {} differ and are explained, {} only sometimes{names}; \
             {carried} connections on OpenTOE",
            kernel.len(),
            both(["skipped", "SKIP"]),
            both(["fails", "FAIL"]),
            known.len(),
            seldom.len()
        );
        if kernel.is_empty() {
            return Err("no test was run".into());
        }
        match new.is_empty() {
            true => Ok(words),
            false => {
                let shown = new.iter().take(SHOWN).map(|(test, how)| format!("\n      {test}: {how}"));
                Err(format!("{} differ without a reason; {words}{}", new.len(), shown.collect::<String>()))
            }
        }
    }
}

/// The lines about a suite: test and reason.
fn reasons(suite: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = EXPLAINED.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(move |line| {
        let mut words = line.splitn(3, " | ");
        let (prefix, test, reason) = (words.next()?, words.next()?, words.next()?);
        suite.starts_with(prefix).then_some((test, reason))
    })
}

/// A test, or all whose names begin so where the name ends with a star.
fn matches(name: &str, test: &str) -> bool {
    name.strip_suffix('*').map_or(name == test, |begin| test.starts_with(begin))
}

/// On the kernel and on OpenTOE.
fn both(session: &Session, lab: &Lab, runner: &dyn Runner, tests: &BTreeSet<String>) -> Result<[Outcomes; 2], String> {
    let kernel = session.spawn(runner.command(lab.near.command(runner.program()), tests))?;
    let kernel = outcomes(kernel, runner)?;
    let opentoe = session.spawn(runner.command(lab.on_client(runner.program()), tests))?;
    Ok([kernel, outcomes(opentoe, runner)?])
}

fn outcomes(mut process: Process<'_>, runner: &dyn Runner) -> Result<Outcomes, String> {
    let status = process.wait()?;
    let mut outcomes = runner.outcomes(&process.stdout());
    // One that began and did not end ended the program.
    for outcome in outcomes.values_mut().filter(|outcome| *outcome == "begins") {
        *outcome = format!("ended the program with {}", describe(status));
    }
    Ok(outcomes)
}

fn differences([kernel, opentoe]: &[Outcomes; 2]) -> BTreeMap<String, String> {
    let names: BTreeSet<&String> = kernel.keys().chain(opentoe.keys()).collect();
    let outcome = |all: &Outcomes, test: &String| all.get(test).map_or("not run", String::as_str).to_string();
    let pairs = names.into_iter().map(|test| (test, outcome(kernel, test), outcome(opentoe, test)));
    pairs
        .filter(|(_, kernel, opentoe)| kernel != opentoe)
        .map(|(test, kernel, opentoe)| (test.clone(), format!("kernel {kernel}, OpenTOE {opentoe}")))
        .collect()
}

/// Connections that programs of the hosts had so far.
fn connections(lab: &Lab) -> Result<u64, String> {
    let daemon = lab.daemon.as_ref().ok_or("there is no daemon")?;
    let answer = daemon.ask_with(&json!({ "ask": "stats", "host": null, "flow": null }), &[])?;
    let hosts = answer["hosts"].as_array().ok_or("the daemon names no hosts")?;
    Ok(hosts.iter().filter_map(|host| host["connections"]["opened"].as_u64()).sum())
}
