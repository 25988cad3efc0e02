//! The control plane of a host: it routes each input to the part that it concerns, and that part's answer to the next
//! one. Each part owns its state; what several parts need of the host is in the outbox.
mod closing;
mod events;
mod fast_open;
mod handover;
mod input;
mod opening;
mod placement;
mod reassignment;
mod requests;
mod returning;
mod shares;
mod splicing;
mod surviving;

pub use returning::ShownTicket;

use crate::bindings::Bindings;
use crate::config::HostConfig;
use crate::connections::Connections;
use crate::contexts::Contexts;
use crate::fast_open::EarlyFlows;
use crate::flow_options::FlowOptions;
use crate::flow_view::Tables;
use crate::flows::Flows;
use crate::forks::Forks;
use crate::handover::Standstill;
use crate::handshakes::Handshakes;
use crate::local_ports::{InUse, Ports};
use crate::logs::Logs;
use crate::offers::Offers;
use crate::outbox::{Outbox, Queues};
use crate::splice::{SpliceTable, Splices};
use crate::survivors::Survivors;
use crate::tcp_config::TcpConfig;
use crate::time_waits::TimeWaits;
use crate::timers::{Timer, Timers};
use crate::traced;
use ::host::{Budget, Link};
use context::Endpoint;
use engine::FlowId;
use engine::stream::{Carries, Features};
use port::TcpPorts;
use std::sync::Arc;
use trace::Tracer;

/// The control plane.
pub(crate) struct ControlPlane {
    contexts: Contexts,
    forks: Forks,
    bindings: Bindings,
    ports: Ports,
    connections: Connections,
    handshakes: Handshakes,
    /// Flows whose SYN-ACK is not acknowledged yet.
    early: EarlyFlows,
    flows: Flows,
    time_waits: TimeWaits,
    splices: Splices,
    logs: Logs,
    /// The host is being handed over, or was.
    standstill: Standstill,
    survivors: Survivors,
    /// For answers to segments of no connection.
    resets: Budget,
    /// How much the engine did in the last round.
    engine_work: usize,
}

impl ControlPlane {
    pub(crate) fn new(queues: &mut Queues, links: &[Link], carries: Carries) -> ControlPlane {
        let config = &queues.config;
        let addresses = links.iter().flat_map(|link| link.addresses()).map(|(address, _)| address).collect();
        let ephemeral = config.ephemeral_first..=config.ephemeral_last;
        ControlPlane {
            contexts: Contexts::new(config.max_contexts),
            forks: Forks::default(),
            bindings: Bindings::default(),
            ports: Ports::new(ephemeral.clone(), queues.random.next()),
            connections: Connections::new(ephemeral, addresses),
            handshakes: Handshakes::new(config, carries),
            early: EarlyFlows::default(),
            flows: Flows::new(config.max_flows, FlowOptions::of(config)),
            time_waits: TimeWaits::new(config),
            splices: Splices::new(config.limits.max_splices),
            logs: Logs::default(),
            standstill: Standstill::default(),
            survivors: Survivors::default(),
            resets: Budget::new(config.limits.resets_per_s),
            engine_work: 0,
        }
    }

    /// Another stack has the same addresses.
    pub(crate) fn share_ports(&mut self, ports: Arc<TcpPorts>) {
        self.bindings.share(ports);
    }

    /// Cookies of peers are forgotten.
    pub(crate) fn forget_peers(&mut self, config: &HostConfig) {
        self.handshakes.forget_peers(config);
    }

    /// Later connections have this of TCP.
    pub(crate) fn set_tcp(&mut self, tcp: TcpConfig) {
        let TcpConfig { sack, timestamps, .. } = tcp;
        self.handshakes.set_offers(Offers { sack, timestamps, ..*self.handshakes.offers() });
        self.flows.set_tcp(&tcp);
    }

    /// Later connections offer and accept this.
    pub(crate) fn set_offers(&mut self, offers: Offers) {
        self.handshakes.set_offers(offers);
    }

