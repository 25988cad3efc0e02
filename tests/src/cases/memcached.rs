//! memcached, with a Python client that compares every value and the server's own counts.
use super::Bench;
use crate::report::Outcome;

pub(super) fn one_thread(bench: &Bench) -> Outcome {
    with_threads(bench, "1")
}

pub(super) fn four_threads(bench: &Bench) -> Outcome {
    with_threads(bench, "4")
}

fn with_threads(bench: &Bench, threads: &str) -> Outcome {
    let port = bench.port();
    let arguments = ["-t", threads, "-p", &port, "-U", "0", "-l", bench.any(), "-u", "root", "-m", "256", "-c", "512"];
    let _server = bench.server(bench.lab.on_server("memcached"), &arguments)?;
    let (clients, requests) = if bench.lab.simulated { ("4", "400") } else { ("16", "4000") };
    let printed = bench.python_client("memcached_client.py", &[&bench.address(), &port, clients, requests])?;
    Ok(printed.trim().into())
}
