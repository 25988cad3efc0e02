//! redis-server with redis-cli and redis-benchmark.
use super::{Bench, LARGE, number_after};
use crate::process::Process;
use crate::report::Outcome;

pub(crate) fn server<'a>(bench: &Bench<'a>) -> Result<Process<'a>, String> {
    let port = bench.port();
    // A dump that lies where the tests are started from is not to be loaded.
    let folder = bench.session.dir().display().to_string();
    let open = [
        "--port",
        &port,
        "--dir",
        &folder,
        "--bind",
        bench.any(),
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
    ];
    bench.server(bench.lab.on_server("redis-server"), &open)
}

pub(super) fn cli(bench: &Bench) -> Outcome {
    let _server = server(bench)?;
    for (command, reply) in [
        (&["ping"][..], "PONG"),
        (&["set", "greeting", "hello"], "OK"),
        (&["get", "greeting"], "hello"),
        (&["-r", "500", "incr", "counter"], "500"),
        (&["eval", "for i = 1, 20000 do redis.call('rpush', 'list', i) end", "0"], ""),
        (&["lrange", "list", "0", "-1"], "20000"),
        (&["dbsize"], "3"),
    ] {
        let printed = call(bench, command)?;
        let last = printed.lines().last().unwrap_or_default();
        if last != reply {
            return Err(format!("redis-cli {}: '{last}' instead of '{reply}'", command.join(" ")));
        }
    }
    large_value(bench)?;
    Ok("commands, a list of 20000, a value of 100 MB by SHA-256".into())
}

pub(crate) fn call(bench: &Bench, command: &[&str]) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    bench.client("redis-cli", &[&["-h", &address, "-p", &port], command].concat())
}

/// Stores 100 MB in one command, reads them back.
fn large_value(bench: &Bench) -> Result<(), String> {
    let cli = format!("redis-cli -h {} -p {}", bench.address(), bench.port());
    let script =
        format!("{cli} -x set large < {} && {cli} get large | head -c 100000000 | sha256sum", bench.files.path(LARGE));
    let printed = bench.client("sh", &["-c", &script])?;
    let digest = printed.strip_prefix("OK\n").ok_or("the large value was not stored")?;
    bench.files.expect(LARGE, digest)
}

pub(super) fn benchmark(bench: &Bench) -> Outcome {
    drive(bench, &["-n", if bench.lab.simulated { "2000" } else { "100000" }])
}

pub(super) fn pipelined(bench: &Bench) -> Outcome {
    drive(bench, &["-n", if bench.lab.simulated { "8000" } else { "400000" }, "-P", "16"])
}

fn drive(bench: &Bench, options: &[&str]) -> Outcome {
    let _server = server(bench)?;
    let (address, port) = (bench.address(), bench.port());
    let common = ["-h", &address, "-p", &port, "-c", "50", "-d", "64", "-t", "set,get", "--csv"];
    let printed = bench.client("redis-benchmark", &[&common, options].concat())?;
    // "SET","155279.50",... : test, requests per second, and latencies.
    let rate = |test: &str| number_after(&printed.replace("\",\"", " "), &format!("\"{test}"));
    let (set, get) = (rate("SET")?, rate("GET")?);
    let stored = call(bench, &["strlen", "key:__rand_int__"])?;
    match stored.trim() {
        "64" => Ok(format!("SET {:.0} k/s, GET {:.0} k/s", set / 1e3, get / 1e3)),
        other => Err(format!("the value that was stored has {other} bytes, not 64")),
    }
}
