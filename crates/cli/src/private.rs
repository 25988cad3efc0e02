//! Daemons that `opentoe run` starts: for one program, with which they end, or for all of a user (`shared`).
//!
//! The program takes `opentoe run`'s process, so the daemon must not be its child. A server that waits for any child of
//! its own would meet an unknown one. An intermediate process starts one that watches over the daemon, and ends
//! (`private_daemon.rs`).
use crate::arguments::parse_network;
use crate::private_daemon::{self, PrivateArguments, Role};
use crate::start_lock::StartLock;
use crate::table::list;
use daemon::client;
use daemon::config::{self, Backend, EngineKind};
use daemon::protocol::Question;
use serde_json::Value;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Bytes of a program's heap by default: address space, of which a page costs memory when it is used.
const HEAP: u32 = 1 << 30;

/// A private daemon that is ready.
pub(crate) struct Private {
    /// Its attach socket.
    pub socket: PathBuf,
    /// Notes on it for the user.
    pub sentences: Vec<String>,
}

/// A daemon that needs no configuration; what is left out has a default.
pub(crate) struct Embedded<'a> {
    /// Name of its host.
    pub host: Option<&'a str>,
    /// The host's engine; otherwise the default one, or the one that runs P4 where there is a backend.
    pub engine: Option<&'a str>,
    /// What runs that engine's program.
    pub backend: Option<&'a str>,
    /// Where a waveform goes.
    pub waveform: Option<&'a Path>,
    /// Its network; otherwise the first free one.
    pub network: Option<&'a str>,
    /// Other programs of the user join it.
    pub shared: bool,
    /// Received bytes can land in programs' memory.
    pub heap: bool,
}

/// A private daemon with the user's configuration.
pub(crate) fn from_file(file: &Path) -> Result<Private, String> {
    let config = config::read(file)?;
    let directory = directory()?;
    let socket = start(&directory, file, false)?;
    let hosts: Vec<String> =
        config.hosts.iter().map(|host| format!("'{}' is {}", host.stack.name, host.stack.address)).collect();
    Ok(Private { socket, sentences: vec![format!("a private daemon was started: {}", hosts.join(", "))] })
}

/// A daemon with one host on an embedded fabric, joined to the kernel by a TAP device where that is allowed.
pub(crate) fn embedded(plan: &Embedded<'_>) -> Result<Private, String> {
    let host = plan.host.unwrap_or("toe");
    let default = plan.backend.map_or_else(EngineKind::default, |_| EngineKind::Laminar);
    let engine = plan.engine.unwrap_or(default.name());
    let Some(kind) = EngineKind::of_name(engine) else {
        let names: Vec<&str> = EngineKind::ALL.iter().map(|known| known.name()).collect();
        return Err(format!("there is no engine `{engine}`; known are {}", names.join(", ")));
    };
    if plan.heap && !kind.lands_directly() {
        return Err(format!(
            "--heap is for received bytes that land in programs' memory, which engine {engine} does not do: add \
             --engine zeronic"
        ));
    }
    // Until the daemon has its address, the kernel has no route by which the next one sees that the network is taken.
    let _lock = plan.network.is_none().then(StartLock::of_network);
    let (network, bits) = plan.network.map_or_else(free_network, parse_network)?;
    let (kernel, address) = (nth(network, 1), nth(network, 2));
    let obstacle = tap_obstacle();
    let mut text = String::from("log = \"warn\"\n\n[[fabric]]\nname = \"fabric\"\n");
    if obstacle.is_none() {
        text += &format!("[[fabric.uplink]]\nkind = \"tap\"\nkernel_address = \"{kernel}/{bits}\"\n");
    }
    text +=
        &format!("\n[[host]]\nname = {host:?}\naddress = \"{address}\"\nprefix_len = {bits}\nengine = {engine:?}\n");
    if let Some(backend) = plan.backend {
        text += &match plan.waveform {
            None => format!("backend = {backend:?}\n"),
            Some(file) => {
                let file = std::path::absolute(file).map_err(|e| format!("--waveform {}: {e}", file.display()))?;
                format!("backend = {{ kind = {backend:?}, waveform = {file:?} }}\n")
            }
        };
    }
    if plan.heap {
        text += &format!("[host.memory]\nheap_bytes = {HEAP}\n");
    }
    if plan.backend == Some(Backend::Rtl.name()) {
        eprintln!("opentoe: the model of the program's RTL is built where an earlier start left none: a minute or two");
    }
    let directory = directory()?;
    let file = directory.join("toed.toml");
    fs::write(&file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let socket = start(&directory, &file, plan.shared)?;
    let sentence = match obstacle {
        None => format!(
            "host '{host}' is {address}, reachable from the kernel through {} ({kernel}/{bits})",
            device(&socket)
        ),
        Some(obstacle) => format!(
            "host '{host}' is {address}, but {obstacle}: only {} reach it, and it reaches nobody else over OpenTOE",
            if plan.shared { "programs that this user starts by opentoe run" } else { "this program and its children" }
        ),
    };
    Ok(Private { socket, sentences: vec![sentence] })
}

/// Starts the daemon and waits until programs can attach. What goes wrong, the daemon reports itself.
fn start(directory: &Path, config: &Path, shared: bool) -> Result<PathBuf, String> {
    let owner = std::process::id() as i32;
    let socket = directory.join(format!("{:016x}", RandomState::new().hash_one(owner)));
    let (directory, config) = (directory.to_path_buf(), config.to_path_buf());
    let role = Role::Begin;
    let arguments = PrivateArguments { directory, config, owner, socket, shared, role };
    let failed = |e: std::io::Error| format!("cannot start a private daemon: {e}");
    let mut command = private_daemon::command(&arguments, role).map_err(failed)?;
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    if line != "ready\n" {
        let _ = fs::remove_dir_all(arguments.directory);
        return Err("the private daemon did not start; the program was not run".into());
    }
    Ok(arguments.socket)
}

/// Sockets of daemons that `opentoe run` started, that run, and whose directories this user may list: a user's own, for
/// root everybody's. In the order of the processes that they were started for.
pub(crate) fn running() -> Vec<PathBuf> {
    let users = fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut bases: Vec<PathBuf> = users.chain(runtime_directory()).chain([std::env::temp_dir()]).collect();
    bases.sort();
    bases.dedup();
    let mut found: Vec<(u32, PathBuf)> = bases.iter().flat_map(|base| running_in(base)).collect();
    found.sort();
    found.into_iter().map(|(_, socket)| socket).collect()
}

fn running_in(base: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let owner: u32 = name.strip_prefix(DIRECTORY)?.split('-').next()?.parse().ok()?;
        let files = fs::read_dir(entry.path()).ok()?.flatten().map(|file| file.path());
        let socket = files.filter(|file| is_socket_name(file)).find(|file| client::is_running(file))?;
        Some((owner, socket))
    })
}

