//! A client, a server with its storage, and a network of several paths in between: all of it decided by a seed.
#![allow(dead_code, reason = "each test program uses a part of the world")]

pub(crate) mod disk;
pub(crate) mod judge;
pub(crate) mod network;

use disk::Disk;
use judge::Judge;
use network::{End, Network};
use solar::{Access, Client, ClientConfig, Completion, Direction, Header, Request, Server, ServerConfig};
use std::collections::BTreeMap;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// Xorshift (Marsaglia, 2003).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.word() % bound
    }

    /// True so many times of a thousand.
    pub(crate) fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// Everything, at one time.
pub(crate) struct World {
    pub now: u64,
    pub random: Random,
    pub network: Network,
    pub disk: Disk,
    pub judge: Judge,
    pub client: Client,
    /// `None` while it is down.
    pub server: Option<Server<u8>>,
    server_config: ServerConfig,
    client_config: ClientConfig,
    pub completions: Vec<Completion>,
    next_token: u64,
    /// When requests began that have not ended.
    begun: BTreeMap<u64, u64>,
    /// What the slowest request took, nanoseconds.
    pub slowest: u64,
    /// Of the client's last packet.
    pub session: u64,
}

impl World {
    pub(crate) fn new(seed: u64, blocks: u64) -> World {
        World::with_config(seed, blocks, ClientConfig::default(), ServerConfig::default())
    }

    pub(crate) fn with_config(seed: u64, blocks: u64, client: ClientConfig, server: ServerConfig) -> World {
        let mut random = Random::new(seed);
        World {
            now: 0,
            network: Network::new(client.path.paths, random.word()),
            disk: Disk::new(blocks, random.word()),
            judge: Judge::new(blocks),
            client: Client::new(client.clone(), "vol", Access::TakeOver, random.word(), 0),
            server: Some(Server::new(server.clone(), [random.word(), random.word()])),
            server_config: server,
            client_config: client,
            completions: Vec::new(),
            next_token: 0,
            begun: BTreeMap::new(),
            slowest: 0,
            session: 0,
            random,
        }
    }

    /// A request; the judge has its values.
    pub(crate) fn submit(&mut self, direction: Direction, lba: u64, blocks: u32) -> u64 {
        self.next_token += 1;
        let request = Request { direction, lba, blocks, token: self.next_token };
        self.judge.begin(request);
        self.begun.insert(self.next_token, self.now);
        self.client.submit(request, self.now);
        self.next_token
    }

    /// The server is killed: writes that have not ended may have happened or not.
    pub(crate) fn kill_server(&mut self) {
        self.server = None;
        self.disk.crash();
    }

    pub(crate) fn start_server(&mut self) {
        self.server = Some(Server::new(self.server_config.clone(), [self.random.word(), self.random.word()]));
    }

    /// The client is killed: nobody learns what became of its writes. Another one starts at once.
    pub(crate) fn replace_client(&mut self) {
        self.judge.client_died();
        self.begun.clear();
        self.client = Client::new(self.client_config.clone(), "vol", Access::TakeOver, self.random.word(), self.now);
    }

    /// A packet reaches the client that nobody here has sent.
    pub(crate) fn forge(&mut self, packet: &[u8]) {
        self.client.receive(packet, false, &mut self.judge, self.now);
    }

    /// Everything that happens until `end`.
    pub(crate) fn run_until(&mut self, end: u64) {
        while self.now < end {
            self.work();
            let due = [
                self.network.deadline(),
                self.disk.deadline(),
                self.client.deadline(),
                self.server.as_ref().and_then(Server::deadline),
            ];
            let next = due.into_iter().flatten().min().unwrap_or(end);
            // A deadline that has passed and stays would stop the world: time goes on by a microsecond at least.
            self.now = next.max(self.now + US).min(end);
        }
    }

    /// Until nothing is outstanding, at most for so long.
    pub(crate) fn run_until_done(&mut self, most: u64) {
        let end = self.now + most;
        while self.judge.outstanding() > 0 && self.now < end {
            self.run_until(self.now + MS);
        }
        assert_eq!(self.judge.outstanding(), 0, "requests never ended; client {:#?}", self.client);
    }

    fn work(&mut self) {
        let now = self.now;
        for packet in self.network.arrived(now) {
            match (packet.to, &mut self.server) {
                (End::Client, _) => self.client.receive(&packet.bytes, packet.marked, &mut self.judge, now),
                (End::Server, Some(server)) => server.receive(1, &packet.bytes, packet.marked, &mut self.disk, now),
                _ => {}
            }
        }
        self.disk.work(now);
        let ended = self.disk.ended();
        if let Some(server) = &mut self.server {
            for (job, outcome) in ended {
                server.finish(job, outcome);
            }
            let network = &mut self.network;
            server.poll(now, |peer, path, header, payload| {
                assert_eq!(peer, 1);
                network.send(End::Client, path, &[&header[..], &payload.to_vec()].concat(), now);
            });
        }
        let (network, session) = (&mut self.network, &mut self.session);
        self.client.poll(&self.judge, now, |path, header, payload| {
            let packet = [&header[..], &payload.to_vec()].concat();
            *session = Header::read(&packet).expect("the client sends what can be read").0.session;
            network.send(End::Server, path, &packet, now);
        });
        for completion in self.client.completions() {
            self.judge.end(completion);
            let began = self.begun.remove(&completion.token).unwrap_or(now);
            self.slowest = self.slowest.max(now - began);
            self.completions.push(completion);
        }
    }
}
