//! Bad input and sudden deaths. Each case has a laboratory of its own, and a pair of programs that has nothing to do
//! with the fault and must not notice it.
use crate::capture;
use crate::cases::{Bench, PYTHON, app};
use crate::comm;
use crate::descriptors;
use crate::direct;
use crate::early;
use crate::exhaustion;
use crate::few_lines;
use crate::hostile;
use crate::lab::Link;
use crate::logs;
use crate::modules;
use crate::one_address;
use crate::over_tcp;
use crate::ports;
use crate::process::Process;
use crate::rdma;
use crate::referred;
use crate::report::Outcome;
use crate::restart;
use crate::splicing;
use crate::takeover;
use crate::turnover;
use crate::unknown_peers;
use crate::volumes;
use rustix::process::Signal;
use std::time::Duration;

/// What hosts have beside the usual, on an engine that offers it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hosts {
    /// Nothing.
    Usual,
    /// Shared logs.
    Logs,
    /// Programs' memory in which received bytes land.
    Heaps,
    /// Fewer lines in the flow table than there are connections.
    Lines,
    /// Both.
    LinesAndHeaps,
}

/// One fault.
pub struct Fault {
    /// Its name, for the report and `--filter`.
    pub name: &'static str,
    /// Where it is tried.
    pub links: &'static [Link],
    /// The daemon that ran at first must be whole afterwards.
    pub daemon_survives: bool,
    /// What its hosts have beside the usual.
    pub hosts: Hosts,
    /// What happens, and what must follow.
    pub run: fn(&Bench) -> Outcome,
}

impl Fault {
    /// Modules of operators, which splicing needs, run in FlexTOE only.
    pub fn meets_every_engine(&self) -> bool {
        let flextoe_only = ["modules:", "spliced"].iter().any(|kind| self.name.starts_with(kind));
        // RDMA is a transport beside the engine's, or meets each of them by itself. Shared logs and heaps have engines
        // of their own.
        !flextoe_only && !self.name.starts_with("verbs") && self.hosts == Hosts::Usual
    }
}

const EVERYWHERE: &[Link] = &[Link::Linux, Link::TapServer, Link::TapClient, Link::Fabric];
const OPENTOE: &[Link] = &[Link::TapServer, Link::TapClient, Link::Fabric];

const TAKEN_OVER: &[Link] =
    &[Link::TapServer, Link::TapClient, Link::Fabric, Link::TwoPorts, Link::Uplink, Link::AfxdpServer];

const MODULES: &[Link] = &[Link::TapServer, Link::TapClient, Link::Fabric, Link::LossyThreads];

const HOSTILE: &[Link] = &[Link::TapServer, Link::TapClient, Link::Fabric, Link::LossyThreads];

const VERBS: &[Link] = &[Link::TapServer, Link::Fabric];

