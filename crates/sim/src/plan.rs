//! A scenario as data: what is simulated follows from it alone, so that it can be saved, replayed and made smaller.
use crate::rdma::plan::LinkPlan;
use crate::zeronic::plan::TalkPlan;
use control::TcpConfig;
use engine::Backend;
use engines::{EngineKind, Mapping};
use port::FabricConfig;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::{IpAddress, Mac};

/// One scenario. Times are virtual and count from the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Of all random decisions while it runs: secrets of the hosts, order of polling, stalls.
    pub seed: u64,
    /// Brings a number that wraps close to its wrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Aim>,
    /// What the network does to frames. Its `seed` is replaced by one that follows from [`Plan::seed`].
    pub fabric: FabricConfig,
    /// The hosts: number `i` has address 10.0.0.(i + 1).
    pub hosts: Vec<HostPlan>,
    /// The applications, one context each.
    pub apps: Vec<AppPlan>,
    /// Listeners.
    #[serde(default)]
    pub listens: Vec<ListenPlan>,
    /// Groups of connections.
    #[serde(default)]
    pub calls: Vec<CallPlan>,
    /// Pairs of RDMA programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkPlan>,
    /// Pairs of ZeroNIC hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub talks: Vec<TalkPlan>,
    /// When a host's link is cut.
    #[serde(default)]
    pub cuts: Vec<Cut>,
    /// When a host's clock leaps, ahead or back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jumps: Vec<Jump>,
    /// When another daemon takes a host over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takeovers: Vec<Takeover>,
    /// When a host is killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kills: Vec<Kill>,
}

/// Shifts the time at which the scenario starts, so that the first connection's number wraps while it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aim {
    /// Which number.
    pub at: AimAt,
    /// How far before its wrap it is when the connection begins: bytes, or milliseconds for a timestamp.
    pub before: u32,
}

/// A number of the first connection that wraps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AimAt {
    /// Sequence numbers of the side that connects.
    ClientSequence,
    /// Sequence numbers of the side that listens.
    ServerSequence,
    /// Timestamps of the side that connects.
    ClientTimestamp,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPlan {
    /// Its engine.
    #[serde(default)]
    pub engine: EngineKind,
    /// What runs the program of an engine that has one.
    #[serde(default)]
    pub backend: Backend,
    /// Module mapping of the engine. The simulation polls each thread's modules in an order that follows from the
    /// seed; there are no real threads.
    #[serde(default)]
    pub mapping: Mapping,
    /// Most bytes of an IP packet; 0 for what the network carries.
    #[serde(default)]
    pub mtu: u16,
    /// Bytes of a receive buffer; a power of two, at least 4096.
    pub rx_bytes: u32,
    /// Bytes of a transmit buffer; a power of two, at least 4096.
    pub tx_bytes: u32,
    /// Bytes to which each buffer of a connection over a long path grows; 0 where it is as others.
    #[serde(default)]
    pub long_path_bytes: u32,
    /// The same of other connections; 0 where no buffer grows.
    #[serde(default)]
    pub most_bytes: u32,
    /// Bytes of buffers that an application's connections share; 0 where all have full ones.
    #[serde(default)]
    pub context_bytes: u64,
    /// Bytes of the small rings in which a connection begins; 0 for none. Engines that have none go without.
    #[serde(default)]
    pub small_bytes: u32,
    /// Lines of a ZeroNIC engine's flow table; 0 for one for each connection.
    #[serde(default)]
    pub lines: u32,
    /// Connections that one application can hold.
    pub slots: u32,
    /// Connections that the host can hold; for hosts that only accept.
    #[serde(default = "many")]
    pub flows: u32,
    /// Connections in TIME-WAIT that it remembers.
    #[serde(default = "many")]
    pub max_time_wait: u32,
    /// Entries of each data ring.
    pub data_entries: u32,
    /// Entries of each control ring.
    pub control_entries: u32,
    /// Negotiate ECN.
    pub ecn: bool,
    /// Short segments are collected (Nagle's algorithm).
    #[serde(default)]
    pub nagle: bool,
    /// TCP's options, and how it receives.
    #[serde(default)]
    pub tcp: TcpConfig,
    /// Congestion control by its name in `tcp::congestion::KINDS`; empty for the host's default.
    #[serde(default)]
    pub congestion: String,
    /// Least retransmission timeout, milliseconds.
    pub min_rto_ms: u32,
    /// Largest retransmission timeout, milliseconds.
    pub max_rto_ms: u32,
    /// TIME-WAIT, milliseconds.
    pub time_wait_ms: u32,
    /// Time between two rounds of the data-path while it has work, nanoseconds.
    pub poll_ns: u64,
    /// Probability that a round comes late.
    pub stall: f64,
    /// By how much it then comes late at most, nanoseconds.
    pub stall_ns: u64,
    /// Most frames that a round receives.
    pub burst: usize,
    /// Handshakes that a listener remembers: what comes beyond is answered with SYN cookies. Absent: very many, and
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_backlog: Option<u32>,
    /// Its queue pairs repeat lost packets only, with peers that do it, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selective_repeat: bool,
    /// With peers that do it, too, their packets take 2^this paths.
    #[serde(default, skip_serializing_if = "is_no_spray")]
    pub spray: u8,
    /// Its connected queue pairs answer congestion by DCQCN: their line's rate, bits a second; 0 where they do not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dcqcn_bps: u64,
}

