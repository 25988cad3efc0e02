//! Libraries of communication above verbs: UCX, libfabric.
use super::Bench;
use crate::report::Outcome;

/// The reliable transport of UCX makes its connections by datagrams.
const RELIABLE: &str = "rc_verbs,ud_verbs:aux";
const DATAGRAMS: &str = "ud_verbs";

pub(super) fn ucx_reliable_latency(bench: &Bench) -> Outcome {
    ucx(bench, RELIABLE, &["-t", "tag_lat", "-s", "8"])
}

pub(super) fn ucx_reliable_bandwidth(bench: &Bench) -> Outcome {
    ucx(bench, RELIABLE, &["-t", "tag_bw", "-s", "65536"])
}

pub(super) fn ucx_datagrams_latency(bench: &Bench) -> Outcome {
    ucx(bench, DATAGRAMS, &["-t", "tag_lat", "-s", "8"])
}

pub(super) fn ucx_datagrams_bandwidth(bench: &Bench) -> Outcome {
    ucx(bench, DATAGRAMS, &["-t", "tag_bw", "-s", "4096"])
}

/// `ucx_perftest` over one transport; its last line. The client sends the server which test it is.
fn ucx(bench: &Bench, transport: &str, test: &[&str]) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let transport = format!("UCX_TLS={transport}");
    let common = [transport.as_str(), "UCX_NET_DEVICES=toe0:1", "ucx_perftest", "-p", &port];
    let mut server = bench.server(bench.lab.on_server("env"), &common)?;
    let printed = bench.client("env", &[&common[..], &[&address, "-n", "500", "-w", "10"], test].concat())?;
    server.succeed()?;
    final_line(&printed)
}

/// What the last line of `ucx_perftest` says.
pub(crate) fn final_line(printed: &str) -> Outcome {
    let line = printed.lines().find(|line| line.starts_with("Final:"));
    let words: Vec<&str> =
        line.ok_or(format!("ucx_perftest printed no result:\n{printed}"))?.split_whitespace().collect();
    Ok(format!("{} us a message, {} MB/s", words[4], words[6]))
}

pub(super) fn libfabric_connections(bench: &Bench) -> Outcome {
    libfabric(bench, "verbs", "msg")
}

pub(super) fn libfabric_messages(bench: &Bench) -> Outcome {
    libfabric(bench, "verbs;ofi_rxm", "rdm")
}

/// `fi_pingpong -c` compares what it receives; its last line.
fn libfabric(bench: &Bench, provider: &str, endpoint: &str) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let common = ["-p", provider, "-e", endpoint, "-c", "-I", "20"];
    let serving = [&common[..], &["-B", &port]].concat();
    let mut server = bench.server(bench.lab.on_server("fi_pingpong"), &serving)?;
    let printed = bench.client("fi_pingpong", &[&common[..], &["-P", &port, &address]].concat())?;
    server.succeed()?;
    let line = printed.lines().rfind(|line| line.starts_with("1m"));
    let words: Vec<&str> =
        line.ok_or(format!("fi_pingpong printed no result:\n{printed}"))?.split_whitespace().collect();
    Ok(format!("1 MiB: {} MB/s", words[5]))
}
