//! More connections than the flow table of ZeroNIC has lines (docs/ZERONIC.md): the transport copies those without
//! one, and `opentoe why --flow` explains it.
use crate::cases::{Bench, LARGE, app};
use crate::comm::listening;
use crate::faults::Bystanders;
use crate::over_tcp;
use crate::process::Process;
use crate::report::Outcome;
use serde_json::Value;

/// Connections that have found no line, on all hosts.
fn without_line(bench: &Bench) -> Result<u64, String> {
    let stats = bench.lab.daemon.as_ref().ok_or("there is no daemon")?.ask("stats")?;
    let hosts = stats["hosts"].as_array().ok_or("no hosts")?;
    let counted = |host: &Value| host["modules"]["split"]["connections_without_line"].as_u64();
    Ok(hosts.iter().filter_map(counted).sum())
}

/// Streams and requests on more connections than there are lines; the programs compare each byte. When they have ended,
/// their lines are free again.
pub(crate) fn served(bench: &Bench) -> Outcome {
    let before = without_line(bench)?;
    let bystanders = Bystanders::start(bench)?;
    let copied = without_line(bench)? - before;
    if copied == 0 {
        return Err("each connection has found a line".into());
    }
    let explained = explained(bench)?;
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    bench.client(&app("stream"), &["-c", &address, "-p", &port, "-u", "20000000", "-d", "20000000"])?;
    server.succeed()?;
    bystanders.finish()?;
    Ok(format!("each byte as sent; {copied} connections without a line; {explained}"))
}

/// The reason that `opentoe why --flow` prints for connections without a line, by the way that it prints it.
fn explained(bench: &Bench) -> Outcome {
    let (mut placed, mut copied) = (0, 0);
    bench.session.until("sentences about connections with a line and without", || {
        (placed, copied) = sentences(bench)?;
        Ok(placed > 0 && copied > 0)
    })?;
    match placed {
        1..=2 => Ok(format!("opentoe why names {copied} without a line, {placed} with one")),
        _ => Err(format!("opentoe why names {placed} connections with a line, {copied} without one")),
    }
}

/// Connections of a host that have received something: with a line, and without.
fn sentences(bench: &Bench) -> Result<(usize, usize), String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let host = if bench.lab.server.is_accelerated() { "server" } else { "client" };
    let (mut placed, mut copied) = (0, 0);
    for flow in 0..Bystanders::CONNECTIONS + 2 {
        // Some numbers are no connection's.
        let why = daemon.toe(&["why", "--host", host, "--flow", &flow.to_string()]);
        match bench.session.run(why) {
            Ok(words) if words.contains("the flow table had no line left") => copied += 1,
            Ok(words) if words.contains("received: ") => placed += 1,
            _ => {}
        }
    }
    Ok((placed, copied))
}

/// Transfers at the same time over each transport, between hosts with one line each.
const TRANSFERS: usize = 3;

/// Files go from one program's memory to another's, through loss, reordering and duplication.
pub(crate) fn streams(bench: &Bench) -> Outcome {
    let mut results = Vec::new();
    for transport in over_tcp::TRANSPORTS {
        files(bench, transport).map_err(|error| format!("{}: {error}", transport.0))?;
        let counted = [0, 1].map(|side| streams_without_line(bench, &over_tcp::name(transport, side)));
        let [there, here] = counted;
        let (there, here) = (there?, here?);
        if there == 0 || here == 0 {
            return Err(format!("{}: {there} and {here} connections had no line", transport.0));
        }
        results.push(format!("{}: {there} and {here} connections without a line", transport.0));
    }
    Ok(format!("SHA-256 equal; {}", results.join("; ")))
}

/// Messages of `toe_comm` and of verbs over each transport, between hosts whose only line a connection has that goes on
/// all the time. The programs compare each byte.
pub(crate) fn messages(bench: &Bench) -> Outcome {
    let mut results = Vec::new();
    for transport in over_tcp::TRANSPORTS {
        let words = messages_over(bench, transport).map_err(|error| format!("{}: {error}", transport.0))?;
        let counted = [0, 1].map(|side| streams_without_line(bench, &over_tcp::name(transport, side)));
        let [there, here] = counted;
        let (there, here) = (there?, here?);
        // Three of calls, and at least one for each program of verbs.
        if there < 6 || here < 6 {
            return Err(format!("{}: only {there} and {here} connections had no line", transport.0));
        }
        results.push(format!("{}: {there} and {here} connections without a line, {words}", transport.0));
    }
    Ok(results.join("; "))
}

