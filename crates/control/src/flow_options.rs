//! Options of a flow, from the application or the configuration.
use crate::config::HostConfig;
use engine::Nanos;
use serde::{Deserialize, Serialize};

const MILLISECOND: Nanos = 1_000_000;

/// Options of a flow, as the application or the configuration set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FlowOptions {
    pub keepalive: bool,
    pub keepalive_idle: Nanos,
    pub keepalive_interval: Nanos,
    pub keepalive_probes: u32,
    /// How long nothing may be acknowledged before the connection fails.
    pub give_up: Nanos,
    /// The same for a connection that its application closed.
    pub fin_timeout: Nanos,
    /// Most bytes a second; 0 for no limit.
    pub pacing_rate: u64,
    /// How long the peer may hold back the acknowledgement of a single segment.
    pub ack_delay: Nanos,
    /// How soon the end of what was sent may be sent again; 0: never.
    pub tail_probe: Nanos,
    /// So much later where one segment is outstanding ([`crate::TcpConfig::tail_probe_ack_delay_ms`]).
    #[serde(default)]
    pub tail_probe_ack_delay: Nanos,
    /// The congestion window shrinks after so long without sending; 0: never
    /// ([`crate::TcpConfig::slow_start_after_idle_ms`]).
    #[serde(default)]
    pub slow_start_after_idle: Nanos,
    /// Short segments are collected (Nagle's algorithm).
    #[serde(default)]
    pub nagle: bool,
}

impl FlowOptions {
    /// Options of a flow for which none were set.
    pub(crate) fn of(config: &HostConfig) -> FlowOptions {
        let timers = &config.timers;
        let second = 1000 * MILLISECOND;
        FlowOptions {
            // Meets RFC 9293: MUST-25.
            keepalive: false,
            keepalive_idle: timers.keepalive_idle_s as Nanos * second,
            keepalive_interval: timers.keepalive_interval_s as Nanos * second,
            keepalive_probes: timers.keepalive_probes,
            give_up: timers.give_up_ms as Nanos * MILLISECOND,
            fin_timeout: timers.fin_timeout_ms as Nanos * MILLISECOND,
            pacing_rate: 0,
            ack_delay: timers.peer_ack_delay_ms as Nanos * MILLISECOND,
            tail_probe: timers.tail_probe_ms as Nanos * MILLISECOND,
            tail_probe_ack_delay: 0,
            slow_start_after_idle: 0,
            nagle: config.limits.nagle,
        }
    }
}
