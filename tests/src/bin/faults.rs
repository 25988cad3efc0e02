//! Bad input, killed processes, wrong configurations: what must be refused is refused with a sentence, what must
//! survive survives, and nothing is left behind.
use std::time::Duration;
use tests::cases::{Bench, Files};
use tests::faults::{ALL, Fault, Hosts};
use tests::jobs::Share;
use tests::lab::{FIRST_ENGINE, Lab, Link};
use tests::leaks::Before;
use tests::process::Session;
use tests::report::{Outcome, Report};
use tests::{experiments, jobs, network, process, refusals};

const USAGE: &str = "usage: faults [--link NAME] [--engine NAME] [--filter TEXT] [--jobs N]
  --link NAME    only this link: tap-server, tap-client, fabric, lossy, lossy-threads, far, two-ports, uplink,
                 or linux (to prove the cases)
  --engine NAME,..  the engines of OpenTOE's hosts, one after the other: flextoe (default), laminar, zeronic,
                 zeronic-laminar (others than the default: only the faults that meet its data-path)
  --filter TEXT  only the cases whose name contains TEXT
  --jobs N       so many cases at the same time (default 1)";

/// Twice what the slowest has taken beside two other drivers.
const LIMIT: Duration = Duration::from_secs(90);
/// Experiments run what their options name, several times.
const EXPERIMENT_LIMIT: Duration = Duration::from_secs(150);

struct Choice {
    link: Option<String>,
    engines: Vec<String>,
    filter: String,
    jobs: usize,
    share: Share,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(choice) = parse(&words) else {
        eprintln!("{USAGE}");
        std::process::exit(if words == ["--help"] { 0 } else { 2 });
    };
    network::sweep();
    process::sweep();
    let alone = choice.jobs == 1 || choice.share.is_one_of_many();
    match if alone { run(&choice) } else { jobs::run(choice.jobs, &words) } {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("faults: {error}");
            std::process::exit(1);
        }
    }
}

fn parse(words: &[String]) -> Option<Choice> {
    let engines = vec![FIRST_ENGINE.into()];
    let mut choice = Choice { link: None, engines, filter: String::new(), jobs: 1, share: Share::All };
    for pair in words.chunks(2) {
        let [option, value] = pair else { return None };
        match option.as_str() {
            "--link" => choice.link = Some(value.clone()),
            "--filter" => choice.filter = value.clone(),
            "--engine" => choice.engines = value.split(',').map(String::from).collect(),
            "--jobs" => choice.jobs = value.parse().ok().filter(|jobs| (1..=64).contains(jobs))?,
            jobs::OPTION => choice.share = Share::Of(value.into()),
            _ => return None,
        }
    }
    Some(choice)
}

fn run(choice: &Choice) -> Result<bool, String> {
    let session = Session::new()?;
    let files = Files::new(&session, false)?;
    let mut report = Report::beside_others(choice.share.is_one_of_many());
    let mut case = |name: &str, limit, run: &dyn Fn() -> Outcome| {
        if choice.share.claims(name) {
            report.case(&session, name, limit, run);
        }
    };
    let everything = choice.link.is_none() && choice.engines.iter().any(|engine| engine == FIRST_ENGINE);
    let chosen = |name: &str| name.contains(&choice.filter);
    // One driver runs all experiments: they favour their own programs, and two at the same time would starve each
    // other.
    if everything && choice.share.claims("experiments") {
        for experiment in experiments::ALL.iter().filter(|experiment| chosen(experiment.name)) {
            case(experiment.name, EXPERIMENT_LIMIT, &|| experiment.run(&session));
        }
    }
    let all = choice.engines.iter().flat_map(|engine| ALL.iter().map(move |fault| (engine.as_str(), fault)));
    let meets = |engine: &str, fault: &Fault| engine == FIRST_ENGINE || fault.meets_every_engine();
    for (engine, fault) in all.filter(|(engine, fault)| chosen(fault.name) && meets(engine, fault)) {
        let wanted = |link: &&Link| choice.link.as_deref().map_or(**link != Link::Linux, |name| name == link.label());
        for link in fault.links.iter().filter(wanted) {
            let name = format!("{:<13} {}", link.label_with(engine, &choice.engines), fault.name);
            case(&name, LIMIT, &|| in_laboratory((&session, &files), *link, engine, fault));
        }
    }
    if everything {
        for refusal in refusals::ALL.iter().filter(|refusal| chosen(refusal.name)) {
            case(refusal.name, LIMIT, &|| (refusal.run)(&session));
        }
    }
    choice.share.finish(report, &session)
}

/// Runs a fault in a laboratory of its own and ends with the search for leaks.
fn in_laboratory((session, files): (&Session, &Files), link: Link, engine: &str, fault: &Fault) -> Outcome {
    let before = Before::snapshot();
    let mut lab = match fault.hosts {
        Hosts::Usual => Lab::new(session, link, engine)?,
        Hosts::Logs => Lab::with_logs(session, link)?,
        Hosts::Lines => Lab::with_lines(session, link, engine)?,
        Hosts::LinesAndHeaps => Lab::with_lines_and_heaps(session, link, engine)?,
        Hosts::Heaps => Lab::with_heaps(session, link, engine)?,
    };
    let outcome = (fault.run)(&Bench::new(session, &lab, files));
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
