//! The configuration of one host. Every key has a default, so an empty section is a working host.
use crate::memory_config::MemoryConfig;
use ::host::{AddressV6, Link, RouteConfig};
use engine::Runner;
use port::Capabilities;
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;
use tcp::congestion::{self, CongestionName};
use tcp::{ChallengeLimit, Nanos, RtoBounds};
use wire::ipv6::LEAST_MTU;
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
    /// The same of IPv6 (docs/IPV6.md).
    pub ipv6: Ipv6Config,
    /// Further routes, of both families.
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
    /// Limits on half-open connections and on answers to unknown peers.
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
    /// What runs the engine's program, where it has one.
    pub backend: Runner,
}

/// A host's place in an IPv6 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ipv6Config {
    /// The host's address, of global scope; none where it speaks IPv6 over its loopback only.
    pub address: Option<IpAddress>,
    /// Bits of the network part of the address.
    pub prefix_len: u8,
    /// Next hop for everything that no other route covers: a global or a link-local address.
    pub gateway: Option<IpAddress>,
    /// The address comes from a router, when the host begins, and the gateway is one that advertises itself.
    pub auto: bool,
}

impl Ipv6Config {
    /// Bits of the network part of an address, by default.
    pub const PREFIX_LEN: u8 = 64;
}

impl Default for Ipv6Config {
    fn default() -> Ipv6Config {
        Ipv6Config { address: None, prefix_len: Ipv6Config::PREFIX_LEN, gateway: None, auto: false }
    }
}

/// TCP's timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimerConfig {
    /// Least retransmission timeout, milliseconds. RFC 6298 section 2.4 has 1000, made for the clocks of 1990;
    /// Linux takes 200, and a data centre's round trip is far below 1. The default is a deliberate deviation.
    pub min_rto_ms: u32,
    /// How long a peer may hold back the acknowledgement of a single segment, milliseconds. The timeout is not shorter
    /// while no more than that is unacknowledged. Linux holds back for 40.
    pub peer_ack_delay_ms: u32,
    /// How soon the end of what was sent may be probed without an acknowledgement, milliseconds. 0: only the
    /// retransmission timeout sends again. RFC 8985 section 7.2 allows for an acknowledgement that is held back, where
    /// one segment is outstanding. The default is a deliberate deviation: little is lost by a probe in vain, and much
    /// by waiting.
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
    /// How long a closed connection stays in TIME-WAIT, milliseconds. RFC 9293 section 3.4.2 has 240,000, Linux takes
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
    /// How long two joined connections may be silent before both are reset, seconds: no other part detects that a
    /// peer is gone.
    pub splice_idle_s: u32,
    /// Least time between two polls of a flow by congestion control, microseconds.
    pub congestion_interval_us: u32,
    /// How long an ARP entry is valid without asking again, milliseconds.
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

