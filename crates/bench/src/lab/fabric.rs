//! A daemon with a fabric of its own: the server's host and one host for each client.
use super::daemon::{DAEMON_CORE, Daemon, PROGRAM_CORE};
use super::{CLIENT_PORTS, Lab, Stack};
use crate::process::Process;
use crate::tools::Tools;
use ::daemon::config::Mapping;
use ::daemon::protocol::Question;
use port::{FabricConfig, Netns};
use serde_json::Value;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use tcp::congestion::{CongestionName, NONE};

/// FlexTOE as published: no SACK, so go-back-N; one interval; each segment acknowledged (sections 3.1.3 and 5.2).
pub(crate) const PUBLISHED: &str = "flextoe-published";

/// Plan of the network and the hosts.
#[derive(Debug, Clone)]
pub struct FabricPlan {
    /// Impairments and limits of each link.
    pub network: FabricConfig,
    /// Hosts for clients: programs on different hosts share nothing but the switch.
    pub clients: usize,
    /// Congestion control of all hosts, as the configuration names it; the product's own choice by default.
    pub congestion: Option<&'static str>,
    /// Bytes of each connection's receive buffer, and of its transmit buffer.
    pub buffer: u32,
    /// The engine of all hosts.
    pub engine: &'static str,
    /// That of the hosts for clients, where it is another one.
    pub client_engine: Option<&'static str>,
    /// Bytes that each program can have for a shared log.
    pub log_bytes: u32,
    /// Connections that one program can hold.
    pub slots: u32,
    /// A host with a data-path thread to itself, so that its work can be separated from the others', whose thread
    /// shares the programs' core then.
    pub alone: Option<&'static str>,
    /// Every host has a data-path thread of its own, and neither threads nor programs are bound to a core. The server's
    /// host divides its engine's modules so.
    pub spread: Option<Mapping>,
    /// Hosts have RDMA, with this way to make up for losses (`rdma_recovery`).
    pub rdma: Option<&'static str>,
    /// Paths that their packets take in turn (`rdma_paths`).
    pub rdma_paths: u16,
    /// How payload comes into their frames (`rdma_payload`).
    pub rdma_payload: &'static str,
    /// How queue pairs answer congestion (`rdma_congestion`), where hosts have RDMA.
    pub rdma_congestion: &'static str,
    /// The server serves the file `v` of this directory as a volume over Solar, and the first client's host uses it by
    /// the socket `v.sock` there.
    pub volume: Option<PathBuf>,
    /// Both ends of the volume copy payload to a buffer in between (`staged`).
    pub volume_staged: bool,
    /// Two ZeroNIC hosts, a receiver's and a sender's, which share the addresses of the server and the first
    /// client; with what decides on headers (`transport`).
    pub zeronic: Option<&'static str>,
}

impl Default for FabricPlan {
    /// The product as it is, two hosts, and a perfect network.
    fn default() -> FabricPlan {
        let network = FabricConfig::default();
        let (congestion, buffer, engine, slots) = (None, 256 << 10, "flextoe", 4096);
        let (clients, client_engine, log_bytes, alone, rdma, volume, zeronic) = (1, None, 0, None, None, None, None);
        let spread = None;
        FabricPlan {
            network,
            clients,
            congestion,
            buffer,
            engine,
            client_engine,
            log_bytes,
            slots,
            alone,
            spread,
            rdma,
            rdma_paths: 1,
            rdma_payload: "auto",
            rdma_congestion: NONE.name,
            volume,
            volume_staged: false,
            zeronic,
        }
    }
}

/// The congestion control of this name; `off` is another name for none.
pub(crate) fn congestion(name: &str) -> Result<&'static str, String> {
    let wanted = if name == OFF { NONE.name } else { name };
    CongestionName::named(wanted).map(|name| name.name).map_err(|error| format!("{error}; {OFF} is none"))
}

/// How the papers' experiments call a transport without congestion control.
const OFF: &str = "off";

