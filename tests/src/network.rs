//! Network namespaces and veth pairs, by iproute2. Everything made here goes when its value goes.
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};

/// All namespaces of a session begin with this and the driver's process number.
pub const PREFIX: &str = "toetest";

/// A network namespace with its loopback device up.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one; `role` distinguishes it from the session's others.
    pub fn new(role: &str) -> Result<Namespace, String> {
        let name = format!("{PREFIX}{}-{role}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Namespace { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name in iproute2.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A program in the namespace. It dies with the driver.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "ip", "netns", "exec", &self.name, program]);
        command
    }

    /// iproute2 in the namespace; its output.
    pub fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        ip(&[&["-netns", &self.name], arguments].concat())
    }

    /// Gives a device an address of each version of IP, and sets it up. Nothing else is there that might have them.
    pub fn configure(&self, device: &str, address: &str, v6: Ipv6Addr) -> Result<(), String> {
        self.ip(&["address", "add", address, "dev", device])?;
        self.ip(&["address", "add", &format!("{v6}/64"), "dev", device, "nodad"])?;
        self.ip(&["link", "set", device, "up"])?;
        Ok(())
    }

    /// Somebody listens on a TCP port of the kernel's stack here.
    pub fn listens(&self, port: u16) -> Result<bool, String> {
        // A listener on [::] takes connections of IPv4 as well.
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let output = self.command("cat").args(tables).output().map_err(|error| error.to_string())?;
        let wanted = format!(":{port:04X}");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(table.lines().skip(1).any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
        }))
    }
}

/// A namespace's kernel loses one TCP frame in a hundred each way, until this goes. A frame of several segments is
/// lost whole.
pub struct Loss<'n> {
    namespace: &'n Namespace,
}

impl Namespace {
    /// Begins to lose frames.
    pub fn lose_one_in_a_hundred(&self) -> Result<Loss<'_>, String> {
        let loss = Loss { namespace: self };
        for rule in [
            "add table ip loss",
            "add chain ip loss in { type filter hook input priority 0; }",
            "add chain ip loss out { type filter hook output priority 0; }",
            "add rule ip loss in tcp dport != 0 numgen random mod 100 == 0 drop",
            "add rule ip loss out tcp dport != 0 numgen random mod 100 == 0 drop",
        ] {
            let output = self.command("nft").arg(rule).output().map_err(|error| format!("nft: {error}"))?;
            if !output.status.success() {
                return Err(format!("nft {rule}: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
        }
        Ok(loss)
    }
}

impl Drop for Loss<'_> {
    fn drop(&mut self) {
        let _ = self.namespace.command("nft").arg("delete table ip loss").output();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "delete", &self.name]);
    }
}

/// Joins two namespaces by a veth pair, one device of the given name in each.
pub fn join(left: &Namespace, right: &Namespace, device: &str) -> Result<(), String> {
    let (a, b) = (left.name(), right.name());
    ip(&["link", "add", device, "netns", a, "type", "veth", "peer", "name", device, "netns", b]).map(drop)
}

/// Removes the namespaces of drivers that were killed and could not.
pub fn sweep() {
    for name in namespaces() {
        let Some(tag) = name.strip_prefix(PREFIX) else { continue };
        let owner = tag.split('-').next().unwrap_or_default();
        if !std::path::Path::new("/proc").join(owner).exists() {
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}

/// The names of all namespaces on this machine.
pub fn namespaces() -> Vec<String> {
    let list = ip(&["netns", "list"]).unwrap_or_default();
    list.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim())),
    }
}
