//! Verbs of ZeroNIC hosts (docs/ZERONIC.md): Debian's programs, unmodified, whose queue pairs' messages go over TCP,
//! through a network of their own that loses one frame in a hundred. Their sockets are those of ordinary hosts.
use crate::cases::Bench;
use crate::cases::fabrics::final_line;
use crate::cases::verbs::{result_line, round_trip};
use crate::cases::wheels;
use crate::process::Process;
use crate::report::Outcome;
use std::process::Command;

/// What decides on headers, and the last byte of the address of the server's host; the client's is the next one.
pub(crate) const TRANSPORTS: [(&str, u8); 3] = [("flextoe", 1), ("laminar", 3), ("linux", 5)];
const SIDES: [&str; 2] = ["server", "client"];
/// Their network.
pub(crate) const FABRIC: &str = "rough";
/// The port of `udaddy`, which has no option for another one.
const UDADDY: u16 = 7174;

/// The daemon's configuration of these hosts and their network.
pub(crate) fn configuration() -> String {
    let seed = std::process::id();
    let mut text =
        format!("[[fabric]]\nname = {FABRIC:?}\nloss = 0.01\nreorder = 0.01\nduplicate = 0.005\nseed = {seed}\n");
    for transport in TRANSPORTS {
        for side in 0..SIDES.len() {
            let (name, address, transport) = (name(transport, side), address(transport, side), transport.0);
            text += &format!("[[zeronic]]\nname = {name:?}\naddress = {address:?}\ntransport = {transport:?}\n");
            text += &format!("fabric = {FABRIC:?}\n");
        }
    }
    text
}

pub(crate) fn name((transport, _): (&str, u8), side: usize) -> String {
    format!("{transport}-{}", SIDES[side])
}

pub(crate) fn address((_, last): (&str, u8), side: usize) -> String {
    format!("10.79.0.{}", last + side as u8)
}

/// Hosts of one transport.
struct Pair<'a, 'b> {
    bench: &'a Bench<'b>,
    transport: (&'static str, u8),
}

/// The same over each transport.
fn over_each(bench: &Bench, run: impl Fn(&Pair) -> Outcome) -> Outcome {
    let mut results = Vec::new();
    for transport in TRANSPORTS {
        let pair = Pair { bench, transport };
        let over = |words: String| format!("{}: {words}", transport.0);
        results.push(over(run(&pair).map_err(over)?));
    }
    Ok(results.join("; "))
}

impl<'b> Pair<'_, 'b> {
    /// A program on a side.
    fn command(&self, side: usize, program: &str) -> Command {
        let lab = self.bench.lab;
        let mut command = if side == 0 { lab.on_server(program) } else { lab.on_client(program) };
        command.env("TOE_VERBS_HOST", name(self.transport, side));
        command
    }

    /// Starts a program, and waits until it listens, with a socket or an identifier of connection management.
    fn server(&self, port: u16, mut command: Command, arguments: &[&str]) -> Result<Process<'b>, String> {
        command.args(arguments);
        let daemon = self.bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
        let mut process = self.bench.session.spawn(command)?;
        self.bench.session.until("the server to listen", || {
            process.running()?;
            Ok(self.bench.lab.listens(port)? || daemon.manages(&name(self.transport, 0), port)?)
        })?;
        Ok(process)
    }

    /// A program on both sides; what the client printed.
    fn both(&self, port: u16, program: &str, serving: &[&str], calling: &[&str]) -> Outcome {
        let mut server = self.server(port, self.command(0, program), serving)?;
        let mut client = self.command(1, program);
        client.args(calling);
        let printed = self.bench.session.run(client)?;
        server.succeed()?;
        Ok(printed)
    }

    /// perftest, with these options; the last line of the client's output.
    fn perftest(&self, program: &str, options: &[&str]) -> Outcome {
        let bench = self.bench.on_another_port();
        let managed = options.contains(&"-R");
        let address = if managed { address(self.transport, 0) } else { bench.address() };
        let port = bench.port();
        let common = [&["-p", &port, "-x", "1", "-F"][..], options].concat();
        let printed = self.both(bench.port, program, &common, &[&common[..], &[&address]].concat())?;
        Ok(format!("{program} {}", result_line(program, &printed)?))
    }

    /// Microseconds of a round trip.
    fn pingpong(&self, program: &str, options: &[&str]) -> Result<f64, String> {
        let bench = self.bench.on_another_port();
        let port = bench.port();
        let common = [&["-p", &port, "-g", "1", "-c", "-n", "200"][..], options].concat();
        let printed = self.both(bench.port, program, &common, &[&common[..], &[&bench.address()]].concat())?;
        if printed.contains("invalid data") {
            return Err(format!("{program}: {printed}"));
        }
        round_trip(&printed)
    }

    /// `ucx_perftest` over one of UCX' transports; its last line.
    fn ucx(&self, transport: &str, test: &[&str]) -> Outcome {
        let bench = self.bench.on_another_port();
        let transport = format!("UCX_TLS={transport}");
        let (port, address) = (bench.port(), bench.address());
        let common = [transport.as_str(), "UCX_NET_DEVICES=zeronic0:1", "ucx_perftest", "-p", &port];
        let calling = [&common[..], &[&address, "-n", "500", "-w", "10"], test].concat();
        final_line(&self.both(bench.port, "env", &common, &calling)?)
    }
}

