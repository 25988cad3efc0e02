//! The laboratory: a network namespace with the daemon and all that runs on OpenTOE, one with servers on Linux. A veth
//! pair joins them; clients on Linux reach OpenTOE by a TAP device.
use bench::directory::Directory;
use bench::private_daemon;
use bench::process::{Process, Stop};
use bench::session::pinned;
use daemon::client;
use daemon::protocol::Question;
use port::{Interface, Netns};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BITS: u8 = 24;
/// The clients' end of the TAP device, and the host on OpenTOE.
const TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// The clients' and the servers' end of the veth pair.
const VETH: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// The daemon has a core, and all that runs on OpenTOE shares the other one, as in `opentoe bench`. The kernel's work
/// is done in the programs' own time, so on Linux a server has the daemon's.
const SERVING_CORE: usize = 0;
const PROGRAM_CORE: usize = 1;
/// How long something may take to start.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Whose TCP a server is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stack {
    OpenToe,
    Linux,
}

impl Stack {
    pub(super) const ALL: [Stack; 2] = [Stack::OpenToe, Stack::Linux];

    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Stack::OpenToe => "OpenTOE",
            Stack::Linux => "Linux",
        }
    }
}

/// Location of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientLocation {
    /// Beside the server, on the same stack.
    Beside,
    /// On Linux, across a network device.
    Across,
}

impl ClientLocation {
    /// In the order of the report.
    pub(super) const ALL: [ClientLocation; 2] = [ClientLocation::Beside, ClientLocation::Across];

    /// Its name in reports for machines and lines of progress.
    pub(super) fn name(self) -> &'static str {
        match self {
            ClientLocation::Beside => "loopback",
            ClientLocation::Across => "network",
        }
    }

    /// What stands above its table.
    pub(super) fn heading(self) -> &'static str {
        match self {
            ClientLocation::Beside => {
                "Clients beside the server, over 127.0.0.1: both ends on OpenTOE, or both on Linux"
            }
            ClientLocation::Across => "Clients on Linux: over a TAP device to OpenTOE, or over a veth pair to Linux",
        }
    }

    /// Where its clients reach the servers of a stack.
    pub(super) fn address(self, stack: Stack) -> Ipv4Addr {
        match (self, stack) {
            (ClientLocation::Beside, _) => Ipv4Addr::LOCALHOST,
            (ClientLocation::Across, Stack::OpenToe) => TAP[1],
            (ClientLocation::Across, Stack::Linux) => VETH[1],
        }
    }
}

/// Namespaces without names: they go when this process and what it started are gone.
pub(super) struct Lab<'a> {
    /// The daemon, its programs, and clients on Linux. The kernel's loopback is down here: what passes over 127.0.0.1
    /// passes over OpenTOE.
    near: Netns,
    /// Servers on Linux, and the clients beside them.
    far: Netns,
    directory: Directory,
    library: PathBuf,
    pub stop: &'a Stop,
    /// Last, so that it ends after the programs that are attached to it.
    _daemon: Process,
}

impl<'a> Lab<'a> {
    /// Makes namespaces and devices and starts the daemon.
    pub(super) fn new(library: &Path, stop: &'a Stop) -> Result<Lab<'a>, String> {
        let needs_root = |sentence| format!("{sentence}; the demo needs root (sudo)");
        let (near, far) = (Netns::create().map_err(needs_root)?, Netns::create().map_err(needs_root)?);
        near.run(|| {
            let end = Interface::create_veth("veth0", "veth1", Some(far.as_fd()))?;
            end.set_address(VETH[0], BITS)?;
            end.set_up()
        })??;
        far.run(|| {
            Interface::named("lo")?.set_up()?;
            let end = Interface::named("veth1")?;
            end.set_address(VETH[1], BITS)?;
            end.set_up()
        })??;
        let directory = Directory::new("demo")?;
        let daemon = start_daemon(directory.path(), &near, stop)?;
        Ok(Lab { near, far, directory, library: library.into(), stop, _daemon: daemon })
    }

    /// A file of this run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server on a stack and waits until it accepts connections from everywhere.
    pub(super) fn server(&self, stack: Stack, words: &[String], port: u16) -> Result<Process, String> {
        let log = self.file(&format!("{}-{port}.log", stack.name()));
        let mut process = match stack {
            Stack::Linux => Process::start(&self.far, &[&pinned(SERVING_CORE)[..], words].concat(), log)?,
            Stack::OpenToe => Process::start(&self.near, &self.on_opentoe(words)?, log)?,
        };
        let address = SocketAddr::from((ClientLocation::Across.address(stack), port));
        self.stop.until("its first connection", TIMEOUT, || {
            process.alive()?;
            Ok(self.near.run(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())?
                && (stack == Stack::Linux || self.is_accelerated(port)?))
        })?;
        Ok(process)
    }

    /// Runs a client to its end and returns what it wrote.
    pub(super) fn client(
        &self,
        place: ClientLocation,
        stack: Stack,
        words: &[String],
        limit: Duration,
    ) -> Result<String, String> {
        let plain = [&pinned(PROGRAM_CORE)[..], words].concat();
        let (netns, words) = match (place, stack) {
            (ClientLocation::Beside, Stack::OpenToe) => (&self.near, self.on_opentoe(words)?),
            (ClientLocation::Beside, Stack::Linux) => (&self.far, plain),
            (ClientLocation::Across, _) => (&self.near, plain),
        };
        Process::start(netns, &words, self.file("client.log"))?.finish(self.stop, limit)
    }

    /// The command line that runs these words on OpenTOE.
    fn on_opentoe(&self, words: &[String]) -> Result<Vec<String>, String> {
        let (own, socket, library) = (own_program()?, text(&self.socket()), text(&self.library));
        let run = [&own, "run", "--quiet", "--socket", &socket, "--lib", &library, "--"].map(String::from);
        Ok([&pinned(PROGRAM_CORE)[..], &run, words].concat())
    }

    /// A listener on the port is OpenTOE's, also for loopback: what is measured must be what is shown.
    fn is_accelerated(&self, port: u16) -> Result<bool, String> {
        let answer = client::ask(&self.socket(), &Question::Ls)?;
        let listeners = answer["hosts"][0]["listeners"].as_array().cloned().unwrap_or_default();
        Ok(listeners.iter().any(|listener| listener["port"] == port && listener["loopback"] == true))
    }

    fn socket(&self) -> PathBuf {
        private_daemon::socket(self.directory.path())
    }
}

fn start_daemon(directory: &Path, near: &Netns, stop: &Stop) -> Result<Process, String> {
    let content = format!(
        "log = \"warn\"\n[[thread]]\ncore = {SERVING_CORE}\n[[host]]\nname = \"demo\"\naddress = \"{}\"\nprefix_len = {BITS}\n\
         port = {{ kind = \"tap\", device = \"toe0\", kernel_address = \"{}/{BITS}\" }}\n",
        TAP[1], TAP[0]
    );
    private_daemon::start(&own_program()?, near, directory, &content, stop)
}

fn own_program() -> Result<String, String> {
    std::env::current_exe().map(|path| text(&path)).map_err(|e| format!("cannot see where this program is: {e}"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
