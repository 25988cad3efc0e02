//! `--background`: a daemon that goes on by itself once programs can attach to it, while the process that was
//! asked for it ends. A service manager's reload command is such a process: it waits for its end.
use crate::arguments::Arguments;
use crate::config::ServiceConfig;
use crate::sockets::default_socket;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The switch that asks for it.
const SWITCH: &str = "--background";

/// The file that such a daemon logs to, where its command line names none: beside its socket. None where it keeps the
/// standard error that it was given, which is a file or the journal. A pipe's reader would wait for its end, and a
/// terminal may go away.
pub fn log(arguments: &Arguments, service: &ServiceConfig) -> Option<PathBuf> {
    let stays = rustix::fs::fstat(std::io::stderr())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
    if arguments.log.is_some() || stays || std::env::var_os("JOURNAL_STREAM").is_some() {
        return None;
    }
    Some(service.socket.clone().unwrap_or_else(default_socket).with_extension("log"))
}

/// Starts this program again with the same arguments but [`SWITCH`], in a process group of its own: an interrupt from
/// this one's terminal does not end it. Waits until programs can attach. Gives its process number. The error is a
/// sentence; what is in the way, the daemon itself reports.
pub fn start(log: Option<&Path>) -> Result<u32, String> {
    let failed = |error: std::io::Error| format!("cannot start a daemon in the background: {error}");
    let arguments: Vec<OsString> = std::env::args_os().skip(1).filter(|argument| argument != SWITCH).collect();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(arguments).arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    if let Some(log) = log {
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
    Ok(daemon.id())
}
