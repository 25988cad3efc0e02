//! The outbox: what a part of the control plane may use of the host, and where it leaves commands, packets and timers.
use crate::config::HostConfig;
use crate::counters::Counters;
use crate::journal::Journal;
use crate::packet;
use crate::random::Random;
use crate::timers::Timers;
use ::host::{Net, NetContext};
use context::Endpoint;
use engine::stream::{FourTuple, Stream};
use engine::{Command, DropCounts, DropReason, Exception, Nanos};
use port::Frame;
use trace::Tracer;
use wire::tcp::{Flags, Header, Options, Timestamps};
use wire::{Mac, Seq};

/// The time, the network layer, and the places for whatever follows.
pub(crate) struct Outbox<'a> {
    pub now: Nanos,
    /// The host's network layer: packets leave through it.
    pub net: &'a mut Net,
    /// Drop counters of the host.
    pub drops: &'a mut DropCounts,
    /// Sums over the host's connections.
    pub counters: &'a mut Counters,
    /// For the engine.
    pub commands: &'a mut Vec<Command<Stream>>,
    /// When connections are to be polled again.
    pub timers: &'a mut Timers,
    /// Frames that the engine or the pool gets.
    pub frames: &'a mut KeptFrames,
    pub random: &'a mut Random,
    /// Records of connections, which outlive this daemon.
    pub journal: &'a mut Journal,
    pub config: &'a HostConfig,
    pub tracer: &'a Tracer,
}

/// Frames, and what becomes of them.
#[derive(Default)]
pub(crate) struct KeptFrames {
    /// Of flows that the engine learns of only now, or that a module sent here; and why they came.
    pub refeed: Vec<(Exception, Box<Frame>)>,
    /// Of no use any more: the pool gets them back.
    pub spent: Vec<Box<Frame>>,
}

impl Outbox<'_> {
    /// The tuple of a connection to `remote` that is bound to no address.
    pub(crate) fn tuple(&self, local_port: u16, remote: Endpoint) -> FourTuple {
        FourTuple { local_ip: self.net.source(remote.ip), remote_ip: remote.ip, local_port, remote_port: remote.port }
    }

    /// The tuple of a connection from a bound address, or from a port of any address.
    pub(crate) fn tuple_of(&self, local: Endpoint, remote: Endpoint) -> FourTuple {
        let tuple = self.tuple(local.port, remote);
        if local.ip == local.ip.any() { tuple } else { FourTuple { local_ip: local.ip, ..tuple } }
    }

    /// A SYN gets no connection, for this reason.
    pub(crate) fn refuse(&mut self, reason: DropReason) {
        self.drops.count(reason);
        self.counters.refused += 1;
    }

    /// Sends a segment without payload.
    pub(crate) fn send_tcp(&mut self, tuple: &FourTuple, header: Header) {
        self.net.send(self.now, packet::segment(tuple, &header), self.drops);
    }

    /// Sends a SYN, with its data.
    pub(crate) fn send_syn(&mut self, tuple: &FourTuple, header: Header, data: &[u8]) {
        self.net.send(self.now, packet::segment_with(tuple, &header, data), self.drops);
    }

    /// Answers a segment of a handshake, where ARP has no entry for the next hop to its station. What waited for ARP
    /// would leave after what the engine sends on the connection, and advertise an older window.
    pub(crate) fn answer(&mut self, tuple: &FourTuple, header: Header, station: Option<Mac>) {
        match station.filter(|_| !self.net.has_station(tuple.remote_ip)) {
            Some(mac) => self.net.send_to(mac, packet::segment(tuple, &header)),
            None => self.send_tcp(tuple, header),
        }
    }

    /// Resets a connection: with `ack`, its peer's data is acknowledged up to there; with timestamps where the
    /// connection has them (RFC 7323 section 3.2).
    // Meets RFC 7323: 3.2-e.
    pub(crate) fn reset(&mut self, tuple: &FourTuple, seq: Seq, ack: Option<Seq>, timestamps: Option<Timestamps>) {
        let flags = if ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST };
        let header = Header {
            src_port: tuple.local_port,
            dst_port: tuple.remote_port,
            seq,
            ack: ack.unwrap_or(Seq(0)),
            flags,
            window: 0,
            options: Options { timestamps, ..Options::default() },
        };
        self.send_tcp(tuple, header);
    }
}

/// The queues of an outbox, which last from one use to the next.
pub(crate) struct Queues {
    pub commands: Vec<Command<Stream>>,
    pub counters: Counters,
    pub timers: Timers,
    pub frames: KeptFrames,
    pub random: Random,
    pub journal: Journal,
    pub config: HostConfig,
    pub tracer: Tracer,
}

impl Queues {
    pub(crate) fn new(config: HostConfig, secret: [u8; 16]) -> Queues {
        Queues {
            commands: Vec::new(),
            counters: Counters::default(),
            timers: Timers::default(),
            frames: KeptFrames::default(),
            random: Random::new(secret),
            journal: Journal::default(),
            config,
            tracer: Tracer::off(),
        }
    }

    pub(crate) fn outbox<'a>(&'a mut self, context: NetContext<'a>) -> Outbox<'a> {
        let NetContext { now, net, drops } = context;
        let Queues { commands, counters, timers, frames, random, journal, config, tracer } = self;
        Outbox { now, net, drops, counters, commands, timers, frames, random, journal, config, tracer }
    }
}
