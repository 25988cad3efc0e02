//! Loopback lab: one network namespace, and programs that meet on 127.0.0.1. On OpenTOE all on one host, on Linux over
//! the kernel's loopback device, at a UNIX socket, or through a sockmap.
use super::daemon::{DAEMON_CORE, Daemon, PROGRAM_CORE};
use super::fabric::{FabricPlan, host_keys};
use super::sockmap::Sockmap;
use super::{Lab, Stack, TIMEOUT, veth};
use crate::directory::Directory;
use crate::process::Process;
use crate::tools::Tools;
use ::daemon::protocol::Question;
use port::{Interface, Netns};
use std::net::Ipv4Addr;
use std::path::Path;

const NAME: &str = "here";

/// The namespace, and on OpenTOE the daemon.
pub(crate) struct LoopbackLab<'a> {
    tools: &'a Tools,
    netns: Netns,
    daemon: Option<Daemon<'a>>,
    directory: Directory,
    locally: Locally,
    sockmap: Option<Sockmap>,
}

/// Meeting of programs of one machine on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locally {
    /// TCP over 127.0.0.1.
    Tcp,
    /// At UNIX sockets in the lab's directory.
    Unix,
    /// TCP over 127.0.0.1 whose messages a sockmap redirects.
    Sockmap,
}

impl<'a> LoopbackLab<'a> {
    /// Starts the daemon. The kernel's loopback stays down: what passes does so over OpenTOE.
    pub(crate) fn on_opentoe(tools: &'a Tools, plan: &FabricPlan) -> Result<LoopbackLab<'a>, String> {
        let netns = Netns::create()?;
        veth::widen_ports(&netns);
        let daemon = Some(Daemon::start(tools, &netns, &configuration(plan))?);
        Ok(LoopbackLab {
            tools,
            netns,
            daemon,
            directory: Directory::new("bench")?,
            locally: Locally::Tcp,
            sockmap: None,
        })
    }

    /// On the kernel.
    pub(crate) fn on_linux(tools: &'a Tools, locally: Locally) -> Result<LoopbackLab<'a>, String> {
        let netns = Netns::create()?;
        veth::widen_ports(&netns);
        netns.run(|| Interface::named("lo")?.set_up())??;
        let sockmap = if locally == Locally::Sockmap { Some(Sockmap::new(tools)?) } else { None };
        Ok(LoopbackLab { tools, netns, daemon: None, directory: Directory::new("bench")?, locally, sockmap })
    }

    /// Starts a program; on Linux it has this core.
    fn start(&self, words: &[String], core: usize, log: String) -> Result<Process, String> {
        match &self.daemon {
            Some(daemon) => daemon.run(&self.netns, NAME, words, log),
            None => {
                let joining = self.sockmap.as_ref().map(Sockmap::joining).unwrap_or_default();
                let all = [&joining[..], &self.tools.pinned(core), words].concat();
                Process::start(&self.netns, &all, self.directory.path().join(log))
            }
        }
    }
}

impl Lab for LoopbackLab<'_> {
    fn stack(&self) -> Stack {
        if self.daemon.is_some() { Stack::Opentoe } else { Stack::Linux }
    }

    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }

    fn server(&self, words: &[String], port: u16) -> Result<Process, String> {
        // The kernel's work is done in the programs' own time, so each side has a core there.
        let mut server = self.start(words, DAEMON_CORE, format!("server-{port}.log"))?;
        self.tools.stop.until("the server to listen", TIMEOUT, || {
            if self.locally == Locally::Unix {
                server.alive()?;
                return Ok(self.directory.path().join(port.to_string()).exists());
            }
            let Some(daemon) = &self.daemon else { return server.listens(port) };
            server.alive()?;
            let answer = daemon.ask(&Question::Ls)?;
            let listeners = answer["hosts"][0]["listeners"].as_array().cloned().unwrap_or_default();
            Ok(listeners.iter().any(|listener| listener["port"] == port && listener["loopback"] == true))
        })?;
        Ok(server)
    }

    fn client_of(&self, _place: usize, number: usize, words: &[String]) -> Result<Process, String> {
        self.start(words, PROGRAM_CORE, format!("client{number}.log"))
    }

    fn meeting(&self) -> Vec<String> {
        if self.locally == Locally::Unix { vec!["-u".into(), super::text(self.directory.path())] } else { Vec::new() }
    }

    fn stack_process(&self) -> Option<&Process> {
        self.daemon.as_ref().map(Daemon::process)
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn configuration(plan: &FabricPlan) -> String {
    format!(
        "log = \"warn\"\n[[thread]]\ncore = {DAEMON_CORE}\n[[fabric]]\nname = \"net\"\n[[host]]\nname = \"{NAME}\"\n\
         address = \"10.77.0.2\"\n{}",
        host_keys(plan, plan.engine)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_a_configuration() {
        let plan = FabricPlan { engine: "laminar", ..FabricPlan::default() };
        let config = ::daemon::config::parse(&configuration(&plan), "test").unwrap();
        assert_eq!((&*config.hosts[0].stack.name, config.hosts[0].engine.name()), (NAME, "laminar"));
    }
}
