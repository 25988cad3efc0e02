//! Hosts whose address a ZeroNIC host shares (docs/ZERONIC.md, "One address for all"): sockets and both RDMA devices of
//! one host at the same time, through loss.
use crate::cases::verbs::result_line;
use crate::cases::{Bench, LARGE, app};
use crate::process::Process;
use crate::report::Outcome;
use std::process::Command;

/// What decides on the headers of the ZeroNIC hosts, and the last byte of the server's address; the client's is the
/// next one.
const TRANSPORTS: [(&str, u8); 3] = [("flextoe", 11), ("laminar", 13), ("linux", 15)];
const SIDES: [&str; 2] = ["server", "client"];
const DEVICES: [&str; 2] = ["toe0", "zeronic0"];

/// The daemon's configuration of these hosts, on a fabric that there is.
pub(crate) fn configuration(fabric: &str, engine: &str) -> String {
    let mut text = String::new();
    for (transport, last) in TRANSPORTS {
        for (side, at) in SIDES.into_iter().zip(last..) {
            let name = format!("one-{transport}-{side}");
            text += &format!("[[host]]\nname = {name:?}\naddress = \"10.79.0.{at}\"\nengine = {engine:?}\n");
            text += &format!(
                "rdma = \"own\"\nrdma_recovery = \"selective-repeat\"\nport = {{ kind = \"fabric\", fabric = {fabric:?} }}\n"
            );
            text += "[host.timers]\ntime_wait_ms = 1000\n";
            text += &format!("[[zeronic]]\nhost = {name:?}\ntransport = {transport:?}\n");
        }
    }
    text
}

/// A program on a side.
fn command(bench: &Bench, host: &str, program: &str, arguments: &[&str]) -> Result<Command, String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let mut command = daemon.command(&bench.lab.far, host, program);
    command.args(arguments);
    Ok(command)
}

/// A program that runs on both sides.
struct Pair<'b> {
    name: &'static str,
    server: Process<'b>,
    client: Process<'b>,
}

/// Starts a server, and once it listens, its client.
fn pair<'b>(
    bench: &Bench<'b>,
    transport: (&str, u8),
    name: &'static str,
    serving: &[&str],
    calling: &[&str],
) -> Result<Pair<'b>, String> {
    let bench = &bench.on_another_port();
    let [server, client] = SIDES.map(|side| format!("one-{}-{side}", transport.0));
    let (port, address) = (bench.port(), format!("10.79.0.{}", transport.1));
    let at = ["-p", &port];
    let to = if name == "iperf3" { vec!["-c", &address] } else { vec![address.as_str()] };
    let mut serving = bench.session.spawn(command(bench, &server, name, &[serving, &at].concat())?)?;
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    bench.session.until("the server to listen", || {
        serving.running()?;
        daemon.listens(&server, bench.port)
    })?;
    let client = bench.session.spawn(command(bench, &client, name, &[calling, &at, &to].concat())?)?;
    Ok(Pair { name, server: serving, client })
}

impl Pair<'_> {
    /// What the client printed, once both are done.
    fn end(&mut self) -> Result<String, String> {
        let printed = self.client.succeed()?;
        self.server.succeed()?;
        if self.name == "iperf3" {
            let line = printed.lines().rfind(|line| line.contains("receiver")).ok_or(format!("iperf3: {printed}"))?;
            return Ok(format!("iperf3 {}", line.split_whitespace().skip(6).take(2).collect::<Vec<_>>().join(" ")));
        }
        Ok(format!("{} {}", self.name, result_line(self.name, &printed)?))
    }
}

/// A stream of sockets and WRITEs of both devices, at once, over each transport.
pub(crate) fn beside_each_other(bench: &Bench) -> Outcome {
    let mut results = Vec::new();
    for transport in TRANSPORTS {
        let server = format!("one-{}-server", transport.0);
        let listed = bench.session.run(command(bench, &server, "ibv_devices", &[])?)?;
        let names: Vec<&str> = listed.lines().skip(2).filter_map(|line| line.split_whitespace().next()).collect();
        if names != DEVICES {
            return Err(format!("{server} has the devices {names:?}"));
        }
        let stream = ["-4", "-n", "20M"];
        let mut pairs = vec![pair(bench, transport, "iperf3", &["-4", "-s", "-1"], &stream)?];
        for device in DEVICES {
            let options = ["-d", device, "-x", "1", "-F", "-s", "65536", "-n", "300"];
            pairs.push(pair(bench, transport, "ib_write_bw", &options, &options)?);
        }
        let ends: Result<Vec<String>, String> = pairs.iter_mut().map(Pair::end).collect();
        results.push(format!("{}: {}", transport.0, ends?.join(", ")));
    }
    Ok(results.join("; "))
}

