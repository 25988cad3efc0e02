//! Faults: applications that attach as anybody may and keep no rule. Beside each of them programs run that must not
//! notice: every byte is compared, the daemon lives on, and what it holds stays bounded.
mod attachment;
mod program;
mod queues;
pub mod verbs;

pub(crate) use attachment::{Attachment, Dice};
pub use program::{Orders, run};

use crate::cases::{Bench, app, number_after};
use crate::daemon::{Daemon, beside};
use crate::process::Process;
use crate::report::Outcome;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Most that the daemon's own memory may grow during an attack, KiB.
const MOST_GROWTH: u64 = 96 << 10;

/// Random and adversarial values over the whole region, from several threads.
pub(crate) fn scribbles(bench: &Bench) -> Outcome {
    attack(bench, "scribble", None)
}

/// One that sends and never reads.
pub(crate) fn never_reads(bench: &Bench) -> Outcome {
    attack(bench, "silent", None)
}

/// One that opens until it is refused.
pub(crate) fn opens_until_limits(bench: &Bench) -> Outcome {
    attack(bench, "greedy", None)
}

/// One that repeats descriptors of connections that are over. It opens connections as fast as it can, which an honest
/// program may do, too: what the others have beside such a one stands with it.
pub(crate) fn replays(bench: &Bench) -> Outcome {
    attack(bench, "replay", Some("busy"))
}

/// The others alone, beside an honest program that is as busy where there is one, and beside the hostile one.
fn attack(bench: &Bench, name: &str, honest: Option<&str>) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &bench.port()])?;
    let alone = requests_a_second(&mut echoes(bench, "2")?)?;
    let own = own_memory(daemon)?;
    let victim = bench.on_another_port();
    let _echo = victim.server(bench.lab.on_server(&app("echo_server")), &["-p", &victim.port()])?;
    let seed = std::process::id().to_string();
    let percent = |rate: f64| format!("{:.0}%", 100.0 * rate / alone);
    let mut report = match honest {
        Some(honest) => {
            let (rate, words) = others_beside(bench, &victim, honest, &seed)?;
            format!("{words}, and others at {} beside it; ", percent(rate))
        }
        None => String::new(),
    };
    let (meanwhile, words) = others_beside(bench, &victim, name, &seed)?;
    report += &words;
    let grown = own_memory(daemon)?.saturating_sub(own);
    if grown > MOST_GROWTH {
        return Err(format!("the daemon grew by {grown} KiB"));
    }
    // Somebody new is served as ever.
    requests_a_second(&mut echoes(bench, "1")?).map_err(|e| format!("afterwards: {e}"))?;
    Ok(format!("{report} (seed {seed}); others at {} of {alone:.0}/s; daemon +{grown} KiB", percent(meanwhile)))
}

/// Requests a second of the others while an attack runs, and its report.
fn others_beside(bench: &Bench, victim: &Bench, name: &str, seed: &str) -> Result<(f64, String), String> {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    let host = if bench.lab.client.is_accelerated() { "client" } else { "server" };
    // The bystanders' cores stay theirs: what is tried here is what shared memory and shared tables do.
    let mut command = bench.lab.far.command("nice");
    command.args(["-n", "19", &beside("hostile"), name]).arg(daemon.socket());
    command.args([host, &bench.address(), &victim.port(), "4", seed]);
    let mut hostile = bench.session.spawn(command)?;
    let meanwhile = requests_a_second(&mut echoes(bench, "4")?).map_err(|e| format!("bystanders noticed: {e}"))?;
    let words = hostile.succeed().map_err(|error| format!("{error}: {}", hostile.stderr().trim()))?;
    Ok((meanwhile, words.trim().to_string()))
}

/// A client of the bench's echo server that compares each reply, for some seconds, over eight connections.
pub(crate) fn echoes<'a>(bench: &Bench<'a>, seconds: &str) -> Result<Process<'a>, String> {
    let (address, port) = (bench.address(), bench.port());
    bench.client_in_background(
        &app("echo_client"),
        &["-c", &address, "-p", &port, "-n", "8", "-s", "700", "-d", "2", "-t", seconds],
    )
}

/// Of a client that compares each reply.
pub(crate) fn requests_a_second(client: &mut Process<'_>) -> Result<f64, String> {
    let printed: Value = serde_json::from_str(&client.succeed()?).map_err(|error| error.to_string())?;
    printed["ops_per_s"].as_f64().ok_or("echo_client printed no ops_per_s".into())
}

/// Memory of the daemon that is no region of an application, KiB.
pub(crate) fn own_memory(daemon: &Daemon<'_>) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).map_err(|error| error.to_string())?;
    number_after(&status, "RssAnon:").map(|kib| kib as u64)
}

/// A user without a right to the daemon's sockets gets an error of the system and one sentence.
pub(crate) fn without_right(bench: &Bench) -> Outcome {
    let daemon = bench.lab.daemon.as_ref().ok_or("there is no daemon")?;
    // The sockets' own permissions must be what refuses.
    fs::set_permissions(bench.session.dir(), fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
    let mut refusals = Vec::new();
    for words in [&["run"][..], &["ls"]] {
        let mut command = bench.lab.far.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", &beside("opentoe")]);
        command.args(words).arg("--socket").arg(daemon.socket());
        if words == ["run"] {
            command.args(["--", "echo", "started"]);
        }
        let mut process = bench.session.spawn(command)?;
        let status = process.wait()?;
        let (out, err) = (process.stdout(), process.stderr());
        if status.code() != Some(1) || !out.is_empty() || err.trim().lines().count() != 1 {
            return Err(format!("toe {} as nobody ended with {status} and printed: {out}{err}", words[0]));
        }
        refusals.push(err.trim().to_string());
    }
    Ok(refusals.join("; "))
}
