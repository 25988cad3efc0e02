//! Flows: those that a host's engine runs, and those that it has given up while an application still has a name for
//! them.
mod asks;
mod polling;
mod reclaim;

use crate::black_holes::BlackHoles;
use crate::contexts::{Contexts, Holder};
use crate::counters::Counters;
use crate::flow::{After, EngineState, Flow, Name};
use crate::flow_options::FlowOptions;
use crate::outbox::Outbox;
use crate::tcp_config::TcpConfig;
use crate::timers::{MILLISECOND, Timer};
use ::host::{Link, Slab};
use context::Reply;
use engine::stream::{self, FlowParams, FlowStats, Receiving};
use engine::{Command, FlowId, Nanos};
use shm::{ByteRing, Pool, Pooled};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tcp::Established;
use wire::{IpAddress, Mac};

pub(crate) use polling::Due;
pub(crate) use reclaim::ReclaimRequest;

/// The flows of a host, by number.
pub(crate) struct Flows {
    all: Slab<Flow>,
    /// Where their counters lie.
    stats: Pool<FlowStats>,
    /// Those that are timed now.
    timed: u32,
    /// Of flows of which nothing was asked: they share them.
    options: Arc<FlowOptions>,
    /// The engine runs RACK-TLP.
    rack: bool,
    /// How later flows receive.
    receiving: Receiving,
    /// Those whose segments may be too large for their path.
    pub(crate) black_holes: BlackHoles,
}

impl Deref for Flows {
    type Target = Slab<Flow>;
    fn deref(&self) -> &Slab<Flow> {
        &self.all
    }
}

impl DerefMut for Flows {
    fn deref_mut(&mut self) -> &mut Slab<Flow> {
        &mut self.all
    }
}

impl Flows {
    pub(crate) fn new(most: u32, options: FlowOptions) -> Flows {
        Flows {
            all: Slab::new(most),
            stats: Pool::default(),
            timed: 0,
            options: Arc::new(options),
            rack: false,
            receiving: Receiving::default(),
            black_holes: BlackHoles::default(),
        }
    }

    /// Adds what at most `most` of them from number `from` on counted so far; returns where to go on.
    pub(crate) fn add_to(&self, counters: &mut Counters, from: u32, most: usize) -> Option<u32> {
        let mut rows = self.all.iter_from(from);
        rows.by_ref().take(most).for_each(|(_, flow)| counters.add(&flow.stats.read()));
        rows.next().map(|(number, _)| number)
    }

    /// The engine runs RACK-TLP ([`engine::stream::Features::rack`]), or does not.
    pub(crate) fn set_rack(&mut self, rack: bool) {
        self.rack = rack;
    }

    /// Later flows receive, are probed and go on after idle time so.
    pub(crate) fn set_tcp(&mut self, tcp: &TcpConfig) {
        self.receiving = tcp.receiving();
        self.black_holes.wanted = tcp.black_hole_detection;
        let options = Arc::make_mut(&mut self.options);
        options.tail_probe_ack_delay = Nanos::from(tcp.tail_probe_ack_delay_ms) * MILLISECOND;
        options.slow_start_after_idle = Nanos::from(tcp.slow_start_after_idle_ms) * MILLISECOND;
    }

    /// Number of timed flows.
    pub(crate) fn timed(&self) -> u32 {
        self.timed
    }

    /// A place for the counters of a flow.
    pub(crate) fn put_stats(&mut self, stats: FlowStats) -> Pooled<FlowStats> {
        self.stats.put(stats)
    }

    /// Options of a flow of which nothing was asked.
    pub(crate) fn common_options(&self) -> Arc<FlowOptions> {
        Arc::clone(&self.options)
    }

    /// The same options as these, shared where nothing was asked.
    pub(crate) fn share_options(&self, options: FlowOptions) -> Arc<FlowOptions> {
        if options == *self.options { Arc::clone(&self.options) } else { Arc::new(options) }
    }

