//! The client's end: a session with a server, the operations of its requests, and the places of their blocks.
use crate::acks::Acks;
use crate::config::ClientConfig;
use crate::operations::{Completion, Direction, Operations, Request, Run};
use crate::packet::{Access, Ack, HEADER_LEN, Header, Kind, MOST_NAME, Status};
use crate::path::PathReport;
use crate::sender::{Sender, SenderCounts, Transmission};
use crate::storage::Payload;
use crc32c::crc32c;
use tcp::Nanos;

/// The caller's memory: block `index` of the request `token`.
pub trait Memory {
    /// A block that is written to the volume, [`BLOCK_LEN`](crate::BLOCK_LEN) bytes. It stays as it is until the
    /// request has ended.
    fn block(&self, token: u64, index: u32) -> &[u8];

    /// A block has been read from the volume. It is placed once, or twice with the same bytes.
    fn place(&mut self, token: u64, index: u32, block: &[u8]);
}

#[derive(Debug)]
enum State {
    /// A ticket has been asked for, or is to be.
    Opening {
        again: Nanos,
    },
    /// There is a ticket, and the session has been asked for.
    Claiming {
        again: Nanos,
        ticket: u64,
        stamp: u64,
    },
    Open {
        session: u64,
        blocks: u64,
        most: u64,
    },
    Ended(Status),
}

/// What has been counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Packets of requests.
    pub sender: SenderCounts,
    /// Sessions that began.
    pub sessions: u64,
    /// Packets that were none of this session's, or damaged.
    pub dropped: u64,
}

/// A client of one volume.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    volume: Vec<u8>,
    access: Access,
    /// Number of this client, in every session.
    identity: u64,
    nonce: u64,
    /// How often the right to write has gone to another client, at the first opening.
    generation: Option<u32>,
    state: State,
    sender: Sender<Run>,
    operations: Operations,
    acks: Acks,
    /// When the server's last packet came, and when it was asked last whether it is there.
    last_rx: Nanos,
    asked: Nanos,
    counts: ClientCounts,
}

impl Client {
    /// A client of the volume of a name, at most [`MOST_NAME`] bytes. `random` must not repeat: it names this client.
    pub fn new(config: ClientConfig, volume: &str, access: Access, random: u64, now: Nanos) -> Client {
        let mut volume = volume.as_bytes().to_vec();
        volume.truncate(MOST_NAME);
        Client {
            sender: Sender::new(&config.path, now),
            acks: Acks::new(config.path.paths),
            volume,
            access,
            identity: random,
            nonce: random,
            generation: None,
            state: State::Opening { again: now },
            operations: Operations::default(),
            last_rx: now,
            asked: now,
            counts: ClientCounts::default(),
            config,
        }
    }

    /// Blocks of the volume; `None` while the session has not begun.
    pub fn blocks(&self) -> Option<u64> {
        match self.state {
            State::Open { blocks, .. } => Some(blocks),
            _ => None,
        }
    }

    /// Why the session has ended for good: further requests fail so.
    pub fn ended(&self) -> Option<Status> {
        match self.state {
            State::Ended(status) => Some(status),
            _ => None,
        }
    }

