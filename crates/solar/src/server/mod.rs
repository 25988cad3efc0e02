//! The server's end: sessions of clients, and their right to write to a volume.
pub(crate) mod session;

use self::session::{NewSession, Session};
use crate::config::ServerConfig;
use crate::packet::{Access, HEADER_LEN, Header, Kind, Status};
use crate::storage::{Job, Outcome, Payload, Storage, Volume};
use siphasher::sip::SipHasher24;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use tcp::Nanos;

/// What has been counted since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Packets taken.
    pub received: u64,
    /// Packets that were damaged, or none of ours.
    pub dropped: u64,
    /// Packets of no session.
    pub stale: u64,
}

/// Most answers about sessions that are no more, between two polls.
const MOST_STALE: usize = 64;

/// What became of an opening.
enum Begun {
    Yes,
    /// The client asks again.
    NotYet,
    Refused(Status),
}

/// A server. Clients have addresses of type `P`, without the port, which stands for the path.
#[derive(Debug)]
pub struct Server<P> {
    config: ServerConfig,
    sessions: BTreeMap<u64, Session<P>>,
    /// For each volume, the stamp of the ticket by which a client got the right to write last.
    claimed: HashMap<u32, u64>,
    /// Answers that are sent once.
    replies: Vec<(P, Header)>,
    /// Makes tickets.
    key: [u64; 2],
    /// The stamp of the last ticket.
    stamp: u64,
    counts: ServerCounts,
}

impl<P: Copy + Eq + Hash> Server<P> {
    /// A server. `key` must be random, and another at each start: it makes tickets, which nobody else may guess.
    pub fn new(config: ServerConfig, key: [u64; 2]) -> Server<P> {
        Server {
            config,
            sessions: BTreeMap::new(),
            claimed: HashMap::new(),
            replies: Vec::new(),
            key,
            stamp: 0,
            counts: ServerCounts::default(),
        }
    }

    /// What has been counted.
    pub fn counts(&self) -> ServerCounts {
        self.counts
    }

    /// Sessions of clients that have not lost the volume to another.
    pub(crate) fn live(&self) -> impl Iterator<Item = &Session<P>> {
        self.sessions.values().filter(|session| !session.fenced)
    }

    /// Sessions that have not ended.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A packet has come from a client, `marked` where it met congestion (RFC 3168, CE).
    pub fn receive(&mut self, peer: P, packet: &[u8], marked: bool, storage: &mut impl Storage<P>, now: Nanos) {
        let Some((header, payload)) = Header::read(packet) else {
            self.counts.dropped += 1;
            return;
        };
        self.counts.received += 1;
        match header.kind {
            Kind::Open => return self.give_ticket(peer, &header),
            Kind::Claim => return self.claim(peer, &header, payload, storage, now),
            _ => {}
        }
        match self.sessions.get_mut(&header.session).filter(|session| session.peer == peer) {
            Some(session) if session.fenced => self.stale(peer, &header, Status::Fenced),
            Some(_) if header.kind == Kind::Close => {
                self.sessions.remove(&header.session);
            }
            Some(session) => session.receive(&header, payload, marked, storage, now),
            None => self.stale(peer, &header, Status::NoSession),
        }
    }

    fn stale(&mut self, peer: P, header: &Header, status: Status) {
        self.counts.stale += 1;
        if header.kind != Kind::Close {
            self.reply(peer, Header { session: header.session, status, path: header.path, ..Header::new(Kind::Stale) });
        }
    }

    fn reply(&mut self, peer: P, header: Header) {
        if self.replies.len() < MOST_STALE {
            self.replies.push((peer, header));
        }
    }

    /// A client asks for a session. Nothing is stored of it: an old copy of its packet, or a forged address, changes
    /// nothing. Only the receiver of the ticket can begin the session.
    fn give_ticket(&mut self, peer: P, header: &Header) {
        self.stamp += 1;
        let session = self.ticket(peer, header.lba, self.stamp);
        let answer = Header::new(Kind::Ticket);
        self.reply(peer, Header { session, op: header.op, lba: self.stamp, path: header.path, ..answer });
    }

    /// The ticket of a client, which becomes the number of its session.
    fn ticket(&self, peer: P, client: u64, stamp: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        (peer, client, stamp).hash(&mut hasher);
        hasher.finish()
    }