/// A file each way between a socket and a program of `toe_comm_*` of one host, by its own address.
pub(crate) fn one_hosts_own_listeners(bench: &Bench) -> Outcome {
    // The kernel of a `linux` host takes nothing from its own address by a device.
    for transport in TRANSPORTS.into_iter().filter(|transport| transport.0 != "linux") {
        let (host, address) = (format!("one-{}-server", transport.0), format!("10.79.0.{}", transport.1));
        let (file, into) = (bench.files.path(LARGE), bench.session.dir().join("own listener").display().to_string());
        let receiving = bench.on_another_port();
        let port = receiving.port();
        let mut receiver =
            bench.session.spawn(command(bench, &host, &app("comm_file"), &["receive", &host, &port, &into])?)?;
        bench.session.until("the program to listen", || {
            receiver.running()?;
            Ok(receiver.stdout().contains("listening"))
        })?;
        bench.session.run(command(bench, &host, "sh", &["-c", &format!("nc -N {address} {port} < {file}")])?)?;
        receiver.succeed()?;
        let mut sum = Command::new("sha256sum");
        sum.arg(&into);
        bench.files.expect(LARGE, &bench.session.run(sum)?)?;
        let sending = bench.on_another_port();
        let port = sending.port();
        let listener = format!("TCP4-LISTEN:{port},reuseaddr");
        let mut server =
            bench.session.spawn(command(bench, &host, "socat", &["-u", &listener, "SYSTEM:sha256sum"])?)?;
        let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
        bench.session.until("socat to listen", || {
            server.running()?;
            daemon.listens(&host, sending.port)
        })?;
        bench.session.run(command(bench, &host, &app("comm_file"), &["send", &host, &address, &port, &file])?)?;
        bench.files.expect(LARGE, &server.succeed()?)?;
    }
    Ok("SHA-256 equal, from nc and to socat, over flextoe and laminar".into())
}

/// A program of connection management on a host, which is to use one of its devices, or the first.
fn managed(bench: &Bench, host: &str, device: Option<&str>, program: &str) -> Result<Command, String> {
    let mut command = command(bench, host, program, &[])?;
    command.envs(device.map(|device| ("TOE_VERBS_DEVICE", device)));
    Ok(command)
}

/// A call of `apps/meet.c`: from which host, by which device, with which word; and the device that has it.
struct Call {
    host: String,
    device: Option<&'static str>,
    word: &'static str,
    by: &'static str,
}

/// Calls of the listener: by each device in both orders, taken and refused, and from a ZeroNIC host alone.
fn calls(transport: &str) -> Vec<Call> {
    let beside = format!("one-{transport}-client");
    let alone = format!("{transport}-client");
    let all = [
        (&beside, Some("toe0"), "one", "toe0"),
        (&beside, Some("zeronic0"), "two", "zeronic0"),
        (&beside, Some("zeronic0"), "no", "zeronic0"),
        (&beside, Some("toe0"), "no", "toe0"),
        (&alone, None, "three", "zeronic0"),
        (&beside, None, "four", "toe0"),
    ];
    all.map(|(host, device, word, by)| Call { host: host.clone(), device, word, by }).into()
}

/// One listener of any address takes the requests of both devices, each with the `verbs` of its own.
pub(crate) fn one_listener_of_both_devices(bench: &Bench) -> Outcome {
    let mut results = Vec::new();
    for transport in TRANSPORTS {
        let bench = &bench.on_another_port();
        let (server, address) = (format!("one-{}-server", transport.0), format!("10.79.0.{}", transport.1));
        let (port, meet, calls) = (bench.port(), app("meet"), calls(transport.0));
        let mut serving = managed(bench, &server, None, &meet)?;
        serving.args(["serve", &port, &calls.len().to_string()]);
        let mut serving = bench.session.spawn(serving)?;
        let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
        bench.session.until("the listener at both devices", || {
            serving.running()?;
            Ok(daemon.listens(&server, bench.port)? && daemon.manages(&format!("{server}-zeronic"), bench.port)?)
        })?;
        let mut expected = String::new();
        for Call { host, device, word, by } in &calls {
            let mut calling = managed(bench, host, *device, &meet)?;
            // A ZeroNIC host has no sockets.
            calling.env("TOE_VERBS_HOST", host).args(["call", &address, &port, word]);
            let printed = bench.session.run(calling)?;
            let answer = if *word == "no" { format!("refused by {by}") } else { format!("accepted by {by} from {by}") };
            if printed.trim() != format!("{by}: {answer}") {
                return Err(format!("{host} asked by {device:?}, and printed '{}'", printed.trim()));
            }
            expected += &format!("{by}: {word}\n");
        }
        let printed = serving.succeed()?;
        if printed != expected {
            return Err(format!("the server printed:\n{printed}and not:\n{expected}"));
        }
        results.push(format!("{}: {} calls", transport.0, calls.len()));
    }
    for device in ["zeronic0", "toe0"] {
        results.push(format!("rping by {device}: {}", rping(bench, device)?));
    }
    Ok(results.join("; "))
}

/// `rping` to a server that listens on any address; the client uses one device.
fn rping(bench: &Bench, device: &str) -> Outcome {
    let bench = &bench.on_another_port();
    let (server, client, port) = ("one-flextoe-server", "one-flextoe-client", bench.port());
    let common = ["-V", "-v", "-C", "20", "-S", "4000", "-p", &port];
    let mut serving = managed(bench, server, None, "rping")?;
    serving.arg("-s").args(common);
    let mut serving = bench.session.spawn(serving)?;
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    bench.session.until("rping to listen", || {
        serving.running()?;
        daemon.listens(server, bench.port)
    })?;
    let mut calling = managed(bench, client, Some(device), "rping")?;
    calling.args(["-c", "-a", "10.79.0.11"]).args(common);
    let printed = bench.session.run(calling)?;
    serving.succeed()?;
    match printed.matches("rdma-ping-19").count() {
        1 => Ok("20 pings".into()),
        _ => Err(format!("rping did not print its last ping:\n{printed}")),
    }
}
