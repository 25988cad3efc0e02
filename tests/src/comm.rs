//! Programs that use `toe_comm_*` (docs/ZERONIC.md), beside those that use sockets.
use crate::cases::{Bench, LARGE, app};
use crate::daemon::beside;
use crate::over_tcp;
use crate::process::Process;
use crate::report::Outcome;
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;

/// The ZeroNIC hosts of a laboratory: the receiver's and the sender's.
pub(crate) const HOSTS: [(&str, &str); 2] = [("zero-server", "10.78.0.12"), ("zero-client", "10.78.0.13")];

/// A file goes from one program's memory to the other's, through loss, reordering, duplication and damage.
pub(crate) fn file(bench: &Bench) -> Outcome {
    let [(_, address), (there, _)] = HOSTS;
    received(bench, |port| bench.client(&app("comm_file"), &["send", there, address, port, &bench.files.path(LARGE)]))?;
    Ok("SHA-256 equal".into())
}

/// The same from an ordinary program of another host, and to one: neither is written for ZeroNIC.
pub(crate) fn peers(bench: &Bench) -> Outcome {
    let [(_, address), (there, _)] = HOSTS;
    let file = bench.files.path(LARGE);
    received(bench, |port| bench.client("sh", &["-c", &format!("nc -N {address} {port} < {file}")]))?;
    let port = bench.port();
    let listen = format!("TCP4-LISTEN:{port},reuseaddr");
    let mut server = bench.server(bench.lab.on_server("socat"), &["-u", &listen, "SYSTEM:sha256sum"])?;
    bench.client(&app("comm_file"), &["send", there, &bench.address(), &port, &file])?;
    bench.files.expect(LARGE, &server.succeed()?)?;
    Ok("SHA-256 equal, from nc and to socat".into())
}

/// Requests and answers as messages, from C and from Rust: each byte is compared by the caller.
pub(crate) fn calls(bench: &Bench) -> Outcome {
    let (c, rust) = (app("comm_calls"), beside("examples/comm_calls"));
    calls_of(bench, &c, &c)?;
    calls_of(bench, &c, &rust)?;
    calls_of(bench, &rust, &c)
}

/// Calls of one program, which the other one answers.
fn calls_of(bench: &Bench, serving: &str, calling: &str) -> Outcome {
    let bench = bench.on_another_port();
    let [(here, address), (there, _)] = HOSTS;
    let port = bench.port();
    let mut command = bench.lab.on_server(serving);
    command.args(["serve", here, &port]);
    let mut server = listening(&bench, command)?;
    let printed = bench.client(calling, &["call", there, address, &port, "200"])?;
    match (printed.trim(), server.succeed()?.lines().last()) {
        (calls, Some("200 answers")) if calls.starts_with("200 calls") => Ok(calls.into()),
        (calls, answers) => Err(format!("{calling} printed {calls:?}, {serving} {answers:?}")),
    }
}

/// Requests and answers as unreliable datagrams, sent again where one was lost: each byte is compared by the caller.
pub(crate) fn datagrams(bench: &Bench) -> Outcome {
    let [(here, address), (there, caller)] = HOSTS;
    let lab = exchange(bench, [(here, address), (there, caller)])?;
    let [here, there] = linux_hosts();
    let linux = exchange(&bench.on_another_port(), [(&here.0, &here.1), (&there.0, &there.1)])?;
    Ok(format!("{lab}; over Linux' TCP: {linux}"))
}

/// A caller is killed between its requests, and the next one takes its place, with the same ends.
pub(crate) fn caller_killed(bench: &Bench) -> Outcome {
    let linux = linux_hosts();
    let of_lab = HOSTS.map(|(name, address)| (name.to_string(), address.to_string()));
    for [(here, address), (there, caller)] in [of_lab, linux] {
        let bench = bench.on_another_port();
        let (port, program) = (bench.port(), app("comm_datagrams"));
        let mut command = bench.lab.on_server(&program);
        command.args(["serve", &here, &port, &caller, &port]);
        let mut server = listening(&bench, command)?;
        for _ in 0..3 {
            let endless = ["call", &there, &port, &address, &port, "1000000000"];
            let mut calling = bench.client_in_background(&program, &endless)?;
            bench.session.pause(Duration::from_millis(300))?;
            calling.running()?;
            calling.signal_all(Signal::KILL)?;
            calling.wait()?;
        }
        // The ends are free once the daemon has found the process gone.
        let mut printed = String::new();
        bench.session.until("a free flow", || {
            let called = bench.client(&program, &["call", &there, &port, &address, &port, "100"]);
            Ok(called.map(|words| printed = words).is_ok())
        })?;
        let served = server.succeed()?;
        if !printed.starts_with("100 calls") || served.lines().last() != Some("served") {
            return Err(format!("{there}: the caller printed {printed:?}, the server {served:?}"));
        }
    }
    Ok("six callers killed, and the next ones answered".into())
}

/// The two hosts over Linux' TCP: names and addresses.
fn linux_hosts() -> [(String, String); 2] {
    let linux = over_tcp::TRANSPORTS[2];
    [0, 1].map(|side| (over_tcp::name(linux, side), over_tcp::address(linux, side)))
}

fn exchange(bench: &Bench, [(here, address), (there, caller)]: [(&str, &str); 2]) -> Outcome {
    let (port, program) = (bench.port(), app("comm_datagrams"));
    let mut command = bench.lab.on_server(&program);
    command.args(["serve", here, &port, caller, &port]);
    let mut server = listening(bench, command)?;
    let printed = bench.client(&program, &["call", there, &port, address, &port, "400"])?;
    let served = server.succeed()?;
    match (printed.trim(), served.lines().last()) {
        (calls, Some("served")) if calls.starts_with("400 calls") => Ok(calls.into()),
        (calls, served) => Err(format!("the caller printed {calls:?}, the server {served:?}")),
    }
}

/// From memory that nobody maps to such memory: processes of their own have it, and serve the queues of copies.
pub(crate) fn device(bench: &Bench) -> Outcome {
    let [(here, address), (there, _)] = HOSTS;
    let port = bench.port();
    let mut command = bench.lab.on_server(&app("comm_device"));
    command.args(["receive", here, &port, "24", "stand-in"]);
    let mut receiver = listening(bench, command)?;
    bench.client(&app("comm_device"), &["send", there, address, &port, "24", "stand-in"])?;
    let printed = receiver.succeed()?;
    let last = printed.lines().last().unwrap_or_default().to_string();
    if last.starts_with("24 MiB, equal") { Ok(last) } else { Err(format!("the receiver printed {last:?}")) }
}

/// A program receives on the first host what `send` sends to the port.
fn received(bench: &Bench, send: impl FnOnce(&str) -> Outcome) -> Result<(), String> {
    let (here, _) = HOSTS[0];
    let (port, into) = (bench.port(), bench.session.dir().join("received by toe_comm").display().to_string());
    let mut command = bench.lab.on_server(&app("comm_file"));
    command.args(["receive", here, &port, &into]);
    let mut receiver = listening(bench, command)?;
    send(&port)?;
    receiver.succeed()?;
    let mut command = Command::new("sha256sum");
    command.arg(&into);
    bench.files.expect(LARGE, &bench.session.run(command)?)
}

/// A program, once it has printed that it listens.
pub(crate) fn listening<'a>(bench: &Bench<'a>, command: Command) -> Result<Process<'a>, String> {
    let mut program = bench.session.spawn(command)?;
    bench.session.until("the program to listen", || {
        program.running()?;
        Ok(program.stdout().contains("listening"))
    })?;
    Ok(program)
}
