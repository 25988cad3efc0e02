//! Application: a small state machine with the context protocol over real shared memory.
use crate::caller::Caller;
use crate::connection::{Connection, Wish};
use crate::pair::{CLIENT, SideState};
use crate::plan::Plan;
use crate::scene::{Listening, Scene};
use context::{AppEnd, Completion, Endpoint, OptionName, Reply, Request, Slot};
use engine::ContextId;
use port::Nanos;
use shm::ByteRing;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Time until an application polls a ring again that was full.
const RING_FULL: Nanos = 20_000;

/// Time until it matches a connection that came in again.
const RETRY: Nanos = 1_000_000;

/// What a tagged request was for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A listener of the plan.
    Bind(usize),
    /// The same, with its binding.
    Listen(usize, u32),
    /// The local address of a connection: its pair.
    BindCall(usize),
    /// A connection: its pair, and its binding as long as the connection has not taken that over.
    Connect(usize, u32),
    /// Forking.
    Fork,
    /// Taking a connection over from the parent.
    Claim(Box<Connection>),
    /// A connection's figures: its pair and side.
    Info(usize, usize),
}

/// A listener that the application holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// Its place in the plan.
    pub listen: usize,
    /// Its name in the host.
    pub binding: u32,
    /// Connections that it may still be handed, by its last request (`Request::Arm`).
    pub credits: u32,
}

/// A connection that came in, while it is not known whose it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unknown {
    /// Its name in the context.
    pub slot: Slot,
    /// Its local address.
    pub local: Endpoint,
    /// Its remote address.
    pub remote: Endpoint,
    /// When it came.
    pub since: Nanos,
}

/// An application.
pub(crate) struct App {
    /// Its place in the plan; a child has its parent's.
    pub index: usize,
    /// Its host.
    pub host: usize,
    /// Its context there.
    pub context: ContextId,
    pub(crate) end: AppEnd,
    /// Open connections by slot.
    pub connections: BTreeMap<u32, Connection>,
    /// When each acts next.
    pub(crate) due: BTreeMap<u32, Nanos>,
    pub(crate) unknown: BTreeMap<u32, Unknown>,
    /// The last completion of each slot that came before its connection.
    pub(crate) early: BTreeMap<u32, Completion>,
    /// Slots given up and not free yet, since when.
    pub closing: BTreeMap<u32, (Slot, Nanos)>,
    /// The connection that it closed last in a slot.
    pub(crate) closed: BTreeMap<u32, Connection>,
    /// Listeners.
    pub held: Vec<Held>,
    pub(crate) caller: Caller,
    pub(crate) purposes: BTreeMap<u32, Purpose>,
    pub(crate) outbox: VecDeque<Request>,
    next_tag: u32,
    /// The token for a child, once the host gave it.
    pub token: Option<u64>,
    forked: bool,
    /// It waits for the answer to its request to fork; other answers wait with it.
    pub(crate) forking: bool,
    pub(crate) deferred: VecDeque<Reply>,
    /// The process has ended.
    pub gone: bool,
    /// Nothing new is begun.
    pub ending: bool,
    /// Its host was killed: until then it is without one.
    pub(crate) away_until: Option<Nanos>,
    /// When it acts again.
    pub wake_at: Nanos,
}

impl App {
    /// An application that has attached.
    pub(crate) fn new(index: usize, host: usize, context: ContextId, end: AppEnd, caller: Caller) -> App {
        App {
            index,
            host,
            context,
            end,
            connections: BTreeMap::new(),
            due: BTreeMap::new(),
            unknown: BTreeMap::new(),
            early: BTreeMap::new(),
            closing: BTreeMap::new(),
            closed: BTreeMap::new(),
            held: Vec::new(),
            caller,
            purposes: BTreeMap::new(),
            outbox: VecDeque::new(),
            next_tag: 1,
            token: None,
            forked: false,
            forking: false,
            deferred: VecDeque::new(),
            gone: false,
            ending: false,
            away_until: None,
            wake_at: 0,
        }
    }

    /// Something was left for it.
    pub(crate) fn has_mail(&self) -> bool {
        !self.end.completions.is_empty() || !self.end.replies.is_empty()
    }

