//! Rules that decide which frames queue pairs of raw packets get (`struct ibv_flow_attr`).
use crate::QpNumber;
use serde::{Deserialize, Serialize};

/// Fields of a rule at most.
pub const MOST_FIELDS: usize = 16;
/// Bytes of a field at most.
pub const MOST_FIELD_BYTES: usize = 16;

/// Which frames a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frames {
    /// Those whose fields have the rule's values.
    Matching,
    /// Those that no rule of the other kind is for.
    Rest,
    /// The same, of frames to multicast addresses only.
    MulticastRest,
}

/// A header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layer {
    /// Ethernet.
    Ethernet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Bytes of a header, and the bits of them that count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// The header.
    pub layer: Layer,
    /// Its byte where the field begins.
    pub at: u8,
    /// What is to stand there.
    pub value: Vec<u8>,
    /// The bits that count; as long as the value.
    pub mask: Vec<u8>,
}

/// A rule that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRule {
    /// Who gets the frames: a queue pair of raw packets.
    pub qp: QpNumber,
    /// Which they are.
    pub frames: Frames,
    /// Of several rules that are for a frame, the least number goes first, then the oldest rule.
    pub priority: u16,
    /// All of them have to agree; each needs its header in the frame, also where no bit counts.
    pub fields: Vec<Field>,
}
