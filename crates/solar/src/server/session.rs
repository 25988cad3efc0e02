//! A client's session at the server: which operations were seen, and the answers that are to reach the client.
use crate::acks::Acks;
use crate::config::ServerConfig;
use crate::operations::Direction;
use crate::packet::{Access, Ack, HEADER_LEN, Header, Kind, Status};
use crate::path::PathReport;
use crate::sender::{Sender, Transmission};
use crate::storage::{Block, Job, Outcome, Payload, Storage, Volume};
use std::collections::VecDeque;
use tcp::Nanos;

/// No client comes so far by counting: a session that would begin beyond begins here, and numbers never overflow.
const LAST_OLDEST: u64 = u64::MAX / 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Unknown,
    Running(Direction),
    Answered,
}

/// What the server reports to the client until that is acknowledged.
#[derive(Debug, Clone)]
struct Answer {
    direction: Direction,
    op: u64,
    lba: u64,
    outcome: Outcome,
}

/// A session with a client at the address `P`.
#[derive(Debug)]
pub(crate) struct Session<P> {
    pub(crate) peer: P,
    pub(crate) volume: Volume,
    pub(crate) access: Access,
    pub(crate) client: u64,
    pub(crate) generation: u32,
    /// Another client took the volume: the session only answers so.
    pub(crate) fenced: bool,
    /// When the client's last packet came.
    pub(crate) last_rx: Nanos,
    number: u64,
    /// From the operation `oldest` on: what became of each.
    progress: VecDeque<Progress>,
    oldest: u64,
    most: u64,
    sender: Sender<Answer>,
    acks: Acks,
}

/// Whose session, for the volume.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSession<P> {
    pub(crate) peer: P,
    pub(crate) volume: Volume,
    pub(crate) number: u64,
    pub(crate) generation: u32,
}

impl<P: Copy> Session<P> {
    pub(crate) fn new(config: &ServerConfig, new_session: NewSession<P>, header: &Header, now: Nanos) -> Session<P> {
        Session {
            peer: new_session.peer,
            volume: new_session.volume,
            access: header.access,
            client: header.lba,
            generation: new_session.generation,
            fenced: false,
            last_rx: now,
            number: new_session.number,
            progress: VecDeque::new(),
            oldest: header.oldest.min(LAST_OLDEST),
            most: config.most_outstanding.max(1).into(),
            sender: Sender::new(&config.path, now),
            acks: Acks::new(config.path.paths),
        }
    }

    pub(crate) fn paths(&self) -> Vec<PathReport> {
        self.sender.paths()
    }

    /// Answers that were sent again.
    pub(crate) fn again(&self) -> u64 {
        self.sender.counts().again
    }

    pub(crate) fn writes(&self) -> bool {
        self.access != Access::Read && !self.fenced
    }

    /// A packet of this session. What is new in it goes to the storage.
    pub(crate) fn receive(
        &mut self,
        header: &Header,
        payload: &[u8],
        marked: bool,
        storage: &mut impl Storage<P>,
        now: Nanos,
    ) {
        self.last_rx = now;
        self.advance(header.oldest);
        let taken = match header.kind {
            Kind::Read => self.read(header, storage),
            Kind::Write => self.write(header, payload, storage),
            Kind::Acknowledge => {
                for ack in Ack::list(payload) {
                    self.sender.acknowledged(ack, now);
                }
                false
            }
            kind => kind == Kind::Probe,
        };
        // What found no room is not acknowledged, so that it comes again.
        if taken {
            self.acks.add(header, marked);
        }
    }

    /// The client has the results of all operations before `oldest`: packets that still name them are old copies.
    fn advance(&mut self, oldest: u64) {
        let steps = oldest.saturating_sub(self.oldest).min(self.most);
        for _ in 0..steps {
            self.progress.pop_front();
        }
        self.oldest += steps;
    }