    /// What has been counted.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts { sender: self.sender.counts(), ..self.counts }
    }

    /// Its paths to the server.
    pub fn paths(&self) -> Vec<PathReport> {
        self.sender.paths()
    }

    /// Paths that work.
    pub fn working_paths(&self) -> usize {
        self.sender.working_paths()
    }

    /// Asks for blocks to be read or written. A request before the session has begun waits for it.
    pub fn submit(&mut self, request: Request, now: Nanos) {
        if self.operations.is_empty() {
            // Silence counts from here: before, nothing was waited for.
            self.last_rx = now;
        }
        self.operations.submit(request);
        if let State::Ended(status) = self.state {
            self.operations.end_all(status);
        }
    }

    /// Requests that have ended since the last call, in the order of ending.
    pub fn completions(&mut self) -> Vec<Completion> {
        self.operations.completions()
    }

    /// Ends the session; what is outstanding fails.
    pub fn close(&mut self, mut send: impl FnMut(u8, &[u8; HEADER_LEN], Payload<'_>)) {
        if let State::Open { session, .. } = self.state {
            send(0, &Header { session, ..Header::new(Kind::Close) }.write(), Payload::NONE);
        }
        self.end(Status::NoSession);
    }

    fn end(&mut self, status: Status) {
        self.state = State::Ended(status);
        self.operations.end_all(status);
    }

    /// A packet has come, `marked` where it met congestion (RFC 3168, CE).
    pub fn receive(&mut self, packet: &[u8], marked: bool, memory: &mut impl Memory, now: Nanos) {
        let Some((header, payload)) = Header::read(packet) else {
            self.counts.dropped += 1;
            return;
        };
        match self.state {
            State::Opening { .. } if header.kind == Kind::Ticket && header.op == self.nonce => {
                self.last_rx = now;
                self.state = State::Claiming { again: now, ticket: header.session, stamp: header.lba };
            }
            State::Claiming { stamp, .. } if header.kind == Kind::Opened && header.op == stamp => {
                self.last_rx = now;
                self.opened(&header, now);
            }
            State::Open { session, .. } if header.session == session => {
                self.last_rx = now;
                if header.kind.is_acknowledged() {
                    self.acks.add(&header, marked);
                }
                self.take(&header, payload, memory, now);
            }
            _ => self.counts.dropped += 1,
        }
    }

    fn opened(&mut self, header: &Header, now: Nanos) {
        match header.status {
            Status::Ok => {}
            // The server was started again since it gave the ticket.
            Status::NoSession => return self.open_again(now),
            status => return self.end(status),
        }
        // Another client may have written since: what is outstanding here must not overwrite that.
        let generation = *self.generation.get_or_insert(header.sequence);
        if generation != header.sequence && self.access != Access::Read {
            return self.end(Status::Fenced);
        }
        self.counts.sessions += 1;
        self.state = State::Open { session: header.session, blocks: header.lba, most: header.count.max(1).into() };
        self.sender = Sender::new(&self.config.path, now).with_counts(self.sender.counts());
        self.operations.begin_again();
    }

    /// The server has no such session any more. A client that had taken the volume over does not do so again.
    fn open_again(&mut self, now: Nanos) {
        self.nonce = mix(self.nonce);
        if self.access == Access::TakeOver {
            self.access = Access::Write;
        }
        self.state = State::Opening { again: now };
    }

    fn take(&mut self, header: &Header, payload: &[u8], memory: &mut impl Memory, now: Nanos) {
        match header.kind {
            Kind::Data | Kind::Done => self.result(header, payload, memory),
            Kind::Acknowledge => {
                for ack in Ack::list(payload) {
                    self.sender.acknowledged(ack, now);
                }
            }
            Kind::Stale if header.status == Status::NoSession => self.open_again(now),
            Kind::Stale => self.end(header.status),
            _ => {}
        }
    }

    /// The result of an operation; one that has ended, or is another, is not touched.
    fn result(&mut self, header: &Header, payload: &[u8], memory: &mut impl Memory) {
        let Some(operation) = self.operations.get(header.op) else { return };
        let kind = match operation.direction {
            Direction::Read => Kind::Data,
            Direction::Write => Kind::Done,
        };
        if header.kind != kind || header.lba != operation.lba {
            return;
        }
        if kind == Kind::Data && header.status == Status::Ok {
            memory.place(operation.token, operation.index, payload);
        }
        self.operations.end(header.op, header.status);
    }

    /// Sends what may be sent now: path, header, payload.
    pub fn poll(&mut self, memory: &impl Memory, now: Nanos, mut send: impl FnMut(u8, &[u8; HEADER_LEN], Payload<'_>)) {
        self.check_silence(now);
        match self.state {
            State::Opening { again } if again <= now => {
                self.send_opening(Header { op: self.nonce, ..Header::new(Kind::Open) }, now, send);
                self.state = State::Opening { again: now + self.config.open_again };
            }
            State::Claiming { again, ticket, stamp } if again <= now => {
                self.send_opening(Header { session: ticket, op: stamp, ..Header::new(Kind::Claim) }, now, send);
                self.state = State::Claiming { again: now + self.config.open_again, ticket, stamp };
            }
            State::Open { session, blocks, most } => {
                let header = Header { session, oldest: self.operations.oldest(), ..Header::new(Kind::Acknowledge) };
                self.acks.flush(header, |header, payload| send(header.path, &header.write(), Payload::Bytes(payload)));
                self.hand_over(blocks, most);
                self.sender.tick(now);
                self.send_all(session, memory, now, send);
            }
            _ => {}
        }
    }

    /// Each path in turn: the first may be the one that has failed.
    fn send_opening(&self, header: Header, now: Nanos, mut send: impl FnMut(u8, &[u8; HEADER_LEN], Payload<'_>)) {
        let path = (now / self.config.open_again.max(1)) as u8 % self.config.path.paths.max(1);
        let header = Header {
            access: self.access,
            path,
            crc: crc32c(&self.volume),
            lba: self.identity,
            oldest: self.operations.oldest(),
            ..header
        };
        send(path, &header.write(), Payload::Bytes(&self.volume));
    }

    fn check_silence(&mut self, now: Nanos) {
        let silence = now.saturating_sub(self.last_rx);
        if !self.operations.is_empty() && silence >= self.config.give_up {
            self.operations.end_all(Status::TimedOut);
            self.last_rx = now;
            self.open_again(now);
        }
    }

    /// Operations go to the sender, as many as may be outstanding. Those beyond the end of the volume fail here.
    fn hand_over(&mut self, blocks: u64, most: u64) {
        while let Some(run) = self.operations.next_run(most) {
            let Some(operation) = self.operations.get(run.op) else { continue };
            let count = blocks.saturating_sub(operation.lba).min(run.count.into());
            if count > 0 {
                self.sender.push(Run { count: count as u16, ..run });
            }
            for op in run.op + count..run.op + u64::from(run.count) {
                self.operations.end(op, Status::OutOfRange);
            }
        }
    }

    fn send_all(
        &mut self,
        session: u64,
        memory: &impl Memory,
        now: Nanos,
        mut send: impl FnMut(u8, &[u8; HEADER_LEN], Payload<'_>),
    ) {
        while let Some(next) = self.sender.next(now, |run| self.operations.wanted_of(*run).is_some()) {
            self.send_one(session, next, memory, &mut send);
        }
        let wait = if self.operations.is_empty() { self.config.keep_alive } else { self.config.ask };
        if now.saturating_sub(self.last_rx.max(self.asked)) >= wait {
            self.asked = now;
            if let Some(question) = self.sender.ask(now) {
                self.send_one(session, question, memory, &mut send);
            }
        }
    }

    fn send_one(
        &mut self,
        session: u64,
        next: Transmission<Run>,
        memory: &impl Memory,
        send: &mut impl FnMut(u8, &[u8; HEADER_LEN], Payload<'_>),
    ) {
        let oldest = self.operations.oldest();
        let base = Header { session, oldest, path: next.path, sequence: next.sequence, ..Header::new(Kind::Probe) };
        let wanted = next.item.and_then(|run| self.operations.wanted_of(run));
        let Some((run, operation)) = wanted.and_then(|run| Some((run, self.operations.get(run.op)?))) else {
            return send(next.path, &base.write(), Payload::NONE);
        };
        let base = Header { op: run.op, lba: operation.lba, count: run.count, ..base };
        match operation.direction {
            Direction::Read => send(next.path, &Header { kind: Kind::Read, ..base }.write(), Payload::NONE),
            Direction::Write => {
                let block = memory.block(operation.token, operation.index);
                let crc = *operation.crc.get_or_insert_with(|| crc32c(block));
                send(next.path, &Header { kind: Kind::Write, crc, ..base }.write(), Payload::Bytes(block));
            }
        }
    }

    /// When [`Client::poll`] has something to do next, if nothing comes.
    pub fn deadline(&self) -> Option<Nanos> {
        let waits = !self.operations.is_empty();
        let ask = self.last_rx.max(self.asked) + if waits { self.config.ask } else { self.config.keep_alive };
        let give_up = waits.then_some(self.last_rx + self.config.give_up);
        match self.state {
            State::Opening { again } | State::Claiming { again, .. } => {
                Some(give_up.map_or(again, |give_up| give_up.min(again)))
            }
            State::Open { .. } => [self.sender.deadline(), Some(ask), give_up].into_iter().flatten().min(),
            State::Ended(_) => None,
        }
    }
}

/// The next nonce: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn mix(nonce: u64) -> u64 {
    let mut mixed = nonce.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
