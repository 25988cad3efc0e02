//! Disks over the network: NBD servers and clients.
use super::{Bench, LARGE, app};
use crate::report::Outcome;
use serde_json::Value;

/// fio writes blocks at random places, many at once, reads them again and compares checksums. On OpenTOE the disk takes
/// them out of the receive buffer in place and frees them in another order than they came.
pub(super) fn fio(bench: &Bench) -> Outcome {
    let port = bench.port();
    let _server = bench.server(bench.lab.on_server(&app("nbd_ram")), &["-p", &port])?;
    let uri = format!("--uri=nbd://{}:{port}", bench.address());
    let job = ["--name=grid", "--ioengine=nbd", &uri, "--rw=randwrite", "--bs=4k", "--iodepth=64", "--size=64m"];
    let check =
        ["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0", "--output-format=json"];
    let printed = bench.client("fio", &[&job[..], &check[..]].concat())?;
    let json = printed.find('{').map_or("", |at| &printed[at..]);
    let report: Value = serde_json::from_str(json).map_err(|error| format!("fio's JSON: {error}"))?;
    let job = &report["jobs"][0];
    let count = |what: &str| job[what]["total_ios"].as_u64().unwrap_or(0);
    if job["error"] != 0 || (count("read"), count("write")) != (16384, 16384) {
        return Err(format!("fio: error {}, {} blocks read, {} written", job["error"], count("read"), count("write")));
    }
    let rate = job["write"]["iops"].as_f64().unwrap_or(0.0) / 1000.0;
    Ok(format!("{rate:.0} k writes/s of 4 KiB, 64 at once; all read again and compared"))
}

/// nbdkit has threads for the requests of one connection; nbdcopy has four connections.
pub(super) fn nbdkit(bench: &Bench) -> Outcome {
    let (port, file) = (bench.port(), bench.files.path(LARGE));
    let disk = ["-f", "-p", &port, "memory", "100000000"];
    let _server = bench.server(bench.lab.on_server("nbdkit"), &disk)?;
    let uri = format!("nbd://{}:{port}", bench.address());
    bench.client("nbdcopy", &["--connections=4", &file, &uri])?;
    let printed = bench.client("sh", &["-c", &format!("nbdcopy --connections=4 {uri} - | sha256sum")])?;
    bench.files.expect(LARGE, &printed)?;
    Ok("100 MB there and back, SHA-256 equal".into())
}
