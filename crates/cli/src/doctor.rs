//! `opentoe doctor`: what this machine offers, what is missing, and what to do about it.
use crate::arguments::DoctorArguments;
use crate::ls::list;
use crate::program::{self, Kind, Remark, program_path};
use crate::run::find_program;
use crate::table::{Table, green, print_json, print_line, red, yellow};
use crate::{library, locate, private, units};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// One line of the report.
struct Finding {
    what: &'static str,
    state: State,
    /// What was found, or what to do.
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ok,
    /// It works, with less.
    Warn,
    /// A part of OpenTOE does not work without it.
    Missing,
}

/// Prints the report; fails where something is missing without which nothing works.
pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<(), String> {
    if let Some(program) = &arguments.program {
        return of_program(program, arguments.json);
    }
    let library = match library::find(arguments.lib.as_deref()) {
        Ok(path) => ok("libtoe.so", path.display().to_string()),
        Err(sentence) => missing("libtoe.so", sentence),
    };
    let usable = library.state == State::Ok;
    let verbs = verbs(arguments);
    let mut findings = vec![library, verbs, daemon(arguments), cores(), memfd(), tap(), network_namespaces(), afxdp()];
    findings.extend([hugepages(), descriptors()]);
    findings.extend(PROGRAMS.iter().map(|(program, package, purpose)| installed(program, package, purpose)));
    findings.push(installed("verilator", "verilator make g++", "backend = \"rtl\" (docs/RTL.md)"));
    report(&findings, arguments.json);
    if usable { Ok(()) } else { Err("without libtoe.so no program can run on OpenTOE".into()) }
}

fn report(findings: &[Finding], as_json: bool) {
    if as_json {
        let lines = findings.iter().map(|one| json!({ "what": one.what, "state": one.state.name(), "text": one.text }));
        return print_json(&lines.collect());
    }
    let mut table = Table::new(&["state", "what", "finding"]);
    findings.iter().for_each(|one| table.row([one.state.painted(), one.what.into(), one.text.clone()]));
    table.print();
    let count = |state| findings.iter().filter(|one| one.state == state).count();
    let (warnings, missing) = (count(State::Warn), count(State::Missing));
    let warnings = units::several(warnings, "warning");
    print_line(&format!("\n{} ok, {warnings}, {missing} missing", count(State::Ok)));
}

/// How a program will run, by its file; fails where it will not run on OpenTOE.
fn of_program(program: &OsString, as_json: bool) -> Result<(), String> {
    let path = find_program(program)?;
    let remarks = program::inspect(&path)?;
    let finding = |remark: &Remark| match remark.kind {
        Kind::Fine => ok(remark.what, remark.text.clone()),
        Kind::Partly => warn(remark.what, remark.text.clone()),
        Kind::Not => missing(remark.what, remark.text.clone()),
    };
    report(&remarks.iter().map(finding).collect::<Vec<_>>(), as_json);
    let runs = remarks.iter().all(|remark| remark.kind != Kind::Not);
    if runs { Ok(()) } else { Err(format!("{} will run on the kernel's stack", path.display())) }
}

/// Whether programs that use verbs run.
fn verbs(arguments: &DoctorArguments) -> Finding {
    let found = library::find(arguments.lib.as_deref()).ok().and_then(|path| library::verbs(&path));
    match found {
        Some(folder) => ok("libibverbs.so.1", folder.display().to_string()),
        None => warn("libibverbs.so.1", "verbs programs do not run: build it with make build".into()),
    }
}

/// Programs that the demo uses: name, Debian package, purpose.
pub(crate) const PROGRAMS: &[(&str, &str, &str)] = &[
    ("memcached", "memcached", "opentoe demo"),
    ("redis-server", "redis-server", "opentoe demo"),
    ("redis-benchmark", "redis-tools", "opentoe demo"),
    ("nginx", "nginx-light", "opentoe demo"),
    ("wrk", "wrk", "opentoe demo"),
];

fn installed(program: &'static str, package: &str, purpose: &str) -> Finding {
    match program_path(program) {
        Some(path) => ok(program, path.display().to_string()),
        None => warn(program, format!("{purpose} needs it: apt-get install {package}")),
    }
}

