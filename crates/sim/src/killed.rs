//! Kills: a host is gone in the middle of anything, and another one goes on with the connections of the programs that
//! come back, as after `kill -9` of a daemon (docs/RESTART.md).
use crate::app::{App, Purpose};
use crate::connection::Connection;
use crate::host::{SimHost, fresh_host};
use crate::pair::{CLIENT, SERVER, SideState};
use crate::plan::{Kill, Plan};
use crate::scene::{Listening, Scene};
use crate::takeover::is_in_the_midst;
use context::{Reply, Request, Slot};
use port::Nanos;
use std::collections::HashSet;
use std::sync::Arc;

/// Why a connection of a killed host may end otherwise than planned.
const KILLED: &str = "a host of it was killed";

/// Time of the next poll of a kill that waits for something.
const POLL_INTERVAL: Nanos = 100_000;
/// For so long a host waits for the programs of one that was killed (docs/RESTART.md). They come back sooner, but its
/// clock may go forward.
const SURVIVORS: Nanos = 5_000_000_000;
/// For so long it waits.
const TIMEOUT: Nanos = 1_000_000_000;

/// Kills to come, the last one first.
pub(crate) struct Kills(Vec<Coming>);

/// A kill to come.
struct Coming {
    kill: Kill,
    /// Time of the next poll of it.
    at: Nanos,
    /// It is called off where its host does not have what it waits for until then.
    until: Nanos,
}

impl Kills {
    pub(crate) fn new(kills: &[Kill], start: Nanos) -> Kills {
        let coming = |kill: &Kill| {
            let at = start + kill.at_us * 1000;
            Coming { kill: *kill, at, until: at + TIMEOUT }
        };
        let mut all: Vec<Coming> = kills.iter().map(coming).collect();
        all.sort_by_key(|coming| std::cmp::Reverse((coming.at, coming.kill.host)));
        Kills(all)
    }

    /// When the next one may be.
    pub(crate) fn next(&self) -> Nanos {
        self.0.last().map_or(Nanos::MAX, |coming| coming.at)
    }

    /// There are none any more.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Kills the host whose turn it is. One whose connections do not have what the kill waits for lives on for a while.
    pub(crate) fn carry_out(
        &mut self,
        now: Nanos,
        hosts: &mut [SimHost],
        apps: &mut [App],
        scene: &mut Scene,
    ) -> Result<(), String> {
        let Some(Coming { kill, at, until }) = self.0.last_mut().filter(|coming| coming.at <= now) else {
            return Ok(());
        };
        let kill = *kill;
        let is_time = is_in_the_midst(kill.host, kill.with, scene);
        if !is_time && now < *until {
            *at = now + POLL_INTERVAL;
            return Ok(());
        }
        self.0.pop();
        if !is_time {
            return Ok(());
        }
        hosts[kill.host].be_replaced(now, kill.lost_us)?;
        let mut closed = HashSet::new();
        for app in apps.iter_mut().filter(|app| app.host == kill.host) {
            let back = now + 1000 * (kill.back_us + u64::from(app.context.0) * kill.apart_us);
            app.lose_host(now, back, scene)?;
            closed.extend(app.closes().map(|connection| (connection.pair, connection.side)));
        }
        spoil_pairs(kill.host, &closed, scene);
        scene.inspector.killed([Plan::address(kill.host), Plan::ipv6(kill.host)]);
        scene.figures.kills += 1;
        Ok(())
    }
}

