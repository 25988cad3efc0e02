//! Semantics of single socket calls: libtoe's own cases, which pass on the kernel's TCP, too.
use super::Bench;
use crate::lab::Link;
use crate::report::Outcome;
use std::path::Path;
use std::process::Command;

/// The same program on the kernel and on the server's side, each with itself.
pub(super) fn calls(bench: &Bench) -> Outcome {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/libtoe/tests/posix.c");
    let (name, family) = bench.by_family(("posix", "-DV4"), ("posix6", "-DV6"));
    let program = bench.made(name, |program| {
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-pthread", family, "-o", program]).arg(source);
        compiler
    })?;
    let mut on_kernel = bench.lab.near.command(&program);
    on_kernel.arg(bench.by_family("127.0.0.1", "::1"));
    let expected = bench.session.run(on_kernel)?;
    let mut here = bench.lab.on_server(&program);
    here.arg(bench.address()).env("GROWS", "").env("OWN_V4", bench.lab.server.address.to_string());
    // The others refuse to send urgent data, which the case then checks.
    if bench.lab.engine != "flextoe" {
        here.env("NO_URGENT", "");
    }
    // Over loopback, a connection to a port where nobody listens is the kernel's to refuse.
    let refusing = bench.lab.link == Link::Loopback;
    let kernel = |state| if refusing { bench.lab.far.ip(&["link", "set", "lo", state]).map(drop) } else { Ok(()) };
    kernel("up")?;
    let found = bench.session.run(here);
    kernel("down")?;
    let found = found?;
    match (found == expected, expected.lines().count()) {
        (true, cases @ 20..) => Ok(format!("{cases} cases as on the kernel")),
        _ => Err(format!("it printed {found:?}, and on the kernel {expected:?}")),
    }
}
