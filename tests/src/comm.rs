//! Programs that use `toe_comm_*` (docs/ZERONIC.md), beside those that use sockets.
use crate::cases::{Bench, LARGE, app};
use crate::report::Outcome;
use std::process::Command;

/// The ZeroNIC hosts of a laboratory: the receiver's and the sender's.
pub const HOSTS: [(&str, &str); 2] = [("zero-server", "10.78.0.12"), ("zero-client", "10.78.0.13")];

/// A file goes from one program's memory to the other's, through loss, reordering, duplication and damage.
pub fn file(bench: &Bench) -> Outcome {
    let [(here, address), (there, _)] = HOSTS;
    let (port, into) = (bench.port(), bench.session.dir().join("received by toe_comm").display().to_string());
    let mut command = bench.lab.on_server(&app("comm_file"));
    command.args(["receive", here, &port, &into]);
    let mut receiver = bench.session.spawn(command)?;
    bench.session.until("the receiver to listen", || {
        receiver.running()?;
        Ok(receiver.stdout().contains("listening"))
    })?;
    bench.client(&app("comm_file"), &["send", there, address, &port, &bench.files.path(LARGE)])?;
    receiver.succeed()?;
    let mut command = Command::new("sha256sum");
    command.arg(&into);
    bench.files.expect(LARGE, &bench.session.run(command)?)?;
    Ok("SHA-256 equal".into())
}
