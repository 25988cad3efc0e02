//! Raw packets: perftest's `raw_ethernet_*`. Its two sides do not speak to each other: each gets the hardware
//! addresses, and a server waits for ever where the client has sent before it was there. So they are tried again.
use super::Bench;
use super::verbs::result_line;
use crate::report::Outcome;
use std::process::Command;
use std::time::Duration;

const TRIES: u32 = 5;
/// The server measures for a second, the client sends for two.
const TIMEOUT: Duration = Duration::from_secs(5);
const BANDWIDTH: &str = "raw_ethernet_bw";

/// Frames without an inner header, by a rule for the station.
pub(super) fn frames(bench: &Bench) -> Outcome {
    bandwidth(bench, &["-s", "1000"])
}

/// UDP datagrams, by a rule for both addresses and both ports.
pub(super) fn datagrams(bench: &Bench) -> Outcome {
    let (server, client) = (bench.address(), bench.lab.client.address.to_string());
    bandwidth(bench, &["-s", "1000", "-J", &server, "-j", &client, "-K", "7001", "-k", "7002"])
}

/// Rules are made and ended.
pub(super) fn rules(bench: &Bench) -> Outcome {
    let (server, client) = (bench.address(), bench.lab.client.address.to_string());
    let [own, peer] = [station(bench, bench.lab.on_server("ibv_devinfo"))?, station(bench, on_client(bench))?];
    let mut command = bench.lab.on_server("raw_ethernet_fs_rate");
    command.args(["--server", "-F", "-B", &own, "-E", &peer, "-n", "100", "-J", &server, "-j", &client]);
    command.args(["-K", "7001", "-k", "7002"]);
    let printed = bench.session.run(command)?;
    let rate = printed.lines().rev().find(|line| line.starts_with("100 ")).ok_or(format!("no result:\n{printed}"))?;
    Ok(format!("{} rules a second", rate.split_whitespace().last().unwrap_or("?")))
}

fn bandwidth(bench: &Bench, options: &[&str]) -> Outcome {
    let [own, peer] = [station(bench, bench.lab.on_server("ibv_devinfo"))?, station(bench, on_client(bench))?];
    for _ in 0..TRIES {
        let mut command = bench.lab.on_server(BANDWIDTH);
        command.args(["--server", "-F", "-f", "0", "-D", "1", "-B", &own, "-E", &peer]).args(options);
        let mut server = bench.session.spawn(command)?;
        let sending = ["--client", "-F", "-f", "0", "-D", "2", "-B", &peer, "-E", &own];
        bench.client(BANDWIDTH, &[&sending[..], options].concat())?;
        if server.ended_within(TIMEOUT)?.is_some() {
            return result_line(BANDWIDTH, &server.succeed()?);
        }
        server.kill();
    }
    Err(format!("{BANDWIDTH}: the server got no frame in {TRIES} tries"))
}

fn on_client(bench: &Bench) -> Command {
    bench.lab.on_client("ibv_devinfo")
}

/// The hardware address of a side's host: its device's GUID is made of it (EUI-64).
fn station(bench: &Bench, devinfo: Command) -> Outcome {
    let printed = bench.session.run(devinfo)?;
    let guid = printed.lines().find_map(|line| line.trim().strip_prefix("node_guid:"));
    let digits: String = guid.unwrap_or("").chars().filter(char::is_ascii_hexdigit).collect();
    let guid = u64::from_str_radix(&digits, 16).map_err(|_| format!("ibv_devinfo prints no GUID:\n{printed}"))?;
    let [a, b, c, _, _, d, e, f] = guid.to_be_bytes();
    Ok([a ^ 2, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":"))
}