fn daemon(arguments: &DoctorArguments) -> Finding {
    let socket = match locate::daemon(arguments.daemon.socket.as_deref()) {
        Ok(socket) => socket,
        Err(several) => return ok("daemon", several),
    };
    match daemon::client::ask(&socket, &daemon::protocol::Question::Hello) {
        Ok(hello) => {
            let hosts = units::several(hello["hosts"].as_array().map_or(0, Vec::len), "host");
            let version = hello["version"].as_str().unwrap_or("?");
            let found = format!("toed {version} with {hosts} at {}", socket.display());
            let drops = daemon::client::ask(&socket, &daemon::protocol::Question::Drops).unwrap_or_default();
            match list(&drops, "failures").iter().filter_map(Value::as_str).collect::<Vec<_>>() {
                failures if failures.is_empty() => ok("daemon", found),
                failures => warn("daemon", format!("{found}; {}", failures.join("; "))),
            }
        }
        Err(_) => ok("daemon", "none is running: opentoe run starts one".into()),
    }
}

fn cores() -> Finding {
    match std::thread::available_parallelism().map_or(1, usize::from) {
        1 => warn("cores", "1: the data-path and the programs share it".into()),
        cores => ok("cores", format!("{cores}")),
    }
}

fn memfd() -> Finding {
    match shm::Region::create("doctor", shm::PAGE) {
        Ok(_) => ok("sealed memory", "memfd_create with seals works".into()),
        Err(error) => missing("sealed memory", format!("memfd_create fails ({error}): Linux 3.17 or later is needed")),
    }
}

fn tap() -> Finding {
    match private::tap_obstacle() {
        None => ok("TAP devices", "hosts can be joined to the kernel".into()),
        Some(obstacle) if Path::new("/dev/net/tun").exists() => warn(
            "TAP devices",
            format!(
                "{obstacle}: run as root, or have root make a device (ip tuntap add toe0 mode tap vnet_hdr user NAME; \
                 ip addr add 10.77.0.1/24 dev toe0; ip link set toe0 up) and name it in a configuration, as \
                 config/tap.toml does: opentoe run --config FILE"
            ),
        ),
        Some(obstacle) => {
            missing("TAP devices", format!("{obstacle}: modprobe tun, or pass the device into the container"))
        }
    }
}

fn network_namespaces() -> Finding {
    match port::Netns::create() {
        Ok(_) => ok("network namespaces", "opentoe demo can make its own".into()),
        Err(sentence) => warn("network namespaces", format!("{sentence}: opentoe demo needs root")),
    }
}

fn afxdp() -> Finding {
    let configuration = fs::read("/proc/config.gz").is_ok();
    let known = fs::read_to_string("/proc/net/protocols").unwrap_or_default();
    if known.lines().any(|line| line.starts_with("XDP")) {
        return match rustix::process::geteuid().is_root() {
            true => ok("AF_XDP", "the kernel has it".into()),
            false => warn("AF_XDP", "the kernel has it, but it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF".into()),
        };
    }
    let hint = if configuration { " (see CONFIG_XDP_SOCKETS in /proc/config.gz)" } else { "" };
    warn("AF_XDP", format!("the kernel lacks it{hint}: ports of kind afxdp do not work"))
}

fn hugepages() -> Finding {
    match number("/proc/sys/vm/nr_hugepages") {
        Some(0) | None => ok("huge pages", "none reserved; nothing needs them".into()),
        Some(pages) => ok("huge pages", format!("{pages}")),
    }
}

fn descriptors() -> Finding {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
    let soft = line.split_whitespace().nth(3).and_then(|word| word.parse::<u64>().ok()).unwrap_or(u64::MAX);
    match soft {
        0..4096 => warn("open files", format!("{soft}: a server with many connections needs more: ulimit -n 65536")),
        _ => ok("open files", format!("{soft}")),
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn ok(what: &'static str, text: String) -> Finding {
    Finding { what, state: State::Ok, text }
}

fn warn(what: &'static str, text: String) -> Finding {
    Finding { what, state: State::Warn, text }
}

fn missing(what: &'static str, text: String) -> Finding {
    Finding { what, state: State::Missing, text }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Missing => "missing",
        }
    }

    fn painted(self) -> String {
        match self {
            State::Ok => green(self.name()),
            State::Warn => yellow(self.name()),
            State::Missing => red(self.name()),
        }
    }
}
