//! The configuration of one host. Every key has a default, so an empty section is a working host.
use ::host::{Link, RouteConfig};
use context::{Geometry, Growing, LongPaths};
use port::Capabilities;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use tcp::congestion::{self, CongestionName};
use tcp::{ChallengeLimit, Nanos, RtoBounds};
use wire::{IpAddress, Mac};

/// One IP stack: addresses, limits, timers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostConfig {
    /// Name, for people and for `opentoe run --host`.
    pub name: String,
    /// The host's address: IPv4.
    pub address: IpAddress,
    /// Bits of the network part of the address: what is reached without a gateway.
    pub prefix_len: u8,
    /// Next hop for everything that no other route covers.
    pub gateway: Option<IpAddress>,
    /// Further routes.
    pub routes: Vec<RouteConfig>,
    /// Most bytes of an IP packet; 0 for what the port carries.
    pub mtu: u16,
    /// Connections at once, of all applications, `TIME-WAIT` not counted.
    pub max_flows: u32,
    /// Attached applications at once.
    pub max_contexts: u32,
    /// Sizes of each application's region.
    pub memory: MemoryConfig,
    /// Negotiate explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Congestion control of connections that do not choose; by default `dctcp` with ECN, else `cubic`.
    pub congestion: Option<CongestionName>,
    /// TCP's timers.
    pub timers: TimerConfig,
    /// Limits on opening connections and on answers to strangers.
    pub limits: LimitConfig,
    /// First port of the range that connections without a bound port take.
    pub ephemeral_first: u16,
    /// Last port of that range.
    pub ephemeral_last: u16,
    /// Ports below this one are for user 0 only, as the kernel's `ip_unprivileged_port_start`.
    pub unprivileged_port_start: u16,
    /// Programs of the daemon's network namespace reach each other over 127.0.0.0/8 by this host (docs/LOOPBACK.md).
    pub loopback: bool,
    /// Who may bind which ports. A port that no rule names is free for everybody.
    pub port_rules: Vec<PortRule>,
}

/// From this round trip on, a path is long: full buffers of the usual size, a quarter of a MiB, carry 4 Gbit/s there.
const LONG_PATH: Nanos = 500_000;

/// Connections of a program with buffers for long paths, at most.
const MOST_LONG_PATHS: u32 = 64;

/// Connections of a program whose transmit streams may outgrow their buffers, at most.
const MOST_GROWING: u32 = 64;

/// Sizes of an application's region. Only what is written costs memory. All are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Connections that one application can hold at once.
    pub slots: u32,
    /// Entries of each data ring.
    pub data_entries: u32,
    /// Entries of each control ring.
    pub control_entries: u32,
    /// Bytes of a connection's receive buffer.
    pub rx_bytes: u32,
    /// Bytes of a connection's transmit buffer.
    pub tx_bytes: u32,
    /// Bytes of each buffer of a connection whose round trip is long ([`MemoryConfig::is_long`]), as far as half of
    /// `context_bytes` goes, for 64 at most: a window holds what is under way in a round trip. 0: none has larger ones.
    pub long_path_bytes: u32,
    /// Bytes of the ring in which a transmit stream goes on whose program writes more at once, without blocking, than
    /// `tx_bytes`, as far as a quarter of `context_bytes` goes, for 64 connections at most. 0: none does. Not on
    /// engines with threads of their own.
    pub most_tx_bytes: u32,
    /// Bytes of buffers that one application's connections share (docs/MEMORY.md): as many as this is enough for have
    /// full ones, as many again half of that, and so on down to 16 KiB for all others. 0: all have full ones.
    pub context_bytes: u64,
    /// Bytes of each of the two rings in which a connection begins, until more is under way at once (docs/MEMORY.md):
    /// half a page, or more; 0 to begin in the full buffers. Only the flextoe engine on one thread has them.
    pub small_bytes: u32,
    /// Bytes for a shared log (docs/SHARED-LOG.md); 0 for none. Only with the laminar engine.
    pub log_bytes: u32,
    /// Mapped buffer pairs that the daemon keeps per application for slots not in use; beyond that the memory of
    /// a closed connection goes back to the system.
    pub cached_buffers: u32,
}

