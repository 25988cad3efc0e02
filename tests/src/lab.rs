//! Lab of a case: a server's side and a client's, each on OpenTOE or on the kernel, and the link between.
use crate::daemon::Daemon;
use crate::network::{Namespace, join};
use crate::process::Session;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

/// Address of the server's side in IPv6.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x78, 0, 0, 0, 0, 2);
/// The same of the client's side.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x78, 0, 0, 0, 0, 1);
/// The server's address in every laboratory.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
/// The client's.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 3);
/// The server's address on its second port, where it has one, and the kernel's there.
pub const SECOND: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// See [`SECOND`].
pub const BEYOND: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
/// Options of `opentoe run` where a program's system calls are to be seen.
const INTERCEPT: &[&str] = &["--intercept", "syscalls"];
/// The link's devices are called this, on both stacks.
pub const DEVICE: &str = "toe0";

/// The end of an engine's name where its program runs as simulated RTL (docs/RTL.md).
pub const SIMULATED: &str = "-rtl";

/// Few lines of the flow tables.
pub const FEW_LINES: &str = "placed_connections = 2";

/// The engine with which everything runs.
pub const FIRST_ENGINE: &str = "flextoe";

/// How the two sides are joined, and which of them are on OpenTOE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Both on the kernel over veth: it proves the cases, and is what the others are compared with.
    Linux,
    /// Server on OpenTOE, client on the kernel, over a TAP device.
    TapServer,
    /// Client on OpenTOE, server on the kernel, over a TAP device.
    TapClient,
    /// Both on OpenTOE: two hosts of one daemon on the fabric.
    Fabric,
    /// Both on OpenTOE, on one host, over 127.0.0.1. The kernel's loopback is down: nothing can pass there unnoticed.
    Loopback,
    /// As `Fabric`, and frames are lost, overtaken, doubled and damaged.
    Lossy,
    /// As `Lossy`, with the engine's modules replicated and on threads of their own.
    LossyThreads,
    /// As `Fabric`, over a long path: 20 ms there and back, 100 Mbit/s, and a buffer of one such product.
    Far,
    /// As `Fabric`, and the server's host has a second port, a TAP device, with the kernel behind it.
    TwoPorts,
    /// Server on OpenTOE on a fabric, client on the kernel behind the fabric's uplink, a TAP device.
    Uplink,
    /// Server on OpenTOE over AF_XDP on a veth device, client on the kernel at its other end.
    AfxdpServer,
    /// Client on OpenTOE over AF_XDP, server on the kernel.
    AfxdpClient,
}

impl Link {
    /// Every link over which OpenTOE is tested, in the order of the report.
    pub const OPENTOE: &'static [Link] =
        &[Link::TapServer, Link::TapClient, Link::Fabric, Link::Loopback, Link::AfxdpServer, Link::AfxdpClient];

    /// The name in the report and for `--link`.
    pub fn label(self) -> &'static str {
        match self {
            Link::Linux => "linux",
            Link::TapServer => "tap-server",
            Link::TapClient => "tap-client",
            Link::Fabric => "fabric",
            Link::Loopback => "loopback",
            Link::Lossy => "lossy",
            Link::LossyThreads => "lossy-threads",
            Link::Far => "far",
            Link::TwoPorts => "two-ports",
            Link::Uplink => "uplink",
            Link::AfxdpServer => "afxdp-server",
            Link::AfxdpClient => "afxdp-client",
        }
    }

    /// The label where cases run with several engines, one of which this is.
    pub fn label_with(self, engine: &str, engines: &[String]) -> String {
        if engines.len() > 1 { format!("{engine} {}", self.label()) } else { self.label().into() }
    }

    /// Only a short form of the grid runs here: copy mode on veth is for correctness, not for load.
    pub fn is_short(self) -> bool {
        matches!(self, Link::AfxdpServer | Link::AfxdpClient)
    }

    /// One side is on the kernel, over a TAP device.
    pub fn has_tap(self) -> bool {
        matches!(self, Link::TapServer | Link::TapClient)
    }

    /// Hosts are members of a fabric.
    pub fn is_fabric(self) -> bool {
        let members = matches!(self, Link::Fabric | Link::Loopback | Link::Lossy | Link::LossyThreads);
        members || matches!(self, Link::Far | Link::TwoPorts | Link::Uplink)
    }

    fn toe_sides(self) -> (bool, bool) {
        match self {
            Link::Linux => (false, false),
            Link::TapServer | Link::Uplink | Link::AfxdpServer => (true, false),
            Link::TapClient | Link::AfxdpClient => (false, true),
            Link::Fabric | Link::Loopback | Link::Lossy | Link::LossyThreads | Link::Far | Link::TwoPorts => {
                (true, true)
            }
        }
    }
}

