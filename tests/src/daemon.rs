//! The daemon of a laboratory: its configuration, its start and end, and questions to it.
use crate::lab::{BEYOND, DEVICE, FEW_LINES, Lab, Link, SECOND, SERVER, SERVER6};
use crate::network::Namespace;
use crate::process::{Process, Session};
use crate::report::Outcome;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An answer takes no longer, unless the daemon hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Connections of a host that are shown with a timeout.
const MOST_SHOWN: usize = 8;

/// A running `toed`.
pub struct Daemon<'a> {
    process: Process<'a>,
    session: &'a Session,
    file: PathBuf,
    /// Of the daemon that runs now: this one, or its successor.
    id: Cell<u32>,
    socket: PathBuf,
    at_start: Holdings,
}

impl<'a> Daemon<'a> {
    /// Writes a configuration for the laboratory and starts `toed` with it.
    pub fn start(session: &'a Session, lab: &Lab) -> Result<Daemon<'a>, String> {
        let socket = session.dir().join("toe");
        let file = session.dir().join("toed.toml");
        fs::write(&file, configuration(lab, &socket)).map_err(|error| error.to_string())?;
        let process = session.spawn(toed(lab, &file))?;
        let id = Cell::new(process.id());
        let mut daemon = Daemon { process, session, file, id, socket, at_start: Holdings::default() };
        session.until("toed to answer", || {
            let process = &mut daemon.process;
            process.running().map_err(|error| format!("{error}: {}", process.stderr().trim()))?;
            Ok(daemon.ask("hello").is_ok())
        })?;
        daemon.at_start = Holdings::of(daemon.id());
        let socket = daemon.socket.clone();
        session.describe_timeouts(move || connections(&socket));
        Ok(daemon)
    }

    /// A program on one of the daemon's hosts, by `opentoe run`.
    pub fn command(&self, namespace: &Namespace, host: &str, program: &str) -> Command {
        self.command_with(namespace, host, &[], program)
    }

    /// The same with options of `opentoe run`.
    pub fn command_with(&self, namespace: &Namespace, host: &str, options: &[&str], program: &str) -> Command {
        let mut command = namespace.command(&beside("opentoe"));
        command.args(["run", "--socket"]).arg(&self.socket).args(["--host", host]).args(options).args(["--", program]);
        command
    }

    /// Another daemon takes the place of the one that runs: its process, and its log line.
    pub fn take_over(&self, lab: &Lab) -> Result<(Process<'a>, String), String> {
        let mut command = toed(lab, &self.file);
        command.arg("--takeover");
        let mut new = self.session.spawn(command)?;
        let stat = PathBuf::from(format!("/proc/{}/stat", self.id.get()));
        // Its parent has not waited for it yet.
        let ended = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        self.session.until("a takeover", || {
            new.running().map_err(|error| format!("{error}: {}", new.stderr().trim()))?;
            Ok(ended() && self.ask("hello").is_ok_and(|hello| hello["pid"] == new.id()))
        })?;
        self.id.set(new.id());
        let log = new.stderr();
        let line = log.lines().find_map(|line| line.split_once("took over ")).map(|(_, words)| words.to_string());
        Ok((new, line.ok_or(format!("the new daemon's log does not have what it took over: {log}"))?))
    }

    /// The daemon that runs is killed, and another one with the same configuration is started: its process.
    pub fn restart(&self, lab: &Lab) -> Result<Process<'a>, String> {
        let old = self.id.get();
        let pid = rustix::process::Pid::from_raw(old as i32).ok_or("the daemon has no process")?;
        rustix::process::kill_process(pid, Signal::KILL).map_err(|error| format!("the daemon: {error}"))?;
        // Its main thread may end before the others, and its sockets with the last of them.
        self.session.until("the daemon's end", || Ok(UnixStream::connect(self.management()).is_err()))?;
        let mut new = self.session.spawn(toed(lab, &self.file))?;
        self.session.until("the next daemon to answer", || {
            new.running().map_err(|error| format!("{error}: {}", new.stderr().trim()))?;
            Ok(self.ask("hello").is_ok_and(|hello| hello["pid"] == new.id()))
        })?;
        self.id.set(new.id());
        Ok(new)
    }

    /// The `opentoe` command with these arguments, on this daemon.
    pub fn toe(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(beside("opentoe"));
        command.args(arguments).arg("--socket").arg(&self.socket);
        command
    }
}

