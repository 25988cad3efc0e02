//! `opentoe demo`: Debian's own servers on OpenTOE and, in the same run, on the kernel's stack. Clients are beside them
//! on the same stack at first, then on the kernel's TCP.
mod lab;
pub(crate) mod memload;
mod programs;
mod results;

use crate::arguments::DemoArguments;
use crate::{doctor, library, table, units};
use bench::process::{Process, Stop};
use bench::session;
use lab::{ClientLocation, Lab, Stack};
use programs::{Program, Sample};
use results::{Results, Run};
use std::path::PathBuf;
use std::time::Instant;

/// Measurements of each program on each stack; the median counts.
const ROUNDS: u32 = 3;

/// Runs the demonstration and prints its table.
pub(crate) fn demo(arguments: &DemoArguments) -> Result<(), String> {
    let programs = chosen(&arguments.only)?;
    programs.iter().flat_map(|program| program.needs()).try_for_each(|name| present(name))?;
    let library = library::find(arguments.lib.as_deref())?;
    if let Some(done) = session::enter() {
        return done;
    }
    let stop = Stop::on_signals()?;
    let begin = Instant::now();
    let servers = units::several(programs.len(), "server");
    print_line(&format!("{servers} on each stack, {ROUNDS} rounds of {} s", arguments.seconds));
    let lab = Lab::new(&library, &stop)?;
    let _servers = serve(&lab, &programs)?;
    let mut results = Results::new(arguments.seconds);
    for place in ClientLocation::ALL {
        programs.iter().try_for_each(|program| compare(&lab, *program, place, &mut results))?;
        results.print(place);
    }
    results.print_loads();
    print_line(&format!("took {} s; namespaces, devices and processes go now", begin.elapsed().as_secs()));
    if let Some(file) = &arguments.json {
        std::fs::write(file, results.json()).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    results.verdict()?;
    let own = from_here(std::env::current_exe().unwrap_or_else(|_| "opentoe".into()));
    table::print_line(&format!("Try your own: `{} run PROGRAM`, and what connects to it the same way.", own.display()));
    Ok(())
}

/// A path as one types it in the current directory.
fn from_here(path: PathBuf) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).map_or(path.clone(), PathBuf::from)
}

/// Starts all servers. Those that are not loaded sleep.
fn serve(lab: &Lab<'_>, programs: &[Program]) -> Result<Vec<Process>, String> {
    let all = programs.iter().flat_map(|program| Stack::ALL.map(|stack| (*program, stack)));
    all.map(|(program, stack)| program.serve(lab, stack).map_err(|error| failed(program, stack, error))).collect()
}

/// One program on both stacks, round by round in turn, so that what else happens on the machine meets both.
fn compare(lab: &Lab<'_>, program: Program, place: ClientLocation, results: &mut Results) -> Result<(), String> {
    for round in 1..=ROUNDS {
        for stack in Stack::ALL {
            let sample = program.load(lab, place, stack, results.seconds);
            let sample: Sample = sample.map_err(|error| failed(program, stack, error))?;
            let measured = format!("{} over {}, {}", program.name(), place.name(), stack.name());
            print_line(&format!("{measured}, round {round} of {ROUNDS}: {sample}"));
            results.add(Run { program, place, stack, round, sample });
        }
    }
    Ok(())
}

fn failed(program: Program, stack: Stack, error: String) -> String {
    format!("{} on {}: {error}", program.name(), stack.name())
}

fn chosen(only: &[String]) -> Result<Vec<Program>, String> {
    let by_name = |name: &String| {
        let found = Program::ALL.iter().find(|program| program.name() == name);
        found.copied().ok_or_else(|| format!("the demo has no program `{name}`; it has memcached, redis and nginx"))
    };
    if only.is_empty() { Ok(Program::ALL.to_vec()) } else { only.iter().map(by_name).collect() }
}

fn present(name: &str) -> Result<(), String> {
    if crate::program::program_path(name).is_some() {
        return Ok(());
    }
    let package =
        doctor::PROGRAMS.iter().find(|(program, ..)| *program == name).map_or(name, |(_, package, _)| package);
    Err(format!("the demo needs {name}: apt-get install {package}"))
}

/// A line of progress.
fn print_line(line: &str) {
    eprintln!("demo: {line}");
}
