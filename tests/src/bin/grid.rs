//! The application grid: unmodified programs over every link, one line each, the count at the end.
use std::time::Duration;
use tests::cases::{ALL, Bench, Case, Files};
use tests::jobs::{self, Share};
use tests::lab::{FIRST_ENGINE, Lab, Link, SIMULATED};
use tests::leaks::Before;
use tests::process::Session;
use tests::report::{Outcome, Report};
use tests::{network, process};

const USAGE: &str =
    "usage: grid [--stack opentoe|linux] [--link NAME] [--engine NAME] [--family NAME] [--filter TEXT] [--jobs N] [--list]
Runs Debian's programs, server and client on two sides of a link, and checks what they print.
  --stack opentoe  on OpenTOE, over every link (default); linux: both sides on the kernel, to prove the cases
  --link NAME      only this link: tap-server, tap-client, fabric, loopback, afxdp-server, afxdp-client, linux
  --engine NAME,.. the engines of OpenTOE's hosts, one after the other: flextoe (default), laminar, zeronic,
                   zeronic-laminar, laminar-rtl (its program as simulated RTL, for a --filter of few cases); with
                   others than flextoe, RDMA programs only where --filter names them
  --family NAME    ipv4 (default); ipv6: only cases that run over either version of IP, over that one; turns: those
                   take turns, so that each runs over both, on different links
  --filter TEXT    only the cases whose name contains TEXT
  --jobs N         so many links or engines at the same time (default 1)
  --list           print the cases and run nothing";

/// Making or ending a laboratory takes at most this long.
const LAB_LIMIT: Duration = Duration::from_secs(40);
/// The same where a model of RTL may have to be built.
const MODEL_LIMIT: Duration = Duration::from_secs(600);

struct Choice {
    links: Vec<Link>,
    engines: Vec<String>,
    family: Family,
    filter: String,
    list: bool,
    jobs: usize,
    share: Share,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let choice = parse(words.iter().cloned()).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let alone = choice.list || choice.jobs == 1 || choice.share.is_one_of_many();
    match if alone { run(&choice) } else { jobs::run(choice.jobs, &words) } {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("grid: {error}");
            std::process::exit(1);
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Choice, String> {
    let (links, engines) = (Link::OPENTOE.to_vec(), vec![FIRST_ENGINE.into()]);
    let (family, filter, share) = (Family::Ipv4, String::new(), Share::All);
    let mut choice = Choice { links, engines, family, filter, list: false, jobs: 1, share };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value\n{USAGE}"));
        match word.as_str() {
            "--stack" => choice.links = stack(&value()?)?,
            "--link" => choice.links = vec![link(&value()?)?],
            "--engine" => choice.engines = value()?.split(',').map(String::from).collect(),
            "--family" => choice.family = Family::of(&value()?)?,
            "--filter" => choice.filter = value()?,
            "--jobs" => {
                let jobs = value()?.parse().ok().filter(|jobs| (1..=8).contains(jobs));
                choice.jobs = jobs.ok_or(format!("grid: --jobs needs a number from 1 to 8\n{USAGE}"))?;
            }
            jobs::OPTION => choice.share = Share::Of(value()?.into()),
            "--list" => choice.list = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                std::process::exit(0);
            }
            other => return Err(format!("grid: unknown option {other}\n{USAGE}")),
        }
    }
    Ok(choice)
}

/// Over which version of IP cases run that may run over either.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Ipv4,
    Ipv6,
    Turns,
}

impl Family {
    fn of(name: &str) -> Result<Family, String> {
        match name {
            "ipv4" => Ok(Family::Ipv4),
            "ipv6" => Ok(Family::Ipv6),
            "turns" => Ok(Family::Turns),
            other => Err(format!("grid: no family is called {other}\n{USAGE}")),
        }
    }

    /// The case of this number runs over IPv6 on a link.
    fn is_v6(self, number: usize, link: Link) -> bool {
        let link = Link::OPENTOE.iter().position(|known| *known == link).unwrap_or(0);
        let its_turn = self == Family::Ipv6 || self == Family::Turns && (number + link) % 2 == 1;
        its_turn && ALL[number].either
    }
}

