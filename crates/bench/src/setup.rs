//! Set-ups that are compared: a stack with its engine and port, or Linux with its options.
use crate::arguments::{list, listed, stack};
use crate::lab::{
    FabricLab, FabricPlan, Lab, Locally, LoopbackLab, PUBLISHED, Stack, TapEnd, TapLab, VethLab, VethPlan,
};
use crate::tools::Tools;
use clap::Args;
use daemon::config::EngineKind;
use std::process::Command;

/// Which set-ups are measured, in turn.
#[derive(Args, Debug, Clone)]
pub struct Stacks {
    /// Stacks: opentoe, linux
    #[arg(long, value_name = "STACK,...", default_value = "opentoe,linux", value_parser = listed(stack))]
    pub stack: String,
    /// Engines of OpenTOE: flextoe, laminar, zeronic, zeronic-laminar, flextoe-published
    #[arg(long, value_name = "ENGINE,...", default_value = "flextoe", value_parser = listed(engine))]
    pub engine: String,
    /// Ports of OpenTOE: fabric (both ends on OpenTOE), loopback (both on one host, over 127.0.0.1), tap (the server on
    /// OpenTOE, its clients on Linux), tap-client (the other way round)
    #[arg(long, value_name = "PORT,...", default_value = "fabric", value_parser = listed(port))]
    pub port: String,
    /// Ways of Linux: cubic, bbr, polling (programs that never sleep), one-core (both programs on one core), all over
    /// veth; loopback, sockmap (loopback short-circuited by eBPF), unix (a UNIX socket; echo only)
    #[arg(long, value_name = "WAY,...", default_value = "cubic", value_parser = listed(way))]
    pub linux: String,
}

/// Links of the two ends, and which of them are on OpenTOE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Both, on two hosts.
    Fabric,
    /// Both, on one host.
    Loopback,
    /// One, the other is on Linux.
    Tap(TapEnd),
}

/// Choices on Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinuxMode {
    /// CUBIC, the fastest here.
    Cubic,
    /// BBR.
    Bbr,
    /// CUBIC, and programs that poll.
    Polling,
    /// CUBIC, and both programs on one core.
    OneCore,
    /// The kernel's loopback instead of veth.
    Loopback,
    /// The kernel's loopback, whose messages eBPF redirects from socket to socket.
    Sockmap,
    /// A UNIX socket instead of TCP.
    Unix,
}

/// One of the things that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Whose TCP.
    pub stack: Stack,
    /// OpenTOE's engine.
    pub engine: &'static str,
    /// OpenTOE's port.
    pub port: Port,
    /// Linux' way.
    pub way: LinuxMode,
}

/// Needs of a case from a lab.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    /// Connections of one program, at most.
    pub connections: usize,
    /// Places for clients.
    pub clients: usize,
    /// The programs can meet at a UNIX socket, too.
    pub unix: bool,
}

impl Stacks {
    /// The set-ups in the order in which they are measured.
    pub fn all(&self) -> Result<Vec<Setup>, String> {
        let engines = list(&self.engine, engine)?;
        let (ports, ways) = (list(&self.port, port)?, offered(list(&self.linux, way)?, bbr_is_there));
        let mut all = Vec::new();
        for stack in list(&self.stack, stack)? {
            let any = Setup { stack, engine: engines[0], port: ports[0], way: ways[0] };
            match stack {
                Stack::Opentoe => engines.iter().for_each(|engine| {
                    all.extend(ports.iter().map(|port| Setup { engine, port: *port, ..any }));
                }),
                Stack::Linux => all.extend(ways.iter().map(|way| Setup { way: *way, ..any })),
            }
        }
        Ok(all)
    }
}

/// Without BBR where the kernel has none, unless nothing else is asked for: then the kernel reports it.
fn offered(ways: Vec<LinuxMode>, bbr: impl Fn() -> bool) -> Vec<LinuxMode> {
    let all = !ways.contains(&LinuxMode::Bbr) || ways.len() == 1 || bbr();
    ways.into_iter().filter(|way| all || *way != LinuxMode::Bbr).collect()
}

/// The kernel has BBR, or a module that can be loaded.
fn bbr_is_there() -> bool {
    let path = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let listed = || std::fs::read_to_string(path).is_ok_and(|names| names.split_whitespace().any(|name| name == "bbr"));
    let loaded =
        || Command::new("/sbin/modprobe").args(["-q", "tcp_bbr"]).status().is_ok_and(|status| status.success());
    listed() || loaded()
}

