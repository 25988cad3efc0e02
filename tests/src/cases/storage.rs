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

/// fio's own engine of verbs: the client writes to memory of the server, and reads from it. No byte is compared there.
/// Its SENDs are left out: it asks for no retry where the receiver is not ready, so a slow server fails them.
pub(super) fn fio_rdma(bench: &Bench) -> Outcome {
    for verb in ["write", "read"] {
        let bench = bench.on_another_port();
        let (port, host) = (format!("--port={}", bench.port), format!("--hostname={}", bench.address()));
        let common = ["--name=grid", "--ioengine=rdma", "--bs=64k", "--size=64m", "--iodepth=16", &port];
        let mut server = bench.server(bench.lab.on_server("fio"), &[&common[..], &["--rw=read"]].concat())?;
        let client = ["--rw=write", &host, &format!("--verb={verb}"), "--output-format=terse", "--terse-version=3"];
        let printed = bench.client("fio", &[&common[..], &client].concat())?;
        server.succeed()?;
        // The third version's fields: error, and KiB of what is read and written, numbers 6 and 47.
        let fields: Vec<&str> = printed.lines().last().unwrap_or("").split(';').collect();
        let field = |at: usize| fields.get(at - 1).and_then(|field| field.parse::<u64>().ok());
        let moved = field(6).into_iter().chain(field(47)).sum::<u64>();
        if (field(5), moved) != (Some(0), 64 << 10) {
            return Err(format!("fio --verb={verb}: {printed}"));
        }
    }
    // fio pauses for half a second in each run, so its rates have no meaning.
    Ok("64 MiB written, 64 MiB read".into())
}