/// All that need a laboratory.
pub const ALL: &[Fault] = &[
    fault("client killed in mid-transfer", EVERYWHERE, client_killed),
    fault("server killed in mid-transfer", EVERYWHERE, server_killed),
    fault("receiver stopped for a while", EVERYWHERE, receiver_stopped),
    fault("a long path", &[Link::Far], long_path),
    fault("refused and unreachable", EVERYWHERE, refused),
    fault("address in use", EVERYWHERE, address_in_use),
    fault("loss, reordering, duplication, damage", &[Link::Lossy, Link::LossyThreads], bad_network),
    fault("toe_comm: a file, with loss", &[Link::Lossy], comm::file),
    fault("toe_comm: ordinary peers, with loss", &[Link::Lossy], comm::peers),
    fault("toe_comm: messages, with loss", &[Link::Lossy], comm::calls),
    fault("toe_comm: datagrams, with loss", &[Link::Lossy], comm::datagrams),
    fault("toe_comm: datagrams, callers killed", &[Link::Lossy], comm::caller_killed),
    fault("toe_comm: a device's memory, with loss", &[Link::Lossy], comm::device),
    fault("verbs over TCP: perftest, with loss", &[Link::Lossy], over_tcp::perftest),
    fault("verbs over TCP: bytes compared, with loss", &[Link::Lossy], over_tcp::compared),
    fault("verbs over TCP: datagrams, with loss", &[Link::Lossy], over_tcp::datagrams),
    fault("verbs over TCP: UCX, with loss", &[Link::Lossy], over_tcp::ucx),
    fault("verbs over TCP: Mooncake, with loss", &[Link::Lossy], over_tcp::mooncake),
    fault("verbs and sockets on one address, with loss", &[Link::Lossy], one_address::beside_each_other),
    fault("rdma_cm: one listener of both devices", &[Link::Lossy], one_address::one_listener_of_both_devices),
    fault("sockets and toe_comm of one host, with loss", &[Link::Lossy], one_address::one_hosts_own_listeners),
    fault("toe_volume: a file, with loss", &[Link::Lossy], volumes::file),
    fault("malformed and random frames", &[Link::Linux, Link::TapServer], malformed),
    fault("data with the SYN", &[Link::Linux, Link::TapServer, Link::TapClient, Link::Fabric], early::both_ways),
    fault("peers on two ports", &[Link::TwoPorts], ports::both),
    fault("capture", &[Link::TapServer, Link::Fabric, Link::Lossy, Link::LossyThreads], capture::live),
    fault("capture with a reader that does not read", &[Link::Fabric], capture::stuck_reader),
    fault("modules: null and native", MODULES, modules::null),
    fault("modules: VLAN strip and push", &[Link::TapServer, Link::TapClient], modules::vlan),
    fault("modules: firewall", MODULES, modules::firewall),
    fault("modules: classification", MODULES, modules::classify),
    fault("modules: SYN limiter", &[Link::TapServer, Link::Fabric, Link::LossyThreads], modules::syn_limit),
    fault("modules: loaded and unloaded 1000 times", MODULES, turnover::many),
    fault("modules: VLAN, loaded and unloaded", &[Link::TapServer, Link::TapClient], turnover::vlan),
    fault("modules: one that fails on every frame", MODULES, modules::abort),
    fault("spliced by a proxy", &[Link::TapServer, Link::Fabric], splicing::everything),
    fault("spliced by a proxy, with loss", &[Link::TapServer, Link::Lossy, Link::LossyThreads], splicing::lossy),
    fault("spliced by a proxy, over a long path", &[Link::Far], splicing::far),
    fault("spliced without waiting", &[Link::TapServer, Link::Fabric], splicing::at_once),
    fault("spliced, and the module loaded and unloaded", &[Link::TapServer, Link::Fabric], turnover::splice),
    fault("spliced, and the proxy killed", &[Link::TapServer, Link::Fabric], splicing::proxy_killed),
    fault("sockets of the kernel", &[Link::Linux, Link::Fabric], mixed),
    fault("descriptors, and why they are where", &[Link::Fabric], descriptors::reasons),
    fault("SYN flood", &[Link::Linux, Link::TapServer], unknown_peers::syn_flood),
    fault("resets and ICMP by guessing", &[Link::Linux, Link::TapServer], unknown_peers::injection),
    fault("slow loris", &[Link::Linux, Link::TapServer, Link::Fabric], unknown_peers::slow_loris),
    fault("hostile: writes over its whole region", HOSTILE, hostile::scribbles),
    fault("hostile: never reads", &[Link::TapClient, Link::Fabric], hostile::never_reads),
    fault("hostile: opens until it is refused", &[Link::TapClient, Link::Fabric], hostile::opens_until_limits),
    fault("hostile: repeats old descriptors", HOSTILE, hostile::replays),
    fault("hostile: has no right to attach", &[Link::Fabric], hostile::without_right),
    fault("verbs: writes over its queues", VERBS, rdma::scribbles),
    fault("verbs: forges keys, lengths and numbers", VERBS, rdma::forges),
    fault("verbs: memory goes under a WRITE", VERBS, rdma::unmaps),
    fault("verbs: false frames", &[Link::TapServer], rdma::frames),
    fault("verbs: peer killed", &[Link::Fabric], rdma::peer_killed),
    fault("verbs: takeover refused", &[Link::Fabric], rdma::takeover_refused),
    fatal("verbs: daemon killed", &[Link::Fabric], rdma::daemon_killed),
    log("shared log", &[Link::TapServer, Link::Fabric], logs::written),
    log("shared log, with loss", &[Link::TapServer, Link::Lossy], logs::lossy),
    log("shared log that is full", &[Link::TapServer, Link::Fabric], logs::full),
    log("shared log, and writers that die", &[Link::TapServer, Link::Fabric], logs::writers_die),
    fatal_log("shared log, takeover under load", &[Link::TapServer, Link::Fabric], logs::taken_over),
    heap("direct receives", &[Link::TapServer, Link::Fabric], direct::receives),
    heap("direct receives, with loss", &[Link::Lossy], direct::receives),
    fatal_heap("direct receives, takeover", &[Link::TapServer, Link::Fabric], direct::taken_over),
    fatal_heap("direct receives, daemon killed", &[Link::TapServer, Link::Fabric], direct::daemon_killed),
    heap("sends by reference", &[Link::TapServer, Link::Fabric], referred::sends),
    heap("sends by reference, with loss", &[Link::Lossy], referred::sends),
    heap("sends by reference, sender killed", &[Link::TapServer, Link::Fabric], referred::sender_killed),
    fatal_heap("sends by reference, takeover", &[Link::TapServer, Link::Fabric], referred::taken_over),
    fatal_heap("sends by reference, daemon killed", &[Link::TapServer, Link::Fabric], referred::daemon_killed),
    log("shared logs that cannot be", &[Link::Fabric], logs::refused),
    fault("no descriptors", &[Link::Fabric], exhaustion::no_descriptors),
    fault("no memory", &[Link::Fabric], exhaustion::no_memory),
    fatal("device deleted", &[Link::TapServer], exhaustion::port_gone),
    lines("flow table: more connections than lines", &[Link::TapServer, Link::Fabric, Link::Lossy], few_lines::served),
    lines("flow table: toe_comm, with loss", &[Link::Lossy], few_lines::streams),
    lines("flow table: messages and verbs, with loss", &[Link::Lossy], few_lines::messages),
    heap_lines("flow table: few lines, direct receives", &[Link::Fabric, Link::Lossy], direct::receives),
    fatal_heap_lines("flow table: few lines, sends by reference, takeover", &[Link::Fabric], referred::taken_over),
    fatal_heap_lines("flow table: few lines, sends by reference, killed", &[Link::Fabric], referred::daemon_killed),
    fatal_lines("flow table: few lines, takeover", &[Link::TapServer, Link::Fabric], takeover::under_load),
    fatal_lines("flow table: few lines, daemon killed", &[Link::TapServer, Link::Fabric], restart::connections),
    fatal("takeover under load", TAKEN_OVER, takeover::under_load),
    fatal("spliced, and the daemon taken over", &[Link::TapServer, Link::Fabric], splicing::taken_over),
    fault("takeover refused", &[Link::Fabric], takeover::refused),
    fatal("daemon killed, and services come back", &[Link::TapServer, Link::Fabric], restart::services),
    fatal("daemon killed, and connections go on", TAKEN_OVER, restart::connections),
    fault("daemon of opentoe run killed, and connections go on", &[Link::Fabric], restart::of_a_user),
    fatal("daemon killed", OPENTOE, daemon_killed),
];