/// The random name that [`start`] gives an attach socket; other files of the directory have names with an ending.
fn is_socket_name(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// How the names of private daemons' directories begin.
const DIRECTORY: &str = "toe-";

fn runtime_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir())
}

/// A directory of its own. Others may pass through it but not list it: a process that has the socket's random name may
/// attach. This includes a server that gives root up before it opens its first socket.
fn directory() -> Result<PathBuf, String> {
    let base = runtime_directory().unwrap_or_else(std::env::temp_dir);
    let named = |attempt| base.join(format!("{DIRECTORY}{}-{attempt}", std::process::id()));
    for attempt in 0..16 {
        match fs::DirBuilder::new().mode(0o711).create(named(attempt)) {
            Ok(()) => return Ok(named(attempt)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("cannot make {}: {error}", named(attempt).display())),
        }
    }
    Err(format!("{} is full of old directories toe-*: remove them", base.display()))
}

/// Why no TAP device can be made; `None` where one can.
pub(crate) fn tap_obstacle() -> Option<&'static str> {
    /// Bit of CAP_NET_ADMIN in the masks of /proc/PID/status.
    const CAP_NET_ADMIN: u32 = 12;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim).unwrap_or_default();
    let mask = u64::from_str_radix(mask, 16).unwrap_or(0);
    if mask & (1 << CAP_NET_ADMIN) == 0 {
        return Some("without root or CAP_NET_ADMIN no TAP device can join a host to the kernel");
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("without /dev/net/tun no TAP device can join a host to the kernel");
    }
    None
}

/// The TAP device that the daemon made.
fn device(socket: &Path) -> String {
    let answer = client::ask(socket, &Question::Ls).unwrap_or_default();
    let members = answer["fabrics"][0]["members"].as_array().cloned().unwrap_or_default();
    let tap = members.iter().filter_map(|member| member["name"].as_str()?.strip_prefix("tap ")).next();
    tap.unwrap_or("a TAP device").into()
}

/// The first network 10.77.N.0/24 to which the kernel has no route yet, and in which no host of another such daemon is.
/// Without a TAP device, the kernel has no route to that host.
fn free_network() -> Result<(Ipv4Addr, u8), String> {
    let table = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let routes = table.lines().skip(1).filter_map(route);
    let taken: Vec<(u32, u32)> = routes.chain(running().iter().flat_map(|socket| served(socket))).collect();
    let free = |network: &Ipv4Addr| {
        let overlaps = |(to, mask): &(u32, u32)| {
            *mask != 0 && (u32::from(*network) & mask == *to || to & 0xffff_ff00 == u32::from(*network))
        };
        !taken.iter().any(overlaps)
    };
    let network = (0..=255).map(|n| Ipv4Addr::new(10, 77, n, 0)).find(free);
    network.map(|network| (network, 24)).ok_or_else(|| "all networks in 10.77.0.0/16 are taken: give --network".into())
}

/// The networks of a daemon's hosts, as [`route`] has them.
fn served(socket: &Path) -> Vec<(u32, u32)> {
    networks(&client::ask(socket, &Question::Hello).unwrap_or_default())
}

/// The same from the daemon's answer, which may be another user's: what is no network counts nothing.
fn networks(hello: &Value) -> Vec<(u32, u32)> {
    let network = |host: &Value| {
        let (network, bits) = parse_network(host["address"].as_str()?).ok()?;
        Some((u32::from(network), u32::MAX << (32 - u32::from(bits))))
    };
    list(hello, "hosts").iter().filter_map(network).collect()
}

/// Destination and mask of a line of /proc/net/route: hexadecimal, bytes in network order as the processor reads them.
fn route(line: &str) -> Option<(u32, u32)> {
    let field = |at| Some(u32::from_str_radix(line.split_whitespace().nth(at)?, 16).ok()?.swap_bytes());
    Some((field(1)?, field(7)?))
}

fn nth(network: Ipv4Addr, host: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(network) + host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn networks_of_other_daemons_are_never_trusted() {
        let hosts = ["10.77.3.2/24", "10.1.2.3/99", "10.1.2.3/0", "nowhere"];
        let hosts: Vec<Value> = hosts.iter().map(|address| json!({ "address": address })).collect();
        assert_eq!(networks(&json!({ "hosts": hosts })), [(0x0a4d_0300, 0xffff_ff00)]);
        assert_eq!(networks(&Value::Null), []);
    }
}