/// A place where programs of one side run.
pub struct Side {
    /// Its address on the link.
    pub address: Ipv4Addr,
    /// The same of IPv6.
    pub address6: Ipv6Addr,
    /// The host of the daemon that programs attach to; `None`: they stay on the kernel.
    host: Option<&'static str>,
}

impl Side {
    /// Its programs run on OpenTOE.
    pub fn is_accelerated(&self) -> bool {
        self.host.is_some()
    }
}

/// Two sides and what joins them.
pub struct Lab<'a> {
    /// Which link this is.
    pub link: Link,
    /// The engine of the daemon's hosts.
    pub engine: String,
    /// That engine's program is simulated RTL: the engine was named with [`SIMULATED`] at its end.
    pub simulated: bool,
    /// Keys of the configuration about the hosts' memory, beside the defaults.
    pub memory: &'static str,
    /// The daemon; `None` where both sides are on the kernel.
    pub daemon: Option<Daemon<'a>>,
    /// Where servers run.
    pub server: Side,
    /// Where clients run.
    pub client: Side,
    /// The kernel's side of the link (the server's where both are on the kernel).
    pub near: Namespace,
    /// The client's side where both are on the kernel; with AF_XDP the daemon's; otherwise unconnected, so nothing
    /// of an accelerated program can leave through the kernel unnoticed.
    pub far: Namespace,
}