const fn fault(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { name, links, daemon_survives: true, hosts: Hosts::Usual, run }
}

const fn fatal(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { daemon_survives: false, ..fault(name, links, run) }
}

const fn log(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Logs, ..fault(name, links, run) }
}

const fn fatal_log(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Logs, ..fatal(name, links, run) }
}

const fn heap(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Heaps, ..fault(name, links, run) }
}

const fn fatal_heap(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Heaps, ..fatal(name, links, run) }
}

const fn lines(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Lines, ..fault(name, links, run) }
}

const fn heap_lines(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::LinesAndHeaps, ..fault(name, links, run) }
}

const fn fatal_heap_lines(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::LinesAndHeaps, ..fatal(name, links, run) }
}

const fn fatal_lines(name: &'static str, links: &'static [Link], run: fn(&Bench) -> Outcome) -> Fault {
    Fault { hosts: Hosts::Lines, ..fatal(name, links, run) }
}

/// Far more than any machine moves before the fault.
const ENDLESS: &str = "1000000000000";

/// Programs that talk to each other through the fault: an echo server and its client.
pub(crate) struct Bystanders<'a> {
    _server: Process<'a>,
    client: Process<'a>,
}

impl<'a> Bystanders<'a> {
    /// So many connections.
    pub(crate) const CONNECTIONS: usize = 8;

