//! Requests of the applications.
use super::connections::collide;
use super::{ADDRESS, Binding, Host, Opening};
use context::{Endpoint, FlowInfo, OptionName, Reply, Request, Slot};
use std::collections::{BTreeMap, BTreeSet};

impl Host {
    pub(super) fn request(&mut self, from: u32, request: Request) {
        match request {
            Request::Bind { tag, local, reuse_port, .. } => {
                let reply = self.bind(from, tag, local, reuse_port);
                self.reply(from, reply);
            }
            Request::Listen { tag, binding, backlog } => {
                self.listen(binding, backlog);
                self.reply(from, Reply::Done { tag });
            }
            Request::Arm { binding, credits } => self.arm(from, binding, credits),
            // It moves no connection.
            Request::Take { tag, binding, credits } => {
                self.arm(from, binding, credits);
                self.reply(from, Reply::Done { tag });
            }
            Request::Connect { tag, binding, remote, .. } => self.connect(from, tag, binding, remote),
            Request::Unbind { binding } => self.unbind(from, binding),
            Request::Close { slot, tx_head, rx_head, abort } => self.close(from, slot, (tx_head, rx_head), abort),
            Request::Info { tag, slot } => {
                let bytes = self.end_named(from, slot).map_or(0, |end| end.tx_sent as u64);
                let info = FlowInfo { state: 1, mss: 1448, rtt_us: 7, bytes_acked: bytes, ..FlowInfo::default() };
                self.reply(from, Reply::Info { tag, info });
            }
            Request::Fork { tag } => self.fork(from, tag),
            Request::Exec { tag } => {
                let token = 0x1000 + self.number() as u64;
                self.tokens.insert(token, BTreeSet::new());
                self.reply(from, Reply::Forked { tag, token });
            }
            Request::Carry { tag, token, flow, binding } => {
                self.carry(from, token, flow, binding);
                self.reply(from, Reply::Done { tag });
            }
            Request::Pass { tag, slot, binding } => self.pass(from, tag, slot, binding),
            Request::Adopt { tag, token } => self.adopt(from, tag, token),
            Request::Withdraw { token } => self.withdraw(token),
            Request::Claim { tag, context, slot } => self.claim(from, tag, context, slot),
            // It has no data-path that could pass anything on.
            Request::Reclaim { slot, tx_head, rx_head } => {
                let done = self.rest(from, slot, (tx_head, rx_head));
                self.reply(from, Reply::Reclaimed { slot, done });
            }
            Request::Splice { tag, .. } | Request::OpenLog { tag, .. } | Request::JoinLog { tag, .. } => {
                self.reply(from, Reply::Failed { tag, errno: libc::EOPNOTSUPP as u16 });
            }
            // It has no loopback, and its SYNs carry nothing.
            Request::Loopback { .. }
            | Request::SynData { .. }
            | Request::SynRetries { .. }
            | Request::SegmentSize { .. }
            | Request::FastOpen { .. } => {}
            Request::Set { slot, option: OptionName::ReceiveWindow, value } => {
                if let Some(end) = self.end_named(from, slot) {
                    end.offered = end.offered.max(end.rx.most().min(value as u32));
                }
            }
            Request::Set { .. } | Request::Label { .. } | Request::CancelConnect { .. } => {}
        }
    }

    fn arm(&mut self, from: u32, binding: u32, credits: u32) {
        if let Some(found) = self.bindings.get_mut(&binding) {
            found.holders.insert(from, credits);
        }
        self.retry();
    }

    fn reply(&mut self, to: u32, reply: Reply) {
        self.apps.get_mut(&to).unwrap().reply(reply);
    }

    pub(super) fn listen(&mut self, binding: u32, backlog: u32) {
        let found = self.bindings.get_mut(&binding).unwrap();
        (found.listening, found.backlog) = (true, backlog as usize);
    }

