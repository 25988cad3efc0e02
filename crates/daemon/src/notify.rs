//! Notifies the service manager how the daemon is (sd_notify(3), `Type=notify`).
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager's socket, where one started this process.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager.
pub(crate) struct ServiceManager {
    /// Opened once: a confined daemon opens no sockets.
    socket: Option<UnixDatagram>,
}

impl ServiceManager {
    /// The one that started this process, where there is one.
    pub(crate) fn of_environment() -> ServiceManager {
        let open = |name: &OsStr| open(name).inspect_err(|error| failed(name, error)).ok();
        ServiceManager { socket: std::env::var_os(VARIABLE).and_then(|name| open(&name)) }
    }

    /// Programs can attach from now on.
    pub(crate) fn ready(&self) {
        self.notify("READY=1");
    }

    /// The same of a daemon that took another one's place: from now on the service's main process is this one.
    pub(crate) fn took_over(&self) {
        self.notify(&format!("MAINPID={}\nREADY=1", std::process::id()));
    }

    /// The daemon ends.
    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1");
    }

    fn notify(&self, state: &str) {
        if let Some(Err(error)) = self.socket.as_ref().map(|socket| socket.send(state.as_bytes())) {
            failed(OsStr::new(VARIABLE), &error);
        }
    }
}

fn open(name: &OsStr) -> io::Result<UnixDatagram> {
    // An @ stands for the zero with which abstract names begin.
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(socket)
}

fn failed(name: &OsStr, error: &io::Error) {
    tracing::warn!("the service manager at {} cannot be notified: {error}", name.to_string_lossy());
}