fn stack(name: &str) -> Result<Vec<Link>, String> {
    match name {
        "opentoe" => Ok(Link::OPENTOE.to_vec()),
        "linux" => Ok(vec![Link::Linux]),
        other => Err(format!("grid: no stack is called {other}\n{USAGE}")),
    }
}

fn link(name: &str) -> Result<Link, String> {
    let all = [&[Link::Linux], Link::OPENTOE].concat();
    all.into_iter().find(|link| link.label() == name).ok_or(format!("grid: no link is called {name}\n{USAGE}"))
}

fn run(choice: &Choice) -> Result<bool, String> {
    if choice.list {
        ALL.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    network::sweep();
    process::sweep();
    let session = Session::new()?;
    let huge = ALL.iter().any(|case| case.name.contains(&choice.filter) && case.is_huge());
    let files = Files::new(&session, huge)?;
    let mut report = Report::beside_others(choice.share.is_one_of_many());
    for place in Place::all(choice).filter(|place| choice.share.claims(&place.name)) {
        group(&mut report, &session, &files, &place, choice);
    }
    choice.share.finish(report, &session)
}

/// Where cases run.
struct Place<'a> {
    link: Link,
    engine: &'a str,
    /// What it is called in the report: the link, with the engine where several are chosen.
    name: String,
}

impl<'a> Place<'a> {
    /// All that are chosen.
    fn all(choice: &'a Choice) -> impl Iterator<Item = Place<'a>> {
        let links = |engine| choice.links.iter().map(move |link| (engine, *link));
        let place =
            |(engine, link): (&'a String, Link)| Place { link, engine, name: link.label_with(engine, &choice.engines) };
        choice.engines.iter().flat_map(links).map(place)
    }
}

/// All chosen cases in one laboratory; then what the laboratory left behind.
fn group(report: &mut Report, session: &Session, files: &Files, place: &Place, choice: &Choice) {
    let (link, engine, place) = (place.link, place.engine, &place.name);
    let chosen = |case: &&Case| {
        let here = (case.short || !link.is_short()) && (link.has_tap() || !case.kernel);
        // Queue pairs are the same beside every engine of streams: once is enough, unless somebody asks.
        let wanted = engine == FIRST_ENGINE || !choice.filter.is_empty();
        let here = here && (link == Link::Fabric && wanted || !case.rdma);
        let of_family = case.either || choice.family != Family::Ipv6;
        case.name.contains(&choice.filter) && here && of_family
    };
    let cases: Vec<(usize, &Case)> = ALL.iter().enumerate().filter(|(_, case)| chosen(case)).collect();
    if cases.is_empty() || session.interrupted() {
        return;
    }
    let before = Before::snapshot();
    session.begin_case(if engine.ends_with(SIMULATED) { MODEL_LIMIT } else { LAB_LIMIT });
    match Lab::new(session, link, engine) {
        Ok(lab) => {
            for (number, case) in cases {
                let v6 = choice.family.is_v6(number, link);
                let name = format!("{place:<13} {}{}", case.name, if v6 { ", IPv6" } else { "" });
                let bench = Bench { v6, ..Bench::new(session, &lab, files) };
                report.case(session, &name, Duration::from_secs(case.limit), || (case.run)(&bench));
            }
            report.case(session, &format!("{place:<13} nothing left behind"), LAB_LIMIT, || end(session, lab, &before));
        }
        Err(error) => report.case(session, &format!("{place:<13} set-up"), LAB_LIMIT, || Err(error)),
    }
}

/// Ends a laboratory; an error if anything of it is still there.
fn end(session: &Session, mut lab: Lab, before: &Before) -> Outcome {
    let daemon = match lab.daemon.take() {
        Some(daemon) => daemon.finish(session),
        None => Ok(String::new()),
    };
    drop(lab);
    let machine = before.compare()?;
    Ok([daemon?, machine].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; "))
}
