//! Sends by reference (docs/ZERONIC.md): an unmodified program sends with `MSG_ZEROCOPY` from memory that it has from
//! `malloc`, and writes to it once it is notified. Its peer checks every byte.
use crate::cases::Bench;
use crate::cases::zero_copy_sends::{STREAMS, WAYS, finish, transfer};
use crate::report::Outcome;
use serde_json::Value;
use std::time::Duration;

/// A count of the server's host: its engine's merge.
fn count(bench: &Bench, name: &str) -> Result<u64, String> {
    let stats = bench.lab.daemon.as_ref().ok_or("there is no daemon")?.ask("stats")?;
    let hosts = stats["hosts"].as_array().ok_or("no hosts")?;
    let of_merge = |host: &Value| host["modules"]["merge"][name].as_u64();
    let counted: Vec<u64> = hosts.iter().filter_map(of_merge).collect();
    if counted.is_empty() { Err(format!("no host counts {name}: {stats}")) } else { Ok(counted.iter().sum()) }
}

/// In all ways, one after the other.
pub(crate) fn sends(bench: &Bench) -> Outcome {
    let (bytes, mut shares, mut before) = (32 << 20, Vec::new(), 0);
    for way in WAYS {
        let bench = bench.on_another_port();
        let calls = finish(transfer(&bench, way, bytes)?).map_err(|error| format!("{way}: {error}"))?;
        let all = count(&bench, "referred_bytes")?;
        if all == before {
            return Err(format!("{way}: no byte was sent by reference"));
        }
        // Of several pieces, a short one is copied: so is the call, as on Linux.
        if way == "wait" && !calls.ends_with(" 0 copied") {
            return Err(format!("{way}: calls were copied: {calls}"));
        }
        // What was lost is sent again from there.
        shares.push(format!("{way} {} %", (all - before) * 100 / (STREAMS * bytes)));
        before = all;
    }
    Ok(format!("every byte as sent; by reference: {}", shares.join(", ")))
}

/// The program is killed while its memory is being sent.
pub(crate) fn sender_killed(bench: &Bench) -> Outcome {
    let [mut sender, mut receiver] = transfer(bench, "wait", 1 << 40)?;
    bench.session.pause(Duration::from_millis(500))?;
    sender.kill();
    if receiver.succeed().is_ok() {
        return Err("the receiver has had all of an endless stream".into());
    }
    finish(transfer(&bench.on_another_port(), "wait", 8 << 20)?)
}

/// Three daemons, one after the other, while the program's memory is being sent.
pub(crate) fn taken_over(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let pair = transfer(bench, "wait", 1 << 30)?;
    let mut daemons = Vec::new();
    for _ in 0..3 {
        bench.session.pause(Duration::from_millis(300))?;
        daemons.push(daemon.take_over(bench.lab)?.0);
    }
    let calls = finish(pair)?;
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!("3 GB as sent, three daemons; {calls}"))
}

/// Daemons are killed while the program's memory is being sent, and the next ones go on.
pub(crate) fn daemon_killed(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let pair = transfer(bench, "wait", 1 << 30)?;
    let mut daemons = Vec::new();
    for _ in 0..5 {
        bench.session.pause(Duration::from_millis(400))?;
        daemons.push(daemon.restart(bench.lab)?);
    }
    let calls = finish(pair)?;
    daemons.last_mut().map_or(Ok(()), |last| daemon.finish_successor(last))?;
    Ok(format!("3 GB as sent, five daemons killed; {calls}"))
}
