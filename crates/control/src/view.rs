//! What people and machines see of a host: plain values.
use crate::contexts::ends;
use crate::flow::{Place, Spliced};
use crate::plane::Plane;
use crate::splice::Side;
use context::Unaccelerated;
use engine::{Drop, FlowId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// A connection, in whatever stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowView {
    /// Number in the engine; none while it is being opened or when it waits in TIME-WAIT.
    pub flow: Option<u32>,
    /// This host's address and port.
    pub local: SocketAddrV4,
    /// The peer's.
    pub remote: SocketAddrV4,
    /// RFC 9293's name.
    pub state: &'static str,
    /// The context that it belongs to.
    pub context: Option<u32>,
    /// Its slot there.
    pub slot: Option<u32>,
    /// Process of that context.
    pub pid: Option<u32>,
    /// Congestion-control policy.
    pub congestion: Option<&'static str>,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Slow-start threshold, bytes; none before the first congestion and where the policy has none.
    pub ssthresh: Option<u32>,
    /// Sending rate, bytes a second; 0 for no limit.
    pub rate: u64,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u64,
    /// Mean deviation of the round-trip time, microseconds.
    pub rttvar_us: u64,
    /// Retransmission timeout, microseconds.
    pub rto_us: u64,
    /// ECN was negotiated.
    pub ecn: bool,
    /// Counters of the engine.
    pub figures: BTreeMap<&'static str, u64>,
    /// The last drop's reason.
    pub last_drop: Option<&'static str>,
}

/// An attached application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextView {
    /// Number.
    pub context: u32,
    /// Process.
    pub pid: u32,
    /// User.
    pub uid: u32,
    /// Command line.
    pub command: String,
    /// Its process runs; otherwise what it left behind is being closed.
    pub alive: bool,
    /// Slots in use.
    pub slots_used: u32,
    /// Slots in all.
    pub slots: u32,
    /// Local addresses reserved.
    pub bindings: Vec<u32>,
}

/// A reserved local address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindingView {
    /// Number.
    pub binding: u32,
    /// Address and port.
    pub local: SocketAddrV4,
    /// Connections are accepted.
    pub listening: bool,
    /// Most connections that wait.
    pub backlog: u32,
    /// Connections whose handshake is going on.
    pub half_open: u32,
    /// Open connections that wait for an application.
    pub waiting: u32,
    /// Contexts that share it.
    pub contexts: Vec<u32>,
}

/// A descriptor of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LabelView {
    /// Process.
    pub pid: u32,
    /// File descriptor.
    pub fd: u32,
    /// It is accelerated.
    pub accelerated: bool,
    /// Why, or why not.
    pub reason: &'static str,
    /// Its flow, where it has one.
    pub flow: Option<u32>,
    /// Its binding, where it has one.
    pub binding: Option<u32>,
}

/// A neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArpView {
    /// Address.
    pub ip: Ipv4Addr,
    /// Hardware address; none while it is asked for.
    pub mac: Option<String>,
}

/// A drop reason that occurred.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DropView {
    /// Its name.
    pub reason: &'static str,
    /// What it means.
    pub sentence: &'static str,
    /// How often.
    pub count: u64,
}

fn socket(endpoint: context::Endpoint) -> SocketAddrV4 {
    SocketAddrV4::new(endpoint.ip, endpoint.port)
}

impl Plane {
    pub fn flow_views(&self) -> Vec<FlowView> {
        let flows = self.flows.iter().filter(|(_, flow)| !matches!(flow.spliced, Spliced::In(_)));
        let flows = flows.map(|(id, _)| self.flow_view(FlowId(id)));
        let openings = self.openings.iter().map(|(_, opening)| {
            let state = if opening.open.is_some() { "ESTABLISHED" } else { opening.handshake.name() };
            Some(self.bare_view(&opening.tuple, state))
        });
        let waits = self.waits.iter().map(|(_, wait)| {
            Some(self.bare_view(&wait.tuple, if wait.fin_received { "TIME-WAIT" } else { "FIN-WAIT-2" }))
        });
        let spliced = self.splices.all.iter().flat_map(|(key, splice)| {
            splice.sides.iter().enumerate().map(move |(at, side)| Some(self.splice_view(key, at, side)))
        });
        flows.chain(openings).chain(waits).chain(spliced).flatten().collect()
    }

    fn bare_view(&self, tuple: &engine::FourTuple, state: &'static str) -> FlowView {
        let (local, remote) = ends(tuple);
        FlowView {
            flow: None,
            local: socket(local),
            remote: socket(remote),
            state,
            context: None,
            slot: None,
            pid: None,
            congestion: None,
            mss: 0,
            cwnd: 0,
            ssthresh: None,
            rate: 0,
            rtt_us: 0,
            rttvar_us: 0,
            rto_us: 0,
            ecn: false,
            figures: BTreeMap::new(),
            last_drop: None,
        }
    }

