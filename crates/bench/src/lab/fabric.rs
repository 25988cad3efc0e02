//! A daemon with a fabric of its own: the server's host and one host for each client.
use super::{Lab, PATIENCE, Stack, text};
use crate::directory::Directory;
use crate::process::Process;
use crate::session;
use crate::tools::Tools;
use daemon::client;
use daemon::protocol::Question;
use port::{FabricConfig, Netns};
use serde_json::Value;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Core of the daemon's data-path thread; programs share the other one.
const DAEMON_CORE: usize = 0;
const PROGRAM_CORE: usize = 1;

/// What the network and the hosts are to be.
#[derive(Debug, Clone)]
pub struct FabricPlan {
    /// Impairments and limits of each link.
    pub network: FabricConfig,
    /// Hosts for clients: programs on different hosts share nothing but the switch.
    pub clients: usize,
    /// Congestion control of all hosts, as the configuration names it.
    pub congestion: &'static str,
    /// Bytes of each connection's receive buffer, and of its transmit buffer.
    pub buffer: u32,
}

/// The congestion control of this name.
pub fn congestion(name: &str) -> Result<&'static str, String> {
    let all = ["dctcp", "timely", "cubic", "none"];
    let wanted = if name == "off" { "none" } else { name };
    all.into_iter()
        .find(|known| *known == wanted)
        .ok_or_else(|| format!("there is no congestion control `{name}`; there are dctcp, timely, cubic, and off"))
}

/// A running daemon.
pub struct FabricLab<'a> {
    tools: &'a Tools,
    netns: Netns,
    directory: Directory,
    daemon: Process,
}

impl<'a> FabricLab<'a> {
    /// Starts the daemon.
    pub fn new(tools: &'a Tools, plan: &FabricPlan) -> Result<FabricLab<'a>, String> {
        let netns = Netns::create()?;
        let directory = Directory::new("bench")?;
        let [config, socket] = ["toed.toml", "toed.sock"].map(|name| directory.path().join(name));
        std::fs::write(&config, configuration(plan)?).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
        let mut words = tools.pinned(DAEMON_CORE);
        let own = directory.path().join("daemon");
        let owner = std::process::id().to_string();
        words.extend([&tools.toe, "private-daemon"].map(String::from));
        let options = [("--directory", text(&own)), ("--config", text(&config)), ("--socket", text(&socket))];
        words.extend(options.into_iter().chain([("--owner", owner)]).flat_map(|(key, value)| [key.into(), value]));
        let mut daemon = Process::start(&netns, &words, directory.path().join("toed.log"))?;
        tools.stop.until("the daemon", PATIENCE, || {
            daemon.alive()?;
            Ok(client::is_running(&socket))
        })?;
        session::favour(daemon.pid());
        Ok(FabricLab { tools, netns, directory, daemon })
    }

    /// What the daemon counts.
    pub fn stats(&self) -> Result<Value, String> {
        self.ask(&Question::Stats { host: None, flow: None })
    }

    /// Frames dropped on their way to the server, by reason.
    pub fn server_drops(&self) -> Result<u64, String> {
        let stats = self.stats()?;
        let members = stats["fabrics"]["net"]["members"].as_array().cloned().unwrap_or_default();
        let server = members.iter().find(|member| member["name"].as_str().is_some_and(|name| name.ends_with("server")));
        let drops = server.and_then(|member| member["drops"].as_array().cloned());
        let drops = drops.ok_or("the daemon does not say what was dropped on the way to the server")?;
        Ok(drops.iter().filter_map(|pair| pair[1].as_u64()).sum())
    }

    fn ask(&self, question: &Question) -> Result<Value, String> {
        client::ask(&self.directory.path().join("toed.sock"), question)
    }

    fn start(&self, host: &str, words: &[String], log: String) -> Result<Process, String> {
        let (socket, library) = (text(&self.directory.path().join("toed.sock")), text(&self.tools.library));
        let mut all = self.tools.pinned(PROGRAM_CORE);
        let run = [&self.tools.toe, "run", "--quiet", "--socket", &socket, "--lib", &library, "--host", host, "--"];
        all.extend(run.map(String::from));
        all.extend_from_slice(words);
        Process::start(&self.netns, &all, self.directory.path().join(log))
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
        let mut server = self.start("server", words, format!("server-{port}.log"))?;
        self.tools.stop.until("the server to listen", PATIENCE, || {
            server.alive()?;
            let answer = self.ask(&Question::Ls)?;
            let listeners = answer["hosts"][0]["listeners"].as_array().cloned().unwrap_or_default();
            Ok(listeners.iter().any(|listener| listener["port"] == port))
        })?;
        Ok(server)
    }

    fn client(&self, number: usize, words: &[String]) -> Result<Process, String> {
        self.start(&format!("client{number}"), words, format!("client{number}.log"))
    }

    fn stack_cpu_s(&self) -> Option<f64> {
        Some(self.daemon.cpu_s())
    }
}

/// Host 0 is the server's.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 1)) + host as u32)
}

fn configuration(plan: &FabricPlan) -> Result<String, String> {
    let network =
        toml::to_string(&plan.network).map_err(|e| format!("cannot write the fabric's configuration: {e}"))?;
    let mut content =
        format!("log = \"warn\"\n[[thread]]\ncore = {DAEMON_CORE}\n[[fabric]]\nname = \"net\"\n{network}");
    for host in 0..=plan.clients {
        let name = if host == 0 { "server".into() } else { format!("client{}", host - 1) };
        // Writing to a string does not fail.
        let _ = write!(
            content,
            "[[host]]\nname = \"{name}\"\naddress = \"{}\"\nprefix_len = 16\necn = {}\ncongestion = \"{}\"\n\
             memory = {{ rx_bytes = {}, tx_bytes = {} }}\n",
            address(host),
            plan.congestion == "dctcp",
            plan.congestion,
            plan.buffer,
            plan.buffer,
        );
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let network = FabricConfig { rate_bps: 1_000_000_000, loss: 1e-6, ..FabricConfig::default() };
        let plan = FabricPlan { network: network.clone(), clients: 300, congestion: "dctcp", buffer: 1 << 16 };
        let config = daemon::config::parse(&configuration(&plan).unwrap(), "test").unwrap();
        assert_eq!(config.hosts.len(), 301);
        assert_eq!(config.hosts[300].stack.address, Ipv4Addr::new(10, 77, 1, 45));
        assert_eq!(config.fabrics[0].config, network);
        assert!(config.hosts[0].stack.ecn);
    }

    #[test]
    fn congestion_controls_are_known_by_name() {
        assert_eq!(congestion("off"), Ok("none"));
        assert_eq!(congestion("dctcp"), Ok("dctcp"));
        assert!(congestion("reno").unwrap_err().contains("timely"));
    }
}
