//! Language runtimes with event loops of their own: they wait in several threads, and make system calls by number.
use super::{Bench, nginx};
use crate::report::Outcome;

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
        "require('http').createServer((request, response) => response.end('x'.repeat(1000))).listen({}, '0.0.0.0')",
        bench.port
    );
    let _server = bench.server(bench.lab.on_server("node"), &["-e", &program])?;
    nginx::drive_ab(bench, 5000, &[])
}
