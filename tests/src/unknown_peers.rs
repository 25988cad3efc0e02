//! Faults: unknown peers on the network. They flood with SYNs, guess at connections of others, or hold connections and
//! send nothing; real clients of the kernel's are served all the while.
use crate::cases::{Bench, PYTHON, app};
use crate::faults::Bystanders;
use crate::lab::DEVICE;
use crate::report::Outcome;

const SCRIPT: &str = "unknown_peers.py";

/// A flood of SYNs from addresses that do not answer; meanwhile connections are opened and served.
pub(crate) fn syn_flood(bench: &Bench) -> Outcome {
    let (address, port, own) = (bench.address(), bench.port(), bench.lab.client.address.to_string());
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    let bystanders = Bystanders::start(bench)?;
    let (script, seed) = (bench.files.path(SCRIPT), std::process::id().to_string());
    let words = [script.as_str(), "flood", DEVICE, &address, &own, &port, "4", &seed];
    let mut flood = bench.client_in_background(PYTHON, &words)?;
    bench.session.until("cookies", || match &bench.lab.daemon {
        Some(daemon) => Ok(daemon.drops_named(&["syn_cookie"]).is_ok()),
        None => Ok(true),
    })?;
    let served = bench.python_client(SCRIPT, &["call", &address, &port, "100"])?;
    bystanders.finish()?;
    let sent = flood.succeed()?;
    let afterwards = bench.python_client(SCRIPT, &["call", &address, &port, "20"])?;
    let counted = match &bench.lab.daemon {
        Some(daemon) => daemon.drops_named(&["syn_cookie"])?,
        None => String::new(),
    };
    Ok(format!("{}; {}; afterwards {}; {counted}", sent.trim(), served.trim(), afterwards.trim()))
}

/// RST, SYN and ICMP for a connection of somebody else, blind and off by little (RFC 5961, RFC 5927).
pub(crate) fn injection(bench: &Bench) -> Outcome {
    let (address, port, own) = (bench.address(), bench.port(), bench.lab.client.address.to_string());
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    let bystanders = Bystanders::start(bench)?;
    let seed = std::process::id().to_string();
    let seen = bench.python_client(SCRIPT, &["inject", DEVICE, &address, &own, &port, &seed])?;
    bystanders.finish()?;
    let counted = match &bench.lab.daemon {
        Some(daemon) => daemon.drops_named(&["rst_challenged", "syn_challenged", "outside_window", "icmp"])?,
        None => String::new(),
    };
    Ok(format!("{}; {counted} (seed {seed})", seen.trim()))
}

/// Hundreds of connections that send a byte now and then, or never read.
pub(crate) fn slow_loris(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    let script = bench.files.path(SCRIPT);
    let mut loris = bench.client_in_background(PYTHON, &[&script, "loris", &address, &port, "500", "6"])?;
    let bystanders = Bystanders::start(bench)?;
    let served = bench.python_client(SCRIPT, &["call", &address, &port, "50"])?;
    bystanders.finish()?;
    let seen = loris.succeed()?;
    Ok(format!("{}; {}", seen.trim(), served.trim()))
}