    /// Their connections are open, so that what comes now happens to connections.
    pub(crate) fn start(bench: &Bench<'a>) -> Result<Bystanders<'a>, String> {
        let bench = bench.on_another_port();
        let (address, port) = (bench.address(), bench.port());
        let server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
        let connections = Bystanders::CONNECTIONS.to_string();
        let arguments = ["-c", &address, "-p", &port, "-n", &connections, "-s", "700", "-d", "2", "-t", "4", "-b"];
        let mut client = bench.client_in_background(&app("echo_client"), &arguments)?;
        bench.session.until("the bystanders' begin", || {
            client.running().map_err(|error| format!("bystanders noticed: {error}"))?;
            Ok(client.stdout().contains("begun"))
        })?;
        Ok(Bystanders { _server: server, client })
    }

    /// Theirs is done.
    pub(crate) fn have_ended(&mut self) -> Result<bool, String> {
        self.client.ended().map(|status| status.is_some())
    }

    /// They noticed nothing.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        self.client.succeed().map(drop).map_err(|error| format!("bystanders noticed: {error}"))
    }
}

/// Until a transfer is well under way.
const UNDER_WAY: Duration = Duration::from_millis(700);

/// A transfer in both directions at once that will not end by itself, and may not have begun yet.
pub(crate) fn endless_transfer<'a>(bench: &Bench<'a>) -> Result<(Process<'a>, Process<'a>), String> {
    transfer(bench, ENDLESS)
}

/// The same of so many bytes each way.
pub(crate) fn transfer<'a>(bench: &Bench<'a>, bytes: &str) -> Result<(Process<'a>, Process<'a>), String> {
    let (address, port) = (bench.address(), bench.port());
    let server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let both = ["-c", &address, "-p", &port, "-u", bytes, "-d", bytes];
    let client = bench.client_in_background(&app("stream"), &both)?;
    Ok((server, client))
}

/// The same when it has run for a while.
fn transfer_under_way<'a>(bench: &Bench<'a>) -> Result<(Process<'a>, Process<'a>), String> {
    let (mut server, mut client) = endless_transfer(bench)?;
    bench.session.until("the transfer's begin", || Ok(server.stdout().contains("begun")))?;
    bench.session.pause(UNDER_WAY)?;
    server.running()?;
    client.running()?;
    Ok((server, client))
}

fn client_killed(bench: &Bench) -> Outcome {
    let bystanders = Bystanders::start(bench)?;
    let (mut server, client) = transfer_under_way(bench)?;
    client.signal_all(Signal::KILL)?;
    ends_with_error(&mut server)?;
    bystanders.finish()?;
    Ok(format!("the server saw: {}", complaint(&server)))
}

fn server_killed(bench: &Bench) -> Outcome {
    let bystanders = Bystanders::start(bench)?;
    let (server, mut client) = transfer_under_way(bench)?;
    server.signal_all(Signal::KILL)?;
    ends_with_error(&mut client)?;
    bystanders.finish()?;
    Ok(format!("the client saw: {}", complaint(&client)))
}

pub(crate) fn ends_with_error(process: &mut Process) -> Result<(), String> {
    let status = process.wait()?;
    if status.code() == Some(1) { Ok(()) } else { Err(format!("it ended with {status} instead of an error")) }
}

pub(crate) fn complaint(process: &Process) -> String {
    process.stderr().trim().rsplit(": ").next().unwrap_or_default().to_lowercase()
}

/// The receiving program does not run for a while: its window closes, the sender probes, nothing is lost.
fn receiver_stopped(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let mut client = bench.client_in_background(&app("stream"), &["-c", &address, "-p", &port, "-u", "3000000000"])?;
    bench.session.pause(Duration::from_millis(200))?;
    server.signal_all(Signal::STOP)?;
    bench.session.pause(Duration::from_millis(1500))?;
    client.running().map_err(|error| format!("with the receiver stopped: {error}"))?;
    server.signal_all(Signal::CONT)?;
    client.succeed()?;
    server.succeed()?;
    Ok("3 GB intact, every word compared".into())
}

fn long_path(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    bench.client(&app("stream"), &["-c", &address, "-p", &port, "-u", "20000003", "-d", "20000003"])?;
    server.succeed()?;
    Ok("20 MB each way at once over 20 ms and 100 Mbit/s, every word compared".into())
}

/// Over a network that does everything wrong, with many connections and with full buffers both ways.
fn bad_network(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    bench.client(&app("stream"), &["-c", &address, "-p", &port, "-u", "50000003", "-d", "50000003"])?;
    server.succeed()?;
    let many = bench.on_another_port();
    let _echo = many.python_server("asyncio_echo.py", &["serve", &many.port()])?;
    let printed = many.python_client("asyncio_echo.py", &["call", &address, &many.port(), "20", "20"])?;
    let seed = std::process::id();
    Ok(format!("50 MB each way at once, every word compared; {} (seed {seed})", printed.trim()))
}

