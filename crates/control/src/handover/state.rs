//! The state of a host at a standstill: everything that another daemon needs to go on with it. It has nothing that the
//! other can find out itself (addresses of neighbours, congestion windows) or that may be lost (frames on their way).
use crate::contexts::{Application, Holder, SlotsState};
use crate::counters::Counters;
use crate::fast_open::{EarlyFlow, EarlyListenerState};
use crate::flow::{Name, Spliced};
use crate::flow_options::FlowOptions;
use crate::forks::HeldFor;
use crate::half_open::Owner;
use crate::labels::Label;
use crate::splice::SplicesState;
use ::host::Net;
use context::{Endpoint, Geometry};
use engine::stream::{Carries, FlowEnd, FourTuple, LogState};
use engine::{ContextId, FlowId, Nanos};
use serde::{Deserialize, Serialize};
use tcp::congestion::CongestionName;
use tcp::{Agreed, Closing, Established, Handshake, TimeWait};
use wire::{IpAddress, Mac, Seq};

/// A host that stands still. Its contents are the control plane's own; a daemon carries it to another one.
#[derive(Serialize, Deserialize)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// Its addresses and hardware addresses, by port.
    pub links: Vec<(IpAddress, Mac)>,
    /// When it stopped, on the daemon's clock.
    pub stopped: Nanos,
    /// Its engine, and the options that its connections may have negotiated.
    pub(crate) engine: (String, Carries),
    pub(crate) geometry: Geometry,
    /// Secret of its numbers: so that sequence numbers and timestamps go on as they began.
    pub(crate) secret: ([u8; 16], u64),
    pub(crate) contexts: Vec<ContextState>,
    pub(crate) bindings: Vec<BindingState>,
    pub(crate) last_binding: u32,
    pub(crate) handshakes: Vec<HalfOpenState>,
    pub(crate) flows: Vec<FlowState>,
    /// Those of them whose handshake has not ended.
    #[serde(default)]
    pub(crate) early: Vec<(u32, EarlyFlow)>,
    pub(crate) time_waits: Vec<(u32, TimeWait)>,
    pub(crate) holds: Vec<HoldState>,
    pub(crate) splices: SplicesState,
    pub(crate) claims: u32,
    pub(crate) counters: Counters,
}

/// A host's addresses and hardware addresses, by port.
pub(crate) fn own_addresses(net: &Net) -> Vec<(IpAddress, Mac)> {
    net.links().iter().flat_map(|link| link.addresses().map(|(address, _)| (address, link.mac))).collect()
}

impl HostState {
    /// The contexts whose rings another daemon has to map.
    pub fn contexts(&self) -> impl Iterator<Item = ContextId> {
        self.contexts.iter().map(|context| ContextId(context.id))
    }

    /// Connections that go on: an engine runs them, or they are joined.
    pub fn connections(&self) -> usize {
        let goes_on = |flow: &&FlowState| flow.end.is_some() || matches!(flow.spliced, Spliced::In(_));
        self.flows.iter().filter(goes_on).count()
    }

    /// Sizes of its applications' regions.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ContextState {
    pub id: u32,
    pub application: Application,
    /// Otherwise its process is gone, and it stays for a child that has its buffers.
    pub alive: bool,
    pub released: bool,
    pub slots: SlotsState,
    pub flows: Vec<FlowId>,
    pub bindings: Vec<u32>,
    pub connects: Vec<(u32, u32)>,
    pub labels: Vec<(u32, Label)>,
    /// Replies that found the ring full.
    pub replies: Vec<[u64; 8]>,
    /// Its shared log.
    pub log: Option<LogState>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct BindingState {
    pub id: u32,
    pub local: Endpoint,
    pub uid: u32,
    pub reuse: (bool, bool),
    #[serde(default)]
    pub dual_stack: bool,
    pub number: u64,
    pub holders: Vec<Holder>,
    pub listener: Option<ListenerState>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct ListenerState {
    pub backlog: u32,
    #[serde(default)]
    pub mss: u16,
    pub loopback: bool,
    pub half_open: u32,
    pub cookie_sent: Option<Nanos>,
    #[serde(default)]
    pub early: EarlyListenerState,
    pub ready: Vec<u32>,
    pub parked: Vec<FlowId>,
    pub armed: Vec<(ContextId, u32)>,
    pub last: Option<ContextId>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HalfOpenState {
    pub key: u32,
    pub tuple: FourTuple,
    pub handshake: Handshake,
    pub owner: Owner,
    pub congestion: CongestionName,
    pub rto: Nanos,
    pub tries: u32,
    #[serde(default)]
    pub most_tries: Option<u8>,
    pub unsent: bool,
    pub soft_error: Option<i32>,
    pub peer_mac: Option<Mac>,
    pub open: Option<Established>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FlowState {
    pub id: u32,
    pub tuple: FourTuple,
    pub remote_mac: Mac,
    pub agreed: Agreed,
    pub iss: Seq,
    pub since: Nanos,
    #[serde(default)]
    pub with_data: bool,
    pub names: Vec<Name>,
    pub current: usize,
    pub holders: Vec<Holder>,
    pub unaccepted: Option<u32>,
    pub closing: Closing,
    pub options: FlowOptions,
    pub congestion: CongestionName,
    /// Smoothed round-trip time.
    pub rtt: Option<Nanos>,
    /// Bytes received and sent so far.
    pub bytes: (u64, u64),
    pub spliced: Spliced,
    /// Its records go to a log.
    pub logged: bool,
    /// Its state in the engine; none where no engine runs it any more.
    pub end: Option<FlowEnd>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HoldState {
    pub token: u64,
    pub held_for: HeldFor,
    pub parent: Option<ContextId>,
    pub uid: u32,
    pub flows: Vec<FlowId>,
    pub bindings: Vec<u32>,
}
