//! A Linux in a virtual machine, with Linux' own RDMA over Ethernet (rxe): a peer that no one here has written.
//!
//! It runs under QEMU's software emulation, so it is slow: for interoperation, never for speed. `tests/guest` makes its
//! kernel and its files of Debian's packages. A shell answers on TCP port 7.
use crate::daemon::beside;
use crate::network::Namespace;
use crate::process::{Process, Session};
use crate::report::Outcome;
use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bridge that joins the guest, the kernel's side and OpenTOE's TAP device.
const BRIDGE: &str = "br0";
/// The guest's TAP device.
const PORT: &str = "guest0";
/// What the guest prints when it can be used.
const READY: &str = "guest: ready";
/// Lines of the guest's console that a failure shows.
const MOST_LINES: usize = 40;
/// The length of prefixes on the link.
const PREFIX: u8 = 24;

/// A running guest on the bridge of a namespace.
pub struct Guest<'a> {
    session: &'a Session,
    namespace: &'a Namespace,
    /// Its address.
    pub address: Ipv4Addr,
    /// The file of its console.
    serial: PathBuf,
    /// Ends with this value.
    machine: RefCell<Process<'a>>,
}

impl<'a> Guest<'a> {
    /// Makes the guest's files where they are not there yet, makes a bridge to which `device` of the namespace belongs
    /// from now on, and boots. `near` is the namespace's own address on the bridge.
    pub fn boot(
        session: &'a Session,
        namespace: &'a Namespace,
        device: &str,
        near: Ipv4Addr,
        address: Ipv4Addr,
    ) -> Result<Guest<'a>, String> {
        let files = make_files(session)?;
        bridge(namespace, device, near)?;
        let serial = session.dir().join("guest.serial");
        let machine = session.spawn(machine(namespace, &files, &serial, address))?;
        let guest = Guest { session, namespace, address, serial, machine: RefCell::new(machine) };
        session.until("the guest to boot", || {
            let mut machine = guest.machine.borrow_mut();
            machine.running().map_err(|error| format!("{error}: {}", machine.stderr().trim()))?;
            Ok(guest.console().is_some())
        })?;
        Ok(guest)
    }

    /// What its kernel printed since it could be used: errors and worse. `None` before.
    fn console(&self) -> Option<String> {
        let printed = std::fs::read(&self.serial).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed);
        printed.split_once(READY).map(|(_, since)| since.trim().to_string())
    }

    /// What to add to a failure: that the guest is gone, and the first words of its kernel.
    pub fn complaint(&self) -> String {
        let ended = self.machine.borrow_mut().running().err().map(|error| format!("; the guest: {error}"));
        let console = self.console().filter(|words| !words.is_empty());
        let console = console.map(|words| {
            let first: Vec<&str> = words.lines().take(MOST_LINES).collect();
            format!("; its console:\n{}", first.join("\n"))
        });
        ended.unwrap_or_default() + &console.unwrap_or_default()
    }

    /// A script for the guest's shell. Its standard output has the guest's both; its end is the script's.
    fn script(&self, script: &str) -> Command {
        let mut command = self.namespace.command("sh");
        // What the guest prints last shows whether the script succeeded.
        let line =
            "(echo 'exec 2>&1'; printf '%s\\n' \"$1\"; echo 'echo status $?; exit') | socat -t 120 - \"TCP:$2:7\"";
        command.args(["-c", line, "guest", script, &self.address.to_string()]);
        command
    }

    /// Runs a script to its end; what it printed, or an error where its last command failed.
    pub fn run(&self, script: &str) -> Outcome {
        let printed = self.session.run(self.script(script))?;
        succeeded(&printed)
    }

    /// Starts a script and goes on.
    pub fn start(&self, script: &str) -> Result<Running<'a>, String> {
        Ok(Running { process: self.session.spawn(self.script(script))? })
    }

    /// Somebody in the guest is a member of a group, as `/proc/net/igmp` writes it; for two seconds, since the queue
    /// pair follows.
    pub fn is_member(&self, group: &str) -> Result<bool, String> {
        let printed = self.run(&format!("grep -q {group} /proc/net/igmp && sleep 2 && echo yes || true"))?;
        Ok(printed.contains("yes"))
    }

    /// Somebody listens on a port of the guest, with TCP, UDP or RDMA's connection management.
    pub fn listens(&self, port: u16) -> Result<bool, String> {
        let listeners = self.run("netstat -ltun; rdma resource show cm_id | grep LISTEN || true")?;
        Ok(listeners.lines().any(|line| line.contains(&format!(":{port} "))))
    }
}

/// A script that runs in the guest.
pub struct Running<'a> {
    process: Process<'a>,
}

impl Running<'_> {
    /// Waits for its end, as [`Guest::run`].
    pub fn succeed(&mut self) -> Outcome {
        succeeded(&self.process.succeed()?)
    }
}

fn succeeded(printed: &str) -> Outcome {
    match printed.trim_end().rsplit_once("status ") {
        Some((before, "0")) => Ok(before.into()),
        Some((before, status)) => Err(format!("in the guest: status {status}: {}", last_line(before))),
        None => Err(format!("the guest's shell went away: {}", last_line(printed))),
    }
}

fn last_line(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or_default()
}

/// The folder of the guest's files, in that of this driver's build. Programs that were compiled have this path in the
/// guest as well.
pub fn folder() -> PathBuf {
    let build = PathBuf::from(beside("")).join("../guest");
    build.canonicalize().unwrap_or(build)
}

/// Kernel and initramfs.
fn make_files(session: &Session) -> Result<PathBuf, String> {
    let build = folder();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest/make");
    let mut make = Command::new(script);
    make.arg(&build);
    session.run(make)?;
    Ok(build)
}

fn bridge(namespace: &Namespace, device: &str, near: Ipv4Addr) -> Result<(), String> {
    let own = format!("{near}/{PREFIX}");
    for words in [
        &["address", "flush", "dev", device][..],
        &["link", "add", BRIDGE, "type", "bridge"],
        &["link", "set", device, "master", BRIDGE],
        &["address", "add", &own, "dev", BRIDGE],
        &["link", "set", BRIDGE, "up"],
        &["tuntap", "add", "dev", PORT, "mode", "tap"],
        &["link", "set", PORT, "master", BRIDGE],
        &["link", "set", PORT, "up"],
    ] {
        namespace.ip(words)?;
    }
    Ok(())
}

fn machine(namespace: &Namespace, files: &Path, serial: &Path, address: Ipv4Addr) -> Command {
    let mut qemu = namespace.command("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "384", "-nographic", "-nodefaults", "-no-reboot"]);
    qemu.arg("-kernel").arg(files.join("kernel")).arg("-initrd").arg(files.join("initramfs"));
    // A kernel that fails ends the machine (`-no-reboot`), instead of a guest that no longer answers.
    let fails = "panic=-1 oops=panic softlockup_panic=1";
    qemu.args(["-append", &format!("console=ttyS0 quiet {fails} guest={address}/{PREFIX}")]);
    qemu.args(["-serial", &format!("file:{}", serial.display())]);
    qemu.args(["-netdev", &format!("tap,id=net,ifname={PORT},script=no,downscript=no,vnet_hdr=off")]);
    qemu.args(["-device", "virtio-net-pci,netdev=net,mac=52:54:00:00:00:03,romfile="]);
    qemu.args(["-device", "virtio-rng-pci"]);
    qemu
}