    /// The engine's parameters of a new flow, whose buffers are these.
    pub(crate) fn params(
        &self,
        out: &Outbox<'_>,
        id: FlowId,
        open: &Established,
        rx: Arc<ByteRing>,
        tx: Arc<ByteRing>,
    ) -> Option<FlowParams> {
        let flow = self.get(id.0)?;
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
            snd_nxt: open.iss + 1 + open.early,
            tx_pos: open.early,
            rcv_nxt: open.irs + 1,
            rx_pos: 0,
            answered: open.answered,
            snd_wnd: open.snd_wnd,
            agreed: flow.agreed,
            receiving: self.receiving,
            ts_recent: open.ts_recent,
            rtt: flow.timers.rtt.srtt().map_or(0, |rtt| u32::try_from(rtt).unwrap_or(u32::MAX)),
            super_segment: caps.super_segment,
            checksum_offload: caps.checksum,
            dctcp_echo: flow.timers.policy.kind().needs.exact_marks,
            cwnd: flow.timers.enforced.cwnd,
            growth: flow.timers.policy.growth(),
            rate: flow.timers.enforced.rate,
            stats: flow.stats.clone(),
        })
    }

    /// Takes a flow out of the engine.
    pub(crate) fn leave(&mut self, out: &mut Outbox<'_>, id: FlowId, after: After) {
        let Some(flow) = self.all.get_mut(id.0) else { return };
        if flow.engine != EngineState::Engine {
            return;
        }
        flow.engine = EngineState::Leaving(after);
        self.black_holes.forget(id);
        out.journal.remove(flow.record.take());
        self.timed -= std::mem::take(&mut flow.timers.tracked) as u32;
        out.timers.cancel(Timer::Flow(id.0));
        out.commands.push(Command::Remove(id));
    }

    /// Takes a share of a flow away from its holder. Returns whether others have one; `None` where it had none.
    pub(crate) fn take_share(&mut self, contexts: &mut Contexts, id: FlowId, holder: Holder) -> Option<bool> {
        let flow = self.get_mut(id.0)?;
        if !flow.holders.remove(&holder) {
            return None;
        }
        let shared = !flow.holders.is_empty();
        if let Holder::Context(context) = holder {
            if let Some(at) = flow.name_in(context) {
                flow.names[at].open = false;
            }
            if let Some(context) = contexts.get_mut(context.0) {
                context.flows.remove(&id);
            }
        }
        Some(shared)
    }

    /// The name that completions go to was closed, but others share the flow: another open name takes its place. A
    /// closed slot that holds neither the completions nor the buffers is free.
    pub(crate) fn leave_name(&mut self, out: &mut Outbox<'_>, contexts: &mut Contexts, id: FlowId) {
        let Some(flow) = self.get_mut(id.0) else { return };
        let other = flow.names.iter().position(|name| name.open).filter(|_| !flow.name().open);
        if let Some(other) = other {
            flow.current = other;
            let Name { context, slot, .. } = flow.name();
            if flow.engine == EngineState::Engine {
                out.commands.push(stream::Command::Rename { flow: id, context, slot }.into());
            }
        }
        let current = flow.current;
        let mut freed = Vec::new();
        for (at, name) in flow.names.iter_mut().enumerate() {
            if at != 0 && at != current && !name.open && name.taken {
                name.taken = false;
                freed.push(*name);
            }
        }
        for name in freed {
            contexts.reply(name.context, Reply::Freed { slot: name.slot });
            contexts.free_slot(out, name.context, name.slot);
        }
    }

    /// A neighbour has this hardware address: flows through it follow.
    pub(crate) fn neighbour_learned(&mut self, out: &mut Outbox<'_>, ip: IpAddress, mac: Mac) {
        for (id, flow) in self.iter_mut() {
            if flow.remote_mac != mac && out.net.next_hop(flow.tuple.get().remote_ip) == ip {
                flow.remote_mac = mac;
                out.commands.push(Command::NextHop(FlowId(id), mac));
            }
        }
    }

    /// What is found late of a connection that has ended, for the context that calls it `slot`. Where both sides had
    /// ended, that is its end like any other, and a reader finds the last bytes.
    pub(crate) fn end_reply(&self, id: FlowId, slot: context::Slot) -> Reply {
        let flow = self.get(id.0).filter(|flow| flow.closing.ends.are_over());
        let Some(flow) = flow else { return Reply::Error { slot, errno: libc::ECONNRESET as u16 } };
        let figures = flow.stats.read();
        // SYN and FIN are acknowledged too.
        let tx_tail = figures.snd_una.wrapping_sub(flow.iss.0).wrapping_sub(2);
        Reply::Ended { slot, rx_tail: figures.rx_bytes as u32, tx_tail }
    }
}

impl Flow {
    /// Notifies the applications that have a name open for it.
    pub(crate) fn reply(&self, contexts: &mut Contexts, reply: impl Fn(context::Slot) -> Reply) {
        for name in self.names.iter().filter(|name| name.open) {
            contexts.reply(name.context, reply(name.slot));
        }
    }
}