/// perftest: queue pairs that learn of each other over a socket, and by connection management.
pub(crate) fn perftest(bench: &Bench) -> Outcome {
    over_each(bench, |pair| {
        let run = |(program, options): (&str, &[&str])| pair.perftest(program, options);
        let all: [(&str, &[&str]); 10] = [
            ("ib_send_bw", &["-s", "65536", "-n", "100"]),
            ("ib_write_bw", &["-s", "65536", "-n", "100"]),
            ("ib_write_bw", &["-b", "-q", "4", "-s", "4096", "-n", "200"]),
            ("ib_read_bw", &["-s", "65536", "-n", "100"]),
            ("ib_send_lat", &["-s", "64", "-n", "100"]),
            ("ib_write_lat", &["-s", "64", "-n", "100"]),
            ("ib_read_lat", &["-s", "64", "-n", "100"]),
            ("ib_write_bw", &["-R", "-s", "65536", "-n", "100"]),
            ("ib_write_bw", &["-c", "UC", "-s", "65536", "-n", "100"]),
            ("ib_send_lat", &["-c", "UC", "-s", "64", "-n", "100"]),
        ];
        let results: Result<Vec<String>, String> = all.into_iter().map(run).collect();
        Ok(results?.join(", "))
    })
}

/// Programs of datagrams, which never send one again: none is lost where TCP carries them. `udaddy` asks for its queue
/// pairs by connection management.
pub(crate) fn datagrams(bench: &Bench) -> Outcome {
    over_each(bench, |pair| {
        let usec = pair.pingpong("ibv_ud_pingpong", &["-s", "1000"])?;
        let latency = pair.perftest("ib_send_lat", &["-c", "UD", "-s", "64", "-n", "100"])?;
        let rate = pair.perftest("ib_send_bw", &["-c", "UD", "-s", "1024", "-n", "1000"])?;
        let (common, address) = (["-c", "8", "-C", "10", "-S", "1000"], address(pair.transport, 0));
        let calling = [&common[..], &["-s", &address]].concat();
        pair.both(UDADDY, "udaddy", &common, &calling)?;
        Ok(format!("{usec:.1} us a round trip, {latency}, {rate}, 8 lookups"))
    })
}

/// UCX: its reliable transport makes its connections by datagrams.
pub(crate) fn ucx(bench: &Bench) -> Outcome {
    over_each(bench, |pair| {
        let mut results = Vec::new();
        for (transport, len) in [("rc_verbs,ud_verbs:aux", "65536"), ("ud_verbs", "4096")] {
            let latency = pair.ucx(transport, &["-t", "tag_lat", "-s", "8"])?;
            let rate = pair.ucx(transport, &["-t", "tag_bw", "-s", len])?;
            results.push(format!("{transport} {latency}, {len} bytes {rate}"));
        }
        Ok(results.join(", "))
    })
}

/// Mooncake's transfer engine, from PyPI: 16 MiB each way, compared.
pub(crate) fn mooncake(bench: &Bench) -> Outcome {
    let Some(installed) = wheels::Mooncake::install(bench)? else { return Ok(wheels::LEFT_OUT.into()) };
    over_each(bench, |pair| {
        let hosts = [0, 1].map(|side| format!("TOE_VERBS_HOST={}", name(pair.transport, side)));
        installed.transfer(bench, Some(&hosts))
    })
}

/// Programs that compare each byte: the ping-pong examples with `-c`, one of them with a shared receive queue and
/// events, `rping -V`, `rdma_client`.
pub(crate) fn compared(bench: &Bench) -> Outcome {
    over_each(bench, |pair| pair.compared())
}

/// The same over one transport.
pub(crate) fn compared_over(bench: &Bench, transport: (&'static str, u8)) -> Outcome {
    let pair = Pair { bench, transport };
    let queue_pairs = pair.perftest("ib_write_bw", &["-b", "-q", "4", "-s", "4096", "-n", "200"])?;
    Ok(format!("{}, {queue_pairs}", pair.compared()?))
}

impl Pair<'_, '_> {
    fn compared(&self) -> Outcome {
        let (pair, bench) = (self, self.bench);
        let usec = pair.pingpong("ibv_rc_pingpong", &[])?;
        pair.pingpong("ibv_srq_pingpong", &["-e"])?;
        pair.pingpong("ibv_uc_pingpong", &[])?;
        let bench = bench.on_another_port();
        let (port, address) = (bench.port(), address(pair.transport, 0));
        let common = ["-V", "-v", "-C", "50", "-S", "4000", "-p", &port, "-a", &address];
        let (serving, calling) = ([&["-s"], &common[..]].concat(), [&["-c"], &common[..]].concat());
        let printed = pair.both(bench.port, "rping", &serving, &calling)?;
        if printed.matches("rdma-ping-49").count() != 1 {
            return Err(format!("rping did not print its last ping:\n{printed}"));
        }
        let bench = bench.on_another_port();
        let port = bench.port();
        let mut server = pair.server(bench.port, pair.command(0, "rdma_server"), &["-p", &port])?;
        let mut client = pair.command(1, "rdma_client");
        client.args(["-s", &address, "-p", &port]);
        let printed = bench.session.run(client)?;
        server.succeed()?;
        if !printed.contains("end 0") {
            return Err(format!("rdma_client: {printed}"));
        }
        Ok(format!("{usec:.1} us a round trip, 50 pings, a message each way"))
    }
}