/// TCP's timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimerConfig {
    /// Least retransmission timeout, milliseconds. RFC 6298 section 2.4 says 1000, made for the clocks of 1990;
    /// Linux takes 200, and a data centre's round trip is far below 1. The default is a deliberate deviation.
    pub min_rto_ms: u32,
    /// How long a peer may hold back the acknowledgement of a single segment, milliseconds: the timeout is not shorter
    /// while no more than that is unacknowledged. Linux holds back for 40.
    pub peer_ack_delay_ms: u32,
    /// How soon the end of what was sent, at most one segment, may be sent again where it is not acknowledged,
    /// milliseconds; 0: only the retransmission timeout does it. RFC 8985 section 7.2 allows for an acknowledgement
    /// that is held back. The default is a deliberate deviation: little is lost by a probe in vain, and much by
    /// waiting.
    pub tail_probe_ms: u32,
    /// Largest retransmission timeout, milliseconds (RFC 6298 section 2.5: at least 60,000).
    pub max_rto_ms: u32,
    /// First timeout of SYN and SYN-ACK, milliseconds (RFC 6298 section 2.1).
    pub syn_rto_ms: u32,
    /// How often a SYN is sent again before the connection attempt fails with `ETIMEDOUT`.
    pub syn_retries: u32,
    /// How often a SYN-ACK is sent again before the attempt is forgotten.
    pub syn_ack_retries: u32,
    /// How long unacknowledged data is sent again before the connection fails, milliseconds: R2 of RFC 9293
    /// section 3.8.3 (at least 100,000).
    pub give_up_ms: u32,
    /// How long a closed connection stays in TIME-WAIT, milliseconds. RFC 9293 section 3.4.2 says 240,000, Linux takes
    /// 60,000. Old duplicates live far shorter today, a new connection begins above the last sequence number, and
    /// timestamps allow safe reuse (RFC 6191). Longer ones keep ports of peers that have no timestamps.
    pub time_wait_ms: u32,
    /// How long a connection that its application closed may wait for the peer's FIN or acknowledgement, ms.
    pub fin_timeout_ms: u32,
    /// Idle time before the first keepalive probe, seconds (RFC 9293 section 3.8.4: at least 7200 by default).
    pub keepalive_idle_s: u32,
    /// Time between keepalive probes, seconds.
    pub keepalive_interval_s: u32,
    /// Unanswered keepalive probes before the connection fails.
    pub keepalive_probes: u32,
    /// How long two joined connections may be silent before both are reset, seconds: nobody else would notice that a
    /// peer is gone.
    pub splice_idle_s: u32,
    /// Least time between two looks of congestion control at a flow, microseconds.
    pub congestion_interval_us: u32,
    /// How long an ARP entry is believed without asking again, milliseconds.
    pub arp_reachable_ms: u32,
    /// Time between ARP requests for one address, milliseconds.
    pub arp_retry_ms: u32,
    /// ARP requests before an address counts as unreachable.
    pub arp_tries: u32,
    /// How long what a process had is held for the child that it forks, milliseconds.
    pub fork_hold_ms: u32,
    /// How long a socket that was passed to another process is held until that one adopts it, milliseconds.
    pub pass_hold_ms: u32,
}