impl<'a> Lab<'a> {
    /// Makes namespaces, devices and daemon.
    pub fn new(session: &'a Session, link: Link, engine: &str) -> Result<Lab<'a>, String> {
        Lab::with(session, link, engine, "")
    }

    /// One with room for very many connections.
    pub fn roomy(session: &'a Session, link: Link) -> Result<Lab<'a>, String> {
        Lab::with(session, link, "flextoe", "slots = 16384\nrx_bytes = 16384\ntx_bytes = 16384")
    }

    /// One whose hosts keep shared logs.
    pub fn with_logs(session: &'a Session, link: Link) -> Result<Lab<'a>, String> {
        Lab::with(session, link, "laminar", "log_bytes = 67108864")
    }

    /// One in which received bytes land in programs' memory, on this engine where it does that.
    pub fn with_heaps(session: &'a Session, link: Link, engine: &str) -> Result<Lab<'a>, String> {
        let engine = if engine.starts_with("zeronic") { engine } else { "zeronic" };
        Lab::with(session, link, engine, "heap_bytes = 268435456")
    }

    /// One whose hosts place the payload of two connections only, on this engine where it places any. Of the ZeroNIC
    /// hosts beside, each places that of one.
    pub fn with_lines(session: &'a Session, link: Link, engine: &str) -> Result<Lab<'a>, String> {
        let engine = if engine.starts_with("zeronic") { engine } else { "zeronic" };
        Lab::with(session, link, engine, FEW_LINES)
    }

    /// As [`Lab::with_lines`], with programs' memory that bytes land in.
    pub fn with_lines_and_heaps(session: &'a Session, link: Link, engine: &str) -> Result<Lab<'a>, String> {
        let engine = if engine.starts_with("zeronic") { engine } else { "zeronic" };
        Lab::with(session, link, engine, "placed_connections = 2\nheap_bytes = 268435456")
    }

    /// One whose hosts have these keys in their section of memory.
    pub fn with(session: &'a Session, link: Link, engine: &str, memory: &'static str) -> Result<Lab<'a>, String> {
        let (near, far) = (Namespace::new("near")?, Namespace::new("far")?);
        let (server_toe, client_toe) = link.toe_sides();
        let server = Side { address: SERVER, address6: SERVER6, host: server_toe.then_some("server") };
        let client = Side { address: CLIENT, address6: CLIENT6, host: client_toe.then_some("client") };
        let (localhost, localhost6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let here = || Side { address: localhost, address6: localhost6, host: Some("server") };
        let (server, client) = if link == Link::Loopback { (here(), here()) } else { (server, client) };
        match link {
            Link::Linux => {
                join(&near, &far, DEVICE)?;
                near.configure(DEVICE, &format!("{SERVER}/24"), SERVER6)?;
                far.configure(DEVICE, &format!("{CLIENT}/24"), CLIENT6)?;
            }
            Link::AfxdpServer | Link::AfxdpClient => {
                join(&near, &far, DEVICE)?;
                let kernel = if client_toe { &server } else { &client };
                near.configure(DEVICE, &format!("{}/24", kernel.address), kernel.address6)?;
                far.ip(&["link", "set", DEVICE, "up"])?;
                plain_frames(&near)?;
            }
            Link::Loopback => drop(far.ip(&["link", "set", "lo", "down"])?),
            Link::TapServer | Link::TapClient | Link::Uplink => {}
            Link::Fabric | Link::Lossy | Link::LossyThreads | Link::Far | Link::TwoPorts => {}
        }
        let (engine, simulated) = engine.strip_suffix(SIMULATED).map_or((engine, false), |engine| (engine, true));
        let engine = engine.to_string();
        let mut lab = Lab { link, engine, simulated, memory, daemon: None, server, client, near, far };
        if link != Link::Linux {
            lab.daemon = Some(Daemon::start(session, &lab)?);
        }
        Ok(lab)
    }

    /// A program on the server's side.
    pub fn on_server(&self, program: &str) -> Command {
        self.command(&self.server, &[], program)
    }

    /// A program on the client's side.
    pub fn on_client(&self, program: &str) -> Command {
        self.command(&self.client, &[], program)
    }

    /// A program on the client's side that starts when something listens at this address; none where one of the sides
    /// is on the kernel.
    pub fn on_client_after(&self, address: &str, program: &str) -> Option<Command> {
        let daemon = self.daemon.as_ref().filter(|_| self.server.is_accelerated())?;
        Some(daemon.command_with(&self.far, self.client.host?, &["--wait-for", address], program))
    }

    /// A program on the server's side that needs more than the C library's functions there: where that side is on
    /// OpenTOE, its system calls are intercepted.
    pub fn intercepted_on_server(&self, program: &str) -> Command {
        self.command(&self.server, INTERCEPT, program)
    }

    /// A program on the server's side whose large allocations lie where bytes can land.
    pub fn with_heap_on_server(&self, program: &str) -> Command {
        self.command(&self.server, &["--heap"], program)
    }

    /// The same on the client's side.
    pub fn intercepted_on_client(&self, program: &str) -> Command {
        self.command(&self.client, INTERCEPT, program)
    }

    /// The same where the host's RDMA device stands below `/sys/class`.
    pub fn with_sysfs_on_client(&self, program: &str) -> Command {
        self.command(&self.client, &["--sysfs"], program)
    }

    fn command(&self, side: &Side, options: &[&str], program: &str) -> Command {
        match (&self.daemon, side.host) {
            (Some(daemon), Some(host)) => daemon.command_with(&self.far, host, options, program),
            _ => self.kernel_of(side).command(program),
        }
    }

    fn kernel_of(&self, side: &Side) -> &Namespace {
        if self.link == Link::Linux && side.address == self.client.address { &self.far } else { &self.near }
    }

    /// Somebody listens on a port of the server's side.
    pub fn listens(&self, port: u16) -> Result<bool, String> {
        self.side_listens(&self.server, port)
    }

    /// The same of the client's side.
    pub fn client_listens(&self, port: u16) -> Result<bool, String> {
        self.side_listens(&self.client, port)
    }

    fn side_listens(&self, side: &Side, port: u16) -> Result<bool, String> {
        match (&self.daemon, side.host) {
            (Some(daemon), Some(host)) => daemon.listens(host, port),
            _ => self.kernel_of(side).listens(port),
        }
    }
}

/// AF_XDP sees frames as the peer's kernel left them: no checksum left to a device, nothing merged.
fn plain_frames(peer: &Namespace) -> Result<(), String> {
    let mut ethtool = peer.command("ethtool");
    let output = ethtool.args(["-K", DEVICE, "tx", "off", "tso", "off", "gso", "off", "gro", "off"]).output();
    let output = output.map_err(|error| format!("ethtool: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ethtool: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
