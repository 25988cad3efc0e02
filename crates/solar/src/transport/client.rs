//! A client of one volume as a transport of a host.
use super::queue::{Queue, Submission, View};
use super::report::{ClientReport, RequestCounts};
use super::udp::{self, UdpPath};
use crate::client::mix;
use crate::packet::{BLOCK_LEN, PORT, Status};
use crate::{Access, Client, ClientConfig, Direction, Memory, Request};
use host::{Claim, Io, Report, Transport};
use port::Frame;
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use tcp::Nanos;

/// A volume that was refused is tried again after this time, nanoseconds.
const AGAIN: Nanos = 1_000_000_000;

/// Where the volume is, and how it is reached.
#[derive(Debug, Clone)]
pub struct VolumeAddress {
    /// Its name at the server.
    pub volume: String,
    /// What the client may do with it.
    pub access: Access,
    /// The server.
    pub server: Ipv4Addr,
    /// The UDP port of the first path.
    pub first_port: u16,
}

/// The memory of outstanding requests.
#[derive(Default)]
struct Buffers(HashMap<u64, Submission>);

impl Memory for Buffers {
    fn block(&self, token: u64, index: u32) -> &[u8] {
        let at = index as usize * BLOCK_LEN;
        &self.0[&token].buffer[at..at + BLOCK_LEN]
    }

    fn place(&mut self, token: u64, index: u32, block: &[u8]) {
        let at = index as usize * BLOCK_LEN;
        if let Some(request) = self.0.get_mut(&token) {
            request.buffer[at..at + BLOCK_LEN].copy_from_slice(block);
        }
    }
}

/// The transport of a host that uses a volume.
pub struct VolumeClient {
    client: Client,
    config: ClientConfig,
    place: VolumeAddress,
    paths: u8,
    queue: Arc<Queue>,
    buffers: Buffers,
    next_token: u64,
    /// The volume has been open: what ended it since is final, because others may have written to it.
    opened: bool,
    /// When it is tried again.
    again: Option<Nanos>,
    random: u64,
    requests: RequestCounts,
}

impl VolumeClient {
    /// Uses a volume, for those who have the queue. `random` is as in [`Client::new`].
    pub fn new(config: ClientConfig, place: VolumeAddress, queue: Arc<Queue>, random: u64, now: Nanos) -> VolumeClient {
        let paths = config.path.paths.max(1);
        let client = Client::new(config.clone(), &place.volume, place.access, random, now);
        VolumeClient {
            client,
            config,
            place,
            paths,
            queue,
            buffers: Buffers::default(),
            next_token: 0,
            opened: false,
            again: None,
            random,
            requests: RequestCounts::default(),
        }
    }

    fn submit(&mut self, submission: Submission, now: Nanos) {
        let blocks = submission.buffer.len() / BLOCK_LEN;
        if blocks == 0 || submission.buffer.len() % BLOCK_LEN != 0 {
            return (submission.done)(Status::OutOfRange, submission.buffer);
        }
        self.next_token += 1;
        let (direction, lba, token) = (submission.direction, submission.lba, self.next_token);
        self.buffers.0.insert(token, submission);
        self.client.submit(Request { direction, lba, blocks: blocks as u32, token }, now);
    }

    /// A volume that was refused is tried again: its server may have it later, or another client may go.
    fn try_again(&mut self, now: Nanos) {
        if self.again.is_some_and(|again| again <= now) {
            self.again = None;
            self.random = mix(self.random);
            let place = &self.place;
            self.client = Client::new(self.config.clone(), &place.volume, place.access, self.random, now);
        }
    }

    fn tell(&mut self, now: Nanos) {
        for completion in self.client.completions() {
            if let Some(submission) = self.buffers.0.remove(&completion.token) {
                self.requests.count(&submission, completion.status);
                (submission.done)(completion.status, submission.buffer);
            }
        }
        let view = match (self.client.ended(), self.client.blocks()) {
            (Some(status), _) => View::Ended(status),
            (None, Some(blocks)) => View::Open { blocks },
            // A session that is begun again: what was known stays so.
            (None, None) => return,
        };
        self.opened |= matches!(view, View::Open { .. });
        if matches!(view, View::Ended(_)) && !self.opened && self.again.is_none() {
            self.again = Some(now + AGAIN);
        }
        self.queue.set_view(view);
    }
}

impl RequestCounts {
    fn count(&mut self, ended: &Submission, status: Status) {
        let (requests, bytes) = match (status, ended.direction) {
            (Status::Ok, Direction::Read) => (&mut self.reads, &mut self.read_bytes),
            (Status::Ok, Direction::Write) => (&mut self.writes, &mut self.written_bytes),
            _ => return self.failed += 1,
        };
        *requests += 1;
        *bytes += ended.buffer.len() as u64;
    }
}

impl Transport for VolumeClient {
    fn name(&self) -> &'static str {
        "solar client"
    }

    fn claims(&self) -> Vec<Claim> {
        (0..u16::from(self.paths)).map(|path| Claim::UdpPort(self.place.first_port + path)).collect()
    }

    fn poll(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, io: &mut Io<'_>) -> usize {
        let mut done = rx.len();
        for mut frame in rx.drain(..) {
            if let Some((way, marked, packet)) = udp::receive(now, &mut frame, io)
                && way.remote == self.place.server
                && way.to == PORT
            {
                self.client.receive(packet, marked, &mut self.buffers, now);
            }
            io.pool.put(frame);
        }
        self.try_again(now);
        for submission in self.queue.take() {
            done += 1;
            self.submit(submission, now);
        }
        let place = &self.place;
        self.client.poll(&self.buffers, now, |path, header, payload| {
            let way = UdpPath { remote: place.server, from: place.first_port + u16::from(path), to: PORT };
            udp::send(now, way, header, payload, io);
            done += 1;
        });
        self.tell(now);
        done
    }

    fn handover_obstacle(&self) -> Option<String> {
        Some("a daemon that uses volumes cannot be taken over".into())
    }

    fn report(&self) -> Option<Report> {
        Some(Box::new(ClientReport {
            first_port: self.place.first_port,
            view: self.queue.view(),
            paths: self.client.paths(),
            outstanding: self.buffers.0.len(),
            requests: self.requests,
            counts: self.client.counts(),
        }))
    }

    fn has_work(&self, now: Nanos) -> bool {
        self.queue.is_pending() || self.next_deadline().is_some_and(|due| due <= now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.client.deadline().into_iter().chain(self.again).min()
    }
}
