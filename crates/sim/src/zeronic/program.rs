//! ZeroNIC program: its queues, its memory, and what it posted on each connection.
use super::host::ZeroHost;
use super::plan::{SidePlan, TalkPlan};
use crate::random::{Random, Stream};
use crate::rdma::memory::{Memory, Needs};
use ::memory::Domain;
use context::ProgramQueues;
use context::comm::{COMPLETIONS, Carries, Completion, Order, POSTS, Piece, Post};
use context::queues::{AppQueues, DaemonQueues, QueueSizes, daemon_bell};
use port::Nanos;
use shm::{Doorbell, PipeConsumer, PipeProducer};
use std::collections::VecDeque;
use zeronic::{NewProgram, ProgramId};

/// The memory of all programs of a host.
const DOMAIN: Domain = Domain(1);
/// Sections of a program's memory: sends come from one, receives go to the other.
pub(super) const SOURCE: usize = 0;
pub(super) const RECEIVE: usize = 2;

/// A post that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) place: usize,
    /// Where a send stands in its stream.
    pub(super) at: u64,
    pub(super) len: usize,
}

/// A connection as its program has it.
#[derive(Debug, Default)]
pub(super) struct Conn {
    /// Its number; 0 until there is one.
    pub(super) number: u32,
    pub(super) sends: VecDeque<Posted>,
    pub(super) receives: VecDeque<Posted>,
    /// Bytes that were posted, and bytes that came in order.
    pub(super) written: u64,
    pub(super) delivered: u64,
    /// The bytes of each send, where they are messages, and how many messages came.
    pub(super) lengths: Vec<usize>,
    pub(super) messages: usize,
    pub(super) is_ended: bool,
    pub(super) peer_ended: bool,
    pub(super) is_closed: bool,
    /// The last receive found no room: there may be some when another one is done.
    pub(super) is_full: bool,
    send_at: Nanos,
    receive_at: Nanos,
}

impl Conn {
    /// The bytes that will be in the receive that has `nth` others before it. `lengths` are those of the peer's
    /// messages; a stream has none.
    pub(super) fn room(&self, nth: usize, posted: usize, lengths: &[usize]) -> usize {
        lengths.get(self.messages + nth).copied().unwrap_or(posted)
    }
}

/// A program.
pub(super) struct Program {
    pub(super) id: ProgramId,
    posts: PipeProducer<8>,
    completions: PipeConsumer<8>,
    pub(super) memory: Memory,
    plan: SidePlan,
    carries: Carries,
    /// Bytes of a receive, for any message of the peer's.
    longest_message: usize,
    pub(super) conns: Vec<Conn>,
    free: [Vec<usize>; 2],
    next_id: u64,
    random: Random,
    /// Its memory is not registered any more.
    pub(super) is_unmapped: bool,
}

fn broken(error: std::io::Error) -> String {
    format!("cannot make queues: {error}")
}

impl Program {
    /// Attaches to its host.
    pub(super) fn new(
        plan: &TalkPlan,
        side: usize,
        host: &mut ZeroHost,
        random: &mut Random,
    ) -> Result<Program, String> {
        let sizes = QueueSizes { send: POSTS, completion: COMPLETIONS, ..QueueSizes::default() };
        let (region, daemon) = DaemonQueues::create("sim", sizes).map_err(broken)?;
        let (bell, back) = (Doorbell::eventfd().map_err(broken)?, Doorbell::eventfd().map_err(broken)?);
        let new = NewProgram {
            pid: 20_000 + side as u32,
            command: format!("program {side}"),
            uid: 0,
            domain: DOMAIN,
            queues: ProgramQueues::new(
                daemon.send.ok_or("no queue of posts")?,
                daemon.completion.ok_or("no queue of completions")?,
                daemon_bell(&region, bell),
                context::comm::program_bell(&region, back),
            ),
        };
        let app = AppQueues::new(&region).map_err(broken)?;
        let id = host.programs.attach(new)?;
        let of_side = plan.sides[side].clone();
        // A send that is refused would leave a gap in the stream.
        let sends = of_side.sends.min(of_side.entries - 2) * plan.connections;
        let receives = of_side.receives * plan.connections;
        let longest_message = plan.sides[1 - side].longest as usize;
        let bytes = match plan.carries {
            Carries::Stream => of_side.longest as usize,
            Carries::Messages => longest_message.max(of_side.longest as usize),
        };
        let needs = Needs { bytes, places: [sends, 1, receives], windows: false };
        let memory = Memory::new(&host.table, DOMAIN, needs)?;
        Ok(Program {
            id,
            posts: app.send.ok_or("no queue of posts")?,
            completions: app.completion.ok_or("no queue of completions")?,
            memory,
            plan: of_side,
            carries: plan.carries,
            longest_message,
            conns: (0..plan.connections).map(|_| Conn::default()).collect(),
            free: [(0..sends).rev().collect(), (0..receives).rev().collect()],
            next_id: 1,
            random: Random::new(random.bits()),
            is_unmapped: false,
        })
    }

    pub(super) fn has_mail(&self) -> bool {
        !self.completions.is_empty()
    }

    pub(super) fn completion(&mut self) -> Result<Option<Completion>, String> {
        let Some(words) = self.completions.pop() else { return Ok(None) };
        Completion::from_words(words).map(Some).ok_or_else(|| format!("a completion that there is not: {words:?}"))
    }

