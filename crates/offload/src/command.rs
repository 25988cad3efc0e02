//! The program `opentoe-offload`.
use crate::client::default_socket;
use crate::limits::{MOST_THREADS, Settings};
use crate::supervisor::{Supervisor, WORKER};
use crate::worker;
use clap::Parser;
use clap::builder::RangedU64ValueParser;
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Runs offload functions beside a host's transport.
///
/// It attaches to the RDMA device of a host, as a program of this user. Libraries of functions are loaded into it by
/// "opentoe offload load"; programs let the functions reach their memory by include/offload.h.
///
/// Example: opentoe-offload --daemon /run/toe/toed.sock --host server --socket /run/user/1000/offload.sock
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The daemon's attach socket.
    #[arg(long, value_name = "PATH")]
    daemon: PathBuf,
    /// The host whose RDMA device is used; the daemon's first one otherwise.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Where it is asked, by "opentoe offload" and by programs with DMA regions, of this user; otherwise $TOE_OFFLOAD,
    /// opentoe-offload.sock in $XDG_RUNTIME_DIR, or /run/opentoe-offload.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Threads that run functions.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number(1..=MOST_THREADS as u64))]
    threads: u64,
    /// A call is ended after so many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = number(1..=3_600_000))]
    call_ms: u64,
    /// A function that does not wait for DMA for so many milliseconds is stopped, and its library with it.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = number(20..=3_600_000))]
    turn_ms: u64,
    /// MiB of memory of their own that all functions may have together.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = number(32..=1 << 20))]
    memory: u64,
    /// Writes a line to standard output once it serves.
    #[arg(long)]
    announce: bool,
}

fn number(range: RangeInclusive<u64>) -> RangedU64ValueParser {
    clap::value_parser!(u64).range(range)
}

/// The program.
pub fn main() -> ExitCode {
    let done = match std::env::args().nth(1) {
        Some(first) if first == WORKER => work(),
        _ => supervise(Arguments::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("opentoe-offload: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<(), String> {
    let orders = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    worker::run(&orders).map_err(|error| format!("the worker ends: {error}"))
}

fn supervise(arguments: Arguments) -> Result<(), String> {
    let settings = Settings {
        daemon: arguments.daemon,
        host: arguments.host,
        threads: arguments.threads as usize,
        call: Duration::from_millis(arguments.call_ms),
        quantum: Duration::from_millis(arguments.turn_ms),
        memory: arguments.memory << 20,
    };
    let socket = arguments.socket.unwrap_or_else(default_socket);
    Supervisor::run(settings, &socket, || {
        if arguments.announce {
            println!("ready");
            let _ = std::io::stdout().flush();
        }
    })
}
