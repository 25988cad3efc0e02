//! Views of volumes and their use, for the management socket.
use super::config::{BlockSection, VolumeSection};
use super::gate::Gate;
use super::writer::Shared;
use crate::datapath::Handle;
use crate::domains::Domains;
use host::Report;
use serde_json::{Value, json};
use solar::transport::{ClientReport, Programs, ServerReport, SessionReport, View};
use solar::{Access, BLOCK_LEN, PathReport};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A volume that a host serves.
#[derive(Clone)]
pub(super) struct VolumePlace {
    pub(super) section: VolumeSection,
    /// The data-path thread of the host, and the host's place there.
    pub(super) handle: Handle,
    pub(super) index: usize,
    /// The volume's number at its server.
    pub(super) number: u32,
    pub(super) shared: Arc<Shared>,
}

/// A volume that a host uses.
#[derive(Clone)]
pub(super) struct BlockPlace {
    pub(super) section: BlockSection,
    pub(super) handle: Handle,
    pub(super) index: usize,
    pub(super) first_port: u16,
    /// NBD clients.
    pub(super) connections: Arc<AtomicUsize>,
    pub(super) gate: Arc<Gate>,
    /// Programs with queues of their own, and their numbers in the table of registered memory.
    pub(super) programs: Arc<Programs>,
    pub(super) domains: Arc<Domains>,
}

/// All of a daemon.
#[derive(Clone, Default)]
pub(crate) struct BlockPlaces {
    pub(super) volumes: Vec<VolumePlace>,
    pub(super) blocks: Vec<BlockPlace>,
}

/// Reports of a host's transports of this type.
fn reports<T: 'static>(handle: &Handle, index: usize) -> Result<Vec<T>, String> {
    let all: Vec<Report> = handle.ask(move |path| path.hosts[index].host.reports())?;
    Ok(all.into_iter().filter_map(|report| report.downcast().ok()).map(|report| *report).collect())
}

impl BlockPlaces {
    /// Volumes that are served, of all hosts or of one.
    pub(crate) fn volumes(&self, host: Option<&str>) -> Result<Vec<Value>, String> {
        let wanted = self.volumes.iter().filter(|place| host.is_none_or(|name| name == place.section.host));
        wanted.map(VolumePlace::json).collect()
    }

    /// Volumes that are used, of all hosts or of one.
    pub(crate) fn blocks(&self, host: Option<&str>) -> Result<Vec<Value>, String> {
        let wanted = self.blocks.iter().filter(|place| host.is_none_or(|name| name == place.section.host));
        wanted.map(BlockPlace::json).collect()
    }

    /// What is wrong with them, a sentence each.
    pub(crate) fn troubles(&self) -> Result<Vec<Value>, String> {
        let mut troubles = Vec::new();
        for place in &self.volumes {
            let corrupt = place.shared.counts.corrupt.load(Ordering::Relaxed);
            if corrupt > 0 {
                let file = place.section.file.display();
                let sentence = format!(
                    "{file} has other bytes than were written (reads that failed with EIO: {corrupt}); writing a \
                     block anew mends it"
                );
                troubles.push(trouble(&place.section.host, &place.section.name, &sentence));
            }
        }
        for place in &self.blocks {
            if let Some(report) = place.read()? {
                let with_context = |sentence: String| trouble(&place.section.host, &place.section.volume, &sentence);
                troubles.extend(place.sentences(&report).into_iter().map(with_context));
            }
        }
        Ok(troubles)
    }
}

fn trouble(host: &str, volume: &str, sentence: &str) -> Value {
    json!({ "host": host, "volume": volume, "sentence": sentence })
}

