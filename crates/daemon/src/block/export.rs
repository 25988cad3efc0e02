//! The NBD socket of a volume that a host uses.
use super::config::BlockSection;
use super::connection::serve;
use super::gate::Gate;
use super::nbd::Export;
use solar::BLOCK_LEN;
use solar::transport::View;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fs, thread};

/// A client waits so long for the volume's server.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at once.
const CONNECTIONS: usize = 16;

/// A socket that listens.
pub(super) struct Socket {
    listener: UnixListener,
    section: BlockSection,
    gate: Arc<Gate>,
    connections: Arc<AtomicUsize>,
}

impl Socket {
    /// Listens. The error is a sentence.
    pub(super) fn open(section: &BlockSection, gate: Arc<Gate>) -> Result<Socket, String> {
        let path = &section.socket;
        let with_context = |e: io::Error| format!("cannot listen on {}: {e}", path.display());
        if UnixStream::connect(path).is_ok() {
            return Err(format!("somebody listens on {} already", path.display()));
        }
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory).map_err(with_context)?;
        }
        // What a daemon that was killed left behind: no process listens there.
        let _ = fs::remove_file(path);
        let listener = UnixListener::bind(path).map_err(with_context)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(with_context)?;
        Ok(Socket { listener, section: section.clone(), gate, connections: Arc::default() })
    }

    /// NBD clients that are connected now.
    pub(super) fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.section.socket
    }

    /// Serves clients, each with threads of its own.
    pub(super) fn serve_all(&self) {
        for stream in self.listener.incoming() {
            match stream {
                Ok(stream) => self.begin(stream),
                // No descriptors are left: connections that close give some back.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn begin(&self, stream: UnixStream) {
        let count = Arc::clone(&self.connections);
        if count.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
            count.fetch_sub(1, Ordering::SeqCst);
            return tracing::warn!("volume {}: more than {CONNECTIONS} NBD clients", self.section.volume);
        }
        let (section, gate, at_end) = (self.section.clone(), Arc::clone(&self.gate), Arc::clone(&count));
        let thread = thread::Builder::new().name("nbd".into()).spawn(move || {
            converse(stream, &section, &gate);
            at_end.fetch_sub(1, Ordering::SeqCst);
        });
        if let Err(error) = thread {
            count.fetch_sub(1, Ordering::SeqCst);
            tracing::warn!("volume {}: no thread for an NBD client: {error}", self.section.volume);
        }
    }
}

fn converse(stream: UnixStream, section: &BlockSection, gate: &Arc<Gate>) {
    let blocks = match gate.queue().wait(TIMEOUT) {
        View::Open { blocks } => blocks,
        View::Opening => {
            return tracing::warn!("volume {}: its server {} does not answer", section.volume, section.server);
        }
        View::Ended(status) => {
            return tracing::warn!("volume {}: its server {} refuses it: {status:?}", section.volume, section.server);
        }
    };
    let Some(bytes) = size_of(blocks) else {
        return tracing::warn!("volume {}: its server reports {blocks} blocks", section.volume);
    };
    let export = Export { name: section.volume.clone(), bytes, read_only: section.read_only };
    if let Err(error) = serve(stream, &export, gate)
        && error.kind() != io::ErrorKind::UnexpectedEof
    {
        tracing::info!("volume {}: an NBD client has gone: {error}", section.volume);
    }
}

/// Bytes of so many blocks. Offsets of files are signed: no program takes more.
pub(super) fn size_of(blocks: u64) -> Option<u64> {
    blocks.checked_mul(BLOCK_LEN as u64).filter(|&bytes| i64::try_from(bytes).is_ok())
}
