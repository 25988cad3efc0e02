//! The connections that an application opens.
use crate::app::{App, Purpose};
use crate::pair::{CLIENT, Pair, SERVER, SideState};
use crate::plan::Plan;
use crate::scene::{Listening, Scene};
use context::{Congestion, Endpoint, Request};
use port::Nanos;

/// How long an application waits before it tries again what found no room.
const TRY_AGAIN: Nanos = 5_000_000;
/// First port of connections between applications of one host: below those that hosts choose.
const FIRST_OWN: u16 = 10_000;
/// Time between two polls for a listener.
const RETRY: Nanos = 1_000_000;

impl App {
    /// Starts what is due.
    pub(crate) fn start_calls(&mut self, now: Nanos, scene: &mut Scene) {
        if self.caller.is_over() {
            return;
        }
        let due = |(at, pair): &(Nanos, usize)| (*at <= now).then_some(*pair);
        let again: Vec<usize> = self.caller.again.iter().filter_map(due).collect();
        self.caller.again.retain(|(at, _)| *at > now);
        for pair in again {
            self.begin(scene, pair);
        }
        for index in 0..self.caller.groups.len() {
            while let Some(pair) = self.next_of_group(now, scene, index) {
                self.begin(scene, pair);
            }
        }
        let plan = &scene.plan;
        self.caller.groups.retain(|group| group.started < plan.calls[group.call].count);
    }

    /// One that also accepts leaves a slot for that: otherwise two applications can wait for each other for ever.
    fn has_slot_to_spare(&self) -> bool {
        let opening = self.purposes.values().filter(|purpose| matches!(purpose, Purpose::Connect(..))).count();
        let used = self.connections.len() + self.unknown.len() + self.closing.len() + opening + self.caller.again.len();
        self.held.is_empty() || used + 1 < self.end.geometry.slots as usize
    }

    /// Makes the next pair of a group, if it may start now.
    fn next_of_group(&mut self, now: Nanos, scene: &mut Scene, index: usize) -> Option<usize> {
        if !self.has_slot_to_spare() {
            return None;
        }
        let group = &mut self.caller.groups[index];
        let call = &scene.plan.calls[group.call];
        let may = group.started < call.count && self.caller.live < call.parallel && now >= group.next_start;
        if !may || scene.listening[call.to] == Listening::Before {
            return None;
        }
        let mut pair = Pair::new(scene.plan.seed, group.call, group.started, now);
        if scene.listening[call.to] == Listening::Over {
            pair.spoil("nobody listens any more");
        }
        group.started += 1;
        group.next_start = now + call.gap_us * 1000;
        self.caller.live += 1;
        scene.pairs.push(pair);
        Some(scene.pairs.len() - 1)
    }

    /// Asks for a pair's connection, or first for its local address.
    fn begin(&mut self, scene: &Scene, pair: usize) {
        let call = &scene.plan.calls[scene.pairs[pair].call];
        let to_self = scene.plan.apps[scene.plan.listens[call.to].app].host == self.host;
        // A host's frames to itself are not seen, so only its port shows which connection one that came in is.
        let port = if call.bind == 0 && to_self { FIRST_OWN + pair as u16 } else { call.bind };
        if port == 0 {
            return self.connect(scene, pair, 0);
        }
        let tag = self.tag(Purpose::BindCall(pair));
        let local = Endpoint { ip: Plan::address_for(self.host, call), port };
        self.outbox.push_back(Request::Bind { tag, local, reuse_address: true, reuse_port: false, dual_stack: false });
    }

    /// Asks for a pair's connection.
    pub(crate) fn connect(&mut self, scene: &Scene, pair: usize, binding: u32) {
        let call = &scene.plan.calls[scene.pairs[pair].call];
        let listen = &scene.plan.listens[call.to];
        let remote = Endpoint { ip: Plan::address_for(scene.plan.apps[listen.app].host, call), port: listen.port };
        let tag = self.tag(Purpose::Connect(pair, binding));
        self.outbox.push_back(Request::Connect {
            tag,
            binding,
            remote,
            congestion: Congestion::DEFAULT,
            mss: 0,
            early: context::EarlyData::No,
        });
    }

    /// A connection could not be opened.
    pub(crate) fn refused(&mut self, now: Nanos, scene: &mut Scene, pair: usize, errno: u16) -> Result<(), String> {
        const NO_ROOM: [u16; 6] = [11, 12, 98, 99, 105, 24];
        if NO_ROOM.contains(&errno) {
            self.caller.again.push((now + TRY_AGAIN, pair));
            scene.pairs[pair].progress_at = now;
            return Ok(());
        }
        let pair_now = &mut scene.pairs[pair];
        if pair_now.spoiled.is_none() {
            return Err(format!("{}: connecting failed with error {errno}", pair_now.name()));
        }
        let client = &mut pair_now.halves[CLIENT];
        client.stage = SideState::Closed;
        if pair_now.halves[SERVER].stage == SideState::Waiting {
            pair_now.halves[SERVER].stage = SideState::Closed;
        }
        scene.count_end(pair);
        self.caller.ended();
        Ok(())
    }

    /// When it next opens something.
    pub(crate) fn next_call(&self, now: Nanos, scene: &Scene) -> Nanos {
        if self.caller.is_over() {
            return Nanos::MAX;
        }
        let again = self.caller.again.iter().map(|(at, _)| *at);
        if !self.has_slot_to_spare() {
            return again.min().unwrap_or(Nanos::MAX).min(now + RETRY);
        }
        let starts = self.caller.groups.iter().filter_map(|group| {
            let call = &scene.plan.calls[group.call];
            let waits = scene.listening[call.to] == Listening::Before;
            (self.caller.live < call.parallel)
                .then(|| if waits { group.next_start.max(now + RETRY) } else { group.next_start })
        });
        again.chain(starts).min().unwrap_or(Nanos::MAX)
    }
}
