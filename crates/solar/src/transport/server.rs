//! A storage server as a transport of a host.
use super::report::{ServerReport, SessionReport};
use super::udp::{self, UdpPath};
use crate::packet::{HEADER_LEN, PORT};
use crate::server::session::Session;
use crate::{Header, Job, Outcome, Payload, Server, ServerConfig, Storage};
use host::{Claim, Io, Report, Transport};
use port::Frame;
use std::net::Ipv4Addr;
use tcp::Nanos;

/// A client, but for its path: its address, and its first port.
pub type Peer = (Ipv4Addr, u16);

/// A storage whose operations end on other threads.
pub trait Backend: Storage<Peer> + Send {
    /// Operations that have ended since the last call go to the end of `ended`.
    fn take_ended(&mut self, ended: &mut Vec<(Job, Outcome)>);

    /// There are some.
    fn has_ended(&self) -> bool;
}

/// The transport of a host that serves volumes.
pub struct VolumeServer<B> {
    server: Server<Peer>,
    backend: B,
    /// Empty between rounds.
    ended: Vec<(Job, Outcome)>,
    /// The last packet that came in pieces.
    whole: Vec<u8>,
    /// Where payload is copied to, if so ([`ServerConfig::staged`]).
    staging: Option<Vec<u8>>,
}

impl<B: Backend> VolumeServer<B> {
    /// Serves what the backend keeps. `key` is as in [`Server::new`].
    pub fn new(config: ServerConfig, key: [u64; 2], backend: B) -> VolumeServer<B> {
        let staging = config.staged.then(Vec::new);
        VolumeServer { server: Server::new(config, key), backend, ended: Vec::new(), whole: Vec::new(), staging }
    }
}

/// The payload by way of a buffer, with its checksum computed anew; `None` where it has another one. Without a buffer,
/// the payload as it is.
fn stage<'p>(staging: Option<&'p mut Vec<u8>>, header: &[u8; HEADER_LEN], payload: Payload<'p>) -> Option<Payload<'p>> {
    let (Some(staging), Payload::Shared(span)) = (staging, payload) else { return Some(payload) };
    staging.clear();
    span.append(staging);
    Header::read_parts(header, staging).map(|_| Payload::Bytes(staging))
}

impl Server<Peer> {
    fn reports(&self) -> Vec<SessionReport> {
        let of = |session: &Session<Peer>| SessionReport {
            client: session.peer,
            volume: session.volume.number,
            access: session.access,
            paths: session.paths(),
            again: session.again(),
        };
        self.live().map(of).collect()
    }
}

impl<B: Backend> Transport for VolumeServer<B> {
    fn name(&self) -> &'static str {
        "solar server"
    }

    fn claims(&self) -> Vec<Claim> {
        vec![Claim::UdpPort(PORT)]
    }

    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        let mut done = rx.len();
        for mut frame in rx.drain(..) {
            if let Some((way, marked, packet)) = udp::receive(now, &mut frame, &mut self.whole, io) {
                // The path is the distance of the port from the client's first one. A damaged number makes a damaged
                // packet, which the server drops.
                let path = Header::path_of(packet);
                let peer = (way.remote, way.to.wrapping_sub(path.into()));
                self.server.receive(peer, packet, marked, &mut self.backend, now);
            }
            io.pool.put(frame);
        }
        self.backend.take_ended(&mut self.ended);
        done += self.ended.len();
        for (job, outcome) in self.ended.drain(..) {
            self.server.finish(job, outcome);
        }
        let mut staging = self.staging.as_mut();
        self.server.poll(now, |(remote, first), path, header, payload| {
            let Some(payload) = stage(staging.as_deref_mut(), header, payload) else { return };
            let way = UdpPath { remote, from: PORT, to: first.wrapping_add(path.into()) };
            udp::send(now, way, header, payload, io);
            done += 1;
        });
        done
    }

    fn handover_obstacle(&self) -> Option<String> {
        Some("a daemon that serves volumes cannot be taken over".into())
    }

    fn report(&self) -> Option<Report> {
        let sessions = self.server.reports();
        Some(Box::new(ServerReport { sessions, counts: self.server.counts() }))
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.backend.has_ended() || self.next_deadline().is_some_and(|due| due <= now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.server.deadline()
    }
}