    /// The progress of an operation, if it is one that may be outstanding.
    fn progress(&mut self, op: u64) -> Option<&mut Progress> {
        let index = op.checked_sub(self.oldest).filter(|&index| index < self.most)? as usize;
        while self.progress.len() <= index {
            self.progress.push_back(Progress::Unknown);
        }
        self.progress.get_mut(index)
    }

    /// The operation begins. False where it has begun before, or has ended.
    fn begin(&mut self, op: u64, direction: Direction) -> bool {
        match self.progress(op) {
            Some(progress) if *progress == Progress::Unknown => {
                *progress = Progress::Running(direction);
                true
            }
            _ => false,
        }
    }

    fn has_room(&self, op: u64) -> bool {
        op < self.oldest + self.most
    }

    fn read(&mut self, header: &Header, storage: &mut impl Storage<P>) -> bool {
        if !self.has_room(header.op.saturating_add(header.count.into()).saturating_sub(1)) {
            return false;
        }
        for index in 0..u64::from(header.count) {
            let job = self.job(header.op + index, header.lba.saturating_add(index));
            if !self.begin(job.op, Direction::Read) {
                continue;
            }
            if job.lba < self.volume.blocks {
                storage.read(job);
            } else {
                self.finish(job, Outcome::Failed(Status::OutOfRange));
            }
        }
        true
    }

    fn write(&mut self, header: &Header, block: &[u8], storage: &mut impl Storage<P>) -> bool {
        if !self.has_room(header.op) {
            return false;
        }
        let job = self.job(header.op, header.lba);
        if self.begin(job.op, Direction::Write) {
            if !self.writes() || self.volume.read_only {
                self.finish(job, Outcome::Failed(Status::ReadOnly));
            } else if job.lba < self.volume.blocks {
                storage.write(job, header.crc, block);
            } else {
                self.finish(job, Outcome::Failed(Status::OutOfRange));
            }
        }
        true
    }

    fn job(&self, op: u64, lba: u64) -> Job {
        Job { session: self.number, op, volume: self.volume.number, lba }
    }

    /// An operation has ended: the client is to be notified.
    pub(crate) fn finish(&mut self, job: Job, outcome: Outcome) {
        let Some(progress) = self.progress(job.op) else { return };
        if let Progress::Running(direction) = *progress {
            *progress = Progress::Answered;
            self.sender.push(Answer { direction, op: job.op, lba: job.lba, outcome });
        }
    }

    /// Sends what may be sent now.
    pub(crate) fn poll(&mut self, now: Nanos, mut send: impl FnMut(P, u8, &[u8; HEADER_LEN], Payload<'_>)) {
        let (peer, session) = (self.peer, self.number);
        let header = Header { session, ..Header::new(Kind::Acknowledge) };
        self.acks.flush(header, |header, payload| send(peer, header.path, &header.write(), Payload::Bytes(payload)));
        self.sender.tick(now);
        let oldest = self.oldest;
        while let Some(next) = self.sender.next(now, |answer| answer.op >= oldest) {
            self.send_one(next, &mut send);
        }
    }

    fn send_one(&self, next: Transmission<Answer>, send: &mut impl FnMut(P, u8, &[u8; HEADER_LEN], Payload<'_>)) {
        let base =
            Header { session: self.number, path: next.path, sequence: next.sequence, ..Header::new(Kind::Probe) };
        let Some(answer) = next.item else { return send(self.peer, next.path, &base.write(), Payload::NONE) };
        let kind = match answer.direction {
            Direction::Read => Kind::Data,
            Direction::Write => Kind::Done,
        };
        let base = Header { kind, op: answer.op, lba: answer.lba, ..base };
        match answer.outcome {
            Outcome::Read(Block { crc, bytes }) => {
                send(self.peer, next.path, &Header { crc, ..base }.write(), bytes.payload());
            }
            Outcome::Written => send(self.peer, next.path, &base.write(), Payload::NONE),
            Outcome::Failed(status) => send(self.peer, next.path, &Header { status, ..base }.write(), Payload::NONE),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        self.sender.deadline()
    }
}
