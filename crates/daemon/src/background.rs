//! `--background`: a daemon that goes on by itself once programs can attach to it, while the process that was
//! asked for it ends. A service manager's reload command is such a process: it waits for its end.
use crate::arguments::Arguments;
use crate::config::ServiceConfig;
use crate::sockets::default_socket;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The switch that asks for it.
const SWITCH: &str = "--background";

/// The file that such a daemon logs to: the one that its command line names, or one beside its socket. None where it
/// keeps the standard error that it was given, which is a file or the journal. A pipe's reader would wait for its end,
/// and a terminal may go away.
fn log(arguments: &Arguments, service: &ServiceConfig) -> Option<PathBuf> {
    let beside_socket = || service.socket.clone().unwrap_or_else(default_socket).with_extension("log");
    let is_file = rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
    let stays = is_file || std::env::var_os("JOURNAL_STREAM").is_some();
    arguments.log.clone().or_else(|| (!stays).then(beside_socket))
}

/// Starts this program again with the same arguments but [`SWITCH`], in a process group of its own: an interrupt from
/// this one's terminal does not end it. Waits until programs can attach. Gives its process number and the file that it
/// logs to. The error is a sentence; what is in the way, the daemon itself reports.
pub fn start(arguments: &Arguments, service: &ServiceConfig) -> Result<(u32, Option<PathBuf>), String> {
    let failed = |error: std::io::Error| format!("cannot start a daemon in the background: {error}");
    let words = std::env::args_os().skip(1).filter(|argument| argument != SWITCH);
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words).arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let log = log(arguments, service);
    if let (Some(log), None) = (&log, &arguments.log) {
        command.arg("--log").arg(log);
    }
    let mut daemon = command.spawn().map_err(failed)?;
    let mut line = String::new();
    // It closes its end where it does not come so far.
    let read = daemon.stdout.take().map_or(Ok(0), |out| BufReader::new(out).read_line(&mut line)).map_err(failed)?;
    if read == 0 {
        let status = daemon.wait().map_err(failed)?;
        return Err(format!("the daemon in the background did not start ({status})"));
    }
    Ok((daemon.id(), log))
}
