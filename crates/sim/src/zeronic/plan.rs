//! Pairs of ZeroNIC hosts as data.
use engines::EngineKind;
use serde::{Deserialize, Serialize};
use zeronic::{Carries, Shortage};

/// Two ZeroNIC hosts with a program each, and connections between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TalkPlan {
    /// The host whose program connects, and the other one.
    pub sides: [SidePlan; 2],
    /// What the connections carry. A message's receive has room for the longest one.
    #[serde(default)]
    pub carries: Carries,
    /// Connections.
    pub connections: usize,
    /// Bytes that each side sends on each connection.
    pub bytes: [u64; 2],
    /// Start, microseconds.
    pub start_us: u64,
    /// A program is gone, or its memory, or it gives its connections up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

/// A ZeroNIC host and its program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidePlan {
    /// What decides on headers.
    pub engine: EngineKind,
    /// What becomes of payload without a receive.
    pub shortage: ShortagePlan,
    /// Congestion control by its name in `tcp::congestion::KINDS`; empty for the engine's default.
    #[serde(default)]
    pub congestion: String,
    /// Bytes of the transport's buffers, which hold dummy payload; a power of two.
    pub buffer_bytes: u32,
    /// Bounds of the retransmission timeout, milliseconds.
    pub min_rto_ms: u32,
    /// See [`SidePlan::min_rto_ms`].
    pub max_rto_ms: u32,
    /// Time between two rounds while there is work, nanoseconds.
    pub poll_ns: u64,
    /// Probability that a round comes late, and by how much at most, nanoseconds.
    pub stall: f64,
    /// See [`SidePlan::stall`].
    pub stall_ns: u64,
    /// Entries of a connection's lists; posts beyond are refused, and tried again.
    pub entries: usize,
    /// Lines of the flow table, where there are fewer than connections: streams beyond are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
    /// Holes of a connection's incoming stream.
    pub holes: usize,
    /// Bytes of a post: the fewest, and the most.
    pub shortest: u32,
    /// See [`SidePlan::shortest`].
    pub longest: u32,
    /// Receives and sends of a connection that are posted at once.
    pub receives: usize,
    /// See [`SidePlan::receives`].
    pub sends: usize,
    /// Least time between two receives, microseconds: a sender that is faster has to wait.
    pub receive_gap_us: u64,
    /// Least time between two sends, microseconds.
    pub send_gap_us: u64,
    /// From something happening to the program acting on it, microseconds.
    pub latency_us: u64,
}

/// As [`Shortage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShortagePlan {
    /// See [`Shortage::Drop`].
    Drop,
    /// See [`Shortage::Buffer`].
    Buffer,
    /// See [`Shortage::Defer`].
    Defer,
}

impl ShortagePlan {
    pub(crate) fn of_zeronic(self) -> Shortage {
        match self {
            ShortagePlan::Drop => Shortage::Drop,
            ShortagePlan::Buffer => Shortage::Buffer,
            ShortagePlan::Defer => Shortage::Defer,
        }
    }
}

/// What goes wrong with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trouble {
    /// Whose: 0 or 1.
    pub side: usize,
    /// When, microseconds.
    pub at_us: u64,
    /// What.
    pub kind: TroubleKind,
}

/// See [`Trouble`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TroubleKind {
    /// Its process is gone.
    Vanishes,
    /// It ends the registration of its memory, with posts under way.
    Unmaps,
    /// It closes its connections, with posts under way.
    Closes,
}

impl TalkPlan {
    /// Refuses what the simulation's own programs cannot do.
    pub fn check(&self) -> Result<(), String> {
        let each = |wrong: fn(&SidePlan) -> bool| self.sides.iter().any(wrong);
        let wrong = [
            (!(1..=8).contains(&self.connections), "has no connections from 1 to 8"),
            (self.bytes.iter().any(|bytes| *bytes > 1 << 24), "has more than 16 MiB"),
            (each(|side| side.shortest == 0 || side.shortest > side.longest), "has posts without a byte"),
            (each(|side| side.longest > 1 << 20), "has posts of more than 1048576 bytes"),
            (each(|side| side.receives.min(side.sends) == 0 || side.receives.max(side.sends) > 64), "has no posts"),
            (each(|side| side.entries < 16 || side.holes == 0), "has lists of less than 16 entries"),
            (each(|side| !side.buffer_bytes.is_power_of_two() || side.buffer_bytes < 4096), "has no such buffers"),
            (self.trouble.is_some_and(|it| it.side > 1), "names a side that is not 0 or 1"),
        ];
        match wrong.iter().find(|(wrong, _)| *wrong) {
            Some((_, why)) => Err(format!("a ZeroNIC talk {why}")),
            None => Ok(()),
        }
    }
}
