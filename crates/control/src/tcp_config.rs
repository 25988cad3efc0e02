//! What TCP offers to peers, how it receives, and how it goes on after idle time.
use engine::stream::Receiving;
use serde::{Deserialize, Serialize};

/// TCP's options and its receiver. Other values than the defaults are for experiments. FlexTOE as published (sections
/// 3.1.3, 5.2 and 5.3) has no SACK, keeps one interval and acknowledges each segment; operators can remove timestamps
/// (section 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpConfig {
    /// Selective acknowledgement is offered and accepted (RFC 2018). Without it, senders go back to the first byte that
    /// is not acknowledged (go-back-N).
    pub sack: bool,
    /// Timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// Acknowledgements wait for a second full segment, or for what is sent.
    pub delayed_acks: bool,
    /// Ranges of a connection that are kept beyond holes, up to 32.
    pub intervals: u8,
    /// So much later the end of what was sent is probed where it is one segment, milliseconds: how long a peer may hold
    /// back its acknowledgement (`TLP.max_ack_delay`, RFC 8985 section 7.2). Linux takes 200.
    pub tail_probe_ack_delay_ms: u32,
    /// A connection that sends nothing for so long, and for its retransmission timeout, has half of its congestion
    /// window left, milliseconds. So again, down to the initial window (RFC 5681 section 4.1). 0: never, as Linux's
    /// `tcp_slow_start_after_idle=0`. The default is Linux's least timeout.
    pub slow_start_after_idle_ms: u32,
    /// Smaller segments are tried where full ones time out three times in a row: routers may drop them and report
    /// nothing (RFC 4821), as with Linux's `tcp_mtu_probing=1`.
    pub black_hole_detection: bool,
}

impl Default for TcpConfig {
    fn default() -> TcpConfig {
        let Receiving { delayed_acks, intervals } = Receiving::default();
        TcpConfig {
            sack: true,
            timestamps: true,
            delayed_acks,
            intervals,
            tail_probe_ack_delay_ms: 0,
            slow_start_after_idle_ms: 200,
            black_hole_detection: true,
        }
    }
}

impl TcpConfig {
    /// A sentence about a value that cannot be.
    pub fn check(&self) -> Result<(), String> {
        let most = Receiving::INTERVALS;
        if self.intervals > most { Err(format!("tcp: intervals must be {most} at most")) } else { Ok(()) }
    }

    /// What the engine follows of it.
    pub fn receiving(&self) -> Receiving {
        Receiving { delayed_acks: self.delayed_acks, intervals: self.intervals }
    }
}
