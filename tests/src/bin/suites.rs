//! Test suites of others, on the kernel and on OpenTOE.
use std::time::Duration;
use tests::lab::{Lab, Link};
use tests::leaks::Before;
use tests::process::{self, Session};
use tests::report::{Outcome, Report};
use tests::{network, suites};

const USAGE: &str = "usage: suites [--engine NAME] [--filter TEXT] [--list]
Runs the tests of Go's and Python's libraries on the kernel's loopback and on OpenTOE's, and compares what came of each.
  --engine NAME    the engine of OpenTOE's host: flextoe (default), laminar
  --filter TEXT    only the suites whose name contains TEXT
  --list           print the suites and run nothing";

/// Making or ending a laboratory takes at most this long.
const LAB_LIMIT: Duration = Duration::from_secs(60);

fn main() {
    let (mut engine, mut filter, mut list) = ("flextoe".to_string(), String::new(), false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--list", None) => list = true,
            ("--engine", Some(value)) => engine = value,
            ("--filter", Some(value)) => filter = value,
            _ => {
                eprintln!("{USAGE}");
                std::process::exit(if word == "--help" { 0 } else { 2 });
            }
        }
    }
    let chosen: Vec<suites::Suite> = suites::all().into_iter().filter(|suite| suite.name.contains(&filter)).collect();
    if list {
        return chosen.iter().for_each(|suite| println!("{}", suite.name));
    }
    match run(&chosen, &engine) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("suites: {error}");
            std::process::exit(1);
        }
    }
}

fn run(chosen: &[suites::Suite], engine: &str) -> Result<bool, String> {
    network::sweep();
    process::sweep();
    let session = Session::new()?;
    let mut report = Report::default();
    let before = Before::snapshot();
    session.begin_case(LAB_LIMIT);
    let lab = Lab::new(&session, Link::Loopback, engine)?;
    // What is not TCP over IPv4 is the kernel's.
    lab.far.ip(&["link", "set", "lo", "up"])?;
    for suite in chosen {
        report.case(&session, &suite.name, suites::LIMIT, || suite.run(&session, &lab));
    }
    report.case(&session, "nothing left behind", LAB_LIMIT, || end(&session, lab, &before));
    Ok(report.finish(&session))
}

/// Ends the laboratory; an error if anything of it is still there.
fn end(session: &Session, mut lab: Lab, before: &Before) -> Outcome {
    let daemon = lab.daemon.take().map_or(Ok(String::new()), |daemon| daemon.finish(session))?;
    drop(lab);
    Ok(format!("{daemon}; {}", before.compare()?))
}
