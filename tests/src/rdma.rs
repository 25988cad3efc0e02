//! Faults of RDMA: programs that keep no rule of their queues, peers that send false frames, and sudden deaths. Beside
//! them an echo over TCP and a pair of queue pairs go on, which compare each byte and must not notice.
use crate::cases::{Bench, PYTHON};
use crate::daemon::beside;
use crate::faults::{Bystanders, ends_with_error};
use crate::hostile::own_memory;
use crate::lab::DEVICE;
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::Signal;
use std::time::Duration;

/// Most that the daemon's own memory may grow during an attack, KiB.
const MOST_GROWTH: u64 = 64 << 10;
/// How long an attack goes on, in seconds.
const ATTACK: &str = "4";

/// Random values over the queues of two contexts, and elements that are nearly right.
pub(crate) fn scribbles(bench: &Bench) -> Outcome {
    attack(bench, "scribble")
}

/// Forged keys, lengths, addresses, opcodes, numbers of queue pairs; a completion queue that overruns.
pub(crate) fn forges(bench: &Bench) -> Outcome {
    attack(bench, "forge")
}

/// Regions that are deregistered, or unmapped, while a peer writes into them.
pub(crate) fn unmaps(bench: &Bench) -> Outcome {
    attack(bench, "unmap")
}

/// An attack beside honest programs.
fn attack(bench: &Bench, name: &str) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let alone = operations(&mut program(bench, "honest", "1")?)?;
    let mut bystanders = Bystanders::start(bench)?;
    let mut honest = program(bench, "honest", ATTACK)?;
    bench.session.until("the honest queue pairs' begin", || Ok(honest.stdout().contains("begun")))?;
    let own = own_memory(daemon)?;
    let mut hostile = program(bench, name, ATTACK)?;
    let attacked = hostile.succeed().map_err(|error| format!("{error}: {}", hostile.stderr().trim()))?;
    let grown = own_memory(daemon)?.saturating_sub(own);
    let meanwhile = operations(&mut honest)?;
    bystanders.have_ended()?;
    bystanders.finish()?;
    if grown > MOST_GROWTH {
        return Err(format!("the daemon grew by {grown} KiB"));
    }
    // Somebody new is served as ever.
    operations(&mut program(bench, "honest", "1")?).map_err(|error| format!("afterwards: {error}"))?;
    Ok(format!(
        "{}; others {meanwhile} operations in {ATTACK} s, {alone} in one alone; daemon +{grown} KiB",
        attacked.trim()
    ))
}

/// The program of `tests::hostile::verbs` with this attack: with queue pairs on both hosts, where there are two.
fn program<'a>(bench: &Bench<'a>, attack: &str, seconds: &str) -> Result<Process<'a>, String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let host = if bench.lab.client.is_accelerated() { "client" } else { "server" };
    let forger = bench.lab.client.address.to_string();
    // The bystanders' cores stay theirs.
    let nice = if attack == "honest" { "0" } else { "19" };
    let mut command = bench.lab.far.command("nice");
    command.args(["-n", nice, &beside("hostile"), "verbs", attack]).arg(daemon.socket());
    command.args([host, "server", &forger, seconds, &std::process::id().to_string()]);
    bench.session.spawn(command)
}

/// How many operations an honest program compared.
fn operations(honest: &mut Process) -> Result<u64, String> {
    let printed =
        honest.succeed().map_err(|error| format!("queue pairs noticed: {error}: {}", honest.stderr().trim()))?;
    let word = printed.lines().last().and_then(|line| line.split(' ').next()?.parse().ok());
    word.filter(|count| *count > 0).ok_or(format!("an honest program printed: {printed}"))
}

