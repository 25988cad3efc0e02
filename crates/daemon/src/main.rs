//! `toed`: the OpenTOE daemon.
#![forbid(unsafe_code)]

use clap::Parser;
use daemon::{Options, config, logging};
use std::path::PathBuf;
use std::process::ExitCode;

/// An allocation that fails would end every program's connections.
#[global_allocator]
static ALLOCATOR: shm::reserve::Allocator = shm::reserve::Allocator;

/// The OpenTOE daemon: runs hosts, to which `opentoe run` attaches programs.
///
/// It ends on SIGTERM or SIGINT; connections then end in order where their peers answer at once.
#[derive(Parser)]
#[command(
    name = "toed",
    version,
    after_help = "Example:\n  toed --config config/lab.toml\n  opentoe run --host a -- redis-server --protected-mode no"
)]
struct Arguments {
    /// Configuration (TOML); samples are in config/
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Attach socket, instead of the configuration's
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Take the place of the daemon that runs at this socket, with its programs and connections (docs/TAKEOVER.md)
    #[arg(long)]
    takeover: bool,
    /// Only check the configuration, and that users, groups, modules and cores that it names are there
    #[arg(long)]
    check: bool,
    /// End when this process has ended and nobody is attached any more
    #[arg(long, value_name = "PID")]
    owner: Option<i32>,
    /// Write a line to standard output when applications can attach
    #[arg(long)]
    announce: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match serve(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("toed: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), String> {
    let mut config = config::read(&arguments.config)?;
    if arguments.check {
        let file = arguments.config.display();
        config::machine(&config).map_err(|sentence| format!("{file}: {sentence}"))?;
        let hosts: Vec<&str> = config.hosts.iter().map(|host| host.stack.name.as_str()).collect();
        println!("{file} is in order: hosts {}", hosts.join(", "));
        return Ok(());
    }
    if let Some(socket) = &arguments.socket {
        config.service.socket = Some(socket.clone());
    }
    logging::start(config.service.log);
    daemon::run(
        &config,
        &Options {
            owner: arguments.owner,
            announce: arguments.announce,
            takeover: arguments.takeover,
            ..Options::default()
        },
    )
}
