//! Assignment of volumes to the hosts that serve and use them.
use super::backend::{VolumeThreads, Volumes};
use super::config::{self, BlockSection, VolumeSection};
use super::export::Socket;
use super::gate::Gate;
use super::views::{BlockPlace, BlockPlaces, VolumePlace};
use crate::config::Config;
use crate::datapath::{DataPath, Handle};
use crate::secret::secret;
use memory::{Limits, MemoryTable};
use solar::transport::{Programs, Queue, VolumeAddress, VolumeClient, VolumeServer};
use solar::{Access, ClientConfig, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io, thread};

/// UDP port of the first path of a host's first client; the next client's ports follow.
const FIRST_PORT: u16 = 4800;

/// Most sessions at a host: each holds up to 4 MiB of answers.
const MOST_SESSIONS: usize = 64;

/// Threads that block storage needs, not started yet.
#[derive(Default)]
pub(crate) struct BlockThreads {
    volumes: Vec<VolumeThreads>,
    sockets: Vec<Socket>,
    /// Where all of it is, for views.
    pub(crate) places: BlockPlaces,
}

/// Sockets of volumes: they are removed when the daemon ends.
pub(crate) struct BlockSockets(Vec<PathBuf>);

impl Drop for BlockSockets {
    fn drop(&mut self) {
        for path in &self.0 {
            // Without the right to do so, it stays; the next daemon finds no listener there.
            let _ = fs::remove_file(path);
        }
    }
}

/// Where a host is: its name, the index of its data-path thread, its index there.
type Seat = (String, usize, usize);

/// Gives all hosts their volumes. The error is a sentence.
pub(crate) fn assign(
    config: &Config,
    seats: &[Seat],
    paths: &mut [DataPath],
    handles: &[Handle],
) -> Result<BlockThreads, String> {
    let mut threads = BlockThreads::default();
    for (name, thread, index) in seats {
        let (path, handle) = (&mut paths[*thread], &handles[*thread]);
        let served: Vec<&VolumeSection> = config.volumes.iter().filter(|volume| volume.host == *name).collect();
        if !served.is_empty() {
            threads.serve(&served, path, *index, handle)?;
        }
        let used = config.blocks.iter().filter(|block| block.host == *name);
        for (number, section) in used.enumerate() {
            let with_context = |e: String| format!("block {}: {e}", section.volume);
            threads.attach(section, number as u16, path, *index, handle).map_err(with_context)?;
        }
    }
    Ok(threads)
}

impl BlockThreads {
    fn serve(
        &mut self,
        sections: &[&VolumeSection],
        path: &mut DataPath,
        index: usize,
        handle: &Handle,
    ) -> Result<(), String> {
        wide_enough(path, index).map_err(|e| format!("volume {}: {e}", sections[0].name))?;
        let mut volumes = Volumes::new(handle.waker());
        for (number, section) in sections.iter().enumerate() {
            let with_context = |e: String| format!("volume {}: {e}", section.name);
            let threads = volumes.add(section).map_err(with_context)?;
            let (section, shared) = ((*section).clone(), Arc::clone(&threads.shared));
            self.places.volumes.push(VolumePlace {
                section,
                handle: handle.clone(),
                index,
                number: number as u32,
                shared,
            });
            self.volumes.push(threads);
        }
        let staged = sections.iter().any(|section| section.staged);
        let config = ServerConfig { most_sessions: MOST_SESSIONS, staged, ..ServerConfig::default() };
        let key = u128::from_ne_bytes(secret()?);
        let server = VolumeServer::new(config, [key as u64, (key >> 64) as u64], volumes);
        path.hosts[index].host.add(Box::new(server))
    }

    fn attach(
        &mut self,
        section: &BlockSection,
        number: u16,
        path: &mut DataPath,
        index: usize,
        handle: &Handle,
    ) -> Result<(), String> {
        wide_enough(path, index)?;
        let config = ClientConfig { staged: section.staged, ..ClientConfig::default() };
        let access = match (section.read_only, section.take_over) {
            (true, _) => Access::Read,
            (false, true) => Access::TakeOver,
            (false, false) => Access::Write,
        };
        let first_port = FIRST_PORT + number * u16::from(config.path.paths);
        let place = VolumeAddress { volume: section.volume.clone(), access, server: section.server, first_port };
        let queue = Arc::new(Queue::new(handle.waker()));
        let random = u128::from_ne_bytes(secret()?) as u64;
        let table = MemoryTable::new(Limits::default()).map_err(|e| format!("no random numbers: {e}"))?;
        let programs = Arc::new(Programs::new(Arc::new(table)));
        let (own, gate) = (Arc::clone(&programs), Arc::new(Gate::new(Arc::clone(&queue))));
        let client = VolumeClient::new(config, place, queue, own, random, path.clock.now());
        path.hosts[index].host.add(Box::new(client))?;
        let socket = Socket::open(section, Arc::clone(&gate))?;
        let (section, connections) = (section.clone(), socket.connections());
        let (handle, domains) = (handle.clone(), Arc::default());
        self.places.blocks.push(BlockPlace {
            section,
            handle,
            index,
            first_port,
            connections,
            gate,
            programs,
            domains,
        });
        self.sockets.push(socket);
        Ok(())
    }

    /// Starts them. The error is a sentence.
    pub(crate) fn start(self) -> Result<BlockSockets, String> {
        let paths = BlockSockets(self.sockets.iter().map(|socket| socket.path().into()).collect());
        let failed = |e: io::Error| format!("cannot start a thread for block storage: {e}");
        for VolumeThreads { name, shared, reads, writes } in self.volumes {
            let reading = Arc::clone(&shared);
            let named = |what: &str| thread::Builder::new().name(format!("{what} {name}"));
            named("read").spawn(move || reading.read_all(&reads)).map_err(failed)?;
            named("write").spawn(move || shared.write_all(&writes)).map_err(failed)?;
        }
        for socket in self.sockets {
            thread::Builder::new().name("nbd-socket".into()).spawn(move || socket.serve_all()).map_err(failed)?;
        }
        Ok(paths)
    }
}

/// A packet with a block passes each port of the host.
fn wide_enough(path: &DataPath, index: usize) -> Result<(), String> {
    let links = path.hosts[index].host.net().links();
    match links.iter().map(|link| link.caps.mtu).min() {
        Some(mtu) => config::takes_blocks(mtu),
        None => Ok(()),
    }
}