fn messages_over(bench: &Bench, transport: (&'static str, u8)) -> Outcome {
    let [there, here] = [0, 1].map(|side| over_tcp::name(transport, side));
    let (address, program) = (over_tcp::address(transport, 0), app("comm_calls"));
    let calls = |count: &str| {
        let port = bench.on_another_port().port();
        let mut command = bench.lab.on_server(&program);
        command.args(["serve", &there, &port]);
        let server = listening(bench, command)?;
        let caller = bench.client_in_background(&program, &["call", &here, &address, &port, count])?;
        Ok::<_, String>((server, caller))
    };
    // They end with this function: the first pair has the only lines.
    let placed = calls("100000000")?;
    explained_as(bench, &placed, "placed in the memory of receives")?;
    let copied = calls("100000000")?;
    explained_as(bench, &copied, "for the flow table had no line left")?;
    let served = |host: &str| streams_without_line(bench, host).map(|count| count > 0);
    let others = (0..TRANSFERS).map(|_| calls("200")).collect::<Result<Vec<_>, _>>()?;
    for (mut server, mut caller) in others {
        let printed = caller.succeed()?;
        server.succeed()?;
        if !printed.trim().starts_with("200 calls") {
            return Err(format!("comm_calls printed {printed}"));
        }
    }
    if !served(&there)? || !served(&here)? {
        return Err("each connection of calls has found a line".into());
    }
    over_tcp::compared_over(bench, transport)
}

/// `opentoe why PID` explains the connection of either program so.
fn explained_as(bench: &Bench, (server, caller): &(Process, Process), words: &str) -> Result<(), String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    for program in [server, caller] {
        let mut printed = String::new();
        let waited = bench.session.until("an explanation of its bytes", || {
            printed = bench.session.run(daemon.toe(&["why", &program.id().to_string()]))?;
            Ok(printed.lines().any(|line| line.starts_with("  received: ") && line.contains(words)))
        });
        waited.map_err(|error| format!("{error}: {printed}"))?;
    }
    Ok(())
}

fn files(bench: &Bench, transport: (&str, u8)) -> Result<(), String> {
    let [there, here] = [0, 1].map(|side| over_tcp::name(transport, side));
    let (address, program) = (over_tcp::address(transport, 0), app("comm_file"));
    let mut pairs = Vec::new();
    for number in 0..TRANSFERS {
        let port = bench.on_another_port().port();
        let into = bench.session.dir().join(format!("{} {number}", transport.0)).display().to_string();
        let mut command = bench.lab.on_server(&program);
        command.args(["receive", &there, &port, &into]);
        pairs.push((listening(bench, command)?, port, into));
    }
    let file = bench.files.path(LARGE);
    let send = |(_, port, _): &(_, String, String)| {
        bench.client_in_background(&program, &["send", &here, &address, port, &file])
    };
    let senders = pairs.iter().map(send).collect::<Result<Vec<_>, _>>()?;
    for (mut sender, (mut receiver, _, into)) in senders.into_iter().zip(pairs) {
        receiver.succeed()?;
        sender.succeed()?;
        let mut command = std::process::Command::new("sha256sum");
        command.arg(&into);
        bench.files.expect(LARGE, &bench.session.run(command)?)?;
    }
    Ok(())
}

/// Connections of a ZeroNIC host that have found no line.
fn streams_without_line(bench: &Bench, name: &str) -> Result<u64, String> {
    let stats = bench.lab.daemon.as_ref().ok_or("there is no daemon")?.ask("stats")?;
    let mut hosts = stats["zeronics"].as_array().into_iter().flatten();
    let host = hosts.find(|host| host["name"] == name).ok_or_else(|| format!("there is no host {name}"))?;
    host["payload"]["connections_without_line"].as_u64().ok_or_else(|| format!("{name} counts no connections: {host}"))
}