fn many() -> u32 {
    1024
}

/// One application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppPlan {
    /// Its host.
    pub host: usize,
    /// From something happening to the application acting on it, microseconds.
    pub latency_us: u64,
    /// The process is gone at this time, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_us: Option<u64>,
    /// The process forks at this time, microseconds; the child takes the connections over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork_us: Option<u64>,
    /// After the fork, the parent ends at once.
    #[serde(default)]
    pub parent_leaves: bool,
    /// It lets connections be reclaimed whenever nothing is unread or unacknowledged: the flow is frozen, its memory is
    /// given back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenPlan {
    /// Its application.
    pub app: usize,
    /// Its port.
    pub port: u16,
    /// Most connections that wait to be accepted.
    pub backlog: u32,
    /// Connections that may wait in the context.
    pub credits: u32,
    /// `SO_REUSEPORT`: other listeners that have it too may have the same port on the same host, and share what comes.
    #[serde(default)]
    pub reuse_port: bool,
    /// It is closed at this time, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_us: Option<u64>,
}

/// Connections of one kind, from one application to one listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallPlan {
    /// The application that connects.
    pub app: usize,
    /// The listener, by its place in [`Plan::listens`].
    pub to: usize,
    /// Connections in all.
    pub count: u32,
    /// Most of them at once.
    pub parallel: u32,
    /// Start of the first, microseconds.
    pub start_us: u64,
    /// Least time between two starts, microseconds.
    pub gap_us: u64,
    /// Local port of the first connection, 0 for any: the others use the same one again.
    #[serde(default)]
    pub bind: u16,
    /// Over IPv6.
    #[serde(default, skip_serializing_if = "is_false")]
    pub v6: bool,
    /// Requests and responses of these sizes take turns; absent: both sides send as they like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Turns>,
    /// What the side that connects does.
    pub client: Script,
    /// What the side that listens does.
    pub server: Script,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl CallPlan {
    /// Refuses a conversation that comes to no end.
    fn check(&self) -> Result<(), String> {
        let sides = [self.client, self.server];
        if sides.iter().any(|script| script.write == 0 || script.read == 0) {
            return Err("a side of a call must write and read at least one byte at a time".into());
        }
        let begins = |script: &Script| matches!(script.ending, Ending::Shutdown | Ending::Close);
        let waits = sides.iter().any(|script| script.ending == Ending::AfterPeer);
        if waits && !sides.iter().any(begins) {
            return Err("both sides of a call wait for the other's end".into());
        }
        let all = self.client.send + self.server.send;
        let never = |script: &Script| match script.ending {
            Ending::Abort { after } | Ending::Leave { after } => after > all,
            _ => false,
        };
        if sides.iter().any(never) {
            return Err("a side of a call ends after more bytes than there are".into());
        }
        if self.bind > 0 && matches!(self.client.ending, Ending::Abort { .. } | Ending::Leave { .. }) {
            return Err("with a local port of its own, a client must not give up connections that nobody accepted: \
                the next one is the same to the simulation"
                .into());
        }
        let Some(Turns { request, response }) = self.turns else { return Ok(()) };
        let even = request > 0 && response > 0 && self.client.send % request == 0 && self.server.send % response == 0;
        if !even || self.client.send / request != self.server.send / response {
            return Err("a call in turns must have as many requests as responses".into());
        }
        Ok(())
    }
}

/// A conversation in turns: the client sends first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turns {
    /// Bytes of a request.
    pub request: u64,
    /// Bytes of a response.
    pub response: u64,
}

