//! Starts a daemon for a lab: with `toed.toml` of the lab's directory, at the socket `toed.sock` there.
use crate::process::{Process, Stop};
use crate::session;
use daemon::client;
use daemon::protocol::Question;
use port::Netns;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long it may take until it answers.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Its attach socket.
pub fn socket(directory: &Path) -> PathBuf {
    directory.join("toed.sock")
}

fn config(directory: &Path) -> PathBuf {
    directory.join("toed.toml")
}

/// The command line of such a daemon.
pub fn words(opentoe: &str, directory: &Path) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    let options = [
        ("--directory", text(directory.join("daemon"))),
        ("--config", text(config(directory))),
        ("--socket", text(socket(directory))),
        ("--owner", std::process::id().to_string()),
        ("--role", "first".into()),
    ];
    let options = options.into_iter().flat_map(|(key, value)| [key.into(), value]);
    [opentoe, "private-daemon"].map(String::from).into_iter().chain(options).collect()
}

/// Runs `opentoe` as a daemon in a namespace, ahead of what else the machine does, and waits until it answers. Nothing
/// starts it again where it ends: what is measured is one daemon.
pub fn start(
    opentoe: &str,
    netns: &Netns,
    directory: &Path,
    configuration: &str,
    stop: &Stop,
) -> Result<Process, String> {
    let config = config(directory);
    std::fs::write(&config, configuration).map_err(|e| format!("cannot write {}: {e}", config.display()))?;
    // Its data-path threads pin themselves; others, as those that stream a capture, run where there is room.
    let words = [session::ahead(), words(opentoe, directory)].concat();
    let socket = socket(directory);
    let mut process = Process::start(netns, &words, directory.join("toed.log"))?;
    stop.until("the daemon", TIMEOUT, || {
        process.alive()?;
        // It listens before it has opened its ports, and answers afterwards.
        Ok(client::ask(&socket, &Question::Hello).is_ok())
    })?;
    session::favour(process.pid());
    Ok(process)
}
