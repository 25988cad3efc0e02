//! Which daemon a command is about.
use context::attach::SOCKET_VARIABLE;
use daemon::client;
use std::path::{Path, PathBuf};

/// Where somebody explicitly said that the daemon is: on the command line or in the environment.
pub fn named(argument: Option<&Path>) -> Option<PathBuf> {
    let from_environment = || std::env::var_os(SOCKET_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    argument.map(PathBuf::from).or_else(from_environment)
}

/// The daemon of this command: the named one, or the first that runs in the usual places.
pub fn daemon(argument: Option<&Path>) -> PathBuf {
    named(argument).or_else(running).unwrap_or_else(daemon::default_socket)
}

/// The first daemon that runs in the usual places: the user's own, then the system's.
pub fn running() -> Option<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|directory| PathBuf::from(directory).join("toe/toed.sock"));
    let places = own.into_iter().chain([PathBuf::from("/run/toe/toed.sock")]);
    places.into_iter().find(|socket| client::is_running(socket))
}