/// What one side of a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Bytes that it sends.
    pub send: u64,
    /// Most bytes of one write.
    pub write: u64,
    /// Time between two writes, microseconds.
    pub write_gap_us: u64,
    /// Most bytes of one read.
    pub read: u64,
    /// Time between two reads, microseconds.
    pub read_gap_us: u64,
    /// `SO_KEEPALIVE`, with short times.
    #[serde(default)]
    pub keepalive: bool,
    /// How it ends.
    pub ending: Ending,
}

/// How a side ends its part of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "how", deny_unknown_fields)]
pub enum Ending {
    /// Sends FIN as soon as all is written, reads to the end, then closes.
    Shutdown,
    /// Closes when all is written and all that is expected is read.
    Close,
    /// Closes after it sees the peer's FIN (and all is written).
    AfterPeer,
    /// Resets the connection after so many bytes written and read.
    Abort {
        /// Bytes of both directions.
        after: u64,
    },
    /// Closes after so many bytes written and read, whatever else comes.
    Leave {
        /// Bytes of both directions.
        after: u64,
    },
}

/// A host's link carries nothing for a while, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Which host.
    pub host: usize,
    /// From, microseconds.
    pub from_us: u64,
    /// Until, microseconds.
    pub until_us: u64,
}

/// A host's clock leaps. Ahead, as after a machine was suspended: everything that was due in between is due at once. Or
/// back, which no clock of a daemon does: nothing that was due is for as long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jump {
    /// Which host.
    pub host: usize,
    /// When, microseconds of the others' time.
    pub at_us: u64,
    /// How far, milliseconds.
    pub by_ms: i64,
}

/// Another daemon takes a host over, as soon as nothing is in the middle of several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Takeover {
    /// Which host.
    pub host: usize,
    /// When, microseconds: or later, as soon as this is so.
    pub at_us: u64,
    /// What one of its connections has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Midst>,
    /// It is stopped, and nobody takes it: it goes on by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// For how long after it all frames from and to the host are lost, microseconds: a new daemon's fabric begins
    /// empty.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_us: u64,
}

/// A host is killed, and another one takes its place at once. Its applications come back to that one after a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// Which host.
    pub host: usize,
    /// When, microseconds: or later, as soon as this is so.
    pub at_us: u64,
    /// What one of its connections has to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Midst>,
    /// When the first application comes back, microseconds later.
    pub back_us: u64,
    /// By so much the others come after each other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart_us: u64,
    /// For how long after it all frames from and to the host are lost, microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost_us: u64,
}

/// What makes a moment a good one for a takeover or a kill to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Midst {
    /// Its application wrote everything that it will, and not all is acknowledged.
    Unacknowledged,
    /// It acknowledged what its application has not read.
    Unread,
}

