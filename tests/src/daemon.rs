//! The daemon of a laboratory: its configuration, its start and end, and questions to it.
use crate::lab::{DEVICE, Lab, Link};
use crate::network::Namespace;
use crate::process::{Process, Session};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running `toed`.
pub struct Daemon<'a> {
    process: Process<'a>,
    socket: PathBuf,
}

impl<'a> Daemon<'a> {
    /// Writes a configuration for the laboratory and starts `toed` with it.
    pub fn start(session: &'a Session, lab: &Lab) -> Result<Daemon<'a>, String> {
        let socket = session.dir().join("toe");
        let file = session.dir().join("toed.toml");
        fs::write(&file, configuration(lab, &socket)).map_err(|error| error.to_string())?;
        let home = if matches!(lab.link, Link::AfxdpServer | Link::AfxdpClient) { &lab.far } else { &lab.near };
        let mut command = home.command(&beside("toed"));
        command.arg("--config").arg(&file);
        let mut process = session.spawn(command)?;
        session.until("toed's sockets", || {
            process.running().map_err(|error| format!("{error}: {}", process.stderr().trim()))?;
            Ok(socket.exists())
        })?;
        Ok(Daemon { process, socket })
    }

    /// A program on one of the daemon's hosts, by `toe run`.
    pub fn command(&self, namespace: &Namespace, host: &str, program: &str) -> Command {
        let mut command = namespace.command(&beside("toe"));
        command.args(["run", "--socket"]).arg(&self.socket).args(["--host", host, "--", program]);
        command
    }
}

impl Daemon<'_> {
    /// Somebody listens on a port of a host.
    pub fn listens(&self, host: &str, port: u16) -> Result<bool, String> {
        let answer = self.ask("ls")?;
        let hosts = answer["hosts"].as_array().ok_or("toe ls --json names no hosts")?;
        let host = hosts.iter().find(|found| found["name"] == host).ok_or(format!("toe ls knows no host {host}"))?;
        let listeners = host["listeners"].as_array().ok_or("toe ls --json names no listeners")?;
        Ok(listeners.iter().any(|listener| listener["port"] == port))
    }

    /// Sends a signal to the daemon itself.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal)
    }

    /// How often the daemon's hosts dropped for these reasons, all of which must have occurred.
    pub fn drops_named(&self, reasons: &[&str]) -> Result<String, String> {
        let stats = self.ask("stats")?;
        let mut found = Vec::new();
        for reason in reasons {
            match count_of(&stats, reason) {
                0 => return Err(format!("no drop was counted as {reason}")),
                count => found.push(format!("{reason} {count}")),
            }
        }
        Ok(found.join(", "))
    }

    fn ask(&self, command: &str) -> Result<Value, String> {
        let mut toe = Command::new(beside("toe"));
        let output = toe.arg(command).arg("--json").arg("--socket").arg(&self.socket).output();
        let output = output.map_err(|error| format!("toe {command}: {error}"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| format!("toe {command} --json: {error}"))
    }

    /// Waits until nothing of the applications is left in the daemon, then ends it.
    pub fn finish(mut self) -> Result<String, String> {
        self.process.stop()?;
        Ok(String::new())
    }
}

/// The sum of all numbers that are called `name`, at whatever depth.
fn count_of(value: &Value, name: &str) -> u64 {
    match value {
        Value::Object(map) => {
            let own = map.get(name).and_then(Value::as_u64).unwrap_or(0);
            own + map.values().map(|inner| count_of(inner, name)).sum::<u64>()
        }
        Value::Array(list) => list.iter().map(|inner| count_of(inner, name)).sum(),
        _ => 0,
    }
}

/// A program that was built together with this driver.
pub fn beside(name: &str) -> String {
    let driver = std::env::current_exe().unwrap_or_default();
    driver.parent().unwrap_or(Path::new("target/release")).join(name).display().to_string()
}

/// The daemon's configuration for a laboratory. TIME-WAIT is short, so that the search for leaks need not wait.
fn configuration(lab: &Lab, socket: &Path) -> String {
    let mut text = format!("socket = {socket:?}\n");
    if lab.link == Link::Fabric {
        text += "[[fabric]]\nname = \"lab\"\n";
    }
    for (name, side, other) in [("server", &lab.server, &lab.client), ("client", &lab.client, &lab.server)] {
        if !side.is_accelerated() {
            continue;
        }
        let port = match lab.link {
            Link::Fabric => "kind = \"fabric\"".to_string(),
            Link::AfxdpServer | Link::AfxdpClient => format!("kind = \"afxdp\", device = {DEVICE:?}"),
            _ => format!("kind = \"tap\", device = {DEVICE:?}, kernel_address = \"{}/24\"", other.address),
        };
        text += &format!("[[host]]\nname = {name:?}\naddress = \"{}\"\nport = {{ {port} }}\n", side.address);
        text += "[host.timers]\ntime_wait_ms = 1000\n";
    }
    text
}