/// What a killed host had not reported to the application is lost. So is what it was to continue after the application
/// had closed it; but not where the close had not reached it, as with those `closed`. Where nobody listens any more for
/// a while, a connect waits.
fn spoil_pairs(host: usize, closed: &HashSet<(usize, usize)>, scene: &mut Scene) {
    let plan = Arc::clone(&scene.plan);
    for (index, pair) in scene.pairs.iter_mut().enumerate().filter(|(_, pair)| !pair.is_over()) {
        let call = &plan.calls[pair.call];
        let owners = [(CLIENT, call.app), (SERVER, plan.listens[call.to].app)];
        let lasts = |side: usize| pair.halves[side].stage == SideState::Open || closed.contains(&(index, side));
        if owners.into_iter().any(|(side, app)| plan.apps[app].host == host && !lasts(side)) {
            pair.spoil(KILLED);
        }
    }
    for (listen, state) in scene.listening.iter_mut().enumerate() {
        let here = plan.apps[plan.listens[listen].app].host == host;
        if here && matches!(state, Listening::Open(_)) {
            *state = Listening::Before;
        }
    }
}

impl SimHost {
    /// Another host takes the place of this one, which is gone, with nothing but its records.
    fn be_replaced(&mut self, now: Nanos, lost_us: u64) -> Result<(), String> {
        let records = self.records.clone().ok_or("a host without records is killed")?;
        let (config, mac) = (self.host.base().config().clone(), self.host.net().links()[0].mac);
        let mut new = fresh_host(&self.plan, config, self.capabilities(), mac, &self.pool, [0xdd; 16])?;
        new.use_base(self.clock(now), |tcp, context| tcp.keep_records(context, Box::new(records)));
        self.workers = new.workers();
        self.host = new;
        self.before_takeover.clear();
        (self.was_killed, self.replaced_at) = (true, self.clock(now));
        self.lose_frames(now, lost_us);
        self.nudge();
        Ok(())
    }
}

impl SimHost {
    /// It no longer waits for the programs of the host that was killed.
    fn gave_up_survivors(&self, now: Nanos) -> bool {
        self.clock(now) >= self.replaced_at + SURVIVORS
    }
}

impl App {
    /// Its host is gone, and it searches for the next one at a time. What its connections were notified of before, it
    /// takes in; what it had asked is lost.
    fn lose_host(&mut self, now: Nanos, back: Nanos, scene: &mut Scene) -> Result<(), String> {
        if self.away_until.is_some() {
            return Ok(());
        }
        self.take_completions(now, scene)?;
        let ended = self.ended_unreported()?;
        let lasts = self.end.can_go_on();
        self.keep_closes(lasts, &ended);
        let gone = |connection: &Connection| !lasts || connection.is_over() || ended.contains(&connection.slot);
        let gone: Vec<u32> =
            self.connections.iter().filter(|(_, connection)| gone(connection)).map(|(slot, _)| *slot).collect();
        gone.into_iter().for_each(|slot| self.end_with_host(now, scene, slot));
        self.connections.values_mut().for_each(Connection::goes_on);
        self.forget_requests(now, scene);
        self.away_until = Some(back);
        self.wake_at = now + 1;
        Ok(())
    }

    /// What it had asked the host, and that one had not taken from the ring, is to ask again: to close a connection.
    /// Others of its requests are lost.
    fn keep_closes(&mut self, lasts: bool, ended: &HashSet<Slot>) {
        let untaken = self.end.requests.untaken().into_iter().filter_map(Request::from_words);
        let all: Vec<Request> = untaken.chain(self.outbox.drain(..)).collect();
        let open = |slot: &Slot| self.closed.get(&slot.index).is_some_and(|it| it.slot == *slot && !it.is_over());
        let survives =
            |it: &Request| matches!(it, Request::Close { slot, .. } if lasts && open(slot) && !ended.contains(slot));
        self.outbox = all.into_iter().filter(survives).collect();
    }

    /// Connections that it has closed, which is still to be reported to a host.
    fn closes(&self) -> impl Iterator<Item = &Connection> {
        let of_close = |request: &Request| match request {
            Request::Close { slot, .. } => self.closed.get(&slot.index).filter(|it| it.slot == *slot),
            _ => None,
        };
        self.outbox.iter().filter_map(of_close)
    }