impl VolumePlace {
    fn json(&self) -> Result<Value, String> {
        let (section, shared) = (&self.section, &self.shared);
        let reports: Vec<ServerReport> = reports(&self.handle, self.index)?;
        let sessions = reports.iter().flat_map(|report| &report.sessions);
        let clients = sessions.filter(|session| session.volume == self.number).map(client);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reads, writes) = (count(&shared.counts.reads), count(&shared.counts.writes));
        Ok(json!({
            "name": section.name,
            "host": section.host,
            "file": section.file,
            "bytes": shared.files.blocks * BLOCK_LEN as u64,
            "read_only": section.read_only,
            "clients": clients.collect::<Vec<_>>(),
            "requests": {
                "reads": reads,
                "read_bytes": reads * BLOCK_LEN as u64,
                "writes": writes,
                "written_bytes": writes * BLOCK_LEN as u64,
                "failed": count(&shared.counts.failed),
                "checksum_errors": count(&shared.counts.corrupt),
                "waiting": shared.reading.load(Ordering::SeqCst) + shared.writing.load(Ordering::SeqCst),
            },
        }))
    }
}

fn client(session: &SessionReport) -> Value {
    let (address, port) = session.client;
    json!({
        "address": address,
        "port": port,
        "access": if session.access == Access::Read { "read" } else { "write" },
        "sent_again": session.again,
        "paths": paths(&session.paths, port),
    })
}

/// The path's number is the distance of its port from the first.
fn paths(paths: &[PathReport], first_port: u16) -> Vec<Value> {
    let path = |(number, path): (usize, &PathReport)| {
        json!({
            "port": first_port.wrapping_add(number as u16),
            "state": if path.works { "up" } else { "failed" },
            "rtt_us": path.rtt.map(|rtt| rtt.div_ceil(1000)),
            "in_flight": path.in_flight,
            "window": path.window,
        })
    };
    paths.iter().enumerate().map(path).collect()
}

impl BlockPlace {
    /// The report of the volume's client; `None` where the host is gone.
    fn read(&self) -> Result<Option<ClientReport>, String> {
        let reports: Vec<ClientReport> = reports(&self.handle, self.index)?;
        Ok(reports.into_iter().find(|report| report.first_port == self.first_port))
    }

    fn json(&self) -> Result<Value, String> {
        let section = &self.section;
        let Some(report) = self.read()? else { return Err(format!("block {}: its host is gone", section.volume)) };
        let (state, bytes) = match report.view {
            View::Opening => ("opening".into(), None),
            View::Open { blocks } => ("open".into(), blocks.checked_mul(BLOCK_LEN as u64)),
            View::Ended(status) => (format!("{status:?}").to_lowercase(), None),
        };
        let (requests, counts) = (&report.requests, &report.counts);
        Ok(json!({
            "volume": section.volume,
            "host": section.host,
            "server": section.server,
            "socket": section.socket,
            "read_only": section.read_only,
            "state": state,
            "bytes": bytes,
            "programs": self.connections.load(Ordering::SeqCst) + self.programs.count(),
            "in_flight": report.outstanding,
            "paths": paths(&report.paths, self.first_port),
            "requests": {
                "reads": requests.reads,
                "read_bytes": requests.read_bytes,
                "writes": requests.writes,
                "written_bytes": requests.written_bytes,
                "failed": requests.failed,
            },
            "packets": {
                "sent": counts.sender.sent,
                "sent_again": counts.sender.again,
                "probes": counts.sender.probes,
                "path_failures": counts.sender.failures,
                "sessions": counts.sessions,
                "dropped": counts.dropped,
            },
        }))
    }

    /// Why the volume cannot be used, or not by all paths.
    fn sentences(&self, report: &ClientReport) -> Vec<String> {
        let server = self.section.server;
        let mut sentences = match report.view {
            View::Opening => vec![format!("its server {server} has not answered: requests wait")],
            View::Open { .. } => Vec::new(),
            View::Ended(status) => vec![format!("its server {server} refuses it: {status}")],
        };
        if report.paths.iter().all(|path| !path.works) {
            sentences
                .push(format!("its server {server} does not answer: requests wait, and fail after 30 s without it"));
            return sentences;
        }
        let failed = report.paths.iter().enumerate().filter(|(_, path)| !path.works);
        sentences.extend(failed.map(|(number, _)| {
            let port = self.first_port + number as u16;
            format!("the path to {server} by UDP port {port} has failed: it is probed, others carry its packets")
        }));
        sentences
    }
}
