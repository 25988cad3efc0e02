//! The control plane of a host: its tables, and what several of its parts need.
use crate::bindings::Bindings;
use crate::config::HostConfig;
use crate::connections::Connections;
use crate::contexts::Contexts;
use crate::flow::Flows;
use crate::flow_options::FlowOptions;
use crate::holders::Hold;
use crate::kept::{KeptFrames, Logs};
use crate::openings::Opening;
use crate::outbox::Outbox;
use crate::port_turns::PortTurns;
use crate::random::Random;
use crate::redeemed::Redeemed;
use crate::splice::Splices;
use crate::timers::Timer;
use crate::waits::Waits;
use ::host::{Budget, Link, Slab};
use ::tcp::{Segment, reset_for};
use context::Endpoint;
use engine::stream::{Carries, FlowEnd, FourTuple};
use engine::{DropReason, FlowId, Nanos};
use std::collections::BTreeMap;
use trace::Tracer;

/// One millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// The control plane.
pub(crate) struct Plane {
    pub config: HostConfig,
    pub random: Random,
    pub port_turns: PortTurns,
    pub contexts: Contexts,
    /// How much the engine did in the last round.
    pub engine_work: usize,
    pub bindings: Bindings,
    pub openings: Slab<Opening>,
    pub redeemed: Redeemed,
    pub flows: Flows,
    pub waits: Waits,
    pub connections: Connections,
    pub splices: Splices,
    pub holds: BTreeMap<u64, Hold>,
    /// The number of the last claim of a shared connection; 0 before the first.
    pub claims: u32,
    pub frames: KeptFrames,
    pub resets: Budget,
    pub tracer: Tracer,
    /// The host is being handed over, or was: where the engine left its flows.
    pub stopped: Option<BTreeMap<FlowId, FlowEnd>>,
    /// TCP options that the engine carries.
    pub carries: Carries,
    pub logs: Logs,
}

impl Plane {
    pub fn new(config: HostConfig, links: &[Link], carries: Carries, secret: [u8; 16]) -> Plane {
        let addresses = links.iter().map(|link| link.address).collect();
        let mut random = Random::new(secret);
        Plane {
            port_turns: PortTurns::new(random.next()),
            random,
            contexts: Contexts::new(config.max_contexts),
            engine_work: 0,
            bindings: Bindings::default(),
            openings: Slab::new(config.limits.max_openings),
            redeemed: Redeemed::default(),
            flows: Flows::new(config.max_flows, FlowOptions::of(&config.timers)),
            waits: Waits::new(&config),
            connections: Connections::new(config.ephemeral_first..=config.ephemeral_last, addresses),
            splices: Splices::new(config.limits.max_splices),
            holds: BTreeMap::new(),
            claims: 0,
            resets: Budget::new(config.limits.resets_per_s),
            tracer: Tracer::off(),
            stopped: None,
            carries,
            frames: KeptFrames::default(),
            logs: Logs::default(),
            config,
        }
    }

    /// Answers a segment that belongs to no connection.
    pub fn refuse(&mut self, out: &mut Outbox<'_>, segment: &Segment) {
        out.drops.count(DropReason::NoFlow);
        if let Some(reset) = reset_for(segment) {
            if self.resets.take(out.now) {
                out.send_tcp(&segment.tuple, reset);
            }
        }
    }

    /// A timer is due.
    pub fn on_timer(&mut self, out: &mut Outbox<'_>, timer: Timer) {
        match timer {
            Timer::Opening(key) => self.opening_due(out, key),
            Timer::Flow(flow) => self.flow_due(out, FlowId(flow)),
            Timer::Wait(key) => self.waits.end(out, &mut self.connections, key),
            Timer::Splice(key) => self.splice_due(out, key),
            Timer::Hold(token) => self.hold_due(out, token),
        }
    }

    /// The tuple of a connection from a bound address, or from a port of any address.
    pub fn tuple_of(&self, out: &Outbox<'_>, local: Endpoint, remote: Endpoint) -> FourTuple {
        let tuple = self.tuple(out, local.port, remote);
        if local.ip == local.ip.any() { tuple } else { FourTuple { local_ip: local.ip, ..tuple } }
    }

    /// The tuple of a connection to `remote` that is bound to no address.
    pub fn tuple(&self, out: &Outbox<'_>, local_port: u16, remote: Endpoint) -> FourTuple {
        FourTuple { local_ip: out.net.source(remote.ip), remote_ip: remote.ip, local_port, remote_port: remote.port }
    }
}
