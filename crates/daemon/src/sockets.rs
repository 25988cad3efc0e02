//! Sockets of the daemon, two: their paths, the right to use them, and that no other daemon has them already.
use crate::access::group_number;
use crate::config::ServiceConfig;
use context::attach::return_path;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Name of the attach socket in a runtime directory.
const NAME: &str = "toed.sock";

/// Where a daemon of this user listens by default: `/run/toe/toed.sock` for root,
/// `$XDG_RUNTIME_DIR/toe/toed.sock` for others.
pub fn default_socket() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    own.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("toe").join(NAME)
}

/// The management socket that belongs to an attach socket.
pub fn management_path(attach: &Path) -> PathBuf {
    let mut path = attach.as_os_str().to_owned();
    path.push(".manage");
    path.into()
}

/// Where a process comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The attach socket: its permissions let the process in.
    Attach,
    /// The one that anybody may open: only a ticket lets a process in (docs/RESTART.md).
    Return,
}

/// The sockets, listening; removed when dropped.
pub(crate) struct Sockets {
    pub(crate) attach: OwnedFd,
    pub(crate) management: UnixListener,
    /// For processes with tickets, whoever they are.
    pub(crate) returning: Option<OwnedFd>,
    paths: [PathBuf; 3],
    /// They stay when this daemon ends.
    keep: bool,
}

impl Sockets {
    /// Takes the place of the daemon at `path`, where none is running.
    pub(crate) fn open(path: &Path, config: &ServiceConfig) -> Result<Sockets, String> {
        let management_path = management_path(path);
        if UnixStream::connect(&management_path).is_ok() {
            return Err(format!("another toed is running at {}", path.display()));
        }
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory)
                .map_err(|e| format!("cannot make {}: {e}; --socket names another place", directory.display()))?;
        }
        let mode = config.mode()?;
        let group = config.socket_group.as_deref().map(group_number).transpose()?;
        let manage_group = config.manage_group.as_deref().map(group_number).transpose()?.or(group);
        let failed = |path: &Path, e: io::Error| format!("cannot listen on {}: {e}", path.display());
        let management = publish(&management_path, (mode, manage_group), |at| UnixListener::bind(at))
            .map_err(|e| failed(&management_path, e))?;
        // The attach socket comes last: once it exists, so does everything else.
        let attach = publish(path, (mode, group), shm::handover::listen).map_err(|e| {
            let _ = fs::remove_file(&management_path);
            failed(path, e)
        })?;
        management.set_nonblocking(true).map_err(|e| failed(&management_path, e))?;
        let paths = [path.into(), management_path, return_path(path)];
        Ok(Sockets { attach, management, returning: returning(path), paths, keep: false })
    }
}

impl Sockets {
    /// The sockets of the daemon at `path`, which this one took over.
    pub(crate) fn adopt(path: &Path, [attach, management]: [OwnedFd; 2]) -> Sockets {
        let paths = [path.into(), management_path(path), return_path(path)];
        Sockets { attach, management: UnixListener::from(management), returning: returning(path), paths, keep: false }
    }

    /// The listening socket of a door. There is no door to return by without its socket.
    pub(crate) fn behind(&self, door: Door) -> BorrowedFd<'_> {
        match (door, &self.returning) {
            (Door::Return, Some(returning)) => returning.as_fd(),
            _ => self.attach.as_fd(),
        }
    }

    /// Another daemon listens on them from now on.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        for path in self.paths.iter().filter(|_| !self.keep) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The socket for processes with tickets. Without it, those come back that may open the attach socket.
fn returning(attach: &Path) -> Option<OwnedFd> {
    let path = return_path(attach);
    let listening = publish(&path, (0o666, None), shm::handover::listen);
    listening.inspect_err(|error| tracing::warn!("cannot listen on {}: {error}", path.display())).ok()
}

/// Makes a socket under a temporary name and moves it into place with its permissions set, so that nobody finds one
/// that does not listen yet or that everybody may use.
fn publish<T>(
    path: &Path,
    (mode, group): (u32, Option<u32>),
    listen: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = PathBuf::from(name);
    let _ = fs::remove_file(&temporary);
    let socket = listen(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(mode))?;
    if group.is_some() {
        chown(&temporary, None, group)?;
    }
    fs::rename(&temporary, path)?;
    Ok(socket)
}
