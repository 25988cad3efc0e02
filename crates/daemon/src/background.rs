//! `--background`: a daemon that goes on by itself once programs can attach to it, while the process that was
//! asked for it ends. A service manager's reload command is such a process: it waits for its end.
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The switch that asks for it.
const SWITCH: &str = "--background";

/// Starts this program again with the same arguments but [`SWITCH`], and waits until programs can attach. Gives
/// its process number. The error is a sentence; what is in the way, the daemon itself reports.
pub fn start() -> Result<u32, String> {
    let failed = |error: std::io::Error| format!("cannot start a daemon in the background: {error}");
    let arguments: Vec<OsString> = std::env::args_os().skip(1).filter(|argument| argument != SWITCH).collect();
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(arguments).arg("--announce").stdin(Stdio::null()).stdout(Stdio::piped());
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
