//! socat: a process for each connection, programs behind it, sockets that survive exec.
use super::{Bench, LARGE};
use crate::process::Process;
use crate::report::Outcome;

/// A child for each of eight connections at once; the data goes through `cat` and comes back after the caller closed
/// its own direction.
pub(super) fn fork(bench: &Bench) -> Outcome {
    let listen = format!("{}:{},fork,reuseaddr,backlog=64", listen(bench), bench.port);
    let _server = bench.server(bench.lab.on_server("socat"), &["-t", "20", &listen, "EXEC:cat"])?;
    eight_echoes(bench)
}

/// The child's socket becomes standard input and output of `cat`, over fork and exec.
pub(super) fn exec_nofork(bench: &Bench) -> Outcome {
    let listen = format!("{}:{},fork,reuseaddr,backlog=64", listen(bench), bench.port);
    let _server = bench.server(bench.lab.on_server("socat"), &[&listen, "EXEC:cat,nofork"])?;
    eight_echoes(bench)
}

/// Socat's word for a listener.
pub(super) fn listen(bench: &Bench) -> &'static str {
    bench.by_family("TCP4-LISTEN", "TCP6-LISTEN")
}

fn eight_echoes(bench: &Bench) -> Outcome {
    let script = format!(
        "head -c 10000000 {} | socat -t 20 - {}:{}:{} | sha256sum",
        bench.files.path(LARGE),
        bench.by_family("TCP4", "TCP6"),
        bench.authority(),
        bench.port
    );
    let start = || bench.client_in_background("sh", &["-c", &script]);
    let mut clients: Vec<Process> = (0..8).map(|_| start()).collect::<Result<_, _>>()?;
    let wanted = bench.session.run(head_digest(bench))?;
    for client in &mut clients {
        let found = client.succeed()?;
        if found != wanted {
            return Err(format!("SHA-256 is {}, not {}", found.trim(), wanted.trim()));
        }
    }
    Ok("8 connections, 10 MB through cat by SHA-256".into())
}

fn head_digest(bench: &Bench) -> std::process::Command {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("head -c 10000000 {} | sha256sum", bench.files.path(LARGE))]);
    command
}

/// A program that answers only when its input has ended: the reply must pass a half-closed connection.
pub(super) fn exec(bench: &Bench) -> Outcome {
    let listen = format!("{}:{},fork,reuseaddr", listen(bench), bench.port);
    let _server = bench.server(bench.lab.on_server("socat"), &["-t", "20", &listen, "EXEC:sha256sum"])?;
    let target = format!("{}:{}:{}", bench.by_family("TCP4", "TCP6"), bench.authority(), bench.port);
    let source = format!("OPEN:{}", bench.files.path(LARGE));
    let script = format!("socat -u {source} - | socat -t 20 - {target}");
    bench.files.expect(LARGE, &bench.client("sh", &["-c", &script])?)?;
    Ok("sha256sum of 100 MB answered over a half-closed connection".into())
}
