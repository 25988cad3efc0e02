//! The laboratory: clients in one network namespace, servers in another, a TAP device to OpenTOE and a veth pair.
use bench::directory::Directory;
use bench::process::{Process, Stop};
use daemon::client;
use daemon::protocol::Question;
use port::{Interface, Netns};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BITS: u8 = 24;
/// The clients' end of the TAP device, and the host on OpenTOE.
const TAP: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];
/// The clients' and the servers' end of the veth pair.
const VETH: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 78, 0, 1), Ipv4Addr::new(10, 78, 0, 2)];
/// How long something may take to start.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whose TCP a server is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stack {
    OpenToe,
    Linux,
}

impl Stack {
    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Stack::OpenToe => "OpenTOE",
            Stack::Linux => "Linux",
        }
    }

    /// Where its servers listen.
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Stack::OpenToe => TAP[1],
            Stack::Linux => VETH[1],
        }
    }
}

/// Namespaces without names: they go when this process and what it started are gone.
pub(super) struct Lab<'a> {
    clients: Netns,
    servers: Netns,
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
        let (clients, servers) = (Netns::create().map_err(needs_root)?, Netns::create().map_err(needs_root)?);
        clients.run(|| {
            let near = Interface::create_veth("veth0", "veth1", Some(servers.as_fd()))?;
            near.set_address(VETH[0], BITS)?;
            near.set_up()
        })??;
        servers.run(|| {
            let far = Interface::named("veth1")?;
            far.set_address(VETH[1], BITS)?;
            far.set_up()
        })??;
        let directory = Directory::new("demo")?;
        let daemon = start_daemon(directory.path(), &clients, stop)?;
        Ok(Lab { clients, servers, directory, library: library.into(), stop, _daemon: daemon })
    }

    /// A file of this run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a server on a stack and waits until it accepts connections there.
    pub(super) fn server(&self, stack: Stack, words: &[String], port: u16) -> Result<Process, String> {
        let log = self.file(&format!("{}-{port}.log", stack.name()));
        let own = own_program()?;
        let all = match stack {
            Stack::Linux => words.to_vec(),
            Stack::OpenToe => {
                let prefix = [&own, "run", "--socket", &text(&self.socket()), "--lib", &text(&self.library), "--"];
                prefix.iter().map(|word| word.to_string()).chain(words.iter().cloned()).collect()
            }
        };
        let mut process = Process::start(&self.servers, &all, log)?;
        let address = SocketAddr::V4(SocketAddrV4::new(stack.address(), port));
        self.stop.until("its first connection", PATIENCE, || {
            process.alive()?;
            self.clients.run(|| TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
        })?;
        if stack == Stack::OpenToe {
            self.check_accelerated(port)?;
        }
        Ok(process)
    }

    /// Runs a client to its end and returns what it wrote.
    pub(super) fn client(&self, words: &[String], patience: Duration) -> Result<String, String> {
        Process::start(&self.clients, words, self.file("client.log"))?.finish(self.stop, patience)
    }

    /// The server's listener is OpenTOE's: what is measured must be what is said.
    fn check_accelerated(&self, port: u16) -> Result<(), String> {
        let answer = client::ask(&self.socket(), &Question::Ls)?;
        let listeners = answer["hosts"][0]["listeners"].as_array().cloned().unwrap_or_default();
        match listeners.iter().any(|listener| listener["port"] == port) {
            true => Ok(()),
            false => Err(format!("nobody listens on port {port} of OpenTOE: the server is not accelerated")),
        }
    }

    fn socket(&self) -> PathBuf {
        self.file("toed.sock")
    }
}

fn start_daemon(directory: &Path, clients: &Netns, stop: &Stop) -> Result<Process, String> {
    let [config, socket] = ["toed.toml", "toed.sock"].map(|name| directory.join(name));
    let content = format!(
        "log = \"warn\"\n[[host]]\nname = \"demo\"\naddress = \"{}\"\nprefix_len = {BITS}\n\
         port = {{ kind = \"tap\", device = \"toe0\", kernel_address = \"{}/{BITS}\" }}\n",
        TAP[1], TAP[0]
    );
    fs::write(&config, content).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
    let own = own_program()?;
    let words = [
        &own,
        "private-daemon",
        "--directory",
        &text(&directory.join("daemon")),
        "--config",
        &text(&config),
        "--socket",
        &text(&socket),
        "--owner",
        &std::process::id().to_string(),
    ];
    let mut process = Process::start(clients, &words.map(String::from), directory.join("toed.log"))?;
    stop.until("the daemon", PATIENCE, || {
        process.alive()?;
        Ok(socket.exists())
    })?;
    Ok(process)
}

fn own_program() -> Result<String, String> {
    std::env::current_exe().map(|path| text(&path)).map_err(|e| format!("cannot see where this program is: {e}"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
