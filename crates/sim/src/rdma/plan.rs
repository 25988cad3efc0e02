//! Pairs of RDMA programs as data.
use serde::{Deserialize, Serialize};
use verbs::{Mtu, QpKind};

/// The shortest frame of raw packets: it holds the headers of Ethernet, IPv6 and UDP, and its message's number.
pub(crate) const LEAST_RAW: usize = 14 + 40 + 8 + 8;

/// Two programs whose queue pairs are connected one to one. Each of them sends to the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPlan {
    /// Hosts of the two; they may be the same one.
    pub hosts: [usize; 2],
    /// What the queue pairs transport.
    pub kind: LinkKind,
    /// Queue pairs of each program. They share a send pipe and a completion queue.
    pub qps: usize,
    /// Work requests that each queue pair of either side sends.
    pub works: [usize; 2],
    /// Most bytes of one.
    pub longest: u32,
    /// Most of them outstanding at once.
    pub depth: usize,
    /// Receive work requests that a program offers at once: for each queue pair, or for all where they share them.
    pub receives: usize,
    /// The queue pairs of a program share their receive work requests.
    #[serde(default)]
    pub shared_receives: bool,
    /// Shared receive queues of each program that messages of extended connections name; 0 for other kinds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub xrc_queues: usize,
    /// Most payload of a packet, as verbs' code: 1 for 256 bytes.
    pub mtu: u8,
    /// First packet sequence number.
    pub psn: u32,
    /// Time-out for an acknowledgement, as verbs' code: 4.096 us * 2^n.
    pub timeout: u8,
    /// Reads and atomics outstanding.
    pub reads: u8,
    /// Programs wait for events of their completion queue instead of polling.
    #[serde(default)]
    pub events: bool,
    /// Start, microseconds.
    pub start_us: u64,
    /// From something happening to a program acting on it, microseconds.
    pub latency_us: u64,
    /// Least time between two work requests, microseconds.
    pub gap_us: u64,
    /// Least time between two receive work requests, microseconds: a sender that is faster has to wait.
    pub receive_gap_us: u64,
    /// A queue pair is moved to the error state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breaks: Vec<Break>,
    /// One of the programs is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vanishes: Option<Vanish>,
}

/// Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// Reliable connections.
    Reliable,
    /// Unreliable connections.
    Unreliable,
    /// Datagrams.
    Datagram,
    /// Reliable connections whose peers reach memory by windows, which are bound, invalidated, and bound again.
    Windowed,
    /// Extended reliable connections: one for each direction.
    Extended,
    /// Whole Ethernet frames, which rules bring to their queue pair.
    Raw,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A program moves a queue pair to the error state in the middle of anything. Afterwards both sides begin anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Break {
    /// Whose: 0 or 1.
    pub side: usize,
    /// Which.
    pub qp: usize,
    /// When, microseconds.
    pub at_us: u64,
    /// Both are reset at once, with all that is outstanding; otherwise when all is flushed.
    #[serde(default)]
    pub at_once: bool,
}

/// A program that is gone at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vanish {
    /// Which: 0 or 1.
    pub side: usize,
    /// When, microseconds.
    pub at_us: u64,
}

impl LinkKind {
    /// As verbs have it: the queue pair that sends.
    pub fn of_verbs(self) -> QpKind {
        match self {
            LinkKind::Extended => QpKind::XrcSend,
            LinkKind::Reliable | LinkKind::Windowed => QpKind::Rc,
            LinkKind::Unreliable => QpKind::Uc,
            LinkKind::Datagram => QpKind::Ud,
            LinkKind::Raw => QpKind::RawPacket,
        }
    }

    /// Each message arrives, or its sender gets an error.
    pub fn is_reliable(self) -> bool {
        self.of_verbs().is_reliable()
    }
}

impl LinkPlan {
    /// Refuses what the simulation's own programs cannot do.
    pub fn check(&self, hosts: usize) -> Result<(), String> {
        let sides = self.breaks.iter().map(|it| it.side).chain(self.vanishes.map(|it| it.side));
        let counts = [self.qps, self.depth, self.receives];
        let wrong = [
            (self.hosts.iter().any(|host| *host >= hosts), "names a host that the plan does not have"),
            (counts.iter().any(|count| !(1..=64).contains(count)), "has a count that is not from 1 to 64"),
            (self.works.iter().any(|count| *count > 256), "has more than 256 work requests"),
            (self.longest == 0 || self.longest > 1 << 20, "has no length from 1 to 1048576"),
            (self.psn >= 1 << 24 || !(1..=31).contains(&self.timeout), "has a number that verbs do not have"),
            (Mtu::from_code(self.mtu).is_none(), "has an MTU that verbs do not have"),
            (self.reads == 0 || self.reads > 128, "has no reads from 1 to 128"),
            (sides.into_iter().any(|side| side > 1), "names a side that is not 0 or 1"),
            (self.breaks.iter().any(|it| it.qp >= self.qps), "breaks a queue pair that there is not"),
            (self.kind == LinkKind::Raw && (self.longest as usize) < LEAST_RAW, "has frames without room for headers"),
            (self.xrc_queues > 8, "has more than 8 queues for extended connections"),
            ((self.xrc_queues > 0) != (self.kind == LinkKind::Extended), "has queues of another kind of connection"),
            (self.shared_receives && self.xrc_queues > 0, "shares receives in two ways"),
        ];
        match wrong.iter().find(|(wrong, _)| *wrong) {
            Some((_, why)) => Err(format!("an RDMA link {why}")),
            None => Ok(()),
        }
    }

    /// Extended connections, and those with windows, become plain ones.
    pub fn make_plain(&mut self) {
        if self.kind.is_reliable() {
            (self.kind, self.xrc_queues) = (LinkKind::Reliable, 0);
        }
    }

    /// Shared receive queues of each program.
    pub fn shared_queues(&self) -> usize {
        if self.shared_receives { 1 } else { self.xrc_queues }
    }

    /// Payload of a packet.
    pub fn mtu(&self) -> Mtu {
        Mtu::from_code(self.mtu).unwrap_or(Mtu::B256)
    }
}