/// A peer that sends frames with a wrong ICRC, number, key, address, length or opcode, and answers to nothing.
pub(crate) fn frames(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let bystanders = Bystanders::start(bench)?;
    let mut honest = program(bench, "honest", ATTACK)?;
    let mut target = program(bench, "target", "80")?;
    bench.session.until("the target", || {
        target.running().map_err(|error| format!("{error}: {}", target.stderr().trim()))?;
        Ok(target.stdout().contains('\n'))
    })?;
    let line = target.stdout();
    let numbers: Vec<&str> = line.split_whitespace().skip(1).collect();
    let (own, seed) = (bench.lab.client.address.to_string(), std::process::id().to_string());
    let (script, address, port) = (bench.files.path("roce.py"), bench.address(), bench.port());
    let mut sender = bench.lab.on_client(PYTHON);
    sender.args([&script, DEVICE, &address, &own, &port, &seed]).args(numbers);
    let mut sender = bench.session.spawn(sender)?;
    let sent = sender.succeed().map_err(|error| format!("{error}: {}", sender.stderr().trim()))?;
    let printed = target.succeed().map_err(|error| format!("{error}: {}", target.stderr().trim()))?;
    let operations = operations(&mut honest)?;
    bystanders.finish()?;
    let reasons =
        ["roce_header", "roce_icrc", "qp_unknown", "psn_ahead", "psn_duplicate", "response_stale", "group_unknown"];
    let names = daemon.drops_named(&reasons)?;
    let printed = printed.lines().last().unwrap_or_default();
    Ok(format!("{}; {printed}; {names}; others {operations} operations (seed {seed})", sent.trim()))
}

/// `ib_write_bw` in both directions that will not end by itself, and is under way: server and client.
fn perftest<'a>(bench: &Bench<'a>) -> Result<(Process<'a>, Process<'a>), String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (port, address) = (bench.port(), bench.address());
    let options = ["-p", &port, "-x", "1", "-F", "-b", "-N", "-n", "100000000"];
    let mut server = bench.server(bench.lab.on_server("ib_write_bw"), &options)?;
    let mut client = bench.client_in_background("ib_write_bw", &[&options[..], &[&address]].concat())?;
    bench.session.until("the queue pairs to be connected", || {
        server.running()?;
        client.running()?;
        let hosts = daemon.ask("ls")?;
        let hosts = hosts["hosts"].as_array().ok_or("opentoe ls --json names no hosts")?;
        let ready = |host: &serde_json::Value| host["rdma"].to_string().contains("\"RTS\"");
        Ok(hosts.iter().all(ready))
    })?;
    bench.session.pause(Duration::from_millis(500))?;
    server.running()?;
    client.running()?;
    Ok((server, client))
}

/// The peer's program is killed under traffic: the other one gets an error, nobody else anything.
pub(crate) fn peer_killed(bench: &Bench) -> Outcome {
    let bystanders = Bystanders::start(bench)?;
    let mut honest = program(bench, "honest", ATTACK)?;
    let (server, mut client) = perftest(bench)?;
    server.signal_all(Signal::KILL)?;
    ends_with_error(&mut client)?;
    let operations = operations(&mut honest)?;
    bystanders.finish()?;
    Ok(format!("ib_write_bw printed: {}; others {operations} operations", complaint(&client)))
}

/// The daemon is killed under traffic: programs get errors, and end.
pub(crate) fn daemon_killed(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let (mut server, mut client) = perftest(bench)?;
    daemon.signal(Signal::KILL)?;
    for program in [&mut server, &mut client] {
        ends_with_error(program)?;
    }
    Ok(format!("ib_write_bw printed: {}, {}", complaint(&server), complaint(&client)))
}

/// A daemon with the same hosts may not take the place of one that has queue pairs, and that one goes on.
pub(crate) fn takeover_refused(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let mut honest = program(bench, "honest", ATTACK)?;
    bench.session.until("the honest queue pairs' begin", || Ok(honest.stdout().contains("begun")))?;
    let sentence = daemon.refuse_takeover(&daemon.configuration()?)?;
    if !sentence.contains("RDMA program") {
        return Err(format!("it was refused with other words: {sentence}"));
    }
    let operations = operations(&mut honest)?;
    Ok(format!("{sentence}; {operations} operations meanwhile"))
}

/// What a program of perftest complained of.
fn complaint(process: &Process) -> String {
    let output = process.stderr() + &process.stdout();
    let errors = |line: &&str| line.to_lowercase().contains("fail") || line.to_lowercase().contains("error");
    output.lines().find(errors).unwrap_or("nothing").trim().to_string()
}