    /// One side of a splice, with what came in there and was passed on.
    fn splice_view(&self, key: u32, at: usize, side: &Side) -> FlowView {
        let seen = self.splices.seen(key, at);
        let figures = [("rx_bytes", seen.bytes), ("rx_segments", seen.segments)].into();
        let view = FlowView { figures, ..self.bare_view(&side.tuple, "SPLICED") };
        let named = side.flow.and_then(|id| self.flow_view(id));
        let Some(FlowView { flow, context, slot, pid, mss, .. }) = named else { return view };
        FlowView { flow, context, slot, pid, mss, ..view }
    }

    fn flow_view(&self, id: FlowId) -> Option<FlowView> {
        let flow = self.flows.get(id.0)?;
        let figures = flow.stats.read();
        let name = flow.name();
        let state = if flow.place == Place::Gone { "CLOSED" } else { flow.closing.state.name() };
        let last_drop = (figures.last_drop as usize).checked_sub(1).and_then(|at| Drop::ALL.get(at));
        Some(FlowView {
            flow: Some(id.0),
            context: Some(name.context.0),
            slot: Some(name.slot.index),
            pid: self.contexts.get(name.context.0).map(|context| context.application.pid),
            congestion: flow.pace.policy.kind().name(),
            mss: flow.mss,
            cwnd: flow.pace.enforced.cwnd,
            ssthresh: Some(flow.pace.policy.ssthresh()).filter(|bytes| *bytes != u32::MAX),
            rate: flow.pace.enforced.rate,
            rtt_us: flow.pace.rtt.srtt().unwrap_or(0) / 1000,
            rttvar_us: flow.pace.rtt.rttvar() / 1000,
            rto_us: flow.pace.rtt.rto() / 1000,
            ecn: flow.agreed.ecn,
            figures: figures.list().into_iter().collect(),
            last_drop: last_drop.map(|reason| reason.label()),
            ..self.bare_view(&flow.tuple, state)
        })
    }

    pub fn context_views(&self) -> Vec<ContextView> {
        let view = |(id, context): (u32, &crate::contexts::Context)| ContextView {
            context: id,
            pid: context.application.pid,
            uid: context.application.uid,
            command: context.application.command.clone(),
            alive: context.alive(),
            slots_used: context.slots.used(),
            slots: context.end.geometry().slots,
            bindings: context.bindings.iter().copied().collect(),
        };
        self.contexts.iter().map(view).collect()
    }

    pub fn binding_views(&self) -> Vec<BindingView> {
        let view = |(id, binding): (u32, &crate::bindings::Binding)| {
            let listener = binding.listener.as_ref();
            BindingView {
                binding: id,
                local: socket(binding.local),
                listening: listener.is_some(),
                backlog: listener.map_or(0, |listener| listener.backlog),
                half_open: listener.map_or(0, |listener| listener.half_open),
                waiting: listener.map_or(0, |listener| (listener.ready.len() + listener.parked.len()) as u32),
                contexts: binding
                    .holders
                    .iter()
                    .filter_map(|holder| match holder {
                        crate::contexts::Holder::Context(id) => Some(id.0),
                        _ => None,
                    })
                    .collect(),
            }
        };
        self.bindings.iter().map(view).collect()
    }

    pub fn label_views(&self) -> Vec<LabelView> {
        let views = self.contexts.iter().filter(|(_, context)| context.alive()).flat_map(|(_, context)| {
            context.labels.iter().map(|(fd, label)| LabelView {
                pid: context.application.pid,
                fd: *fd,
                accelerated: label.reason == Unaccelerated::No,
                reason: label.reason.sentence(),
                flow: label.slot.and_then(|slot| context.slots.flow(slot)).map(|flow| flow.0),
                binding: (label.binding != 0).then_some(label.binding),
            })
        });
        views.collect()
    }

    pub fn arp_views(&self) -> Vec<ArpView> {
        self.net.arp.iter().map(|(ip, mac, _)| ArpView { ip, mac: mac.map(|mac| mac.to_string()) }).collect()
    }

    pub fn table_sizes(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("connections", self.connections.len() as u64),
            ("openings", self.openings.len() as u64),
            ("flows", self.flows.len() as u64),
            ("time_wait", self.waits.len() as u64),
            ("contexts", self.contexts.len() as u64),
            ("splices", self.splices.all.len() as u64),
            ("fork_holds", self.holds.len() as u64),
            ("held_frames", self.held as u64),
            ("timed_flows", self.tracked as u64),
            ("timers", self.timers.len() as u64),
        ]
    }

    pub fn drop_views(&self) -> Vec<DropView> {
        let view =
            |(reason, count): (Drop, u64)| DropView { reason: reason.label(), sentence: reason.sentence(), count };
        self.drops.iter().map(view).collect()
    }
}