/// Help for an option that takes one, or several.
pub(crate) fn congestion_help(what: &str) -> String {
    format!("{what}: {}, {OFF}", CongestionName::list())
}

/// A running daemon and the namespace of programs.
pub(crate) struct FabricLab<'a> {
    netns: Netns,
    daemon: Daemon<'a>,
}

impl<'a> FabricLab<'a> {
    /// Starts the daemon.
    pub(crate) fn new(tools: &'a Tools, plan: &FabricPlan) -> Result<FabricLab<'a>, String> {
        let netns = Netns::create()?;
        let daemon = Daemon::start(tools, &netns, &configuration(plan)?)?;
        let lab = FabricLab { netns, daemon };
        Ok(if plan.spread.is_some() { lab.with_programs_anywhere() } else { lab })
    }

    /// The same, whose programs are not bound to a core.
    pub(crate) fn with_programs_anywhere(self) -> FabricLab<'a> {
        FabricLab { daemon: self.daemon.with_programs_anywhere(), ..self }
    }

    /// The daemon.
    pub(crate) fn daemon(&self) -> &Daemon<'a> {
        &self.daemon
    }

    /// What the daemon counts.
    pub(crate) fn stats(&self) -> Result<Value, String> {
        self.daemon.ask(&Question::Stats { host: None, flow: None })
    }

    /// Where clients are that have this place.
    pub(crate) fn client_address(&self, place: usize) -> Ipv4Addr {
        address(1 + place)
    }

    /// Starts a program beside the daemon, on the clients' core.
    pub(crate) fn plain(&self, words: &[String]) -> Result<Process, String> {
        self.daemon.run_on_kernel(&self.netns, words, "plain.log")
    }

    /// The words that start a program on a host, for a program that starts others itself.
    pub(crate) fn words_on(&self, host: &str, words: &[String]) -> Vec<String> {
        self.daemon.words_on(host, words)
    }

    /// Starts a program on the server's host.
    pub(crate) fn on_server(&self, words: &[String]) -> Result<Process, String> {
        self.daemon.run(&self.netns, "server", words, "server.log".into())
    }

    /// Starts a program in a place of clients and waits until it listens on the port.
    pub(crate) fn proxy(&self, place: usize, words: &[String], port: u16) -> Result<Process, String> {
        let mut proxy = self.daemon.run(&self.netns, &format!("client{place}"), words, "proxy.log".into())?;
        self.daemon.wait_for_listener(&mut proxy, 1 + place, port)?;
        Ok(proxy)
    }

    /// Frames dropped on their way to the server, by reason.
    pub(crate) fn server_drops(&self) -> Result<u64, String> {
        let stats = self.stats()?;
        let members = stats["fabrics"]["net"]["members"].as_array().cloned().unwrap_or_default();
        let server = members.iter().find(|member| member["name"].as_str().is_some_and(|name| name.ends_with("server")));
        let drops = server.and_then(|member| member["drops"].as_array().cloned());
        let drops = drops.ok_or("the daemon does not report what was dropped on the way to the server")?;
        Ok(drops.iter().filter_map(|pair| pair[1].as_u64()).sum())
    }
}

impl Lab for FabricLab<'_> {
    fn stack(&self) -> Stack {
        Stack::Opentoe
    }

    fn address(&self) -> Ipv4Addr {
        address(0)
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        let mut server = self.daemon.run(&self.netns, "server", words, format!("server-{port}.log"))?;
        self.daemon.wait_for_listener(&mut server, 0, port)?;
        Ok(server)
    }

    fn client_of(&self, place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        self.daemon.run(&self.netns, &format!("client{place}"), words, format!("client{number}.log"))
    }

    fn stack_process(&self) -> Option<&Process> {
        Some(self.daemon.process())
    }

    fn directory(&self) -> &Path {
        self.daemon.directory()
    }
}

