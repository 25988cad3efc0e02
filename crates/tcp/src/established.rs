//! A connection whose handshake has ended: what the engine begins with.
use crate::{Agreed, Nanos, TimestampState};
use serde::{Deserialize, Serialize};
use wire::Seq;

/// A connection that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Established {
    /// Options that both SYNs agreed on.
    pub agreed: Agreed,
    /// Initial sequence number of this host.
    pub iss: Seq,
    /// Initial sequence number of the peer.
    pub irs: Seq,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// The peer's last TSval, where timestamps were agreed on.
    pub ts_recent: u32,
    /// Send an acknowledgement: the peer waits for it.
    pub acknowledge: bool,
    /// The segment has payload or FIN for the engine to process.
    pub pass_on: bool,
    /// Round-trip time of the SYN, where it was sent only once (Karn).
    pub rtt: Option<Nanos>,
    /// Bytes that the SYN carried and that are acknowledged with it (RFC 7413 section 4.2.2).
    #[serde(default)]
    pub early: u32,
    /// Bytes that the program has written before, those that are acknowledged among them: the rest goes at once.
    #[serde(default)]
    pub written: u32,
    /// Bytes of the peer that the SYN-ACK acknowledges, and that the engine gets as a segment after the SYN.
    #[serde(default)]
    pub answered: u32,
}

impl Established {
    /// State of the timestamps option, where it was agreed on.
    pub fn timestamps(&self) -> Option<TimestampState> {
        self.agreed.timestamps(self.ts_recent)
    }
}