    pub(super) fn bind(&mut self, from: u32, tag: u32, mut local: Endpoint, reuse: bool) -> Reply {
        let chosen = local.port == 0;
        while local.port == 0 || (chosen && self.bindings.values().any(|b| collide(b.local, local))) {
            local.port = 40_000 + self.number() as u16 % 20_000;
        }
        if self.bindings.values().any(|b| collide(b.local, local) && !(b.reuse && reuse)) {
            return Reply::Failed { tag, errno: libc::EADDRINUSE as u16 };
        }
        let binding = self.number();
        let holders = BTreeMap::from([(from, 0)]);
        self.bindings.insert(binding, Binding { local, listening: false, backlog: 0, reuse, holders, held: 0 });
        Reply::Bound { tag, binding, local }
    }

    fn connect(&mut self, from: u32, tag: u32, binding: u32, remote: Endpoint) {
        if remote.port == 0 {
            return self.reply(from, Reply::Failed { tag, errno: libc::ECONNREFUSED as u16 });
        }
        let port = match self.bindings.remove(&binding) {
            Some(binding) => binding.local.port,
            None => 30_000 + self.number() as u16 % 10_000,
        };
        let local = Endpoint::v4(ADDRESS, port);
        self.reply(from, Reply::Connecting { tag, local, slot: Slot::default(), room: 0 });
        self.open(Opening { from, tag, local, remote });
    }

    /// Tries again what waited for a listener to be armed.
    fn retry(&mut self) {
        for opening in std::mem::take(&mut self.openings) {
            if self.apps.contains_key(&opening.from) {
                self.open(opening);
            }
        }
    }

    fn open(&mut self, opening: Opening) {
        let Opening { from, tag, local, remote } = opening;
        let mut listeners =
            self.bindings.iter_mut().filter(|(_, b)| b.listening && collide(b.local, remote)).peekable();
        if listeners.peek().is_none() {
            self.reply(from, Reply::Failed { tag, errno: libc::ECONNREFUSED as u16 });
            return;
        }
        let Some((binding, found)) = listeners.find(|(_, b)| b.holders.values().any(|credits| *credits > 0)) else {
            self.openings.push(opening);
            return;
        };
        // The one with the most credits: spreads connections over processes that share a listener.
        let (holder, credits) = found.holders.iter_mut().max_by_key(|(_, credits)| **credits).unwrap();
        *credits -= 1;
        let (binding, holder) = (*binding, *holder);
        match self.join(from, holder) {
            Some((ours, theirs)) => {
                let to = Endpoint::v4(ADDRESS, remote.port);
                self.reply(holder, Reply::Accept { binding, slot: theirs, local: to, remote: local, mss: 1448 });
                self.reply(from, Reply::Connected { tag, slot: ours, local, mss: 1448, early: 0 });
            }
            None => self.reply(from, Reply::Failed { tag, errno: libc::ENOBUFS as u16 }),
        }
    }

    pub(super) fn unbind(&mut self, from: u32, binding: u32) {
        if let Some(found) = self.bindings.get_mut(&binding) {
            found.holders.remove(&from);
            if found.holders.is_empty() && found.held == 0 {
                self.bindings.remove(&binding);
            }
        }
        self.retry();
    }

    fn close(&mut self, from: u32, slot: Slot, (tx_head, rx_head): (u32, u32), abort: bool) {
        self.take_bumps(from);
        let Some(end) = self.end_named(from, slot) else { return };
        end.advance(tx_head, rx_head);
        end.holders.remove(&from);
        if end.is_unshared() {
            (end.closed, end.fin) = (true, true);
            end.aborted |= abort;
        }
    }