/// What the ZeroNIC hosts of a plan are called: the receiver's, the sender's.
pub(crate) const ZERONIC: [&str; 2] = ["receiver", "sender"];

/// Host 0 is the server's.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + host as u32)
}

fn configuration(plan: &FabricPlan) -> Result<String, String> {
    let network =
        toml::to_string(&plan.network).map_err(|e| format!("cannot write the fabric's configuration: {e}"))?;
    let mut content = format!("log = \"warn\"\n{}[[fabric]]\nname = \"net\"\n{network}", threads(plan));
    for host in 0..=plan.clients {
        let name = if host == 0 { "server".into() } else { format!("client{}", host - 1) };
        let engine = plan.client_engine.filter(|_| host > 0).unwrap_or(plan.engine);
        // Writing to a string does not fail.
        let _ = write!(
            content,
            "[[host]]\nname = \"{name}\"\naddress = \"{}\"\n{}",
            address(host),
            host_keys(plan, engine)
        );
        let thread = match &plan.spread {
            Some(_) => host,
            None => usize::from(plan.alone.is_some_and(|alone| alone != name)),
        };
        let _ = writeln!(content, "thread = {thread}");
        if let Some(mapping) = plan.spread.as_ref().filter(|_| host == 0) {
            let mapping =
                toml::to_string(mapping).map_err(|e| format!("cannot write the server's configuration: {e}"))?;
            let _ = writeln!(content, "mapping = {{ {} }}", mapping.trim_end().replace('\n', ", "));
        }
    }
    for (name, host) in ZERONIC.into_iter().zip(["server", "client0"]) {
        if let Some(transport) = plan.zeronic {
            let section = format!("name = \"{name}\"\nhost = \"{host}\"\ntransport = \"{transport}\"");
            let _ = writeln!(content, "[[zeronic]]\n{section}");
        }
    }
    if let Some(directory) = &plan.volume {
        let [file, socket] = ["v", "v.sock"].map(|name| directory.join(name));
        let staged = if plan.volume_staged { "staged = true\n" } else { "" };
        let served = format!("[[volume]]\nname = \"v\"\nhost = \"server\"\nfile = {file:?}\n{staged}");
        let used = format!(
            "[[block]]\nvolume = \"v\"\nhost = \"client0\"\nserver = \"{}\"\nsocket = {socket:?}\n{staged}",
            address(0)
        );
        content += &(served + &used);
    }
    Ok(content)
}

/// One data-path thread, two, or one for each host. A thread that yields gives way to its own process only where the
/// kernel groups processes by session. So the one on the programs' core sleeps at once where it has no work.
fn threads(plan: &FabricPlan) -> String {
    if plan.spread.is_some() {
        return "[[thread]]\n".repeat(1 + plan.clients);
    }
    let first = format!("[[thread]]\ncore = {DAEMON_CORE}\n");
    if plan.alone.is_some() {
        format!("polling = {{ spin_us = 0, yield_us = 0 }}\n{first}[[thread]]\ncore = {PROGRAM_CORE}\n")
    } else {
        first
    }
}

