//! The registry of drop reasons: whatever a host does not pass on is counted here, by name.
use port::PortDrop;
use port::drops::{Counts, MOST, Reason, Set};

macro_rules! drops {
    (own { $($(#[doc = $text:literal])+ $name:ident = $label:literal,)+ } port { $($port:ident,)+ }) => {
        /// Why a frame, a segment, a part of its payload or a descriptor was not processed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $text])+ $name,)+
            $(#[doc = concat!("As [`PortDrop::", stringify!($port), "`].")] $port,)+
        }

        impl DropReason {
            /// Every reason.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)+ $(DropReason::$port,)+];
            /// The name in metrics and on the command line.
            pub const fn label(self) -> &'static str {
                match self {
                    $(DropReason::$name => $label,)+
                    $(DropReason::$port => PortDrop::$port.label(),)+
                }
            }
            /// What it means, for `opentoe why`.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(DropReason::$name => concat!($($text),+).trim_ascii(),)+
                    $(DropReason::$port => PortDrop::$port.sentence(),)+
                }
            }
        }

        impl Reason for DropReason {
            const ALL: &'static [DropReason] = DropReason::ALL;
            const LABELS: &'static [&'static str] = &[$($label,)+ $(PortDrop::$port.label(),)+];
            #[inline]
            fn index(self) -> usize {
                self as usize
            }
        }

        impl From<PortDrop> for DropReason {
            fn from(reason: PortDrop) -> DropReason {
                match reason { $(PortDrop::$port => DropReason::$port,)+ }
            }
        }
    };
}

drops! {
    own {
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
    port { Ethernet, PortQueue, TooLong, FabricLoss, FabricQueue, FabricUnknown, }
}

/// A set of reasons.
pub type DropSet = Set<DropReason>;

/// A counter for each reason.
pub type DropCounts = Counts<DropReason>;

const _: () = assert!(DropReason::ALL.len() <= MOST);
