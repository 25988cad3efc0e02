//! Fixture: two shards with a program each, in virtual time, over a wire that loses, repeats, reorders and damages
//! frames.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod node;
mod wire;

pub(crate) use self::node::{ADDRESS, MEMORY, Node, SETTINGS, SRQ, Settings};
pub(crate) use self::wire::{Faults, Parcel, Random, Wire, path_of};
use ::wire::roce::Path;
use ::wire::{Ipv4Addr, Mac};
use smartns::ShardOutput;

/// Nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// The way from one side to the other.
pub(crate) fn path(from: usize) -> Path {
    let mac = |side: usize| Mac([2, 0, 0, 0, 0, side as u8 + 1]);
    let ip = |side: usize| Ipv4Addr::new(10, 0, 0, side as u8 + 1);
    Path {
        local_mac: mac(from),
        remote_mac: mac(1 - from),
        local: ip(from),
        remote: ip(1 - from),
        hop_limit: 64,
        traffic_class: 2,
        source_port: 0xc000,
    }
}

/// The two sides, each with one queue pair, and the wire between them.
pub(crate) struct Pair {
    pub nodes: [Node; 2],
    pub wire: Wire,
    pub now: u64,
}

impl Pair {
    /// Both sides connected, and the send queues ready.
    pub(crate) fn connected(settings: [Settings; 2], wire: Wire) -> Pair {
        let mut pair = Pair { nodes: settings.map(Node::new), wire, now: 1000 };
        for side in 0..2 {
            let (remote, psns) = (pair.nodes[1 - side].qp, [settings[side].psn, settings[1 - side].psn]);
            pair.nodes[side].connect(remote, psns, path(side));
        }
        pair
    }

    /// One round of each side; then time goes on to what is next.
    pub(crate) fn step(&mut self) {
        for side in 0..2 {
            let node = &mut self.nodes[side];
            let mut rx = Vec::new();
            for parcel in self.wire.arrived(side, self.now) {
                let mut frame = node.pool.large();
                frame.bytes_vec().extend_from_slice(&parcel.bytes);
                (frame.checksum, frame.segment_size) = (parcel.checksum, parcel.segment_size);
                frame.set_payload(parcel.payload);
                rx.push(frame);
            }
            let Node { shard, pool, drops, events, tx, .. } = node;
            shard.poll(self.now, &mut rx, &mut ShardOutput { tx, pool, drops, events });
            assert!(rx.is_empty());
            for frame in tx.drain(..) {
                self.wire.send(1 - side, self.now, frame, pool);
            }
            node.take_completions();
        }
        let busy = self.nodes.iter().any(|node| node.shard.has_work(self.now));
        let due = self.nodes.iter().filter_map(|node| node.shard.next_deadline()).chain(self.wire.next()).min();
        self.now = match due {
            _ if busy => self.now + 100,
            Some(due) => due.clamp(self.now + 100, self.now + 50_000),
            None => self.now + 10_000,
        };
    }

    /// Rounds until something is so, or so much time is over.
    pub(crate) fn run(&mut self, limit: u64, mut until: impl FnMut(&mut Pair) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end && !until(self) {
            self.step();
        }
        until(self)
    }

    /// Rounds until so many completions are there, on both sides together.
    pub(crate) fn completed(&mut self, count: usize) -> bool {
        self.run(5000 * MS, |pair| pair.nodes.iter().map(|node| node.completions.len()).sum::<usize>() >= count)
    }

    /// Rounds for some time.
    pub(crate) fn idle(&mut self, time: u64) {
        self.run(time, |_| false);
    }
}
