//! Choice of the daemon that a command addresses.
use crate::private;
use crate::shared::programs_of;
use crate::zeronic;
use context::attach::SOCKET_VARIABLE;
use daemon::client;
use daemon::protocol::Question;
use std::path::{Path, PathBuf};

/// Where the user explicitly placed the daemon: on the command line or in the environment.
pub(crate) fn named(argument: Option<&Path>) -> Option<PathBuf> {
    let from_environment = || std::env::var_os(SOCKET_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    argument.map(PathBuf::from).or_else(from_environment)
}

/// The daemon of this command: the named one, the first that runs in the usual places, or the only one of
/// `opentoe run`.
///
/// # Errors
/// Several of those run, and none is named.
pub(crate) fn daemon(argument: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(socket) = named(argument).or_else(running) {
        return Ok(socket);
    }
    let mut found = private::running();
    match found.len() {
        0 | 1 => Ok(found.pop().unwrap_or_else(daemon::default_socket)),
        _ => Err(choice(&found)),
    }
}

/// The daemon that a process is attached to, where none is named. Where only one runs, it is that one in any case: it
/// reports why the process is not attached.
///
/// # Errors
/// Several run, and the process is attached to none of them.
pub(crate) fn daemon_of(argument: Option<&Path>, pid: i32) -> Result<PathBuf, String> {
    if let Some(socket) = named(argument) {
        return Ok(socket);
    }
    let mut all: Vec<PathBuf> = running().into_iter().chain(private::running()).collect();
    let has = |socket: &&PathBuf| {
        client::ask(socket, &Question::Descriptors { pid, fd: None }).is_ok()
            || client::ask(socket, &Question::Ls).is_ok_and(|inventory| zeronic::of_process(&inventory, pid).is_some())
    };
    match all.iter().find(has) {
        Some(socket) => Ok(socket.clone()),
        None if all.len() > 1 => Err(format!("process {pid} is attached to none of {} daemons", all.len())),
        None => Ok(all.pop().unwrap_or_else(daemon::default_socket)),
    }
}

/// A sentence with all daemons that `opentoe run` started.
fn choice(found: &[PathBuf]) -> String {
    let line = |socket: &PathBuf| {
        let programs = client::ask(socket, &Question::Hello).map(|hello| programs_of(&hello).join(", "));
        format!("\n  --socket {}   {}", socket.display(), programs.unwrap_or_default())
    };
    let lines: String = found.iter().map(line).collect();
    format!("{} daemons of opentoe run are there; name one:{lines}", found.len())
}

/// The first daemon that runs in the usual places: the user's own, then the system's.
pub(crate) fn running() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|directory| PathBuf::from(directory).join("toe/toed.sock"));
    let places = own.into_iter().chain([PathBuf::from("/run/toe/toed.sock")]);
    places.into_iter().find(|socket| client::is_running(socket))
}