/// Asks the daemon at an attach socket.
pub fn ask_at(socket: &Path, question: &Value, bytes: &[u8]) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("management socket: {error}");
    let mut stream = UnixStream::connect(management(socket)).map_err(failed)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(failed)?;
    stream.write_all(format!("{question}\n").as_bytes()).map_err(failed)?;
    stream.write_all(bytes).map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed)?;
    let answer: Value = serde_json::from_str(&line).map_err(|error| format!("management socket: {error}"))?;
    answer.get("ok").cloned().ok_or(format!("{question}: {answer}"))
}

/// The first connections of each host with their figures, a line each.
fn connections(socket: &Path) -> String {
    let answer = match ask_at(socket, &json!({ "ask": "ls" }), &[]) {
        Ok(answer) => answer,
        Err(error) => return format!("\n      {error}"),
    };
    let mut lines = String::new();
    for host in answer["hosts"].as_array().into_iter().flatten() {
        for flow in host["flows"].as_array().into_iter().flatten().take(MOST_SHOWN) {
            lines += &format!("\n      {}: {flow}", host["name"].as_str().unwrap_or_default());
        }
    }
    lines
}

fn management(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".manage");
    path.into()
}

/// An identifier of connection management listens on this port.
fn has_listener(host: &Value, port: u16) -> bool {
    let programs = host["rdma"]["programs"].as_array().into_iter().flatten();
    let mut ids = programs.filter_map(|program| program["ids"].as_array()).flatten();
    let end = format!(":{port}");
    ids.any(|id| id["state"] == "LISTEN" && id["local"].as_str().is_some_and(|at| at.ends_with(&end)))
}

