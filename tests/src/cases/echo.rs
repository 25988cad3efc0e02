//! Echo servers: Python's asyncio, and our own on epoll.
use super::Bench;
use crate::report::Outcome;
use serde_json::Value;

pub(super) fn asyncio(bench: &Bench) -> Outcome {
    let port = bench.port();
    let _server = bench.python_server("asyncio_echo.py", &["serve", &port, bench.any()])?;
    let printed = bench.python_client("asyncio_echo.py", &["call", &bench.address(), &port, "50", "40"])?;
    Ok(printed.trim().into())
}

pub(super) fn small(bench: &Bench) -> Outcome {
    drive(bench, &[], &["-n", "64", "-s", "64", "-d", "4"])
}

pub(super) fn large(bench: &Bench) -> Outcome {
    drive(bench, &[], &["-n", "8", "-s", "20000", "-d", "3"])
}

/// Each of the server's threads blocks in a call of its own.
pub(super) fn threads(bench: &Bench) -> Outcome {
    drive(bench, &["-b"], &["-n", "48", "-s", "300", "-d", "1"])
}

fn drive(bench: &Bench, server: &[&str], options: &[&str]) -> Outcome {
    let port = bench.port();
    let _server = bench.server(bench.lab.on_server(&super::app("echo_server")), &[&["-p", &port], server].concat())?;
    call(bench, options)
}

/// Our client on whatever server echoes there.
pub(super) fn call(bench: &Bench, options: &[&str]) -> Outcome {
    call_by(bench, &super::app("echo_client"), options)
}

/// The same by a build of it.
pub(super) fn call_by(bench: &Bench, client: &str, options: &[&str]) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let common = ["-c", &address, "-p", &port, "-t", "2"];
    let printed = bench.client(client, &[&common, options].concat())?;
    let report: Value = serde_json::from_str(&printed).map_err(|error| error.to_string())?;
    let (rate, latency) = (report["ops_per_s"].as_f64(), &report["latency_us"]);
    let rate = rate.filter(|rate| *rate > 0.0).ok_or("no operation was counted")?;
    Ok(format!("{:.0} k/s, p50 {} us, p99 {} us", rate / 1e3, latency["p50"], latency["p99"]))
}