fn is_no_spray(value: &u8) -> bool {
    *value == 0
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Plan {
    /// Reads a saved plan.
    pub fn from_toml(text: &str) -> Result<Plan, String> {
        let plan: Plan = toml::from_str(text).map_err(|error| error.to_string())?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan as it is saved.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# the plan cannot be written: {error}\n"))
    }

    /// Refuses a plan that names what it does not have, or that no host takes.
    pub fn check(&self) -> Result<(), String> {
        let known = |what: &str, index: usize, len: usize| {
            if index < len { Ok(()) } else { Err(format!("the plan names {what} {index} but has only {len}")) }
        };
        self.fabric.check()?;
        if self.hosts.len() > 250 {
            return Err("the plan has more than 250 hosts".into());
        }
        for host in &self.hosts {
            host.mapping.check()?;
        }
        for app in &self.apps {
            known("host", app.host, self.hosts.len())?;
        }
        for listen in &self.listens {
            known("application", listen.app, self.apps.len())?;
        }
        for call in &self.calls {
            known("application", call.app, self.apps.len())?;
            known("listener", call.to, self.listens.len())?;
            call.check()?;
            let ends = [self.apps[call.app].host, self.apps[self.listens[call.to].app].host];
            if call.v6 && !ends.into_iter().all(|host| self.speaks_v6(host)) {
                return Err("a call is over IPv6, and a host of it does not have that".into());
            }
        }
        self.links.iter().try_for_each(|link| link.check(self.hosts.len()))?;
        if self.talks.len() > 16 || self.hosts.is_empty() {
            return Err("the plan has more than 16 ZeroNIC talks, or no host".into());
        }
        self.talks.iter().try_for_each(TalkPlan::check)?;
        let takeovers = self.takeovers.iter().map(|takeover| takeover.host);
        let kills = self.kills.iter().map(|kill| kill.host);
        let named = self
            .cuts
            .iter()
            .map(|cut| cut.host)
            .chain(self.jumps.iter().map(|jump| jump.host))
            .chain(takeovers)
            .chain(kills);
        for host in named {
            known("host", host, self.hosts.len())?;
        }
        let alone = |(index, listen): (usize, &ListenPlan)| {
            let rivals = (0..index).filter(|other| self.share_port(*other, index));
            rivals.into_iter().all(|other| listen.reuse_port && self.listens[other].reuse_port)
        };
        if !self.listens.iter().enumerate().all(alone) {
            return Err("two listeners have one port, and not both of them share it".into());
        }
        Ok(())
    }

    /// Two listeners have the same port of the same host.
    pub fn share_port(&self, one: usize, other: usize) -> bool {
        let place = |listen: usize| (self.apps[self.listens[listen].app].host, self.listens[listen].port);
        place(one) == place(other)
    }

    /// Of all that happens in the scenario, its ZeroNIC talks are left.
    pub fn leave_talks(&mut self) {
        let Plan { hosts, apps, listens, calls, links, cuts, jumps, takeovers, kills, aim, .. } = self;
        hosts.truncate(1);
        apps.clear();
        listens.clear();
        calls.clear();
        links.clear();
        cuts.clear();
        jumps.clear();
        takeovers.clear();
        kills.clear();
        *aim = None;
    }

    /// Address of a host.
    pub fn address(host: usize) -> IpAddress {
        Plan::ipv4(host).into()
    }

    /// The same.
    pub(crate) fn ipv4(host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, host as u8 + 1)
    }

    /// IPv6 address of a host.
    pub(crate) fn ipv6(host: usize) -> IpAddress {
        IpAddress::v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host as u16 + 1), 0)
    }

    /// Address of a host to which, or from which, a call goes.
    pub(crate) fn address_for(host: usize, call: &CallPlan) -> IpAddress {
        if call.v6 { Plan::ipv6(host) } else { Plan::address(host) }
    }

    /// A host has an IPv6 address: its packets may be as long as every link's (RFC 8200 section 5).
    pub(crate) fn speaks_v6(&self, host: usize) -> bool {
        let HostPlan { mtu, .. } = self.hosts[host];
        let mtu = if mtu == 0 { self.fabric.mtu } else { mtu.min(self.fabric.mtu) };
        mtu >= wire::ipv6::LEAST_MTU
    }

    /// Hardware address of a host.
    pub(crate) fn mac(host: usize) -> Mac {
        Mac([2, 0, 0, 0, 0, host as u8 + 1])
    }

    /// Nothing gets lost or late: nobody has a reason to send anything twice.
    pub fn is_gentle(&self) -> bool {
        // Hosts that are slow are late where RDMA programs have much to do.
        let quick = |host: &HostPlan| self.links.is_empty() || host.poll_ns <= 2000 && host.burst >= 8;
        let calm = self.loses_nothing() && self.hosts.iter().all(quick);
        // What nobody has room to accept is not acknowledged.
        let roomy = |host: &HostPlan| host.slots >= 64 && host.flows >= 1024;
        let prompt =
            |host: &HostPlan| host.stall == 0.0 && host.min_rto_ms >= 10 && host.syn_backlog.is_none() && roomy(host);
        let stays = |app: &AppPlan| app.crash_us.is_none() && app.fork_us.is_none();
        let willing = |listen: &ListenPlan| listen.close_us.is_none() && listen.backlog >= 64 && listen.credits >= 64;
        let steady = self.listens.iter().all(willing);
        calm && steady
            && self.cuts.is_empty()
            && self.jumps.is_empty()
            && self.takeovers.is_empty()
            && self.kills.is_empty()
            && self.hosts.iter().all(prompt)
            && self.apps.iter().all(stays)
    }

    /// The network loses, repeats, damages and delays nothing.
    pub fn loses_nothing(&self) -> bool {
        let fabric = &self.fabric;
        let chances = [fabric.loss, fabric.burst_begin, fabric.reorder, fabric.duplicate, fabric.corrupt];
        chances.iter().all(|chance| *chance == 0.0) && fabric.jitter_ns == 0 && fabric.rate_bps == 0
    }

    /// Bytes that all applications send, where nothing goes wrong.
    pub fn bytes(&self) -> u64 {
        self.calls.iter().map(|call| u64::from(call.count) * (call.client.send + call.server.send)).sum()
    }
}
