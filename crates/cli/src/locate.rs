//! Which daemon a command is about.
use crate::private::{self, Found};
use context::attach::SOCKET_VARIABLE;
use daemon::client;
use std::path::{Path, PathBuf};

/// Where somebody explicitly said that the daemon is: on the command line or in the environment.
pub fn named(argument: Option<&Path>) -> Option<PathBuf> {
    let from_environment = || std::env::var_os(SOCKET_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    argument.map(PathBuf::from).or_else(from_environment)
}

/// The daemon of this command: the named one, the first that runs in the usual places, or the only private one.
///
/// # Errors
/// Several private daemons run, and none is named.
pub fn daemon(argument: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(socket) = named(argument).or_else(running) {
        return Ok(socket);
    }
    let mut found = private::running();
    match found.len() {
        0 | 1 => Ok(found.pop().map_or_else(daemon::default_socket, |only| only.socket)),
        _ => Err(choice(&found)),
    }
}

/// A sentence with all private daemons that run.
fn choice(found: &[Found]) -> String {
    let line = |found: &Found| {
        format!("\n  --socket {}   {} (process {})", found.socket.display(), found.program, found.owner)
    };
    let lines: String = found.iter().map(line).collect();
    format!("{} programs have a private daemon each; say which one:{lines}", found.len())
}

/// The first daemon that runs in the usual places: the user's own, then the system's.
pub fn running() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|directory| PathBuf::from(directory).join("toe/toed.sock"));
    let places = own.into_iter().chain([PathBuf::from("/run/toe/toed.sock")]);
    places.into_iter().find(|socket| client::is_running(socket))
}
