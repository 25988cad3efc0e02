//! `opentoe pcap` beside running programs: what it counts, what others read of it, and that it is in nobody's way.
use crate::cases::{Bench, app};
use crate::daemon::Daemon;
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Connections of the echo client.
const CONNECTIONS: usize = 8;

/// A filter counts exactly, tcpdump reads what was written, and every drop is there with its reason.
pub(crate) fn live(bench: &Bench) -> Outcome {
    let daemon = daemon(bench)?;
    let port = format!("tcp port {}", bench.port);
    let opening = format!("tcp[tcpflags] & (tcp-syn|tcp-ack) = tcp-syn and dst port {}", bench.port);
    let file = bench.session.dir().join("all.pcapng").display().to_string();
    let count = CONNECTIONS.to_string();
    let syns = ["pcap", "--host", "server", "--direction", "in", "-c", &count, &opening];
    let (mut syns, mut all) = (start(bench, daemon, &syns)?, start(bench, daemon, &["pcap", "-w", &file, &port])?);
    // What other hosts send, and what is on its way from the case before, may be dropped while a capture begins or
    // ends.
    let earliest = drops(daemon)?;
    let mut dropped = start(bench, daemon, &["pcap", "--dropped"])?;
    let begin = drops(daemon)?;
    echo(bench)?;
    let lines = syns.succeed()?;
    if lines.lines().filter(|line| line.contains("Flags [S")).count() != CONNECTIONS {
        return Err(format!("openings that the filter found: {lines}"));
    }
    // What is sent again at the end of a connection may be dropped: only then is it quiet.
    bench.session.until("the connections to be over", || Ok(daemon.flows()? == 0))?;
    let finish = drops(daemon)?;
    let (whole, lines) = (end(&mut all)?, end(&mut dropped)?);
    let captured = number(&all)?;
    let read = tcpdump(bench, &file)?;
    if captured != read || captured < 20 * CONNECTIONS || !whole.is_empty() {
        return Err(format!("{captured} frames were captured, tcpdump reads {read}"));
    }
    let (least, most) = (difference(&finish, &begin), difference(&drops(daemon)?, &earliest));
    let seen = reasons(&lines);
    let count = |of: &BTreeMap<String, u64>, reason| of.get(reason).copied().unwrap_or(0);
    let is_right = |reason| (count(&least, reason)..=count(&most, reason)).contains(&count(&seen, reason));
    if !seen.keys().chain(most.keys()).all(is_right) {
        return Err(format!("drops counted: {least:?} to {most:?}, captured: {seen:?}"));
    }
    let total: u64 = seen.values().sum();
    Ok(format!("{CONNECTIONS} openings by filter, {captured} frames read by tcpdump, {total} drops by reason"))
}

/// A reader that stops costs the programs nothing; what it missed is counted. One that is killed is forgotten.
pub(crate) fn stuck_reader(bench: &Bench) -> Outcome {
    let daemon = daemon(bench)?;
    let file = bench.session.dir().join("stuck.pcapng").display().to_string();
    let mut stuck = start(bench, daemon, &["pcap", "-w", &file])?;
    let killed = start(bench, daemon, &["pcap"])?;
    stuck.signal(Signal::STOP)?;
    killed.signal(Signal::STOP)?;
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&app("stream")), &["-l", "-p", &port, "-n", "1"])?;
    bench.client(&app("stream"), &["-c", &address, "-p", &port, "-u", "200000000", "-d", "200000000"])?;
    server.succeed()?;
    killed.signal(Signal::KILL)?;
    stuck.signal(Signal::CONT)?;
    end(&mut stuck)?;
    let printed = stuck.stderr();
    let lost = printed
        .split_once("captured, ")
        .and_then(|(_, reasons)| reasons.split_whitespace().next()?.parse::<u64>().ok());
    match lost {
        Some(lost) if lost > 0 => Ok(format!("200 MB each way went through; {lost} frames lost, and counted")),
        _ => Err(format!("nothing was lost: {printed}")),
    }
}

fn daemon<'a>(bench: &'a Bench) -> Result<&'a Daemon<'a>, String> {
    bench.lab.daemon.as_ref().ok_or("there is no daemon here".into())
}

/// Starts a capture and waits until it goes on.
fn start<'a>(bench: &Bench<'a>, daemon: &Daemon, arguments: &[&str]) -> Result<Process<'a>, String> {
    let mut process = bench.session.spawn(daemon.toe(arguments))?;
    bench.session.until("the capture to begin", || {
        process.running().map_err(|error| format!("{error}: {}", process.stderr().trim()))?;
        Ok(process.stderr().contains("capturing on"))
    })?;
    Ok(process)
}

/// Ends a capture as Ctrl-C does.
fn end(process: &mut Process) -> Outcome {
    process.signal(Signal::INT)?;
    process.succeed()
}

fn echo(bench: &Bench) -> Result<(), String> {
    let (address, port, count) = (bench.address(), bench.port(), CONNECTIONS.to_string());
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    bench
        .client(&app("echo_client"), &["-c", &address, "-p", &port, "-n", &count, "-s", "700", "-d", "2", "-t", "1"])?;
    Ok(())
}

/// How many frames a capture reports.
fn number(process: &Process) -> Result<usize, String> {
    let printed = process.stderr();
    let line = printed.lines().find(|line| line.contains("captured")).ok_or(format!("no count: {printed}"))?;
    let word = line.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    word.ok_or(format!("no count: {line}"))
}

fn tcpdump(bench: &Bench, file: &str) -> Result<usize, String> {
    let mut command = Command::new("tcpdump");
    // Root would give itself up, and could not read the file.
    command.args(["-n", "-q", "-Z", "root", "-r", file]);
    Ok(bench.session.run(command)?.lines().count())
}

/// What the daemon counted, by reason, in its hosts and fabrics.
fn drops(daemon: &Daemon) -> Result<BTreeMap<String, u64>, String> {
    let stats = daemon.ask("stats")?;
    // What a fabric drops counts with the host that sent it.
    let hosts = stats["hosts"].as_array().into_iter().flatten().map(|host| &host["drops"]);
    let fabrics = stats["fabrics"].as_object().into_iter().flatten().map(|(_, fabric)| &fabric["uplink_drops"]);
    // Of ZeroNIC hosts, which are not captured, only what the fabric dropped of their frames.
    let others = stats["zeronics"].as_array().into_iter().flatten().filter_map(|host| host["drops"].as_object());
    let others = others.flatten().filter(|(reason, _)| reason.starts_with("fabric_"));
    let mut counts = BTreeMap::new();
    for (reason, count) in hosts.chain(fabrics).filter_map(Value::as_object).flatten().chain(others) {
        *counts.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
    }
    Ok(counts)
}

fn difference(after: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = after.iter().map(|(reason, count)| (reason.clone(), count - before.get(reason).unwrap_or(&0)));
    more.filter(|(_, count)| *count > 0).collect()
}

/// The reasons that a capture names, line by line.
fn reasons(lines: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (_, reasons) in lines.lines().filter_map(|line| line.split_once("dropped: ")) {
        reasons.trim_end_matches(')').split(", ").for_each(|reason| *counts.entry(reason.into()).or_default() += 1);
    }
    counts
}