/// Limits on opening connections and on answers to strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Largest backlog that `listen` gets, as the kernel's `somaxconn`.
    pub max_backlog: u32,
    /// Connections of one listener whose handshake is not complete.
    pub syn_backlog: u32,
    /// Answer with cookies what a listener has no room to remember, instead of not at all (RFC 4987). A connection that
    /// came to be by a cookie exists for its client first: where that client waits for the server to begin, and its
    /// last acknowledgement is lost, it waits for ever.
    pub syn_cookies: bool,
    /// Connections being opened, of all applications.
    pub max_openings: u32,
    /// Connections in TIME-WAIT; the oldest goes when a new one comes.
    pub max_time_wait: u32,
    /// Connections of one application (FlexTOE appendix D); 0 for as many as its region holds.
    pub connections_per_application: u32,
    /// Attached applications of one user; 0 for no limit but `max_contexts`.
    pub contexts_per_user: u32,
    /// Local addresses that one application may have reserved.
    pub bindings_per_application: u32,
    /// Challenge acknowledgements a second of one connection that no engine runs (RFC 5961 section 7).
    pub challenge_acks_per_s: u32,
    /// Resets a second to segments for no connection.
    pub resets_per_s: u32,
    /// ICMP messages sent a second; as many ARP answers.
    pub icmp_per_s: u32,
    /// Forks of one application whose child has not attached yet.
    pub forks_per_application: u32,
    /// Sockets that one application passed to others and that were not adopted yet.
    pub passes_per_application: u32,
    /// Pairs of connections that are joined at once; the splice module's map may hold fewer.
    pub max_splices: u32,
    /// Addresses in the ARP table.
    pub arp_entries: u32,
    /// Frames kept for connections that nobody has accepted yet.
    pub held_frames: u32,
}

/// Port partitioning between applications (FlexTOE appendix D): who may bind the ports `first..=last`. An
/// application must match one rule of those that name the port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortRule {
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
    /// User numbers that may; empty for all.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// Programs that may (file name of the command's first word); empty for all.
    #[serde(default)]
    pub commands: Vec<String>,
}

impl Default for HostConfig {
    fn default() -> HostConfig {
        HostConfig {
            name: "toe0".into(),
            address: Ipv4Addr::new(10, 77, 0, 2).into(),
            prefix_len: 24,
            gateway: None,
            routes: Vec::new(),
            mtu: 0,
            max_flows: 65_536,
            max_contexts: 256,
            memory: MemoryConfig::default(),
            ecn: false,
            congestion: None,
            timers: TimerConfig::default(),
            limits: LimitConfig::default(),
            ephemeral_first: 32_768,
            ephemeral_last: 60_999,
            unprivileged_port_start: 1024,
            loopback: true,
            port_rules: Vec::new(),
        }
    }
}

impl Default for MemoryConfig {
    fn default() -> MemoryConfig {
        MemoryConfig {
            slots: 4096,
            data_entries: 4096,
            control_entries: 1024,
            rx_bytes: 256 << 10,
            tx_bytes: 256 << 10,
            long_path_bytes: 4 << 20,
            most_tx_bytes: 4 << 20,
            context_bytes: 1 << 30,
            small_bytes: 2048,
            log_bytes: 0,
            cached_buffers: 1024,
        }
    }
}

impl Default for TimerConfig {
    fn default() -> TimerConfig {
        TimerConfig {
            min_rto_ms: 10,
            peer_ack_delay_ms: 50,
            tail_probe_ms: 1,
            max_rto_ms: 60_000,
            syn_rto_ms: 1000,
            // Meets RFC 9293: SHLD-11, MUST-28.
            syn_retries: 6,
            syn_ack_retries: 5,
            give_up_ms: 120_000,
            time_wait_ms: 10_000,
            fin_timeout_ms: 60_000,
            keepalive_idle_s: 7200,
            keepalive_interval_s: 75,
            keepalive_probes: 9,
            splice_idle_s: 7200,
            congestion_interval_us: 100,
            arp_reachable_ms: 60_000,
            arp_retry_ms: 500,
            arp_tries: 4,
            fork_hold_ms: 5000,
            pass_hold_ms: 60_000,
        }
    }
}

impl Default for LimitConfig {
    fn default() -> LimitConfig {
        LimitConfig {
            max_backlog: 4096,
            syn_backlog: 4096,
            syn_cookies: true,
            max_openings: 16_384,
            max_time_wait: 32_768,
            connections_per_application: 0,
            contexts_per_user: 0,
            bindings_per_application: 1024,
            challenge_acks_per_s: 100,
            resets_per_s: 10_000,
            icmp_per_s: 1000,
            forks_per_application: 256,
            passes_per_application: 1024,
            max_splices: 8192,
            arp_entries: 1024,
            held_frames: 1024,
        }
    }
}

