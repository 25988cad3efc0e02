//! Bulk transfers, compared by SHA-256 or word by word.
use super::{Bench, HUGE};
use crate::report::Outcome;
use serde_json::Value;
use std::time::Instant;

pub(super) fn put(bench: &Bench) -> Outcome {
    timed(1_000_000_007, || {
        let (port, file) = (bench.port(), bench.files.path(HUGE));
        let _server = bench.python_server("bulk.py", &["serve", &port, &file, bench.any()])?;
        let printed = bench.python_client("bulk.py", &["put", &bench.address(), &port, &file])?;
        bench.files.expect(HUGE, &printed)
    })
}

pub(super) fn get(bench: &Bench) -> Outcome {
    timed(1_000_000_007, || {
        let (port, file) = (bench.port(), bench.files.path(HUGE));
        let _server = bench.python_server("bulk.py", &["serve", &port, &file, bench.any()])?;
        let printed = bench.python_client("bulk.py", &["get", &bench.address(), &port])?;
        bench.files.expect(HUGE, &printed)
    })
}

/// The same while the kernel's side loses one frame in a hundred each way.
pub(super) fn put_lossy(bench: &Bench) -> Outcome {
    let _loss = bench.lab.near.lose_one_in_a_hundred()?;
    put(bench)
}

pub(super) fn get_lossy(bench: &Bench) -> Outcome {
    let _loss = bench.lab.near.lose_one_in_a_hundred()?;
    get(bench)
}

/// netcat reads a file and closes its direction; socat on the other side pipes it into `sha256sum`.
pub(super) fn nc(bench: &Bench) -> Outcome {
    let (file, port) = (bench.files.path(super::LARGE), bench.port());
    let listen = format!("{}:{port},reuseaddr", super::socat::listen(bench));
    let mut server = bench.server(bench.lab.on_server("socat"), &["-u", &listen, "SYSTEM:sha256sum"])?;
    bench.client("sh", &["-c", &format!("nc -N {} {port} < {file}", bench.address())])?;
    bench.files.expect(super::LARGE, &server.succeed()?)?;
    Ok("SHA-256 equal".into())
}

pub(super) fn stream(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&super::app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let both = ["-c", &address, "-p", &port, "-u", "1000000007", "-d", "1000000007"];
    let printed = bench.client(&super::app("stream"), &both)?;
    server.succeed()?;
    let report: Value = serde_json::from_str(&printed).map_err(|error| error.to_string())?;
    let rate = report["gbit_per_s"].as_f64().ok_or("stream reports no rate")?;
    Ok(format!("{rate:.1} Gbit/s in sum, every word compared"))
}

fn timed(bytes: u64, transfer: impl FnOnce() -> Result<(), String>) -> Outcome {
    let begin = Instant::now();
    transfer()?;
    let rate = bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9;
    Ok(format!("SHA-256 equal, {rate:.1} Gbit/s with start and hashing"))
}
