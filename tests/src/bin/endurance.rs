//! The long forms of the fault tests, each a command of its own.
use std::time::Duration;
use tests::cases::Files;
use tests::endurance::{Victim, churn, connections, kills, modules, restarts};
use tests::lab::Link;
use tests::leaks::Before;
use tests::process::Session;
use tests::report::{Outcome, Report};
use tests::{network, process};

const USAGE: &str = "usage: endurance kills client|server|daemon LINK COUNT   kill -9 at random moments under load
       endurance restarts LINK COUNT                   the daemon killed, and services come back
       endurance modules many|vlan|splice LINK COUNT   loaded and unloaded while transfers run
       endurance connections COUNT                     so many open at once on one host
       endurance churn LINK COUNT                      opened and closed one after the other
LINK is tap-server, tap-client, fabric, lossy or lossy-threads.";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(Some(true)) => {}
        Ok(Some(false)) => std::process::exit(1),
        Ok(None) => {
            eprintln!("{USAGE}");
            std::process::exit(2);
        }
        Err(error) => {
            eprintln!("endurance: {error}");
            std::process::exit(1);
        }
    }
}

fn link(name: &str) -> Option<Link> {
    let lossy = [Link::Lossy, Link::LossyThreads];
    Link::OPENTOE.iter().copied().chain(lossy).find(|link| link.label() == name)
}

fn run(words: &[&str]) -> Result<Option<bool>, String> {
    network::sweep();
    process::sweep();
    let session = Session::new()?;
    let files = Files::new(&session, false)?;
    let (session, files) = (&session, &files);
    let task: Option<Box<dyn FnOnce() -> Outcome + '_>> = match words {
        ["kills", victim, on, count] => match (Victim::named(victim), link(on), count.parse()) {
            (Some(victim), Some(on), Ok(count)) => Some(Box::new(move || kills(session, files, on, victim, count))),
            _ => None,
        },
        ["modules", kind @ ("many" | "vlan" | "splice"), on, count] => match (link(on), count.parse()) {
            (Some(on), Ok(count)) => Some(Box::new(move || modules(session, files, on, kind, count))),
            _ => None,
        },
        ["restarts", on, count] => match (link(on), count.parse()) {
            (Some(on), Ok(count)) => Some(Box::new(move || restarts(session, files, on, count))),
            _ => None,
        },
        ["connections", count] => match count.parse() {
            Ok(count) => Some(Box::new(move || connections(session, files, count))),
            Err(_) => None,
        },
        ["churn", on, count] => match (link(on), count.parse()) {
            (Some(on), Ok(count)) => Some(Box::new(move || churn(session, files, on, count))),
            _ => None,
        },
        _ => None,
    };
    let Some(task) = task else { return Ok(None) };
    let mut report = Report::default();
    let before = Before::snapshot();
    report.case(session, &words.join(" "), Duration::from_secs(300), || {
        let seen = task()?;
        before.compare()?;
        Ok(seen)
    });
    Ok(Some(report.finish(session)))
}
