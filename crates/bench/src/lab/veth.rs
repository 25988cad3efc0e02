//! veth lab: two network namespaces joined by a veth pair: the kernel's TCP at both ends.
use super::{CLIENT_PORTS, Lab, Stack, TIMEOUT};
use crate::directory::Directory;
use crate::process::Process;
use crate::tools::Tools;
use port::{Interface, Netns, Offloads};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const BITS: u8 = 24;
/// The kernel's work is done in the programs' own time, so each side has a core.
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// Plan of the link.
#[derive(Debug, Clone, Default)]
pub(crate) struct VethPlan {
    /// Bits a second towards the server; 0 for no limit.
    pub rate_bps: u64,
    /// Bytes that may wait where there is a rate.
    pub buffer_bytes: u64,
    /// Probability that a packet is lost, each way.
    pub loss: f64,
    /// Every packet is one real segment, also where nothing is lost.
    pub single: bool,
    /// Bytes of an IP packet; 0 for Linux' own 1500.
    pub mtu: u16,
    /// Congestion control; the system's by default.
    pub congestion: Option<String>,
    /// Servers share the clients' core.
    pub one_core: bool,
    /// Programs are not bound to a core.
    pub spread: bool,
}

/// The namespaces. They go when the last process in them has ended.
pub(crate) struct VethLab<'a> {
    tools: &'a Tools,
    clients: Netns,
    servers: Netns,
    /// Cores of servers and of clients.
    cores: [Option<usize>; 2],
    directory: Directory,
}

impl<'a> VethLab<'a> {
    /// Makes them.
    pub(crate) fn new(tools: &'a Tools, plan: &VethPlan) -> Result<VethLab<'a>, String> {
        let (clients, servers) = (Netns::create()?, Netns::create()?);
        // What happens to single packets must not happen to super-segments.
        let whole = plan.loss == 0.0 && plan.rate_bps == 0 && !plan.single;
        let prepare = |interface: &Interface, address| {
            interface.set_address(address, BITS)?;
            if plan.mtu > 0 {
                interface.set_mtu(plan.mtu)?;
            }
            if !whole {
                interface.set_offloads(Offloads { tx_checksum: true, ..Offloads::NONE })?;
            }
            interface.set_up()
        };
        clients.run(|| prepare(&Interface::create_veth("veth0", "veth1", Some(servers.as_fd()))?, CLIENT))??;
        servers.run(|| prepare(&Interface::named("veth1")?, SERVER))??;
        widen_ports(&clients);
        let server_core = if plan.one_core { CLIENT_CORE } else { SERVER_CORE };
        let cores = [server_core, CLIENT_CORE].map(|core| (!plan.spread).then_some(core));
        let lab = VethLab { tools, clients, servers, cores, directory: Directory::new("bench")? };
        lab.shape(plan)?;
        lab.lose(plan)?;
        lab.choose(plan)?;
        Ok(lab)
    }

    /// Congestion control, as a property of the route: the setting of a namespace is not everywhere allowed.
    fn choose(&self, plan: &VethPlan) -> Result<(), String> {
        let Some(name) = &plan.congestion else { return Ok(()) };
        for (netns, device, address) in [(&self.clients, "veth0", CLIENT), (&self.servers, "veth1", SERVER)] {
            let network = format!("{}/{BITS}", Ipv4Addr::from(u32::from(address) & (u32::MAX << (32 - BITS))));
            let source = address.to_string();
            run(netns, &["ip", "route", "replace", &network, "dev", device, "src", &source, "congctl", name])?;
        }
        Ok(())
    }

    /// A token bucket towards the server.
    fn shape(&self, plan: &VethPlan) -> Result<(), String> {
        if plan.rate_bps == 0 {
            return Ok(());
        }
        let (rate, limit) = (format!("{}bit", plan.rate_bps), plan.buffer_bytes.to_string());
        // A bucket of a few packets: the kernel's timers are finer than a packet's time at this rate.
        let words =
            ["tc", "qdisc", "add", "dev", "veth0", "root", "tbf", "rate", &rate, "burst", "16kb", "limit", &limit];
        run(&self.clients, &words)
    }

    /// Random drops on arrival, on both sides.
    fn lose(&self, plan: &VethPlan) -> Result<(), String> {
        if plan.loss == 0.0 {
            return Ok(());
        }
        const MOD: u64 = 10_000_000;
        let below = (plan.loss * MOD as f64).round() as u64;
        let table = format!(
            "table ip toe {{ chain lose {{ type filter hook prerouting priority -300; \
             numgen random mod {MOD} < {below} drop; }}; }}"
        );
        [&self.clients, &self.servers].into_iter().try_for_each(|netns| run(netns, &["nft", &table]))
    }

    /// Where clients are.
    pub(crate) fn client_address(&self) -> Ipv4Addr {
        CLIENT
    }

    fn start(&self, netns: &Netns, core: Option<usize>, words: &[String], log: String) -> Result<Process, String> {
        Process::start(netns, &self.pinned(core, words), self.directory.path().join(log))
    }

    fn pinned(&self, core: Option<usize>, words: &[String]) -> Vec<String> {
        [&self.tools.pinned(core)[..], words].concat()
    }

    /// Starts a program in the server's place.
    pub(crate) fn on_server(&self, words: &[String]) -> Result<Process, String> {
        self.start(&self.servers, self.cores[0], words, "server.log".into())
    }

    /// Words by which a client, started in one of the places for clients, starts another one there.
    pub(crate) fn words_of_client(&self, words: &[String]) -> Vec<String> {
        self.pinned(self.cores[1], words)
    }

    /// The same to start a program in the server's place.
    pub(crate) fn words_of_server(&self, words: &[String]) -> Vec<String> {
        let enter = ["nsenter".to_string(), format!("--net={}", self.servers.path())];
        [&enter[..], &self.pinned(self.cores[0], words)].concat()
    }
}

impl Lab for VethLab<'_> {
    fn stack(&self) -> Stack {
        Stack::Linux
    }

    fn address(&self) -> Ipv4Addr {
        SERVER
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        let mut server = self.start(&self.servers, self.cores[0], words, format!("server-{port}.log"))?;
        self.tools.stop.until("the server to listen", TIMEOUT, || server.listens(port))?;
        Ok(server)
    }

    fn client_of(&self, _place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        self.start(&self.clients, self.cores[1], words, format!("client{number}.log"))
    }

    fn stack_process(&self) -> Option<&Process> {
        None
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Gives a namespace's clients more ports. Where its settings may not be changed, some 28,000 connections are the most.
pub(super) fn widen_ports(netns: &Netns) {
    let (first, last) = CLIENT_PORTS;
    let _ = netns.run(|| std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", format!("{first} {last}")));
}

/// Runs one of the system's programs in a namespace.
pub(super) fn run(netns: &Netns, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    netns.start_inside(&mut command)?;
    let output = command.output().map_err(|e| format!("cannot run {}: {e} (tests/setup installs it)", words[0]))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
