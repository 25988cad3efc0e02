//! A session of its own for a measurement, ahead of what else the machine does.
//!
//! Where the kernel groups processes by session (`sched_autogroup_enabled`), niceness only counts within a group. And
//! `sched_yield` only gives way to processes of the same group: a server, its clients and the daemon that share a core
//! belong into one.
use std::process::{Command, Stdio};

/// Set inside the session.
const INSIDE: &str = "TOE_BENCH_SESSION";

/// Runs this program again in a session of its own and waits for it; `None` where it is in one already. What goes
/// wrong there, it reports itself.
pub fn enter() -> Option<Result<(), String>> {
    if std::env::var_os(INSIDE).is_some() {
        favour(std::process::id());
        more_descriptors();
        return None;
    }
    Some(again())
}

/// Puts the session of a process ahead: the measurement's own, or a daemon's, which makes one for itself.
pub fn favour(process: u32) {
    // Without such groups there is no such file.
    let _ = std::fs::write(format!("/proc/{process}/autogroup"), "-20");
}

/// What stands in front of a program to keep it ahead of what else the machine does.
pub fn ahead() -> Vec<String> {
    ["nice", "-n", "-20"].map(String::from).to_vec()
}

/// The same, to keep it on a core as well. A core beyond the last one is the last one.
pub fn pinned(core: usize) -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let core = core.min(cores - 1).to_string();
    let stay = ["taskset", "-c", &core].map(String::from);
    ahead().into_iter().chain(stay).collect()
}

/// As many descriptors as the machine allows: programs that are measured hold thousands of connections.
fn more_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
}

fn again() -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot start the measurement in a session of its own: {e}");
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new("setpriv");
    // It goes in order when this process is ended.
    command.args(["--pdeathsig", "TERM", "--", "setsid", "--"]).arg(own).args(std::env::args_os().skip(1));
    let status = command.env(INSIDE, "1").stdin(Stdio::null()).status().map_err(failed)?;
    if status.success() { Ok(()) } else { Err(String::new()) }
}
