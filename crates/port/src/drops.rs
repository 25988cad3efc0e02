//! The one registry of drop reasons: whatever is not passed on is counted here, by name.

macro_rules! drops {
    ($($(#[doc = $text:literal])+ $name:ident = $label:literal,)+) => {
        /// Why a frame, a segment, a part of its payload or a descriptor was not processed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Drop { $($(#[doc = $text])+ $name,)+ }

        impl Drop {
            /// Every reason.
            pub const ALL: &'static [Drop] = &[$(Drop::$name,)+];
            /// The name in metrics and on the command line.
            pub fn label(self) -> &'static str {
                match self { $(Drop::$name => $label,)+ }
            }
            /// What it means, for `opentoe why`.
            pub fn sentence(self) -> &'static str {
                match self { $(Drop::$name => concat!($($text),+).trim_ascii(),)+ }
            }
        }
    };
}

drops! {
    /// The Ethernet or ARP frame is too short, for another station, or of an unknown kind.
    Ethernet = "ethernet",
    /// The IPv4 header is malformed or its checksum is wrong.
    Ipv4 = "ipv4",
    /// The packet is not addressed to this host.
    NotOurs = "not_ours",
    /// IPv4 fragments are not reassembled: TCP peers avoid them by path MTU discovery.
    Fragment = "fragment",
    /// The protocol is neither TCP nor ICMP.
    Protocol = "protocol",
    /// The TCP header or an option in it is malformed.
    TcpHeader = "tcp_header",
    /// The TCP checksum is wrong.
    TcpChecksum = "tcp_checksum",
    /// The ICMP message is malformed, unsolicited or does not fit what it claims to answer.
    Icmp = "icmp",
    /// No connection and no listener: answered with RST where the RFC asks for it.
    NoFlow = "no_flow",
    /// The timestamp is older than the last one seen (PAWS, RFC 7323 section 5).
    Paws = "paws",
    /// The sequence number is outside the receive window.
    OutsideWindow = "outside_window",
    /// All of the payload was received before.
    Duplicate = "duplicate",
    /// Out of order and not next to the one interval that is kept.
    OutOfOrder = "out_of_order",
    /// A part of the payload was beyond the receive window and was cut off.
    Trimmed = "trimmed",
    /// It acknowledges what was never sent (RFC 5961 section 5).
    AckBeyondSent = "ack_beyond_sent",
    /// An old acknowledgement outside the acceptable range (RFC 5961 section 5).
    AckTooOld = "ack_too_old",
    /// A segment without ACK on an established connection.
    NoAck = "no_ack",
    /// RST outside the window, or inside but not exact: challenged (RFC 5961 section 3).
    RstChallenged = "rst_challenged",
    /// SYN on an established connection: challenged (RFC 5961 section 4).
    SynChallenged = "syn_challenged",
    /// The limit on challenge acknowledgements was reached (RFC 5961 section 7).
    ChallengeLimit = "challenge_limit",
    /// Data after the application closed the connection.
    AfterClose = "after_close",
    /// The listener's backlog is full.
    Backlog = "backlog",
    /// Too many handshakes to remember: the SYN was answered with a cookie (RFC 4987) and forgotten.
    SynCookie = "syn_cookie",
    /// The flow table is full.
    FlowTable = "flow_table",
    /// The daemon got no more memory: it serves the connections that there are, and takes no others until it gets some again.
    NoMemory = "no_memory",
    /// The connection is set up but no application has asked for it yet.
    NotAccepted = "not_accepted",
    /// A frame waited for address resolution and another one took its place, or nobody answered.
    ArpUnresolved = "arp_unresolved",
    /// No route to the destination.
    NoRoute = "no_route",
    /// The port's queue was full or the device refused the frame.
    PortQueue = "port_queue",
    /// The frame is longer than the port carries.
    TooLong = "too_long",
    /// The fabric dropped it: emulated loss.
    FabricLoss = "fabric_loss",
    /// The fabric's buffer for the receiving host was full.
    FabricQueue = "fabric_queue",
    /// The fabric knows no host with this address.
    FabricUnknown = "fabric_unknown",
    /// A descriptor of an application named no connection of its context, or one that is over.
    BumpUnknown = "bump_unknown",
    /// A descriptor of an application carried impossible positions.
    BumpRange = "bump_range",
    /// An application's ring was corrupt: its context was detached.
    RingCorrupt = "ring_corrupt",
    /// A module dropped the frame (XDP_DROP): `opentoe xdp ls` shows which.
    ModuleDrop = "module_drop",
    /// A module failed on the frame (XDP_ABORTED, or it was stopped): `opentoe xdp ls` shows which.
    ModuleAborted = "module_aborted",
    /// A segment of two connections that are joined, with an impossible sequence number or no hops left.
    SpliceRefused = "splice_refused",
    /// An application's request was malformed or named what is not its own.
    RequestInvalid = "request_invalid",
}

/// A set of reasons.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropSet(u64);

const _: () = assert!(Drop::ALL.len() <= 64);

impl DropSet {
    /// Adds a reason.
    pub fn add(&mut self, reason: Drop) {
        self.0 |= 1 << reason as u8;
    }
    /// There is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// All of them, in the registry's order.
    pub fn iter(self) -> impl Iterator<Item = Drop> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let number = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            Drop::ALL.get(number as usize).copied()
        })
    }
}

impl From<Drop> for DropSet {
    fn from(reason: Drop) -> DropSet {
        DropSet(1 << reason as u8)
    }
}

/// A counter for each reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounts([u64; Drop::ALL.len()]);

impl Default for DropCounts {
    fn default() -> Self {
        DropCounts([0; Drop::ALL.len()])
    }
}

impl DropCounts {
    /// Counts one.
    #[inline]
    pub fn count(&mut self, reason: Drop) {
        self.0[reason as usize] += 1;
    }
    /// How many for a reason.
    pub fn get(&self, reason: Drop) -> u64 {
        self.0[reason as usize]
    }
    /// The reasons that were counted more often than they were `before`.
    pub fn since(&self, before: &DropCounts) -> DropSet {
        let mut set = DropSet::default();
        let more = |reason: &&Drop| self.get(**reason) > before.get(**reason);
        Drop::ALL.iter().filter(more).for_each(|reason| set.add(*reason));
        set
    }
    /// Adds all of another's.
    pub fn merge(&mut self, other: &DropCounts) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }
    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Drop, u64)> + '_ {
        Drop::ALL.iter().map(|reason| (*reason, self.get(*reason))).filter(|(_, count)| *count > 0)
    }
}
