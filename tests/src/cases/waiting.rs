//! `opentoe run --wait-for`: the client is started first.
use super::{Bench, app};
use crate::report::Outcome;
use std::time::Duration;

pub(super) fn for_the_server(bench: &Bench) -> Outcome {
    let (address, port) = (bench.address(), bench.port());
    let Some(mut command) = bench.lab.on_client_after(&format!("{address}:{port}"), &app("echo_client")) else {
        return Ok("left out: one of the sides is on the kernel".into());
    };
    command.args(["-c", &address, "-p", &port, "-n", "8", "-t", "1"]);
    let mut client = bench.session.spawn(command)?;
    // A client that does not wait is refused meanwhile, and ends.
    bench.session.pause(Duration::from_millis(300))?;
    client.running().map_err(|error| format!("the client did not wait: {error}"))?;
    let _server = bench.server(bench.lab.on_server(&app("echo_server")), &["-p", &port])?;
    client.succeed()?;
    Ok("the client waited, and was served".into())
}