/// What all hosts of a plan have in common, with this engine.
pub(super) fn host_keys(plan: &FabricPlan, engine: &str) -> String {
    let congestion = plan.congestion.map(|name| format!("congestion = \"{name}\"\n")).unwrap_or_default();
    let rdma = plan.rdma.map(|recovery| {
        let (congestion, paths, payload) = (plan.rdma_congestion, plan.rdma_paths, plan.rdma_payload);
        let loss = format!("rdma_recovery = \"{recovery}\"\nrdma_paths = {paths}\n");
        format!("rdma = \"own\"\n{loss}rdma_payload = \"{payload}\"\nrdma_congestion = \"{congestion}\"\n")
    });
    let rdma = rdma.unwrap_or_default();
    let (engine, tcp) = match engine {
        PUBLISHED => ("flextoe", "tcp = { sack = false, delayed_acks = false, intervals = 1 }\n"),
        other => (other, ""),
    };
    format!(
        "prefix_len = 16\nengine = \"{engine}\"\necn = {}\n{tcp}{congestion}{rdma}ephemeral_first = {}\nephemeral_last = {}\n\
         memory = {{ rx_bytes = {}, tx_bytes = {}, slots = {}, log_bytes = {} }}\n",
        plan.congestion == Some("dctcp"),
        CLIENT_PORTS.0,
        // Later ones are those of a ZeroNIC host that shares the address.
        if plan.zeronic.is_some() { 60_999 } else { CLIENT_PORTS.1 },
        plan.buffer,
        plan.buffer,
        plan.slots,
        if engine == "laminar" { plan.log_bytes } else { 0 },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let network = FabricConfig { rate_bps: 1_000_000_000, loss: 1e-6, ..FabricConfig::default() };
        let (network_, congestion) = (network.clone(), Some("dctcp"));
        let plan = FabricPlan { network: network_, clients: 300, congestion, buffer: 1 << 16, ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        assert_eq!(config.hosts.len(), 301);
        assert_eq!(config.hosts[300].stack.address, Ipv4Addr::new(10, 77, 1, 45));
        assert_eq!(config.fabrics[0].config, network);
        assert!(config.hosts[0].stack.ecn);
    }

    #[test]
    fn one_engine_is_flextoe_as_published() {
        let plan = FabricPlan { client_engine: Some(PUBLISHED), ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        let tcp = config.hosts.iter().map(|host| host.tcp).collect::<Vec<_>>();
        assert!(tcp[0].sack && tcp[0].delayed_acks && !tcp[1].sack && !tcp[1].delayed_acks);
        assert_eq!((tcp[0].intervals, tcp[1].intervals, tcp[1].timestamps), (32, 1, true));
        assert!(config.hosts.iter().all(|host| host.engine.name() == "flextoe"));
    }

    #[test]
    fn zeronic_hosts_share_the_addresses_of_the_others() {
        let plan = FabricPlan { zeronic: Some("laminar"), ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        assert_eq!([0, 1].map(|at| &*config.zeronics[at].name), ZERONIC);
        assert_eq!([0, 1].map(|at| config.zeronics[at].address), [0, 1].map(address));
    }

    #[test]
    fn a_volume_is_served_and_used() {
        let network = FabricConfig { mtu: 9000, ..FabricConfig::default() };
        let plan = FabricPlan { network, volume: Some("/tmp/x".into()), ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        assert_eq!((&*config.volumes[0].host, &*config.blocks[0].host), ("server", "client0"));
        assert_eq!(config.blocks[0].server, address(0));
    }

    #[test]
    fn a_host_alone_has_the_first_thread() {
        let plan = FabricPlan { clients: 2, alone: Some("client1"), ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        let threads: Vec<usize> = config.hosts.iter().map(|host| host.thread).collect();
        assert_eq!(threads, [1, 1, 0]);
    }

    #[test]
    fn hosts_that_are_spread_have_a_thread_each() {
        let mapping = Mapping { threads: true, flow_groups: 4, ..Mapping::default() };
        let plan = FabricPlan { clients: 3, spread: Some(mapping.clone()), ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        let threads: Vec<usize> = config.hosts.iter().map(|host| host.thread).collect();
        assert_eq!((threads, config.service.thread.len()), (vec![0, 1, 2, 3], 4));
        assert_eq!((&config.hosts[0].mapping, &config.hosts[1].mapping), (&mapping, &Mapping::default()));
    }

    #[test]
    fn congestion_controls_are_known_by_name() {
        use tcp::congestion::KINDS;
        assert_eq!(congestion("off"), Ok("none"));
        for kind in KINDS {
            assert_eq!(congestion(kind.name), Ok(kind.name));
            assert!(congestion("reno2").unwrap_err().contains(kind.name) && congestion_help("x").contains(kind.name));
        }
    }
}