impl MemoryConfig {
    /// The region's geometry.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            slots: self.slots,
            long: self.long_paths(),
            growing: self.growing(),
            data_entries: self.data_entries,
            control_entries: self.control_entries,
            rx_bytes: self.rx_bytes,
            tx_bytes: self.tx_bytes,
            full_slots: self.full_slots(),
            small_bytes: self.small_bytes,
            log_bytes: self.log_bytes,
        }
    }

    /// Connections for whose full buffers the budget is enough, as a power of two.
    fn full_slots(&self) -> u32 {
        let enough = self.context_bytes / self.pair().max(1);
        match enough.checked_ilog2() {
            Some(power) if self.context_bytes > 0 => 1 << power.min(self.slots.max(1).ilog2()),
            _ if self.context_bytes == 0 => self.slots,
            _ => 1,
        }
    }

    /// Whether a connection with this first round trip, if it is known, gets the buffers of long paths.
    pub(crate) fn is_long(rtt: Option<Nanos>) -> bool {
        rtt.is_some_and(|rtt| rtt >= LONG_PATH)
    }

    /// Also where the budget or the other sizes leave no room for them.
    fn has_valid_long_paths(&self) -> bool {
        let bytes = self.long_path_bytes;
        bytes == 0 || (bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes))
    }

    /// With a shared log, each connection's window is a promise of records.
    fn long_paths(&self) -> LongPaths {
        let bytes = self.long_path_bytes;
        if self.log_bytes > 0 || bytes <= self.rx_bytes.max(self.tx_bytes) {
            return LongPaths::NONE;
        }
        let most = MOST_LONG_PATHS.min(self.slots / 4);
        let enough = match self.context_bytes {
            0 => most,
            budget => most.min((budget / 2 / (2 * u64::from(bytes))) as u32),
        };
        if enough > 0 { LongPaths { slots: enough, bytes } } else { LongPaths::NONE }
    }

    /// Also where the budget or the other sizes leave no room for it.
    fn has_valid_growth(&self) -> bool {
        let bytes = self.most_tx_bytes;
        bytes == 0 || (bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes))
    }

    fn growing(&self) -> Growing {
        let bytes = self.most_tx_bytes;
        if bytes <= self.tx_bytes {
            return Growing::NONE;
        }
        let most = MOST_GROWING.min(self.slots / 4);
        let enough = match self.context_bytes {
            0 => most,
            budget => most.min((budget / 4 / u64::from(bytes)) as u32),
        };
        if enough > 0 { Growing { slots: enough, bytes } } else { Growing::NONE }
    }

    /// Bytes of a connection's full buffers.
    fn pair(&self) -> u64 {
        self.rx_bytes as u64 + self.tx_bytes as u64
    }
}

impl TimerConfig {
    /// Bounds of retransmission timeouts.
    pub(crate) fn rto_bounds(&self) -> RtoBounds {
        let nanos = |ms: u32| Nanos::from(ms) * 1_000_000;
        RtoBounds::new(nanos(self.min_rto_ms), nanos(self.max_rto_ms))
    }
}

impl LimitConfig {
    /// A sentence about a limit with which no connection would ever be opened.
    fn check(&self) -> Result<(), String> {
        let needed = [
            ("max_openings", self.max_openings),
            // With cookies no handshake needs to be remembered.
            ("syn_backlog", self.syn_backlog.max(self.syn_cookies.into())),
            ("bindings_per_application", self.bindings_per_application),
            ("arp_entries", self.arp_entries),
        ];
        match needed.iter().find(|(_, most)| *most == 0) {
            Some((key, _)) => Err(format!("limits: {key} must be at least 1: with 0 no connection can be opened")),
            None => Ok(()),
        }
    }

    /// Challenge acknowledgements of one connection in an interval of their limit, at least one.
    pub(crate) fn challenges_per_interval(&self) -> u8 {
        let most = self.challenge_acks_per_s / (1_000_000_000 / ChallengeLimit::INTERVAL) as u32;
        most.clamp(1, u8::MAX.into()) as u8
    }
}