fn refused(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let refused = bench.python_client("sockets.py", &["refused", &address, &port])?;
    let unreachable = bench.python_client("sockets.py", &["unreachable", "10.78.0.99"])?;
    Ok(format!("{}; {}", refused.trim(), unreachable.trim()))
}

fn address_in_use(bench: &Bench) -> Outcome {
    let port = bench.port();
    let _first = bench.python_server("asyncio_echo.py", &["serve", &port])?;
    let mut second = bench.lab.on_server(PYTHON);
    second.args([&bench.files.path("asyncio_echo.py"), "serve", &port]);
    let mut second = bench.session.spawn(second)?;
    ends_with_error(&mut second)?;
    match second.stderr().contains("Errno 98") {
        true => Ok("the second server got EADDRINUSE".into()),
        false => Err("the second server did not get EADDRINUSE".into()),
    }
}

fn malformed(bench: &Bench) -> Outcome {
    let bystanders = Bystanders::start(bench)?;
    let closed = bench.on_another_port();
    let _server = bench.python_server("asyncio_echo.py", &["serve", &bench.port()])?;
    let own = bench.lab.client.address.to_string();
    let seed = std::process::id().to_string();
    let sent = bench.python_client(
        "frames.py",
        &[crate::lab::DEVICE, &bench.address(), &own, &bench.port(), &closed.port(), &seed],
    )?;
    bystanders.finish()?;
    bench.python_client("asyncio_echo.py", &["call", &bench.address(), &bench.port(), "4", "10"])?;
    let names = match &bench.lab.daemon {
        Some(daemon) => daemon.drops_named(&[
            "ethernet",
            "ip",
            "not_ours",
            "fragment",
            "protocol",
            "tcp_header",
            "tcp_checksum",
            "icmp",
            "no_flow",
        ])?,
        None => String::new(),
    };
    Ok(format!("{} (seed {seed}) {names}", sent.trim()))
}

fn mixed(bench: &Bench) -> Outcome {
    let seen = bench.python_client("sockets.py", &["mixed"])?;
    if seen.trim() == "pipe tcp udp unix" { Ok(seen.trim().into()) } else { Err(format!("ready were only: {seen}")) }
}

/// The programs' sockets break at once; nothing hangs, and nothing starts half-accelerated afterwards.
fn daemon_killed(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (mut server, mut client) = transfer_under_way(bench)?;
    let idle = bench.on_another_port();
    let _echo = idle.python_server("asyncio_echo.py", &["serve", &idle.port()])?;
    let script = bench.files.path("sockets.py");
    let mut waiting = idle.client_in_background(PYTHON, &[&script, "wait", &idle.address(), &idle.port()])?;
    bench.session.until("the waiting connection", || Ok(waiting.stdout().contains("connected")))?;
    daemon.signal(Signal::KILL)?;
    let mut seen = Vec::new();
    if bench.lab.server.is_accelerated() {
        ends_with_error(&mut server)?;
        seen.push(complaint(&server));
    }
    if bench.lab.client.is_accelerated() {
        ends_with_error(&mut client)?;
        seen.push(complaint(&client));
        waiting.wait()?;
        seen.push(waiting.stdout().lines().last().unwrap_or_default().to_lowercase());
    }
    let known = ["connection reset by peer", "broken pipe", "econnreset", "epipe"];
    match seen.iter().find(|words| !known.contains(&words.as_str())) {
        Some(other) => Err(format!("a program saw '{other}'")),
        None => nothing_starts(bench).map(|words| format!("programs saw {}; {words}", seen.join(", "))),
    }
}

fn nothing_starts(bench: &Bench) -> Outcome {
    let accelerated =
        if bench.lab.server.is_accelerated() { bench.lab.on_server("echo") } else { bench.lab.on_client("echo") };
    let mut command = accelerated;
    command.arg("started");
    let mut late = bench.session.spawn(command)?;
    ends_with_error(&mut late)?;
    let lines = late.stderr().trim().lines().count();
    match (late.stdout().is_empty(), lines) {
        (true, 1) => Ok("a new one is not started".into()),
        (false, _) => Err("a program was started without its daemon".into()),
        _ => Err(format!("opentoe run prints {lines} lines instead of one sentence")),
    }
}
