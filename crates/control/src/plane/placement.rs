//! Placement: an open connection becomes a flow, with a context that takes it and parameters for the engine.
use super::ControlPlane;
use crate::connections::Lifecycle;
use crate::contexts::Holder;
use crate::flow::{EngineState, Flow, Marks, Name, Spliced};
use crate::flow_timers::FlowTimers;
use crate::half_open::Owner;
use crate::icmp::mss_towards;
use crate::journal::Record;
use crate::memory_config::MemoryConfig;
use crate::outbox::Outbox;
use context::{Class, Reply, Slot};
use engine::stream::{self, FlowParams, FlowStats};
use engine::{Command, ContextId, Exception, FlowId};
use std::sync::atomic::Ordering::Relaxed;
use tcp::congestion::{CongestionName, Decision, initial_window};
use tcp::{Agreed, Closing, Established, RttEstimator};

impl ControlPlane {
    /// Gives connections that wait for a context to those that take some.
    pub(super) fn place(&mut self, out: &mut Outbox<'_>, binding: u32) {
        self.bindings.settle(&self.flows, binding);
        self.place_parked(out, binding);
        while let Some(context) = self.choose(out, binding, Class::Halved(u32::MAX)) {
            let Some(listener) = self.bindings.listener(binding) else { return };
            let Some(key) = listener.ready.pop_front() else { return };
            let long = self.is_long(key);
            let Some(context_of) = self.contexts.get_mut(context.0) else { return };
            let Some(slot) = context_of.slots.take(long) else { return };
            match self.install(out, key, context, slot) {
                Some((flow, mss)) => {
                    let Some(tuple) = self.handshakes.get(key).map(|half_open| half_open.tuple) else { return };
                    self.handshakes.finish(out, key);
                    let (local, remote) = (tuple.local(), tuple.remote());
                    self.offer(out, flow, binding, 0, Reply::Accept { binding, slot, local, remote, mss });
                }
                None => {
                    self.contexts.free_slot(out, context, slot);
                    self.fail_half_open(out, key, libc::ENOMEM);
                }
            }
        }
        self.time_reassignment(out, binding);
    }

    /// An open connection's path is a long one.
    fn is_long(&self, key: u32) -> bool {
        self.handshakes
            .get(key)
            .and_then(|half_open| half_open.open)
            .is_some_and(|open| MemoryConfig::is_long(open.rtt))
    }

    /// A connection that a program asked for has a slot before its round trip is measured. Over a long path it gets
    /// another one, where there is one.
    pub(super) fn with_slot_for_path(&mut self, out: &mut Outbox<'_>, key: u32, owner: Owner) -> Owner {
        let Owner::Connect { context, tag, slot: before, binding } = owner else { return owner };
        // The slot that the program has written into stays.
        let has_data = self.handshakes.get(key).is_some_and(|half_open| half_open.handshake.early_bytes() > 0);
        if !self.is_long(key) || has_data {
            return owner;
        }
        let slots = self.contexts.get_mut(context.0).map(|context| &mut context.slots);
        let Some(slot) = slots.filter(|slots| slots.has_long()).and_then(|slots| slots.take(true)) else {
            return owner;
        };
        self.contexts.free_slot(out, context, before);
        let owner = Owner::Connect { context, tag, slot, binding };
        self.handshakes.set_owner(key, owner);
        owner
    }

    /// A connection was placed in a context, which gets a reply.
    fn offer(&mut self, out: &Outbox<'_>, flow: FlowId, binding: u32, offers: u8, accept: Reply) {
        let Some(Name { context, slot, .. }) = self.flows.get(flow.0).map(|flow| flow.names[0]) else { return };
        self.bindings.take_credit(&mut self.contexts, binding, context);
        self.bindings.offered(binding, context, flow, offers, out.now);
        if let Some(context) = self.contexts.get(context.0) {
            context.end.offer(slot);
        }
        self.contexts.reply(context, accept);
    }

    /// The context that gets the next connection of a listener. None while the host is handed over: whoever goes on
    /// with it chooses.
    fn choose(&self, out: &Outbox<'_>, binding: u32, class: Class) -> Option<ContextId> {
        if self.standstill.is_on() {
            return None;
        }
        self.bindings.choose(out, &self.contexts, binding, class)
    }

    /// Hands connections that lost their context to others that take some.
    fn place_parked(&mut self, out: &mut Outbox<'_>, binding: u32) {
        while let Some(id) = self.bindings.listener(binding).and_then(|listener| listener.parked.front().copied()) {
            // Its peer was promised what its buffers hold: it waits for others that are no smaller.
            let slot = self.flows.get(id.0).map_or(0, |flow| flow.name().slot.index);
            let class = out.config.memory.geometry().class(slot);
            let Some(context) = self.choose(out, binding, class) else { return };
            if let Some(listener) = self.bindings.listener(binding) {
                listener.parked.pop_front();
            }
            if self.move_flow(out, id, binding, context, 0).is_none() {
                self.give_up_share(out, id, Holder::Listener(binding), None, true);
            }
        }
    }

