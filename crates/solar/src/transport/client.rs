//! A client of one volume as a transport of a host.
use super::programs::{Attached, ProgramRequest, Programs};
use super::queue::{Queue, Submission, View};
use super::report::{ClientReport, RequestCounts};
use super::udp::{self, UdpPath};
use crate::client::mix;
use crate::packet::{BLOCK_LEN, PORT, Status};
use crate::{Access, Client, ClientConfig, Completion, Direction, Memory, Request};
use host::{Claim, Io, Report, Transport};
use memory::MemoryTable;
use port::Frame;
use slab::Slab;
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

/// A request that has not ended.
enum Outstanding {
    /// Of another thread of this process, with its memory.
    Submitted(Submission),
    /// A program reads into its memory.
    Read(ProgramRequest),
    /// The same, with a buffer in between ([`ClientConfig::staged`]).
    Staged(ProgramRequest, Vec<u8>),
    /// A program writes these bytes.
    Write(ProgramRequest, Vec<u8>),
}

/// The requests that have not ended, and where their bytes are, for a round.
struct RequestMemory<'r> {
    requests: &'r mut Slab<Outstanding>,
    programs: Option<&'r Attached>,
    table: &'r MemoryTable,
}

impl Memory for RequestMemory<'_> {
    fn block(&self, token: u64, index: u32) -> &[u8] {
        let at = index as usize * BLOCK_LEN;
        match &self.requests[token as usize] {
            Outstanding::Submitted(submission) => &submission.buffer[at..at + BLOCK_LEN],
            Outstanding::Write(_, bytes) | Outstanding::Staged(_, bytes) => &bytes[at..at + BLOCK_LEN],
            // Nothing of it is written.
            Outstanding::Read(_) => &[],
        }
    }

    fn place(&mut self, token: u64, index: u32, block: &[u8]) {
        let at = index as usize * BLOCK_LEN;
        match (self.requests.get_mut(token as usize), self.programs) {
            (Some(Outstanding::Submitted(submission)), _) => {
                submission.buffer[at..at + BLOCK_LEN].copy_from_slice(block);
            }
            (Some(Outstanding::Staged(_, bytes)), _) => bytes[at..at + BLOCK_LEN].copy_from_slice(block),
            (Some(Outstanding::Read(request)), Some(programs)) => {
                programs.place(self.table, request, at as u64, block);
            }
            // The program is gone; or the request, or it writes.
            (Some(Outstanding::Read(_) | Outstanding::Write(..)) | None, _) => {}
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
    /// A request's place is its token.
    requests: Slab<Outstanding>,
    programs: Arc<Programs>,
    /// The last packet that came in pieces.
    whole: Vec<u8>,
    /// The time of the last round.
    now: Nanos,
    /// The volume has been open: what ended it since is final, because others may have written to it.
    opened: bool,
    /// When it is tried again.
    again: Option<Nanos>,
    random: u64,
    ended: RequestCounts,
}

impl VolumeClient {
    /// Uses a volume, for the owner of the queue, and for programs. `random` is as in [`Client::new`].
    pub fn new(
        config: ClientConfig,
        place: VolumeAddress,
        queue: Arc<Queue>,
        programs: Arc<Programs>,
        random: u64,
        now: Nanos,
    ) -> VolumeClient {
        let paths = config.path.paths.max(1);
        let client = Client::new(config.clone(), &place.volume, place.access, random, now);
        VolumeClient {
            client,
            config,
            place,
            paths,
            queue,
            requests: Slab::new(),
            programs,
            whole: Vec::new(),
            now,
            opened: false,
            again: None,
            random,
            ended: RequestCounts::default(),
        }
    }

    fn submit(&mut self, submission: Submission, now: Nanos) {
        let blocks = submission.buffer.len() / BLOCK_LEN;
        if blocks == 0 || submission.buffer.len() % BLOCK_LEN != 0 {
            return (submission.done)(Status::OutOfRange, submission.buffer);
        }
        let (direction, lba) = (submission.direction, submission.lba);
        let token = self.requests.insert(Outstanding::Submitted(submission)) as u64;
        self.client.submit(Request { direction, lba, blocks: blocks as u32, token }, now);
    }

    fn take_posts(&mut self, programs: &mut Attached, now: Nanos) -> usize {
        let (client, requests) = (&mut self.client, &mut self.requests);
        let staged = self.config.staged;
        programs.take_posts(self.programs.table(), |request, bytes| {
            let (direction, lba) = (request.direction, request.lba);
            let blocks = (request.len() / BLOCK_LEN as u64) as u32;
            let token = requests.insert(match direction {
                Direction::Write => Outstanding::Write(request, bytes),
                Direction::Read if staged => Outstanding::Staged(request, vec![0; request.len() as usize]),
                Direction::Read => Outstanding::Read(request),
            }) as u64;
            client.submit(Request { direction, lba, blocks, token }, now);
        })
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

    fn receive(&mut self, now: Nanos, rx: &mut Vec<Box<Frame>>, programs: Option<&Attached>, io: &mut Io<'_>) {
        let mut memory = RequestMemory { requests: &mut self.requests, programs, table: self.programs.table() };
        for mut frame in rx.drain(..) {
            if let Some((way, marked, packet)) = udp::receive(now, &mut frame, &mut self.whole, io)
                && way.remote == self.place.server
                && way.to == PORT
            {
                self.client.receive(packet, marked, &mut memory, now);
            }
            io.pool.put(frame);
        }
    }

    fn send(&mut self, now: Nanos, programs: Option<&Attached>, io: &mut Io<'_>) -> usize {
        let mut done = 0;
        let memory = RequestMemory { requests: &mut self.requests, programs, table: self.programs.table() };
        let place = &self.place;
        self.client.poll(&memory, now, |path, header, payload| {
            let way = UdpPath { remote: place.server, from: place.first_port + u16::from(path), to: PORT };
            udp::send(now, way, header, payload, io);
            done += 1;
        });
        done
    }

    /// Requests that have ended, and what is known of the volume, go to whoever waits for them.
    fn report_ends(&mut self, mut programs: Option<&mut Attached>, now: Nanos) {
        for Completion { token, status } in self.client.completions() {
            let (mut request, bytes) = match self.requests.try_remove(token as usize) {
                Some(Outstanding::Submitted(submission)) => {
                    self.ended.count(submission.direction, submission.buffer.len() as u64, status);
                    (submission.done)(status, submission.buffer);
                    continue;
                }
                Some(Outstanding::Staged(request, bytes)) => (request, Some(bytes).filter(|_| status == Status::Ok)),
                Some(Outstanding::Read(request) | Outstanding::Write(request, _)) => (request, None),
                None => continue,
            };
            self.ended.count(request.direction, request.len(), status);
            if let Some(programs) = programs.as_deref_mut() {
                if let Some(bytes) = bytes {
                    programs.place(self.programs.table(), &mut request, 0, &bytes);
                }
                programs.end(&request, status);
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
    fn count(&mut self, direction: Direction, len: u64, status: Status) {
        let (requests, bytes) = match (status, direction) {
            (Status::Ok, Direction::Read) => (&mut self.reads, &mut self.read_bytes),
            (Status::Ok, Direction::Write) => (&mut self.writes, &mut self.written_bytes),
            _ => return self.failed += 1,
        };
        *requests += 1;
        *bytes += len;
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
        self.now = now;
        let mut done = rx.len();
        let shared = Arc::clone(&self.programs);
        let mut programs = shared.round();
        self.receive(now, rx, programs.as_deref(), io);
        self.try_again(now);
        for submission in self.queue.take() {
            done += 1;
            self.submit(submission, now);
        }
        if let Some(programs) = programs.as_deref_mut() {
            done += self.take_posts(programs, now);
        }
        done += self.send(now, programs.as_deref(), io);
        self.report_ends(programs.as_deref_mut(), now);
        if let Some(programs) = programs.as_deref_mut() {
            programs.ring();
        }
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
            outstanding: self.requests.len(),
            requests: self.ended,
            counts: self.client.counts(),
        }))
    }

    fn has_work(&self, now: Nanos) -> bool {
        let due = self.client.deadline().into_iter().chain(self.again).min();
        self.queue.is_pending() || self.programs.has_work() || due.is_some_and(|due| due <= now)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let programs = self.programs.next_deadline(self.now);
        self.client.deadline().into_iter().chain(self.again).chain(programs).min()
    }

    fn prepare_to_sleep(&self) {
        self.programs.prepare_to_sleep();
    }

    fn awake(&self) {
        self.programs.awake();
    }
}
