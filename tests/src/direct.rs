//! Direct receives (docs/ZERONIC.md): what an unmodified program receives lands in memory that it has from `malloc`. It
//! checks every byte, and that nothing lands behind a buffer or after a call.
use crate::cases::{Bench, app};
use crate::process::Process;
use crate::report::Outcome;
use serde_json::Value;
use std::time::Duration;

/// How the program receives (apps/large_receive.c), with the signals, forks and time-outs that meet a call that waits.
const WAYS: [&str; 8] = ["all", "some", "vector", "message", "timeout", "signal", "fork", "peek"];
const STREAMS: u64 = 3;

/// A receiver and a sender of streams of so many bytes, whose connections are open.
fn transfer<'a>(bench: &Bench<'a>, way: &str, bytes: u64) -> Result<[Process<'a>; 2], String> {
    let numbers = [bytes, 1 << 20, STREAMS].map(|number| number.to_string());
    let (address, port) = (bench.address(), bench.port());
    let [bytes, buffer, streams] = [&numbers[0], &numbers[1], &numbers[2]].map(String::as_str);
    let mut words = ["receive", &address, &port, way, bytes, buffer, streams];
    let receiver = bench.server(bench.lab.with_heap_on_server(&app("large_receive")), &words)?;
    words[0] = "send";
    let mut sender = bench.client_in_background(&app("large_receive"), &words)?;
    bench.session.until("the transfer's begin", || {
        let begun = receiver.stdout().contains("begun");
        if begun { Ok(true) } else { sender.running().map(|()| false) }
    })?;
    Ok([receiver, sender])
}

fn finish([mut receiver, mut sender]: [Process; 2]) -> Result<(), String> {
    // What the receiver complains about is why the sender fails.
    let received = receiver.succeed();
    received.and_then(|_| sender.succeed()).map(drop)
}

/// Bytes that have landed on the server's host, as its engine counts them.
fn landed(bench: &Bench) -> Result<u64, String> {
    let stats = bench.lab.daemon.as_ref().ok_or("there is no daemon")?.ask("stats")?;
    let hosts = stats["hosts"].as_array().ok_or("no hosts")?;
    let of_split = |host: &Value| host["modules"]["split"]["landed_bytes"].as_u64();
    let counted: Vec<u64> = hosts.iter().filter_map(of_split).collect();
    if counted.is_empty() { Err(format!("no host counts landed bytes: {stats}")) } else { Ok(counted.iter().sum()) }
}

/// In all ways, one after the other.
pub(crate) fn receives(bench: &Bench) -> Outcome {
    let (bytes, mut results, mut before) = (32 << 20, Vec::new(), 0);
    for way in WAYS {
        let bench = bench.on_another_port();
        finish(transfer(&bench, way, bytes)?).map_err(|error| format!("{way}: {error}"))?;
        let all = landed(&bench)?;
        let percent = (all - before) * 100 / (STREAMS * bytes);
        // Connections that two processes have had share their ring.
        if all == before && way != "fork" {
            return Err(format!("{way}: no byte has landed directly"));
        }
        results.push(format!("{way} {percent} %"));
        before = all;
    }
    Ok(format!("every byte as sent; landed directly: {}", results.join(", ")))
}

/// Three daemons, one after the other, while buffers are posted.
pub(crate) fn taken_over(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let pair = transfer(bench, "all", 1 << 30)?;
    let mut daemons = Vec::new();
    for _ in 0..3 {
        bench.session.pause(Duration::from_millis(300))?;
        daemons.push(daemon.take_over(bench.lab)?.0);
    }
    finish(pair)?;
    let landed = landed(bench)?;
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    if landed == 0 { Err("no byte has landed directly".into()) } else { Ok("3 GB as sent, three daemons".into()) }
}

/// Milliseconds from the answer of a daemon to its death: some are killed while programs come back to them.
const LIVES: [u64; 10] = [5, 20, 35, 50, 65, 80, 95, 400, 400, 400];

/// Daemons are killed while buffers are posted, and the next ones go on.
pub(crate) fn daemon_killed(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let pair = transfer(bench, "all", 1 << 30)?;
    let mut daemons = Vec::new();
    for life in LIVES {
        bench.session.pause(Duration::from_millis(life))?;
        daemons.push(daemon.restart(bench.lab)?);
    }
    finish(pair)?;
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!("3 GB as sent, {} daemons killed", LIVES.len()))
}