/// Limits on half-open connections and on answers to unknown peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Largest backlog that `listen` gets, as the kernel's `somaxconn`.
    pub max_backlog: u32,
    /// Connections of one listener whose handshake is not complete.
    pub syn_backlog: u32,
    /// Answer with cookies what a listener has no room to remember, instead of not at all (RFC 4987). A connection that
    /// came to be by a cookie exists for its client first. Where that client waits for the server to begin, and its
    /// last acknowledgement is lost, it waits for ever.
    pub syn_cookies: bool,
    /// Programs may send data with a SYN (TCP Fast Open, RFC 7413), as with bit 1 of the kernel's `tcp_fastopen`.
    pub fast_open_client: bool,
    /// Listeners that ask for it take data of a SYN, as with bit 2 of the kernel's `tcp_fastopen`.
    pub fast_open_server: bool,
    /// Peers of which a Fast Open cookie is kept.
    pub fast_open_peers: u32,
    /// Short segments are collected where a program does not set `TCP_NODELAY` (Nagle's algorithm, RFC 9293 section
    /// 3.7.4). Off by default: most programs that care set it, and the others gain latency.
    pub nagle: bool,
    /// Connections being opened, of all applications.
    pub max_handshakes: u32,
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
    /// Frames kept for connections that are not accepted yet.
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
            ipv6: Ipv6Config::default(),
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
            backend: Runner::default(),
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
            fast_open_client: true,
            fast_open_server: false,
            nagle: false,
            fast_open_peers: 4096,
            max_handshakes: 16_384,
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
            ("max_handshakes", self.max_handshakes),
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
        let v6 = self.ipv6.address.map(|address| AddressV6 { address, prefix_len: self.ipv6.prefix_len });
        Link { mac, address: self.address, prefix_len: self.prefix_len, v6, caps }
    }

    /// A sentence about the first address that cannot be.
    fn check_addresses(&self) -> Result<(), String> {
        let check = |ok: bool, sentence: &str| if ok { Ok(()) } else { Err(sentence.to_string()) };
        let is_station = |address: &IpAddress| {
            let special = address.is_unspecified() || address.is_multicast() || address.is_broadcast();
            !special && !address.is_loopback()
        };
        check(self.address.is_v4(), "address must be an IPv4 address: its IPv6 address is ipv6.address")?;
        check(is_station(&self.address), "address must be a unicast address outside 127.0.0.0/8")?;
        check((1..=32).contains(&self.prefix_len), "prefix_len must be between 1 and 32")?;
        let Ipv6Config { address: v6, prefix_len, gateway, auto } = self.ipv6;
        check(
            v6.is_none_or(|address| !address.is_v4() && is_station(&address) && !address.is_link_local()),
            "ipv6.address must be an IPv6 unicast address of global scope, such as 2001:db8::2; \
             link-local ones come by themselves",
        )?;
        check((1..=128).contains(&prefix_len), "ipv6.prefix_len must be between 1 and 128")?;
        check(
            !(auto || v6.is_some()) || self.mtu == 0 || self.mtu >= LEAST_MTU,
            "mtu must be 0 or at least 1280 with IPv6",
        )?;
        check(self.gateway.is_none_or(|gateway| gateway.is_v4()), "gateway must be an IPv4 address: use ipv6.gateway")?;
        check(gateway.is_none_or(|gateway| !gateway.is_v4()), "ipv6.gateway must be an IPv6 address")?;
        for route in &self.routes {
            let (network, gateway) = (route.network, route.gateway.unwrap_or(route.network));
            check(route.prefix_len <= network.width(), "routes: prefix_len is longer than an address")?;
            check(network.is_v4() == gateway.is_v4(), "routes: network and gateway must be of one family")?;
        }
        let of_v6 = self.routes.iter().map(|route| route.network).chain(gateway).any(|ip| !ip.is_v4());
        check(auto || v6.is_some() || !of_v6, "IPv6 routes and gateways need an ipv6.address")?;
        let own = |gateway: &IpAddress| *gateway == self.address || Some(*gateway) == v6;
        let gateways = self.routes.iter().filter_map(|route| route.gateway).chain(self.gateway).chain(gateway);
        check(!gateways.into_iter().any(|gateway| own(&gateway)), "a gateway must be another host")
    }

    /// A sentence about the first value that cannot be.
    pub fn validate(&self) -> Result<(), String> {
        let check = |ok: bool, sentence: &str| if ok { Ok(()) } else { Err(format!("host {}: {sentence}", self.name)) };
        check(!self.name.is_empty(), "name must not be empty")?;
        self.check_addresses().map_err(|sentence| format!("host {}: {sentence}", self.name))?;
        check(self.mtu == 0 || self.mtu >= 576, "mtu must be 0 or at least 576")?;
        check((1..=1 << 22).contains(&self.max_flows), "max_flows must be between 1 and 4194304")?;
        check((1..=1 << 16).contains(&self.max_contexts), "max_contexts must be between 1 and 65536")?;
        self.memory.check().map_err(|sentence| format!("host {}: {sentence}", self.name))?;
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
    fn addresses_are_of_the_family_of_their_key() {
        let (v4, v6) = (HostConfig::default(), Some("2001:db8::2".parse().unwrap()));
        let ipv6 = Ipv6Config { address: v6, gateway: Some("fe80::1".parse().unwrap()), ..Ipv6Config::default() };
        let both = HostConfig { ipv6, ..v4.clone() };
        let with = |ipv6| HostConfig { ipv6, ..v4.clone() };
        let at = |address: &str| with(Ipv6Config { address: Some(address.parse().unwrap()), ..ipv6 });
        assert_eq!(both.validate(), Ok(()));
        let route = |network: &str, prefix_len, gateway: Option<&str>| {
            let (network, gateway) = (network.parse().unwrap(), gateway.map(|gateway| gateway.parse().unwrap()));
            vec![RouteConfig { network, prefix_len, gateway, port: None }]
        };
        let routed = HostConfig { routes: route("2001:db8:1::", 48, Some("2001:db8::1")), ..both.clone() };
        assert_eq!(routed.validate(), Ok(()));
        for (config, named) in [
            (HostConfig { address: v6.unwrap(), ..v4.clone() }, "address must be an IPv4 address"),
            (HostConfig { gateway: v6, ..v4.clone() }, "gateway must be an IPv4"),
            (at("10.77.0.2"), "ipv6.address"),
            (at("fe80::1"), "ipv6.address"),
            (at("::1"), "ipv6.address"),
            (with(Ipv6Config { prefix_len: 129, ..ipv6 }), "ipv6.prefix_len"),
            (HostConfig { mtu: 1279, ..both.clone() }, "1280"),
            (with(Ipv6Config { gateway: v6, ..ipv6 }), "another host"),
            (with(Ipv6Config { address: None, ..ipv6 }), "need an ipv6.address"),
            (HostConfig { routes: route("2001:db8::", 48, None), ..v4.clone() }, "need an ipv6.address"),
            (HostConfig { routes: route("2001:db8::", 129, None), ..both.clone() }, "longer"),
            (HostConfig { routes: route("2001:db8::", 48, Some("10.77.0.1")), ..both }, "one family"),
        ] {
            assert!(config.validate().unwrap_err().contains(named), "{named}");
        }
    }

    #[test]
    fn congestion_follows_ecn_unless_chosen() {
        let with = |ecn, congestion| HostConfig { ecn, congestion, ..HostConfig::default() }.default_congestion();
        assert_eq!(with(true, None), congestion::DCTCP);
        assert_eq!(with(false, None), congestion::CUBIC);
        assert_eq!(with(true, Some(congestion::TIMELY)), congestion::TIMELY);
    }
}