    /// Connections that the host had ended, which was not reported to this application yet.
    fn ended_unreported(&mut self) -> Result<HashSet<Slot>, String> {
        let mut ended = HashSet::new();
        while let Some(words) = self.end.replies.pop().map_err(|_| "the ring of replies is corrupt")? {
            match Reply::from_words(words).ok_or("a reply of an unknown kind")? {
                Reply::Error { slot, .. } | Reply::Ended { slot, .. } | Reply::Unaccept { slot, .. } => {
                    ended.insert(slot);
                }
                _ => {}
            }
        }
        Ok(ended)
    }

    /// A connection ends with its host.
    fn end_with_host(&mut self, now: Nanos, scene: &mut Scene, slot: u32) {
        let Some(connection) = self.connections.remove(&slot) else { return };
        self.due.remove(&slot);
        let pair = &mut scene.pairs[connection.pair];
        pair.spoil(KILLED);
        connection.give_up(now, pair);
        if connection.side == CLIENT {
            scene.count_end(connection.pair);
            self.caller.ended();
        }
    }

    /// A connection did not go on at the next host: nothing of it is asked any more.
    fn forget_lost(&mut self, now: Nanos, scene: &mut Scene, slot: u32, pair: usize) {
        scene.pairs[pair].spoil(KILLED);
        self.end_with_host(now, scene, slot);
        self.outbox.retain(|it| !matches!(it, Request::Close { slot: of, .. } if of.index == slot));
        self.closing.remove(&slot);
    }

    /// What it had asked the host, and what the host was to report to it.
    fn forget_requests(&mut self, now: Nanos, scene: &mut Scene) {
        for purpose in std::mem::take(&mut self.purposes).into_values() {
            let (Purpose::BindCall(pair) | Purpose::Connect(pair, _)) = purpose else { continue };
            scene.pairs[pair].spoil(KILLED);
            scene.pairs[pair].halves[CLIENT].stage = SideState::Closed;
            scene.pairs[pair].progress_at = now;
            scene.count_end(pair);
            self.caller.ended();
        }
        for unknown in std::mem::take(&mut self.unknown).into_values() {
            scene.unknown_since.remove(&(unknown.local, unknown.remote));
        }
        let waits: HashSet<u32> = self.closes().map(|connection| connection.slot.index).collect();
        self.closing.retain(|slot, _| waits.contains(slot));
        self.deferred.clear();
        self.early.clear();
        self.held.clear();
    }

    /// Attaches to the host that took the place of the one that is gone: its listeners come back, and all its
    /// connections have to go on.
    pub(crate) fn come_back(
        &mut self,
        now: Nanos,
        host: &mut SimHost,
        pid: u32,
        scene: &mut Scene,
    ) -> Result<(), String> {
        self.away_until = None;
        let all: Vec<&Connection> = self.connections.values().chain(self.closes()).collect();
        let survivors: Vec<_> = all.iter().map(|connection| connection.survivor()).collect();
        let (context, end, on) = host.attach_again(now, pid, &self.end, &survivors)?;
        let lost: Vec<&&Connection> = all.iter().filter(|connection| !on.contains(&connection.slot)).collect();
        if let Some(lost) = lost.first().filter(|_| !host.gave_up_survivors(now)) {
            return Err(format!("{}: it does not go on: {lost:?}", scene.pairs[lost.pair].name()));
        }
        let lost: Vec<(u32, usize)> = lost.iter().map(|connection| (connection.slot.index, connection.pair)).collect();
        lost.into_iter().for_each(|(slot, pair)| self.forget_lost(now, scene, slot, pair));
        scene.figures.survivors += on.len() as u64;
        (self.context, self.end) = (context, end);
        for connection in self.connections.values_mut() {
            connection.goes_on();
            self.due.insert(connection.slot.index, now);
        }
        let kept_alive = |connection: &&Connection| scene.keeps_alive(connection.pair, connection.side);
        let slots: Vec<Slot> = self.connections.values().filter(kept_alive).map(|connection| connection.slot).collect();
        slots.into_iter().for_each(|slot| self.set_keepalive(slot));
        self.listen(scene);
        self.wake_at = now + 1;
        Ok(())
    }
}
