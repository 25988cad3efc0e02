//! TCP Fast Open (RFC 7413) with real programs: Python's sockets both ways, and curl. They run between hosts of
//! OpenTOE, and with the kernel as either end.
use crate::cases::Bench;
use crate::lab::Lab;
use crate::report::Outcome;

const SCRIPT: &str = "fast_open.py";
/// Connections of one client: six ways, four sizes.
const CONNECTIONS: &str = "24";

/// Data with the SYN, over both families.
pub(crate) fn both_ways(bench: &Bench) -> Outcome {
    allow(bench.lab)?;
    let mut results = Vec::new();
    for v6 in [false, true] {
        let bench = Bench { v6, ..bench.on_another_port() };
        let (any, address, port) = (bench.any(), bench.address(), bench.port());
        let mut server = bench.python_server(SCRIPT, &["serve", any, &port, CONNECTIONS])?;
        results.push(bench.python_client(SCRIPT, &["call", &address, &port])?.trim().to_string());
        server.succeed()?;
    }
    results.push(with_curl(&bench.on_another_port())?);
    Ok(results.join("; "))
}

/// The namespaces' kernels take and send such data, too.
fn allow(lab: &Lab) -> Result<(), String> {
    for namespace in [&lab.near, &lab.far] {
        let mut sysctl = namespace.command("sysctl");
        let output = sysctl.args(["-q", "-w", "net.ipv4.tcp_fastopen=3"]).output();
        let output = output.map_err(|error| format!("sysctl: {error}"))?;
        if !output.status.success() {
            return Err(format!("sysctl: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
    }
    Ok(())
}

/// curl's second request goes with the SYN. Of other builds than Debian's, some have no Fast Open.
fn with_curl(bench: &Bench) -> Outcome {
    let (any, port, url) = (bench.any(), bench.port(), bench.url(""));
    let _server = bench.python_server(SCRIPT, &["http", any, &port])?;
    let fetch = || bench.client("curl", &["-sS", "--noproxy", "*", "--tcp-fastopen", &url]);
    // The kernel has a cookie for this address already, from the first client.
    fetch()?;
    match fetch()?.trim() {
        "1" => Ok("curl's request went with the SYN".into()),
        other => Err(format!("curl's request did not go with the SYN: the server printed {other:?}")),
    }
}
