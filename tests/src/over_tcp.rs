//! Verbs of ZeroNIC hosts (docs/ZERONIC.md): Debian's programs, unmodified, whose queue pairs' messages go over TCP.
//! Their sockets are those of ordinary hosts.
use crate::cases::verbs::result_line;
use crate::cases::{Bench, number_after};
use crate::comm::HOSTS;
use crate::process::Process;
use crate::report::Outcome;
use std::process::Command;

/// Both sides: the server's host and the client's.
fn command(bench: &Bench, side: usize, program: &str) -> Command {
    let mut command = if side == 0 { bench.lab.on_server(program) } else { bench.lab.on_client(program) };
    command.env("TOE_VERBS_HOST", HOSTS[side].0);
    command
}

/// Starts a program, and waits until it listens, with a socket or an identifier of connection management.
fn server<'a>(bench: &Bench<'a>, mut command: Command, arguments: &[&str]) -> Result<Process<'a>, String> {
    command.args(arguments);
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let mut process = bench.session.spawn(command)?;
    bench.session.until("the server to listen", || {
        process.running()?;
        Ok(bench.lab.listens(bench.port)? || daemon.manages(HOSTS[0].0, bench.port)?)
    })?;
    Ok(process)
}

/// A program on both sides; what the client printed.
fn both(bench: &Bench, program: &str, serving: &[&str], calling: &[&str]) -> Outcome {
    let mut server = server(bench, command(bench, 0, program), serving)?;
    let mut client = command(bench, 1, program);
    client.args(calling);
    let printed = bench.session.run(client)?;
    server.succeed()?;
    Ok(printed)
}

/// perftest: queue pairs that learn of each other over a socket, and by connection management.
pub(crate) fn perftest(bench: &Bench) -> Outcome {
    let mut said = Vec::new();
    for (program, options) in [
        ("ib_send_bw", &["-s", "65536", "-n", "100"][..]),
        ("ib_write_bw", &["-s", "65536", "-n", "100"]),
        ("ib_write_bw", &["-b", "-q", "4", "-s", "4096", "-n", "200"]),
        ("ib_read_bw", &["-s", "65536", "-n", "100"]),
        ("ib_send_lat", &["-s", "64", "-n", "100"]),
        ("ib_write_lat", &["-s", "64", "-n", "100"]),
        ("ib_read_lat", &["-s", "64", "-n", "100"]),
        ("ib_write_bw", &["-R", "-s", "65536", "-n", "100"]),
    ] {
        let bench = &bench.on_another_port();
        let port = bench.port();
        let managed = options.contains(&"-R");
        let address = if managed { HOSTS[0].1.to_string() } else { bench.address() };
        let common = [&["-p", &port, "-x", "1", "-F"][..], options].concat();
        let printed = both(bench, program, &common, &[&common[..], &[&address]].concat())?;
        said.push(format!("{program} {}", result_line(program, &printed)?));
    }
    Ok(said.join(", "))
}

/// Microseconds of a round trip.
fn pingpong(bench: &Bench, program: &str, options: &[&str]) -> Result<f64, String> {
    let port = bench.port();
    let common = [&["-p", &port, "-g", "1", "-c", "-n", "200"][..], options].concat();
    let printed = both(bench, program, &common, &[&common[..], &[&bench.address()]].concat())?;
    if printed.contains("invalid data") {
        return Err(format!("{program}: {printed}"));
    }
    number_after(&printed, "seconds =")
}

/// Programs that compare each byte: the ping-pong examples with `-c`, one of them with a shared receive queue and
/// events, `rping -V`, `rdma_client`.
pub(crate) fn compared(bench: &Bench) -> Outcome {
    let usec = pingpong(bench, "ibv_rc_pingpong", &[])?;
    pingpong(&bench.on_another_port(), "ibv_srq_pingpong", &["-e"])?;
    let bench = &bench.on_another_port();
    let (port, address) = (bench.port(), HOSTS[0].1);
    let common = ["-V", "-v", "-C", "50", "-S", "4000", "-p", &port, "-a", address];
    let printed = both(bench, "rping", &[&["-s"], &common[..]].concat(), &[&["-c"], &common[..]].concat())?;
    if printed.matches("rdma-ping-49").count() != 1 {
        return Err(format!("rping did not print its last ping:\n{printed}"));
    }
    let bench = &bench.on_another_port();
    let port = bench.port();
    let mut server = server(bench, command(bench, 0, "rdma_server"), &["-p", &port])?;
    let mut client = command(bench, 1, "rdma_client");
    client.args(["-s", address, "-p", &port]);
    let printed = bench.session.run(client)?;
    server.succeed()?;
    if !printed.contains("end 0") {
        return Err(format!("rdma_client: {printed}"));
    }
    Ok(format!("{usec:.1} us a round trip, 50 pings, a message each way"))
}