impl Daemon<'_> {
    /// Somebody listens on a port of a host, with TCP or with RDMA's connection management.
    pub fn listens(&self, host: &str, port: u16) -> Result<bool, String> {
        let answer = self.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("opentoe ls --json names no hosts")?;
        let host = hosts.iter().find(|found| found["name"] == host).ok_or(format!("opentoe ls has no host {host}"))?;
        let listeners = host["listeners"].as_array().ok_or("opentoe ls --json names no listeners")?;
        Ok(listeners.iter().any(|listener| listener["port"] == port) || has_listener(host, port))
    }

    /// An identifier of connection management listens on a port of a ZeroNIC host.
    pub fn manages(&self, host: &str, port: u16) -> Result<bool, String> {
        let answer = self.ask("ls")?;
        let mut hosts = answer["zeronics"].as_array().into_iter().flatten();
        let host = hosts.find(|found| found["name"] == host).ok_or(format!("opentoe ls has no host {host}"))?;
        Ok(has_listener(host, port))
    }

    /// Connections in any stage, on all hosts.
    pub fn flows(&self) -> Result<usize, String> {
        let answer = self.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("opentoe ls --json names no hosts")?;
        let states = hosts.iter().filter_map(|host| host["states"].as_object()).flat_map(|states| states.values());
        Ok(states.filter_map(Value::as_u64).sum::<u64>() as usize)
    }

    /// Connections of a host that are open.
    pub fn established(&self, host: &str) -> Result<usize, String> {
        let answer = self.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("opentoe ls --json names no hosts")?;
        let host = hosts.iter().find(|found| found["name"] == host);
        Ok(host.and_then(|host| host["states"]["ESTABLISHED"].as_u64()).unwrap_or(0) as usize)
    }

    /// Sends a signal to the daemon itself.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal)
    }

    /// How often the daemon's hosts dropped for these reasons, all of which must have occurred.
    pub fn drops_named(&self, reasons: &[&str]) -> Result<String, String> {
        let answer = self.ask("drops")?;
        let hosts = answer["hosts"].as_array().ok_or("the daemon names no hosts")?;
        let drops: Vec<&Value> = hosts.iter().filter_map(|host| host["drops"].as_array()).flatten().collect();
        let mut found = Vec::new();
        for reason in reasons {
            let count: u64 =
                drops.iter().filter(|drop| drop["reason"] == *reason).filter_map(|drop| drop["count"].as_u64()).sum();
            match count {
                0 => return Err(format!("no drop was counted as {reason}: {}", summary(&drops))),
                count => found.push(format!("{reason} {count}")),
            }
        }
        Ok(found.join(", "))
    }

    /// Asks over the management socket, as the `opentoe` command does: a line of JSON each way.
    pub fn ask(&self, question: &str) -> Result<Value, String> {
        self.ask_with(&json!({ "ask": question }), &[])
    }

    /// The same with more than a word, and with bytes that follow the question.
    pub fn ask_with(&self, question: &Value, bytes: &[u8]) -> Result<Value, String> {
        ask_at(&self.socket, question, bytes)
    }

    fn management(&self) -> PathBuf {
        management(&self.socket)
    }

    /// Loads a module from a file, or a native one; its name.
    pub fn load_module(&self, host: &str, file: &str) -> Outcome {
        let native = file.strip_prefix("native:");
        let object = if native.is_some() { Ok(Vec::new()) } else { fs::read(file) };
        let object = object.map_err(|error| error.to_string())?;
        let load = json!({ "ask": "xdp", "verb": "load", "host": host, "native": native, "bytes": object.len() });
        Ok(self.ask_with(&load, &object)?["name"].as_str().unwrap_or_default().into())
    }

    /// As [`Daemon::finish`], of the daemon that took the last one's place.
    pub fn finish_successor(&self, last: &mut Process<'_>) -> Result<(), String> {
        self.session.until("the new daemon's flows, contexts and listeners to go", || {
            last.running()?;
            self.is_empty()
        })?;
        let holds = Holdings::of(last.id());
        if holds != self.at_start {
            return Err(format!("the new daemon holds {holds:?}; the first one began with {:?}", self.at_start));
        }
        last.stop()?;
        match last.wait()?.success() && !self.socket.exists() {
            true => Ok(()),
            false => Err(format!("the new daemon did not end cleanly: {}", last.stderr().trim())),
        }
    }

    /// Nothing of the applications is left.
    fn is_empty(&self) -> Result<bool, String> {
        let answer = self.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("the daemon names no hosts")?;
        let empty = |list: &str| hosts.iter().all(|host| host[list].as_array().is_some_and(Vec::is_empty));
        Ok(["flows", "contexts", "listeners"].into_iter().all(empty))
    }

    /// A takeover that must be refused with a sentence, while this daemon goes on.
    pub fn refuse_takeover(&self, configuration: &str) -> Outcome {
        let file = self.session.dir().join("other.toml");
        fs::write(&file, configuration).map_err(|error| error.to_string())?;
        let mut command = Command::new(beside("toed"));
        command.arg("--config").arg(&file).arg("--takeover");
        let mut new = self.session.spawn(command)?;
        let status = new.wait()?;
        match status.success() || self.ask("hello").is_err() {
            true => Err(format!("{status}: {}", new.stderr().trim())),
            false => Ok(new.stderr().trim().lines().last().unwrap_or_default().into()),
        }
    }

    /// Its own configuration.
    pub fn configuration(&self) -> Outcome {
        fs::read_to_string(&self.file).map_err(|error| error.to_string())
    }

    /// Where applications attach.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.id.get()
    }

    /// Waits until nothing of the applications is left in the daemon, then ends it. TIME-WAIT counts as left.
    pub fn finish(mut self, session: &Session) -> Result<String, String> {
        session
            .until("the daemon's flows, contexts and listeners to go", || {
                self.process.running()?;
                self.is_empty()
            })
            .map_err(|error| format!("{error}: {}", self.ask("ls").unwrap_or_default()))?;
        // What an application had is closed by threads of the daemon, some time after it is shown no more.
        let mut holds = Holdings::of(self.process.id());
        let gone = session.until("what the daemon holds to go", || {
            holds = Holdings::of(self.process.id());
            Ok(holds == self.at_start)
        });
        if gone.is_err() {
            return Err(format!("the daemon still holds {holds:?}; after its start it was {:?}", self.at_start));
        }
        self.process.stop()?;
        match self.process.wait()?.success() && !self.socket.exists() {
            true => Ok("no flow, context, listener, region or doorbell is left in the daemon".into()),
            false => Err(format!("toed did not end cleanly: {}", self.process.stderr().trim())),
        }
    }
}

fn summary(drops: &[&Value]) -> String {
    drops.iter().map(|drop| format!("{} {}", drop["reason"], drop["count"])).collect::<Vec<_>>().join(", ")
}

/// What a daemon holds for its applications.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Default)]
struct Holdings {
    /// Descriptors of regions and of doorbells.
    descriptors: usize,
    /// Mappings of regions and payload buffers.
    mappings: usize,
}

impl Holdings {
    fn of(process: u32) -> Holdings {
        let links = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        let ours = |target: &PathBuf| {
            let target = target.to_string_lossy();
            target.contains("memfd:") || target.contains("[eventfd]")
        };
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
        let mappings = maps.lines().filter(|line| line.contains("memfd:")).count();
        Holdings { descriptors: targets.filter(ours).count(), mappings }
    }
}

/// A program that was built together with this driver.
pub fn beside(name: &str) -> String {
    let driver = std::env::current_exe().unwrap_or_default();
    driver.parent().unwrap_or(Path::new("target/release")).join(name).display().to_string()
}