impl Setup {
    /// In two words.
    pub fn name(&self) -> String {
        match (self.stack, self.port) {
            (Stack::Opentoe, Port::Fabric) => format!("{} fabric", self.engine),
            (Stack::Opentoe, Port::Loopback) => format!("{} loopback", self.engine),
            (Stack::Opentoe, Port::Tap(TapEnd::Server)) => format!("{} tap", self.engine),
            (Stack::Opentoe, Port::Tap(TapEnd::Client)) => format!("{} tap-client", self.engine),
            (Stack::Linux, _) => format!("linux {}", self.way.name()),
        }
    }

    /// Programs are to poll.
    pub fn polls(&self) -> bool {
        self.stack == Stack::Linux && self.way == LinuxMode::Polling
    }

    /// The place to measure in.
    pub fn lab<'a>(&self, tools: &'a Tools, needs: Needs) -> Result<Box<dyn Lab + 'a>, String> {
        self.lab_as(tools, needs, FabricPlan::default())
    }

    /// The same, with hosts that are otherwise as in a plan.
    pub fn lab_as<'a>(&self, tools: &'a Tools, needs: Needs, plan: FabricPlan) -> Result<Box<dyn Lab + 'a>, String> {
        // Some room beside them for what is being closed.
        let slots = (needs.connections as u32 * 5 / 4 + 64).next_power_of_two().max(4096);
        let (engine, clients) = (self.engine, needs.clients.max(1));
        let plan = FabricPlan { engine, slots, clients, ..plan };
        Ok(match (self.stack, self.port) {
            (Stack::Opentoe, Port::Fabric) => Box::new(FabricLab::new(tools, &plan)?),
            (Stack::Opentoe, Port::Loopback) => Box::new(LoopbackLab::on_opentoe(tools, &plan)?),
            (Stack::Opentoe, Port::Tap(end)) => Box::new(TapLab::new(tools, &plan, end)?),
            (Stack::Linux, _) if self.way == LinuxMode::Unix && !needs.unix => {
                return Err("its programs do not use UNIX sockets: `--linux unix` is for echo".into());
            }
            (Stack::Linux, _) => {
                if let Some(locally) = self.way.locally() {
                    return Ok(Box::new(LoopbackLab::on_linux(tools, locally)?));
                }
                let congestion = Some(if self.way == LinuxMode::Bbr { "bbr" } else { "cubic" }.to_string());
                let one_core = self.way == LinuxMode::OneCore;
                // Where single frames can be lost, no super-segment passes.
                let (mtu, single) = (plan.network.mtu, plan.network.loss > 0.0);
                Box::new(VethLab::new(tools, &VethPlan { congestion, one_core, mtu, single, ..VethPlan::default() })?)
            }
        })
    }
}

impl LinuxMode {
    const ALL: [LinuxMode; 7] = [
        LinuxMode::Cubic,
        LinuxMode::Bbr,
        LinuxMode::Polling,
        LinuxMode::OneCore,
        LinuxMode::Loopback,
        LinuxMode::Sockmap,
        LinuxMode::Unix,
    ];

    /// Both programs are in one place.
    fn locally(self) -> Option<Locally> {
        match self {
            LinuxMode::Loopback => Some(Locally::Tcp),
            LinuxMode::Sockmap => Some(Locally::Sockmap),
            LinuxMode::Unix => Some(Locally::Unix),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            LinuxMode::Cubic => "cubic",
            LinuxMode::Bbr => "bbr",
            LinuxMode::Polling => "polling",
            LinuxMode::OneCore => "one-core",
            LinuxMode::Loopback => "loopback",
            LinuxMode::Sockmap => "sockmap",
            LinuxMode::Unix => "unix",
        }
    }
}

/// What a set-up is called in pictures: `flextoe fabric` is OpenTOE, `linux cubic` is Linux, others have what differs.
pub(crate) fn series_name(setup: &str) -> String {
    let named = |kind: &EngineKind| setup.split(' ').next() == Some(kind.name());
    let engine = match EngineKind::ALL.iter().find(|kind| named(kind)) {
        None if setup.split(' ').next() == Some(PUBLISHED) => "OpenTOE, as published".to_string(),
        Some(EngineKind::Flextoe) => "OpenTOE".to_string(),
        Some(other) => format!("OpenTOE, {}", other.name()),
        None => String::new(),
    };
    match setup.split_once(' ') {
        Some(("linux", "cubic" | "loopback")) => "Linux".into(),
        Some(("linux", "unix")) => "UNIX socket".into(),
        Some(("linux", way)) => format!("Linux, {way}"),
        Some((_, "fabric" | "loopback")) if !engine.is_empty() => engine,
        Some((_, "tap")) if !engine.is_empty() => format!("{engine} over TAP"),
        Some((_, "tap-client")) if !engine.is_empty() => format!("{engine}, clients over TAP"),
        // Where set-ups differ in nothing else, they have the engine's name alone.
        None if !engine.is_empty() => engine,
        None if setup == Stack::Opentoe.name() => "OpenTOE".into(),
        None if setup == Stack::Linux.name() => "Linux".into(),
        _ => setup.into(),
    }
}

