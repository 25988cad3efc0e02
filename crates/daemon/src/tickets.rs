//! Tickets of listeners, with which they come back to the next daemon (docs/RESTART.md).
use crate::datapath::DataPath;
use context::attach::Ticket;
use control::ShownTicket;
use engine::ContextId;
use rustix::fs::{Mode, OFlags, open};
use siphasher::sip::SipHasher24;
use std::cell::Cell;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a key.
const KEY: usize = 16;

/// Seals tickets.
pub(crate) struct Seals {
    key: [u8; KEY],
    /// The file that has the key.
    file: Option<PathBuf>,
    /// A program has a ticket, or had one.
    used: Cell<bool>,
}

impl Seals {
    /// With the key of the daemons at this socket. Where it cannot be stored, tickets hold as long as this daemon.
    pub(crate) fn of(socket: &Path) -> io::Result<Seals> {
        let path = key_path(socket);
        match stored(&path) {
            Ok(key) => Ok(Seals { key, file: Some(path), used: Cell::new(false) }),
            Err(error) => {
                tracing::warn!(
                    "the key for tickets of listeners cannot be stored in {} ({error}): after a restart, listeners \
                     come back only as far as their processes may bind their ports",
                    path.display()
                );
                Seals::fresh()
            }
        }
    }

    /// With a key that no other daemon has.
    fn fresh() -> io::Result<Seals> {
        fresh().map(|key| Seals { key, file: None, used: Cell::new(false) })
    }

    /// The daemon ends in order: where no listener can come back, the key is removed. `attached` programs are there.
    pub(crate) fn end(&self, attached: usize) {
        if attached > 0 && self.used.get() {
            return;
        }
        self.file.iter().for_each(|file| drop(std::fs::remove_file(file)));
    }

    /// Seals a ticket of a host.
    pub(crate) fn seal(&self, host: &str, ticket: Ticket) -> Ticket {
        self.used.set(true);
        Ticket { seal: self.of_ticket(host, &ticket), ..ticket }
    }

    /// A ticket was sealed for this host with this key.
    pub(crate) fn is_right(&self, host: &str, ticket: &Ticket) -> bool {
        self.used.set(true);
        self.of_ticket(host, ticket) == ticket.seal
    }

    fn of_ticket(&self, host: &str, ticket: &Ticket) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        let Ticket { listener, local, reuse_address, reuse_port, dual_stack, uid, seal: _ } = ticket;
        (host, listener, local, (reuse_address, reuse_port, dual_stack), uid).hash(&mut hasher);
        hasher.finish()
    }
}

/// The file beside a socket that has the key.
pub(crate) fn key_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".key");
    path.into()
}

fn fresh() -> io::Result<[u8; KEY]> {
    let mut key = [0; KEY];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    Ok(key)
}

/// The key in a file; a fresh one where there is no file. What others may read or have written is no key.
fn stored(path: &Path) -> io::Result<[u8; KEY]> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match open(path, flags | OFlags::RDONLY, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {}
        file => {
            let mut file = File::from(file?);
            let about = file.metadata()?;
            let own = about.uid() == rustix::process::geteuid().as_raw();
            if !own || !about.is_file() || about.mode() & 0o077 != 0 || about.len() != KEY as u64 {
                return Err(io::Error::other("it is not a key that only this user can read"));
            }
            let mut key = [0; KEY];
            return file.read_exact(&mut key).map(|()| key);
        }
    }
    let key = fresh()?;
    // A daemon that is killed half-way leaves no half key.
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let _ = std::fs::remove_file(&name);
    let new = open(Path::new(&name), flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::from(0o600))?;
    File::from(new).write_all(&key)?;
    std::fs::rename(&name, path)?;
    Ok(key)
}

impl DataPath {
    /// The ticket of a listener that a context has, not sealed yet.
    pub(crate) fn ticket(&mut self, host: usize, context: ContextId, binding: u32) -> Option<Ticket> {
        let (now, seat) = self.seat(host)?;
        seat.host.use_base(now, |tcp, net| tcp.ticket(net, context, binding))
    }

    /// A context listens again; gives the binding, or a Linux error number.
    pub(crate) fn listen_again(
        &mut self,
        host: usize,
        context: ContextId,
        ticket: &ShownTicket,
        backlog: u32,
    ) -> Result<u32, i32> {
        let (now, seat) = self.seat(host).ok_or(libc::ENETDOWN)?;
        seat.host.use_base(now, |tcp, net| tcp.listen_again(net, context, ticket, backlog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context::Endpoint;
    use std::net::Ipv4Addr;

    fn ticket() -> Ticket {
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, 80);
        Ticket { listener: 7, local, reuse_address: true, reuse_port: false, dual_stack: false, uid: 0, seal: 0 }
    }

    #[test]
    fn a_seal_holds_for_one_ticket_of_one_host() {
        let with = |byte| Seals { key: [byte; KEY], file: None, used: Cell::new(false) };
        let (seals, others) = (with(1), with(2));
        let sealed = seals.seal("a", ticket());
        assert!(seals.is_right("a", &sealed));
        assert!(!seals.is_right("b", &sealed) && !others.is_right("a", &sealed) && !seals.is_right("a", &ticket()));
        for change in [
            |ticket: &mut Ticket| ticket.local.port = 443,
            |ticket: &mut Ticket| ticket.listener += 1,
            |ticket: &mut Ticket| ticket.uid = 1,
            |ticket: &mut Ticket| ticket.reuse_port = true,
            |ticket: &mut Ticket| ticket.reuse_address = false,
            |ticket: &mut Ticket| ticket.dual_stack = true,
        ] {
            let mut changed = sealed.clone();
            change(&mut changed);
            assert!(!seals.is_right("a", &changed), "{changed:?}");
        }
    }

    #[test]
    fn a_key_lasts_and_one_that_others_can_read_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("toed-key-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = key_path(&directory.join("toed.sock"));
        let key = stored(&path).unwrap();
        assert_eq!(stored(&path).unwrap(), key);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(stored(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert_ne!(stored(&path).unwrap(), key);
        std::fs::write(&path, "short").unwrap();
        assert!(stored(&path).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
