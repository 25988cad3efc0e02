//! Takeover, the new daemon's side.
use super::{AllDevices, Device, Line, Message, VERSION, Wish, from_memory, read, strange};
use crate::build::HostPlace;
use crate::clock::Clock;
use crate::datapath::DataPath;
use context::daemon_ends;
use control::HostState;
use engine::{ContextId, Nanos};
use shm::{Region, handover};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// A daemon that is about to be taken over.
pub(crate) struct Taking {
    line: Line,
    /// Goes on with the old daemon's.
    pub(crate) clock: Clock,
    devices: AllDevices,
}

/// What came of it.
pub(crate) struct TakenHosts {
    /// The attach and the management socket.
    pub(crate) listeners: [OwnedFd; 2],
    /// Attached processes: their connections, and index of the host's place and context.
    pub(crate) peers: Vec<(OwnedFd, usize, ContextId)>,
    /// Connections that go on.
    pub(crate) connections: usize,
    /// When the old daemon stopped.
    pub(crate) stopped: Nanos,
}

/// Descriptors of the contexts, by host.
type Contexts = HashMap<String, Vec<(ContextId, Vec<OwnedFd>)>>;

impl Taking {
    /// Asks the daemon at a socket.
    pub(crate) fn begin(path: &Path) -> Result<Taking, String> {
        let socket = handover::connect(path)
            .map_err(|e| format!("there is no daemon to take over at {}: {e}", path.display()))?;
        let wish = serde_json::to_vec(&Wish { takeover: VERSION }).map_err(|e| e.to_string())?;
        handover::send(socket.as_fd(), &wish, &[]).map_err(|e| format!("the other daemon is gone: {e}"))?;
        let line = Line::new(socket)?;
        let (Message::Ready { now, origin, devices: count }, _) = line.recv()? else { return Err(strange()) };
        let clock = Clock::go_on(now, origin);
        let mut devices = AllDevices::new();
        for _ in 0..count {
            let (Message::Device { owner, at, name, mac }, descriptors) = line.recv()? else { return Err(strange()) };
            devices.entry(owner).or_default().insert(at, Device { name, mac, descriptors });
        }
        Ok(Taking { line, clock, devices })
    }

    /// Its devices; they are given once.
    pub(crate) fn devices(&mut self) -> AllDevices {
        std::mem::take(&mut self.devices)
    }

    /// Has the old daemon stop and goes on with what it was, on data-paths that do not run yet. On an error, a
    /// sentence, the old daemon goes on.
    pub(crate) fn finish(self, paths: &mut [DataPath], hosts: &[HostPlace]) -> Result<TakenHosts, String> {
        let done = self.stop_and_restore(paths, hosts);
        let word = match &done {
            Ok(_) => Message::Taken,
            Err(sentence) => Message::Refused(sentence.clone()),
        };
        self.line.send(&word, &[])?;
        done
    }

    fn stop_and_restore(&self, paths: &mut [DataPath], hosts: &[HostPlace]) -> Result<TakenHosts, String> {
        self.line.send(&Message::Stop, &[])?;
        let (Message::Stopped { bytes, contexts: count }, fds) = self.line.recv()? else { return Err(strange()) };
        let [states, attach, management] = <[OwnedFd; 3]>::try_from(fds).map_err(|_| strange())?;
        let mut contexts = Contexts::new();
        for _ in 0..count {
            let (Message::Context { host, context }, fds) = self.line.recv()? else { return Err(strange()) };
            contexts.entry(host).or_default().push((ContextId(context), fds));
        }
        let states: Vec<HostState> = read(&from_memory(states, bytes)?)?;
        let (mut peers, mut connections, mut stopped) = (Vec::new(), 0, Nanos::MAX);
        for state in states {
            let name = state.name.clone();
            let found = hosts.iter().position(|place| place.config.stack.name == name);
            let at =
                found.ok_or_else(|| format!("the daemon that runs has a host {name}, and this configuration none"))?;
            let place = &hosts[at];
            connections += state.connections();
            stopped = stopped.min(state.stopped);
            let own = contexts.remove(&name).unwrap_or_default();
            let attached = restore(&mut paths[place.thread], place, state, own)?;
            peers.extend(attached.into_iter().map(|(context, socket)| (socket, at, context)));
        }
        Ok(TakenHosts { listeners: [attach, management], peers, connections, stopped })
    }
}

/// One host goes on; the connections to its attached processes.
fn restore(
    path: &mut DataPath,
    place: &HostPlace,
    state: HostState,
    contexts: Vec<(ContextId, Vec<OwnedFd>)>,
) -> Result<Vec<(ContextId, OwnedFd)>, String> {
    let broken = |e: std::io::Error| format!("a program's memory cannot be mapped: {e}");
    let (mut ends, mut bells, mut attached) = (HashMap::new(), Vec::new(), Vec::new());
    for (context, fds) in contexts {
        let mut fds = fds.into_iter();
        let (Some(region), Some(to_app), Some(own)) = (fds.next(), fds.next(), fds.next()) else {
            return Err(strange());
        };
        let region = Arc::new(Region::from_fd(region).map_err(broken)?);
        if region.len() < state.geometry().region_len() {
            return Err(strange());
        }
        // The bell of a process that is gone is not watched.
        if let Some(socket) = fds.next() {
            bells.push((context, own.try_clone().map_err(broken)?));
            attached.push((context, socket));
        }
        ends.insert(context, daemon_ends(&region, state.geometry(), to_app, own));
    }
    path.restore(place.index, state, ends, bells)?;
    Ok(attached)
}
