//! Asking an offload engine.
use crate::limits::MOST_LIBRARY;
use crate::protocol::{Answer, Request, View};
use shm::handover;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Names the socket of an offload engine.
const SOCKET_VARIABLE: &str = "TOE_OFFLOAD";

/// Where an engine has its socket by default.
pub fn default_socket() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let own = || set("XDG_RUNTIME_DIR").map(|folder| folder.join("opentoe-offload.sock"));
    set(SOCKET_VARIABLE).or_else(own).unwrap_or_else(|| "/run/opentoe-offload.sock".into())
}

/// Asks on a connection, and waits for the answer.
pub(crate) fn ask_on(socket: &OwnedFd, request: &Request, files: &[BorrowedFd<'_>]) -> std::io::Result<Answer> {
    handover::send(socket.as_fd(), &serde_json::to_vec(request)?, files)?;
    let (message, _) = handover::recv(socket.as_fd())?;
    if message.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&message)?)
}

fn ask(socket: &Path, request: &Request, files: &[BorrowedFd<'_>]) -> Result<Answer, String> {
    let failed = |error| format!("no offload engine answers at {}: {error}", socket.display());
    let connection = handover::connect(socket).map_err(failed)?;
    match ask_on(&connection, request, files).map_err(failed)? {
        Answer::Refused { why, .. } => Err(why),
        answer => Ok(answer),
    }
}

/// Loads a library of functions, in place of one of this name.
///
/// # Errors
/// A sentence: there is no engine, or it refuses.
pub fn load(socket: &Path, name: &str, file: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot read {}: {error}", file.display());
    let object = File::open(file).map_err(failed)?;
    let about = object.metadata().map_err(failed)?;
    if !about.is_file() || about.len() > MOST_LIBRARY {
        return Err(format!("{} is no file of at most {} MiB", file.display(), MOST_LIBRARY >> 20));
    }
    ask(socket, &Request::Load { name: name.into() }, &[object.as_fd()]).map(drop)
}

/// Unloads a library.
///
/// # Errors
/// A sentence: there is no engine, or no such library.
pub fn unload(socket: &Path, name: &str) -> Result<(), String> {
    ask(socket, &Request::Unload { name: name.into() }, &[]).map(drop)
}

/// What there is.
///
/// # Errors
/// A sentence: there is no engine.
pub fn ls(socket: &Path) -> Result<View, String> {
    match ask(socket, &Request::Ls, &[])? {
        Answer::View(view) => Ok(view),
        _ => Err("the offload engine's answer is none".into()),
    }
}