    /// Moves a connection that is not accepted, with its buffers. `None` where it or the new place has failed.
    pub(super) fn move_flow(
        &mut self,
        out: &mut Outbox<'_>,
        id: FlowId,
        binding: u32,
        to: ContextId,
        offers: u8,
    ) -> Option<()> {
        let flow = self.flows.get_mut(id.0).filter(|flow| flow.engine == EngineState::Engine)?;
        let context = self.contexts.get_mut(to.0)?;
        let slot = context.slots.take_as_large(out.config.memory.geometry().class(flow.names[0].slot.index))?;
        // What is there may be more than small rings hold.
        let Ok((rx, tx)) = context.slots.begin(slot.index, true, &context.end) else {
            self.contexts.free_slot(out, to, slot);
            return None;
        };
        context.slots.assign(slot, id);
        context.flows.insert(id);
        let old = std::mem::replace(&mut flow.names, Name { context: to, slot, open: true, taken: true }.into());
        flow.current = 0;
        flow.holders = Holder::Context(to).into();
        let region = context.end.region_number();
        self.survivors.leave(out, &mut self.connections, (region, slot.index));
        out.journal.moved(flow.record, region, slot);
        let tuple = flow.tuple.get();
        let (local, remote) = (tuple.local(), tuple.remote());
        let mss = flow.agreed.mss;
        out.commands.push(stream::Command::Move { flow: id, context: to, slot, rx, tx }.into());
        for name in old.iter().copied() {
            self.contexts.reply(name.context, Reply::Unaccept { binding, slot: name.slot });
            self.contexts.free_slot(out, name.context, name.slot);
        }
        self.offer(out, id, binding, offers, Reply::Accept { binding, slot, local, remote, mss });
        Some(())
    }

    /// Makes the engine take a connection over. `None` where the buffers cannot be mapped.
    pub(super) fn install(
        &mut self,
        out: &mut Outbox<'_>,
        key: u32,
        context: ContextId,
        slot: Slot,
    ) -> Option<(FlowId, u16)> {
        let half_open = self.handshakes.get(key)?;
        let open = half_open.open?;
        let (tuple, congestion, owner, peer_mac) =
            (half_open.tuple, half_open.congestion, half_open.owner, half_open.peer_mac);
        let with_data = open.early > 0 || half_open.handshake.taken() > 0;
        let held = self.handshakes.take_held(key);
        let id = FlowId(self.flows.vacant()?);
        let end = self.contexts.get_mut(context.0)?;
        let Ok((rx, tx)) = end.slots.begin(slot.index, false, &end.end) else {
            out.frames.spent.extend(held);
            return None;
        };
        end.slots.assign(slot, id);
        end.flows.insert(id);
        let next_hop = out.net.next_hop(tuple.remote_ip);
        let peer_mac = peer_mac?;
        let remote_mac = out.net.resolve(out.now, next_hop).unwrap_or(peer_mac);
        let mss = mss_towards(out, tuple.remote_ip, &open.agreed);
        let unaccepted = if let Owner::Listener(binding) = owner { Some(binding) } else { None };
        let flow = Flow {
            tuple: tuple.into(),
            remote_mac,
            agreed: Agreed { mss, ..open.agreed },
            iss: open.iss,
            since: out.now,
            stats: self.flows.put_stats(stats_of(out, &open)),
            names: Name { context, slot, open: true, taken: true }.into(),
            current: 0,
            holders: Holder::Context(context).into(),
            unaccepted,
            read: None,
            closing: Closing::default(),
            engine: EngineState::Engine,
            options: self.flows.common_options(),
            timers: timers(out, congestion, &open, mss.into()),
            freezing: 0,
            reclaim: None,
            spliced: Spliced::No,
            marks: Marks { with_data, ..Marks::default() },
            record: None,
        };
        let region = self.contexts.get(context.0)?.end.region_number();
        // Its buffers were perhaps those of a connection that no program came for.
        self.survivors.leave(out, &mut self.connections, (region, slot.index));
        let record = record_of(&flow, &open, region);
        let record = out.journal.add(record);
        self.flows.insert(Flow { record, ..flow });
        self.connections.set(tuple, Lifecycle::Flow(id));
        let params = self.flows.params(out, id, &open, rx, tx)?;
        command_install(out, id, &open, Box::new(params));
        out.frames.refeed.extend(held.into_iter().map(|frame| (Exception::NoFlow, frame)));
        Some((id, mss))
    }
}

/// Commands the engine to run a new flow, from where its handshake has left it.
fn command_install(out: &mut Outbox<'_>, id: FlowId, open: &Established, params: Box<FlowParams>) {
    out.commands.push(Command::Install(params));
    if out.config.limits.nagle {
        out.commands.push(stream::Command::Nagle(id, true).into());
    }
    if open.written > open.early {
        let tx_head = open.written;
        out.commands.push(stream::Command::Advance { flow: id, tx_head, rx_head: 0, fin: false }.into());
    }
}

/// Record of a flow for the next daemon.
pub(super) fn record_of(flow: &Flow, open: &Established, region: u64) -> Record {
    let Flow { remote_mac, agreed, iss, .. } = *flow;
    let (tuple, slot) = (flow.tuple.get(), flow.name().slot);
    Record { region, slot, tuple, remote_mac, agreed, iss, irs: open.irs, ts_recent: open.ts_recent }
}

fn timers(out: &Outbox<'_>, congestion: CongestionName, open: &Established, mss: u32) -> FlowTimers {
    let mut rtt = RttEstimator::new(out.config.timers.rto_bounds());
    if let Some(first) = open.rtt {
        rtt.sample(first);
    }
    let enforced = Decision { cwnd: initial_window(mss), rate: 0 };
    FlowTimers::new(out.now, congestion.start(mss, out.now), rtt, enforced, open.iss + 1 + open.early)
}

/// Counters of a flow as they stand before the engine's first segment.
fn stats_of(out: &Outbox<'_>, open: &Established) -> FlowStats {
    let stats = FlowStats::default();
    let snd_nxt = open.iss + 1 + open.early;
    stats.snd_nxt.store(snd_nxt.0, Relaxed);
    stats.snd_una.store(snd_nxt.0, Relaxed);
    stats.rcv_nxt.store((open.irs + 1).0, Relaxed);
    stats.snd_wnd.store(open.snd_wnd, Relaxed);
    stats.last_rx_ns.store(out.now, Relaxed);
    stats
}
