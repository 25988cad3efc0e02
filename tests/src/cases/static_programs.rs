//! Programs that are linked statically, with other libraries than glibc's for C: there is no dynamic linker to preload
//! anything, so `opentoe run` loads them itself.
use super::{Bench, echo};
use crate::report::Outcome;
use std::path::Path;
use std::process::Command;

/// Our own epoll server and client, in C with musl.
pub(super) fn musl(bench: &Bench) -> Outcome {
    let server = with_musl(bench, "echo_server")?;
    let client = with_musl(bench, "echo_client")?;
    let _server = bench.server(bench.lab.on_server(&server), &["-p", &bench.port()])?;
    echo::call_by(bench, &client, &["-n", "16", "-s", "64", "-d", "2"])
}

/// Rust's standard library on both sides, with a thread for each connection.
pub(super) fn rust(bench: &Bench) -> Outcome {
    let program = bench.made("echo-rust", |program| {
        let mut compiler = Command::new("rustc");
        compiler.args(["--edition", "2021", "-O", "-C", "target-feature=+crt-static", "-o", program]);
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/echo.rs"));
        compiler
    })?;
    let _server = bench.server(bench.lab.on_server(&program), &["serve", &bench.port()])?;
    let printed = bench.client(&program, &["call", &bench.address(), &bench.port(), "16", "500"])?;
    Ok(printed.trim().into())
}

/// One of the programs in `apps`.
fn with_musl(bench: &Bench, name: &str) -> Outcome {
    let house = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    bench.made(&format!("{name}-musl"), |program| {
        let mut compiler = Command::new("musl-gcc");
        compiler.args(["-static", "-pthread", "-O2", "-o", program]);
        compiler.arg("-I").arg(house.join("include")).arg(house.join(format!("apps/{name}.c")));
        compiler
    })
}
