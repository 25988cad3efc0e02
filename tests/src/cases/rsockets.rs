//! rsockets. Debian's examples compare each byte. Ordinary programs have Debian's `librspreload.so` in front.
use super::verbs::compiled;
use super::{Bench, PYTHON};
use crate::report::Outcome;
use std::process::Command;

/// Turns calls of sockets into calls of rsockets. It stands in front of what OpenTOE preloads.
const PRELOAD: &str = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so";
/// Bytes that go over HTTP.
const BODY: &str = "3000000";

pub(super) fn stream(bench: &Bench) -> Outcome {
    example(bench, "rstream", &["-T", "v", "-S", "65536", "-C", "200"])
}

pub(super) fn stream_blocking(bench: &Bench) -> Outcome {
    example(bench, "rstream", &["-T", "b", "-T", "v", "-S", "1000", "-C", "2000"])
}

pub(super) fn stream_polled(bench: &Bench) -> Outcome {
    example(bench, "rstream", &["-T", "a", "-T", "v", "-S", "65536", "-C", "200"])
}

pub(super) fn placed(bench: &Bench) -> Outcome {
    example(bench, "riostream", &["-T", "v", "-S", "65536", "-C", "200"])
}

/// One of the examples that go back and forth; its last line.
fn example(bench: &Bench, program: &str, options: &[&str]) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let common = [&["-p", &port][..], options].concat();
    let mut server = bench.server(bench.lab.on_server(program), &common)?;
    let printed = bench.client(program, &[&common[..], &["-s", &address]].concat())?;
    server.succeed()?;
    let line = printed.lines().find(|line| line.starts_with("custom"));
    let words: Vec<&str> = line.ok_or(format!("{program} printed no result:\n{printed}"))?.split_whitespace().collect();
    Ok(format!("{} messages of {}, {} Gbit/s", words[2], words[1], words[6]))
}

pub(super) fn datagrams(bench: &Bench) -> Outcome {
    pong(bench, &["-T", "n"], &["-T", "e", "-S", "64", "-C", "1000"])
}

pub(super) fn datagrams_blocking(bench: &Bench) -> Outcome {
    pong(bench, &["-T", "b"], &["-T", "e", "-S", "1000", "-C", "1000"])
}

pub(super) fn datagrams_polled(bench: &Bench) -> Outcome {
    pong(bench, &["-T", "a"], &["-T", "e", "-S", "1000", "-C", "1000"])
}

/// Datagrams one way: of those that the client sends, some may be lost.
pub(super) fn datagrams_one_way(bench: &Bench) -> Outcome {
    pong(bench, &["-T", "b"], &["-S", "1000", "-C", "5000"])
}

/// `udpong`, whose server does not end by itself. Without an address it would be loopback's.
fn pong(bench: &Bench, common: &[&str], options: &[&str]) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let common = [&["-p", &port][..], common].concat();
    let mut server = bench.server(bench.lab.on_server("udpong"), &[&common[..], &["-b", &address]].concat())?;
    let printed = bench.client("udpong", &[&common[..], options, &["-s", &address]].concat())?;
    server.running()?;
    let line = printed.lines().find(|line| line.starts_with("custom"));
    let words: Vec<&str> = line.ok_or(format!("udpong printed no result:\n{printed}"))?.split_whitespace().collect();
    match words[2] {
        "0" => Err(format!("no datagram has come:\n{printed}")),
        count => Ok(format!("{count} datagrams of {}, {} us each", words[1], words[6])),
    }
}

/// A program that compares each byte of datagrams, and tries the calls.
pub(super) fn datagrams_compared(bench: &Bench) -> Outcome {
    let program = compiled(bench, "datagrams")?;
    let (address, port) = (bench.address(), bench.port());
    let mut server = bench.server(bench.lab.on_server(&program), &["serve", &address, &port])?;
    let printed = bench.client(&program, &["ask", &address, &port])?;
    server.succeed()?;
    Ok(printed.trim().into())
}

/// `rcopy` copies a file, part by part.
pub(super) fn copy(bench: &Bench) -> Outcome {
    let (from, to) = (bench.files.path(super::SMALL), bench.files.path("copied.bin"));
    let mut server = bench.server(bench.lab.on_server("rcopy"), &["-p", &bench.port()])?;
    bench.client("rcopy", &[&from, &format!("{}:{to}", bench.address()), "-p", &bench.port()])?;
    server.running()?;
    let read = |path: &str| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
    match read(&from)? == read(&to)? {
        true => Ok("a file".into()),
        false => Err("the copy differs".into()),
    }
}

/// The command with rsockets in front of its sockets.
fn preloaded(mut shell: Command, line: &str) -> Command {
    shell.args(["-c", &format!("LD_PRELOAD={PRELOAD}:$LD_PRELOAD exec {line}")]);
    shell
}

/// `curl` over rsockets.
pub(super) fn curl(bench: &Bench) -> Outcome {
    let script = bench.files.path("rsocket_http.py");
    let serve = format!("{PYTHON} {script} {} {} {BODY}", bench.address(), bench.port());
    let mut server = bench.server(preloaded(bench.lab.on_server("sh"), &serve), &[])?;
    let fetched = bench.files.path("fetched.bin");
    let get = format!("curl -sSf -o {fetched} {}", bench.url(""));
    bench.session.run(preloaded(bench.lab.on_client("sh"), &get))?;
    let sent = server.succeed()?;
    let mut digest = Command::new("sha256sum");
    digest.arg(&fetched);
    let got = bench.session.run(digest)?;
    match got.split_whitespace().next() == Some(sent.trim()) {
        true => Ok(format!("{BODY} bytes")),
        false => Err(format!("sent {sent}, got {got}")),
    }
}

/// Python's datagrams over rsockets.
pub(super) fn python_datagrams(bench: &Bench) -> Outcome {
    let line = |role: &str| {
        let script = bench.files.path("rsocket_datagrams.py");
        format!("{PYTHON} {script} {role} {} {}", bench.address(), bench.port())
    };
    let mut server = bench.server(preloaded(bench.lab.on_server("sh"), &line("serve")), &[])?;
    let printed = bench.session.run(preloaded(bench.lab.on_client("sh"), &line("ask")))?;
    server.succeed()?;
    Ok(printed.trim().into())
}

/// `iperf3` over rsockets.
pub(super) fn iperf(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let serve = format!("iperf3 -s -1 -B {address} -p {port}");
    let mut server = bench.server(preloaded(bench.lab.on_server("sh"), &serve), &[])?;
    let line = format!("iperf3 -c {address} -p {port} -n 30M -f m");
    let printed = bench.session.run(preloaded(bench.lab.on_client("sh"), &line))?;
    server.succeed()?;
    let line = printed.lines().find(|line| line.ends_with("receiver"));
    let rate = line.and_then(|line| line.split_whitespace().rev().nth(2));
    Ok(format!("{} Mbit/s", rate.ok_or(format!("iperf3 printed no result:\n{printed}"))?))
}
