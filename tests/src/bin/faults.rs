//! Bad input, killed processes, wrong configurations: what must be refused is refused with a sentence, what must
//! survive survives, and nothing is left behind.
use std::time::Duration;
use tests::cases::{Bench, Files};
use tests::faults::{ALL, Fault};
use tests::lab::{Lab, Link};
use tests::leaks::Before;
use tests::process::Session;
use tests::report::{Outcome, Report};
use tests::{experiments, network, process, refusals};

const USAGE: &str = "usage: faults [--link NAME] [--engine NAME] [--filter TEXT]
  --link NAME    only this link: tap-server, tap-client, fabric, lossy, lossy-threads, or linux (to prove the cases)
  --engine NAME  the engine of OpenTOE's hosts: flextoe (default), laminar (only the faults that meet its data-path)
  --filter TEXT  only the cases whose name contains TEXT";

const LIMIT: Duration = Duration::from_secs(45);
/// Experiments take what they are told to, several times.
const EXPERIMENT_LIMIT: Duration = Duration::from_secs(150);

fn main() {
    let (mut link, mut filter, mut engine) = (None, String::new(), "flextoe".to_string());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--link", Some(name)) => link = Some(name),
            ("--filter", Some(text)) => filter = text,
            ("--engine", Some(name)) => engine = name,
            _ => {
                eprintln!("{USAGE}");
                std::process::exit(if word == "--help" { 0 } else { 2 });
            }
        }
    }
    match run(link.as_deref(), &engine, &filter) {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("faults: {error}");
            std::process::exit(1);
        }
    }
}

fn run(only: Option<&str>, engine: &str, filter: &str) -> Result<bool, String> {
    network::sweep();
    process::sweep();
    let session = Session::new()?;
    let files = Files::new(&session, false)?;
    let mut report = Report::default();
    let flextoe = engine == "flextoe";
    for fault in ALL.iter().filter(|fault| fault.name.contains(filter) && (flextoe || fault.meets_every_engine())) {
        let wanted = |link: &&Link| only.map_or(**link != Link::Linux, |name| name == link.label());
        for link in fault.links.iter().filter(wanted) {
            let name = format!("{:<13} {}", link.label(), fault.name);
            report.case(&session, &name, LIMIT, || in_laboratory((&session, &files), *link, engine, fault));
        }
    }
    if only.is_none() && flextoe {
        for refusal in refusals::ALL.iter().filter(|refusal| refusal.name.contains(filter)) {
            report.case(&session, refusal.name, LIMIT, || (refusal.run)(&session));
        }
        for experiment in experiments::ALL.iter().filter(|experiment| experiment.name.contains(filter)) {
            report.case(&session, experiment.name, EXPERIMENT_LIMIT, || experiment.run(&session));
        }
    }
    Ok(report.finish(&session))
}

/// Runs a fault in a laboratory of its own and ends with the search for leaks.
fn in_laboratory((session, files): (&Session, &Files), link: Link, engine: &str, fault: &Fault) -> Outcome {
    let before = Before::look();
    let mut lab = if fault.logs { Lab::with_logs(session, link)? } else { Lab::new(session, link, engine)? };
    let outcome = (fault.run)(&Bench { session, lab: &lab, files, port: files.fresh_port() });
    let daemon = lab.daemon.take();
    let clean = match (&outcome, daemon) {
        (Ok(_), Some(daemon)) if fault.daemon_survives => daemon.finish(session),
        _ => Ok(String::new()),
    };
    drop(lab);
    let words = outcome?;
    clean?;
    before.compare()?;
    Ok(words)
}
