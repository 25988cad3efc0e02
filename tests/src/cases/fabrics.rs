//! Libraries of communication above verbs: UCX, libfabric.
use super::Bench;
use crate::process::Process;
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

/// The figures in the last line of `ucx_perftest`.
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

/// How often `fi_pingpong` is tried. libfabric destroys a queue pair when its peer disconnects, before it reads the
/// completions that stand in the queue (`vrb_ep_close`). A program without a core just then loses that of its last
/// message.
const ATTEMPTS: usize = 3;

/// `fi_pingpong -c` compares what it receives; its last line.
fn libfabric(bench: &Bench, provider: &str, endpoint: &str) -> Outcome {
    let mut outcome = ping_pong(bench, provider, endpoint);
    for _ in 1..ATTEMPTS {
        if outcome == Ok(PingPong::Lost) {
            outcome = ping_pong(&bench.on_another_port(), provider, endpoint);
        }
    }
    match outcome? {
        PingPong::Measured(rate) => Ok(format!("1 MiB: {rate} MB/s")),
        PingPong::Lost => Err("libfabric lost the completion of the last message each time".into()),
    }
}

#[derive(Debug, PartialEq)]
enum PingPong {
    /// MB/s of the last line.
    Measured(String),
    /// All was measured; one side lost the completion of its last message.
    Lost,
}

fn ping_pong(bench: &Bench, provider: &str, endpoint: &str) -> Result<PingPong, String> {
    let (address, port) = (bench.address(), bench.port());
    let common = ["-p", provider, "-e", endpoint, "-c", "-I", "20"];
    let serving = [&common[..], &["-B", &port]].concat();
    let mut server = bench.server(bench.lab.on_server("fi_pingpong"), &serving)?;
    let asking = [&common[..], &["-P", &port, &address]].concat();
    let mut client = bench.client_in_background("fi_pingpong", &asking)?;
    let ended = [client.succeed(), server.succeed()];
    let rate = |process: &Process| {
        let printed = process.stdout();
        let line = printed.lines().rfind(|line| line.starts_with("1m"))?;
        line.split_whitespace().nth(5).map(String::from)
    };
    let rates = [rate(&client), rate(&server)];
    let flushed = [&client, &server].iter().any(|process| process.stderr().contains("Work Request Flushed Error"));
    if flushed && rates.iter().all(Option::is_some) {
        return Ok(PingPong::Lost);
    }
    ended.into_iter().try_for_each(|ended| ended.map(drop))?;
    let [rate, _] = rates;
    rate.map(PingPong::Measured).ok_or(format!("fi_pingpong printed no result:\n{}", client.stdout()))
}
