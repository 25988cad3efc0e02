//! `toed`: the OpenTOE daemon.
#![forbid(unsafe_code)]

use clap::Parser;
use daemon::{Arguments, Options, background, config, logging};
use std::io::Write;
use std::process::ExitCode;

/// An allocation that fails would end every program's connections.
#[global_allocator]
static ALLOCATOR: shm::reserve::Allocator = shm::reserve::Allocator;

fn main() -> ExitCode {
    if daemon::linux_helper() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse();
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("toed: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. A reader that has closed the pipe is no error.
fn print(line: &str) -> Result<(), String> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written ({error}); the line is: {line}"))
        }
        _ => Ok(()),
    }
}

fn serve(arguments: &Arguments) -> Result<(), String> {
    let mut config = config::read(&arguments.config)?;
    if let Some(socket) = &arguments.socket {
        config.service.socket = Some(socket.clone());
    }
    if arguments.background {
        let (daemon, log) = background::start(arguments, &config.service)?;
        if let Some(log) = log {
            print(&format!("the daemon logs to {}", log.display()))?;
        }
        return print(&format!("the daemon runs in the background as process {daemon}"));
    }
    if arguments.check {
        let file = arguments.config.display();
        config::machine(&config).map_err(|sentence| format!("{file}: {sentence}"))?;
        let hosts: Vec<&str> = config.hosts.iter().map(|host| host.stack.name.as_str()).collect();
        return print(&format!("{file} is in order: hosts {}", hosts.join(", ")));
    }
    logging::start(config.service.log);
    daemon::run(
        &config,
        &Options {
            owner: arguments.owner,
            announce: arguments.announce,
            takeover: arguments.takeover,
            log: arguments.log.clone(),
            ..Options::default()
        },
    )
}