    fn claim(&mut self, peer: P, header: &Header, name: &[u8], storage: &mut impl Storage<P>, now: Nanos) {
        let answer = Header { op: header.op, path: header.path, ..Header::new(Kind::Opened) };
        let session = header.session;
        if !self.sessions.contains_key(&session) {
            match self.begin(peer, header, name, storage, now) {
                Begun::Yes => {}
                Begun::NotYet => return,
                Begun::Refused(status) => return self.reply(peer, Header { status, ..answer }),
            }
        }
        let opened = &self.sessions[&session];
        let (lba, sequence) = (opened.volume.blocks, opened.generation);
        self.reply(peer, Header { session, lba, sequence, count: self.config.most_outstanding, ..answer });
    }

    fn begin(&mut self, peer: P, header: &Header, name: &[u8], storage: &mut impl Storage<P>, now: Nanos) -> Begun {
        let (number, client, stamp) = (header.session, header.lba, header.op);
        if number != self.ticket(peer, client, stamp) {
            return Begun::Refused(Status::NoSession);
        }
        let Some(volume) = storage.find(name, &peer) else { return Begun::Refused(Status::NoVolume) };
        let writes = header.access != Access::Read;
        self.make_room(peer);
        if let Some(status) = self.refusal(&volume, header) {
            return Begun::Refused(status);
        }
        let mut generation = 0;
        if writes {
            self.fence(volume.number, client);
            let Some(claimed) = storage.claim(volume.number, client) else { return Begun::NotYet };
            self.claimed.insert(volume.number, stamp);
            generation = claimed;
        }
        let new_session = NewSession { peer, volume, number, generation };
        self.sessions.insert(number, Session::new(&self.config, new_session, header, now));
        Begun::Yes
    }

    /// Where there are as many sessions as may be, one goes that nobody misses: it is fenced, or of an earlier client
    /// at the same address and port, which was killed. A client that used it after all begins another one.
    fn make_room(&mut self, peer: P) {
        if self.sessions.len() < self.config.most_sessions {
            return;
        }
        let spare = self.sessions.iter().filter(|(_, session)| session.fenced || session.peer == peer);
        if let Some((&number, _)) = spare.min_by_key(|(_, session)| session.last_rx) {
            self.sessions.remove(&number);
        }
    }

    fn refusal(&self, volume: &Volume, header: &Header) -> Option<Status> {
        let writes = header.access != Access::Read;
        let others = |session: &Session<P>| session.volume.number == volume.number && session.client != header.lba;
        let busy = || self.sessions.values().any(|other| others(other) && other.writes());
        if volume.read_only && writes {
            return Some(Status::ReadOnly);
        }
        if self.sessions.len() >= self.config.most_sessions || header.access == Access::Write && busy() {
            return Some(Status::Busy);
        }
        // A copy of an old packet, of a session that has ended, must not take the volume from its owner.
        let late = self.claimed.get(&volume.number).is_some_and(|&claimed| header.op <= claimed);
        (writes && late).then_some(Status::Fenced)
    }

    /// Other clients' right to write ends; so do earlier sessions of the same client.
    fn fence(&mut self, volume: u32, client: u64) {
        let of_volume = |session: &&mut Session<P>| session.volume.number == volume && session.writes();
        for session in self.sessions.values_mut().filter(of_volume) {
            session.fenced = true;
        }
        self.sessions.retain(|_, session| !(session.fenced && session.client == client));
    }

    /// An operation has ended. Nothing happens where its session is no more.
    pub fn finish(&mut self, job: Job, outcome: Outcome) {
        if let Some(session) = self.sessions.get_mut(&job.session) {
            session.finish(job, outcome);
        }
    }

    /// Sends what may be sent now: client, path, header, payload.
    pub fn poll(&mut self, now: Nanos, mut send: impl FnMut(P, u8, &[u8; HEADER_LEN], Payload<'_>)) {
        for (peer, header) in self.replies.drain(..) {
            send(peer, header.path, &header.write(), Payload::NONE);
        }
        let silence = self.config.silence;
        self.sessions.retain(|_, session| now.saturating_sub(session.last_rx) < silence);
        for session in self.sessions.values_mut().filter(|session| !session.fenced) {
            session.poll(now, &mut send);
        }
    }

    /// When [`Server::poll`] has something to do next, if nothing comes.
    pub fn deadline(&self) -> Option<Nanos> {
        let silent = self.sessions.values().map(|session| session.last_rx + self.config.silence);
        let due = self.sessions.values().filter(|session| !session.fenced).filter_map(Session::deadline);
        silent.chain(due).min()
    }
}
