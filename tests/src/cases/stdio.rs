//! Programs with stdio on their sockets. The C library reads and writes inside itself there, which nothing interposes:
//! their system calls are intercepted.
use super::{Bench, LARGE, number_after};
use crate::report::Outcome;
use std::fs;
use std::process::Command;

/// Bytes of the repository's large file.
const BYTES: usize = 30_000_000;

/// The daemon starts a program for each connection, with the socket as its standard input and output.
pub(super) fn git(bench: &Bench) -> Outcome {
    let place = bench.session.dir().join(format!("git-{}", bench.port));
    let served = place.join("served/project");
    fs::create_dir_all(&served).map_err(|error| error.to_string())?;
    let make = format!(
        "set -e; cd {}; git init -q; head -c {BYTES} {} >large; mkdir small
         for i in $(seq 200); do echo $i >small/$i; done
         git add .; git -c user.name=test -c user.email=test@localhost commit -q -m first",
        served.display(),
        bench.files.path(LARGE)
    );
    bench.session.run(quiet_git(Command::new("sh"), &["-c", &make]))?;
    let (base, port) = (place.join("served").display().to_string(), bench.port());
    let listen = format!("--listen={}", bench.any());
    let arguments = ["daemon", &listen, "--reuseaddr", "--export-all", "--verbose"];
    let daemon = quiet_git(bench.lab.intercepted_on_server("git"), &arguments);
    let _server = bench.server(daemon, &[&format!("--port={port}"), &format!("--base-path={base}"), &base])?;
    let url = format!("git://{}:{port}/project", bench.authority());
    let copy = place.join("copy").display().to_string();
    bench.session.run(quiet_git(bench.lab.on_client("git"), &["clone", "-q", &url, &copy]))?;
    let refs = bench.session.run(quiet_git(bench.lab.on_client("git"), &["ls-remote", &url, "HEAD"]))?;
    let mut compare = Command::new("diff");
    compare.args(["-r", "--exclude=.git", &served.display().to_string(), &copy]);
    bench.session.run(compare)?;
    if refs.split_whitespace().nth(1) != Some("HEAD") {
        return Err(format!("ls-remote: {refs}"));
    }
    fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    Ok(format!("clone of {} MB in 201 files, compared; ls-remote", BYTES / 1_000_000))
}

/// Without the configuration of whoever runs the test: some sign each commit.
fn quiet_git(mut command: Command, arguments: &[&str]) -> Command {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").args(arguments);
    for variable in ["core.compression", "core.looseCompression", "pack.compression"].iter().enumerate() {
        let (at, name) = variable;
        command.env(format!("GIT_CONFIG_KEY_{at}"), name).env(format!("GIT_CONFIG_VALUE_{at}"), "0");
    }
    command.env("GIT_CONFIG_COUNT", "3");
    command
}

/// Buffers of 64 KiB that are sent, and what they are in MiB.
const BUFFERS: u32 = 3000;
const MIB: f64 = 187.5;

/// How often nuttcp is tried. One side connects the data connections 20 ms after it asked for them, whether the other
/// side listens by then or not. On a busy machine they may be refused, on any stack. Here the client connects them,
/// both ways (`-F`): a server whose connection is refused goes back to its listener, and its client waits for ever.
const ATTEMPTS: usize = 4;

/// Its control connection is a stream of stdio on both sides. Each way, and four connections at once.
pub(super) fn nuttcp(bench: &Bench) -> Outcome {
    let mut rates = Vec::new();
    for options in [&["-t"][..], &["-r", "-F"], &["-t", "-N4"], &["-r", "-F", "-N4"]] {
        let mut rate = nuttcp_one_way(&bench.on_another_port(), options);
        for _ in 1..ATTEMPTS {
            if rate.as_ref().is_err_and(|why| why.contains("Connection refused")) {
                rate = nuttcp_one_way(&bench.on_another_port(), options);
            }
        }
        rates.push(format!("{:.1}", rate?));
    }
    Ok(format!("{MIB} MiB each way, on one connection and on four: {} Gbit/s", rates.join(", ")))
}

/// Gbit/s. A server whose client was refused may wait for it a while, so each attempt has a server of its own.
fn nuttcp_one_way(bench: &Bench, options: &[&str]) -> Result<f64, String> {
    let port = bench.port();
    let _server = bench.server(bench.lab.intercepted_on_server("nuttcp"), &["-S", "--nofork", "-4", "-P", &port])?;
    // Connections of one run have ports one after the other.
    let data = [(); 4].map(|()| bench.files.fresh_port())[0].to_string();
    let mut command = bench.lab.intercepted_on_client("nuttcp");
    let count = format!("-n{BUFFERS}");
    command.args(["-4", "-l64k", "-fparse", &count, "-P", &port, "-p", &data]).args(options).arg(bench.address());
    let mut client = bench.session.spawn(command)?;
    let printed = client.succeed().map_err(|why| format!("{why}: {}", client.stderr().trim()))?;
    let moved = number_after(&printed, "megabytes=")?;
    if (moved - MIB).abs() > 0.01 {
        return Err(format!("{} moved {moved} MiB, not {MIB}", options.join(" ")));
    }
    Ok(number_after(&printed, "rate_Mbps=")? / 1e3)
}
