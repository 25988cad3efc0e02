//! `opentoe-sim`: deterministic simulation of hosts, applications and network, from one seed.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

/// Deterministic simulation of hosts, applications and network, from one seed.
#[derive(Parser)]
#[command(
    name = "opentoe sim",
    after_help = "Examples:\n  opentoe sim --seeds 1000\n  opentoe sim --hours 8 --jobs 2\n  opentoe sim --seed 4711 --shrink\n  opentoe sim --plan crates/sim/plans/reset-in-time-wait.toml --trace"
)]
struct Command {
    #[command(flatten)]
    arguments: sim::command::Arguments,
}

fn main() -> ExitCode {
    let found = sim::command::run(&Command::parse().arguments);
    match console::finish() {
        Ok(()) => found,
        Err(sentence) => {
            eprintln!("opentoe-sim: {sentence}");
            ExitCode::FAILURE
        }
    }
}
