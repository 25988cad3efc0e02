//! Linux' own TCP for a ZeroNIC host: a process of the daemon's in a network namespace of its own, which makes the
//! device and the sockets, and passes them on. A confined daemon makes none itself.
use crate::confine;
use port::Netns;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use zeronic::{LinuxConfig, LinuxTcp, serve_linux};

/// What such a process is called: `ps` shows it, and [`linux_helper`] decides by it what to do.
const NAME: &str = "toed-zeronic-linux";

/// Starts the process, and has it make the device. The error is a sentence.
pub(super) fn open(config: LinuxConfig) -> Result<LinuxTcp, String> {
    LinuxTcp::with(config, |its| {
        let failed = |error| format!("cannot start a process for Linux' TCP: {error}");
        let own = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        // Its errors are messages; whoever started the daemon may wait for the end of the standard streams. Signals of
        // a terminal are for the daemon: the process ends when its socket does.
        command.arg0(NAME).stdin(Stdio::from(its)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        command.env_remove("LD_PRELOAD").env_remove("NOTIFY_SOCKET");
        command.spawn().map(drop).map_err(failed)
    })
}

/// To be called first by programs that run daemons: whether this process is the one of a ZeroNIC host. It has served
/// then, and has nothing more to do.
pub fn linux_helper() -> bool {
    if std::env::args_os().next().is_none_or(|name| name != NAME) {
        return false;
    }
    // Standard input is the socket to the daemon.
    if let Ok(daemon) = std::io::stdin().as_fd().try_clone_to_owned() {
        serve(daemon);
    }
    true
}

fn serve(daemon: OwnedFd) {
    let confine = || {
        confine::keep_network_capabilities()?;
        confine::filter_helpers_calls()
    };
    serve_linux(daemon, Netns::isolate, confine);
}
