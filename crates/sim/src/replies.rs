//! Replies of the control plane to an application.
use crate::app::{App, Held, Purpose, Unknown};
use crate::connection::Connection;
use crate::pair::{CLIENT, Half, SERVER, SideState};
use crate::plan::Plan;
use crate::scene::Scene;
use context::{Completion, Endpoint, Reply, Request, Slot};
use port::Nanos;

/// How long a connection that came in may have a client that has no completion of it yet.
const FORGET_UNKNOWN: Nanos = 10_000_000_000;
/// Why an error is no surprise.
pub(crate) const GIVEN_UP: &str = "its client closed it a minute before its server had it";
/// Linux' number for a peer that does not answer.
const ETIMEDOUT: u16 = 110;
const LEFT_WAITING: &str = "nobody took it for an hour";

impl App {
    pub(crate) fn take_replies(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        while let Some(words) = self.end.replies.pop().map_err(|_| "the ring of replies is corrupt")? {
            let reply = Reply::from_words(words).ok_or("a reply of an unknown kind")?;
            if scene.inspector.tracing {
                let line = format!("  app {} context {} <- {reply:?}", self.index, self.context.0);
                scene.inspector.note_line(now - scene.start, line);
            }
            self.deferred.push_back(reply);
        }
        if self.forking {
            return self.match_fork(now, scene);
        }
        while let Some(reply) = self.deferred.pop_front() {
            self.take_reply(now, scene, reply).map_err(|what| format!("{what} (on {reply:?})"))?;
        }
        Ok(())
    }

    fn match_fork(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        let failed = |reply: &Reply| match reply {
            Reply::Failed { tag, .. } => matches!(self.purposes.get(tag), Some(Purpose::Fork)),
            _ => false,
        };
        if let Some(reply) = self.deferred.iter().find(|reply| failed(reply)) {
            return Err(format!("forking failed ({reply:?})"));
        }
        let answer = |reply: &Reply| match reply {
            Reply::Forked { tag, token } => Some((*tag, *token)),
            _ => None,
        };
        let found = self.deferred.iter().enumerate().find_map(|(index, reply)| Some((index, answer(reply)?)));
        if let Some((index, (tag, token))) = found {
            self.deferred.remove(index);
            self.purpose(tag)?;
            // What came before it is known before the fork returns, as in a program: a connection that came up is
            // shared with the child. One that came in waits until somebody accepts it.
            let before: Vec<Reply> = self.deferred.drain(..index).collect();
            let (mut accepted, mut waiting) = (Vec::new(), 0);
            for reply in before {
                let slot = slot_of(&reply);
                // An error shows when somebody uses the connection, as both may after the fork.
                if matches!(reply, Reply::Accept { .. } | Reply::Error { .. })
                    || slot.is_some_and(|slot| accepted.contains(&slot))
                {
                    accepted.extend(slot);
                    self.deferred.insert(waiting, reply);
                    waiting += 1;
                    continue;
                }
                self.take_reply(now, scene, reply).map_err(|what| format!("{what} (on {reply:?})"))?;
            }
            self.token = Some(token);
            self.forking = false;
        }
        Ok(())
    }

    fn take_reply(&mut self, now: Nanos, scene: &mut Scene, reply: Reply) -> Result<(), String> {
        match reply {
            Reply::Failed { tag, errno } => self.failed(now, scene, tag, errno),
            Reply::Done { tag } => self.listening(scene, tag),
            Reply::Bound { tag, binding, local } => self.bound(scene, tag, binding, local),
            Reply::Connecting { tag, local, .. } => self.connecting(scene, tag, local),
            Reply::Connected { tag, slot, mss, .. } => self.connected(now, scene, tag, slot, mss),
            Reply::Accept { binding, slot, local, remote, .. } => self.accept(now, scene, binding, slot, local, remote),
            Reply::Unaccept { slot, .. } => self.unaccept(now, scene, slot),
            Reply::Error { slot, errno } => self.error(now, scene, slot, errno),
            Reply::Freed { slot } => self.freed(now, scene, slot),
            Reply::Ended { slot, rx_tail, tx_tail } => self.take_completion(
                now,
                scene,
                Completion { slot, rx_tail, tx_tail, fin: true, ring: 0, urgent: false },
            ),
            Reply::SpliceOver { .. } => Err("it did not splice".into()),
            Reply::Reclaimed { slot, done } => self.rested(now, scene, slot, done),
            Reply::Forked { .. } => Err("it did not fork".into()),
            Reply::NotAdopted | Reply::Adopted { .. } => Err("it passed nothing on".into()),
            Reply::Claimed { tag, slot, .. } => match self.purpose(tag)? {
                Purpose::Claim(connection) => self.adopt(*connection, slot),
                _ => Err("an answer to another question".into()),
            },
            Reply::Info { tag, info } => match self.purpose(tag)? {
                Purpose::Info(pair, side) => {
                    let half = &scene.pairs[pair].halves[side];
                    let right = info.bytes_acked <= half.written && info.mss > 0;
                    if right { Ok(()) } else { Err(format!("figures that cannot be: {info:?}")) }
                }
                _ => Err("an answer to another question".into()),
            },
        }
    }

