//! The daemon that a user's programs share: the first `opentoe run` starts it, later ones join it, and it ends a moment
//! after the last of them.
//!
//! It is for one user in one network namespace: there its hosts are reached, and nobody else is trusted with them.
use crate::arguments::RunArguments;
use crate::private::{self, Embedded, Private};
use crate::start_lock::StartLock;
use daemon::client;
use daemon::protocol::Question;
use serde_json::Value;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Joins the user's daemon, or starts it. A program that asks for another host, engine, backend or for a heap gets one
/// with that. One that asks for a waveform starts a new one: a waveform begins with its daemon.
pub(crate) fn join_or_start(arguments: &RunArguments) -> Result<Private, String> {
    // Of two that begin at the same time, one starts the daemon and the other joins it.
    let _lock = StartLock::of_user();
    let waveform = arguments.waveform.as_deref();
    let mut running = if waveform.is_some() { Vec::new() } else { private::running() }.into_iter();
    if let Some(joined) = running.find_map(|socket| join(&socket, arguments)) {
        return Ok(joined);
    }
    let (host, engine) = (arguments.host.as_deref(), arguments.engine.as_deref());
    let (backend, heap) = (arguments.backend.as_deref(), arguments.heap);
    private::embedded(&Embedded { host, engine, backend, waveform, network: None, shared: true, heap })
}

/// Joins the daemon at this socket, where it is the user's own and has what the program asks for.
fn join(socket: &Path, arguments: &RunArguments) -> Option<Private> {
    let own = rustix::process::geteuid().as_raw();
    // The directory's owner: in /tmp anybody can make one.
    if socket.parent()?.metadata().ok()?.uid() != own {
        return None;
    }
    let (hello, stream) = client::open(socket, &Question::Hello).ok()?;
    let peer = shm::handover::credentials(stream.get_ref().as_fd()).ok()?;
    if peer.uid != own || !same_network(peer.pid) || hello["shared"] != true {
        return None;
    }
    let serves = |host: &&Value| {
        let is = |key: &str, wish: &Option<String>| wish.as_deref().is_none_or(|wish| host[key] == wish);
        let has_heap = host["heap_bytes"].as_u64().is_some_and(|bytes| bytes > 0);
        is("name", &arguments.host)
            && is("engine", &arguments.engine)
            && is("backend", &arguments.backend)
            && (has_heap || !arguments.heap)
    };
    let host = hello["hosts"].as_array()?.iter().find(serves)?;
    if hello["attach_version"] != context::VERSION {
        return None;
    }
    // It may have ended just now.
    let others = programs_of(&client::ask(socket, &Question::Join).ok()?);
    let address = host["address"].as_str()?.split('/').next()?;
    let mut sentence = format!("host '{}' is {address}", host["name"].as_str()?);
    if !others.is_empty() {
        sentence += &format!(", shared with {}", others.join(", "));
    }
    Some(Private { socket: socket.into(), sentences: vec![sentence] })
}

/// The programs for which a daemon runs, by its answer: names and process numbers, without this process.
pub(crate) fn programs_of(hello: &Value) -> Vec<String> {
    let owners = hello["owners"].as_array().map(Vec::as_slice).unwrap_or_default();
    owners.iter().filter_map(Value::as_i64).filter_map(called).collect()
}

fn called(pid: i64) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (pid != i64::from(std::process::id())).then(|| format!("{} (process {pid})", name.trim()))
}

/// A process is in this one's network namespace.
fn same_network(pid: i32) -> bool {
    let namespace = |process: &str| {
        let namespace = fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
        Some((namespace.dev(), namespace.ino()))
    };
    namespace("self").is_some_and(|own| namespace(&pid.to_string()) == Some(own))
}
