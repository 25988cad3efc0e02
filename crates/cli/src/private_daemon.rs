//! The processes behind a daemon that `opentoe run` starts: one that begins and ends at once, one that watches over the
//! daemon, and the daemon. Where the daemon is killed, another one takes its place at the same socket, and programs go
//! on with their listeners and connections (docs/RESTART.md).
use clap::{Args, ValueEnum};
use daemon::{Options, config, logging};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Options of those processes.
#[derive(Args)]
pub(crate) struct PrivateArguments {
    /// Directory with the socket; removed at the end
    #[arg(long)]
    pub directory: PathBuf,
    #[arg(long)]
    pub config: PathBuf,
    #[arg(long)]
    pub owner: i32,
    #[arg(long)]
    pub socket: PathBuf,
    /// Other programs of the user join it
    #[arg(long)]
    pub shared: bool,
    /// Which of the processes it is
    #[arg(long, value_enum)]
    pub role: Role,
}

/// Task of one of those processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Starts what watches over the daemon and ends at once, so that it is nobody's child.
    Begin,
    /// Watches over the daemon: starts it, and starts it again where it is killed.
    Watch,
    /// Is the daemon.
    First,
    /// Is the daemon that takes the place of one that was killed.
    Next,
}

/// The daemon's log, in its directory.
const LOG: &str = "toed.log";
/// What a process ends with in which a thread panicked.
const PANICKED: i32 = 101;
/// A daemon that lives shorter has not served.
const SHORT: Duration = Duration::from_secs(1);
/// So many of those in a row are enough.
const MOST_SHORT: u32 = 3;

/// The command of such a process.
pub(crate) fn command(arguments: &PrivateArguments, role: Role) -> io::Result<Command> {
    let PrivateArguments { directory, config, owner, socket, shared, .. } = arguments;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("private-daemon").arg("--directory").arg(directory).arg("--config").arg(config);
    command.args(["--owner", &owner.to_string()]).arg("--socket").arg(socket);
    command.arg("--role").args(role.to_possible_value().map(|role| role.get_name().to_string()));
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    if *shared {
        command.arg("--shared");
    }
    // What the program reports to its service manager is the program's business, and the daemon's log is a file.
    command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
    Ok(command)
}

/// What those processes do; the hidden command behind `opentoe run`.
pub(crate) fn serve(arguments: &PrivateArguments) -> Result<(), String> {
    match arguments.role {
        Role::Begin => command(arguments, Role::Watch).and_then(|mut watch| watch.spawn()).map(drop).map_err(failed),
        Role::Watch => watch_over(arguments),
        Role::First | Role::Next => be_daemon(arguments),
    }
}

fn be_daemon(arguments: &PrivateArguments) -> Result<(), String> {
    let PrivateArguments { directory, config, owner, socket, shared, role } = arguments;
    let mut config = config::read(config)?;
    config.service.socket = Some(socket.clone());
    config.service.socket_mode = "0666".into();
    config.service.log = config.service.log.min(config::LogLevel::Warn);
    logging::start(config.service.log);
    let (owner, shared, again) = (Some(*owner), *shared, *role == Role::Next);
    let log = Some(directory.join(LOG));
    daemon::run(&config, &Options { owner, shared, again, announce: true, log, takeover: false })
}

/// Starts the daemon, and again as often as it is killed; until it ends by itself.
fn watch_over(arguments: &PrivateArguments) -> Result<(), String> {
    // A session of its own: Ctrl-C is for the program.
    let _ = rustix::process::setsid();
    let (mut role, mut short) = (Role::First, 0);
    loop {
        let begin = Instant::now();
        let mut daemon = command(arguments, role).and_then(|mut daemon| daemon.spawn()).map_err(failed)?;
        if role == Role::First {
            // The first one still reports there what is in its way. The next ones have no other streams than these.
            daemon::leave_streams(&arguments.directory.join(LOG)).map_err(failed)?;
        }
        let status = daemon.wait().map_err(failed)?;
        short = if begin.elapsed() < SHORT { short + 1 } else { 0 };
        if !was_killed(status) || short == MOST_SHORT {
            break;
        }
        eprintln!("the daemon ended ({status}): another one takes its place");
        role = Role::Next;
    }
    let _ = fs::remove_dir_all(&arguments.directory);
    Ok(())
}

fn failed(error: io::Error) -> String {
    format!("cannot start a private daemon: {error}")
}

/// By a signal that it does not take, or by a fault of its own.
fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some() || status.code() == Some(PANICKED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Verb};
    use clap::Parser;
    use std::path::Path;

    /// Measurements and the demonstration run the daemon alone; nothing but this checks their words before.
    #[test]
    fn the_words_of_measurements_are_understood() {
        let words = bench::private_daemon::words("opentoe", Path::new("/lab"));
        match Arguments::try_parse_from(words).map(|arguments| arguments.verb) {
            Ok(Verb::PrivateDaemon(PrivateArguments { socket, role, shared, .. })) => {
                let wanted = (bench::private_daemon::socket(Path::new("/lab")), Role::First, false);
                assert_eq!((socket, role, shared), wanted);
            }
            Ok(_) => panic!("another command"),
            Err(error) => panic!("{error}"),
        }
    }
}
