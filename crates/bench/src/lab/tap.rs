//! A daemon whose host is joined to the kernel by a TAP device: servers on OpenTOE, clients on the kernel's TCP.
use super::daemon::{DAEMON_CORE, Daemon, PROGRAM_CORE};
use super::fabric::{FabricPlan, host_keys};
use super::{Lab, Stack, veth};
use crate::process::Process;
use crate::tools::Tools;
use port::Netns;
use std::net::Ipv4Addr;
use std::path::Path;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const DEVICE: &str = "toe0";

/// A running daemon, the namespace of the clients and the TAP device, and that of the servers, which is empty: what
/// they do on the kernel's TCP by mistake fails.
pub struct TapLab<'a> {
    tools: &'a Tools,
    clients: Netns,
    servers: Netns,
    daemon: Daemon<'a>,
}

impl<'a> TapLab<'a> {
    /// Starts the daemon; it makes the device.
    pub fn new(tools: &'a Tools, plan: &FabricPlan) -> Result<TapLab<'a>, String> {
        let (clients, servers) = (Netns::create()?, Netns::create()?);
        veth::widen_ports(&clients);
        let daemon = Daemon::start(tools, &clients, &configuration(plan))?;
        let network = ["ip", "route", "replace", "10.77.0.0/16", "dev", DEVICE, "src", "10.77.0.1", "congctl", "cubic"];
        veth::run(&clients, &network)?;
        // The default of 500 frames is soon full, and what finds no room is lost without a word.
        veth::run(&clients, &["ip", "link", "set", DEVICE, "txqueuelen", "10000"])?;
        Ok(TapLab { tools, clients, servers, daemon })
    }
}

impl Lab for TapLab<'_> {
    fn stack(&self) -> Stack {
        Stack::Opentoe
    }

    fn address(&self) -> Ipv4Addr {
        SERVER
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        let mut server = self.daemon.run(&self.servers, "server", words, format!("server-{port}.log"))?;
        self.daemon.wait_for_listener(&mut server, port)?;
        Ok(server)
    }

    fn client_of(&self, _place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        let mut all = self.tools.pinned(PROGRAM_CORE);
        all.extend_from_slice(words);
        Process::start(&self.clients, &all, self.daemon.directory().join(format!("client{number}.log")))
    }

    fn stack_process(&self) -> Option<&Process> {
        Some(self.daemon.process())
    }

    fn directory(&self) -> &Path {
        self.daemon.directory()
    }
}

fn configuration(plan: &FabricPlan) -> String {
    format!(
        "log = \"warn\"\n[[thread]]\ncore = {DAEMON_CORE}\n[[host]]\nname = \"server\"\naddress = \"{SERVER}\"\n{}\
         port = {{ kind = \"tap\", device = \"{DEVICE}\", kernel_address = \"{CLIENT}/16\" }}\n",
        host_keys(plan, plan.engine)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let plan = FabricPlan { engine: "laminar", slots: 1 << 15, ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan), "test").unwrap();
        assert_eq!(config.hosts[0].engine.name(), "laminar");
        assert_eq!(config.hosts[0].stack.memory.slots, 1 << 15);
    }
}