    fn purpose(&mut self, tag: u32) -> Result<Purpose, String> {
        self.purposes.remove(&tag).ok_or_else(|| format!("an answer to tag {tag}, which asked nothing"))
    }

    fn bound(&mut self, scene: &Scene, tag: u32, binding: u32, local: Endpoint) -> Result<(), String> {
        match self.purpose(tag)? {
            Purpose::Bind(listen) => {
                let plan = &scene.plan.listens[listen];
                if local.port != plan.port {
                    return Err(format!("port {} was asked for", plan.port));
                }
                let tag = self.tag(Purpose::Listen(listen, binding));
                self.outbox.push_back(Request::Listen { tag, binding, backlog: plan.backlog });
                Ok(())
            }
            Purpose::BindCall(pair) => {
                self.connect(scene, pair, binding);
                Ok(())
            }
            _ => Err("an answer to another question".into()),
        }
    }

    fn listening(&mut self, scene: &mut Scene, tag: u32) -> Result<(), String> {
        let Purpose::Listen(listen, binding) = self.purpose(tag)? else {
            return Err("an answer to another question".into());
        };
        scene.listener_comes(listen);
        let credits = scene.plan.listens[listen].credits;
        self.held.push(Held { listen, binding, credits });
        self.outbox.push_back(Request::Arm { binding, credits });
        Ok(())
    }

    fn connecting(&mut self, scene: &mut Scene, tag: u32, local: Endpoint) -> Result<(), String> {
        let Some(Purpose::Connect(pair, binding)) = self.purposes.get_mut(&tag) else {
            return Err("nothing is being connected".into());
        };
        *binding = 0;
        let call = &scene.plan.calls[scene.pairs[*pair].call];
        let listen = &scene.plan.listens[call.to];
        if call.bind != 0 && local.port != call.bind {
            return Err(format!("port {} was bound", call.bind));
        }
        let server = Endpoint::new(Plan::address_for(scene.plan.apps[listen.app].host, call), listen.port);
        scene.inspector.register(local, server, *pair);
        Ok(())
    }

    fn connected(&mut self, now: Nanos, scene: &mut Scene, tag: u32, slot: Slot, mss: u16) -> Result<(), String> {
        let Purpose::Connect(pair, _) = self.purpose(tag)? else {
            return Err("an answer to another question".into());
        };
        if mss == 0 {
            return Err("a maximum segment size of nothing".into());
        }
        self.open(now, scene, pair, CLIENT, slot)
    }

    fn accept(
        &mut self,
        now: Nanos,
        scene: &mut Scene,
        binding: u32,
        slot: Slot,
        local: Endpoint,
        remote: Endpoint,
    ) -> Result<(), String> {
        if let Some(held) = self.held.iter_mut().find(|held| held.binding == binding) {
            if held.credits == 0 {
                return Err("more connections than the listener was armed for".into());
            }
            // It accepts at once, so each connection makes room for another.
            let credits = held.credits;
            self.outbox.push_back(Request::Arm { binding, credits });
        }
        self.check_slot(slot)?;
        let since = *scene.unknown_since.entry((local, remote)).or_insert(now);
        self.unknown.insert(slot.index, Unknown { slot, local, remote, since });
        self.recognise(now, scene)
    }

