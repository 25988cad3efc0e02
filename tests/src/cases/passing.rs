//! Programs that pass sockets to other processes over UNIX sockets (`SCM_RIGHTS`).
use super::requests::Requests;
use super::{Bench, SMALL, echo, nginx};
use crate::report::Outcome;
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

/// The primary process accepts, and its workers answer: each connection goes over a UNIX socket.
pub(super) fn node_cluster(bench: &Bench) -> Outcome {
    let program = format!(
        "const cluster = require('cluster'); \
         if (cluster.isPrimary) {{ cluster.fork(); cluster.fork(); }} \
         else require('http').createServer((request, response) => response.end('x'.repeat(1000))).listen({}, '0.0.0.0')",
        bench.port
    );
    // A worker runs the program's file again.
    let file = bench.session.dir().join(format!("cluster-{}.js", bench.port));
    fs::write(&file, program).map_err(|error| error.to_string())?;
    let _server = bench.server(bench.lab.on_server("node"), &[&file.display().to_string()])?;
    nginx::drive_ab(bench, 300, &[])
}

/// As Python's multiprocessing passes them.
pub(super) fn python(bench: &Bench) -> Outcome {
    let _server = bench.python_server("passing.py", &["0.0.0.0", &bench.port(), "3"])?;
    echo::call(bench, &["-n", "8", "-s", "64", "-d", "1"])
}

/// The parent polls the listener and never accepts: no connection may stay with it. As inetd and dovecot's master do.
pub(super) fn watching(bench: &Bench) -> Outcome {
    let mut printed = String::new();
    for way in ["blocks", "polls", "notified"] {
        let bench = bench.on_another_port();
        let _server = bench.python_server("watching.py", &["0.0.0.0", &bench.port(), way])?;
        // One after the other, and many at once.
        for connections in ["1", "16"] {
            printed = echo::call(&bench, &["-n", connections, "-s", "64", "-d", "1"])
                .map_err(|why| format!("{way}: {why}"))?;
        }
    }
    Ok(printed)
}

/// The parent waits for each connection as well, and does not read: the events reach the program that does.
pub(super) fn two_waiters(bench: &Bench) -> Outcome {
    let mut printed = String::new();
    for way in ["edge", "both", "level"] {
        let bench = bench.on_another_port();
        let _server = bench.python_server("two_waiters.py", &["0.0.0.0", &bench.port(), way])?;
        printed = echo::call(&bench, &["-n", "1", "-s", "64", "-d", "1"]).map_err(|why| format!("{way}: {why}"))?;
    }
    Ok(printed)
}

/// Two reloads while requests come in, each on a connection of its own: the new worker gets the listener from the old
/// one.
pub(super) fn haproxy(bench: &Bench) -> Outcome {
    let place = bench.session.dir();
    let (file, answer) = (place.join(format!("haproxy-{}", bench.port)), bench.files.path(SMALL));
    let configuration = format!(
        "global\n  nbthread 2\ndefaults\n  mode http\n  option httpclose\n  timeout client 10s\n  timeout server 10s\n\
         \x20 timeout connect 10s\nfrontend one\n  bind 0.0.0.0:{}\n  http-request return status 200 content-type text/plain \
         file {answer}\n",
        bench.port
    );
    fs::write(&file, configuration).map_err(|error| error.to_string())?;
    let arguments = ["-W", "-db", "-f", &file.display().to_string()];
    let master = bench.server(bench.lab.on_server("haproxy"), &arguments)?;
    let mut load = Requests::start(bench)?;
    for _ in 0..2 {
        load.until_another(bench)?;
        let before = nginx::workers(master.id());
        let mut signalled: Option<Instant> = None;
        bench.session.until("a new worker", || {
            // A master that still loads its configuration forgets the signal, on Linux as well.
            if signalled.is_none_or(|then| then.elapsed() > Duration::from_secs(3)) {
                master.signal(Signal::USR2)?;
                signalled = Some(Instant::now());
            }
            Ok(nginx::workers(master.id()).iter().any(|worker| !before.contains(worker)))
        })?;
    }
    let complete = load.finish()?;
    let code = bench.client("curl", &["-sS", "-o", "/dev/null", "-w", "%{http_code}", &bench.url(SMALL)])?;
    if code != "200" {
        return Err(format!("after the reloads haproxy answers {code}"));
    }
    Ok(format!("{complete} requests during two reloads, none failed"))
}