    /// Leaves a post; its number.
    pub(super) fn post(&mut self, connection: u32, order: Order) -> Result<u64, String> {
        let id = self.next_id;
        self.next_id += 1;
        let words = Post { id, connection, order }.to_words();
        self.posts.push(words).map_err(|_| "the queue of posts is full".to_string())?;
        Ok(id)
    }

    /// Begins to take its registration back.
    pub(super) fn unmap(&mut self, host: &ZeroHost) -> Result<(), String> {
        self.is_unmapped = true;
        let revoke = |key| host.table.revoke(DOMAIN, key).map_err(|why| format!("a region cannot be revoked: {why}"));
        self.memory.keys().into_iter().try_for_each(revoke)
    }

    /// The data-path touches no byte of its memory any more.
    pub(super) fn is_out_of_reach(&self, host: &ZeroHost) -> bool {
        host.table.remove(DOMAIN)
    }

    fn length(&mut self) -> usize {
        self.random.between(self.plan.shortest.into(), self.plan.longest.into()) as usize
    }

    fn piece(&self, section: usize, place: usize, len: usize) -> Piece {
        let (of, key) = match section {
            SOURCE => (&self.memory.source, self.memory.keys()[SOURCE]),
            _ => (&self.memory.receive, self.memory.keys()[RECEIVE]),
        };
        Piece { key: key.0, offset: of.offset(place), len: len as u64 }
    }

    /// Posts what it may on a connection whose stream has so many bytes in all; when it is to be woken.
    pub(super) fn work(&mut self, now: Nanos, at: usize, stream: Stream, total: u64) -> Result<Nanos, String> {
        let conn = &self.conns[at];
        if conn.number == 0 || conn.is_closed || self.is_unmapped {
            return Ok(Nanos::MAX);
        }
        let number = conn.number;
        while now >= self.conns[at].receive_at && self.needs_receives(at) {
            self.post_receive(now, at)?;
        }
        while now >= self.conns[at].send_at && self.needs_sends(at, total) {
            self.post_send(now, at, stream, total)?;
        }
        if self.conns[at].written == total && !self.conns[at].is_ended {
            self.conns[at].is_ended = true;
            self.post(number, Order::End)?;
        }
        let later = |due: Nanos, has_one: bool| if has_one && due > now { due } else { Nanos::MAX };
        let receive = later(self.conns[at].receive_at, self.needs_receives(at));
        Ok(receive.min(later(self.conns[at].send_at, self.needs_sends(at, total))))
    }

    fn needs_receives(&self, at: usize) -> bool {
        let conn = &self.conns[at];
        let has_room = !conn.is_full || conn.receives.is_empty();
        !conn.peer_ended && has_room && conn.receives.len() < self.plan.receives
    }

    fn needs_sends(&self, at: usize, total: u64) -> bool {
        let conn = &self.conns[at];
        conn.written < total && conn.sends.len() < self.plan.sends.min(self.plan.entries - 2)
    }

    fn post_receive(&mut self, now: Nanos, at: usize) -> Result<(), String> {
        let len = if self.carries == Carries::Messages { self.longest_message } else { self.length() };
        let place = self.free[1].pop().ok_or("no place is free to receive into")?;
        if !self.memory.is_clear(&self.memory.receive, place)? {
            return Err("a byte was written into a receive that is done".into());
        }
        let id = self.post(self.conns[at].number, Order::Receive(self.piece(RECEIVE, place, len)))?;
        let conn = &mut self.conns[at];
        conn.receives.push_back(Posted { id, place, at: 0, len });
        conn.receive_at = now + self.plan.receive_gap_us * 1000;
        Ok(())
    }

    fn post_send(&mut self, now: Nanos, at: usize, stream: Stream, total: u64) -> Result<(), String> {
        let (len, place) = (self.length(), self.free[0].pop().ok_or("no place is free to send from")?);
        let (from, len) = (self.conns[at].written, len.min((total - self.conns[at].written) as usize));
        let mut bytes = vec![0; len];
        stream.fill(from, &mut bytes);
        self.memory.write(self.memory.source.place(place), &bytes)?;
        let id = self.post(self.conns[at].number, Order::Send(self.piece(SOURCE, place, len)))?;
        let conn = &mut self.conns[at];
        conn.sends.push_back(Posted { id, place, at: from, len });
        conn.written += len as u64;
        if self.carries == Carries::Messages {
            conn.lengths.push(len);
        }
        conn.send_at = now + self.plan.send_gap_us * 1000;
        Ok(())
    }

    /// A place is free again, and nobody's.
    pub(super) fn release(&mut self, section: usize, posted: Posted) -> Result<(), String> {
        let of = if section == SOURCE { self.memory.source } else { self.memory.receive };
        self.memory.clear(&of, posted.place, posted.len)?;
        self.free[usize::from(section != SOURCE)].push(posted.place);
        Ok(())
    }

    /// It is done with a connection.
    pub(super) fn close(&mut self, at: usize) -> Result<(), String> {
        let conn = &mut self.conns[at];
        if conn.is_closed {
            return Ok(());
        }
        conn.is_closed = true;
        let number = conn.number;
        if number > 0 { self.post(number, Order::Close).map(drop) } else { Ok(()) }
    }

    /// Its connections, for people.
    pub(super) fn describe(&self) -> String {
        let of = |conn: &Conn| {
            let Conn { number, sends, receives, written, delivered, is_ended, peer_ended, is_closed, .. } = conn;
            format!(
                "{number}: {} sends, {} receives, {written} written, {delivered} delivered, ended {is_ended} {peer_ended}, \
                 closed {is_closed}",
                sends.len(),
                receives.len()
            )
        };
        self.conns.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}