/// The command that starts a laboratory's daemon.
fn toed(lab: &Lab, file: &Path) -> Command {
    let with_programs = matches!(lab.link, Link::AfxdpServer | Link::AfxdpClient | Link::Loopback);
    let home = if with_programs { &lab.far } else { &lab.near };
    let mut command = home.command(&beside("toed"));
    // Models of RTL lie beside what was built.
    command.env("XDG_CACHE_HOME", beside("cache")).arg("--config").arg(file);
    command
}

/// The daemon's configuration for a laboratory. TIME-WAIT is short, so that the search for leaks need not wait.
fn configuration(lab: &Lab, socket: &Path) -> String {
    let mut text = format!("socket = {socket:?}\n");
    if lab.link.is_fabric() {
        text += "[[fabric]]\nname = \"lab\"\n";
    }
    if lab.link == Link::Uplink {
        let (kernel, kernel6) = (lab.client.address, lab.client.address6);
        text += &format!("[[fabric.uplink]]\nkind = \"tap\"\ndevice = {DEVICE:?}\nkernel_address = \"{kernel}/24\"\n");
        text += &format!("kernel_address6 = \"{kernel6}/64\"\n");
    }
    if lab.link == Link::Far {
        text += "delay_ns = 10000000\nrate_bps = 100000000\nbuffer_bytes = 250000\n";
    }
    if matches!(lab.link, Link::Lossy | Link::LossyThreads) {
        // Damage is rare, since a spliced segment crosses this network twice, and of two bits, one on each side of the
        // proxy, one in 32 pairs leaves TCP's checksum right: with one frame in 500, one transfer of 100 MB each way in
        // 60 was wrong.
        text += &format!(
            "loss = 0.002\nreorder = 0.01\nduplicate = 0.005\ncorrupt = 0.0004\nseed = {}\n",
            std::process::id()
        );
    }
    for (name, side, other) in [("server", &lab.server, &lab.client), ("client", &lab.client, &lab.server)] {
        if !side.is_accelerated() || (lab.link == Link::Loopback && name == "client") {
            continue;
        }
        let address = if lab.link == Link::Loopback { SERVER } else { side.address };
        let tap = |kernel| format!("kind = \"tap\", device = {DEVICE:?}, kernel_address = \"{kernel}/24\"");
        let second = format!("{{ {}, address = \"{SECOND}\" }}", tap(BEYOND));
        let port = match lab.link {
            Link::TwoPorts if name == "server" => format!("[{{ kind = \"fabric\" }}, {second}]"),
            link if link.is_fabric() => "{ kind = \"fabric\" }".to_string(),
            Link::AfxdpServer | Link::AfxdpClient => format!("{{ kind = \"afxdp\", device = {DEVICE:?} }}"),
            _ => format!("{{ {}, kernel_address6 = \"{}/64\" }}", tap(other.address), other.address6),
        };
        text += &format!("[[host]]\nname = {name:?}\naddress = \"{address}\"\nport = {port}\n");
        text += &format!("engine = {:?}\nlimits = {{ fast_open_server = true }}\n", lab.engine);
        if lab.simulated {
            text += "backend = \"rtl\"\n";
        }
        let address6 = if lab.link == Link::Loopback { SERVER6 } else { side.address6 };
        text += &format!("ipv6 = {{ address = \"{address6}\" }}\n");
        if matches!(lab.link, Link::Fabric | Link::TapServer) {
            text += "rdma = \"own\"\nrdma_raw_packets = true\n";
        }
        if lab.link == Link::LossyThreads && lab.engine == "flextoe" {
            text += "mapping = { threads = true, preprocess = 2, flow_groups = 2, postprocess = 2, dma = 2 }\n";
        }
        text += "[host.timers]\ntime_wait_ms = 1000\n";
        text += &format!("[host.memory]\n{}\n", lab.memory);
    }
    if lab.link == Link::Lossy {
        // Beside the hosts, for programs that use toe_comm.
        // What decides on headers below sockets does so here.
        let transport = match lab.engine.as_str() {
            "zeronic" => "flextoe",
            engine => engine.trim_start_matches("zeronic-"),
        };
        for (name, address) in crate::comm::HOSTS {
            text += &format!("[[zeronic]]\nname = {name:?}\naddress = \"{address}\"\ntransport = {transport:?}\n");
        }
        text += &crate::over_tcp::configuration();
        text += &crate::one_address::configuration(crate::over_tcp::FABRIC, &lab.engine);
        text += &crate::volumes::configuration(socket.parent().unwrap_or(Path::new(".")));
    }
    if lab.memory.starts_with(FEW_LINES) {
        text = text.replace("\ntransport = ", "\nplaced_connections = 1\ntransport = ");
    }
    text
}