    /// It has nothing open, nothing under way, and nothing to begin.
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty()
            && self.closing.is_empty()
            && self.unknown.is_empty()
            && self.purposes.is_empty()
            && self.outbox.is_empty()
            && self.deferred.is_empty()
            && self.away_until.is_none()
            && self.caller.is_over()
    }

    /// One round: takes what was left for it, acts, notifies the host.
    pub(crate) fn act(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        if let Some(back) = self.away_until {
            // It can still read what has arrived, and write as far as there is room.
            self.act_on_connections(now, scene)?;
            self.wake_at = back.min(self.next_due()).max(now + 1);
            return Ok(());
        }
        self.take_replies(now, scene)?;
        if self.forking {
            // As in a program, nothing happens between the request and the answer.
            self.wake_at = if self.flush(now, scene) { Nanos::MAX } else { now + RING_FULL };
            return Ok(());
        }
        if self.token.is_some() {
            self.wake_at = now + 1;
            return Ok(());
        }
        self.recognise(now, scene)?;
        self.take_completions(now, scene)?;
        self.close_listeners(now, scene);
        self.start_calls(now, scene);
        self.act_on_connections(now, scene)?;
        self.fork_if_due(now, scene);
        self.outbox.extend(self.connections.values_mut().filter_map(Connection::take_offer));
        let mut all_reported = self.flush(now, scene);
        if all_reported && scene.plan.apps[self.index].rests {
            self.request_reclaims();
            all_reported = self.flush(now, scene);
        }
        let own = self.next_due();
        let retry = match (all_reported, self.unknown.is_empty()) {
            (false, _) => now + RING_FULL,
            (true, false) => now + RETRY,
            (true, true) => Nanos::MAX,
        };
        self.wake_at = own.min(retry).min(self.next_call(now, scene)).min(self.next_planned(now, scene)).max(now + 1);
        Ok(())
    }

    /// When one of its connections next acts.
    fn next_due(&self) -> Nanos {
        self.due.values().copied().min().unwrap_or(Nanos::MAX)
    }

    /// Reserves the addresses of its listeners.
    pub(crate) fn listen(&mut self, scene: &Scene) {
        for (listen, plan) in scene.plan.listens.iter().enumerate() {
            let is_over = scene.listening[listen] == Listening::Over;
            if plan.app != self.index || is_over {
                continue;
            }
            let tag = self.tag(Purpose::Bind(listen));
            // One listener for both families, where there are two.
            let dual_stack = scene.plan.speaks_v6(self.host);
            let any = if dual_stack { Plan::ipv6(0) } else { Plan::address(0) }.any();
            let local = Endpoint::new(any, plan.port);
            self.outbox.push_back(Request::Bind {
                tag,
                local,
                reuse_address: true,
                reuse_port: plan.reuse_port,
                dual_stack,
            });
        }
    }

    pub(crate) fn tag(&mut self, purpose: Purpose) -> u32 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.purposes.insert(tag, purpose);
        tag
    }

    /// The application has a connection now.
    pub(crate) fn open(
        &mut self,
        now: Nanos,
        scene: &mut Scene,
        pair: usize,
        side: usize,
        slot: Slot,
    ) -> Result<(), String> {
        self.check_slot(slot)?;
        let buffers = self.buffers(slot)?;
        let mut connection = Connection::new(pair, side, slot, buffers);
        let half = &mut scene.pairs[pair].halves[side];
        if half.stage != SideState::Waiting {
            return Err(format!("{}: opened twice on one side", scene.pairs[pair].name()));
        }
        (half.stage, half.opened_at) = (SideState::Open, Some(now));
        // Where modules have threads, the bytes of a connection that moves are copied some rounds after its name is
        // known, and nobody is notified of them before.
        let copied_late = scene.plan.hosts[self.host].mapping.threads;
        half.buffer = (!copied_late).then(|| connection.receive_buffer());
        scene.pairs[pair].progress_at = now;
        if let Some(completion) = self.early.remove(&slot.index).filter(|completion| completion.slot == slot) {
            connection.completion(now, completion, &mut scene.pairs[pair])?;
        }
        self.connections.insert(slot.index, connection);
        self.due.insert(slot.index, 0);
        let tag = self.tag(Purpose::Info(pair, side));
        self.outbox.push_back(Request::Info { tag, slot });
        if scene.keeps_alive(pair, side) {
            self.set_keepalive(slot);
        }
        Ok(())
    }

    pub(crate) fn check_slot(&self, slot: Slot) -> Result<(), String> {
        if slot.index >= self.end.geometry.slots {
            return Err(format!("slot {} is handed out, there are {}", slot.index, self.end.geometry.slots));
        }
        let index = slot.index;
        let used = self.connections.contains_key(&index) || self.unknown.contains_key(&index);
        if used || self.closing.contains_key(&index) {
            return Err(format!("slot {} is handed out while it is in use", slot.index));
        }
        Ok(())
    }

    pub(crate) fn set_keepalive(&mut self, slot: Slot) {
        for (option, value) in [
            (OptionName::KeepaliveIdle, 1),
            (OptionName::KeepaliveInterval, 1),
            (OptionName::KeepaliveCount, 100),
            (OptionName::Keepalive, 1),
        ] {
            self.outbox.push_back(Request::Set { slot, option, value });
        }
    }

    fn buffers(&self, slot: Slot) -> Result<(Arc<ByteRing>, Arc<ByteRing>), String> {
        let (rx, tx) = self.end.map_buffers(slot).map_err(|error| format!("cannot map buffers: {error}"))?;
        Ok((Arc::new(rx), Arc::new(tx)))
    }

    /// A connection inherited from the parent, under its name in this context.
    pub(crate) fn adopt(&mut self, mut connection: Connection, slot: Slot) -> Result<(), String> {
        self.check_slot(slot)?;
        connection.slot = slot;
        connection.dirty = true;
        self.due.insert(slot.index, 0);
        self.connections.insert(slot.index, connection);
        Ok(())
    }

    pub(crate) fn take_completions(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        while let Some(words) = self.end.completions.pop().map_err(|_| "the ring of completions is corrupt")? {
            self.take_completion(now, scene, Completion::from_words(words))?;
        }
        Ok(())
    }

    pub(crate) fn take_completion(
        &mut self,
        now: Nanos,
        scene: &mut Scene,
        completion: Completion,
    ) -> Result<(), String> {
        let known = self.connections.get_mut(&completion.slot.index);
        // One for a connection given up is late. One for a connection that it does not have yet is early: the two
        // pairs are not ordered.
        let Some(connection) = known.filter(|connection| connection.slot == completion.slot) else {
            self.early.insert(completion.slot.index, completion);
            return Ok(());
        };
        connection.completion(now, completion, &mut scene.pairs[connection.pair])?;
        self.due.insert(completion.slot.index, 0);
        Ok(())
    }

    fn act_on_connections(&mut self, now: Nanos, scene: &mut Scene) -> Result<(), String> {
        let due: Vec<u32> = self.due.iter().filter(|(_, at)| **at <= now).map(|(slot, _)| *slot).collect();
        for slot in due {
            let Some(connection) = self.connections.get_mut(&slot) else {
                self.due.remove(&slot);
                continue;
            };
            let pair = &mut scene.pairs[connection.pair];
            let before = pair.halves[connection.side].read;
            let wish = connection.act(now, &scene.plan.calls[pair.call], pair)?;
            scene.figures.bytes += pair.halves[connection.side].read - before;
            match wish {
                Wish::At(at) => {
                    self.due.insert(slot, at.max(now + 1));
                }
                Wish::Close { abort } => self.close(now, scene, slot, abort),
            }
        }
        Ok(())
    }

    /// Gives a connection up.
    pub(crate) fn close(&mut self, now: Nanos, scene: &mut Scene, slot: u32, abort: bool) {
        let Some(connection) = self.connections.remove(&slot) else { return };
        self.due.remove(&slot);
        let bump = connection.bump();
        scene.figures.grown += connection.outgrew();
        let request = Request::Close { slot: bump.slot, tx_head: bump.tx_head, rx_head: bump.rx_head, abort };
        self.outbox.push_back(request);
        self.closing.insert(slot, (bump.slot, now));
        if connection.side == CLIENT {
            scene.count_end(connection.pair);
            self.caller.ended();
        }
        // Its buffers stay mapped for as long.
        if !scene.plan.kills.is_empty() {
            self.closed.insert(slot, connection);
        }
        self.wake_at = self.wake_at.min(now + 1);
    }

    /// Gives a connection up that will not go on: its pair is spoiled. False where it does not have it.
    pub(crate) fn give_up(&mut self, now: Nanos, scene: &mut Scene, pair: usize) -> bool {
        let of_pair = |(slot, connection): (&u32, &Connection)| (connection.pair == pair).then_some(*slot);
        let slots: Vec<u32> = self.connections.iter().filter_map(of_pair).collect();
        for slot in &slots {
            self.connections[slot].give_up(now, &mut scene.pairs[pair]);
            self.close(now, scene, *slot, true);
        }
        !slots.is_empty()
    }

    /// Asks for reclaim where a connection is quiet.
    fn request_reclaims(&mut self) {
        for connection in self.connections.values_mut() {
            let slot = connection.slot;
            if let Some((tx_head, rx_head)) = connection.take_idle() {
                self.outbox.push_back(Request::Reclaim { slot, tx_head, rx_head });
            }
        }
    }

    /// A connection rested, or could not: it goes on.
    pub(crate) fn rested(&mut self, now: Nanos, scene: &mut Scene, slot: Slot, done: bool) -> Result<(), String> {
        let known = self.connections.get_mut(&slot.index).filter(|connection| connection.slot == slot);
        let Some(connection) = known else {
            // It was given up meanwhile, or reset.
            return Ok(());
        };
        if !connection.asked {
            return Err("it did not ask to rest".into());
        }
        connection.rested();
        if done && connection.is_acknowledged() {
            // As libtoe does: what is acknowledged is not sent again.
            self.end.discard_sent(slot).map_err(|error| format!("cannot discard a buffer: {error}"))?;
        }
        scene.figures.rested += u64::from(done);
        self.due.insert(slot.index, now);
        Ok(())
    }

    /// Leaves bumps and requests; false where a ring was full.
    fn flush(&mut self, now: Nanos, scene: &mut Scene) -> bool {
        let mut all = true;
        for connection in self.connections.values_mut().filter(|connection| connection.dirty) {
            connection.dirty = self.end.bumps.push(connection.bump().to_words()).is_err();
            all &= !connection.dirty;
        }
        while let Some(request) = self.outbox.front() {
            if self.end.requests.push(request.to_words()).is_err() {
                all = false;
                break;
            }
            if scene.inspector.tracing {
                let line = format!("  app {} context {} -> {request:?}", self.index, self.context.0);
                scene.inspector.note_line(now - scene.start, line);
            }
            self.outbox.pop_front();
        }
        self.end.daemon_bell.ring();
        all
    }

    fn fork_if_due(&mut self, now: Nanos, scene: &Scene) {
        let due = scene.plan.apps[self.index].fork_us.is_some_and(|at| now >= scene.start + at * 1000);
        // A child would not have the name of a listener that its parent only asks for.
        let asking = |purpose: &Purpose| matches!(purpose, Purpose::Bind(_) | Purpose::Listen(..));
        if due && !self.forked && !self.purposes.values().any(asking) {
            (self.forked, self.forking) = (true, true);
            let tag = self.tag(Purpose::Fork);
            self.outbox.push_back(Request::Fork { tag });
        }
    }

    /// The child shares the listeners, and asks for the connections; this one gives up its share of them.
    pub(crate) fn hand_over(&mut self, child: &mut App, now: Nanos) {
        // It never forks again.
        child.forked = true;
        child.held = self.held.clone();
        for (index, mut connection) in std::mem::take(&mut self.connections) {
            // The answer to a parent that has just asked for reclaim goes to the parent.
            connection.asked = false;
            let (context, bump) = (self.context.0, connection.bump());
            self.due.remove(&index);
            if connection.side == CLIENT {
                self.caller.ended();
            }
            let tag = child.tag(Purpose::Claim(Box::new(connection)));
            child.outbox.push_back(Request::Claim { tag, context, slot: bump.slot });
            let (tx_head, rx_head) = (bump.tx_head, bump.rx_head);
            self.outbox.push_back(Request::Close { slot: bump.slot, tx_head, rx_head, abort: false });
            // Its buffers stay in this context: the slot is free when the connection is over.
            self.closing.insert(index, (bump.slot, Nanos::MAX));
        }
        self.wake_at = now + 1;
    }

    fn close_listeners(&mut self, now: Nanos, scene: &mut Scene) {
        let ending = self.ending;
        let plan = Arc::clone(&scene.plan);
        let due =
            |held: &Held| ending || plan.listens[held.listen].close_us.is_some_and(|at| now >= scene.start + at * 1000);
        let (closed, held): (Vec<Held>, Vec<Held>) = self.held.drain(..).partition(due);
        self.held = held;
        for held in closed {
            scene.listener_goes(held.listen);
            self.outbox.push_back(Request::Unbind { binding: held.binding });
        }
    }

    /// When the plan next has something for it.
    fn next_planned(&self, now: Nanos, scene: &Scene) -> Nanos {
        let app = &scene.plan.apps[self.index];
        let fork = app.fork_us.filter(|_| !self.forked);
        let closes = self.held.iter().filter_map(|held| scene.plan.listens[held.listen].close_us);
        let times = closes.chain(fork).map(|at| scene.start + at * 1000);
        times.filter(|at| *at > now).min().unwrap_or(Nanos::MAX)
    }
}