    /// Finds out which connections those are that came in: their clients report them, perhaps later.
    pub(crate) fn recognise(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        let unknown: Vec<Unknown> = self.unknown.values().copied().collect();
        for Unknown { slot, local, remote, since } in unknown {
            match scene.inspector.pair_of(local, remote) {
                Some(pair) if scene.pairs[pair].halves[SERVER].stage == SideState::Waiting => {
                    // Otherwise the host takes it back, and is about to report that.
                    if !self.end.accept(slot) {
                        continue;
                    }
                    self.unknown.remove(&slot.index);
                    scene.unknown_since.remove(&(local, remote));
                    self.open(now, scene, pair, SERVER, slot)?;
                }
                // Its client crashed before it knew of the connection.
                _ if now - since > FORGET_UNKNOWN => {
                    self.unknown.remove(&slot.index);
                    scene.unknown_since.remove(&(local, remote));
                    self.outbox.push_back(Request::Close { slot, tx_head: 0, rx_head: 0, abort: true });
                    self.closing.insert(slot.index, (slot, now));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The host takes a connection back that it takes for not accepted.
    fn unaccept(&mut self, now: Nanos, scene: &mut Scene, slot: Slot) -> Result<(), String> {
        if self.closing.get(&slot.index).is_some_and(|(closing, _)| *closing == slot) {
            self.closing.remove(&slot.index);
            return Ok(());
        }
        self.lose(now, scene, slot).unwrap_or_else(|| Err("a connection is taken back that was not handed out".into()))
    }

    /// A connection that came in is gone again. `None` where there is none of this name.
    fn lose(&mut self, now: Nanos, scene: &mut Scene, slot: Slot) -> Option<Result<(), String>> {
        if self.unknown.get(&slot.index).is_some_and(|unknown| unknown.slot == slot) {
            self.unknown.remove(&slot.index);
            return Some(Ok(()));
        }
        let connection = self.connections.get(&slot.index).filter(|connection| connection.slot == slot)?;
        let pair = &mut scene.pairs[connection.pair];
        if pair.spoiled.is_none() || connection.side != SERVER {
            return Some(Err(format!("{}: taken back after it was accepted", pair.name())));
        }
        connection.give_up(now, pair);
        self.connections.remove(&slot.index);
        Some(Ok(()))
    }

    fn error(&mut self, now: Nanos, scene: &mut Scene, slot: Slot, errno: u16) -> Result<(), String> {
        if let Some(Unknown { local, remote, .. }) = self.unknown.get(&slot.index).filter(|it| it.slot == slot).copied()
        {
            self.unknown.remove(&slot.index);
            scene.unknown_since.remove(&(local, remote));
            self.outbox.push_back(Request::Close { slot, tx_head: 0, rx_head: 0, abort: false });
            self.closing.insert(slot.index, (slot, now));
            return Ok(());
        }
        let Some(connection) = self.connections.get(&slot.index).filter(|connection| connection.slot == slot) else {
            let known = self.closing.get(&slot.index).is_some_and(|(closing, _)| *closing == slot);
            return if known { Ok(()) } else { Err("an error of a connection that there is not".into()) };
        };
        let pair = &mut scene.pairs[connection.pair];
        if connection.side == SERVER && pair.halves[CLIENT].stage == SideState::Waiting && pair.halves[SERVER].read == 0
        {
            // An earlier connection between the same ends, accepted late: that of this pair is still to come.
            let stream = pair.halves[SERVER].stream;
            pair.halves[SERVER] = Half::new(stream);
            self.close(now, scene, slot.index, false);
            return Ok(());
        }
        if pair.may_be_given_up(now) {
            pair.spoil(GIVEN_UP);
        }
        if errno == ETIMEDOUT && pair.was_left_waiting(now) {
            pair.spoil(LEFT_WAITING);
        }
        if pair.spoiled.is_none() {
            return Err(format!("{}: it failed with error {errno}", pair.name()));
        }
        connection.give_up(now, pair);
        self.connections.get_mut(&slot.index).into_iter().for_each(Connection::fails);
        self.close(now, scene, slot.index, false);
        Ok(())
    }

    fn freed(&mut self, now: Nanos, scene: &mut Scene, slot: Slot) -> Result<(), String> {
        match self.closing.get(&slot.index) {
            Some((closing, _)) if *closing == slot => {
                self.closing.remove(&slot.index);
                Ok(())
            }
            // It was reset with its listener before anything showed that it was accepted.
            _ => self.lose(now, scene, slot).unwrap_or_else(|| Err("a slot is freed that was not given up".into())),
        }
    }

    fn failed(&mut self, now: Nanos, scene: &mut Scene, tag: u32, errno: u16) -> Result<(), String> {
        match self.purpose(tag)? {
            Purpose::BindCall(pair) => self.refused(now, scene, pair, errno),
            Purpose::Connect(pair, binding) => {
                if binding != 0 {
                    self.outbox.push_back(Request::Unbind { binding });
                }
                self.refused(now, scene, pair, errno)
            }
            Purpose::Bind(listen) | Purpose::Listen(listen, _) => {
                Err(format!("listener {listen} failed with error {errno}"))
            }
            // The connection ended before the child asked for it, or had no room.
            Purpose::Claim(connection) => {
                let pair = &mut scene.pairs[connection.pair];
                if pair.spoiled.is_none() {
                    return Err(format!("{}: the child cannot have it, error {errno}", pair.name()));
                }
                connection.give_up(now, pair);
                Ok(())
            }
            Purpose::Fork => Err(format!("forking failed with error {errno}")),
            Purpose::Info(..) => Ok(()),
        }
    }
}

/// The connection that a reply is about.
fn slot_of(reply: &Reply) -> Option<Slot> {
    match *reply {
        Reply::Accept { slot, .. }
        | Reply::Unaccept { slot, .. }
        | Reply::Error { slot, .. }
        | Reply::Freed { slot }
        | Reply::Ended { slot, .. }
        | Reply::Reclaimed { slot, .. } => Some(slot),
        _ => None,
    }
}