/// The engine of this name.
pub(crate) fn engine(text: &str) -> Result<&'static str, String> {
    let found = EngineKind::of_name(text).map(EngineKind::name);
    found.or((text == PUBLISHED).then_some(PUBLISHED)).ok_or_else(|| {
        let names = EngineKind::ALL.iter().map(|kind| kind.name()).chain([PUBLISHED]).collect::<Vec<&str>>();
        format!("there is no engine `{text}`; there are {}", names.join(", "))
    })
}

fn port(text: &str) -> Result<Port, String> {
    match text {
        "fabric" => Ok(Port::Fabric),
        "loopback" => Ok(Port::Loopback),
        "tap" => Ok(Port::Tap(TapEnd::Server)),
        "tap-client" => Ok(Port::Tap(TapEnd::Client)),
        _ => Err(format!("there is no port `{text}` for measurements; there are fabric, loopback, tap and tap-client")),
    }
}

fn way(text: &str) -> Result<LinuxMode, String> {
    let found = LinuxMode::ALL.into_iter().find(|way| way.name() == text);
    found.ok_or_else(|| {
        let names = LinuxMode::ALL.map(LinuxMode::name).join(", ");
        format!("there is no way `{text}` of Linux; there are {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(stacks: &Stacks) -> Result<Vec<String>, String> {
        stacks.all().map(|all| all.iter().map(Setup::name).collect())
    }

    #[test]
    fn pictures_have_names_that_readers_know() {
        for (setup, name) in [
            ("flextoe fabric", "OpenTOE"),
            ("laminar tap", "OpenTOE, laminar over TAP"),
            ("flextoe tap-client", "OpenTOE, clients over TAP"),
            ("linux cubic", "Linux"),
            ("linux one-core", "Linux, one-core"),
            ("linux unix", "UNIX socket"),
            ("flextoe", "OpenTOE"),
            ("laminar", "OpenTOE, laminar"),
            ("opentoe", "OpenTOE"),
            ("linux", "Linux"),
            ("zeronic flextoe", "zeronic flextoe"),
            ("verbs", "verbs"),
        ] {
            assert_eq!(series_name(setup), name);
        }
    }

    #[test]
    fn linux_is_measured_without_bbr_where_there_is_none() {
        assert_eq!(offered(vec![LinuxMode::Cubic, LinuxMode::Bbr], || false), [LinuxMode::Cubic]);
        assert_eq!(offered(vec![LinuxMode::Cubic, LinuxMode::Bbr], || true), [LinuxMode::Cubic, LinuxMode::Bbr]);
        assert_eq!(offered(vec![LinuxMode::Bbr], || false), [LinuxMode::Bbr]);
    }

    #[test]
    fn set_ups_are_combined_within_a_stack_only() {
        let words = |stack: &str, engine: &str, port: &str, linux: &str| Stacks {
            stack: stack.into(),
            engine: engine.into(),
            port: port.into(),
            linux: linux.into(),
        };
        let all = names(&words("opentoe,linux", "flextoe,laminar", "fabric,tap-client", "cubic,polling")).unwrap();
        let toe = ["flextoe fabric", "flextoe tap-client", "laminar fabric", "laminar tap-client"];
        assert_eq!(all, toe.into_iter().chain(["linux cubic", "linux polling"]).collect::<Vec<_>>());
        assert_eq!(names(&words("linux", "flextoe", "tap", "bbr")).unwrap(), ["linux bbr"]);
        let here = names(&words("opentoe,linux", "flextoe", "loopback", "loopback")).unwrap();
        assert_eq!(here, ["flextoe loopback", "linux loopback"]);
        assert!(names(&words("linux", "flextoe", "tap", "reno")).unwrap_err().contains("one-core"));
        assert!(names(&words("linux", "tas", "tap", "bbr")).unwrap_err().contains("laminar"));
    }
}