    /// Gives a receive buffer's memory back where the application is right that nothing is in it.
    fn rest(&mut self, from: u32, slot: Slot, (tx_head, rx_head): (u32, u32)) -> bool {
        self.take_bumps(from);
        let Some(end) = self.end_named(from, slot) else { return false };
        let quiet = end.tx_sent == tx_head && end.rx_tail == rx_head && end.owner == (from, slot);
        let app = self.apps.get_mut(&from).filter(|_| quiet);
        app.is_some_and(|app| app.control.discard_received(slot.index).is_ok())
    }

    fn fork(&mut self, parent: u32, tag: u32) {
        let token = 0x1000 + self.number() as u64;
        let mut held = BTreeSet::new();
        for (id, binding) in self.bindings.iter_mut().filter(|(_, b)| b.holders.contains_key(&parent)) {
            binding.held += 1;
            held.insert(*id);
        }
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            if end.holders.contains(&parent) {
                end.held_for_child.insert(token);
            }
        }
        self.tokens.insert(token, held);
        self.reply(parent, Reply::Forked { tag, token });
    }

    fn carry(&mut self, from: u32, token: u64, flow: Option<(u32, Slot)>, binding: u32) {
        let Some((context, slot)) = flow else {
            let found = self.bindings.get_mut(&binding).unwrap();
            assert!(found.holders.contains_key(&from), "it carries what it gave up");
            found.held += self.tokens.get_mut(&token).unwrap().insert(binding) as usize;
            return;
        };
        let end = self.end_named(context, slot).unwrap();
        assert!(end.holders.contains(&from), "it carries what it closed");
        end.held_for_child.insert(token);
    }

    fn pass(&mut self, from: u32, tag: u32, slot: Option<Slot>, binding: u32) {
        let token = 0x1000 + self.number() as u64;
        let mut held = BTreeSet::new();
        match slot {
            Some(slot) => {
                let end = self.end_named(from, slot).unwrap();
                assert!(end.holders.contains(&from), "it passes what it closed");
                end.held_for_child.insert(token);
            }
            None => {
                let found = self.bindings.get_mut(&binding).unwrap();
                assert!(found.holders.contains_key(&from), "it passes what it gave up");
                found.held += 1;
                held.insert(binding);
            }
        }
        self.tokens.insert(token, held);
        self.reply(from, Reply::Forked { tag, token });
    }

    fn adopt(&mut self, from: u32, tag: u32, token: u64) {
        let Some(held) = self.tokens.remove(&token) else {
            self.reply(from, Reply::Failed { tag, errno: libc::EBADF as u16 });
            return;
        };
        let mut ends = self.connections.iter().flat_map(|connection| &connection.ends);
        let home = ends.find(|end| end.held_for_child.contains(&token)).map(|end| end.names[0]);
        self.share(token, from, &held);
        let binding = held.first().copied().unwrap_or_default();
        self.reply(from, Reply::Adopted { tag, home, binding });
    }

    fn withdraw(&mut self, token: u64) {
        let held = self.tokens.remove(&token).unwrap();
        for (_, binding) in self.bindings.iter_mut().filter(|(id, _)| held.contains(id)) {
            binding.held -= 1;
        }
        for end in self.connections.iter_mut().flat_map(|connection| &mut connection.ends) {
            end.held_for_child.remove(&token);
        }
    }

    fn claim(&mut self, from: u32, tag: u32, context: u32, slot: Slot) {
        let Some(end) = self.end_named(context, slot).filter(|end| end.holders.contains(&from)) else {
            self.reply(from, Reply::Failed { tag, errno: libc::EINVAL as u16 });
            return;
        };
        let known = end.names.iter().find(|name| name.0 == from).copied();
        let name = known.unwrap_or_else(|| (from, self.apps.get_mut(&from).unwrap().take_slot().unwrap()));
        let Some(end) = self.end_named(context, slot) else { return };
        end.owner = name;
        if known.is_none() {
            end.names.push(name);
        }
        let completion = end.completion();
        self.claims += 1;
        self.reply(from, Reply::Claimed { tag, slot: name.1, claim: self.claims });
        self.notify(from, completion);
    }
}