impl HostConfig {
    /// The shift of the windows that this host advertises (RFC 7323), where the peer scales too.
    pub fn window_shift(&self) -> u8 {
        tcp::Offer::shift_for(self.memory.geometry().most_rx())
    }

    /// The congestion control of connections that do not choose.
    pub fn default_congestion(&self) -> CongestionName {
        self.congestion.unwrap_or(if self.ecn { congestion::DCTCP } else { congestion::CUBIC })
    }

    /// The congestion control of a connection whose program chose this code.
    pub(crate) fn chosen_congestion(&self, code: u8) -> CongestionName {
        CongestionName::from_code(code).unwrap_or(self.default_congestion())
    }

    /// A port with the host's own address.
    pub fn link(&self, mac: Mac, mut caps: Capabilities) -> Link {
        if self.mtu > 0 {
            caps.mtu = caps.mtu.min(self.mtu);
        }
        Link { mac, address: self.address, prefix_len: self.prefix_len, caps }
    }

    /// A sentence about the first value that cannot be.
    pub fn validate(&self) -> Result<(), String> {
        let check = |ok: bool, sentence: &str| if ok { Ok(()) } else { Err(format!("host {}: {sentence}", self.name)) };
        let unicast = !self.address.is_unspecified() && !self.address.is_multicast() && !self.address.is_broadcast();
        check(!self.name.is_empty(), "name must not be empty")?;
        let gateways = || self.gateway.iter().chain(self.routes.iter().filter_map(|route| route.gateway.as_ref()));
        let mut addresses = gateways().chain(self.routes.iter().map(|route| &route.network)).chain([&self.address]);
        check(addresses.all(|address| address.is_v4()), "addresses must be IPv4: IPv6 is not implemented")?;
        check(unicast && !self.address.is_loopback(), "address must be a unicast address outside 127.0.0.0/8")?;
        check((1..=32).contains(&self.prefix_len), "prefix_len must be between 1 and 32")?;
        check(self.mtu == 0 || self.mtu >= 576, "mtu must be 0 or at least 576")?;
        check((1..=1 << 22).contains(&self.max_flows), "max_flows must be between 1 and 4194304")?;
        check((1..=1 << 16).contains(&self.max_contexts), "max_contexts must be between 1 and 65536")?;
        check(
            self.memory.geometry().is_valid() && self.memory.has_valid_long_paths() && self.memory.has_valid_growth(),
            "memory: all sizes must be powers of two; rings at least 64 entries, buffers and the log at least 4096 bytes, \
             small_bytes 0 or from 2048 to half of a buffer, and 8192 at most, long_path_bytes and most_tx_bytes 0 or at most 2^30",
        )?;
        check(
            self.memory.context_bytes == 0 || self.memory.context_bytes >= self.memory.pair(),
            "memory: context_bytes must be at least rx_bytes and tx_bytes together, or 0 for full buffers always",
        )?;
        check(
            self.timers.min_rto_ms >= 1 && self.timers.min_rto_ms <= self.timers.max_rto_ms,
            "timers: min_rto_ms must be between 1 and max_rto_ms",
        )?;
        check(self.timers.syn_rto_ms >= 1, "timers: syn_rto_ms must be at least 1")?;
        self.limits.check().map_err(|sentence| format!("host {}: {sentence}", self.name))?;
        check(
            self.ephemeral_first >= 1 && self.ephemeral_first <= self.ephemeral_last,
            "ephemeral_first must be between 1 and ephemeral_last",
        )?;
        for gateway in gateways() {
            check(*gateway != self.address, "a gateway must be another host")?;
        }
        for route in &self.routes {
            check(route.prefix_len <= 32, "routes: prefix_len must be at most 32")?;
        }
        for rule in &self.port_rules {
            check(rule.first <= rule.last, "port_rules: first must not be greater than last")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Checks RFC 9293: SHLD-11, MUST-28.
    #[test]
    fn the_default_is_valid_and_bad_values_are_named() {
        assert_eq!(HostConfig::default().validate(), Ok(()));
        let timers = TimerConfig::default();
        assert!(timers.give_up_ms >= 100_000 && timers.keepalive_idle_s >= 7200);
        let bad = HostConfig { prefix_len: 0, ..HostConfig::default() };
        assert!(bad.validate().unwrap_err().contains("prefix_len"));
        let bad = HostConfig { address: Ipv4Addr::LOCALHOST.into(), ..HostConfig::default() };
        assert!(bad.validate().unwrap_err().contains("address"));
        let bad = HostConfig { address: "2001:db8::1".parse().unwrap(), ..HostConfig::default() };
        assert!(bad.validate().unwrap_err().contains("IPv6 is not implemented"));
        let bad = HostConfig { gateway: Some("fe80::1%2".parse().unwrap()), ..HostConfig::default() };
        assert!(bad.validate().unwrap_err().contains("IPv6 is not implemented"));
        let memory = MemoryConfig { rx_bytes: 5000, ..MemoryConfig::default() };
        assert!(HostConfig { memory, ..HostConfig::default() }.validate().is_err());
        let with = |small_bytes| MemoryConfig { small_bytes, rx_bytes: 4096, ..MemoryConfig::default() };
        let valid = |small_bytes| HostConfig { memory: with(small_bytes), ..HostConfig::default() }.validate();
        assert!(valid(0).is_ok() && valid(2048).is_ok());
        let limits = |syn_cookies| LimitConfig { syn_backlog: 0, syn_cookies, ..LimitConfig::default() };
        let valid_limits = |cookies| HostConfig { limits: limits(cookies), ..HostConfig::default() }.validate();
        assert!(valid_limits(true).is_ok() && valid_limits(false).unwrap_err().contains("syn_backlog"));
        assert!(
            [1024, 3000, 4096]
                .map(|bytes| valid(bytes).unwrap_err().contains("small_bytes"))
                .iter()
                .all(|named| *named)
        );
    }

    #[test]
    fn a_budget_says_how_many_connections_have_full_buffers() {
        let full = |context_bytes, slots| MemoryConfig { context_bytes, slots, ..MemoryConfig::default() }.geometry();
        assert_eq!(MemoryConfig::default().geometry().full_slots, 2048);
        assert_eq!(full(3 << 20, 4096).full_slots, 4, "the power of two below six");
        assert_eq!(full(1 << 40, 4096).full_slots, 4096);
        assert_eq!(full(0, 65_536).full_slots, 65_536);
        assert_eq!(full(1 << 30, 4096).long, LongPaths { slots: 64, bytes: 4 << 20 });
        assert_eq!(full(64 << 20, 4096).long.slots, 4, "half of the budget");
        assert_eq!((full(0, 32).long.slots, full(0, 2).long), (8, LongPaths::NONE), "a quarter of the slots");
        let growing = |context_bytes, slots| full(context_bytes, slots).growing;
        assert_eq!(growing(1 << 30, 4096), Growing { slots: 64, bytes: 4 << 20 });
        assert_eq!((growing(64 << 20, 4096).slots, growing(0, 32).slots, growing(0, 2)), (4, 8, Growing::NONE));
        let bytes = full(1 << 30, 32_768).region_len() - full(1 << 30, 32_768).rx_at(0);
        assert!(
            bytes < (2 << 30) + 32_768 * (32 << 10) + (1 << 29) + (1 << 28),
            "twice the budget, the least ones, long paths, growth"
        );
        let memory = MemoryConfig { context_bytes: (512 << 10) - 1, ..MemoryConfig::default() };
        let refusal = HostConfig { memory, ..HostConfig::default() }.validate().unwrap_err();
        assert!(refusal.contains("context_bytes"), "{refusal}");
    }

    #[test]
    fn congestion_follows_ecn_unless_chosen() {
        let with = |ecn, congestion| HostConfig { ecn, congestion, ..HostConfig::default() }.default_congestion();
        assert_eq!(with(true, None), congestion::DCTCP);
        assert_eq!(with(false, None), congestion::CUBIC);
        assert_eq!(with(true, Some(congestion::TIMELY)), congestion::TIMELY);
    }
}