    pub(crate) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    pub(crate) fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    pub(crate) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// All tables of connections, to read.
    pub(crate) fn tables(&self) -> Tables<'_> {
        let ControlPlane { contexts, flows, handshakes, time_waits, splices, .. } = self;
        Tables { contexts, flows, handshakes, time_waits, splices }
    }

    /// Reader of the commands to the engine, for tracepoints.
    pub(crate) fn trace_reader<'a>(&'a self, tracer: &'a Tracer) -> traced::Reader<'a> {
        traced::Reader { tracer, contexts: &self.contexts, flows: &self.flows }
    }

    /// Sizes of all tables.
    pub(crate) fn table_sizes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("connections", self.connections.len() as u64),
            ("half_open", self.handshakes.len() as u64),
            ("early_flows", self.early.len() as u64),
            ("flows", self.flows.len() as u64),
            ("time_wait", self.time_waits.len() as u64),
            ("contexts", self.contexts.len() as u64),
            ("splices", self.splices.len() as u64),
            ("fork_holds", self.forks.len() as u64),
            ("held_frames", self.handshakes.held_frames() as u64),
            ("timed_flows", self.flows.timed() as u64),
            ("survivors", self.survivors.len() as u64),
        ]
    }

    /// Figures of what is spliced.
    pub(crate) fn splice_figures(&self) -> Vec<(&'static str, u64)> {
        self.splices.figures()
    }

    /// Frames that are kept for connections that are not accepted yet.
    pub(crate) fn held_frames(&self) -> u32 {
        self.handshakes.held_frames()
    }

    /// The host is connected with itself: some of its frames are for itself.
    pub(crate) fn sends_to_self(&self) -> bool {
        self.connections.to_self()
    }

    /// Some connections are over loopback.
    pub(crate) fn has_loopback(&self) -> bool {
        self.connections.loopback()
    }

    /// Sets what the engine offers from now on.
    pub(crate) fn set_features(&mut self, features: &Features) {
        self.logs.set_offered(features.keeps_logs);
        self.flows.set_rack(features.rack);
    }

    /// The splice module came or went.
    pub(crate) fn set_splice_table(&mut self, table: Option<Box<dyn SpliceTable>>) {
        self.splices.set_table(table);
    }

    /// A round of the engine begins.
    pub(crate) fn begin_round(&mut self) {
        self.engine_work = 0;
    }

    /// The engine did so much.
    pub(crate) fn note_engine_work(&mut self, done: usize) {
        self.engine_work += done;
    }

    /// Rings the bells of applications that have something new and sleep.
    pub(crate) fn ring(&mut self, tracer: &Tracer) {
        self.contexts.ring(tracer);
    }

    /// Prefetches the state of flows that are to be polled soon.
    pub(crate) fn prefetch_ahead(&self, timers: &Timers, most: usize) {
        self.flows.prefetch_ahead(timers, most);
    }

    /// A timer is due.
    pub(crate) fn on_timer(&mut self, out: &mut Outbox<'_>, timer: Timer) {
        match timer {
            Timer::HalfOpen(key) => self.half_open_due(out, key),
            Timer::Early(flow) => self.early_due(out, FlowId(flow)),
            Timer::Flow(flow) => self.flow_due(out, FlowId(flow)),
            Timer::TimeWait(key) => self.time_waits.end(out, &mut self.connections, key),
            Timer::Splice(key) => {
                let then = self.splices.due(out, key);
                self.after_splice(out, then);
            }
            Timer::Reassign(binding) => self.reassignment_due(out, binding),
            Timer::Hold(token) => self.hold_due(out, token),
            Timer::Survivors => self.survivors_due(out),
        }
    }

    /// A port of the ephemeral range that nothing uses.
    fn free_port(&mut self, out: &mut Outbox<'_>) -> Option<u16> {
        let ControlPlane { bindings, connections, time_waits, .. } = self;
        self.ports.free_port(out.random, &InUse { bindings, connections, time_waits })
    }

    /// A port for a connection to `remote`.
    fn port_towards(&mut self, out: &mut Outbox<'_>, remote: Endpoint) -> Option<u16> {
        let ControlPlane { bindings, connections, time_waits, .. } = self;
        self.ports.port_towards(out, &mut InUse { bindings, connections, time_waits }, remote)
    }
}
