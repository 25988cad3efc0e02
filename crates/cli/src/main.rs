//! `opentoe`: runs unmodified programs on OpenTOE, and shows the state of a running daemon.
#![forbid(unsafe_code)]

mod arguments;
mod demo;
mod doctor;
mod flow;
mod functions;
mod kernel_sockets;
mod library;
mod locate;
mod ls;
mod manual;
mod offload;
mod p4;
mod pcap;
mod private;
mod private_daemon;
mod process;
mod program;
mod run;
mod shared;
mod shell;
mod sim;
mod start_lock;
mod stats;
mod sysfs;
mod table;
mod top;
mod trace;
mod units;
mod volumes;
mod wait_for;
mod why;
mod xdp;
mod zeronic;

use arguments::{Arguments, Verb};
use clap::Parser;
use std::process::ExitCode;

/// As in `toed`, for the private daemon of `opentoe run`: an allocation that fails would end its program's connections.
/// The other commands keep no reserve, and then it is the system's allocator.
#[global_allocator]
static ALLOCATOR: shm::reserve::Allocator = shm::reserve::Allocator;

fn main() -> ExitCode {
    // A private daemon is this program, too.
    if daemon::linux_helper() {
        return ExitCode::SUCCESS;
    }
    let done = match Arguments::parse().verb {
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Demo(arguments) => demo::demo(&arguments),
        Verb::Bench { case: bench::command::Verb::Report(arguments) } => bench::command::report(&arguments),
        Verb::Bench { case } if bench::command::lists(&case) => Ok(()),
        Verb::Bench { case } => {
            let named = case.common().and_then(|common| common.lib.as_deref());
            library::find(named).and_then(|library| bench::command::run(&case, library))
        }
        Verb::Ls(arguments) => ls::ls(&arguments),
        Verb::Stats(arguments) => stats::stats(&arguments),
        Verb::Why(arguments) => why::why(&arguments),
        Verb::Top(arguments) => top::top(&arguments),
        Verb::Trace(arguments) => trace::trace(&arguments),
        Verb::Pcap(arguments) => pcap::pcap(&arguments),
        Verb::Xdp(arguments) => xdp::xdp(&arguments),
        Verb::Sim(arguments) => sim::sim(&arguments),
        Verb::Offload(arguments) => offload::offload(&arguments),
        Verb::P4(arguments) => p4::p4(&arguments),
        Verb::Doctor(arguments) => doctor::doctor(&arguments),
        Verb::Completions(arguments) => shell::completions(&arguments),
        Verb::Manual(arguments) => manual::manual(&arguments),
        Verb::PrivateDaemon(arguments) => private_daemon::serve(&arguments),
        Verb::Memload(arguments) => demo::memload::main(&arguments),
    };
    match done.and_then(|()| console::finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            if !sentence.is_empty() {
                eprintln!("opentoe: {sentence}");
            }
            ExitCode::FAILURE
        }
    }
}
