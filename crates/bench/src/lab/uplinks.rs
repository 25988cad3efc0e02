//! Two network namespaces of the kernel, joined by a daemon's emulated network through TAP uplinks. The kernel's TCP is
//! at both ends, on the path that hosts of OpenTOE would have there.
use super::daemon::{DAEMON_CORE, Daemon};
use super::{Lab, Stack, TIMEOUT, tap};
use crate::process::Process;
use crate::tools::Tools;
use port::{FabricConfig, Netns};
use std::net::Ipv4Addr;
use std::path::Path;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
/// The daemon asks for one host of its own. Nothing runs there.
const IDLE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 3);
const DEVICE: &str = "wan0";

/// A running daemon and both namespaces.
pub(crate) struct UplinkLab<'a> {
    tools: &'a Tools,
    clients: Netns,
    servers: Netns,
    daemon: Daemon<'a>,
}

impl<'a> UplinkLab<'a> {
    /// Starts the daemon, which makes a device in each namespace, and chooses the kernel's congestion control.
    pub(crate) fn new(tools: &'a Tools, network: &FabricConfig, congestion: &str) -> Result<UplinkLab<'a>, String> {
        let (clients, servers, daemons) = (Netns::create()?, Netns::create()?, Netns::create()?);
        let places = [(&clients, CLIENT), (&servers, SERVER)];
        let paths = [clients.path(), servers.path()];
        let daemon = Daemon::start(tools, &daemons, &configuration(network, &paths)?)?;
        for (netns, address) in places {
            tap::prepare(netns, DEVICE, ["10.79.0.0/24", &address.to_string()], congestion)?;
        }
        Ok(UplinkLab { tools, clients, servers, daemon })
    }
}

impl Lab for UplinkLab<'_> {
    fn stack(&self) -> Stack {
        Stack::Linux
    }

    fn address(&self) -> Ipv4Addr {
        SERVER
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        let mut server = self.daemon.run_on_kernel(&self.servers, words, &format!("server-{port}.log"))?;
        self.tools.stop.until("the server to listen", TIMEOUT, || server.listens(port))?;
        Ok(server)
    }

    fn client_of(&self, _place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        self.daemon.run_on_kernel(&self.clients, words, &format!("client{number}.log"))
    }

    fn stack_process(&self) -> Option<&Process> {
        None
    }

    fn directory(&self) -> &Path {
        self.daemon.directory()
    }
}

fn configuration(network: &FabricConfig, places: &[String; 2]) -> Result<String, String> {
    let network = toml::to_string(network).map_err(|e| format!("cannot write the fabric's configuration: {e}"))?;
    let uplink = |(netns, address): (&String, Ipv4Addr)| {
        format!(
            "[[fabric.uplink]]\nkind = \"tap\"\ndevice = \"{DEVICE}\"\nnetns = \"{netns}\"\nkernel_address = \"{address}/24\"\n"
        )
    };
    let uplinks: String = places.iter().zip([CLIENT, SERVER]).map(uplink).collect();
    Ok(format!(
        "log = \"warn\"\n[[thread]]\ncore = {DAEMON_CORE}\n[[fabric]]\nname = \"net\"\n{network}{uplinks}\
         [[host]]\nname = \"idle\"\naddress = \"{IDLE}\"\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let network = FabricConfig { delay_ns: 25_000_000, ..FabricConfig::default() };
        let text = configuration(&network, &["/proc/1/fd/3".into(), "/proc/1/fd/4".into()]).unwrap();
        let config = ::daemon::config::parse(&text, "test").unwrap();
        assert_eq!((config.fabrics[0].config.delay_ns, config.fabrics[0].uplinks.len()), (25_000_000, 2));
    }
}
