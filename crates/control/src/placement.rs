//! From an open connection to a flow: which context takes it, and what the engine is told.
use crate::connections::Stage;
use crate::contexts::{Buffers, Holder};
use crate::flow::{Flow, Name, Place, Spliced};
use crate::openings::Owner;
use crate::outbox::Outbox;
use crate::plane::Plane;
use crate::timing::Pace;
use ::host::Link;
use context::{Reply, Slot};
use engine::stream::{FlowParams, FlowStats};
use engine::{Command, ContextId, Exception, FlowId, Nanos};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tcp::congestion::{CongestionName, Decision, initial_window};
use tcp::{Agreed, Closing, Established, RttEstimator};

impl Plane {
    /// Hands connections that wait for a context to those that take some.
    pub fn place(&mut self, out: &mut Outbox<'_>, binding: u32) {
        self.place_parked(out, binding);
        while let Some(context) = self.choose(binding, u32::MAX) {
            let Some(listener) = self.bindings.listener(binding) else { return };
            let Some(key) = listener.ready.pop_front() else { return };
            let Some(slot) = self.contexts.get_mut(context.0).and_then(|context| context.slots.take()) else { return };
            match self.install(out, key, context, slot) {
                Some(mss) => {
                    let Some(tuple) = self.openings.get(key).map(|opening| opening.tuple) else { return };
                    self.finish_opening(out, key);
                    self.take_credit(binding, context);
                    let (local, remote) = (tuple.local(), tuple.remote());
                    self.contexts.reply(context, Reply::Accept { binding, slot, local, remote, mss });
                }
                None => {
                    self.free_slot(out, context, slot);
                    self.fail_opening(out, key, libc::ENOMEM);
                }
            }
        }
    }

    /// The context that gets the next connection of a listener: of those with credits and room, the least loaded;
    /// among equals, the next one after the last. None while the host is handed over: whoever goes on with it chooses.
    /// Only those whose next buffers are not halved more often than that.
    pub fn choose(&self, binding: u32, halvings: u32) -> Option<ContextId> {
        let listener = self.bindings.get(binding)?.listener.as_ref()?;
        if self.stopped.is_some() || (listener.ready.is_empty() && listener.parked.is_empty()) {
            return None;
        }
        let limit = self.config.limits.connections_per_application;
        let last = listener.last;
        listener
            .armed
            .iter()
            .filter(|(_, credits)| **credits > 0)
            .filter_map(|(id, _)| {
                let context = self.contexts.get(id.0)?;
                let full = context.slots.is_full() || (limit > 0 && context.slots.used() >= limit);
                let fits = !full && context.slots.next_halvings() <= halvings;
                (context.alive() && fits).then_some((context.flows.len(), last.is_some_and(|last| *id <= last), *id))
            })
            .min()
            .map(|(_, _, id)| id)
    }

    pub fn take_credit(&mut self, binding: u32, context: ContextId) {
        if let Some(served) = self.contexts.get_mut(context.0).map(|context| &mut context.served) {
            *served = binding;
        }
        if let Some(listener) = self.bindings.listener(binding) {
            listener.last = Some(context);
            if let Some(credits) = listener.armed.get_mut(&context) {
                *credits -= 1;
            }
        }
    }

    /// Makes the engine take a connection over. `None` where the buffers cannot be mapped.
    pub fn install(&mut self, out: &mut Outbox<'_>, key: u32, context: ContextId, slot: Slot) -> Option<u16> {
        let opening = self.openings.get_mut(key)?;
        let open = opening.open?;
        let (tuple, congestion, owner) = (opening.tuple, opening.congestion, opening.owner);
        let held = std::mem::take(&mut opening.held);
        self.frames.held -= held.len() as u32;
        let id = FlowId(self.flows.vacant()?);
        let end = self.contexts.get_mut(context.0)?;
        let Ok((rx, tx)) = end.slots.begin(slot.index, false, &end.end) else {
            self.frames.spent.extend(held);
            return None;
        };
        end.slots.assign(slot, id);
        end.flows.insert(id);
        let next_hop = out.net.next_hop(tuple.remote_ip);
        let peer_mac = self.openings.get(key)?.peer_mac?;
        let remote_mac = out.net.resolve(out.now, next_hop).unwrap_or(peer_mac);
        let mss = self.mss_towards(out, tuple.remote_ip, &open.agreed);
        let unaccepted = if let Owner::Listener(binding) = owner { Some(binding) } else { None };
        let flow = Flow {
            tuple: tuple.into(),
            remote_mac,
            agreed: Agreed { mss, ..open.agreed },
            iss: open.iss,
            stats: self.flows.stats.put(stats_of(out.now, &open)),
            names: Name { context, slot, open: true, taken: true }.into(),
            current: 0,
            holders: Holder::Context(context).into(),
            unaccepted,
            read: None,
            closing: Closing::default(),
            place: Place::Engine,
            options: Arc::clone(&self.flows.options),
            pace: self.pace(out.now, congestion, &open, mss.into()),
            freezing: 0,
            resting: None,
            spliced: Spliced::No,
            logged: false,
        };
        self.flows.insert(flow);
        self.connections.set(tuple, Stage::Flow(id));
        let params = self.flow_params(out, id, &open, (rx, tx))?;
        out.commands.push(Command::Install(Box::new(params)));
        self.frames.refeed.extend(held.into_iter().map(|frame| (Exception::NoFlow, frame)));
        Some(mss)
    }

    /// What the engine is told of a new flow.
    pub fn flow_params(
        &self,
        out: &mut Outbox<'_>,
        id: FlowId,
        open: &Established,
        (rx, tx): Buffers,
    ) -> Option<FlowParams> {
        let flow = self.flows.get(id.0)?;
        let Name { context, slot, .. } = flow.name();
        let Link { mac: local_mac, caps, .. } = *out.net.link_towards(flow.tuple.get().remote_ip);
        Some(FlowParams {
            flow: id,
            tuple: flow.tuple.get(),
            local_mac,
            remote_mac: flow.remote_mac,
            context,
            slot,
            rx,
            tx,
            snd_nxt: open.iss + 1,
            tx_pos: 0,
            rcv_nxt: open.irs + 1,
            rx_pos: 0,
            snd_wnd: open.snd_wnd,
            agreed: flow.agreed,
            ts_recent: open.ts_recent,
            super_segment: caps.super_segment,
            checksum_offload: caps.checksum,
            dctcp_echo: flow.pace.policy.kind().needs.exact_marks,
            cwnd: flow.pace.enforced.cwnd,
            rate: flow.pace.enforced.rate,
            stats: flow.stats.clone(),
        })
    }

    fn pace(&self, now: Nanos, congestion: CongestionName, open: &Established, mss: u32) -> Pace {
        let mut rtt = RttEstimator::new(self.config.timers.rto_bounds());
        if let Some(first) = open.rtt {
            rtt.sample(first);
        }
        let enforced = Decision { cwnd: initial_window(mss), rate: 0 };
        Pace::new(now, congestion.start(mss, now), rtt, enforced, open.iss + 1)
    }
}

/// Counters of a flow as they stand before the engine's first segment.
fn stats_of(now: Nanos, open: &Established) -> FlowStats {
    let stats = FlowStats::default();
    stats.snd_nxt.store((open.iss + 1).0, Relaxed);
    stats.snd_una.store((open.iss + 1).0, Relaxed);
    stats.rcv_nxt.store((open.irs + 1).0, Relaxed);
    stats.snd_wnd.store(open.snd_wnd, Relaxed);
    stats.last_rx_ns.store(now, Relaxed);
    stats
}
