//! Faults: a host with several ports, of different kinds, serves peers on all of them at the same time.
use crate::cases::{Bench, app};
use crate::lab::{BEYOND, SECOND};
use crate::report::Outcome;

/// One server, reached from a host on the fabric and from the kernel behind a TAP device; and one of the kernel's,
/// reached from the host by its second port.
pub(crate) fn both(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (address, port, second) = (bench.address(), bench.port(), SECOND.to_string());
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    let arguments = |to: &str| ["-c", to, "-p", &port, "-n", "16", "-s", "900", "-d", "4", "-t", "2"].map(String::from);
    let mut from_fabric = bench.lab.on_client(&app("echo_client"));
    from_fabric.args(arguments(&address));
    let mut from_kernel = bench.lab.near.command(&app("echo_client"));
    from_kernel.args(arguments(&second));
    let (mut first, mut other) = (bench.session.spawn(from_fabric)?, bench.session.spawn(from_kernel)?);
    bench.session.until("both clients' connections", || {
        first.running()?;
        other.running()?;
        Ok(daemon.established("server")? == 32)
    })?;
    let here = first.succeed()?;
    let there = other.succeed()?;
    out_by_the_second(bench)?;
    let stats = daemon.ask_with(&serde_json::json!({ "ask": "stats" }), &[])?;
    let ports = stats["hosts"][0]["ports"].as_object().ok_or("opentoe stats shows no ports")?;
    let moved = ports.iter().map(|(name, port)| {
        let [rx, tx] = ["rx_frames", "tx_frames"].map(|key| port[key].as_u64().unwrap_or(0));
        if rx < 1000 || tx < 1000 { Err(format!("port {name} moved {rx} and {tx} frames")) } else { Ok(name.as_str()) }
    });
    let moved = moved.collect::<Result<Vec<_>, _>>()?.join(" and ");
    Ok(format!("{moved}: {}; {}", here.trim(), there.trim()))
}

/// A server of the kernel's behind the TAP device, and a client of the host with both ports.
fn out_by_the_second(bench: &Bench) -> Result<(), String> {
    let bench = bench.on_another_port();
    let (port, beyond) = (bench.port(), BEYOND.to_string());
    let mut server = bench.lab.near.command(&app("stream"));
    server.args(["-l", "-p", &port, "-n", "1"]);
    let mut server = bench.session.spawn(server)?;
    bench.session.until("the kernel's server", || {
        server.running()?;
        bench.lab.near.listens(bench.port)
    })?;
    let mut client = bench.lab.on_server(&app("stream"));
    client.args(["-c", &beyond, "-p", &port, "-u", "100000000", "-d", "100000000"]);
    bench.session.run(client)?;
    server.succeed().map(drop)
}
