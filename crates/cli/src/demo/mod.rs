//! `opentoe demo`: Debian's own servers on OpenTOE and, in the same run, on the kernel's stack, with ordinary clients
//! on the kernel's TCP.
mod lab;
pub(crate) mod memload;
mod programs;
mod results;

use crate::arguments::DemoArguments;
use crate::{doctor, library};
use bench::process::Stop;
use lab::{Lab, Stack};
use programs::{Program, Sample};
use results::Results;
use std::time::Instant;

/// Measurements of each program on each stack; the median counts.
const ROUNDS: u32 = 3;

/// Runs the demonstration and prints its table.
pub(crate) fn demo(arguments: &DemoArguments) -> Result<(), String> {
    let programs = chosen(&arguments.only)?;
    programs.iter().flat_map(|program| program.needs()).try_for_each(|name| present(name))?;
    let library = library::find(arguments.lib.as_deref())?;
    let stop = Stop::on_signals()?;
    let begin = Instant::now();
    say(&format!("{} programs, {ROUNDS} rounds of {} s on each stack", programs.len(), arguments.seconds));
    let lab = Lab::new(&library, &stop)?;
    let mut results = Results::new(arguments.seconds);
    for program in programs {
        compare(&lab, program, arguments.seconds, &mut results)?;
    }
    drop(lab);
    results.print();
    say(&format!("took {} s; namespaces, devices and processes are gone again", begin.elapsed().as_secs()));
    if let Some(file) = &arguments.json {
        std::fs::write(file, results.json()).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    results.verdict()
}

/// One program on both stacks, round by round in turn, so that what else happens on the machine meets both.
fn compare(lab: &Lab<'_>, program: Program, seconds: u32, results: &mut Results) -> Result<(), String> {
    let failed = |stack: Stack, error: String| format!("{} on {}: {error}", program.name(), stack.name());
    let mut servers = Vec::new();
    for stack in [Stack::OpenToe, Stack::Linux] {
        say(&format!("{}: starting it on {}", program.name(), stack.name()));
        servers.push(program.serve(lab, stack).map_err(|error| failed(stack, error))?);
    }
    for round in 1..=ROUNDS {
        for stack in [Stack::OpenToe, Stack::Linux] {
            let sample: Sample = program.load(lab, stack, seconds).map_err(|error| failed(stack, error))?;
            say(&format!("{}: round {round} of {ROUNDS} on {}: {sample}", program.name(), stack.name()));
            results.add(program, stack, round, sample);
        }
    }
    Ok(())
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
fn say(line: &str) {
    eprintln!("demo: {line}");
}
