//! Language runtimes with event loops of their own: they wait in several threads, and make system calls by number.
use super::{Bench, nginx};
use crate::lab::Link;
use crate::report::Outcome;
use std::path::Path;
use std::process::Command;

/// What UCX before 1.20 prints where a peer's acknowledgement of an earlier set-up of the same connection comes late,
/// and ends itself (https://github.com/openucx/ucx/issues/8743): one run in 40 here.
const UCX_FAULT: &str = "must be smaller than current_psn";
/// Runs at most where that happens.
const UCX_TRIES: usize = 3;

/// Erlang's poll threads wait in epoll sets from before the first socket is made.
pub(super) fn erlang(bench: &Bench) -> Outcome {
    let program = format!(
        "{{ok, L}} = gen_tcp:listen({}, [binary, {{active, false}}, {{reuseaddr, true}}, {{nodelay, true}}]), \
         Loop = fun Loop(S) -> case gen_tcp:recv(S, 0) of {{ok, B}} -> gen_tcp:send(S, B), Loop(S); _ -> gen_tcp:close(S) end end, \
         Accept = fun Accept() -> {{ok, S}} = gen_tcp:accept(L), \
         P = spawn(fun() -> receive go -> Loop(S) end end), gen_tcp:controlling_process(S, P), P ! go, Accept() end, Accept().",
        bench.port
    );
    let arguments = ["-noshell", "-noinput", "-eval", &program];
    let _server = bench.server(bench.lab.on_server("erl"), &arguments)?;
    super::echo::call(bench, &["-n", "8", "-s", "64", "-d", "1"])
}

/// Node.js closes descriptors by number. More connections than a program has slots come one after the other.
pub(super) fn node(bench: &Bench) -> Outcome {
    let program = format!(
        "require('http').createServer((request, response) => response.end('x'.repeat(1000))).listen({}, '{}')",
        bench.port,
        bench.any()
    );
    let _server = bench.server(bench.lab.on_server("node"), &["-e", &program])?;
    nginx::drive_ab(bench, 5000, &[])
}

/// Open MPI's ranks send each other the addresses that they find in the list of interfaces. On the fabric there is none
/// but the host's in that namespace: ranks of two hosts find each other by it.
pub(super) fn open_mpi(bench: &Bench) -> Outcome {
    mpi(bench, &["--mca", "btl", "tcp,self"])
}

/// The same over UCX on verbs, and nothing else.
pub(super) fn open_mpi_verbs(bench: &Bench) -> Outcome {
    let any = ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"];
    let verbs = ["-x", "UCX_TLS=rc_verbs,ud_verbs:aux,self", "-x", "UCX_NET_DEVICES=toe0:1"];
    let options = [&["--mca", "pml", "ucx"], &any[..], &verbs].concat();
    let mut ended_by_ucx = 0;
    loop {
        match mpi(bench, &options) {
            Err(why) if why.contains(UCX_FAULT) && ended_by_ucx + 1 < UCX_TRIES => ended_by_ucx += 1,
            Ok(printed) if ended_by_ucx > 0 => {
                return Ok(format!("{printed}; UCX ended itself {ended_by_ucx} times before"));
            }
            ended => return ended,
        }
    }
}

fn mpi(bench: &Bench, options: &[&str]) -> Outcome {
    if bench.lab.link == Link::Loopback {
        return Ok("left out: mpirun and its ranks need the kernel's loopback".into());
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/mpi_sums.c");
    let program = bench.made("mpi_sums", |program| {
        let mut compiler = Command::new("mpicc");
        compiler.args(["-O1", "-o", program]).arg(source);
        compiler
    })?;
    let lab = bench.lab;
    // The ranks reach mpirun over the loopback of a namespace: all are in one.
    let ranks = if lab.link.is_fabric() {
        [lab.on_server(&program), lab.on_client(&program)]
    } else {
        [0, 1].map(|_| lab.on_server(&program))
    };
    let mut mpirun = if lab.server.is_accelerated() { lab.far.command("mpirun") } else { lab.near.command("mpirun") };
    mpirun.args(["--allow-run-as-root", "--oversubscribe"]).args(options);
    for (at, rank) in ranks.iter().enumerate() {
        let between: &[&str] = if at == 0 { &[] } else { &[":"] };
        mpirun.args(between).args(["-np", "2"]).arg(rank.get_program()).args(rank.get_args());
    }
    let mut ranks = bench.session.spawn(mpirun)?;
    let printed = ranks.succeed().map_err(|error| match ranks.stderr().contains(UCX_FAULT) {
        true => format!("{error}: {UCX_FAULT}"),
        false => error,
    })?;
    if printed.contains("4 ranks, 0 sums wrong") { Ok(printed.trim().into()) } else { Err(printed) }
}
