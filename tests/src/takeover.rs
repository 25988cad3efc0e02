//! Faults: a new daemon takes the place of the old one under load, again and again; one that may not, does not.
use crate::cases::{Bench, app};
use crate::faults::Bystanders;
use crate::report::Outcome;
use std::time::Duration;

/// Three daemons, one after the other, under transfers in both directions, requests, and connections that open and
/// close.
pub(crate) fn under_load(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    let much = ["-c", &address, "-p", &port, "-u", "3000000000", "-d", "3000000000"];
    let mut client = bench.client_in_background(&app("stream"), &much)?;
    let bystanders = Bystanders::start(bench)?;
    let idle = bench.on_another_port();
    let echo = idle.python_server("asyncio_echo.py", &["serve", &idle.port()])?;
    let (mut logs, mut daemons) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        bench.session.pause(Duration::from_millis(600))?;
        let (new, words) = daemon.take_over(bench.lab)?;
        logs.push(words);
        daemons.push(new);
        // New connections, to a server that was attached to the first daemon.
        bench.python_client("asyncio_echo.py", &["call", &idle.address(), &idle.port(), "4", "5"])?;
    }
    bystanders.finish()?;
    client.succeed()?;
    server.succeed()?;
    drop(echo);
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    let pauses: Vec<&str> = logs.iter().filter_map(|line| line.rsplit_once("for ")).map(|(_, pause)| pause).collect();
    let first = logs[0].split(';').next().unwrap_or_default();
    Ok(format!("{first}; 3 GB each way and every request as sent; stood still for {}", pauses.join(", ")))
}

/// A daemon with other hosts is refused, and the one that runs goes on.
pub(crate) fn refused(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let bystanders = Bystanders::start(bench)?;
    let socket = daemon.socket().display().to_string();
    let other = |host: &str| format!("socket = {socket:?}\n[[fabric]]\nname = \"lab\"\n[[host]]\n{host}\n");
    let unknown = daemon.refuse_takeover(&other("name = \"unknown\"\naddress = \"10.78.0.9\""))?;
    let moved = daemon.refuse_takeover(&other("name = \"server\"\naddress = \"10.78.0.9\""))?;
    bystanders.finish()?;
    Ok(format!("{unknown}; {moved}"))
}
