//! A daemon whose host is joined to the kernel by a TAP device: one end on OpenTOE, the other on the kernel's TCP.
use super::daemon::{DAEMON_CORE, Daemon};
use super::fabric::{FabricPlan, host_keys};
use super::{Lab, Stack, TIMEOUT, veth};
use crate::process::Process;
use crate::tools::Tools;
use port::Netns;
use std::net::Ipv4Addr;
use std::path::Path;

const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const NAME: &str = "near";
const DEVICE: &str = "toe0";

/// Which programs are on OpenTOE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapEnd {
    /// Servers.
    Server,
    /// Clients.
    Client,
}

/// A running daemon, the namespace of the kernel's end and the TAP device, and that of programs on OpenTOE. The latter
/// is empty: what programs do there on the kernel's TCP by mistake fails.
pub(crate) struct TapLab<'a> {
    tools: &'a Tools,
    on_toe: TapEnd,
    kernel: Netns,
    empty: Netns,
    daemon: Daemon<'a>,
}

impl<'a> TapLab<'a> {
    /// Starts the daemon; it makes the device.
    pub(crate) fn new(tools: &'a Tools, plan: &FabricPlan, on_toe: TapEnd) -> Result<TapLab<'a>, String> {
        let (kernel, empty) = (Netns::create()?, Netns::create()?);
        veth::widen_ports(&kernel);
        let daemon = Daemon::start(tools, &kernel, &configuration(plan))?;
        prepare(&kernel, DEVICE, ["10.77.0.0/16", &KERNEL.to_string()], "cubic")?;
        Ok(TapLab { tools, on_toe, kernel, empty, daemon })
    }

    fn on_kernel(&self, words: &[String], log: &str) -> Result<Process, String> {
        self.daemon.run_on_kernel(&self.kernel, words, log)
    }
}

impl Lab for TapLab<'_> {
    fn stack(&self) -> Stack {
        Stack::Opentoe
    }

    fn address(&self) -> Ipv4Addr {
        if self.on_toe == TapEnd::Server { HOST } else { KERNEL }
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        let log = format!("server-{port}.log");
        if self.on_toe == TapEnd::Client {
            let mut server = self.on_kernel(words, &log)?;
            self.tools.stop.until("the server to listen", TIMEOUT, || server.listens(port))?;
            return Ok(server);
        }
        let mut server = self.daemon.run(&self.empty, NAME, words, log)?;
        self.daemon.wait_for_listener(&mut server, 0, port)?;
        Ok(server)
    }

    fn client_of(&self, _place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        let log = format!("client{number}.log");
        match self.on_toe {
            TapEnd::Server => self.on_kernel(words, &log),
            TapEnd::Client => self.daemon.run(&self.empty, NAME, words, log),
        }
    }

    fn stack_process(&self) -> Option<&Process> {
        Some(self.daemon.process())
    }

    fn directory(&self) -> &Path {
        self.daemon.directory()
    }
}

/// Makes the kernel's end of a TAP device ready: the congestion control of what it sends to `network` from `source`,
/// and a queue for the daemon to empty.
pub(super) fn prepare(
    netns: &Netns,
    device: &str,
    [network, source]: [&str; 2],
    congestion: &str,
) -> Result<(), String> {
    let route = ["ip", "route", "replace", network, "dev", device, "src", source, "congctl", congestion];
    veth::run(netns, &route)?;
    // The default of 500 frames is soon full, and what finds no room is lost without a word.
    veth::run(netns, &["ip", "link", "set", device, "txqueuelen", "10000"])
}

fn configuration(plan: &FabricPlan) -> String {
    format!(
        "log = \"warn\"\n[[thread]]\ncore = {DAEMON_CORE}\n[[host]]\nname = \"{NAME}\"\naddress = \"{HOST}\"\n{}\
         port = {{ kind = \"tap\", device = \"{DEVICE}\", kernel_address = \"{KERNEL}/16\" }}\n",
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
